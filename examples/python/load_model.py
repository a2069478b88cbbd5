"""A model's safetensors into GPU memory by direct reads and doorbell's copies, each tensor handed to torch without a copy.

    python3 load_model.py model.safetensors

With torch and CUDA it also loads the file by safetensors.torch and says what each took.
"""

import json
import os
import struct
import sys
import threading
import time

import doorbell

BLOCK, SLOTS, PAGE = 1 << 20, 16, 4096


def header(path):
    """The tensors, and where their bytes begin in the file."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        tensors = json.loads(file.read(length))
    tensors.pop("__metadata__", None)
    return tensors, 8 + length


def load(path, start):
    """All of the file from `start` on, in memory of the GPU's."""
    size = os.path.getsize(path)
    gpu, slots = doorbell.allocate(max(size - start, 1), "gpu"), doorbell.allocate(SLOTS * BLOCK)
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    blocks, errors = iter(range(start - start % PAGE, size, BLOCK)), []
    lock = threading.Lock()

    def work(slot):
        """Reads a block into its slot, copies it from there, and takes the next."""
        room = slots.view[slot * BLOCK : (slot + 1) * BLOCK]
        try:
            while not errors:
                with lock:
                    at = next(blocks, None)
                if at is None:
                    return
                if os.preadv(file, [room], at) < min(BLOCK, size - at):
                    raise EOFError(f"{path} ends early, near {at}")
                skip = max(start - at, 0)  # The header's end.
                count = min(BLOCK, size - at) - skip
                if count > 0:
                    doorbell.copy_(gpu, slots, count, dst_offset=at + skip - start, src_offset=slot * BLOCK + skip)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(slot,)) for slot in range(SLOTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os.close(file)
    if errors:
        raise errors[0]
    return gpu


def as_torch(torch, gpu, tensors):
    """Tensors over the GPU's memory, which must not be closed as long as they are used."""
    types = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
             "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"}
    everything = torch.as_tensor(gpu, device="cuda")
    made = {}
    for name, of in tensors.items():
        begin, end = of["data_offsets"]
        made[name] = everything[begin:end].view(getattr(torch, types[of["dtype"]])).view(of["shape"])
    return made


def main(path):
    tensors, start = header(path)
    try:
        import torch
        from safetensors.torch import load_file
    except ImportError:
        torch = None
    with doorbell.session():
        begun = time.perf_counter()
        gpu = load(path, start)
        took = time.perf_counter() - begun
        if torch is None or not torch.cuda.is_available():
            with open(path, "rb") as file:
                file.seek(start)
                if gpu.view != file.read():
                    sys.exit("the GPU's memory differs from the file")
            print(f"{len(tensors)} tensors, {gpu.nbytes} bytes, all equal to the file")
            return
        made = as_torch(torch, gpu, tensors)
        begun = time.perf_counter()
        other = load_file(path, device="cuda")
        torch.cuda.synchronize()
        theirs = time.perf_counter() - begun
        if not all(torch.equal(made[name].view(torch.uint8), other[name].view(torch.uint8)) for name in tensors):
            sys.exit("a tensor differs from what safetensors.torch loads")
        print(f"{len(tensors)} tensors, all equal; doorbell {took:.2f} s, safetensors.torch {theirs:.2f} s")
        del made, other


if __name__ == "__main__":
    main(sys.argv[1])

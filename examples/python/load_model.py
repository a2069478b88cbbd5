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


def load(path, start, gpu):
    """All of the file from `start` on, to memory of the GPU's."""
    size, slots = os.path.getsize(path), doorbell.allocate(SLOTS * BLOCK)
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


def as_torch(torch, everything, tensors):
    """Tensors over the bytes that were loaded: views, no copies."""
    types = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
             "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"}
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
    count = os.path.getsize(path) - start
    with doorbell.session():
        if torch is None or not torch.cuda.is_available():
            gpu = doorbell.allocate(max(count, 1), "gpu")
            load(path, start, gpu)
            with open(path, "rb") as file:
                file.seek(start)
                if gpu.view[:count] != file.read():
                    sys.exit("the GPU's memory differs from the file")
            print(f"{len(tensors)} tensors, {count} bytes, all equal to the file")
            return
        everything = torch.empty(count, dtype=torch.uint8, device="cuda")
        torch.cuda.synchronize()
        with doorbell.pin(everything) as gpu:
            begun = time.perf_counter()
            load(path, start, gpu)
            took = time.perf_counter() - begun
    # The tensors are torch's: they stay when the session is closed.
    made = as_torch(torch, everything, tensors)
    begun = time.perf_counter()
    other = load_file(path, device="cuda")
    torch.cuda.synchronize()
    theirs = time.perf_counter() - begun
    for name in tensors:
        if not torch.equal(made[name].reshape(-1).view(torch.uint8), other[name].reshape(-1).view(torch.uint8)):
            sys.exit(f"tensor {name} differs from what safetensors.torch loads")
    print(f"{len(tensors)} tensors, all equal; doorbell {took:.2f} s, safetensors.torch {theirs:.2f} s")


if __name__ == "__main__":
    main(sys.argv[1])

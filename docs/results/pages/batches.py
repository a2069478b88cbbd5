"""A PyTorch program that knows nothing of doorbell: batches of scattered pages by cudaMemcpyBatchAsync of PyTorch's own runtime.

    batches.py SECONDS_PER_CELL

Prints one line of JSON for each cell, as batches.cu does. `wrong` counts pages.
"""

import ctypes
import json
import sys
import time

import torch

MOST, LARGEST = 10000, 16384


class Attributes(ctypes.Structure):
    """cudaMemcpyAttributes: order of the source's reads (1: the stream's), two hints of locations, flags (1: beside kernels)."""

    _fields_ = [("order", ctypes.c_int), ("hints", ctypes.c_int * 4), ("flags", ctypes.c_uint)]


def runtime():
    """The runtime that PyTorch has loaded."""
    torch.cuda.init()
    with open("/proc/self/maps") as f:
        path = next(line.split(maxsplit=5)[5].strip() for line in f if "/libcudart.so" in line)
    library, version = ctypes.CDLL(path), ctypes.c_int()
    library.cudaRuntimeGetVersion(ctypes.byref(version))
    return library, version.value


def main(seconds):
    library, version = runtime()
    host = torch.randint(0, 256, (2 * MOST * LARGEST,), dtype=torch.uint8).pin_memory()
    gpu = torch.randint(0, 256, host.shape, dtype=torch.uint8, device="cuda")
    attributes, first = Attributes(1, (0, 0, 0, 0), 1), (ctypes.c_size_t * 1)(0)
    failed = ctypes.c_size_t()
    # (Before CUDA 13 there was one argument more.)
    more = [ctypes.byref(failed)] if version < 13000 else []
    for direction, source, place in (("to the GPU", host, gpu), ("to the host", gpu, host)):
        for page in (4096, LARGEST):
            for pages in (2, 4, 8, 12, 16, 24, 32, 64, 256, 1000, 10000):
                times, calls, wrong = [], [], 0
                until = time.monotonic() + seconds
                while time.monotonic() < until or len(times) < 5:
                    read, written = (torch.randperm(2 * MOST)[:pages] for _ in range(2))
                    pointers = [base.data_ptr() + numbers * page for base, numbers in ((place, written), (source, read))]
                    sizes = torch.full((pages,), page, dtype=torch.int64)
                    words = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (*pointers, sizes)]
                    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
                    began = time.perf_counter_ns()
                    code = library.cudaMemcpyBatchAsync(*words, ctypes.c_size_t(pages), ctypes.byref(attributes), first, ctypes.c_size_t(1), *more, stream)
                    returned = time.perf_counter_ns()
                    torch.cuda.current_stream().synchronize()
                    times.append((time.perf_counter_ns() - began) / 1e3)
                    calls.append((returned - began) / 1e3)
                    assert code == 0, code
                    if len(times) == 1 or time.monotonic() >= until:
                        got, sent = (base.view(-1, page)[numbers.to(base.device)].cpu() for base, numbers in ((place, written), (source, read)))
                        wrong += int((got != sent).any(dim=1).sum())
                times.sort(), calls.sort()
                print(json.dumps({"direction": direction, "page_bytes": page, "pages": pages, "batches": len(times), "p50_us": round(times[len(times) // 2], 2),
                                  "p99_us": round(times[-(len(times) // 100) - 1], 2), "call_us": round(calls[len(calls) // 2], 2), "wrong": wrong}), flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    # A stream of its own: the default one waits for others.
    with torch.cuda.stream(torch.cuda.Stream()):
        main(float(sys.argv[1]))

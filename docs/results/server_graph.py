"""What server.py and fix_server.py measure: frames of an MLP, by its CUDA graph and by a chain of libdoorbell, from Python and from C, and their figures.

Cuda and Chain have the same methods. once() makes a frame from Python. in_c() returns the function of server_timer.c that makes it, with its argument."""

import ctypes
import os
import subprocess
import time
from ctypes import c_int32, c_uint32, c_uint64, c_void_p

PERIOD, BYTES = 0.002, 2048


class Job(ctypes.Structure):
    _fields_ = [("period", c_uint64), ("ticks", c_uint64), ("took", ctypes.POINTER(c_uint64)), ("code", c_int32), ("spin", c_uint32), ("wake_max", c_uint64)]

    def seconds(self):
        return [ns / 1e9 for ns in self.took[:self.ticks]]


class ChainInC(ctypes.Structure):
    _fields_ = [("doorbell", c_void_p), ("chain", c_uint64), ("launch", c_void_p), ("wait", c_void_p), ("input", c_void_p), ("frame", c_void_p),
                ("bytes", c_uint64)]


class CudaInC(ctypes.Structure):
    _fields_ = [("to_gpu", c_void_p), ("launch", c_void_p), ("to_host", c_void_p), ("synchronize", c_void_p), ("graph", c_void_p), ("stream", c_void_p),
                ("x", c_uint64), ("y", c_uint64), ("input", c_void_p), ("output", c_void_p), ("frame", c_void_p), ("bytes", c_uint64)]


def address(function):
    return ctypes.cast(function, c_void_p).value


def executable(graph):
    """The cudaGraphExec_t of a torch graph."""
    graph.instantiate()
    if hasattr(graph, "raw_cuda_graph_exec"):
        return graph.raw_cuda_graph_exec()
    made = c_void_p()
    code = ctypes.CDLL("libcuda.so.1").cuGraphInstantiateWithFlags(ctypes.byref(made), c_void_p(graph.raw_cuda_graph()), c_uint64(0))
    if code:
        raise RuntimeError(f"cuGraphInstantiateWithFlags: {code}")
    return made.value


class Cuda:
    """The MLP with its graph, and a frame with the result that torch computes for it."""

    def __init__(self):
        import torch

        self.torch = torch
        torch.manual_seed(1)
        self.net = torch.nn.Sequential(*(layer for _ in range(4) for layer in (torch.nn.Linear(512, 512), torch.nn.ReLU()))).cuda().eval()
        self.x, self.staged, self.out = torch.zeros(1, 512, device="cuda"), torch.zeros(1, 512).pin_memory(), torch.zeros(1, 512).pin_memory()
        self.stream = torch.cuda.Stream()
        self.graph, self.y = self.captured()
        self.frame = torch.randn(512)
        self.expected = self.net(self.frame.cuda().view(1, -1)).detach().cpu().view(-1)

    def captured(self):
        """A graph, and the tensor that it writes."""
        torch = self.torch
        with torch.no_grad(), torch.cuda.stream(self.stream):
            for _ in range(3):
                self.net(self.x)
            self.stream.synchronize()
            graph = torch.cuda.CUDAGraph(keep_graph=True)
            with torch.cuda.graph(graph, stream=self.stream):
                y = self.net(self.x)
        torch.cuda.synchronize()
        return graph, y

    def once(self):
        with self.torch.cuda.stream(self.stream):
            self.staged.copy_(self.frame.view(1, -1))
            self.x.copy_(self.staged, non_blocking=True)
            self.graph.replay()
            self.out.copy_(self.y, non_blocking=True)
            self.stream.synchronize()

    def in_c(self, timer):
        # (As a program finds them: under `run --fix` the copies are the agent's entries.)
        cuda = ctypes.CDLL("libcuda.so.1")
        functions = map(address, (cuda.cuMemcpyHtoDAsync_v2, cuda.cuGraphLaunch, cuda.cuMemcpyDtoHAsync_v2, cuda.cuStreamSynchronize))
        return timer.frame_by_cuda, CudaInC(*functions, executable(self.graph), self.stream.cuda_stream, self.x.data_ptr(), self.y.data_ptr(),
                                            self.staged.data_ptr(), self.out.data_ptr(), self.frame.data_ptr(), BYTES)

    def clear(self):
        self.out.zero_()

    def is_right(self, found=None):
        found = self.out if found is None else found
        return bool(self.torch.allclose(found.view(-1), self.expected, rtol=1e-3, atol=1e-4))


class Chain:
    """A chain that makes the same frames. `graph` is a captured graph of that network, and writes y."""

    def __init__(self, doorbell, session, cuda, graph, y):
        self.cuda, self.session, self.library = cuda, session, doorbell._library.library
        step = doorbell.instantiate(graph, cuda.stream)
        self.source, self.sink = doorbell.allocate(BYTES), doorbell.allocate(BYTES)
        self.chain = doorbell.chain([(doorbell.pin(cuda.x), self.source), step, (self.sink, doorbell.pin(y))], beside=True)
        self.data = cuda.frame.numpy().tobytes()

    def once(self):
        self.source.view[:] = self.data
        self.chain.replay().wait()

    def in_c(self, timer):
        functions = address(self.library.doorbell_graph_launch), address(self.library.doorbell_wait)
        return timer.frame_by_chain, ChainInC(self.session.at.value, self.chain.handle, *functions, self.source.pointer, self.cuda.frame.data_ptr(), BYTES)

    def clear(self):
        ctypes.memset(self.sink.pointer, 0, BYTES)

    def is_right(self):
        return self.cuda.is_right(self.cuda.torch.frombuffer(bytearray(bytes(self.sink.view)), dtype=self.cuda.torch.float32))


def build(folder):
    """Compiles server_timer.c. The library's path."""
    made = os.path.join(folder, "server_timer.so")
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", made, os.path.join(os.path.dirname(os.path.abspath(__file__)), "server_timer.c")], check=True)
    return made


def by_python(once, ticks):
    """Seconds from each tick to its result; 0: missed."""
    took, first, n = [0.0] * ticks, time.monotonic() + PERIOD, 0
    while n < ticks:
        due, now = first + n * PERIOD, time.monotonic()
        if now >= due + PERIOD:
            n += 1
            continue
        if now < due:
            time.sleep(due - now)
        once()
        took[n] = time.monotonic() - due
        n += 1
    return took


def by_c(timer, function, by, ticks, spin=50_000):
    """The same from C, without Python's lock, as a Job. It runs in the calling thread, where CUDA's context is current because torch has used it there."""
    job = Job(int(PERIOD * 1e9), ticks, (c_uint64 * ticks)(), 0, spin, 0)
    timer.run(ctypes.byref(job), function, ctypes.byref(by))
    if job.code:
        raise RuntimeError(f"a frame from C: code {job.code}")
    return job


def figures(took):
    """What a row has of a turn. A late frame ended after the next tick."""
    there = sorted(t for t in took if t)
    of = lambda share: 1e6 * there[min(len(there) - 1, int(len(there) * share))]
    return {"due": len(took), "missed": len(took) - len(there), "late": sum(t > PERIOD for t in there),
            "p50_us": of(0.5), "p99_us": of(0.99), "p999_us": of(0.999), "max_us": of(1.0),
            "sum_us": 1e6 * sum(there)}

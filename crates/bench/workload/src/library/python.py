"""What is measured from Python, run by the program that measures: it calls fire() and wait().

SOURCES is the text of each module of the package `doorbell`, ADDRESSES where libdoorbell's functions are in this process."""

import ctypes
import gc
import importlib.abc
import importlib.util
import sys
from ctypes import c_size_t, c_uint32, c_ulonglong, c_void_p

# As in any program that must not be late: the collector would run in the middle of a copy.
gc.disable()


class Carried(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the package in SOURCES."""

    def find_spec(self, name, path=None, target=None):
        if name in SOURCES:
            return importlib.util.spec_from_loader(name, self, origin=f"{name} in doorbell", is_package=name == "doorbell")

    def exec_module(self, module):
        module.__file__ = module.__spec__.origin
        exec(compile(SOURCES[module.__name__], module.__file__, "exec"), module.__dict__)


def linked(kind):
    """A library of ctypes whose functions are at ADDRESSES."""

    class Linked(kind):
        def __init__(self, *_, **__):
            super().__init__(None)

        def __getitem__(self, name):
            function = self._FuncPtr(ADDRESSES[name])
            function.__name__ = name
            return function

    return Linked


def package():
    """The package, over the functions of this process in the place of a file libdoorbell.so."""
    sys.meta_path.insert(0, Carried())
    files = ctypes.CDLL, ctypes.PyDLL
    ctypes.CDLL, ctypes.PyDLL = map(linked, files)
    try:
        import doorbell
    finally:
        ctypes.CDLL, ctypes.PyDLL = files
    return doorbell


doorbell = package()


def session_at(pointer):
    """The session that this process has made, as the package's."""
    session = doorbell.Session.__new__(doorbell.Session)
    session._begin(ctypes.c_void_p(pointer), doorbell._library.held)
    return session


class Memory:
    """Memory of CUDA's, as arrays show it."""

    def __init__(self, pointer, nbytes):
        self.__cuda_array_interface__ = {"data": (pointer, False), "shape": (nbytes,), "typestr": "|u1", "strides": None, "version": 3}


def waited(submit, *closed):
    """fire, wait and close of what gives tickets."""
    ticket = None

    def fire():
        nonlocal ticket
        ticket = submit()

    def wait():
        ticket.wait()

    def close():
        nonlocal ticket
        ticket = None
        for thing in closed:
            thing.close()

    return fire, wait, close


def polled(submit, word, step, *closed):
    """The same where the end is seen in a word of host memory, to which the GPU adds step. submit gets what the word will be."""
    word, expected = c_uint32.from_address(word), 0

    def fire():
        nonlocal expected
        expected = word.value + step & 0xFFFFFFFF
        submit(expected)

    def wait():
        while word.value != expected:
            pass

    def close():
        for thing in closed:
            thing.close()

    return fire, wait, close


def copy_by_doorbell(at, host, device, nbytes):
    """at: the session's pointer. host, device: CUDA's memory; 0, 0: doorbell's own."""
    session = session_at(at)
    if host:
        source, target = session.pin(Memory(host, nbytes)), session.pin(Memory(device, nbytes))
    else:
        source, target = session.allocate(nbytes), session.allocate(nbytes, "gpu")
    transfer = session.prepare(target, source, nbytes)
    return *waited(transfer.submit, transfer, source, target), source.pointer, target.pointer


def graph_by_doorbell(at, graph, stream, word, step):
    """at: the session's pointer. graph: the number of a cudaGraph_t. word: 0, or where its last kernel writes."""
    launched = session_at(at).instantiate(graph, stream=stream)
    if word:
        return polled(lambda _: launched.replay(), word, step, launched)
    return waited(launched.replay, launched)


def cuda(name):
    """A function of CUDA's, as bare as ctypes has it, which raises no exception."""
    return ctypes.CDLL("libcuda.so.1")[name]


def check(status):
    if status:
        raise RuntimeError(f"CUDA error {status}")


def synchronized(call, arguments, stream):
    """A call of CUDA's and cuStreamSynchronize."""
    synchronize, stream = cuda("cuStreamSynchronize"), c_void_p(stream)

    def fire():
        check(call(*arguments))

    def wait():
        check(synchronize(stream))

    return fire, wait, lambda: None


def copy_by_cuda(host, device, nbytes, stream, word):
    """word: 0, or a word that the stream writes after the copy."""
    copy, arguments = cuda("cuMemcpyHtoDAsync_v2"), (c_ulonglong(device), c_void_p(host), c_size_t(nbytes), c_void_p(stream))
    if not word:
        return synchronized(copy, arguments, stream)
    write, in_stream, at = cuda("cuStreamWriteValue32_v2"), c_void_p(stream), c_ulonglong(word)

    def submit(value):
        check(copy(*arguments) or write(in_stream, at, value, 0))

    return polled(submit, word, 1)


def graph_by_cuda(executable, stream, word, step):
    launch, arguments = cuda("cuGraphLaunch"), (c_void_p(executable), c_void_p(stream))
    if not word:
        return synchronized(launch, arguments, stream)
    return polled(lambda _: check(launch(*arguments)), word, step)

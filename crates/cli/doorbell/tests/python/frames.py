"""Calls CUDA from all kinds of frames, and prints for each call which frames Python itself says that there are.

A call is told by its number: the address that it frees. A row of the output is JSON: number, frames (innermost first).
"""

import asyncio
import contextlib
import ctypes
import gc
import json
import os
import sys
import tempfile
import threading

cuda = ctypes.CDLL("libcuda.so.1")
# Without letting go of the global lock.
held = ctypes.PyDLL("libcuda.so.1")
numbers = iter(range(1, 1 << 20))
rows = []


def frames(f):
    while f:
        code = f.f_code
        yield [code.co_filename, f.f_lineno, getattr(code, "co_qualname", code.co_name)]
        f = f.f_back


def say():
    n = next(numbers)
    rows.append([n, list(frames(sys._getframe(1)))])
    return n


def nested():
    def inner(x):
        return (
            cuda.cuMemFree_v2(say()),
            x,
        )

    inner(
        1
    )


class Net:
    cuda.cuMemFree_v2(say())

    def __call__(self):
        held.cuMemFree_v2(say())

    @property
    def weight(self):
        return cuda.cuMemFree_v2(say())

    @contextlib.contextmanager
    def no_grad(self):
        cuda.cuMemFree_v2(say())
        yield
        cuda.cuMemFree_v2(say())

    def __del__(self):
        cuda.cuMemFree_v2(say())


def generator(n):
    for _ in range(n):
        cuda.cuMemFree_v2(say())
        yield
    yield from inner_generator()


def inner_generator():
    yield cuda.cuMemFree_v2(say())


async def coroutine(n):
    if n:
        await asyncio.sleep(0)
        await coroutine(n - 1)
    cuda.cuMemFree_v2(say())


def deep(n):
    if n:
        return deep(n - 1)
    cuda.cuMemFree_v2(say())


def from_c(_):
    # C's functions in between: sorted, map, a callback of ctypes.
    def key(x):
        cuda.cuMemFree_v2(say())
        return x

    sorted([1, 2], key=key)
    list(map(lambda x: cuda.cuMemFree_v2(say()), [1]))
    called = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)
    called(key)(3)


def created_again():
    # Code that is freed before the next one is made, which then has its memory and that of its names.
    for i in range(40):
        scope = {"free": cuda.cuMemFree_v2, "say": say}
        exec(compile("free(say())", f"<cell {i:03}>", "exec"), scope)
        exec(compile("\n" * i + "free(say())", "<same>", "exec"), scope)
        exec(compile(f"def f{i:03}():\n  free(say())\nf{i:03}()", "<named>", "exec"), scope)
        eval(compile("free(say())", f"/tmp/ipykernel_1/{i:010}.py", "eval"), scope)
        del scope


def strange_names():
    scope = {"free": cuda.cuMemFree_v2, "say": say}
    for name in ["", "caf\u00e9.py", "\u043c\u043e\u0434\u0435\u043b\u044c.py", "\U0001f6aa\n.py", "x" * 3000 + "/end.py"]:
        exec(compile("def \u0444\u0443():\n free(say())\n\u0444\u0443()", name, "exec"), scope)


def imported():
    with tempfile.TemporaryDirectory() as where:
        with open(os.path.join(where, "made_for_it.py"), "w") as f:
            f.write("import __main__ as m\nm.cuda.cuMemFree_v2(m.say())\n")
        sys.path.insert(0, where)
        import made_for_it  # noqa: F401


def in_threads():
    def work():
        for _ in range(3):
            cuda.cuMemFree_v2(say())

    threads = [threading.Thread(target=work) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    # One of C's own: it has no frames.
    libc = ctypes.CDLL(None)
    thread = ctypes.c_void_p()
    libc.pthread_create(ctypes.byref(thread), None, cuda.cuCtxSynchronize, None)
    libc.pthread_join(thread, None)


def same_line_twice():
    for _ in range(3):
        cuda.cuMemFree_v2(say())
    cuda.cuMemFree_v2(say()), cuda.cuMemFree_v2(say())


nested()
net = Net()
net()
net.weight
with net.no_grad():
    pass
list(generator(2))
asyncio.run(coroutine(2))
deep(3)
deep(200)
from_c(0)
created_again()
strange_names()
imported()
in_threads()
same_line_twice()
[cuda.cuMemFree_v2(say()) for _ in range(2)]
net.self = net
del net
gc.collect()
for row in rows:
    print(json.dumps(row))

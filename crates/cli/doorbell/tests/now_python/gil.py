# Threads that need Python's lock while one is in a C function that keeps it.
# gil.py hang | busy | host LIBRARY FILE
import ctypes, mmap, sys, threading

mode, library, file = sys.argv[1:4]
with open(file, "r+b") as f:
    memory = mmap.mmap(f.fileno(), 4096)
at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
keeps, gives = ctypes.PyDLL(library), ctypes.CDLL(library)
Function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
keeps.hold.argtypes = [ctypes.c_void_p, ctypes.c_long]
keeps.launch_and_hold.argtypes = [ctypes.c_void_p, Function]
gives.run.argtypes = [ctypes.c_long]
ready = threading.Event()


def hangs():
    ready.wait()
    keeps.hold(at, -1)


def computes():
    n = 0
    while True:
        n += 1


def busy(i):
    n = 0
    while True:
        for _ in range(20000):
            n += 1
        gives.run(100000)
        keeps.hold(at, 4000 + 1000 * i)


@Function
def needs_lock(_):
    computes()


def launches():
    cuda = ctypes.CDLL("libcuda.so.1")
    cuda.cuLaunchHostFunc.argtypes = [ctypes.c_void_p] * 3
    for name in ["sleeps", "returns"]:
        cuda.cuLaunchHostFunc(None, ctypes.cast(getattr(gives, name), ctypes.c_void_p), at)
    ready.wait()
    keeps.launch_and_hold(at, needs_lock)


def start(target, *arguments):
    t = threading.Thread(target=target, args=arguments)
    t.daemon = True
    t.start()


if mode == "hang":
    start(hangs)
    for _ in range(3):
        start(computes)
elif mode == "host":
    start(launches)
else:
    for i in range(8):
        start(busy, i)
print("ready")
sys.stdout.flush()
ready.set()
threading.Event().wait()

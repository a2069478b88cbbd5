# One thread launches; the other synchronizes three times and keeps Python's lock meanwhile, as a binding does that does not give it up.
import ctypes, sys, threading, time

launches = ctypes.CDLL("libcuda.so.1")
keeps = ctypes.PyDLL("libcuda.so.1")
done = threading.Event()


def synchronizes():
    for _ in range(3):
        time.sleep(0.01)
        keeps.cuCtxSynchronize()
    done.set()


thread = threading.Thread(target=synchronizes)
thread.start()
while not done.is_set():
    launches.cuLaunchKernel(8, 1, 1, 1, 1, 1, 1, 0, None, None, None)
    time.sleep(0.0005)
launches.cuLaunchKernel(8, 1, 1, 1, 1, 1, 1, 0, None, None, None)
thread.join()

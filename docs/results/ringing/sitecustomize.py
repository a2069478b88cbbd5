"""Every Python that finds this in its path loads the library RINGING, plain too, and rings doorbells where RINGS is set."""
import ctypes
import os
import signal

library = ctypes.PyDLL(os.environ["RINGING"])
if os.environ.get("RINGS"):
    # The thread inherits the mask: signals are the program's own threads'. (32 and 33 are libc's.)
    faults = {signal.SIGSEGV, signal.SIGBUS, signal.SIGTRAP, signal.SIGILL, signal.SIGFPE, 32, 33}
    before = signal.pthread_sigmask(signal.SIG_SETMASK, set(range(1, signal.NSIG)) - faults)
    library.ring()
    signal.pthread_sigmask(signal.SIG_SETMASK, before)

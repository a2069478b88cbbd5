"""drive.py [--again] COMMAND...: starts it, waits for "first half", takes the process of ./p through lock, checkpoint, restore and unlock
(twice with --again), and lets it go on. Exits with its status, or 1 if it hangs."""
import ctypes
import os
import subprocess
import sys
import time

CALLS = ("Lock", "Checkpoint", "Restore", "Unlock")
words = sys.argv[1:]
times = 2 if words[0] == "--again" else 1
words = words[times - 1:]
cuda = ctypes.CDLL("libcuda.so.1")
assert cuda.cuInit(0) == 0
program = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
print("  " + program.stdout.readline().strip(), flush=True)


def below(pid):
    return [pid] + [q for kid in open(f"/proc/{pid}/task/{pid}/children").read().split() for q in below(int(kid))]


target = next(pid for pid in below(program.pid) if os.path.basename(os.readlink(f"/proc/{pid}/exe")) == "p")
for call in CALLS * times:
    begun = time.time()
    error = getattr(cuda, "cuCheckpointProcess" + call)(target, (ctypes.c_char * 64)())
    print(f"  {call}: error {error}, {time.time() - begun:.2f} s", flush=True)
try:
    out, _ = program.communicate("x", timeout=30)
    print("  " + out.strip().replace("\n", "\n  ") + f"\n  status {program.returncode}")
    sys.exit(program.returncode)
except subprocess.TimeoutExpired:
    for pid in reversed(below(program.pid)):
        os.kill(pid, 9)
    print("  HANGS after the restore")
    sys.exit(1)

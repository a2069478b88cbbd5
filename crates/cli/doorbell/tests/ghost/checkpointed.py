# also: -
# A helper: starts a command, waits for its first line, and takes the process of ./checkpointed through a checkpoint.
import ctypes
import os
import subprocess
import sys

cuda = ctypes.CDLL("libcuda.so.1")
print("cuInit", cuda.cuInit(0))
p = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
print(p.stdout.readline().strip(), flush=True)


def below(pid):
    kids = open(f"/proc/{pid}/task/{pid}/children").read().split()
    return [pid] + [q for k in kids for q in below(int(k))]


target = [q for q in below(p.pid) if os.path.basename(os.readlink(f"/proc/{q}/exe")) == "checkpointed"][0]
for step in ("Lock", "Checkpoint", "Restore", "Unlock"):
    print(step, getattr(cuda, "cuCheckpointProcess" + step)(target, (ctypes.c_char * 64)()), flush=True)
try:
    print(p.communicate("x", timeout=20)[0].strip(), p.returncode)
except subprocess.TimeoutExpired:
    os.kill(target, 9)
    p.kill()
    print("hangs after the restore")

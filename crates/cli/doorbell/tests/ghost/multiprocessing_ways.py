# Python's ways to start processes, and its locks, queues and pools.
# start spawn: "$@" python3 ./multiprocessing_ways.py spawn
# start fork: "$@" python3 ./multiprocessing_ways.py fork
# start forkserver: "$@" python3 ./multiprocessing_ways.py forkserver
# limit: 40
import multiprocessing
import os
import signal
import subprocess
import sys


def work(n):
    return n * n, os.environ.get("LD_PRELOAD"), signal.getsignal(signal.SIGINT) is signal.default_int_handler


if __name__ == "__main__":
    c = multiprocessing.get_context(sys.argv[1])
    with c.Pool(3) as p:
        print(p.map(work, range(20)))
    q, lock, event = c.Queue(), c.Lock(), c.Event()
    p = c.Process(target=q.put, args=(7,))
    p.start()
    print(q.get(), p.join(), p.exitcode)
    p = c.Process(target=os.abort)
    p.start()
    p.join()
    print(p.exitcode)
    print(subprocess.run(["sh", "-c", "kill -9 $$"]).returncode, subprocess.run(["true"], preexec_fn=os.setsid, close_fds=True, cwd="/").returncode)
    p = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=(2,), process_group=0, umask=0o77)
    print(p.communicate(b"text"), os.listdir("/proc/self/fd"))

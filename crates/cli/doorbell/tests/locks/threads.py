import concurrent.futures
import hashlib
import os
import queue
import subprocess
import threading

work = queue.Queue(50)
total = 0
lock = threading.Lock()
few = threading.BoundedSemaphore(3)


def produce():
    for i in range(1000):
        work.put(i)
    work.put(None)


def consume():
    global total
    while (x := work.get()) is not None:
        with lock:
            total += x
        if x % 100 == 0:
            with few:
                hashlib.sha256(b"x" * 100000).hexdigest()


threads = [threading.Thread(target=f) for f in [produce, consume] * 8]
for t in threads:
    t.start()
for t in threads:
    t.join()
with concurrent.futures.ThreadPoolExecutor(16) as pool:
    squares = sum(pool.map(lambda i: i * i, range(2000)))
said = subprocess.run(["echo", "child"], capture_output=True, text=True).stdout.strip()
pid = os.fork()
if pid == 0:
    with lock:
        os._exit(4)
print(total, squares, said, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

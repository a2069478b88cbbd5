# `doorbell top` of root and a hostile user's control socket: bounded memory and time, no raw escapes, no links followed.
# needs: root, setpriv
# check: python3 top_of_others.py
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

FOLDER = "/tmp/doorbell-65534"
STATUS = (
    '{"ok":true,"status":{"doorbell":"0","pid":%d,"recorder":%d,"program":"\\u001b]0;pwn\\u0007\\u001b[31mRED","file":"/etc/passwd","state":"recording",'
    '"stopped":null,"dormant":false,"parts":[],"attached":null,"seconds":1,"processes":[%d],"lost_events":0},"counters":{"seconds":1.0,"submissions":1,"kernels":1,'
    '"copies":1,"copy_bytes":1,"calls":1,"lock_waits":1,"events":1,"event_bytes":1,"worst_call":{"name":"\\u001b[31mCALL","pid":1,"tid":1,"ms":1.0},'
    '"worst_lock_wait":{"name":"\\u001b[31mLOCK","pid":1,"tid":1,"ms":1.0}}}\n'
)


def serve(c, how):
    try:
        c.recv(4096)
        if how == "endless":
            for _ in range(600):
                c.sendall(b"x" * (1 << 20))
        elif how == "drip":
            for _ in range(15):
                c.send(b" ")
                time.sleep(1)
        else:
            f = c.makefile("rwb")
            while True:
                c.sendall((STATUS % ((os.getpid(),) * 3)).encode())
                if not f.readline():
                    break
    except OSError:
        pass


def server(how):
    os.makedirs(FOLDER, 0o700, exist_ok=True)
    s = socket.socket(socket.AF_UNIX)
    s.bind(f"{FOLDER}/{os.getpid()}.sock")
    s.listen(50)
    while True:
        threading.Thread(target=serve, args=(s.accept()[0], how), daemon=True).start()


def top(seconds):
    p = subprocess.Popen([os.environ["THE_DOORBELL"], "top"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True)
    threading.Timer(seconds, lambda: p.poll() is None and p.send_signal(signal.SIGINT)).start()
    text = p.stdout.read()
    used = os.wait4(p.pid, 0)[2].ru_maxrss >> 10
    return text, used


def one(how):
    as_user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    p = subprocess.Popen([*as_user, sys.executable, os.path.abspath(__file__), how])
    time.sleep(0.7)
    begun = time.monotonic()
    text, used = top(6)
    p.kill()
    p.wait()
    bad = []
    if used > 200:
        bad.append(f"{how}: {used} MiB")
    if time.monotonic() - begun > 9:
        bad.append(f"{how}: it does not end")
    if re.search("[\x07\x1b]", text):
        bad.append(f"{how}: raw escapes")
    return bad


def link():
    """A link in the user's folder to a socket that only root may reach."""
    private = f"/tmp/ghost-private-{os.getpid()}"
    os.mkdir(private, 0o700)
    s = socket.socket(socket.AF_UNIX)
    s.bind(private + "/s")
    s.listen(1)
    s.settimeout(4)
    subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c",
                    f"mkdir -p -m 700 {FOLDER}; sleep 8 & ln -sf {private}/s {FOLDER}/$!.sock"], stdout=subprocess.DEVNULL)
    threading.Thread(target=top, args=(3,), daemon=True).start()
    try:
        c = s.accept()[0]
        c.settimeout(2)
        return ["root's private socket gets a request through a link"] if c.recv(100) else []
    except OSError:
        return []
    finally:
        subprocess.run(["rm", "-rf", private, FOLDER])


if len(sys.argv) > 1:
    server(sys.argv[1])
else:
    subprocess.run(["rm", "-rf", FOLDER])
    found = one("endless") + one("drip") + one("escapes") + link()
    print("; ".join(found))
    sys.exit(bool(found))

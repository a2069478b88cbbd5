# A terminal of its own: job control, sizes, hang-ups, Ctrl-C, Ctrl-Z. What the terminal's processes see is as bare.
# start: python3 ./terminal.py "$@"
# start control_c: python3 ./terminal.py control_c "$@"
# start control_z: python3 ./terminal.py control_z "$@"
# start hang_up: python3 ./terminal.py hang_up "$@"
# start size: python3 ./terminal.py size "$@"
# start shell: python3 ./terminal.py shell "$@"
# limit: 20
import os
import pty
import re
import select
import signal
import struct
import fcntl
import sys
import termios
import time

INSIDE = r"""
import os, signal, sys, time, termios, fcntl, struct
how = sys.argv[1]
def say(*a): print(*a, flush=True)
def h(n, f): say("signal", signal.Signals(n).name); sys.exit(7) if n != signal.SIGWINCH else None
say("tty", os.isatty(0), "foreground", os.tcgetpgrp(0) == os.getpgrp())
for s in (signal.SIGINT, signal.SIGHUP, signal.SIGWINCH, signal.SIGQUIT): signal.signal(s, h)
if how == "plain":
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        os.tcsetpgrp(0, os.getpgrp())
        say("child in front", os.tcgetpgrp(0) == os.getpgrp())
        os._exit(0)
    os.waitpid(pid, 0)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    os.tcsetpgrp(0, os.getpgrp())
    say("back", os.tcgetpgrp(0) == os.getpgrp())
    sys.exit(4)
say("ready")
for _ in range(40):
    time.sleep(0.1)
say("not told")
sys.exit(5)
"""


def main():
    words = sys.argv[1:]
    how = words.pop(0) if words and words[0] in ("control_c", "control_z", "hang_up", "size", "shell") else "plain"
    program = ["python3", "-c", INSIDE, how]
    if how == "shell":
        program = ["bash", "--norc", "-ic", 'sleep 0.3 & jobs -l | sed "s/[0-9][0-9]*//g"; fg; (exit 9); echo $?']
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp((words + program)[0], words + program)
    text, status, begun, done = "", None, time.monotonic(), False
    while time.monotonic() - begun < 15:
        try:
            if select.select([terminal], [], [], 0.2)[0]:
                text += os.read(terminal, 4096).decode(errors="replace")
        except OSError:
            break
        if "ready" in text and not done:
            done = True
            time.sleep(0.3)
            if how == "control_c":
                os.write(terminal, b"\x03")
            elif how == "size":
                fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
            elif how == "hang_up":
                os.close(terminal)
                break
            elif how == "control_z":
                os.write(terminal, b"\x1a")
                time.sleep(0.3)
                p, s = os.waitpid(pid, os.WUNTRACED | os.WNOHANG)
                print("stopped:", p == pid and os.WIFSTOPPED(s))
                os.killpg(os.tcgetpgrp(terminal), signal.SIGCONT)
    deadline = time.monotonic() + 8
    while status is None and time.monotonic() < deadline:
        p, s = os.waitpid(pid, os.WNOHANG)
        status = s if p else None
        time.sleep(0.05)
    for line in text.replace("\r", "").splitlines():
        if not re.match(r"(\x1b\[\d*m)*doorbell:", line):
            print(re.sub(r"\b\d{3,}\b", "N", line))
    print("ends with", "nothing" if status is None else os.waitstatus_to_exitcode(status) % 256 if os.waitstatus_to_exitcode(status) >= 0 else 128 - os.waitstatus_to_exitcode(status))


main()

# A job that saves its state on SIGUSR1 and ends on SIGTERM, as batch systems ask it to: they signal what they started.
# start: "$@" python3 ./checkpoint_signal.py & sleep 1.5; for s in USR1 USR2 CONT TERM; do kill -$s $!; sleep 0.4; done; wait $!
# start other_signals: "$@" python3 ./checkpoint_signal.py & sleep 1.5; for s in XCPU ALRM RTMIN+2 TERM; do kill -$s $!; sleep 0.4; done; wait $!
import signal
import sys
import time


def save(number, _):
    print("saved on", number, flush=True)


def end(number, _):
    time.sleep(0.5)
    print("ended on", signal.Signals(number).name, flush=True)
    sys.exit(6)


for s in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT, signal.SIGXCPU, signal.SIGALRM, signal.SIGRTMIN + 2):
    signal.signal(s, save)
signal.signal(signal.SIGTERM, end)
for _ in range(60):
    time.sleep(0.1)

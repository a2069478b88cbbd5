#!/usr/bin/env python3
"""Programs of others, bare and under doorbell, in turns: docs/results/everyday.py OUT [PROGRAM ...]

What a program prints and how it ends must be the same. Its time is compared within a round; a round's order is random. Writes OUT/everyday.json
(every time of every round) and prints a table. DOORBELL names the binary, ROUNDS the rounds, MODES the policies and `record` with blanks between
them, LIMIT the seconds that one run may take, PYTHON a python3 with numpy, torch and the rest. A program that is not installed is skipped, with the
reason. Ends with 1 if something differed or a recording lost events.
"""
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import lab

HERE = os.path.dirname(os.path.abspath(__file__))
DOORBELL = os.environ.get("DOORBELL", f"{HERE}/../../target/release/doorbell")
ROUNDS = int(os.environ.get("ROUNDS", "7"))
PYTHON = os.environ.get("PYTHON", "python3")
LIMIT = float(os.environ.get("LIMIT", "180"))
MODES = ["bare", *os.environ.get("MODES", "ticket pi,phase-fair record").split()]

CONTEND_C = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static long n;
static void *add(void *p) { for (int i = 0; i < 100; i++) { pthread_mutex_lock(&m); n++; pthread_mutex_unlock(&m); } return p; }
int main(int argc, char **argv) {
  int many = atoi(argv[2]);
  if (argv[1][0] == 't') { /* threads, 100 at a time */
    for (int i = 0; i < many; i += 100) {
      pthread_t t[100];
      for (int j = 0; j < 100; j++) if (pthread_create(t + j, 0, add, 0)) return 2;
      for (int j = 0; j < 100; j++) pthread_join(t[j], 0);
    }
  } else if (argv[1][0] == 'f') { /* forks; each child takes the lock */
    for (int i = 0; i < many; i++) {
      pid_t c = fork();
      if (!c) { add(0); _exit(i & 7); }
      int s; waitpid(c, &s, 0); n += WEXITSTATUS(s);
    }
  } else if (argv[1][0] == 'e') { /* execs of itself */
    if (many) { char left[16]; snprintf(left, sizeof left, "%d", many - 1); execl("/proc/self/exe", argv[0], "e", left, (char *)0); return 2; }
  } else if (argv[1][0] == 's') { /* system */
    for (int i = 0; i < many; i++) n += system("exit 3") >> 8;
  } else { /* a robust mutex that two processes share; its owner dies */
    pthread_mutexattr_t a; pthread_mutexattr_init(&a); pthread_mutexattr_setpshared(&a, 1); pthread_mutexattr_setrobust(&a, 1);
    pthread_mutex_t *r = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutex_init(r, &a);
    for (int i = 0; i < many; i++) {
      pid_t c = fork();
      if (!c) { pthread_mutex_lock(r); _exit(0); }
      waitpid(c, 0, 0);
      n += pthread_mutex_lock(r); pthread_mutex_consistent(r); pthread_mutex_unlock(r);
    }
  }
  printf("%ld\n", n);
}
"""

POOLS_PY = """
import multiprocessing as m, sys
def f(x): return x * x
if __name__ == '__main__':
    m.set_start_method(sys.argv[1])
    with m.Pool(3) as p: print(sum(p.map(f, range(1000))))
"""

ARRAYS_PY = """
import numpy, pandas, pyarrow, pyarrow.compute
a = numpy.arange(1000000).reshape(1000, 1000) % 7
print((a.astype(float) @ a).sum(), pandas.DataFrame({'k': a[0], 'v': a[1]}).groupby('k').v.sum().tolist(), pyarrow.compute.sum(pyarrow.array(a[0])))
"""

JAX_PY = "import jax, jax.numpy as n\nprint(int(jax.jit(lambda x: (x @ x).sum())(n.ones((300, 300)))))\n"

DASK_PY = """
from dask.distributed import Client
if __name__ == '__main__':
    with Client(n_workers=2, threads_per_worker=2, dashboard_address=None) as c: print(sum(c.gather(c.map(lambda x: x + 1, range(200)))))
"""

GRPC_PY = """
import grpc, concurrent.futures as f
class H(grpc.GenericRpcHandler):
    def service(self, d): return grpc.unary_unary_rpc_method_handler(lambda r, c: r[::-1])
s = grpc.server(f.ThreadPoolExecutor(4)); s.add_generic_rpc_handlers((H(),)); p = s.add_insecure_port('localhost:0'); s.start()
with grpc.insecure_channel(f'localhost:{p}') as c: print(sum(c.unary_unary('/a/b')(bytes([i, 1]))[0] for i in range(200)))
s.stop(0).wait()
"""

ERL = "Me=self(),[spawn(fun()->Me!X*X end)||X<-lists:seq(1,20000)],io:format(\"~p~n\",[lists:sum([receive Y->Y end||_<-lists:seq(1,20000)])]),halt()."
RUBY = "q=Queue.new; 50.times.map{|i| Thread.new{ 200.times{|j| q<<i*j } } }.each(&:join); s=0; s+=q.pop until q.empty?; puts s"
PHP = "$a=[];for($i=0;$i<300000;$i++)$a[]=md5((string)$i);sort($a);echo $a[0],PHP_EOL;"
SQL = "create table t(a,b);with recursive n(i) as (select 1 union all select i+1 from n where i<100000) insert into t select i,i%97 from n;select b,count(*),sum(a) from t group by b order by b limit 3;"
MAKEFILE = "all: $(foreach i,1 2 3 4 5 6 7 8,o$i.o)\n\tgcc -flto=2 -O2 $^ main.c -o app && ./app\no%.o:\n\techo 'int f$*(int x){return x*$*;}' | gcc -flto -O2 -xc -c -o $@ -\n"


def programs(work):
    """Name, what it needs, what makes it ready (once), what runs, and what of its output may differ from run to run."""

    def write(name, text):
        path = f"{work}/{name}"
        with open(path, "w") as f:
            f.write(text)
        return path

    def python(name, text, *arguments):
        return [PYTHON, write(name, text), *arguments]

    c = write("contend.c", CONTEND_C)
    build = f"gcc -O1 -pthread {c} -o {work}/contend"
    app = f"{work}/contend"
    java = f"{HERE}/programs/Contend.java"
    go = f"cd {HERE}/programs && CGO_ENABLED=1 GOCACHE={work}/cache go build -o {work}/go main.go"
    make = f"mkdir -p {work}/make && printf '%s' \"$MAKEFILE\" > {work}/make/Makefile && echo 'int f1(int);int f8(int);int main(){{return f1(3)+f8(1)-11;}}' > {work}/make/main.c"
    redis = (
        f"redis-server --port 0 --save '' --appendonly no --io-threads 2 --unixsocket {work}/r --daemonize no >/dev/null & "
        f"until [ -S {work}/r ]; do sleep 0.02; done; redis-benchmark -s {work}/r -n 40000 -c 50 -P 4 -t set,get,lpush,lpop --csv | cut -d, -f1; redis-cli -s {work}/r dbsize; redis-cli -s {work}/r shutdown nosave; wait"
    )
    tmux = f"tmux -S {work}/tmux -f /dev/null new-session -d 'echo inside > {work}/inside' && while tmux -S {work}/tmux ls >/dev/null 2>&1; do sleep 0.02; done; cat {work}/inside"
    mdb = f"rm -rf {work}/mdb; mkdir {work}/mdb; {{ printf 'VERSION=3\\nformat=print\\ntype=btree\\nHEADER=END\\n'; for i in $(seq 3000); do printf ' k%05d\\n v%d\\n' $i $i; done; echo DATA=END; }} | mdb_load {work}/mdb && mdb_stat {work}/mdb | grep Entries"
    jemalloc = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"
    browser = "/usr/lib/chromium/chromium"
    browse = f"rm -rf {work}/chromium; {browser} --headless --no-sandbox --disable-gpu --no-first-run --user-data-dir={work}/chromium --virtual-time-budget=5000 --dump-dom file://{HERE}/programs/page.html 2>/dev/null | grep -o 'sum [-0-9]*'"
    firefox = "/usr/lib/firefox-esr/firefox-esr"
    screenshot = f"rm -rf {work}/firefox; mkdir {work}/firefox; {firefox} --headless --no-remote --profile {work}/firefox --window-size 400,300 --screenshot {work}/page.png file://{HERE}/programs/page.html 2>/dev/null; head -c 24 {work}/page.png | od -x"
    sh = lambda text: ["sh", "-c", text]
    return [
        ("redis", ["redis-server"], "", sh(redis)),
        ("sqlite", ["sqlite3"], "", ["sqlite3", ":memory:", SQL]),
        ("lmdb", ["mdb_load"], "", sh(mdb)),
        ("node workers", ["node"], "", ["node", f"{HERE}/programs/workers.js"]),
        ("java", ["java"], f"javac -d {work}/classes {java}", ["java", "-XX:ParallelGCThreads=4", "-cp", f"{work}/classes", "Contend"]),
        ("javac", ["javac"], "", ["javac", "-d", f"{work}/classes2", java]),
        ("go cgo", ["go"], go, [f"{work}/go"]),
        ("go static", ["go"], "", sh("go env GOOS; go vet -h 2>&1 | head -1; go list std | wc -l")),
        ("ruby", ["ruby"], "", ["ruby", "-e", RUBY]),
        ("php", ["php"], "", ["php", "-r", PHP]),
        ("erlang", ["erl"], "", ["erl", "-noshell", "-eval", ERL]),
        ("ripgrep", ["rg"], "", ["rg", "-c", "--sort", "path", "unsafe", f"{HERE}/../../crates"]),
        ("git", ["git"], "", ["git", "-C", HERE, "-c", "grep.threads=4", "grep", "-c", "fn"]),
        ("make -j4, LTO", ["make", "gcc"], make, sh(f"rm -f {work}/make/*.o; make -s -j4 -C {work}/make; echo $?")),
        ("tmux", ["tmux"], "", sh(tmux)),
        ("qemu-user", ["qemu-x86_64"], build, ["qemu-x86_64", app, "threads", "200"]),
        ("numpy, pandas, pyarrow", ["import numpy, pandas, pyarrow"], "", python("arrays.py", ARRAYS_PY)),
        ("jax", ["import jax"], "", python("j.py", JAX_PY)),
        ("dask", ["import distributed"], "", python("d.py", DASK_PY)),
        ("grpc", ["import grpc"], "", python("g.py", GRPC_PY)),
        ("multiprocessing fork", ["import multiprocessing"], "", python("pool.py", POOLS_PY, "fork")),
        ("multiprocessing spawn", ["import multiprocessing"], "", python("pool.py", POOLS_PY, "spawn")),
        ("multiprocessing forkserver", ["import multiprocessing"], "", python("pool.py", POOLS_PY, "forkserver")),
        ("chromium", [browser], "", sh(browse)),
        ("firefox", [firefox], "", sh(screenshot)),
        ("torch", ["import torch"], "", [PYTHON, f"{HERE}/programs/train.py"]),
        ("address sanitizer", ["gcc"], f"gcc -O1 -fsanitize=address -pthread {c} -o {work}/asan", [f"{work}/asan", "threads", "2000"]),
        ("thread sanitizer", ["gcc"], f"gcc -O1 -fsanitize=thread -pthread {c} -o {work}/tsan", [f"{work}/tsan", "threads", "2000"]),
        ("heaptrack", ["heaptrack"], build, sh(f"cd {work} && heaptrack -o {work}/heap {app} threads 300 | grep '^[0-9]*$'")),
        ("uftrace", ["uftrace"], f"gcc -pg -O1 -pthread {c} -o {work}/pg", sh(f"cd {work} && rm -rf uftrace.data && uftrace record {work}/pg threads 300")),
        ("jemalloc", [jemalloc], build, sh(f"LD_PRELOAD={jemalloc} {app} threads 5000")),
        ("faketime", ["faketime"], build, sh(f"faketime '2020-01-01 00:00:00' sh -c 'date +%Y; {app} threads 2000'")),
        ("gdb", ["gdb"], build, sh(f"gdb -q -batch -nx -ex run --args {app} threads 300 2>&1 | grep '^[0-9]*$'")),
        ("strace", ["strace"], build, sh(f"strace -f -qq -e trace=exit_group -o /dev/null {app} threads 300")),
        ("perf", ["perf"], build, sh(f"perf record -q -o {work}/perf.data {app} threads 2000 2>/dev/null")),
        ("memcheck", ["valgrind"], build, ["valgrind", "-q", "--error-exitcode=9", app, "threads", "200"]),
        ("drd", ["valgrind"], build, ["valgrind", "-q", "--tool=drd", "--error-exitcode=9", app, "threads", "100"]),
        ("10,000 threads", ["gcc"], build, [app, "threads", "10000"]),
        ("5,000 forks", ["gcc"], build, [app, "forks", "5000"]),
        ("300 execs", ["gcc"], build, [app, "execs", "300"]),
        ("100 system()", ["gcc"], build, [app, "system", "100"]),
        ("robust, shared", ["gcc"], build, [app, "robust", "500"]),
        ("bash", ["bash"], "", ["bash", "-c", "for i in $(seq 200); do x=$(echo $i | tr 1 2); done; echo $x"]),
        ("perl", ["perl"], "", ["perl", "-e", "for(1..100){$s+=`echo $_`}print $s,qq(\\n)"]),
        ("tar, xz", ["tar", "xz"], "", sh(f"tar --sort=name -C {HERE} -cf - programs | xz -T2 -3 | sha256sum")),
        ("nothing", ["true"], "", ["true"]),
    ]


def missing(need):
    if need.startswith("/"):
        return None if os.path.exists(need) else f"no {need}"
    if need.startswith("import "):
        return None if subprocess.run([PYTHON, "-c", need], capture_output=True).returncode == 0 else f"{PYTHON} has no {need[7:]}"
    return None if shutil.which(need) else f"no {need}"


def once(mode, command, out, name):
    before = []
    if mode == "record":
        before = [DOORBELL, "record", "--locks", "--tap", "off", "--quiet", "--force", "-o", f"{out}/{name}.doorbell", "--"]
    elif mode != "bare":
        before = [DOORBELL, "run", "--lock-policy", mode, "--"]
    start = time.monotonic()
    said, complaints, status = lab.ended(before + command, LIMIT)
    return time.monotonic() - start, said, complaints, status


def lost_events(recording):
    """Of the last recording of a program, which is removed."""
    shown = subprocess.run([DOORBELL, "show", "--locks", "--json", recording], capture_output=True)
    os.remove(recording)
    return json.loads(shown.stdout)["lost_events"] if shown.returncode == 0 else shown.stderr.decode(errors="replace").strip()


def interval(ratios):
    """The median over the rounds, and its interval by the ranks of the sign test: 95 %, with five rounds or fewer the least and the greatest."""
    ratios = sorted(ratios)
    n = len(ratios)
    k = max(0, int((n - 1.96 * n**0.5) / 2))
    return statistics.median(ratios), ratios[k], ratios[n - 1 - k]


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__.split("\n")[0])
    out, only = sys.argv[1], sys.argv[2:]
    os.makedirs(out, exist_ok=True)
    os.environ["MAKEFILE"] = MAKEFILE
    results, wrong = {}, False
    print("| program | bare, s |" + "".join(f" {m} |" for m in MODES[1:]))
    print("|---|--:|" + "---|" * (len(MODES) - 1))
    with tempfile.TemporaryDirectory() as work:
        for name, needs, ready, command in programs(work):
            if only and name not in only:
                continue
            why = next(filter(None, map(missing, needs)), None)
            if not why and ready and subprocess.run(ready, shell=True, capture_output=True).returncode:
                why = f"could not be made ready: {ready}"
            if why:
                print(f"| {name} | skipped: {why} |", flush=True)
                continue
            file = re.sub("[^a-z0-9]+", "-", name)
            _, said, complaints, status = once("bare", command, out, file)  # fills caches
            if status != 0:
                print(f"| {name} | skipped: bare it ended with {status}: {complaints[-200:]!r} |", flush=True)
                continue
            times, saw = {m: [] for m in MODES}, {m: set() for m in MODES}
            for _ in range(ROUNDS):
                for mode in random.sample(MODES, len(MODES)):
                    seconds, said, complaints, status = once(mode, command, out, file)
                    times[mode].append(seconds)
                    saw[mode].add((said, status))
                    if (said, status) not in saw["bare"] and saw["bare"]:
                        open(f"{out}/{file}-{mode}.txt", "w").write(f"{said}\n--\n{complaints}\n{status}\n")
            lost = lost_events(f"{out}/{file}.doorbell") if "record" in MODES else 0
            wrong |= lost != 0
            row = f"| {name} | {statistics.median(times['bare']):.3f} |"
            for mode in MODES[1:]:
                middle, low, high = interval([a / b for a, b in zip(times[mode], times["bare"])])
                same = saw[mode] <= saw["bare"]
                wrong |= not same
                added = statistics.median([a - b for a, b in zip(times[mode], times["bare"])]) * 1e3
                row += f" {'same' if same else 'DIFFERS'}, {middle:.2f} ({low:.2f} to {high:.2f}), {added:+.0f} ms |"
            print(row + (f" {lost} events lost |" if lost else ""), flush=True)
            results[name] = {"lost": lost, "seconds": times, "same": {m: saw[m] <= saw["bare"] for m in MODES[1:]}, "statuses": {m: sorted(str(s) for _, s in saw[m]) for m in MODES}}
    with open(f"{out}/everyday.json", "w") as f:
        json.dump(results, f, indent=1)
    sys.exit(wrong)


if __name__ == "__main__":
    main()

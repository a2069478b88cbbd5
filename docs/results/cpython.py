#!/usr/bin/env python3
"""CPython's own tests, plain and under doorbell, compared case by case. suites.sh starts it:
    cpython.py DOORBELL OUT LIMIT TRIES MODES [MODULE ...]

MODES is a list with spaces; gpu-patch and gpu-trap are for programs that use the software GPU (`ringing`). The Python that runs this is the one that is tested. A case is what the JUnit file of `-m test`
names; its outcome is ok, FAIL, ERROR or skipped. A module differs where a case's outcomes under doorbell and plain have nothing in
common, after each was run TRIES times more, in turns; it varies where they differed at first. A module that ends without a JUnit file (a crash, the time limit) counts as
one case of that name. Writes OUT/cpython/MODULE.MODE with what each run said and OUT/cpython/MODULE.MODE.cases."""
import collections
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml

doorbell, out, limit, tries, modes = sys.argv[1:6]
limit, tries, modes = int(limit), int(tries), modes.split()
modules = sys.argv[6:] or """test_threading test_thread test_threading_local test_signal test_threadsignals test_faulthandler
    test_subprocess test_fork1 test_wait3 test_wait4 test_os test_posix test_popen test_eintr test_pty test_queue test_selectors
    test_multiprocessing_main_handling test_multiprocessing_fork test_multiprocessing_spawn test_multiprocessing_forkserver
    test_concurrent_futures""".split()
out = os.path.join(out, "cpython")
os.makedirs(out, exist_ok=True)


def cases_of(path):
    """{case: outcome}; cases of one name (subtests) as one, the worst outcome of them."""
    rank = ["ok", "skipped", "FAIL", "ERROR"]
    found = {}
    for case in xml.parse(path).getroot().iter("testcase"):
        kinds = {child.tag for child in case}
        outcome = "ERROR" if "error" in kinds else "FAIL" if "failure" in kinds else "skipped" if "skipped" in kinds else "ok"
        if case.get("status") == "notrun" or case.get("result") == "skipped":
            outcome = "skipped"
        # (A subtest has none.)
        name = case.get("name") or "a subtest"
        found[name] = max(found.get(name, "ok"), outcome, key=rank.index)
    return found


def once(mode, module):
    """One run: ({case: outcome}, seconds, what the recording says or None)."""
    directory = tempfile.mkdtemp(prefix="cpython.")
    tape = os.path.join(directory, "tape")
    record = [doorbell, "record", "--locks", "--quiet", "-o", tape]
    under = {
        "plain": [],
        "record": [*record, "--tap", "off", "--"],
        "gpu-patch": [*record, "--gpu", "soft", "--tap", "patch", "--"],
        "gpu-trap": [*record, "--gpu", "soft", "--tap", "trap", "--"],
        "fix": [doorbell, "run", "--fix=pins,copies", "--"],
    }.get(mode, [doorbell, "run", "--lock-policy", mode, "--"])
    environment = dict(os.environ)
    if mode.startswith("gpu-"):
        # (A strict software GPU has signal handlers of its own.)
        environment.update(RINGS="1", DOORBELL_SOFTGPU="poll")
    work = os.path.join(directory, "work")
    os.mkdir(work)
    name = os.path.join(out, f"{module}.{mode}")
    while os.path.exists(name):
        name += ".again"
    said = open(name, "wb")
    start = time.monotonic()
    # A session of its own, so that nothing that it leaves behind stays, and a terminal is nobody's.
    child = subprocess.Popen([*under, sys.executable, "-m", "test", "-v", "--junit-xml", "cases.xml", module], cwd=work,
                             stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, start_new_session=True, env=environment)
    try:
        status = child.wait(limit)
    except subprocess.TimeoutExpired:
        status = "still running"
        os.killpg(child.pid, signal.SIGTERM)
        try:
            child.wait(5)
        except subprocess.TimeoutExpired:
            pass
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()
    seconds = time.monotonic() - start
    said.close()
    try:
        cases = cases_of(os.path.join(work, "cases.xml"))
    except (OSError, xml.ParseError):
        cases = {}
    cases[module] = f"status {status}"
    with open(f"{name}.cases", "w") as file:
        file.writelines(f"{outcome} {name}\n" for name, outcome in sorted(cases.items()))
    told = None
    if os.path.exists(tape):
        told = {}
        for view in ("--summary", "--locks"):
            shown = subprocess.run([doorbell, "show", view, "--json", tape], capture_output=True)
            try:
                told[view] = json.loads(shown.stdout)
            except ValueError:
                told["unreadable"] = shown.stderr.decode(errors="replace")[-200:]
    shutil.rmtree(directory, ignore_errors=True)
    return cases, seconds, told


def counted(cases):
    n = collections.Counter(outcome for name, outcome in cases.items() if name not in modules)
    failed = n["FAIL"] + n["ERROR"]
    return f"{n['ok']} ok" + (f", {failed} failed" if failed else "") + (f", {n['skipped']} skipped" if n["skipped"] else "")


def taped(told):
    if told is None:
        return ""
    if "unreadable" in told:
        return f", unreadable: {told['unreadable']}"
    summary, locks = told["--summary"], told["--locks"]
    # (Without a GPU there is nothing to tap, and doorbell says so.)
    why = "; ".join(reason for reason in summary["incomplete_because"] if not reason.startswith("the tap was off"))
    return f", {len(summary['processes'])} processes, {sum(locks['operations'].values())} operations, " + \
        (f"{summary['submissions']} submissions, " if summary["submissions"] else "") + \
        f"lost {locks['lost_events'] + summary['lost']}" + (f", incomplete: {why[:300]}" if why else "")


print("| module | plain |", *(f" {mode} |" for mode in modes), sep="")
print("|---|---|", "---|" * len(modes), sep="", flush=True)
failed = False
for module in modules:
    plain, seconds, _ = once("plain", module)
    plains = [plain]
    print(f"| {module} | {counted(plain)}, {plain[module]}, {seconds:.0f} s |", end="", flush=True)
    for mode in modes:
        mine, seconds, told = once(mode, module)
        mines = [mine]

        def apart():
            names = set().union(*plains, *mines)
            return sorted(name for name in names
                          if not {run.get(name) for run in plains} & {run.get(name) for run in mines})

        differ, again = apart(), 0
        while differ and again < tries:
            plains.append(once("plain", module)[0])
            mines.append(once(mode, module)[0])
            differ, again = apart(), again + 1
        varies = sorted(name for name in set(plain) | set(mine) if plain.get(name) != mine.get(name))
        verdict = "**differs**" if differ else "varies, as plain or not again" if varies else "same"
        print(f" {verdict}, {counted(mine)}, {seconds:.0f} s{taped(told)} |", end="", flush=True)
        failed = failed or bool(differ)
        for name in differ or varies:
            print(f"{'differs' if differ else 'varies'}: {module} {mode} {name}: plain {[run.get(name) for run in plains]}, here {[run.get(name) for run in mines]}",
                  file=sys.stderr, flush=True)
    print(flush=True)
sys.exit(failed)

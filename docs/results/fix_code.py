#!/usr/bin/env python3
"""Code that another process compiles first (`run --fix=code`): is it CUDA's, and what does it hold up?

    fix_code.py run DOORBELL FOLDER      fifty kernels bare and fixed; frames next to loads; first and second starts; FOLDER/fix-code.json
    fix_code.py kernels PTX              loads the kernels of a file with several options, prints what they are, their results and their times

Each start has an empty cache of CUDA's, or the one of the start before. The status is 1 if a kernel differs.
"""

import ctypes
import hashlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import lab

# Floats of which the kernels read and write all, and the first of which are compared.
N, COMPARED = 1 << 20, 1 << 18
# CUjit_option: registers at most, optimisation, debug, line information.
OPTIONS = [{}, {0: 32}, {7: 0}, {7: 2}, {13: 1}, {11: 1}]
# CU_FUNC_ATTRIBUTE: threads at most, shared, constant, local bytes, registers, PTX and binary version.
ATTRIBUTES = range(7)


def kernels(ptx):
    cuda = ctypes.CDLL("libcuda.so.1")

    def call(name, *arguments):
        result = getattr(cuda, name)(*arguments)
        if result:
            raise SystemExit(f"{name}: {result}")

    device, context, memory, stream = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(4 * N))
    call("cuStreamCreate", ctypes.byref(stream), 1)
    events = [ctypes.c_void_p(), ctypes.c_void_p()]
    for event in events:
        call("cuEventCreate", ctypes.byref(event), 0)
    with open(ptx, "rb") as f:
        text = f.read()
    begin, host = (ctypes.c_float * N)(*[1 + i % 97 / 97 for i in range(97)] * (N // 97)), (ctypes.c_float * COMPARED)()
    names = re.findall(rb"\.entry (\w+)", text)
    for n, options in enumerate(OPTIONS):
        module = ctypes.c_void_p()
        # (A text of its own for each set of options.)
        image = text + b"\n// %d\0" % n
        began = time.perf_counter()
        if options:
            keys, values = (ctypes.c_int * len(options))(*options), (ctypes.c_void_p * len(options))(*options.values())
            call("cuModuleLoadDataEx", ctypes.byref(module), image, len(options), keys, values)
        else:
            call("cuModuleLoadData", ctypes.byref(module), image)
        print(json.dumps({"options": str(options), "load_ms": (time.perf_counter() - began) * 1e3}))
        for name in names:
            function, facts = ctypes.c_void_p(), []
            call("cuModuleGetFunction", ctypes.byref(function), module, name)
            for attribute in ATTRIBUTES:
                value = ctypes.c_int()
                call("cuFuncGetAttribute", ctypes.byref(value), attribute, function)
                facts.append(value.value)
            call("cuMemcpyHtoD_v2", memory, begin, ctypes.c_size_t(4 * N))
            count = ctypes.c_int(N)
            arguments = (ctypes.c_void_p * 2)(ctypes.addressof(memory), ctypes.addressof(count))

            def launch():
                call("cuLaunchKernel", function, N // 256, 1, 1, 256, 1, 1, 0, stream, arguments, None)
            launch()
            call("cuStreamSynchronize", stream)
            call("cuMemcpyDtoH_v2", host, memory, ctypes.c_size_t(4 * COMPARED))
            times, took = [], ctypes.c_float()
            for _ in range(5):
                call("cuEventRecord", events[0], stream)
                for _ in range(20):
                    launch()
                call("cuEventRecord", events[1], stream)
                call("cuStreamSynchronize", stream)
                call("cuEventElapsedTime", ctypes.byref(took), *events)
                times.append(took.value * 50)
            same = {"options": str(options), "kernel": name.decode(), "facts": facts, "result": hashlib.sha256(bytes(host)).hexdigest()[:16]}
            print(json.dumps({**same, "us": min(times)}))
    wrong, module = b".version 8.0\n.target sm_90\n.address_size 64\n.entry wrong(){ no.such.instruction; }\0", ctypes.c_void_p()
    log, size = ctypes.create_string_buffer(4096), 4096
    keys, values = (ctypes.c_int * 2)(5, 6), (ctypes.c_void_p * 2)(ctypes.addressof(log), size)
    result = cuda.cuModuleLoadDataEx(ctypes.byref(module), wrong, 2, keys, values)
    print(json.dumps({"wrong": result, "log": log.value.decode()}))


def started(command, cache, doorbell=None):
    before = [doorbell, "run", "--fix=code", "--report", "--"] if doorbell else []
    environment = {**os.environ, "CUDA_CACHE_PATH": cache, "XDG_CACHE_HOME": cache}
    began = time.perf_counter()
    done = subprocess.run([*before, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, timeout=300)
    took = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(f"{command}: {done.returncode} {done.stderr[-500:]}")
    return took, lab.objects(done.stdout), done.stderr


def files(cache):
    """What CUDA's cache has: its files, by a hash of their bytes. (Without its index, which has times.)"""
    found = {}
    for at, folders, names in os.walk(cache):
        folders[:] = [folder for folder in folders if folder != "doorbell"]
        for name in names:
            if name != "index":
                with open(os.path.join(at, name), "rb") as f:
                    found[name] = hashlib.sha256(f.read()).hexdigest()
    return found


def emptied(folder):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    return folder


def run(doorbell, folder):
    rows, wrong = [], 0
    with tempfile.TemporaryDirectory() as made:
        ptx, holds = lab.built("fix/kernels.cu", "-ptx", "-arch=compute_80", to=os.path.join(made, "kernels.ptx")), lab.built("fix/holds.c")
        check, caches = [sys.executable, os.path.abspath(__file__), "kernels", ptx], {way: os.path.join(made, way) for way in ("bare", "fixed")}
        ways = {"bare": None, "fixed": doorbell}
        for round in range(2):
            out, cached = {}, {}
            for way in ways if round % 2 else reversed(ways):
                cache = emptied(caches[way])
                first, out[way], report = started(check, cache, ways[way])
                cached[way] = files(cache)
                second, again, _ = started(check, cache, ways[way])
                loads = [sum(line["load_ms"] for line in lines if "load_ms" in line) for lines in (out[way], again)]
                rows.append({"what": "start", "way": way, "round": round, "first_s": first, "second_s": second, "first_loads_ms": loads[0], "second_loads_ms": loads[1]})
                print(rows[-1], report.strip().replace("\n", "; "), flush=True)
            kernels = {way: {(line["options"], line["kernel"]): line for line in lines if "kernel" in line} for way, lines in out.items()}
            same = lambda line: (line["facts"], line["result"])
            differ = [key for key, line in kernels["bare"].items() if same(line) != same(kernels["fixed"][key])]
            errors = {way: [line for line in lines if "wrong" in line] for way, lines in out.items()}
            ratios = [kernels["fixed"][key]["us"] / line["us"] for key, line in kernels["bare"].items()]
            files_differ = len(set(cached["bare"].items()) ^ set(cached["fixed"].items()))
            wrong += len(differ) + (errors["bare"] != errors["fixed"]) + files_differ
            rows.append({"what": "kernels", "round": round, "kernels": len(ratios), "differ": len(differ), "files": len(cached["bare"]), "files_differ": files_differ, "same_error": errors["bare"] == errors["fixed"],
                         **{f"ratio_{key}": value for key, value in lab.median_interval(ratios).items()}})
            print(rows[-1], errors["bare"], flush=True)
        turns = ["12", "nothing:0:40", "load-cubin:400:13", "load-new:400:6", "load-new:50:13"]
        for round in range(2):
            for way in ways if round % 2 else reversed(ways):
                for turn in started([holds, *turns], emptied(caches[way]), ways[way])[1]:
                    rows.append(lab.tell({"what": "frames", "way": way, "round": round, **summed(turn)}))
    lab.write(folder, "fix-code", "Code that another process compiles first", ["fix_code.py", "run"], rows, stored="figures of each start and of each turn")
    return int(wrong > 0)


def summed(turn):
    """Frames of a turn of holds.c: their time from when they were due to their end."""
    late = sorted((frame[1] - frame[0]) / 1e3 for frame in turn["frames"])
    own = [(call[2] - call[1]) / 1e3 for call in turn["calls"] if call[0] == 0]
    of = lambda part: late[int(part * (len(late) - 1))]
    kind, size, _ = turn["turn"].split(":")
    return {"kind": kind, "size": int(size), "wrong": turn["wrong"], "frames": len(late), "late": sum(us > 500 for us in late), "p50_us": of(0.5), "p999_us": of(0.999),
            "max_us": late[-1], "calls": len(own), "own_p50_us": statistics.median(own) if own else None}


if __name__ == "__main__":
    lab.main(__doc__, run=run, kernels=kernels)

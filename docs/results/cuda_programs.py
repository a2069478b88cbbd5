#!/usr/bin/env python3
"""Programs of CUDA 12 and 13, and profilers beside them, bare and recorded.

    docs/results/cuda_programs.py build FOLDER RUNTIME ...   builds programs/versions.c for each runtime: a folder in which a wheel
                                                    nvidia-cuda-runtime or nvidia-cuda-runtime-cu12 was unpacked (needs gcc, nvcc,
                                                    and its headers: CRT=FOLDER where the wheel lacks crt/)
    docs/results/cuda_programs.py run FOLDER OUT             runs them and what else is installed, prints its rows, writes OUT/cuda.json

What a program prints and how it ends must be the same. DOORBELL names the binary, LIMIT the seconds that one run may take. Ends with 1 if something
differed, a recording lost something, or fewer launches were recorded than were made. Launches are those of kernels and of graphs,
whose kernels the GPU starts from memory.
"""
import glob
import json
import os
import re
import shutil
import subprocess
import tempfile

import lab

HERE = lab.HERE
DOORBELL = os.environ.get("DOORBELL", f"{HERE}/../../target/release/doorbell")
LIMIT = float(os.environ.get("LIMIT", "90"))
# What versions.c launches: kernels, and a graph of five.
LAUNCHES = (1000, 20)

KERNEL = """
extern "C" __global__ void add(int *at, int count, int by) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) at[i] += by;
}
"""

STEP = """
import torch
torch.manual_seed(0)
m = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 8)).cuda()
o = torch.optim.SGD(m.parameters(), lr=0.1)
x = torch.randn(64, 512).cuda()
def step():
    o.zero_grad(); loss = m(x).square().mean(); loss.backward(); o.step(); return loss
"""
TORCH = STEP + "for _ in range(50): loss = step()\nprint(loss.item())\n"
# The profiler's own count of kernels, which the recording must reach: it began before and ended later.
PROFILED = (
    STEP
    + """
from torch.profiler import profile, ProfilerActivity
step(); torch.cuda.synchronize()
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as p:
    for _ in range(50): loss = step()
    torch.cuda.synchronize()
kernels = [e for e in p.events() if e.device_type == torch.autograd.DeviceType.CUDA and not e.name.startswith(('Mem', 'ProfilerStep'))]
print(loss.item()); print('kernels', len(kernels))
"""
)
COMPILED = STEP + "step = torch.compile(step, mode='reduce-overhead')\nfor _ in range(20): loss = step()\nprint(loss.item())\n"
TRITON = """
import torch, triton, triton.language as tl
@triton.jit
def add(x, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)
x = torch.zeros(4096, device='cuda')
for _ in range(200): add[(4,)](x, 4096, B=1024)
print(x.sum().item())
"""
CUPY = """
import cupy
add = cupy.RawKernel('extern "C" __global__ void add(int *x) { x[blockIdx.x * blockDim.x + threadIdx.x] += 1; }', 'add')
x = cupy.zeros(4096, dtype=cupy.int32)
for _ in range(200): add((16,), (256,), (x,))
print(int(x.sum()))
"""
JAX = "import jax, jax.numpy as n\nf = jax.jit(lambda x: (x @ x).sum())\nfor _ in range(50): y = f(n.ones((300, 300)))\nprint(int(y), jax.devices()[0].platform)\n"
TINYGRAD = "import os\nos.environ['DEV'] = 'CUDA'\nfrom tinygrad import Tensor\nx = Tensor.ones(256, 256).contiguous().realize()\nfor _ in range(20): x = (x @ x / 256).realize()\nprint(x.sum().item())\n"
# What a monitoring daemon asks, every 10 ms, in a process of its own.
POLLER = """
import ctypes, sys, time
n = ctypes.CDLL('libnvidia-ml.so.1'); n.nvmlInit_v2(); d = ctypes.c_void_p(); n.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(d))
b = (ctypes.c_ulonglong * 512)(); c = ctypes.c_uint(); asked = 0
asks = ['nvmlDeviceGetUtilizationRates', 'nvmlDeviceGetMemoryInfo', 'nvmlDeviceGetPowerUsage']
while True:
    wrong = [a for a in asks if getattr(n, a)(d, b)]
    c.value = 16; n.nvmlDeviceGetComputeRunningProcesses_v3(d, ctypes.byref(c), b); n.nvmlDeviceGetTemperature(d, 0, ctypes.byref(c)); n.nvmlDeviceGetClockInfo(d, 1, ctypes.byref(c))
    asked += 1
    if wrong or asked == 1: print(wrong, flush=True)
    time.sleep(0.01)
"""


def build(folder, *runtimes):
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/add.cu", "w") as f:
        f.write(KERNEL)
    nvcc = os.environ.get("NVCC", "nvcc")
    code = ["-gencode", "arch=compute_80,code=compute_80", "-gencode", "arch=compute_90,code=sm_90"]
    subprocess.run([nvcc, "-fatbin", "--no-compress", *code, f"{folder}/add.cu", "-o", f"{folder}/add.fatbin"], check=True)
    for root in runtimes:
        library = glob.glob(f"{root}/**/libcudart.so.1?", recursive=True)[0]
        lib = os.path.dirname(library)
        include = [f"-I{lib}/../include", *(f"-I{place}" for place in os.environ.get("CRT", "").split(":") if place)]
        gcc = ["gcc", "-O1", "-Wno-missing-braces", f'-DKERNEL="{os.path.abspath(folder)}/add.fatbin"', *include, f"{HERE}/programs/versions.c"]
        version = re.search(r"\d+\.\d+\.\d+", os.path.basename(root.rstrip("/")))[0]
        os.makedirs(f"{folder}/{version}", exist_ok=True)
        shutil.copy(library, f"{folder}/{version}")
        subprocess.run([*gcc, "-o", f"{folder}/{version}/dynamic", library, "-Wl,-rpath,$ORIGIN"], check=True)
        if os.path.exists(f"{lib}/libcudart_static.a"):
            more = ["-lculibos"] * os.path.exists(f"{lib}/libculibos.a") + ["-lpthread", "-ldl", "-lrt"]
            subprocess.run([*gcc, "-o", f"{folder}/{version}/static", f"-L{lib}", "-lcudart_static", *more], check=True)


def cases(folder, work):
    """Name, what runs, what runs beside it, and how many launches it makes, of kernels and of graphs: both numbers, 'some', or 'printed' by itself."""

    def python(name, text):
        path = f"{work}/program_{name.replace('.', '_')}.py"
        with open(path, "w") as f:
            f.write(text)
        return ["python3", path]

    for kind in ["dynamic", "static"]:
        for program in sorted(glob.glob(f"{folder}/*/{kind}")):
            yield f"cudart {program.split('/')[-2]}, {kind}", [program], None, LAUNCHES
    some = {"torch": TORCH, "torch.compile": COMPILED, "triton": TRITON, "cupy": CUPY, "jax": JAX, "tinygrad": TINYGRAD}
    for name, text in some.items():
        if subprocess.run(["python3", "-c", f"import {name.split('.')[0]}"], capture_output=True).returncode == 0:
            yield name, python(name, text), None, "some"
    yield "torch.profiler", python("profiled", PROFILED), None, "printed"
    newest = sorted(glob.glob(f"{folder}/*/dynamic"))[-1:]
    poller = python("poller", POLLER)
    for program in newest:
        yield "a poller of NVML beside it", [program], poller, LAUNCHES
        yield "nvidia-smi dmon beside it", [program], ["nvidia-smi", "dmon", "-d", "1"], LAUNCHES
        for name, before in {
            "ncu": ["ncu", "--clock-control", "none", "--section", "LaunchStats", "-c", "5"],
            "compute-sanitizer": ["compute-sanitizer"],
            "nsys": ["nsys", "profile", "--force-overwrite", "true", "-o", f"{work}/report"],
            # Doorbell's traps are signals, at which a debugger stops.
            "cuda-gdb": ["cuda-gdb", "-q", "-batch", "-nx", "-ex", "handle SIGSEGV nostop noprint pass", "-ex", "run", "--args"],
        }.items():
            found = shutil.which(name) or next(iter(glob.glob(f"/opt/nvidia/**/{name}", recursive=True)), None)
            if found:
                yield f"{name} runs it", [found, *before[1:], program], None, "some"


def results(text):
    """What the program itself said: profilers print process numbers and times."""
    return [line for line in text.splitlines() if re.match(r"runtime|kernels|[-\d.]+( |$)", line)]


def recorded(command, out, ways):
    """What it said, and what its recording holds: the summary, and launches of kernels and of graphs."""
    file = f"{out}/cuda.doorbell"
    said = lab.ended([DOORBELL, "record", *ways, "--quiet", "--force", "-o", file, "--", *command], LIMIT)
    shown = [lab.ended([DOORBELL, "show", view, "--json", file], LIMIT) for view in ["--summary", "--graphs"]]
    if os.path.exists(file):
        os.remove(file)
    if shown[0][2] != 0:
        return said, {"trouble": [shown[0][1].strip()]}, (0, 0)
    summary, graphs = json.loads(shown[0][0]), json.loads(shown[1][0]) if shown[1][2] == 0 else []
    return said, summary, (summary["launches"], sum(graph["launches"] for graph in graphs))


def run(folder, out):
    os.makedirs(out, exist_ok=True)
    rows, wrong = [], False
    with tempfile.TemporaryDirectory() as work:
        for name, command, beside, expected in cases(folder, work):
            companion = beside and subprocess.Popen(beside, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            bare = lab.ended(command, LIMIT)
            row, differs = {"program": name, "lost": 0}, []
            for way in [[], ["--calls"]]:
                (text, _, status), summary, launches = recorded(command, out, way)
                printed = re.search(r"kernels (\d+)", text) if expected == "printed" else None
                made = (int(printed[1]), 0) if printed else expected
                same = results(text) == results(bare[0]) and status == bare[2]
                right = all(n >= m for n, m in zip(launches, made)) if isinstance(made, tuple) else launches[0] > 0
                wrongs = [*([] if same else ["output or status"]), *([] if right else ["launches"])]
                wrongs += [*summary.get("incomplete_because", []), *summary.get("trouble", [])]
                differs += [w for w in wrongs if w not in differs]
                row["lost"] += summary.get("lost") or 0
                key = "with_calls" if way else "recorded"
                row |= {key: launches[0], f"{key}_of_graphs": launches[1]}
                if isinstance(made, tuple):
                    row |= {"made": made[0], "made_by_graphs": made[1]}
            if companion:
                companion.terminate()
                companion.wait()
            wrong |= bool(differs)
            if bare[2] != 0:
                differs.append(f"bare it ended with {bare[2]}")
            rows.append(lab.tell({**row, "differs": "; ".join(differs) or "nothing"}))
    lab.write(out, "cuda", "Launches of programs of CUDA 12 and 13", ["docs/results/cuda_programs.py", "run"], rows)
    return wrong


if __name__ == "__main__":
    lab.main(__doc__, build=build, run=run)

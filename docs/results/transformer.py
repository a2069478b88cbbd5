"""A small transformer trained for a few steps: the program that docs/results/see.md records.

    python3 transformer.py [--steps 50] [--graph] [--profile]

Random weights from a fixed seed, deterministic algorithms. Prints a hash of every step's loss and of the final weights,
and a line of JSON with the step times (`loops`), or with --profile the launches that PyTorch's profiler counted.
"""

import argparse
import hashlib
import json
import os
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch  # noqa: E402  (the variable must be set before)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--steps", type=int, default=50)
    a.add_argument("--layers", type=int, default=2)
    a.add_argument("--warmup", type=int, default=3, help="steps before the first that counts")
    a.add_argument("--graph", action="store_true", help="capture the step once, replay it")
    a.add_argument("--profile", action="store_true")
    a.add_argument("--cpu", type=int, help="stay on this CPU")
    args = a.parse_args()
    if args.cpu is not None:
        os.sched_setaffinity(0, {args.cpu})
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(1)
    if not args.profile:
        digest, times = train(args)
        times.sort()
        step = {
            "n": len(times),
            "p50_ns": times[len(times) // 2],
            "p99_ns": times[len(times) * 99 // 100],
            "max_ns": times[-1],
        }
        print(json.dumps({"loops": {"step": step}}))
    else:
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as p:
            digest, _ = train(args)
        print(json.dumps(counts(p)))
    print("hash", digest)


def train(args):
    layer = torch.nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, args.layers).cuda()
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-2)
    g = torch.Generator().manual_seed(2)
    batches = [torch.randn(8, 32, 128, generator=g) for _ in range(8)]
    x, y = torch.empty(8, 32, 128, device="cuda"), torch.randn(8, 32, 128, generator=g).cuda()

    def step():
        optimiser.zero_grad(set_to_none=False)
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimiser.step()
        return loss

    x.copy_(batches[0])
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(args.warmup):
            step()
    torch.cuda.current_stream().wait_stream(side)
    if args.graph:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = step()
    h = hashlib.sha256()
    times = []
    for i in range(args.steps):
        begun = time.perf_counter_ns()
        x.copy_(batches[i % len(batches)])
        if args.graph:
            graph.replay()
            loss = captured
        else:
            loss = step()
        value = loss.detach().cpu()
        times.append(time.perf_counter_ns() - begun)
        h.update(value.numpy().tobytes())
    for p in model.parameters():
        h.update(p.detach().cpu().numpy().tobytes())
    return h.hexdigest()[:16], times


def counts(p):
    """Device activities by kind, and the API calls that launch, as the profiler saw them."""
    device, calls = {}, {}
    for e in p.events():
        if e.device_type == torch.autograd.DeviceType.CUDA:
            if e.name.startswith(("Optimizer.", "ProfilerStep")):
                continue  # an annotation, not work
            first = e.name.split()
            kind = f"memcpy {first[1]}" if first[0] == "Memcpy" else "memset" if first[0] == "Memset" else "kernel"
            device[kind] = device.get(kind, 0) + 1
        elif "Launch" in e.name:
            calls[e.name] = calls.get(e.name, 0) + 1
    return {"device": device, "calls": calls}


main()

"""Inference of the five models of "Autonomy Today: Many Delay-Prone Black Boxes" (ECRTS 2024), random weights.

    python3 models.py --list
    python3 models.py vit-s                        times, without and with a CUDA graph: one line of JSON
    python3 models.py vit-s --plain 100 [--graph]  only runs: what is recorded, once with N and once with 2 N

One inference: the input goes from pinned memory to the GPU, the model runs, the output comes back to pinned memory, and the
thread waits for it. Batch 1, float32 as PyTorch has it by default. With a graph all of that, both copies included, is one
cudaGraphLaunch; where a copy cannot be captured, it stays outside and the result says so.

`launch` is the time on the CPU from the first call of an inference to the return of the last one before the wait: the
paper's launch time ends when the GPU begins, which no clock of the CPU sees. `gpu` is between two events of CUDA's.
"""

import argparse
import json
import os
import sys
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def timm_model(name):
    def build():
        import timm

        return timm.create_model(name, pretrained=False)

    return build


def detr(eager=False):
    from transformers import DetrConfig, DetrForObjectDetection

    config = DetrConfig(use_pretrained_backbone=False)
    if eager:
        config._attn_implementation = "eager"
    return DetrForObjectDetection(config)


def segformer():
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    config = SegformerConfig(
        depths=[2, 2, 2, 2], hidden_sizes=[64, 128, 320, 512], decoder_hidden_size=256, num_labels=150
    )
    return SegformerForSemanticSegmentation(config)


# name: title, how it is built, input
MODELS = {
    "vit-s": ("ViT-S", timm_model("vit_small_patch16_224"), (1, 3, 224, 224)),
    "regnet-y": ("RegNet-Y", timm_model("regnety_160"), (1, 3, 224, 224)),
    "deit-b": ("DeiT-B", timm_model("deit_base_patch16_224"), (1, 3, 224, 224)),
    "detr": ("DETR-R50", detr, (1, 3, 800, 1066)),
    "segformer": ("SegFormer-B1", segformer, (1, 3, 512, 512)),
}


def outputs(result):
    """The tensors that the program would read: logits, and boxes where there are some."""
    import torch

    if isinstance(result, torch.Tensor):
        return [result]
    return [result[name] for name in ("logits", "pred_boxes") if name in result]


class Inference:
    def __init__(self, name, device, warmup):
        import torch

        self.torch = torch
        _, build, shape = MODELS[name]
        torch.manual_seed(1)
        self.cuda = device == "cuda"
        self.model = build().eval().to(device)
        generator = torch.Generator().manual_seed(2)
        self.input = self.pinned(torch.randn(shape, generator=generator))
        self.on_gpu = torch.empty(shape, device=device)
        # DETR makes a mask of ones where it is given none.
        self.more = {"pixel_mask": torch.ones((1, *shape[2:]), dtype=torch.long, device=device)} if name == "detr" else {}
        self.output = None
        self.graph = None
        self.copies_in_graph = None
        with torch.inference_mode():
            for _ in range(max(warmup, 2)):
                self.work()
                self.wait()

    def pinned(self, tensor):
        return tensor.pin_memory() if self.cuda else tensor

    def forward(self):
        return outputs(self.model(self.on_gpu, **self.more))

    def copy_in(self):
        self.on_gpu.copy_(self.input, non_blocking=True)

    def copy_out(self, results):
        if self.output is None:
            self.output = [self.pinned(self.torch.empty(r.shape, dtype=r.dtype)) for r in results]
        for to, result in zip(self.output, results):
            to.copy_(result, non_blocking=True)

    def eager(self):
        self.copy_in()
        self.copy_out(self.forward())

    def work(self):
        """Enqueues one inference."""
        if self.graph is None:
            self.eager()
        elif self.copies_in_graph:
            self.graph.replay()
        else:
            self.copy_in()
            self.graph.replay()
            self.copy_out(self.results)

    def wait(self):
        if self.cuda:
            self.torch.cuda.synchronize()

    def capture(self):
        """Makes a graph of one inference, with its copies where that is possible."""
        torch = self.torch
        failed = None
        for with_copies in (True, False):
            try:
                side = torch.cuda.Stream()
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    for _ in range(3):
                        self.eager()
                torch.cuda.current_stream().wait_stream(side)
                torch.cuda.synchronize()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    if with_copies:
                        self.eager()
                    else:
                        self.results = self.forward()
                self.graph, self.copies_in_graph = graph, with_copies
                return
            except Exception as e:  # what PyTorch raises here has many types
                failed = f"{type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}"
                try:
                    torch.cuda.synchronize()
                except Exception as broken:
                    raise RuntimeError(f"no graph: {failed}; and after it {broken}") from e
        raise RuntimeError(f"no graph: {failed}")

    def answer(self):
        self.work()
        self.wait()
        return [o.clone() for o in self.output]


def summary(values):
    values = sorted(values)
    n = len(values)
    return {
        "n": n,
        "mean_us": sum(values) / n,
        "p50_us": values[n // 2],
        "p99_us": values[n * 99 // 100] if n >= 100 else None,
        "max_us": values[-1],
    }


def timed(inference, n):
    torch, cuda = inference.torch, inference.cuda
    gpu, launch, whole = [], [], []
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2)) if cuda else (None, None)
    for i in range(2 * n):
        # Events are work too: every other inference has none, and only theirs are the times on the CPU.
        with_events = cuda and i % 2 == 0
        t0 = time.perf_counter_ns()
        if with_events:
            begin.record()
        inference.work()
        if with_events:
            end.record()
        t1 = time.perf_counter_ns()
        inference.wait()
        t2 = time.perf_counter_ns()
        if with_events:
            gpu.append(begin.elapsed_time(end) * 1e3)
        else:
            launch.append((t1 - t0) / 1e3)
            whole.append((t2 - t0) / 1e3)
    return {"gpu": summary(gpu) if gpu else None, "launch": summary(launch), "end_to_end": summary(whole)}


def profiled(inference, n):
    """Calls of the CUDA runtime and driver in n inferences, as PyTorch's profiler counts and times them."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as p:
        for _ in range(n):
            inference.work()
        inference.wait()
    calls = {}
    for event in p.key_averages():
        if event.key.startswith("cu") and ("Launch" in event.key or "Memcpy" in event.key or "Memset" in event.key):
            calls[event.key] = {"per_inference": event.count / n, "mean_us": event.cpu_time_total / event.count}
    return calls


def time_model(name, args):
    import torch

    title, _, shape = MODELS[name]
    result = {
        "model": name,
        "title": title,
        "input": list(shape),
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name() if args.device == "cuda" else None,
        "runs": [],
    }
    inference = Inference(name, args.device, args.warmup)
    with torch.inference_mode():
        reference = inference.answer()
        for graph in (False, True) if args.device == "cuda" else (False,):
            run = {"graph": graph, "failed": None}
            result["runs"].append(run)
            try:
                if graph:
                    inference.capture()
                    run["copies_in_graph"] = inference.copies_in_graph
                for _ in range(args.warmup):
                    inference.work()
                    inference.wait()
                run.update(timed(inference, args.n))
                answer = inference.answer()
                run["right"] = all(
                    bool(torch.isfinite(a).all()) and torch.allclose(a, r, rtol=1e-2, atol=1e-3)
                    for a, r in zip(answer, reference)
                )
                if args.device == "cuda":
                    run["profiler"] = profiled(inference, 10)
            except RuntimeError as e:
                run["failed"] = str(e)
    return result


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("model", nargs="?", choices=list(MODELS))
    a.add_argument("--list", action="store_true")
    a.add_argument("-n", type=int, default=300, help="inferences that are timed")
    a.add_argument("--plain", type=int, metavar="N", help="run N inferences and nothing else")
    a.add_argument("--graph", action="store_true", help="with --plain: as a CUDA graph")
    a.add_argument("--warmup", type=int, default=10)
    a.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    args = a.parse_args()
    if args.list or not args.model:
        print("\n".join(MODELS))
        return
    try:
        import torch
    except ImportError as e:
        sys.exit(f"models.py: {e}: needs PyTorch, timm, transformers")
    if args.device == "cuda" and not torch.cuda.is_available():
        print("models.py: PyTorch finds no GPU here (--device cpu shows that the models run)", file=sys.stderr)
        sys.exit(77)
    if args.plain is None:
        print(json.dumps(time_model(args.model, args)))
        return
    inference = Inference(args.model, args.device, args.warmup)
    with torch.inference_mode():
        if args.graph:
            inference.capture()
            for _ in range(args.warmup):
                inference.work()
                inference.wait()
        for _ in range(args.plain):
            inference.work()
            inference.wait()
        total = float(sum(o.double().sum() for o in inference.answer()))
    said = {"model": args.model, "graph": args.graph, "inferences": args.plain, "sum": total}
    print(json.dumps({**said, "copies_in_graph": inference.copies_in_graph}))


if __name__ == "__main__":
    main()

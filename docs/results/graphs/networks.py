"""CUDA graphs of PyTorch, each captured and replayed a few times: what docs/results/graphs.sh records.

    python3 networks.py NAME [--replays 5]      NAME: resnet50 gpt2 vit lstm triton matmul branches; --list prints them
    python3 networks.py NAME --launcher doorbell [--replays 1000] [--turns target/turns.so]

Random weights from a fixed seed. Each replay is waited for and compared bit for bit with the first; the last line is a hash of the result.

With --launcher doorbell each second replay is doorbell's (the Python package and libdoorbell have to be found), and each result is compared with
CUDA's. --turns names the library of docs/results/launch/turns.c: replays are then timed in turns of ten, in random order, until the CPU sees a word that
the graph writes last, whoever launched it. (For this the graph has one kernel and one copy of four bytes more.)
Exit status 77: PyTorch, Triton or a GPU is missing, or the graph is one that doorbell does not launch.
"""

import argparse
import hashlib
import os
import sys

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
# turns.py
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "launch"))


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def resnet50(torch):
    """Bottlenecks of 3, 4, 6, 3, as in the paper (He et al. 2015), batch 1."""
    nn = torch.nn

    class Bottleneck(nn.Module):
        def __init__(self, inside, width, stride):
            super().__init__()
            norm = nn.BatchNorm2d
            self.body = nn.Sequential(
                nn.Conv2d(inside, width, 1, bias=False), norm(width), nn.ReLU(),
                nn.Conv2d(width, width, 3, stride, 1, bias=False), norm(width), nn.ReLU(),
                nn.Conv2d(width, 4 * width, 1, bias=False), norm(4 * width))
            same = stride == 1 and inside == 4 * width
            self.side = nn.Identity() if same else nn.Sequential(
                nn.Conv2d(inside, 4 * width, 1, stride, bias=False), norm(4 * width))

        def forward(self, x):
            return torch.relu(self.body(x) + self.side(x))

    blocks, inside = [], 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(count):
            blocks.append(Bottleneck(inside, width, stride if i == 0 else 1))
            inside = 4 * width
    net = nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1), *blocks,
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, 1000))
    return net.cuda().eval(), torch.randn(1, 3, 224, 224, device="cuda")


def encoder(torch, width, heads, layers):
    layer = torch.nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
    return torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


def gpt2(torch):
    """Of GPT-2 small's size: 12 layers of 768, 12 heads, 50,257 tokens, a context of 64; in half precision."""
    nn = torch.nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.token, self.place = nn.Embedding(50257, 768), nn.Embedding(1024, 768)
            self.body, self.norm = encoder(torch, 768, 12, 12), nn.LayerNorm(768)
            self.register_buffer("mask", torch.full((64, 64), float("-inf")).triu(1))
            self.register_buffer("places", torch.arange(64))

        def forward(self, tokens):
            x = self.token(tokens) + self.place(self.places)
            # (Told that it is causal, PyTorch does not look at the mask, which would wait for the GPU within the capture.)
            x = self.norm(self.body(x, mask=self.mask.to(x.dtype), is_causal=True))
            return x[:, -1] @ self.token.weight.T

    return Model().cuda().half().eval(), torch.randint(0, 50257, (1, 64), device="cuda")


def vit(torch):
    """Of ViT-B/16's size: 12 layers of 768, 196 patches and a token for the class."""
    nn = torch.nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.patch, self.body = nn.Conv2d(3, 768, 16, 16), encoder(torch, 768, 12, 12)
            self.token = nn.Parameter(torch.randn(1, 1, 768))
            self.place = nn.Parameter(torch.randn(1, 197, 768))
            self.head = nn.Sequential(nn.LayerNorm(768), nn.Linear(768, 1000))

        def forward(self, x):
            x = self.patch(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.token, x], 1) + self.place
            return self.head(self.body(x)[:, 0])

    return Model().cuda().eval(), torch.randn(1, 3, 224, 224, device="cuda")


def lstm(torch):
    """cuDNN's, two layers of 512, 32 steps."""
    net = torch.nn.LSTM(256, 512, 2, batch_first=True).cuda().eval()
    net.flatten_parameters()
    return (lambda x: net(x)[0]), torch.randn(4, 32, 256, device="cuda")


def triton(torch):
    """A kernel of Triton's between two of PyTorch's."""
    try:
        import triton
        import triton.language as tl
    except ImportError as e:
        skip(e)

    # (Triton reads the kernel's text from this file; its names are the module's.)
    globals()["tl"] = tl
    kernel = triton.jit(scaled)

    def run(x):
        x, out = x + 1, torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), 3.0, SIZE=1024)
        return out * 2

    return run, torch.randn(100_000, device="cuda")


def scaled(x, out, n, factor, SIZE: "tl.constexpr"):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(out + at, tl.load(x + at, mask=at < n) * factor, mask=at < n)


def matmul(torch):
    """cuBLAS, two products in half precision."""
    b = torch.randn(1024, 1024, device="cuda").half()
    return (lambda x: (x @ b) @ b), torch.randn(512, 1024, device="cuda").half()


def branches(torch):
    """Eight products side by side, each on a stream of its own, and their sum."""
    streams = [torch.cuda.Stream() for _ in range(8)]
    weights = [torch.randn(512, 512, device="cuda").half() for _ in streams]

    def run(x):
        x, here, out = x + 1, torch.cuda.current_stream(), []
        for stream, weight in zip(streams, weights):
            stream.wait_stream(here)
            with torch.cuda.stream(stream):
                out.append(torch.relu(x @ weight))
        for stream in streams:
            here.wait_stream(stream)
        return torch.stack(out).sum(0)

    return run, torch.randn(64, 512, device="cuda").half()


PROGRAMS = {f.__name__: f for f in (resnet50, gpt2, vit, lstm, triton, matmul, branches)}


def past_cuda(name, graph, out, replays, turns, word):
    """Replays by CUDA and by doorbell, one after the other, all with one result: that result."""
    import doorbell
    import torch

    try:
        ours = doorbell.graph(graph)
    except doorbell.NotLaunchable as e:
        skip(e)
    print(f"{name}: {len(ours.kernels)} kernels")
    first = None
    for i in range(replays):
        for by in ("CUDA", "doorbell"):
            out.zero_()
            torch.cuda.synchronize()
            if by == "CUDA":
                graph.replay()
                torch.cuda.synchronize()
            else:
                ours.replay().wait(10)
            found = out.cpu()
            first = found if first is None else first
            if not torch.equal(found, first):
                sys.exit(f"{name}: replay {i} by {by} differs from the first by CUDA")
    if turns:
        # As a launch, and as a chain, whose parts wait for a counter in GPU memory.
        for by, launched in (("doorbell", ours), ("chain", doorbell.chain([ours]))):
            timed(name, graph, by, launched, turns, word)
            launched.replay().wait(10)
            if not torch.equal(out.cpu(), first):
                sys.exit(f"{name}: the result after the timed replays by {by} differs")
    return first


def timed(name, graph, title_of_ours, ours, library, word):
    """Prints what a replay takes, CUDA's and ours in turns: the call, and until the CPU sees the graph's last word."""
    import torch
    import turns

    stream = torch.cuda.current_stream().cuda_stream
    try:
        samples = turns.timed(library, graph.raw_cuda_graph_exec(), stream, ours, word)
    except RuntimeError as e:
        sys.exit(f"{name}: {e}")
    for line in turns.lines(samples, title_of_ours):
        print(f"{name}: {line}")


def main():
    a = argparse.ArgumentParser()
    a.add_argument("name", nargs="?", choices=sorted(PROGRAMS))
    a.add_argument("--replays", type=int, default=5)
    a.add_argument("--launcher", choices=("cuda", "doorbell"), default="cuda")
    a.add_argument("--turns", metavar="LIBRARY")
    a.add_argument("--list", action="store_true")
    args = a.parse_args()
    if args.list or not args.name:
        return print(" ".join(PROGRAMS))
    try:
        import torch
    except ImportError as e:
        skip(e)
    if args.launcher == "doorbell":
        # Before the first call of CUDA.
        import doorbell
    if not torch.cuda.is_available():
        skip("PyTorch sees no GPU")
    torch.manual_seed(1)
    torch.backends.cudnn.benchmark = False
    with torch.no_grad():
        run, x = PROGRAMS[args.name](torch)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                expected = run(x)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        ours = args.launcher == "doorbell"
        graph = torch.cuda.CUDAGraph(keep_graph=True) if ours else torch.cuda.CUDAGraph()
        word = None
        if args.turns:
            import turns
            word = turns.Word(torch)
        with torch.cuda.graph(graph):
            out = run(x)
            if word:
                word.tell()
        first = None
        if ours:
            doorbell.open()
            graph.instantiate()
            first = past_cuda(args.name, graph, out, args.replays, args.turns, word)
        for _ in range(0 if ours else args.replays):
            out.zero_()
            graph.replay()
            torch.cuda.synchronize()
            found = out.cpu()
            first = found if first is None else first
            if not torch.equal(found, first):
                sys.exit(f"{args.name}: a replay differs from the first")
        worst = (first.float() - expected.cpu().float()).abs().max().item()
        if not worst <= 0.02 * (1 + expected.float().abs().max().item()):
            sys.exit(f"{args.name}: the graph's result is off by {worst} from the same without a graph")
    print(f"{args.name}: {args.replays} replays alike")
    print("hash", hashlib.sha256(first.numpy().tobytes()).hexdigest()[:16])


if __name__ == "__main__":
    main()

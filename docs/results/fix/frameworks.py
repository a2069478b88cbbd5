"""Programs of fix_programs.py, which have random weights and numbers of fixed seeds. Weights are made on the CPU and moved, results come back by `.cpu()`."""

import hashlib
import sys
import tempfile

NOT_THERE = 77
PROGRAMS = {}


def program(name, uses):
    return lambda function: PROGRAMS.setdefault(name, (uses, function))[1]


class Results:
    """Their hash. A tensor comes back by `.cpu()`."""

    def __init__(self):
        self.hash, self.bytes = hashlib.sha256(), 0

    def add(self, *arrays):
        for array in arrays:
            data = (array.detach().cpu().numpy() if hasattr(array, "detach") else array).tobytes()
            self.hash.update(data)
            self.bytes += len(data)


def ready(warn_only=False):
    import torch
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True, warn_only=warn_only)
    return torch


@program("ResNet-50, training", "torchvision: 30 steps (gpu_times.py)")
def resnet50(results):
    import gpu_times

    gpu_times.hashed("ResNet-50, training")


@program("GPT-2, generation", "transformers: 60 tokens (gpu_times.py)")
def generation(results):
    import gpu_times

    gpu_times.hashed("GPT-2, generation")


@program("GPT-2, one training step", "transformers: logits and all weights come back")
def gpt2(results):
    import transformers
    torch = ready(warn_only=True)
    from torch.nn.attention import SDPBackend, sdpa_kernel
    net = transformers.GPT2LMHeadModel(transformers.GPT2Config()).to("cuda").eval()
    optimizer, words = torch.optim.SGD(net.parameters(), lr=0.01), torch.randint(0, 50000, (2, 256)).to("cuda")
    with sdpa_kernel(SDPBackend.MATH):
        out = net(words, labels=words)
        out.loss.backward()
    optimizer.step()
    results.add(out.logits, *net.parameters())


@program("ResNet-18 of timm, forward and one step", "timm: images of 18 MiB go in")
def resnet18(results):
    import timm
    torch = ready(warn_only=True)
    net, images = timm.create_model("resnet18").to("cuda"), torch.randn(32, 3, 224, 224).to("cuda")
    optimizer, out = torch.optim.SGD(net.parameters(), lr=0.01), net(images)
    torch.nn.functional.cross_entropy(out, torch.arange(32).to("cuda")).backward()
    optimizer.step()
    results.add(out, *net.parameters())


@program("cuBLAS, four streams", "torch: 80 products of 16 MiB")
def cublas(results):
    torch = ready()
    a, streams, found = torch.randn(2048, 2048).to("cuda"), [torch.cuda.Stream() for _ in range(4)], []
    torch.cuda.synchronize()
    for i in range(80):
        with torch.cuda.stream(streams[i % 4]):
            found.append(a @ a)
    torch.cuda.synchronize()
    results.add(*found)


@program("a DataLoader with pinned memory", "torch: two workers, batches of 8 MiB, 30 steps")
def loader(results):
    torch = ready()

    class Samples(torch.utils.data.Dataset):
        def __len__(self):
            return 240

        def __getitem__(self, i):
            return torch.randn(64, 4096, generator=torch.Generator().manual_seed(i)), i % 16

    net = torch.nn.Sequential(torch.nn.Linear(4096, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 16)).to("cuda")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for x, y in torch.utils.data.DataLoader(Samples(), batch_size=8, num_workers=2, pin_memory=True, multiprocessing_context="fork"):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(x.to("cuda", non_blocking=True)).mean(1), y.to("cuda", non_blocking=True))
        loss.backward()
        optimizer.step()
        results.add(loss)
    results.add(*net.parameters())


@program("pinned and pageable tensors", "torch: 4 to 64 MiB both ways, default and side stream")
def tensors(results):
    torch = ready()
    generator = torch.Generator().manual_seed(1)
    for mib in (4, 8, 16, 32, 64):
        page = torch.randn(mib << 18, generator=generator)
        for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
            with torch.cuda.stream(stream):
                doubled = page.to("cuda") * 2
                pinned, back = page.pin_memory(), torch.empty(page.shape, pin_memory=True)
                back.copy_(pinned.to("cuda", non_blocking=True) + doubled, non_blocking=True)
                # Freed while the copy may be pending.
                del pinned
                there, own = torch.empty_like(doubled), torch.empty_like(page)
                there.copy_(page, non_blocking=True)
                own.copy_(there, non_blocking=True)
                stream.synchronize()
                results.add(doubled, back, there, own)


@program("torch.save and torch.load", "torch: 84 MiB from and to the GPU, and from a mapped file")
def files(results):
    torch = ready()
    held = {str(mib): torch.randn(mib << 18).to("cuda") for mib in (4, 16, 64)}
    with tempfile.TemporaryDirectory() as folder:
        torch.save(held, f"{folder}/held")
        for how in ({"map_location": "cuda"}, {"map_location": "cpu"}, {"map_location": "cpu", "mmap": True}):
            results.add(*(tensor.to("cuda") + 1 for tensor in torch.load(f"{folder}/held", **how).values()))


@program("a CUDA graph, replayed", "torch: it copies 16 MiB from and to pinned memory")
def graph(results):
    torch = ready()
    net = torch.nn.Sequential(torch.nn.Linear(2048, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 2048)).to("cuda")
    source, sink, x = torch.randn(2048, 2048).pin_memory(), torch.empty(2048, 2048).pin_memory(), torch.empty(2048, 2048, device="cuda")

    def step():
        x.copy_(source, non_blocking=True)
        sink.copy_(net(x), non_blocking=True)

    with torch.no_grad():
        side = torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            step()
        torch.cuda.synchronize()
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            step()
        for _ in range(20):
            source.copy_(torch.randn(2048, 2048))
            captured.replay()
            torch.cuda.synchronize()
            results.add(sink, x)


@program("torch.compile", "torch: 10 training steps, weights of 16 MiB")
def compiled(results):
    torch = ready(warn_only=True)
    linear = torch.nn.Linear
    net = torch.nn.Sequential(linear(2048, 2048), torch.nn.LayerNorm(2048), torch.nn.GELU(), linear(2048, 2048)).to("cuda")
    optimizer, fast, x = torch.optim.SGD(net.parameters(), lr=0.01), torch.compile(net), torch.randn(512, 2048).to("cuda")
    for _ in range(10):
        optimizer.zero_grad()
        loss = fast(x).square().mean()
        loss.backward()
        optimizer.step()
        results.add(loss)
    results.add(*net.parameters())


@program("CuPy", "cupy: pinned pool, asarray, asnumpy, set and get of 64 MiB")
def cupy_arrays(results):
    import cupy
    import numpy
    page = numpy.random.default_rng(0).standard_normal(16 << 20, dtype=numpy.float32)
    pinned = numpy.frombuffer(cupy.cuda.alloc_pinned_memory(page.nbytes), numpy.float32, page.size)
    pinned[:] = page[::-1]
    twice = cupy.RawKernel('extern "C" __global__ void twice(float *x) { x[blockIdx.x * blockDim.x + threadIdx.x] *= 2; }', "twice")
    for source in (page, pinned):
        x = cupy.asarray(source)
        twice((page.size // 256,), (256,), (x,))
        results.add(cupy.asnumpy(x), cupy.asnumpy(cupy.tanh(x)))
    with cupy.cuda.Stream(non_blocking=True) as stream:
        x.set(pinned)
        twice((page.size // 256,), (256,), (x,))
        x.get(out=pinned)
        stream.synchronize()
    results.add(pinned)


@program("JAX", "jax: device_put and device_get of 64 MiB, 10 jitted steps")
def jax_steps(results):
    import jax
    import numpy
    assert jax.devices()[0].platform == "gpu"
    numbers = numpy.random.default_rng(0)
    x, *weights = (jax.device_put(numbers.standard_normal(shape, dtype=numpy.float32) * 0.02) for shape in ((4096, 4096), (4096, 1024), (1024, 4096)))
    results.add(jax.device_get(x))

    @jax.jit
    def step(weights, x):
        loss = lambda weights: ((jax.nn.relu(x @ weights[0]) @ weights[1] - x) ** 2).mean()
        return [weight - 0.1 * gradient for weight, gradient in zip(weights, jax.grad(loss)(weights))]

    for _ in range(10):
        weights = step(weights, x)
    results.add(*jax.device_get(weights))


@program("Triton", "triton: a kernel adds tensors of 64 MiB from the host")
def triton_kernel(results):
    import triton  # noqa: F401  (before the folder is in the path)
    torch = ready()
    from names_triton import add
    x, y = torch.randn(16 << 20).to("cuda"), torch.randn(16 << 20).to("cuda")
    for _ in range(5):
        out = torch.empty_like(x)
        add[(x.numel() // 1024,)](x, y, out, x.numel(), BLOCK=1024)
        results.add(out)
        x = out


def one(name):
    results = Results()
    try:
        PROGRAMS[name][1](results)
    except ImportError as e:
        print(e, file=sys.stderr)
        sys.exit(NOT_THERE)
    print("results", results.hash.hexdigest()[:32], results.bytes)

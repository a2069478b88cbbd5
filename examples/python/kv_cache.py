"""A KV cache whose sequences move between GPU memory and two host pools, layer-first and page-first, by page numbers and without a kernel.

    python3 kv_cache.py [sequences, 24]

On the GPU, the keys and the values of each layer are a tensor [blocks, page]. The layer-first pool has a tensor [slots, page] for each of them. The
page-first pool has two, for keys and for values, [slots, layers, page]. With PyTorch and CUDA the memory is PyTorch's, otherwise doorbell's.
"""

import random
import sys

import doorbell

try:
    import torch
except ImportError:
    torch = None

LAYERS, PAGE, PAGES, BLOCKS = 4, 4096, 8, 48    # a page's bytes: tokens x heads x head size x bytes of a number; PAGES for each sequence
USES_TORCH = torch is not None and torch.cuda.is_available()


def memory(pages, where):
    """A buffer of so many pages. It is pinned once, not at each copy."""
    if not USES_TORCH:
        return doorbell.allocate(pages * PAGE, where)
    tensor = torch.empty(pages, PAGE, dtype=torch.uint8, device="cuda") if where == "gpu" else torch.empty(pages, PAGE, dtype=torch.uint8, pin_memory=True)
    return doorbell.pin(tensor)


def copy(dst, dst_index, src, src_index, after=()):
    """As one submission: after `after`, and in its place in PyTorch's stream, which must be named where the tensors are pinned already."""
    stream = {"stream": torch.cuda.current_stream()} if USES_TORCH else {}
    return doorbell.copy_pages(dst, dst_index, src, src_index, nbytes=PAGE, after=list(after), **stream)


class LayerFirst:
    """The keys of all layers, then the values of all layers: the same page numbers in each."""

    def __init__(self, slots):
        self.tensors = [memory(slots, "host") for _ in range(2 * LAYERS)]

    def evict(self, slots, gpu, blocks, after):
        return [copy(self.tensors, slots, gpu, blocks, after)]

    def fetch(self, gpu, blocks, slots, after):
        return [copy(gpu, blocks, self.tensors, slots, after)]


class PageFirst:
    """All layers of a page are neighbours, so its number differs for each layer: a submission for each, with the keys and the values."""

    def __init__(self, slots):
        self.tensors = [memory(slots * LAYERS, "host") for _ in range(2)]

    def evict(self, slots, gpu, blocks, after):
        return [copy(self.tensors, [slot * LAYERS + n for slot in slots], gpu[n::LAYERS], blocks, after) for n in range(LAYERS)]

    def fetch(self, gpu, blocks, slots, after):
        return [copy(gpu[n::LAYERS], blocks, self.tensors, [slot * LAYERS + n for slot in slots], after) for n in range(LAYERS)]


class Cache:
    """Sequences by name. Those that were used last are on the GPU."""

    def __init__(self, pool, slots):
        self.gpu, self.pool = [memory(BLOCKS, "gpu") for _ in range(2 * LAYERS)], pool
        self.blocks, self.slots = random.sample(range(BLOCKS), BLOCKS), random.sample(range(slots), slots)
        self.on_gpu, self.on_host = {}, {}
        self.last, self.evicted, self.fetched = [], 0, 0

    def take_blocks(self):
        while len(self.blocks) < PAGES:
            name = next(iter(self.on_gpu))
            blocks, slots = self.on_gpu.pop(name), [self.slots.pop() for _ in range(PAGES)]
            self.last = self.pool.evict(slots, self.gpu, blocks, self.last)
            self.on_host[name] = slots
            self.blocks += blocks
            self.evicted += PAGES
        return [self.blocks.pop() for _ in range(PAGES)]

    def use(self, name):
        """The sequence's blocks, on the GPU. Copies wait there for those before them, so blocks and slots are reused without a wait here."""
        if name in self.on_gpu:
            self.on_gpu[name] = self.on_gpu.pop(name)
            return self.on_gpu[name]
        blocks = self.take_blocks()
        if name in self.on_host:
            slots = self.on_host.pop(name)
            self.last = self.pool.fetch(self.gpu, blocks, slots, self.last)
            self.slots += slots
            self.fetched += PAGES
        self.on_gpu[name] = blocks
        return blocks


def run(pool, slots, sequences):
    cache, window = Cache(pool, slots), [doorbell.allocate(PAGES * PAGE) for _ in range(2 * LAYERS)]
    written = {}
    for name in range(sequences):
        blocks = cache.use(name)
        written[name] = [random.randbytes(PAGES * PAGE) for _ in window]
        for part, data in zip(window, written[name]):
            part.view[:] = data
        copy(cache.gpu, blocks, window, range(PAGES), cache.last).wait()
    for name in random.choices(range(sequences), k=4 * sequences):
        copy(window, range(PAGES), cache.gpu, cache.use(name), cache.last).wait()
        for part, data in zip(window, written[name]):
            if part.view != data:
                sys.exit(f"sequence {name} is another")
    return f"{cache.evicted} pages out and {cache.fetched} back in"


def main(sequences):
    random.seed(1)
    slots = sequences * PAGES
    with doorbell.session():
        first, second = run(LayerFirst(slots), slots, sequences), run(PageFirst(slots), slots, sequences)
    print(f"{sequences} sequences of {PAGES} pages, {2 * LAYERS} x {PAGE} bytes each, all equal: layer-first {first}, page-first {second}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 24)

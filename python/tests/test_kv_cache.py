"""Copies of KV caches as vLLM, SGLang and LMCache make them: stand-ins of their copy functions, against copy_pages() as docs/guides/kv-caches.md calls it.

Each test makes the same memory twice, copies random pages in one by the stand-in and in the other by doorbell, and compares all bytes of all of it.
The software GPU has the memory: see test_doorbell.py. Without it the tests are skipped, with the reason.
"""

import array
import ctypes
import os
import random
import unittest

import doorbell
from doorbell import _header, _library

ROUNDS = 12


class Part:
    """A buffer from an offset on, as doorbell.pin() of a tensor's view gives it. (The software GPU's memory is not pinned.)"""

    def __init__(self, buffer, offset=0):
        self.buffer, self.offset, self.pointer = buffer, offset, buffer.pointer + offset


def copy_pages(dst, dst_index, src, src_index, *, nbytes):
    """doorbell.copy_pages(), also of parts of buffers."""
    dst, src = ([thing if isinstance(thing, Part) else Part(thing) for thing in things] for things in (dst, src))
    if not any(part.offset for part in dst + src):
        doorbell.copy_pages([part.buffer for part in dst], dst_index, [part.buffer for part in src], src_index, nbytes=nbytes).wait(10)
        return
    session = doorbell.current()
    assert len(dst) == len(src) and len(dst_index) == len(src_index)
    parts = (_header.Part * len(dst))(*((to.buffer.handle, to.offset, from_.buffer.handle, from_.offset) for to, from_ in zip(dst, src)))
    to_index, from_index = array.array("Q", dst_index), array.array("Q", src_index)
    pages = _header.Pages(ctypes.sizeof(_header.Pages), nbytes, 0, 0, to_index.buffer_info()[0], from_index.buffer_info()[0], len(to_index), 8,
                          _header.PAGES_DISTINCT)
    ticket = doorbell.Ticket.of(session)
    _library.check(_library.library.doorbell_pages_async(session.at, parts, len(parts), ctypes.sizeof(_header.Part), pages, None, ticket))
    ticket.wait(10)


def shuffled(of, count, random):
    """Different numbers below `of`, some of them neighbours."""
    start = random.randrange(of - count // 2)
    found = list(range(start, start + count // 2))
    rest = [n for n in range(of) if not start <= n < start + count // 2]
    return found + random.sample(rest, count - len(found))


class Twice(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        try:
            doorbell.open(kind="soft", lanes=2)
        except doorbell.DoorbellError as why:
            if "softgpu" in os.environ.get("LD_PRELOAD", ""):
                raise
            raise unittest.SkipTest(f"the software GPU is not preloaded: {why}") from None
        cls.addClassCleanup(doorbell.close)

    def twice(self, host, gpu, rounds=ROUNDS):
        """For each round: a source of random numbers and two memories, each (host buffers, GPU buffers), of these sizes and with the same bytes.
        Afterwards they have to be equal, and no longer as they were."""
        for n in range(rounds):
            dice = random.Random(n)
            with self.subTest(round=n):
                bytes_of = [dice.randbytes(size) for size in host + gpu]
                memories = []
                for _ in range(2):
                    buffers = [doorbell.allocate(size, "host" if i < len(host) else "gpu") for i, size in enumerate(host + gpu)]
                    for buffer, data in zip(buffers, bytes_of):
                        buffer.view[:] = data
                    memories.append(buffers)
                yield dice, *((buffers[:len(host)], buffers[len(host):]) for buffers in memories)
                self.assertNotEqual([bytes(buffer.view) for buffer in memories[0]], bytes_of)
                for i, (one, other) in enumerate(zip(*memories)):
                    self.assertTrue(one.view == other.view, f"{'host' if i < len(host) else 'gpu'} buffer {i} differs")
                for buffer in memories[0] + memories[1]:
                    buffer.close()


class VLLM(Twice):
    """swap_blocks_batch(): addresses and sizes, in three arrays. On the GPU a tensor [blocks, page] for each layer, in host memory [chunks, k * page], with
    the rows of the layers and the workers one after the other, or apart."""

    PAGE, LAYERS, BLOCKS, CHUNKS = 512, 3, 40, 24

    @staticmethod
    def swap_blocks_batch(src, dst, sizes):
        for from_, to, size in zip(src, dst, sizes):
            ctypes.memmove(to, from_, size)

    def addresses(self, tensors, stride, ids, per_chunk, skip, count):
        """Of `count` pages in each tensor, which begins at a pointer. Chunks have per_chunk pages. The first `skip` ones are left out."""
        of_tensor = [number * stride + n * self.PAGE for number in ids for n in range(per_chunk)][skip:skip + count]
        return [tensor.pointer + at for tensor in tensors for at in of_tensor]

    def check(self, per_chunk, workers, padding):
        row = workers * self.LAYERS * per_chunk * self.PAGE + padding
        worker = workers - 1

        def chunks(region):
            return [Part(region, (worker * self.LAYERS + n) * per_chunk * self.PAGE) for n in range(self.LAYERS)]

        for dice, one, other in self.twice([self.CHUNKS * row], [self.BLOCKS * self.PAGE] * self.LAYERS):
            count, skip = dice.randint(4, 20), dice.randrange(per_chunk)
            blocks, ids = shuffled(self.BLOCKS, count, dice), shuffled(self.CHUNKS, -(-(count + skip) // per_chunk), dice)
            for gpu_to_cpu in dice.choice([(True, False), (False, True)]):
                arrays = []
                for (region,), gpu in (one, other):
                    ends = ([Part(layer) for layer in gpu], self.PAGE, blocks, 1, 0), (chunks(region), row, ids, per_chunk, skip)
                    arrays.append([(end[0], self.addresses(*end, count)) for end in (ends if gpu_to_cpu else ends[::-1])])
                (_, src), (_, dst) = arrays[0]
                self.swap_blocks_batch(src, dst, [self.PAGE] * len(src))
                # As in the guide.
                (from_, all_src), (to, all_dst) = arrays[1]
                copy_pages(to, [(at - to[0].pointer) // self.PAGE for at in all_dst[:count]],
                           from_, [(at - from_[0].pointer) // self.PAGE for at in all_src[:count]], nbytes=self.PAGE)
                blocks = shuffled(self.BLOCKS, count, dice)

    def test_a_block_for_each_chunk(self):
        self.check(1, 1, 0)

    def test_chunks_of_several_blocks_of_which_the_first_is_not_whole(self):
        self.check(3, 1, 0)

    def test_the_rows_of_several_workers_with_padding(self):
        self.check(2, 2, 4 * self.PAGE)

    def test_tensors_of_their_own(self):
        for dice, one, other in self.twice([self.CHUNKS * 2 * self.PAGE] * self.LAYERS, [self.BLOCKS * self.PAGE] * self.LAYERS):
            blocks, ids = shuffled(self.BLOCKS, 14, dice), shuffled(self.CHUNKS, 7, dice)
            host, gpu = one
            src = self.addresses([Part(layer) for layer in gpu], self.PAGE, blocks, 1, 0, 14)
            dst = self.addresses([Part(layer) for layer in host], 2 * self.PAGE, ids, 2, 0, 14)
            self.swap_blocks_batch(src, dst, [self.PAGE] * len(src))
            host, gpu = other
            doorbell.copy_pages(host, [2 * number + n for number in ids for n in range(2)], gpu, blocks, nbytes=self.PAGE).wait(10)


class SGLang(Twice):
    """Indices of tokens, a page's tokens in a row. On the GPU a tensor [tokens, ...] for the keys and one for the values of each layer. In host memory
    layer_first has the same, page_first_direct [pages, layers, tokens of a page, ...] and page_first [tokens, layers, ...] for keys and values."""

    TOKEN, LAYERS, SIZE = 64, 3, 8
    DEVICE, HOST = 20, 30  # Pages.

    def indices(self, dice):
        count = dice.randint(2, 16)
        pages = shuffled(self.DEVICE, count, dice), shuffled(self.HOST, count, dice)
        return [array.array("q", [page * self.SIZE + n for page in numbers for n in range(self.SIZE)]) for numbers in pages]

    def rows(self, view, start, count, width=None):
        width = width or self.TOKEN
        return view[start * width:(start + count) * width]

    def transfer_kv_direct(self, src_layers, dst_layers, src_indices, dst_indices, page_size):
        start = 0
        for n in range(len(src_indices)):
            follows = n + 1 < len(src_indices) and src_indices[n + 1] - src_indices[n] == 1 == dst_indices[n + 1] - dst_indices[n]
            if follows:
                continue
            for src, dst in zip(src_layers, dst_layers):
                self.rows(dst, dst_indices[start], n + 1 - start)[:] = self.rows(src, src_indices[start], n + 1 - start)
            start = n + 1

    def transfer_kv_all_layer_direct_lf_pf(self, src_ptrs, dst_ptrs, src_indices, dst_indices, page_size):
        for n in range(0, len(src_indices), page_size):
            for i, src in enumerate(src_ptrs):
                pool, layer = dst_ptrs[i // self.LAYERS], i % self.LAYERS
                self.rows(pool, (dst_indices[n] // page_size * self.LAYERS + layer) * page_size, page_size)[:] = self.rows(src, src_indices[n], page_size)

    def transfer_kv_per_layer_direct_pf_lf(self, src_ptrs, dst_ptrs, src_indices, dst_indices, layer_id, page_size):
        for n in range(0, len(src_indices), page_size):
            for pool, dst in zip(src_ptrs, dst_ptrs):
                at = (src_indices[n] // page_size * self.LAYERS + layer_id) * page_size
                self.rows(dst, dst_indices[n], page_size)[:] = self.rows(pool, at, page_size)

    def transfer_kv_all_layer_lf_pf(self, src_layers, dst, src_indices, dst_indices, item_size, dst_layout_dim):
        for from_, to in zip(src_indices, dst_indices):
            for layer, src in enumerate(src_layers):
                dst[to * dst_layout_dim + layer * item_size:][:item_size] = src[from_ * item_size:][:item_size]

    def pages(self, indices):
        """indices[::page_size] // page_size"""
        return array.array("q", (index // self.SIZE for index in indices[::self.SIZE]))

    def memory(self, host):
        return self.twice(host, [self.DEVICE * self.SIZE * self.TOKEN] * 2 * self.LAYERS)

    def test_layer_first(self):
        size = self.SIZE * self.TOKEN
        for dice, (host, gpu), (host_, gpu_) in self.memory([self.HOST * size] * 2 * self.LAYERS):
            at_gpu, at_host = self.indices(dice)
            self.transfer_kv_direct([b.view for b in gpu], [b.view for b in host], at_gpu, at_host, self.SIZE)
            doorbell.copy_pages(host_, self.pages(at_host), gpu_, self.pages(at_gpu), nbytes=size).wait(10)
            # Back elsewhere, layer by layer.
            at_gpu = self.indices(dice)[0]
            at_gpu, at_host = at_gpu[:len(at_host)], at_host[:len(at_gpu)]
            for layer in range(self.LAYERS):
                self.transfer_kv_direct([b.view for b in host[layer::self.LAYERS]], [b.view for b in gpu[layer::self.LAYERS]], at_host, at_gpu, self.SIZE)
                doorbell.copy_pages(gpu_[layer::self.LAYERS], self.pages(at_gpu), host_[layer::self.LAYERS], self.pages(at_host), nbytes=size).wait(10)

    def test_page_first_direct(self):
        size = self.SIZE * self.TOKEN
        for dice, (host, gpu), (host_, gpu_) in self.memory([self.HOST * self.LAYERS * size] * 2):
            at_gpu, at_host = self.indices(dice)
            self.transfer_kv_all_layer_direct_lf_pf([b.view for b in gpu], [b.view for b in host], at_gpu, at_host, self.SIZE)
            # Each layer's part of the pool begins at its own offset.
            parts = [Part(pool, layer * size) for pool in host_ for layer in range(self.LAYERS)]
            copy_pages(parts, [page * self.LAYERS for page in self.pages(at_host)], gpu_, self.pages(at_gpu), nbytes=size)
            at_gpu = self.indices(dice)[0]
            at_gpu, at_host = at_gpu[:len(at_host)], at_host[:len(at_gpu)]
            for layer in range(self.LAYERS):
                self.transfer_kv_per_layer_direct_pf_lf([b.view for b in host], [b.view for b in gpu[layer::self.LAYERS]], at_host, at_gpu, layer, self.SIZE)
                numbers = [page * self.LAYERS + layer for page in self.pages(at_host)]
                doorbell.copy_pages(gpu_[layer::self.LAYERS], self.pages(at_gpu), host_, numbers, nbytes=size).wait(10)

    def test_page_first_of_tokens(self):
        for dice, (host, gpu), (host_, gpu_) in self.memory([self.HOST * self.SIZE * self.LAYERS * self.TOKEN] * 2):
            at_gpu, at_host = self.indices(dice)
            for n, pool in enumerate(host):
                layers = [b.view for b in gpu[n * self.LAYERS:(n + 1) * self.LAYERS]]
                self.transfer_kv_all_layer_lf_pf(layers, pool.view, at_gpu, at_host, self.TOKEN, self.LAYERS * self.TOKEN)
            for layer in range(self.LAYERS):
                doorbell.copy_pages(host_, [token * self.LAYERS + layer for token in at_host], gpu_[layer::self.LAYERS], at_gpu, nbytes=self.TOKEN).wait(10)


class LMCache(Twice):
    """multi_layer_kv_transfer(): in host memory an object [planes, layers, tokens, ...], on the GPU a tensor [planes, blocks, tokens of a block, ...] for
    each layer, and a slot for each token. Keys and values are two planes, or one if each token has both."""

    TOKEN, LAYERS, BLOCK, BLOCKS = 64, 3, 16, 12

    def multi_layer_kv_transfer(self, key_value, layers, slot_mapping, planes, to_gpu, skip_prefix_n_tokens=0):
        tokens, slots = len(slot_mapping), self.BLOCK * self.BLOCKS
        for plane in range(planes):
            for layer, paged in enumerate(layers):
                for token in range(skip_prefix_n_tokens, tokens):
                    mine = key_value[((plane * self.LAYERS + layer) * tokens + token) * self.TOKEN:][:self.TOKEN]
                    theirs = paged[(plane * slots + slot_mapping[token]) * self.TOKEN:][:self.TOKEN]
                    if to_gpu:
                        theirs[:] = mine
                    else:
                        mine[:] = theirs

    def check(self, planes):
        tokens = 4 * self.BLOCK - 5  # The last block is not whole.
        plane, paged = tokens * self.TOKEN, self.BLOCK * self.BLOCKS * self.TOKEN
        for dice, one, other in self.twice([planes * self.LAYERS * plane], [planes * paged] * self.LAYERS):
            skip = 0
            for to_gpu in (False, True):
                blocks = shuffled(self.BLOCKS, 4, dice)
                slots = array.array("q", [block * self.BLOCK + n for block in blocks for n in range(self.BLOCK)][:tokens])
                self.multi_layer_kv_transfer(one[0][0].view, [b.view for b in one[1]], slots, planes, to_gpu, skip)
                # As in the guide.
                (memory_object,), gpu = other
                host = [Part(memory_object, n * plane) for n in range(planes * self.LAYERS)]
                gpu = [Part(layer, n * paged) for n in range(planes) for layer in gpu]
                ends = (host, range(skip, tokens)), (gpu, slots[skip:])
                (to, to_at), (from_, from_at) = ends[::-1] if to_gpu else ends
                copy_pages(to, to_at, from_, from_at, nbytes=self.TOKEN)
                skip = dice.randrange(self.BLOCK)

    def test_keys_and_values_apart(self):
        self.check(2)

    def test_keys_and_values_in_one_plane(self):
        self.check(1)


if __name__ == "__main__":
    unittest.main()

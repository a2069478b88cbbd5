"""Times one CUDA graph by CUDA and by doorbell in turns, by the library of turns.c.

Both sides wait for the same word in pinned memory, which the graph writes as its last step: call Word.tell() at the end of the capture.
"""

import ctypes
import math
import random

ROUNDS, EACH = 300, 10


class Word:
    """A counter in the GPU's memory, and the word of pinned memory into which the graph copies it."""

    def __init__(self, torch):
        self.count, self.told = torch.zeros(1, dtype=torch.int32, device="cuda"), torch.zeros(1, dtype=torch.int32).pin_memory()
        # Outside of the capture first: PyTorch loads the kernel.
        self.tell()
        torch.cuda.synchronize()

    def tell(self):
        """The last steps of the graph: a kernel that adds one, and a copy of four bytes."""
        self.count += 1
        self.told.copy_(self.count, non_blocking=True)


def middle(values):
    values = sorted(values)
    return values[len(values) // 2]


def interval(values):
    """The median of rounds and its 95 % interval, by ranks (the binomial distribution's normal approximation): no assumption about the values but that rounds
    are independent."""
    values, n = sorted(values), len(values)
    reach = 0.98 * math.sqrt(n)
    return middle(values), values[max(0, math.floor(n / 2 - reach))], values[min(n - 1, math.ceil(n / 2 + reach))]


def timed(turns, executable, stream, graph, word, rounds=ROUNDS, each=EACH, own_waits=False):
    """[[call, done] of CUDA, [call, done] of doorbell]: for each all samples in us, by rounds. turns: the path of the library. executable, stream: numbers of
    CUDA's. graph: doorbell's. word: a Word that the graph tells."""
    from doorbell import _library

    cuda, library = ctypes.CDLL("libcuda.so.1"), _library.library
    address = lambda f: ctypes.cast(f, ctypes.c_void_p)
    ns, first = ((ctypes.c_uint64 * 2) * (rounds * each) * 2)(), (ctypes.c_uint8 * rounds)()
    number = ctypes.c_uint64
    code = ctypes.CDLL(turns).turns(
        address(cuda.cuGraphLaunch), address(cuda.cuStreamSynchronize), ctypes.c_void_p(executable), ctypes.c_void_p(stream),
        address(library.doorbell_graph_launch), address(library.doorbell_wait), graph._session.at, number(graph.handle),
        ctypes.c_void_p(word.told.data_ptr()), ctypes.c_int(own_waits), number(rounds), number(each), number(random.getrandbits(63) | 1), ns, first)
    if code:
        raise RuntimeError(f"error {code} while it was timed (from 1000 on: doorbell's)")
    of = lambda who, what: [[ns[who][r * each + i][what] / 1000 for i in range(each)] for r in range(rounds)]
    return [[of(who, what) for what in (0, 1)] for who in (0, 1)]


def lines(samples, title="doorbell"):
    """What there is to print: both sides, and by how much doorbell's end is earlier, with its interval over rounds."""
    for by, parts in zip(("CUDA", title), samples):
        for what, rounds in zip(("call", "done"), parts):
            us = sorted(sum(rounds, []))
            at = lambda p: us[min(len(us) - 1, int(len(us) * p))]
            # A percentile needs ten samples beyond it.
            tail = [f"p{p * 100:g} {at(p):.3f}" if len(us) * (1 - p) >= 9.999 else f"p{p * 100:g} -" for p in (0.99, 0.999)]
            yield f"{by:8} {what}  p50 {at(0.5):.3f}  {'  '.join(tail)}  max {us[-1]:.3f} us, {len(us)} in {len(rounds)} rounds"
    earlier, low, high = interval([middle(a) - middle(b) for a, b in zip(samples[0][1], samples[1][1])])
    yield f"{title:8} done  {earlier:.3f} us earlier than CUDA (median of rounds; 95 %: {low:.3f} to {high:.3f})"

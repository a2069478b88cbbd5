"""Who delays a copy? 4 KiB to the GPU, by CUDA and by libdoorbell in turns, beside Python threads that load modules, allocate device
memory or pinned host memory, register host memory, create streams or instantiate graphs.

    PYTHONPATH=target/prefix/share/doorbell/python python3 undelayed.py --rounds 2 --json undelayed.json

A turn has one kind of neighbour, or none. In slices that take turns it has --turn / 2 seconds of libdoorbell's prepared copy (submit
and wait), as long of CUDA's by ctypes (cuMemcpyHtoDAsync and cuStreamSynchronize), and --turn / 8 each of libdoorbell's set-up calls,
and of its copy by functions that let go of Python's lock, the GIL. A call that began in time is waited for. After --patience seconds
in one call the neighbours pause, so that it returns: such a row is marked with >. "nothing" comes first, in the middle and last of
each round, so both sides of a difference are of one run. The bytes are others each time. One copy of 64 is copied back and compared,
and the last of each turn is read through CUDA.

The GIL: neighbours need it between two calls. What measures keeps it in libdoorbell's copy (the package's calls do), and sleeps for
20 us after each --burst copies, so that they go on. Otherwise Python would take the GIL away after 5 ms, often in the middle of a
copy; --burst 0 shows that. CUDA's functions let go of the GIL, as everywhere.

Without libcuda there are no neighbours and no copies of CUDA's. With --software it runs on the software GPU, which has to be
preloaded. Exit status 0: every byte was right; 1: some were not; 2: an error. SIGINT ends it with what it has.
"""

import argparse
import array
import collections
import ctypes
import gc
import itertools
import json
import mmap
import os
import signal
import struct
import sys
import threading
import time
from ctypes import POINTER, byref, c_int, c_size_t, c_uint, c_uint64, c_ulonglong, c_void_p

# Each load compiles: nothing comes from the driver's cache on disk.
os.environ["CUDA_CACHE_DISABLE"] = "1"
# Before CUDA is initialised: from now on its calls to the kernel driver are seen.
import doorbell
from doorbell import _header, _library

KERNELS, NODES, BLOCK, PIECE, COMPARE, COPIES, WITHIN = 400, 2000, 64 << 20, 1 << 20, 64, 20_000, 10_000
SERIES = ("cuda", "doorbell", "submit", "released", "pin_device", "pin_host", "unpin", "prepare", "release")
clock = time.perf_counter_ns


# ---- CUDA, the part of its driver API that is needed ----

class Refused(Exception):
    """A call of CUDA's failed."""


def load_cuda():
    """Functions that raise Refused; None without libcuda."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    pointer, address, size = POINTER(c_void_p), POINTER(c_ulonglong), c_size_t
    functions = {
        "cuInit": [c_uint], "cuDeviceGet": [POINTER(c_int), c_int], "cuDevicePrimaryCtxRetain": [pointer, c_int],
        "cuCtxSetCurrent": [c_void_p], "cuMemAlloc_v2": [address, size], "cuMemFree_v2": [c_ulonglong],
        "cuMemHostAlloc": [pointer, size, c_uint], "cuMemFreeHost": [c_void_p], "cuMemHostRegister_v2": [c_void_p, size, c_uint],
        "cuMemHostUnregister": [c_void_p], "cuStreamCreate": [pointer, c_uint], "cuStreamDestroy_v2": [c_void_p],
        "cuStreamSynchronize": [c_void_p], "cuStreamBeginCapture_v2": [c_void_p, c_int], "cuStreamEndCapture": [c_void_p, pointer],
        "cuMemcpyHtoDAsync_v2": [c_ulonglong, c_void_p, size, c_void_p], "cuMemcpyDtoH_v2": [c_void_p, c_ulonglong, size],
        "cuModuleLoadData": [pointer, c_void_p], "cuModuleUnload": [c_void_p],
        "cuModuleGetFunction": [pointer, c_void_p, ctypes.c_char_p],
        "cuLaunchKernel": [c_void_p, *[c_uint] * 7, c_void_p, POINTER(c_void_p), c_void_p],
        "cuGraphInstantiateWithFlags": [pointer, c_void_p, c_ulonglong], "cuGraphExecDestroy": [c_void_p],
        "cuGraphDestroy": [c_void_p],
    }
    found = {}
    for name, arguments in functions.items():
        function = library[name]
        function.argtypes, function.restype = arguments, c_int

        def answered(status, _, __, name=name):
            if status:
                raise Refused(f"{name}: CUDA error {status}")

        function.errcheck = answered
        found[name.removesuffix("_v2")] = function
    return collections.namedtuple("Cuda", found)(**found)


def made(function, *arguments, of=c_void_p):
    """What a function writes to its first argument."""
    answer = of()
    function(byref(answer), *arguments)
    return answer.value


cu = None
CONTEXT = None


# ---- Neighbours: kind -> what makes a thread's (take, give back, end) ----

# So many kernels; NAME is another each time, because the driver keeps what it has compiled.
_HEAD = ".version 7.0\n.target sm_70\n.address_size 64\n"
_KERNEL = (".visible .entry k{0}_NAME(.param .u64 cell)\n{{\n .reg .b32 %r<4>;\n .reg .b64 %rd<3>;\n ld.param.u64 %rd1, [cell];\n"
           " cvta.to.global.u64 %rd2, %rd1;\n ld.volatile.global.u32 %r1, [%rd2];\n add.u32 %r2, %r1, {1};\n"
           " sub.u32 %r3, %r2, {2};\n st.volatile.global.u32 [%rd2], %r3;\n ret;\n}}\n")
_names = itertools.count()


def ptx(kernels):
    text = (_HEAD + "".join(_KERNEL.format(n, n + 4, n + 3) for n in range(kernels))).encode()

    def fresh():
        name = str(next(_names)).encode()
        return b"k0_" + name, text.replace(b"NAME", name) + b"\0"

    return fresh


def modules():
    fresh = ptx(KERNELS)
    following = [fresh()]

    def give(module):
        cu.cuModuleUnload(module)
        following[0] = fresh()

    return lambda: made(cu.cuModuleLoadData, following[0][1]), give, None


def device_memory():
    return lambda: made(cu.cuMemAlloc, BLOCK, of=c_ulonglong), cu.cuMemFree, None


def pinned_memory():
    return lambda: made(cu.cuMemHostAlloc, BLOCK, 0), cu.cuMemFreeHost, None


def registered_memory():
    memory = mmap.mmap(-1, BLOCK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    # Not zero: fresh zeros have no page behind them.
    memory[:] = b"\x5a" * BLOCK
    at = ctypes.addressof(ctypes.c_char.from_buffer(memory))

    def take():
        cu.cuMemHostRegister(at, BLOCK, 0)
        return at

    return take, cu.cuMemHostUnregister, lambda: memory


def streams():
    return lambda: made(cu.cuStreamCreate, 1), cu.cuStreamDestroy, None


def graphs():
    name, text = ptx(1)()
    cell, stream = c_ulonglong(made(cu.cuMemAlloc, 4, of=c_ulonglong)), made(cu.cuStreamCreate, 1)
    module = made(cu.cuModuleLoadData, text)
    function = made(cu.cuModuleGetFunction, module, name)
    arguments = (c_void_p * 1)(ctypes.addressof(cell))
    cu.cuStreamBeginCapture(stream, 2)
    for _ in range(NODES):
        cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, None)
    graph = c_void_p()
    cu.cuStreamEndCapture(stream, byref(graph))

    def end():
        cu.cuGraphDestroy(graph)
        cu.cuModuleUnload(module)
        cu.cuStreamDestroy(stream)
        cu.cuMemFree(cell)

    return lambda: made(cu.cuGraphInstantiateWithFlags, graph, 0), cu.cuGraphExecDestroy, end


KINDS = {"module": (modules, "cuModuleLoadData, 400 kernels of PTX"), "device": (device_memory, "cuMemAlloc, 64 MiB"),
         "pinned": (pinned_memory, "cuMemHostAlloc, 64 MiB"), "register": (registered_memory, "cuMemHostRegister, 64 MiB"),
         "stream": (streams, "cuStreamCreate"), "graph": (graphs, "cuGraphInstantiate, 2,000 kernels")}


class Turn:
    """What neighbours and the measuring thread share."""

    ended = False
    # From then on neighbours pause.
    pause_at = 1 << 63


class Neighbour(threading.Thread):
    def __init__(self, kind, turn, ready, cpus):
        super().__init__(daemon=True)
        self.kind, self.turn, self.ready, self.cpus = kind, turn, ready, cpus
        self.done, self.longest, self.refused = 0, 0, None

    def run(self):
        end = None
        try:
            os.sched_setaffinity(0, self.cpus)
            try:
                cu.cuCtxSetCurrent(CONTEXT)
                take, give, end = KINDS[self.kind][0]()
            finally:
                self.ready.wait()
            self.work(take, give)
            if end:
                end()
        except Exception as error:
            self.refused = error

    def work(self, take, give):
        turn = self.turn
        while not (turn.ended and self.done):
            start = clock()
            if start >= turn.pause_at and not turn.ended:
                time.sleep(1e-4)
                continue
            thing = take()
            middle = clock()
            give(thing)
            self.longest = max(self.longest, middle - start, clock() - middle)
            self.done += 1


# ---- What is measured ----

class Row:
    """One kind of neighbour and how many of them, over all rounds."""

    def __init__(self, kind, threads):
        self.kind, self.threads, self.turns, self.done, self.longest = kind, threads, 0, 0, 0
        self.of = {series: array.array("Q") for series in SERIES}
        self.cut = dict.fromkeys(SERIES, 0)

    @property
    def label(self):
        return f"{self.threads} {self.kind}" if self.threads else self.kind


class Memory:
    """Memory of CUDA's, as arrays show it."""

    def __init__(self, pointer, nbytes):
        self.__cuda_array_interface__ = {"data": (pointer, False), "shape": (nbytes,), "typestr": "|u1", "strides": None, "version": 3}


def bytes_at(pointer, nbytes):
    return memoryview((ctypes.c_ubyte * nbytes).from_address(pointer)).cast("B")


class Copies:
    """Both copies, and the slices in which they take turns. Each slice goes on for so long and says how long it was."""

    def __init__(self, options):
        self.options, self.nbytes, self.turn, self.interrupted = options, options.bytes, Turn, False
        self.compared, self.wrong, self.times, self.copies = 0, 0, 0, 0
        self.patience = int(options.patience * 1e9)
        # Bytes that copies have in front of their number.
        self.blocks = [os.urandom(self.nbytes) for _ in range(64)]
        nbytes, self.on_cudas_memory = self.nbytes, cu is not None and not options.software
        doorbell.open(lanes=1, kind="soft" if options.software else None)
        if cu:
            self.cuda_host, self.cuda_device = made(cu.cuMemHostAlloc, 2 * PIECE, 0), made(cu.cuMemAlloc, 2 * PIECE, of=c_ulonglong)
            self.cuda_data, self.stream = bytes_at(self.cuda_host, nbytes), made(cu.cuStreamCreate, 1)
            # As bare as ctypes has them, as the package calls libdoorbell.
            library = ctypes.CDLL("libcuda.so.1")
            self.cuda_calls = library["cuMemcpyHtoDAsync_v2"], library["cuStreamSynchronize"]
        if self.on_cudas_memory:
            pointer, self.device_address = made(cu.cuMemHostAlloc, 2 * PIECE, 0), made(cu.cuMemAlloc, 2 * PIECE, of=c_ulonglong)
            self.host, self.device = doorbell.pin(Memory(pointer, 2 * nbytes)), doorbell.pin(Memory(self.device_address, nbytes))
            memory = bytes_at(pointer, 2 * nbytes)
            host_pool, device_pool = made(cu.cuMemHostAlloc, BLOCK, 0), made(cu.cuMemAlloc, BLOCK, of=c_ulonglong)
            pieces = [(Memory(host_pool + at, PIECE), Memory(device_pool + at, PIECE)) for at in range(0, BLOCK, PIECE)]
            self.pieces = itertools.cycle(pieces)
        else:
            self.host, self.device = doorbell.allocate(2 * nbytes), doorbell.allocate(nbytes, "gpu")
            memory = self.host.view
        self.data, self.back = memory[:nbytes], memory[nbytes:]
        self.down = doorbell.prepare(self.device, self.host, nbytes)
        self.up = doorbell.prepare(self.host, self.device, nbytes, dst_offset=nbytes)

    def renew(self, to):
        """Other bytes each time."""
        self.times += 1
        to[:] = self.blocks[self.times % len(self.blocks)]
        if self.nbytes >= 8:
            struct.pack_into("Q", to, 0, self.times)

    def compare(self, found, meant, what):
        self.compared += 1
        if bytes(found) != bytes(meant):
            self.wrong += 1
            print("WRONG: bytes of", what, file=sys.stderr)

    def give_way(self):
        """Other Python threads go on, now and not in the middle of a copy."""
        self.copies += 1
        if self.options.burst and self.copies % self.options.burst == 0:
            time.sleep(20e-6)

    def patient(self):
        """Before a call that may wait for the neighbours."""
        at = clock()
        self.turn.pause_at = at + self.patience
        return at

    def took(self, row, series, start, end):
        row.of[series].append(end - start)
        if row.threads and end - start >= self.patience:
            row.cut[series] += 1

    def resume(self):
        """The neighbours go on."""
        paused = clock() >= self.turn.pause_at
        self.turn.pause_at = 1 << 63
        if paused:
            time.sleep(1e-3)

    def ours(self, row, length):
        submit, all_of, first = self.down.submit, row.of["doorbell"].append, row.of["submit"].append
        start = end = clock()
        while end - start < length and not self.interrupted:
            self.renew(self.data)
            before = clock()
            ticket = submit()
            middle = clock()
            ticket.wait()
            end = clock()
            first(middle - before)
            all_of(end - before)
            if self.times % COMPARE == 0:
                self.back[:] = bytes(self.nbytes)
                self.up.submit().wait()
                self.compare(self.back, self.data, "libdoorbell's copy, as libdoorbell reads them")
            self.give_way()
        return end - start

    def released(self, row, length):
        """The same, by functions that let go of the GIL."""
        submit, wait = _library.library.doorbell_transfer_async, _library.library.doorbell_wait
        session, handle = self.down._session.at, self.down.handle
        start = end = clock()
        while end - start < length and not self.interrupted:
            self.renew(self.data)
            ticket = c_uint64()
            before = clock()
            code = submit(session, handle, None, byref(ticket)) or wait(session, ticket, _header.FOREVER)
            end = clock()
            _library.check(code)
            row.of["released"].append(end - before)
            self.give_way()
        return end - start

    def cudas(self, row, length):
        """By CUDA, and no more than so many: there may be a very long one among them."""
        copy, synchronize = self.cuda_calls
        arguments = c_ulonglong(self.cuda_device), c_void_p(self.cuda_host), c_size_t(self.nbytes), c_void_p(self.stream)
        start = end = clock()
        for _ in range(COPIES):
            if end - start >= length or self.interrupted:
                break
            self.renew(self.cuda_data)
            before = self.patient()
            status = copy(*arguments) or synchronize(arguments[3])
            end = clock()
            if status:
                raise Refused(f"cuMemcpyHtoDAsync and cuStreamSynchronize: CUDA error {status}")
            self.took(row, "cuda", before, end)
            self.give_way()
        self.resume()
        return end - start

    def pins(self, row, length):
        """Another piece of the memory each time."""
        start = end = clock()
        while end - start < length and not self.interrupted:
            for series, piece in zip(("pin_host", "pin_device"), next(self.pieces)):
                before = self.patient()
                pinned = doorbell.pin(piece)
                middle = self.patient()
                pinned.close()
                end = clock()
                self.took(row, series, before, middle)
                self.took(row, "unpin", middle, end)
            self.give_way()
        self.resume()
        return end - start

    def prepares(self, row, length):
        start = end = clock()
        while end - start < length and not self.interrupted:
            before = self.patient()
            transfer = doorbell.prepare(self.device, self.host, self.nbytes)
            middle = self.patient()
            transfer.close()
            end = clock()
            self.took(row, "prepare", before, middle)
            self.took(row, "release", middle, end)
            self.give_way()
        self.resume()
        return end - start

    def parts(self):
        """Slices, and which part of a turn they have in all and at a time."""
        yield self.ours, 2, 8
        yield self.prepares, 8, 16
        yield self.released, 8, 16
        if cu:
            yield self.cudas, 2, 8
        if self.on_cudas_memory:
            yield self.pins, 8, 16

    def take_turn(self, row, cpus):
        length = int(self.options.turn * 1e9)
        self.turn, ready = Turn(), threading.Barrier(row.threads + 1)
        neighbours = [Neighbour(row.kind, self.turn, ready, cpus) for _ in range(row.threads)]
        for neighbour in neighbours:
            neighbour.start()
        ready.wait()
        had = {series: len(samples) for series, samples in row.of.items()}
        left = [[part, length // of, length // at_a_time] for part, of, at_a_time in self.parts()]
        while left and not self.interrupted:
            for entry in left:
                entry[1] -= entry[0](row, entry[2])
            left = [entry for entry in left if entry[1] > 0]
        self.turn.ended = True
        for neighbour in neighbours:
            neighbour.join()
            row.done, row.longest = row.done + neighbour.done, max(row.longest, neighbour.longest)
            if neighbour.refused:
                print("a neighbour ended:", neighbour.refused, file=sys.stderr)
        row.turns += 1
        if cu and len(row.of["cuda"]) > had["cuda"]:
            self.compare(self.read(self.cuda_device), self.cuda_data, "CUDA's copy")
        if self.on_cudas_memory and len(row.of["doorbell"]) > had["doorbell"]:
            self.compare(self.read(self.device_address), self.data, "libdoorbell's copy, as CUDA reads them")
        return had

    def read(self, address):
        found = (ctypes.c_ubyte * self.nbytes)()
        cu.cuMemcpyDtoH(found, address, self.nbytes)
        return found


# ---- What is said ----

def percentile(samples, of, out_of):
    """Of sorted samples, the nearest rank: the least one that `of` in `out_of` do not exceed. At least ten have to lie beyond it (but
    of the median), otherwise None."""
    needs = 1 if of * 2 == out_of else 10 * out_of // (out_of - of)
    return samples[-(-len(samples) * of // out_of) - 1] if len(samples) >= needs else None


PERCENTILES = {"p50": (1, 2), "p90": (9, 10), "p99": (99, 100), "p99.9": (999, 1000), "p99.99": (9999, 10000)}


def figures(samples):
    samples = sorted(samples)
    said = {name: percentile(samples, *p) for name, p in PERCENTILES.items()}
    said["max"] = samples[-1] if samples else None
    return {"samples": len(samples), **{name: value for name, value in said.items() if value is not None}}


def text(ns):
    """A time, three digits of it."""
    if ns is None:
        return "-"
    value = float(ns)
    for unit in ("ns", "us", "ms", "s"):
        if value < 999.5 or unit == "s":
            break
        value /= 1000
    digits = 0 if unit == "ns" or value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{digits}f} {unit}"


def print_tables(rows):
    of = [{series: figures(samples) for series, samples in row.of.items()} for row in rows]

    def cell(n, series, name):
        said = text(of[n][series].get(name))
        return ">" + said if name == "max" and rows[n].cut[series] else said

    def table(columns):
        print()
        print(f"{'beside':12}|" + "|".join(f" {title}:" + "".join(f"{name:>{width}}" for _, name, width in cells) + " "
                                            for title, cells in columns))
        for n, row in enumerate(rows):
            parts = []
            for title, cells in columns:
                said = ""
                for series, name, width in cells:
                    value = series(n) if callable(series) else of[n][series]["samples"] if name == "n" else cell(n, series, name)
                    said += f"{value:>{width}}"
                parts.append(" " * (len(title) + 2) + said + " ")
            print(f"{row.label:12}|" + "|".join(parts))

    def more(n):
        here, nothing = of[n]["doorbell"].get("p99.9"), of[0]["doorbell"].get("p99.9")
        return f"{(here - nothing) / 1000:+.2f} us" if n and here and nothing else "-"

    table([("neighbours", [(lambda n: rows[n].done if rows[n].threads else "-", "calls", 8),
                           (lambda n: text(rows[n].longest or None), "longest", 9)]),
           ("CUDA", [("cuda", "n", 6), ("cuda", "p50", 9), ("cuda", "p99", 9), ("cuda", "max", 10)]),
           ("ours", [("doorbell", "n", 7), *[("doorbell", name, 9) for name in ("p50", "p99", "p99.9", "max")],
                     (more, "more p99.9", 12)])])
    print(">: at least, the neighbours had to pause. -: fewer than ten samples lie beyond it, or none is there.")
    table([("submit", [("submit", "p50", 8), ("submit", "p99.9", 9)]),
           ("GIL released", [("released", "n", 6), ("released", "p50", 9), ("released", "p99", 9), ("released", "max", 9)]),
           ("pin GPU's", [("pin_device", "n", 6), ("pin_device", "p50", 9), ("pin_device", "max", 10)]),
           ("host's", [("pin_host", "p50", 9), ("pin_host", "max", 10)]),
           ("unpin", [("unpin", "p50", 9), ("unpin", "max", 10)]),
           ("prepare", [("prepare", "n", 6), ("prepare", "p50", 9), ("prepare", "max", 10)]),
           ("release", [("release", "p50", 9), ("release", "max", 10)])])
    return of


def print_verdict(rows, of, copies):
    nothing = of[0]["doorbell"].get("p99.9")
    within, judged, few, others = 0, 0, 0, []
    for row, said in zip(rows[1:], of[1:]):
        here = said["doorbell"].get("p99.9")
        if here is None or nothing is None:
            few += row.turns > 0
            continue
        judged += 1
        if here <= nothing + WITHIN:
            within += 1
        else:
            others.append(f"{row.label} ({(here - nothing) / 1000:+.1f} us)")
    print(f"\nverdict: libdoorbell's p99.9 within 10 us of its p99.9 beside nothing ({text(nothing)}): {within} of {judged}"
          + ("; not beside " + ", ".join(others) if others else "") + (f"; too few samples beside {few}" if few else ""))
    print(f"{copies.compared} copies compared, {copies.wrong} wrong")


def write_raw(to, number, row, had):
    for series, samples in row.of.items():
        counts = collections.Counter(samples[had[series]:])
        if counts:
            said = (str(ns) if times == 1 else f"{ns}*{times}" for ns, times in sorted(counts.items()))
            print(number, row.kind, row.threads, series, *said, file=to)
    to.flush()


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--turn", type=float, default=1, help="seconds of libdoorbell's and CUDA's copies in a turn (1)")
    parser.add_argument("--patience", type=float, default=1, help="seconds in one call after which neighbours pause (1)")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, help="no turn begins after so many in all")
    parser.add_argument("--threads", default="1,10", help="how many neighbours (1,10)")
    parser.add_argument("--kinds", default=",".join(KINDS), help="which (%(default)s)")
    parser.add_argument("--bytes", type=int, default=4096)
    parser.add_argument("--burst", type=int, default=64, help="copies between two sleeps (64; 0: none)")
    parser.add_argument("--software", action="store_true", help="on the software GPU")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--raw", metavar="FILE")
    options = parser.parse_args()
    options.threads = [int(word) for word in options.threads.split(",")]
    options.kinds = options.kinds.split(",")
    if not all(kind in KINDS for kind in options.kinds) or not all(1 <= n <= 128 for n in options.threads):
        parser.error(f"--kinds are of {', '.join(KINDS)}; --threads are 1 to 128")
    if options.turn <= 0 or options.patience <= 0 or options.rounds < 1 or not 1 <= options.bytes <= PIECE:
        parser.error("--turn, --patience, --rounds are more than 0; --bytes is 1 to 1048576")
    return options


def main():
    global cu, CONTEXT
    options, begin = read_options(), clock()
    sys.stdout.reconfigure(line_buffering=True)
    cu = load_cuda()
    if cu is None:
        print("skipped: no libcuda.so.1, so no neighbours and no copies of CUDA's")
    # What measures has a CPU of its own, the last; threads of CUDA's and neighbours have the others.
    cpus = os.sched_getaffinity(0)
    cpu = max(cpus)
    others = cpus - {cpu} or cpus
    os.sched_setaffinity(0, others)
    if cu:
        cu.cuInit(0)
        CONTEXT = made(cu.cuDevicePrimaryCtxRetain, made(cu.cuDeviceGet, 0, of=c_int))
        cu.cuCtxSetCurrent(CONTEXT)
        if not options.software:
            doorbell.watching()
    copies = Copies(options)
    os.sched_setaffinity(0, {cpu})

    def interrupt(*_):
        copies.interrupted = True

    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, interrupt)
    nothing = Row("nothing", 0)
    beside = [Row(kind, threads) for threads in options.threads for kind in options.kinds] if cu else []
    # Nothing, half of the kinds, nothing, the other half, nothing.
    half = len(beside) // 2
    order = [nothing, *beside[:half], nothing, *beside[half:], nothing]
    print(f"{options.bytes} bytes to the GPU, turns of {options.turn:g} s, measured on CPU {cpu}, Python {sys.version.split()[0]}")
    for kind in options.kinds if cu else ():
        print(f"  {kind:9} {KINDS[kind][1]}, given back at once")
    # Not counted: everything was done once.
    first = Row("nothing", 0)
    for part, _, _ in copies.parts():
        part(first, 20_000_000)
    # The collector would run in the middle of a copy.
    gc.collect()
    gc.disable()
    raw, rounds, over = open(options.raw, "w") if options.raw else None, 0, False
    while rounds < options.rounds and not over:
        for row in order:
            had = copies.take_turn(row, others)
            if raw:
                write_raw(raw, rounds, row, had)
            gc.collect()
            over = copies.interrupted or bool(options.seconds and (clock() - begin) / 1e9 >= options.seconds)
            if over:
                break
        rounds += 1
    rows = [nothing, *beside]
    print(f"{(clock() - begin) / 1e9:.1f} s, {rounds} rounds{', ended early' if over else ''}")
    of = print_tables(rows)
    print_verdict(rows, of, copies)
    if options.json:
        with open(options.json, "w") as to:
            json.dump({"program": "undelayed.py", "turn_s": options.turn, "bytes": options.bytes, "cuda": cu is not None,
                       "software": options.software, "compared": copies.compared, "wrong": copies.wrong, "unit": "ns", "rows": [
                           {"beside": row.kind, "threads": row.threads, "turns": row.turns, "calls": row.done, "longest": row.longest,
                            **{series: {**said[series], "paused": row.cut[series]} for series in SERIES}}
                           for row, said in zip(rows, of)]}, to, indent=1)
    if raw:
        raw.close()
    doorbell.close()
    return 1 if copies.wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (doorbell.DoorbellError, Refused) as error:
        print(error, file=sys.stderr)
        sys.exit(2)

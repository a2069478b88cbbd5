"""How the package's objects behave as Python's do: what holds what, copies, numbers, signals, errors and help. On the software GPU, as test_doorbell.py,
which runs these too."""

import asyncio
import copy
import ctypes
import gc
import inspect
import math
import os
import pickle
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import warnings
import weakref

import doorbell
from doorbell import _errors, _header, _library, _memory, _numbers

try:
    import numpy
except ImportError:
    numpy = None

# A Python that has NumPy, where this one has none.
WITH_NUMPY = sys.executable if numpy else os.environ.get("FLEET_PYTHON")


def held_back(session, host):
    """A copy that waits until the first word of host is 1. So does what is submitted after it."""
    host.view[:4] = bytes(4)
    ticket, piece = doorbell.Ticket.of(session), _header.Piece(host.handle, 32, host.handle, 16, 8)
    order = _header.Order(ctypes.sizeof(_header.Order), wait_buffer=host.handle, wait_value=1)
    _library.check(_library.library.doorbell_copy_batch_async(session.at, piece, 1, ctypes.sizeof(piece), order, ticket))
    return ticket


def lets_go(host, after):
    """Sets the word at a later time, in another thread."""
    word = ctypes.c_uint32.from_address(host.pointer)
    timer = threading.Timer(after, lambda: setattr(word, "value", 1))
    timer.start()
    return timer


def run(program, python=sys.executable):
    """What another process prints, which a crash would end."""
    return subprocess.run([python, "-c", program], capture_output=True, text=True, timeout=60)


class WithASession(unittest.TestCase):
    def setUp(self):
        self.session = doorbell.open(kind="soft", lanes=2)
        self.addCleanup(doorbell.close)


class Views(WithASession):
    """What shows memory holds it, however the buffer or the session ends."""

    def test_a_view_holds_the_memory_of_a_dropped_buffer(self):
        view = doorbell.allocate(1 << 22).view
        view[-4:] = b"held"
        gc.collect()
        doorbell.allocate(4096).close()  # (The library unmaps there what was freed.)
        self.assertEqual(bytes(view[-4:]), b"held")

    def test_a_frame_holds_the_memory_of_a_dropped_ring(self):
        frame = doorbell.ring(doorbell.allocate(1 << 20, "gpu"), doorbell.allocate(1 << 20), 4096, 4).next()
        gc.collect()
        doorbell.allocate(4096).close()
        frame.view[:] = bytes(range(256)) * 16
        self.assertEqual(bytes(frame.view[:4]), b"\0\1\2\3")

    def test_close_releases_the_views_that_the_buffer_gave(self):
        buffer = doorbell.allocate(4096)
        ring = doorbell.ring(doorbell.allocate(4096, "gpu"), buffer, 1024, 4)
        view, frame = buffer.view, ring.next()
        buffer.close()
        for use in (lambda: view[0], lambda: frame.view[0]):
            with self.assertRaisesRegex(ValueError, "released"):
                use()
        with self.assertRaises(doorbell.InvalidHandle):
            buffer.view

    def test_a_slice_holds_the_memory_of_a_closed_buffer(self):
        buffer = doorbell.allocate(1 << 22)
        part = buffer.view[8:16]
        part[:] = b"a slice!"
        buffer.close()
        doorbell.allocate(4096).close()
        self.assertEqual(bytes(part), b"a slice!")
        with self.assertRaises(doorbell.InvalidHandle):
            doorbell.copy_(buffer, buffer, 8)

    def test_a_slice_holds_the_memory_and_the_channels_of_a_closed_session(self):
        said = []
        session = doorbell.Session(kind="soft", lanes=1, log=said.append)
        buffer, other = session.allocate(1 << 22), session.allocate(4096)
        part, whole = buffer.view[:8], buffer.view
        part[:] = b"survives"
        ticket = session.copy_async(other, buffer, 8)
        session.close()
        self.assertTrue(session.closed)
        self.assertEqual(bytes(part), b"survives")
        for use in (lambda: whole[0], lambda: buffer.view, lambda: session.allocate(64), lambda: session.copy_(buffer, other, 8), ticket.done):
            with self.assertRaises((ValueError, doorbell.Closed)):
                use()
        self.assertNotIn("closed", said)
        del part
        self.assertIn("closed", said)

    def test_a_session_without_views_is_closed_at_once(self):
        said = []
        session = doorbell.Session(kind="soft", lanes=1, log=said.append)
        view = session.allocate(4096).view
        view[0] = 1
        buffer = session.allocate(4096)
        session.close()
        self.assertIn("closed", said)
        for use in (lambda: buffer.view, lambda: session.allocate(8)):
            with self.assertRaises(doorbell.Closed):
                use()
        del view

    def test_memory_that_a_cuda_array_may_show_stays_while_the_buffer_does(self):
        class Memory:
            def __init__(self, of):
                self.of, self.interface = of, of.__cuda_array_interface__

        gpu = doorbell.allocate(1 << 22, "gpu")
        shown = Memory(gpu)
        gpu.close()
        doorbell.allocate(4096).close()
        # (The software GPU's memory is the CPU's too.)
        self.assertEqual(ctypes.string_at(shown.interface["data"][0], 4), bytes(4))
        self.assertFalse(hasattr(gpu, "__cuda_array_interface__"))

    def test_a_dropped_buffer_gives_its_memory_back_at_once(self):
        files = lambda: len(os.listdir("/proc/self/fd"))
        doorbell.allocate(4096).close()
        before = files()
        for _ in range(20):
            doorbell.allocate(4096).view[0] = 1
        self.assertLess(files(), before + 5)

    @unittest.skipIf(numpy is None, "no numpy")
    def test_numpys_arrays_hold_the_memory(self):
        array = numpy.asarray(doorbell.allocate(1 << 22))
        other = numpy.asarray(doorbell.current().allocate(1 << 22))
        gc.collect()
        array[:], other[:] = 7, 8
        doorbell.close()
        doorbell.open(kind="soft", lanes=1)
        doorbell.allocate(4096).close()
        self.assertEqual((int(array.sum()), int(other[-1])), (7 << 22, 8))

    def test_a_close_in_another_thread_is_no_crash(self):
        program = """
import doorbell, threading
s = doorbell.open(kind="soft", lanes=1)
for _ in range(10):
    b = doorbell.allocate(1 << 16)
    def look():
        try:
            while True:
                for n in range(20): b.view[n] = n; bytes(b.view[:8])
        except (ValueError, doorbell.InvalidHandle):
            pass
    threads = [threading.Thread(target=look) for _ in range(3)]
    [t.start() for t in threads]
    b.close()
    [t.join() for t in threads]
print("no crash")
"""
        out = run(program)
        self.assertEqual((out.returncode, out.stdout), (0, "no crash\n"), out.stderr)


class Copies(WithASession):
    def test_what_belongs_to_a_session_is_not_copied_or_pickled(self):
        host, gpu = doorbell.allocate(4096), doorbell.allocate(4096, "gpu")
        for thing in (host, doorbell.prepare(gpu, host), doorbell.ring(gpu, host, 1024, 4), doorbell.queue(4), doorbell.copy_async(gpu, host, 8),
                      self.session):
            for way in (copy.copy, copy.deepcopy, pickle.dumps, lambda thing: copy.deepcopy({"in": [thing]})):
                with self.assertRaisesRegex(TypeError, f"doorbell.{type(thing).__name__} cannot be copied or pickled: it belongs to this process"):
                    way(thing)
        gc.collect()
        host.view[:4] = b"here"
        doorbell.copy_(gpu, host)

    def test_errors_and_results_are_pickled(self):
        error = pickle.loads(pickle.dumps(_library.failed(7)))
        self.assertEqual((type(error), error.code), (doorbell.Full, 7))
        result = doorbell.Result(*range(10), b"data")
        self.assertEqual(copy.copy(result), result)

    def test_handles_are_read_only(self):
        host = doorbell.allocate(64)
        for name in ("handle", "pointer", "nbytes", "readonly", "on_gpu"):
            with self.assertRaises(AttributeError):
                setattr(host, name, 1 << 40)

    def test_a_second_close_has_no_effect(self):
        host, gpu = doorbell.allocate(64), doorbell.allocate(64, "gpu")
        for thing in (doorbell.prepare(gpu, host), doorbell.ring(gpu, host, 16, 4), doorbell.queue(4), host, self.session):
            thing.close()
            thing.close()
        doorbell.close()
        doorbell.close()
        with self.assertRaises(doorbell.Closed):
            doorbell.current()
        gpu.close()
        doorbell.open(kind="soft", lanes=1).close()
        doorbell.open(kind="soft", lanes=1)

    def test_dropped_sessions_are_closed(self):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for _ in range(66):  # (A process may have 64.)
                session = doorbell.Session(kind="soft", lanes=1)
                buffer = session.allocate(64)
            del session, buffer
        self.assertEqual({(one.category, "unclosed" in str(one.message)) for one in said}, {(ResourceWarning, True)})
        self.assertEqual(len(said), 66)

    def test_tickets_are_made_by_submissions(self):
        with self.assertRaisesRegex(TypeError, "returned by a call that submits"):
            doorbell.Ticket()
        with self.assertRaisesRegex(TypeError, "a queue is of tickets, not of int"):
            doorbell.queue(4).add(5)


class Awaiting(unittest.TestCase):
    def test_event_loops_keep_nothing(self):
        with doorbell.Session(kind="soft", lanes=1) as session:
            host = session.allocate(4096)

            async def one():
                ticket = held_back(session, host)
                asyncio.get_running_loop().call_later(0.001, lambda: host.view.__setitem__(0, 1))
                await ticket
                return weakref.ref(asyncio.get_running_loop())

            asyncio.run(one())
            gc.collect()
            files = len(os.listdir("/proc/self/fd"))
            loops = [asyncio.run(one()) for _ in range(20)]
            gc.collect()
            self.assertEqual(len(os.listdir("/proc/self/fd")), files)
            self.assertEqual([loop() for loop in loops], [None] * 20)
            self.assertEqual(session._awaited, {})

    def test_a_session_that_is_closed_gives_its_awaits_their_results(self):
        async def awaits():
            for by_this_thread in (False, True):
                session = doorbell.Session(kind="soft", lanes=1)
                host = session.allocate(4096)
                ticket = held_back(session, host)
                tasks = [asyncio.create_task(_awaits(ticket)) for _ in range(3)]
                await asyncio.sleep(0.01)
                tasks[2].cancel()
                timer = lets_go(host, 0.05)
                if by_this_thread:
                    session.close()
                else:
                    await asyncio.to_thread(session.close)
                await asyncio.wait_for(asyncio.gather(*tasks[:2]), 5)
                timer.join()
            # The next session's awaits end, too.
            with doorbell.Session(kind="soft", lanes=1) as session:
                host = session.allocate(4096)
                ticket = held_back(session, host)
                timer = lets_go(host, 0.02)
                await asyncio.wait_for(_awaits(ticket), 5)
                timer.join()
            with self.assertRaises(doorbell.Closed):
                await ticket

        async def _awaits(ticket):
            await ticket

        asyncio.run(awaits())

    def test_an_await_that_is_refused_leaves_nothing(self):
        async def awaits():
            with doorbell.Session(kind="soft", lanes=1) as session, doorbell.Session(kind="soft", lanes=1) as other:
                ticket = held_back(session, host := session.allocate(4096))
                wrong = doorbell.Ticket.of(other, ticket.value)
                with self.assertRaises(doorbell.InvalidHandle):
                    await queue.awaited(wrong)
                self.assertEqual(other._awaited, {})
                host.view[0] = 1
                await ticket

        queue = doorbell._queue
        asyncio.run(awaits())

    def test_a_loop_that_was_closed_while_it_awaited(self):
        with doorbell.Session(kind="soft", lanes=1) as session:
            host = session.allocate(4096)

            async def awaits(ticket):
                await ticket

            loop = asyncio.new_event_loop()
            ticket = held_back(session, host)
            task = loop.create_task(awaits(ticket))
            loop.run_until_complete(asyncio.sleep(0.01))
            loop.close()
            timer = lets_go(host, 0.05)
            asyncio.run(awaits(ticket))
            timer.join()
            self.assertEqual(len(session._awaited), 0)
            task._log_destroy_pending = False


class Numbers(WithASession):
    def test_integers_are_checked(self):
        host, gpu = doorbell.allocate(4096), doorbell.allocate(4096, "gpu")
        host.view[:8] = b"ABCDEFGH"
        ticket = doorbell.copy_async(gpu, host, 8, dst_offset=8)
        transfer, message = doorbell.prepare_bytes(gpu, 8), doorbell.message(gpu, host)
        ticket.wait()

        class Graph(doorbell.Graph):
            def __init__(self, session):
                super().__init__(session, 0, None)

        graph = Graph(self.session)
        takes = {
            "copy_, nbytes": lambda n: doorbell.copy_(gpu, host, n),
            "copy_, dst_offset": lambda n: doorbell.copy_(gpu, host, 8, dst_offset=n),
            "copy_async, nbytes": lambda n: doorbell.copy_async(gpu, host, n),
            "copy_async, src_offset": lambda n: doorbell.copy_async(gpu, host, 8, src_offset=n),
            "copy_batch, offset": lambda n: doorbell.copy_batch([(gpu, n, host, 0, 8)]),
            "copy_batch, length": lambda n: doorbell.copy_batch([(gpu, 0, host, 0, n)]),
            "prepare": lambda n: doorbell.prepare(gpu, host, n),
            "prepare_bytes": lambda n: doorbell.prepare_bytes(gpu, n),
            "prepare_bytes, offset": lambda n: doorbell.prepare_bytes(gpu, 8, dst_offset=n),
            "explain": lambda n: doorbell.explain(gpu, host, n),
            "allocate": lambda n: doorbell.allocate(n),
            "ring, bytes": lambda n: doorbell.ring(gpu, host, n, 4),
            "ring, frames": lambda n: doorbell.ring(gpu, host, 64, n),
            "message": lambda n: doorbell.message(gpu, host, answers_offset=n),
            "message.wait": lambda n: message.wait(n, 0.001),
            "queue": lambda n: doorbell.queue(n),
            "Session, gpu": lambda n: doorbell.Session(n, kind="soft"),
            "Session, lanes": lambda n: doorbell.Session(kind="soft", lanes=n),
            "Session, launch_lanes": lambda n: doorbell.Session(kind="soft", launch_lanes=n),
            "set_param, kernel": lambda n: graph.set_param(n, 0, b"1234"),
            "set_param, offset": lambda n: graph.set_param(0, n, b"1234"),
            "set_pointer": lambda n: graph.set_pointer(0, 0, gpu, thing_offset=n),
            "Graph.copy": lambda n: graph.copy(n),
            "kernel": lambda n: doorbell.kernel(n, 1, 1, [], 7),
            "kernel, grid": lambda n: doorbell.kernel(7, (1, n), 1, [], 7),
            "kernel, shared": lambda n: doorbell.kernel(7, 1, 1, [], 7, shared_bytes=n),
            "graph": lambda n: doorbell.graph(n),
            "stream": lambda n: doorbell.copy_async(gpu, host, 8, after=n),
            "chain": lambda n: doorbell.chain([(gpu, n, host, 0, 8)]),
            **{f"loop, {name}": (lambda n, name=name: doorbell.loop(graph, **{name: n}))
               for name in ("slots", "results", "signal_each", "cpu", "fifo")},
            "loop, source": lambda n: doorbell.loop(graph, source=(host, 0, n)),
        }
        for name, take in takes.items():
            with self.subTest(name):
                for large in (2**64 + 16, 2**65, -1, -2**63):
                    with self.assertRaises(ValueError):
                        take(large)
                for other in (8.0, True, "8", 1j):
                    with self.assertRaises(TypeError):
                        take(other)
        for large in (2**32 + 4, 2**32):
            for name in ("ring, frames", "Session, lanes", "Session, gpu", "Session, launch_lanes", "set_param, kernel", "message.wait"):
                with self.subTest(name), self.assertRaises(ValueError):
                    takes[name](large)
        self.assertEqual(bytes(gpu.view[:8]), bytes(8))
        transfer.submit(b"12345678").wait()

    @unittest.skipIf(numpy is None, "no numpy")
    def test_numpys_integers_are_integers(self):
        host, gpu = doorbell.allocate(4096), doorbell.allocate(4096, "gpu")
        host.view[:8] = b"ABCDEFGH"
        doorbell.copy_(gpu, host, numpy.int64(8), dst_offset=numpy.uint8(16), timeout=numpy.float32(10))
        self.assertEqual(bytes(gpu.view[16:24]), b"ABCDEFGH")

    def test_times_are_checked(self):
        host = doorbell.allocate(64)
        ticket, queue = doorbell.copy_async(host, host, 8, dst_offset=8), doorbell.queue(4)
        for endless in (None, math.inf, 1e300, 2**70):
            ticket.wait(endless)
        for wait in (ticket.wait, queue.wait, lambda seconds: doorbell.copy_(host, host, 8, dst_offset=8, timeout=seconds)):
            for wrong, error in ((math.nan, ValueError), ("1", TypeError), (True, TypeError), (1j, TypeError)):
                with self.assertRaises(error):
                    wait(wrong)
        self.assertEqual(queue.wait(-1), [])
        for wrong in (0, -1, 1e30, math.inf):
            with self.assertRaises(ValueError):
                _numbers.duration(wrong, "period")
        self.assertEqual(_numbers.duration(1e-3, "period"), 1_000_000)

    @unittest.skipIf(WITH_NUMPY is None, "no numpy")
    def test_numpys_scalars_are_held_while_they_are_read(self):
        program = """
import ctypes, doorbell, numpy
wrong = 0
for n in range(1 << 40, (1 << 40) + 50):
    memory = doorbell._memory.memory_of(numpy.uint64(n))
    others = [numpy.array([k]) for k in range(20)]
    wrong += ctypes.string_at(memory.pointer, memory.bytes) != n.to_bytes(8, "little")
time = doorbell._memory.memory_of(numpy.datetime64("2026-01-01"))
print(wrong, time.bytes, time.readonly, isinstance(time.keep, numpy.ndarray))
"""
        out = run(program, WITH_NUMPY)
        self.assertEqual(out.stdout, "0 8 True True\n", out.stderr)

    def test_the_array_protocols_data_may_be_a_buffer(self):
        class Array:
            def __init__(self, data, **more):
                self.__array_interface__ = {"shape": (2, 4), "typestr": "<u2", "data": data, "version": 3, **more}

        data = bytearray(range(32))
        found = _memory.memory_of(Array(memoryview(data), offset=8))
        self.assertEqual((ctypes.string_at(found.pointer, found.bytes), found.readonly), (bytes(range(8, 24)), False))
        with self.assertRaises(BufferError):
            data.append(1)  # It is held.
        self.assertTrue(_memory.memory_of(Array(bytes(16))).readonly)
        for wrong in (Array(bytes(15)), Array(None), Array((-1, False)), Array((0x7000, False), shape=(2**62, 4)), Array((0x7000, False), shape=(-1,))):
            with self.assertRaises(ValueError):
                _memory.memory_of(wrong)

    def test_lazy_tensors_are_refused(self):
        class Tensor:
            def __init__(self, **lazy):
                self.__dict__.update({name: lambda: value for name, value in lazy.items()})

            def data_ptr(self):
                return 0x9000

            def untyped_storage(self):
                return "the storage"

            def is_contiguous(self):
                return True

            def numel(self):
                return 10

            def element_size(self):
                return 8

        self.assertEqual(_memory.memory_of(Tensor(is_conj=False, is_neg=False)).bytes, 80)
        for lazy in ({"is_conj": True}, {"is_neg": True}):
            with self.assertRaisesRegex(ValueError, "resolve_conj"):
                _memory.memory_of(Tensor(**lazy))


class Signals(WithASession):
    def test_handlers_run_in_waits(self):
        class Stop(BaseException):
            pass

        def handler(*_):
            raise Stop

        before = signal.signal(signal.SIGALRM, handler)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        host, gpu = doorbell.allocate(4096), doorbell.allocate(4096, "gpu")
        queue, message = doorbell.queue(4), doorbell.message(gpu, host, answers_offset=1024)
        for name, wait in (("ticket", lambda ticket: ticket.wait()), ("ticket, 60 s", lambda ticket: ticket.wait(60)),
                           ("queue", lambda ticket: (queue.add(ticket), queue.wait())),
                           ("copy_", lambda _: doorbell.copy_(host, host, 8, src_offset=64, dst_offset=128)),
                           ("message", lambda _: message.wait(1))):
            with self.subTest(name):
                ticket = held_back(self.session, host)
                timer = lets_go(host, 5)
                signal.setitimer(signal.ITIMER_REAL, 0.02)
                start = time.monotonic()
                with self.assertRaises(Stop):
                    wait(ticket)
                self.assertLess(time.monotonic() - start, 4)
                timer.cancel()
                host.view[0] = 1
                ticket.wait(10)


class Texts(WithASession):
    def test_each_code_that_a_program_can_cause_has_a_class(self):
        for code, kind in ((9, doorbell.LimitReached), (10, doorbell.InvalidArgument), (12, doorbell.Killed), (13, doorbell.Stopped)):
            self.assertIs(type(_library.failed(code)), kind)
        self.assertEqual({name: _errors.CODES[getattr(_header, name)].code for name in ("LIMIT", "ARGUMENT", "KILLED", "STOPPED", "FULL")},
                         {"LIMIT": 9, "ARGUMENT": 10, "KILLED": 12, "STOPPED": 13, "FULL": 7})
        with self.assertRaises(doorbell.InvalidArgument):
            doorbell.Session(lanes=65)
        host = doorbell.allocate(64)
        with self.assertRaises(doorbell.LimitReached):
            doorbell.copy_async(host, host, 8, dst_offset=8, after=[doorbell.copy_async(host, host, 8, dst_offset=8)] * 70)

    def test_help_shows_what_a_caller_may_pass(self):
        for name in sorted({*doorbell.__all__, "open"}):
            thing = getattr(doorbell, name)
            if not inspect.isfunction(thing):
                continue
            with self.subTest(name):
                said = str(inspect.signature(thing))
                self.assertNotRegex(said, r"self|object at|<object|\*\*|\*arg")
                self.assertTrue(thing.__doc__)
        self.assertIn("after: 'Any' = NOW", str(inspect.signature(doorbell.Transfer.submit)))
        for function, says in ((doorbell.open, "kind: \"Literal['cuda', 'soft'] | None\" = None"), (doorbell.loop, "take: \"Literal['in order', 'newest']\""),
                               (doorbell.Session.loop, "(self, chain: 'Graph', *"), (doorbell.allocate, "Literal['host', 'gpu']")):
            self.assertIn(says, str(inspect.signature(function)))

    def test_every_public_name_is_annotated(self):
        for name in doorbell.__all__:
            kind = getattr(doorbell, name)
            methods = [kind] if inspect.isfunction(kind) else [one for key, one in vars(kind).items() if inspect.isfunction(one) and not key.startswith("_")]
            for method in methods:
                with self.subTest(f"{name}.{method.__name__}"):
                    shown = inspect.signature(method)
                    self.assertIsNot(shown.return_annotation, inspect.Signature.empty)
                    for parameter in list(shown.parameters.values())[0 if method is kind else 1:]:
                        self.assertIsNot(parameter.annotation, inspect.Signature.empty)


class Types(unittest.TestCase):
    """The program typed.py uses the whole public API."""

    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "typed.py")
    environment = {**os.environ, "LD_PRELOAD": "", "MYPYPATH": os.path.dirname(os.path.dirname(os.path.abspath(doorbell.__file__)))}

    @staticmethod
    def tool(name):
        """The tool, from the folder TYPES_TOOLS or from PATH."""
        return shutil.which(name, path=os.pathsep.join(filter(None, (os.environ.get("TYPES_TOOLS"), os.environ.get("PATH")))))

    def test_the_program_uses_every_public_name(self):
        with open(self.program) as file:
            text = file.read()
        self.assertEqual([name for name in [*doorbell.__all__, "open"] if f"doorbell.{name}" not in text], [])

    def test_mypy_passes_a_program_that_uses_the_api(self):
        mypy = self.tool("mypy")
        if mypy is None:
            self.skipTest("no mypy")
        with tempfile.TemporaryDirectory() as folder:
            wrong = os.path.join(folder, "wrong.py")
            with open(wrong, "w") as file:
                file.write('import doorbell\ndoorbell.opne()\ndoorbell.allocate(8, "disk")\ndoorbell.Session(kind="other")\ndoorbell.open(lane=4)\n'
                           "doorbell.current().opne()\n")
            out = subprocess.run([mypy, "--strict", "--follow-imports=silent", "--cache-dir=/dev/null", "--no-error-summary", self.program, wrong],
                                 capture_output=True, text=True, env=self.environment)
        errors = [line.split(":")[:2] for line in out.stdout.splitlines() if ": error:" in line]
        self.assertEqual(errors, [[wrong, str(line)] for line in range(2, 7)], out.stdout + out.stderr)

    def test_pyright_passes_a_program_that_uses_the_api(self):
        pyright = self.tool("pyright")
        if pyright is None:
            self.skipTest("no pyright")
        out = subprocess.run([pyright, "--pythonpath", sys.executable, self.program], capture_output=True, text=True,
                             env={**self.environment, "PYTHONPATH": self.environment["MYPYPATH"]})
        if "0 errors" not in out.stdout and " error" not in out.stdout:
            self.skipTest(f"pyright does not run here: {(out.stdout + out.stderr)[-200:]!r}")
        self.assertIn("0 errors", out.stdout, out.stdout)


if __name__ == "__main__":
    unittest.main()

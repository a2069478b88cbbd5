"""On the software GPU: LD_PRELOAD=libdoorbell_softgpu.so DOORBELL_LIB=libdoorbell.so python -m unittest. Skips say why."""

import array
import asyncio
import ctypes
import gc
import os
import struct
import subprocess
import sys
import threading
import time
import unittest

import doorbell
from doorbell import _memory, _session, _ticket
from test_objects import held_back

try:
    import numpy
except ImportError:
    numpy = None


class Array:
    """What CuPy, PyTorch and Numba show."""

    def __init__(self, pointer, shape, typestr, strides=None, readonly=False):
        self.__cuda_array_interface__ = {
            "data": (pointer, readonly), "shape": shape, "typestr": typestr, "strides": strides, "version": 3}


class Where(unittest.TestCase):
    """Which memory an object has."""

    def found(self, thing):
        memory = _memory.memory_of(thing)
        return memory.pointer, memory.bytes, memory.readonly

    def test_cuda_arrays(self):
        self.assertEqual(self.found(Array(0x7000, (3, 4), "<f4")), (0x7000, 48, False))
        self.assertEqual(self.found(Array(0x7000, (3, 4), "<f8", (32, 8), True)), (0x7000, 96, True))
        self.assertEqual(self.found(Array(0x7000, (1, 4), "<f8", (999, 8))), (0x7000, 32, False))
        for strides in ((8, 24), (64, 8), (32, 16)):
            with self.assertRaisesRegex(ValueError, "contiguous"):
                self.found(Array(0x7000, (3, 4), "<f8", strides))
        with self.assertRaisesRegex(ValueError, "no bytes"):
            self.found(Array(0, (0, 4), "<f8"))

    def test_what_the_cpu_reads_is_not_in_the_gpus_memory(self):
        class OnGpu:
            __cuda_array_interface__ = {"shape": (4,), "typestr": "<f4", "data": (0x7000, False), "strides": None, "version": 3}

        with self.assertRaisesRegex(TypeError, "this OnGpu is in the GPU's memory"):
            doorbell._memory.host_memory_of(OnGpu())
        self.assertEqual(doorbell._memory.host_memory_of(b"1234").bytes, 4)

    def test_buffers(self):
        block = bytearray(100)
        at = ctypes.addressof(ctypes.c_char.from_buffer(block))
        self.assertEqual(self.found(block), (at, 100, False))
        self.assertEqual(self.found(memoryview(block)[10:20]), (at + 10, 10, False))
        self.assertTrue(self.found(bytes(8))[2])
        self.assertEqual(self.found(array.array("d", [1, 2]))[1], 16)
        with self.assertRaisesRegex(ValueError, "contiguous"):
            self.found(memoryview(block)[::2])
        # A buffer that is held is not resized.
        memory = _memory.memory_of(block)
        with self.assertRaises(BufferError):
            block.append(1)
        del memory
        with self.assertRaises(TypeError):
            self.found(7)

    def test_tensors_hold_their_storage(self):
        class Tensor:
            def data_ptr(self):
                return 0x9000

            def untyped_storage(self):
                return "the storage"

            def is_contiguous(self):
                return contiguous

            def numel(self):
                return 10

            def element_size(self):
                return 2

        contiguous = True
        tensor = Tensor()
        memory = _memory.memory_of(tensor)
        self.assertEqual((memory.pointer, memory.bytes, memory.keep), (0x9000, 20, (tensor, "the storage")))
        contiguous = False
        with self.assertRaisesRegex(ValueError, "contiguous"):
            _memory.memory_of(tensor)

    @unittest.skipIf(numpy is None, "no numpy")
    def test_numpy_and_dlpack(self):
        block = numpy.arange(12, dtype=numpy.float32).reshape(3, 4)
        self.assertEqual(self.found(block), (block.ctypes.data, 48, False))

        class Only:
            def __init__(self, of):
                self.of = of

            def __dlpack__(self, **_):
                return self.of.__dlpack__()

        self.assertEqual(self.found(Only(block)), (block.ctypes.data, 48, False))
        self.assertEqual(self.found(Only(block[1:])), (block.ctypes.data + 16, 32, False))
        for wrong in (block[:, 1:], Only(block.T)):
            with self.assertRaisesRegex(ValueError, "contiguous"):
                self.found(wrong)


class OnTheSoftwareGpu(unittest.TestCase):
    def setUp(self):
        doorbell.open(kind="soft", lanes=4)

    def tearDown(self):
        doorbell.close()

    @staticmethod
    def late(host):
        return held_back(doorbell.current(), host)

    def test_every_way_of_copying(self):
        host, gpu, back = doorbell.allocate(4096), doorbell.allocate(4096, "gpu"), doorbell.allocate(4096)
        host.view[:] = os.urandom(4096)
        self.assertIs(doorbell.copy_(gpu, host), gpu)
        doorbell.copy_async(back, gpu).wait(10)
        self.assertEqual(back.view, host.view)
        transfer = doorbell.prepare(gpu, host, 100, dst_offset=7, src_offset=1)
        for _ in range(50):
            host.view[:] = os.urandom(4096)
            ticket = transfer.submit()
            ticket.wait()
            self.assertTrue(ticket.done() and ticket.left() == 0)
            self.assertEqual(gpu.view[7:107], host.view[1:101])
        words = doorbell.prepare_bytes(gpu, 56, dst_offset=1000)
        words.submit(bytes(range(56))).wait()
        self.assertEqual(bytes(gpu.view[1000:1056]), bytes(range(56)))
        doorbell.copy_batch((back, n * 64, gpu, (63 - n) * 64, 64) for n in range(64)).wait()
        self.assertEqual(bytes(back.view[:64]), bytes(gpu.view[63 * 64:]))

    def test_pages_by_their_numbers(self):
        host, gpu, back = doorbell.allocate(64 * 100), doorbell.allocate(2 * 64 * 100, "gpu"), doorbell.allocate(64 * 100)
        host.view[:] = os.urandom(6400)
        out, home = [(n * 7 + 3) % 100 for n in range(90)], list(range(90))
        doorbell.copy_pages(gpu, home, host, out, nbytes=64).wait()
        for kind in (list, lambda index: array.array("q", index), lambda index: array.array("I", index), lambda index: memoryview(array.array("i", index))):
            back.view[:] = bytes(6400)
            doorbell.copy_pages(back, kind(out), gpu, home if kind is list else array.array("Q", home), nbytes=64).wait()
            for n in out:
                self.assertEqual(back.view[64 * n:64 * n + 64], host.view[64 * n:64 * n + 64])
        # Two layers.
        layers, others = [doorbell.allocate(640) for _ in range(2)], [doorbell.allocate(640, "gpu") for _ in range(2)]
        for layer in layers:
            layer.view[:] = os.urandom(640)
        doorbell.copy_pages(others, [9, 0], layers, [1, 2], nbytes=64).wait()
        for layer, other in zip(layers, others):
            self.assertEqual((other.view[576:], other.view[:64]), (layer.view[64:128], layer.view[128:192]))
        before = bytes(gpu.view)
        for wrong, error in [(lambda: doorbell.copy_pages(gpu, [0, 5, 0], host, [1, 2, 3], nbytes=64), "named twice"),
                             (lambda: doorbell.copy_pages(gpu, [0, 200], host, [1, 2], nbytes=64), "do not lie within"),
                             (lambda: doorbell.copy_pages(gpu, [0], host, [100], nbytes=64), "do not lie within"),
                             (lambda: doorbell.copy_pages(gpu, [0], host, array.array("q", [-1]), nbytes=64), "do not lie within"),
                             (lambda: doorbell.copy_pages(gpu, [0], host, [-1], nbytes=64), "not negative"),
                             (lambda: doorbell.copy_pages(gpu, [0, 1], host, [1], nbytes=64), "as many numbers"),
                             (lambda: doorbell.copy_pages([gpu], [0], [host, host], [1], nbytes=64), "as many of each"),
                             (lambda: doorbell.copy_pages(gpu, [0], host, [1]), "nbytes"),
                             (lambda: doorbell.copy_pages(gpu, array.array("d", [0]), host, [1], nbytes=64), "4 or 8 bytes"),
                             (lambda: doorbell.copy_pages(gpu, [], host, [], nbytes=64, stream=doorbell.NOW), "empty")]:
            with self.assertRaisesRegex((doorbell.DoorbellError, ValueError, TypeError), error):
                wrong()
        self.assertEqual(bytes(gpu.view), before)

    def test_a_ring(self):
        camera, gpu = doorbell.allocate(4 * 1024), doorbell.allocate(4 * 1024, "gpu")
        ring = doorbell.ring(gpu, camera, 1024)
        for n in range(20):
            frame = ring.next()
            self.assertEqual((frame.index, frame.offset), (n % 4, n % 4 * 1024))
            frame.view[:] = bytes([n]) * 1024
            ring.submit().wait()
            self.assertEqual(bytes(gpu.view[frame.offset:frame.offset + 1024]), bytes([n]) * 1024)

    def test_each_form_waits_for_a_ticket(self):
        host, gpu = doorbell.allocate(4096), doorbell.allocate(8192, "gpu")
        transfer, given, ring = doorbell.prepare(gpu, host, 64), doorbell.prepare_bytes(gpu, 8, dst_offset=128), doorbell.ring(gpu, host, 1024, dst_offset=1024)
        ring.next()
        forms = [lambda after: transfer.submit(after=after), lambda after: given.submit(b"12345678", after=after),
                 lambda after: ring.submit(after=after), lambda after: doorbell.copy_async(gpu, host, 8, dst_offset=512, after=after),
                 lambda after: doorbell.copy_batch([(gpu, 600, host, 0, 8)], after=after)]
        for form in forms:
            host.view[0] = 0
            late = self.late(host)
            other = doorbell.copy_async(host, gpu, 8, dst_offset=64)
            behind = form([late, other])
            time.sleep(0.002)
            self.assertFalse(behind.done())
            host.view[0] = 1
            behind.wait(10)
            self.assertTrue(late.done() and other.done())

    def test_a_queue_gives_what_is_done_in_order(self):
        host, gpu = doorbell.allocate(4096), doorbell.allocate(4096, "gpu")
        with doorbell.queue(4) as queue:
            self.assertEqual(queue.wait(0.001), [])
            late = self.late(host)
            queue.add(late, "late")
            self.assertEqual(queue.poll(), [])
            host.view[0] = 1
            tickets = [doorbell.copy_async(gpu, host, 64) for _ in range(3)]
            for n, ticket in enumerate(tickets):
                queue.add(ticket, n)
            with self.assertRaises(doorbell.Full):
                queue.add(tickets[0])
            taken = []
            while len(queue):
                taken += queue.wait(10)
            self.assertEqual([one.user for one in taken if one.user != "late"], [0, 1, 2])
            self.assertIn("late", [one.user for one in taken])
            self.assertTrue(all(one.error is None and one.ticket.done() for one in taken))
            self.assertGreaterEqual(queue.fileno(), 0)

    def test_tickets_are_awaited(self):
        host, gpu = doorbell.allocate(4096), doorbell.allocate(4096, "gpu")

        async def copies():
            late = self.late(host)
            given_up = asyncio.ensure_future(_awaited(self.late(host)))
            ticks = 0

            async def others():
                nonlocal ticks
                while ticks < 20:
                    await asyncio.sleep(0.001)
                    ticks += 1
                given_up.cancel()
                host.view[0] = 1

            await asyncio.gather(late_and(late), others())
            self.assertEqual(ticks, 20)
            await asyncio.gather(*(_awaited(doorbell.copy_async(gpu, host, 64)) for _ in range(30)))

        async def _awaited(ticket):
            await ticket

        async def late_and(ticket):
            await ticket
            self.assertTrue(ticket.done())

        for _ in range(2):
            host.view[0] = 0
            asyncio.run(copies())

    def test_two_sessions_share_nothing(self):
        host = doorbell.allocate(64)
        with doorbell.Session(kind="soft", lanes=2) as second:
            other, gpu = second.allocate(64), second.allocate(64, "gpu")
            other.view[:] = os.urandom(64)
            second.copy_(gpu, other)
            self.assertEqual(gpu.view, other.view)
            with self.assertRaises(doorbell.InvalidHandle):
                doorbell.copy_async(host, other)
            held = self.late(host)
            # A lane that waits in one session holds up nothing in the other.
            second.copy_async(other, gpu, 32).wait(10)
            self.assertFalse(held.done())
            host.view[0] = 1
            held.wait(10)
            self.assertIs(doorbell.current().at.value == second.at.value, False)
        with self.assertRaises(doorbell.Closed):
            second.allocate(64)
        self.assertEqual(len(host.view), 64)

    def test_messages(self):
        """The program plays the kernel: it answers with each byte inverted."""
        mailbox, answers = doorbell.allocate(128, "gpu"), doorbell.allocate(128)
        message = doorbell.message(mailbox, answers, mailbox_offset=64, answers_offset=64)

        def lines(view):
            return struct.unpack("<16I", view[64:128])

        def total(words):
            return sum(word * (2 * i + 1) * 0x9e3779b1 for i, word in enumerate(words)) & 0xffffffff

        def kernel():
            seen = 0
            while seen < 20:
                words = lines(mailbox.view)
                if words[14] == seen or total(words[:15]) != words[15]:
                    continue
                seen = words[14]
                answer = [~word & 0xffffffff for word in words[:14]] + [seen]
                answers.view[64:128] = struct.pack("<16I", *answer, total(answer))

        with self.assertRaises(doorbell.Timeout):
            message.wait(1, 0.001)
        thread = threading.Thread(target=kernel, daemon=True)
        thread.start()
        for number in range(1, 21):
            data = os.urandom(56 if number > 1 else 3)
            self.assertEqual(message.send(data), number)
            answer = message.wait(number, 20)
            self.assertEqual(bytes(~byte & 0xff for byte in answer), data.ljust(56, b"\0"))
        thread.join()
        self.assertEqual(bytes(mailbox.view[:64]), bytes(64))
        for wrong in (lambda: message.send(bytes(57)), lambda: doorbell.message(answers, answers)):
            with self.assertRaises(doorbell.DoorbellError):
                wrong()
        message.close()
        with self.assertRaises(doorbell.InvalidHandle):
            message.send(b"1")

    def test_errors_are_classes(self):
        host = doorbell.allocate(64)
        with self.assertRaises(doorbell.DoorbellError):
            doorbell.open(kind="soft")
        for wrong, error in [
            (lambda: doorbell.copy_(host, host, 65), doorbell.OutOfRange),
            (lambda: doorbell.copy_(host, host, 8, src_offset=-1), doorbell.OutOfRange),
            (lambda: doorbell.copy_(host, doorbell.allocate(32)), ValueError),
            (lambda: doorbell.pin(bytearray(64)), doorbell.Unavailable),
            (lambda: doorbell.pin(7), TypeError),
            (lambda: doorbell.allocate(64, "disk"), ValueError),
            (lambda: doorbell.Session(kind="other"), ValueError),
            (lambda: doorbell.copy_batch([]), doorbell.DoorbellError),
        ]:
            with self.assertRaises(error):
                wrong()
        transfer = doorbell.prepare(host, host, 8, dst_offset=32)
        host.close()
        host.close()
        with self.assertRaises(doorbell.Freed):
            transfer.submit()
        with self.assertRaises(doorbell.InvalidHandle):
            doorbell.copy_(host, host, 8)
        doorbell.close()
        with self.assertRaises(doorbell.Closed):
            doorbell.allocate(64)
        transfer.__del__()

    def test_streams_need_cuda(self):
        class Stream:
            cuda_stream = 0x70

        host = doorbell.allocate(64)
        self.assertEqual([_ticket.stream_of(s) for s in (Stream(), 7, None)], [0x70, 7, None])
        for other in (host, doorbell.prepare(host, host, 8, dst_offset=32), doorbell.copy_async(host, host, 8, dst_offset=32)):
            with self.assertRaisesRegex(TypeError, "no CUDA stream"):
                _ticket.stream_of(other)
        with self.assertRaises(doorbell.Unavailable):
            doorbell.copy_batch([(host, 0, host, 32, 8)], after=Stream())
        ticket = doorbell.copy_async(host, host, 8, dst_offset=32)
        ticket.wait()
        with self.assertRaises(doorbell.Unavailable):
            ticket.hold(None)

    def test_a_transfer_holds_its_buffers(self):
        gpu = doorbell.allocate(64, "gpu")
        transfer = doorbell.prepare(gpu, doorbell.allocate(64))
        gc.collect()
        transfer.submit().wait()

    def test_threads(self):
        wrong = []

        def work(number):
            try:
                host, gpu = doorbell.allocate(512), doorbell.allocate(256, "gpu")
                for n in range(20):
                    host.view[:256] = os.urandom(256)
                    doorbell.copy_(gpu, host, 256)
                    doorbell.copy_(host, gpu, 256, dst_offset=256)
                    if host.view[:256] != host.view[256:]:
                        wrong.append((number, n))
            except Exception as error:
                wrong.append(error)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_threads_share_a_queue_a_transfer_and_buffers(self):
        host, gpu = doorbell.allocate(64), doorbell.allocate(64, "gpu")
        transfer, queue, wrong, taken = doorbell.prepare(gpu, host), doorbell.queue(1024), [], []
        extra = [doorbell.allocate(64) for _ in range(50)]

        def work(number):
            added = 0
            try:
                for n in range(200):
                    try:
                        queue.add(transfer.submit(), (number, n))
                        added += 1
                    except (doorbell.Busy, doorbell.Full):
                        pass  # Its lane has another thread just now, or no room.
                    taken.extend(done.user for done in queue.poll())
                    if n < len(extra):
                        try:
                            extra[n].close()
                        except doorbell.InvalidHandle:
                            pass
            except Exception as error:
                wrong.append(error)
            counts.append(added)

        counts, threads = [], [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        while len(queue):
            taken.extend(done.user for done in queue.wait(10))
        self.assertEqual(wrong, [])
        self.assertEqual((len(taken), len(set(taken))), (sum(counts), sum(counts)))

    def test_threads_let_go_of_the_same_dropped_copies(self):
        host, session, wrong = doorbell.allocate(64), doorbell.current(), []
        done = doorbell.copy_async(host, host, 8, dst_offset=8)
        done.wait()

        def work():
            try:
                for _ in range(50):
                    session.dropped.extend((done, object()) for _ in range(20))
                    session._let_go()
            except Exception as error:
                wrong.append(error)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        session._let_go()
        self.assertEqual((wrong, session.dropped), ([], []))

    @unittest.skipUnless(getattr(sys, "_is_gil_enabled", lambda: True)(), "this Python has no GIL")
    def test_who_has_the_gil(self):
        host, gpu, stop, turns = doorbell.allocate(64), doorbell.allocate(64, "gpu"), [], [0]
        transfer, late = doorbell.prepare(gpu, host), self.late(host)

        def other():
            while not stop:
                turns[0] += 1
                time.sleep(0)

        # Nobody is made to let go of the GIL: the other thread runs when this one lets go by itself.
        interval, thread = sys.getswitchinterval(), threading.Thread(target=other)
        sys.setswitchinterval(100)
        try:
            thread.start()
            while turns[0] == 0:
                time.sleep(0.001)
            before = turns[0]
            for _ in range(300):
                late.done()
                late.left()
                try:
                    transfer.submit()
                except doorbell.Full:
                    pass
            self.assertEqual(turns[0], before)
            # A wait lets go of it, but not at once.
            with self.assertRaises(doorbell.Timeout):
                late.wait(40e-6)
            self.assertEqual(turns[0], before)
            for _ in range(1000):
                with self.assertRaises(doorbell.Timeout):
                    late.wait(0.005)
                if turns[0] > before:
                    break
            self.assertGreater(turns[0], before)
        finally:
            stop.append(True)
            sys.setswitchinterval(interval)
            thread.join()
            host.view[0] = 1

    def test_submissions_that_ask_cuda_let_go_of_the_gil(self):
        self.assertIs(doorbell.current().submits, doorbell._library.held)
        doorbell.close()
        doorbell.open(kind="soft", lanes=1, check_allocations=True)
        self.assertIs(doorbell.current().submits, doorbell._library.library)
        host, gpu = doorbell.allocate(64), doorbell.allocate(64, "gpu")
        host.view[:] = os.urandom(64)
        transfer, given = doorbell.prepare(gpu, host), doorbell.prepare_bytes(gpu, 8)
        transfer.submit().wait()
        doorbell.copy_async(host, gpu, 32, src_offset=32).wait()
        self.assertEqual(host.view[:32], host.view[32:])
        given.submit(b"12345678").wait()
        doorbell.copy_(host, gpu)
        self.assertEqual(bytes(host.view[:8]), b"12345678")

    def test_a_wait_that_takes_longer(self):
        host = doorbell.allocate(64)
        late = self.late(host)
        for timeout in (0, 1e-5, 2e-3):
            with self.assertRaises(doorbell.Timeout):
                late.wait(timeout)
        self.assertFalse(late.done())
        threading.Timer(0.02, lambda: host.view.__setitem__(0, 1)).start()
        late.wait(10)
        self.assertTrue(late.done())

    def test_a_forked_child(self):
        host = doorbell.allocate(64)
        child = os.fork()
        if child == 0:
            try:
                doorbell.copy_(host, host, 8, dst_offset=8)
            except doorbell.Forked:
                os._exit(0)
            os._exit(1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_a_forked_child_drops_what_it_inherited_without_a_word(self):
        transfer = doorbell.prepare(doorbell.allocate(64, "gpu"), doorbell.allocate(64))
        child = os.fork()
        if child == 0:
            said = []
            sys.unraisablehook = said.append
            del transfer
            gc.collect()
            os._exit(len(said))
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        transfer.submit().wait()

    @unittest.skipIf(numpy is None, "no numpy")
    def test_numpy_looks_at_host_memory(self):
        host, gpu = doorbell.allocate(4096), doorbell.allocate(4096, "gpu")
        numbers = numpy.asarray(host).view(numpy.float32)
        numbers[:] = numpy.arange(1024)
        doorbell.copy_(gpu, host)
        self.assertEqual(numpy.frombuffer(gpu.view, numpy.float32).tolist(), list(range(1024)))
        self.assertFalse(hasattr(gpu, "__array_interface__") or hasattr(host, "__cuda_array_interface__"))

    def test_the_log(self):
        doorbell.close()
        said = []
        with doorbell.session(kind="soft", log=said.append):
            pass
        self.assertTrue(any("no profile" in text for text in said) and "closed" in said, said)


class Recording(unittest.TestCase):
    def test_a_program_that_runs_cannot_begin(self):
        self.assertFalse(doorbell.recording())
        with self.assertRaisesRegex(doorbell.Unavailable, "doorbell record -o x.doorbell -- "):
            with doorbell.record("x.doorbell"):
                self.fail("it was let in")

    def test_pauses_of_a_program_that_is_not_recorded_are_none(self):
        self.assertFalse(doorbell.pause() or doorbell.resume())


class Finding(unittest.TestCase):
    def test_a_star_leaves_pythons_own_names(self):
        found = {}
        exec("from doorbell import *", found)
        import builtins
        self.assertEqual([name for name in found if hasattr(builtins, name) and not name.startswith("__")], [])
        self.assertIs(found["pin"], doorbell.pin)

    def test_the_error_says_where_the_library_is_looked_for(self):
        out = subprocess.run([sys.executable, "-c", "import doorbell; doorbell.open()"], capture_output=True, text=True,
                             env={**os.environ, "DOORBELL_LIB": "/nowhere/libdoorbell.so", "LD_PRELOAD": ""})
        self.assertIn("DOORBELL_LIB", out.stderr)
        self.assertIn("/nowhere/libdoorbell.so", out.stderr)

    def test_versions(self):
        self.assertEqual(len(doorbell.version()), 3)
        self.assertIs(_session.library, doorbell._library.library)


def load_tests(loader, tests, _):
    tests.addTests(loader.loadTestsFromName("test_objects"))
    return tests


if __name__ == "__main__":
    unittest.main()

"""Beside CUDA, or a libcuda in software: what CUDA frees, streams, and errors by their classes. Skipped without libcuda."""

import ctypes
import os
import struct
import time
import unittest

try:
    cuda = ctypes.CDLL("libcuda.so.1")
except OSError:
    cuda = None
# Looked up before doorbell sees CUDA's calls: nobody sees what is freed through it.
unseen_free = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64)(("cuMemFree_v2", cuda)) if cuda else None

import doorbell
from test_objects import held_back

STORE = b""".version 6.0
.target sm_70
.address_size 64
.visible .entry store(.param .u64 word, .param .u32 value)
{
    .reg .b64 %word;
    .reg .b32 %value;
    ld.param.u64 %word, [word];
    ld.param.u32 %value, [value];
    st.global.u32 [%word], %value;
    ret;
}
"""


def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code:
        raise RuntimeError(f"{name}: {code}")


class Device:
    """cuMemAlloc's memory."""

    def __init__(self, nbytes):
        at = ctypes.c_uint64()
        call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(nbytes))
        self.at = at.value
        self.__cuda_array_interface__ = {"shape": (nbytes,), "typestr": "|u1", "data": (self.at, False), "version": 3}

    def read(self, nbytes):
        data = ctypes.create_string_buffer(nbytes)
        call("cuMemcpyDtoH_v2", data, ctypes.c_uint64(self.at), ctypes.c_size_t(nbytes))
        return data.raw

    def free(self):
        call("cuMemFree_v2", ctypes.c_uint64(self.at))


@unittest.skipUnless(cuda, "no libcuda")
class BesideCuda(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        context = ctypes.c_void_p()
        call("cuInit", 0)
        call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        call("cuCtxSetCurrent", context)

    def used(self, **options):
        """An open session with a buffer of CUDA's, a transfer to it that was submitted once, and the source."""
        doorbell.open(kind="cuda", lanes=1, profile=False, **options)
        self.addCleanup(doorbell.close)
        device, host = Device(4096), doorbell.allocate(4096)
        pinned = doorbell.pin(device)
        transfer = doorbell.prepare(pinned, host, 64)
        host.view[:] = os.urandom(4096)
        transfer.submit().wait(10)
        self.assertEqual(device.read(64), bytes(host.view[:64]))
        return device, pinned, transfer, host

    def gone(self, pinned, transfer, host):
        for use in (transfer.submit, lambda: doorbell.copy_(pinned, host, 64), lambda: doorbell.copy_async(pinned, host, 64),
                    lambda: doorbell.prepare(pinned, host, 64)):
            with self.assertRaises(doorbell.Freed):
                use()

    def test_what_cuda_frees(self):
        device, *rest = self.used()
        device.free()
        self.gone(*rest)

    def test_what_is_freed_unseen_is_found_where_each_submission_asks(self):
        device, *rest = self.used(check_allocations=True)
        self.assertEqual(unseen_free(device.at), 0)
        next_owner = Device(4096)
        self.assertEqual(next_owner.at, device.at)
        self.gone(*rest)
        next_owner.free()

    def test_what_is_freed_unseen_goes_to_the_next_owner_otherwise(self):
        device, pinned, transfer, host = self.used()
        self.assertEqual(unseen_free(device.at), 0)
        next_owner = Device(4096)
        transfer.submit().wait(10)
        self.assertEqual(next_owner.read(64), bytes(host.view[:64]))
        next_owner.free()

    def test_a_ticket_that_is_dropped_does_not_end_its_copy(self):
        """What was pinned for the copy alone stays pinned until it is done: to unpin it would wait a second, and then stop the lane."""
        doorbell.open(kind="cuda", lanes=1, profile=False)
        self.addCleanup(doorbell.close)
        device, word, source = Device(4096), doorbell.allocate(64), doorbell.allocate(4096)
        source.view[:8] = b"dropped!"
        late = held_back(doorbell.current(), word)
        start = time.monotonic()
        doorbell.copy_async(device, source, 8)
        self.assertLess(time.monotonic() - start, 0.5)
        self.assertEqual(len(doorbell.current().dropped), 1)
        word.view[0] = 1
        late.wait(10)
        while doorbell.current().dropped and time.monotonic() - start < 10:
            doorbell.copy_async(source, word, 8, dst_offset=64).wait()
        self.assertEqual(doorbell.current().dropped, [])
        self.assertEqual(device.read(8), b"dropped!")
        device.free()

    def test_copies_and_streams_wait_for_each_other(self):
        device, pinned, _, host = self.used()
        stream, word = ctypes.c_void_p(), doorbell.allocate(64)
        call("cuStreamCreate", ctypes.byref(stream), 1)
        for _ in range(20):
            data = os.urandom(64)
            source = ctypes.create_string_buffer(data, 64)
            back = ctypes.create_string_buffer(64)
            call("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(device.at), source, ctypes.c_size_t(64), stream)
            ticket = doorbell.copy_batch([(host, 128, pinned, 0, 64), (host, 256, pinned, 0, 32)], after=stream.value)
            ticket.hold(stream.value)
            call("cuMemcpyDtoHAsync_v2", back, ctypes.c_uint64(host.pointer + 128), ctypes.c_size_t(64), stream)
            call("cuStreamSynchronize", stream)
            self.assertEqual(back.raw, data)
            self.assertTrue(ticket.done())

    def looped(self):
        """A chain that takes a word in, and gives it back plus 1."""
        device, *_ = self.used()
        stream, executable = self.captured(device.at)
        camera, result = doorbell.allocate(64), doorbell.allocate(64)
        step = doorbell.graph(executable, stream)
        chain = doorbell.chain([(doorbell.pin(device), 8, camera, 0, 8), step, (result, 0, doorbell.pin(device), 0, 16)])
        return chain, camera, result

    def test_a_loop_gives_each_frame_its_result(self):
        chain, camera, result = self.looped()
        with doorbell.loop(chain, source=(camera, 0, 8), sink=(result, 0, 16), slots=4, results=8) as loop:
            for n in range(200):
                self.assertEqual(loop.put(struct.pack("Q", 1000 + n), sequence=n, tag=7), n)
                found = loop.wait(10)
                self.assertEqual((found.frame, found.sequence, found.tag, found.refused), (n, n, 7, False))
                self.assertEqual(struct.unpack("I4xQ", found.data), (5, 1000 + n))
                self.assertLessEqual(found.put, found.done)
            said = loop.statistics()
            self.assertEqual((said.frames, said.skipped, said.running), (200, 0, True))
            self.assertGreater(said.done_max, 0)
            with self.assertRaises(doorbell.Timeout):
                loop.wait(0.01)
            for wrong in (7, 9):
                with self.assertRaisesRegex(ValueError, f"an input of {wrong} bytes for a source of 8"):
                    loop.put(bytes(wrong))
            self.assertGreaterEqual(loop.fileno(), 0)
            self.assertFalse(loop.stop().running)
            self.assertIsNone(loop.wait(1))
        with self.assertRaises(TypeError):
            doorbell.loop(chain, source=(bytearray(8), 0, 8))

    def test_a_loop_has_ticks_and_ends_with_its_session(self):
        chain, camera, result = self.looped()
        loop = doorbell.loop(chain, period=0.002, sink=(result, 0, 16))
        last = -1
        for _, found in zip(range(10), loop):
            # (A tick that is over is missed.)
            self.assertGreater(found.frame, last)
            last = found.frame
            self.assertEqual(struct.unpack("I12x", found.data), (5,))
        doorbell.close()
        with self.assertRaises(doorbell.Closed):
            doorbell.allocate(8)
        loop.__del__()
        doorbell.open(kind="cuda", lanes=1)

    def test_each_form_waits_for_a_stream_and_an_event(self):
        device, pinned, transfer, host = self.used()
        stream, event = ctypes.c_void_p(), ctypes.c_void_p()
        call("cuStreamCreate", ctypes.byref(stream), 1)
        call("cuEventCreate", ctypes.byref(event), 0)

        class Event:
            cuda_event = None

            def record(self):
                call("cuEventRecord", event, stream)
                self.cuda_event = event.value

            def synchronize(self):
                call("cuEventSynchronize", event)

        gate, wait = ctypes.c_void_p(), ctypes.CDLL("libcuda.so.1").cuStreamWaitValue32_v2
        call("cuMemHostAlloc", ctypes.byref(gate), ctypes.c_size_t(64), 0)
        word = ctypes.c_uint32.from_address(gate.value)
        given, ring = doorbell.prepare_bytes(host, 8, dst_offset=8), doorbell.ring(host, host, 64, 2, dst_offset=1024, src_offset=2048)
        ring.next()
        recorded = Event()
        with self.assertRaisesRegex(ValueError, "not recorded"):
            transfer.submit(after=recorded)
        for number, form in enumerate([
                lambda after: transfer.submit(after=after), lambda after: given.submit(b"12345678", after=after),
                lambda after: ring.submit(after=after), lambda after: doorbell.copy_async(host, pinned, 8, after=after)], 1):
            for behind in (stream.value, recorded):
                self.assertEqual(wait(stream, ctypes.c_uint64(gate.value), number, 0), 0)
                recorded.record()
                if behind is recorded and number == 3:
                    ring.next()
                ticket = form(behind)
                time.sleep(0.002)
                self.assertFalse(ticket.done())
                word.value = number
                ticket.wait(10)
                word.value = 0
        call("cuStreamSynchronize", stream)

    def test_a_second_open_a_closed_session_and_a_forked_child(self):
        device, pinned, transfer, host = self.used()
        with self.assertRaisesRegex(doorbell.DoorbellError, "open already"):
            doorbell.open(kind="cuda")
        child = os.fork()
        if child == 0:
            wrong = 0
            for use in (transfer.submit, lambda: doorbell.copy_(pinned, host, 64), lambda: doorbell.allocate(64), doorbell.close,
                        lambda: doorbell.open(kind="cuda"), lambda: doorbell.pin(device)):
                try:
                    use()
                    wrong += 1
                except doorbell.Forked:
                    pass
                except BaseException:
                    wrong += 1
            os._exit(wrong)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        doorbell.close()
        for use in (transfer.submit, lambda: doorbell.copy_(pinned, host, 64), lambda: doorbell.allocate(64)):
            with self.assertRaises(doorbell.Closed):
                use()
        doorbell.open(kind="cuda", lanes=1)
        # Of another session.
        with self.assertRaises((doorbell.Closed, doorbell.InvalidHandle)):
            transfer.submit()

    def captured(self, word):
        """A stream, and an executable graph of one kernel that stores 5 in a word."""
        stream, module, function, graph, executable = (ctypes.c_void_p() for _ in range(5))
        call("cuStreamCreate", ctypes.byref(stream), 1)
        call("cuModuleLoadData", ctypes.byref(module), STORE)
        call("cuModuleGetFunction", ctypes.byref(function), module, b"store")
        arguments = ctypes.c_uint64(word), ctypes.c_uint32(5)
        pointers = (ctypes.c_void_p * 2)(*(ctypes.addressof(argument) for argument in arguments))
        call("cuStreamBeginCapture_v2", stream, 1)
        call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, stream, pointers, None)
        call("cuStreamEndCapture", stream, ctypes.byref(graph))
        call("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_uint64(0))
        return stream.value, executable.value

    def test_a_kernel_is_launched_by_its_number(self):
        device, *_ = self.used()
        stream, module, function = (ctypes.c_void_p() for _ in range(3))
        call("cuStreamCreate", ctypes.byref(stream), 1)
        call("cuModuleLoadData", ctypes.byref(module), STORE)
        call("cuModuleGetFunction", ctypes.byref(function), module, b"store")
        arguments = [ctypes.c_uint64(device.at), ctypes.c_uint32(5)]
        with self.assertRaises(ValueError):
            doorbell.kernel(function.value, (), 1, arguments, stream.value)
        with doorbell.kernel(function.value, 1, (1, 1), arguments, stream.value) as kernel:
            self.assertEqual((device.read(4), kernel.kernels), (struct.pack("I", 5), [12]))
            kernel.set_param(0, 8, struct.pack("I", 78))
            kernel.replay().wait(10)
            self.assertEqual(device.read(4), struct.pack("I", 78))

    def test_a_graph_is_launched_by_torchs_object_or_by_its_number(self):
        device, *_ = self.used()

        class Torchs:
            def __init__(self, executable):
                self.executable = executable

            def raw_cuda_graph_exec(self):
                return self.executable

        class Stream:
            def __init__(self, number):
                self.cuda_stream = number

        for wrap in (Torchs, int):
            stream, executable = self.captured(device.at)
            graph = doorbell.graph(wrap(executable), stream=Stream(stream))
            self.assertEqual((device.read(4), graph.kernels), (struct.pack("I", 5), [12]))
            graph.wait()  # Nothing was launched.
            graph.set_param(0, 8, struct.pack("I", 77))
            ticket = graph.replay()
            graph.wait(10)
            self.assertTrue(ticket.done())
            self.assertEqual(device.read(4), struct.pack("I", 77))
            # Behind the stream's own store, and before the stream looks.
            back = ctypes.create_string_buffer(4)
            call("cuMemsetD32Async", ctypes.c_uint64(device.at), 1, ctypes.c_size_t(1), ctypes.c_void_p(stream))
            graph.replay(after=stream).hold(stream)
            call("cuMemcpyDtoHAsync_v2", back, ctypes.c_uint64(device.at), ctypes.c_size_t(4), ctypes.c_void_p(stream))
            call("cuStreamSynchronize", ctypes.c_void_p(stream))
            self.assertEqual(back.raw, struct.pack("I", 77))
            own = doorbell.allocate(64)
            graph.set_pointer(0, 0, own, thing_offset=8)
            graph.replay().wait(10)
            self.assertEqual(bytes(own.view[8:12]), struct.pack("I", 77))
            graph.set_pointer(0, 0, device, thing_offset=0)
            with self.assertRaises(doorbell.OutOfRange):
                graph.set_pointer(0, 0, own, thing_offset=64)
            with self.assertRaises(doorbell.OutOfRange):
                graph.set_param(0, 9, struct.pack("I", 77))
            # CUDA has launched it: its upload is not seen any more.
            with self.assertRaisesRegex(doorbell.NotLaunchable, "launched before"):
                doorbell.graph(executable, stream=stream)
            graph.close()
            with self.assertRaises(doorbell.InvalidHandle):
                graph.replay()
        with self.assertRaisesRegex(TypeError, "CUDAGraph"):
            doorbell.graph(object())

    def test_copies_of_a_graph_are_launched_on_lanes(self):
        device, *_ = self.used()
        stream, executable = self.captured(device.at)
        with self.assertRaisesRegex(doorbell.DoorbellError, "1 to 16 launch lanes"):
            doorbell.Session(kind="cuda", launch_lanes=17)
        with doorbell.Session(kind="cuda", launch_lanes=2) as session:
            graph = session.graph(executable, stream=stream)
            graph.set_param(0, 8, struct.pack("I", 31))
            with self.assertRaisesRegex(doorbell.DoorbellError, "no launch lane"):
                graph.copy(2)
            copies = [graph.copy(0), graph.copy(1), graph.copy()]
            graph.close()
            for number, copy in enumerate(copies):
                copy.set_param(0, 8, struct.pack("I", 31 + number))
                copy.replay(after=copies[0].replay()).wait(10)
                self.assertEqual(device.read(4), struct.pack("I", 31 + number))
            with self.assertRaisesRegex(doorbell.NotLaunchable, "another launch lane"):
                session.chain(copies[:2])

    def test_chains_and_tickets_keep_copies_and_launches_in_order(self):
        device, *_ = self.used()
        stream, executable = self.captured(device.at)
        with doorbell.graph(executable, stream=stream) as graph:
            host, out = doorbell.allocate(64), doorbell.allocate(64)
            graph.set_param(0, 8, struct.pack("I", 41))
            steps = [(device, 8, host, 8, 8), graph, (out, 0, device, 0, 16, "engine")]
            with doorbell.chain(steps) as chain, doorbell.chain(steps, order="engines", host_counter=True) as other:
                for made in chain, other:
                    host.view[8:16] = os.urandom(8)
                    out.view[:] = bytes(64)
                    made.replay().wait(10)
                    self.assertEqual((bytes(out.view[:4]), out.view[8:16]), (struct.pack("I", 41), host.view[8:16]))
                chain.set_param(0, 8, struct.pack("I", 42))
                chain.replay().wait(10)
                self.assertEqual(bytes(out.view[:4]), struct.pack("I", 42))
                with self.assertRaises(doorbell.NotLaunchable):
                    doorbell.chain([chain])
            # The same by tickets.
            to, back = doorbell.prepare(device, host, 8, dst_offset=8, src_offset=8), doorbell.prepare(out, device, 16)
            for how in "prepared", "batch":
                host.view[8:16], out.view[:] = os.urandom(8), bytes(64)
                launched = graph.replay(after=to.submit())
                last = back.submit(after=launched) if how == "prepared" else doorbell.copy_batch([(out, 0, device, 0, 16)], after=launched)
                last.wait(10)
                self.assertEqual((bytes(out.view[:4]), out.view[8:16]), (struct.pack("I", 41), host.view[8:16]))
        for wrong in [[(device, 1)], [(device, 0, host, 0, 8, "fast")], [(device, 0, host)]]:
            with self.assertRaises((ValueError, TypeError)):
                doorbell.chain(wrong)
        with self.assertRaises(ValueError):
            doorbell.chain([(device, 0, host, 0, 8)], order="none")
        with self.assertRaises(ValueError):
            back.submit(b"", after=launched)

    def test_a_chain_stores_its_first_bytes_and_copies_beside(self):
        device, *_ = self.used()
        stream, executable = self.captured(device.at)
        with doorbell.graph(executable, stream=stream) as graph:
            host, out = doorbell.allocate(64), doorbell.allocate(64)
            graph.set_param(0, 8, struct.pack("I", 41))
            steps = [(device, 8, host, 8, 8, "stores"), graph, (out, 0, device, 0, 16)]
            with doorbell.chain(steps, beside=True) as chain, doorbell.chain(steps) as other:
                for number in range(20):
                    made = other if number % 4 == 3 else chain
                    host.view[8:16], out.view[:] = os.urandom(8), bytes(64)
                    made.set_param(0, 8, struct.pack("I", number))
                    made.replay().wait(10)
                    self.assertEqual((bytes(out.view[:4]), out.view[8:16]), (struct.pack("I", number), host.view[8:16]))
            for wrong in [[graph, steps[0]], [steps[0]]]:
                with self.assertRaises(doorbell.NotLaunchable):
                    doorbell.chain(wrong)
            with self.assertRaises(ValueError):
                doorbell.chain([(device, host, "fast")])

    def test_what_cannot_be_pinned(self):
        self.used()
        with self.assertRaises(doorbell.NotPinnable):
            doorbell.pin(bytearray(64))


if __name__ == "__main__":
    unittest.main()

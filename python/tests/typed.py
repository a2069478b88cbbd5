"""Uses the whole public API, for type checkers: test_objects.py lets mypy --strict and pyright read it. It is not run."""

from __future__ import annotations

from ctypes import c_uint32
from typing import Literal

import doorbell


def errors(error: doorbell.DoorbellError) -> int | None:
    kinds: list[type[doorbell.DoorbellError]] = [
        doorbell.Busy, doorbell.Closed, doorbell.Forked, doorbell.Freed, doorbell.Full, doorbell.InvalidArgument, doorbell.InvalidHandle, doorbell.Killed,
        doorbell.LimitReached, doorbell.NotLaunchable, doorbell.NotPinnable, doorbell.OutOfRange, doorbell.Overrun, doorbell.Stopped, doorbell.Timeout,
        doorbell.Unavailable]
    return error.code if type(error) in kinds and not issubclass(doorbell.NoLibrary, doorbell.DoorbellError) else None


def copies(host: doorbell.Buffer, gpu: doorbell.Buffer, tensor: object) -> bytes:
    pinned: doorbell.Buffer = doorbell.pin(tensor)
    doorbell.copy_(gpu, host, 64, dst_offset=64, timeout=1.0)
    tickets: list[doorbell.Ticket] = [doorbell.copy_async(gpu, pinned, after=None), doorbell.copy_batch([(gpu, 0, host, 0, 8), (gpu, 8, host, 16, 8)])]
    tickets += [doorbell.copy_pages(gpu, [0, 1], [host][0], range(2), nbytes=8), doorbell.copy_pages([gpu], tensor, [host], tensor, stream=doorbell.NOW, after=tickets)]
    way: tuple[Literal["engine", "inline", "stores", "loads"], str] = doorbell.explain(gpu, host, prepared=True)
    with doorbell.prepare(gpu, host, 64) as transfer, doorbell.prepare_bytes(gpu, 8) as words, doorbell.queue(16) as queue:
        prepared: doorbell.Transfer = transfer
        tickets += [prepared.submit(after=tickets), words.submit(b"12345678")]
        waiting: doorbell.Queue = queue
        waiting.add(tickets[0], "the first")
        done: list[doorbell.Done] = waiting.wait(0.1) + waiting.poll()
        failed = [errors(one.error) for one in done if one.error is not None and one.ticket.done()]
    tickets[-1].hold(7)
    ring: doorbell.Ring = doorbell.ring(gpu, host, 1024, frames=4)
    frame: doorbell.Frame = ring.next()
    if frame.view is not None:
        frame.view[:4] = b"next"
    ring.submit().wait()
    message: doorbell.Message = doorbell.message(gpu, host)
    answer: bytes = message.wait(message.send(b"a question"), timeout=0.5)
    return answer + bytes(host.view[: len(failed) + tickets[0].left() + frame.offset + waiting.fileno()]) + way[1].encode()


async def launches(camera: doorbell.Buffer, gpu: doorbell.Buffer, exec_: int, stream: int) -> float:
    step: doorbell.Graph = doorbell.graph(exec_, stream)
    step.set_param(0, 8, b"\0\0\0\0")
    step.set_pointer(0, 0, gpu, thing_offset=16)
    kernel = doorbell.kernel(7, (1, 1), 128, [c_uint32(5)], stream, shared_bytes=0)
    await doorbell.instantiate(exec_, stream).copy(0).replay(after=kernel.replay())
    chain = doorbell.chain([(gpu, camera, "stores"), step, (camera, 64, gpu, 0, 64)], order="engines", beside=True)
    with doorbell.loop(chain, period=0.001, source=camera, sink=(camera, 64, 64), take="newest", late="catch up") as loop:
        running: doorbell.Loop = loop
        number: int = running.put(b"pixels", sequence=1, tag=2)
        result: doorbell.Result | None = running.wait(1.0)
        last: list[doorbell.Result] = [one for one in running]
        statistics: doorbell.Statistics = running.stop()
    return statistics.done_p99 + number + len(last) + sum(step.kernels) + (0.0 if result is None else result.done)


def main() -> None:
    opened: doorbell.Session = doorbell.open(0, lanes=4, kind="soft", profile=False, log=print, launch_lanes=2)
    print(doorbell.version(), doorbell.watching(), doorbell.recording(), doorbell.pause(), doorbell.resume(), doorbell.current() is opened, opened.closed)
    host, gpu = doorbell.allocate(4096), doorbell.allocate(4096, "gpu")
    print(copies(host, gpu, bytearray(64)), launches(host, gpu, 7, 8), host.pointer, host.nbytes, host.on_gpu, opened.copy_async(gpu, host).number)
    doorbell.close()
    with doorbell.record("a.doorbell", restart=True), doorbell.session(1, check_allocations=True) as session, doorbell.Session(kind=None) as other:
        other.allocate(session.allocate(64, "host").nbytes).close()


if __name__ == "__main__":
    main()

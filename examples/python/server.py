"""A server in asyncio over doorbell.loop(): requests put inputs, and answers are matched by their tag.

    python3 server.py [requests, 200]      starts the server, sends it requests from eight clients together, and compares each answer

One thread runs the event loop, which puts each request's bytes and reads the answers. doorbell's thread copies, launches and waits. The model here is one
kernel that adds 1 to the first number.

With PyTorch (docs/guides/pytorch-server.md) three things change, in model() and main(). PyTorch makes CUDA's context, so leave out cuInit, cuDevicePrimaryCtxRetain and
cuCtxSetCurrent. model() captures the network and returns doorbell.instantiate(graph, stream). Its tensors x and y take the place of `input_`, so the chain is
[(doorbell.pin(x), frame), step, (result, doorbell.pin(y))]; `frame` has as many bytes as x, and `result` as y. Keep the network as long as the chain.

Exit status 77: no CUDA, or graphs cannot be launched here.
"""

import asyncio
import ctypes
import struct
import sys
from ctypes import byref, c_uint64, c_void_p

import doorbell  # before the first CUDA call

BYTES, SLOTS, CLIENTS = 2048, 8, 8
ADD = b"""
.version 6.0
.target sm_70
.address_size 64
.visible .entry add1(.param .u64 word)
{
    .reg .b64 %word;
    ld.param.u64 %word, [word];
    red.global.add.u32 [%word], 1;
    ret;
}
"""


class Inference:
    """Answers of one loop, for the coroutines of one event loop."""

    def __init__(self, loop):
        self.loop, self.pending, self.sent = loop, {}, 0
        # put() raises Full if all slots are taken. So at most as many requests as slots wait for an answer.
        self.free = asyncio.Semaphore(SLOTS)
        asyncio.get_running_loop().add_reader(loop.fileno(), self.readable)

    async def answer(self, data):
        await self.free.acquire()
        self.sent += 1
        tag, future = self.sent, asyncio.get_running_loop().create_future()
        try:
            self.loop.put(data, tag=tag)
        except BaseException:
            self.free.release()
            raise
        self.pending[tag] = future
        return await future

    def readable(self):
        """Takes all results. wait(0) raises Timeout when there are no more, and the descriptor is unreadable then until the next result."""
        try:
            while (found := self.loop.wait(0)) is not None:
                future = self.pending.pop(found.tag)
                self.free.release()
                # (It is done if the client has given up. The launch was made all the same.)
                if not future.done():
                    future.set_result(found)
        except doorbell.Timeout:
            return
        # None: the loop has ended, and doorbell does not start it again.
        self.close(doorbell.Unavailable("the loop has ended"))

    def close(self, why):
        asyncio.get_running_loop().remove_reader(self.loop.fileno())
        while self.pending:
            _, future = self.pending.popitem()
            self.free.release()
            if not future.done():
                future.set_exception(why)


async def handle(inference, reader, writer):
    """POST with a Content-Length, one request for each connection."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = int(head.split("content-length:")[1].split("\r\n")[0])
        if length != BYTES:
            raise ValueError("the model's input has another length")
        found = await inference.answer(await reader.readexactly(length))
        status, body = "200 OK", found.data
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, IndexError, ValueError):
        status, body = "400 Bad Request", b""
    except doorbell.DoorbellError as error:
        # The loop has ended: a supervisor must start the process again.
        print(f"no answer: {error}", file=sys.stderr)
        status, body = "503 Service Unavailable", b""
    writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
    await writer.drain()
    writer.close()


async def client(port, numbers):
    """Sends each number, and compares each answer."""
    for number in numbers:
        data = struct.pack("I", number) * (BYTES // 4)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % BYTES + data)
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        if b" 200 " not in head or body != struct.pack("I", number + 1) + data[4:]:
            raise RuntimeError(f"request {number}: {head.decode().splitlines()[:1]}, a wrong answer of {len(body)} bytes")


async def serve(loop, requests):
    inference = Inference(loop)
    server = await asyncio.start_server(lambda reader, writer: handle(inference, reader, writer), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    await asyncio.gather(*(client(port, range(first, requests, CLIENTS)) for first in range(CLIENTS)))
    server.close()
    inference.close(doorbell.Closed("the server stops"))


def cuda(name, *arguments):
    code = getattr(ctypes.CDLL("libcuda.so.1"), name)(*arguments)
    if code:
        sys.exit(f"{name}: CUDA error {code}")


def model(input_):
    """A graph that computes in place, in `input_`."""
    stream, module, function = c_void_p(), c_void_p(), c_void_p()
    cuda("cuStreamCreate", byref(stream), 1)
    cuda("cuModuleLoadData", byref(module), ADD)
    cuda("cuModuleGetFunction", byref(function), module, b"add1")
    return doorbell.kernel(function.value, 1, 1, [c_uint64(input_.pointer)], stream.value)


def main(requests):
    context = c_void_p()
    try:
        cuda("cuInit", 0)
    except OSError as error:
        print(f"no libcuda: {error}")
        sys.exit(77)
    cuda("cuDevicePrimaryCtxRetain", byref(context), 0)
    cuda("cuCtxSetCurrent", context)
    with doorbell.session(kind="cuda"):
        frame, result, input_ = doorbell.allocate(BYTES), doorbell.allocate(BYTES), doorbell.allocate(BYTES, "gpu")
        try:
            step = model(input_)
        except doorbell.Unavailable as error:
            print(f"the graph cannot be launched: {error}")
            sys.exit(77)
        chain = doorbell.chain([(input_, frame), step, (result, input_)], beside=True)
        with doorbell.loop(chain, source=frame, sink=result, slots=SLOTS) as loop:
            asyncio.run(serve(loop, requests))
            frames = loop.statistics().frames
    print(f"{requests} requests, {frames} frames, each answer right")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)

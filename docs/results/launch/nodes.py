"""Graphs of one kernel with a copy in front, behind, and both, of pinned and of pageable memory, by doorbell and by CUDA in turns:

    python3 nodes.py target/turns.so [ROUNDS]      (the library of turns.c)

Ten launches of each a round, in random order. Medians in us: call and done of each; by how much doorbell is done earlier, with its 95 % interval over rounds.
i: bytes to the GPU, o: bytes back, -: neither. Each graph also counts in a word of pinned memory as its last step (a kernel and a copy of four bytes more), and
until the CPU sees that word is what `done` means, for both. With pageable memory the bytes are back when the calls that wait return: there `done` is the return
of cuStreamSynchronize and of doorbell_wait, two ways to wait.
"""

import ctypes
import sys

import doorbell
import torch
import turns

library = sys.argv[1] if len(sys.argv) > 1 else sys.exit(__doc__)
rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 150
cuda = ctypes.CDLL("libcuda.so.1")
doorbell.open()


def captured(size, pinned, copies, stream):
    """The graph, what has to live as long as it, and the word that it writes last."""
    x = torch.zeros(size, dtype=torch.uint8, device="cuda")
    here, there = (torch.zeros(size, dtype=torch.uint8, pin_memory=pinned) for _ in range(2))
    with torch.cuda.stream(stream):
        y, word = x ^ 0x5A, turns.Word(torch)
    torch.cuda.synchronize()

    def copy(call, to, source):
        code = call(ctypes.c_void_p(to.data_ptr()), ctypes.c_void_p(source.data_ptr()), ctypes.c_size_t(size), ctypes.c_void_p(stream.cuda_stream))
        assert code == 0, f"CUDA error {code}"

    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="relaxed"):
        if "i" in copies:
            copy(cuda.cuMemcpyHtoDAsync_v2, x, here)
        y = x ^ 0x5A
        if "o" in copies:
            copy(cuda.cuMemcpyDtoHAsync_v2, there, y)
        word.tell()
    graph.instantiate()
    return graph, (x, y, here, there), word


for size in (8, 4096, 65536):
    for kind in ("pinned", "pageable"):
        for copies in ("-", "i", "o", "io"):
            stream = torch.cuda.Stream()
            graph, keep, word = captured(size, kind == "pinned", copies, stream)
            ours = doorbell.instantiate(graph, stream=stream)
            own_waits = kind == "pageable" and copies != "-"
            samples = turns.timed(library, graph.raw_cuda_graph_exec(), stream.cuda_stream, ours, word, rounds, own_waits=own_waits)
            (their_call, theirs), (our_call, done) = [[turns.middle(sum(part, [])) for part in parts] for parts in samples]
            earlier, low, high = turns.interval([turns.middle(a) - turns.middle(b) for a, b in zip(samples[0][1], samples[1][1])])
            print(f"{size:6} B  {kind:8}  {copies:2}  doorbell: call {our_call:5.2f}  done {done:5.2f}  CUDA: call {their_call:5.2f}  done {theirs:5.2f}  "
                  f"earlier by {earlier:5.2f} ({low:.2f} to {high:.2f})  {'own waits' if own_waits else 'the same word'}", flush=True)
            ours.close()

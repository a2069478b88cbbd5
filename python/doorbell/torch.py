"""CUDA graphs of PyTorch, launched without CUDA if that is faster.

    import doorbell.torch          # before the first CUDA call
    import torch

    graph = doorbell.torch.CUDAGraph()          # instead of torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = model(input)
    graph.replay()

For a program that must not be changed, `doorbell.torch.patch()` replaces torch.cuda.CUDAGraph with this class.

replay() does the same as torch's: the graph runs once, after all work that the current stream has queued, and later work of the stream waits for
it. CUDA makes the first replays, and doorbell learns the graph from them. Then both ways take turns for some replays and are measured in the
program, and the faster one is kept. A graph that doorbell cannot launch stays with CUDA, and a warning reports this once. `graph.way` and
`graph.why` give the result and the reason.

launch() is for programs that need no stream: it launches the graph immediately, in no stream's order, and its ticket reports when the launch is done.
"""

from __future__ import annotations

import ctypes
import random
import statistics
import threading
import time
import warnings
from ctypes import byref, c_bool, c_uint64, c_void_p, sizeof
from typing import Any

import torch

from ._errors import Busy, DoorbellError, Full, Unavailable
from ._graph import Graph
from ._header import ORDER_STREAM, ORDER_STREAM_WAITS, Order
from ._library import failed, library, watching
from ._session import Session
from ._ticket import Ticket

_Torchs: Any = torch.cuda.CUDAGraph
# Replays by each way before one is chosen.
TURNS = 16
_sessions: dict[int, Session] = {}
_lock = threading.Lock()
_warned: set[str] = set()


def session(device: int | None = None) -> Session:
    """The session that launches a GPU's graphs. The first call makes it."""
    device = torch.cuda.current_device() if device is None else device
    with _lock:
        if device not in _sessions:
            _sessions[device] = Session(device, kind="cuda", lanes=2, profile=False)
        return _sessions[device]


def patch() -> None:
    """Replaces torch.cuda.CUDAGraph with this module's class, for all graphs that are made from now on."""
    torch.cuda.CUDAGraph = torch.cuda.graphs.CUDAGraph = CUDAGraph


class _Learner:
    """A graph that is learnt from its replays. It has a separate executable graph, because torch's was launched before."""

    def __init__(self, raw_graph: int, device: int):
        self._session, self._handle, self._exec = session(device), c_uint64(), c_void_p()
        cuda = ctypes.CDLL("libcuda.so.1")
        code = cuda.cuGraphInstantiateWithFlags(byref(self._exec), c_void_p(raw_graph), ctypes.c_ulonglong(0))
        if code:
            raise Unavailable(f"cuGraphInstantiateWithFlags: error {code} of CUDA's")
        self._destroy = cuda.cuGraphExecDestroy
        code = library.doorbell_learner_create(self._session.at, self._exec, byref(self._handle))
        if code:
            raise failed(code)

    def replay(self, stream: int) -> tuple[bool, Graph | None, DoorbellError | None]:
        """Whether the graph ran, the graph if it is learnt, and the error if it cannot be learnt."""
        ran, graph = c_bool(), c_uint64()
        code = library.doorbell_learner_launch(self._session.at, self._handle, stream, byref(ran), byref(graph))
        learnt = Graph(self._session, graph.value, None) if graph.value else None
        return ran.value, learnt, failed(code) if code else None

    def close(self) -> None:
        if self._exec:
            library.doorbell_learner_free(self._session.at, self._handle)
            self._destroy(self._exec)
            self._exec = c_void_p()


class _Turns:
    """Measures both ways: the time of a replay in the stream, and the time of the call. In random order, because the program may have its own rhythm."""

    def __init__(self):
        self._plan = ["cuda", "doorbell"] * TURNS
        random.shuffle(self._plan)
        self._taken: list[tuple[str, Any, Any, float]] = []

    def replay(self, replay) -> None:
        way = self._plan.pop()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        start = time.perf_counter()
        replay(way)
        call = time.perf_counter() - start
        end.record()
        self._taken.append((way, begin, end, call))

    def measured(self) -> dict[str, tuple[float, ...]] | None:
        """For each way, the median time in the stream and of the call, in microseconds. None while replays are pending."""
        if self._plan or not all(end.query() for _, _, end, _ in self._taken):
            return None
        found = {}
        for way in ("cuda", "doorbell"):
            own = [(1e3 * begin.elapsed_time(end), 1e6 * call) for one, begin, end, call in self._taken if one == way]
            found[way] = tuple(statistics.median(column) for column in zip(*own))
        return found

    @property
    def is_over(self) -> bool:
        return not self._plan


class CUDAGraph(_Torchs):
    """A torch.cuda.CUDAGraph whose replay() takes the faster way."""

    def __new__(cls, keep_graph: bool = True):
        try:
            return super().__new__(cls, True)
        except TypeError:
            # (An older PyTorch, which keeps no graph.)
            return super().__new__(cls)

    def __init__(self, keep_graph: bool = True):
        # (torch's constructor is C++'s, which reads the argument here.)
        try:
            super().__init__(keep_graph=True)
        except TypeError:
            super().__init__()
        self._begin()

    def _begin(self) -> None:
        self.way, self.why = "learning", "the graph was not replayed yet"
        self.measured: dict[str, tuple[float, ...]] | None = None
        self._replays, self._others = 0, False
        self._learner: _Learner | None = None
        self._turns: _Turns | None = None
        self._graph: Graph | None = None

    def _stay_with_cuda(self, why) -> None:
        self.way, self.why = "cuda", str(why)
        self._end()
        if self.why not in _warned:
            _warned.add(self.why)
            warnings.warn(f"doorbell: a graph stays with CUDA: {self.why}", RuntimeWarning, stacklevel=4)

    def _end(self):
        learner, self._learner = self._learner, None
        graph, self._graph = self._graph, None
        self._turns = None
        if learner is not None:
            learner.close()
        if graph is not None:
            # (If its session was closed, it has already ended.)
            graph.__exit__()

    def register_generator_state(self, generator):
        self._others = True
        return super().register_generator_state(generator)

    def reset(self):
        self._end()
        self._begin()
        super().reset()

    def replay(self) -> None:
        if self.way == "doorbell":
            self._replay_by("doorbell")
        elif self.way == "cuda":
            super().replay()
        elif self._turns is not None:
            self._measure()
        else:
            self._learn()

    def launch(self) -> Ticket:
        """Launches the graph immediately, in no stream's order. The graph must be learnt: after some replays, or by learn()."""
        if self._graph is None:
            raise Unavailable(f"the graph is not launched by doorbell: {self.why}")
        return self._graph.replay()

    def learn(self) -> bool:
        """Replays the graph until it is learnt, so that launch() works: four times or a few more. Each replay does the graph's work. Returns
        whether it was learnt."""
        while self.way == "learning" and self._turns is None:
            self.replay()
        return self._graph is not None

    def _learn(self):
        self._replays += 1
        if self._replays == 1:
            self._first_replay()
            return
        device = torch.cuda.current_device()
        try:
            if self._learner is None:
                self._learner = _Learner(self.raw_cuda_graph(), device)
            ran, graph, error = self._learner.replay(_stream(device))
        except (DoorbellError, RuntimeError) as refused:
            ran, graph, error = False, None, refused
        if not ran:
            super().replay()
        if error is not None:
            self._stay_with_cuda(error)
        elif graph is not None:
            self._graph, self._order = graph, Order(sizeof(Order), ORDER_STREAM | ORDER_STREAM_WAITS)
            self._turns, self.why = _Turns(), "both ways are measured"

    def _first_replay(self):
        """Replays by torch, to detect whether the graph takes random numbers: torch prepares those before each replay."""
        if not hasattr(self, "raw_cuda_graph"):
            super().replay()
            self._stay_with_cuda("this PyTorch keeps no graph (CUDAGraph.raw_cuda_graph is missing)")
            return
        try:
            late = not watching()
        except DoorbellError as error:
            late = str(error)
        generator = torch.cuda.default_generators[torch.cuda.current_device()]
        before = generator.get_offset()
        super().replay()
        if late:
            self._stay_with_cuda("CUDA was initialised before doorbell: import doorbell.torch first" if late is True else late)
        elif self._others or generator.get_offset() != before:
            self._stay_with_cuda("the graph takes random numbers, which PyTorch prepares before each replay")
        else:
            self.why = "the graph is learnt from its first replays"

    def _measure(self):
        if not self._turns.is_over:
            self._turns.replay(self._replay_by)
            return
        found = self._turns.measured()
        self._replay_by("cuda")
        if found is None:
            return
        self.measured, (by_cuda, call_by_cuda), (by_doorbell, call_by_doorbell) = found, found["cuda"], found["doorbell"]
        # The time in the stream decides, or the time of the call if that makes no difference.
        quicker = by_doorbell < by_cuda * 0.995 or by_doorbell <= by_cuda * 1.005 and call_by_doorbell < call_by_cuda
        why = f"{by_cuda:.1f} us in the stream by CUDA, {by_doorbell:.1f} by doorbell; the call {call_by_cuda:.1f} and {call_by_doorbell:.1f} us"
        # (No warning if it is CUDA: this is not an error.)
        self._turns, self.way, self.why = None, "doorbell" if quicker else "cuda", why

    def _replay_by(self, way: str) -> None:
        if way == "cuda":
            super().replay()
            return
        graph, order, ticket = self._graph, self._order, c_uint64()
        assert graph is not None
        order.stream = _stream(torch.cuda.current_device())
        # (It calls CUDA, which may wait for a thread that waits for the GIL: not `held`.)
        code = library.doorbell_graph_launch(graph._session.at, graph._argument, order, byref(ticket))
        if code == 0:
            return
        error = failed(code)
        if ticket.value:
            # It runs, but the stream does not wait for it.
            submitted = Ticket.of(graph._session)
            submitted.value = ticket.value
            submitted.wait()
            return
        super().replay()
        if not isinstance(error, (Busy, Full)):
            self._stay_with_cuda(error)


def _stream(device: int) -> int:
    return torch._C._cuda_getCurrentRawStream(device)

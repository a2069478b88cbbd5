"""doorbell.torch over a torch of a few lines and a libcuda in software: each replay does the graph's work once, in the stream's order, whatever way it goes."""

import ctypes
import sys
import time
import types
import unittest
import warnings

try:
    cuda = ctypes.CDLL("libcuda.so.1")
except OSError:
    cuda = None

KERNEL = b".version 8.0\n"


def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code:
        raise RuntimeError(f"{name}: {code}")


class Generator:
    offset = 0

    def get_offset(self):
        return self.offset


class Event:
    def __init__(self, enable_timing=False):
        self.event = ctypes.c_void_p()
        call("cuEventCreate", ctypes.byref(self.event), 0)

    def record(self):
        call("cuEventRecord", self.event, STREAM)
        self.at = time.perf_counter()

    def query(self):
        return cuda.cuEventQuery(self.event) == 0

    def elapsed_time(self, end):
        return 1e3 * (end.at - self.at) * SPEED.get(end, 1)


SPEED = {}
GENERATOR = Generator()
STREAM = ctypes.c_void_p()


class Torchs:
    """What torch.cuda.CUDAGraph(keep_graph=True) does."""

    random = 0

    def __new__(cls, keep_graph=False):
        return super().__new__(cls)

    def __init__(self, keep_graph=False):
        self.keeps = keep_graph

    def capture(self, submit):
        self.graph, self.executable = ctypes.c_void_p(), ctypes.c_void_p()
        call("cuStreamBeginCapture_v2", STREAM, 1)
        submit()
        call("cuStreamEndCapture", STREAM, ctypes.byref(self.graph))
        call("cuGraphInstantiateWithFlags", ctypes.byref(self.executable), self.graph, ctypes.c_uint64(0))

    def raw_cuda_graph(self):
        if not self.keeps:
            raise RuntimeError("keep_graph")
        return self.graph.value

    def replay(self):
        GENERATOR.offset += self.random
        call("cuGraphLaunch", self.executable, STREAM)

    def register_generator_state(self, generator):
        pass

    def reset(self):
        self.executable = None


def fake_torch():
    torch = types.ModuleType("torch")
    torch.cuda = types.ModuleType("torch.cuda")
    torch.cuda.CUDAGraph, torch.cuda.Event = Torchs, Event
    torch.cuda.graphs = types.SimpleNamespace(CUDAGraph=Torchs)
    torch.cuda.current_device = lambda: 0
    torch.cuda.default_generators = [GENERATOR]
    torch._C = types.SimpleNamespace(_cuda_getCurrentRawStream=lambda device: STREAM.value)
    return torch


if cuda is not None:
    import doorbell

    sys.modules["torch"] = fake_torch()
    import doorbell.torch


@unittest.skipUnless(cuda, "no libcuda")
class Drop(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        context, module = ctypes.c_void_p(), ctypes.c_void_p()
        call("cuInit", 0)
        call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        call("cuCtxSetCurrent", context)
        call("cuStreamCreate", ctypes.byref(STREAM), 1)
        call("cuModuleLoadData", ctypes.byref(module), KERNEL)
        cls.add = ctypes.c_void_p()
        call("cuModuleGetFunction", ctypes.byref(cls.add), module, b"add1")

    def setUp(self):
        at = ctypes.c_void_p()
        call("cuMemHostAlloc", ctypes.byref(at), ctypes.c_size_t(4096), 0)
        self.word = ctypes.c_uint32.from_address(at.value)
        self.word.value = 0

    def submit(self):
        argument = ctypes.c_uint64(ctypes.addressof(self.word))
        call("cuLaunchKernel", self.add, 1, 1, 1, 1, 1, 1, 0, STREAM, (ctypes.c_void_p * 1)(ctypes.addressof(argument)), None)

    def captured(self, **attributes):
        graph = doorbell.torch.CUDAGraph()
        vars(graph).update(attributes)
        graph.capture(self.submit)
        return graph

    def replayed(self, graph, replays):
        """Each replay is behind what the stream has queued, and the stream waits for it."""
        for n in range(replays):
            before = self.word.value
            call("cuStreamSynchronize", STREAM)
            self.submit()
            graph.replay()
            self.submit()
            call("cuStreamSynchronize", STREAM)
            self.assertEqual(self.word.value, before + 3, f"replay {n}, {graph.way}: {graph.why}")

    def test_each_replay_does_the_work_once_while_it_is_learnt_measured_and_chosen(self):
        graph = self.captured()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.replayed(graph, 60)
        self.assertIn(graph.way, ("doorbell", "cuda"), graph.why)
        self.assertIn("us in the stream by CUDA", graph.why)
        self.assertEqual(set(graph.measured), {"cuda", "doorbell"})
        # Whatever is quicker in software: this is by doorbell.
        graph.reset()
        graph.capture(self.submit)
        while graph._turns is None:
            self.replayed(graph, 1)
        graph.way = "doorbell"
        self.replayed(graph, 50)
        ticket, before = graph.launch(), self.word.value
        ticket.wait(10)
        self.assertLessEqual(self.word.value - before, 1)
        graph.reset()

    def test_what_is_not_launched_stays_with_cuda_and_says_so_once(self):
        for attributes, why in [({"random": 4}, "random numbers"), ({"_others": True}, "random numbers")]:
            doorbell.torch._warned.clear()
            with self.assertWarnsRegex(RuntimeWarning, why):
                graph = self.captured(**attributes)
                self.replayed(graph, 5)
            self.assertEqual(graph.way, "cuda")
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                self.replayed(self.captured(**attributes), 5)
            with self.assertRaisesRegex(doorbell.Unavailable, why):
                graph.launch()

    def test_a_graph_that_doorbell_refuses_loses_no_work(self):
        graph = self.captured()
        self.replayed(graph, 1)
        graph.raw_cuda_graph = lambda: 8
        doorbell.torch._warned.clear()
        with self.assertWarns(RuntimeWarning):
            self.replayed(graph, 3)
        self.assertEqual(graph.way, "cuda")

    def test_a_session_that_is_closed_loses_no_work(self):
        graph = self.captured()
        self.assertTrue(graph.learn())
        graph.way = "doorbell"
        self.replayed(graph, 3)
        doorbell.torch.session().close()
        doorbell.torch._sessions.clear()
        with self.assertWarns(RuntimeWarning):
            self.replayed(graph, 3)
        self.assertEqual(graph.way, "cuda")

    def test_patch_makes_it_torchs_class(self):
        doorbell.torch.patch()
        self.assertIs(sys.modules["torch"].cuda.CUDAGraph, doorbell.torch.CUDAGraph)


if __name__ == "__main__":
    unittest.main()

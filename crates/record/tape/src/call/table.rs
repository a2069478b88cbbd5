//! The calls that mean something, one a line. All others of the driver's are in `others.rs`, which `cargo xtask calls` writes: they are counted and timed
//! by name. No view has a call's arguments by name.
//!
//! # To add one
//!
//! - Number: the next one of its library: rows are in the order of numbers, and a number is never used again. It means nothing.
//! - Suffixes: those of its symbols in `nm -D libcuda.so.1` (or libcudart.so). All of them must take the same arguments.
//! - A version that takes others is a second row with the same number and name, its own suffixes, and `since`: the version in its type
//!   in cudaTypedefs.h (`PFN_cuMemcpyBatchAsync_v13000`). One row, with the words of the longer form, is enough where those that are kept have the same places.
//!   In libcudart both versions have the same symbol: leave such a function out. The driver's call in it is then the outermost.
//! - Words: its parameters in cuda.h (or cuda_runtime_api.h), as the x86-64 psABI passes them. A pointer, a handle or an integer is
//!   one word, a `dim3` two. 11 at most, no floating-point ones. `size`, `stream`, `of`, `from` and `direction` count from 0.
//! - Class: `Class` in `../call.rs` says what each one decides. Where none fits, take the one whose consequences are right.
//! - `from` (a copy between two addresses) and `does`: the test in `../call.rs` asks for them. A `CopyAsync` of one address stands in the test's own
//!   list.
//! - Test: a call in `cli/doorbell/tests/calls.rs`, with its stub in `libcuda.c` or `libcudart.c` there and its use in `app.c`. A stub that calls
//!   another exported function is counted as two calls.

use super::Class::*;
use super::{Answer, Class, Direction, Effect, Function, Object, Size, Stream, Told};
use Answer::{
    AllocHost, BeginsCapture, Compiles, EndsCapture, EndsContext, FreeHost, HostAlloc, Register, Shares, Tells,
};
use Direction::{Either, FromGpu, ToGpu};
use Effect::{ChangesGraph, LoadsCode, MakesGraph, MakesStream, StartsProfilers, StopsProfilers, UnloadsCode};
use Object::{Address, Code, Event, Flags, Graph, Kernel};
use Size::{At2, At3, Compare, Config, Copies, Copies3d, Dim3, Grid, Product, Times, Word};

const PLAIN: &[&str] = &[""];
/// Stream 0 may be the thread's own: functions of streams, and functions without one.
const SZ: &[&str] = &["", "_ptsz"];
const DS: &[&str] = &["", "_ptds"];
/// The first version had addresses and sizes of 32 bits.
const V2: &[&str] = &["_v2"];
/// Both versions take the same arguments.
const V1_V2: &[&str] = &["", "_v2"];
const V1_V2_SZ: &[&str] = &["", "_v2", "_ptsz", "_v2_ptsz"];
const V2_SZ: &[&str] = &["_v2", "_v2_ptsz"];
const V2_DS: &[&str] = &["_v2", "_v2_ptds"];

const fn f(number: u16, name: &'static str, suffixes: &'static [&'static str], class: Class, words: u8) -> Function {
    Function {
        number,
        name,
        class,
        suffixes,
        since: 0,
        words,
        size: Size::None,
        stream: Stream::None,
        object: Object::None,
        object_at: 0,
        source_at: Function::NOT_SAID,
        direction_at: Function::NOT_SAID,
        effect: Effect::None,
        answer: Answer::None,
    }
}

impl Function {
    const fn size(mut self, size: Size) -> Function {
        self.size = size;
        self
    }

    pub(super) const fn since(mut self, version: u16) -> Function {
        self.since = version;
        self
    }

    const fn batch(mut self, copies: Size) -> Function {
        self.object = Address;
        self.size(copies)
    }

    pub(super) const fn stream(mut self, word: u8) -> Function {
        self.stream = Stream::Word(word);
        self
    }

    const fn config(mut self, word: u8) -> Function {
        self.stream = Stream::Config(word);
        self.size = Config(word);
        self
    }

    const fn of(mut self, object: Object, word: u8) -> Function {
        self.object = object;
        self.object_at = word;
        self
    }

    const fn from(mut self, word: u8) -> Function {
        self.source_at = word;
        self
    }

    pub(super) const fn does(mut self, effect: Effect) -> Function {
        self.effect = effect;
        self
    }

    const fn answered(mut self, answer: Answer) -> Function {
        self.answer = answer;
        self
    }

    const fn copies(self, direction: Direction, waits: bool) -> Function {
        self.answered(Answer::Copy { direction, waits })
    }

    const fn direction(mut self, word: u8) -> Function {
        self.direction_at = word;
        self
    }
}

/// A function of which only the time, the result and the stream are kept.
pub(super) const fn o(number: u16, name: &'static str, suffixes: &'static [&'static str], words: u8) -> Function {
    f(number, name, suffixes, Other, words)
}

const COMPILES: Answer = Compiles { is_file: false, options: 0, names: 0, values: 0 };
/// Memory of several GPUs: no address of it is looked at.
const OF_PEERS: Answer = Shares { address: Function::NOT_SAID };

/// What fixes look at in functions that have no row here.
pub(super) const ANSWERS_OF_OTHERS: &[(&str, Answer)] = &[
    ("cuIpcGetMemHandle", Shares { address: 1 }),
    ("cuMemGetHandleForAddressRange", Shares { address: 1 }),
    // (SYNC_MEMOPS, the only one that can be set.)
    ("cuPointerSetAttribute", Shares { address: 2 }),
    ("cuCtxEnablePeerAccess", OF_PEERS),
    ("cuMemcpy3DPeer", OF_PEERS),
    ("cuMemcpy3DPeerAsync", OF_PEERS),
    ("cuCtxDestroy", EndsContext),
    ("cuDevicePrimaryCtxReset", EndsContext),
    ("cuDevicePrimaryCtxRelease", EndsContext),
];

/// In the order of their numbers.
#[rustfmt::skip]
pub(super) const ROWS: &[Function] = &[
    f(1, "cuLaunchKernel", SZ, Launch, 11).size(Grid(1)).stream(8).of(Kernel, 0),
    f(2, "cuLaunchKernelEx", SZ, Launch, 4).config(0).of(Kernel, 1),
    f(3, "cuLaunchCooperativeKernel", SZ, Launch, 10).size(Grid(1)).stream(8).of(Kernel, 0),
    f(4, "cuGraphLaunch", SZ, GraphLaunch, 2).stream(1).of(Graph, 0),
    f(5, "cuLaunchHostFunc", SZ, HostFunction, 3).stream(0).of(Code, 1),
    f(10, "cuMemcpy", DS, Copy, 3).size(Word(2)).of(Address, 0).from(1).copies(Either, true),
    f(11, "cuMemcpyAsync", SZ, CopyAsync, 4).size(Word(2)).stream(3).of(Address, 0).from(1).copies(Either, false),
    f(12, "cuMemcpyHtoD", V2_DS, Copy, 3).size(Word(2)).of(Address, 0).from(1).copies(ToGpu, true),
    f(13, "cuMemcpyHtoDAsync", V2_SZ, CopyAsync, 4).size(Word(2)).stream(3).of(Address, 0).from(1).copies(ToGpu, false),
    f(14, "cuMemcpyDtoH", V2_DS, Copy, 3).size(Word(2)).of(Address, 0).from(1).copies(FromGpu, true),
    f(15, "cuMemcpyDtoHAsync", V2_SZ, CopyAsync, 4).size(Word(2)).stream(3).of(Address, 0).from(1).copies(FromGpu, false),
    f(16, "cuMemcpyDtoD", V2_DS, Copy, 3).size(Word(2)).of(Address, 0).from(1),
    f(17, "cuMemcpyDtoDAsync", V2_SZ, CopyAsync, 4).size(Word(2)).stream(3).of(Address, 0).from(1),
    f(18, "cuMemcpyPeer", DS, Copy, 5).size(Word(4)).of(Address, 0).from(2).answered(OF_PEERS),
    f(19, "cuMemcpyPeerAsync", SZ, CopyAsync, 6).size(Word(4)).stream(5).of(Address, 0).from(2).answered(OF_PEERS),
    f(20, "cuMemcpy2D", V2_DS, Copy, 1).size(At2(0, 112)),
    f(21, "cuMemcpy2DUnaligned", V2_DS, Copy, 1).size(At2(0, 112)),
    f(22, "cuMemcpy2DAsync", V2_SZ, CopyAsync, 2).size(At2(0, 112)).stream(1),
    f(23, "cuMemcpy3D", V2_DS, Copy, 1).size(At3(0, 176)),
    f(24, "cuMemcpy3DAsync", V2_SZ, CopyAsync, 2).size(At3(0, 176)).stream(1),
    f(30, "cuMemsetD8", V2_DS, Memset, 3).size(Word(2)).of(Address, 0),
    f(31, "cuMemsetD8Async", SZ, Memset, 4).size(Word(2)).stream(3).of(Address, 0),
    f(32, "cuMemsetD16", V2_DS, Memset, 3).size(Times(2, 2)).of(Address, 0),
    f(33, "cuMemsetD16Async", SZ, Memset, 4).size(Times(2, 2)).stream(3).of(Address, 0),
    f(34, "cuMemsetD32", V2_DS, Memset, 3).size(Times(2, 4)).of(Address, 0),
    f(35, "cuMemsetD32Async", SZ, Memset, 4).size(Times(2, 4)).stream(3).of(Address, 0),
    f(36, "cuMemsetD2D8", V2_DS, Memset, 5).size(Product(3, 4, 1)).of(Address, 0),
    f(37, "cuMemsetD2D8Async", SZ, Memset, 6).size(Product(3, 4, 1)).stream(5).of(Address, 0),
    f(38, "cuMemsetD2D32", V2_DS, Memset, 5).size(Product(3, 4, 4)).of(Address, 0),
    f(39, "cuMemsetD2D32Async", SZ, Memset, 6).size(Product(3, 4, 4)).stream(5).of(Address, 0),
    f(50, "cuEventRecord", SZ, EventRecord, 2).stream(1).of(Event, 0),
    f(51, "cuEventRecordWithFlags", SZ, EventRecord, 3).stream(1).of(Event, 0),
    f(52, "cuEventQuery", PLAIN, Query, 1).of(Event, 0),
    f(53, "cuStreamQuery", SZ, Query, 1).stream(0),
    f(54, "cuStreamWaitEvent", SZ, StreamWait, 3).stream(0).of(Event, 1),
    f(60, "cuEventSynchronize", PLAIN, Synchronize, 1).of(Event, 0),
    f(61, "cuStreamSynchronize", SZ, Synchronize, 1).stream(0),
    f(62, "cuCtxSynchronize", &["", "_v2"], Synchronize, 1),
    f(70, "cuMemAlloc", V2, Alloc, 2).size(Word(1)).answered(Answer::Alloc),
    f(71, "cuMemFree", V2, Free, 1).of(Address, 0).answered(Answer::Free),
    f(72, "cuMemAllocAsync", SZ, Alloc, 3).size(Word(1)).stream(2),
    f(73, "cuMemFreeAsync", SZ, Free, 2).stream(1).of(Address, 0),
    f(74, "cuMemAllocHost", V2, Alloc, 2).size(Word(1)).answered(AllocHost),
    f(75, "cuMemHostAlloc", PLAIN, Alloc, 3).size(Word(1)).answered(HostAlloc),
    f(76, "cuMemFreeHost", PLAIN, Free, 1).of(Address, 0).answered(FreeHost),
    f(77, "cuMemHostRegister", V2, Alloc, 3).size(Word(1)).of(Address, 0).answered(Register),
    f(78, "cuMemHostUnregister", PLAIN, Free, 1).of(Address, 0),
    f(80, "cuStreamCreate", PLAIN, Create, 2).does(MakesStream),
    f(81, "cuStreamCreateWithPriority", PLAIN, Create, 3).does(MakesStream),
    f(82, "cuStreamDestroy", V1_V2, Destroy, 1).stream(0),
    f(83, "cuEventCreate", PLAIN, Create, 2),
    f(84, "cuEventDestroy", V1_V2, Destroy, 1).of(Event, 0),
    f(85, "cuGraphInstantiateWithFlags", PLAIN, Create, 3).of(Flags, 2).does(MakesGraph),
    f(86, "cuGraphInstantiateWithParams", SZ, Create, 3).does(MakesGraph),
    f(87, "cuGraphExecDestroy", PLAIN, Destroy, 1).of(Graph, 0),
    f(88, "cuModuleLoadData", PLAIN, Create, 2).does(LoadsCode).answered(COMPILES),
    f(89, "cuModuleLoadDataEx", PLAIN, Create, 5).does(LoadsCode).answered(Compiles { is_file: false, options: 2, names: 3, values: 4 }),
    f(90, "cuLibraryLoadData", PLAIN, Create, 8).does(LoadsCode).answered(Compiles { is_file: false, options: 4, names: 2, values: 3 }),
    f(91, "cuModuleUnload", PLAIN, Destroy, 1).does(UnloadsCode),
    f(92, "cuLibraryUnload", PLAIN, Destroy, 1).does(UnloadsCode),
    f(93, "cuProfilerStart", PLAIN, Profiler, 0).does(StartsProfilers),
    f(94, "cuProfilerStop", PLAIN, Profiler, 0).does(StopsProfilers),
    // The first version has a pointer more.
    f(95, "cuGraphExecUpdate", V1_V2, Create, 4).of(Graph, 0).does(ChangesGraph),
    // CUDA 12.8's form has a place for the number of the copy that failed.
    f(96, "cuMemcpyBatchAsync", SZ, CopyAsync, 9).batch(Copies(0, 1, 2, 3)).stream(8).answered(Answer::Batch { stream: 8 }),
    f(96, "cuMemcpyBatchAsync", V2_SZ, CopyAsync, 8).since(13000).batch(Copies(0, 1, 2, 3)).stream(7).answered(Answer::Batch { stream: 7 }),
    f(97, "cuMemcpy3DBatchAsync", SZ, CopyAsync, 5).batch(Copies3d(1, 0)).stream(4).answered(Answer::Batch3d { stream: 4 }),
    f(97, "cuMemcpy3DBatchAsync", V2_SZ, CopyAsync, 4).since(13000).batch(Copies3d(1, 0)).stream(3).answered(Answer::Batch3d { stream: 3 }),
    // What fixes look at: whether a stream is being captured, and what is asked of memory.
    f(98, "cuStreamBeginCapture", V1_V2_SZ, Create, 2).stream(0).answered(BeginsCapture),
    f(99, "cuStreamBeginCaptureToGraph", SZ, Create, 6).stream(0).answered(BeginsCapture),
    f(100, "cuStreamEndCapture", SZ, Destroy, 2).stream(0).answered(EndsCapture),
    f(101, "cuMemHostGetFlags", PLAIN, Query, 2).answered(Tells(Told::Flags)),
    f(102, "cuMemRetainAllocationHandle", PLAIN, Query, 2).answered(Tells(Told::Handle)),
    f(103, "cuMemGetAddressRange", V2, Query, 3).answered(Tells(Told::Range)),
    f(104, "cuPointerGetAttribute", PLAIN, Query, 3).answered(Tells(Told::Attribute)),
    f(105, "cuPointerGetAttributes", PLAIN, Query, 4).answered(Tells(Told::Attributes)),
    f(106, "cuInit", PLAIN, Create, 1).answered(Answer::Initialises),
    f(107, "cuModuleLoad", PLAIN, Create, 2).does(LoadsCode).answered(Compiles { is_file: true, options: 0, names: 0, values: 0 }),
    f(108, "cuModuleLoadFatBinary", PLAIN, Create, 2).does(LoadsCode).answered(COMPILES),
    f(109, "cuLibraryLoadFromFile", PLAIN, Create, 8).does(LoadsCode).answered(Compiles { is_file: true, options: 4, names: 2, values: 3 }),
    // The source is the value.
    f(110, "cuStreamWaitValue32", V1_V2_SZ, StreamWait, 4).size(Compare(3)).stream(0).of(Address, 1).from(2),
    f(111, "cuStreamWaitValue64", V1_V2_SZ, StreamWait, 4).size(Compare(3)).stream(0).of(Address, 1).from(2),
    f(112, "cuStreamWriteValue32", V1_V2_SZ, StreamWrite, 4).stream(0).of(Address, 1).from(2),
    f(113, "cuStreamWriteValue64", V1_V2_SZ, StreamWrite, 4).stream(0).of(Address, 1).from(2),

    f(257, "cudaLaunchKernel", SZ, Launch, 8).size(Dim3(1)).stream(7).of(Kernel, 0),
    f(258, "cudaLaunchKernelExC", SZ, Launch, 3).config(0).of(Kernel, 1),
    f(259, "cudaLaunchCooperativeKernel", SZ, Launch, 8).size(Dim3(1)).stream(7).of(Kernel, 0),
    f(260, "cudaGraphLaunch", SZ, GraphLaunch, 2).stream(1).of(Graph, 0),
    f(261, "cudaLaunchHostFunc", SZ, HostFunction, 3).stream(0).of(Code, 1),
    // Launches kernels in programs that CUDA 13 compiled.
    f(262, "__cudaLaunchKernel", SZ, Launch, 8).size(Dim3(1)).stream(7).of(Kernel, 0),
    f(266, "cudaMemcpy", DS, Copy, 4).size(Word(2)).of(Address, 0).from(1).direction(3),
    f(267, "cudaMemcpyAsync", SZ, CopyAsync, 5).size(Word(2)).stream(4).of(Address, 0).from(1).direction(3),
    f(268, "cudaMemcpyPeer", PLAIN, Copy, 5).size(Word(4)).of(Address, 0).from(2).answered(OF_PEERS),
    f(269, "cudaMemcpyPeerAsync", PLAIN, CopyAsync, 6).size(Word(4)).stream(5).of(Address, 0).from(2).answered(OF_PEERS),
    f(270, "cudaMemcpy2D", DS, Copy, 7).size(Product(4, 5, 1)).of(Address, 0).direction(6),
    f(271, "cudaMemcpy2DAsync", SZ, CopyAsync, 8).size(Product(4, 5, 1)).stream(7).of(Address, 0).direction(6),
    f(272, "cudaMemcpy3D", DS, Copy, 1).size(At3(0, 128)),
    f(273, "cudaMemcpy3DAsync", SZ, CopyAsync, 2).size(At3(0, 128)).stream(1),
    f(274, "cudaMemcpyToSymbol", DS, Copy, 5).size(Word(2)).of(Address, 0).direction(4),
    f(275, "cudaMemcpyToSymbolAsync", SZ, CopyAsync, 6).size(Word(2)).stream(5).of(Address, 0).direction(4),
    f(276, "cudaMemcpyFromSymbol", DS, Copy, 5).size(Word(2)).of(Address, 0).direction(4),
    f(277, "cudaMemcpyFromSymbolAsync", SZ, CopyAsync, 6).size(Word(2)).stream(5).of(Address, 0).direction(4),
    f(286, "cudaMemset", DS, Memset, 3).size(Word(2)).of(Address, 0),
    f(287, "cudaMemsetAsync", SZ, Memset, 4).size(Word(2)).stream(3).of(Address, 0),
    f(288, "cudaMemset2D", DS, Memset, 5).size(Product(3, 4, 1)).of(Address, 0),
    f(289, "cudaMemset2DAsync", SZ, Memset, 6).size(Product(3, 4, 1)).stream(5).of(Address, 0),
    f(306, "cudaEventRecord", SZ, EventRecord, 2).stream(1).of(Event, 0),
    f(307, "cudaEventRecordWithFlags", SZ, EventRecord, 3).stream(1).of(Event, 0),
    f(308, "cudaEventQuery", PLAIN, Query, 1).of(Event, 0),
    f(309, "cudaStreamQuery", SZ, Query, 1).stream(0),
    f(310, "cudaStreamWaitEvent", SZ, StreamWait, 3).stream(0).of(Event, 1),
    f(316, "cudaEventSynchronize", PLAIN, Synchronize, 1).of(Event, 0),
    f(317, "cudaStreamSynchronize", SZ, Synchronize, 1).stream(0),
    f(318, "cudaDeviceSynchronize", PLAIN, Synchronize, 0),
    f(326, "cudaMalloc", PLAIN, Alloc, 2).size(Word(1)),
    f(327, "cudaFree", PLAIN, Free, 1).of(Address, 0),
    f(328, "cudaMallocAsync", SZ, Alloc, 3).size(Word(1)).stream(2),
    f(329, "cudaFreeAsync", SZ, Free, 2).stream(1).of(Address, 0),
    f(330, "cudaMallocHost", PLAIN, Alloc, 2).size(Word(1)),
    f(331, "cudaHostAlloc", PLAIN, Alloc, 3).size(Word(1)),
    f(332, "cudaFreeHost", PLAIN, Free, 1).of(Address, 0),
    f(333, "cudaHostRegister", PLAIN, Alloc, 3).size(Word(1)).of(Address, 0),
    f(334, "cudaHostUnregister", PLAIN, Free, 1).of(Address, 0),
    f(336, "cudaStreamCreate", PLAIN, Create, 1).does(MakesStream),
    f(337, "cudaStreamCreateWithFlags", PLAIN, Create, 2).does(MakesStream),
    f(338, "cudaStreamCreateWithPriority", PLAIN, Create, 3).does(MakesStream),
    f(339, "cudaStreamDestroy", PLAIN, Destroy, 1).stream(0),
    f(340, "cudaEventCreate", PLAIN, Create, 1),
    f(341, "cudaEventCreateWithFlags", PLAIN, Create, 2),
    f(342, "cudaEventDestroy", PLAIN, Destroy, 1).of(Event, 0),
    // Three words since CUDA 12, five before.
    f(343, "cudaGraphInstantiate", PLAIN, Create, 5),
    f(344, "cudaGraphExecDestroy", PLAIN, Destroy, 1).of(Graph, 0),
    f(345, "cudaProfilerStart", PLAIN, Profiler, 0).does(StartsProfilers),
    f(346, "cudaProfilerStop", PLAIN, Profiler, 0).does(StopsProfilers),
    // Before CUDA 12 it had a pointer more.
    f(347, "cudaGraphExecUpdate", PLAIN, Create, 4).of(Graph, 0).does(ChangesGraph),
];

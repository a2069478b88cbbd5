//! Graphs that are captured from streams: their effects, their order, and the refused graphs.

mod program;

use cuda::Argument::{U32, U64};
use cuda::{Context, Cuda, DeviceBuffer, Function, Graph, Module, Stream};
use std::ffi::{c_int, c_void};

/// (The kernels are found by their names.)
const PTX: &str = ".version 8.0\n.target sm_90\n.address_size 64\n";

fn context() -> Context {
    let context = Cuda::load().unwrap().device(0).unwrap().primary_context().unwrap();
    context.make_current().unwrap();
    context
}

fn words(memory: &DeviceBuffer<'_>) -> Vec<u32> {
    let mut bytes = vec![0; memory.len()];
    memory.read(&mut bytes).unwrap();
    bytes[..256].chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}

/// Launches one thread.
fn one(function: &Function<'_>, stream: &Stream<'_>, arguments: &[cuda::Argument]) -> cuda::Result<()> {
    // SAFETY: the tests' arguments are the kernels', and name memory that outlives the stream's work.
    unsafe { function.launch([1; 3], [1; 3], 0, stream, arguments) }
}

#[test]
fn a_graph_does_what_its_calls_do_as_often_as_it_is_launched() {
    if !program::inside("a_graph_does_what_its_calls_do_as_often_as_it_is_launched") {
        return;
    }
    let context = context();
    let module = Module::from_ptx(&context, PTX).unwrap();
    let [add, log, store, copy] = ["add1", "log", "store", "copy"].map(|name| module.function(name).unwrap());
    let stream = Stream::new(&context).unwrap();
    // The same work twice: once by the calls themselves, once by a graph. 64 words for counting, and a log.
    let memory = [(); 4].map(|()| DeviceBuffer::new(&context, 4096).unwrap());
    memory.iter().for_each(|memory| memory.write(&[0; 4096]).unwrap());
    let work = |words: &DeviceBuffer<'_>, logged: &DeviceBuffer<'_>| {
        let at = words.address();
        // SAFETY: the memory outlives the stream's work.
        unsafe { add.launch([3, 2, 1], [32, 4, 1], 0, &stream, &[U64(at)]) }?;
        for n in 1..=4 {
            one(&log, &stream, &[U64(logged.address()), U32(n)])?;
        }
        stream.copy(words.slice(64, 64).unwrap(), words.slice(0, 64).unwrap())?;
        one(&add, &stream, &[U64(at)])?;
        stream.fill8(words.slice(128, 8).unwrap(), 0xa5)?;
        stream.fill32(words.slice(136, 8).unwrap(), 0x1234_5678)?;
        one(&store, &stream, &[U64(at + 132), U32(99)])?;
        one(&copy, &stream, &[U64(at + 200), U64(at + 64), U32(8)])?;
        one(&log, &stream, &[U64(logged.address()), U32(5)])?;
        one(&add, &stream, &[U64(at + 64)])?;
        stream.fill32(words.slice(144, 4).unwrap(), 7)
    };
    let graph = Graph::capture(&stream, || work(&memory[2], &memory[3])).unwrap();
    stream.synchronize().unwrap();
    assert!(words(&memory[2]).iter().all(|word| *word == 0), "captured work is not run");
    let exec = graph.instantiate().unwrap();
    drop(graph);
    for round in 1..=40 {
        work(&memory[0], &memory[1]).unwrap();
        // SAFETY: the memory outlives the stream's work.
        unsafe { exec.launch(&stream) }.unwrap();
        if round < 4 || round == 40 {
            stream.synchronize().unwrap();
            assert_eq!(words(&memory[2]), words(&memory[0]), "round {round}");
            assert_eq!(words(&memory[3]), words(&memory[1]), "round {round}");
        }
    }
    let counted = words(&memory[2]);
    assert_eq!((counted[0], counted[16], counted[33]), (40 * (3 * 2 * 32 * 4 + 1), 40 * 768 + 39 + 1, 99));
    assert_eq!(words(&memory[3])[..7], [200, 1, 2, 3, 4, 5, 1]);
}

#[test]
fn a_stream_is_in_order_between_graphs_and_other_work() {
    if !program::inside("a_stream_is_in_order_between_graphs_and_other_work") {
        return;
    }
    let context = context();
    let module = Module::from_ptx(&context, PTX).unwrap();
    let add = module.function("add1").unwrap();
    let streams = [(); 2].map(|()| Stream::new(&context).unwrap());
    let memory = DeviceBuffer::new(&context, 4096).unwrap();
    let word = |n: usize| memory.slice(64 * n, 4).unwrap();
    // Each stream has a graph: it copies the first of its words to the third, then adds 1 to that 20 times.
    let execs = [0, 1].map(|n| {
        let captured = Graph::capture(&streams[n], || {
            streams[n].copy(word(4 * n + 2), word(4 * n))?;
            (0..20).try_for_each(|_| one(&add, &streams[n], &[U64(word(4 * n + 2).address())]))
        });
        captured.unwrap().instantiate().unwrap()
    });
    let mut seen = vec![[0u8; 4]; 2 * 150];
    for (n, to) in seen.iter_mut().enumerate() {
        let (stream, exec, n) = (&streams[n % 2], &execs[n % 2], n as u32);
        let at = 4 * (n as usize % 2);
        stream.fill32(word(at), 1000 * n).unwrap();
        // SAFETY: the memory outlives the streams' work.
        unsafe { exec.launch(stream) }.unwrap();
        one(&add, stream, &[U64(word(at + 2).address())]).unwrap();
        // SAFETY: as above, and each target is its own.
        unsafe { stream.download(to, word(at + 2)) }.unwrap();
    }
    context.synchronize().unwrap();
    let right: Vec<u32> = (0..seen.len() as u32).map(|n| 1000 * n + 21).collect();
    assert_eq!(seen.into_iter().map(u32::from_le_bytes).collect::<Vec<_>>(), right);
}

#[test]
fn a_long_chain_is_launched() {
    if !program::inside("a_long_chain_is_launched") {
        return;
    }
    let context = context();
    let module = Module::from_ptx(&context, PTX).unwrap();
    let add = module.function("add1").unwrap();
    let stream = Stream::new(&context).unwrap();
    let memory = DeviceBuffer::new(&context, 4096).unwrap();
    memory.write(&[0; 4096]).unwrap();
    let captured = Graph::capture(&stream, || (0..500).try_for_each(|_| one(&add, &stream, &[U64(memory.address())])));
    let exec = captured.unwrap().instantiate().unwrap();
    for launches in 1..=3 {
        // SAFETY: the memory outlives the stream's work.
        unsafe { exec.launch(&stream) }.unwrap();
        stream.synchronize().unwrap();
        assert_eq!(words(&memory)[0], 500 * launches);
    }
}

#[test]
fn work_that_no_graph_can_contain_is_refused_and_the_stream_continues() {
    if !program::inside("work_that_no_graph_can_contain_is_refused_and_the_stream_continues") {
        return;
    }
    let context = context();
    let module = Module::from_ptx(&context, PTX).unwrap();
    let [add, gate] = ["add1", "gate"].map(|name| module.function(name).unwrap());
    assert!(module.function("unknown").is_err());
    let stream = Stream::new(&context).unwrap();
    let memory = DeviceBuffer::new(&context, 4096).unwrap();
    let at = U64(memory.address());
    let code = |what: cuda::Result<()>| what.err().map(|error| matches!(error, cuda::Error::Call { code: 900, .. }));
    let mut inside = Vec::new();
    let captured = Graph::capture(&stream, || {
        inside = vec![code(stream.synchronize()), code(one(&gate, &stream, &[at, at, at, U32(1)]))];
        one(&add, &stream, &[at])
    });
    assert_eq!(inside, [Some(true); 2]);
    assert!(matches!(captured, Err(cuda::Error::Call { code: 901, .. })), "{captured:?}");
    // Many bytes that are no words; few are.
    let many = DeviceBuffer::new(&context, 8192).unwrap();
    let few = Graph::capture(&stream, || stream.fill8(many.slice(0, 3).unwrap(), 1)).unwrap();
    few.instantiate().unwrap();
    let odd = Graph::capture(&stream, || stream.fill8(many.slice(0, 4097).unwrap(), 1)).unwrap();
    assert!(matches!(odd.instantiate(), Err(cuda::Error::Call { code: 801, .. })));
    one(&add, &stream, &[at]).unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn captures_begin_and_end_once_and_nodes_are_counted() {
    if !program::inside("captures_begin_and_end_once_and_nodes_are_counted") {
        return;
    }
    let _context = context();
    // SAFETY: the library is loaded already; the functions have these signatures.
    unsafe {
        let library = libloading::Library::new("libcuda.so.1").unwrap();
        type Handle = *mut c_void;
        let begin = library.get::<unsafe extern "C" fn(Handle, c_int) -> c_int>(b"cuStreamBeginCapture_v2").unwrap();
        let end = library.get::<unsafe extern "C" fn(Handle, *mut Handle) -> c_int>(b"cuStreamEndCapture").unwrap();
        let asked = library.get::<unsafe extern "C" fn(Handle, *mut c_int) -> c_int>(b"cuStreamIsCapturing").unwrap();
        let create = library.get::<unsafe extern "C" fn(*mut Handle, u32) -> c_int>(b"cuStreamCreate").unwrap();
        let fill = library.get::<unsafe extern "C" fn(u64, u32, usize, Handle) -> c_int>(b"cuMemsetD32Async").unwrap();
        let nodes =
            library.get::<unsafe extern "C" fn(Handle, *mut Handle, *mut usize) -> c_int>(b"cuGraphGetNodes").unwrap();
        let destroy = library.get::<unsafe extern "C" fn(Handle) -> c_int>(b"cuGraphDestroy").unwrap();
        let (mut stream, mut graph) = (std::ptr::null_mut(), std::ptr::null_mut());
        assert_eq!(create(&mut stream, 1), 0);
        let status = || {
            let mut status = -1;
            assert_eq!(asked(stream, &mut status), 0);
            status
        };
        assert_eq!((begin(std::ptr::null_mut(), 1), end(stream, &mut graph), status()), (900, 401, 0));
        assert_eq!((begin(stream, 1), begin(stream, 1), status()), (0, 401, 1));
        assert_eq!((0..3).map(|_| fill(0, 0, 0, stream)).sum::<c_int>(), 0);
        assert_eq!((end(stream, &mut graph), status()), (0, 0));
        let mut count = 0;
        assert_eq!((nodes(graph, std::ptr::null_mut(), &mut count), count), (0, 3));
        let mut all = [std::ptr::dangling_mut(); 4];
        count = 4;
        assert_eq!((nodes(graph, all.as_mut_ptr(), &mut count), count, all[3].is_null()), (0, 3, true));
        assert!(all[0] != all[1] && all[1] != all[2]);
        assert_eq!((destroy(graph), destroy(graph)), (0, 1));
        assert_eq!(nodes(graph, std::ptr::null_mut(), &mut count), 1);
    }
}

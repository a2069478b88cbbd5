//! Graphs that are captured from streams: what they do, in which order, and what is refused.

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

/// One thread.
fn one(function: &Function<'_>, stream: &Stream<'_>, arguments: &[cuda::Argument]) -> cuda::Result<()> {
    // SAFETY: the tests' arguments are the kernels', and name memory that outlives the stream's work.
    unsafe { function.launch([1; 3], [1; 3], 0, stream, arguments) }
}

#[test]
fn what_no_graph_can_have_is_refused_and_the_stream_goes_on() {
    if !program::inside("what_no_graph_can_have_is_refused_and_the_stream_goes_on") {
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
    // Bytes that are no words.
    let odd = Graph::capture(&stream, || stream.fill8(memory.slice(0, 3).unwrap(), 1)).unwrap();
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

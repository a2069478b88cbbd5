//! Sessions with several launch lanes, next to a libcuda in software. (This file must not name the software GPU in process: it is preloaded.)

#[path = "../../../testing/softcuda/tests/program/mod.rs"]
mod program;

use cuda::Argument::{U32, U64};
use cuda::{Context, Cuda, DeviceBuffer, Function, Module, PinnedBuffer, Stream};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use submit::{ChainHow, ChainStep, Error, Follow, Graph, InOrder, Kind, Options, Session};
use test_support::counting::{Counting, cost, watch_system_calls};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const LIMIT: Duration = Duration::from_secs(20);
const LANES: usize = 8;

struct Rig {
    session: Session,
    stream: Stream<'static>,
    add: Function<'static>,
    store: Function<'static>,
    memory: PinnedBuffer<'static>,
    context: &'static Context,
}

fn rig(launch_lanes: usize) -> Rig {
    Session::watch().unwrap();
    let context = Cuda::load().unwrap().device(0).unwrap().primary_context().unwrap();
    let context: &'static Context = Box::leak(Box::new(context));
    context.make_current().unwrap();
    let session = Session::new();
    session.open(&options(launch_lanes)).unwrap();
    let module: &'static Module<'static> = Box::leak(Box::new(Module::from_ptx(context, ".version 8.0\n").unwrap()));
    let [add, store] = ["add1", "store"].map(|name| module.function(name).unwrap());
    let stream = Stream::new(context).unwrap();
    Rig { session, stream, add, store, memory: PinnedBuffer::new(context, 4096).unwrap(), context }
}

fn options(launch_lanes: usize) -> Options {
    Options { kind: Kind::Cuda, lanes: 1, launch_lanes, profile: Follow::Nothing, ..Options::default() }
}

/// The lane that a handle names: bits 44 to 51.
fn lane_of(graph: Graph) -> usize {
    (graph.raw() >> 44 & 0xff) as usize
}

impl Rig {
    fn word(&self, n: usize) -> &AtomicU32 {
        // SAFETY: within the pinned memory, and aligned. The GPU and this process access it atomically.
        unsafe { AtomicU32::from_ptr((self.memory.as_ptr() as *mut u32).add(n)) }
    }

    fn address(&self, n: usize) -> u64 {
        self.memory.device_address().unwrap() + 4 * n as u64
    }

    /// An executable graph, which CUDA has not launched.
    fn exec(&self, function: &Function<'_>, arguments: &[cuda::Argument]) -> cuda::GraphExec<'static> {
        let captured = cuda::Graph::capture(&self.stream, || {
            // SAFETY: the arguments are the kernel's, and the memory outlives the session.
            unsafe { function.launch([1; 3], [1; 3], 0, &self.stream, arguments) }
        });
        captured.unwrap().instantiate().unwrap()
    }

    fn prepared(&self, function: &Function<'_>, arguments: &[cuda::Argument]) -> Graph {
        let exec = self.exec(function, arguments);
        // SAFETY: module and memory stay until the session is closed.
        unsafe { self.session.prepare_graph(exec.handle(), self.stream.handle()) }.unwrap()
    }

    /// A graph that adds 1 to a word, on a launch lane. The word is 0.
    fn adds(&self, n: usize, lane: usize) -> Graph {
        let learnt = self.prepared(&self.add, &[U64(self.address(n))]);
        let graph = self.session.copy_graph(learnt, Some(lane)).unwrap();
        assert_eq!(lane_of(graph), lane);
        self.session.graph_release(learnt).unwrap();
        self.word(n).store(0, Ordering::SeqCst);
        graph
    }

    fn of(&self) -> submit::Stream {
        // SAFETY: the stream lives as long as the rig.
        unsafe { submit::Stream::from_raw(self.stream.handle()) }
    }

    /// The stream waits until the word is 1.
    fn gate(&self) -> cuda::Words {
        let gate = cuda::Words::new(self.context, 1).unwrap();
        // SAFETY: the word outlives the stream's use of it.
        unsafe { gate.hold_until(self.stream.handle(), 0, 1) }.unwrap();
        gate
    }
}

/// Launches this often, and never finds the lane taken.
fn launches(session: &Session, graph: Graph, times: u32) {
    let mut last = None;
    for made in 0..times {
        last = loop {
            match session.launch(graph) {
                Ok(copy) => break Some(copy),
                Err(Error::Full(_)) => session.wait(last.unwrap(), LIMIT).unwrap(),
                Err(other) => panic!("launch {made}: {other:?}"),
            }
        };
    }
    session.wait(last.unwrap(), LIMIT).unwrap();
}

#[test]
fn threads_with_a_lane_each_launch_at_the_same_time_and_none_is_ever_busy() {
    if !program::inside_with("threads_with_a_lane_each_launch_at_the_same_time_and_none_is_ever_busy", "poll") {
        return;
    }
    let rig = rig(LANES);
    let graphs: Vec<Graph> = (0..LANES).map(|lane| rig.adds(lane, lane)).collect();
    let start = Barrier::new(LANES);
    std::thread::scope(|scope| {
        for graph in &graphs {
            scope.spawn(|| {
                start.wait();
                launches(&rig.session, *graph, 500);
            });
        }
    });
    assert!((0..LANES).all(|lane| rig.word(lane).load(Ordering::SeqCst) == 500));
    rig.session.close().unwrap();
}

/// Threads that live at the same time have different numbers, and so different lanes, as long as there are enough.
#[test]
fn a_graph_belongs_to_the_lane_of_the_thread_that_prepared_it() {
    if !program::inside("a_graph_belongs_to_the_lane_of_the_thread_that_prepared_it") {
        return;
    }
    let rig = rig(LANES);
    let (turn, over) = (std::sync::Mutex::new(()), Barrier::new(LANES));
    let prepare = |n: usize| {
        let one = turn.lock().unwrap();
        rig.context.make_current().unwrap();
        let graph = rig.prepared(&rig.add, &[U64(rig.address(n))]);
        let again = rig.session.copy_graph(graph, None).unwrap();
        drop(one);
        over.wait();
        assert_eq!(lane_of(again), lane_of(graph));
        lane_of(graph)
    };
    let mut lanes: Vec<usize> = std::thread::scope(|scope| {
        let prepare = &prepare;
        let threads: Vec<_> = (0..LANES).map(|n| scope.spawn(move || prepare(n))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    lanes.sort_unstable();
    assert_eq!(lanes, (0..LANES).collect::<Vec<_>>());
    rig.session.close().unwrap();
}

/// CUDA launches a graph that is learnt, while another thread launches on another lane. Two threads that learn take turns.
#[test]
fn a_graph_is_learnt_while_others_are_launched_on_other_lanes() {
    if !program::inside_with("a_graph_is_learnt_while_others_are_launched_on_other_lanes", "poll") {
        return;
    }
    let rig = rig(4);
    let learns = lane_of(rig.prepared(&rig.add, &[U64(rig.address(100))]));
    // (The two threads below have the next numbers.)
    let graph = rig.adds(0, (learns + 3) % 4);
    let (stop, mut launched) = (AtomicBool::new(false), 0);
    std::thread::scope(|scope| {
        let launcher = scope.spawn(|| {
            let mut launched = 0;
            while !stop.load(Ordering::SeqCst) {
                launches(&rig.session, graph, 20);
                launched += 20;
            }
            launched
        });
        let execs: Vec<_> = (0..10).map(|n| rig.exec(&rig.add, &[U64(rig.address(101 + n))])).collect();
        for exec in &execs {
            // SAFETY: module and memory stay until the session is closed.
            unsafe { rig.session.prepare_graph(exec.handle(), rig.stream.handle()) }.unwrap();
        }
        let (context, session) = (rig.context, &rig.session);
        let more: Vec<_> = (0..8).map(|n| rig.exec(&rig.add, &[U64(rig.address(120 + n))])).collect();
        let streams: Vec<_> = (0..2).map(|_| Stream::new(context).unwrap()).collect();
        std::thread::scope(|scope| {
            for (execs, stream) in more.chunks(4).zip(&streams) {
                let execs: Vec<usize> = execs.iter().map(|exec| exec.handle() as usize).collect();
                let stream = stream.handle() as usize;
                scope.spawn(move || {
                    context.make_current().unwrap();
                    for exec in execs {
                        // SAFETY: as above.
                        unsafe { session.prepare_graph(exec as *mut _, stream as *mut _) }.unwrap();
                    }
                });
            }
        });
        stop.store(true, Ordering::SeqCst);
        launched = launcher.join().unwrap();
    });
    assert_eq!(rig.word(0).load(Ordering::SeqCst), launched);
    rig.session.close().unwrap();
}

#[test]
fn lanes_are_not_ordered_but_by_tickets_and_streams() {
    if !program::inside("lanes_are_not_ordered_but_by_tickets_and_streams") {
        return;
    }
    let rig = rig(3);
    let session = &rig.session;
    let [first, second, third] = [0, 1, 2].map(|n| rig.adds(n, n));
    let gate = rig.gate();
    let waits = session.launch_in(first, &InOrder::after_stream(rig.of())).unwrap();
    // Another lane still works.
    session.wait(session.launch(third).unwrap(), LIMIT).unwrap();
    // Launches that wait for the ticket do not run, nor do later launches on that lane.
    let behind = session.launch_in(second, &InOrder::after(&[waits])).unwrap();
    let later = session.launch(second).unwrap();
    let both = session.launch_in(third, &InOrder::after(&[waits, later])).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert!([waits, behind, later, both].iter().all(|copy| !session.poll(*copy).unwrap()));
    assert_eq!([0, 1, 2].map(|n| rig.word(n).load(Ordering::SeqCst)), [0, 0, 1]);
    gate.word(0).store(1, Ordering::SeqCst);
    session.wait(both, LIMIT).unwrap();
    assert_eq!([0, 1, 2].map(|n| rig.word(n).load(Ordering::SeqCst)), [1, 2, 2]);
    // In a stream: each launch between two of CUDA's writes, and the next one on another lane.
    let graphs = [0, 1, 2].map(|lane| {
        let learnt = rig.prepared(&rig.add, &[U64(rig.address(10))]);
        session.copy_graph(learnt, Some(lane)).unwrap()
    });
    rig.word(10).store(0, Ordering::SeqCst);
    for round in 0..60usize {
        let launched = session.launch_in(graphs[round % 3], &InOrder::after_stream(rig.of())).unwrap();
        session.stream_wait(rig.of(), launched).unwrap();
        if round % 10 == 9 {
            rig.stream.synchronize().unwrap();
            assert_eq!(rig.word(10).load(Ordering::SeqCst) as usize, round + 1);
        }
    }
    session.close().unwrap();
}

#[test]
fn copies_of_graphs_have_their_parameters_and_pointers_and_end_with_the_memory() {
    if !program::inside("copies_of_graphs_have_their_parameters_and_pointers_and_end_with_the_memory") {
        return;
    }
    let rig = rig(4);
    let session = &rig.session;
    let graph = rig.prepared(&rig.store, &[U64(rig.address(0)), U32(5)]);
    session.set_parameter(graph, 0, 8, &7u32.to_le_bytes()).unwrap();
    let copy = session.copy_graph(graph, Some(3)).unwrap();
    // From then on each has its own parameters.
    session.set_parameter(graph, 0, 8, &9u32.to_le_bytes()).unwrap();
    session.wait(session.launch(copy).unwrap(), LIMIT).unwrap();
    assert_eq!(rig.word(0).load(Ordering::SeqCst), 7);
    // CUDA's memory, and the session's own.
    let block = DeviceBuffer::new(rig.context, 4096).unwrap();
    let [cudas, ours] = [session.pin(block.address(), 4096), session.allocate(4096, false)].map(Result::unwrap);
    session.set_pointer(graph, 0, 0, (ours, 64)).unwrap();
    let on_ours = session.copy_graph(graph, Some(1)).unwrap();
    session.set_pointer(graph, 0, 0, (cudas, 8)).unwrap();
    let on_cudas = session.copy_graph(graph, Some(2)).unwrap();
    let (pointer, _) = session.place(ours).unwrap();
    session.graph_release(graph).unwrap();
    for copy in [on_ours, on_cudas] {
        session.wait(session.launch(copy).unwrap(), LIMIT).unwrap();
    }
    let mut found = [0; 12];
    block.read(&mut found).unwrap();
    assert_eq!(found[8..], 9u32.to_le_bytes());
    // SAFETY: the session's memory.
    assert_eq!(unsafe { *((pointer + 64) as *const u32) }, 9);
    session.unpin(ours).unwrap();
    session.wait(session.launch(on_ours).unwrap(), LIMIT).unwrap();
    drop(block);
    assert!(matches!(session.launch(on_cudas), Err(Error::Freed)));
    assert!(matches!(session.copy_graph(on_cudas, Some(0)), Err(Error::Freed)));
    let chain = session.prepare_chain(&[ChainStep::Launch(on_cudas)], ChainHow::default());
    assert!(matches!(chain, Err(Error::Freed)), "{chain:?}");
    for (graph, lane) in [(copy, 4), (copy, usize::MAX)] {
        assert!(matches!(session.copy_graph(graph, Some(lane)), Err(Error::Argument(_))));
    }
    assert!(matches!(session.copy_graph(Graph::from_raw(copy.raw() ^ 1), Some(0)), Err(Error::Handle(_))));
    // A place on a lane that does not exist.
    assert!((4..256).all(|lane| {
        let handle = copy.raw() & !(0xff << 44) | lane << 44;
        matches!(session.launch(Graph::from_raw(handle)), Err(Error::Handle(_)))
    }));
    session.wait(session.launch(copy).unwrap(), LIMIT).unwrap();
    session.close().unwrap();
}

#[test]
fn a_chain_is_of_one_lane_and_has_its_copies_beside_that() {
    if !program::inside_with("a_chain_is_of_one_lane_and_has_its_copies_beside_that", "poll") {
        return;
    }
    let rig = rig(LANES);
    let session = &rig.session;
    let [host, video] = [false, true].map(|video| session.allocate(8192, video).unwrap());
    let [(pointer, _), (gpu, _)] = [host, video].map(|buffer| session.place(buffer).unwrap());
    let learnt = rig.prepared(&rig.add, &[U64(gpu)]);
    let made: Vec<(Graph, Graph)> = (0..LANES)
        .map(|lane| {
            let graph = session.copy_graph(learnt, Some(lane)).unwrap();
            let at = 64 * lane as u64;
            session.set_parameter(graph, 0, 0, &(gpu + at).to_le_bytes()).unwrap();
            let copy = |to, from| ChainStep::Copy { to: (to, at), from: (from, at), bytes: 64, by: None };
            let steps = [copy(video, host), ChainStep::Launch(graph), copy(host, video)];
            let beside = lane % 2 == 0;
            (graph, session.prepare_chain(&steps, ChainHow { beside, ..ChainHow::default() }).unwrap())
        })
        .collect();
    assert!(made.iter().enumerate().all(|(lane, (_, chain))| lane_of(*chain) == lane));
    let refused = session.prepare_chain(&[made[2].0, made[3].0].map(ChainStep::Launch), ChainHow::default());
    assert!(matches!(&refused, Err(Error::Graph(why)) if why.contains("another launch lane")), "{refused:?}");
    let refused = session.copy_graph(made[1].1, Some(0));
    assert!(matches!(&refused, Err(Error::Graph(why)) if why.contains("chain")), "{refused:?}");
    let start = Barrier::new(LANES);
    std::thread::scope(|scope| {
        for (lane, (_, chain)) in made.iter().enumerate() {
            let (start, chain) = (&start, *chain);
            scope.spawn(move || {
                // SAFETY: a word of the session's memory that only this thread and the GPU use.
                let word = unsafe { AtomicU32::from_ptr((pointer + 64 * lane as u64) as *mut u32) };
                start.wait();
                for round in 0..100 {
                    // (The CPU feeds the chain: the previous round has ended.)
                    word.store(round, Ordering::SeqCst);
                    let copy = session.launch(chain).unwrap();
                    session.wait(copy, LIMIT).unwrap();
                    assert_eq!(word.load(Ordering::SeqCst), round + 1, "lane {lane}");
                }
            });
        }
    });
    // A stream waits for a chain with a separate copy lane, of any launch lane.
    let chained = session.launch_in(made[6].1, &InOrder::after_stream(rig.of())).unwrap();
    session.stream_wait(rig.of(), chained).unwrap();
    rig.stream.synchronize().unwrap();
    assert!(session.poll(chained).unwrap());
    session.close().unwrap();
}

/// The software GPU ends only one channel. On a real GPU a fault in CUDA's group ends the whole group.
#[test]
fn a_lane_that_dies_takes_what_waits_for_it_along_and_no_other() {
    if !program::inside("a_lane_that_dies_takes_what_waits_for_it_along_and_no_other") {
        return;
    }
    let rig = rig(4);
    let session = &rig.session;
    let graphs = [0, 1, 2, 3].map(|n| rig.adds(n, n));
    let gate = rig.gate();
    session.set_parameter(graphs[0], 0, 0, &0x1234_5678_9000u64.to_le_bytes()).unwrap();
    let dies = session.launch_in(graphs[0], &InOrder::after_stream(rig.of())).unwrap();
    let waits = session.launch_in(graphs[1], &InOrder::after(&[dies])).unwrap();
    let too = session.launch_in(graphs[2], &InOrder::after(&[waits])).unwrap();
    let held = Stream::new(rig.context).unwrap();
    // SAFETY: the stream lives.
    session.stream_wait(unsafe { submit::Stream::from_raw(held.handle()) }, too).unwrap();
    gate.word(0).store(1, Ordering::SeqCst);
    assert!(matches!(session.wait(dies, LIMIT), Err(Error::Killed(_))));
    assert!(matches!(session.wait(too, LIMIT), Err(Error::Stopped)));
    assert!(matches!(session.wait(waits, LIMIT), Err(Error::Stopped)));
    held.synchronize().unwrap();
    assert!(matches!(session.launch(graphs[0]), Err(Error::Killed(_))));
    assert!(matches!(session.launch(graphs[1]), Err(Error::Stopped)));
    launches(session, graphs[3], 50);
    assert_eq!([1, 2, 3].map(|n| rig.word(n).load(Ordering::SeqCst)), [0, 0, 50]);
    // Preparing on a dead lane returns the error.
    assert!(matches!(session.copy_graph(graphs[3], Some(0)), Err(Error::Killed(_))));
    let more = session.copy_graph(graphs[0], Some(3)).unwrap();
    session.set_parameter(more, 0, 0, &rig.address(5).to_le_bytes()).unwrap();
    launches(session, more, 5);
    session.close().unwrap();
    session.open(&options(4)).unwrap();
    launches(session, rig.adds(0, 0), 5);
    session.close().unwrap();
}

#[test]
fn a_close_waits_for_all_lanes_and_no_handle_outlives_it() {
    if !program::inside("a_close_waits_for_all_lanes_and_no_handle_outlives_it") {
        return;
    }
    let rig = rig(LANES);
    let session = &rig.session;
    let graphs: Vec<Graph> = (0..LANES).map(|lane| rig.adds(lane, lane)).collect();
    let copies: Vec<_> = graphs.iter().flat_map(|graph| (0..10).map(|_| session.launch(*graph).unwrap())).collect();
    session.close().unwrap();
    assert!((0..LANES).all(|lane| rig.word(lane).load(Ordering::SeqCst) == 10));
    assert!(graphs.iter().all(|graph| matches!(session.launch(*graph), Err(Error::Closed))));
    for wrong in [0, 17] {
        assert!(matches!(session.open(&options(wrong)), Err(Error::Argument(_))));
    }
    session.open(&options(1)).unwrap();
    assert!(graphs.iter().all(|graph| matches!(session.launch(*graph), Err(Error::Handle(_)))));
    assert!(copies.iter().all(|copy| matches!(session.poll(*copy), Err(Error::Handle(_)))));
    let graph = rig.adds(0, 0);
    assert!(matches!(session.copy_graph(graph, Some(1)), Err(Error::Argument(_))));
    launches(session, graph, 5);
    session.close().unwrap();
}

#[test]
fn launches_on_any_lane_allocate_nothing_and_make_no_system_call() {
    // A GPU that polls: to trap a doorbell, the strict one makes system calls on this thread.
    if !program::inside_with("launches_on_any_lane_allocate_nothing_and_make_no_system_call", "poll") {
        return;
    }
    let rig = rig(16);
    let session = &rig.session;
    let graphs = [0, 7, 15].map(|lane| rig.adds(lane, lane));
    let watched = watch_system_calls();
    for round in 0..90usize {
        let (graph, other) = (graphs[round % 3], graphs[(round + 1) % 3]);
        let mut last = None;
        let spent = cost(watched, || {
            last = session.launch(graph).and_then(|copy| session.launch_in(other, &InOrder::after(&[copy]))).ok();
            std::hint::black_box(last.map(|copy| session.poll(copy).is_ok()));
        });
        assert_eq!((last.is_some(), spent), (true, (0, 0)), "round {round}");
        session.wait(last.unwrap(), LIMIT).unwrap();
    }
    assert_eq!([0, 7, 15].map(|lane| rig.word(lane).load(Ordering::SeqCst)), [60; 3]);
    session.close().unwrap();
}

//! Graphs of a session, next to a libcuda in software. (Crate `libdoorbell` tests the C interface. This file must
//! not name the software GPU in process: it is preloaded.)

#[path = "../../../testing/softcuda/tests/program/mod.rs"]
mod program;

use cuda::Argument::{U32, U64};
use cuda::{Context, Cuda, Function, GraphExec, Module, PinnedBuffer, Stream};
use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use submit::{Buffer, ChainHow, ChainStep, Error, Follow, InOrder, Kind, Options, Piece, Session, Way};
use test_support::counting::{Counting, cost, watch_system_calls};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const LIMIT: Duration = Duration::from_secs(20);

/// A kernel that stores a number in a word, and one that adds 1 to it.
fn graph<'c>(stream: &Stream<'c>, [store, add]: [&Function<'_>; 2], word: u64) -> GraphExec<'c> {
    let one = |function: &Function<'_>, arguments: &[cuda::Argument]| {
        // SAFETY: the arguments are the kernels', and the word outlives the stream's work.
        unsafe { function.launch([1; 3], [1; 3], 0, stream, arguments) }
    };
    let captured = cuda::Graph::capture(stream, || {
        one(store, &[U64(word), U32(100)])?;
        one(add, &[U64(word)])
    });
    captured.unwrap().instantiate().unwrap()
}

fn opened() -> (Context, Session) {
    Session::watch().unwrap();
    let context = Cuda::load().unwrap().device(0).unwrap().primary_context().unwrap();
    context.make_current().unwrap();
    let session = Session::new();
    session.open(&options()).unwrap();
    (context, session)
}

fn options() -> Options {
    Options { kind: Kind::Cuda, lanes: 1, profile: Follow::Nothing, ..Options::default() }
}

/// A session, a prepared graph of both kernels, and the memory whose first word they write. The work closes the session.
fn with_graph(work: impl FnOnce(&Session, submit::Graph, &PinnedBuffer<'_>)) {
    let (context, session) = opened();
    let module = Module::from_ptx(&context, ".version 8.0\n").unwrap();
    let [store, add] = ["store", "add1"].map(|name| module.function(name).unwrap());
    let stream = Stream::new(&context).unwrap();
    let memory = PinnedBuffer::new(&context, 4096).unwrap();
    let exec = graph(&stream, [&store, &add], memory.device_address().unwrap());
    // SAFETY: module and memory stay until the session is closed.
    let graph = unsafe { session.prepare_graph(exec.handle(), stream.handle()) }.unwrap();
    work(&session, graph, &memory);
}

#[test]
fn launches_and_new_parameters_allocate_nothing_and_make_no_system_call() {
    // A GPU that polls: to trap a doorbell, the strict one makes system calls on this thread.
    if !program::inside_with("launches_and_new_parameters_allocate_nothing_and_make_no_system_call", "poll") {
        return;
    }
    with_graph(|session, graph, memory| {
        let word = || u32::from_le_bytes(memory.bytes()[..4].try_into().unwrap());
        assert_eq!((session.graph_kernels(graph).unwrap(), word()), (vec![12, 8], 101));
        let watched = watch_system_calls();
        for round in 0..100u32 {
            let mut copy = None;
            let spent = cost(watched, || {
                let set = round % 3 == 0 || session.set_parameter(graph, 0, 8, &round.to_le_bytes()).is_ok();
                copy = session.launch(graph).ok().filter(|_| set);
                std::hint::black_box(copy.map(|copy| session.poll(copy).is_ok()));
            });
            assert_eq!((copy.is_some(), spent), (true, (0, 0)), "round {round}");
            session.wait(copy.unwrap(), LIMIT).unwrap();
            let last = if round == 0 { 100 } else { round - u32::from(round % 3 == 0) };
            assert_eq!(word(), last + 1, "round {round}");
        }
        session.close().unwrap();
        assert!(matches!(session.launch(graph), Err(Error::Closed)));
    });
}

#[test]
fn chains_and_what_waits_for_tickets_allocate_nothing_and_make_no_system_call() {
    if !program::inside_with("chains_and_what_waits_for_tickets_allocate_nothing_and_make_no_system_call", "poll") {
        return;
    }
    let (context, session) = opened();
    let module = Module::from_ptx(&context, ".version 8.0\n").unwrap();
    let [copy, add] = ["copy", "add1"].map(|name| module.function(name).unwrap());
    let stream = Stream::new(&context).unwrap();
    let [host, video] = [false, true].map(|video| session.allocate(8192, video).unwrap());
    let [(pointer, _), (gpu, _)] = [host, video].map(|buffer| session.place(buffer).unwrap());
    let captured = cuda::Graph::capture(&stream, || {
        // SAFETY: the arguments are the kernels', and the memory outlives the session's launches.
        unsafe {
            copy.launch([1; 3], [1; 3], 0, &stream, &[U64(gpu + 4096), U64(gpu), U32(64)])?;
            add.launch([1; 3], [1; 3], 0, &stream, &[U64(gpu + 4096)])
        }
    });
    let exec = captured.unwrap().instantiate().unwrap();
    // SAFETY: module and memory stay until the session is closed.
    let graph = unsafe { session.prepare_graph(exec.handle(), stream.handle()) }.unwrap();
    let move_to = |to, from| ChainStep::Copy { to, from, bytes: 64, by: None };
    let steps = [move_to((video, 0), (host, 0)), ChainStep::Launch(graph), move_to((host, 4096), (video, 4096))];
    let chain = session.prepare_chain(&steps, ChainHow::default()).unwrap();
    let [to, from] = [((video, 0), (host, 0)), ((host, 4096), (video, 4096))]
        .map(|(to, from)| session.prepare(to, from, 64).unwrap());
    // SAFETY: words of the session's memory.
    let word = |at: u64| unsafe { std::sync::atomic::AtomicU32::from_ptr((pointer + at) as *mut u32) };
    let watched = watch_system_calls();
    for round in 0..60u32 {
        word(0).store(round, Ordering::SeqCst);
        let mut last = None;
        let spent = cost(watched, || {
            last = match round % 2 {
                0 => session.launch(chain).ok(),
                _ => session
                    .submit(to)
                    .and_then(|copied| session.launch_in(graph, &InOrder::after(&[copied])))
                    .and_then(|launched| session.submit_in(from, None, &InOrder::after(&[launched])))
                    .ok(),
            };
            std::hint::black_box(last.map(|copy| session.poll(copy).is_ok()));
        });
        assert_eq!((last.is_some(), spent), (true, (0, 0)), "round {round}");
        session.wait(last.unwrap(), LIMIT).unwrap();
        assert_eq!(word(4096).load(Ordering::SeqCst), round + 1, "round {round}");
    }
    session.close().unwrap();
}

/// In two openings of a session: each opens and closes its own copy channel.
#[test]
fn chains_whose_bytes_the_cpu_stores_allocate_nothing_and_make_no_system_call() {
    if !program::inside_with("chains_whose_bytes_the_cpu_stores_allocate_nothing_and_make_no_system_call", "poll") {
        return;
    }
    let (context, session) = opened();
    let module = Module::from_ptx(&context, ".version 8.0\n").unwrap();
    let [copy, add] = ["copy", "add1"].map(|name| module.function(name).unwrap());
    let stream = Stream::new(&context).unwrap();
    let watched = watch_system_calls();
    for opening in 0..2u32 {
        let [host, video] = [false, true].map(|video| session.allocate(8192, video).unwrap());
        let [(pointer, _), (gpu, _)] = [host, video].map(|buffer| session.place(buffer).unwrap());
        let captured = cuda::Graph::capture(&stream, || {
            // SAFETY: the arguments are the kernels', and the memory outlives the session's launches.
            unsafe {
                copy.launch([1; 3], [1; 3], 0, &stream, &[U64(gpu + 4096), U64(gpu), U32(64)])?;
                add.launch([1; 3], [1; 3], 0, &stream, &[U64(gpu + 4096)])
            }
        });
        let exec = captured.unwrap().instantiate().unwrap();
        // SAFETY: module and memory stay until the session is closed.
        let graph = unsafe { session.prepare_graph(exec.handle(), stream.handle()) }.unwrap();
        let step = |to, from, by| ChainStep::Copy { to, from, bytes: 64, by };
        let steps = [
            step((video, 0), (host, 0), Some(Way::Stores)),
            ChainStep::Launch(graph),
            step((host, 4096), (video, 4096), None),
        ];
        let chains = [true, false]
            .map(|beside| session.prepare_chain(&steps, ChainHow { beside, ..ChainHow::default() }).unwrap());
        // SAFETY: words of the session's memory.
        let word = |at: u64| unsafe { std::sync::atomic::AtomicU32::from_ptr((pointer + at) as *mut u32) };
        for round in 0..40u32 {
            let chain = chains[(round % 5 == 4) as usize];
            word(60).store(round, Ordering::SeqCst);
            word(0).store(1000 * opening + round, Ordering::SeqCst);
            let mut last = None;
            let bytes = if round % 3 == 0 { 64u32 } else { 60 };
            let spent = cost(watched, || {
                last =
                    session.set_parameter(chain, 0, 16, &bytes.to_le_bytes()).and_then(|()| session.launch(chain)).ok();
                std::hint::black_box(last.map(|copy| session.poll(copy).is_ok()));
            });
            assert_eq!((last.is_some(), spent), (true, (0, 0)), "round {round}");
            session.wait(last.unwrap(), LIMIT).unwrap();
            assert_eq!(word(4096).load(Ordering::SeqCst), 1000 * opening + round + 1, "round {round}");
            let whole = if bytes == 64 { round } else { round / 3 * 3 };
            assert_eq!(word(4096 + 60).load(Ordering::SeqCst), whole, "round {round}: the kernel's own bytes");
        }
        let refused = session.prepare_chain(&[ChainStep::Launch(chains[0])], ChainHow::default());
        assert!(matches!(&refused, Err(Error::Graph(why)) if why.contains("part of another")), "{refused:?}");
        let last = session.launch(chains[0]).unwrap();
        session.close().unwrap();
        assert!(matches!(session.wait(last, LIMIT), Err(Error::Closed)));
        assert!(matches!(session.launch(chains[0]), Err(Error::Closed)));
        session.open(&options()).unwrap();
        assert!(matches!(session.launch(chains[0]), Err(Error::Handle(_))));
    }
    session.close().unwrap();
}

#[test]
fn threads_that_launch_while_the_session_is_closed_and_opened_get_errors_and_nothing_worse() {
    let name = "threads_that_launch_while_the_session_is_closed_and_opened_get_errors_and_nothing_worse";
    if !program::inside(name) {
        return;
    }
    let (context, session) = opened();
    let module = Module::from_ptx(&context, ".version 8.0\n").unwrap();
    let [store, add] = ["store", "add1"].map(|name| module.function(name).unwrap());
    let stream = Stream::new(&context).unwrap();
    let memory = PinnedBuffer::new(&context, 4096).unwrap();
    let word = memory.device_address().unwrap();
    let (current, launches, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let work = || {
        while !stop.load(Ordering::SeqCst) {
            let graph = submit::Graph::from_raw(current.load(Ordering::SeqCst));
            let launched = session
                .set_parameter(graph, 0, 8, &7u32.to_le_bytes())
                .and_then(|()| session.launch(graph))
                .and_then(|copy| session.wait(copy, LIMIT));
            match launched {
                Ok(()) => drop(launches.fetch_add(1, Ordering::SeqCst)),
                Err(Error::Closed | Error::Handle(_) | Error::Busy | Error::Full(_)) => std::thread::yield_now(),
                Err(other) => panic!("{other:?}"),
            }
        }
    };
    std::thread::scope(|scope| {
        let _stop = OnDrop(&stop);
        (0..3).for_each(|_| drop(scope.spawn(work)));
        for round in 0..6 {
            let exec = graph(&stream, [&store, &add], word);
            // SAFETY: module and memory stay until the session is closed.
            let graph = unsafe { session.prepare_graph(exec.handle(), stream.handle()) }.unwrap();
            // Every second one as a chain with a separate copy lane, into whose memory the CPU stores.
            let made = if round % 2 == 0 { graph } else { chain(&session, graph) };
            current.store(made.raw(), Ordering::SeqCst);
            let before = launches.load(Ordering::SeqCst);
            while launches.load(Ordering::SeqCst) < before + 20 {
                std::thread::yield_now();
            }
            match round % 3 {
                0 => session.graph_release(made).unwrap(),
                _ => {
                    session.close().unwrap();
                    session.open(&options()).unwrap();
                }
            }
        }
    });
    session.close().unwrap();
}

#[test]
fn a_copy_behind_a_stream_for_which_there_is_no_room_takes_no_order() {
    if !program::inside("a_copy_behind_a_stream_for_which_there_is_no_room_takes_no_order") {
        return;
    }
    let (context, session) = opened();
    let stream = Stream::new(&context).unwrap();
    let [host, video] = [false, true].map(|video| session.allocate(4096, video).unwrap());
    let piece = [submit::Piece { to: video, to_at: 0, from: host, from_at: 0, bytes: 64 }];
    let gate = cuda::Words::new(&context, 1).unwrap();
    // SAFETY: the words outlive the stream's use of them.
    unsafe { gate.hold_until(stream.handle(), 0, 1) }.unwrap();
    // SAFETY: the stream lives.
    let copied =
        || session.copy_in(&piece, &InOrder::after_stream(unsafe { submit::Stream::from_raw(stream.handle()) }));
    let mut last = copied().unwrap();
    let refused = loop {
        match copied() {
            Ok(copy) => last = copy,
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, Error::Full(slots) if slots < 1024), "{refused:?}");
    assert!((0..1100).all(|_| matches!(copied(), Err(Error::Full(slots)) if slots < 1024)));
    // SAFETY: the stream lives.
    session
        .stream_wait(unsafe { submit::Stream::from_raw(stream.handle()) }, last)
        .expect_err("no room for the word behind it, either");
    gate.word(0).store(1, Ordering::SeqCst);
    session.wait(last, LIMIT).unwrap();
    // SAFETY: as above.
    session.stream_wait(unsafe { submit::Stream::from_raw(stream.handle()) }, last).unwrap();
    stream.synchronize().unwrap();
    session.close().unwrap();
}

/// Bytes that the CPU stores, the graph, and bytes back on a separate lane.
fn chain(session: &Session, graph: submit::Graph) -> submit::Graph {
    let [host, video] = [false, true].map(|video| session.allocate(4096, video).unwrap());
    let copy = |to, from, by| ChainStep::Copy { to: (to, 0), from: (from, 0), bytes: 64, by };
    let steps = [copy(video, host, Some(Way::Stores)), ChainStep::Launch(graph), copy(host, video, None)];
    session.prepare_chain(&steps, ChainHow { beside: true, ..ChainHow::default() }).unwrap()
}

/// Plants a fault in the preloaded software GPU, or removes it.
fn plant(fault: Option<&CStr>) {
    // SAFETY: a name that ends with a zero.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"doorbell_softgpu_plant".as_ptr()) };
    assert!(!found.is_null());
    // SAFETY: the function has this type.
    let plant: unsafe extern "C" fn(*const c_char) -> c_int = unsafe { std::mem::transmute(found) };
    // SAFETY: null, or a text that ends with a zero.
    assert_eq!(unsafe { plant(fault.map_or(std::ptr::null(), CStr::as_ptr)) }, 0);
}

/// The launch and the copies each ring a doorbell, on two channels.
#[test]
fn of_a_chain_on_two_channels_each_missed_doorbell_is_rung_again() {
    if !program::inside("of_a_chain_on_two_channels_each_missed_doorbell_is_rung_again") {
        return;
    }
    with_graph(|session, graph, _| {
        let chain = chain(session, graph);
        for lost in [c"lost-doorbell:1", c"lost-doorbell:2"] {
            for polls in [false, true] {
                plant(Some(lost));
                let (launched, begun) = (session.launch(chain).unwrap(), Instant::now());
                let done = || match polls {
                    true => session.poll(launched).unwrap(),
                    false => session.wait(launched, LIMIT).is_ok(),
                };
                while !done() {
                    assert!(begun.elapsed() < LIMIT, "{lost:?}, polls: {polls}");
                }
                plant(None);
            }
        }
        session.close().unwrap();
    });
}

/// Each wait is shorter than the time after which a thread looks for a missed doorbell.
#[test]
fn short_waits_for_a_chain_hear_that_the_channel_of_its_launch_was_killed() {
    if !program::inside("short_waits_for_a_chain_hear_that_the_channel_of_its_launch_was_killed") {
        return;
    }
    with_graph(|session, graph, _| {
        let chain = chain(session, graph);
        // The channel of launches is ahead of that of copies, and dies first.
        (0..20).for_each(|_| session.wait(session.launch(graph).unwrap(), LIMIT).unwrap());
        plant(Some(c"dead-channel:60:31"));
        let begun = Instant::now();
        let ended = loop {
            let launched = match session.launch(chain) {
                Ok(launched) => launched,
                Err(error) => break error,
            };
            let ended = loop {
                match session.wait(launched, Duration::from_millis(1)) {
                    Err(Error::Timeout(_)) => assert!(begun.elapsed() < LIMIT, "it only times out"),
                    ended => break ended,
                }
            };
            if let Err(error) = ended {
                break error;
            }
        };
        assert!(matches!(ended, Error::Killed(31)), "{ended:?}");
        plant(None);
        session.close().unwrap();
    });
}

struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn why_there_is_no_channel_for_launches_is_said() {
    if !program::inside("why_there_is_no_channel_for_launches_is_said") {
        return;
    }
    let (context, session) = opened();
    let module = Module::from_ptx(&context, ".version 8.0\n").unwrap();
    let [store, add] = ["store", "add1"].map(|name| module.function(name).unwrap());
    let stream = Stream::new(&context).unwrap();
    let memory = PinnedBuffer::new(&context, 4096).unwrap();
    let exec = graph(&stream, [&store, &add], memory.device_address().unwrap());
    let why = |session: &Session| {
        // SAFETY: module and memory stay until the session is closed.
        match unsafe { session.prepare_graph(exec.handle(), stream.handle()) } {
            Err(Error::Unavailable(why)) => why,
            other => panic!("{other:?}"),
        }
    };
    // As if CUDA had been initialised first: its channels are not known then.
    let libcuda = gpu::Libcuda::open().unwrap();
    libcuda.watched().begin_late();
    assert!(why(&session).contains("CUDA was initialised before doorbell was opened"), "{}", why(&session));
    session.close().unwrap();
    // CUDA's client cannot be entered.
    let uuid = context.device().uuid().unwrap();
    let space = libcuda.address_space(uuid, gpu::Entry::OwnClient).unwrap();
    let again = Cuda::load().unwrap().device(0).unwrap().primary_context().unwrap();
    let machine = machine::Machine::beside(again, space.clone()).with_group(|| Err(gpu::Error::Group("not today")));
    let options = Options { lanes: 1, profile: Follow::Nothing, ..Options::default() };
    session.open_in(space, Some(machine), &options).unwrap();
    assert!(why(&session).contains("not today"), "{}", why(&session));
    session.close().unwrap();
}

#[test]
fn a_graph_that_names_pageable_memory_is_launched_and_its_bytes_are_there_when_it_is_over() {
    let name = "a_graph_that_names_pageable_memory_is_launched_and_its_bytes_are_there_when_it_is_over";
    // A GPU that polls, as above.
    if !program::inside_with(name, "poll") {
        return;
    }
    let (context, session) = opened();
    let module = Module::from_ptx(&context, ".version 8.0\n").unwrap();
    let [copy, add] = ["copy", "add1"].map(|name| module.function(name).unwrap());
    let stream = Stream::new(&context).unwrap();
    let memory = cuda::DeviceBuffer::new(&context, 8192).unwrap();
    let gpu = memory.address();
    let mut heap = vec![0u32; 2048];
    let (input, output) = heap.split_at_mut(1024);
    let [input, output] = [input.as_mut_ptr(), output.as_mut_ptr()];
    let captured = |to: *mut u32| {
        cuda::Graph::capture(&stream, || {
            // SAFETY: the arguments are the kernels', and both memories outlive the session's launches.
            unsafe {
                let from = std::slice::from_raw_parts(input.cast::<u8>(), 4096);
                stream.upload(memory.slice(0, 4096)?, from)?;
                copy.launch([1; 3], [1; 3], 0, &stream, &[U64(gpu + 4096), U64(gpu), U32(4096)])?;
                add.launch([1; 3], [1; 3], 0, &stream, &[U64(gpu + 4096)])?;
                stream.download(std::slice::from_raw_parts_mut(to.cast(), 4096), memory.slice(4096, 4096)?)
            }
        })
        .unwrap()
    };
    let (one, circle) = (captured(output), captured(input.wrapping_add(1023)));
    // SAFETY: the memory that the graph uses, while no launch is pending.
    let set = |value: u32| unsafe { (0..1024).for_each(|n| input.add(n).write_volatile(value + n as u32)) };
    // SAFETY: as above.
    let got = |n: usize| unsafe { output.add(n).read_volatile() };
    set(70);
    // SAFETY: module and memory stay until the session is closed.
    let graph = unsafe { session.instantiate_graph(one.handle(), stream.handle()) }.unwrap();
    assert_eq!((got(0), got(1), got(1023)), (71, 71, 70 + 1023), "CUDA's launches did its work");
    let watched = watch_system_calls();
    for round in 0..40u32 {
        set(1000 * round);
        let mut last = None;
        let spent = cost(watched, || {
            last = session.launch(graph).ok();
            std::hint::black_box(last.map(|copy| session.wait(copy, LIMIT).is_ok()));
        });
        assert_eq!((last.is_some(), spent.0), (true, 0), "round {round}");
        assert_eq!((got(0), got(1), got(1023)), (1000 * round + 1, 1000 * round + 1, 1000 * round + 1023));
    }
    // One at a time. The results of a launch are there when the next one begins, or the graph ends, whichever call
    // waits.
    set(500_000);
    let first = session.launch(graph).unwrap();
    let mut full = 0u64;
    while let Err(error) = session.launch(graph) {
        assert!(matches!(error, Error::Full(1)), "{error}");
        full += 1;
    }
    assert_eq!((got(0), session.poll(first).unwrap()), (500_001, true), "after {full} times full");
    let chain = session.prepare_chain(&[ChainStep::Launch(graph)], ChainHow::default());
    assert!(matches!(&chain, Err(Error::Graph(why)) if why.contains("pin that memory")), "{chain:?}");
    set(600_000);
    while session.launch(graph).is_err() {}
    session.graph_release(graph).unwrap();
    assert_eq!((got(0), got(1023)), (600_001, 601_023));
    // SAFETY: as above.
    let refused = unsafe { session.instantiate_graph(circle.handle(), stream.handle()) };
    assert!(matches!(&refused, Err(Error::Graph(why)) if why.contains("also read or written")), "{refused:?}");
    // SAFETY: as above.
    let last = unsafe { session.instantiate_graph(one.handle(), stream.handle()) }.unwrap();
    set(700_000);
    session.launch(last).unwrap();
    session.close().unwrap();
    assert_eq!((got(0), got(1023)), (700_001, 701_023), "closed");
}

#[test]
fn a_kernel_is_prepared_while_another_thread_asks_for_the_session() {
    if !program::inside("a_kernel_is_prepared_while_another_thread_asks_for_the_session") {
        return;
    }
    let (context, session) = opened();
    let module = Module::from_ptx(&context, ".version 8.0\n").unwrap();
    let function = module.function("store").unwrap();
    let stream = Stream::new(&context).unwrap();
    let memory = PinnedBuffer::new(&context, 4096).unwrap();
    let (mut at, mut value) = (memory.device_address().unwrap(), 7u32);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = OnDrop(&stop);
        // A waiting writer keeps readers out, even one that reads already.
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                assert!(matches!(session.open(&options()), Err(Error::AlreadyOpen)));
            }
        });
        for _ in 0..60 {
            let mut arguments = [(&raw mut at).cast(), (&raw mut value).cast()];
            // SAFETY: the arguments are the kernel's; module and memory stay.
            let kernel = unsafe {
                session.prepare_kernel(raw(&function), [1; 3], [1; 3], 0, arguments.as_mut_ptr(), stream.handle())
            };
            session.graph_release(kernel.unwrap()).unwrap();
        }
    });
    session.close().unwrap();
}

/// The function's handle, which its crate does not expose.
fn raw(function: &Function<'_>) -> *mut std::ffi::c_void {
    let text = format!("{function:?}");
    let at = text.rfind("raw: 0x").unwrap() + "raw: 0x".len();
    let digits: String = text[at..].chars().take_while(char::is_ascii_hexdigit).collect();
    u64::from_str_radix(&digits, 16).unwrap() as *mut _
}

#[test]
#[ignore = "11 s; run by .ci/run"]
fn a_graph_that_ends_while_a_launch_waits_is_given_back_later() {
    if !program::inside("a_graph_that_ends_while_a_launch_waits_is_given_back_later") {
        return;
    }
    let (context, session) = opened();
    let module = Module::from_ptx(&context, ".version 8.0\n").unwrap();
    let [store, add] = ["store", "add1"].map(|name| module.function(name).unwrap());
    let stream = Stream::new(&context).unwrap();
    let memory = PinnedBuffer::new(&context, 4096).unwrap();
    let prepared = || {
        let exec = graph(&stream, [&store, &add], memory.device_address().unwrap());
        // SAFETY: module and memory stay until the session is closed.
        unsafe { session.prepare_graph(exec.handle(), stream.handle()) }.unwrap()
    };
    let (first, other) = (prepared(), prepared());
    let pointed = session.allocate(1 << 20, false).unwrap();
    let (at, _) = session.place(pointed).unwrap();
    let is_mapped = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().any(|line| line.starts_with(&format!("{at:x}-")))
    };
    session.set_pointer(first, 0, 0, (pointed, 0)).unwrap();
    let gate = cuda::Words::new(&context, 1).unwrap();
    // SAFETY: the words outlive the stream's use of them.
    unsafe { gate.hold_until(stream.handle(), 0, 1) }.unwrap();
    // SAFETY: the stream lives.
    let launched =
        session.launch_in(first, &InOrder::after_stream(unsafe { submit::Stream::from_raw(stream.handle()) })).unwrap();
    session.unpin(pointed).unwrap();
    assert!(matches!(session.graph_release(first), Err(Error::Timeout(_))) && is_mapped());
    assert!(matches!(session.launch(first), Err(Error::Handle(_))), "it has ended all the same");
    gate.word(0).store(1, Ordering::SeqCst);
    session.wait(launched, LIMIT).unwrap();
    session.graph_release(other).unwrap();
    assert!(!is_mapped());
    session.close().unwrap();
}

/// The launches wait for a copy that never begins, and only the unpin stops it.
#[test]
fn an_unpin_does_not_wait_for_calls_that_wait_for_launches() {
    if !program::inside("an_unpin_does_not_wait_for_calls_that_wait_for_launches") {
        return;
    }
    type Call = fn(&Session, submit::Graph, Buffer) -> Result<(), Error>;
    fn chained(session: &Session, graph: submit::Graph, beside: bool) -> Result<(), Error> {
        session.prepare_chain(&[ChainStep::Launch(graph)], ChainHow { beside, ..ChainHow::default() }).map(drop)
    }
    let calls: [Call; 5] = [
        |session, graph, _| session.copy_graph(graph, None).map(drop),
        |session, graph, buffer| session.set_pointer(graph, 0, 0, (buffer, 8)),
        |session, graph, _| session.graph_release(graph),
        |session, graph, _| chained(session, graph, false),
        |session, graph, _| chained(session, graph, true),
    ];
    let (context, first) = opened();
    first.close().unwrap();
    let module = Module::from_ptx(&context, ".version 8.0\n").unwrap();
    let [store, add] = ["store", "add1"].map(|name| module.function(name).unwrap());
    let stream = Stream::new(&context).unwrap();
    let memory = PinnedBuffer::new(&context, 4096).unwrap();
    let waiting = calls.map(|call| {
        let session = Session::boxed();
        session.open(&options()).unwrap();
        let exec = graph(&stream, [&store, &add], memory.device_address().unwrap());
        // SAFETY: module and memory stay until the session is closed.
        let graph = unsafe { session.prepare_graph(exec.handle(), stream.handle()) }.unwrap();
        let own = session.allocate(4096, false).unwrap();
        session.set_pointer(graph, 0, 0, (own, 0)).unwrap();
        let pinned = session.pin(memory.as_ptr() as u64, 4096).unwrap();
        (session, call, graph, own, pinned)
    });
    for (session, _, graph, own, pinned) in &waiting {
        let piece = Piece { to: *pinned, to_at: 0, from: *own, from_at: 0, bytes: 64 };
        let never = InOrder { word: Some((*own, 1024, 1)), ..InOrder::default() };
        let held = session.copy_in(&[piece], &never).unwrap();
        session.launch_in(*graph, &InOrder::after(&[held])).unwrap();
    }
    std::thread::scope(|scope| {
        for (number, (session, call, graph, own, pinned)) in waiting.iter().enumerate() {
            scope.spawn(move || {
                // (A graph ends although its lane was stopped.)
                let ended = call(session, *graph, *own);
                assert!(matches!(ended, Err(Error::Stopped)) != (number == 2), "{number}: {ended:?}");
            });
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(200));
                let start = Instant::now();
                session.unpin(*pinned).unwrap();
                assert!(start.elapsed() < Duration::from_secs(5), "{number}: {:?}", start.elapsed());
            });
        }
    });
    waiting.iter().for_each(|(session, ..)| session.close().unwrap());
}

/// A call that waits for launches has the session's set-up, for which the close waits.
#[test]
fn while_a_close_waits_for_calls_others_are_closed_at_once() {
    if !program::inside("while_a_close_waits_for_calls_others_are_closed_at_once") {
        return;
    }
    with_graph(|session, graph, _| {
        let own = session.allocate(4096, false).unwrap();
        let (at, _) = session.place(own).unwrap();
        // SAFETY: a word of memory that stays until the session has closed.
        let word = unsafe { std::sync::atomic::AtomicU32::from_ptr(at as *mut u32) };
        let piece = Piece { to: own, to_at: 1024, from: own, from_at: 2048, bytes: 64 };
        let held = InOrder { word: Some((own, 0, 1)), ..InOrder::default() };
        let held = session.copy_in(&[piece], &held).unwrap();
        session.launch_in(graph, &InOrder::after(&[held])).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| session.copy_graph(graph, None));
            std::thread::sleep(Duration::from_millis(200));
            scope.spawn(|| session.close().unwrap());
            std::thread::sleep(Duration::from_millis(200));
            let start = Instant::now();
            assert!(matches!(session.unpin(own), Err(Error::Closed)));
            assert!(matches!(session.close(), Err(Error::Closed)));
            assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
            word.store(1, Ordering::SeqCst);
        });
    });
}

//! Sessions next to CUDA.

mod rig;

use cuda::{DeviceBuffer, PinnedBuffer};
use rig::{ANSWER, BYTES, CURRENT, IDLE, LIMIT, QUEUED, found, one_lane, rig, run_stream};
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::Duration;
use submit::{Chooser, Direction, Error, Executor, Follow, InOrder, Options, Piece, Stream};

#[test]
fn cudas_memory_is_pinned_and_copied_both_ways_and_the_thread_keeps_its_context() {
    let rig = rig(true, &one_lane());
    let s = &rig.session;
    let device = DeviceBuffer::new(&rig.context, BYTES).unwrap();
    let mut host = PinnedBuffer::new(&rig.context, BYTES).unwrap();
    host.bytes_mut().fill(0x5a);
    // A thread without a context can also pin, and has none afterwards.
    let (address, pointer) = (device.address(), host.as_ptr() as u64);
    let (to, from) = std::thread::scope(|scope| {
        let pins = || (s.pin(address, BYTES as u64).unwrap(), s.pin(pointer, BYTES as u64).unwrap(), CURRENT.get());
        let (to, from, current) = scope.spawn(pins).join().unwrap();
        assert_eq!(current, 0);
        (to, from)
    });
    s.copy((to, 100), (from, 0), 1000, LIMIT).unwrap();
    assert!(found(&device)[100..1100].iter().all(|byte| *byte == 0x5a) && found(&device)[1100] == 0);
    let back = s.prepare((from, 2000), (to, 50), 100).unwrap();
    s.wait(s.submit(back).unwrap(), LIMIT).unwrap();
    assert_eq!(host.bytes_mut()[2000..2100], [[0; 50], [0x5a; 50]].concat());
    let plain = Box::new([0u8; 64]);
    for (pointer, bytes) in [(0, 8), (address, BYTES as u64 + 1), (plain.as_ptr() as u64, 64), (address, 0)] {
        assert!(matches!(s.pin(pointer, bytes), Err(Error::Pin(_))), "{pointer:#x}");
    }
    assert_eq!(rig.driver.counters().faults.load(Ordering::Relaxed), 0);
}

/// A GPU address is not valid for the CPU: a store there would end in SIGSEGV.
#[test]
fn frames_in_cudas_memory_on_the_gpu_have_no_address_for_the_cpu() {
    let rig = rig(true, &one_lane());
    let s = &rig.session;
    let device = DeviceBuffer::new(&rig.context, BYTES).unwrap();
    let host = PinnedBuffer::new(&rig.context, BYTES).unwrap();
    let (gpus, hosts) =
        (s.pin(device.address(), BYTES as u64).unwrap(), s.pin(host.as_ptr() as u64, BYTES as u64).unwrap());
    let ours = s.allocate(BYTES as u64, true).unwrap();
    let first = |to, from| s.ring_next(s.ring((to, 0), (from, 64), 64, 2).unwrap()).unwrap();
    assert_eq!((first(hosts, gpus).pointer, first(hosts, gpus).offset), (0, 64));
    assert_eq!(first(gpus, hosts).pointer, host.as_ptr() as u64 + 64);
    assert_eq!(first(hosts, ours).pointer, s.place(ours).unwrap().0 + 64);
}

#[test]
fn memory_that_cuda_frees_ends_its_buffer_and_the_next_owner_keeps_its_bytes() {
    let rig = rig(true, &one_lane());
    let s = &rig.session;
    let block = DeviceBuffer::new(&rig.context, BYTES).unwrap();
    let (address, host) = (block.address(), s.allocate(BYTES as u64, false).unwrap());
    let pinned = s.pin(address, BYTES as u64).unwrap();
    let prepared = s.prepare((pinned, 0), (host, 0), 64).unwrap();
    s.wait(s.submit(prepared).unwrap(), LIMIT).unwrap();
    drop(block);
    let next = DeviceBuffer::new(&rig.context, BYTES).unwrap();
    assert_eq!(next.address(), address, "given out again");
    next.write(&[0x11; BYTES]).unwrap();
    assert!(matches!(s.submit(prepared), Err(Error::Freed)));
    assert!(matches!(s.copy_async((pinned, 0), (host, 0), 64), Err(Error::Freed)));
    assert!(matches!(s.prepare((pinned, 0), (host, 0), 64), Err(Error::Freed)));
    assert!(matches!(s.prepare_bytes((pinned, 0), 64), Err(Error::Freed)));
    s.unpin(pinned).unwrap();
    // A new pin at the same address is another buffer.
    let again = s.pin(address, BYTES as u64).unwrap();
    assert!(matches!(s.copy_async((pinned, 0), (host, 0), 64), Err(Error::Handle(_))));
    assert!(found(&next) == [0x11; BYTES]);
    s.copy((again, 0), (host, 0), 64, LIMIT).unwrap();
    assert!(found(&next)[..64] == [0; 64]);
}

#[test]
fn a_free_that_nobody_tells_is_found_where_each_submission_asks() {
    found_where_each_submission_asks(Follow::Nothing);
    found_where_each_submission_asks(Follow::Given(Arc::new(Up(64))));
}

fn found_where_each_submission_asks(profile: Follow) {
    let options = Options { check_each_submission: true, profile, ..one_lane() };
    let rig = rig(false, &options);
    let s = &rig.session;
    let block = DeviceBuffer::new(&rig.context, BYTES).unwrap();
    let host = s.allocate(BYTES as u64, false).unwrap();
    let pinned = s.pin(block.address(), BYTES as u64).unwrap();
    let prepared = s.prepare((pinned, 0), (host, 0), 64).unwrap();
    s.wait(s.submit(prepared).unwrap(), LIMIT).unwrap();
    s.copy((pinned, 0), (host, 0), 64, LIMIT).unwrap();
    drop(block);
    let next = DeviceBuffer::new(&rig.context, BYTES).unwrap();
    next.write(&[0x11; BYTES]).unwrap();
    // A fork's child does not ask: another thread may have had CUDA's locks.
    // SAFETY: the child leaves by _exit, and no other thread has a lock that it takes.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let copied = s.copy_async((pinned, 0), (host, 0), 64);
        // SAFETY: no destructor runs.
        unsafe { libc::_exit(if matches!(copied, Err(Error::Forked)) { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: this test's child.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(status, 0);
    assert!(matches!(s.copy_async((pinned, 0), (host, 0), 64), Err(Error::Freed)));
    assert!(matches!(s.submit(prepared), Err(Error::Freed)));
    assert!(found(&next) == [0x11; BYTES]);
}

#[test]
fn a_copy_that_waits_while_its_memory_is_freed_is_stopped_and_says_so() {
    let rig = rig(true, &one_lane());
    let s = &rig.session;
    let block = DeviceBuffer::new(&rig.context, BYTES).unwrap();
    let host = s.allocate(BYTES as u64, false).unwrap();
    let pinned = s.pin(block.address(), BYTES as u64).unwrap();
    let piece = Piece { to: pinned, to_at: 0, from: host, from_at: 0, bytes: 64 };
    let copy = s.copy_in(&[piece], &InOrder { word: Some((host, 1024, 1)), ..InOrder::default() }).unwrap();
    // The free waits for a second, then gives up.
    drop(block);
    let next = DeviceBuffer::new(&rig.context, BYTES).unwrap();
    next.write(&[0x11; BYTES]).unwrap();
    assert!(matches!(s.poll(copy), Err(Error::Stopped)) && matches!(s.wait(copy, LIMIT), Err(Error::Stopped)));
    assert!(matches!(s.copy_async((host, 0), (host, 64), 8), Err(Error::Stopped)));
    let (words, _) = s.place(host).unwrap();
    run_stream(words + 1024, 1);
    std::thread::sleep(Duration::from_millis(20));
    assert!(found(&next) == [0x11; BYTES], "the next owner's bytes");
    s.close().unwrap();
    assert_eq!(rig.driver.counters().faults.load(Ordering::Relaxed), 0);
}

#[test]
fn a_copy_waits_for_a_stream_and_a_stream_for_a_copy() {
    let rig = rig(true, &one_lane());
    let s = &rig.session;
    let device = DeviceBuffer::new(&rig.context, BYTES).unwrap();
    let to = s.pin(device.address(), BYTES as u64).unwrap();
    let from = s.allocate(BYTES as u64, false).unwrap();
    let piece = Piece { to, to_at: 0, from, from_at: 0, bytes: 256 };
    let stream = 0x77 as *mut c_void;
    let last = || *QUEUED.lock().unwrap().last().unwrap();
    // SAFETY: as in `run_stream`.
    let word = |at: u64| unsafe { AtomicU32::from_ptr(at as *mut u32) }.load(Ordering::SeqCst);
    // More orders than there are words: each is used again.
    for round in 0..1100 {
        // SAFETY: the stand-in does not use streams.
        let copy = s.copy_in(&[piece], &InOrder::after_stream(unsafe { Stream::from_raw(stream) })).unwrap();
        let (of, at, value, wait) = last();
        assert_eq!((of, wait), (0x77, false));
        if round < 3 {
            std::thread::sleep(Duration::from_millis(3));
            assert!(!s.poll(copy).unwrap(), "it waits for the stream");
        }
        run_stream(at, value);
        s.wait(copy, LIMIT).unwrap();
        // SAFETY: as above.
        s.stream_wait(unsafe { Stream::from_raw(stream) }, copy).unwrap();
        let (of, at, value, wait) = last();
        assert_eq!((of, wait), (0x77, true));
        let start = std::time::Instant::now();
        while word(at) != value {
            assert!(start.elapsed() < LIMIT, "round {round}: the stream waits for ever");
            std::thread::yield_now();
        }
    }
    // There is no wait for an idle stream.
    IDLE.store(true, Ordering::SeqCst);
    let before = QUEUED.lock().unwrap().len();
    // SAFETY: as above.
    let copy = s.copy_in(&[piece], &InOrder::after_stream(unsafe { Stream::from_raw(stream) })).unwrap();
    s.wait(copy, LIMIT).unwrap();
    assert_eq!(QUEUED.lock().unwrap().len(), before);
    IDLE.store(false, Ordering::SeqCst);
    // CUDA refuses: no submission waits, and the word is free for the next.
    for _ in 0..2 {
        ANSWER.store(700, Ordering::SeqCst);
        // SAFETY: as above.
        let order = InOrder::after_stream(unsafe { Stream::from_raw(stream) });
        assert!(matches!(s.copy_in(&[piece], &order), Err(Error::Cuda(_))));
    }
    s.copy((to, 0), (from, 0), 8, LIMIT).unwrap();
    s.close().unwrap();
    assert_eq!(rig.driver.counters().faults.load(Ordering::Relaxed), 0);
}

/// Up to 16 bytes by stores, up to 256 inline.
struct Small;

impl Chooser for Small {
    fn sizes(&self, _: Direction) -> Vec<(u64, Executor)> {
        vec![(16, Executor::Stores), (256, Executor::Inline)]
    }

    fn why(&self, _: Direction, _: u64) -> String {
        "as measured".into()
    }
}

#[test]
fn a_stream_waits_for_a_copy_whichever_way_it_goes_and_a_copy_that_waits_for_a_stream_goes_by_an_engine() {
    let rig = rig(true, &Options { profile: Follow::Given(Arc::new(Small)), ..one_lane() });
    let s = &rig.session;
    let device = DeviceBuffer::new(&rig.context, BYTES).unwrap();
    let to = s.pin(device.address(), BYTES as u64).unwrap();
    let from = s.allocate(BYTES as u64, false).unwrap();
    let stream = 0x77 as *mut c_void;
    let queued = || QUEUED.lock().unwrap().len();
    // SAFETY: as in `run_stream`.
    let word = |at: u64| unsafe { AtomicU32::from_ptr(at as *mut u32) }.load(Ordering::SeqCst);
    let (inline, given) = (s.prepare((to, 0), (from, 0), 256).unwrap(), s.prepare_bytes((to, 0), 8).unwrap());
    // Also more than the slots of the transfer that writes the word.
    for round in 0..80 {
        let copy = if round % 2 == 0 { s.submit(inline) } else { s.submit_bytes(given, &[1; 8]) }.unwrap();
        // SAFETY: the stand-in does not use streams.
        s.stream_wait(unsafe { Stream::from_raw(stream) }, copy).unwrap();
        let (of, at, value, wait) = *QUEUED.lock().unwrap().last().unwrap();
        assert_eq!((of, wait), (0x77, true));
        let start = std::time::Instant::now();
        while word(at) != value {
            assert!(start.elapsed() < LIMIT, "round {round}: the stream waits for ever");
            std::thread::yield_now();
        }
        assert!(s.poll(copy).unwrap(), "the word is behind the copy");
    }
    // Stores are already done: the stream gets no wait.
    let (stored, before) = (s.copy_async((to, 0), (from, 0), 16).unwrap(), queued());
    // SAFETY: as above.
    s.stream_wait(unsafe { Stream::from_raw(stream) }, stored).unwrap();
    assert!(s.poll(stored).unwrap() && queued() == before);
    // A size for stores, but ordered after the stream.
    let piece = Piece { to, to_at: 0, from, from_at: 0, bytes: 16 };
    // SAFETY: as above.
    let copy = s.copy_in(&[piece], &InOrder::after_stream(unsafe { Stream::from_raw(stream) })).unwrap();
    let (_, at, value, _) = *QUEUED.lock().unwrap().last().unwrap();
    std::thread::sleep(Duration::from_millis(3));
    assert!(!s.poll(copy).unwrap(), "it waits for the stream");
    run_stream(at, value);
    s.wait(copy, LIMIT).unwrap();
    s.close().unwrap();
    assert_eq!(rig.driver.counters().faults.load(Ordering::Relaxed), 0);
}

#[test]
fn stores_reach_cudas_memory_and_none_that_cuda_has_freed() {
    let rig = rig(true, &Options { profile: Follow::Given(Arc::new(Small)), ..one_lane() });
    let s = &rig.session;
    let block = DeviceBuffer::new(&rig.context, BYTES).unwrap();
    let host = s.allocate(BYTES as u64, false).unwrap();
    let pinned = s.pin(block.address(), BYTES as u64).unwrap();
    let choice = s.explain(pinned, host, 16, false).unwrap();
    assert_eq!(choice.executor, Executor::Stores, "{}", choice.why);
    let (place, _) = s.place(host).unwrap();
    // SAFETY: the session's memory, with no work pending in it.
    unsafe { std::slice::from_raw_parts_mut(place as *mut u8, 16) }.fill(0x5a);
    let prepared = s.prepare((pinned, 8), (host, 0), 16).unwrap();
    assert!(s.poll(s.submit(prepared).unwrap()).unwrap());
    let before = rig.driver.counters().copies.load(Ordering::Relaxed);
    assert_eq!(before, 0, "no engine had a part in it");
    assert!(found(&block)[8..24] == [0x5a; 16] && found(&block)[24] == 0);
    drop(block);
    let next = DeviceBuffer::new(&rig.context, BYTES).unwrap();
    next.write(&[0x11; BYTES]).unwrap();
    assert!(matches!(s.submit(prepared), Err(Error::Freed)));
    assert!(matches!(s.copy_async((pinned, 0), (host, 0), 16), Err(Error::Freed)));
    assert!(found(&next) == [0x11; BYTES]);
}

/// Up to this many bytes by stores.
struct Up(u64);

impl Chooser for Up {
    fn sizes(&self, _: Direction) -> Vec<(u64, Executor)> {
        vec![(self.0, Executor::Stores)]
    }

    fn why(&self, _: Direction, _: u64) -> String {
        "as measured".into()
    }
}

#[test]
fn a_free_waits_for_stores_and_the_next_owner_keeps_its_bytes() {
    let rig = rig(true, &Options { lanes: 2, profile: Follow::Given(Arc::new(Up(u64::MAX))), ..one_lane() });
    let s = &rig.session;
    let host = s.allocate(BYTES as u64, false).unwrap();
    for round in 0..60 {
        let block = DeviceBuffer::new(&rig.context, BYTES).unwrap();
        let address = block.address();
        let pinned = s.pin(address, BYTES as u64).unwrap();
        let stored = AtomicU32::new(0);
        std::thread::scope(|scope| {
            let storing = scope.spawn(|| {
                loop {
                    match s.copy_async((pinned, 0), (host, 0), BYTES as u64) {
                        Ok(_) => stored.fetch_add(1, Ordering::SeqCst),
                        Err(Error::Freed) => break,
                        Err(error) => panic!("{error}"),
                    };
                }
            });
            while stored.load(Ordering::SeqCst) < 3 {
                std::thread::yield_now();
            }
            drop(block);
            let next = DeviceBuffer::new(&rig.context, BYTES).unwrap();
            assert_eq!(next.address(), address, "given out again");
            next.write(&[0x11; BYTES]).unwrap();
            storing.join().unwrap();
            assert!(found(&next) == [0x11; BYTES], "round {round}");
        });
        s.unpin(pinned).unwrap();
    }
}

#[test]
fn a_word_is_not_used_again_before_its_stream_has_written_it() {
    let rig = rig(true, &Options { lanes: 16, ..one_lane() });
    let s = &rig.session;
    // SAFETY: the stand-in does not use streams.
    let order = || s.copy_in(&[], &InOrder::after_stream(unsafe { Stream::from_raw(0x77 as *mut c_void) }));
    // Each thread fills the slots of its lane. A submission that finds them full takes no word.
    let taken = AtomicU32::new(0);
    let fill = || loop {
        match order() {
            Ok(_) => taken.fetch_add(1, Ordering::SeqCst),
            Err(Error::Full(many)) => break many,
            Err(error) => panic!("{error}"),
        };
    };
    // One after the other, and all threads stay until the last has filled its lane.
    let (turn, all) = (Mutex::new(()), Barrier::new(17));
    let ends: Vec<u32> = std::thread::scope(|scope| {
        let one = || {
            let end = turn.lock().map(|_| fill()).unwrap();
            all.wait();
            end
        };
        let threads: Vec<_> = (0..17).map(|_| scope.spawn(one)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(ends.contains(&1024), "{taken:?} orders: {ends:?}");
    assert_eq!((taken.load(Ordering::SeqCst), QUEUED.lock().unwrap().len()), (1024, 1024));
    for (_, at, value, _) in QUEUED.lock().unwrap().drain(..) {
        run_stream(at, value);
    }
    let start = std::time::Instant::now();
    let copy = loop {
        match order() {
            Err(Error::Full(128)) if start.elapsed() < LIMIT => std::thread::yield_now(),
            other => break other.unwrap(),
        }
    };
    for (_, at, value, _) in QUEUED.lock().unwrap().drain(..) {
        run_stream(at, value);
    }
    s.wait(copy, LIMIT).unwrap();
}

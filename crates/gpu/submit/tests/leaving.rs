//! Memory that ends: the work that an unpin, a CUDA free, a dead lane and a close wait for or end.

mod rig;

use cuda::{DeviceBuffer, PinnedBuffer};
use doorbell_softgpu::{Mode, SoftDriver};
use gpu::points::{self, Point};
use gpu::{AddressSpace, Device};
use rig::{BYTES, LIMIT, QUEUED, Rig, found, one_lane, run_stream};
use std::cell::Cell;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use submit::{Buffer, Chooser, Copy, Direction, Error, Executor, Follow, InOrder, Options, Piece, Session, Stream};

/// Shorter than any wait for work that does not end.
const SOON: Duration = Duration::from_millis(700);

fn alone(options: &Options) -> Session {
    let device = Device::open(Arc::new(SoftDriver::new(Mode::Strict)), 0).unwrap();
    let session = Session::new();
    session.open_in(AddressSpace::new(&device).unwrap(), None, options).unwrap();
    session
}

fn word(session: &Session, buffer: Buffer) -> &'static AtomicU32 {
    let (at, _) = session.place(buffer).unwrap();
    // SAFETY: the first word of memory that stays until the test's end.
    unsafe { AtomicU32::from_ptr(at as *mut u32) }
}

/// The mapping at an address: offset, device and number of the file. (The address alone is not enough: another test's
/// session may have it a moment later.)
fn mapped(at: u64) -> Option<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| {
        let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let number = |text| u64::from_str_radix(text, 16).unwrap();
        (number(start)..number(end)).contains(&at)
    })?;
    Some(line.split_whitespace().skip(2).take(3).collect::<Vec<_>>().join(" "))
}

fn piece(to: Buffer, from: Buffer) -> [Piece; 1] {
    [Piece { to, to_at: 0, from, from_at: 0, bytes: 64 }]
}

/// How long it takes.
fn timed<T>(make: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    (make(), start.elapsed())
}

#[test]
fn memory_that_nothing_names_is_given_back_at_once_while_a_lane_waits() {
    let s = alone(&Options { lanes: 2, ..Options::default() });
    let [gate, to, from] = [(); 3].map(|()| s.allocate(4096, false).unwrap());
    let waits = s.copy_in(&piece(to, from), &InOrder { word: Some((gate, 0, 1)), ..InOrder::default() }).unwrap();
    for _ in 0..10 {
        let other = s.allocate(1 << 20, false).unwrap();
        let (at, _) = s.place(other).unwrap();
        let was = mapped(at);
        let (ended, took) = timed(|| s.unpin(other));
        ended.unwrap();
        assert!(was.is_some() && mapped(at) != was && took < SOON, "{took:?}, {was:?}");
    }
    word(&s, gate).store(1, Ordering::SeqCst);
    s.wait(waits, LIMIT).unwrap();
}

#[test]
fn memory_that_a_waiting_copy_names_is_kept_until_it_is_done_and_given_back_then() {
    let s = alone(&Options { lanes: 2, ..Options::default() });
    let [gate, to, from] = [(); 3].map(|()| s.allocate(4096, false).unwrap());
    let (at, _) = s.place(to).unwrap();
    let was = mapped(at);
    let waits = s.copy_in(&piece(to, from), &InOrder { word: Some((gate, 0, 1)), ..InOrder::default() }).unwrap();
    s.unpin(to).unwrap();
    assert!(was.is_some() && mapped(at) == was, "the GPU may still write there");
    assert!(matches!(s.copy_async((to, 0), (from, 0), 8), Err(Error::Handle(_))));
    word(&s, gate).store(1, Ordering::SeqCst);
    s.wait(waits, LIMIT).unwrap();
    // The next allocation or drop checks.
    s.unpin(s.allocate(4096, false).unwrap()).unwrap();
    assert_ne!(mapped(at), was);
    s.copy((gate, 8), (from, 0), 8, LIMIT).unwrap();
}

#[test]
fn held_memory_stays_mapped_until_the_hold_is_dropped_whatever_ends() {
    let s = alone(&one_lane());
    let [first, second] = [(); 2].map(|()| s.allocate(4096, false).unwrap());
    let holds = [first, second].map(|buffer| s.hold((buffer, 64), 128).unwrap());
    let at = holds.each_ref().map(|hold| hold.pointer().as_ptr() as u64);
    assert_eq!((at[0], holds[0].bytes()), (s.place(first).unwrap().0 + 64, 128));
    for (at, bytes) in [(4096, 1), (0, 4097), (u64::MAX, 2)] {
        assert!(matches!(s.hold((first, at), bytes), Err(Error::Outside { .. })), "{at}");
    }
    let video = s.allocate(4096, true).unwrap();
    assert!(matches!(s.hold((video, 0), 8), Err(Error::Argument(_))));
    s.unpin(first).unwrap();
    assert!(matches!(s.hold((first, 0), 8), Err(Error::Handle(_))));
    s.close().unwrap();
    assert!(matches!(s.hold((second, 0), 8), Err(Error::Closed)));
    for hold in &holds {
        // SAFETY: held, and no other thread uses it.
        unsafe { hold.pointer().as_ptr().write_bytes(7, 128) };
    }
    let were = at.map(mapped);
    drop(holds);
    assert!(at.iter().zip(&were).all(|(at, was)| was.is_some() && mapped(*at) != *was), "{were:?}");
}

#[test]
fn nothing_is_left_mapped_when_a_session_closes_however_long_a_copy_waits() {
    let s = alone(&Options { lanes: 1, ..Options::default() });
    let [gate, to, from] = [(); 3].map(|()| s.allocate(4096, false).unwrap());
    let all = [gate, to, from].map(|buffer| s.place(buffer).unwrap().0);
    let were = all.map(mapped);
    s.copy_in(&piece(to, from), &InOrder { word: Some((gate, 0, 1)), ..InOrder::default() }).unwrap();
    s.unpin(to).unwrap();
    assert!(were.iter().all(Option::is_some) && mapped(all[1]) == were[1]);
    // The close would wait ten seconds for it; the copy ends before that.
    let gate = word(&s, gate);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            gate.store(1, Ordering::SeqCst);
        });
        s.close().unwrap();
    });
    assert!(all.iter().zip(&were).all(|(at, was)| mapped(*at) != *was), "{were:?}");
}

#[test]
fn an_unpin_ends_what_was_prepared_also_while_a_mailbox_is_there() {
    let s = alone(&Options { lanes: 1, ..Options::default() });
    let [video, host] = [true, false].map(|video| s.allocate(4096, video).unwrap());
    let transfer = s.prepare((video, 128), (host, 128), 64).unwrap();
    let mailbox = s.message((video, 0), (host, 0)).unwrap();
    s.unpin(video).unwrap();
    assert!(matches!(s.submit(transfer), Err(Error::Freed)));
    assert!(matches!(s.send(mailbox, b"x"), Err(Error::Freed)));
    s.message_release(mailbox).unwrap();
}

#[test]
fn an_unpin_of_cudas_memory_ends_what_was_prepared_also_while_a_mailbox_is_there() {
    let rig = rig::rig(true, &one_lane());
    let s = &rig.session;
    let device = DeviceBuffer::new(&rig.context, BYTES).unwrap();
    let mut host = PinnedBuffer::new(&rig.context, BYTES).unwrap();
    host.bytes_mut().fill(0x5a);
    let [to, from] = [device.address(), host.as_ptr() as u64].map(|at| s.pin(at, BYTES as u64).unwrap());
    let transfer = s.prepare((to, 1024), (from, 1024), 64).unwrap();
    let _mailbox = s.message((to, 0), (from, 0)).unwrap();
    s.unpin(to).unwrap();
    assert!(matches!(s.submit(transfer), Err(Error::Freed)));
    std::thread::sleep(Duration::from_millis(20));
    assert_ne!(found(&device)[1024], 0x5a, "nothing was written after the unpin");
}

struct Inline;

impl Chooser for Inline {
    fn sizes(&self, direction: Direction) -> Vec<(u64, Executor)> {
        if direction == Direction::ToGpu {
            vec![(2048, Executor::Inline), (BYTES as u64, Executor::Stores)]
        } else {
            vec![]
        }
    }

    fn why(&self, _: Direction, _: u64) -> String {
        "as measured".into()
    }
}

#[test]
fn what_waits_for_another_copy_reads_its_source_after_it_whatever_the_profile_names() {
    for (profile, bytes) in
        [(Follow::Nothing, 64), (Follow::Given(Arc::new(Inline)), 64), (Follow::Given(Arc::new(Inline)), 4096)]
    {
        let s = alone(&Options { lanes: 2, profile, ..Options::default() });
        let [gate, host] = [(); 2].map(|()| s.allocate(4096, false).unwrap());
        let [source, to] = [(); 2].map(|()| s.allocate(4096, true).unwrap());
        word(&s, source).store(0x2222, Ordering::SeqCst);
        word(&s, host).store(0x1111, Ordering::SeqCst);
        let up = s.prepare((to, 0), (host, 0), bytes).unwrap();
        let down =
            s.copy_in(&piece(host, source), &InOrder { word: Some((gate, 0, 1)), ..InOrder::default() }).unwrap();
        let last = s.submit_in(up, None, &InOrder::after(&[down])).unwrap();
        word(&s, gate).store(1, Ordering::SeqCst);
        s.wait(last, LIMIT).unwrap();
        assert_eq!(word(&s, to).load(Ordering::SeqCst), 0x2222, "{bytes} bytes");
        s.unpin(host).unwrap();
        assert!(matches!(s.submit_in(up, None, &InOrder::after(&[down])), Err(Error::Freed)));
    }
}

/// A copy that waits for a word that is never written, next to CUDA: its memory, and one buffer that no copy names.
struct Waiting {
    rig: Rig,
    device: &'static DeviceBuffer<'static>,
    gate: &'static AtomicU32,
    copy: Copy,
    /// To, from, gate, other.
    buffers: [Buffer; 4],
}

fn waiting(lanes: usize) -> Waiting {
    let rig = rig::rig(true, &Options { lanes, ..Options::default() });
    // None of it is freed: only the session ends here.
    let context: &'static cuda::Context = Box::leak(Box::new(rig.cuda.device(0).unwrap().primary_context().unwrap()));
    let [device, other] = [(); 2].map(|()| &*Box::leak(Box::new(DeviceBuffer::new(context, BYTES).unwrap())));
    let [from, gate] = [(); 2].map(|()| {
        let mut host = PinnedBuffer::new(context, BYTES).unwrap();
        host.bytes_mut().fill(0);
        Box::leak(Box::new(host)).as_ptr() as u64
    });
    let buffers = [device.address(), from, gate, other.address()];
    let buffers = buffers.map(|at| rig.session.pin(at, BYTES as u64).unwrap());
    let copy = rig
        .session
        .copy_in(&piece(buffers[0], buffers[1]), &InOrder { word: Some((buffers[2], 0, 1)), ..InOrder::default() })
        .unwrap();
    // SAFETY: the first word of the gate, which is never freed.
    let gate = unsafe { AtomicU32::from_ptr(gate as *mut u32) };
    Waiting { rig, device, gate, copy, buffers }
}

#[test]
fn an_unpin_of_memory_that_nobody_named_neither_waits_for_a_copy_nor_stops_it() {
    let Waiting { rig, gate, copy, buffers: [to, from, _, other], .. } = waiting(1);
    let s = &rig.session;
    let (ended, took) = timed(|| s.unpin(other));
    ended.unwrap();
    assert!(took < SOON, "{took:?}");
    gate.store(1, Ordering::SeqCst);
    s.wait(copy, LIMIT).unwrap();
    s.copy((to, 0), (from, 0), 8, LIMIT).unwrap();
}

#[test]
fn what_was_named_before_on_a_lane_that_waits_is_not_waited_for() {
    let Waiting { rig, gate, copy: first, buffers: [to, from, word, other], .. } = waiting(1);
    let s = &rig.session;
    gate.store(1, Ordering::SeqCst);
    s.wait(first, LIMIT).unwrap();
    let prepared = s.prepare((other, 0), (from, 0), 64).unwrap();
    s.wait(s.submit(prepared).unwrap(), LIMIT).unwrap();
    s.copy((other, 0), (from, 0), 8, LIMIT).unwrap();
    let copy = s.copy_in(&piece(to, from), &InOrder { word: Some((word, 0, 2)), ..InOrder::default() }).unwrap();
    let (ended, took) = timed(|| s.unpin(other));
    ended.unwrap();
    assert!(took < SOON, "{took:?}");
    assert!(matches!(s.submit(prepared), Err(Error::Freed)));
    gate.store(2, Ordering::SeqCst);
    s.wait(copy, LIMIT).unwrap();
}

#[test]
fn a_lane_is_stopped_for_its_own_memory_alone_and_what_waits_for_it_is_stopped_with_it() {
    let Waiting { rig, device, gate, copy, buffers: [to, ..] } = waiting(1);
    let s = &rig.session;
    let mine = s.allocate(BYTES as u64, false).unwrap();
    let video = s.allocate(BYTES as u64, true).unwrap();
    let down = s.prepare((mine, 0), (video, 0), 64).unwrap();
    let behind = s.submit_in(down, None, &InOrder::after(&[copy])).unwrap();
    let (ended, took) = timed(|| s.unpin(to));
    ended.unwrap();
    assert!((Duration::from_millis(900)..Duration::from_secs(5)).contains(&took), "{took:?}");
    assert!(matches!(s.query(copy), Err(Error::Stopped)));
    let (stopped, took) = timed(|| s.wait(behind, LIMIT));
    assert!(matches!(stopped, Err(Error::Stopped)) && took < SOON, "{stopped:?} after {took:?}");
    assert!(matches!(s.submit(down), Err(Error::Stopped)));
    gate.store(1, Ordering::SeqCst);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(found(device)[..64], [0; 64]);
    let (closed, took) = timed(|| s.close());
    closed.unwrap();
    assert!(took < SOON, "{took:?}");
}

#[test]
fn a_close_does_not_wait_for_what_waits_for_a_dead_lane() {
    let Waiting { rig, copy, buffers: [to, ..], .. } = waiting(1);
    let s = &rig.session;
    let [video, host] = [true, false].map(|video| s.allocate(BYTES as u64, video).unwrap());
    let down = s.prepare((host, 0), (video, 0), 64).unwrap();
    s.submit_in(down, None, &InOrder::after(&[copy])).unwrap();
    s.unpin(to).unwrap();
    let (closed, took) = timed(|| s.close());
    closed.unwrap();
    assert!(took < SOON, "{took:?}");
}

#[test]
fn a_stream_that_waits_for_a_lane_goes_on_when_the_lane_dies() {
    let Waiting { rig, copy, buffers: [to, ..], .. } = waiting(1);
    let s = &rig.session;
    let [video, host] = [true, false].map(|video| s.allocate(BYTES as u64, video).unwrap());
    // One waits for the lane itself, the other for a lane that waits for it.
    let behind = s.copy_in(&piece(host, video), &InOrder::after(&[copy])).unwrap();
    let held = [copy, behind].map(|copy| {
        // SAFETY: the stand-in does not use streams.
        s.stream_wait(unsafe { Stream::from_raw(0x77 as *mut c_void) }, copy).unwrap();
        let (_, at, value, is_wait) = QUEUED.lock().unwrap().pop().unwrap();
        assert!(is_wait);
        // SAFETY: a word of the session's memory.
        (at, unsafe { AtomicU32::from_ptr(at as *mut u32) }, value)
    });
    std::thread::sleep(Duration::from_millis(250));
    assert!(held.iter().all(|(_, word, value)| word.load(Ordering::SeqCst) != *value), "the lanes are alive");
    s.unpin(to).unwrap();
    let start = Instant::now();
    // No thread waits for their copies or polls them.
    while held.iter().any(|(_, word, value)| word.load(Ordering::SeqCst) != *value) {
        assert!(start.elapsed() < LIMIT, "a stream waits for ever");
        std::thread::sleep(Duration::from_millis(5));
    }
    let (at, _, value) = held[0];
    assert!([copy, behind].iter().all(|copy| matches!(s.query(*copy), Err(Error::Stopped))), "it did not happen");
    // SAFETY: as above.
    let held = s.stream_wait(unsafe { Stream::from_raw(0x77 as *mut c_void) }, copy);
    assert!(held.is_err() && QUEUED.lock().unwrap().is_empty(), "{held:?}");
    run_stream(at, value);
}

#[test]
fn a_free_of_memory_that_nobody_named_does_not_stop_a_lane() {
    let Waiting { rig, gate, copy, .. } = waiting(1);
    let s = &rig.session;
    let block = DeviceBuffer::new(&rig.context, BYTES).unwrap();
    let pinned = s.pin(block.address(), BYTES as u64).unwrap();
    let ((), took) = timed(|| drop(block));
    assert!(took < SOON, "{took:?}");
    s.unpin(pinned).unwrap();
    gate.store(1, Ordering::SeqCst);
    s.wait(copy, LIMIT).unwrap();
}

thread_local!(static HELD: Cell<Option<&'static AtomicBool>> = const { Cell::new(None) });

/// Holds this thread before its CPU loads or stores, for longer than any free waits for the GPU.
fn held_before_stores(reached: &'static AtomicBool) {
    fn at(point: Point) {
        if point == Point::BeforeStores
            && let Some(reached) = HELD.take()
        {
            reached.store(true, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(1300));
        }
    }
    points::hold(at);
    HELD.set(Some(reached));
}

#[test]
fn a_free_waits_for_a_thread_that_touches_the_memory_itself_however_long_that_was_preempted() {
    let rig = rig::rig(true, &Options { profile: Follow::Given(Arc::new(Inline)), ..one_lane() });
    let s = &rig.session;
    let host = s.allocate(BYTES as u64, false).unwrap();
    let (pointer, _) = s.place(host).unwrap();
    // SAFETY: the session's memory, with no work pending yet.
    unsafe { std::ptr::write_bytes(pointer as *mut u8, 0x5a, BYTES) };
    // Stored by the CPU, and read by it for the command stream.
    for (bytes, prepared) in [(BYTES as u64, false), (64, true)] {
        let reached: &AtomicBool = Box::leak(Box::default());
        let block = DeviceBuffer::new(&rig.context, BYTES).unwrap();
        let address = block.address();
        let to = s.pin(address, BYTES as u64).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let transfer = prepared.then(|| s.prepare((to, 0), (host, 0), bytes).unwrap());
                held_before_stores(reached);
                let copy = match transfer {
                    Some(transfer) => s.submit(transfer).unwrap(),
                    None => s.copy_async((to, 0), (host, 0), bytes).unwrap(),
                };
                s.wait(copy, LIMIT).unwrap();
            });
            while !reached.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            drop(block);
            let next = DeviceBuffer::new(&rig.context, BYTES).unwrap();
            assert_eq!(next.address(), address, "given out again");
            next.write(&[0x11; BYTES]).unwrap();
            std::thread::sleep(Duration::from_millis(500));
            assert!(found(&next) == [0x11; BYTES], "{bytes} bytes came into the next owner's memory");
        });
        s.unpin(to).unwrap();
    }
}

#[test]
fn an_unpin_sends_nobody_elses_transfer_through_a_lock() {
    let rig = rig::rig(true, &one_lane());
    let s = &rig.session;
    let [to, from, other] = [(); 3].map(|()| {
        let block = Box::leak(Box::new(DeviceBuffer::new(&rig.context, BYTES).unwrap()));
        s.pin(block.address(), BYTES as u64).unwrap()
    });
    let transfer = s.prepare((to, 0), (from, 0), 64).unwrap();
    s.unpin(other).unwrap();
    let submitted = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // The lock over all records of CUDA memory.
        let graph = rig.watched.graph();
        scope.spawn(|| {
            s.wait(s.submit(transfer).unwrap(), LIMIT).unwrap();
            s.copy((to, 0), (from, 0), 8, LIMIT).unwrap();
            submitted.store(true, Ordering::SeqCst);
        });
        let start = Instant::now();
        while !submitted.load(Ordering::SeqCst) && start.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(graph);
        assert!(submitted.load(Ordering::SeqCst));
    });
}

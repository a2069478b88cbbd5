//! Sessions on the software GPU.

use doorbell_softgpu::{Mode, Planted, SoftDriver};
use gpu::{AddressSpace, Device};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use submit::{
    Buffer, Chooser, Direction, Error, Executor, Follow, InOrder, Index, Options, Pages, Part, Piece, Session,
};

const LIMIT: Duration = Duration::from_secs(30);

struct Rig {
    session: Arc<Session>,
    driver: SoftDriver,
}

fn rig_with(options: &Options) -> Rig {
    let driver = SoftDriver::new(Mode::Strict);
    let session = Arc::new(Session::new());
    open(&session, driver, options).unwrap();
    Rig { session, driver }
}

fn open(session: &Session, driver: SoftDriver, options: &Options) -> Result<(), Error> {
    let device = Device::open(Arc::new(driver), 0).unwrap();
    session.open_in(AddressSpace::new(&device).unwrap(), None, options)
}

fn rig() -> Rig {
    rig_with(&Options { lanes: 2, ..Options::default() })
}

#[allow(clippy::mut_from_ref, reason = "each test has memory of its own and looks when nothing is under way")]
impl Rig {
    fn bytes(&self, buffer: Buffer) -> &mut [u8] {
        let (pointer, length) = self.session.place(buffer).unwrap();
        // SAFETY: the session's own memory, which the CPU sees; each test has its own and reads it only when no work is
        // pending.
        unsafe { std::slice::from_raw_parts_mut(pointer as *mut u8, length as usize) }
    }

    fn faults(&self) -> u64 {
        self.driver.counters().faults.load(Ordering::Relaxed)
    }
}

fn noise(to: &mut [u8], seed: u64) {
    to.copy_from_slice(&test_support::noise(to.len(), seed));
}

#[test]
fn every_way_of_copying_moves_its_bytes_and_no_others() {
    let rig = rig();
    let s = &rig.session;
    let (host, video) = (s.allocate(1 << 16, false).unwrap(), s.allocate(1 << 16, true).unwrap());
    noise(rig.bytes(host), 1);
    s.copy((video, 5), (host, 3), 1001, LIMIT).unwrap();
    assert!(rig.bytes(video)[5..1006] == rig.bytes(host)[3..1004]);
    assert_eq!((rig.bytes(video)[4], rig.bytes(video)[1006]), (0, 0));
    let back = s.copy_async((host, 40_000), (video, 5), 1001).unwrap();
    s.wait(back, LIMIT).unwrap();
    assert!(s.poll(back).unwrap() && s.query(back).unwrap() == 0);
    assert!(rig.bytes(host)[40_000..41_001] == rig.bytes(host)[3..1004]);
    let t = s.prepare((video, 8192), (host, 0), 4096).unwrap();
    for round in 0..100 {
        noise(&mut rig.bytes(host)[..4096], round);
        s.wait(s.submit(t).unwrap(), LIMIT).unwrap();
        assert!(rig.bytes(video)[8192..8192 + 4096] == rig.bytes(host)[..4096], "round {round}");
    }
    let t = s.prepare_bytes((video, 100), 56).unwrap();
    s.wait(s.submit_bytes(t, &[0xab; 56]).unwrap(), LIMIT).unwrap();
    assert!(rig.bytes(video)[100..156].iter().all(|byte| *byte == 0xab));
    assert_eq!(rig.faults(), 0);
}

/// Doorbells, and those among them that found GP_PUT unchanged since the last one.
fn doorbells(rig: &Rig) -> (u64, u64) {
    let counters = rig.driver.counters();
    (counters.doorbells.load(Ordering::Relaxed), counters.empty_doorbells.load(Ordering::Relaxed))
}

#[test]
fn a_batch_moves_each_of_its_pieces_with_one_doorbell() {
    let rig = rig();
    let s = &rig.session;
    let (host, video) = (s.allocate(1 << 20, false).unwrap(), s.allocate(1 << 20, true).unwrap());
    noise(rig.bytes(host), 9);
    // Long lists are submitted in parts, of 128 pieces and then 240.
    for (count, parts) in [(1, 1), (55, 1), (56, 1), (57, 1), (256, 1), (257, 2), (1000, 4), (4096, 17)] {
        rig.bytes(video).fill(0);
        // Pages in another order.
        let place = |n: u64| (n * 7919 + 5) % count * 256;
        let pieces: Vec<_> = (0..count)
            .map(|n| Piece { to: video, to_at: place(n), from: host, from_at: n * 256, bytes: 200 })
            .collect();
        let before = doorbells(&rig);
        let batch = s.copy_batch(&pieces).unwrap();
        let (rung, repeated) = doorbells(&rig);
        assert_eq!((rung, repeated), (before.0 + parts, before.1), "{count} pieces");
        s.wait(batch, LIMIT).unwrap();
        // On a busy machine the wait rings again, as for a missed doorbell; that doorbell announces no new work.
        let (rung, repeated) = doorbells(&rig);
        assert_eq!(rung - repeated, before.0 + parts - before.1, "{count} pieces");
        for n in 0..count {
            let (to, from) = (place(n) as usize, n as usize * 256);
            assert!(rig.bytes(video)[to..to + 200] == rig.bytes(host)[from..from + 200], "piece {n} of {count}");
        }
    }
    assert!(matches!(s.copy_batch(&[]), Err(Error::Argument(_))));
}

/// More than there is room for: the call waits for the first ones.
#[test]
fn a_list_of_any_length_arrives() {
    const COUNT: u64 = 40_000;
    let rig = rig();
    let s = &rig.session;
    let (host, video) = (s.allocate(COUNT * 64, false).unwrap(), s.allocate(COUNT * 64, true).unwrap());
    noise(rig.bytes(host), 3);
    let place = |n: u64| (n * 7919 + 5) % COUNT * 64;
    let piece = |n| Piece { to: video, to_at: place(n), from: host, from_at: n * 64, bytes: 64 };
    let pieces: Vec<_> = (0..COUNT).map(piece).collect();
    s.wait(s.copy_batch(&pieces).unwrap(), LIMIT).unwrap();
    let arrived = |n: u64| {
        let (to, from) = (place(n) as usize, n as usize * 64);
        rig.bytes(video)[to..to + 64] == rig.bytes(host)[from..from + 64]
    };
    assert!((0..COUNT).all(arrived));
    // A wrong one at the end is an error before the first is copied.
    rig.bytes(video).fill(0);
    for wrong in [Piece { bytes: 65, ..piece(COUNT - 1) }, Piece { bytes: 0, ..piece(0) }] {
        let mut pieces = pieces.clone();
        // (The last place and the last source.)
        pieces[COUNT as usize - 1] = Piece { to_at: COUNT * 64 - 64, ..wrong };
        assert!(matches!(s.copy_batch(&pieces), Err(Error::Outside { .. } | Error::Argument(_))));
    }
    assert!(rig.bytes(video).iter().all(|byte| *byte == 0));
}

/// The lane waits for a word that only this program writes. A list for which there is no room waits, and others can free buffers and close the session meanwhile.
#[test]
fn a_list_that_waits_for_room_holds_up_no_free_and_no_close() {
    const COUNT: u64 = 20_000;
    let rig = rig_with(&Options { lanes: 1, ..Options::default() });
    let s = &rig.session;
    let (host, video) = (s.allocate(COUNT * 64, false).unwrap(), s.allocate(COUNT * 64, true).unwrap());
    let (gate, other) = (s.allocate(4096, false).unwrap(), s.allocate(4096, false).unwrap());
    let pieces: Vec<_> = (0..COUNT)
        .map(|n| Piece { to: video, to_at: n * 64, from: host, from_at: (n * 7919 + 5) % COUNT * 64, bytes: 64 })
        .collect();
    let behind = InOrder { word: Some((gate, 0, 1)), ..InOrder::default() };
    assert!(matches!(s.copy_in(&pieces, &behind), Err(Error::Limit(_))), "the word may be written after the call");
    // What that left is soon done, and the widest engine is free again.
    loop {
        let copy = s.copy_batch(&pieces[..200]).unwrap();
        s.wait(copy, LIMIT).unwrap();
        if lane_of(copy) == WIDE {
            break;
        }
    }
    // Both lanes that a list could use.
    let both = || [200, 100].map(|count| s.copy_in(&pieces[..count], &behind).unwrap());
    let first = both();
    std::thread::scope(|scope| {
        let list = scope.spawn(|| s.copy_batch(&pieces));
        std::thread::sleep(Duration::from_millis(100));
        if list.is_finished() {
            panic!("it ended: {:?}", list.join());
        }
        let began = Instant::now();
        s.unpin(other).unwrap();
        assert!(began.elapsed() < Duration::from_secs(2), "a free waited for {:?}", began.elapsed());
        rig.bytes(gate)[..4].copy_from_slice(&1u32.to_le_bytes());
        s.wait(list.join().unwrap().unwrap(), LIMIT).unwrap();
    });
    first.iter().for_each(|first| s.wait(*first, LIMIT).unwrap());
    // The same, and the session is closed.
    rig.bytes(gate)[..4].fill(0);
    both();
    std::thread::scope(|scope| {
        let list = scope.spawn(|| s.copy_batch(&pieces));
        std::thread::sleep(Duration::from_millis(100));
        s.close().unwrap();
        let ended = list.join().unwrap();
        assert!(matches!(ended, Err(Error::Closed | Error::Stopped | Error::Killed(_))), "{ended:?}");
    });
}

/// What is wrong with the signal or with memory is said before the first part.
#[test]
fn a_long_list_is_whole_or_nothing() {
    let rig = rig();
    let s = &rig.session;
    let (host, video) = (s.allocate(1 << 16, false).unwrap(), s.allocate(1 << 16, true).unwrap());
    let (gone, word) = (s.allocate(4096, false).unwrap(), s.allocate(4096, false).unwrap());
    s.unpin(gone).unwrap();
    noise(rig.bytes(host), 5);
    rig.bytes(video).fill(0);
    let pieces: Vec<_> =
        (0..900).map(|n| Piece { to: video, to_at: n * 64, from: host, from_at: n * 32, bytes: 64 }).collect();
    for signal in [(word, 2, 1), (word, 4096, 1), (gone, 0, 1)] {
        let order = InOrder { signal: Some(signal), ..InOrder::default() };
        assert!(s.copy_in(&pieces, &order).is_err());
    }
    let mut last = pieces.clone();
    last[899].from = gone;
    assert!(s.copy_batch(&last).is_err());
    std::thread::sleep(Duration::from_millis(20));
    assert!(rig.bytes(video).iter().all(|byte| *byte == 0));
    // Neighbours of no bytes are no neighbours.
    let nothing = Piece { bytes: 0, ..pieces[0] };
    assert!(
        s.copy_batch(&[nothing, pieces[0]]).is_err()
            && s.copy_batch(&[pieces[0], Piece { to_at: 64, from_at: 64, ..nothing }]).is_err()
    );
    s.wait(s.copy_in(&pieces, &InOrder { signal: Some((word, 8, 7)), ..InOrder::default() }).unwrap(), LIMIT).unwrap();
    assert_eq!(rig.bytes(word)[8], 7);
}

/// Layers with keys and values, pages by their numbers.
#[test]
fn pages_go_by_their_numbers() {
    const PAGE: u64 = 96;
    let rig = rig();
    let s = &rig.session;
    let (host, video) = (s.allocate(1 << 20, false).unwrap(), s.allocate(1 << 20, true).unwrap());
    noise(rig.bytes(host), 4);
    let from_index: Vec<u64> = (0..300).map(|n| n * 7 % 301).collect();
    let to_index: Vec<u32> = (0..300).rev().collect();
    // Pages of 96 bytes, 128 apart on the host, side by side in video memory.
    let parts: Vec<_> =
        (0..5u64).map(|n| Part { to: video, to_at: n * 300 * PAGE, from: host, from_at: n * 301 * 128 + 8 }).collect();
    let pages = Pages {
        bytes: PAGE,
        to_stride: PAGE,
        from_stride: 128,
        to_index: Index::U32(&to_index),
        from_index: Index::U64(&from_index),
        count: 300,
        distinct: true,
    };
    s.wait(s.copy_pages(&parts, &pages, &InOrder::default()).unwrap(), LIMIT).unwrap();
    for (part, n) in parts.iter().flat_map(|part| (0..300).map(move |n| (part, n))) {
        let to = (part.to_at + u64::from(to_index[n]) * PAGE) as usize;
        let from = (part.from_at + from_index[n] * 128) as usize;
        assert!(rig.bytes(video)[to..to + 96] == rig.bytes(host)[from..from + 96], "{part:?} {n}");
    }
    rig.bytes(video).fill(0);
    let twice: Vec<u64> = (0..300).map(|n| if n == 299 { 7 } else { n }).collect();
    let whole = Pages { to_index: Index::Whole, from_index: Index::Whole, ..pages };
    for wrong in [
        Pages { from_index: Index::U64(&from_index[1..]), ..pages },
        Pages { to_index: Index::U64(&twice), ..pages },
        Pages { to_stride: PAGE - 1, ..pages },
        Pages { bytes: 0, ..pages },
        Pages { bytes: 1 << 21, ..pages },
        Pages { from_stride: u64::MAX, ..pages },
        Pages { to_stride: 1 << 14, ..pages },
        Pages { count: 1 << 40, ..whole },
        Pages { count: usize::MAX, ..whole },
        Pages { count: 0, ..whole },
    ] {
        let result = s.copy_pages(&parts, &wrong, &InOrder::default());
        assert!(matches!(result, Err(Error::Outside { .. } | Error::Argument(_) | Error::Limit(_))), "{result:?}");
    }
    // Parts that overlap: by some bytes, by a page whose number the other one has less 7, not at all.
    let at = |to_at| Part { to_at, ..parts[0] };
    let few = [3u32, 10, 40];
    for (to_at, index, overlaps) in [
        (0, Index::Whole, true),
        (95, Index::Whole, true),
        (299 * PAGE + 95, Index::Whole, true),
        (300 * PAGE, Index::Whole, false),
        (7 * PAGE, Index::U32(&few), true),
        (7 * PAGE + 1, Index::U32(&few), true),
        (6 * PAGE, Index::U32(&few), false),
        (37 * PAGE - 1, Index::U32(&few), true),
        (38 * PAGE, Index::U32(&few), false),
    ] {
        let count = if matches!(index, Index::Whole) { 300 } else { 3 };
        let pages = Pages { to_index: index, from_index: Index::Whole, count, ..pages };
        // (Without a byte copied: the second part's source is outside.)
        let wrong = Part { from_at: 1 << 20, ..at(to_at) };
        let result = s.copy_pages(&[at(0), wrong], &pages, &InOrder::default());
        assert_eq!(matches!(result, Err(Error::Argument(_))), overlaps, "{to_at}: {result:?}");
    }
    assert!(rig.bytes(video).iter().all(|byte| *byte == 0));
    s.wait(s.copy_pages(&parts[..1], &whole, &InOrder::default()).unwrap(), LIMIT).unwrap();
    assert!((0..300).all(|n| rig.bytes(video)[n * 96..][..96] == rig.bytes(host)[8 + n * 128..][..96]));
}

/// The lane of that engine.
const WIDE: u64 = 161;

fn lane_of(copy: submit::Copy) -> u64 {
    copy.raw() >> 44 & 0xff
}

/// The engine with the most physical engines takes lists to the GPU while it has nothing else to do. Nothing waits for another direction's copies.
#[test]
fn lists_to_the_gpu_use_the_widest_engine_while_it_is_free() {
    const BACK: u64 = 64;
    let rig = rig();
    let s = &rig.session;
    let of = lane_of;
    let (host, video, word) =
        (s.allocate(1 << 16, false).unwrap(), s.allocate(1 << 16, true).unwrap(), s.allocate(64, false).unwrap());
    noise(rig.bytes(host), 6);
    let list = |count: u64| -> Vec<Piece> {
        (0..count).map(|n| Piece { to: video, to_at: n * 128, from: host, from_at: n * 64, bytes: 64 }).collect()
    };
    let back = [Piece { to: host, to_at: 1 << 15, from: video, from_at: 0, bytes: 64 }];
    let waits = |value| InOrder { word: Some((word, 0, value)), ..InOrder::default() };
    let go = |value: u8| rig.bytes(word)[0] = value;
    for (pieces, expected) in [(list(127), 0..BACK), (list(128), WIDE..WIDE + 1), (back.to_vec(), BACK..2 * BACK)] {
        let copy = s.copy_batch(&pieces).unwrap();
        s.wait(copy, LIMIT).unwrap();
        assert!(expected.contains(&of(copy)), "{expected:?}: {}", of(copy));
    }
    // A list waits on that engine: copies from the GPU go elsewhere, and arrive.
    let list_waits = s.copy_in(&list(256), &waits(1)).unwrap();
    let others = [s.copy_batch(&back).unwrap(), s.copy_batch(&list(256)).unwrap()];
    assert!(of(list_waits) == WIDE && others.iter().all(|other| of(*other) < BACK));
    others.iter().for_each(|other| s.wait(*other, LIMIT).unwrap());
    go(1);
    s.wait(list_waits, LIMIT).unwrap();
    // A copy from the GPU waits there: a list goes elsewhere. Both directions have something that waits: each stays with its own.
    let back_waits = s.copy_in(&back, &waits(2)).unwrap();
    let list_waits = s.copy_in(&list(256), &waits(2)).unwrap();
    assert!((BACK..WIDE).contains(&of(back_waits)) && of(list_waits) < BACK);
    go(2);
    s.wait(back_waits, LIMIT).unwrap();
    s.wait(list_waits, LIMIT).unwrap();
    // From now on a list could delay the transfer.
    let _kept = s.prepare((host, 0), (video, 0), 64).unwrap();
    let list_beside = s.copy_batch(&list(256)).unwrap();
    assert!(of(list_beside) < BACK);
    s.wait(list_beside, LIMIT).unwrap();
    assert!((0..256).all(|n| rig.bytes(video)[n * 128..][..64] == rig.bytes(host)[n * 64..][..64]));
    drop(rig);
    let rig = rig_with(&Options { spare_kernels: true, ..Options::default() });
    let s = &rig.session;
    let (host, video) = (s.allocate(1 << 16, false).unwrap(), s.allocate(1 << 16, true).unwrap());
    let pieces: Vec<_> =
        (0..256).map(|n| Piece { to: video, to_at: n * 128, from: host, from_at: n * 64, bytes: 64 }).collect();
    let spared = s.copy_batch(&pieces).unwrap();
    assert!(of(spared) < BACK);
    s.wait(spared, LIMIT).unwrap();
}

#[test]
fn sixty_four_threads_submit_at_once_and_each_finds_its_own_bytes() {
    const THREADS: usize = 64;
    const ROUNDS: u64 = 5;
    // Fewer lanes than threads: some are busy at times.
    let rig = rig_with(&Options { lanes: 4, ..Options::default() });
    let tried = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (rig, tried) = (&rig, &tried);
            scope.spawn(move || {
                let s = &rig.session;
                let (host, video) = (s.allocate(4096, false).unwrap(), s.allocate(4096, true).unwrap());
                let down = s.prepare((video, 0), (host, 0), 1024).unwrap();
                let again = |submit: &dyn Fn() -> Result<submit::Copy, Error>| loop {
                    match submit() {
                        Err(Error::Busy | Error::Full(_)) => {
                            tried.fetch_add(1, Ordering::Relaxed);
                            std::thread::yield_now();
                        }
                        other => break other.unwrap(),
                    }
                };
                for round in 0..ROUNDS {
                    noise(&mut rig.bytes(host)[..1024], thread as u64 * 1000 + round);
                    s.wait(again(&|| s.submit(down)), LIMIT).unwrap();
                    s.wait(again(&|| s.copy_async((host, 2048), (video, 0), 1024)), LIMIT).unwrap();
                    let all = rig.bytes(host);
                    assert!(all[..1024] == all[2048..3072], "thread {thread}, round {round}");
                }
                s.release(down).unwrap();
                s.unpin(video).unwrap();
                s.unpin(host).unwrap();
            });
        }
    });
    assert_eq!(rig.faults(), 0);
}

#[test]
fn what_is_gone_or_was_never_there_is_an_error() {
    let rig = rig();
    let s = &rig.session;
    let (host, video) = (s.allocate(4096, false).unwrap(), s.allocate(4096, true).unwrap());
    let t = s.prepare((video, 0), (host, 0), 64).unwrap();
    let copy = s.submit(t).unwrap();
    s.wait(copy, LIMIT).unwrap();
    for raw in [0, 1, u64::MAX, host.raw() ^ 1, t.raw(), copy.raw()] {
        let wrong = Buffer::from_raw(raw);
        assert!(matches!(s.copy_async((wrong, 0), (host, 0), 8), Err(Error::Handle(_))), "{raw:#x}");
        assert!(matches!(s.unpin(wrong), Err(Error::Handle(_))), "{raw:#x}");
    }
    for raw in [0, u64::MAX, t.raw() + 1, host.raw(), t.raw() | 0xfff << 32, t.raw() | 0xff << 44] {
        assert!(matches!(s.submit(submit::Transfer::from_raw(raw)), Err(Error::Handle(_))), "{raw:#x}");
        assert!(matches!(s.ring_next(submit::Ring::from_raw(raw)), Err(Error::Handle(_))), "{raw:#x}");
    }
    for raw in [0, u64::MAX, copy.raw() + 1, copy.raw() | 0xff << 44, t.raw()] {
        let wrong = submit::Copy::from_raw(raw);
        assert!(matches!(s.poll(wrong), Err(Error::Handle(_) | Error::Closed)), "{raw:#x}: {:?}", s.poll(wrong));
    }
    for (at, bytes) in [(4096, 1), (0, 4097), (u64::MAX, 8), (4090, u64::MAX)] {
        assert!(matches!(s.copy_async((video, at), (host, 0), bytes), Err(Error::Outside { .. })), "{at} {bytes}");
        assert!(matches!(s.copy_async((video, 0), (host, at), bytes), Err(Error::Outside { .. })), "{at} {bytes}");
    }
    assert!(matches!(s.copy_async((video, 0), (host, 0), 0), Err(Error::Argument(_))));
    assert!(matches!(s.pin(0x1000, 64), Err(Error::Unavailable(_))), "no CUDA here");
    // A refused submission has no effect: the next one works.
    s.copy((video, 0), (host, 0), 8, LIMIT).unwrap();
    s.unpin(host).unwrap();
    assert!(matches!(s.submit(t), Err(Error::Freed)));
    assert!(matches!(s.copy_async((video, 0), (host, 0), 8), Err(Error::Handle(_))));
    assert!(matches!(s.unpin(host), Err(Error::Handle(_))));
    s.release(t).unwrap();
    assert!(matches!(s.submit(t), Err(Error::Handle(_))) && matches!(s.release(t), Err(Error::Handle(_))));
    assert_eq!(rig.faults(), 0);
}

#[test]
fn a_session_is_opened_once_and_everything_ends_with_it() {
    let rig = rig();
    let s = &rig.session;
    assert!(matches!(open(s, rig.driver, &Options::default()), Err(Error::AlreadyOpen)));
    let host = s.allocate(4096, false).unwrap();
    let t = s.prepare((host, 0), (host, 2048), 64).unwrap();
    let copy = s.submit(t).unwrap();
    s.close().unwrap();
    assert!(matches!(s.close(), Err(Error::Closed)));
    for error in [s.submit(t).map(drop), s.poll(copy).map(drop), s.unpin(host), s.allocate(1, true).map(drop)] {
        assert!(matches!(error, Err(Error::Closed)), "{error:?}");
    }
    open(s, rig.driver, &Options { lanes: 1, ..Options::default() }).unwrap();
    for error in [s.submit(t).map(drop), s.poll(copy).map(drop), s.unpin(host)] {
        assert!(matches!(error, Err(Error::Handle(_))), "of another opening: {error:?}");
    }
    for lanes in [0, 65] {
        let refused = Session::new().open(&Options { lanes, ..Options::default() });
        assert!(matches!(refused, Err(Error::Argument(_))));
    }
}

/// A handle has room for 8 bits of the opening's number, and these repeat.
#[test]
fn a_ticket_of_an_opening_long_ago_is_no_ticket() {
    let rig = rig_with(&Options { lanes: 1, ..Options::default() });
    let (s, options) = (&rig.session, Options { lanes: 1, ..Options::default() });
    let copy = || {
        let (host, video) = (s.allocate(64, false).unwrap(), s.allocate(64, true).unwrap());
        let copy = s.copy_async((video, 0), (host, 0), 64).unwrap();
        s.wait(copy, LIMIT).unwrap();
        (copy, host)
    };
    let (old, buffer) = copy();
    for opening in 0..256 {
        s.close().unwrap();
        open(s, rig.driver, &options).unwrap();
        assert!(matches!(s.poll(old), Err(Error::Handle("ticket"))), "{opening}");
        assert!(matches!(s.place(buffer), Err(Error::Handle("buffer"))), "{opening}");
    }
    let (new, _) = copy();
    assert!(new != old && matches!(s.wait(old, LIMIT), Err(Error::Handle("ticket"))));
    assert_eq!(rig.faults(), 0);
}

#[test]
fn memory_and_prepared_copies_take_no_descriptors() {
    let rig = rig();
    let s = &rig.session;
    // Open files of the driver. (The software GPU keeps its memory in separate files.)
    let descriptors = || {
        let all = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
        all.filter(|link| link.to_string_lossy().contains("softgpu-nvidia")).count()
    };
    let (host, video) = (s.allocate(64, false).unwrap(), s.allocate(64, true).unwrap());
    let before = descriptors();
    let prepared: Vec<_> = (0..500).map(|_| s.prepare((video, 0), (host, 0), 64).unwrap()).collect();
    // Other tests run at the same time, and open files, too.
    assert!(descriptors() < before + 300, "{before} before, {} now", descriptors());
    prepared.into_iter().for_each(|transfer| s.release(transfer).unwrap());
    assert!(matches!(s.allocate((16 << 30) + 1, false), Err(Error::Argument(what)) if what.contains("16 GiB")));
}

#[test]
fn a_close_waits_for_what_is_under_way() {
    let rig = rig();
    let s = &rig.session;
    let (host, video) = (s.allocate(8 << 20, false).unwrap(), s.allocate(8 << 20, true).unwrap());
    let consumed = || rig.driver.counters().copies.load(Ordering::Relaxed);
    let before = consumed();
    for _ in 0..8 {
        s.copy_async((video, 0), (host, 0), 8 << 20).unwrap();
    }
    s.close().unwrap();
    assert_eq!(consumed(), before + 8);
    assert_eq!(rig.faults(), 0);
}

#[test]
fn threads_that_submit_while_the_session_is_closed_and_opened_get_errors_and_nothing_worse() {
    let rig = rig();
    let stop = AtomicBool::new(false);
    let done = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let s = &rig.session;
                while !stop.load(Ordering::Relaxed) {
                    let one = || -> Result<(), Error> {
                        let host = s.allocate(4096, false)?;
                        let t = s.prepare((host, 0), (host, 2048), 64)?;
                        for _ in 0..5 {
                            s.wait(s.submit(t)?, LIMIT)?;
                        }
                        s.release(t)?;
                        // A lane that is made by the first thread that needs it.
                        s.release(s.prepare_bytes((host, 0), 8)?)?;
                        s.unpin(host)
                    };
                    match one() {
                        Ok(()) => drop(done.fetch_add(1, Ordering::Relaxed)),
                        Err(Error::Closed | Error::Handle(_) | Error::Busy | Error::Freed) => {}
                        Err(other) => panic!("{other:?}"),
                    }
                }
            });
        }
        for _ in 0..120 {
            rig.session.close().unwrap();
            open(&rig.session, rig.driver, &Options { lanes: 2, ..Options::default() }).unwrap();
            std::thread::sleep(Duration::from_millis(2));
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(done.load(Ordering::Relaxed) > 0);
    assert_eq!(rig.faults(), 0);
}

#[test]
fn a_ring_gives_its_frames_in_turn_and_says_when_the_producer_has_come_round() {
    let rig = rig();
    let s = &rig.session;
    let (host, video) = (s.allocate(1 << 16, false).unwrap(), s.allocate(1 << 16, true).unwrap());
    let gate = s.allocate(64, false).unwrap();
    let ring = s.ring((video, 1024), (host, 512), 4096, 4).unwrap();
    assert!(matches!(s.ring_submit(ring), Err(Error::Argument(_))), "no frame was taken");
    for round in 0..20u64 {
        let frame = s.ring_next(ring).unwrap();
        assert_eq!((frame.index as u64, frame.offset), (round % 4, 512 + round % 4 * 4096));
        assert_eq!(s.ring_next(ring).unwrap(), frame, "asked again it is the same");
        let at = frame.offset as usize;
        noise(&mut rig.bytes(host)[at..at + 4096], round);
        s.wait(s.ring_submit(ring).unwrap(), LIMIT).unwrap();
        let to = at + 512;
        assert!(rig.bytes(video)[to..to + 4096] == rig.bytes(host)[at..at + 4096], "round {round}");
    }
    // The lane waits for a word: no frame is done until it is written.
    let held = s.copy_in(&[], &InOrder { word: Some((gate, 0, 1)), ..InOrder::default() }).unwrap();
    for _ in 0..4 {
        s.ring_next(ring).unwrap();
        s.ring_submit(ring).unwrap();
    }
    assert!(matches!(s.ring_next(ring), Err(Error::Overrun)));
    rig.bytes(gate)[0] = 1;
    s.wait(held, LIMIT).unwrap();
    let start = std::time::Instant::now();
    while matches!(s.ring_next(ring), Err(Error::Overrun)) {
        assert!(start.elapsed() < LIMIT);
        std::thread::yield_now();
    }
    s.ring_release(ring).unwrap();
    assert!(matches!(s.ring_next(ring), Err(Error::Handle(_))));
    for frames in [0, 1, 1025] {
        assert!(matches!(s.ring((video, 0), (host, 0), 64, frames), Err(Error::Argument(_))));
    }
    assert!(matches!(s.ring((video, 0), (host, 0), 1 << 14, 5), Err(Error::Outside { .. })));
}

#[test]
fn a_copy_waits_for_a_word_and_writes_one_when_it_is_there() {
    let rig = rig();
    let s = &rig.session;
    let (host, video) = (s.allocate(4096, false).unwrap(), s.allocate(4096, true).unwrap());
    let words = s.allocate(64, false).unwrap();
    noise(rig.bytes(host), 4);
    let piece = Piece { to: video, to_at: 0, from: host, from_at: 0, bytes: 512 };
    let copy = s
        .copy_in(&[piece], &InOrder { word: Some((words, 4, 7)), signal: Some((words, 8, 9)), ..InOrder::default() })
        .unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert!(!s.poll(copy).unwrap() && s.query(copy).unwrap() == 1 && rig.bytes(video)[0..8] == [0; 8]);
    assert!(matches!(s.wait(copy, Duration::from_millis(5)), Err(Error::Timeout(_))));
    // A later value is enough: words count up.
    rig.bytes(words)[4] = 8;
    s.wait(copy, LIMIT).unwrap();
    assert!(rig.bytes(video)[..512] == rig.bytes(host)[..512] && rig.bytes(words)[8] == 9);
    assert!(s.copy_in(&[piece], &InOrder { word: Some((words, 2, 7)), ..InOrder::default() }).is_err(), "not aligned");
    assert!(matches!(
        s.copy_in(&[piece], &InOrder { signal: Some((words, 4096, 7)), ..InOrder::default() }),
        Err(Error::Outside { .. })
    ));
    s.copy((video, 0), (host, 0), 8, LIMIT).unwrap();
}

#[test]
fn a_channel_that_dies_is_an_error_for_all_who_wait_and_the_next_opening_has_others() {
    let rig = rig_with(&Options { lanes: 1, ..Options::default() });
    let s = &rig.session;
    let host = s.allocate(4096, false).unwrap();
    let t = s.prepare((host, 0), (host, 2048), 64).unwrap();
    rig.driver.machine.plant(Some(Planted::DeadChannel { entry: 6, xid: 31 }));
    let start = std::time::Instant::now();
    let (copy, error) = loop {
        assert!(start.elapsed() < LIMIT);
        let submitted = s.submit(t);
        match submitted.and_then(|copy| s.wait(copy, LIMIT).map(|()| copy)) {
            Err(error) => break (s.submit(t), error),
            Ok(_) => continue,
        }
    };
    assert!(matches!(error, Error::Killed(31)) && matches!(copy, Err(Error::Killed(31))), "{error:?} {copy:?}");
    assert!(matches!(s.copy_async((host, 0), (host, 64), 8), Err(Error::Killed(31))));
    assert!(matches!(s.copy((host, 0), (host, 64), 8, LIMIT), Err(Error::Killed(31))));
    rig.driver.machine.plant(None);
    s.close().unwrap();
    open(s, rig.driver, &Options { lanes: 1, ..Options::default() }).unwrap();
    let host = s.allocate(4096, false).unwrap();
    s.copy((host, 0), (host, 64), 8, LIMIT).unwrap();
}

#[test]
fn a_doorbell_that_was_missed_is_rung_again_by_waits_and_by_polls_alone() {
    let rig = rig_with(&Options { lanes: 1, ..Options::default() });
    let s = &rig.session;
    let host = s.allocate(4096, false).unwrap();
    let t = s.prepare((host, 0), (host, 2048), 64).unwrap();
    for polls in [false, true] {
        rig.driver.machine.plant(Some(Planted::LostDoorbell { nth: 1 }));
        let copy = s.submit(t).unwrap();
        if polls {
            let start = std::time::Instant::now();
            while !s.poll(copy).unwrap() {
                assert!(start.elapsed() < LIMIT);
            }
        } else {
            s.wait(copy, LIMIT).unwrap();
        }
        rig.driver.machine.plant(None);
    }
}

#[test]
fn so_many_submissions_of_one_transfer_are_under_way_and_one_more_is_an_error() {
    let rig = rig();
    let s = &rig.session;
    let (host, gate) = (s.allocate(4096, false).unwrap(), s.allocate(64, false).unwrap());
    let t = s.prepare((host, 0), (host, 2048), 64).unwrap();
    s.copy_in(&[], &InOrder { word: Some((gate, 0, 1)), ..InOrder::default() }).unwrap();
    for n in 0..32 {
        assert!(s.submit(t).is_ok(), "{n}");
    }
    assert!(matches!(s.submit(t), Err(Error::Full(32))));
    rig.bytes(gate)[0] = 1;
    let start = std::time::Instant::now();
    while matches!(s.submit(t), Err(Error::Full(_))) {
        assert!(start.elapsed() < LIMIT);
        std::thread::yield_now();
    }
}

struct Small;

impl Chooser for Small {
    fn sizes(&self, direction: Direction) -> Vec<(u64, Executor)> {
        match direction {
            Direction::FromGpu => vec![(32, Executor::Loads)],
            _ => vec![(64, Executor::Stores), (512, Executor::Inline)],
        }
    }

    fn why(&self, _direction: Direction, bytes: u64) -> String {
        format!("{bytes} bytes, as measured")
    }
}

#[test]
fn a_profile_chooses_and_without_one_the_log_says_so() {
    let said = Arc::new(std::sync::Mutex::new(Vec::new()));
    let log = {
        let said = said.clone();
        Arc::new(move |text: &str| said.lock().unwrap().push(text.to_owned())) as Arc<dyn Fn(&str) + Send + Sync>
    };
    drop(rig_with(&Options { lanes: 1, log: Some(log), ..Options::default() }));
    let said = said.lock().unwrap().join("\n");
    assert!(said.contains("no profile") && said.contains("opened without CUDA") && said.contains("closed"), "{said}");

    let rig = rig_with(&Options { lanes: 1, profile: Follow::Given(Arc::new(Small)), ..Options::default() });
    let s = &rig.session;
    let (host, video) = (s.allocate(4096, false).unwrap(), s.allocate(4096, true).unwrap());
    let inline = || rig.driver.counters().inline_copies.load(Ordering::Relaxed);
    let engines = || rig.driver.counters().copies.load(Ordering::Relaxed);
    let (small, large) =
        (s.prepare((video, 0), (host, 0), 512).unwrap(), s.prepare((video, 0), (host, 0), 513).unwrap());
    let tiny = s.prepare((video, 1000), (host, 100), 64).unwrap();
    for round in 0..5 {
        noise(rig.bytes(host), round);
        let before = inline();
        s.wait(s.submit(large).unwrap(), LIMIT).unwrap();
        assert_eq!(inline(), before);
        rig.bytes(video).fill(0);
        s.wait(s.submit(small).unwrap(), LIMIT).unwrap();
        assert!(inline() > before);
        assert!(rig.bytes(video)[..512] == rig.bytes(host)[..512] && rig.bytes(video)[512] == 0);
    }
    // Stores are done when the submission returns, and no engine took part in them.
    let before = (engines(), inline());
    rig.bytes(video).fill(0);
    for stored in [s.submit(tiny).unwrap(), s.copy_async((video, 2001), (host, 7), 64).unwrap()] {
        assert!(s.poll(stored).unwrap() && s.query(stored).unwrap() == 0 && s.wait(stored, Duration::ZERO).is_ok());
    }
    assert_eq!((engines(), inline()), before);
    assert!(rig.bytes(video)[1000..1064] == rig.bytes(host)[100..164]);
    assert!(rig.bytes(video)[2001..2065] == rig.bytes(host)[7..71]);
    assert_eq!([999, 1064, 2000, 2065].map(|at| rig.bytes(video)[at]), [0; 4], "and no others");
    // And so are loads.
    noise(rig.bytes(video), 9);
    rig.bytes(host).fill(0);
    let load = s.prepare((host, 500), (video, 77), 32).unwrap();
    for loaded in [s.submit(load).unwrap(), s.copy_async((host, 600), (video, 1003), 31).unwrap()] {
        assert!(s.poll(loaded).unwrap());
    }
    assert_eq!((engines(), inline()), before);
    assert!(rig.bytes(host)[500..532] == rig.bytes(video)[77..109]);
    assert!(rig.bytes(host)[600..631] == rig.bytes(video)[1003..1034]);
    assert_eq!([499, 532, 599, 631].map(|at| rig.bytes(host)[at]), [0; 4], "and no others");
    // Copies that are not prepared are never inline; ordered copies and other directions use engines.
    let piece = Piece { to: video, to_at: 0, from: host, from_at: 0, bytes: 8 };
    let by_engine: [&dyn Fn() -> Result<submit::Copy, Error>; 4] = [
        &|| s.copy_async((video, 0), (host, 0), 65),
        &|| s.copy_in(&[piece], &InOrder { signal: Some((host, 4092, 1)), ..InOrder::default() }),
        &|| s.copy_async((host, 0), (video, 0), 33),
        &|| s.copy_async((host, 0), (host, 64), 8),
    ];
    for submit in by_engine {
        let before = engines();
        s.wait(submit().unwrap(), LIMIT).unwrap();
        assert_eq!(engines(), before + 1);
    }
    assert!(matches!(s.copy_async((video, 4090), (host, 0), 8), Err(Error::Outside { .. })));
    assert!(matches!(s.copy_async((video, 0), (host, u64::MAX), 8), Err(Error::Outside { .. })));
    assert!(matches!(s.submit_bytes(tiny, &[0; 64]), Err(Error::Argument(_))));
    s.unpin(host).unwrap();
    assert!(matches!(s.submit(tiny), Err(Error::Freed)), "its source is gone");
    assert!(matches!(s.submit(load), Err(Error::Freed)), "its destination is gone");
    assert!(s.submit(small).is_err(), "its source is gone");
}

#[test]
fn a_session_says_which_way_a_copy_goes_and_why() {
    let rig = rig_with(&Options { lanes: 1, profile: Follow::Given(Arc::new(Small)), ..Options::default() });
    let s = &rig.session;
    let (host, video) = (s.allocate(1 << 20, false).unwrap(), s.allocate(1 << 20, true).unwrap());
    let ask = |to, from, bytes, prepared| {
        let choice = s.explain(to, from, bytes, prepared).unwrap();
        (choice.executor, choice.why)
    };
    for (bytes, prepared, executor, says) in [
        (64, true, Executor::Stores, "stores of the CPU: 64 bytes, as measured"),
        (64, false, Executor::Stores, "stores of the CPU: 64 bytes, as measured"),
        (512, true, Executor::Inline, "inline"),
        (512, false, Executor::CopyEngine, "only prepared copies"),
        (513, true, Executor::CopyEngine, "a copy engine: 513 bytes"),
    ] {
        let (found, why) = ask(video, host, bytes, prepared);
        assert!(found == executor && why.contains(says), "{bytes}: {found:?}, {why}");
    }
    assert_eq!(ask(host, video, 32, true).0, Executor::Loads);
    assert_eq!(ask(host, video, 33, true).0, Executor::CopyEngine);
    assert_eq!(ask(video, video, 8, true).0, Executor::CopyEngine);
    assert!(matches!(s.explain(video, host, 0, true), Err(Error::Argument(_))));
    assert!(matches!(s.explain(Buffer::from_raw(7), host, 8, true), Err(Error::Handle(_))));
    // Copies to a buffer that cannot be mapped use engines, and the reason is given.
    let large = s.allocate((256 << 20) + 4096, true).unwrap();
    let (executor, why) = ask(large, host, 8, true);
    assert!(executor == Executor::CopyEngine && why.contains("256 MiB are not mapped"), "{why}");
    s.copy((large, 0), (host, 0), 8, LIMIT).unwrap();
    s.close().unwrap();
    open(s, rig.driver, &Options { lanes: 1, profile: Follow::Nothing, ..Options::default() }).unwrap();
    let (host, video) = (s.allocate(4096, false).unwrap(), s.allocate(4096, true).unwrap());
    let choice = s.explain(video, host, 8, true).unwrap();
    assert!(choice.executor == Executor::CopyEngine && choice.why.contains("no profile"), "{}", choice.why);
}

/// The kernel's part: takes the message in the mailbox, if it is new, and answers with each byte inverted.
fn answer_once(mailbox: &mut [u8], answers: &mut [u8], seen: &mut u32) -> bool {
    let line: &[u8; 64] = (&*mailbox).try_into().unwrap();
    let Some((number, bytes)) = gpu::message::of_line(line).filter(|(number, _)| number != seen) else { return false };
    *seen = number;
    answers.copy_from_slice(&gpu::message::line(&bytes.map(|byte| !byte), number));
    true
}

#[test]
fn messages_go_to_whoever_looks_and_are_answered_with_their_numbers() {
    let rig = rig();
    let s = &rig.session;
    let (host, video) = (s.allocate(4096, false).unwrap(), s.allocate(4096, true).unwrap());
    rig.bytes(video).fill(0xee);
    rig.bytes(host).fill(0xee);
    for wrong in [
        s.message((host, 0), (host, 64)),
        s.message((video, 0), (video, 64)),
        s.message((video, 8), (host, 0)),
        s.message((video, 0), (host, 32)),
    ] {
        assert!(matches!(wrong, Err(Error::Argument(_))), "{wrong:?}");
    }
    assert!(matches!(s.message((video, 4096), (host, 0)), Err(Error::Outside { .. })));
    let message = s.message((video, 128), (host, 192)).unwrap();
    assert!(s.answer(message).unwrap().is_none());
    assert!(matches!(s.answered(message, 1, Duration::ZERO), Err(Error::Timeout(_))));
    let mut seen = 0;
    for round in 1..=50u8 {
        let bytes = vec![round; usize::from(round) + 6];
        let number = s.send(message, &bytes).unwrap();
        assert_eq!(number, u32::from(round));
        assert!(answer_once(&mut rig.bytes(video)[128..192], &mut rig.bytes(host)[192..256], &mut seen));
        let answer = s.answered(message, number, LIMIT).unwrap();
        assert!(answer[..bytes.len()].iter().all(|byte| *byte == !round), "{answer:?}");
        assert!(answer[bytes.len()..].iter().all(|byte| *byte == 0xff));
    }
    // Only the newest message counts, and half a line is not an answer.
    let first = s.send(message, &[1]).unwrap();
    s.send(message, &[2]).unwrap();
    assert!(answer_once(&mut rig.bytes(video)[128..192], &mut rig.bytes(host)[192..256], &mut seen));
    assert_eq!(s.answered(message, first, LIMIT).unwrap()[0], !2);
    rig.bytes(host)[200] ^= 1;
    assert!(s.answer(message).unwrap().is_none());
    let around = |bytes: &[u8], at: usize| (bytes[at - 1], bytes[at + 64]);
    assert_eq!((around(rig.bytes(video), 128), around(rig.bytes(host), 192)), ((0xee, 0xee), (0xee, 0xee)));
    assert!(matches!(s.send(message, &[0; 57]), Err(Error::Argument(_))));
    let other = s.message((video, 512), (host, 512)).unwrap();
    s.message_release(other).unwrap();
    for gone in [s.message_release(other), s.send(other, &[]).map(drop), s.answer(other).map(drop)] {
        assert!(matches!(gone, Err(Error::Handle("message"))), "{gone:?}");
    }
    s.unpin(video).unwrap();
    assert!(matches!(s.send(message, &[1]), Err(Error::Freed)));
    assert!(matches!(s.answered(message, 1, LIMIT), Err(Error::Freed)));
    s.close().unwrap();
    assert!(matches!(s.send(message, &[1]), Err(Error::Closed)));
}

#[test]
fn a_profile_in_a_file_is_followed_where_it_was_taken_and_refused_elsewhere() {
    let folder = std::env::temp_dir().join(format!("doorbell-follow-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("p.toml");
    let with = |path: &std::path::Path| Options { lanes: 1, profile: Follow::File(path.into()), ..Options::default() };
    let driver = SoftDriver::new(Mode::Strict);
    let session = Session::new();
    let refused = |path: &std::path::Path, says: &str| {
        let error = open(&session, driver, &with(path)).unwrap_err();
        assert!(matches!(error, Error::Unavailable(_)) && error.to_string().contains(says), "{error}");
        assert!(matches!(session.close(), Err(Error::Closed)));
    };
    refused(&path, "there is no profile at");
    std::fs::write(&path, "this is none").unwrap();
    refused(&path, "p.toml");
    let range = |from, to, route: &str| submit::route_choice::Range {
        from,
        to,
        route: route.into(),
        by: submit::route_choice::Metric::P50,
    };
    let ranges = vec![range(1, Some(256), "host->bar1[flush]->gpu0"), range(257, None, "host->ce2->gpu0")];
    let key = submit::route_choice::Key {
        direction: submit::route_choice::Direction::ToGpu,
        memory: "pinned".into(),
        places: submit::route_choice::Places::Same,
        batch: 1,
        metric: submit::route_choice::Metric::P50,
        load: submit::route_choice::Key::IDLE.into(),
    };
    let figure =
        |route: &str, ns| submit::route_choice::Figure { route: route.into(), ns, interval: None, samples: 100 };
    let figures = vec![figure("host->bar1[flush]->gpu0", 900), figure("host->ce2->gpu0", 2000)];
    let points = vec![submit::route_choice::Point { bytes: 64, figures }];
    let plan = submit::route_choice::Plan { key, ranges, points, undecided: Vec::new() };
    let facts = submit::route_choice::Facts::of_this_machine(true, None);
    let mut profile = submit::route_choice::Profile {
        functional: true,
        taken: "2001-01-01T00:00:00Z".into(),
        facts,
        plans: vec![plan],
    };
    profile.save(&path).unwrap();
    open(&session, driver, &with(&path)).unwrap();
    let (host, video) = (session.allocate(4096, false).unwrap(), session.allocate(4096, true).unwrap());
    let choice = session.explain(video, host, 256, false).unwrap();
    assert!(choice.executor == Executor::Stores && choice.why.contains("host->bar1[flush]->gpu0"), "{}", choice.why);
    assert_eq!(session.explain(video, host, 257, false).unwrap().executor, Executor::CopyEngine);
    session.copy((video, 0), (host, 0), 256, LIMIT).unwrap();
    session.close().unwrap();
    profile.facts.kernel = "2.4.0".into();
    profile.save(&path).unwrap();
    refused(&path, "kernel was \"2.4.0\"");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_forked_child_gets_errors() {
    let rig = rig();
    let s = &rig.session;
    let host = s.allocate(4096, false).unwrap();
    let t = s.prepare((host, 0), (host, 2048), 64).unwrap();
    let copy = s.submit(t).unwrap();
    s.wait(copy, LIMIT).unwrap();
    // SAFETY: the child makes no call that takes a lock, and leaves by _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let forked = |error: Result<(), Error>| matches!(error, Err(Error::Forked));
        let all = [
            forked(s.submit(t).map(drop)),
            forked(s.poll(copy).map(drop)),
            forked(s.copy_async((host, 0), (host, 64), 8).map(drop)),
            forked(s.copy((host, 0), (host, 64), 8, LIMIT)),
            forked(s.allocate(64, true).map(drop)),
            forked(s.unpin(host)),
            forked(s.release(t)),
            forked(s.close()),
            forked(s.open(&Options::default())),
        ];
        let wrong = all.iter().position(|right| !right);
        // SAFETY: no destructor runs.
        unsafe { libc::_exit(wrong.map_or(0, |at| at as i32 + 1)) };
    }
    let mut status = 0;
    // SAFETY: this test's child.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(libc::WEXITSTATUS(status), 0, "which call; status {status:#x}");
    s.copy((host, 0), (host, 64), 8, LIMIT).unwrap();
}

#[test]
fn a_lane_that_was_taken_when_the_process_forked_is_an_error_in_the_child_and_no_wait() {
    let rig = rig_with(&Options { lanes: 1, ..Options::default() });
    let s = &rig.session;
    let host = s.allocate(4096, false).unwrap();
    let t = s.prepare((host, 0), (host, 2048), 64).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // For most of its time this thread has the lane.
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                if let Ok(copy) = s.submit(t) {
                    let _ = s.wait(copy, LIMIT);
                }
            }
        });
        for _ in 0..30 {
            // SAFETY: the child makes no call that takes a lock, and leaves by _exit.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let forked = matches!(s.copy((host, 0), (host, 64), 8, Duration::MAX), Err(Error::Forked))
                    && matches!(s.submit(t), Err(Error::Forked));
                // SAFETY: no destructor runs.
                unsafe { libc::_exit(i32::from(!forked)) };
            }
            let mut status = 0;
            // SAFETY: this test's child.
            unsafe { libc::waitpid(child, &mut status, 0) };
            assert_eq!(status, 0);
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn without_cuda_there_are_no_graphs() {
    let session = Session::new();
    let device = Device::open(Arc::new(SoftDriver::new(Mode::Strict)), 0).unwrap();
    session.open_in(AddressSpace::new(&device).unwrap(), None, &Options { lanes: 1, ..Options::default() }).unwrap();
    // SAFETY: the handles are not looked at.
    let refused = unsafe { session.prepare_graph(std::ptr::null_mut(), std::ptr::null_mut()) };
    assert!(matches!(refused, Err(Error::Unavailable(why)) if why.contains("without CUDA")));
    session.close().unwrap();
}

//! One writer, one reader, and the effects of a program that writes over the ring.

use std::sync::Mutex;
use std::sync::atomic::Ordering;
use tape::event::{Body, Events, NoteBody, kind};
use tape::lock::{self, PairBody};
use tape::region::RingHead;
use tape::ring::{MAX_EVENT, PIECE, Reader, Writer, event_len, gap_left, whole_events};

const BYTES: usize = 2 * MAX_EVENT;

/// A ring's head, and its data mapped twice in a row.
struct Ring {
    head: Box<RingHead>,
    data: *mut u8,
}

impl Ring {
    fn new() -> Ring {
        // SAFETY: a new memfd, mapped twice over address space that was reserved here.
        unsafe {
            let fd = libc::memfd_create(c"ring".as_ptr(), 0);
            assert!(fd >= 0 && libc::ftruncate(fd, BYTES as i64) == 0);
            let none = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let area = libc::mmap(std::ptr::null_mut(), 2 * BYTES, libc::PROT_NONE, none, -1, 0).cast::<u8>();
            for half in 0..2 {
                let prot = libc::PROT_READ | libc::PROT_WRITE;
                let at = area.add(half * BYTES).cast();
                assert_ne!(libc::mmap(at, BYTES, prot, libc::MAP_SHARED | libc::MAP_FIXED, fd, 0), libc::MAP_FAILED);
            }
            libc::close(fd);
            // SAFETY of the zeroed head: atomics and integers.
            Ring { head: Box::new(std::mem::zeroed()), data: area }
        }
    }

    fn ends(&self) -> (Writer, Reader) {
        // SAFETY: mapped as both require; one of each.
        unsafe {
            (Writer::new(&*self.head, self.data, BYTES as u64), Reader::new(&*self.head, self.data, BYTES as u64))
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`.
        unsafe { libc::munmap(self.data.cast(), 2 * BYTES) };
    }
}

fn note(w: &mut Writer, text: &[u8]) -> bool {
    let pushed = w.push(kind::NOTE, 0, 5, &NoteBody { text: text.len() as u32, pad: 0 }, text, &[]);
    w.publish();
    pushed
}

fn take(r: &Reader) -> Vec<Vec<u8>> {
    let bytes = r.available();
    assert_eq!(whole_events(bytes, usize::MAX), bytes.len());
    let notes = Events::new(bytes).map(|e| match e.body {
        Body::Note(t) => t.to_vec(),
        b => panic!("{b:?}"),
    });
    let notes = notes.collect();
    r.take(bytes.len());
    notes
}

#[test]
fn events_come_out_as_they_went_in_many_times_round() {
    let ring = Ring::new();
    let (mut w, r) = ring.ends();
    let mut x = 1u32;
    for round in 0..500 {
        let mut texts = Vec::new();
        loop {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let text = vec![x as u8; (x >> 8) as usize % 9000];
            if !note(&mut w, &text) {
                break;
            }
            texts.push(text);
        }
        assert!(texts.len() > 10);
        assert_eq!(take(&r), texts, "round {round}");
    }
}

#[test]
fn an_event_that_does_not_fit_is_not_begun() {
    let ring = Ring::new();
    let (mut w, r) = ring.ends();
    assert!(!note(&mut w, &vec![0; MAX_EVENT]));
    let most = MAX_EVENT - event_len(8, 0);
    assert!(note(&mut w, &vec![1; most]) && note(&mut w, &vec![2; most]) && !note(&mut w, &[3]));
    assert_eq!(take(&r), [vec![1; most], vec![2; most]]);
    assert!(note(&mut w, &[3]));
    assert_eq!(take(&r), [[3]]);
}

#[test]
fn what_was_not_published_is_not_there() {
    let ring = Ring::new();
    let (mut w, r) = ring.ends();
    assert!(w.push(kind::NOTE, 0, 5, &NoteBody::default(), &[], &[]));
    assert!(r.available().is_empty());
    // Its thread died; the next one begins where the head is.
    let (mut w, _) = ring.ends();
    assert!(note(&mut w, b"next"));
    assert_eq!(take(&r), [b"next"]);
}

#[test]
fn an_impossible_head_is_said_and_comes_right_by_itself() {
    let ring = Ring::new();
    let (mut w, r) = ring.ends();
    assert!(note(&mut w, b"one"));
    take(&r);
    for head in [u64::MAX, 1 << 60, 0] {
        ring.head.head.store(head, Ordering::Relaxed);
        assert!(r.is_damaged() && r.available().is_empty());
    }
    assert!(note(&mut w, b"two"));
    assert!(!r.is_damaged());
    assert_eq!(take(&r), [b"two"]);
    ring.head.head.store(1 << 60, Ordering::Relaxed);
    r.skip_to_head();
    let (mut w, _) = ring.ends();
    assert!(!r.is_damaged() && note(&mut w, b"three"));
    assert_eq!(take(&r), [b"three"]);
}

#[test]
fn an_impossible_tail_is_put_right() {
    let ring = Ring::new();
    let (mut w, r) = ring.ends();
    for tail in [u64::MAX, 1 << 63, 7] {
        while note(&mut w, &[0; 5000]) {}
        while note(&mut w, &[0]) {}
        ring.head.tail.store(tail, Ordering::Relaxed);
        assert!(!note(&mut w, b"would overwrite what was not taken"));
        assert!(take(&r).iter().all(|t| t.iter().all(|b| *b == 0)));
        assert!(note(&mut w, b"on"));
        assert_eq!(take(&r), [b"on"]);
    }
}

#[test]
fn lengths_that_no_event_has_end_a_run() {
    let head = |len: u32| {
        let mut b = vec![0; 16];
        b[4..8].copy_from_slice(&len.to_ne_bytes());
        b
    };
    for len in [0, 8, 15, 17, 20, MAX_EVENT as u32 + 8, u32::MAX, 0x8000_0000] {
        let mut b = head(16);
        b.extend(head(len));
        b.resize(1 << 20, 0);
        assert_eq!(whole_events(&b, usize::MAX), 16, "{len}");
    }
    let b = [head(24), vec![0; 8], head(16)].concat();
    assert_eq!([0, 23, 24, 39, 40].map(|limit| whole_events(&b, limit)), [0, 0, 24, 24, 40]);
    for cut in 0..b.len() {
        assert!(whole_events(&b[..cut], usize::MAX) <= cut);
    }
}

#[test]
fn short_events_are_events_like_any_other() {
    let ring = Ring::new();
    let (mut w, r) = ring.ends();
    let body = |i: u64| PairBody { addr: i, site: !i, hold: i as u32, release: -1 };
    let mut n = 0;
    while w.push_words(lock::kind::PAIR, n as u16, n, body(n).words()) {
        n += 1;
    }
    assert_eq!(n as usize, BYTES / 40);
    w.publish();
    let events: Vec<_> = Events::new(r.available()).collect();
    assert_eq!(events.len() as u64, n);
    for (i, e) in (0..).zip(&events) {
        assert_eq!((e.head.tsc, e.head.flags, e.body), (i, i as u16, Body::Pair(body(i))));
    }
    r.take(r.available().len());
    assert!(w.push_words(lock::kind::PAIR, 0, 0, body(0).words()), "room was given back");
}

/// Two threads lose events, each in its ring, and each writes its own count of losses.
#[test]
fn a_gap_is_told_by_the_thread_that_lost() {
    let rings = [Ring::new(), Ring::new()];
    let [(mut a, ra), (mut b, rb)] = rings.each_ref().map(|r| r.ends());
    let pair = |w: &mut Writer, tsc: u64| w.push_words(lock::kind::PAIR, 0, tsc, PairBody::default().words());
    for (w, lost) in [(&mut a, 5), (&mut b, 0)] {
        while pair(w, 1) {}
        (0..lost).for_each(|i| w.count_gap(1, 0, 40, 10 + i));
        w.publish();
    }
    let gaps = |r: &Reader| -> Vec<_> {
        let bytes = take_bytes(r);
        let gap = |e: tape::event::Event<'_>| match e.body {
            Body::Gap(g) => Some((e.head.tsc, g.events, g.bytes)),
            _ => None,
        };
        Events::new(&bytes).filter_map(gap).collect()
    };
    assert_eq!((gaps(&ra), gaps(&rb)), (vec![], vec![]));
    // Before its next event, which is one of the short ones.
    assert!(pair(&mut a, 20) && pair(&mut b, 20));
    a.publish();
    b.publish();
    assert_eq!((gaps(&ra), gaps(&rb)), (vec![(14, 5, 200)], vec![]));
    // For a thread that writes no more, the recorder writes it. The next owner of the ring begins with no losses.
    while pair(&mut a, 21) {}
    a.count_gap(2, 1, 80, 22);
    assert!(!a.settle_gap());
    assert_eq!(gap_left(&rings[0].head).map(|g| (g.events, g.entries, g.bytes)), Some((7, 1, 280)));
    let (mut c, _) = rings[0].ends();
    assert_eq!((gap_left(&rings[0].head), c.settle_gap()), (None, true));
}

static PREPARED: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

#[test]
fn a_ring_is_prepared_once_and_before_it_is_written() {
    let ring = Ring::new();
    let (mut w, r) = ring.ends();
    w.prepare_with(|at, len| PREPARED.lock().unwrap().push((at as usize, len)));
    assert!(PREPARED.lock().unwrap().is_empty());
    for round in 0..5 {
        while w.push_words(lock::kind::PAIR, 0, round, PairBody::default().words()) {}
        w.publish();
        assert!(!take_bytes(&r).is_empty());
    }
    let start = ring.data as usize;
    let mut pieces: Vec<_> = (0..BYTES).step_by(PIECE).map(|at| (start + at, PIECE.min(BYTES))).collect();
    pieces.push((start + BYTES, MAX_EVENT));
    assert_eq!(*PREPARED.lock().unwrap(), pieces);
    // The next owner finds the ring prepared.
    let (mut w, _) = ring.ends();
    w.prepare_with(|_, _| panic!("once is enough"));
    assert!(w.push_words(lock::kind::PAIR, 0, 0, PairBody::default().words()));
}

fn take_bytes(r: &Reader) -> Vec<u8> {
    let bytes = r.available().to_vec();
    r.take(bytes.len());
    bytes
}

/// A ring that its thread is to leave when it is half full.
#[test]
fn a_growable_ring_is_full_when_it_is_half_full() {
    let r = Ring::new();
    let (mut w, reader) = r.ends();
    w.set_growable(true);
    let body = tape::event::MunmapBody { addr: 1, len: 2 };
    let each = tape::ring::event_len(size_of_val(&body), 0);
    let push = |w: &mut tape::ring::Writer| w.push(tape::event::kind::MUNMAP, 0, 0, &body, &[], &[]);
    let mut n = 0;
    while push(&mut w) {
        n += 1;
    }
    w.publish();
    assert_eq!(n, BYTES / 2 / each);
    // What the reader takes is room again: a thread that writes little never has to leave.
    reader.take(10 * each);
    assert_eq!((0..).take_while(|_| push(&mut w)).count(), 10);
    w.set_growable(false);
    let mut all = n + 10;
    while push(&mut w) {
        all += 1;
    }
    w.publish();
    assert_eq!(all - 10, BYTES / each);
}

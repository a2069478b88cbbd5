//! How agents and a recorder meet: claims of regions and rings by many threads at once, and the state that a killed one leaves.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use tape::call::{self, CallBody};
use tape::event::{Body, Event, RingBody, bytes_of, kind};
use tape::region::{Control, FIXED_BYTES, SHADOW_AT};
use tape::rings::{Geometry, LARGE, NoRing, RINGS, Rings, SMALL, SMALL_BYTES, Size};
use tape::session::{PATH, REGIONS, Session, UNWATCHED, state, unwatched};

/// Zeroed memory with the alignment of a page, as a mapping has it.
struct Zeroed(*mut u8, Layout);

// SAFETY: atomics, and numbers that are written before it is shared.
unsafe impl Sync for Zeroed {}

impl Zeroed {
    fn new(bytes: usize) -> Zeroed {
        let layout = Layout::from_size_align(bytes, 4096).unwrap();
        // SAFETY: not empty.
        Zeroed(unsafe { alloc_zeroed(layout) }, layout)
    }

    fn session(&self) -> &Session {
        // SAFETY: zeroed, which is a Session, and large enough.
        unsafe { &*self.0.cast() }
    }

    fn rings(&self) -> Rings<'_> {
        // SAFETY: as above, lives as long as the borrow. There is only one thread so far.
        unsafe {
            let c = self.0.cast::<Control>();
            (&raw mut (*c).small_bytes).write(SMALL_BYTES as u32);
            (&raw mut (*c).ring_bytes).write(8 << 20);
            Rings::new(self.0).unwrap()
        }
    }
}

impl Drop for Zeroed {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.0, self.1) };
    }
}

fn session() -> Zeroed {
    let z = Zeroed::new(size_of::<Session>());
    z.session().give_memory(1 << 40);
    z
}

#[test]
fn a_region_is_claimed_once_and_tells_by_whom() {
    let z = session();
    let s = z.session();
    assert!(s.claim(7, 0, 1, 5).is_none(), "nothing is ready");
    let (a, b) = (0, 1);
    s.offer(a, 30);
    s.offer(b, 31);
    assert_eq!((s.regions[a].state(), s.regions[b].state()), ((state::READY, 0), (state::READY, 0)));
    let first = s.claim(7, 0, 1, 5).unwrap();
    let second = s.claim(8, 0, 7, 6).unwrap();
    assert_eq!(HashSet::from([first.place, second.place]), HashSet::from([30, 31]));
    assert_eq!(s.regions[first.region].state(), (state::CLAIMED, 7));
    assert!(s.claim(9, 0, 7, 6).is_none());
    // Not by another process.
    s.abandon(second.region, 9, unwatched::NO_REGION);
    assert_eq!(s.regions[second.region].state(), (state::CLAIMED, 8));
    s.abandon(second.region, 8, unwatched::NO_REGION);
    assert_eq!(s.regions[second.region].state(), (state::ABANDONED, 8));
    s.free(second.region);
    s.offer(second.region, 32);
    s.stopped.store(1, Ordering::Release);
    assert!(s.claim(9, 0, 7, 6).is_none(), "stopped");
}

#[test]
fn many_processes_claim_many_regions_each_once() {
    let z = session();
    let taken = Mutex::new(Vec::new());
    let n = 2 * REGIONS as i32;
    std::thread::scope(|scope| {
        for first in 0..4 {
            let (z, taken) = (&z, &taken);
            scope.spawn(move || {
                for pid in (1 + first..=n).step_by(4) {
                    loop {
                        if let Some(c) = z.session().claim(pid, 0, 1, 9) {
                            taken.lock().unwrap().push((pid, c.place));
                            break;
                        }
                        std::thread::yield_now();
                    }
                }
            });
        }
        // The recorder: ready ones ahead, and ended ones freed.
        let s = z.session();
        let (mut place, mut freed) = (0, 0);
        while freed < n {
            for (i, e) in s.regions.iter().enumerate() {
                if e.state().0 == state::CLAIMED && e.tsc.load(Ordering::Acquire) != 0 {
                    s.free(i);
                    freed += 1;
                }
            }
            while place < n as u32 && s.regions.iter().filter(|e| e.state().0 == state::READY).count() < 2 {
                s.offer(s.regions.iter().position(|e| e.state().0 == state::FREE).unwrap(), place);
                place += 1;
            }
            std::thread::yield_now();
        }
    });
    let taken = taken.into_inner().unwrap();
    assert_eq!(taken.iter().map(|t| t.0).collect::<HashSet<_>>().len(), n as usize);
    assert_eq!(taken.iter().map(|t| t.1).collect::<HashSet<_>>().len(), n as usize);
}

#[test]
fn memory_is_not_given_twice_nor_beyond_its_end() {
    let z = Zeroed::new(size_of::<Session>());
    let s = z.session();
    s.give_memory(1000);
    assert!(s.take_memory(600) && !s.take_memory(600) && s.take_memory(400) && !s.take_memory(1));
    s.give_memory(600);
    assert!(s.take_memory(600) && !s.take_memory(u64::MAX));
    // A program that wrote over it causes no panic.
    s.memory.store(i64::MAX, Ordering::Relaxed);
    s.give_memory(u64::MAX);
    s.memory.store(i64::MIN, Ordering::Relaxed);
    assert!(!s.take_memory(u64::MAX));
}

#[test]
fn what_cannot_be_followed_is_told_by_name() {
    let z = session();
    let s = z.session();
    let long = "x".repeat(PATH) + "/end";
    for (i, path) in ["/bin/busybox", &long, ""].into_iter().enumerate() {
        s.note_unwatched(unwatched::STATIC, i as i32, 50, 9, path.as_bytes());
    }
    let mut seen = Vec::new();
    s.take_unwatched(|u| {
        assert_eq!((u.why, u.parent, u.tsc), (unwatched::STATIC, 50, 9));
        seen.push((u.pid, String::from_utf8(u.path.to_vec()).unwrap()));
    });
    assert_eq!(seen, [(0, "/bin/busybox".into()), (1, long[4..].into()), (2, String::new())]);
    s.take_unwatched(|_| panic!("taken already"));
    for i in 0..UNWATCHED + 3 {
        s.note_unwatched(unwatched::SET_ID, i as i32, 50, 9, b"/bin/su");
    }
    assert_eq!(s.unwatched_lost.load(Ordering::Relaxed), 3);
    let mut n = 0;
    s.unwatched[7].len.store(u32::MAX, Ordering::Relaxed);
    s.take_unwatched(|_| n += 1);
    assert_eq!(n, UNWATCHED);
}

#[test]
fn a_ring_has_one_owner_at_a_time() {
    let (z, region) = (session(), Zeroed::new(FIXED_BYTES));
    region.rings();
    let owned: Vec<AtomicU64> = (0..RINGS).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for t in 1..=8 {
            let (z, region, owned) = (&z, &region, &owned);
            scope.spawn(move || {
                // SAFETY: lives as long as the scope.
                let rings = unsafe { Rings::new(region.0) }.unwrap();
                for k in 0..2000 {
                    let size = if k % 3 == 0 { Size::Large } else { Size::Small };
                    let i = rings.claim(z.session(), t, size, |_| true).unwrap();
                    assert_eq!(i >= SMALL, size == Size::Large);
                    assert_eq!(owned[i].swap(t as u64, Ordering::Relaxed), 0);
                    assert_eq!(rings.owner(i).unwrap().tid(), t);
                    assert_eq!(owned[i].swap(0, Ordering::Relaxed), t as u64);
                    rings.give_back(i);
                }
            });
        }
    });
    let used = region.rings().used().count();
    assert!((2..=16).contains(&used), "rings are used again: {used}");
}

#[test]
fn only_a_dead_owner_is_freed() {
    let (z, region) = (session(), Zeroed::new(FIXED_BYTES));
    let rings = region.rings();
    let i = rings.claim(z.session(), 5, Size::Small, |_| true).unwrap();
    let dead = rings.owner(i).unwrap();
    // It gave the ring back, and another thread (even with the same number) has it.
    rings.give_back(i);
    assert!(rings.owner(i).is_none() && !rings.free(i, dead));
    assert_eq!(rings.claim(z.session(), 5, Size::Small, |_| true), Ok(i));
    assert!(!rings.free(i, dead));
    let dead = rings.owner(i).unwrap();
    assert!(rings.free(i, dead) && !rings.free(i, dead) && rings.owner(i).is_none());
}

#[test]
fn rings_take_memory_once_and_no_more_than_there_is() {
    let (z, region) = (Zeroed::new(size_of::<Session>()), Zeroed::new(FIXED_BYTES));
    let (s, rings) = (z.session(), region.rings());
    s.give_memory(3 * rings.geometry.memory(0) + rings.geometry.memory(SMALL));
    let large = rings.claim(s, 1, Size::Large, |_| true).unwrap();
    assert_eq!(rings.claim(s, 1, Size::Large, |_| true), Err(NoRing::Memory));
    let small: Vec<_> = (0..3).map(|_| rings.claim(s, 1, Size::Small, |_| true).unwrap()).collect();
    assert_eq!(rings.claim(s, 1, Size::Small, |_| true), Err(NoRing::Memory));
    assert_eq!((s.memory.load(Ordering::Relaxed), large, &small[..]), (0, SMALL, &[0, 1, 2][..]));
    rings.give_back(1);
    assert_eq!(rings.claim(s, 2, Size::Small, |_| true), Ok(1), "it has its memory already");
    assert_eq!(rings.memory(), 3 * rings.geometry.memory(0) + rings.geometry.memory(SMALL));
    // More owners than rings.
    s.give_memory(1 << 40);
    for _ in 1..LARGE {
        assert!(rings.claim(s, 3, Size::Large, |_| true).is_ok());
    }
    assert_eq!(rings.claim(s, 3, Size::Large, |_| true), Err(NoRing::Taken));
    assert_eq!(rings.used().count(), 3 + LARGE);
    // Impossible numbers.
    rings.control.rings.store(u32::MAX, Ordering::Relaxed);
    assert_eq!(rings.used().count(), RINGS);
}

#[test]
fn rings_lie_beside_each_other_and_behind_the_rest() {
    let g = Geometry { small: SMALL_BYTES, large: 8 << 20 };
    assert!(FIXED_BYTES <= SHADOW_AT && FIXED_BYTES < 1 << 20 && g.at(0) > SHADOW_AT);
    for i in 1..RINGS {
        assert_eq!(g.at(i), g.at(i - 1) + g.memory(i - 1) as usize);
    }
    assert_eq!(g.region_bytes(), g.at(RINGS - 1) + g.memory(RINGS - 1) as usize);
    let region = Zeroed::new(FIXED_BYTES);
    assert!(Geometry::of(region.rings().control).is_some());
    for (small, large) in [(0, 1 << 20), (100_000, 1 << 20), (1 << 20, 4096), (1 << 20, u32::MAX)] {
        // SAFETY: no other thread has it.
        unsafe {
            let c = region.0.cast::<Control>();
            (&raw mut (*c).small_bytes).write(small);
            (&raw mut (*c).ring_bytes).write(large);
            assert!(Rings::new(region.0).is_none(), "{small} {large}");
        }
    }
}

#[test]
fn events_of_version_1_lack_what_came_later() {
    let old = |kind: u16, body: &[u8]| {
        let mut b = kind.to_ne_bytes().to_vec();
        b.extend([0; 2]);
        b.extend((16 + body.len() as u32).to_ne_bytes());
        b.extend(9u64.to_ne_bytes());
        b.extend(body);
        b
    };
    let ring = RingBody {
        token: 1,
        slot: 2,
        seq: 3,
        put_from: 4,
        put_to: 5,
        tid: 6,
        page: 7,
        function: 8,
        call: 9,
        stream: 10,
        object: 11,
        kernel: 12,
        python: 13,
        pad: 0,
    };
    let call = CallBody { began: 1, site: 2, size: 5, result: -6, flags: 7, inner: 8, seq: 9, ..CallBody::default() };
    // One between: it had a word more, which was always 0.
    let between = old(kind::RING, &bytes_of(&ring)[..40]);
    assert!(
        matches!(Event::parse(&between).unwrap().0.body, Body::Ring(r) if r == RingBody { stream: 0, object: 0, kernel: 0, python: 0, ..ring })
    );
    let both = [(kind::RING, bytes_of(&ring), 32), (call::kind::CALL, bytes_of(&call), 48)];
    for (kind, body, len) in both {
        for new in [true, false] {
            let bytes = old(kind, if new { body } else { &body[..len] });
            let (e, n) = Event::parse(&bytes).unwrap();
            assert_eq!(n, bytes.len());
            match e.body {
                Body::Ring(r) if new => assert_eq!(r, ring),
                Body::Ring(r) => {
                    assert_eq!(r, RingBody { function: 0, call: 0, stream: 0, object: 0, kernel: 0, python: 0, ..ring })
                }
                Body::Call(c) if new => assert_eq!(c, call),
                Body::Call(c) => assert_eq!(c, CallBody { seq: 0, ..call }),
                b => panic!("{b:?}"),
            }
        }
        assert!(Event::parse(&old(kind, &body[..len - 8])).is_none());
    }
}

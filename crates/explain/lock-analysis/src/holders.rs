//! The second walk: the threads that held a lock while others waited for it.

use crate::facts::{AT_THE_END, Addresses, Held, Lock, Wait};
use crate::fast_map::FastMap;
use crate::ops::{self, Class};
use decode::Source;
use std::collections::{BTreeMap, HashSet};
use tape::event::{Body, Event};
use tape::lock::{HeldBody, ended, left};

/// Holders that are kept for each wait: those with the largest shares.
const KEPT: usize = 3;
/// Waits that are examined for all holds together, and after that for each hold. A wait overlaps as many holds as there are
/// threads at its lock; only a tape that was written over has more.
const LOOKS: usize = 100_000_000;
const LOOKS_AFTER: usize = 16;
/// A hold that caused a wait may have ended up to this many ticks before the wait's begin, because the lock is tried before the
/// clock is read. About a microsecond.
const BEFORE: u64 = 3000;

/// The threads that delayed a wait.
#[derive(Clone, Debug, Default)]
pub struct InTheWay {
    pub holders: Vec<Holder>,
    /// Ticks of the wait in which other threads held the lock (those of simultaneous readers are added up).
    pub held: u64,
    /// Holds in it.
    pub holds: u64,
    /// Holds of threads that asked later than the waiter, and how many of these only read.
    pub overtaken: u64,
    pub overtaken_by_readers: u64,
    /// When the last of them released it, if that is known.
    pub released: Option<u64>,
}

/// A hold that overlaps a wait.
#[derive(Clone, Copy, Debug)]
pub struct Holder {
    pub tid: i32,
    /// Where it took the lock.
    pub site: u64,
    pub taken: u64,
    pub released: u64,
    /// Ticks of the wait that it held the lock.
    pub share: u64,
    /// The thread had not released it when the recording ended.
    pub unfinished: bool,
    /// `Some` if it is not known when it took the lock, only that it had it at `taken`: the number of the CUDA call in which it
    /// took it, 0 for none.
    pub open: Option<u32>,
    /// It is not known when it released the lock, only that it had by `released`.
    pub late: bool,
}

/// Finds the holders of waits.
#[derive(Debug)]
pub struct Holders<'a> {
    waits: &'a [Wait],
    locks: &'a [Lock],
    addresses: Addresses,
    of_lock: FastMap<usize, Overlaps>,
    looks: usize,
    /// Processes with pauses in the recording, in which the locks that a thread holds may have changed.
    paused: HashSet<u32>,
    /// For each wait: holds that may have delayed it, if no other did.
    perhaps: BTreeMap<usize, Vec<Holder>>,
    /// One for each wait.
    pub found: Vec<InTheWay>,
}

impl<'a> Holders<'a> {
    pub fn new(waits: &'a [Wait], locks: &'a [Lock]) -> Holders<'a> {
        let mut of_lock: FastMap<usize, Vec<usize>> = FastMap::default();
        for (i, w) in waits.iter().enumerate() {
            of_lock.entry(w.lock).or_default().push(i);
        }
        let of_lock = of_lock.into_iter().map(|(lock, rows)| (lock, Overlaps::new(rows, waits))).collect();
        let found = vec![InTheWay::default(); waits.len()];
        Holders {
            waits,
            locks,
            addresses: Addresses::default(),
            of_lock,
            looks: 0,
            paused: HashSet::new(),
            perhaps: BTreeMap::new(),
            found,
        }
    }

    /// Call it for all events again, in the same order.
    pub fn event(&mut self, source: Source, e: &Event<'_>) {
        let process = source.process;
        if let Some(h) = Held::of(e) {
            let Some(class) = Class::of_hold(h.op) else { return };
            let Some((i, _)) = self.addresses.lock(process, h.addr, class, h.op, 0) else { return };
            if h.taken != 0 && h.ended != ended::CANCELLED_WAIT {
                self.held(source, i, &h);
            }
        } else if let Body::Pause(_) = &e.body {
            self.paused.insert(process);
        } else if let Body::Op(o) = &e.body {
            let op = (e.head.flags >> 8) as u8;
            if let Some(class) = Class::of(op) {
                self.addresses.lock(process, o.addr, class, op, o.result);
            }
        } else if let Body::Held(h) = &e.body
            && let op = (e.head.flags >> 8) as u8
            && let Some(class) = Class::of(op)
        {
            let lock = self.addresses.lock(process, h.addr, class, op, 0);
            if let Some((i, _)) = lock.filter(|_| h.waiting == left::NAMED) {
                self.named(source.tid, i, e.head.tsc, h);
            }
        }
    }

    /// Call it after the last event.
    pub fn finish(self) -> Vec<InTheWay> {
        let mut found = self.found;
        for (w, perhaps) in self.perhaps {
            let (way, wait) = (&mut found[w], &self.waits[w]);
            // With two, or with one that is certain, it is not known which it was.
            if let [holder] = perhaps[..]
                && way.held == 0
            {
                let share = wait.to().min(holder.released).saturating_sub(wait.from);
                way.holders = vec![Holder { share, ..holder }];
                (way.held, way.holds) = (share, 1);
            }
        }
        found
    }

    fn held(&mut self, Source { process, tid }: Source, lock: usize, h: &Held) {
        if h.is_left_open() {
            if !self.paused.contains(&process) {
                self.left_open(tid, lock, h);
            }
            return;
        }
        let Some(overlaps) = self.of_lock.get(&lock) else { return };
        let released = self.locks.get(lock).map_or(h.released, |l| l.released(h));
        let most = LOOKS.saturating_sub(self.looks).max(LOOKS_AFTER);
        self.looks += overlaps.each(h.taken, released.saturating_add(BEFORE), most, |w| {
            let wait = &self.waits[w];
            // Readers do not wait for readers.
            let beside = ops::reads(wait.op) && ops::reads(h.op);
            if wait.tid == tid || beside {
                return;
            }
            // No thread waited when an open hold began: a wait that it delayed began later.
            let begin = if h.open.is_some() && wait.to() >= released { wait.from } else { h.taken };
            let share = wait.to().min(released).saturating_sub(wait.from.max(begin));
            let unfinished = h.ended == AT_THE_END && released == h.released;
            let late = h.ended == ended::OPEN_LATE;
            let holder = Holder { tid, site: h.site, taken: h.taken, released, share, unfinished, open: h.open, late };
            if late {
                let perhaps = self.perhaps.entry(w).or_default();
                if perhaps.len() < KEPT {
                    perhaps.push(holder);
                }
                return;
            }
            let found = &mut self.found[w];
            found.held = found.held.saturating_add(share);
            found.holds += u64::from(share > 0);
            let asked_later = share > 0 && h.open.is_none() && h.taken.saturating_sub(h.wait) > wait.from;
            found.overtaken += u64::from(asked_later);
            found.overtaken_by_readers += u64::from(asked_later && ops::reads(h.op));
            if !unfinished {
                found.released = found.released.max(Some(released.min(wait.to())));
            }
            let at = found.holders.partition_point(|f| f.share >= share);
            if at < KEPT && (share > 0 || found.holders.is_empty()) {
                found.holders.insert(at, holder);
                found.holders.truncate(KEPT);
            }
        });
    }
}

impl Holders<'_> {
    /// The lock named this thread as its holder at a moment of waits that never ended.
    fn named(&mut self, tid: i32, lock: usize, seen: u64, h: &HeldBody) {
        let Some(overlaps) = self.of_lock.get(&lock) else { return };
        let most = LOOKS.saturating_sub(self.looks).max(LOOKS_AFTER);
        self.looks += overlaps.each(seen.saturating_sub(1), seen, most, |w| {
            let (wait, found) = (&self.waits[w], &mut self.found[w]);
            // (Each part of a recording names it again.)
            if !wait.unfinished || found.holders.iter().any(|f| f.tid == tid && f.unfinished) {
                return;
            }
            let is_open = h.since == 0;
            let (taken, released) = (if is_open { wait.from } else { h.since }, wait.to());
            let share = released.saturating_sub(taken.max(wait.from));
            found.held = found.held.saturating_add(share);
            found.holds += 1;
            found.holders.truncate(KEPT - 1);
            let open = is_open.then_some(0);
            found
                .holders
                .insert(0, Holder { tid, site: h.site, taken, released, share, unfinished: true, open, late: false });
        });
    }

    /// A hold of unknown begin that never ended: threads that still wait at the end began to wait during it.
    fn left_open(&mut self, tid: i32, lock: usize, h: &Held) {
        let Some(overlaps) = self.of_lock.get(&lock) else { return };
        // (If another thread has unlocked it, this one may no longer hold it.)
        if self.locks.get(lock).is_some_and(|l| !l.foreign.is_empty()) {
            return;
        }
        overlaps.each(h.taken.saturating_sub(1), h.taken.saturating_add(BEFORE), LOOKS_AFTER * KEPT, |w| {
            let wait = &self.waits[w];
            if !wait.unfinished || wait.tid == tid || ops::reads(wait.op) && ops::reads(h.op) {
                return;
            }
            let found = &mut self.found[w];
            let (taken, released) = (wait.from, h.released.max(wait.to()));
            let share = wait.ticks;
            found.held = found.held.saturating_add(share);
            found.holds += u64::from(share > 0);
            found.holders.truncate(KEPT - 1);
            let open = h.open;
            found
                .holders
                .insert(0, Holder { tid, site: h.site, taken, released, share, unfinished: true, open, late: false });
        });
    }
}

/// The waits for one lock, found by a time that they overlap. One wait may last for the whole recording and contain many short
/// ones. So to examine all that began since would take as many steps as holds times waits.
#[derive(Debug)]
struct Overlaps {
    /// With the begin of each, in the order of the begins.
    waits: Vec<(u64, usize)>,
    /// A binary tree in an array: 1 is the root, below `k` are `2 k` and `2 k + 1`. The latest end of the waits below.
    latest: Vec<u64>,
}

impl Overlaps {
    fn new(rows: Vec<usize>, all: &[Wait]) -> Overlaps {
        let mut waits: Vec<(u64, usize)> = rows.into_iter().map(|i| (all[i].from, i)).collect();
        waits.sort_by_key(|w| w.0);
        let leaves = waits.len().next_power_of_two();
        let mut latest = vec![0; 2 * leaves];
        for (to, (_, i)) in latest[leaves..].iter_mut().zip(&waits) {
            *to = all[*i].to();
        }
        for k in (1..leaves).rev() {
            latest[k] = latest[2 * k].max(latest[2 * k + 1]);
        }
        Overlaps { waits, latest }
    }

    /// Calls `of` with the waits that began before `end` and ended after `begin`, in the order of their begins, `most` at most.
    /// Returns how many.
    fn each(&self, begin: u64, end: u64, most: usize, mut of: impl FnMut(usize)) -> usize {
        let mut n = 0;
        let leaves = self.latest.len() / 2;
        let count = self.waits.partition_point(|w| w.0 < end);
        let mut k = 1;
        loop {
            // The first leaf below `k`.
            let first = (k << (leaves.ilog2() - usize::ilog2(k))) - leaves;
            if first >= count || n == most {
                return n;
            }
            if self.latest[k] > begin {
                if k < leaves {
                    k *= 2;
                    continue;
                }
                of(self.waits[first].1);
                n += 1;
            }
            // The next one that is not below this one: up from right-hand sides, and over.
            k = (k + 1) >> (k + 1).trailing_zeros();
            if k == 1 {
                return n;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn wait(from: u64, ticks: u64) -> Wait {
        Wait { ticks, lock: 0, from, tid: 1, site: 0, op: 0, result: 0, unfinished: false }
    }

    proptest! {
        #[test]
        fn what_overlaps_is_found(
            of in proptest::collection::vec((0..60u64, 0..60u64), 1..40), begin in 0..70u64, long in 0..70u64,
        ) {
            let waits: Vec<Wait> = of.iter().map(|&(from, ticks)| wait(from, ticks)).collect();
            let mut found = Vec::new();
            Overlaps::new((0..waits.len()).collect(), &waits).each(begin, begin + long, usize::MAX, |w| found.push(w));
            let mut all: Vec<usize> = (0..waits.len()).collect();
            all.sort_by_key(|&i| waits[i].from);
            all.retain(|&i| waits[i].from < begin + long && waits[i].to() > begin);
            prop_assert_eq!(found, all);
        }
    }

    /// 200,000 times 200,000 steps would take minutes.
    #[test]
    fn a_wait_as_long_as_the_recording_does_not_slow_the_search() {
        let n = 200_000;
        let mut waits: Vec<Wait> = (0..n).map(|i| wait(10 * i, 5)).collect();
        waits.push(wait(0, 10 * n));
        let overlaps = Overlaps::new((0..waits.len()).collect(), &waits);
        let (mut found, start) = (0, std::time::Instant::now());
        (0..n).for_each(|i| found += overlaps.each(10 * i + 1, 10 * i + 2, usize::MAX, |_| ()));
        assert_eq!(found as u64, 2 * n);
        assert!(start.elapsed() < std::time::Duration::from_secs(20), "{:?}", start.elapsed());
    }
}

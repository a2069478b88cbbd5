//! The second walk: who held a lock while others waited for it.

use crate::facts::{AT_THE_END, Addresses, Held, Lock, Wait};
use crate::ops::{self, Class};
use insight::Source;
use std::collections::HashMap;
use tape::event::{Body, Event};
use tape::lock::ended;

/// Holders that are kept of each wait, those that took the most of it.
const KEPT: usize = 3;
/// Ticks before the beginning of a wait in which a hold may have ended that made it one: the lock was tried, then the
/// clock read. About a microsecond.
const BEFORE: u64 = 3000;

/// Who was in a wait's way.
#[derive(Clone, Debug, Default)]
pub struct InTheWay {
    pub holders: Vec<Holder>,
    /// Ticks of the wait in which somebody held the lock (those of readers that held it together added up).
    pub held: u64,
    /// Holds in it.
    pub holds: u64,
    /// When the last of them released it, if that is known.
    pub released: Option<u64>,
}

/// A hold that lies, in part, in a wait.
#[derive(Clone, Copy, Debug)]
pub struct Holder {
    pub tid: i32,
    /// Where it took the lock.
    pub site: u64,
    pub taken: u64,
    pub released: u64,
    /// Ticks of the wait that it held the lock.
    pub share: u64,
    /// It had not released it when the recording ended.
    pub unfinished: bool,
}

/// Finds the holders of waits.
#[derive(Debug)]
pub struct Holders<'a> {
    waits: &'a [Wait],
    locks: &'a [Lock],
    addresses: Addresses,
    /// Of each lock: its waits by the time they began, and the longest of them.
    of_lock: HashMap<usize, (Vec<usize>, u64)>,
    /// Of each wait.
    pub found: Vec<InTheWay>,
}

impl<'a> Holders<'a> {
    pub fn new(waits: &'a [Wait], locks: &'a [Lock]) -> Holders<'a> {
        let mut of_lock: HashMap<usize, (Vec<usize>, u64)> = HashMap::new();
        for (i, w) in waits.iter().enumerate() {
            let row = of_lock.entry(w.lock).or_default();
            row.0.push(i);
            row.1 = row.1.max(w.ticks);
        }
        for (rows, _) in of_lock.values_mut() {
            rows.sort_by_key(|&i| waits[i].from);
        }
        let found = vec![InTheWay::default(); waits.len()];
        Holders { waits, locks, addresses: Addresses::default(), of_lock, found }
    }

    /// To be called with all events again, in the same order.
    pub fn event(&mut self, source: Source, e: &Event<'_>) {
        let Source { process, tid } = source;
        if let Some(h) = Held::of(e) {
            let Some(class) = Class::of_hold(h.op) else { return };
            let (i, _) = self.addresses.lock(process, h.addr, class, h.op, 0);
            if h.taken != 0 && h.ended != ended::CANCELLED_WAIT {
                self.held(tid, i, &h);
            }
        } else if let Body::Op(o) = &e.body {
            let op = (e.head.flags >> 8) as u8;
            if let Some(class) = Class::of(op) {
                self.addresses.lock(process, o.addr, class, op, o.result);
            }
        } else if let Body::Held(h) = &e.body
            && let op = (e.head.flags >> 8) as u8
            && let Some(class) = Class::of(op)
        {
            self.addresses.lock(process, h.addr, class, op, 0);
        }
    }

    fn held(&mut self, tid: i32, lock: usize, h: &Held) {
        let Some((rows, longest)) = self.of_lock.get(&lock) else { return };
        let mut released = h.released;
        if h.ended != ended::UNLOCK && h.ended != ended::COND_WAIT {
            // Another thread may have released it meanwhile.
            let foreign = self.locks.get(lock).map_or(&[][..], |l| &l.foreign);
            let next = foreign.partition_point(|t| *t < h.taken);
            released = released.min(foreign.get(next).copied().unwrap_or(u64::MAX));
        }
        let first = rows.partition_point(|&w| self.waits[w].from.saturating_add(*longest) <= h.taken);
        for &w in rows.get(first..).unwrap_or_default() {
            let wait = &self.waits[w];
            if wait.from >= released.saturating_add(BEFORE) {
                break;
            }
            // Readers do not wait for readers.
            let beside = ops::reads(wait.op) && ops::reads(h.op);
            if wait.tid == tid || beside || wait.to() <= h.taken {
                continue;
            }
            let share = wait.to().min(released).saturating_sub(wait.from.max(h.taken));
            let unfinished = h.ended == AT_THE_END && released == h.released;
            let holder = Holder { tid, site: h.site, taken: h.taken, released, share, unfinished };
            let found = &mut self.found[w];
            found.held = found.held.saturating_add(share);
            found.holds += u64::from(share > 0);
            if !unfinished {
                found.released = found.released.max(Some(released.min(wait.to())));
            }
            let at = found.holders.partition_point(|f| f.share >= share);
            if at < KEPT && (share > 0 || found.holders.is_empty()) {
                found.holders.insert(at, holder);
                found.holders.truncate(KEPT);
            }
        }
    }
}

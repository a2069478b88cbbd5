//! Takes the ends of kernels out of the slots into which the GPU writes them ([`tape::stamp`]).
//!
//! Kernels of several streams end in any order, so each slot is read until its end has arrived. Slots below the oldest awaited one are free again. An end
//! that does not arrive while many others do is given up, because its channel may be gone.

use crate::memory::Mapping;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use tape::event::{Head, bytes_of};
use tape::region::Control;
use tape::stamp::{End, EndsBody, SLOTS, Slot, kind, payload};

/// An end is given up when this many younger numbers are in use.
const PATIENCE: u64 = SLOTS / 2;
/// Maximum number of ends in one event.
const AT_ONCE: usize = 4096;

#[derive(Default)]
pub struct Ends {
    /// The slots, mapped when the first kernel was stamped.
    mapping: Option<Mapping>,
    /// Below this number all ends are on the tape or given up.
    settled: u64,
    /// Which ends have arrived, from that number on.
    come: VecDeque<bool>,
    pub taken: u64,
    pub given_up: u64,
}

impl Ends {
    /// Takes the ends that have arrived since the last call, as events. `map` maps the slots.
    pub fn take(&mut self, c: &Control, map: impl FnOnce() -> std::io::Result<Mapping>) -> Vec<u8> {
        // (The program may overwrite its counter. The number of slots bounds it.)
        let stamped = c.stamped.load(Ordering::Acquire).clamp(self.settled, self.settled + SLOTS);
        if stamped == self.settled {
            return Vec::new();
        }
        if self.mapping.is_none() {
            self.mapping = map().ok();
        }
        let Some(mapping) = &self.mapping else { return Vec::new() };
        self.come.resize((stamped - self.settled) as usize, false);
        let mut ends = Vec::new();
        for (i, come) in self.come.iter_mut().enumerate().filter(|(_, come)| !**come) {
            let number = self.settled + i as u64;
            // SAFETY: the mapping holds SLOTS slots, which are atomics only.
            let slot = unsafe { &*mapping.at().cast::<Slot>().add((number % SLOTS) as usize) };
            // ORDERING: Acquire. The GPU writes the 16 bytes of a slot in one piece.
            if slot.payload.load(Ordering::Acquire) != payload(number) {
                continue;
            }
            let ns = slot.ns.swap(0, Ordering::AcqRel);
            if ns != 0 {
                *come = true;
                ends.push(End { number, ns });
            }
        }
        self.taken += ends.len() as u64;
        self.settle(stamped);
        c.given_up.store(self.given_up, Ordering::Release);
        c.settled.store(self.settled, Ordering::Release);
        self.events(&ends)
    }

    /// Whether the ends of all kernels below this number are on the tape or given up.
    pub fn is_settled(&self, number: u64) -> bool {
        self.settled >= number
    }

    fn settle(&mut self, stamped: u64) {
        while let Some(come) = self.come.front() {
            if !come {
                if stamped - self.settled <= PATIENCE {
                    break;
                }
                self.given_up += 1;
            }
            self.come.pop_front();
            self.settled += 1;
        }
    }

    fn events(&self, ends: &[End]) -> Vec<u8> {
        let mut out = Vec::new();
        for some in ends.chunks(AT_ONCE) {
            let body = EndsBody { count: some.len() as u32, pad: 0, settled: self.settled };
            let len = size_of::<Head>() + size_of::<EndsBody>() + size_of_val(some);
            let head = Head { kind: kind::ENDS, flags: 0, len: len as u32, tsc: crate::clock::tsc() };
            out.extend_from_slice(bytes_of(&head));
            out.extend_from_slice(bytes_of(&body));
            some.iter().for_each(|end| out.extend_from_slice(bytes_of(end)));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slots are used again: an old kernel's end that is still in a slot is not taken for the next kernel's end.
    #[test]
    fn a_slot_that_is_used_again_gives_the_end_of_its_latest_kernel() {
        let bytes = SLOTS as usize * size_of::<Slot>();
        let file = crate::memory::memfd(c"slots", &[], bytes).unwrap();
        let (ours, theirs) = (Mapping::new(&file, 0, bytes).unwrap(), Mapping::new(&file, 0, bytes).unwrap());
        // SAFETY: zeroed is a Control: atomics alone.
        let c: Box<Control> = unsafe { Box::new(std::mem::zeroed()) };
        let mut ours = Some(ours);
        let mut ends = Ends::default();
        let mut take = |ends: &mut Ends| ends.take(&c, || Ok(ours.take().unwrap())).len();
        let end = |number: u64, ns: u64| {
            // SAFETY: the mapping holds SLOTS slots.
            let slot = unsafe { &*theirs.at().cast::<Slot>().add((number % SLOTS) as usize) };
            slot.ns.store(ns, Ordering::Relaxed);
            slot.payload.store(payload(number), Ordering::Release);
        };
        for number in 0..3 * SLOTS {
            c.stamped.store(number + 1, Ordering::Relaxed);
            if number % (SLOTS / 4) == 0 {
                // Its end has not arrived: the slot still has the previous kernel's end, even one that arrived late.
                assert_eq!(take(&mut ends), if number == 0 { 0 } else { take_of(SLOTS / 4) });
                if number >= SLOTS {
                    end(number - SLOTS, 1);
                    assert_eq!(take(&mut ends), 0);
                }
            }
            end(number, 1000 + number);
        }
        assert_eq!(take(&mut ends), take_of(SLOTS / 4));
        assert_eq!((ends.taken, ends.given_up), (3 * SLOTS, 0));
    }

    /// Bytes of the events for this many ends.
    fn take_of(ends: u64) -> usize {
        let ends = ends as usize;
        ends.div_ceil(AT_ONCE) * (size_of::<Head>() + size_of::<EndsBody>()) + ends * size_of::<End>()
    }

    /// The first two of many kernels never end.
    #[test]
    fn ends_that_do_not_come_while_many_others_do_are_given_up_and_counted() {
        let bytes = SLOTS as usize * size_of::<Slot>();
        let file = crate::memory::memfd(c"slots", &[], bytes).unwrap();
        let (ours, theirs) = (Mapping::new(&file, 0, bytes).unwrap(), Mapping::new(&file, 0, bytes).unwrap());
        // SAFETY: zeroed is a Control: atomics alone.
        let c: Box<Control> = unsafe { Box::new(std::mem::zeroed()) };
        let stamped = PATIENCE + 2;
        c.stamped.store(stamped, Ordering::Relaxed);
        for number in 2..stamped {
            // SAFETY: the mapping holds SLOTS slots, all zero.
            let slot = unsafe { &*theirs.at().cast::<Slot>().add(number as usize) };
            slot.ns.store(number, Ordering::Relaxed);
            slot.payload.store(payload(number), Ordering::Release);
        }
        let mut ends = Ends::default();
        assert!(!ends.take(&c, || Ok(ours)).is_empty());
        assert_eq!((ends.taken, ends.given_up), (PATIENCE, 2));
        assert_eq!(c.settled.load(Ordering::Relaxed), stamped);
    }
}

//! Who signalled each condition last, and who posted each semaphore: kept while it is recorded, for `why --now`.
//!
//! Invariant: the memory is bounded, whatever a program does.

use std::collections::HashMap;
use tape::event::{Body, Event, Head};
use tape::live::LiveSignal;
use tape::lock::{kind, op};

/// Maximum number of a process's conditions and semaphores. Beyond that all are forgotten.
const MOST: usize = 1 << 14;

#[derive(Default)]
pub struct Signalled {
    of: HashMap<u64, (i32, u64), foldhash::fast::RandomState>,
    /// Some were forgotten.
    is_cut: bool,
}

impl Signalled {
    /// Takes events of a thread.
    pub fn pass(&mut self, tid: i32, mut events: &[u8]) {
        while let Some(head) = Head::parse(events) {
            let (one, later) = events.split_at(head.len as usize);
            events = later;
            if head.kind != kind::OP {
                continue;
            }
            match (head.flags >> 8) as u8 {
                op::COND_SIGNAL | op::COND_BROADCAST | op::SEM_POST => {
                    if let Some(Body::Op(o)) = Event::parse(one).map(|(e, _)| e.body).filter(|_| tid != 0)
                        && o.result == 0
                    {
                        self.add(o.addr, tid, head.tsc);
                    }
                }
                // (Another object may begin or end at the address.)
                op::COND_INIT | op::COND_DESTROY | op::SEM_INIT | op::SEM_DESTROY => {
                    if let Some(Body::Op(o)) = Event::parse(one).map(|(e, _)| e.body) {
                        self.of.remove(&o.addr);
                    }
                }
                _ => {}
            }
        }
    }

    fn add(&mut self, address: u64, tid: i32, tsc: u64) {
        if self.of.len() >= MOST && !self.of.contains_key(&address) {
            self.of.clear();
            self.is_cut = true;
        }
        let last = self.of.entry(address).or_insert((tid, tsc));
        if tsc >= last.1 {
            *last = (tid, tsc);
        }
    }

    pub fn last(&self, address: u64) -> Option<LiveSignal> {
        self.of.get(&address).map(|&(tid, tsc)| LiveSignal { address, tid, tsc })
    }

    /// None was forgotten.
    pub fn has_all(&self) -> bool {
        !self.is_cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tape::event::bytes_of;
    use tape::lock::OpBody;

    fn event(o: u8, addr: u64, tsc: u64, result: i32) -> Vec<u8> {
        let len = (size_of::<Head>() + size_of::<OpBody>()) as u32;
        let head = Head { kind: kind::OP, flags: u16::from(o) << 8, len, tsc };
        [bytes_of(&head), bytes_of(&OpBody { addr, result, ..OpBody::default() })].concat()
    }

    #[test]
    fn the_last_signal_of_each_counts() {
        let mut s = Signalled::default();
        let last = |s: &Signalled, a| s.last(a).map(|l| (l.tid, l.tsc));
        s.pass(1, &[event(op::COND_SIGNAL, 8, 20, 0), event(op::SEM_POST, 16, 21, 0)].concat());
        // (Another thread's events may arrive later.)
        s.pass(2, &[event(op::COND_BROADCAST, 8, 10, 0), event(op::SEM_POST, 16, 30, 1)].concat());
        assert_eq!((last(&s, 8), last(&s, 16), last(&s, 24)), (Some((1, 20)), Some((1, 21)), None));
        s.pass(1, &event(op::COND_INIT, 8, 40, 0));
        s.pass(1, &event(op::COND_WAIT, 24, 41, 0));
        assert_eq!((last(&s, 8), last(&s, 24), s.has_all()), (None, None, true));
        (0..2 * MOST as u64).for_each(|n| s.pass(1, &event(op::SEM_POST, n * 8, 50, 0)));
        assert!(s.of.len() <= MOST && !s.has_all());
        s.pass(1, &event(op::SEM_POST, 8, 50, 0)[..30]);
    }
}

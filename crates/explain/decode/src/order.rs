//! The submissions of one channel in the order in which they were rung.
//!
//! Two threads that ring one channel may leave the merge in the wrong order. The ring counter `seq` restores the
//! order. The wait for a missing counter is bounded: its ring may have been lost in a gap, or may be after damage.

use crate::merge::Submission;
use pushbuf::snapshot::Snapshot;
use std::collections::BTreeMap;

/// Maximum number of submissions held back for a missing one.
const HELD: usize = 1024;
/// Maximum number of words held back.
const HELD_WORDS: usize = 16 << 20;

/// Puts one channel's submissions in order.
#[derive(Debug, Default)]
pub(crate) struct Reorder {
    next: u64,
    held: BTreeMap<u64, Submission>,
    words: usize,
    /// Rings that are not on the tape.
    pub missing: u64,
    /// Rings that arrived after the wait for them had ended, or twice.
    pub late: u64,
}

impl Reorder {
    /// Writes the next ring number. Returns false and writes no state while submissions are held back.
    pub fn save(&self, to: &mut Vec<u8>) -> bool {
        if self.held.is_empty() {
            (self.next, self.missing, self.late).save(to);
        }
        self.held.is_empty()
    }

    pub fn load(from: &mut &[u8]) -> Option<Reorder> {
        let (next, missing, late) = Snapshot::load(from)?;
        Some(Reorder { next, missing, late, ..Reorder::default() })
    }

    /// Rings before this one are not waited for.
    pub fn begin_at(&mut self, seq: u64) {
        self.next = self.next.max(seq);
    }

    /// Takes a submission; appends all that are in order now to `out`. `patience`: ticks to wait for a missing
    /// ring.
    pub fn push(&mut self, s: Submission, patience: u64, out: &mut Vec<Submission>) {
        let now = s.tsc;
        let Some(seq) = s.ring.map(|r| r.seq) else {
            // Entries without their ring cannot be ordered: they are passed on immediately.
            out.push(s);
            return;
        };
        if seq == self.next {
            // A recording never reaches the maximum of the counter; saturate there.
            self.next = self.next.saturating_add(1);
            out.push(s);
        } else if seq < self.next || self.held.contains_key(&seq) {
            self.late += 1;
            out.push(s);
        } else {
            self.words += s.word_count();
            self.held.insert(seq, s);
        }
        self.release(out);
        while self.held.len() > HELD
            || self.words > HELD_WORDS
            || self.held.values().next().is_some_and(|s| now.saturating_sub(s.tsc) > patience)
        {
            self.skip();
            self.release(out);
        }
    }

    /// The counter of the next ring in order.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Returns all held submissions, at the end of the channel.
    pub fn flush(&mut self, out: &mut Vec<Submission>) {
        while !self.held.is_empty() {
            self.skip();
            self.release(out);
        }
    }

    fn skip(&mut self) {
        if let Some((&seq, _)) = self.held.first_key_value() {
            self.missing += seq - self.next;
            self.next = seq;
        }
    }

    fn release(&mut self, out: &mut Vec<Submission>) {
        while let Some(e) = self.held.first_entry()
            && *e.key() == self.next
        {
            let s = e.remove();
            self.words -= s.word_count();
            self.next = self.next.saturating_add(1);
            out.push(s);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tape::event::RingBody;

    fn sub(seq: u64, tsc: u64) -> Submission {
        let mut s = Submission::default();
        (s.tsc, s.ring) = (tsc, Some(RingBody { seq, ..Default::default() }));
        s
    }

    fn seqs(out: &[Submission]) -> Vec<u64> {
        out.iter().filter_map(|s| s.ring.map(|r| r.seq)).collect()
    }

    #[test]
    fn swapped_rings_come_out_in_order() {
        let (mut r, mut out) = (Reorder::default(), Vec::new());
        for seq in [0, 2, 3, 1, 5, 4] {
            r.push(sub(seq, seq), 1000, &mut out);
        }
        assert_eq!(seqs(&out), [0, 1, 2, 3, 4, 5]);
        assert_eq!((r.missing, r.late), (0, 0));
    }

    #[test]
    fn a_ring_that_never_comes_is_given_up_after_a_while_and_at_the_end() {
        let (mut r, mut out) = (Reorder::default(), Vec::new());
        r.push(sub(0, 10), 100, &mut out);
        r.push(sub(2, 20), 100, &mut out);
        assert_eq!(seqs(&out), [0]);
        r.push(sub(3, 121), 100, &mut out);
        assert_eq!(seqs(&out), [0, 2, 3]);
        r.push(sub(7, 130), 100, &mut out);
        r.push(sub(1, 131), 100, &mut out);
        r.flush(&mut out);
        assert_eq!(seqs(&out), [0, 2, 3, 1, 7]);
        assert_eq!((r.missing, r.late), (4, 1));
    }

    #[test]
    fn a_hole_never_holds_more_than_the_bound() {
        let (mut r, mut out) = (Reorder::default(), Vec::new());
        for seq in 1..5000 {
            r.push(sub(seq, 0), u64::MAX, &mut out);
            assert!(r.held.len() <= HELD);
        }
        r.flush(&mut out);
        assert_eq!(seqs(&out), (1..5000).collect::<Vec<_>>());
        assert_eq!(r.missing, 1);
    }

    #[test]
    fn the_last_counter_value_ends_no_loop() {
        let (mut r, mut out) = (Reorder::default(), Vec::new());
        r.push(sub(u64::MAX, 0), 0, &mut out);
        r.push(sub(u64::MAX, 9), 0, &mut out);
        r.flush(&mut out);
        assert_eq!(out.len(), 2);
    }
}

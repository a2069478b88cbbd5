//! How full the ring is. Marks at the end of each quarter show how much has been consumed.

use super::*;

/// Parts of a ring; a mark at the end of each shows that it is consumed.
const QUARTERS: u32 = 4;
const MARKER_STRIDE: u64 = 64;

impl Channel {
    /// Makes sure that there is room for `entries` and the markers among them.
    pub(crate) fn room(&mut self, entries: u64) -> Result<(), Error> {
        let needed = entries + 1 + (entries >> self.quarter().trailing_zeros());
        if self.free_entries() < needed {
            self.learn();
            if self.free_entries() < needed {
                return Err(self.full((self.sequence - self.consumed) as u32));
            }
        }
        Ok(())
    }

    /// Why none of the `places` is free.
    #[cold]
    pub(crate) fn full(&self, places: u32) -> Error {
        self.error().map_or(Error::RingFull(places), Error::ChannelKilled)
    }

    /// The place of the next entry. Rings and their quarters are powers of two, so a submission never divides.
    #[inline]
    pub(super) fn slot(&self) -> u64 {
        self.sequence & u64::from(self.entries - 1)
    }

    #[inline]
    pub(super) fn quarter(&self) -> u32 {
        self.entries / QUARTERS
    }

    /// One entry always stays free: a full ring would look empty.
    pub(super) fn free_entries(&self) -> u64 {
        u64::from(self.entries) - 1 - (self.sequence - self.consumed)
    }

    /// Called after each entry; `ticket` is the number that it releases.
    #[inline]
    pub(super) fn mark_quarter(&mut self, ticket: Option<Ticket>) {
        let last = u64::from(self.quarter()) - 1;
        if self.sequence & last == last {
            self.marked += 1;
            self.marks[(self.marked % MARKS) as usize] = ticket;
            if ticket.is_none() {
                self.push_marker();
            }
        }
    }

    /// The last entry of a quarter: a host release of the quarter's number.
    pub(super) fn push_marker(&mut self) {
        let offset = MARKER_SEGMENTS + (self.marked % u64::from(QUARTERS)) * MARKER_STRIDE;
        let mut words = [0u32; layout::SEMAPHORE];
        let mut writer = Words::new(&mut words);
        let semaphore = self.page.va() + MARKER_SEMAPHORE;
        let written = writer.host_semaphore(HOST, semaphore, self.marked & 0xffff_ffff, Execute::RELEASE);
        debug_assert!(written.is_ok());
        // The segment was last used a whole ring ago, and the ring has room: it has been consumed.
        for (i, word) in words.iter().enumerate() {
            self.page.word(offset + 4 * i as u64).store(*word, Ordering::Relaxed);
        }
        if let Some(entry) = Entry::segment(self.page.va() + offset, layout::SEMAPHORE as u32) {
            self.push(entry.encode(), None);
        }
    }

    /// Reads the marks, and puts aside the consumed segments. A caller that may free memory calls `bury` or clears them.
    pub(super) fn learn(&mut self) {
        let quarter = u64::from(self.quarter());
        let mut consumed = self.consumed;
        while self.known < self.marked {
            let next = self.known + 1;
            let upto = match self.marks[(next % MARKS) as usize] {
                Some(ticket) if self.tracker.done(ticket) => next * quarter - 1,
                None if self.marker().wrapping_sub(next as u32) as i32 >= 0 => next * quarter,
                _ => break,
            };
            (self.known, consumed) = (next, upto);
        }
        for sequence in self.consumed..consumed {
            if self.segments == 0 {
                break;
            }
            let slot = (sequence % u64::from(self.entries)) as usize;
            if let Some(segment) = self.in_flight[slot].take() {
                self.spent.push(segment);
                self.segments -= 1;
            }
        }
        self.consumed = consumed;
    }

    /// The number of the last quarter whose marker was reached.
    pub(super) fn marker(&self) -> u32 {
        self.page.word(MARKER_SEMAPHORE).load(Ordering::Acquire)
    }
}

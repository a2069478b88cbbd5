//! Order between a channel of launches and another party, through a word that one side writes and the other waits for
//! (transfers have both in their own words, see [`crate::Copies`]). Also order between two doorbell channels, of any kind.

use super::*;

/// One word, and the tracker.
struct Word {
    va: u64,
    tracker: u64,
}

impl Ranges for Word {
    fn contains(&self, va: u64, length: u64) -> bool {
        length <= 4 && (va == self.va || va == self.tracker)
    }
}

impl Channel {
    /// Later submissions wait until the word at `at` in the region has reached `value`, as a number that counts up and
    /// wraps. The caller must keep the word until the next submission is done: until then no free waits for it.
    ///
    /// # Errors
    /// As [`Channel::submit`], [`Error::Outside`], [`Error::Misaligned`]: the wait was not submitted.
    pub fn wait_for_word(&mut self, (region, at): (&Region, u64), value: u32) -> Result<(), Error> {
        self.usable()?;
        self.room(1)?;
        // (Without a ticket: the caller must keep the word.)
        region.belongs(&self.space, self.space.device().uuid())?;
        self.names_next(region);
        if !region.is_still_live() {
            return Err(Error::Stale);
        }
        let word = self.word(region, at)?;
        let words = self.operation(&word, word.va, value, Execute::WAIT_AND_SWITCH)?;
        self.push_operation(words);
        self.mark_quarter(None);
        self.ring();
        Ok(())
    }

    /// Writes `value` to the word at `at` in the region when all earlier submissions are done; this submission is done then.
    ///
    /// # Errors
    /// As [`Channel::wait_for_word`].
    pub fn write_word(&mut self, (region, at): (&Region, u64), value: u32) -> Result<Ticket, Error> {
        self.usable()?;
        self.room(3)?;
        let word = self.word(region, at)?;
        // ORDERING: taken before the region is read, see `lease`.
        let (before, ticket) = self.take_tickets(1);
        let all = self.admit(region).and_then(|()| {
            Ok([
                // After this wait all earlier work has added its count to the tracker, and no other work changes it.
                self.operation(&word, word.tracker, before as u32, Execute::WAIT_AND_SWITCH)?,
                self.operation(&word, word.va, value, Execute::RELEASE)?,
                self.operation(&word, word.tracker, ticket.payload(), Execute::RELEASE)?,
            ])
        });
        let [wait, tell, count] = match all {
            Ok(all) => all,
            Err(error) => {
                self.give_back_to(before);
                return Err(error);
            }
        };
        for (words, ticket) in [(wait, None), (tell, None), (count, Some(ticket))] {
            self.push_operation(words);
            self.mark_quarter(ticket);
        }
        self.ring();
        Ok(ticket)
    }

    /// Later submissions wait until another channel's submission is done. The GPU gets the wait with the next submission:
    /// this call rings no doorbell. Waits for more than 256 other channels allocate. There is no wait for a submission that
    /// is already done, and none for this channel's own submissions, which are in order anyway.
    ///
    /// If the other channel dies, this one would wait forever. Waiting threads detect that with
    /// [`Channel::dies_with_others`].
    ///
    /// # Errors
    /// As [`Channel::submit`]; [`Error::OtherSpace`] for a channel with other addresses, [`Error::NotSubmitted`] for a
    /// number that the other channel has not given out, or the error that ended the other channel.
    pub fn wait_for_other(&mut self, other: &Observer, ticket: Ticket) -> Result<(), Error> {
        self.usable()?;
        if other.done(ticket) || Arc::ptr_eq(other.tracker(), &self.tracker) {
            return Ok(());
        }
        let va = other.tracker().va();
        if !self.space.shares_addresses(other.space()) {
            return Err(Error::OtherSpace { va });
        }
        if other.ticket(ticket.number()).is_none() {
            return Err(Error::NotSubmitted(ticket.number()));
        }
        if other.is_stopped() {
            return Err(Error::ChannelStopped);
        }
        if let Some(code) = other.error() {
            return Err(Error::ChannelKilled(code));
        }
        self.room(2)?;
        let next = Ticket(self.last_ticket().number() + 1);
        if !self.tracker.awaited.add(other.tracker(), ticket, next) {
            // The word lives as long as this channel.
            self.awaited.push(other.clone());
        }
        let words =
            self.operation(&Word { va, tracker: self.tracker.va() }, va, ticket.payload(), Execute::WAIT_AND_SWITCH)?;
        self.push_operation(words);
        self.mark_quarter(None);
        Ok(())
    }

    /// Whether it waits for a submission of a dead channel, which will never finish. If so, this channel is stopped: its
    /// waiters get an error, and its work does not run without the work before it. Stopping calls the driver.
    pub fn dies_with_others(&self) -> bool {
        self.tracker.dies_with_others()
    }

    fn word(&self, region: &Region, at: u64) -> Result<Word, Error> {
        let va = region.part(at, 4)?.va();
        if !va.is_multiple_of(4) {
            return Err(Error::Misaligned { offset: at, size: 4 });
        }
        Ok(Word { va, tracker: self.tracker.va() })
    }

    /// The words of one host semaphore operation, after the validator's check.
    fn operation(
        &self,
        word: &Word,
        va: u64,
        payload: u32,
        execute: Execute,
    ) -> Result<[u32; layout::SEMAPHORE], Error> {
        let mut words = [0; layout::SEMAPHORE];
        Words::new(&mut words).host_semaphore(HOST, va, payload.into(), execute)?;
        validate::check(&words, &Rules { space: word, ..self.rules() })?;
        Ok(words)
    }

    /// Pushes an entry with them, in the entry's place for its release.
    fn push_operation(&mut self, words: [u32; layout::SEMAPHORE]) {
        let offset = RELEASES + RELEASE_STRIDE * self.slot();
        // The place was last used a whole ring ago, and the ring has room: it has been consumed.
        for (i, word) in words.iter().enumerate() {
            self.page.word(offset + 4 * i as u64).store(*word, Ordering::Relaxed);
        }
        if let Some(entry) = Entry::segment(self.page.va() + offset, layout::SEMAPHORE as u32) {
            self.push(entry.encode(), None);
        }
    }
}

//! Back-to-back copies on doorbell's own channel: a release with the GPU's time, then prepared copies, each followed by
//! its own release, as CUDA writes them. A submission takes a fraction of the shortest copy's time, so no gate is
//! needed.

use super::BackToBack;
use crate::ends::{Pair, seat};
use crate::error::Error;
use crate::inspect::Inspect;
use crate::machine::Machine;
use crate::routes::{ce, channel};
use crate::spec::Spec;
use gpu::{Channel, CopyMode, CopyRelease, Engine, Prepared, Pushbuffer, Semaphore, Semaphores, Ticket, Validated};
use machine::Unavailable;
use std::time::{Duration, Instant};

/// Payload of the release before the first copy.
const BEGUN: u32 = 1;
/// Longer than any wait for room in the ring can take.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) struct Copies<'m> {
    // Before the memory that its work may name.
    channel: Channel,
    prepared: Option<Prepared>,
    begin: Validated,
    begun: Semaphore,
    pair: Pair<'m>,
    mode: CopyMode,
    release: CopyRelease,
    /// How many copies are ready.
    count: u32,
    last: Option<Ticket>,
    span: Option<(u64, u64)>,
}

impl<'m> Copies<'m> {
    pub(super) fn new(machine: &'m Machine, spec: &Spec, capacity: u64) -> Result<Copies<'m>, Error> {
        ce::check(machine, spec)?;
        let space = channel::space(seat(machine, spec)?, &spec.executor)?;
        let pair = Pair::new(machine, spec, capacity)?;
        pair.source.region(space)?;
        pair.destination.region(space)?;
        let engine = Engine::Copy(spec.executor.index.unwrap_or(0));
        let channel = Channel::new(space, engine, channel::options(&spec.executor))?;
        let none = || Unavailable::new("all semaphores are in use");
        let begun = Semaphores::new(space)?.alloc().ok_or_else(none)?;
        let mut begin = Pushbuffer::new(space, 16)?;
        begin.copy_release(&begun, BEGUN)?;
        let begin = begin.validate(&channel)?;
        let (mode, release) = (ce::mode(&spec.executor), ce::release(&spec.executor));
        Ok(Copies { channel, prepared: None, begin, begun, pair, mode, release, count: 0, last: None, span: None })
    }

    /// Submits one copy. Waits for room while all slots are in use.
    fn submit(&mut self) -> Result<(), Error> {
        let prepared = self.prepared.as_mut().ok_or(Error::Idle)?;
        let start = Instant::now();
        loop {
            match prepared.submit(&mut self.channel) {
                Ok(ticket) => {
                    self.last = Some(ticket);
                    return Ok(());
                }
                Err(gpu::Error::RingFull(_)) if start.elapsed() < PATIENCE => std::hint::spin_loop(),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn wait(&self, timeout: Duration) -> Result<(), Error> {
        channel::wait(&self.channel, self.last, self.prepared.as_ref().map_or(0, Prepared::bytes), timeout)
    }
}

impl BackToBack for Copies<'_> {
    fn ready(&mut self, bytes: u64, count: u32) -> Result<(), Error> {
        self.pair.ends().check(bytes)?;
        if count == 0 {
            return Err(Unavailable::new("no copies do not run back to back: 1 is the least").into());
        }
        channel::settle(&self.channel, self.last);
        if self.prepared.as_ref().is_none_or(|prepared| prepared.bytes() != bytes) {
            self.prepared = Some(ce::prepare(&mut self.channel, &self.pair.ends(), bytes, self.mode, self.release)?);
        }
        // Memory that CUDA unmapped since does not affect the semaphore; the words only need a new check.
        self.begin.revalidate(&self.channel)?;
        self.begun.set(0);
        self.span = None;
        self.submit()?;
        self.wait(PATIENCE)?;
        self.count = count;
        Ok(())
    }

    fn go(&mut self) -> Result<(), Error> {
        let count = std::mem::take(&mut self.count);
        if count == 0 {
            return Err(Error::Idle);
        }
        self.channel.submit(&self.begin)?;
        for _ in 0..count {
            self.submit()?;
        }
        Ok(())
    }

    fn finish(&mut self, timeout: Duration) -> Result<f64, Error> {
        self.wait(timeout)?;
        let after = timeout;
        if !self.begun.poll(BEGUN) {
            return Err(Error::Late { bytes: self.prepared.as_ref().map_or(0, Prepared::bytes), after });
        }
        let (start, end) = (self.begun.timestamp(), self.channel.timestamp());
        let backwards = || Unavailable::new(format!("the GPU's clock went back from {start} to {end} ns"));
        let taken = end.checked_sub(start).ok_or_else(backwards)?;
        self.span = Some((start, end));
        Ok(taken as f64)
    }

    fn span(&self) -> Option<(u64, u64)> {
        self.span
    }

    fn ends(&self) -> &dyn Inspect {
        &self.pair
    }
}

impl Drop for Copies<'_> {
    fn drop(&mut self) {
        channel::settle(&self.channel, self.last);
    }
}

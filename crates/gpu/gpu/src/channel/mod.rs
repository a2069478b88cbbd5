//! A channel: a ring of GPFIFO entries that one engine consumes.
//!
//! A semaphore of the channel shows how far the GPU has come. The last entry of every quarter of the ring releases it,
//! as CUDA does. GP_GET is never read: it may be across PCIe, and it may not be kept up to date when a tap is between
//! doorbell and USERD.
//!
//! `make` builds a channel out of the driver's objects (`objects`), `progress` tracks how full its ring is, `grave`
//! keeps memory that it may still read. Submissions are here.

mod grave;
mod launches;
mod make;
mod objects;
mod options;
mod progress;
mod unchecked;
mod words;

pub(crate) use grave::Grave;
pub(crate) use launches::{Use, acquire};
pub use options::{ChannelOptions, Group};

use crate::device::Bar;
use crate::doorbell::{self, Site};
use crate::engine::Engine;
use crate::error::Error;
use crate::memory::Memory;
use crate::observer::{Observer, killed, notified};
use crate::place::Place;
use crate::points::Point;
use crate::pushbuffer::{Pushbuffer, Segment, Validated};
use crate::region::Region;
use crate::ring::{Ring, USERD_OFFSET};
use crate::space::{AddressSpace, Noting};
use crate::tracker::{Stop, Ticket, Tracker};
use crate::transfer::Between;
use crate::validate::{self, Ranges, Rules};
use objects::{Contexts, Objects};
use pushbuf::encode::subchannel::{COMPUTE, COPY, HOST};
use pushbuf::encode::{Words, layout};
use pushbuf::gpfifo::{Control, Entry, Opcode};
use pushbuf::semaphore::Execute;
use pushbuf::userd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a dropped channel may take for its pending work.
const STOP: Duration = Duration::from_millis(500);
/// Ticks of the time stamp counter, 1 to 5 GHz, without progress before a poll rings the doorbell again: 7 to 34 ms.
const AGAIN: u64 = 1 << 25;
/// The maximum number of quarters not known to be consumed, a power of two.
const MARKS: u64 = 8;
/// In the channel's page: error notifier @0, marker semaphore, marker segments.
const MARKER_SEMAPHORE: u64 = 0x100;
const TRACKER_SEMAPHORE: u64 = 0x140;
const MARKER_SEGMENTS: u64 = 0x200;
/// After them, one for each GPFIFO entry: the release that ends a submission.
const RELEASES: u64 = 0x1000;
const RELEASE_STRIDE: u64 = 64;

/// One channel. Freed on drop, with all its work in flight.
#[derive(Debug)]
pub struct Channel {
    objects: Arc<Objects>,
    in_flight: Vec<Option<Arc<Segment>>>,
    /// How many of them are `Some`. Prepared transfers keep their own segments; then this is 0 and no search is needed.
    segments: usize,
    ring: Ring,
    /// USERD's place, if it is not in the ring's memory.
    userd: Option<Ring>,
    page: Arc<Memory>,
    _contexts: Option<Contexts>,
    tracker: Arc<Tracker>,
    grave: Grave,
    /// Other channels whose submissions this channel waits for: their words live as long as it.
    awaited: Vec<Observer>,
    /// Segments that were consumed and are not freed yet: a prepared submission frees no memory.
    spent: Vec<Arc<Segment>>,
    id: u64,
    gpfifo_at: *const AtomicU64,
    put_at: *const AtomicU32,
    /// A word of GPU memory that is loaded before GP_PUT is stored in host memory, because that store may overtake
    /// stores posted to the GPU.
    flush: Option<Flush>,
    pushbuffers: Place,
    space: Arc<AddressSpace>,
    engine: Engine,
    group: Group,
    copies: bool,
    /// QMDs that pushbuffers may start, ascending.
    granted: Vec<u64>,
    /// The kind of work that was prepared on it first.
    used_for: Option<Use>,
    handle: u32,
    token: u32,
    entries: u32,
    bar: Bar,
    site: Site,
    rung_again: AtomicU32,
    /// A submission was made that does not release the tracker.
    owes: bool,
    /// The last fruitless poll at which the channel had moved: time stamp counter (0: none), and how far the channel was.
    stuck_since: AtomicU64,
    stuck_at: AtomicU64,
    /// Entries ever written.
    sequence: u64,
    /// Entries known to be consumed.
    consumed: u64,
    /// The submission that shows that a quarter is consumed, at the quarter's number modulo [`MARKS`]. It is the
    /// quarter's last entry but one; without a submission there, a marker as the last entry.
    marks: [Option<Ticket>; MARKS as usize],
    /// The number of quarters that have a mark, and of those known to be consumed.
    marked: u64,
    known: u64,
}

impl Channel {
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// The owner of the channel's group.
    pub fn group(&self) -> Group {
        self.group
    }

    pub fn space(&self) -> &Arc<AddressSpace> {
        &self.space
    }

    /// The value that a doorbell stores: runlist << 16 | channel number.
    pub fn token(&self) -> u32 {
        self.token
    }

    /// GPU address of the first GPFIFO entry; USERD is 0x2000 above.
    pub fn gpfifo_va(&self) -> u64 {
        self.ring.memory.va() + self.ring.offset()
    }

    /// RM handle of the channel.
    pub fn handle(&self) -> u32 {
        self.handle
    }

    /// GPFIFO entries ever written, including the channel's own markers.
    pub fn entries_written(&self) -> u64 {
        self.sequence
    }

    /// The rules for pushbuffers on this channel. (Between launches: no copies and kernels, because the release does
    /// not wait for them.)
    pub fn rules(&self) -> Rules<'_> {
        Rules {
            architecture: self.space.device().architecture(),
            graphics: self.engine == Engine::Graphics,
            copies: self.copies && self.used_for != Some(Use::Launches),
            launches: if self.used_for == Some(Use::Launches) { &[] } else { &self.granted },
            space: &*self.space,
        }
    }

    /// The number of its last submission, which is also the count of submissions.
    pub fn submitted(&self) -> u64 {
        self.tracker.submitted.load(Ordering::SeqCst)
    }

    /// The error that killed the channel (the notifier's Xid), if one did. None in a fork's child.
    pub fn error(&self) -> Option<u32> {
        if self.space.device().forked() { None } else { killed(&self.page, &self.tracker) }
    }

    /// For threads that wait for this channel's work.
    pub fn observer(&self) -> Observer {
        Observer::new(&self.tracker, &self.page, self.space.device())
    }

    /// Puts a validated pushbuffer into the ring and rings the doorbell.
    ///
    /// # Errors
    /// [`Error::RingFull`], [`Error::Stale`], [`Error::OtherChannel`], [`Error::ChannelKilled`],
    /// [`Error::ChannelStopped`], [`Error::Forked`]: the submission was not made.
    pub fn submit(&mut self, pushbuffer: &Validated) -> Result<Ticket, Error> {
        self.submit_all(&[pushbuffer])
    }

    /// The checks of a submission: the channel's kind, and that no memory that it names was unmapped.
    #[inline]
    fn check(&self, pushbuffer: &Validated) -> Result<(), Error> {
        if !pushbuffer.is_for(self.engine, &self.space) {
            return Err(Error::OtherChannel);
        }
        loop {
            self.tracker.uses.named_any(self.last_ticket().number(), pushbuffer.names_pins());
            let generation = self.space.generation();
            if pushbuffer.is_fresh(generation) {
                return Ok(());
            }
            let space = &Noting::new(&self.space, !self.granted.is_empty());
            pushbuffer.check(&Rules { space, ..self.rules() }, generation)?;
            pushbuffer.note(space.pinned());
        }
    }

    /// Checks the words of a transfer and the regions that it is prepared between. The words may name these and the tracker.
    pub(crate) fn check_transfer(&self, words: &[u32], between: &Between) -> Result<(), Error> {
        between.check(&self.space, self.space.device().uuid())?;
        self.check_words(words, Some(between))
    }

    /// After a ticket was taken: notes the memory that the submission names, and checks that all of it still exists. No lock.
    #[inline]
    pub(crate) fn admit_transfer(&self, between: &Between) -> Result<(), Error> {
        self.admit_here(&between.to)?;
        if let Some(from) = &between.from {
            self.admit_here(from)?;
        }
        between.more.iter().try_for_each(|region| self.admit_here(region))
    }

    fn check_words(&self, words: &[u32], between: Option<&Between>) -> Result<(), Error> {
        let space = &Named { tracker: self.tracker.va(), between };
        Ok(validate::check(words, &Rules { space, ..self.rules() })?)
    }

    /// Submits several, with one doorbell.
    pub fn submit_all(&mut self, pushbuffers: &[&Validated]) -> Result<Ticket, Error> {
        self.usable()?;
        self.spent.clear();
        // ORDERING: taken before the generation is read, see `lease`.
        let ticket = self.take_ticket();
        let ready = pushbuffers.iter().try_for_each(|pushbuffer| self.check(pushbuffer));
        if let Err(error) = ready.and_then(|()| self.room(pushbuffers.len() as u64 + 1)) {
            self.give_back(ticket);
            return Err(error);
        }
        for pushbuffer in pushbuffers {
            self.push(pushbuffer.entry().encode(), Some(pushbuffer.segment()));
            self.mark_quarter(None);
        }
        self.push_release(ticket);
        self.mark_quarter(Some(ticket));
        self.ring();
        Ok(ticket)
    }

    /// The entry that releases the tracker when the work before it is done.
    fn push_release(&mut self, ticket: Ticket) {
        let offset = RELEASES + RELEASE_STRIDE * self.slot();
        let mut words = [0; 2 * layout::SEMAPHORE];
        let tracker = self.tracker.va();
        let length = match self.used_for {
            Some(Use::Launches) => launches::release(&mut words, tracker, ticket),
            _ => release(&mut words, self.engine, tracker, ticket).unwrap_or(0),
        };
        debug_assert!(length > 0);
        // The segment was last used a whole ring ago, and the ring has room: it has been consumed.
        for (i, word) in words.iter().take(length).enumerate() {
            self.page.word(offset + 4 * i as u64).store(*word, Ordering::Relaxed);
        }
        if let Some(entry) = Entry::segment(self.page.va() + offset, length as u32) {
            self.push(entry.encode(), None);
        }
    }

    /// Submits an entry without a pushbuffer (control opcode NOP) and rings: costs the GPU one fetch.
    pub fn submit_nop(&mut self) -> Result<(), Error> {
        self.usable()?;
        self.room(1)?;
        let nop = Control { opcode: Opcode::Nop, operand: 0, sync_wait: false, reserved: 0 };
        self.push(Entry::Control(nop).encode(), None);
        self.mark_quarter(None);
        self.ring();
        Ok(())
    }

    #[inline]
    fn push(&mut self, entry: u64, segment: Option<&Arc<Segment>>) {
        let slot = self.slot();
        // SAFETY: within the ring, which lives as long as self; the entry is free.
        unsafe { (*self.gpfifo_at.add(slot as usize)).store(entry, Ordering::Relaxed) };
        if let Some(segment) = segment {
            self.in_flight[slot as usize] = Some(segment.clone());
            self.segments += 1;
        }
        self.sequence += 1;
    }

    /// Identifies this channel in the process.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The engine that executes its transfers, and the address that they release.
    pub(crate) fn ends(&self) -> (Engine, u64) {
        (self.engine, self.tracker.va())
    }

    pub(crate) fn pushbuffers(&self) -> Place {
        self.pushbuffers
    }

    pub(crate) fn grave(&self) -> Grave {
        self.grave.clone()
    }

    /// Frees the segments of prepared transfers that were dropped and are done.
    pub(crate) fn bury(&mut self) {
        self.grave.bury(&self.tracker);
        self.spent.clear();
    }

    /// Alive, with room for one prepared transfer and a marker.
    #[inline]
    pub(crate) fn ready(&mut self) -> Result<(), Error> {
        self.usable()?;
        if self.free_entries() < 2 { self.room(1) } else { Ok(()) }
    }

    /// Takes the next number and announces it to threads that might free memory.
    #[inline]
    pub(crate) fn take_ticket(&mut self) -> Ticket {
        let number = self.tracker.submitted.load(Ordering::Relaxed) + 1;
        // ORDERING: sequentially consistent, see `lease`.
        self.tracker.submitted.store(number, Ordering::SeqCst);
        Point::AfterTicket.reached();
        Ticket(number)
    }

    /// Returns a number that will not be submitted after all.
    pub(crate) fn give_back(&mut self, ticket: Ticket) {
        self.tracker.give_back(ticket.0 - 1);
    }

    /// Checks that it is alive, not stopped, and that this is the process that opened it.
    #[inline]
    pub(crate) fn usable(&self) -> Result<(), Error> {
        if self.space.device().forked() {
            return Err(Error::Forked);
        }
        if self.tracker.is_stopped() {
            return Err(Error::ChannelStopped);
        }
        match notified(&self.page) {
            None => Ok(()),
            Some(_) => Err(killed(&self.page, &self.tracker).map_or(Error::ChannelStopped, Error::ChannelKilled)),
        }
    }

    /// Usable and idle, with room for one prepared submission and a marker.
    #[inline]
    pub(crate) fn is_idle_with_room(&self) -> bool {
        self.usable().is_ok() && self.free_entries() >= 2 && self.tracker.is_idle()
    }

    /// The number of the last submission.
    pub(crate) fn last_ticket(&self) -> Ticket {
        Ticket(self.tracker.submitted.load(Ordering::Relaxed))
    }

    /// As if `more` further submissions had been made and finished.
    #[cfg(test)]
    pub(crate) fn pretend(&mut self, more: u64) {
        let submitted = self.tracker.submitted.fetch_add(more, Ordering::SeqCst) + more;
        self.tracker.finish();
        self.tracker.pretend(submitted as u32);
    }

    /// Announces a number that was given out before.
    #[inline]
    pub(crate) fn announce(&mut self, ticket: Ticket) {
        // ORDERING: sequentially consistent, see `lease`.
        self.tracker.submitted.store(ticket.0, Ordering::SeqCst);
    }

    /// Pushes a gate and the body after it.
    pub(crate) fn push_armed(&mut self, entries: [u64; 2]) -> Result<(), Error> {
        self.room(2)?;
        for entry in entries {
            self.push(entry, None);
            self.mark_quarter(None);
        }
        self.ring();
        Ok(())
    }

    /// Waits until everything in the ring has been consumed.
    pub(crate) fn settle(&mut self, limit: Duration) -> Result<(), Error> {
        self.room(1)?;
        let ticket = self.take_ticket();
        self.push_release(ticket);
        self.mark_quarter(Some(ticket));
        self.ring();
        self.wait(ticket, limit)
    }

    /// A separate entry that releases the tracker when all submitted work is done, after a flush that makes it visible to all.
    ///
    /// # Errors
    /// As [`Channel::submit`].
    pub fn release(&mut self) -> Result<Ticket, Error> {
        self.submit_all(&[])
    }

    /// The next pushed entries do not release the tracker.
    #[inline]
    pub(crate) fn owes_release(&mut self) {
        self.owes = true;
    }

    #[inline]
    pub(crate) fn push_prepared(&mut self, entry: u64, ticket: Ticket) {
        self.push(entry, None);
        self.mark_quarter(Some(ticket));
        self.ring();
    }

    /// Pushes several entries of one submission. The last one's words release the ticket, or those of a later submission do.
    ///
    /// # Errors
    /// [`Error::RingFull`]: no entry was pushed.
    #[inline]
    pub(crate) fn push_several(&mut self, entries: &[u64], ticket: Ticket) -> Result<(), Error> {
        let Some((last, before)) = entries.split_last() else { return Ok(()) };
        self.room(entries.len() as u64)?;
        for entry in before {
            self.push(*entry, None);
            self.mark_quarter(None);
        }
        self.push_prepared(*last, ticket);
        Ok(())
    }

    /// Checks that the words of a submission, whose ticket is taken, may name the region.
    #[inline]
    pub(crate) fn admit(&self, region: &Region) -> Result<(), Error> {
        region.belongs(&self.space, self.space.device().uuid())?;
        self.admit_here(region)
    }

    /// As [`Channel::admit`], for a region that is known to belong here.
    #[inline]
    fn admit_here(&self, region: &Region) -> Result<(), Error> {
        // ORDERING: read after the ticket was taken, see `lease`. The region is noted as named before the submission is
        // finished.
        if !region.is_still_live() {
            return Err(Error::Stale);
        }
        self.tracker.uses.named(region.lease(), self.last_ticket().number());
        Point::AfterLook.reached();
        Ok(())
    }

    /// No submission names the region yet; the next one does.
    pub(crate) fn names_next(&self, region: &Region) {
        self.tracker.uses.named(region.lease(), self.last_ticket().number() + 1);
    }

    /// The last submission is finished, without a doorbell.
    #[inline]
    pub(crate) fn finish(&self) {
        self.tracker.finish();
    }

    /// True when the submission and all before it on this channel are done. Repeated calls without progress ring the
    /// doorbell again, as [`Channel::wait`] does.
    #[inline]
    pub fn done(&self, ticket: Ticket) -> bool {
        if self.space.device().forked() {
            return false;
        }
        self.tracker.done(ticket) || self.polled_in_vain()
    }

    /// Rings again if the last submission is not done and the tracker has not moved for some time.
    pub fn check_doorbell(&self) {
        self.done(self.last_ticket());
    }

    /// Not done: rings again if the tracker has not moved for [`AGAIN`]. Always false.
    fn polled_in_vain(&self) -> bool {
        let (now, reached) = (ticks(), self.tracker.reached());
        let since = self.stuck_since.load(Ordering::Relaxed);
        // An exchange would wait until all earlier stores, perhaps another channel's doorbell, have left the CPU.
        if since == 0 || self.stuck_at.load(Ordering::Relaxed) != reached {
            self.stuck_at.store(reached, Ordering::Relaxed);
            self.stuck_since.store(now.max(1), Ordering::Relaxed);
        } else if now.wrapping_sub(since) > AGAIN && self.usable().is_ok() {
            self.stuck_since.store(now.max(1), Ordering::Relaxed);
            self.ring_again();
        }
        false
    }

    /// A doorbell may be missed (seen with channels of two runqueues next to one another); an extra one is harmless.
    fn ring_again(&self) {
        self.rung_again.fetch_add(1, Ordering::Relaxed);
        self.ring();
    }

    /// Spins until the submission is done.
    ///
    /// # Errors
    /// [`Error::Timeout`] after `limit`, [`Error::ChannelKilled`], [`Error::ChannelStopped`], [`Error::Forked`].
    pub fn wait(&self, ticket: Ticket, limit: Duration) -> Result<(), Error> {
        if self.space.device().forked() {
            return Err(Error::Forked);
        }
        self.tracker.wait(ticket, limit, || {
            self.usable()?;
            if self.dies_with_others() {
                return Err(Error::ChannelStopped);
            }
            self.ring_again();
            Ok(())
        })
    }

    /// Waits until all submitted work is done.
    ///
    /// # Errors
    /// As [`Channel::wait`].
    pub fn idle(&self, limit: Duration) -> Result<(), Error> {
        self.wait(self.last_ticket(), limit)
    }

    /// Ends the channel with its pending work: on return the GPU no longer works for it.
    pub fn stop(&mut self) {
        if !self.space.device().forked() {
            self.tracker.stop();
        }
    }

    /// How often a wait, or polls, without progress rang the doorbell again.
    pub fn rung_again(&self) -> u32 {
        self.rung_again.load(Ordering::Relaxed)
    }

    /// The GPU's time in nanoseconds when the last prepared transfer was done.
    pub fn timestamp(&self) -> u64 {
        self.tracker.timestamp()
    }

    #[inline]
    fn ring(&self) {
        let put = self.slot() as u32;
        Point::BeforeDoorbell.reached();
        // ORDERING: entries and pushbuffers, maybe through write-combining buffers, before GP_PUT; GP_PUT before the
        // ring. A locked instruction would also do, but waits until those buffers are empty: 240 ns for a submission
        // instead of 64 (H100).
        store_fence();
        if let Some(flush) = &self.flush {
            // ORDERING: a load from GPU memory returns after the stores posted before it; GP_PUT takes another path.
            let _ = flush.0.word(0).load(Ordering::Acquire);
        }
        // SAFETY: the channel's USERD, which lives as long as self.
        unsafe { (*self.put_at).store(put, Ordering::Relaxed) };
        store_fence();
        // SAFETY: the page is mapped as long as the device lives, and the address space keeps the device.
        unsafe { doorbell::ring(self.site, self.space.device().usermode(self.bar), self.token) };
        Point::AfterDoorbell.reached();
        self.tracker.finish();
    }

    /// GP_GET as the GPU last wrote it. Slow across BAR1, and not kept up to date under every tap.
    pub fn gp_get(&self) -> u32 {
        let ring = self.userd.as_ref().unwrap_or(&self.ring);
        let word: &AtomicU32 = ring.memory.word(ring.offset() + USERD_OFFSET + userd::GP_GET as u64);
        word.load(Ordering::Acquire)
    }
}

impl Pushbuffer {
    /// Checks every word against `channel`'s rules. Submissions require this.
    pub fn validate(self, channel: &Channel) -> Result<Validated, Error> {
        let space = &Noting::new(&channel.space, !channel.granted.is_empty());
        let rules = Rules { space, ..channel.rules() };
        let validated = self.validate_for(channel.engine, &channel.space, &rules)?;
        validated.note(space.pinned());
        Ok(validated)
    }
}

impl Validated {
    /// Checks again. Returns the reason if it is stale; otherwise it is fresh again.
    pub fn revalidate(&mut self, channel: &Channel) -> Result<(), Error> {
        let space = &Noting::new(&channel.space, !channel.granted.is_empty());
        self.revalidate_for(channel.engine, &channel.space, &Rules { space, ..channel.rules() })?;
        self.note(space.pinned());
        Ok(())
    }
}

/// GPU memory, for a load that pushes posted stores before it.
#[derive(Debug)]
struct Flush(Arc<Memory>);

/// The memory that the words of a transfer may name.
struct Named<'a> {
    tracker: u64,
    between: Option<&'a Between>,
}

impl Ranges for Named<'_> {
    fn contains(&self, va: u64, length: u64) -> bool {
        va == self.tracker && length <= 16 || self.between.is_some_and(|between| between.holds(va, length))
    }
}

// SAFETY: the raw pointers point into rings that the channel holds, and are only used through `&mut self` or atomically.
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}

impl Drop for Channel {
    fn drop(&mut self) {
        if self.space.device().forked() {
            return;
        }
        if self.error().is_none() && !self.tracker.is_stopped() {
            if self.owes {
                // Without room the channel is stopped with its pending work.
                let _ = self.release();
            }
            self.tracker.wait_until(self.last_ticket().number(), Instant::now() + STOP);
        }
        // Before the memory is freed that the GPU may be reading.
        self.objects.stop();
        // Later calls that wait for its submissions learn that no more will finish.
        self.tracker.end();
        self.space.give_back_leftovers();
    }
}

/// Writes the words that release the tracker, and returns how many there are.
fn release(words: &mut [u32], engine: Engine, tracker: u64, ticket: Ticket) -> Result<usize, Error> {
    let mut w = Words::new(words);
    match engine {
        Engine::Graphics => w.host_release(HOST, tracker, ticket.payload(), true)?,
        Engine::Copy(_) => w.copy_release(COPY, tracker, ticket.payload(), true)?,
    }
    Ok(w.len())
}

/// The time stamp counter.
#[inline]
fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has it.
    return unsafe { std::arch::x86_64::_rdtsc() };
    #[cfg(not(target_arch = "x86_64"))]
    0
}

#[inline(always)]
fn store_fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE2 is part of x86-64.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

//! A channel: a ring of GPFIFO entries that one engine consumes.
//!
//! How far the GPU has come is learnt from a semaphore of the channel's own, released by the last entry of every quarter
//! of the ring, as CUDA does it: GP_GET is never read, for it lies behind PCIe, and it may not be kept where a tap stands
//! between us and USERD.

use crate::device::{Bar, Device};
use crate::doorbell::{self, Site};
use crate::error::Error;
use crate::memory::{AddressSpace, Memory, Place};
use crate::pushbuffer::{COMPUTE, COPY, Pushbuffer, Segment, Validated};
use crate::ring::{RING_STRIDE, Ring, USERD_OFFSET};
use crate::tracker::{Ticket, Tracker};
use crate::transfer;
use crate::validate::Rules;
use pushbuf::encode::Words;
use pushbuf::gpfifo::{Control, Entry, Opcode};
use pushbuf::semaphore::Execute;
use pushbuf::userd;
use rm::abi::{
    ChannelAlloc, ChannelAllocFull, ChannelGroupAlloc, ContextShareAlloc, CopyAlloc, Plain, channel_flags, uvm,
};
use rm::class::{self, engine};
use rm::driver;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What executes the methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Copy engine n.
    Copy(u32),
    /// Compute and inline-to-memory.
    Graphics,
}

/// Whose channel group a graphics channel joins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Group {
    /// One of its own: it shares the engine with CUDA by time slices.
    #[default]
    Own,
    /// CUDA's, beside its kernels, without a change of context. Needs [`crate::Entry::CudasClient`]; a fault takes CUDA along.
    Cudas,
}

/// How a channel is made, and where what it needs lies. The default is what CUDA does, but for the pushbuffers: in video
/// memory they save the engine a read over PCIe (H100: 8 bytes from GPU to host in 3.7 us instead of 4.5).
#[derive(Clone, Copy, Debug)]
pub struct ChannelOptions {
    /// GPFIFO entries: a power of two from 8 to 1024.
    pub entries: u32,
    pub gpfifo: Place,
    pub userd: Place,
    /// The words of prepared transfers.
    pub pushbuffer: Place,
    /// The semaphore that prepared transfers release: polled by the CPU.
    pub tracker: Place,
    pub group: Group,
    pub bar: Bar,
    pub site: Site,
}

impl Default for ChannelOptions {
    fn default() -> Self {
        ChannelOptions {
            entries: 1024,
            gpfifo: Place::Video,
            userd: Place::Video,
            pushbuffer: Place::Video,
            tracker: Place::Host,
            group: Group::default(),
            bar: Bar::default(),
            site: Site::default(),
        }
    }
}

/// GPU addresses for the context buffers of a graphics channel, well above the memory.
const CONTEXTS: u64 = 0x40_0000_0000;
const CONTEXT_WINDOW: u64 = 64 << 20;
/// How long a new channel may take for its first submission, and a dropped one for what is under way.
const START: Duration = Duration::from_secs(2);
const STOP: Duration = Duration::from_millis(500);
/// Parts of a ring; at the end of each stands who says that it is consumed.
const QUARTERS: u32 = 4;
/// Of these so many at most are not known to be consumed, in a power of two.
const MARKS: u64 = 8;
/// Words of a marker: a host semaphore release.
const MARKER_WORDS: u32 = 6;
const MARKER_STRIDE: u64 = 64;
/// In the channel's own page: error notifier @0, marker semaphore, marker segments.
const MARKER_SEMAPHORE: u64 = 0x100;
const TRACKER_SEMAPHORE: u64 = 0x140;
const MARKER_SEGMENTS: u64 = 0x200;
/// Behind it, one for each GPFIFO entry: the release that ends a submission.
const RELEASES: u64 = 0x1000;
const RELEASE_STRIDE: u64 = 32;
const RELEASE_WORDS: usize = 6;
/// What channels are told apart by.
static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// RM objects of a channel, freed last made first.
#[derive(Debug)]
struct Objects {
    device: Arc<Device>,
    made: Vec<(u32, u32)>,
}

impl Objects {
    fn alloc<T: rm::abi::Plain>(&mut self, parent: u32, class: u32, params: &mut T) -> Result<u32, Error> {
        let handle = self.device.alloc(parent, class, params)?;
        self.made.push((parent, handle));
        Ok(handle)
    }

    /// An engine's object on a channel; it goes with the channel, which must be stopped first.
    fn alloc_engine(&self, channel: u32, class: u32, params: &mut [u8]) -> Result<(), Error> {
        let device = &self.device;
        driver::alloc_bytes(&*device.driver, device.ctl, device.client, channel, 0, class, params)?;
        Ok(())
    }
}

impl Drop for Objects {
    fn drop(&mut self) {
        for (parent, object) in self.made.drain(..).rev() {
            self.device.free(parent, object);
        }
    }
}

/// A reserved range of addresses without memory.
#[derive(Debug)]
struct Contexts {
    space: Arc<AddressSpace>,
    at: u64,
}

impl Contexts {
    /// Taken from the CPU too: CUDA asks the kernel's memory map which addresses are free.
    fn reserve(space: &Arc<AddressSpace>) -> Result<Contexts, Error> {
        let mut above = CONTEXTS;
        loop {
            let at = space.reserve(CONTEXT_WINDOW, above)?;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
            // SAFETY: NOREPLACE: nothing that is mapped already is touched.
            let got = unsafe { libc::mmap(at as *mut _, CONTEXT_WINDOW as usize, libc::PROT_NONE, flags, -1, 0) };
            if got as u64 == at {
                return Ok(Contexts { space: space.clone(), at });
            }
            if got != libc::MAP_FAILED {
                // SAFETY: the mapping that was just made, elsewhere.
                unsafe { libc::munmap(got, CONTEXT_WINDOW as usize) };
            }
            above = at + CONTEXT_WINDOW;
            space.unreserve(at);
        }
    }
}

impl Drop for Contexts {
    fn drop(&mut self) {
        // SAFETY: our own reservation, with nothing in it.
        unsafe { libc::munmap(self.at as *mut _, CONTEXT_WINDOW as usize) };
        self.space.unreserve(self.at);
    }
}

/// Segments of prepared transfers that were dropped while the channel might still read them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Grave(Arc<Mutex<Vec<Buried>>>);

type Buried = (Arc<Memory>, Ticket);

impl Grave {
    pub fn put(&self, memory: Arc<Memory>, last: Ticket) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((memory, last));
    }

    fn bury(&self, tracker: &Tracker) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|(_, last)| !tracker.done(*last));
    }
}

/// One channel. Freed on drop, with everything that it has in flight.
#[derive(Debug)]
pub struct Channel {
    // Fields drop in this order: the GPU stops first, then what it may have been reading goes.
    objects: Objects,
    in_flight: Vec<Option<Arc<Segment>>>,
    /// How many of them are some: prepared transfers keep theirs, and there is nothing to go through then.
    segments: usize,
    ring: Ring,
    /// Where USERD lies, if not in the ring's own memory.
    userd: Option<Ring>,
    page: Arc<Memory>,
    _contexts: Option<Contexts>,
    tracker: Arc<Tracker>,
    grave: Grave,
    /// Segments that were consumed and are not freed yet: a prepared submission frees nothing.
    spent: Vec<Arc<Segment>>,
    id: u64,
    gpfifo_at: *const AtomicU64,
    put_at: *const AtomicU32,
    /// GP_PUT in host memory may overtake what is posted to the GPU.
    read_back: bool,
    pushbuffers: Place,
    space: Arc<AddressSpace>,
    engine: Engine,
    group: Group,
    handle: u32,
    token: u32,
    entries: u32,
    bar: Bar,
    site: Site,
    rung_again: AtomicU32,
    /// Entries ever written.
    sequence: u64,
    /// Entries known to be consumed.
    consumed: u64,
    /// Who says that a quarter is consumed, at its number modulo [`MARKS`]: the submission that is its last entry but one, or a
    /// marker, its last.
    marks: [Option<Ticket>; MARKS as usize],
    /// Quarters that have a mark, and that are known to be consumed.
    marked: u64,
    known: u64,
}

impl Channel {
    /// # Errors
    /// What the driver refuses, by name; [`Error::Group`] where CUDA's group cannot be joined.
    pub fn new(space: &Arc<AddressSpace>, engine: Engine, options: ChannelOptions) -> Result<Channel, Error> {
        if !(8..=1024).contains(&options.entries) || !options.entries.is_power_of_two() {
            return Err(Error::Entries(options.entries));
        }
        let device = space.device().clone();
        if device.forked() {
            return Err(Error::Forked);
        }
        let ring = Ring::take(space, options.gpfifo)?;
        let userd = if options.userd == options.gpfifo { None } else { Some(Ring::take(space, options.userd)?) };
        let page = space.alloc_own(Place::Host, RELEASES + RELEASE_STRIDE * u64::from(options.entries))?;
        let tracker = match options.tracker {
            Place::Host => Tracker::new(page.clone(), TRACKER_SEMAPHORE),
            Place::Video => Tracker::new(space.alloc_own(Place::Video, 0x1000)?, 0),
        };
        for part in std::iter::once(&ring).chain(&userd) {
            for word in 0..RING_STRIDE / 8 {
                part.memory.word64(part.offset() + 8 * word).store(0, Ordering::Relaxed);
            }
        }
        let engine_type = match engine {
            Engine::Graphics => engine::GRAPHICS,
            Engine::Copy(n) => engine::copy(n).ok_or(Error::NoClass(class::HOPPER_DMA_COPY_A))?,
        };
        // A copy engine that is part of the graphics engine is reached by a graphics channel: its own runlist has no other.
        let graphics = match engine {
            Engine::Graphics => true,
            Engine::Copy(n) => device.engines()?.iter().any(|e| e.number == n && e.is_graphics()),
        };
        let mut objects = Objects { device: device.clone(), made: Vec::new() };
        let joined = match (options.group, graphics) {
            (Group::Own, _) => None,
            (Group::Cudas, true) => Some(space.cudas_group()?),
            (Group::Cudas, false) => return Err(Error::Group("asynchronous copy engines have groups of their own")),
        };
        let runs_on = if graphics { engine::GRAPHICS } else { engine_type };
        // Graphics channels name their VA space in the context share, as CUDA's do.
        let va_space = if graphics { 0 } else { space.handle };
        let group = match joined {
            Some(cudas) => cudas.group,
            None => {
                let mut group = ChannelGroupAlloc { va_space, engine_type: runs_on, ..Default::default() };
                objects.alloc(device.device, class::KEPLER_CHANNEL_GROUP_A, &mut group)?
            }
        };
        // Runqueue 1 for graphics: a channel on runqueue 0 beside CUDA's first has been seen to make it miss a doorbell.
        let deny = channel_flags::DENY_PHYSICAL_MODE_CE | channel_flags::DENY_AUTH_LEVEL_PRIV;
        let (share, flags) = match (graphics, joined) {
            (false, _) => (0, deny),
            (true, Some(cudas)) => (cudas.share, deny | channel_flags::RUNQUEUE_ONE),
            (true, None) => {
                let mut share =
                    ContextShareAlloc { va_space: space.handle, flags: ContextShareAlloc::ASYNC, subcontext: 0 };
                let share = objects.alloc(group, class::FERMI_CONTEXT_SHARE_A, &mut share)?;
                (share, deny | channel_flags::RUNQUEUE_ONE)
            }
        };
        let userd_ring = userd.as_ref().unwrap_or(&ring);
        let mut client = ChannelAlloc {
            error_object: page.handle(),
            gpfifo: ring.memory.va() + ring.offset(),
            entries: options.entries,
            flags,
            context_share: share,
            engine_type: runs_on,
            ..Default::default()
        };
        client.userd_memory[0] = userd_ring.memory.handle();
        client.userd_offset[0] = userd_ring.offset() + USERD_OFFSET;
        let mut params = ChannelAllocFull { client, ..Default::default() };
        let handle = objects.alloc(group, class::HOPPER_CHANNEL_GPFIFO_A, &mut params)?;
        if graphics {
            // Also where only copies are wanted: without it the channel has no context for UVM to register.
            objects.alloc_engine(handle, class::HOPPER_COMPUTE_A, &mut [])?;
        }
        if let Engine::Copy(_) = engine {
            let mut params = CopyAlloc { version: 1, engine_type };
            objects.alloc_engine(handle, class::HOPPER_DMA_COPY_A, params.as_bytes_mut())?;
        }
        let token = driver::work_submit_token(&*device.driver, device.ctl, device.client, handle)?;
        let contexts = match (graphics, joined) {
            (true, None) => Some(Contexts::reserve(space)?),
            _ => None,
        };
        // In CUDA's group the context buffers are the group's, where CUDA has put them.
        let (base, length) = match (&contexts, joined) {
            (Some(contexts), _) => (contexts.at, CONTEXT_WINDOW),
            (None, Some(cudas)) => cudas.contexts,
            (None, None) => (0, 0),
        };
        let mut register = uvm::RegisterChannel {
            uuid: device.uuid,
            ctl_fd: device.ctl,
            client: device.client,
            channel: handle,
            base,
            length,
            ..Default::default()
        };
        // SAFETY: the struct is the request's.
        unsafe {
            driver::uvm_call(&*device.driver, &device.abi, device.uvm, uvm::REGISTER_CHANNEL, &mut register)?;
        }
        driver::schedule_group(&*device.driver, &device.abi, device.ctl, device.client, group)?;
        let gpfifo_at = (ring.memory.va() + ring.offset()) as *const AtomicU64;
        let put_at =
            (userd_ring.memory.va() + userd_ring.offset() + USERD_OFFSET + userd::GP_PUT as u64) as *const AtomicU32;
        let userd_va = userd_ring.memory.va() + userd_ring.offset() + USERD_OFFSET;
        tracker.of_channel(token, userd_va, userd_ring.memory.clone());
        let tracker = Arc::new(tracker);
        space.track(&tracker);
        let posted = [options.gpfifo, options.pushbuffer].contains(&Place::Video);
        let mut channel = Channel {
            objects,
            in_flight: vec![None; options.entries as usize],
            segments: 0,
            ring,
            userd,
            page,
            _contexts: contexts,
            tracker,
            grave: Grave::default(),
            spent: Vec::with_capacity(options.entries as usize),
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            gpfifo_at,
            put_at,
            read_back: posted && options.userd == Place::Host,
            pushbuffers: options.pushbuffer,
            space: space.clone(),
            engine,
            group: options.group,
            handle,
            token,
            entries: options.entries,
            bar: options.bar,
            site: options.site,
            rung_again: AtomicU32::new(0),
            sequence: 0,
            consumed: 0,
            marks: [None; MARKS as usize],
            marked: 0,
            known: 0,
        };
        channel.bind()?;
        Ok(channel)
    }

    /// The first submission: the class on its subchannel. It is waited for, so that a channel that is given out works.
    fn bind(&mut self) -> Result<(), Error> {
        let mut words = [0; RELEASE_WORDS];
        release(&mut words, self.engine, self.tracker.va(), Ticket(0))?;
        transfer::check(&words, self)?;
        let mut first = Pushbuffer::new(&self.space, 16)?;
        match self.engine {
            Engine::Graphics => first.set_object(COMPUTE, class::HOPPER_COMPUTE_A)?,
            Engine::Copy(_) => first.set_object(COPY, class::HOPPER_DMA_COPY_A)?,
        };
        let first = first.validate(self)?;
        let ticket = self.submit(&first)?;
        self.wait(ticket, START)
    }

    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// Whose channel group it is in.
    pub fn group(&self) -> Group {
        self.group
    }

    pub fn space(&self) -> &Arc<AddressSpace> {
        &self.space
    }

    /// What a ring stores: runlist << 16 | channel number.
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

    /// GPFIFO entries ever written, those of the channel's own markers included.
    pub fn entries_written(&self) -> u64 {
        self.sequence
    }

    /// What a pushbuffer for this channel may contain.
    pub fn rules(&self) -> Rules<'_> {
        Rules {
            graphics: self.engine == Engine::Graphics,
            launches: self.space.device().is_soft(),
            space: &*self.space,
        }
    }

    /// The error that killed the channel (the notifier's Xid), if one did.
    pub fn error(&self) -> Option<u32> {
        // NvNotification: info32 @8, status in the upper half of @12.
        let status = self.page.word(12).load(Ordering::Acquire) >> 16;
        (status == 0xffff).then(|| self.page.word(8).load(Ordering::Relaxed))
    }

    /// Puts a validated pushbuffer into the ring and rings the doorbell.
    ///
    /// # Errors
    /// [`Error::RingFull`], [`Error::Stale`], [`Error::OtherChannel`], [`Error::ChannelKilled`], [`Error::Forked`]: nothing
    /// was submitted then.
    pub fn submit(&mut self, pushbuffer: &Validated) -> Result<Ticket, Error> {
        self.submit_all(&[pushbuffer])
    }

    /// Several, with one doorbell.
    pub fn submit_all(&mut self, pushbuffers: &[&Validated]) -> Result<Ticket, Error> {
        if self.space.device().forked() {
            return Err(Error::Forked);
        }
        self.spent.clear();
        // ORDERING: taken before the generation is read, see AddressSpace::unmapped.
        let ticket = self.take_ticket();
        let ready = pushbuffers.iter().try_for_each(|pushbuffer| pushbuffer.check(self));
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

    /// Room for so many entries and the markers among them.
    fn room(&mut self, entries: u64) -> Result<(), Error> {
        let needed = entries + 1 + (entries >> self.quarter().trailing_zeros());
        if self.free_entries() < needed {
            self.learn();
            if self.free_entries() < needed {
                return Err(match self.error() {
                    Some(code) => Error::ChannelKilled(code),
                    None => Error::RingFull((self.sequence - self.consumed) as u32),
                });
            }
        }
        Ok(())
    }

    /// The entry that releases the tracker when what was submitted before is done.
    fn push_release(&mut self, ticket: Ticket) {
        let offset = RELEASES + RELEASE_STRIDE * self.slot();
        let mut words = [0; RELEASE_WORDS];
        let written = release(&mut words, self.engine, self.tracker.va(), ticket);
        debug_assert_eq!(written.ok(), Some(RELEASE_WORDS));
        // The segment's last use was a whole ring ago, and the ring has room: it has been consumed.
        for (i, word) in words.iter().enumerate() {
            self.page.word(offset + 4 * i as u64).store(*word, Ordering::Relaxed);
        }
        if let Some(entry) = Entry::segment(self.page.va() + offset, RELEASE_WORDS as u32) {
            self.push(entry.encode(), None);
        }
    }

    /// An entry without a pushbuffer (control opcode NOP) and a ring: costs the GPU one fetch.
    pub fn submit_nop(&mut self) -> Result<(), Error> {
        if self.space.device().forked() {
            return Err(Error::Forked);
        }
        self.room(1)?;
        let nop = Control { opcode: Opcode::Nop, operand: 0, sync_wait: false, reserved: 0 };
        self.push(Entry::Control(nop).encode(), None);
        self.mark_quarter(None);
        self.ring();
        Ok(())
    }

    /// Where the next entry goes. Rings are powers of two, and so are their quarters: nothing is divided on the way of a
    /// submission.
    #[inline]
    fn slot(&self) -> u64 {
        self.sequence & u64::from(self.entries - 1)
    }

    #[inline]
    fn quarter(&self) -> u32 {
        self.entries / QUARTERS
    }

    /// One entry always stays free: a full ring would look empty.
    fn free_entries(&self) -> u64 {
        u64::from(self.entries) - 1 - (self.sequence - self.consumed)
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

    /// After each entry; `ticket` is the number that it releases.
    #[inline]
    fn mark_quarter(&mut self, ticket: Option<Ticket>) {
        let last = u64::from(self.quarter()) - 1;
        if self.sequence & last == last {
            self.marked += 1;
            self.marks[(self.marked % MARKS) as usize] = ticket;
            if ticket.is_none() {
                self.push_marker();
            }
        }
    }

    /// What tells this channel from all others of the process.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn tracker(&self) -> &Tracker {
        &self.tracker
    }

    pub(crate) fn pushbuffers(&self) -> Place {
        self.pushbuffers
    }

    pub(crate) fn grave(&self) -> Grave {
        self.grave.clone()
    }

    /// Frees the segments of prepared transfers that are gone and done.
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

    /// The next number, announced to who might free memory meanwhile.
    #[inline]
    pub(crate) fn take_ticket(&mut self) -> Ticket {
        let number = self.tracker.submitted.load(Ordering::Relaxed).wrapping_add(1);
        // ORDERING: sequentially consistent, see AddressSpace::unmapped.
        self.tracker.submitted.store(number, Ordering::SeqCst);
        Ticket(number)
    }

    /// A number that will not be submitted after all.
    pub(crate) fn give_back(&mut self, ticket: Ticket) {
        self.tracker.submitted.store(ticket.0.wrapping_sub(1), Ordering::SeqCst);
    }

    /// Alive, and this is the process that opened it.
    #[inline]
    pub(crate) fn usable(&self) -> Result<(), Error> {
        if self.space.device().forked() {
            return Err(Error::Forked);
        }
        self.error().map_or(Ok(()), |code| Err(Error::ChannelKilled(code)))
    }

    /// The number of the last submission.
    pub(crate) fn last_ticket(&self) -> Ticket {
        Ticket(self.tracker.submitted.load(Ordering::Relaxed))
    }

    /// Announces a number that was promised before.
    #[inline]
    pub(crate) fn announce(&mut self, ticket: Ticket) {
        // ORDERING: sequentially consistent, see AddressSpace::unmapped.
        self.tracker.submitted.store(ticket.0, Ordering::SeqCst);
    }

    /// A gate and what lies behind it.
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

    #[inline]
    pub(crate) fn push_prepared(&mut self, entry: u64, ticket: Ticket) {
        self.push(entry, None);
        self.mark_quarter(Some(ticket));
        self.ring();
    }

    /// True when the submission is done, and all before it on this channel.
    #[inline]
    pub fn done(&self, ticket: Ticket) -> bool {
        !self.space.device().forked() && self.tracker.done(ticket)
    }

    /// Spins until the submission is done.
    ///
    /// # Errors
    /// [`Error::Timeout`] after `limit`, [`Error::ChannelKilled`], [`Error::Forked`].
    pub fn wait(&self, ticket: Ticket, limit: Duration) -> Result<(), Error> {
        if self.space.device().forked() {
            return Err(Error::Forked);
        }
        self.tracker.wait(ticket, limit, || {
            let killed = self.error();
            if killed.is_none() {
                // A doorbell may be missed (seen with channels of two runqueues beside one another); one too many does no harm.
                self.rung_again.fetch_add(1, Ordering::Relaxed);
                self.ring();
            }
            killed
        })
    }

    /// How often a wait without progress has rung the doorbell again.
    pub fn rung_again(&self) -> u32 {
        self.rung_again.load(Ordering::Relaxed)
    }

    /// The GPU's nanoseconds when the last prepared transfer was done.
    pub fn timestamp(&self) -> u64 {
        self.tracker.timestamp()
    }

    /// The last entry of a quarter: a host release of the quarter's number.
    fn push_marker(&mut self) {
        let offset = MARKER_SEGMENTS + (self.marked % u64::from(QUARTERS)) * MARKER_STRIDE;
        let mut words = [0u32; MARKER_WORDS as usize];
        let mut writer = Words::new(&mut words);
        let semaphore = self.page.va() + MARKER_SEMAPHORE;
        // Six words fit, on subchannel 0.
        let written = writer.host_semaphore(0, semaphore, self.marked & 0xffff_ffff, Execute::RELEASE);
        debug_assert!(written.is_ok());
        // The segment's last use was a whole ring ago, and the ring has room: it has been consumed.
        for (i, word) in words.iter().enumerate() {
            self.page.word(offset + 4 * i as u64).store(*word, Ordering::Relaxed);
        }
        if let Some(entry) = Entry::segment(self.page.va() + offset, MARKER_WORDS) {
            self.push(entry.encode(), None);
        }
    }

    /// Asks the marks, and puts aside the segments that have been consumed. Whoever may free calls `bury` or clears them.
    fn learn(&mut self) {
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
    fn marker(&self) -> u32 {
        self.page.word(MARKER_SEMAPHORE).load(Ordering::Acquire)
    }

    #[inline]
    fn ring(&self) {
        let put = self.slot() as u32;
        // ORDERING: entries and pushbuffers, maybe through write-combining buffers, before GP_PUT; GP_PUT before the ring.
        // A locked instruction would do, too, but waits until those buffers are empty: 240 ns for a submission, not 64 (H100).
        store_fence();
        if self.read_back {
            // ORDERING: a load from BAR1 comes back after the stores posted before it; GP_PUT goes another way.
            // SAFETY: the ring's first entry.
            let _ = unsafe { (*self.gpfifo_at).load(Ordering::Acquire) };
        }
        // SAFETY: the channel's USERD, which lives as long as self.
        unsafe { (*self.put_at).store(put, Ordering::Relaxed) };
        store_fence();
        // SAFETY: the page is mapped as long as the device lives, which the address space keeps.
        unsafe { doorbell::ring(self.site, self.space.device().usermode(self.bar), self.token) };
    }

    /// GP_GET as the GPU last wrote it; slow behind BAR1, and not kept up to date under every tap.
    pub fn gp_get(&self) -> u32 {
        let ring = self.userd.as_ref().unwrap_or(&self.ring);
        let word: &AtomicU32 = ring.memory.word(ring.offset() + USERD_OFFSET + userd::GP_GET as u64);
        word.load(Ordering::Acquire)
    }
}

// SAFETY: the raw pointers lead into rings that the channel holds, and are only used through `&mut self` or atomically.
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}

impl Drop for Channel {
    fn drop(&mut self) {
        let device = self.space.device();
        if device.forked() {
            return;
        }
        let mut call =
            uvm::UnregisterChannel { uuid: device.uuid, client: device.client, channel: self.handle, status: 0 };
        if self.error().is_none() {
            self.tracker.drain(Instant::now() + STOP);
        }
        // SAFETY: the struct is the request's. What fails here is freed with the channel.
        let _ =
            unsafe { driver::uvm_call(&*device.driver, &device.abi, device.uvm, uvm::UNREGISTER_CHANNEL, &mut call) };
        // `objects` goes first: see the order of the fields.
        debug_assert!(!self.objects.made.is_empty());
    }
}

/// The words that release the tracker: how many there are.
fn release(words: &mut [u32], engine: Engine, tracker: u64, ticket: Ticket) -> Result<usize, Error> {
    let mut w = Words::new(words);
    match engine {
        Engine::Graphics => w.host_release(0, tracker, ticket.0, true)?,
        Engine::Copy(_) => w.copy_release(COPY, tracker, ticket.0, true)?,
    }
    Ok(w.len())
}

fn store_fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE2 is part of x86-64.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

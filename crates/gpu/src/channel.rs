//! A channel: a ring of GPFIFO entries that one engine consumes.
//!
//! How far the GPU has come is learnt from a semaphore of the channel's own, released by the last entry of every quarter
//! of the ring, as CUDA does it: GP_GET is never read, for it lies behind PCIe, and it may not be kept where a tap stands
//! between us and USERD.

use crate::device::{Bar, Device};
use crate::doorbell::{self, Site};
use crate::error::Error;
use crate::memory::{AddressSpace, Memory, Place};
use crate::pushbuffer::{Pushbuffer, Segment, Validated};
use crate::validate::Rules;
use pushbuf::encode::Words;
use pushbuf::gpfifo::{Control, Entry, Opcode};
use pushbuf::semaphore::Execute;
use pushbuf::userd;
use rm::abi::{ChannelAlloc, ChannelAllocFull, ChannelGroupAlloc, ContextShareAlloc, CopyAlloc, channel_flags, uvm};
use rm::class::{self, engine};
use rm::driver;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

/// What executes the methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Copy engine n.
    Copy(u32),
    /// Compute and inline-to-memory.
    Graphics,
}

/// How a channel is made. The default is what CUDA does.
#[derive(Clone, Copy, Debug)]
pub struct ChannelOptions {
    /// GPFIFO entries: a power of two from 8 to 1024.
    pub entries: u32,
    /// Where GPFIFO and USERD lie.
    pub ring: Place,
    pub bar: Bar,
    pub site: Site,
}

impl Default for ChannelOptions {
    fn default() -> Self {
        ChannelOptions { entries: 1024, ring: Place::Video, bar: Bar::default(), site: Site::default() }
    }
}

/// Bytes between rings: 1024 entries, then a page with USERD.
const RING_STRIDE: u64 = 0x3000;
const USERD_OFFSET: u64 = 0x2000;
const BLOCK: u64 = 2 << 20;
const RINGS: usize = (BLOCK / RING_STRIDE) as usize;
/// GPU addresses for the context buffers of a graphics channel, well above the memory.
const CONTEXTS: u64 = 0x40_0000_0000;
const CONTEXT_WINDOW: u64 = 64 << 20;
/// Parts of a ring, each ended by a marker.
const QUARTERS: u32 = 4;
/// Words of a marker: a host semaphore release.
const MARKER_WORDS: u32 = 6;
const MARKER_STRIDE: u64 = 64;
/// In the channel's own page: error notifier @0, marker semaphore, marker segments.
const MARKER_SEMAPHORE: u64 = 0x100;
const MARKER_SEGMENTS: u64 = 0x200;

/// 2 MiB of video or host memory that holds the rings of many channels; it lives as long as one of them.
#[derive(Debug)]
pub(crate) struct RingBlock {
    place: Place,
    memory: Weak<Memory>,
    used: Vec<bool>,
}

/// A ring's place in its block.
#[derive(Debug)]
struct Ring {
    memory: Arc<Memory>,
    index: usize,
}

impl Ring {
    fn take(space: &Arc<AddressSpace>, place: Place) -> Result<Ring, Error> {
        let mut blocks = space.rings();
        blocks.retain(|block| block.memory.strong_count() > 0);
        if let Some(block) = blocks.iter_mut().find(|block| block.place == place)
            && let Some(memory) = block.memory.upgrade()
        {
            let index = block.used.iter().position(|used| !used).ok_or(Error::TooManyChannels(RINGS))?;
            block.used[index] = true;
            return Ok(Ring { memory, index });
        }
        let memory = space.alloc_own(place, BLOCK)?;
        let mut used = vec![false; RINGS];
        used[0] = true;
        blocks.push(RingBlock { place, memory: Arc::downgrade(&memory), used });
        Ok(Ring { memory, index: 0 })
    }

    fn offset(&self) -> u64 {
        self.index as u64 * RING_STRIDE
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let mut blocks = self.memory.space().rings();
        let ours = |block: &&mut RingBlock| block.memory.as_ptr() == Arc::as_ptr(&self.memory);
        if let Some(block) = blocks.iter_mut().find(ours) {
            block.used[self.index] = false;
        }
    }
}

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

    fn alloc_plain(&mut self, parent: u32, class: u32) -> Result<u32, Error> {
        let device = &self.device;
        let handle = driver::alloc_bytes(&*device.driver, device.ctl, device.client, parent, 0, class, &mut [])?;
        self.made.push((parent, handle));
        Ok(handle)
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
struct Window {
    space: Arc<AddressSpace>,
    at: u64,
}

impl Drop for Window {
    fn drop(&mut self) {
        self.space.unreserve(self.at);
    }
}

/// One channel. Freed on drop, with everything that it has in flight.
#[derive(Debug)]
pub struct Channel {
    // Fields drop in this order: the GPU stops first, then what it may have been reading goes.
    objects: Objects,
    in_flight: Vec<Option<Arc<Segment>>>,
    ring: Ring,
    page: Arc<Memory>,
    _window: Option<Window>,
    space: Arc<AddressSpace>,
    engine: Engine,
    handle: u32,
    token: u32,
    entries: u32,
    bar: Bar,
    site: Site,
    /// Entries ever written.
    sequence: u64,
    /// Entries known to be consumed.
    consumed: u64,
}

impl Channel {
    /// A channel of its own group, as CUDA makes them.
    pub fn new(space: &Arc<AddressSpace>, engine: Engine, options: ChannelOptions) -> Result<Channel, Error> {
        if !(8..=1024).contains(&options.entries) || !options.entries.is_power_of_two() {
            return Err(Error::Entries(options.entries));
        }
        let device = space.device().clone();
        let ring = Ring::take(space, options.ring)?;
        let page = space.alloc_own(Place::Host, 0x1000)?;
        for word in 0..u64::from(RING_STRIDE as u32) / 8 {
            ring.memory.word64(ring.offset() + 8 * word).store(0, Ordering::Relaxed);
        }
        let engine_type = match engine {
            Engine::Graphics => engine::GRAPHICS,
            Engine::Copy(n) => engine::copy(n).ok_or(Error::NoClass(class::HOPPER_DMA_COPY_A))?,
        };
        let mut objects = Objects { device: device.clone(), made: Vec::new() };
        let mut group = ChannelGroupAlloc { va_space: space.handle, engine_type, ..Default::default() };
        let group = objects.alloc(device.device, class::KEPLER_CHANNEL_GROUP_A, &mut group)?;
        // Runqueue 1 for graphics: a channel on runqueue 0 beside CUDA's first has been seen to make it miss a doorbell.
        let deny = channel_flags::DENY_PHYSICAL_MODE_CE | channel_flags::DENY_AUTH_LEVEL_PRIV;
        let (share, flags) = match engine {
            Engine::Graphics => {
                let mut share =
                    ContextShareAlloc { va_space: space.handle, flags: ContextShareAlloc::ASYNC, subcontext: 0 };
                let share = objects.alloc(group, class::FERMI_CONTEXT_SHARE_A, &mut share)?;
                (share, deny | channel_flags::RUNQUEUE_ONE)
            }
            Engine::Copy(_) => (0, deny),
        };
        let mut client = ChannelAlloc {
            error_object: page.handle(),
            gpfifo: ring.memory.va() + ring.offset(),
            entries: options.entries,
            flags,
            context_share: share,
            engine_type,
            ..Default::default()
        };
        client.userd_memory[0] = ring.memory.handle();
        client.userd_offset[0] = ring.offset() + USERD_OFFSET;
        let mut params = ChannelAllocFull { client, ..Default::default() };
        let handle = objects.alloc(group, class::HOPPER_CHANNEL_GPFIFO_A, &mut params)?;
        match engine {
            Engine::Graphics => objects.alloc_plain(handle, class::HOPPER_COMPUTE_A)?,
            Engine::Copy(_) => {
                objects.alloc(handle, class::HOPPER_DMA_COPY_A, &mut CopyAlloc { version: 1, engine_type })?
            }
        };
        let token = driver::work_submit_token(&*device.driver, device.ctl, device.client, handle)?;
        let window = match engine {
            Engine::Graphics => Some(Window { space: space.clone(), at: space.reserve(CONTEXT_WINDOW, CONTEXTS)? }),
            Engine::Copy(_) => None,
        };
        let mut register = uvm::RegisterChannel {
            uuid: device.uuid,
            ctl_fd: device.ctl,
            client: device.client,
            channel: handle,
            base: window.as_ref().map_or(0, |w| w.at),
            length: if window.is_some() { CONTEXT_WINDOW } else { 0 },
            ..Default::default()
        };
        // SAFETY: the struct is the request's.
        unsafe {
            driver::uvm_call(&*device.driver, &device.abi, device.uvm, uvm::REGISTER_CHANNEL, &mut register)?;
        }
        driver::schedule_group(&*device.driver, &device.abi, device.ctl, device.client, group)?;
        let mut channel = Channel {
            objects,
            in_flight: vec![None; options.entries as usize],
            ring,
            page,
            _window: window,
            space: space.clone(),
            engine,
            handle,
            token,
            entries: options.entries,
            bar: options.bar,
            site: options.site,
            sequence: 0,
            consumed: 0,
        };
        channel.bind()?;
        Ok(channel)
    }

    /// The first submission: the class on its subchannel.
    fn bind(&mut self) -> Result<(), Error> {
        let mut first = Pushbuffer::new(&self.space, 16)?;
        match self.engine {
            Engine::Graphics => first.set_object(1, class::HOPPER_COMPUTE_A)?,
            Engine::Copy(_) => first.set_object(4, class::HOPPER_DMA_COPY_A)?,
        };
        let first = first.validate(self)?;
        self.submit(&first)
    }

    pub fn engine(&self) -> Engine {
        self.engine
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
    pub fn submit(&mut self, pushbuffer: &Validated) -> Result<(), Error> {
        self.submit_all(&[pushbuffer])
    }

    /// Several, with one doorbell.
    pub fn submit_all(&mut self, pushbuffers: &[&Validated]) -> Result<(), Error> {
        for pushbuffer in pushbuffers {
            pushbuffer.check(self)?;
        }
        // One marker may come between any two.
        let needed = pushbuffers.len() as u64 + 1 + pushbuffers.len() as u64 / u64::from(self.quarter());
        if self.free_entries() < needed {
            self.learn();
            if self.free_entries() < needed {
                return match self.error() {
                    Some(code) => Err(Error::ChannelKilled(code)),
                    None => Err(Error::RingFull((self.sequence - self.consumed) as u32)),
                };
            }
        }
        for pushbuffer in pushbuffers {
            self.push(pushbuffer.entry(), Some(pushbuffer.segment()));
            if self.sequence % u64::from(self.quarter()) == u64::from(self.quarter()) - 1 {
                self.mark();
            }
        }
        self.ring();
        Ok(())
    }

    /// An entry without a pushbuffer (control opcode NOP) and a ring: costs the GPU one fetch.
    pub fn submit_nop(&mut self) -> Result<(), Error> {
        if self.free_entries() < 2 {
            self.learn();
            if self.free_entries() < 2 {
                return Err(Error::RingFull((self.sequence - self.consumed) as u32));
            }
        }
        let nop = Control { opcode: Opcode::Nop, operand: 0, sync_wait: false, reserved: 0 };
        self.push(Entry::Control(nop), None);
        if self.sequence % u64::from(self.quarter()) == u64::from(self.quarter()) - 1 {
            self.mark();
        }
        self.ring();
        Ok(())
    }

    fn quarter(&self) -> u32 {
        self.entries / QUARTERS
    }

    /// One entry always stays free: a full ring would look empty.
    fn free_entries(&self) -> u64 {
        u64::from(self.entries) - 1 - (self.sequence - self.consumed)
    }

    fn push(&mut self, entry: Entry, segment: Option<&Arc<Segment>>) {
        let slot = self.sequence % u64::from(self.entries);
        self.ring.memory.word64(self.ring.offset() + 8 * slot).store(entry.encode(), Ordering::Relaxed);
        self.in_flight[slot as usize] = segment.cloned();
        self.sequence += 1;
    }

    /// The last entry of a quarter: a host release of the number of quarters done.
    fn mark(&mut self) {
        let quarters = (self.sequence + 1) / u64::from(self.quarter());
        let offset = MARKER_SEGMENTS + (quarters % u64::from(QUARTERS)) * MARKER_STRIDE;
        let mut words = [0u32; MARKER_WORDS as usize];
        let mut writer = Words::new(&mut words);
        let semaphore = self.page.va() + MARKER_SEMAPHORE;
        // Six words fit, on subchannel 0.
        let written = writer.host_semaphore(0, semaphore, quarters & 0xffff_ffff, Execute::RELEASE);
        debug_assert!(written.is_ok());
        // The segment's last use was a whole ring ago, and the ring has room: it has been consumed.
        for (i, word) in words.iter().enumerate() {
            self.page.word(offset + 4 * i as u64).store(*word, Ordering::Relaxed);
        }
        if let Some(entry) = Entry::segment(self.page.va() + offset, MARKER_WORDS) {
            self.push(entry, None);
        }
    }

    /// Reads the marker semaphore, and lets go of segments that have been consumed.
    fn learn(&mut self) {
        let low = self.page.word(MARKER_SEMAPHORE).load(Ordering::Acquire);
        let quarter = u64::from(self.quarter());
        let known = self.consumed / quarter;
        let quarters = known + u64::from(low.wrapping_sub(known as u32));
        let consumed = (quarters * quarter).min(self.sequence);
        for sequence in self.consumed..consumed {
            self.in_flight[(sequence % u64::from(self.entries)) as usize] = None;
        }
        self.consumed = consumed.max(self.consumed);
    }

    fn ring(&self) {
        let put = (self.sequence % u64::from(self.entries)) as u32;
        // ORDERING: entries and pushbuffers, maybe through write-combining buffers, before GP_PUT; GP_PUT before the ring.
        store_fence();
        let at = self.ring.offset() + USERD_OFFSET + userd::GP_PUT as u64;
        self.ring.memory.word(at).store(put, Ordering::Relaxed);
        store_fence();
        // SAFETY: the page is mapped as long as the device lives, which the address space keeps.
        unsafe { doorbell::ring(self.site, self.space.device().usermode(self.bar), self.token) };
    }

    /// GP_GET as the GPU last wrote it; slow behind BAR1, and not kept up to date under every tap.
    pub fn gp_get(&self) -> u32 {
        let word: &AtomicU32 = self.ring.memory.word(self.ring.offset() + USERD_OFFSET + userd::GP_GET as u64);
        word.load(Ordering::Acquire)
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        let device = self.space.device();
        let mut call =
            uvm::UnregisterChannel { uuid: device.uuid, client: device.client, channel: self.handle, status: 0 };
        // SAFETY: the struct is the request's. What fails here is freed with the channel.
        let _ =
            unsafe { driver::uvm_call(&*device.driver, &device.abi, device.uvm, uvm::UNREGISTER_CHANNEL, &mut call) };
        // `objects` goes first: see the order of the fields.
        debug_assert!(!self.objects.made.is_empty());
    }
}

fn store_fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE2 is part of x86-64.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

//! How a channel is made.

use super::objects::{CONTEXT_WINDOW, Contexts, Making};
use super::*;
use crate::architecture::Architecture;
use crate::ring::{RING_STRIDE, Ring};
use crate::tracker::Tracker;
use rm::abi::{
    ChannelAlloc, ChannelAllocFull, ChannelGroupAlloc, ContextShareAlloc, CopyAlloc, Plain, channel_flags, uvm,
};
use rm::class::{self, engine};
use rm::driver;

/// How long a new channel's first submission may take.
const START: Duration = Duration::from_secs(2);
/// How many channels can be waited for before a wait allocates.
const AWAITED: usize = 256;
/// Identifies channels.
static NEXT_ID: AtomicU64 = AtomicU64::new(0);

impl Channel {
    /// # Errors
    /// The driver's error, by name; [`Error::Group`] if CUDA's group cannot be joined.
    pub fn new(space: &Arc<AddressSpace>, engine: Engine, options: ChannelOptions) -> Result<Channel, Error> {
        if !(8..=1024).contains(&options.entries) || !options.entries.is_power_of_two() {
            return Err(Error::Entries(options.entries));
        }
        let device = space.device().clone();
        if device.forked() {
            return Err(Error::Forked);
        }
        let architecture = device.architecture();
        let ring = Ring::take(space, options.gpfifo)?;
        let userd = if options.userd == options.gpfifo { None } else { Some(Ring::take(space, options.userd)?) };
        let page = space.alloc_own(Place::Host, RELEASES + RELEASE_STRIDE * u64::from(options.entries))?;
        let tracker = match options.tracker {
            Place::Host => (page.va() + TRACKER_SEMAPHORE, page.clone()),
            Place::Video => {
                let memory = space.alloc_own(Place::Video, 0x1000)?;
                (memory.va(), memory)
            }
        };
        // SAFETY: in a page that the memory keeps mapped.
        let tracker = unsafe { Tracker::new(tracker.0, tracker.1) };
        for part in std::iter::once(&ring).chain(&userd) {
            for word in 0..RING_STRIDE / 8 {
                part.memory.word64(part.offset() + 8 * word).store(0, Ordering::Relaxed);
            }
        }
        let engine_type = match engine {
            Engine::Graphics => engine::GRAPHICS,
            Engine::Copy(n) => engine::copy(n).ok_or(Error::NoClass(architecture.copy))?,
        };
        // A copy engine that is part of the graphics engine is reached by a graphics channel: its runlist takes no other.
        let graphics = match engine {
            Engine::Graphics => true,
            Engine::Copy(n) => device.engines()?.iter().any(|e| e.number == n && e.is_graphics()),
        };
        let mut objects = Making::new(&device);
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
        // Runqueue 1 for graphics: a channel on runqueue 0 next to CUDA's first was seen to make CUDA's miss a doorbell.
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
        let shape = &device.abi.branch().layouts.channel_alloc;
        let handle = objects.alloc_shaped(group, architecture.channel, shape, &mut params)?;
        if graphics {
            // Also if only copies are needed: without it the channel has no context for UVM to register.
            objects.alloc_engine(handle, architecture.compute, &mut [])?;
        }
        let copies = engine == Engine::Graphics && options.copies;
        let copier = match engine {
            Engine::Copy(_) => Some(engine_type),
            // The one that shares the graphics engine's runlist.
            Engine::Graphics if copies => {
                let shares = device.engines()?.iter().find(|e| e.is_graphics()).and_then(|e| engine::copy(e.number));
                Some(shares.ok_or(Error::NoClass(architecture.copy))?)
            }
            Engine::Graphics => None,
        };
        if let Some(engine_type) = copier {
            let mut params = CopyAlloc { version: 1, engine_type };
            objects.alloc_engine(handle, architecture.copy, params.as_bytes_mut())?;
        }
        let token = driver::work_submit_token(&*device.driver, device.ctl, device.client, handle)?;
        let contexts = match (graphics, joined) {
            (true, None) => Some(Contexts::reserve(space)?),
            _ => None,
        };
        // In CUDA's group the context buffers are the group's, at CUDA's addresses.
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
        // SAFETY: the struct belongs to this request.
        unsafe {
            driver::uvm_call(&*device.driver, &device.abi, device.uvm, uvm::REGISTER_CHANNEL, &mut register)?;
        }
        // Entries or words in GPU memory: the GPU must not see GP_PUT before them.
        let posted = [options.gpfifo, options.pushbuffer].contains(&Place::Video);
        let flush = match (posted && options.userd == Place::Host, options.gpfifo) {
            (false, _) => None,
            (true, Place::Video) => Some(Flush(ring.memory.clone())),
            (true, Place::Host) => Some(Flush(space.alloc_own(Place::Video, RELEASES)?)),
        };
        driver::schedule_group(&*device.driver, &device.abi, device.ctl, device.client, group)?;
        let gpfifo_at = (ring.memory.va() + ring.offset()) as *const AtomicU64;
        let put_at =
            (userd_ring.memory.va() + userd_ring.offset() + USERD_OFFSET + userd::GP_PUT as u64) as *const AtomicU32;
        let userd_va = userd_ring.memory.va() + userd_ring.offset() + USERD_OFFSET;
        let objects = objects.finish(handle);
        tracker.of_channel(token, &page, (userd_va, userd_ring.memory.clone()), objects.clone());
        let tracker = Arc::new(tracker);
        space.track(&tracker);
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
            awaited: Vec::with_capacity(AWAITED),
            spent: Vec::with_capacity(options.entries as usize),
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            gpfifo_at,
            put_at,
            flush,
            pushbuffers: options.pushbuffer,
            space: space.clone(),
            engine,
            group: options.group,
            copies,
            granted: Vec::new(),
            used_for: None,
            handle,
            token,
            entries: options.entries,
            bar: options.bar,
            site: options.site,
            rung_again: AtomicU32::new(0),
            owes: false,
            stuck_since: AtomicU64::new(0),
            stuck_at: AtomicU64::new(0),
            sequence: 0,
            consumed: 0,
            marks: [None; MARKS as usize],
            marked: 0,
            known: 0,
        };
        channel.bind()?;
        Ok(channel)
    }

    /// The first submission: binds the class to its subchannel. Waits for it, so that a channel works before it is returned.
    fn bind(&mut self) -> Result<(), Error> {
        let mut words = [0; layout::SEMAPHORE];
        release(&mut words, self.engine, self.tracker.va(), Ticket(0))?;
        self.check_words(&words, None)?;
        let Architecture { compute, copy, .. } = *self.space.device().architecture();
        let mut first = Pushbuffer::new(&self.space, 16)?;
        match self.engine {
            Engine::Graphics if self.copies => first.set_object(COMPUTE, compute)?.set_object(COPY, copy)?,
            Engine::Graphics => first.set_object(COMPUTE, compute)?,
            Engine::Copy(_) => first.set_object(COPY, copy)?,
        };
        let first = first.validate(self)?;
        let ticket = self.submit(&first)?;
        self.wait(ticket, START)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;
    use doorbell_softgpu::{Mode, SoftDriver};

    #[test]
    fn before_gp_put_in_host_memory_a_load_from_video_memory_waits_for_what_is_posted_there() {
        let device = Device::open(Arc::new(SoftDriver::new(Mode::Strict)), 0).unwrap();
        let space = AddressSpace::new(&device).unwrap();
        let places = [Place::Video, Place::Host];
        let all = places.iter().flat_map(|a| places.iter().flat_map(|b| places.map(|c| (*a, *b, c))));
        for (gpfifo, userd, pushbuffer) in all {
            let options = ChannelOptions { entries: 16, gpfifo, userd, pushbuffer, ..Default::default() };
            let channel = Channel::new(&space, Engine::Copy(2), options).unwrap();
            let needed = userd == Place::Host && [gpfifo, pushbuffer].contains(&Place::Video);
            let place = channel.flush.as_ref().map(|flush| flush.0.place());
            assert_eq!(place, needed.then_some(Place::Video), "{options:?}");
        }
    }
}

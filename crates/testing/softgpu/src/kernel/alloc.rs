//! RM_ALLOC, RM_ALLOC_MEMORY, RM_DUP_OBJECT and RM_FREE.

use super::objects::{Client, Group, Kind, Object};
use super::{File, Machine, Node};
use crate::doorbell::USERD_SIZE;
use crate::engine::{Channel, Engine, Pbdma};
use crate::memory::{Memory, PAGE, Place};
use crate::space::AddressSpace;
use crate::status::{self, Outcome};
use rm::abi::{
    ChannelAllocFull, ChannelGroupAlloc, ContextShareAlloc, CopyAlloc, DeviceAlloc, MemoryAlloc, Nvos00, Nvos02Fd,
    Nvos21, Nvos55, Nvos64, Plain, Shape, SubdeviceAlloc, UsermodeAlloc, channel_flags, notifier,
};
use rm::class;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};

/// An H100's memory.
const VIDEO_MEMORY: u64 = 80 << 30;
/// The fewest slots of NvNotification in an error notifier, 16 bytes each.
const NOTIFIER_SIZE: u64 = 16 * notifier::SLOTS as u64;

/// The two forms of RM_ALLOC, in one.
struct Request {
    root: u32,
    parent: u32,
    handle: u32,
    class: u32,
    params: u64,
    size: u32,
}

impl Request {
    /// The class's parameters. A size other than the class's is refused; 0 means "the class's".
    fn params<T: Plain>(&self) -> Outcome<T> {
        self.optional()?.ok_or(status::INVALID_ARGUMENT)
    }

    fn optional<T: Plain>(&self) -> Outcome<Option<T>> {
        if self.params == 0 {
            return Ok(None);
        }
        if self.size != 0 && self.size as usize != size_of::<T>() {
            return Err(status::INVALID_PARAM_STRUCT);
        }
        // SAFETY: the caller of the ioctl promises that params points to the class's struct; its size was compared.
        Ok(Some(unsafe { (self.params as *const T).read_unaligned() }))
    }

    /// The same for a struct of the driver's branch: `change` sees it, and may write to it.
    fn with_shape<T: Plain, R>(&self, shape: &Shape<T>, change: impl FnOnce(&mut T) -> Outcome<R>) -> Outcome<R> {
        if self.params == 0 {
            return Err(status::INVALID_ARGUMENT);
        }
        if self.size != 0 && self.size as usize != shape.size() {
            return Err(status::INVALID_PARAM_STRUCT);
        }
        // SAFETY: the caller of the ioctl promises that params points to the class's struct; its size was compared.
        unsafe { super::with_shape(self.params as *mut u8, shape, change) }
    }

    fn write_back<T: Plain>(&self, value: T) {
        // SAFETY: as in `optional`, which has succeeded for this type.
        unsafe { (self.params as *mut T).write_unaligned(value) };
    }
}

impl Machine {
    pub(super) fn alloc21(&self, file: &File, call: &mut Nvos21) -> i32 {
        let Nvos21 { root, parent, new: handle, class, params, params_size: size, .. } = *call;
        call.status =
            status::of(self.alloc(file, &Request { root, parent, handle, class, params, size }).map(|handle| {
                call.new = handle;
                if class::is_root(class) {
                    call.root = handle;
                }
            }));
        0
    }

    pub(super) fn alloc64(&self, file: &File, call: &mut Nvos64) -> i32 {
        let Nvos64 { root, parent, new: handle, class, params, params_size: size, .. } = *call;
        call.status =
            status::of(self.alloc(file, &Request { root, parent, handle, class, params, size }).map(|handle| {
                call.new = handle;
                if class::is_root(class) {
                    call.root = handle;
                }
            }));
        0
    }

    fn alloc(&self, file: &File, request: &Request) -> Outcome<u32> {
        // Parameters are copied in before anything else is checked.
        let layouts = &self.branch.layouts;
        let copied = match request.class {
            class if is_channel(class) => layouts.channel_alloc.size(),
            class::NV01_MEMORY_LOCAL_USER | class::NV01_MEMORY_SYSTEM => layouts.memory_alloc.size(),
            class::FERMI_VASPACE_A => layouts.vaspace_alloc.size(),
            _ => 0,
        };
        if request.params != 0 && !crate::sys::readable(request.params as usize, copied) {
            return Err(status::INVALID_ADDRESS);
        }
        let caller = Self::control_of(file);
        let mut objects = poison::ignore(self.objects.lock());
        if class::is_root(request.class) {
            let handle = objects.new_client_handle(request.handle)?;
            objects.clients.insert(handle, Client { owner: caller, objects: Default::default() });
            return Ok(handle);
        }
        objects.client(request.root, caller)?;
        let parent = match request.parent {
            parent if parent == request.root => None,
            parent => Some(objects.object(request.root, parent).map_err(|_| status::INVALID_OBJECT_PARENT)?.clone()),
        };
        let kind = match (request.class, parent.map(|p| p.kind)) {
            (class::NV01_DEVICE_0, None) => self.device(request)?,
            (class::NV_CONFIDENTIAL_COMPUTE, None) => {
                if request.params::<u32>()? != request.root {
                    return Err(status::INVALID_ARGUMENT);
                }
                Kind::Confidential
            }
            (class::AMPERE_SMC_PARTITION_REF, Some(Kind::Subdevice)) if self.runlists.plot.is_divided() => Kind::Part,
            (class::NV20_SUBDEVICE_0, Some(Kind::Device)) => {
                if request.optional::<SubdeviceAlloc>()?.is_some_and(|p| p.subdevice_id != 0) {
                    return Err(status::INVALID_ARGUMENT);
                }
                Kind::Subdevice
            }
            (class::NV01_MEMORY_LOCAL_USER | class::NV01_MEMORY_SYSTEM, Some(Kind::Device | Kind::Subdevice)) => {
                let place = if request.class == class::NV01_MEMORY_SYSTEM { Place::System } else { Place::Video };
                self.memory(request, place, &mut objects.video_used)?
            }
            (
                class::VOLTA_USERMODE_A
                | class::TURING_USERMODE_A
                | class::AMPERE_USERMODE_A
                | class::HOPPER_USERMODE_A,
                Some(Kind::Subdevice),
            ) => {
                request.optional::<UsermodeAlloc>()?;
                Kind::Usermode
            }
            (class::FERMI_VASPACE_A, Some(Kind::Device)) => {
                request.with_shape(&self.branch.layouts.vaspace_alloc, |_| Ok(()))?;
                Kind::Space(Arc::new(AddressSpace::default()))
            }
            (class::KEPLER_CHANNEL_GROUP_A, Some(Kind::Device)) => {
                let params: ChannelGroupAlloc = request.params()?;
                let engine = Engine::of_type(params.engine_type).ok_or(status::INVALID_ARGUMENT)?;
                let space = match params.va_space {
                    0 => None,
                    handle => Some(objects.space(request.root, handle)?),
                };
                Kind::Group(new_group(engine, space))
            }
            (class::FERMI_CONTEXT_SHARE_A, Some(Kind::Group(group))) => {
                let mut params: ContextShareAlloc = request.params()?;
                let space = objects.space(request.root, params.va_space)?;
                // An externally owned VA space has a page directory only once UVM has registered it.
                if !space.registered() || group.engine != Engine::Graphics {
                    return Err(status::INVALID_STATE);
                }
                params.subcontext = 1;
                request.write_back(params);
                Kind::ContextShare(space)
            }
            (class, Some(parent)) if is_channel(class) => {
                let shape = &self.branch.layouts.channel_alloc;
                let (channel, group) =
                    request.with_shape(shape, |params| self.channel(request, params, &parent, &objects))?;
                let index = objects.channels_created;
                objects.channels_created += 1;
                let counters = self.counters.channel(index);
                let work = Box::new(Pbdma::default());
                let channel = Channel::new(channel, self.bell, counters, work).ok_or(status::INSUFFICIENT_RESOURCES)?;
                crate::counters::add(&self.counters.channels_created, 1);
                let channel = Arc::new(channel);
                poison::ignore(group.channels.lock()).push(Arc::downgrade(&channel));
                Kind::Channel { channel, group }
            }
            (class, Some(Kind::Channel { channel, .. })) => engine_object(request, class, &channel)?,
            (class, _) if is_known(class) => return Err(status::INVALID_OBJECT_PARENT),
            _ => return Err(status::INVALID_CLASS),
        };
        let object = Object { parent: request.parent, kind };
        let undo = object.kind.clone();
        objects.insert(request.root, request.handle, object).inspect_err(|_| self.release(&undo))
    }

    fn device(&self, request: &Request) -> Outcome<Kind> {
        match request.optional::<DeviceAlloc>()? {
            Some(params) if params.device_id != 0 => Err(status::INVALID_DEVICE),
            _ => Ok(Kind::Device),
        }
    }

    fn memory(&self, request: &Request, place: Place, used: &mut u64) -> Outcome<Kind> {
        request.with_shape(&self.branch.layouts.memory_alloc, |params| self.sized_memory(params, place, used))
    }

    fn sized_memory(&self, params: &mut MemoryAlloc, place: Place, used: &mut u64) -> Outcome<Kind> {
        if place == Place::Video {
            let total =
                used.checked_add(params.size).filter(|&total| total <= VIDEO_MEMORY).ok_or(status::NO_MEMORY)?;
            *used = total;
        }
        let memory = match &self.video {
            Some(pool) if place == Place::Video => Memory::of_pool(pool, params.size)?,
            _ => Memory::new(place, params.size)?,
        };
        params.size = memory.size;
        params.limit = memory.size - 1;
        Ok(Kind::Memory(Arc::new(memory)))
    }

    /// Checks the parameters of a channel (`kernel_channel.c`).
    fn channel(
        &self,
        request: &Request,
        full: &ChannelAllocFull,
        parent: &Kind,
        objects: &super::objects::Objects,
    ) -> Outcome<(crate::engine::Setup, Arc<Group>)> {
        let params = &full.client;
        if params.context_share != 0 && params.va_space != 0 {
            return Err(status::INVALID_ARGUMENT);
        }
        let share = match params.context_share {
            0 => None,
            handle => match &objects.object(request.root, handle)?.kind {
                Kind::ContextShare(space) => Some(space.clone()),
                _ => return Err(status::INVALID_OBJECT_HANDLE),
            },
        };
        let (group, space) = match parent {
            Kind::Group(group) => {
                // A channel in a group must not name a VA space.
                if params.va_space != 0 {
                    return Err(status::INVALID_ARGUMENT);
                }
                (group.clone(), share.or_else(|| group.space.clone()))
            }
            Kind::Device => {
                let engine = Engine::of_type(params.engine_type).ok_or(status::INVALID_ARGUMENT)?;
                let space = match params.va_space {
                    0 => None,
                    handle => Some(objects.space(request.root, handle)?),
                };
                (new_group(engine, space.clone()), space)
            }
            _ => return Err(status::INVALID_OBJECT_PARENT),
        };
        let space = space.ok_or(status::INVALID_STATE)?;
        if group.engine == Engine::Graphics && params.context_share == 0 {
            return Err(status::INVALID_ARGUMENT);
        }
        let userd = objects.memory(request.root, params.userd_memory[0]).map_err(|_| status::INVALID_OBJECT_HANDLE)?;
        let userd_offset = params.userd_offset[0];
        let fits = userd_offset.checked_add(USERD_SIZE).is_some_and(|end| end <= userd.size);
        if !fits || !userd_offset.is_multiple_of(USERD_SIZE) || userd.place == Place::User || params.entries < 2 {
            return Err(status::INVALID_ARGUMENT);
        }
        let notifier = match params.error_object {
            0 => None,
            handle => {
                let memory = objects.memory(request.root, handle)?;
                Some(memory).filter(|m| m.size >= NOTIFIER_SIZE).ok_or(status::INVALID_LIMIT).map(Some)?
            }
        };
        let setup = crate::engine::Setup {
            class: request.class,
            engine: group.engine,
            gpfifo: params.gpfifo,
            entries: params.entries,
            deny_physical: params.flags & channel_flags::DENY_PHYSICAL_MODE_CE != 0,
            space,
            userd,
            userd_offset,
            notifier,
        };
        Ok((setup, group))
    }

    /// RM_ALLOC_MEMORY: pages of the program become a memory object (class 0x71), on the nvidia0 file.
    pub(super) fn alloc_memory(&self, file: &File, call: &mut Nvos02Fd) -> i32 {
        let mut attempt = || {
            if call.class != class::NV01_MEMORY_SYSTEM_OS_DESCRIPTOR {
                return Err(status::INVALID_CLASS);
            }
            if file.node != Node::Gpu {
                return Err(status::INVALID_ARGUMENT);
            }
            let size = call.limit.checked_add(1).ok_or(status::INVALID_LIMIT)?;
            if !call.memory.is_multiple_of(PAGE) || call.memory == 0 || call.memory.checked_add(size).is_none() {
                return Err(status::INVALID_ADDRESS);
            }
            let mut objects = poison::ignore(self.objects.lock());
            objects.client(call.root, Self::control_of(file))?;
            objects.object(call.root, call.parent).map_err(|_| status::INVALID_OBJECT_PARENT)?;
            let kind = Kind::Memory(Arc::new(Memory::of_program(call.memory, size)));
            call.new = objects.insert(call.root, call.new, Object { parent: call.parent, kind })?;
            Ok(())
        };
        let outcome = attempt();
        call.status = status::of(outcome);
        0
    }

    /// RM_DUP_OBJECT: within one process every client may take from every other.
    pub(super) fn dup_object(&self, file: &File, call: &mut Nvos55) -> i32 {
        let mut attempt = || {
            let mut objects = poison::ignore(self.objects.lock());
            objects.client(call.client, Self::control_of(file))?;
            if call.parent != call.client {
                objects.object(call.client, call.parent).map_err(|_| status::INVALID_OBJECT_PARENT)?;
            }
            let source = objects.object(call.client_src, call.object_src)?.clone();
            if !matches!(source.kind, Kind::Memory(_) | Kind::Space(_)) {
                return Err(status::INVALID_ARGUMENT);
            }
            call.object = objects.insert(call.client, call.object, Object { parent: call.parent, ..source })?;
            Ok(())
        };
        let outcome = attempt();
        call.status = status::of(outcome);
        0
    }

    /// RM_FREE: an object and everything below it, or a whole client.
    pub(super) fn free(&self, file: &File, call: &mut Nvos00) -> i32 {
        call.status = status::of(self.free_object(Self::control_of(file), call.root, call.old));
        0
    }

    fn free_object(&self, caller: u64, client: u32, handle: u32) -> Outcome {
        let mut objects = poison::ignore(self.objects.lock());
        objects.client(client, caller)?;
        if handle == client {
            let gone = objects.clients.remove(&client);
            drop(objects);
            poison::ignore(self.bar1.lock()).forget_client(client);
            gone.iter().flat_map(|client| client.objects.values()).for_each(|object| self.release(&object.kind));
            return Ok(());
        }
        objects.object(client, handle)?;
        for handle in objects.subtree(client, handle) {
            let gone = objects.client(client, caller)?.objects.remove(&handle);
            if let Some(object) = gone {
                poison::ignore(self.bar1.lock()).forget(client, handle);
                if let Kind::Memory(memory) = &object.kind
                    && memory.place == Place::Video
                    && !objects.names(memory)
                {
                    objects.video_used = objects.video_used.saturating_sub(memory.size);
                }
                self.release(&object.kind);
            }
        }
        Ok(())
    }

    pub(super) fn free_clients_of(&self, file: u64) {
        let gone: Vec<Client> = {
            let mut objects = poison::ignore(self.objects.lock());
            let handles: Vec<u32> = objects.clients.iter().filter(|(_, c)| c.owner == file).map(|(h, _)| *h).collect();
            let mut bar1 = poison::ignore(self.bar1.lock());
            handles.iter().for_each(|&client| bar1.forget_client(client));
            handles.iter().filter_map(|handle| objects.clients.remove(handle)).collect()
        };
        gone.iter().flat_map(|client| client.objects.values()).for_each(|object| self.release(&object.kind));
    }

    /// The end of an object that is no longer in any tree.
    fn release(&self, kind: &Kind) {
        match kind {
            Kind::Channel { channel, group } => {
                self.runlists.remove(channel);
                channel.stop(&self.runlists);
                poison::ignore(group.channels.lock())
                    .retain(|c| c.upgrade().is_some_and(|c| !Arc::ptr_eq(&c, channel)));
            }
            Kind::EngineObject { channel, class } => {
                if let Some(channel) = channel.upgrade() {
                    channel.remove_object(*class);
                }
            }
            _ => {}
        }
    }

    /// Puts a channel on its runlist. Graphics must have been registered with UVM (`kchannelIsSchedulable`).
    pub(super) fn schedule(&self, channel: &Arc<Channel>) -> Outcome {
        if channel.engine == Engine::Graphics && !channel.bound.load(Ordering::Acquire) {
            return Err(status::INVALID_STATE);
        }
        self.runlists.add(channel);
        Ok(())
    }

    pub(super) fn unschedule(&self, channel: &Arc<Channel>) {
        self.runlists.remove(channel);
    }
}

fn new_group(engine: Engine, space: Option<Arc<AddressSpace>>) -> Arc<Group> {
    Arc::new(Group { engine, space, scheduled: Mutex::new(false), channels: Mutex::default() })
}

fn engine_object(request: &Request, class: u32, channel: &Arc<Channel>) -> Outcome<Kind> {
    match class {
        class::HOPPER_DMA_COPY_A => {
            let params = request.optional::<CopyAlloc>()?;
            let wanted = params.and_then(|p| match p.version {
                1 => Engine::of_type(p.engine_type),
                _ => Some(Engine::Copy(p.engine_type)),
            });
            // A copy object on a graphics channel is the graphics copy engine.
            if params.is_some() && channel.engine != Engine::Graphics && wanted != Some(channel.engine) {
                return Err(status::INVALID_ARGUMENT);
            }
        }
        class::HOPPER_COMPUTE_A | class::KEPLER_INLINE_TO_MEMORY_B if channel.engine == Engine::Graphics => {}
        class::HOPPER_COMPUTE_A | class::KEPLER_INLINE_TO_MEMORY_B => return Err(status::INVALID_CLASS),
        class if is_known(class) => return Err(status::INVALID_OBJECT_PARENT),
        _ => return Err(status::INVALID_CLASS),
    }
    channel.add_object(class);
    let channel: Weak<Channel> = Arc::downgrade(channel);
    Ok(Kind::EngineObject { channel, class })
}

fn is_channel(class: u32) -> bool {
    matches!(
        class,
        class::VOLTA_CHANNEL_GPFIFO_A
            | class::TURING_CHANNEL_GPFIFO_A
            | class::AMPERE_CHANNEL_GPFIFO_A
            | class::HOPPER_CHANNEL_GPFIFO_A
    )
}

/// True for every class that can be allocated here, under whatever parent.
pub(super) fn is_known(class: u32) -> bool {
    super::control::CLASSES.contains(&class)
        || matches!(
            class,
            class::NV01_DEVICE_0
                | class::NV_CONFIDENTIAL_COMPUTE
                | class::NV20_SUBDEVICE_0
                | class::NV01_MEMORY_LOCAL_USER
                | class::NV01_MEMORY_SYSTEM
                | class::FERMI_VASPACE_A
                | class::KEPLER_CHANNEL_GROUP_A
                | class::FERMI_CONTEXT_SHARE_A
        )
}

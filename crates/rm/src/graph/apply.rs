//! What each call does to the graph.

use super::objects::{Backing, External};
use super::*;
use crate::abi::{self, Plain, control, nvos02};
use crate::call::{Alloc, Call, Control, HeapOp, MapDma, MapExternal, VidHeap, work_submit_token};
use crate::class;

/// Where NVOS32 and NV_MEMORY_ALLOCATION_PARAMS attributes say that memory lies.
fn place_of_attr(attr: u32) -> Place {
    match attr & abi::attr::LOCATION_MASK {
        abi::attr::LOCATION_VIDMEM => Place::Video,
        abi::attr::LOCATION_PCI => Place::Host,
        _ => Place::Unknown,
    }
}

/// Memory classes and where they lie when nothing else says so.
fn place_of_class(class: u32) -> Option<Place> {
    Some(match class {
        // SYSTEM, OS_DESCRIPTOR, LIST_SYSTEM
        0x3e | 0x71 | 0x81 => Place::Host,
        // LOCAL_PRIVILEGED, LOCAL_USER, LIST_FBMEM, LOCAL_PHYSICAL, FABRIC, MULTICAST_FABRIC
        0x3f | 0x40 | 0x82 | 0xc2 | 0xf8 | 0xfd => Place::Video,
        // EXTENDED_USER, VIRTUAL, LIST_OBJECT, DEVICELESS, NV50_MEMORY_VIRTUAL, FLA, FABRIC_IMPORT
        0x42 | 0x70 | 0x83 | 0x90ce | 0x50a0 | 0xf3 | 0xf9 | 0xfb => Place::Unknown,
        _ => return None,
    })
}

impl ObjectGraph {
    pub fn new() -> ObjectGraph {
        ObjectGraph::default()
    }

    /// A driver call returned.
    pub fn ioctl(&mut self, record: IoctlRecord<'_>) {
        self.now += 1;
        let call = Call::parse(record.file, record.request, record.arg, record.nested);
        if record.ret != 0 || !call.succeeded(record.ret) {
            return;
        }
        let file = self.file_of(record.fd, record.file);
        match call {
            Call::Alloc(a) => self.alloc(&a, file),
            Call::Free(f) => self.free_handle(f.root, f.old),
            Call::Control(c) => self.control(&c),
            Call::AllocMemory(a) => self.alloc_memory(&a),
            Call::VidHeapControl(h) => self.vid_heap(&h),
            Call::DupObject(d) => self.dup_object(&d),
            Call::MapMemory(m) => self.map_memory(&m),
            Call::MapMemoryDma(m) => self.map_dma(&m),
            Call::UnmapMemoryDma(m) => {
                let own = self.spaces_dma.get(&(m.client, m.dma));
                let at = own.and_then(|own| own.at(m.dma_offset)).or_else(|| self.external.at(m.dma_offset));
                let len =
                    if m.size != 0 { m.size } else { at.map_or(0, |(start, len, _)| len - (m.dma_offset - start)) };
                if let Some(own) = self.spaces_dma.get_mut(&(m.client, m.dma)) {
                    own.cut(m.dma_offset, len);
                }
                // What another space has at the same address stays.
                let space = Some((m.client, m.dma));
                self.external.cut_if(m.dma_offset, len, |e| e.space.is_none() || e.space == space);
            }
            Call::CheckVersion(v) => {
                if let Some(text) = v.text().filter(|t| !t.is_empty()) {
                    self.driver_version = Some(text.to_owned());
                }
            }
            Call::UvmRegisterGpu(g) => {
                if !self.gpus.contains(&g.uuid) {
                    self.gpus.push(g.uuid);
                }
            }
            Call::UvmUnregisterGpu(g) => self.gpus.retain(|u| *u != g.uuid),
            Call::UvmRegisterGpuVaspace(v) => {
                self.va_spaces.retain(|(_, _, u)| *u != v.uuid);
                self.va_spaces.push((v.client, v.va_space, v.uuid));
                self.spaces = Some(file);
            }
            Call::UvmUnregisterGpuVaspace(v) => self.va_spaces.retain(|(_, _, u)| *u != v.uuid),
            Call::UvmRegisterChannel(c) => {
                if let Some(ch) = self.live_channel(c.client, c.channel) {
                    self.channels[ch.0].uvm = Some((c.base, c.length));
                }
            }
            Call::UvmUnregisterChannel(c) => {
                if let Some(ch) = self.live_channel(c.client, c.channel) {
                    self.channels[ch.0].uvm = None;
                }
            }
            Call::UvmCreateExternalRange(r) => {
                self.ranges.insert(r.base, r.length);
            }
            Call::UvmSemaphorePool { base, length, .. } => {
                self.ranges.insert(base, length);
                let pool =
                    External { backing: Backing::SemaphorePool, offset: 0, gpus: Vec::new(), home: None, space: None };
                self.external.insert(base, length, pool);
            }
            Call::UvmMapExternal(m) => self.map_external(&m, record.arg),
            Call::UvmUnmapExternal(r) => {
                for (start, len, mut e) in
                    self.external.cut_if(r.base, r.length, |e| e.gpus.is_empty() || e.gpus.contains(&r.uuid))
                {
                    e.gpus.retain(|g| *g != r.uuid);
                    if !e.gpus.is_empty() {
                        self.external.insert(start, len, e);
                    }
                }
            }
            Call::UvmFree(r) => {
                let len = self.ranges.remove(&r.base).unwrap_or(0).max(r.length);
                self.external.cut(r.base, len);
            }
            // RM_UNMAP_MEMORY ends the kernel's side; the program's mapping goes at its munmap, which is recorded too.
            Call::UnmapMemory(_)
            | Call::RegisterFd(_)
            | Call::CardInfo(_)
            | Call::UvmInitialize(_)
            | Call::UvmMmInitialize(_)
            | Call::UvmOther { .. }
            | Call::Other { .. }
            | Call::Foreign { .. } => {}
        }
    }

    fn add(&mut self, client: u32, parent: u32, handle: u32, class: u32, kind: ObjectKind) -> ObjectId {
        if self.live.contains_key(&(client, handle)) {
            // The free was not seen: what has the handle now is the new object.
            self.free_handle(client, handle);
        }
        let id = ObjectId(self.objects.len());
        let parent_id = if client == handle { None } else { self.live.get(&(client, parent)).copied() };
        if let Some(p) = parent_id {
            self.objects[p.0].children.push(id);
        }
        self.objects.push(Object {
            id,
            client,
            handle,
            parent_handle: parent,
            parent: parent_id,
            class,
            kind,
            born: self.now,
            freed: None,
            children: Vec::new(),
        });
        self.live.insert((client, handle), id);
        id
    }

    fn add_memory(&mut self, client: u32, parent: u32, handle: u32, class: u32, size: u64, place: Place) -> MemoryId {
        let id = MemoryId(self.memories.len());
        let born = self.now;
        // Before the object, which points at it.
        self.memories.push(Memory {
            id,
            client,
            handle,
            class,
            size,
            place,
            user_address: None,
            born,
            freed: None,
            handles: 1,
        });
        self.add(client, parent, handle, class, ObjectKind::Memory(id));
        id
    }

    fn alloc(&mut self, a: &Alloc<'_>, file: usize) {
        // A client's own handle is what the call returns as new; everything else lives under `root`.
        if class::is_root(a.class) {
            self.add(a.new, a.new, a.new, a.class, ObjectKind::Client);
            self.files[file].clients.push(a.new);
            return;
        }
        let kind = match a.class {
            class::NV01_DEVICE_0 => {
                let instance = a.params::<abi::DeviceAlloc>().map_or(0, |p| p.device_id);
                ObjectKind::Device { instance }
            }
            class::NV20_SUBDEVICE_0 => {
                ObjectKind::Subdevice { index: a.params::<abi::SubdeviceAlloc>().map_or(0, |p| p.subdevice_id) }
            }
            class::FERMI_VASPACE_A => ObjectKind::VaSpace,
            class::FERMI_CONTEXT_SHARE_A => ObjectKind::ContextShare,
            class::KEPLER_CHANNEL_GROUP_A => {
                ObjectKind::Group { engine: a.params::<abi::ChannelGroupAlloc>().map_or(0, |p| p.engine_type) }
            }
            c if abi::is_channel_class(c) => return self.alloc_channel(a),
            c if abi::is_usermode_class(c) => {
                let page = self.pages.len();
                let bar1 = a.params::<abi::UsermodeAlloc>().is_some_and(|p| p.bar1 != 0);
                let object = self.add(a.root, a.parent, a.new, c, ObjectKind::Usermode(page));
                self.pages.push(UsermodePage {
                    object,
                    client: a.root,
                    handle: a.new,
                    class: c,
                    bar1,
                    cpu: None,
                    freed: None,
                });
                return;
            }
            c => match place_of_class(c) {
                Some(place) => {
                    let p = a.params::<abi::MemoryAlloc>();
                    // Class 0x40 covers every place that the attributes name; they are as the driver left them.
                    let place = match p {
                        Some(p) if c == class::NV01_MEMORY_LOCAL_USER => place_of_attr(p.attr),
                        _ => place,
                    };
                    self.add_memory(a.root, a.parent, a.new, c, p.map_or(0, |p| p.size), place);
                    return;
                }
                None => self.engine_object(a, c),
            },
        };
        self.add(a.root, a.parent, a.new, a.class, kind);
    }

    /// An object on a channel is an engine; a copy engine says which, if its channel did not.
    fn engine_object(&mut self, a: &Alloc<'_>, class: u32) -> ObjectKind {
        let Some(ch) = self.live_channel(a.root, a.parent) else { return ObjectKind::Other };
        let c = &mut self.channels[ch.0];
        c.engines.push((a.new, class));
        if c.engine == 0
            && class::is_copy(class)
            && let Some(p) = a.params::<abi::CopyAlloc>()
            && p.version == 1
        {
            c.engine = p.engine_type;
        }
        ObjectKind::Engine
    }

    fn alloc_channel(&mut self, a: &Alloc<'_>) {
        // Parameters that were cut leave a channel of which only the handle is known.
        let p = abi::ChannelAlloc::read_short(a.nested);
        let id = ChannelId(self.channels.len());
        let parent = self.live.get(&(a.root, a.parent)).copied();
        let group_engine = parent.and_then(|p| match self.objects[p.0].kind {
            ObjectKind::Group { engine } => Some(engine),
            _ => None,
        });
        let gpu = self.device_of(parent);
        let some = |handle: u32| (handle != 0).then_some(handle);
        let object = self.add(a.root, a.parent, a.new, a.class, ObjectKind::Channel(id));
        let userd = some(p.userd_memory[0]).map(|handle| self.locate_userd(a.root, handle, p.userd_offset[0]));
        let gpfifo_at = some(p.entries).and_then(|_| self.place_of(p.gpfifo));
        self.channels.push(Channel {
            id,
            object,
            client: a.root,
            handle: a.new,
            class: a.class,
            parent: a.parent,
            group: group_engine.map(|_| a.parent),
            gpu,
            gpfifo: p.gpfifo,
            entries: p.entries,
            flags: p.flags,
            runqueue: u32::from(p.flags & abi::channel_flags::RUNQUEUE_ONE != 0),
            userd,
            engine: if p.engine_type != 0 { p.engine_type } else { group_engine.unwrap_or(0) },
            context_share: some(p.context_share),
            va_space: some(p.va_space),
            error_notifier: some(p.error_object),
            cid: p.cid,
            token: None,
            uvm: None,
            gpfifo_at,
            engines: Vec::new(),
            scheduled: false,
            born: self.now,
            freed: None,
        });
        self.alive.insert(id);
        self.latest.insert((a.root, a.new), id);
    }

    fn locate_userd(&self, client: u32, handle: u32, offset: u64) -> Userd {
        let memory = self.live_memory(client, handle);
        Userd {
            handle,
            memory,
            offset,
            place: memory.map_or(Place::Unknown, |m| self.memories[m.0].place),
            cpu: memory.and_then(|m| self.cpu_address(m, offset)),
            gpu: memory.and_then(|m| self.gpu_address(m, offset)),
        }
    }

    fn device_of(&self, mut object: Option<ObjectId>) -> Option<u32> {
        // Parents have smaller ids than their children, so this ends.
        while let Some(o) = object {
            if let ObjectKind::Device { instance } = self.objects[o.0].kind {
                return Some(instance);
            }
            object = self.objects[o.0].parent;
        }
        None
    }

    fn alloc_memory(&mut self, a: &abi::Nvos02Fd) {
        let place = match (place_of_class(a.class), a.flags & nvos02::LOCATION_MASK) {
            (Some(p), _) if p != Place::Unknown => p,
            (_, nvos02::LOCATION_VIDMEM) => Place::Video,
            (_, nvos02::LOCATION_PCI) => Place::Host,
            _ => Place::Unknown,
        };
        let id = self.add_memory(a.root, a.parent, a.new, a.class, a.limit.saturating_add(1), place);
        if a.class == class::NV01_MEMORY_SYSTEM_OS_DESCRIPTOR {
            self.memories[id.0].user_address = Some(a.memory);
        } else if a.fd >= 0 {
            // Host memory comes with its mapping prepared: the next mmap of this descriptor shows it.
            let file = self.file_of(a.fd, FileKind::Ctl);
            self.files[file].bound = Some((Target::Memory(id), 0));
        }
    }

    fn vid_heap(&mut self, h: &VidHeap) {
        match h.op {
            HeapOp::Alloc { memory, flags, attr, size, .. } => {
                let (class, place) = if flags & abi::alloc_flags::VIRTUAL != 0 {
                    (class::NV50_MEMORY_VIRTUAL, Place::Unknown)
                } else {
                    match place_of_attr(attr) {
                        Place::Host => (class::NV01_MEMORY_SYSTEM, Place::Host),
                        place => (class::NV01_MEMORY_LOCAL_USER, place),
                    }
                };
                self.add_memory(h.root, h.parent, memory, class, size, place);
            }
            HeapOp::OsDescriptor { memory, descriptor, size } => {
                let class = class::NV01_MEMORY_SYSTEM_OS_DESCRIPTOR;
                let id = self.add_memory(h.root, h.parent, memory, class, size, Place::Host);
                self.memories[id.0].user_address = Some(descriptor);
            }
            HeapOp::Free { memory } => self.free_handle(h.root, memory),
            HeapOp::Other { .. } => {}
        }
    }

    fn dup_object(&mut self, d: &abi::Nvos55) {
        let source = self.live.get(&(d.client_src, d.object_src)).copied();
        let (class, kind) = match source {
            Some(s) => (self.objects[s.0].class, self.objects[s.0].kind),
            None => (0, ObjectKind::Other),
        };
        // A channel or a doorbell page stays the one object that its first handle made.
        let kind = match kind {
            ObjectKind::Channel(_) | ObjectKind::Usermode(_) | ObjectKind::Client => ObjectKind::Other,
            other => other,
        };
        // Counted before add(): an old object with the new handle may be the last one to hold this memory.
        if let ObjectKind::Memory(m) = kind {
            self.memories[m.0].handles += 1;
            self.memories[m.0].freed = None;
        }
        self.add(d.client, d.parent, d.object, class, kind);
    }

    fn map_memory(&mut self, m: &abi::Nvos33Fd) {
        if m.fd < 0 {
            return;
        }
        let target = match self.live.get(&(m.client, m.memory)).map(|o| self.objects[o.0].kind) {
            Some(ObjectKind::Memory(id)) => Target::Memory(id),
            Some(ObjectKind::Usermode(page)) => Target::Usermode(page),
            _ => Target::Object { client: m.client, handle: m.memory },
        };
        let file = self.file_of(m.fd, FileKind::Other);
        self.files[file].bound = Some((target, m.offset));
    }

    fn map_dma(&mut self, m: &MapDma) {
        let memory = self.live_memory(m.client, m.memory);
        let backing = Backing::Memory { client: m.client, handle: m.memory, memory };
        let (home, space) = (self.home_of(m.client, m.memory), (m.client, m.dma));
        let e = External { backing, offset: m.offset, gpus: Vec::new(), home, space: Some(space) };
        self.spaces_dma.entry(space).or_default().insert(m.dma_offset, m.length, e.clone());
        self.insert_external(m.dma_offset, m.length, e);
    }

    fn map_external(&mut self, m: &MapExternal, arg: &[u8]) {
        let memory = self.live_memory(m.client, m.memory);
        let backing = Backing::Memory { client: m.client, handle: m.memory, memory };
        let home = self.home_of(m.client, m.memory);
        // The same memory mapped on one more GPU keeps the GPUs that it has.
        let mut gpus = match self.external.at(m.base) {
            Some((start, len, e))
                if start == m.base && len == m.length && e.backing == backing && e.offset == m.offset =>
            {
                e.gpus.clone()
            }
            _ => Vec::new(),
        };
        // Of several GPUs a recording keeps the first: then nothing is said of which.
        let all = 1..m.gpu_count.clamp(1, 256) as usize;
        let others: Option<Vec<[u8; 16]>> = all.map(|n| abi::uvm::map_external_gpu(arg, n)).collect();
        match others {
            Some(others) => {
                for uuid in std::iter::once(m.gpu.uuid).chain(others) {
                    if !gpus.contains(&uuid) {
                        gpus.push(uuid);
                    }
                }
            }
            None => gpus.clear(),
        }
        self.insert_external(m.base, m.length, External { backing, offset: m.offset, gpus, home, space: None });
    }

    /// Device instance of the GPU under which an object was made.
    fn home_of(&self, client: u32, handle: u32) -> Option<u32> {
        let mut o = self.object(client, handle)?;
        // (Parents are older than their children, so this ends.)
        loop {
            if let ObjectKind::Device { instance } = o.kind {
                return Some(instance);
            }
            o = self.objects.get(o.parent?.0)?;
        }
    }

    fn insert_external(&mut self, base: u64, length: u64, e: External) {
        let memory = match e.backing {
            Backing::Memory { memory, .. } => memory,
            Backing::SemaphorePool => None,
        };
        let offset = e.offset;
        self.external.insert(base, length, e);
        // Channels that were made before their memory was mapped.
        let alive = std::mem::take(&mut self.alive);
        for &ChannelId(i) in &alive {
            let gpfifo = self.channels[i].gpfifo;
            if gpfifo >= base && gpfifo - base < length && self.channels[i].entries != 0 {
                self.channels[i].gpfifo_at = self.place_of(gpfifo);
            }
            if let Some(u) = self.channels[i].userd.as_mut().filter(|u| u.gpu.is_none() && u.memory.is_some())
                && u.memory == memory
                && let Some(by) = u.offset.checked_sub(offset).filter(|by| *by < length)
            {
                u.gpu = base.checked_add(by);
            }
        }
        self.alive = alive;
    }

    fn control(&mut self, c: &Control<'_>) {
        if let Some(token) = work_submit_token(c) {
            if let Some(ch) = self.live_channel(c.client, c.object) {
                self.channels[ch.0].token = Some(token);
                let with_token = self.tokens.entry(token).or_default();
                if with_token.last() != Some(&ch) {
                    with_token.push(ch);
                }
            }
            return;
        }
        match c.cmd {
            control::CHANNEL_BIND => {
                if let (Some(ch), Some(p)) = (self.live_channel(c.client, c.object), c.params::<control::Bind>())
                    && self.channels[ch.0].engine == 0
                {
                    self.channels[ch.0].engine = p.engine_type;
                }
            }
            control::CHANNEL_SCHEDULE => {
                if let Some(ch) = self.live_channel(c.client, c.object) {
                    self.channels[ch.0].scheduled = true;
                }
            }
            control::GROUP_SCHEDULE => {
                for id in &self.alive {
                    let Some(ch) = self.channels.get_mut(id.0) else { continue };
                    if ch.client == c.client && ch.group == Some(c.object) {
                        ch.scheduled = true;
                    }
                }
            }
            _ => {}
        }
    }

    /// Frees what a handle names and everything below it; a client's handle frees all that it holds.
    pub(super) fn free_handle(&mut self, client: u32, handle: u32) {
        let Some(&top) = self.live.get(&(client, handle)) else { return };
        let mut going = vec![top];
        if client == handle {
            // Also what hangs below parents that were never seen.
            going.extend(self.live.iter().filter(|((c, _), id)| *c == client && **id != top).map(|(_, id)| *id));
            going.sort();
        }
        while let Some(id) = going.pop() {
            let o = &mut self.objects[id.0];
            if o.freed.is_some() {
                continue;
            }
            o.freed = Some(self.now);
            going.extend(o.children.iter().copied());
            let (key, kind) = ((o.client, o.handle), o.kind);
            self.live.remove(&key);
            match kind {
                ObjectKind::Memory(m) => {
                    let m = &mut self.memories[m.0];
                    m.handles = m.handles.saturating_sub(1);
                    if m.handles == 0 {
                        m.freed = Some(self.now);
                    }
                }
                ObjectKind::Channel(c) => {
                    self.alive.remove(&c);
                    if let Some(c) = self.channels.get_mut(c.0) {
                        c.freed = Some(self.now);
                    }
                }
                ObjectKind::Usermode(p) => {
                    if let Some(p) = self.pages.get_mut(p) {
                        p.freed = Some(self.now);
                    }
                }
                _ => {}
            }
        }
    }

    pub(super) fn live_channel(&self, client: u32, handle: u32) -> Option<ChannelId> {
        match self.objects[self.live.get(&(client, handle))?.0].kind {
            ObjectKind::Channel(id) => Some(id),
            _ => None,
        }
    }

    pub(super) fn live_memory(&self, client: u32, handle: u32) -> Option<MemoryId> {
        match self.objects[self.live.get(&(client, handle))?.0].kind {
            ObjectKind::Memory(id) => Some(id),
            _ => None,
        }
    }
}

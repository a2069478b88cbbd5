//! The effect of each fact on the graph.

use super::objects::{Backing, External};
use super::*;
use crate::abi::{self, Abi, Branch};
use crate::call::Call;
use crate::fact::{self, Created, Fact, MappedExternal, What};

impl ObjectGraph {
    pub fn new() -> ObjectGraph {
        ObjectGraph::default()
    }

    /// Sets the driver's version, if it is known before a call returns it.
    pub fn set_driver(&mut self, version: &str) {
        self.branch = Some(Abi::of(version).branch());
    }

    /// Whose layouts the calls are read with.
    pub fn branch(&self) -> &'static Branch {
        self.branch.unwrap_or_else(Branch::usual)
    }

    /// A driver call returned.
    pub fn ioctl(&mut self, record: IoctlRecord<'_>) {
        self.now += 1;
        let branch = self.branch();
        let call = Call::parse(branch, record.file, record.request, record.arg, record.nested);
        if !call.succeeded(record.ret) {
            return;
        }
        let file = self.file_of(record.fd, record.file);
        if let Some(fact) = Fact::of(branch, &call, record.ret) {
            self.apply(fact, file);
        }
    }

    /// Applies a fact as if a call through `fd` had reported it: for state from before the recording began.
    pub fn told(&mut self, fd: i32, kind: FileKind, fact: Fact<'_>) {
        self.now += 1;
        let file = self.file_of(fd, kind);
        self.apply(fact, file);
    }

    /// Applies a fact from a call through `file`.
    fn apply(&mut self, fact: Fact<'_>, file: usize) {
        match fact {
            Fact::Created(c) => self.created(&c, file),
            Fact::Freed { client, handle } => self.free_handle(client, handle),
            Fact::Duplicated { client, parent, handle, source } => self.duplicated(client, parent, handle, source),
            Fact::Bound { fd, client, handle, offset } => self.bound(fd, client, handle, offset),
            Fact::Token { client, channel, token } => {
                if let Some(ch) = self.live_channel(client, channel) {
                    self.channels[ch.0].token = Some(token);
                    let with_token = self.tokens.entry(token).or_default();
                    if with_token.last() != Some(&ch) {
                        with_token.push(ch);
                    }
                }
            }
            Fact::EngineOf { client, channel, engine_type } => {
                if let Some(ch) = self.live_channel(client, channel)
                    && self.channels[ch.0].engine == 0
                {
                    self.channels[ch.0].engine = engine_type;
                }
            }
            Fact::ChannelScheduled { client, channel } => {
                if let Some(ch) = self.live_channel(client, channel) {
                    self.channels[ch.0].scheduled = true;
                }
            }
            Fact::GroupScheduled { client, group } => {
                for id in &self.alive {
                    let Some(ch) = self.channels.get_mut(id.0) else { continue };
                    if ch.client == client && ch.group == Some(group) {
                        ch.scheduled = true;
                    }
                }
            }
            Fact::MappedInSpace { client, space, memory, base, length, offset } => {
                let space = self.space_of(client, space);
                let e = self.external_of(client, memory, offset, Vec::new(), Some(space));
                self.spaces_dma.entry(space).or_default().insert(base, length, e.clone());
                self.insert_external(base, length, e);
            }
            Fact::UnmappedInSpace { client, space, base, length } => {
                self.unmap_in_space(self.space_of(client, space), base, length)
            }
            Fact::Version(v) => {
                if let Some(text) = v.text().filter(|t| !t.is_empty()) {
                    self.driver_version = Some(text.to_owned());
                    self.set_driver(text);
                }
            }
            Fact::GpuRegistered(gpu) => {
                if !self.gpus.contains(&gpu) {
                    self.gpus.push(gpu);
                }
            }
            Fact::GpuUnregistered(gpu) => self.gpus.retain(|u| *u != gpu),
            Fact::SpaceRegistered { client, space, gpu } => {
                self.va_spaces.retain(|(_, _, u)| *u != gpu);
                self.va_spaces.push((client, space, gpu));
                self.spaces = Some(file);
                let of = self.home_of(client, space);
                self.instances.retain(|(i, u)| *u != gpu && Some(*i) != of);
                self.instances.extend(of.map(|instance| (instance, gpu)));
            }
            Fact::SpaceUnregistered(gpu) => self.va_spaces.retain(|(_, _, u)| *u != gpu),
            Fact::ChannelRegistered { client, channel, window } => {
                if let Some(ch) = self.live_channel(client, channel) {
                    self.channels[ch.0].uvm = Some(window);
                }
            }
            Fact::ChannelUnregistered { client, channel } => {
                if let Some(ch) = self.live_channel(client, channel) {
                    self.channels[ch.0].uvm = None;
                }
            }
            Fact::RangeReserved { base, length } => {
                self.ranges.insert(base, length);
            }
            Fact::PoolCreated { base, length } => {
                self.ranges.insert(base, length);
                let pool =
                    External { backing: Backing::SemaphorePool, offset: 0, gpus: Vec::new(), home: None, space: None };
                self.external.insert(base, length, pool);
            }
            Fact::MappedExternal(m) => self.map_external(&m),
            Fact::UnmappedExternal { base, length, gpu } => {
                if let Some((_, own)) = self.on_gpu.iter_mut().find(|(u, _)| *u == gpu) {
                    own.cut(base, length);
                }
                for (start, len, mut e) in
                    self.external.cut_if(base, length, |e| e.gpus.is_empty() || e.gpus.contains(&gpu))
                {
                    e.gpus.retain(|g| *g != gpu);
                    if !e.gpus.is_empty() {
                        self.external.insert(start, len, e);
                    }
                }
            }
            Fact::RangeFreed { base, length } => {
                let len = self.ranges.remove(&base).unwrap_or(0).max(length);
                self.external.cut(base, len);
                self.on_gpu.iter_mut().for_each(|(_, own)| drop(own.cut(base, len)));
            }
        }
    }

    /// The address space of an RM mapping. A range of virtual memory names its own.
    fn space_of(&self, client: u32, dma: u32) -> (u32, u32) {
        let range = self.live_memory(client, dma).and_then(|m| self.memories.get(m.0));
        (client, range.map_or(dma, |m| if m.va_space != 0 { m.va_space } else { dma }))
    }

    fn add(&mut self, c: &Created, kind: ObjectKind) -> ObjectId {
        let Created { client, parent, handle, class, .. } = *c;
        if self.live.contains_key(&(client, handle)) {
            // The free was not seen: the handle now names the new object.
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

    fn add_memory(&mut self, c: &Created, m: &fact::Memory) {
        let id = MemoryId(self.memories.len());
        // Before the object, which points at it.
        self.memories.push(Memory {
            id,
            client: c.client,
            handle: c.handle,
            class: c.class,
            size: m.size,
            place: m.place,
            user_address: m.user_address,
            va_space: m.va_space,
            born: self.now,
            freed: None,
            handles: 1,
        });
        self.add(c, ObjectKind::Memory(id));
        if let Some(fd) = m.fd {
            let file = self.file_of(fd, FileKind::Ctl);
            self.files[file].bound = Some((Target::Memory(id), 0));
        }
    }

    fn created(&mut self, c: &Created, file: usize) {
        let kind = match c.what {
            What::Client => {
                self.add(c, ObjectKind::Client);
                self.files[file].clients.push(c.handle);
                return;
            }
            What::Channel(p) => return self.add_channel(c, &p),
            What::Usermode { bar1 } => {
                let page = self.pages.len();
                self.add(c, ObjectKind::Usermode(page));
                let (client, handle, class) = (c.client, c.handle, c.class);
                self.pages.push(UsermodePage { client, handle, class, bar1, cpu: None, freed: None });
                return;
            }
            What::Memory(m) => return self.add_memory(c, &m),
            What::Device { instance } => ObjectKind::Device { instance },
            What::Subdevice { index } => ObjectKind::Subdevice { index },
            What::VaSpace => ObjectKind::VaSpace,
            What::ContextShare { va_space } => ObjectKind::ContextShare { va_space },
            What::Group { engine_type, va_space } => ObjectKind::Group { engine: engine_type, va_space },
            What::Other { engine_type } => self.engine_object(c, engine_type),
        };
        self.add(c, kind);
    }

    /// An object on a channel is an engine. A copy engine gives its engine type, if the channel did not.
    fn engine_object(&mut self, c: &Created, engine_type: Option<u32>) -> ObjectKind {
        let Some(ch) = self.live_channel(c.client, c.parent) else { return ObjectKind::Other };
        let channel = &mut self.channels[ch.0];
        channel.engines.push((c.handle, c.class));
        if channel.engine == 0 {
            channel.engine = engine_type.unwrap_or(0);
        }
        ObjectKind::Engine
    }

    fn add_channel(&mut self, c: &Created, p: &abi::ChannelAlloc) {
        let id = ChannelId(self.channels.len());
        let parent = self.live.get(&(c.client, c.parent)).copied();
        let group = parent.and_then(|p| match self.objects[p.0].kind {
            ObjectKind::Group { engine, va_space } => Some((engine, va_space)),
            _ => None,
        });
        let share = match self.object(c.client, p.context_share).map(|o| o.kind) {
            Some(ObjectKind::ContextShare { va_space }) => va_space,
            _ => 0,
        };
        let gpu = self.device_of(parent);
        let some = |handle: u32| (handle != 0).then_some(handle);
        self.add(c, ObjectKind::Channel(id));
        let userd = some(p.userd_memory[0]).map(|handle| self.locate_userd(c.client, handle, p.userd_offset[0]));
        let va_space = some(p.va_space).or(some(share)).or(group.and_then(|g| some(g.1)));
        let space = va_space.map(|space| (c.client, space));
        let gpfifo_at = some(p.entries).and_then(|_| self.located(space, gpu, p.gpfifo));
        self.channels.push(Channel {
            id,
            client: c.client,
            handle: c.handle,
            class: c.class,
            parent: c.parent,
            group: group.map(|_| c.parent),
            gpu,
            gpfifo: p.gpfifo,
            entries: p.entries,
            flags: p.flags,
            runqueue: u32::from(p.flags & abi::channel_flags::RUNQUEUE_ONE != 0),
            userd,
            engine: if p.engine_type != 0 { p.engine_type } else { group.map_or(0, |g| g.0) },
            context_share: some(p.context_share),
            va_space,
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
        self.latest.insert((c.client, c.handle), id);
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

    /// Device instance of the GPU under which an object was made.
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

    fn duplicated(&mut self, client: u32, parent: u32, handle: u32, source: (u32, u32)) {
        let source = self.live.get(&source).copied();
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
        self.add(&Created { client, parent, handle, class, what: What::Other { engine_type: None } }, kind);
    }

    fn bound(&mut self, fd: i32, client: u32, handle: u32, offset: u64) {
        let target = match self.live.get(&(client, handle)).map(|o| self.objects[o.0].kind) {
            Some(ObjectKind::Memory(id)) => Target::Memory(id),
            Some(ObjectKind::Usermode(page)) => Target::Usermode(page),
            _ => Target::Object { client, handle },
        };
        let file = self.file_of(fd, FileKind::Other);
        self.files[file].bound = Some((target, offset));
    }

    fn unmap_in_space(&mut self, space: (u32, u32), base: u64, length: u64) {
        let own = self.spaces_dma.get(&space);
        let at = own.and_then(|own| own.at(base)).or_else(|| self.external.at(base));
        let length = if length != 0 { length } else { at.map_or(0, |(start, len, _)| len - (base - start)) };
        if let Some(own) = self.spaces_dma.get_mut(&space) {
            own.cut(base, length);
        }
        // Mappings of other spaces at the same address stay.
        self.external.cut_if(base, length, |e| e.space.is_none() || e.space == Some(space));
    }

    /// A mapping of a client's memory at a GPU address.
    fn external_of(
        &self,
        client: u32,
        handle: u32,
        offset: u64,
        gpus: Vec<[u8; 16]>,
        space: Option<(u32, u32)>,
    ) -> External {
        let backing = Backing::Memory { client, handle, memory: self.live_memory(client, handle) };
        External { backing, offset, gpus, home: self.home_of(client, handle), space }
    }

    fn map_external(&mut self, m: &MappedExternal<'_>) {
        let mut e = self.external_of(m.client, m.memory, m.offset, Vec::new(), None);
        // The same memory mapped on one more GPU keeps the GPUs that it has.
        if let Some((start, len, old)) = self.external.at(m.base)
            && (start, len, old.backing, old.offset) == (m.base, m.length, e.backing, e.offset)
        {
            e.gpus.clone_from(&old.gpus);
        }
        match m.gpus.iter() {
            Some(gpus) => {
                for gpu in gpus {
                    if !e.gpus.contains(&gpu) {
                        e.gpus.push(gpu);
                    }
                    if !self.on_gpu.iter().any(|(u, _)| *u == gpu) {
                        self.on_gpu.push((gpu, Intervals::default()));
                    }
                    if let Some((_, own)) = self.on_gpu.iter_mut().find(|(u, _)| *u == gpu) {
                        own.insert(m.base, m.length, External { gpus: vec![gpu], ..e.clone() });
                    }
                }
            }
            // The recording does not name all GPUs of the mapping, so it may be on any GPU.
            None => {
                e.gpus.clear();
                self.on_gpu.iter_mut().for_each(|(_, own)| drop(own.cut(m.base, m.length)));
            }
        }
        self.insert_external(m.base, m.length, e);
    }

    fn home_of(&self, client: u32, handle: u32) -> Option<u32> {
        self.device_of(self.live.get(&(client, handle)).copied())
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
                let c = &self.channels[i];
                let space = c.va_space.map(|space| (c.client, space));
                self.channels[i].gpfifo_at = self.located(space, c.gpu, gpfifo);
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

    /// Frees what a handle names and everything below it; a client's handle frees all that it holds.
    pub(super) fn free_handle(&mut self, client: u32, handle: u32) {
        let Some(&top) = self.live.get(&(client, handle)) else { return };
        let mut going = vec![top];
        if client == handle {
            // Also objects below parents that were never seen.
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

//! Queries of the graph.

use super::objects::{Backing, External};
use super::*;

impl ObjectGraph {
    /// The memory at a GPU virtual address; `None` if no mapping there is known.
    pub fn place_of(&self, address: u64) -> Option<Located> {
        self.located(None, None, address)
    }

    /// Whether a call was seen that named this GPU and mapped memory there. [`ObjectGraph::place_on`] also shows what calls
    /// mapped that named no GPU.
    pub fn is_mapped_for(&self, gpu: [u8; 16], address: u64) -> bool {
        self.on_gpu.iter().any(|(uuid, own)| *uuid == gpu && own.at(address).is_some())
    }

    /// The memory at a GPU virtual address for one GPU; `None` if no mapping there is known for it.
    ///
    /// Two GPUs may have mapped the same memory there by separate calls, each under its own handle and in its own parts.
    pub fn place_on(&self, gpu: [u8; 16], address: u64) -> Option<Located> {
        let own = self.on_gpu.iter().find(|(uuid, _)| *uuid == gpu).and_then(|(_, own)| own.at(address));
        if let Some((start, len, e)) = own {
            return Some(self.located_in(start, len, e, address));
        }
        let elsewhere = |(_, _, e): &(u64, u64, &External)| !e.gpus.is_empty() && !e.gpus.contains(&gpu);
        if self.external.at(address).as_ref().is_some_and(elsewhere) { None } else { self.place_of(address) }
    }

    /// The place of a GPU virtual address for a channel, and the GPU (device instance) that its memory was allocated on.
    ///
    /// `space`: client and handle of the channel's address space; `gpu`: device instance of its GPU. A mapping of another space, or of only another
    /// GPU, at that address is not used.
    pub fn place_in(&self, space: Option<(u32, u32)>, gpu: Option<u32>, address: u64) -> Option<(Place, Option<u32>)> {
        let (_, _, e) = self.external_in(space, gpu, address)?;
        Some(match e.backing {
            Backing::SemaphorePool => (Place::Host, None),
            Backing::Memory { memory, .. } => {
                let place = memory.map_or(Place::Unknown, |m| self.memories[m.0].place);
                (place, e.home.filter(|_| place == Place::Video))
            }
        })
    }

    fn external_in(&self, space: Option<(u32, u32)>, gpu: Option<u32>, address: u64) -> Option<(u64, u64, &External)> {
        let own = space.and_then(|s| self.spaces_dma.get(&s));
        let uuid = gpu.and_then(|g| self.instances.iter().find(|(i, _)| *i == g)).map(|(_, uuid)| uuid);
        let on_gpu = || self.on_gpu.iter().find(|(u, _)| Some(u) == uuid).map(|(_, own)| own);
        own.and_then(|own| own.at(address)).or_else(|| on_gpu()?.at(address)).or_else(|| {
            let of_another = |e: &External| {
                e.space.is_some_and(|s| own.is_some() || (space.is_some_and(|own| s != own) && self.is_space(s)))
                    || uuid.is_some_and(|u| !e.gpus.is_empty() && !e.gpus.contains(u))
            };
            self.external.at(address).filter(|(_, _, e)| !of_another(e))
        })
    }

    fn is_space(&self, (client, handle): (u32, u32)) -> bool {
        self.object(client, handle).is_some_and(|o| o.kind == ObjectKind::VaSpace)
    }

    /// As [`place_of`](Self::place_of), for a channel as in [`place_in`](Self::place_in).
    pub(super) fn located(&self, space: Option<(u32, u32)>, gpu: Option<u32>, address: u64) -> Option<Located> {
        let Some((start, len, e)) = self.external_in(space, gpu, address) else {
            // Managed memory has no external mapping: the program's mapping of the UVM file is the GPU's too.
            let (start, len, m) = self.cpu.at(address)?;
            return (m.target == Target::Uvm).then_some(Located {
                place: Place::Unknown,
                memory: None,
                client: 0,
                handle: 0,
                offset: address - start,
                rest: len - (address - start),
                cpu: Some(address),
                managed: true,
            });
        };
        Some(self.located_in(start, len, e, address))
    }

    fn located_in(&self, start: u64, len: u64, e: &External, address: u64) -> Located {
        let into = address - start;
        let offset = e.offset.wrapping_add(into);
        let rest = len - into;
        match e.backing {
            Backing::SemaphorePool => Located {
                place: Place::Host,
                memory: None,
                client: 0,
                handle: 0,
                offset,
                rest,
                cpu: self.cpu.at(address).filter(|(_, _, m)| m.target == Target::Uvm).map(|_| address),
                managed: false,
            },
            Backing::Memory { client, handle, memory } => Located {
                place: memory.map_or(Place::Unknown, |m| self.memories[m.0].place),
                memory,
                client,
                handle,
                offset,
                rest,
                cpu: memory.and_then(|m| self.cpu_address_near(m, offset, address)),
                managed: false,
            },
        }
    }

    /// UUIDs of the GPUs that have the memory at a GPU virtual address mapped; empty if the mapping call named no GPU.
    pub fn gpus_of(&self, address: u64) -> Vec<[u8; 16]> {
        let Some((start, _, e)) = self.external.at(address) else { return Vec::new() };
        if e.gpus.is_empty() {
            return Vec::new();
        }
        let byte = |start: u64, e: &External| e.offset.wrapping_add(address - start);
        // For large memory, one call may map other parts on each GPU, so the last call does not name all GPUs.
        let shows_the_same = |own: &Intervals<External>| {
            own.at(address).is_some_and(|(at, _, o)| (o.backing, byte(at, o)) == (e.backing, byte(start, e)))
        };
        let mut all = e.gpus.clone();
        let others = self.on_gpu.iter().filter(|(gpu, own)| !e.gpus.contains(gpu) && shows_the_same(own));
        all.extend(others.map(|(gpu, _)| *gpu));
        all
    }

    /// Where the program sees byte `offset` of a memory.
    pub fn cpu_address(&self, memory: MemoryId, offset: u64) -> Option<u64> {
        self.cpu_address_near(memory, offset, 0)
    }

    /// As [`cpu_address`](Self::cpu_address), but looks at the GPU address first: CUDA maps most memory at the same address.
    fn cpu_address_near(&self, memory: MemoryId, offset: u64, address: u64) -> Option<u64> {
        let shows = |start: u64, len: u64, m: &CpuMapping| {
            if m.target != Target::Memory(memory) {
                return None;
            }
            offset.checked_sub(m.offset).filter(|by| *by < len).and_then(|by| start.checked_add(by))
        };
        if let Some((start, len, m)) = self.cpu.at(address)
            && shows(start, len, m) == Some(address)
        {
            return Some(address);
        }
        let mem = self.memories.get(memory.0)?;
        if let Some(user) = mem.user_address {
            return (offset < mem.size).then(|| user.checked_add(offset)).flatten();
        }
        self.cpu.iter().find_map(|(start, len, m)| shows(start, len, m))
    }

    /// A GPU virtual address of byte `offset` of a memory; the lowest, if it is mapped more than once.
    pub fn gpu_address(&self, memory: MemoryId, offset: u64) -> Option<u64> {
        self.external.iter().find_map(|(start, len, e)| match e.backing {
            Backing::Memory { memory: Some(m), .. } if m == memory => {
                offset.checked_sub(e.offset).filter(|by| *by < len).and_then(|by| start.checked_add(by))
            }
            _ => None,
        })
    }

    /// The CPU mapping that holds an address: start, length, target.
    pub fn cpu_at(&self, address: u64) -> Option<(u64, u64, CpuMapping)> {
        self.cpu.at(address).map(|(s, l, m)| (s, l, *m))
    }

    /// Where something is mapped into the program now: address and length.
    pub fn cpu_ranges(&self, target: Target) -> Vec<(u64, u64)> {
        self.cpu.iter().filter(|(_, _, m)| m.target == target).map(|(s, l, _)| (s, l)).collect()
    }

    /// All mappings of the driver's files into the program: address, length, target.
    pub fn cpu_mappings(&self) -> impl Iterator<Item = (u64, u64, CpuMapping)> + '_ {
        self.cpu.iter().map(|(s, l, m)| (s, l, *m))
    }

    /// All mappings of memory at GPU addresses.
    pub fn gpu_mappings(&self) -> impl Iterator<Item = GpuMapping> + '_ {
        self.external.iter().map(|(base, length, e)| match e.backing {
            Backing::SemaphorePool => {
                GpuMapping { base, length, handle: None, memory: None, offset: e.offset, place: Place::Host }
            }
            Backing::Memory { client, handle, memory } => GpuMapping {
                base,
                length,
                handle: Some((client, handle)),
                memory,
                offset: e.offset,
                place: memory.map_or(Place::Unknown, |m| self.memories[m.0].place),
            },
        })
    }

    /// All channels ever made, in order.
    pub fn channels(&self) -> &[Channel] {
        &self.channels
    }

    /// The channel that a doorbell value rings: the latest with this token that is alive, else the latest there was. Two GPUs may use the same
    /// token; [`channel_by_token_on`](Self::channel_by_token_on) distinguishes them.
    pub fn channel_by_token(&self, token: u32) -> Option<&Channel> {
        self.pick(token, |_| true)
    }

    /// As [`channel_by_token`](Self::channel_by_token), on one GPU (its device instance).
    pub fn channel_by_token_on(&self, token: u32, gpu: u32) -> Option<&Channel> {
        self.pick(token, |c| c.gpu == Some(gpu))
    }

    fn pick(&self, token: u32, wanted: impl Fn(&Channel) -> bool) -> Option<&Channel> {
        let with_token =
            || self.tokens.get(&token).into_iter().flatten().rev().map(|id| &self.channels[id.0]).filter(|c| wanted(c));
        with_token().find(|c| c.alive()).or_else(|| with_token().next())
    }

    /// The channel of a handle: the one alive, else the latest that had it.
    pub fn channel(&self, client: u32, handle: u32) -> Option<&Channel> {
        let id = self.live_channel(client, handle).or_else(|| self.latest.get(&(client, handle)).copied())?;
        self.channels.get(id.0)
    }

    /// All memory objects ever made.
    pub fn memories(&self) -> &[Memory] {
        &self.memories
    }

    /// A memory by its id.
    pub fn memory(&self, id: MemoryId) -> Option<&Memory> {
        self.memories.get(id.0)
    }

    /// The memory that a handle names now.
    pub fn memory_of(&self, client: u32, handle: u32) -> Option<&Memory> {
        self.live_memory(client, handle).and_then(|m| self.memories.get(m.0))
    }

    /// All doorbell pages ever made.
    pub fn usermode_pages(&self) -> &[UsermodePage] {
        &self.pages
    }

    /// All objects ever made, in order.
    pub fn objects(&self) -> &[Object] {
        &self.objects
    }

    /// What a handle names now.
    pub fn object(&self, client: u32, handle: u32) -> Option<&Object> {
        self.live.get(&(client, handle)).and_then(|id| self.objects.get(id.0))
    }

    /// Live objects of a class.
    pub fn of_class(&self, class: u32) -> impl Iterator<Item = &Object> {
        self.objects.iter().filter(move |o| o.class == class && o.freed.is_none())
    }

    /// UUIDs of the GPUs registered with UVM.
    pub fn gpus(&self) -> &[[u8; 16]] {
        &self.gpus
    }

    /// VA spaces registered with UVM: client, handle, GPU's UUID.
    pub fn va_spaces(&self) -> &[(u32, u32, [u8; 16])] {
        &self.va_spaces
    }

    /// The kernel driver's version, if the program asked for it.
    pub fn driver_version(&self) -> Option<&str> {
        self.driver_version.as_deref()
    }

    /// Which file a descriptor is, if it was seen opened or used.
    pub fn file(&self, fd: i32) -> Option<FileKind> {
        self.fds.get(&fd).map(|f| self.files[*f].kind)
    }

    /// An open descriptor of the UVM file that VA spaces were registered through.
    pub fn uvm_fd(&self) -> Option<i32> {
        self.fds.iter().filter(|(_, f)| self.spaces == Some(**f)).map(|(fd, _)| *fd).min()
    }

    /// Descriptors of the file that a client was made through.
    pub fn client_fds(&self, client: u32) -> Vec<i32> {
        let mut fds: Vec<i32> =
            self.fds.iter().filter(|(_, f)| self.files[**f].clients.contains(&client)).map(|(fd, _)| *fd).collect();
        fds.sort_unstable();
        fds
    }
}

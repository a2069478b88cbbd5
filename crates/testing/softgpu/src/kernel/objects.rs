//! Clients and the trees of objects in them.

use crate::engine::{Channel, Engine};
use crate::memory::Memory;
use crate::space::AddressSpace;
use crate::status::{self, Outcome};
use rm::class;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

/// A channel group: what its channels share.
#[derive(Debug)]
pub struct Group {
    pub engine: Engine,
    pub space: Option<Arc<AddressSpace>>,
    pub scheduled: Mutex<bool>,
    pub channels: Mutex<Vec<Weak<Channel>>>,
}

#[derive(Clone, Debug)]
pub enum Kind {
    Device,
    Subdevice,
    Memory(Arc<Memory>),
    Usermode,
    Space(Arc<AddressSpace>),
    Group(Arc<Group>),
    ContextShare(Arc<AddressSpace>),
    /// `wrapped`: allocated under the device; RM creates a group around it.
    Channel {
        channel: Arc<Channel>,
        group: Arc<Group>,
    },
    /// The object that reports whether confidential computing is on.
    Confidential,
    /// A client's part of the GPU (MIG).
    Part,
    /// A copy, compute or inline object on a channel.
    EngineObject {
        channel: Weak<Channel>,
        class: u32,
    },
}

impl Kind {
    /// Memory and engines have several classes: one represents all.
    fn class(&self) -> u32 {
        match self {
            Kind::Device => class::NV01_DEVICE_0,
            Kind::Subdevice => class::NV20_SUBDEVICE_0,
            Kind::Memory(_) => class::NV01_MEMORY_LOCAL_USER,
            Kind::Usermode => class::HOPPER_USERMODE_A,
            Kind::Space(_) => class::FERMI_VASPACE_A,
            Kind::Group(_) => class::KEPLER_CHANNEL_GROUP_A,
            Kind::ContextShare(_) => class::FERMI_CONTEXT_SHARE_A,
            Kind::Channel { .. } => class::HOPPER_CHANNEL_GPFIFO_A,
            Kind::Confidential => class::NV_CONFIDENTIAL_COMPUTE,
            Kind::Part => class::AMPERE_SMC_PARTITION_REF,
            Kind::EngineObject { class, .. } => *class,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Object {
    pub parent: u32,
    pub kind: Kind,
}

#[derive(Debug)]
pub struct Client {
    /// The control file that made it.
    pub owner: u64,
    pub objects: HashMap<u32, Object>,
}

#[derive(Debug, Default)]
pub struct Objects {
    pub clients: HashMap<u32, Client>,
    next_client: u32,
    next_object: u32,
    /// Bytes of GPU memory handed out and not freed by handle.
    pub video_used: u64,
    pub channels_created: usize,
}

impl Objects {
    /// A client, for a caller on the control file that made it.
    pub fn client(&mut self, handle: u32, caller: u64) -> Outcome<&mut Client> {
        self.clients.get_mut(&handle).filter(|client| client.owner == caller).ok_or(status::INVALID_CLIENT)
    }

    pub fn object(&self, client: u32, handle: u32) -> Outcome<&Object> {
        self.clients.get(&client).and_then(|c| c.objects.get(&handle)).ok_or(status::OBJECT_NOT_FOUND)
    }

    /// Whether some handle names this memory: duplicates do.
    pub fn names(&self, memory: &Arc<Memory>) -> bool {
        let all = self.clients.values().flat_map(|client| client.objects.values());
        all.into_iter().any(|object| matches!(&object.kind, Kind::Memory(other) if Arc::ptr_eq(other, memory)))
    }

    pub fn new_client_handle(&mut self, wanted: u32) -> Outcome<u32> {
        if wanted != 0 {
            return if self.clients.contains_key(&wanted) { Err(status::INSERT_DUPLICATE_NAME) } else { Ok(wanted) };
        }
        loop {
            let handle = 0xc1d0_0000 + self.next_client;
            self.next_client += 1;
            if !self.clients.contains_key(&handle) {
                return Ok(handle);
            }
        }
    }

    pub fn insert(&mut self, client: u32, wanted: u32, object: Object) -> Outcome<u32> {
        let handle = self.free_handle(client, wanted)?;
        self.clients.get_mut(&client).ok_or(status::INVALID_CLIENT)?.objects.insert(handle, object);
        Ok(handle)
    }

    /// The handle that an object will get: the wanted one if free, or one that RM chooses.
    pub fn free_handle(&mut self, client: u32, wanted: u32) -> Outcome<u32> {
        let taken = |objects: &Objects, handle| {
            handle == client || objects.clients.get(&client).is_some_and(|c| c.objects.contains_key(&handle))
        };
        if wanted != 0 {
            return if taken(self, wanted) { Err(status::INSERT_DUPLICATE_NAME) } else { Ok(wanted) };
        }
        loop {
            let handle = 0xcaf0_0000 + self.next_object;
            self.next_object += 1;
            if !taken(self, handle) {
                return Ok(handle);
            }
        }
    }

    /// Class and parent of an object; a client has no parent.
    pub fn described(&self, client: u32, handle: u32) -> Outcome<(u32, u32)> {
        if handle == client && self.clients.contains_key(&client) {
            return Ok((class::NV01_ROOT_CLIENT, 0));
        }
        let object = self.object(client, handle)?;
        Ok((object.kind.class(), object.parent))
    }

    pub fn memory(&self, client: u32, handle: u32) -> Outcome<Arc<Memory>> {
        match &self.object(client, handle)?.kind {
            Kind::Memory(memory) => Ok(memory.clone()),
            _ => Err(status::INVALID_OBJECT_HANDLE),
        }
    }

    pub fn space(&self, client: u32, handle: u32) -> Outcome<Arc<AddressSpace>> {
        match &self.object(client, handle)?.kind {
            Kind::Space(space) => Ok(space.clone()),
            _ => Err(status::INVALID_OBJECT_HANDLE),
        }
    }

    /// An object and all below it, children first.
    pub fn subtree(&self, client: u32, handle: u32) -> Vec<u32> {
        let Some(client) = self.clients.get(&client) else { return Vec::new() };
        let mut order = vec![handle];
        let mut next = 0;
        while let Some(&parent) = order.get(next) {
            order.extend(client.objects.iter().filter(|(_, o)| o.parent == parent).map(|(h, _)| *h));
            next += 1;
        }
        order.reverse();
        order
    }
}

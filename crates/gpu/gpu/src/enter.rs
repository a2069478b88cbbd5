//! How doorbell enters CUDA's address space: the CUDA handles that its channels need.

use crate::device::{Device, Entry, Theirs};
use crate::error::Error;
use crate::space::AddressSpace;
use crate::watched::{CudasGroup, Watched};
use rm::driver::Driver;
use rm::graph::ObjectKind;
use std::sync::Arc;

impl Watched {
    /// UUIDs of the GPUs that have a VA space registered with UVM.
    pub fn gpus(&self) -> Vec<[u8; 16]> {
        let mut gpus: Vec<_> = self.graph().va_spaces().iter().map(|(_, _, uuid)| *uuid).collect();
        gpus.sort_unstable();
        gpus.dedup();
        gpus
    }

    /// CUDA's address space on the GPU with that UUID, for doorbell's own channels.
    ///
    /// # Errors
    /// If CUDA has no context there, or the driver refuses.
    pub fn address_space(
        &'static self,
        driver: Arc<dyn Driver>,
        uuid: [u8; 16],
        entry: Entry,
    ) -> Result<Arc<AddressSpace>, Error> {
        let theirs = self.theirs(uuid)?;
        let device = Device::beside(driver.clone(), &theirs, entry)?;
        let handle = match entry {
            Entry::CudasClient => theirs.va_space,
            Entry::OwnClient => rm::driver::dup_object(
                &*driver,
                device.ctl,
                device.client,
                device.device,
                theirs.client,
                theirs.va_space,
            )?,
        };
        Ok(AddressSpace::beside(&device, handle, self, (theirs.client, theirs.va_space)))
    }

    /// CUDA's graphics channel group, for a channel of doorbell in it.
    pub(crate) fn group(&self, client: u32, device: u32) -> Option<CudasGroup> {
        let graph = self.graph();
        let channel = graph.channels().iter().find(|c| {
            let group = c.group.and_then(|group| graph.object(client, group));
            c.alive()
                && c.client == client
                && c.context_share.is_some()
                && group.is_some_and(|g| g.parent_handle == device)
        })?;
        Some(CudasGroup { group: channel.group?, share: channel.context_share?, contexts: channel.uvm? })
    }

    pub(crate) fn theirs(&self, uuid: [u8; 16]) -> Result<Theirs, Error> {
        let missing = |what: &str| Error::Libcuda(format!("{what}: create a CUDA context on this GPU first"));
        let graph = self.graph();
        let &(client, va_space, _) = graph
            .va_spaces()
            .iter()
            .rev()
            .find(|(client, handle, gpu)| *gpu == uuid && graph.object(*client, *handle).is_some())
            .ok_or_else(|| missing("CUDA has no address space registered for this GPU"))?;
        let device = graph
            .object(client, va_space)
            .and_then(|space| graph.object(client, space.parent_handle))
            .ok_or_else(|| missing("the address space's device was not seen"))?;
        let ObjectKind::Device { instance } = device.kind else { return Err(missing("no device above the VA space")) };
        let subdevice = graph
            .objects()
            .iter()
            .find(|o| {
                o.client == client
                    && o.parent_handle == device.handle
                    && o.freed.is_none()
                    && matches!(o.kind, ObjectKind::Subdevice { .. })
            })
            .ok_or_else(|| missing("no subdevice"))?;
        let ctl = *graph.client_fds(client).first().ok_or_else(|| missing("CUDA's control file is closed"))?;
        let uvm = graph.uvm_fd().ok_or_else(|| missing("CUDA's UVM file was not seen"))?;
        Ok(Theirs { ctl, uvm, client, device: device.handle, subdevice: subdevice.handle, va_space, uuid, instance })
    }
}

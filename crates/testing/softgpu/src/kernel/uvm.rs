//! `/dev/nvidia-uvm`: which memory the GPU sees at which address.

use super::card::UUID;
use super::objects::Kind;
use super::{File, Machine, with_shape};
use crate::memory::PAGE;
use crate::space::AddressSpace;
use crate::status::{self, Outcome};
use rm::abi::Plain;
use rm::abi::uvm::{
    self, GpuMapping, GpuRange, Initialize, MapExternal, MmInitialize, Range, RegisterChannel, RegisterGpu,
    RegisterGpuVaspace, UnregisterGpu,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// UVM's state of one open file: its VA space.
#[derive(Debug, Default)]
pub struct Uvm {
    initialized: bool,
    gpu: bool,
    space: Option<Arc<AddressSpace>>,
    /// External ranges: base to length.
    ranges: BTreeMap<u64, u64>,
}

impl Uvm {
    pub fn initialized(&self) -> bool {
        self.initialized
    }

    pub fn close(&mut self) {
        if let Some(space) = self.space.take() {
            space.set_registered(false);
            space.clear();
        }
        *self = Uvm::default();
    }

    /// The external range that holds all of it.
    fn covers(&self, base: u64, length: u64) -> bool {
        let Some(end) = base.checked_add(length) else { return false };
        self.ranges.range(..=base).next_back().is_some_and(|(start, len)| end <= start + len)
    }

    fn create(&mut self, base: u64, length: u64) -> Outcome {
        let end = base.checked_add(length).ok_or(status::OUT_OF_RANGE)?;
        if !base.is_multiple_of(PAGE) || !length.is_multiple_of(PAGE) || length == 0 || base == 0 {
            return Err(status::INVALID_ADDRESS);
        }
        if self.ranges.range(..end).next_back().is_some_and(|(start, len)| start + len > base) {
            return Err(status::UVM_ADDRESS_IN_USE);
        }
        self.ranges.insert(base, length);
        Ok(())
    }

    fn gpu(&self, uuid: &[u8; 16]) -> Outcome {
        if *uuid != UUID {
            return Err(status::GPU_UUID_NOT_FOUND);
        }
        if self.gpu { Ok(()) } else { Err(status::INVALID_DEVICE) }
    }

    fn space(&self) -> Outcome<Arc<AddressSpace>> {
        self.space.clone().ok_or(status::INVALID_DEVICE)
    }

    fn unmap(&self, base: u64, length: u64) -> Outcome {
        if !self.covers(base, length) {
            return Err(status::INVALID_ADDRESS);
        }
        self.space()?.unmap(base, length);
        Ok(())
    }
}

impl Machine {
    /// # Safety
    /// `arg` points to the request's argument.
    pub(super) unsafe fn uvm_ioctl(&self, file: &File, request: u64, arg: *mut u8) -> i32 {
        let layouts = &self.branch.layouts;
        if !crate::sys::readable(arg as usize, uvm::size(self.branch, request)) {
            return libc::EFAULT;
        }
        let mut state = poison::ignore(file.state.lock());
        let uvm = &mut state.uvm;
        if request != uvm::INITIALIZE && request != uvm::MM_INITIALIZE && !uvm.initialized {
            // The status of a call that UVM does not even process stays unchanged; the ioctl itself fails.
            return libc::EBADFD;
        }
        // SAFETY: the caller promises that arg points to the request's struct, as each arm assumes.
        unsafe {
            match request {
                uvm::INITIALIZE => with(arg, |p: &mut Initialize| {
                    uvm.initialized = true;
                    p.status = status::OK;
                }),
                uvm::MM_INITIALIZE => with(arg, |p: &mut MmInitialize| p.status = status::OK),
                uvm::DEINITIALIZE => uvm.close(),
                uvm::PAGEABLE_MEM_ACCESS => with(arg, |p: &mut [u32; 2]| *p = [0, status::OK]),
                uvm::REGISTER_GPU => with(arg, |p: &mut RegisterGpu| {
                    p.status = if p.uuid == UUID { status::OK } else { status::GPU_UUID_NOT_FOUND };
                    uvm.gpu |= p.status == status::OK;
                    p.numa_node = -1;
                }),
                uvm::UNREGISTER_GPU => with(arg, |p: &mut UnregisterGpu| p.status = status::of(uvm.gpu(&p.uuid))),
                uvm::REGISTER_GPU_VASPACE => with(arg, |p: &mut RegisterGpuVaspace| {
                    p.status = status::of(self.register_space(uvm, p));
                }),
                uvm::UNREGISTER_GPU_VASPACE => with(arg, |p: &mut UnregisterGpu| {
                    p.status = status::of(uvm.gpu(&p.uuid).and_then(|()| uvm.space()).map(|space| {
                        space.set_registered(false);
                        space.clear();
                        uvm.space = None;
                    }));
                }),
                uvm::CREATE_EXTERNAL_RANGE => with(arg, |p: &mut Range| {
                    p.status = status::of(uvm.create(p.base, p.length));
                }),
                uvm::MAP_EXTERNAL_ALLOCATION => with_shape(arg, &layouts.uvm_map_external, |p| {
                    p.status = status::of(self.map_external(uvm, p));
                }),
                uvm::UNMAP_EXTERNAL => with(arg, |p: &mut GpuRange| {
                    p.status = status::of(uvm.gpu(&p.uuid).and_then(|()| uvm.unmap(p.base, p.length)));
                }),
                uvm::FREE => with_shape(arg, &layouts.uvm_free, |p| {
                    p.status = status::of(match uvm.ranges.remove(&p.base) {
                        Some(length) => {
                            if let Some(space) = &uvm.space {
                                space.unmap(p.base, length);
                            }
                            Ok(())
                        }
                        None => Err(status::INVALID_ADDRESS),
                    });
                }),
                uvm::REGISTER_CHANNEL => with(arg, |p: &mut RegisterChannel| {
                    p.status = status::of(self.register_channel(uvm, p));
                }),
                uvm::UNREGISTER_CHANNEL => with_shape(arg, &layouts.uvm_unregister_channel, |p| {
                    let named = layouts.uvm_unregister_channel.offset(0).is_some();
                    let gpu = if named { uvm.gpu(&p.uuid) } else { Ok(()) };
                    p.status = status::of(gpu.and_then(|()| self.bind(p.client, p.channel, None)));
                }),
                _ => return libc::EINVAL,
            }
        }
        0
    }

    fn register_space(&self, uvm: &mut Uvm, call: &RegisterGpuVaspace) -> Outcome {
        uvm.gpu(&call.uuid)?;
        let space = poison::ignore(self.objects.lock()).space(call.client, call.va_space)?;
        if uvm.space.is_some() || space.registered() {
            return Err(status::INVALID_DEVICE);
        }
        space.set_registered(true);
        uvm.space = Some(space);
        Ok(())
    }

    fn map_external(&self, uvm: &Uvm, call: &MapExternal) -> Outcome {
        if call.gpu_count == 0 || call.gpu_count > call.gpus.len() as u64 {
            return Err(status::INVALID_ARGUMENT);
        }
        if [call.base, call.length, call.offset].iter().any(|v| !v.is_multiple_of(PAGE)) || call.length == 0 {
            return Err(status::INVALID_ADDRESS);
        }
        let gpu = &call.gpus[0];
        uvm.gpu(&gpu.uuid)?;
        let space = uvm.space()?;
        if !uvm.covers(call.base, call.length) {
            return Err(status::INVALID_ADDRESS);
        }
        let memory = poison::ignore(self.objects.lock()).memory(call.client, call.memory)?;
        if call.offset.checked_add(call.length).is_none_or(|end| end > memory.size) {
            return Err(status::INVALID_OFFSET);
        }
        let writable = gpu.mapping != GpuMapping::READ_ONLY;
        space.map(call.base, call.length, memory, call.offset, writable).ok_or(status::UVM_ADDRESS_IN_USE)
    }

    /// UVM_REGISTER_CHANNEL: the channel's VA space must be the registered one.
    fn register_channel(&self, uvm: &Uvm, call: &RegisterChannel) -> Outcome {
        uvm.gpu(&call.uuid)?;
        self.bind(call.client, call.channel, Some(uvm.space()?))
    }

    fn bind(&self, client: u32, channel: u32, space: Option<Arc<AddressSpace>>) -> Outcome {
        let objects = poison::ignore(self.objects.lock());
        let Kind::Channel { channel, .. } = &objects.object(client, channel)?.kind else {
            return Err(status::INVALID_CHANNEL);
        };
        if space.as_ref().is_some_and(|space| !Arc::ptr_eq(space, &channel.space)) {
            return Err(status::INVALID_ARGUMENT);
        }
        channel.bound.store(space.is_some(), Ordering::Release);
        Ok(())
    }
}

/// # Safety
/// `arg` points to a `T`; UVM's requests carry no size to check.
unsafe fn with<T: Plain>(arg: *mut u8, call: impl FnOnce(&mut T)) {
    // SAFETY: the caller's contract; the pointer may be unaligned, and any bytes are a valid value.
    unsafe {
        let mut value = arg.cast::<T>().read_unaligned();
        call(&mut value);
        arg.cast::<T>().write_unaligned(value);
    }
}

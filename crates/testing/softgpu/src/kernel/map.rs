//! RM_MAP_MEMORY and the `mmap` that follows it.

use super::card::REGISTERS;
use super::objects::Kind;
use super::{File, FileState, Machine, Mode, Node, Window};
use crate::doorbell::{self, USERMODE_SIZE};
use crate::memory::{Memory, PAGE, Place};
use crate::status::{self, Outcome};
use crate::{signal, sys};
use rm::abi::{Nvos33Fd, Nvos34};
use std::os::fd::RawFd;
use std::sync::Arc;

/// Where `pLinearAddress` counts host memory from: no address of any BAR.
const HOST: u64 = 0x4000_0000;

impl Machine {
    /// RM_MAP_MEMORY: the named file represents the range until it is closed.
    pub(super) fn map_memory(&self, file: &File, call: &mut Nvos33Fd) -> i32 {
        call.status = status::of(self.prepare_mapping(file, call));
        0
    }

    fn prepare_mapping(&self, file: &File, call: &mut Nvos33Fd) -> Outcome {
        let kind = {
            let mut objects = poison::ignore(self.objects.lock());
            objects.client(call.client, Self::control_of(file))?;
            match objects.object(call.client, call.device)?.kind {
                Kind::Device | Kind::Subdevice => {}
                _ => return Err(status::INVALID_OBJECT_PARENT),
            }
            objects.object(call.client, call.memory)?.kind.clone()
        };
        let target = self.file(call.fd).ok_or(status::INVALID_ARGUMENT)?;
        let window = match kind {
            Kind::Memory(memory) => {
                // Memory in a BAR is mapped through nvidia0, system memory through nvidiactl.
                let node = if memory.place == Place::Video { Node::Gpu } else { Node::Control };
                let end = call.offset.checked_add(call.length).ok_or(status::INVALID_LIMIT)?;
                if target.node != node || memory.place == Place::User {
                    return Err(status::INVALID_ARGUMENT);
                }
                if !call.offset.is_multiple_of(PAGE) || call.length == 0 || end > memory.size {
                    return Err(status::INVALID_LIMIT);
                }
                Window::Memory { memory, offset: call.offset, length: call.length }
            }
            Kind::Usermode if target.node != Node::Gpu => return Err(status::INVALID_ARGUMENT),
            Kind::Usermode if call.offset != 0 || call.length != USERMODE_SIZE => return Err(status::INVALID_LIMIT),
            Kind::Usermode => Window::Usermode,
            _ => return Err(status::INVALID_OBJECT_HANDLE),
        };
        let mut state = poison::ignore(target.state.lock());
        if target.node == Node::Gpu && state.control.is_none() {
            return Err(status::INVALID_STATE);
        }
        if state.mapping.is_some() {
            return Err(status::STATE_IN_USE);
        }
        call.linear = match &window {
            Window::Memory { memory, offset, length } if memory.place == Place::Video => {
                poison::ignore(self.bar1.lock()).map(call.client, call.memory, memory, *offset, *length)?
            }
            Window::Memory { offset, .. } => HOST + offset,
            Window::Usermode => REGISTERS,
        };
        state.mapping = Some(window);
        Ok(())
    }

    /// RM_UNMAP_MEMORY: the CPU mapping itself is removed by `munmap`.
    pub(super) fn unmap_memory(&self, file: &File, call: &mut Nvos34) -> i32 {
        let check = || -> Outcome {
            let mut objects = poison::ignore(self.objects.lock());
            objects.client(call.client, Self::control_of(file))?;
            match &objects.object(call.client, call.memory)?.kind {
                Kind::Memory(memory) if memory.place == Place::Video => {
                    poison::ignore(self.bar1.lock()).unmap(call.client, call.memory, call.linear)
                }
                _ => Ok(()),
            }
        };
        call.status = status::of(check());
        0
    }

    /// `mmap` of a file of the software GPU: the address, or an errno.
    ///
    /// # Safety
    /// As `mmap(2)`.
    pub unsafe fn mmap(
        &'static self,
        fd: RawFd,
        addr: usize,
        len: usize,
        prot: i32,
        flags: i32,
        offset: i64,
    ) -> Result<usize, i32> {
        let file = self.file(fd).ok_or(libc::EBADF)?;
        if file.node == Node::Uvm {
            let state = poison::ignore(file.state.lock());
            return uvm_reservation(&state, addr, len, flags);
        }
        let window = poison::ignore(file.state.lock()).mapping.clone().ok_or(libc::EINVAL)?;
        if offset != 0 || len == 0 {
            return Err(libc::EINVAL);
        }
        match window {
            Window::Memory { memory, offset, length } => {
                let whole = (len as u64).div_ceil(PAGE) == length.div_ceil(PAGE);
                // BAR mappings take the exact length; system memory may be mapped in part.
                if !whole && (memory.place == Place::Video || len as u64 > length) {
                    return Err(libc::EINVAL);
                }
                // SAFETY: the caller's contract.
                unsafe { map_file(&memory, addr, len, prot, flags, offset as i64) }
            }
            Window::Usermode if len as u64 != USERMODE_SIZE => Err(libc::EINVAL),
            Window::Usermode => {
                let page = self.usermode_memory()?;
                let trapped = self.mode == Mode::Strict;
                let real = if trapped { libc::PROT_NONE } else { prot };
                // SAFETY: the caller's contract.
                let at = unsafe { map_file(&page, addr, len, real, flags, 0)? };
                if trapped {
                    signal::install();
                    if !doorbell::register(at, len, prot, self.bell) {
                        // SAFETY: the mapping was just made, and it is not in use yet.
                        unsafe { sys::munmap(at, len) };
                        return Err(libc::ENOMEM);
                    }
                }
                Ok(at)
            }
        }
    }

    fn usermode_memory(&self) -> Result<Arc<Memory>, i32> {
        let mut page = poison::ignore(self.usermode.lock());
        if let Some(memory) = page.as_ref() {
            return Ok(memory.clone());
        }
        let memory = Arc::new(Memory::new(Place::Video, USERMODE_SIZE).map_err(|_| libc::ENOMEM)?);
        if self.mode == Mode::Poll {
            self.runlists.show_clock(memory.clone());
        }
        *page = Some(memory.clone());
        Ok(memory)
    }
}

/// # Safety
/// As `mmap(2)`.
unsafe fn map_file(memory: &Memory, addr: usize, len: usize, prot: i32, flags: i32, offset: i64) -> Result<usize, i32> {
    let (fd, begin) = memory.file().ok_or(libc::EINVAL)?;
    // SAFETY: the caller's contract.
    let at = unsafe { sys::mmap(addr, len, prot, flags, fd, begin as i64 + offset) };
    if at == libc::MAP_FAILED { Err(sys::errno()) } else { Ok(at as usize) }
}

/// UVM files are mapped to reserve addresses for managed memory, which is not modelled: only the range is reserved.
fn uvm_reservation(state: &FileState, addr: usize, len: usize, flags: i32) -> Result<usize, i32> {
    if !state.uvm.initialized() {
        return Err(libc::EBADFD);
    }
    let flags = flags & !libc::MAP_SHARED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a reservation without rights; with MAP_FIXED the caller of mmap is responsible for the range.
    let at = unsafe { sys::mmap(addr, len, libc::PROT_NONE, flags, -1, 0) };
    if at == libc::MAP_FAILED { Err(sys::errno()) } else { Ok(at as usize) }
}

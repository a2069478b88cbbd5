//! A checked range of memory that a transfer can be prepared for.
//!
//! A region is part of existing memory: of doorbell's [`Memory`](crate::Memory) or of CUDA memory in a [`Pin`](crate::Pin).
//! It names the memory and does not keep it. When the memory is dropped, unpinned, unmapped or freed, the region is stale
//! forever, even if its address gets other memory. Transfers prepared with it are then refused ([`Error::Stale`]), and those
//! in flight are waited for before the memory is freed (`lease` has the rules).
//!
//! **CUDA's small blocks.** CUDA gives out blocks of a mapping that it keeps, and frees them without a driver call, so the
//! mappings do not show it. Three mechanisms do:
//!
//! - [`Libcuda::open`](crate::Libcuda::open) replaces the functions that free (cuMemFree, cuMemFreeAsync, cuMemFreeHost,
//!   cuMemHostUnregister), for all code that looks them up later or is linked to them. Before a free the pins of its memory
//!   end, and submissions in flight are waited for.
//! - A pin may have a [`Witness`](crate::Witness), which is called when a transfer is prepared, and at each submission after
//!   [`AddressSpace::check_each_submission`]: `machine::pin` queries the allocation's number from CUDA
//!   (CU_POINTER_ATTRIBUTE_BUFFER_ID).
//! - A pin that is dropped waits for submissions in flight.
//!
//! None of them sees memory that a graph frees and allocates (cudaMallocAsync in a captured stream), or a free through a
//! pointer that was looked up before `Libcuda::open`. Unpin such memory before it is freed, or check each submission.

use crate::error::Error;
use crate::lease::Lease;
use crate::space::{AddressSpace, Grant};
use std::sync::Arc;

/// The owner of a region's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// GPU memory that doorbell allocated.
    Video,
    /// Host memory that doorbell allocated and pinned.
    Host,
    /// CUDA memory, pinned by [`AddressSpace::pin`].
    Cuda,
}

/// A range of memory that transfers may be prepared for.
#[derive(Clone, Debug)]
pub struct Region {
    space: Arc<AddressSpace>,
    grant: Grant,
    owner: Owner,
    gpus: Arc<[[u8; 16]]>,
    va: u64,
    length: u64,
    lease: Arc<Lease>,
}

impl Region {
    /// For a range that its owner has: `va + length` does not overflow.
    pub(crate) fn new(
        space: &Arc<AddressSpace>,
        grant: Grant,
        owner: Owner,
        gpus: Arc<[[u8; 16]]>,
        lease: &Arc<Lease>,
        (va, length): (u64, u64),
    ) -> Region {
        debug_assert!(va.checked_add(length).is_some());
        Region { space: space.clone(), grant, owner, gpus, va, length, lease: lease.clone() }
    }

    /// `length` bytes of it at `offset`.
    ///
    /// # Errors
    /// [`Error::Outside`] if they are not all within it, [`Error::Length`] for no bytes.
    pub fn part(&self, offset: u64, length: u64) -> Result<Region, Error> {
        match offset.checked_add(length) {
            Some(end) if end <= self.length => {}
            _ => return Err(Error::Outside { offset, length, size: self.length }),
        }
        if length == 0 {
            return Err(Error::Length(0));
        }
        Ok(Region { va: self.va + offset, length, ..self.clone() })
    }

    /// Address, for the GPU.
    pub fn va(&self) -> u64 {
        self.va
    }

    /// Bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// UUIDs of the GPUs for which it is mapped.
    pub fn gpus(&self) -> &[[u8; 16]] {
        &self.gpus
    }

    pub fn space(&self) -> &Arc<AddressSpace> {
        &self.space
    }

    /// Whether `length` bytes at address `va` are all within it.
    #[inline]
    pub fn holds(&self, va: u64, length: u64) -> bool {
        va >= self.va && va - self.va <= self.length && length <= self.length - (va - self.va)
    }

    /// Whether its memory is still the same: looks it up. Another thread may free it right after the answer, so a submission
    /// takes its ticket first.
    pub fn is_live(&self) -> bool {
        self.is_still_live() && self.space.is_granted(self.grant, self.va, self.length)
    }

    /// Whether its lease is not over. Takes no lock.
    #[inline]
    pub fn is_still_live(&self) -> bool {
        !self.lease.is_over()
    }

    #[inline]
    pub(crate) fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }

    /// Checks that it is of this address space, and mapped for this GPU.
    #[inline]
    pub(crate) fn belongs(&self, space: &Arc<AddressSpace>, gpu: [u8; 16]) -> Result<(), Error> {
        if !Arc::ptr_eq(&self.space, space) {
            return Err(Error::OtherSpace { va: self.va });
        }
        if !self.gpus.contains(&gpu) {
            return Err(Error::OtherGpu { va: self.va });
        }
        Ok(())
    }

    /// Calls the witness if each submission must ([`AddressSpace::check_each_submission`]). [`Prepared`](crate::Prepared)
    /// transfers do this themselves. For [`Copies`](crate::Copies) it is done before [`begin`](crate::Copies::begin),
    /// because the witness may take a lock whose holder waits for a ticket.
    ///
    /// # Errors
    /// [`Error::Reused`].
    pub fn ask_where_wanted(&self) -> Result<(), Error> {
        if self.space.checks_each_submission() { self.ask() } else { Ok(()) }
    }

    /// Calls the witness: is the allocation still the one that was pinned? If not, the pin ends.
    pub(crate) fn ask(&self) -> Result<(), Error> {
        if let Grant::Pin(id) = self.grant {
            self.space.ask(id)?;
        }
        Ok(())
    }

    /// Checks that a channel in `space`, on the GPU with that UUID, may name it now.
    pub(crate) fn check(&self, space: &Arc<AddressSpace>, gpu: [u8; 16]) -> Result<(), Error> {
        self.belongs(space, gpu)?;
        self.ask()?;
        if self.is_live() { Ok(()) } else { Err(Error::Stale) }
    }
}

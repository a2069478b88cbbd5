//! A checked range of memory: what a transfer is prepared between.
//!
//! A region can only be cut out of memory that is there: of a [`Memory`](crate::Memory) of ours or of a [`Pin`](crate::Pin) of
//! CUDA's. It names the memory and does not keep it. When the memory is dropped, unpinned, unmapped or freed, the region is
//! stale for ever, also where something else comes to lie at its address: transfers that were prepared with it are refused
//! ([`Error::Stale`]), and what of them is in flight is waited for before the memory goes (`lease` has the rules).
//!
//! **CUDA's small blocks.** CUDA gives out blocks of a mapping that it keeps, and frees them without a call of the driver, so
//! the mappings do not show it. Three things do:
//!
//! - the functions that free (cuMemFree, cuMemFreeAsync, cuMemFreeHost, cuMemHostUnregister) are exchanged by
//!   [`Libcuda::open`](crate::Libcuda::open), for everybody who looks them up from then on or is linked to them: the pins of
//!   what is about to be freed end first, and what is in flight is waited for;
//! - a pin may have a [`Witness`](crate::Witness), which is asked when a transfer is prepared, and at each submission after
//!   [`AddressSpace::check_each_submission`]: `copy::pin` asks CUDA for the allocation's number (CU_POINTER_ATTRIBUTE_BUFFER_ID);
//! - a pin that is dropped waits for what is in flight.
//!
//! What none of them sees is memory that a graph frees and allocates (cudaMallocAsync in a stream that is captured), and a free
//! through a pointer that was looked up before `Libcuda::open`: unpin such memory before it is freed, or check each submission.

use crate::error::Error;
use crate::lease::Lease;
use crate::space::{AddressSpace, Grant};
use std::sync::Arc;

/// Whose memory a region is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Video memory that we allocated.
    Video,
    /// Host memory that we allocated and pinned.
    Host,
    /// CUDA's, pinned by [`AddressSpace::pin`].
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
    /// Of a range that its owner has: `va + length` does not overflow.
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

    /// `length` bytes at `offset` of it.
    ///
    /// # Errors
    /// [`Error::Outside`] where they are not all within it, [`Error::Length`] for no bytes.
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

    /// Whether the memory is still what it was: looks it up. Something may free it right after the answer: what submits takes its
    /// ticket first.
    pub fn is_live(&self) -> bool {
        self.is_still_live() && self.space.is_granted(self.grant, self.va, self.length)
    }

    /// Whether its lease is not over. No lock.
    #[inline]
    pub fn is_still_live(&self) -> bool {
        !self.lease.is_over()
    }

    #[inline]
    pub(crate) fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }

    /// That it is of this address space, and mapped for this GPU.
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

    /// Where each submission is to ask ([`AddressSpace::check_each_submission`]): asks. [`Prepared`](crate::Prepared) transfers
    /// do it themselves; for [`Copies`](crate::Copies) it is done before [`begin`](crate::Copies::begin), because the answer may
    /// take a lock whose holder waits for a ticket.
    ///
    /// # Errors
    /// [`Error::Reused`].
    pub fn ask_where_wanted(&self) -> Result<(), Error> {
        if self.space.checks_each_submission() { self.ask() } else { Ok(()) }
    }

    /// Asks whoever allocated it whether the allocation is still the one that was pinned; if not, the pin ends.
    pub(crate) fn ask(&self) -> Result<(), Error> {
        if let Grant::Pin(id) = self.grant {
            self.space.ask(id)?;
        }
        Ok(())
    }

    /// That a channel in `space`, on the GPU of that UUID, may be told of it now.
    pub(crate) fn check(&self, space: &Arc<AddressSpace>, gpu: [u8; 16]) -> Result<(), Error> {
        self.belongs(space, gpu)?;
        self.ask()?;
        if self.is_live() { Ok(()) } else { Err(Error::Stale) }
    }
}

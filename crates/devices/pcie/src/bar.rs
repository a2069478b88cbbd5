//! A function's registers.

use crate::error::Error;
use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

/// Registers that are not mapped here: those of QEMU or of a model. Offsets are aligned and in bounds.
///
/// A load from a function that is gone returns ones, as on hardware; no access fails.
pub trait Registers: Send + Sync {
    fn load32(&self, offset: u64) -> u32;
    fn store32(&self, offset: u64, value: u32);

    /// Two halves if the access to the registers has only 32 bits.
    fn load64(&self, offset: u64) -> u64 {
        u64::from(self.load32(offset)) | u64::from(self.load32(offset + 4)) << 32
    }

    /// As [`Registers::load64`]; the lower half first.
    fn store64(&self, offset: u64, value: u64) {
        self.store32(offset, value as u32);
        self.store32(offset + 4, (value >> 32) as u32);
    }
}

/// One BAR of a function: registers, or memory on the device. Clones are the same BAR.
#[derive(Clone)]
pub struct Bar {
    kind: Kind,
    length: u64,
    bus: u64,
}

#[derive(Clone)]
enum Kind {
    Mapped { at: NonNull<u8>, _keep: Arc<dyn Any + Send + Sync> },
    Elsewhere(Arc<dyn Registers>),
}

// SAFETY: the pointer is to device memory that `_keep` keeps mapped; accesses are volatile and in the device's order.
unsafe impl Send for Bar {}
// SAFETY: as above.
unsafe impl Sync for Bar {}

impl Bar {
    /// A BAR that is mapped at `at`, whole, as long as `keep` lives; `bus` is its address on the bus.
    ///
    /// # Safety
    /// `length` bytes from `at` on, which is aligned to a page, stay mapped and may be loaded and stored as long as `keep` lives.
    pub unsafe fn mapped(at: NonNull<u8>, length: u64, bus: u64, keep: Arc<dyn Any + Send + Sync>) -> Bar {
        Bar { kind: Kind::Mapped { at, _keep: keep }, length, bus }
    }

    /// A BAR whose registers are reached by other means than a mapping.
    pub fn elsewhere(registers: Arc<dyn Registers>, length: u64, bus: u64) -> Bar {
        Bar { kind: Kind::Elsewhere(registers), length, bus }
    }

    pub fn length(&self) -> u64 {
        self.length
    }

    /// Its bus address.
    pub fn bus_address(&self) -> u64 {
        self.bus
    }

    /// Its address in this process; none if its registers are not mapped.
    pub(crate) fn mapped_at(&self) -> Option<NonNull<u8>> {
        match &self.kind {
            Kind::Mapped { at, .. } => Some(*at),
            Kind::Elsewhere(_) => None,
        }
    }

    /// The BAR as memory that other functions may reach; `what` names it in messages.
    pub fn peer(&self, what: impl Into<String>, device: crate::Address) -> crate::Peer {
        let keep = Arc::new(self.clone());
        crate::Peer { what: what.into(), device: Some(device), bus: self.bus, length: self.length, keep }
    }

    /// # Errors
    /// [`Error::OutOfBounds`] if `bytes` at `offset` are not all within the BAR: a driver checks this once, before it uses registers.
    pub fn holds(&self, offset: u64, bytes: u64) -> Result<(), Error> {
        let end = offset.saturating_add(bytes);
        if end > self.length {
            return Err(Error::OutOfBounds { what: "the BAR", at: offset, end, length: self.length });
        }
        Ok(())
    }

    /// # Panics
    /// If the offset is not aligned, or outside of the BAR: a driver must call [`Bar::holds`] first.
    #[inline]
    fn place<T>(&self, at: NonNull<u8>, offset: u64) -> *mut T {
        let bytes = size_of::<T>() as u64;
        assert!(offset.is_multiple_of(bytes) && offset < self.length && self.length - offset >= bytes, "{offset:#x}");
        // SAFETY: within the mapping, as was just checked.
        unsafe { at.as_ptr().add(offset as usize).cast() }
    }

    /// # Panics
    /// As [`Bar::store32`].
    #[inline]
    pub fn load32(&self, offset: u64) -> u32 {
        match &self.kind {
            // SAFETY: aligned and within the mapping (`place`), which `_keep` keeps.
            Kind::Mapped { at, .. } => u32::from_le(unsafe { self.place::<u32>(*at, offset).read_volatile() }),
            Kind::Elsewhere(registers) => registers.load32(offset),
        }
    }

    /// Stores to a BAR arrive in their order.
    ///
    /// # Panics
    /// If the offset is not aligned, or outside of a mapped BAR.
    #[inline]
    pub fn store32(&self, offset: u64, value: u32) {
        match &self.kind {
            // SAFETY: as in `load32`.
            Kind::Mapped { at, .. } => unsafe { self.place::<u32>(*at, offset).write_volatile(value.to_le()) },
            Kind::Elsewhere(registers) => registers.store32(offset, value),
        }
    }

    /// # Panics
    /// As [`Bar::store32`].
    #[inline]
    pub fn load64(&self, offset: u64) -> u64 {
        match &self.kind {
            // SAFETY: as in `load32`.
            Kind::Mapped { at, .. } => u64::from_le(unsafe { self.place::<u64>(*at, offset).read_volatile() }),
            Kind::Elsewhere(registers) => registers.load64(offset),
        }
    }

    /// # Panics
    /// As [`Bar::store32`].
    #[inline]
    pub fn store64(&self, offset: u64, value: u64) {
        match &self.kind {
            // SAFETY: as in `load32`.
            Kind::Mapped { at, .. } => unsafe { self.place::<u64>(*at, offset).write_volatile(value.to_le()) },
            Kind::Elsewhere(registers) => registers.store64(offset, value),
        }
    }
}

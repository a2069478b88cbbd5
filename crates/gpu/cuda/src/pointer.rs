//! What CUDA knows of an address.

use crate::Result;
use crate::context::Context;
use crate::error::Error;
use crate::functions::Cuda;
use std::ffi::c_int;

/// `CUDA_ERROR_INVALID_VALUE`, which a query of an address that CUDA does not know answers.
const INVALID_VALUE: i32 = 1;
/// `CUDA_ERROR_NOT_FOUND`, which a query of a range may answer instead.
const NOT_FOUND: i32 = 500;

/// `CUpointer_attribute` values that we ask for.
#[derive(Clone, Copy)]
#[repr(i32)]
enum Attribute {
    MemoryType = 2,
    BufferId = 7,
    IsManaged = 8,
    DeviceOrdinal = 9,
    RangeStart = 11,
    RangeSize = 12,
}

/// `CUmemorytype`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryType {
    /// Pinned by CUDA: allocated so, or registered.
    Host,
    Device,
    /// Arrays, and what later versions add.
    Other(u32),
}

/// An address that CUDA knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer {
    pub memory: MemoryType,
    /// `cudaMallocManaged`: it moves between host and device.
    pub managed: bool,
    /// CUDA's number of the device that it belongs to; of host memory, the device in whose context it was made.
    pub ordinal: i32,
    /// First address and bytes of the allocation.
    pub base: u64,
    pub bytes: u64,
    /// Its number (`CU_POINTER_ATTRIBUTE_BUFFER_ID`): no two allocations of a process have the same, at whatever address.
    pub allocation: u64,
}

impl Context {
    /// What `address` belongs to; `None` if CUDA does not know it.
    pub fn pointer(&self, address: u64) -> Result<Option<Pointer>> {
        let Some(memory) = known(self.attribute::<u32>(Attribute::MemoryType, address))? else { return Ok(None) };
        let memory = match memory {
            1 => MemoryType::Host,
            2 => MemoryType::Device,
            other => MemoryType::Other(other),
        };
        let managed = self.attribute::<u32>(Attribute::IsManaged, address)? != 0;
        let ordinal = self.attribute::<i32>(Attribute::DeviceOrdinal, address)?;
        let (base, bytes) = match known(self.range(address))? {
            Some(range) => range,
            // The range query is documented for device memory alone.
            None => (self.attribute(Attribute::RangeStart, address)?, self.attribute(Attribute::RangeSize, address)?),
        };
        let allocation = self.attribute(Attribute::BufferId, address)?;
        Ok(Some(Pointer { memory, managed, ordinal, base, bytes, allocation }))
    }

    fn range(&self, address: u64) -> Result<(u64, u64)> {
        let (mut base, mut bytes) = (0, 0);
        // SAFETY: writes one address and one size.
        unsafe { self.cuda.cuMemGetAddressRange_v2(&mut base, &mut bytes, address) }?;
        Ok((base, bytes as u64))
    }

    fn attribute<T: Default>(&self, attribute: Attribute, address: u64) -> Result<T> {
        self.cuda.pointer_attribute(attribute, address)
    }
}

impl Cuda {
    /// The number of the allocation that `address` belongs to now; `None` if CUDA does not know it.
    pub fn allocation(&self, address: u64) -> Result<Option<u64>> {
        known(self.pointer_attribute(Attribute::BufferId, address))
    }

    fn pointer_attribute<T: Default>(&self, attribute: Attribute, address: u64) -> Result<T> {
        // Room for the widest attribute, should a driver write more than is documented.
        #[repr(C)]
        struct Slot<T>(T, u64);
        let mut slot = Slot(T::default(), 0);
        // SAFETY: the attributes above are documented to write an int or an address, which T is.
        unsafe {
            self.cuPointerGetAttribute(std::ptr::from_mut(&mut slot).cast(), attribute as c_int, address)?;
        }
        Ok(slot.0)
    }
}

/// `None` where CUDA does not know the address.
fn known<T>(answer: Result<T>) -> Result<Option<T>> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(Error::Call { code: INVALID_VALUE | NOT_FOUND, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

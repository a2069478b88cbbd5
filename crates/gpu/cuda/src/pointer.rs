//! CUDA's information about an address.

use crate::Result;
use crate::context::Context;
use crate::error::Error;
use crate::functions::Cuda;
use std::ffi::c_int;

/// `CUDA_ERROR_INVALID_VALUE`: the result of a query for an address that CUDA does not know.
const INVALID_VALUE: i32 = 1;
/// `CUDA_ERROR_NOT_FOUND`: another result of a range query for such an address.
const NOT_FOUND: i32 = 500;

/// `CUpointer_attribute` values that this file queries.
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
    /// Pinned by CUDA, by allocation or registration.
    Host,
    Device,
    /// Arrays, and types that later versions add.
    Other(u32),
}

/// An address that CUDA knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer {
    pub memory: MemoryType,
    /// `cudaMallocManaged`: it moves between host and device.
    pub managed: bool,
    /// CUDA's number of the device that the memory belongs to. For host memory, the device in whose context it was
    /// allocated.
    pub ordinal: i32,
    /// First address and bytes of the allocation.
    pub base: u64,
    pub bytes: u64,
    /// The allocation's number (`CU_POINTER_ATTRIBUTE_BUFFER_ID`). No two allocations of a process have the same
    /// number, even at the same address.
    pub allocation: u64,
}

impl Context {
    /// The allocation at `address`; `None` if CUDA does not know the address.
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
            // The range query is documented for device memory only.
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
    /// The number of the allocation at `address` now; `None` if CUDA does not know the address.
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

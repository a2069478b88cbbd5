//! Devices and contexts.

use crate::Result;
use crate::capture::outside_capture;
use crate::error::Error;
use crate::functions::{Cuda, RawContext};
use std::ffi::c_int;

/// `CUdevice_attribute` values that this crate queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Attribute {
    MaxThreadsPerBlock = 1,
    MaxSharedMemoryPerBlock = 8,
    MultiprocessorCount = 16,
    Integrated = 18,
    CanMapHostMemory = 19,
    PciBus = 33,
    PciDevice = 34,
    AsyncEngines = 40,
    UnifiedAddressing = 41,
    PciDomain = 50,
    ComputeMajor = 75,
    ComputeMinor = 76,
}

/// One GPU, by CUDA's ordinal.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    cuda: Cuda,
    raw: c_int,
}

impl Cuda {
    pub fn device_count(&self) -> Result<usize> {
        let mut count = 0;
        // SAFETY: writes one int.
        unsafe { self.cuDeviceGetCount(&mut count) }?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    pub fn device(&self, ordinal: usize) -> Result<Device> {
        let mut raw = 0;
        // An ordinal that does not fit an int exceeds every device count: CUDA refuses it.
        let ordinal = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
        // SAFETY: writes one int.
        unsafe { self.cuDeviceGet(&mut raw, ordinal) }?;
        Ok(Device { cuda: *self, raw })
    }
}

impl Device {
    pub fn name(&self) -> Result<String> {
        let mut name = [0u8; 256];
        // SAFETY: writes at most 256 bytes, the size that is passed, zero-terminated.
        unsafe { self.cuda.cuDeviceGetName(name.as_mut_ptr().cast(), 256, self.raw) }?;
        let text = name.split(|byte| *byte == 0).next().unwrap_or(&[]);
        Ok(String::from_utf8_lossy(text).into_owned())
    }

    pub fn attribute(&self, attribute: Attribute) -> Result<i32> {
        let mut value = 0;
        // SAFETY: writes one int.
        unsafe { self.cuda.cuDeviceGetAttribute(&mut value, attribute as c_int, self.raw) }?;
        Ok(value)
    }

    /// The kernel driver uses the same UUID.
    pub fn uuid(&self) -> Result<[u8; 16]> {
        let mut uuid = [0; 16];
        // SAFETY: writes a CUuuid, 16 bytes.
        unsafe { self.cuda.cuDeviceGetUuid_v2(&mut uuid, self.raw) }?;
        Ok(uuid)
    }

    /// CUDA's number for the device.
    pub fn ordinal(&self) -> i32 {
        self.raw
    }

    /// Domain, bus, device as Linux writes them: `0000:41:00.0`.
    pub fn pci_address(&self) -> Result<String> {
        let [domain, bus, device] = [
            self.attribute(Attribute::PciDomain)?,
            self.attribute(Attribute::PciBus)?,
            self.attribute(Attribute::PciDevice)?,
        ];
        Ok(format!("{domain:04x}:{bus:02x}:{device:02x}.0"))
    }

    /// Retains the primary context (the one that the CUDA runtime uses) and makes it current on this thread.
    pub fn primary_context(&self) -> Result<Context> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: writes one handle.
        unsafe { self.cuda.cuDevicePrimaryCtxRetain(&mut raw, self.raw) }?;
        let context = Context { cuda: self.cuda, device: *self, raw };
        context.make_current()?;
        Ok(context)
    }
}

/// `CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED`.
const ALREADY_ENABLED: i32 = 704;

/// A device's primary context; released when dropped.
#[derive(Debug)]
pub struct Context {
    pub(crate) cuda: Cuda,
    device: Device,
    pub(crate) raw: RawContext,
}

// SAFETY: CUDA contexts may be used from any thread, by several at a time.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    pub fn cuda(&self) -> Cuda {
        self.cuda
    }

    pub fn device(&self) -> Device {
        self.device
    }

    /// Makes this the context of the calling thread.
    pub fn make_current(&self) -> Result<()> {
        // SAFETY: the context lives until this is dropped.
        unsafe { self.cuda.cuCtxSetCurrent(self.raw) }
    }

    /// Whether this context's GPU can reach the memory of another's, once that is enabled.
    pub fn can_reach(&self, peer: &Context) -> Result<bool> {
        let mut can = 0;
        // SAFETY: writes one int.
        unsafe { self.cuda.cuDeviceCanAccessPeer(&mut can, self.device.raw, peer.device.raw) }?;
        Ok(can != 0)
    }

    /// Lets this context's GPU reach all memory of another's, allocated now or later. This context becomes current on the calling
    /// thread. Returns false, without any change, where the two GPUs cannot.
    pub fn enable_peer(&self, peer: &Context) -> Result<bool> {
        if !self.can_reach(peer)? {
            return Ok(false);
        }
        self.make_current()?;
        // SAFETY: the other context lives; the flags have to be 0.
        match unsafe { self.cuda.cuCtxEnablePeerAccess(peer.raw, 0) } {
            Ok(()) | Err(Error::Call { code: ALREADY_ENABLED, .. }) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Waits for work that was submitted without a stream, such as copies that return before their last bytes have arrived.
    pub fn synchronize_default_stream(&self) -> Result<()> {
        let _outside = outside_capture();
        // SAFETY: null is the default stream (`CU_STREAM_LEGACY` in this build of the API).
        unsafe { self.cuda.cuStreamSynchronize(std::ptr::null_mut()) }
    }

    /// Waits for everything that was submitted in the current context, outside of every capture.
    pub fn synchronize(&self) -> Result<()> {
        let _outside = outside_capture();
        // SAFETY: takes nothing.
        unsafe { self.cuda.cuCtxSynchronize() }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // A failure means that the context is broken already, which an earlier call has reported.
        // SAFETY: everything made in this context borrows it, so no object is left.
        let _ = unsafe { self.cuda.cuDevicePrimaryCtxRelease_v2(self.device.raw) };
    }
}

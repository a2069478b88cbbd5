//! Readings of each GPU's clock together with the CPU's clock, for the ends of kernels. The recorder has its own RM client and usermode page for them, because
//! the clock is zero in the page that CUDA rings (BAR1; seen on an H200).

use crate::clock;
use rm::abi::usermode::{LENGTH, TIME_0, TIME_1};
use rm::abi::{DeviceAlloc, SubdeviceAlloc};
use rm::class;
use rm::driver::{self, Driver, Libc, RmError};
use std::ffi::{CString, c_void};
use std::io;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};
use tape::event::{Head, bytes_of};
use tape::stamp::{ClockBody, kind};

/// Bytes of a usermode mapping.
const PAGE: usize = LENGTH as usize;
/// The clocks drift by 10 ppm, steadily, so times between two readings are interpolated.
const EVERY: Duration = Duration::from_millis(200);
/// The fastest of this many readings is taken. One takes about 1 us.
const READINGS: usize = 16;

/// The clocks of all GPUs that can be opened.
pub struct GpuClocks {
    gpus: Vec<Gpu>,
    read: Option<Instant>,
}

struct Gpu {
    ctl: RawFd,
    /// The device's own file, and the file that maps the page.
    files: [RawFd; 2],
    page: *mut u8,
    instance: u32,
}

// SAFETY: the page is read by volatile loads alone, and unmapped with its owner.
unsafe impl Send for Gpu {}

impl GpuClocks {
    /// Opens the clocks. Without a driver, or if it refuses, there are none.
    pub fn open() -> GpuClocks {
        let cards = cards().unwrap_or_default();
        GpuClocks {
            gpus: cards.iter().filter_map(|(gpu_id, minor)| Gpu::open(*gpu_id, *minor).ok()).collect(),
            read: None,
        }
    }

    /// Events of all clocks, if the last ones were [`EVERY`] ago.
    pub fn events(&mut self) -> Vec<u8> {
        if self.read.is_some_and(|at| at.elapsed() < EVERY) {
            return Vec::new();
        }
        self.read = Some(Instant::now());
        let mut out = Vec::new();
        for gpu in &self.gpus {
            let Some((tsc, body)) = gpu.reading() else { continue };
            let len = (size_of::<Head>() + size_of::<ClockBody>()) as u32;
            out.extend_from_slice(bytes_of(&Head { kind: kind::CLOCK, flags: 0, len, tsc }));
            out.extend_from_slice(bytes_of(&body));
        }
        out
    }
}

/// Id and minor number of each GPU.
fn cards() -> io::Result<Vec<(u32, u32)>> {
    let ctl = Libc.open(c"/dev/nvidiactl")?;
    let cards = driver::card_info(&Libc, ctl);
    let _ = Libc.close(ctl);
    let cards = cards.map_err(io::Error::other)?;
    Ok(cards.iter().map(|card| (card.gpu_id, card.minor)).collect())
}

impl Gpu {
    fn open(gpu_id: u32, minor: u32) -> io::Result<Gpu> {
        let node = CString::new(format!("/dev/nvidia{minor}")).map_err(io::Error::other)?;
        let none = RawFd::from(-1);
        let mut gpu = Gpu { ctl: none, files: [none; 2], page: std::ptr::null_mut(), instance: 0 };
        gpu.ctl = Libc.open(c"/dev/nvidiactl")?;
        for file in &mut gpu.files {
            *file = Libc.open(&node)?;
        }
        gpu.map(gpu_id).map_err(io::Error::other)?;
        let prot = libc::PROT_READ;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let page = unsafe { Libc.mmap(std::ptr::null_mut(), PAGE, prot, libc::MAP_SHARED, gpu.files[1], 0) }?;
        gpu.page = page.cast();
        Ok(gpu)
    }

    /// Makes the driver prepare the mapping. The client frees all objects, and closing its file frees the client.
    fn map(&mut self, gpu_id: u32) -> Result<(), RmError> {
        let ctl = self.ctl;
        let client = driver::alloc_client(&Libc, ctl)?;
        self.files.iter().try_for_each(|file| driver::register_fd(&Libc, *file, ctl))?;
        self.instance = driver::device_instance(&Libc, ctl, client, gpu_id)?;
        let mut params = DeviceAlloc { device_id: self.instance, client_share: client, ..Default::default() };
        let device = driver::alloc(&Libc, ctl, client, client, 0, class::NV01_DEVICE_0, &mut params)?;
        let mut params = SubdeviceAlloc::default();
        let subdevice = driver::alloc(&Libc, ctl, client, device, 0, class::NV20_SUBDEVICE_0, &mut params)?;
        let object = driver::alloc_bytes(&Libc, ctl, client, subdevice, 0, class::HOPPER_USERMODE_A, &mut [])?;
        driver::map_memory(&Libc, ctl, client, subdevice, object, 0, LENGTH, 0, self.files[1])?;
        Ok(())
    }

    /// The fastest of some readings; `None` for a clock that is zero.
    fn reading(&self) -> Option<(u64, ClockBody)> {
        // SAFETY: both registers are in the mapped page, and a load of them has no effect.
        let read = |offset: u64| u64::from(unsafe { self.page.add(offset as usize).cast::<u32>().read_volatile() });
        let one = || loop {
            let upper = read(TIME_1);
            let before = clock::tsc();
            let lower = read(TIME_0);
            let after = clock::tsc();
            if upper == read(TIME_1) {
                let gpu_ns = upper << 32 | lower;
                return (before, ClockBody { after, gpu_ns, gpu: self.instance, pad: 0 });
            }
        };
        let best = (0..READINGS).map(|_| one()).min_by_key(|(before, body)| body.after.saturating_sub(*before))?;
        (best.1.gpu_ns != 0).then_some(best)
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        if !self.page.is_null() {
            // SAFETY: `self` made the mapping, and its last user ends here.
            let _ = unsafe { Libc.munmap(self.page.cast::<c_void>(), PAGE) };
        }
        for fd in [self.files[1], self.files[0], self.ctl].into_iter().filter(|fd| *fd >= 0) {
            let _ = Libc.close(fd);
        }
    }
}

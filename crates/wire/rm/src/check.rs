//! Checks whether a kernel driver has the structs that the table gives its branch, without changing anything.
//!
//! Two effects reveal a struct's size. RM refuses an ioctl that carries another size than the kernel's. And the kernel copies a struct in before it
//! looks at anything else: if the struct ends where readable memory ends, and the kernel's struct is longer, the copy fails. All calls name a
//! client that does not exist, or use a UVM file that was not initialised, so none has an effect.

use crate::abi::{Branch, Nvos46, Nvos64, Plain, nr, rm_request, uvm};
use crate::class;

/// Bytes of zeros that [`Ground`] needs before its end.
pub const GROUND: usize = 16 << 10;

/// Readable and writable memory of [`GROUND`] bytes, followed by memory without access.
#[derive(Clone, Copy, Debug)]
pub struct Ground {
    begin: usize,
}

impl Ground {
    /// # Safety
    /// There are [`GROUND`] bytes at `begin` that are the ground's alone for as long as it is used. The page after it cannot
    /// be read.
    pub unsafe fn at(begin: usize) -> Ground {
        Ground { begin }
    }

    /// The address for a struct of this size so that it ends where the ground ends. Fills the ground with zeros.
    fn place(self, size: usize) -> usize {
        // SAFETY: the ground's own bytes, see `at`.
        unsafe { core::ptr::write_bytes(self.begin as *mut u8, 0, GROUND) };
        self.begin + GROUND - size.min(GROUND)
    }
}

/// One ioctl: request, address of its argument. 0, or errno.
pub type Ioctl<'a> = &'a mut dyn FnMut(u64, usize) -> i32;

/// Structs that go together: bits of [`Report`].
pub mod part {
    /// NV_CHANNEL_ALLOC_PARAMS
    pub const CHANNELS: u32 = 1;
    /// NVOS46 and NVOS47
    pub const MAPPINGS: u32 = 2;
    /// NV_MEMORY_ALLOCATION_PARAMS and NV_VASPACE_ALLOCATION_PARAMETERS
    pub const MEMORY: u32 = 4;
    /// The structs of UVM
    pub const UVM: u32 = 8;

    pub const NAMES: [(u32, &str); 4] =
        [(CHANNELS, "channels"), (MAPPINGS, "mappings"), (MEMORY, "memory"), (UVM, "UVM")];
}

/// Names of the parts of a set, with commas.
#[cfg(feature = "std")]
pub fn names(parts: u32) -> String {
    part::NAMES.iter().filter(|(bit, _)| parts & bit != 0).map(|(_, name)| *name).collect::<Vec<_>>().join(", ")
}

/// The result of the check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Parts whose structs differ in the kernel.
    pub failed: u32,
    /// Parts whose size could be determined.
    pub seen: u32,
}

impl Report {
    /// `fits`: `None` if the size could not be determined.
    fn add(&mut self, part: u32, fits: Option<bool>) {
        if let Some(fits) = fits {
            self.seen |= part;
            self.failed |= if fits { 0 } else { part };
        }
    }
}

/// A client that does not exist.
const NOBODY: u32 = 0xffff_fffe;

/// RM's structs, on `/dev/nvidiactl`.
pub fn rm(branch: &Branch, ground: Ground, ioctl: Ioctl<'_>) -> Report {
    let layouts = &branch.layouts;
    let mut report = Report::default();
    for (nr, size) in [(nr::MAP_MEMORY_DMA, layouts.map_dma.size()), (nr::UNMAP_MEMORY_DMA, layouts.unmap_dma.size())] {
        let mut with = |size: usize| {
            let mut room = [0u32; size_of::<Nvos46>() / 4 + 2];
            room[0] = NOBODY;
            ioctl(rm_request(nr, size), room.as_mut_ptr() as usize) == 0
        };
        // If the kernel accepts any size, the result is unknown.
        let fits = with(size);
        report.add(part::MAPPINGS, if fits && with(size + 4) { None } else { Some(fits) });
    }
    for (part, class, size) in [
        (part::CHANNELS, class::HOPPER_CHANNEL_GPFIFO_A, layouts.channel_alloc.size()),
        (part::MEMORY, class::NV01_MEMORY_LOCAL_USER, layouts.memory_alloc.size()),
        (part::MEMORY, class::FERMI_VASPACE_A, layouts.vaspace_alloc.size()),
    ] {
        let fits = copied(ground, size, &mut |params| {
            let mut a = Nvos64 { root: NOBODY, parent: NOBODY, class, params: params as u64, ..Default::default() };
            let errno = ioctl(rm_request(nr::ALLOC, size_of::<Nvos64>()), a.as_bytes_mut().as_mut_ptr() as usize);
            (errno, a.status)
        });
        report.add(part, fits);
    }
    report
}

/// UVM's structs, on a file of `/dev/nvidia-uvm` that was not initialised.
pub fn uvm(branch: &Branch, ground: Ground, ioctl: Ioctl<'_>) -> Report {
    let mut report = Report::default();
    for request in [uvm::FREE, uvm::UNREGISTER_CHANNEL, uvm::MAP_EXTERNAL_ALLOCATION, uvm::ALLOC_SEMAPHORE_POOL] {
        let fits = copied(ground, uvm::size(branch, request), &mut |arg| (ioctl(request, arg), 0));
        report.add(part::UVM, fits);
    }
    report
}

/// Whether the kernel copies exactly `size` bytes from an address; `None` if the result does not depend on the readable length.
fn copied(ground: Ground, size: usize, call: &mut dyn FnMut(usize) -> (i32, u32)) -> Option<bool> {
    let mut with = |size: usize| call(ground.place(size));
    let (enough, too_few) = (with(GROUND), with(1));
    if enough == too_few {
        return None;
    }
    Some(with(size) == enough && with(size - 1) == too_few)
}

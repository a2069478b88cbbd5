//! The cold zone: the program's calls to the driver.
//!
//! [`calls`] and [`mappings`] record each call and learn from it. [`model`] keeps the result, [`channels`] handles the
//! lives of channels, and [`files`] tracks which descriptors are driver files.

pub mod calls;
pub mod channels;
pub mod confidential;
pub mod files;
pub mod mappings;
mod model;

use crate::process::renewal::Child;
use crate::process::{real, region, sys};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use rm::abi::{Abi, BRANCHES, Branch, ChannelAlloc, Standing};
use rm::check::{self, GROUND, Ground, part};
use tape::region::trouble;

/// One more than the index of the driver's branch; 0 until the driver has reported its version.
static BRANCH: AtomicUsize = AtomicUsize::new(0);
/// The table does not contain the driver's version: its structs were probed, and its channels are checked again.
static NEW: AtomicBool = AtomicBool::new(false);
/// The layout of channels is not trusted: no doorbell is tapped.
static UNKNOWN: AtomicBool = AtomicBool::new(false);
/// The layout of UVM's structs is not trusted: its calls are not read.
static UVM_UNKNOWN: AtomicBool = AtomicBool::new(false);
/// UVM's structs will be probed at its first call.
static UVM_UNASKED: AtomicBool = AtomicBool::new(false);

/// The branch whose layouts are used to read the program's calls.
fn branch() -> &'static Branch {
    let said = BRANCH.load(Ordering::Relaxed).checked_sub(1);
    said.and_then(|i| BRANCHES.get(i)).unwrap_or_else(Branch::usual)
}

/// A channel's parameters are not where the branch has them.
#[cold]
fn distrust() {
    UNKNOWN.store(true, Ordering::Relaxed);
    region::trouble(trouble::UNKNOWN_DRIVER);
}

/// True if the driver has reported a version that the table does not contain.
fn is_new() -> bool {
    NEW.load(Ordering::Relaxed)
}

/// True if channels are read with the right layout, as far as the driver's version shows.
fn is_trusted() -> bool {
    !UNKNOWN.load(Ordering::Relaxed)
}

/// True if the sizes of UVM's structs are known, as far as the driver's version shows.
fn is_uvm_known() -> bool {
    !UVM_UNKNOWN.load(Ordering::Relaxed)
}

/// False, and from then on no channel is trusted, if this cannot be a channel. With a known driver every channel is taken
/// as it is.
fn is_plausible(p: &ChannelAlloc) -> bool {
    if !is_new() || can_be(p) {
        return true;
    }
    distrust();
    false
}

fn can_be(p: &ChannelAlloc) -> bool {
    p.entries.is_power_of_two() && p.gpfifo != 0 && p.gpfifo.is_multiple_of(8) && p.userd_memory[0] != 0
}

/// The driver has reported its version, on this file. If the table does not contain it, the structs are probed with calls
/// that change nothing, once per process.
fn version(fd: i32, text: &str) {
    let abi = Abi::of(text);
    BRANCH.store(abi.branch().index() + 1, Ordering::Relaxed);
    if abi.standing() == Standing::Known || NEW.swap(true, Ordering::Relaxed) {
        return;
    }
    region::trouble(trouble::NEW_DRIVER);
    // (Unknown until probed: another thread's first UVM call may arrive during the probe.)
    UVM_UNKNOWN.store(true, Ordering::Relaxed);
    UVM_UNASKED.store(true, Ordering::Relaxed);
    if !is_as_thought(part::CHANNELS, |ground| check::rm(abi.branch(), ground, &mut ioctl_on(fd))) {
        distrust();
    }
}

/// Whether the kernel has a part's structs as the branch has them. If the kernel gives no answer, the branch is taken as
/// right: then the program's own values are read.
fn is_as_thought(part: u32, ask: impl FnOnce(Ground) -> check::Report) -> bool {
    let (none, flags) = (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let open = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh range of addresses, of which the first half is opened.
    let begin = unsafe {
        let Some(at) = sys::mmap(sys::AWAY, 2 * GROUND, none, flags, -1, 0) else { return false };
        if sys::mmap(at, GROUND, open, flags | libc::MAP_FIXED, -1, 0).is_none() {
            sys::munmap(at, 2 * GROUND);
            return false;
        }
        at
    };
    // SAFETY: as mapped above; no other thread has its address.
    let report = ask(unsafe { Ground::at(begin) });
    // SAFETY: the agent's own mapping, which nothing refers to any more.
    unsafe { sys::munmap(begin, 2 * GROUND) };
    report.failed & part == 0
}

fn ioctl_on(fd: i32) -> impl FnMut(u64, usize) -> i32 {
    move |request, arg| {
        // SAFETY: `check` passes the request's argument, or one that ends where no more memory is mapped.
        let made = unsafe { real::ioctl(fd, request, arg as *mut core::ffi::c_void) };
        if made < 0 { sys::Errno::get() } else { 0 }
    }
}

/// Called before a UVM call on this file.
fn before_uvm(fd: i32) {
    if !UVM_UNASKED.load(Ordering::Relaxed) || !UVM_UNASKED.swap(false, Ordering::Relaxed) {
        return;
    }
    let _keep = sys::Errno::keep();
    let branch = branch();
    if is_as_thought(part::UVM, |ground| check::uvm(branch, ground, &mut ioctl_on(fd))) {
        UVM_UNKNOWN.store(false, Ordering::Relaxed);
    } else {
        region::trouble(trouble::UNKNOWN_UVM);
    }
}

/// The program ends.
pub fn finish() {
    if !region::active_here() {
        return;
    }
    channels::finish();
    if let Some(c) = region::control() {
        c.state.store(2, Ordering::Release);
    }
}

/// In a forked child: the driver's objects are the parent's. (Descriptors are inherited, so their entries stay.)
pub fn renew(_: &Child) {
    model::renew();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_that_is_read_in_another_branch_s_struct_cannot_be_one() {
        let mut full = rm::abi::ChannelAllocFull::default();
        (full.client.gpfifo, full.client.entries) = (0x2_0020_0000, 1024);
        full.client.userd_memory[0] = 0x5c00_0010;
        let [usual, newest] = [580, 610].map(|number| &Branch::nearest(number).layouts.channel_alloc);
        assert!(can_be(&usual.read(&usual.bytes(&full)).unwrap().client));
        assert!(can_be(&newest.read(&newest.bytes(&full)).unwrap().client));
        // 610 has a handle, here 0, where 580 has the memory of USERD.
        assert!(!can_be(&usual.read(&newest.bytes(&full)).unwrap().client));
        full.client.entries = 1000;
        assert!(!can_be(&full.client));
    }
}

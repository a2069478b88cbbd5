//! The cold zone: what the program asks of the driver.
//!
//! [`calls`] and [`mappings`] write each call down and learn from it; [`model`] keeps what is learnt, [`channels`] runs the
//! lives of channels, [`files`] knows which descriptors are the driver's.

pub mod calls;
mod channels;
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

/// One more than the index of the driver's branch; 0 as long as it has not said its version.
static BRANCH: AtomicUsize = AtomicUsize::new(0);
/// The driver's version is not one that the table names: what it has was asked for, and is looked at twice.
static NEW: AtomicBool = AtomicBool::new(false);
/// Where channels lie is not trusted: no doorbell is tapped.
static UNKNOWN: AtomicBool = AtomicBool::new(false);
/// UVM's structs are not trusted: its calls are not read.
static UVM_UNKNOWN: AtomicBool = AtomicBool::new(false);
/// UVM's structs are asked for at its first call.
static UVM_UNASKED: AtomicBool = AtomicBool::new(false);

/// Whose layouts the program's calls are read with.
fn branch() -> &'static Branch {
    let said = BRANCH.load(Ordering::Relaxed).checked_sub(1);
    said.and_then(|i| BRANCHES.get(i)).unwrap_or_else(Branch::usual)
}

/// A channel's parameters are not where they were thought to be.
#[cold]
fn distrust() {
    UNKNOWN.store(true, Ordering::Relaxed);
    region::trouble(trouble::UNKNOWN_DRIVER);
}

/// True if the driver has said a version that the table does not name.
fn is_new() -> bool {
    NEW.load(Ordering::Relaxed)
}

/// True if a channel is found where the driver's branch has it, as far as the driver has said its version.
fn is_trusted() -> bool {
    !UNKNOWN.load(Ordering::Relaxed)
}

/// True if the sizes of UVM's structs are known, as far as the driver has said its version.
fn is_uvm_known() -> bool {
    !UVM_UNKNOWN.load(Ordering::Relaxed)
}

/// False, once, for a channel that cannot be one. Of a driver that is known every channel is what it says.
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

/// The driver says its version, on this file. One that the table does not name is asked for its structs: by calls that change
/// nothing, once in a process.
fn version(fd: i32, text: &str) {
    let abi = Abi::of(text);
    BRANCH.store(abi.branch().index() + 1, Ordering::Relaxed);
    if abi.standing() == Standing::Known || NEW.swap(true, Ordering::Relaxed) {
        return;
    }
    region::trouble(trouble::NEW_DRIVER);
    // (Unknown until it is asked: another thread's first call of UVM's may come while one asks.)
    UVM_UNKNOWN.store(true, Ordering::Relaxed);
    UVM_UNASKED.store(true, Ordering::Relaxed);
    if !is_as_thought(part::CHANNELS, |ground| check::rm(abi.branch(), ground, &mut ioctl_on(fd))) {
        distrust();
    }
}

/// Whether the kernel has a part's structs as the branch has them. A kernel that does not tell is believed: then what is read
/// is what the program says.
fn is_as_thought(part: u32, ask: impl FnOnce(Ground) -> check::Report) -> bool {
    let (none, flags) = (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let open = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: addresses of our own, of which the first half is opened.
    let begin = unsafe {
        let Some(at) = sys::mmap(sys::AWAY, 2 * GROUND, none, flags, -1, 0) else { return false };
        if sys::mmap(at, GROUND, open, flags | libc::MAP_FIXED, -1, 0).is_none() {
            sys::munmap(at, 2 * GROUND);
            return false;
        }
        at
    };
    // SAFETY: as just mapped; nobody else knows of it.
    let report = ask(unsafe { Ground::at(begin) });
    // SAFETY: our own mapping, which nothing refers to any more.
    unsafe { sys::munmap(begin, 2 * GROUND) };
    report.failed & part == 0
}

fn ioctl_on(fd: i32) -> impl FnMut(u64, usize) -> i32 {
    move |request, arg| {
        // SAFETY: what `check` gives is the request's argument, or ends where the kernel finds no more memory.
        let made = unsafe { real::ioctl(fd, request, arg as *mut core::ffi::c_void) };
        if made < 0 { sys::Errno::get() } else { 0 }
    }
}

/// Before a call of UVM's on this file.
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

/// In a forked child: the driver's objects are the parent's. (Descriptors are inherited, so what is known of them stays.)
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
        // 610 has a handle, here none, where 580 has the memory of USERD.
        assert!(!can_be(&usual.read(&newest.bytes(&full)).unwrap().client));
        full.client.entries = 1000;
        assert!(!can_be(&full.client));
    }
}

//! Answers faults in memory that the tap has changed: doorbell pages, guarded USERD pages, sites that are being
//! rewritten.

use super::{access, channel, page, shadow, site, submit};
use crate::fault::Fault;
use crate::process::region;
use core::sync::atomic::{Ordering, fence};
use tape::region::trouble;
use trap::ucontext::Context;
use trap::{Kind, Registers};

/// True if the tap answered the fault and the program continues.
pub fn answer(fault: Fault, c: &mut Context) -> bool {
    match fault {
        Fault::Breakpoint { at } => breakpoint(c, at),
        Fault::Access { address } => {
            if let Some((p, offset)) = page::find(address) {
                return doorbell(c, p, offset);
            }
            if let Some(slot) = shadow::userd_of(address) {
                return userd(c, slot, address);
            }
            false
        }
        Fault::Protection => false,
    }
}

/// True if a thread ran into the breakpoint of a site that is being rewritten.
fn breakpoint(c: &mut Context, at: u64) -> bool {
    match site::stub_of(at, || code_at(at)) {
        Some(stub) => {
            c.set_rip(stub);
            true
        }
        None => false,
    }
}

fn code_at(rip: u64) -> [u8; 64] {
    let mut code = [0u8; 64];
    // The page of the instruction is mapped (it was just executed); the next may not be.
    let whole = (4096 - (rip & 4095)) as usize;
    let n = whole.min(64);
    // SAFETY: bytes of the page being executed. Code is readable wherever it can be executed on x86-64 without
    // protection keys.
    unsafe { core::ptr::copy_nonoverlapping(rip as *const u8, code.as_mut_ptr(), n) };
    if n < 15 {
        // An instruction that crosses into the next page is being executed, so that page is mapped too if it does.
        if let Some(a) = trap::decode(&code[..n])
            && usize::from(a.length) <= n
        {
            return code;
        }
        // SAFETY: the instruction did not fit into this page, so its rest is in the next page, which is executable.
        unsafe { core::ptr::copy_nonoverlapping((rip as usize + n) as *const u8, code.as_mut_ptr().add(n), 15 - n) };
    }
    code
}

fn doorbell(c: &mut Context, p: usize, offset: u64) -> bool {
    let rip = c.rip();
    let code = code_at(rip);
    // ORDERING: Acquire: a stub is published before the first byte of its site changes. If there is none now, the bytes
    // that were read are the program's code. Otherwise another thread is rewriting this very site, and the stub makes the
    // store.
    fence(Ordering::Acquire);
    if let Some(stub) = site::stub_of(rip, || code) {
        c.set_rip(stub);
        return true;
    }
    let Some(real) = page::real(p) else { return false };
    let Some(access) = trap::decode(&code) else {
        return give_up(p);
    };
    let at = real + offset;
    match access.kind {
        Kind::Store => {
            let Some(value) = trap::store_value(&access, c) else {
                return give_up(p);
            };
            if access.width == 4 {
                submit::learn_token(p, offset, value as u32);
                submit::store(p, offset, value as u32, true);
            } else {
                // SAFETY: inside the doorbell page; the store that the program made, at the width it made it.
                unsafe { access::store(at, value, access.width) };
            }
            trap::advance(&access, c);
            site::learn(&access, rip, &code, offset);
        }
        Kind::Load => {
            // SAFETY: inside the doorbell page; the load that the program made.
            let v = unsafe { access::load(at, access.width) };
            if trap::load_into(&access, c, v).is_none() {
                return give_up(p);
            }
            trap::advance(&access, c);
        }
    }
    true
}

/// An instruction that the agent cannot decode. The program must not stop for it: it gets its rings and its page back,
/// and the tape records that later submissions are not seen.
#[cold]
fn give_up(p: usize) -> bool {
    region::trouble(trouble::UNDECODED);
    submit::give_rings_back();
    page::open(p)
}

/// An access to the shadow of a USERD page. The page is guarded, or was when the access was made.
fn userd(c: &mut Context, slot: usize, addr: u64) -> bool {
    if !channel::claim(slot) {
        return false;
    }
    // Another thread may have lifted the guard since: then the access is simply made again.
    // SAFETY: this thread holds the claim.
    if let Some(ch) = unsafe { channel::get(slot) }.filter(|ch| ch.guarded && shadow::userd_of(addr) == Some(slot)) {
        let access = trap::decode(&code_at(c.rip()));
        let load = access.as_ref().is_some_and(|a| a.kind == Kind::Load);
        let at = shadow::answer(ch, addr, load);
        let done = match access {
            Some(a) if load => {
                // SAFETY: the second mapping of the same page, at the same offset.
                let v = unsafe { access::load(at, a.width) };
                trap::load_into(&a, c, v).map(|()| trap::advance(&a, c)).is_some()
            }
            Some(a) => match trap::store_value(&a, c) {
                Some(v) => {
                    // SAFETY: as above.
                    unsafe { access::store(at, v, a.width) };
                    trap::advance(&a, c);
                    true
                }
                None => false,
            },
            None => false,
        };
        if !done {
            // Let the instruction run on the page itself, with the fresh GP_GET.
            shadow::unguard(ch);
        }
    }
    submit::settle(slot);
    true
}

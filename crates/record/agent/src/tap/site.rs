//! Rewrites doorbell sites: after a site has trapped once, its store becomes a jump to a stub that calls the tap.
//!
//! Only where the shape is proven (`trap::shape`: nothing but the store itself and dead padding changes). Other threads
//! may run through the site meanwhile: padding first, which nobody executes; then a breakpoint over the first byte of the
//! store, the rest, and last the first byte, with a core-serialising barrier between (Intel SDM vol. 3, 9.1.3). A thread
//! that hits the breakpoint is sent to the stub.

use super::{access, page, submit};
use crate::process::maps::{self, EXECUTE};
use crate::process::own_lock::OwnLock;
use crate::process::wiped::word;
use crate::process::{region, sys};
use crate::record;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tape::event::{SiteBody, kind, site_why};
use tape::region::{tap as how, trouble};
use trap::{Access, shape};

const SITES: usize = 64;
const PAGE: usize = 4096;

/// Sites seen: address of the store, and of its stub once it may be entered.
static SEEN: [AtomicU64; SITES] = [const { AtomicU64::new(0) }; SITES];
static STUB: [AtomicU64; SITES] = [const { AtomicU64::new(0) }; SITES];
/// There were more sites than that.
static FULL: AtomicBool = AtomicBool::new(false);
static BARRIER: AtomicBool = AtomicBool::new(false);

struct Stubs {
    /// Where the next stub goes, and the end of its page; 0 before the first.
    at: usize,
    end: usize,
    maps: [u8; 4096],
}

static STUBS: OwnLock<Stubs, { word::SITES }> = OwnLock::new(Stubs { at: 0, end: 0, maps: [0; 4096] });

const REGISTER_SYNC_CORE: i32 = 64;
const SYNC_CORE: i32 = 32;

/// Asks the kernel for core-serialising barriers. Without them nothing is rewritten.
pub fn prepare() {
    let ok = sys::membarrier(REGISTER_SYNC_CORE);
    BARRIER.store(ok, Ordering::Relaxed);
    if !ok {
        region::trouble(trouble::NO_PATCH);
    }
}

/// What a stub calls in place of the store: the value, the address it was meant for, its width in bytes.
extern "C" fn on_store(value: u64, address: u64, width: u64) {
    match page::find(address) {
        Some((p, offset)) if width == 4 => submit::store(p, offset, value as u32, false),
        _ => {
            // The site also stores elsewhere (a page that we do not tap): the store as it was meant.
            // SAFETY: the program's own store, to its own memory, at its own width.
            unsafe { access::store(address, value, width as u8) };
        }
    }
}

/// A store at `rip` has just trapped: rewrites its site if that was not tried before.
pub fn learn(access: &Access, rip: u64, code: &[u8], offset: u64) {
    if SEEN.iter().any(|s| s.load(Ordering::Acquire) == rip) {
        return;
    }
    // Another thread is at it: this site will trap again.
    let Some(mut stubs) = STUBS.try_lock() else { return };
    let known_or_free = |s: &AtomicU64| [0, rip].contains(&s.load(Ordering::Acquire));
    let Some(i) = SEEN.iter().position(known_or_free) else {
        // Sites beyond trap each time. The first of them is told.
        if !FULL.swap(true, Ordering::Relaxed) {
            tell(&mut stubs, rip, code, site_why::FULL);
        }
        return;
    };
    if SEEN[i].load(Ordering::Relaxed) == rip {
        return;
    }
    SEEN[i].store(rip, Ordering::Release);
    let why = if region::control().is_some_and(|c| c.tap == how::TRAP) {
        site_why::TAP_IS_TRAP
    } else if offset != submit::DOORBELL || access.width != 4 {
        site_why::NOT_A_DOORBELL
    } else if !BARRIER.load(Ordering::Relaxed) || !region::active() {
        site_why::REFUSED
    } else {
        match rewrite(&mut stubs, access, rip, code, i) {
            Ok(()) => site_why::NONE,
            Err(why) => why,
        }
    };
    if why == site_why::NONE
        && let Some(c) = region::control()
    {
        c.patched.fetch_add(1, Ordering::Relaxed);
    }
    tell(&mut stubs, rip, code, why);
}

fn rewrite(stubs: &mut Stubs, access: &Access, rip: u64, code: &[u8], i: usize) -> Result<(), u32> {
    let plan = shape::plan(code, rip).ok_or(site_why::SHAPE)?;
    let at = room(stubs, rip).ok_or(site_why::NO_STUB)?;
    let first = (plan.store_at & !(PAGE as u64 - 1)) as usize;
    let end = plan.pad_at.map_or(rip, |p| p.max(rip)) as usize + 16;
    let len = (end - first).next_multiple_of(PAGE);
    let rw = libc::PROT_READ | libc::PROT_WRITE;
    let rx = libc::PROT_READ | libc::PROT_EXEC;
    // SAFETY: the stub page is ours; no stub in it is being written by anybody else (we hold the lock). It stays executable
    // while it is written, because other stubs in it may be running.
    let stub = unsafe {
        if !sys::mprotect(at & !(PAGE - 1), PAGE, rw | libc::PROT_EXEC) {
            return Err(site_why::REFUSED);
        }
        let out = core::slice::from_raw_parts_mut(at as *mut u8, shape::STUB_MAX);
        let n = shape::stub(access, out, at as u64, on_store as *const () as u64, plan.resume);
        sys::mprotect(at & !(PAGE - 1), PAGE, rx);
        n.ok_or(site_why::SHAPE)?;
        at as u64
    };
    let store = plan.store_patch(stub).ok_or(site_why::NO_STUB)?;
    let padding = match plan.kind {
        shape::Shape::Padding => Some(plan.padding_patch(stub).ok_or(site_why::NO_STUB)?),
        shape::Shape::Long => None,
    };
    stubs.at += shape::STUB_MAX;
    STUB[i].store(stub, Ordering::Release);
    // SAFETY: the pages of code that hold the store and its padding; they stay readable and executable throughout.
    unsafe {
        if !sys::mprotect(first, len, rw | libc::PROT_EXEC) {
            region::trouble(trouble::NO_PATCH);
            return Err(site_why::REFUSED);
        }
        if let Some(p) = &padding {
            write(p.at, p.bytes());
            sys::membarrier(SYNC_CORE);
        }
        let bytes = store.bytes();
        write(store.at, &[0xcc]);
        sys::membarrier(SYNC_CORE);
        write(store.at + 1, bytes.get(1..).unwrap_or(&[]));
        sys::membarrier(SYNC_CORE);
        write(store.at, bytes.get(..1).unwrap_or(&[]));
        sys::membarrier(SYNC_CORE);
        sys::mprotect(first, len, rx);
    }
    Ok(())
}

unsafe fn write(at: u64, bytes: &[u8]) {
    for (i, &b) in bytes.iter().enumerate() {
        // SAFETY: the caller made these bytes writable.
        unsafe { ((at + i as u64) as *mut u8).write_volatile(b) };
    }
}

/// The driver library is about to be used for the first time: takes a page for stubs near it, while there is one. CUDA
/// reserves gigabytes around its library soon after, and then now and then no page is left within reach of a jump.
pub fn reserve() {
    let wanted = region::control().is_some_and(|c| c.tap == how::AUTO);
    if !wanted {
        return;
    }
    let Some(mut stubs) = STUBS.try_lock() else { return };
    if stubs.at != 0 {
        return;
    }
    let mut code = None;
    maps::each(&mut stubs.maps, |m, path| {
        if m.rights & EXECUTE != 0 && path.windows(12).any(|w| w == b"/libcuda.so.") {
            code = Some((m.start + (m.end - m.start) / 2) as u64);
        }
        code.is_some()
    });
    if let Some(at) = code {
        let _ = room(&mut stubs, at);
    }
}

/// Room for one stub within reach of a jump from `rip`.
fn room(stubs: &mut Stubs, rip: u64) -> Option<usize> {
    let near = |a: usize| (a as i64 - rip as i64).unsigned_abs() < 0x7000_0000;
    if stubs.at != 0 && stubs.at + shape::STUB_MAX <= stubs.end && near(stubs.at) {
        return Some(stubs.at);
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // Most gaps are found at once; one that another thread takes meanwhile is passed over.
    for _ in 0..4 {
        let at = gap(&mut stubs.maps, rip)?;
        // SAFETY: NOREPLACE: nothing that is mapped is touched.
        let got = unsafe { sys::mmap(at as usize, PAGE, libc::PROT_READ | libc::PROT_EXEC, flags, -1, 0) };
        match got {
            Some(a) if a as u64 == at => {
                stubs.at = a;
                stubs.end = a + PAGE;
                return Some(a);
            }
            // A kernel before 4.17 takes the address as a hint.
            // SAFETY: the page that we just mapped.
            Some(a) => unsafe { sys::munmap(a, PAGE) },
            None => {}
        }
    }
    None
}

/// The free page closest to `rip`, within reach of a jump: CUDA reserves gigabytes around its libraries, but loaders leave
/// gaps.
fn gap(buf: &mut [u8; 4096], rip: u64) -> Option<u64> {
    const REACH: u64 = 0x7000_0000;
    let mut best = None;
    let mut last_end = 0x10000u64;
    maps::each(buf, |m, _| {
        let (start, end) = (m.start as u64, m.end as u64);
        if start >= last_end + PAGE as u64 {
            // The page of this gap that lies closest to rip.
            let at = if rip < start { start - PAGE as u64 } else { last_end };
            let away = at.abs_diff(rip);
            if away < REACH && best.is_none_or(|(b, _)| away < b) {
                best = Some((away, at));
            }
        }
        last_end = last_end.max(end);
        false
    });
    best.map(|(_, at)| at)
}

/// The stub of the site at `rip`, if it has one. From then on the code there may be changing.
pub fn stub_of(rip: u64) -> Option<u64> {
    let i = SEEN.iter().position(|s| s.load(Ordering::Acquire) == rip)?;
    Some(STUB[i].load(Ordering::Acquire)).filter(|&s| s != 0)
}

/// Puts the site on the tape, with the module it lies in.
fn tell(stubs: &mut Stubs, rip: u64, code: &[u8], why: u32) {
    let mut body = SiteBody { ip: rip, patched: u32::from(why == site_why::NONE), why, ..SiteBody::default() };
    for (to, from) in body.code.iter_mut().zip(code) {
        *to = *from;
    }
    let mut path = [0u8; 256];
    let (n, offset) = module(&mut stubs.maps, rip, &mut path);
    body.offset = offset;
    body.path = n as u32;
    record::event(kind::SITE, 0, sys::tsc(), &body, path.get(..n).unwrap_or(&[]), &[]);
}

/// Path of the module that holds `ip`, and the offset in its file. 0 bytes if not found.
fn module(buf: &mut [u8; 4096], ip: u64, path: &mut [u8; 256]) -> (usize, u64) {
    let mut found = (0, 0);
    maps::each(buf, |m, name| {
        if !(m.start as u64..m.end as u64).contains(&ip) {
            return false;
        }
        let name = name.get(..path.len()).unwrap_or(name);
        let name = if name.first() == Some(&b'/') { name } else { &[] };
        if let Some(to) = path.get_mut(..name.len()) {
            to.copy_from_slice(name);
            found = (name.len(), ip - m.start as u64 + m.offset);
        }
        true
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stub_finds_room_within_reach() {
        let mut stubs = Stubs { at: 0, end: 0, maps: [0; 4096] };
        let here = a_stub_finds_room_within_reach as *const () as u64;
        let at = room(&mut stubs, here).expect("room near our own code");
        assert!((at as i64 - here as i64).unsigned_abs() < 0x7000_0000);
        assert_eq!(room(&mut stubs, here), Some(at), "the same page serves the next stub");
    }

    #[test]
    fn an_address_has_its_module_and_offset() {
        let mut path = [0; 256];
        let here = an_address_has_its_module_and_offset as *const () as u64;
        let (n, offset) = module(&mut [0; 4096], here, &mut path);
        let exe = std::env::current_exe().unwrap();
        assert_eq!(&path[..n], exe.as_os_str().as_encoded_bytes().get(..n).unwrap());
        assert!(n > 0 && offset < std::fs::metadata(exe).unwrap().len());
        assert_eq!(module(&mut [0; 4096], 1, &mut path).0, 0);
    }
}

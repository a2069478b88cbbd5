//! Rewrites doorbell sites: after a site has trapped once, its store becomes a jump to a stub that calls the tap.
//!
//! Only where the shape is proven (`trap::shape`: only the store itself and dead padding change). Other threads may run
//! through the site during that. So first the padding is written, which is never executed. Then a breakpoint replaces the
//! store's first byte, then the rest is written, and last the first byte, with a core-serialising barrier between the
//! steps (Intel SDM vol. 3, 9.1.3). A thread that hits the breakpoint is sent to the stub.
//!
//! A library may be unloaded and another loaded in its place: a stub is entered only if the code there is its site's.

use super::{access, page, submit};
use crate::process::maps::{self, EXECUTE};
use crate::process::own_lock::OwnLock;
use crate::process::wiped::word;
use crate::process::{region, sys};
use crate::record;
use core::arch::naked_asm;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use tape::event::{SiteBody, kind, site_why};
use tape::region::{tap as how, trouble};
use trap::{Access, shape};

const SITES: usize = 64;
const PAGE: usize = 4096;

/// Sites seen: address of the store, and of its stub once it may be entered.
static SEEN: [AtomicU64; SITES] = [const { AtomicU64::new(0) }; SITES];
static STUB: [AtomicU64; SITES] = [const { AtomicU64::new(0) }; SITES];
/// The bytes of the store, and those that replace it: a library may be unloaded, and another loaded in its place. The
/// last byte is their number.
static STORE: [Bytes; SITES] = [const { Bytes::none() }; SITES];
static JUMP: [Bytes; SITES] = [const { Bytes::none() }; SITES];

struct Bytes([AtomicU64; 2]);

impl Bytes {
    const fn none() -> Bytes {
        Bytes([const { AtomicU64::new(0) }; 2])
    }

    fn set(&self, bytes: &[u8]) {
        let mut whole = [0; 16];
        let n = bytes.len().min(15);
        whole[..n].copy_from_slice(&bytes[..n]);
        whole[15] = n as u8;
        let whole = u128::from_le_bytes(whole);
        self.0[0].store(whole as u64, Ordering::Relaxed);
        self.0[1].store((whole >> 64) as u64, Ordering::Relaxed);
    }

    fn get(&self) -> ([u8; 16], usize) {
        let word = |i: usize| u128::from(self.0[i].load(Ordering::Relaxed));
        let whole = (word(0) | word(1) << 64).to_le_bytes();
        (whole, usize::from(whole[15]))
    }
}

/// Breakpoint during the rewriting of a site.
const INT3: u8 = 0xcc;

/// Whether `code` is the code of site `i`: original, rewritten, or in between.
fn is_same(i: usize, code: &[u8]) -> bool {
    let ((store, n), (jump, _)) = (STORE[i].get(), JUMP[i].get());
    let one = |k: usize, b: u8| b == store[k] || b == jump[k] || (k == 0 && b == INT3);
    n != 0 && code.get(..n).is_some_and(|c| c.iter().enumerate().all(|(k, &b)| one(k, b)))
}

/// Whether `code` is the original code of site `i`.
fn is_untouched(i: usize, code: &[u8]) -> bool {
    let (store, n) = STORE[i].get();
    n != 0 && code.get(..n) == store.get(..n)
}

fn seen(rip: u64) -> Option<usize> {
    SEEN.iter().position(|s| s.load(Ordering::Acquire) == rip)
}
/// Set when there were more sites than that.
static FULL: AtomicBool = AtomicBool::new(false);
static BARRIER: AtomicBool = AtomicBool::new(false);

struct Stubs {
    /// Address of the next stub, and the end of its page; 0 before the first.
    at: usize,
    end: usize,
    maps: [u8; 4096],
}

static STUBS: OwnLock<Stubs, { word::SITES }> = OwnLock::new(Stubs { at: 0, end: 0, maps: [0; 4096] });

const REGISTER_SYNC_CORE: i32 = 64;
const SYNC_CORE: i32 = 32;

/// Registers for the kernel's core-serialising barriers. Without them no site is rewritten.
pub fn prepare() {
    let ok = sys::membarrier(REGISTER_SYNC_CORE);
    BARRIER.store(ok, Ordering::Relaxed);
    if !ok {
        region::trouble(trouble::NO_PATCH);
    }
}

/// A store that traps, as the program's did before its site was rewritten.
#[unsafe(naked)]
unsafe extern "C" fn store_again(_value: u32, _address: u64) {
    naked_asm!("mov dword ptr [rsi], edi", "ret")
}

/// A stub calls this in place of the store, with the value, the address, and the width in bytes.
extern "C" fn on_store(value: u64, address: u64, width: u64) {
    match page::find(address) {
        Some((p, offset)) if width == 4 => {
            if !submit::store(p, offset, value as u32, false) {
                // SAFETY: the program's own store. It traps, and the answer makes it.
                unsafe { store_again(value as u32, address) };
            }
        }
        _ => {
            // The site also stores elsewhere (to a page that is not tapped): makes the store unchanged.
            // SAFETY: the program's own store, to its own memory, at its own width.
            unsafe { access::store(address, value, width as u8) };
        }
    }
}

/// A store at `rip` has just trapped: rewrites its site unless that was already tried.
pub fn learn(access: &Access, rip: u64, code: &[u8], offset: u64) {
    if rip == store_again as *const () as u64 || seen(rip).is_some_and(|i| is_same(i, code)) {
        return;
    }
    // Another thread is rewriting a site: this one will trap again.
    let Some(mut stubs) = STUBS.try_lock() else { return };
    let known_or_free = |s: &AtomicU64| [0, rip].contains(&s.load(Ordering::Acquire));
    let Some(i) = SEEN.iter().position(known_or_free) else {
        // Further sites trap each time. The first of them is recorded.
        if !FULL.swap(true, Ordering::Relaxed) {
            tell(&mut stubs, rip, code, site_why::FULL);
        }
        return;
    };
    if SEEN[i].load(Ordering::Relaxed) == rip && is_same(i, code) {
        return;
    }
    // Another library may have replaced that of a known site: from now on no thread is sent to the old site's stub.
    STUB[i].store(0, Ordering::Relaxed);
    // ORDERING: Release: a thread that finds bytes of the new site finds no stub of the old one (see `stub_of`).
    fence(Ordering::Release);
    let store = code.get(..usize::from(access.length)).unwrap_or(&[]);
    STORE[i].set(store);
    JUMP[i].set(store);
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
    let rw = libc::PROT_READ | libc::PROT_WRITE;
    let rx = libc::PROT_READ | libc::PROT_EXEC;
    // SAFETY: the stub page belongs to the agent. This thread holds the lock, so no other thread writes a stub in it. It
    // stays executable while it is written, because other stubs in it may be running.
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
    stubs.at += shape::STUB_MAX;
    JUMP[i].set(plan.store_patch(stub).ok_or(site_why::NO_STUB)?.bytes());
    STUB[i].store(stub, Ordering::Release);
    place(&plan, stub)
}

/// Writes the jump to its stub into a site. The caller holds the lock.
fn place(plan: &shape::Plan, stub: u64) -> Result<(), u32> {
    let store = plan.store_patch(stub).ok_or(site_why::NO_STUB)?;
    let padding = match plan.kind {
        shape::Shape::Padding => Some(plan.padding_patch(stub).ok_or(site_why::NO_STUB)?),
        shape::Shape::Long => None,
    };
    let first = (plan.store_at & !(PAGE as u64 - 1)) as usize;
    let end = plan.pad_at.map_or(plan.store_at, |p| p.max(plan.store_at)) as usize + 16;
    let len = (end - first).next_multiple_of(PAGE);
    let rw = libc::PROT_READ | libc::PROT_WRITE;
    let rx = libc::PROT_READ | libc::PROT_EXEC;
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
        write(store.at, &[INT3]);
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

/// Called before the first use of the driver library: reserves a page for stubs near it, while there is one. Soon
/// afterwards CUDA reserves gigabytes around its library, and then sometimes no page is left within reach of a jump.
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
    // Most gaps are free at the first try. A gap that another thread has just taken is skipped.
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
            // SAFETY: the page that was just mapped.
            Some(a) => unsafe { sys::munmap(a, PAGE) },
            None => {}
        }
    }
    None
}

/// The free page closest to `rip`, within reach of a jump. CUDA reserves gigabytes around its libraries, but loaders
/// leave gaps.
fn gap(buf: &mut [u8; 4096], rip: u64) -> Option<u64> {
    const REACH: u64 = 0x7000_0000;
    let mut best = None;
    let mut last_end = 0x10000u64;
    maps::each(buf, |m, _| {
        let (start, end) = (m.start as u64, m.end as u64);
        if start >= last_end + PAGE as u64 {
            // The page of this gap that is closest to rip.
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

/// The stub of the site at `rip`, if it has one and `code` is there. `code` is called only after a stub was found; from
/// then on the bytes there may be changing.
pub fn stub_of(rip: u64, code: impl FnOnce() -> [u8; 64]) -> Option<u64> {
    let i = seen(rip)?;
    let stub = Some(STUB[i].load(Ordering::Acquire)).filter(|&s| s != 0)?;
    let code = code();
    if !is_same(i, &code) {
        return None;
    }
    // ORDERING: Acquire: the bytes belonged to this stub's site if the stub is still the same.
    fence(Ordering::Acquire);
    if STUB[i].load(Ordering::Relaxed) != stub {
        return None;
    }
    if is_untouched(i, &code) {
        again(i, rip, stub, &code);
    }
    Some(stub)
}

/// A site that has a stub has trapped at the original store: its library was loaded again, or another thread is rewriting
/// it.
#[cold]
fn again(i: usize, rip: u64, stub: u64, code: &[u8; 64]) {
    let Some(_stubs) = STUBS.try_lock() else { return };
    // SAFETY: code that is being executed.
    let now = unsafe { (rip as *const [u8; 15]).read_volatile() };
    if STUB[i].load(Ordering::Relaxed) == stub
        && is_untouched(i, &now)
        && let Some(plan) = shape::plan(code, rip)
        // The stub continues after the store, whatever code is there.
        && JUMP[i].get().1 == usize::from(plan.store_len)
    {
        JUMP[i].set(plan.store_patch(stub).as_ref().map_or(&[], |p| p.bytes()));
        let _ = place(&plan, stub);
    }
}

/// Records the site, with its module.
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

    /// `code` at `at`, as in a library loaded there.
    fn load(at: usize, code: &[u8]) -> [u8; 64] {
        let mut whole = [INT3; 64];
        whole[..code.len()].copy_from_slice(code);
        // SAFETY: the test's own page.
        unsafe {
            assert!(sys::mprotect(at, PAGE, libc::PROT_READ | libc::PROT_WRITE));
            core::ptr::copy_nonoverlapping(whole.as_ptr(), at as *mut u8, 64);
            assert!(sys::mprotect(at, PAGE, libc::PROT_READ | libc::PROT_EXEC));
        }
        whole
    }

    fn bytes_at(at: usize) -> [u8; 64] {
        // SAFETY: as above.
        unsafe { (at as *const [u8; 64]).read_volatile() }
    }

    #[test]
    fn a_site_is_its_code_and_not_its_address() {
        prepare();
        let rw = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh page.
        let at = unsafe { sys::mmap(0, PAGE, rw, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) }.unwrap();
        let (i, rip) = (SITES - 1, at as u64);
        let learn = |code: &[u8; 64]| {
            let access = trap::decode(code).unwrap();
            let store = &code[..usize::from(access.length)];
            STUB[i].store(0, Ordering::Relaxed);
            STORE[i].set(store);
            JUMP[i].set(store);
            SEEN[i].store(rip, Ordering::Release);
            rewrite(&mut STUBS.lock().unwrap(), &access, rip, code, i).unwrap();
            STUB[i].load(Ordering::Relaxed)
        };
        let run = |to: &mut u32, value: u32| {
            // SAFETY: code with this signature: it stores at `to` plus 256.
            unsafe {
                let f: extern "C" fn(*mut u32, u32) = core::mem::transmute(at);
                f((to as *mut u32).wrapping_byte_sub(256), value);
            }
        };
        let mut word = 0;
        // mov [rdi+256], esi; ret
        let code = load(at, &[0x89, 0xb7, 0, 1, 0, 0, 0xc3]);
        let stub = learn(&code);
        assert_ne!(bytes_at(at), code, "rewritten");
        run(&mut word, 7);
        assert_eq!(word, 7);
        // A thread that trapped before, and one that arrives in the middle.
        assert_eq!(stub_of(rip, || bytes_at(at)), Some(stub));
        let mut middle = bytes_at(at);
        (middle[0], middle[5]) = (INT3, code[5]);
        assert_eq!(stub_of(rip, || middle), Some(stub));
        // The same library is loaded again: rewritten again.
        load(at, &[0x89, 0xb7, 0, 1, 0, 0, 0xc3]);
        assert_eq!(stub_of(rip, || code), Some(stub));
        assert_ne!(bytes_at(at), code);
        run(&mut word, 8);
        assert_eq!(word, 8);
        // Another library: the store is at another place (not one that the jump has by chance), or the breakpoint is its own.
        let byte = [2, 3].into_iter().find(|b| *b != JUMP[i].get().0[3]).unwrap();
        let other = load(at, &[0x89, 0xb7, 0, byte, 0, 0, 0xc3]);
        assert_eq!(stub_of(rip, || other), None);
        let own = load(at, &[INT3, 0x90, 0x90, 0x90, 0x90, 0x90, 0xc3]);
        assert_eq!(stub_of(rip, || own), None);
        // mov [rdi+256], si; nop
        let code = load(at, &[0x66, 0x89, 0xb7, 0, 1, 0, 0, 0xc3]);
        assert_eq!(stub_of(rip, || code), None);
        let next = learn(&code);
        assert_ne!(next, stub);
        word = 0x1_0000;
        run(&mut word, 0x2_0009);
        assert_eq!(word, 0x1_0009);
        SEEN[i].store(0, Ordering::Relaxed);
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

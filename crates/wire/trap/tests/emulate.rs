//! A page without access rights, and a handler that carries out the accesses on other memory.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::arch::asm;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use trap::ucontext::Context;
use trap::{Kind, MAX_INSTRUCTION, Registers, advance, decode, effective_address, load_into, store_value_wide};

static PAGE: AtomicU64 = AtomicU64::new(0);
static BACKING: AtomicU64 = AtomicU64::new(0);
static STORES: AtomicU32 = AtomicU32::new(0);
static LOADS: AtomicU32 = AtomicU32::new(0);

extern "C" fn on_fault(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the third argument of this handler, with no other user.
    let Some(mut context) = (unsafe { Context::from_handler(context) }) else { std::process::abort() };
    // SAFETY: the thread was executing there, and the test binary's text continues for more than 15 bytes.
    let code = unsafe { std::slice::from_raw_parts(context.rip() as *const u8, MAX_INSTRUCTION) };
    let Some(access) = decode(code) else { std::process::abort() };
    let address = effective_address(&access, &context);
    let offset = address.wrapping_sub(PAGE.load(Ordering::Relaxed));
    if offset >= 4096 || Some(address) != context.fault_address() {
        std::process::abort();
    }
    let at = (BACKING.load(Ordering::Relaxed) + offset) as *mut u8;
    let width = usize::from(access.width);
    match access.kind {
        Kind::Store if context.fault_was_write() => {
            let Some(value) = store_value_wide(&access, &context) else { std::process::abort() };
            // SAFETY: the backing has 4096 + 16 bytes.
            unsafe { std::ptr::copy_nonoverlapping(value.to_le_bytes().as_ptr(), at, width) };
            STORES.fetch_add(1, Ordering::Relaxed);
        }
        Kind::Load if !context.fault_was_write() => {
            let mut value = [0; 16];
            // SAFETY: as above.
            unsafe { std::ptr::copy_nonoverlapping(at, value.as_mut_ptr(), width) };
            if load_into(&access, &mut context, u128::from_le_bytes(value)).is_none() {
                std::process::abort();
            }
            LOADS.fetch_add(1, Ordering::Relaxed);
        }
        _ => std::process::abort(),
    }
    advance(&access, &mut context);
}

#[test]
fn stores_and_loads_reach_the_other_page() {
    let mut backing = vec![0u8; 4096 + 16];
    BACKING.store(backing.as_mut_ptr() as u64, Ordering::Relaxed);
    // SAFETY: a new mapping, and a handler for this process.
    let page = unsafe {
        let page =
            libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0);
        assert_ne!(page, libc::MAP_FAILED);
        PAGE.store(page as u64, Ordering::Relaxed);
        let mut action: libc::sigaction = std::mem::zeroed();
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut c_void) = on_fault;
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut()), 0);
        page as u64
    };
    let (narrow, merged, high, signed, twice): (u64, u64, u64, u64, u64);
    let wide: u128 = 0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100;
    let mut back = [0u8; 16];
    // SAFETY: every access to the page faults, and the handler carries it out on the backing.
    unsafe {
        asm!(
            "mov dword ptr [rdi + 0x90], 0x80010013",
            "mov [rdi + {index}*8], {value}",
            "movups xmm3, [{wide}]",
            "movups [rdi + 0x100], xmm3",
            "mov {narrow}, -1",
            "mov {narrow:e}, [rdi + 0x90]",
            "mov {merged}, -1",
            "mov {merged:x}, [rdi + 0x90]",
            "mov rax, -1",
            "mov ah, [rdi + 0x90]",
            "movsxd {signed}, dword ptr [rdi + 0x90]",
            "movups xmm4, [rdi + 0x100]",
            "movups [{back}], xmm4",
            "movzx {twice:e}, byte ptr [rdi + 0x101]",
            in("rdi") page,
            index = in(reg) 4u64,
            value = in(reg) 0x1122_3344_5566_7788u64,
            wide = in(reg) &wide,
            back = in(reg) back.as_mut_ptr(),
            narrow = out(reg) narrow,
            merged = out(reg) merged,
            signed = out(reg) signed,
            twice = out(reg) twice,
            out("rax") high,
            out("xmm3") _,
            out("xmm4") _,
        );
    }
    assert_eq!(backing[0x90..0x94], 0x8001_0013u32.to_le_bytes());
    assert_eq!(backing[0x20..0x28], 0x1122_3344_5566_7788u64.to_le_bytes());
    assert_eq!(backing[0x100..0x110], wide.to_le_bytes());
    assert_eq!(narrow, 0x8001_0013);
    assert_eq!(merged, 0xffff_ffff_ffff_0013);
    assert_eq!(high, 0xffff_ffff_ffff_13ff);
    assert_eq!(signed, 0xffff_ffff_8001_0013);
    assert_eq!(back, wide.to_le_bytes());
    assert_eq!(twice, 1);
    assert_eq!((STORES.load(Ordering::Relaxed), LOADS.load(Ordering::Relaxed)), (3, 6));
}

//! Rewritten sites, run for real: a function with a store is built in executable memory, rewritten by plan and stub, and called with every register
//! and flag set. The tap sees value and address and destroys every register that it may; all other state must stay the same.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::arch::global_asm;
use std::sync::Mutex;
use trap::shape::{self, STUB_MAX, Shape};
use trap::{State, decode, effective_address, store_value};

/// Everything that the site must not change, in the order that the assembly below counts on.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug, PartialEq)]
struct Machine {
    xmm: [u128; 16],
    gpr: [u64; 16],
    flags: u64,
    red_zone: u64,
}

impl Machine {
    const EMPTY: Machine = Machine { xmm: [0; 16], gpr: [0; 16], flags: 0, red_zone: 0 };
}

global_asm!(
    // extern "C" fn enter(target, machine in, machine out): loads all of `in`, calls `target`, saves all to `out`.
    ".local trap_test_enter",
    "trap_test_enter:",
    "push rbx; push rbp; push r12; push r13; push r14; push r15",
    "mov [rip + trap_test_target], rdi",
    "mov [rip + trap_test_out], rdx",
    "mov [rip + trap_test_rsp], rsp",
    "mov [rip + trap_test_seen + 32], rsp",
    "mov rax, rsi",
    ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
    "movups xmm\\n, [rax + 16*\\n]",
    ".endr",
    "push qword ptr [rax + 256 + 128]",
    "popfq",
    "mov rcx, [rax + 256 + 8]",
    "mov rdx, [rax + 256 + 16]",
    "mov rbx, [rax + 256 + 24]",
    "mov rbp, [rax + 256 + 40]",
    "mov rsi, [rax + 256 + 48]",
    "mov rdi, [rax + 256 + 56]",
    ".irp n, 8,9,10,11,12,13,14,15",
    "mov r\\n, [rax + 256 + 8*\\n]",
    ".endr",
    "mov rax, [rax + 256]",
    "call [rip + trap_test_target]",
    // A stack pointer that is off shows here.
    "mov [rip + trap_test_rax], rax",
    "mov rax, [rip + trap_test_out]",
    "mov [rax + 256 + 32], rsp",
    "mov [rax + 256 + 8], rcx",
    "mov rcx, [rsp - 136]",
    "mov [rax + 256 + 136], rcx",
    "mov rcx, [rip + trap_test_rax]",
    "mov [rax + 256], rcx",
    "mov rsp, [rip + trap_test_rsp]",
    "pushfq",
    "pop [rax + 256 + 128]",
    "mov [rax + 256 + 16], rdx",
    "mov [rax + 256 + 24], rbx",
    "mov [rax + 256 + 40], rbp",
    "mov [rax + 256 + 48], rsi",
    "mov [rax + 256 + 56], rdi",
    ".irp n, 8,9,10,11,12,13,14,15",
    "mov [rax + 256 + 8*\\n], r\\n",
    ".endr",
    ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
    "movups [rax + 16*\\n], xmm\\n",
    ".endr",
    "pop r15; pop r14; pop r13; pop r12; pop rbp; pop rbx",
    "ret",
    // extern "C" fn tap(value, address, width): notes its arguments, then ruins what a callee may ruin.
    ".local trap_test_tap",
    "trap_test_tap:",
    "mov [rip + trap_test_seen], rdi",
    "mov [rip + trap_test_seen + 8], rsi",
    "mov [rip + trap_test_seen + 16], rdx",
    "mov [rip + trap_test_seen + 24], rsp",
    ".irp r, rax,rcx,rdx,rsi,rdi,r8,r9,r10,r11",
    "mov \\r, 0x6b6b6b6b",
    ".endr",
    "pcmpeqd xmm0, xmm0",
    ".irp n, 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
    "movaps xmm\\n, xmm0",
    ".endr",
    "mov qword ptr [rsp - 8], rax",
    "mov qword ptr [rsp - 128], rax",
    "add rax, rax",
    "ret",
    ".local trap_test_target, trap_test_out, trap_test_rsp, trap_test_rax, trap_test_seen",
    ".comm trap_test_target, 8, 8",
    ".comm trap_test_out, 8, 8",
    ".comm trap_test_rsp, 8, 8",
    ".comm trap_test_rax, 8, 8",
    ".comm trap_test_seen, 40, 8",
    // Addresses for Rust, which cannot name local symbols.
    "trap_test_addresses:",
    "lea rax, [rip + trap_test_enter]",
    "mov [rdi], rax",
    "lea rax, [rip + trap_test_tap]",
    "mov [rdi + 8], rax",
    "lea rax, [rip + trap_test_seen]",
    "mov [rdi + 16], rax",
    "ret",
);

unsafe extern "C" {
    fn trap_test_addresses(out: *mut [u64; 3]);
}

/// One caller at a time: the assembly above keeps its state in statics.
static ONE: Mutex<()> = Mutex::new(());

type Enter = extern "C" fn(*const u8, *const Machine, *mut Machine);

struct Bench {
    enter: Enter,
    tap: u64,
    seen: *const [u64; 5],
    page: *mut u8,
}

const PAGE: usize = 4096;
const RED_ZONE: u64 = 0x1234_5678;
/// `mov qword [rsp-128], 0x12345678`: the far end of what a leaf function keeps below its stack pointer.
const KEEP: [u8; 9] = [0x48, 0xc7, 0x44, 0x24, 0x80, 0x78, 0x56, 0x34, 0x12];
const STORE_AT: usize = 64;
const STUB_AT: usize = 2048;

impl Bench {
    fn new() -> Bench {
        let mut addresses = [0u64; 3];
        // SAFETY: the function writes three words to the given address.
        unsafe { trap_test_addresses(&mut addresses) };
        // SAFETY: a new private mapping overlaps no existing memory.
        let page = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGE,
                libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(page, libc::MAP_FAILED);
        Bench {
            // SAFETY: the address is that of the assembly function with this signature.
            enter: unsafe { std::mem::transmute::<usize, Enter>(addresses[0] as usize) },
            tap: addresses[1],
            seen: addresses[2] as *const [u64; 5],
            page: page.cast(),
        }
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= PAGE);
        // SAFETY: inside the test's page, which no thread is executing now.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.page.add(at), bytes.len()) };
    }

    fn at(&self, offset: usize) -> u64 {
        self.page as u64 + offset as u64
    }

    /// Builds `keep; jmp store` and `store; transfer; padding`, rewrites the store, runs it, checks all.
    fn run(&self, store: &[u8], transfer: &[u8], mut machine: Machine, far: bool) {
        self.write(0, &[0xcc; PAGE]);
        self.write(0, &KEEP);
        self.write(KEEP.len(), &[0xeb, (STORE_AT - KEEP.len() - 2) as u8]);
        let mut site = [store, transfer].concat();
        if store.len() < 5 {
            assert!(site.len() <= 11);
            site.resize(16, 0x90);
        }
        self.write(STORE_AT, &site);
        self.write(STORE_AT + 32, &[0xc3]);

        let plan = shape::plan(&site, self.at(STORE_AT)).unwrap();
        assert_eq!(plan.kind, if store.len() < 5 { Shape::Padding } else { Shape::Long });
        let access = decode(store).unwrap();
        // A stub that claims an address beyond rel32 of tap and resume uses the absolute forms, which run anywhere.
        let stub_at = self.at(STUB_AT) ^ if far { 1 << 46 } else { 0 };
        let mut stub = [0; STUB_MAX];
        let length = shape::stub(&access, &mut stub, stub_at, self.tap, plan.resume).unwrap();
        self.write(STUB_AT, &stub[..length]);
        for patch in [plan.padding_patch(self.at(STUB_AT)), plan.store_patch(self.at(STUB_AT))].into_iter().flatten() {
            self.write((patch.at - self.at(0)) as usize, patch.bytes());
        }

        let state = State { gpr: machine.gpr, rip: plan.store_at, xmm: machine.xmm };
        let expected = [store_value(&access, &state).unwrap(), effective_address(&access, &state)];
        let mut out = Machine::EMPTY;
        (self.enter)(self.page, &machine, &mut out);
        // SAFETY: the static of the assembly above, which no one writes now.
        let seen = unsafe { self.seen.read_volatile() };
        assert_eq!(seen[..2], expected, "{store:x?}: value and address");
        assert_eq!(seen[2], u64::from(access.width), "{store:x?}: width");
        assert_eq!(seen[3] % 16, 8, "{store:x?}: the tap's stack is not aligned as at a call");
        machine.gpr[4] = seen[4];
        machine.red_zone = RED_ZONE;
        // Reserved bit 1 and the interrupt flag are always set.
        machine.flags |= 0x202;
        assert_eq!(out, machine, "{store:x?}: the machine changed");
    }
}

/// Numbers that differ in every byte, from a seed.
fn machine(seed: u64) -> Machine {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x.wrapping_mul(0x2545_f491_4f6c_dd1d)
    };
    let mut machine = Machine::EMPTY;
    for n in 0..16 {
        machine.gpr[n] = next();
        machine.xmm[n] = u128::from(next()) << 64 | u128::from(next());
    }
    // CF PF AF ZF SF OF, any combination.
    machine.flags = next() & 0x8d5;
    machine
}

const TO_RET: [u8; 5] = [0xe9, 0, 0, 0, 0];

/// `jmp` from the end of a store of this length to the `ret`.
fn away(store: usize) -> [u8; 5] {
    let mut jump = TO_RET;
    jump[1] = (32 - store - 5) as u8;
    jump
}

fn all(store: &[u8], seed: u64, bench: &Bench) {
    bench.run(store, &away(store.len()), machine(seed), false);
    bench.run(store, &away(store.len()), machine(seed + 1), true);
    if store.len() < 5 {
        bench.run(store, &[0xc3], machine(seed + 2), false);
    }
}

#[test]
fn every_pair_of_registers() {
    let _one = ONE.lock().unwrap();
    let bench = Bench::new();
    let mut seed = 1;
    for base in 0..16u8 {
        for value in 0..16u8 {
            if base == 4 || value == 4 {
                continue;
            }
            for wide in [0, 8] {
                let rex = 0x40 | wide | (value >> 3) << 2 | base >> 3;
                // r12 needs a SIB byte.
                let (rm, sib): (u8, &[u8]) = if base & 7 == 4 { (4, &[0x24]) } else { (base & 7, &[]) };
                for (mode, disp) in [(0, &[][..]), (1, &[0x90]), (2, &[0x90, 0, 0, 0])] {
                    if mode == 0 && base & 7 == 5 {
                        continue;
                    }
                    let modrm = mode << 6 | (value & 7) << 3 | rm;
                    let mut store = if rex == 0x40 { vec![] } else { vec![rex] };
                    store.extend_from_slice(&[0x89, modrm]);
                    store.extend_from_slice(sib);
                    store.extend_from_slice(disp);
                    all(&store, seed, &bench);
                    seed += 3;
                }
            }
        }
    }
}

#[test]
fn every_base_and_index() {
    let _one = ONE.lock().unwrap();
    let bench = Bench::new();
    for base in 0..16u8 {
        for index in (0..16u8).filter(|index| *index != 4) {
            for scale in 0..4u8 {
                if base & 7 == 4 && base < 8 {
                    continue;
                }
                let rex = 0x40 | (index >> 3) << 1 | base >> 3;
                let sib = scale << 6 | (index & 7) << 3 | base & 7;
                let seed = 10_000 + u64::from(base) * 100 + u64::from(index) * 4;
                all(&[rex, 0x89, 0x44, sib, 0x7f], seed, &bench);
                if base & 7 != 5 {
                    all(&[rex, 0x89, 0x3c, sib], seed, &bench);
                } else {
                    // No base at all.
                    all(&[rex, 0x89, 0x3c, sib, 0x90, 0, 0, 0x80], seed, &bench);
                }
            }
        }
    }
}

#[test]
fn other_forms() {
    let _one = ONE.lock().unwrap();
    let bench = Bench::new();
    let forms: [&[u8]; 16] = [
        &[0xc7, 0x00, 0x13, 0x00, 0x01, 0x80],
        &[0x48, 0xc7, 0x00, 0x13, 0x00, 0x01, 0x80],
        &[0xc7, 0x40, 0x90, 0x13, 0x00, 0x01, 0x80],
        &[0x66, 0xc7, 0x07, 0xfe, 0xff],
        &[0xc6, 0x06, 0xfe],
        &[0x88, 0x26],
        &[0x88, 0x38],
        &[0x40, 0x88, 0x38],
        &[0x66, 0x89, 0x08],
        &[0x0f, 0xc3, 0x08],
        &[0x66, 0x0f, 0x7e, 0x08],
        &[0x66, 0x0f, 0xd6, 0x08],
        &[0x66, 0x44, 0x0f, 0xd6, 0x28],
        &[0x66, 0x4c, 0x0f, 0x7e, 0x28],
        &[0x89, 0x04, 0x25, 0x90, 0, 0, 0],
        &[0xa3, 0x90, 0x00, 0x60, 0x00, 0x02, 0, 0, 0],
    ];
    for (n, store) in forms.iter().enumerate() {
        for round in 0..32 {
            all(store, 50_000 + n as u64 * 100 + round * 3, &bench);
        }
    }
}

#[test]
fn flags_survive_in_every_combination() {
    let _one = ONE.lock().unwrap();
    let bench = Bench::new();
    for bits in 0..64u64 {
        let mut machine = machine(bits);
        let flag = |bit: u64, at: u64| (bits >> bit & 1) << at;
        machine.flags = flag(0, 0) | flag(1, 2) | flag(2, 4) | flag(3, 6) | flag(4, 7) | flag(5, 11);
        bench.run(&[0x89, 0x08], &away(2), machine, false);
    }
}

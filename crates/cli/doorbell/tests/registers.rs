//! A rewritten doorbell preserves all registers, also those that no calling convention saves.
//!
//! A stub saves only xmm0 to xmm15, so the code that it calls must not touch the rest. One test lets the program check
//! (`plays_registers`, this file's binary, recorded): it fills every vector and mask register that the CPU has before its
//! store. Another reads the library's code, from the functions that the stub calls on.

mod work;

use gpu::Site;
use iced_x86::{Decoder, DecoderOptions, EncodingKind, FlowControl, Instruction, Mnemonic, OpKind, Register};
use std::arch::global_asm;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use test_support::finished;
use work::Work;

#[test]
fn a_doorbell_leaves_vector_and_mask_registers_alone() {
    let dir = tempfile::tempdir().unwrap();
    for tap in ["trap", "patch"] {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
        // A strict software GPU would trap in its own way.
        command.env("DOORBELL_SOFTGPU", "poll").args(["record", "--gpu", "soft", "--tap", tap, "-q", "-o"]);
        command.arg(dir.path().join(tap)).arg("--").arg(std::env::current_exe().unwrap());
        let out = finished(command.args(["plays_registers", "--exact", "--ignored", "--nocapture"]), tap);
        let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert!(out.status.success() && text.contains("1 passed"), "under {tap}: {text}");
        if text.contains("no vector registers") {
            test_support::skip!("the CPU has no AVX2");
        }
    }
}

// ---- the program

/// Room for 32 registers of 64 bytes, and 8 masks.
const ROOM: usize = 32 * 64 + 8 * 8;
#[repr(C, align(64))]
struct Room([u8; ROOM]);
static mut BEFORE: Room = Room([0; ROOM]);
static mut AFTER: Room = Room([0; ROOM]);

// Stores as libcuda's site does, between loading and saving all registers.
macro_rules! site {
    ($name:literal, $load:literal, $save:literal) => {
        global_asm!(
            concat!(".globl ", $name),
            concat!($name, ":"),
            "lea rdx, [rip + {before}]",
            $load,
            "mov rax, rdi",
            "mov ecx, esi",
            ".p2align 4",
            "mov dword ptr [rax], ecx",
            ".byte 0xe9",
            ".long 2f - . - 4",
            ".byte 0x66, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00",
            "2:",
            "lea rdx, [rip + {after}]",
            $save,
            "vzeroupper",
            "ret",
            before = sym BEFORE,
            after = sym AFTER,
        );
    };
}

site!(
    "registers_test_avx512",
    ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
     vmovdqu64 zmm\\n, [rdx + 64*\\n]
     .endr
     .irp n, 1,2,3,4,5,6,7
     kmovq k\\n, [rdx + 2048 + 8*\\n]
     .endr",
    ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
     vmovdqu64 [rdx + 64*\\n], zmm\\n
     .endr
     .irp n, 1,2,3,4,5,6,7
     kmovq [rdx + 2048 + 8*\\n], k\\n
     .endr"
);
site!(
    "registers_test_avx2",
    ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
     vmovdqu ymm\\n, [rdx + 32*\\n]
     .endr",
    ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
     vmovdqu [rdx + 32*\\n], ymm\\n
     .endr"
);

unsafe extern "sysv64" {
    fn registers_test_avx512(address: *mut u8, token: u32);
    fn registers_test_avx2(address: *mut u8, token: u32);
}

#[test]
#[ignore = "a program for the tests above"]
fn plays_registers() {
    let wide = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
    let (site, bytes) = if wide {
        (registers_test_avx512 as *const () as usize, ROOM)
    } else if is_x86_feature_detected!("avx2") {
        (registers_test_avx2 as *const () as usize, 16 * 32)
    } else {
        return println!("no vector registers");
    };
    // SAFETY: no other code uses the two buffers.
    let (before, after) = unsafe { ((&raw mut BEFORE.0).as_mut().unwrap(), (&raw mut AFTER.0).as_mut().unwrap()) };
    for (i, b) in before.iter_mut().enumerate() {
        *b = (i as u8).wrapping_mul(167) ^ 0x5a;
    }
    before[2048..2056].fill(0);
    let mut work = Work::with(Site::At(site));
    for round in 0..200 {
        after.fill(0);
        work.rounds(1);
        let changed: BTreeSet<usize> = (0..bytes).filter(|&i| after[i] != before[i]).map(|i| i / 64).collect();
        assert!(changed.is_empty(), "round {round}: registers {changed:?} (of 64 bytes; 32: masks) have changed");
    }
}

// ---- the library's code

/// A function of the library: its name, and its code.
struct Function {
    name: String,
    code: Vec<u8>,
}

/// The parts of the library's file that are examined.
struct Library {
    /// By address.
    functions: BTreeMap<u64, Function>,
    /// Words that the loader fills in: an address in the library itself, or a function of another library.
    words: BTreeMap<u64, Result<u64, String>>,
}

fn u(bytes: &[u8], at: u64, n: usize) -> u64 {
    let mut word = [0; 8];
    word[..n].copy_from_slice(&bytes[at as usize..at as usize + n]);
    u64::from_le_bytes(word)
}

fn text(bytes: &[u8], at: u64) -> String {
    let rest = &bytes[at as usize..];
    String::from_utf8_lossy(&rest[..rest.iter().position(|&b| b == 0).unwrap()]).into_owned()
}

/// ELF-64: sections of symbols (2), of the loader's symbols (11) and of relocations (4).
fn read(path: &Path) -> Library {
    let b = std::fs::read(path).unwrap();
    let (sections, size, n) = (u(&b, 0x28, 8), u(&b, 0x3a, 2), u(&b, 0x3c, 2));
    let section = |i: u64| {
        let at = sections + i * size;
        // Type, address, offset, size, link.
        (u(&b, at + 4, 4), u(&b, at + 16, 8), u(&b, at + 24, 8), u(&b, at + 32, 8), u(&b, at + 40, 4))
    };
    let all: Vec<_> = (0..n).map(section).collect();
    let (mut functions, mut words) = (BTreeMap::new(), BTreeMap::new());
    for &(kind, _, at, bytes, link) in &all {
        match kind {
            2 => {
                for s in (at..at + bytes).step_by(24) {
                    let (info, section, value, length) =
                        (u(&b, s + 4, 1), u(&b, s + 6, 2), u(&b, s + 8, 8), u(&b, s + 16, 8));
                    if info & 15 != 2 || section == 0 {
                        continue;
                    }
                    let (_, start, offset, ..) = all[section as usize];
                    let from = (value - start + offset) as usize;
                    let name = text(&b, all[link as usize].2 + u(&b, s, 4));
                    functions.insert(value, Function { name, code: b[from..from + length as usize].to_vec() });
                }
            }
            4 => {
                let symbols = all[link as usize];
                for r in (at..at + bytes).step_by(24) {
                    let (word, info, addend) = (u(&b, r, 8), u(&b, r + 8, 8), u(&b, r + 16, 8));
                    let symbol = symbols.2 + (info >> 32) * 24;
                    let what = match info as u32 {
                        8 => Ok(addend),
                        // Relocations other than R_X86_64_64, GLOB_DAT and JUMP_SLOT name no functions.
                        kind if ![1, 6, 7].contains(&kind) => continue,
                        _ if u(&b, symbol + 6, 2) != 0 => Ok(u(&b, symbol + 8, 8)),
                        _ => Err(text(&b, all[symbols.4 as usize].2 + u(&b, symbol, 4))),
                    };
                    words.insert(word, what);
                }
            }
            _ => {}
        }
    }
    Library { functions, words }
}

/// The stub saves these registers, or the instruction uses no vector register.
fn is_saved(i: &Instruction) -> bool {
    let legacy = matches!(i.encoding(), EncodingKind::Legacy);
    let register = |r: Register| !(r.is_mm() || r.is_st() || r.is_ymm() || r.is_zmm() || r.is_k());
    legacy && (0..i.op_count()).all(|o| i.op_kind(o) != OpKind::Register || register(i.op_register(o)))
}

#[test]
fn nothing_behind_the_stub_touches_what_it_does_not_save() {
    let doorbell = assert_cmd::cargo::cargo_bin!("doorbell");
    let target = doorbell.parent().unwrap().parent().unwrap();
    let library = read(&target.join("preload-libraries/preload/libdoorbell_agent.so"));
    // The function that the stub calls, and the one that a ring calls by an address that it was given.
    let is_start = |f: &Function| ["on_store", "make_present"].iter().any(|name| f.name.contains(name));
    let starts: Vec<u64> = library.functions.iter().filter(|(_, f)| is_start(f)).map(|(&at, _)| at).collect();
    assert_eq!(starts.len(), 2, "{:?}", library.functions.values().map(|f| &f.name).collect::<Vec<_>>());
    let mut wrong = Vec::new();
    let (mut seen, mut left) = (BTreeSet::new(), starts);
    while let Some(at) = left.pop() {
        let Some((&start, f)) = library.functions.range(..=at).next_back() else { panic!("no code at {at:#x}") };
        assert!(at < start + f.code.len() as u64, "no function at {at:#x}, behind {}", f.name);
        // A panic aborts: it never returns.
        if !seen.insert(start) || f.name.contains("panic") {
            continue;
        }
        // Addresses of functions that it reads into registers.
        let mut read = 0;
        for i in &mut Decoder::with_ip(64, &f.code, start, DecoderOptions::NONE) {
            if i.is_invalid() || !is_saved(&i) || i.mnemonic() == Mnemonic::Ldmxcsr {
                wrong.push(format!("{}: {:?} at {:#x}", f.name, i.code(), i.ip()));
            }
            let inside = |to: u64| (start..start + f.code.len() as u64).contains(&to);
            match i.flow_control() {
                FlowControl::Call | FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
                    if i.mnemonic() != Mnemonic::Syscall && !inside(i.near_branch_target()) =>
                {
                    left.push(i.near_branch_target());
                }
                // A function whose address it has read, or the ring's.
                FlowControl::IndirectCall
                    if !i.is_ip_rel_memory_operand() && read == 0 && !f.name.contains("Writer4look") =>
                {
                    wrong.push(format!("{} calls what a register says, at {:#x}", f.name, i.ip()));
                }
                _ => {}
            }
            let word = if i.is_ip_rel_memory_operand() { library.words.get(&i.ip_rel_memory_address()) } else { None };
            match word {
                Some(Ok(to)) if library.functions.contains_key(to) => {
                    left.push(*to);
                    read += 1;
                }
                // This function returns an address.
                Some(Err(name)) if name != "__errno_location" => wrong.push(format!("{} uses {name}", f.name)),
                Some(Err(_)) => read += 1,
                _ => {}
            }
        }
    }
    assert!(seen.len() > 3, "{seen:?}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A load that is wider than the stores that wrote its bytes waits until every store before them has left the core. After the
/// new entries' stores to the GPU, that would be a wait for the bus in the middle of the tap. The tap stores at most eight
/// bytes at a time.
#[test]
fn what_a_doorbell_does_in_the_usual_case_loads_nothing_wide() {
    let doorbell = assert_cmd::cargo::cargo_bin!("doorbell");
    let target = doorbell.parent().unwrap().parent().unwrap();
    let library = read(&target.join("preload-libraries/preload/libdoorbell_agent.so"));
    // Code for unusual cases (graphs with their times), and the copy of the program's own words, which were written long
    // before.
    let unusual = [
        "panic",
        "memcpy",
        "memmove",
        "first",
        "makes_room",
        "lose",
        "note_gap",
        "stranger",
        "nearly_full",
        "take_left",
        "graphs",
        "read_both",
    ];
    let unusual =
        |f: &Function| unusual.iter().chain(&["leave", "Writer4look", "wait_for"]).any(|n| f.name.contains(n));
    let find = |n: &str| library.functions.iter().find(|(_, f)| f.name.contains(n)).map(|(&at, _)| at);
    let (mut seen, mut left) = (BTreeSet::new(), vec![find("on_store").expect("what a stub calls")]);
    let mut wide = Vec::new();
    while let Some(at) = left.pop() {
        let Some((&start, f)) = library.functions.range(..=at).next_back() else { panic!("no code at {at:#x}") };
        if unusual(f) || !seen.insert(f.name.clone()) {
            continue;
        }
        for i in &mut Decoder::with_ip(64, &f.code, start, DecoderOptions::NONE) {
            let loads = (1..i.op_count()).any(|o| i.op_kind(o) == OpKind::Memory);
            if loads && i.memory_size().size() > 8 {
                wide.push(format!("{}: {:?} at {:#x}", f.name, i.code(), i.ip()));
            }
            let inside = |to: u64| (start..start + f.code.len() as u64).contains(&to);
            let to = i.near_branch_target();
            if to != 0 && !inside(to) {
                left.push(to);
            }
            let word = if i.is_ip_rel_memory_operand() { library.words.get(&i.ip_rel_memory_address()) } else { None };
            if let Some(Ok(to)) = word
                && library.functions.contains_key(to)
            {
                left.push(*to);
            }
        }
    }
    assert!(wide.is_empty(), "{wide:#?}");
    let names = seen.iter().cloned().collect::<Vec<_>>().join(" ");
    assert!(names.contains("submit") && names.contains("ranges"), "{names}");
}

//! Any file given as a program is judged, or refused with a reason, without a panic.

use proptest::prelude::*;
use recorder::Program;
use std::os::unix::fs::PermissionsExt;

fn judged(bytes: &[u8]) -> Result<(), String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("program");
    std::fs::write(&path, bytes).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    Program::find(path.as_os_str()).map(drop).map_err(|e| e.to_string())
}

/// An ELF header for x86-64 followed by anything: the numbers that locate the program headers come from `bytes`.
fn elf(mut bytes: Vec<u8>) -> Vec<u8> {
    let head = [0x7f, b'E', b'L', b'F', 2, 1, 1];
    bytes.resize(bytes.len().max(64), 0);
    bytes[..7].copy_from_slice(&head);
    bytes[18..20].copy_from_slice(&62u16.to_le_bytes());
    bytes
}

/// The same with program headers within the file.
fn plausible(kind: u32, at: u64, len: u64, tail: Vec<u8>) -> Vec<u8> {
    let mut bytes = elf(vec![0; 64 + 56]);
    bytes[32..40].copy_from_slice(&64u64.to_le_bytes());
    bytes[54..56].copy_from_slice(&56u16.to_le_bytes());
    bytes[56..58].copy_from_slice(&1u16.to_le_bytes());
    bytes[64..68].copy_from_slice(&kind.to_le_bytes());
    bytes[72..80].copy_from_slice(&at.to_le_bytes());
    bytes[96..104].copy_from_slice(&len.to_le_bytes());
    bytes.extend(tail);
    bytes
}

proptest! {
    #[test]
    fn no_file_panics(bytes in proptest::collection::vec(any::<u8>(), 0..256), tail in any::<Vec<u8>>(), at: u64, len: u64) {
        for file in [bytes.clone(), elf(bytes.clone()), plausible(3, at, len, tail.clone()), plausible(3, 120, len, tail)] {
            if let Err(e) = judged(&file) {
                prop_assert!(e.contains(": "), "{e}");
            }
        }
    }

    #[test]
    fn no_script_panics(line in "[ -~]{0,40}", rest in ".{0,20}") {
        for head in ["#!", "#! ", "#!/usr/bin/env ", "#!/bin/sh "] {
            let _ = judged(format!("{head}{line}\n{rest}").as_bytes());
        }
    }

    #[test]
    fn no_name_panics(name in any::<Vec<u8>>()) {
        use std::os::unix::ffi::OsStrExt;
        let _ = Program::find(std::ffi::OsStr::from_bytes(&name));
    }
}

/// The program that the loader runs is followed. The loader does not count as a program that takes no preload.
#[test]
fn the_dynamic_loader_is_no_static_program() {
    let loader = std::path::Path::new("/lib64/ld-linux-x86-64.so.2");
    if !loader.exists() {
        test_support::skip!("no dynamic loader at its usual place");
    }
    assert!(!Program::find(loader.as_os_str()).unwrap().is_static);
}

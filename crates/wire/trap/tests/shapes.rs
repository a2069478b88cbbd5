//! Which sites are rewritten, by example: the one of CUDA 13.0, others that compilers make, and some that must be refused.

use trap::shape::{Shape, plan, stub};

/// Where the compiler's alignment puts a 16-byte block.
const IP: u64 = 0x7f00_1234_5670;
const NOP9: [u8; 9] = [0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0];
const JMP: [u8; 5] = [0xe9, 0x10, 0x20, 0x30, 0x40];

fn code(parts: &[&[u8]]) -> Vec<u8> {
    let mut code = parts.concat();
    // The next block follows: never a nop.
    code.extend_from_slice(&[0x55; 64]);
    code
}

#[test]
fn the_site_of_cuda_13() {
    let site = code(&[&[0x89, 0x08], &JMP, &NOP9]);
    let plan = plan(&site, IP).unwrap();
    assert_eq!(plan.kind, Shape::Padding);
    assert_eq!((plan.store_at, plan.store_len, plan.resume, plan.pad_at), (IP, 2, IP + 2, Some(IP + 7)));
    assert_eq!(plan.store_patch(0).unwrap().bytes(), [0xeb, 5]);
    let stub = IP + 0x10_0000;
    let jump = plan.padding_patch(stub).unwrap();
    assert_eq!(jump.at, IP + 7);
    assert_eq!(jump.bytes(), [0xe9, 0xf4, 0xff, 0x0f, 0x00]);
    assert_eq!(plan.padding_patch(IP + (1 << 32)), None, "a stub beyond rel32");
}

#[test]
fn other_sites_with_padding() {
    // The same site 0x30 further on, not on a boundary: shifted by a byte, with an eight-byte nop.
    assert!(plan(&code(&[&[0x89, 0x08], &JMP, &NOP9[1..]]), IP + 1).is_some());
    // ret, jmp rel8, pops, leave; cc padding; several nops; a prefixed long one.
    let ret = plan(&code(&[&[0x41, 0x89, 0x14, 0x24], &[0x5b, 0x41, 0x5c, 0xc3], &[0xcc; 8]]), IP).unwrap();
    assert_eq!((ret.pad_at, ret.resume), (Some(IP + 8), IP + 4));
    let two = code(&[&[0x44, 0x89, 0x00], &[0xeb, 0x20], &[0x66, 0x90], &NOP9]);
    assert_eq!(plan(&two, IP).unwrap().store_patch(0).unwrap().bytes(), [0xeb, 3, 0x90]);
    let long = code(&[&[0x89, 0x08], &[0xc9, 0xc3], &[0x66, 0x66, 0x2e], &NOP9]);
    assert!(plan(&long, IP).is_some());
}

#[test]
fn long_stores() {
    let site = code(&[&[0x89, 0x88, 0x90, 0, 0, 0], &[0xe8, 0, 0, 0, 0]]);
    let plan = plan(&site, IP + 3).unwrap();
    assert_eq!((plan.kind, plan.pad_at, plan.resume), (Shape::Long, None, IP + 9));
    assert_eq!(plan.store_patch(IP).unwrap().bytes(), [0xe9, 0xf8, 0xff, 0xff, 0xff, 0x90]);
    assert_eq!(plan.padding_patch(IP), None);
}

#[test]
fn refused() {
    let cases: [(&str, u64, Vec<u8>); 10] = [
        ("padding that ends off a boundary", IP + 1, code(&[&[0x89, 0x08], &JMP, &NOP9])),
        ("padding too short", IP, code(&[&[0x89, 0x08], &[0x5b; 5], &JMP, &[0x0f, 0x1f, 0x40, 0]])),
        ("padding that starts on a boundary", IP + 9, code(&[&[0x89, 0x08], &JMP, &NOP9, &[0x90; 7]])),
        ("a call between", IP, code(&[&[0x89, 0x08], &[0xe8, 0, 0, 0, 0], &[0xc3], &NOP9[1..]])),
        ("a branch that may fall through", IP, code(&[&[0x89, 0x08], &[0x74, 0x10], &[0x90; 12]])),
        ("no transfer: the nops are executed", IP, code(&[&[0x89, 0x08], &NOP9, &[0x0f, 0x1f, 0x44, 0, 0]])),
        ("code where the padding should be", IP, code(&[&[0x89, 0x08], &JMP, &[0x48, 0x89, 0xc3], &NOP9[3..]])),
        ("nops mixed with breakpoints", IP, code(&[&[0x89, 0x08], &JMP, &[0x90, 0xcc, 0x90, 0xcc], &[0xcc; 5]])),
        ("a load", IP, code(&[&[0x8b, 0x08], &JMP, &NOP9])),
        ("not a move", IP, code(&[&[0x01, 0x08], &JMP, &NOP9])),
    ];
    for (why, ip, code) in cases {
        assert_eq!(plan(&code, ip), None, "{why}");
    }
    let site = code(&[&[0x89, 0x08], &JMP, &NOP9]);
    for cut in 0..16 {
        assert_eq!(plan(&site[..cut], IP), None, "cut at {cut}");
    }
    assert_eq!(plan(&site, u64::MAX), None);
}

#[test]
fn unsupported_stores_get_no_stub() {
    let mut room = [0; trap::shape::STUB_MAX];
    let refused: [(&str, &[u8]); 6] = [
        ("rsp is the base", &[0x89, 0x0c, 0x24]),
        ("rsp is the value", &[0x89, 0x20]),
        ("rip-relative", &[0x89, 0x0d, 0, 0, 0, 0]),
        ("16 bytes", &[0x0f, 0x11, 0x08]),
        ("a load", &[0x8b, 0x08]),
        ("an absolute load", &[0xa1, 0, 0, 0, 0, 0, 0, 0, 0]),
    ];
    for (why, code) in refused {
        let access = trap::decode(code).unwrap();
        assert_eq!(stub(&access, &mut room, IP, IP, IP), None, "{why}");
    }
    let access = trap::decode(&[0x89, 0x08]).unwrap();
    let far = IP + (1 << 40);
    let needed = stub(&access, &mut room, IP, far, far).unwrap();
    for length in 0..needed {
        assert_eq!(stub(&access, &mut room[..length], IP, far, far), None);
    }
    assert_eq!(stub(&access, &mut room[..needed], IP, far, far), Some(needed));
}

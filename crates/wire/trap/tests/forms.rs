//! Instruction forms by name: how they decode, and their effect on the registers.

use trap::{
    Access, Extend, Kind, Mem, Operand, Registers, State, advance, decode, effective_address, load_into, store_value,
    store_value_wide,
};

const RAX: u8 = 0;
const RCX: u8 = 1;
const RDX: u8 = 2;
const R13: u8 = 13;

fn reg(index: u8) -> Operand {
    Operand::Reg { index, high8: false }
}

fn at(base: u8, disp: i64) -> Mem {
    Mem { base: Some(base), index: None, scale: 1, disp, rip_relative: false }
}

fn store(length: u8, width: u8, operand: Operand, memory: Mem) -> Option<Access> {
    Some(Access { length, kind: Kind::Store, width, operand, extend: Extend::None, memory })
}

fn registers() -> State {
    let mut state = State { rip: 0x40_1000, ..State::default() };
    for (n, gpr) in state.gpr.iter_mut().enumerate() {
        *gpr = 0x1111_2222_3333_4400u64.wrapping_mul(n as u64 + 1) | 0x80 | n as u64;
    }
    for (n, xmm) in state.xmm.iter_mut().enumerate() {
        *xmm = 0xf0e0_d0c0_b0a0_9080_7060_5040_3020_1000 | n as u128;
    }
    state
}

#[test]
fn the_doorbell_of_cuda_13() {
    let access = decode(&[0x89, 0x08, 0xe9, 0, 0, 0, 0]).unwrap();
    assert_eq!(Some(access), store(2, 4, reg(RCX), at(RAX, 0)));
    let mut state = registers();
    state.gpr[usize::from(RAX)] = 0x7fff_0090;
    state.gpr[usize::from(RCX)] = 0xdead_beef_0001_0013;
    assert_eq!(effective_address(&access, &state), 0x7fff_0090);
    assert_eq!(store_value(&access, &state), Some(0x1_0013));
    advance(&access, &mut state);
    assert_eq!(state.rip, 0x40_1002);
}

#[test]
fn displacements_and_sib() {
    assert_eq!(decode(&[0x89, 0x90, 0x90, 0, 0, 0]), store(6, 4, reg(RDX), at(RAX, 0x90)));
    assert_eq!(decode(&[0x89, 0x50, 0x90]), store(3, 4, reg(RDX), at(RAX, -0x70)));
    // r13 as base always carries a displacement; r12 always a SIB byte.
    assert_eq!(decode(&[0x41, 0x89, 0x45, 0x00]), store(4, 4, reg(RAX), at(R13, 0)));
    assert_eq!(decode(&[0x41, 0x89, 0x04, 0x24]), store(4, 4, reg(RAX), at(12, 0)));
    let indexed = Mem { base: Some(3), index: Some(9), scale: 8, disp: 0x1000, rip_relative: false };
    assert_eq!(decode(&[0x42, 0x89, 0x8c, 0xcb, 0, 0x10, 0, 0]), store(8, 4, reg(RCX), indexed));
    let no_base = Mem { base: None, index: Some(1), scale: 4, disp: -4, rip_relative: false };
    assert_eq!(decode(&[0x89, 0x04, 0x8d, 0xfc, 0xff, 0xff, 0xff]), store(7, 4, reg(RAX), no_base));
    let absolute = Mem { base: None, index: None, scale: 1, disp: 0x90, rip_relative: false };
    assert_eq!(decode(&[0x89, 0x04, 0x25, 0x90, 0, 0, 0]), store(7, 4, reg(RAX), absolute));
}

#[test]
fn rip_relative_counts_from_the_next_instruction_immediate_included() {
    let access = decode(&[0xc7, 0x05, 0x00, 0x01, 0, 0, 0x13, 0, 0x01, 0]).unwrap();
    assert_eq!((access.length, access.operand), (10, Operand::Imm(0x1_0013)));
    assert_eq!(effective_address(&access, &registers()), 0x40_1000 + 10 + 0x100);
}

#[test]
fn immediates_are_cut_or_sign_extended() {
    let cases: [(&[u8], u64); 4] = [
        (&[0xc6, 0x00, 0xfe], 0xfe),
        (&[0x66, 0xc7, 0x00, 0xfe, 0xff], 0xfffe),
        (&[0xc7, 0x00, 0xfe, 0xff, 0xff, 0xff], 0xffff_fffe),
        (&[0x48, 0xc7, 0x00, 0xfe, 0xff, 0xff, 0xff], 0xffff_ffff_ffff_fffe),
    ];
    for (code, value) in cases {
        let access = decode(code).unwrap();
        assert_eq!(usize::from(access.length), code.len());
        assert_eq!(store_value(&access, &registers()), Some(value), "{code:x?}");
    }
    // C7 /1 to /7 are other instructions.
    assert_eq!(decode(&[0xc7, 0x48, 0, 0, 0, 0, 0]), None);
}

#[test]
fn byte_registers_with_and_without_rex() {
    let state = registers();
    let ah = decode(&[0x88, 0x23]).unwrap();
    assert_eq!(ah.operand, Operand::Reg { index: 0, high8: true });
    assert_eq!(store_value(&ah, &state), Some(state.gpr[0] >> 8 & 0xff));
    let spl = decode(&[0x40, 0x88, 0x23]).unwrap();
    assert_eq!(store_value(&spl, &state), Some(state.gpr[4] & 0xff));
}

#[test]
fn widths_of_register_stores() {
    let state = registers();
    let cases: [(&[u8], u64); 5] = [
        (&[0x88, 0x08], state.gpr[1] & 0xff),
        (&[0x66, 0x89, 0x08], state.gpr[1] & 0xffff),
        (&[0x48, 0x89, 0x08], state.gpr[1]),
        (&[0x0f, 0xc3, 0x08], state.gpr[1] & 0xffff_ffff),
        (&[0x4c, 0x0f, 0xc3, 0x08], state.gpr[9]),
    ];
    for (code, value) in cases {
        assert_eq!(store_value(&decode(code).unwrap(), &state), Some(value), "{code:x?}");
    }
}

#[test]
fn loads_merge_or_extend_as_the_cpu_does() {
    let memory = 0xf1f2_f3f4_f5f6_f7f8u64;
    let old = registers().gpr[1];
    let cases: [(&[u8], u64); 11] = [
        (&[0x8a, 0x08], old & !0xff | 0xf8),
        (&[0x8a, 0x28], old & !0xff00 | 0xf800),
        (&[0x66, 0x8b, 0x08], old & !0xffff | 0xf7f8),
        (&[0x8b, 0x08], 0xf5f6_f7f8),
        (&[0x48, 0x8b, 0x08], memory),
        (&[0x0f, 0xb6, 0x08], 0xf8),
        (&[0x66, 0x0f, 0xb6, 0x08], old & !0xffff | 0x00f8),
        (&[0x0f, 0xb7, 0x08], 0xf7f8),
        (&[0x0f, 0xbe, 0x08], 0xffff_fff8),
        (&[0x48, 0x0f, 0xbf, 0x08], 0xffff_ffff_ffff_f7f8),
        (&[0x48, 0x63, 0x08], 0xffff_ffff_f5f6_f7f8),
    ];
    for (code, value) in cases {
        let access = decode(code).unwrap();
        assert_eq!(access.kind, Kind::Load);
        let mut state = registers();
        load_into(&access, &mut state, u128::from(memory)).unwrap();
        assert_eq!(state.gpr[1], value, "{code:x?}: {:x}", state.gpr[1]);
        state.gpr[1] = old;
        assert_eq!(state, registers(), "{code:x?} changed another register");
    }
}

#[test]
fn simd_moves() {
    let state = registers();
    let x9 = state.xmm[9];
    let cases: [(&[u8], u8, u128); 7] = [
        (&[0x66, 0x44, 0x0f, 0x7e, 0x08], 4, x9 & 0xffff_ffff),
        (&[0x66, 0x4c, 0x0f, 0x7e, 0x08], 8, x9 & 0xffff_ffff_ffff_ffff),
        (&[0x66, 0x44, 0x0f, 0xd6, 0x08], 8, x9 & 0xffff_ffff_ffff_ffff),
        (&[0x44, 0x0f, 0x11, 0x08], 16, x9),
        (&[0xf3, 0x44, 0x0f, 0x7f, 0x08], 16, x9),
        (&[0x66, 0x44, 0x0f, 0xe7, 0x08], 16, x9),
        (&[0xf3, 0x44, 0x0f, 0x11, 0x08], 4, x9 & 0xffff_ffff),
    ];
    for (code, width, value) in cases {
        let access = decode(code).unwrap();
        assert_eq!((access.kind, access.width, access.operand), (Kind::Store, width, Operand::Xmm(9)), "{code:x?}");
        assert_eq!(store_value_wide(&access, &state), Some(value), "{code:x?}");
        assert_eq!(store_value(&access, &state), (width <= 8).then_some(value as u64));
    }
    let mut state = registers();
    let movq = decode(&[0xf3, 0x0f, 0x7e, 0x10]).unwrap();
    load_into(&movq, &mut state, u128::MAX).unwrap();
    assert_eq!(state.xmm(2), Some(u128::from(u64::MAX)));
}

#[test]
fn absolute_addresses() {
    let code = [0x48, 0xa3, 0x90, 0, 0x60, 0, 2, 0, 0, 0];
    let access = decode(&code).unwrap();
    assert_eq!((access.length, access.width, access.kind), (10, 8, Kind::Store));
    assert_eq!(effective_address(&access, &registers()), 0x2_0060_0090);
    assert_eq!(decode(&[0xa0, 1, 0, 0, 0, 0, 0, 0, 0]).unwrap().kind, Kind::Load);
}

#[test]
fn instructions_other_than_plain_moves_are_refused() {
    let refused: [&[u8]; 17] = [
        &[],
        &[0x89],
        &[0x89, 0xc8],             // mov eax,ecx
        &[0x01, 0x08],             // add [rax],ecx
        &[0x09, 0x08],             // or
        &[0x21, 0x08],             // and
        &[0x31, 0x08],             // xor
        &[0x81, 0x08, 1, 0, 0, 0], // or [rax],1
        &[0x87, 0x08],             // xchg
        &[0xf0, 0x0f, 0xb1, 0x08], // lock cmpxchg
        &[0x64, 0x89, 0x08],       // fs:
        &[0x65, 0x89, 0x08],       // gs:
        &[0x67, 0x89, 0x08],       // [eax]
        &[0xf3, 0xa4],             // rep movsb
        &[0xc5, 0xf8, 0x11, 0x08], // vmovups
        &[0x0f, 0x7e, 0x08],       // movd [rax],mm1
        &[0x89, 0x88, 0, 0, 0],    // cut off
    ];
    for code in refused {
        assert_eq!(decode(code), None, "{code:x?}");
    }
}

#[test]
fn sixteen_bytes_are_no_instruction() {
    let mut code = [0x66; 20];
    code[13] = 0x89;
    code[14] = 0x08;
    assert_eq!(decode(&code).unwrap().length, 15);
    code[13] = 0x66;
    code[14] = 0x89;
    code[15] = 0x08;
    assert_eq!(decode(&code), None);
}

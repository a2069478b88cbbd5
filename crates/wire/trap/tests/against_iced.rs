//! The same bytes to iced-x86: accepted instructions must be read the same way, and none of the promised set may be refused.

use iced_x86::{
    Decoder, DecoderOptions, Instruction, InstructionInfoFactory, InstructionInfoOptions, MemorySize, Mnemonic,
    OpAccess, OpKind, Register,
};
use proptest::prelude::*;
use trap::shape::STUB_MAX;
use trap::{Access, Kind, Operand, decode};

const IP: u64 = 0x5555_0000_1000;

fn number(register: Register) -> Option<u8> {
    (register != Register::None).then(|| register.number() as u8)
}

fn iced(code: &[u8]) -> Instruction {
    Decoder::with_ip(64, code, IP, DecoderOptions::NONE).decode()
}

fn compare(code: &[u8], access: &Access) {
    let other = iced(code);
    assert!(!other.is_invalid(), "{code:x?} is no instruction: {access:?}");
    assert_eq!(usize::from(access.length), other.len(), "{code:x?}");
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info_options(&other, InstructionInfoOptions::NO_REGISTER_USAGE);
    let [memory] = info.used_memory() else { panic!("{code:x?}: {other:?}") };
    let kind = match memory.access() {
        OpAccess::Write => Kind::Store,
        OpAccess::Read => Kind::Load,
        access => panic!("{code:x?}: {access:?}"),
    };
    assert_eq!(access.kind, kind, "{code:x?}");
    assert_eq!(usize::from(access.width), memory.memory_size().size(), "{code:x?}");
    assert!(!matches!(memory.segment(), Register::FS | Register::GS), "{code:x?}");
    assert_eq!(access.memory.rip_relative, other.is_ip_rel_memory_operand(), "{code:x?}");
    if access.memory.rip_relative {
        let target = IP.wrapping_add(u64::from(access.length)).wrapping_add(access.memory.disp as u64);
        assert_eq!(target, other.ip_rel_memory_address(), "{code:x?}");
    } else {
        assert_eq!(access.memory.base, number(memory.base()), "{code:x?}");
        assert_eq!(access.memory.index, number(memory.index()), "{code:x?}");
        if access.memory.index.is_some() {
            assert_eq!(u32::from(access.memory.scale), memory.scale(), "{code:x?}");
        }
        assert_eq!(access.memory.disp as u64, memory.displacement(), "{code:x?}");
    }
    let side = if kind == Kind::Store { 1 } else { 0 };
    match access.operand {
        Operand::Imm(value) => {
            let mask = u64::MAX >> (64 - 8 * u32::from(access.width));
            assert_eq!(value as u64 & mask, other.immediate(side) & mask, "{code:x?}");
        }
        Operand::Xmm(n) => assert_eq!((Register::XMM0 as u8) + n, other.op_register(side) as u8, "{code:x?}"),
        Operand::Reg { index, high8 } => {
            let register = other.op_register(side);
            assert_eq!(matches!(register, Register::AH | Register::CH | Register::DH | Register::BH), high8);
            assert_eq!(index, register.full_register().number() as u8, "{code:x?}: {register:?}");
        }
    }
}

/// A memory form of the set that the decoder promises.
fn promised(code: &[u8]) -> bool {
    let other = iced(code);
    let moves = matches!(
        other.mnemonic(),
        Mnemonic::Mov
            | Mnemonic::Movzx
            | Mnemonic::Movsx
            | Mnemonic::Movnti
            | Mnemonic::Movd
            | Mnemonic::Movups
            | Mnemonic::Movaps
            | Mnemonic::Movdqu
            | Mnemonic::Movdqa
            | Mnemonic::Movntps
            | Mnemonic::Movntdq
    ) || other.mnemonic() == Mnemonic::Movq
        || other.mnemonic() == Mnemonic::Movsxd && other.memory_size() == MemorySize::Int32 && code_has_w(code);
    let memory = (0..other.op_count()).any(|n| other.op_kind(n) == OpKind::Memory);
    let registers = (0..other.op_count()).filter(|n| other.op_kind(*n) == OpKind::Register).all(|n| {
        let register = other.op_register(n);
        register.is_gpr() || register.is_xmm()
    });
    let plain = !matches!(other.segment_prefix(), Register::FS | Register::GS)
        && !code.iter().take(other.len()).any(|byte| matches!(byte, 0x67 | 0xf0))
        && !other.has_xacquire_prefix()
        && !other.has_xrelease_prefix();
    let lead = lead(code);
    let repeats = lead.iter().filter(|byte| matches!(byte, 0xf2 | 0xf3)).count();
    let both = lead.contains(&0x66) && repeats > 0;
    let gpr_only =
        (0..other.op_count()).all(|n| other.op_kind(n) != OpKind::Register || !other.op_register(n).is_xmm());
    moves && memory && registers && plain && !both && repeats <= 1 && !(gpr_only && repeats > 0)
}

const PREFIXES: [u8; 9] = [0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0xf2, 0xf3];

/// The prefixes of an instruction, REX included.
fn lead(code: &[u8]) -> &[u8] {
    let opcode = code.iter().position(|byte| !PREFIXES.contains(byte) && byte & 0xf0 != 0x40);
    &code[..opcode.unwrap_or(code.len())]
}

fn code_has_w(code: &[u8]) -> bool {
    lead(code).last().is_some_and(|byte| byte & 0xf8 == 0x48)
}

fn check(code: &[u8]) {
    match decode(code) {
        Some(access) => {
            compare(code, &access);
            stub(code, &access);
        }
        None => assert!(!promised(code), "refused {code:x?}: {:?}", iced(code)),
    }
    let _ = trap::shape::plan(code, IP);
}

/// Every store that is supported gets a stub of whole instructions that fits its room.
fn stub(code: &[u8], access: &Access) {
    let mut room = [0; STUB_MAX];
    let far = IP ^ 1 << 45;
    let rsp = Operand::Reg { index: 4, high8: false };
    let possible = access.kind == Kind::Store
        && access.width <= 8
        && access.operand != rsp
        && access.memory.base != Some(4)
        && !access.memory.rip_relative;
    let length = trap::shape::stub(access, &mut room, IP, far, far);
    assert_eq!(length.is_some(), possible, "{code:x?}");
    let Some(length) = length else { return };
    // The target of the far jump is stored after it.
    let text = &room[..length - 8];
    assert_eq!(room[length - 8..length], far.to_le_bytes());
    let mut decoder = Decoder::with_ip(64, text, IP, DecoderOptions::NONE);
    let mut last = decoder.decode();
    while decoder.can_decode() {
        last = decoder.decode();
        assert!(!last.is_invalid(), "{code:x?}: {text:x?}");
    }
    assert_eq!((last.mnemonic(), last.next_ip()), (Mnemonic::Jmp, IP + text.len() as u64), "{code:x?}");
}

/// Bytes that begin like a move, so that most cases are one.
fn like_a_move() -> impl Strategy<Value = Vec<u8>> {
    let prefix = prop_oneof![
        8 => Just(vec![]),
        2 => Just(vec![0x66]),
        1 => Just(vec![0xf3]),
        1 => Just(vec![0xf2]),
        1 => proptest::sample::subsequence(PREFIXES.to_vec(), 0..3),
    ];
    let rex = prop_oneof![Just(vec![]), (0x40u8..0x50).prop_map(|rex| vec![rex])];
    let opcode = prop_oneof![
        proptest::sample::select(vec![0x88u8, 0x89, 0x8a, 0x8b, 0xc6, 0xc7, 0xa0, 0xa1, 0xa2, 0xa3, 0x63])
            .prop_map(|opcode| vec![opcode]),
        proptest::sample::select(vec![
            0xb6u8, 0xb7, 0xbe, 0xbf, 0xc3, 0x10, 0x11, 0x13, 0x28, 0x29, 0x2b, 0x6e, 0x6f, 0x7e, 0x7f, 0xd6, 0xe7
        ])
        .prop_map(|opcode| vec![0x0f, opcode]),
        Just(vec![0x0f, 0x38, 0x2a]),
        any::<u8>().prop_map(|opcode| vec![0x0f, opcode]),
    ];
    let rest = proptest::collection::vec(any::<u8>(), 0..14);
    (prefix, rex, opcode, rest).prop_map(|(prefix, rex, opcode, rest)| [prefix, rex, opcode, rest].concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(20_000) })]

    #[test]
    fn moves_are_read_alike(code in like_a_move()) {
        check(&code);
    }

    #[test]
    fn random_bytes_are_read_alike(code in proptest::collection::vec(any::<u8>(), 0..20)) {
        check(&code);
    }
}

#[test]
fn every_modrm_and_sib_byte() {
    let mut accepted = 0;
    for rex in [None, Some(0x40), Some(0x4f), Some(0x43), Some(0x4c)] {
        for opcode in [&[0x89u8][..], &[0x88], &[0xc7], &[0x8b], &[0x0f, 0xb6], &[0x0f, 0x11]] {
            for modrm in 0..=255u8 {
                for sib in (0..=255u8).step_by(if modrm & 7 == 4 { 1 } else { 255 }) {
                    let mut code: Vec<u8> = rex.into_iter().collect();
                    code.extend_from_slice(opcode);
                    code.extend_from_slice(&[modrm, sib, 0x84, 0x93, 0xa2, 0xb1, 0xc0, 0x12, 0x34]);
                    check(&code);
                    accepted += usize::from(decode(&code).is_some());
                }
            }
        }
    }
    assert!(accepted > 50_000, "only {accepted} forms accepted");
}

//! GPFIFO entries: which words of memory are the next piece of the command stream.
//!
//! Bits of the 64-bit entry (class 0xC36F and later, GP_ENTRY0 and GP_ENTRY1): FETCH 0, GET 39:2, PRIV 40 (Volta, Turing), LEVEL 41, LENGTH 62:42 in
//! words, SYNC 63. A LENGTH of 0 makes it a control entry: OPERAND 31:0, OPCODE 39:32. Hopper adds opcode 4, which gives the address bits from 40 up.
//! `parse` and `encode` are inverse for every 64-bit value.

/// A segment's place in the pushbuffer's call structure; it only decides whether USERD's TOP_LEVEL_GET follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Level {
    Main,
    Subroutine,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Opcode {
    Nop,
    Illegal,
    GpCrc,
    PbCrc,
    /// Hopper and later: OPERAND 24:8 is the address of the following segments shifted right by 40.
    SetPbSegmentExtendedBase,
    Other(u8),
}

impl Opcode {
    pub const fn parse(code: u8) -> Opcode {
        match code {
            0 => Opcode::Nop,
            1 => Opcode::Illegal,
            2 => Opcode::GpCrc,
            3 => Opcode::PbCrc,
            4 => Opcode::SetPbSegmentExtendedBase,
            other => Opcode::Other(other),
        }
    }

    pub const fn encode(self) -> u8 {
        match self {
            Opcode::Nop => 0,
            Opcode::Illegal => 1,
            Opcode::GpCrc => 2,
            Opcode::PbCrc => 3,
            Opcode::SetPbSegmentExtendedBase => 4,
            Opcode::Other(code) => code,
        }
    }

    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Opcode::Nop => "NOP",
            Opcode::Illegal => "ILLEGAL",
            Opcode::GpCrc => "GP_CRC",
            Opcode::PbCrc => "PB_CRC",
            Opcode::SetPbSegmentExtendedBase => "SET_PB_SEGMENT_EXTENDED_BASE",
            Opcode::Other(_) => return None,
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Entry {
    Segment(Segment),
    Control(Control),
}

/// `dwords` words of pushbuffer at `va`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Segment {
    /// Bits 39:2 of the address: what an entry can carry. The extended base gives the higher bits.
    pub va: u64,
    /// 1 to 2^21 - 1.
    pub dwords: u32,
    pub level: Level,
    /// Fetch only when all earlier segments have been processed.
    pub sync_wait: bool,
    /// Fetch only while this GPU is in the sub-device mask.
    pub conditional: bool,
    /// Bits 1 and 40, which are reserved (40 is PRIV in 0xC36F and 0xC46F), in their places.
    pub reserved: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Control {
    pub opcode: Opcode,
    pub operand: u32,
    pub sync_wait: bool,
    /// Bits 40 and 41, which a control entry does not use, in their places.
    pub reserved: u64,
}

/// The longest segment, in words.
pub const MAX_DWORDS: u32 = (1 << 21) - 1;

/// An entry as stored in a ring, for code that needs a single field. [`Entry::parse`] takes it apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Raw(pub u64);

impl Raw {
    /// Words of the segment; 0 is a control entry.
    #[inline]
    pub const fn words(self) -> usize {
        (self.0 >> 42) as usize & MAX_DWORDS as usize
    }

    /// The same entry for another segment; `None` where its address or length does not fit (without an extended base).
    pub const fn moved_to(self, address: u64, words: usize) -> Option<Raw> {
        if address & !VA != 0 || words == 0 || words > MAX_DWORDS as usize {
            return None;
        }
        Some(Raw(self.0 & !VA & !((MAX_DWORDS as u64) << 42) | address | (words as u64) << 42))
    }

    /// Address of the segment, above the extended base.
    #[inline]
    pub const fn address(self, base: u64) -> u64 {
        base | self.0 & VA
    }

    /// The extended base that a control entry sets, if it sets one.
    #[inline]
    pub const fn extended_base(self) -> Option<u64> {
        match Entry::parse(self.0) {
            Entry::Control(control) => control.extended_base(),
            Entry::Segment(_) => None,
        }
    }
}

const VA: u64 = 0xff_ffff_fffc;
const SEGMENT_RESERVED: u64 = 1 << 40 | 1 << 1;
const CONTROL_RESERVED: u64 = 1 << 40 | 1 << 41;

impl Entry {
    /// A plain segment at LEVEL_MAIN. `None` if the address has bits above 39 or is not word aligned, or the length does not fit.
    pub const fn segment(va: u64, dwords: u32) -> Option<Entry> {
        if va & !VA != 0 || dwords == 0 || dwords > MAX_DWORDS {
            return None;
        }
        let (level, sync_wait, conditional, reserved) = (Level::Main, false, false, 0);
        Some(Entry::Segment(Segment { va, dwords, level, sync_wait, conditional, reserved }))
    }

    /// The control entry that sets bits 56:40 of the following segments' addresses (Hopper and later).
    pub const fn extended_base(va: u64) -> Entry {
        let operand = ((va >> 40 & 0x1_ffff) as u32) << 8;
        Entry::Control(Control { opcode: Opcode::SetPbSegmentExtendedBase, operand, sync_wait: false, reserved: 0 })
    }

    pub const fn parse(raw: u64) -> Entry {
        let dwords = Raw(raw).words() as u32;
        let sync_wait = raw >> 63 != 0;
        if dwords == 0 {
            let opcode = Opcode::parse((raw >> 32) as u8);
            return Entry::Control(Control {
                opcode,
                operand: raw as u32,
                sync_wait,
                reserved: raw & CONTROL_RESERVED,
            });
        }
        Entry::Segment(Segment {
            va: Raw(raw).address(0),
            dwords,
            level: if raw >> 41 & 1 != 0 { Level::Subroutine } else { Level::Main },
            sync_wait,
            conditional: raw & 1 != 0,
            reserved: raw & SEGMENT_RESERVED,
        })
    }

    /// Bits that a field cannot hold are cut off.
    pub const fn encode(&self) -> u64 {
        match self {
            Entry::Segment(s) => {
                (s.va & VA)
                    | (s.conditional as u64)
                    | (s.reserved & SEGMENT_RESERVED)
                    | (matches!(s.level, Level::Subroutine) as u64) << 41
                    | ((s.dwords & MAX_DWORDS) as u64) << 42
                    | (s.sync_wait as u64) << 63
            }
            Entry::Control(c) => {
                c.operand as u64
                    | (c.opcode.encode() as u64) << 32
                    | (c.reserved & CONTROL_RESERVED)
                    | (c.sync_wait as u64) << 63
            }
        }
    }
}

impl Control {
    /// The address bits from 40 up that this entry sets for the segments after it, in their places.
    pub const fn extended_base(&self) -> Option<u64> {
        match self.opcode {
            Opcode::SetPbSegmentExtendedBase => Some((self.operand as u64 >> 8 & 0x1_ffff) << 40),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_entry_as_cuda_writes_it() {
        let raw = 0x2_0080_0000_u64 | 15 << 42 | 1 << 41;
        let Entry::Segment(s) = Entry::parse(raw) else { panic!("a length makes it a segment") };
        assert_eq!((s.va, s.dwords, s.level), (0x2_0080_0000, 15, Level::Subroutine));
        assert!(!s.sync_wait && !s.conditional && s.reserved == 0);
    }

    #[test]
    fn extended_base_round_trips() {
        let entry = Entry::extended_base(0x01ab_cd12_3456_7000);
        let Entry::Control(c) = Entry::parse(entry.encode()) else { panic!("no length: control") };
        assert_eq!(c.opcode, Opcode::SetPbSegmentExtendedBase);
        assert_eq!(c.extended_base(), Some(0x01ab_cd00_0000_0000));
        assert_eq!(entry.encode(), 4 << 32 | 0x1_abcd << 8);
    }

    #[test]
    fn a_segment_that_an_entry_cannot_carry_is_refused() {
        assert!(Entry::segment(1 << 40, 1).is_none());
        assert!(Entry::segment(0x1002, 1).is_none());
        assert!(Entry::segment(0x1000, 0).is_none());
        assert!(Entry::segment(0x1000, 1 << 21).is_none());
        assert!(Entry::segment(0x1000, MAX_DWORDS).is_some());
    }

    proptest! {
        #[test]
        fn encode_is_the_inverse_of_parse(raw: u64) {
            prop_assert_eq!(Entry::parse(raw).encode(), raw);
            let one = Raw(raw);
            match Entry::parse(raw) {
                Entry::Segment(s) => {
                    let base = 0x01ab_cd00_0000_0000;
                    prop_assert_eq!((one.words(), one.address(base)), (s.dwords as usize, base | s.va));
                }
                Entry::Control(c) => prop_assert_eq!((one.words(), one.extended_base()), (0, c.extended_base())),
            }
            let control = raw & !((u64::from(MAX_DWORDS)) << 42);
            prop_assert_eq!(Entry::parse(control).encode(), control);
        }
    }
}

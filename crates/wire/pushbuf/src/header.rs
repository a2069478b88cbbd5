//! Method headers: the words of a pushbuffer that are not data.
//!
//! Layout of a header (GA100 `dev_ram`, NV_FIFO_DMA): SEC_OP 31:29, COUNT or immediate data 28:16, SUBCHANNEL 15:13, ADDRESS 11:0 in words.
//! SEC_OP 0 and 2 are the older forms: TERT_OP 17:16, COUNT 28:18, ADDRESS 12:2 in bytes.
//! `parse` and `encode` are inverse for every 32-bit word: a word with reserved bits set is kept whole as [`Header::Unknown`].

use core::fmt;

/// How the addresses of a method sequence move on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// SEC_OP 1: each word to the next method.
    Inc,
    /// SEC_OP 3: all words to one method.
    NonInc,
    /// SEC_OP 5: the first word to the method, all others to the next.
    OneInc,
    /// SEC_OP 4: one method whose 13-bit value is in the header.
    Immediate,
    /// SEC_OP 0 with TERT_OP 0: as `Inc`, older layout.
    OldInc,
    /// SEC_OP 2 with TERT_OP 0: as `NonInc`, older layout.
    OldNonInc,
}

impl Kind {
    /// The largest count of a header of this kind.
    pub const fn max_count(self) -> u16 {
        match self {
            Kind::Inc | Kind::NonInc | Kind::OneInc => 0x1fff,
            Kind::Immediate => 1,
            Kind::OldInc | Kind::OldNonInc => 0x7ff,
        }
    }

    /// Name of the form, as the class reference has it.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Inc => "INC",
            Kind::NonInc => "NON_INC",
            Kind::OneInc => "ONE_INC",
            Kind::Immediate => "IMMD",
            Kind::OldInc => "GRP0_INC",
            Kind::OldNonInc => "GRP2_NON_INC",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What is done with the sub-device mask (SEC_OP 0, TERT_OP 1 to 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MaskOp {
    Set,
    Store,
    Use,
}

/// One header word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Header {
    /// The all-zero word.
    Nop,
    /// `count` data words follow; a count of 0 has no effect. Never [`Kind::Immediate`].
    Methods {
        kind: Kind,
        subch: u8,
        /// Byte offset of the (first) method.
        address: u16,
        count: u16,
    },
    /// One method with its 13-bit value in the header.
    Immediate { subch: u8, address: u16, value: u16 },
    /// The 12-bit sub-device mask. `Use` ignores the value.
    SubdeviceMask { op: MaskOp, mask: u16 },
    /// Nothing after this word in the segment is executed. The low 29 bits are ignored by the host and kept here.
    EndSegment { ignored: u32 },
    /// A reserved form, or reserved bits: the host refuses it.
    Unknown(u32),
}

const ADDRESS_WORDS: u32 = 0xfff;

impl Header {
    #[inline]
    pub const fn parse(word: u32) -> Header {
        if word == 0 {
            return Header::Nop;
        }
        let kind = match word >> 29 {
            0 | 2 => return Header::parse_old(word),
            1 => Kind::Inc,
            3 => Kind::NonInc,
            4 => Kind::Immediate,
            5 => Kind::OneInc,
            7 => return Header::EndSegment { ignored: word & 0x1fff_ffff },
            _ => return Header::Unknown(word),
        };
        if word & 1 << 12 != 0 {
            return Header::Unknown(word);
        }
        let subch = (word >> 13 & 7) as u8;
        let address = ((word & ADDRESS_WORDS) << 2) as u16;
        let count = (word >> 16 & 0x1fff) as u16;
        match kind {
            Kind::Immediate => Header::Immediate { subch, address, value: count },
            _ => Header::Methods { kind, subch, address, count },
        }
    }

    const fn parse_old(word: u32) -> Header {
        let op = match (word >> 29, word >> 16 & 3) {
            (old, 0) => {
                if word & 3 != 0 {
                    return Header::Unknown(word);
                }
                let kind = if old == 0 { Kind::OldInc } else { Kind::OldNonInc };
                let (subch, address) = ((word >> 13 & 7) as u8, (word & 0x1ffc) as u16);
                return Header::Methods { kind, subch, address, count: (word >> 18 & 0x7ff) as u16 };
            }
            (0, 1) => MaskOp::Set,
            (0, 2) => MaskOp::Store,
            (0, 3) => MaskOp::Use,
            _ => return Header::Unknown(word),
        };
        if word & !0x3_fff0 != 0 {
            return Header::Unknown(word);
        }
        Header::SubdeviceMask { op, mask: (word >> 4 & 0xfff) as u16 }
    }

    /// Bits that a field cannot hold are cut off: `encode` builds the word from what fits.
    pub const fn encode(&self) -> u32 {
        match *self {
            Header::Nop => 0,
            Header::Methods { kind, subch, address, count } => {
                let subch = (subch as u32 & 7) << 13;
                let new = subch | (address as u32 >> 2 & ADDRESS_WORDS) | (count as u32 & 0x1fff) << 16;
                let old = subch | (address as u32 & 0x1ffc) | (count as u32 & 0x7ff) << 18;
                match kind {
                    Kind::Inc => 1 << 29 | new,
                    Kind::NonInc => 3 << 29 | new,
                    Kind::Immediate => 4 << 29 | new,
                    Kind::OneInc => 5 << 29 | new,
                    Kind::OldInc => old,
                    Kind::OldNonInc => 2 << 29 | old,
                }
            }
            Header::Immediate { subch, address, value } => {
                4 << 29
                    | (value as u32 & 0x1fff) << 16
                    | (subch as u32 & 7) << 13
                    | (address as u32 >> 2 & ADDRESS_WORDS)
            }
            Header::SubdeviceMask { op, mask } => {
                let tert = match op {
                    MaskOp::Set => 1,
                    MaskOp::Store => 2,
                    MaskOp::Use => 3,
                };
                tert << 16 | (mask as u32 & 0xfff) << 4
            }
            Header::EndSegment { ignored } => 7 << 29 | ignored & 0x1fff_ffff,
            Header::Unknown(word) => word,
        }
    }
}

/// True if a segment of `length` words writes a method, in a sequence of methods or by an immediate value, with a value for which `is` holds.
pub(crate) fn writes(length: usize, word: impl Fn(usize) -> u32, method: u16, is: impl Fn(u32) -> bool) -> bool {
    let mut i = 0;
    while i < length {
        i += 1;
        match Header::parse(word(i - 1)) {
            Header::Methods { kind: Kind::Inc, address, count, .. } => {
                let at = usize::from(method.wrapping_sub(address) / 4);
                if address <= method && at < usize::from(count) && i + at < length && is(word(i + at)) {
                    return true;
                }
                i += usize::from(count);
            }
            Header::Methods { count, .. } => i += usize::from(count),
            Header::Immediate { address, value, .. } if address == method && is(value.into()) => return true,
            Header::EndSegment { .. } => return false,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn headers_of_the_recorded_copy() {
        let inc = |subch, address, count| Header::Methods { kind: Kind::Inc, subch, address, count };
        assert_eq!(Header::parse(0x2004_8100), inc(4, 0x400, 4));
        assert_eq!(Header::parse(0x2001_8106), inc(4, 0x418, 1));
        assert_eq!(Header::parse(0x2005_0017), inc(0, 0x5c, 5));
    }

    #[test]
    fn every_form() {
        let methods = |kind, subch, address, count| Header::Methods { kind, subch, address, count };
        for (word, header) in [
            (0, Header::Nop),
            (0x6004_206d, methods(Kind::NonInc, 1, 0x1b4, 4)),
            (0xa002_206d, methods(Kind::OneInc, 1, 0x1b4, 2)),
            (0x8041_206c, Header::Immediate { subch: 1, address: 0x1b0, value: 0x41 }),
            (0x000c_8304, methods(Kind::OldInc, 4, 0x304, 3)),
            (0x4008_2104, methods(Kind::OldNonInc, 1, 0x104, 2)),
            (0x0001_1230, Header::SubdeviceMask { op: MaskOp::Set, mask: 0x123 }),
            (0x0002_fff0, Header::SubdeviceMask { op: MaskOp::Store, mask: 0xfff }),
            (0x0003_0000, Header::SubdeviceMask { op: MaskOp::Use, mask: 0 }),
            (0xe000_0000, Header::EndSegment { ignored: 0 }),
            (0xc000_0000, Header::Unknown(0xc000_0000)),
            (0x2001_1000, Header::Unknown(0x2001_1000)),
            (0x4001_0000, Header::Unknown(0x4001_0000)),
        ] {
            assert_eq!(Header::parse(word), header, "{word:#010x}");
            assert_eq!(header.encode(), word, "{word:#010x}");
        }
    }

    proptest! {
        #[test]
        fn encode_is_the_inverse_of_parse(word: u32) {
            prop_assert_eq!(Header::parse(word).encode(), word);
        }

        #[test]
        fn parse_is_the_inverse_of_encode(which in 0usize..5, subch in 0u8..8, address in 0u16..4096, count in 0u16..0x2000) {
            let (address, old_address, old_count) = (address * 4, (address * 4) & 0x1ffc, count & 0x7ff);
            let header = match which {
                0 => Header::Methods { kind: Kind::Inc, subch, address, count },
                1 => Header::Methods { kind: Kind::NonInc, subch, address, count },
                2 => Header::Methods { kind: Kind::OneInc, subch, address, count },
                3 => Header::Immediate { subch, address, value: count },
                _ => Header::Methods { kind: Kind::OldNonInc, subch, address: old_address, count: old_count },
            };
            prop_assert_eq!(Header::parse(header.encode()), header);
        }
    }
}

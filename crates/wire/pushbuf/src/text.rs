//! One line for each method, field by field with the names of values.
//!
//! Values without a name are printed as numbers: `HOPPER_DMA_COPY_A(0xc8b5)+0x0ABC = 0x...`. The values here only implement `Display`; they
//! allocate nothing.

use core::fmt::{self, Display, Formatter};

use crate::class::{Class, MethodRef};
use crate::decode::{Item, Run, Target, Write};
use crate::gpfifo::{Entry, Level};
use crate::header::MaskOp;
use crate::qmd::{Qmd, Value};

/// The class of a target by name and number.
#[derive(Debug, Clone, Copy)]
pub struct ClassName(pub Target);

impl Display for ClassName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Target { subch, class_id, class } = self.0;
        match class {
            Some(Class { name, .. }) => write!(f, "{name}({class_id:#06x})"),
            None if class_id != 0 => write!(f, "class {class_id:#06x}"),
            None => write!(f, "subchannel {subch}"),
        }
    }
}

/// A method's name with its index, or class and offset where it has none.
#[derive(Debug, Clone, Copy)]
pub struct MethodName(pub Target, pub u16);

impl Display for MethodName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0.method(self.1) {
            Some(MethodRef { method, index: Some(i) }) => write!(f, "{}({i})", method.name),
            Some(MethodRef { method, index: None }) => f.write_str(method.name),
            None => write!(f, "{}+0x{:04X}", ClassName(self.0), self.1),
        }
    }
}

/// A method write: `LAUNCH_DMA DATA_TRANSFER_TYPE=NON_PIPELINED FLUSH_ENABLE=FALSE ...`.
impl Display for Write {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let name = MethodName(self.target, self.address);
        let Some(MethodRef { method, .. }) = self.target.method(self.address) else {
            return write!(f, "{name} = {:#x}", self.value);
        };
        write!(f, "{name}")?;
        let mut named = 0;
        for field in method.fields {
            let value = field.extract(self.value);
            named |= field.insert(0, u32::MAX);
            match field.enum_name(value) {
                Some(text) => write!(f, " {}={text}", field.name)?,
                None => write!(f, " {}={value:#x}", field.name)?,
            }
        }
        // Bits of no field are shown, not hidden.
        match self.value & !named {
            0 if !method.fields.is_empty() => Ok(()),
            _ if named == 0 => write!(f, " = {:#x}", self.value),
            rest => write!(f, " +{rest:#x}"),
        }
    }
}

/// A run: the method and the number of words; their values are data.
impl Display for Run<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let words = self.words.len();
        write!(
            f,
            "{} x {words} {}:",
            MethodName(self.target, self.address),
            if words == 1 { "word" } else { "words" }
        )?;
        for word in self.words.iter().take(8) {
            write!(f, " {word:08x}")?;
        }
        if words > 8 { f.write_str(" ...") } else { Ok(()) }
    }
}

impl Display for Item<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Item::Write(write) => write.fmt(f),
            Item::Run(run) => run.fmt(f),
            Item::Nop { word: 0, .. } => f.write_str("no operation"),
            Item::Nop { word, .. } => write!(f, "no operation: header {word:#010x} counts 0 words"),
            Item::SubdeviceMask { op, mask, .. } => {
                let op = match op {
                    MaskOp::Set => "SET",
                    MaskOp::Store => "STORE",
                    MaskOp::Use => "USE",
                };
                write!(f, "{op}_SUBDEVICE_MASK {mask:#x}")
            }
            Item::EndSegment { .. } => f.write_str("END_PB_SEGMENT"),
            Item::Skipped { words, .. } => write!(f, "{} words after END_PB_SEGMENT, not executed", words.len()),
            Item::Unknown { word, .. } => write!(f, "no method header: {word:#010x}"),
        }
    }
}

/// A GPFIFO entry.
impl Display for Entry {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (sync_wait, reserved) = match self {
            Entry::Segment(s) => {
                let level = match s.level {
                    Level::Main => "MAIN",
                    Level::Subroutine => "SUBROUTINE",
                };
                write!(f, "segment {:#x} of {} words LEVEL={level}", s.va, s.dwords)?;
                if s.conditional {
                    f.write_str(" FETCH=CONDITIONAL")?;
                }
                (s.sync_wait, s.reserved)
            }
            Entry::Control(c) => {
                match c.opcode.name() {
                    Some(name) => write!(f, "{name} OPERAND={:#x}", c.operand)?,
                    None => write!(f, "control opcode {:#x} OPERAND={:#x}", c.opcode.encode(), c.operand)?,
                }
                (c.sync_wait, c.reserved)
            }
        };
        if sync_wait {
            f.write_str(" SYNC=WAIT")?;
        }
        if reserved != 0 { write!(f, " +{reserved:#x}") } else { Ok(()) }
    }
}

impl Display for Value {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.field.name)?;
        if let Some(i) = self.index {
            write!(f, "({i})")?;
        }
        match self.name {
            Some(name) => write!(f, "={name}"),
            None => write!(f, "={:#x}", self.value),
        }
    }
}

/// The fields of a QMD that are not 0, on one line.
impl Display for Qmd {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.layout().name)?;
        self.fields().filter(|v| v.value != 0).try_for_each(|v| write!(f, " {v}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::Decoder;

    fn lines(decoder: &mut Decoder, words: &[u32]) -> Vec<String> {
        let mut out = Vec::new();
        decoder.segment(words, |item| out.push(item.to_string()));
        out
    }

    /// 15 words, seen on an H100 with CUDA 13.0.
    #[test]
    fn a_64_mib_copy() {
        let words = crate::encode::tests::COPY;
        let mut d = Decoder::new(0xc86f);
        d.bind(4, 0xc8b5);
        let expected = "\
OFFSET_IN_UPPER UPPER=0x2
OFFSET_IN_LOWER VALUE=0x4400000
OFFSET_OUT_UPPER UPPER=0x7fff
OFFSET_OUT_LOWER VALUE=0x20000000
LINE_LENGTH_IN VALUE=0x4000000
LAUNCH_DMA DATA_TRANSFER_TYPE=NON_PIPELINED FLUSH_ENABLE=FALSE FLUSH_TYPE=SYS SEMAPHORE_TYPE=NONE INTERRUPT_TYPE=NONE SRC_MEMORY_LAYOUT=PITCH \
DST_MEMORY_LAYOUT=PITCH MULTI_LINE_ENABLE=FALSE REMAP_ENABLE=FALSE FORCE_RMWDISABLE=FALSE SRC_TYPE=VIRTUAL DST_TYPE=VIRTUAL \
SEMAPHORE_REDUCTION=IMIN SEMAPHORE_REDUCTION_SIGN=SIGNED SEMAPHORE_REDUCTION_ENABLE=FALSE COPY_TYPE=PROT2PROT VPRMODE=VPR_NONE \
MEMORY_SCRUB_ENABLE=FALSE RESERVED_START_OF_COPY=0x0 DISABLE_PLC=FALSE SEMAPHORE_PAYLOAD_SIZE=ONE_WORD RESERVED_ERR_CODE=0x0
SET_SEMAPHORE_A UPPER=0x2
SET_SEMAPHORE_B LOWER=0x600010
SET_SEMAPHORE_PAYLOAD PAYLOAD=0x17
LAUNCH_DMA DATA_TRANSFER_TYPE=NONE FLUSH_ENABLE=TRUE FLUSH_TYPE=SYS SEMAPHORE_TYPE=RELEASE_SEMAPHORE_WITH_TIMESTAMP INTERRUPT_TYPE=NONE \
SRC_MEMORY_LAYOUT=BLOCKLINEAR DST_MEMORY_LAYOUT=BLOCKLINEAR MULTI_LINE_ENABLE=FALSE REMAP_ENABLE=FALSE FORCE_RMWDISABLE=FALSE SRC_TYPE=VIRTUAL \
DST_TYPE=VIRTUAL SEMAPHORE_REDUCTION=IMIN SEMAPHORE_REDUCTION_SIGN=SIGNED SEMAPHORE_REDUCTION_ENABLE=FALSE COPY_TYPE=PROT2PROT \
VPRMODE=VPR_NONE MEMORY_SCRUB_ENABLE=FALSE RESERVED_START_OF_COPY=0x0 DISABLE_PLC=FALSE SEMAPHORE_PAYLOAD_SIZE=ONE_WORD RESERVED_ERR_CODE=0x0";
        assert_eq!(lines(&mut d, &words).join("\n"), expected);
    }

    #[test]
    fn values_without_a_name_are_printed_raw() {
        let mut d = Decoder::new(0xc86f);
        d.bind(4, 0xc8b5);
        d.bind(3, 0xc8c0);
        let words = [0x2001_82af, 0xdead, 0x2001_62af, 0xbeef, 0x2001_22af, 1, 0x2001_0030, 5, 0x2001_00ff, 6];
        assert_eq!(
            lines(&mut d, &words),
            [
                "HOPPER_DMA_COPY_A(0xc8b5)+0x0ABC = 0xdead",
                "class 0xc8c0+0x0ABC = 0xbeef",
                "subchannel 1+0x0ABC = 0x1",
                "HOPPER_CHANNEL_GPFIFO_A(0xc86f)+0x00C0 = 0x5",
                "subchannel 0+0x03FC = 0x6"
            ]
        );
    }

    #[test]
    fn bits_of_no_field_are_shown() {
        let mut d = Decoder::new(0xc86f);
        d.bind(4, 0xc8b5);
        // OFFSET_IN_UPPER has 25 bits.
        assert_eq!(lines(&mut d, &[0x2001_8100, 0x8000_0001]), ["OFFSET_IN_UPPER UPPER=0x1 +0x80000000"]);
    }

    #[test]
    fn headers_without_data_have_their_line() {
        let words = [0, 0x2000_8100, 0x0001_0010, 0xc000_0001, 0xe000_0000, 1, 2];
        assert_eq!(
            lines(&mut Decoder::new(0xc86f), &words),
            [
                "no operation",
                "no operation: header 0x20008100 counts 0 words",
                "SET_SUBDEVICE_MASK 0x1",
                "no method header: 0xc0000001",
                "END_PB_SEGMENT",
                "2 words after END_PB_SEGMENT, not executed"
            ]
        );
    }

    #[test]
    fn entries_and_qmds_have_their_line() {
        let raw = 0x2_0080_0000_u64 | 15 << 42 | 1 << 63;
        assert_eq!(Entry::parse(raw).to_string(), "segment 0x200800000 of 15 words LEVEL=MAIN SYNC=WAIT");
        assert_eq!(Entry::extended_base(0x7f00_0000_0000).to_string(), "SET_PB_SEGMENT_EXTENDED_BASE OPERAND=0x7f00");
        let mut qmd = Qmd::new(crate::qmd::Layout::of(4, 0).unwrap());
        qmd.set("QMD_TYPE", 2).unwrap();
        qmd.set_element("RELEASE_ENABLE", 1, 1).unwrap();
        assert_eq!(qmd.to_string(), "QMDV04_00 QMD_TYPE=GRID_CTA RELEASE_ENABLE(1)=TRUE QMD_MAJOR_VERSION=0x4");
    }
}

//! From values to words: [`Words`] writes methods into a slice of the caller.
//!
//! Nothing is allocated. A write that does not fit leaves the slice unchanged and returns an error. [`crate::decode`] reads the words back.

use crate::header::{Header, Kind};
use crate::qmd::PcasAction;
use crate::semaphore::{Execute, method};

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("the pushbuffer is full: {needed} words are needed and {left} left")]
    Full { needed: usize, left: usize },
    #[error("{count} words do not fit in one {kind} header, which counts to {}", kind.max_count())]
    TooMany { kind: Kind, count: usize },
    #[error("subchannel {0} does not exist: there are 8")]
    NoSubchannel(u8),
    #[error("method {0:#x} is no multiple of 4 below 0x4000 (0x2000 in the old headers)")]
    NoMethod(u16),
    #[error("{0:#x} does not fit in the 13 bits of an immediate")]
    NotImmediate(u32),
    #[error("inline data of {bytes} bytes for {dst:#x}: it takes 1 to {max} bytes")]
    NoInline { dst: u64, bytes: usize, max: usize },
}

/// Maximum number of bytes of inline data for one NON_INC header.
pub const MAX_INLINE: usize = 0x1fff * 4;

/// INVALIDATE_SHADER_CACHES_NO_WFI (+0x1698 of the compute classes): CONSTANT alone, as CUDA sends it after new constant banks.
pub const CONSTANT_CACHES: u32 = 1 << 12;

/// Subchannels of a graphics channel. A copy engine takes its methods on any.
pub mod subchannel {
    pub const HOST: u8 = 0;
    pub const COMPUTE: u8 = 1;
    pub const COPY: u8 = 4;
}

/// How many words [`Words`] writes, and the positions of words that may be rewritten later.
pub mod layout {
    /// [`Words::copy`](super::Words::copy): the upper half of the source's address, that of the destination's. The lower halves follow.
    pub const COPY: usize = 9;
    pub const COPY_SOURCE: usize = 1;
    pub const COPY_DESTINATION: usize = 3;
    /// [`Words::host_semaphore`](super::Words::host_semaphore), [`Words::host_release`](super::Words::host_release) and
    /// [`Words::copy_release`](super::Words::copy_release).
    pub const SEMAPHORE: usize = 6;
    /// The payload of these, of [`Words::copy_semaphore`](super::Words::copy_semaphore) and of
    /// [`Words::report_release`](super::Words::report_release).
    pub const PAYLOAD: usize = 3;
    /// [`Words::inline`](super::Words::inline) before its data: the upper half of the address. Each further header of
    /// [`Words::inline_long`](super::Words::inline_long) is one word more.
    pub const INLINE: usize = 9;
    pub const INLINE_DESTINATION: usize = 1;
}

/// Byte offsets of the methods that are written here. The copy classes 0xC3B5 to 0xCAB5 agree on them, and so do the compute classes and 0xA140.
pub mod offset {
    pub const SET_OBJECT: u16 = 0x0;
    pub const COPY_SET_SEMAPHORE_A: u16 = 0x240;
    pub const COPY_LAUNCH_DMA: u16 = 0x300;
    pub const COPY_OFFSET_IN_UPPER: u16 = 0x400;
    pub const COPY_PITCH_IN: u16 = 0x410;
    pub const COPY_LINE_LENGTH_IN: u16 = 0x418;
    pub const COPY_SET_REMAP_CONST_A: u16 = 0x700;
    pub const COPY_SET_REMAP_COMPONENTS: u16 = 0x708;
    pub const INLINE_LINE_LENGTH_IN: u16 = 0x180;
    pub const INLINE_OFFSET_OUT_UPPER: u16 = 0x188;
    pub const INLINE_LAUNCH_DMA: u16 = 0x1b0;
    pub const INLINE_LOAD_DATA: u16 = 0x1b4;
    pub const REPORT_SEMAPHORE_PAYLOAD_LOWER: u16 = 0x158;
    pub const REPORT_SEMAPHORE_A: u16 = 0x1b00;
    pub const SEND_PCAS_A: u16 = 0x2b4;
    pub const SEND_SIGNALING_PCAS2_B: u16 = 0x2c0;
    pub const INVALIDATE_SHADER_CACHES_NO_WFI: u16 = 0x1698;
    /// Method of macro 0; the next word's address is CALL_MME_DATA(0).
    pub const CALL_MME_MACRO: u16 = 0x3800;
}

/// Words of LAUNCH_DMA of the copy classes, +0x300, for pitch layout and virtual addresses.
pub mod launch_dma {
    /// DATA_TRANSFER_TYPE=PIPELINED: may overlap the copies before it.
    pub const PIPELINED: u32 = 1;
    /// DATA_TRANSFER_TYPE=NON_PIPELINED: waits for the copies before it.
    pub const NON_PIPELINED: u32 = 2;
    pub const FLUSH: u32 = 1 << 2;
    /// SEMAPHORE_TYPE=RELEASE_ONE_WORD_SEMAPHORE.
    pub const RELEASE: u32 = 1 << 3;
    /// SEMAPHORE_TYPE=RELEASE_FOUR_WORD_SEMAPHORE: with a timestamp.
    pub const RELEASE_TIMED: u32 = 2 << 3;
    /// SRC_MEMORY_LAYOUT and DST_MEMORY_LAYOUT = PITCH.
    pub const PITCH: u32 = 1 << 7 | 1 << 8;
    pub const MULTI_LINE: u32 = 1 << 9;
    pub const REMAP: u32 = 1 << 10;
    /// FLUSH_TYPE=GL: observers that access memory through this GPU see the flushed data; without it, all observers do.
    pub const FLUSH_LOCAL: u32 = 1 << 25;
}

/// Words of LAUNCH_DMA of the compute and inline-to-memory classes, +0x1B0.
pub mod inline_dma {
    /// DST_MEMORY_LAYOUT=PITCH.
    pub const PITCH: u32 = 1;
    /// COMPLETION_TYPE=FLUSH_ONLY.
    pub const FLUSH: u32 = 1 << 4;
    /// COMPLETION_TYPE=RELEASE_SEMAPHORE, which SET_I2M_SEMAPHORE_A to C name; four words.
    pub const RELEASE_TIMED: u32 = 2 << 4;
    /// SYSMEMBAR_DISABLE=TRUE.
    pub const NO_SYSMEMBAR: u32 = 1 << 6;
    /// SEMAPHORE_STRUCT_SIZE=ONE_WORD.
    pub const ONE_WORD: u32 = 1 << 12;
}

/// A writer of pushbuffer words.
#[derive(Debug)]
pub struct Words<'a> {
    buffer: &'a mut [u32],
    len: usize,
}

const fn hi(address: u64) -> u32 {
    (address >> 32) as u32
}

const fn lo(address: u64) -> u32 {
    address as u32
}

impl<'a> Words<'a> {
    pub fn new(buffer: &'a mut [u32]) -> Words<'a> {
        Words { buffer, len: 0 }
    }

    /// Words written so far.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Words that still fit.
    pub fn left(&self) -> usize {
        self.buffer.len() - self.len
    }

    pub fn as_slice(&self) -> &[u32] {
        &self.buffer[..self.len]
    }

    /// Discards all words.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Takes back everything after the first `len` words.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Words as they are.
    pub fn raw(&mut self, words: &[u32]) -> Result<(), Error> {
        let full = Error::Full { needed: words.len(), left: self.left() };
        let end = self.len.checked_add(words.len()).ok_or(full)?;
        self.buffer.get_mut(self.len..end).ok_or(full)?.copy_from_slice(words);
        self.len = end;
        Ok(())
    }

    /// Any header that is followed by `values`.
    pub fn methods(&mut self, kind: Kind, subch: u8, address: u16, values: &[u32]) -> Result<(), Error> {
        let count = values.len();
        check(kind, subch, address, count)?;
        self.room(1 + count)?;
        self.raw(&[Header::Methods { kind, subch, address, count: count as u16 }.encode()])?;
        self.raw(values)
    }

    /// Each value to the next method.
    pub fn inc(&mut self, subch: u8, address: u16, values: &[u32]) -> Result<(), Error> {
        self.methods(Kind::Inc, subch, address, values)
    }

    /// All values to one method.
    pub fn non_inc(&mut self, subch: u8, address: u16, values: &[u32]) -> Result<(), Error> {
        self.methods(Kind::NonInc, subch, address, values)
    }

    /// The first value to the method, all others to the next.
    pub fn one_inc(&mut self, subch: u8, address: u16, values: &[u32]) -> Result<(), Error> {
        self.methods(Kind::OneInc, subch, address, values)
    }

    /// A value of 13 bits within the header.
    pub fn imm(&mut self, subch: u8, address: u16, value: u32) -> Result<(), Error> {
        check(Kind::Immediate, subch, address, 1)?;
        let value = u16::try_from(value).ok().filter(|v| *v < 0x2000).ok_or(Error::NotImmediate(value))?;
        self.raw(&[Header::Immediate { subch, address, value }.encode()])
    }

    pub fn nop(&mut self) -> Result<(), Error> {
        self.raw(&[Header::Nop.encode()])
    }

    pub fn end_segment(&mut self) -> Result<(), Error> {
        self.raw(&[Header::EndSegment { ignored: 0 }.encode()])
    }

    /// SET_OBJECT. Only for a class of which the channel has an object.
    pub fn set_object(&mut self, subch: u8, class: u32) -> Result<(), Error> {
        self.inc(subch, offset::SET_OBJECT, &[class])
    }

    /// Copies one line of `bytes` bytes by the copy engine. `launch`: a word of [`launch_dma`], such as `NON_PIPELINED | PITCH` (0x182).
    pub fn copy(&mut self, subch: u8, src: u64, dst: u64, bytes: u32, launch: u32) -> Result<(), Error> {
        self.whole(|w| {
            w.inc(subch, offset::COPY_OFFSET_IN_UPPER, &[hi(src), lo(src), hi(dst), lo(dst)])?;
            w.inc(subch, offset::COPY_LINE_LENGTH_IN, &[bytes])?;
            w.inc(subch, offset::COPY_LAUNCH_DMA, &[launch])
        })
    }

    /// Copies `lines` lines of `bytes` bytes, `src_pitch` and `dst_pitch` bytes apart. MULTI_LINE is added to `launch`.
    pub fn copy_lines(&mut self, subch: u8, copy: Lines, launch: u32) -> Result<(), Error> {
        let Lines { src, dst, src_pitch, dst_pitch, bytes, lines } = copy;
        self.whole(|w| {
            let methods = [hi(src), lo(src), hi(dst), lo(dst), src_pitch, dst_pitch, bytes, lines];
            w.inc(subch, offset::COPY_OFFSET_IN_UPPER, &methods)?;
            w.inc(subch, offset::COPY_LAUNCH_DMA, &[launch | launch_dma::MULTI_LINE])
        })
    }

    /// Fills `elements` words of 32 bits at `dst` with `value`: a remapped copy whose only component is CONST_A. REMAP is added to `launch`.
    pub fn fill(&mut self, subch: u8, dst: u64, value: u32, elements: u32, launch: u32) -> Result<(), Error> {
        // SET_REMAP_COMPONENTS: DST_X=CONST_A, DST_Y, DST_Z, DST_W=NO_WRITE, COMPONENT_SIZE=FOUR, one component.
        let components = 4 | 6 << 4 | 6 << 8 | 6 << 12 | 3 << 16;
        self.whole(|w| {
            w.inc(subch, offset::COPY_SET_REMAP_CONST_A, &[value])?;
            w.inc(subch, offset::COPY_SET_REMAP_COMPONENTS, &[components])?;
            w.inc(subch, offset::COPY_OFFSET_IN_UPPER + 8, &[hi(dst), lo(dst)])?;
            w.inc(subch, offset::COPY_LINE_LENGTH_IN, &[elements])?;
            w.inc(subch, offset::COPY_LAUNCH_DMA, &[launch | launch_dma::REMAP])
        })
    }

    /// Where the copy engine's next LAUNCH_DMA with a semaphore type releases, and what.
    pub fn copy_semaphore(&mut self, subch: u8, address: u64, payload: u32) -> Result<(), Error> {
        self.inc(subch, offset::COPY_SET_SEMAPHORE_A, &[hi(address), lo(address), payload])
    }

    /// A release by the copy engine without a copy, with a flush: LAUNCH_DMA 0x14 with the time, 0xC without.
    pub fn copy_release(&mut self, subch: u8, address: u64, payload: u32, timed: bool) -> Result<(), Error> {
        let kind = if timed { launch_dma::RELEASE_TIMED } else { launch_dma::RELEASE };
        self.whole(|w| {
            w.copy_semaphore(subch, address, payload)?;
            w.inc(subch, offset::COPY_LAUNCH_DMA, &[launch_dma::FLUSH | kind])
        })
    }

    /// A release by the compute class when its earlier work is done, with a flush and the time: SET_REPORT_SEMAPHORE_A to D, as libcuda writes it
    /// (D 0: RELEASE, FOUR_WORDS).
    pub fn report_release(&mut self, subch: u8, address: u64, payload: u32) -> Result<(), Error> {
        self.inc(subch, offset::REPORT_SEMAPHORE_A, &[hi(address), lo(address), payload, 0])
    }

    /// Writes `data` to `dst` through the command stream (compute or inline-to-memory class). `launch`: a word of [`inline_dma`].
    /// At most [`MAX_INLINE`] bytes; the last word is padded with zeros, which are not written to memory.
    pub fn inline(&mut self, subch: u8, dst: u64, data: &[u8], launch: u32) -> Result<(), Error> {
        if data.is_empty() || data.len() > MAX_INLINE {
            return Err(Error::NoInline { dst, bytes: data.len(), max: MAX_INLINE });
        }
        self.inline_long(subch, dst, data, launch)
    }

    /// As [`Words::inline`], of any length that the buffer holds: one LAUNCH_DMA, then as many data headers as are needed.
    pub fn inline_long(&mut self, subch: u8, dst: u64, data: &[u8], launch: u32) -> Result<(), Error> {
        let length = u32::try_from(data.len()).ok().filter(|&length| length > 0);
        let length = length.ok_or(Error::NoInline { dst, bytes: data.len(), max: u32::MAX as usize })?;
        self.whole(|w| {
            w.inc(subch, offset::INLINE_OFFSET_OUT_UPPER, &[hi(dst), lo(dst)])?;
            w.inc(subch, offset::INLINE_LINE_LENGTH_IN, &[length, 1])?;
            w.inc(subch, offset::INLINE_LAUNCH_DMA, &[launch])?;
            for block in data.chunks(MAX_INLINE) {
                let count = block.len().div_ceil(4);
                check(Kind::NonInc, subch, offset::INLINE_LOAD_DATA, count)?;
                w.room(1 + count)?;
                let (kind, address) = (Kind::NonInc, offset::INLINE_LOAD_DATA);
                w.raw(&[Header::Methods { kind, subch, address, count: count as u16 }.encode()])?;
                for (slot, chunk) in w.buffer.iter_mut().skip(w.len).zip(block.chunks(4)) {
                    let mut bytes = [0; 4];
                    bytes.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
                    *slot = u32::from_le_bytes(bytes);
                }
                w.len += count;
            }
            Ok(())
        })
    }

    /// A semaphore operation of the host: SEM_ADDR_LO to SEM_EXECUTE.
    pub fn host_semaphore(&mut self, subch: u8, address: u64, payload: u64, execute: Execute) -> Result<(), Error> {
        let methods = [lo(address), hi(address), lo(payload), hi(payload), execute.encode()];
        self.inc(subch, method::SEM_ADDR_LO, &methods)
    }

    /// A release by the host: 32-bit payload and the time, after the engine is idle if `wfi`.
    pub fn host_release(&mut self, subch: u8, address: u64, payload: u32, wfi: bool) -> Result<(), Error> {
        let execute = Execute { wfi, timestamp: true, ..Execute::RELEASE };
        self.host_semaphore(subch, address, u64::from(payload), execute)
    }

    /// Launches the QMD at `qmd`, which is a multiple of 256: SEND_PCAS_A and SEND_SIGNALING_PCAS2_B (compute classes from 0xC6C0 on) with
    /// PCAS_ACTION=INVALIDATE_COPY_SCHEDULE.
    pub fn launch(&mut self, subch: u8, qmd: u64) -> Result<(), Error> {
        self.pcas(subch, qmd, PcasAction::InvalidateCopySchedule)
    }

    /// Applies a PCAS action to the QMD at `qmd`, which is a multiple of 256 below 2^40.
    pub fn pcas(&mut self, subch: u8, qmd: u64, action: PcasAction) -> Result<(), Error> {
        self.whole(|w| {
            w.inc(subch, offset::SEND_PCAS_A, &[(qmd >> 8) as u32])?;
            w.imm(subch, offset::SEND_SIGNALING_PCAS2_B, action.code().into())
        })
    }

    /// Takes everything back if one part does not fit.
    fn whole(&mut self, write: impl FnOnce(&mut Self) -> Result<(), Error>) -> Result<(), Error> {
        let start = self.len;
        let result = write(self);
        if result.is_err() {
            self.len = start;
        }
        result
    }

    fn room(&self, needed: usize) -> Result<(), Error> {
        let left = self.left();
        if needed > left { Err(Error::Full { needed, left }) } else { Ok(()) }
    }
}

/// Lines in pitch layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lines {
    pub src: u64,
    pub dst: u64,
    pub src_pitch: u32,
    pub dst_pitch: u32,
    /// Of one line.
    pub bytes: u32,
    pub lines: u32,
}

fn check(kind: Kind, subch: u8, address: u16, count: usize) -> Result<(), Error> {
    let limit = match kind {
        Kind::OldInc | Kind::OldNonInc => 0x2000,
        Kind::Inc | Kind::NonInc | Kind::OneInc | Kind::Immediate => 0x4000,
    };
    if subch > 7 {
        Err(Error::NoSubchannel(subch))
    } else if address >= limit || !address.is_multiple_of(4) {
        Err(Error::NoMethod(address))
    } else if count > usize::from(kind.max_count()) {
        Err(Error::TooMany { kind, count })
    } else {
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::decode::{Decoder, Item};
    use proptest::prelude::*;

    /// The 64 MiB copy to the GPU as the CUDA driver writes it.
    pub(crate) const COPY: [u32; 15] = [
        0x2004_8100,
        0x2,
        0x0440_0000,
        0x7fff,
        0x2000_0000,
        0x2001_8106,
        0x0400_0000,
        0x2001_80c0,
        0x182,
        0x2003_8090,
        0x2,
        0x60_0010,
        0x17,
        0x2001_80c0,
        0x14,
    ];

    #[test]
    fn a_copy_is_encoded_like_the_drivers() {
        let mut buffer = [0; 15];
        let mut w = Words::new(&mut buffer);
        let (src, dst) = (0x2_0440_0000, 0x7fff_2000_0000);
        w.copy(4, src, dst, 64 << 20, launch_dma::NON_PIPELINED | launch_dma::PITCH).unwrap();
        w.copy_release(4, 0x2_0060_0010, 0x17, true).unwrap();
        assert_eq!(w.as_slice(), COPY);
        assert_eq!(w.nop(), Err(Error::Full { needed: 1, left: 0 }));
    }

    #[test]
    fn words_are_at_the_offsets_of_the_layout() {
        const NUMBER: u32 = 0xd00b_e11a;
        let [source, destination] = [0xaaaa_1111_1000, 0xbbbb_2222_2000];
        let written = |write: fn(&mut Words<'_>, [u64; 2]) -> Result<(), Error>| {
            let mut buffer = [0; 16];
            let mut w = Words::new(&mut buffer);
            write(&mut w, [source, destination]).unwrap();
            w.as_slice().to_vec()
        };
        let address = |words: &[u32], at: usize| u64::from(words[at]) << 32 | u64::from(words[at + 1]);
        let copy = written(|w, [from, to]| w.copy(4, from, to, 64, 0x182));
        assert_eq!(copy.len(), layout::COPY);
        assert_eq!(address(&copy, layout::COPY_SOURCE), source);
        assert_eq!(address(&copy, layout::COPY_DESTINATION), destination);
        let data = written(|w, [_, to]| w.inline(1, to, &NUMBER.to_le_bytes(), 0x41));
        assert_eq!((data.len(), data[layout::INLINE]), (layout::INLINE + 1, NUMBER));
        assert_eq!(address(&data, layout::INLINE_DESTINATION), destination);
        let host = written(|w, [_, to]| w.host_release(0, to, NUMBER, false));
        let release = written(|w, [_, to]| w.copy_release(4, to, NUMBER, false));
        let semaphore = written(|w, [_, to]| w.copy_semaphore(4, to, NUMBER));
        let report = written(|w, [_, to]| w.report_release(1, to, NUMBER));
        assert_eq!([host.len(), release.len()], [layout::SEMAPHORE; 2]);
        for words in [host, release, semaphore, report] {
            assert_eq!(words[layout::PAYLOAD], NUMBER);
        }
    }

    #[test]
    fn a_write_that_does_not_fit_leaves_no_words() {
        for len in 0..15 {
            let mut buffer = [0; 15];
            let mut w = Words::new(&mut buffer[..len]);
            let copied = w.copy(4, 1, 2, 3, 0x182);
            assert_eq!(copied.is_ok(), len >= 9, "{len}");
            assert_eq!(w.len(), if len >= 9 { 9 } else { 0 });
            let mut w = Words::new(&mut buffer[..len]);
            assert_eq!(w.inline(1, 0x1000, &[1, 2, 3, 4, 5], 0x41).is_ok(), len >= 11);
            assert_eq!(w.len(), if len >= 11 { 11 } else { 0 });
        }
    }

    #[test]
    fn values_that_do_not_fit_a_header_are_refused() {
        let mut buffer = [0; 16];
        let mut w = Words::new(&mut buffer);
        assert_eq!(w.inc(8, 0x100, &[1]), Err(Error::NoSubchannel(8)));
        assert_eq!(w.inc(0, 0x102, &[1]), Err(Error::NoMethod(0x102)));
        assert_eq!(w.inc(0, 0x4000, &[1]), Err(Error::NoMethod(0x4000)));
        assert_eq!(w.imm(0, 0x100, 0x2000), Err(Error::NotImmediate(0x2000)));
        assert!(matches!(w.non_inc(0, 0x100, &[0; 0x2000]), Err(Error::TooMany { .. })));
        assert!(matches!(w.inline(1, 0, &[0; MAX_INLINE + 1], 0x41), Err(Error::NoInline { .. })));
        assert!(w.is_empty());
    }

    #[test]
    fn host_release_is_the_five_methods_from_0x5c() {
        let mut buffer = [0; 6];
        let mut w = Words::new(&mut buffer);
        w.host_release(0, 0x2_0060_0010, 9, true).unwrap();
        assert_eq!(w.as_slice(), [0x2005_0017, 0x60_0010, 2, 9, 0, 0x0210_0001]);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Methods(Kind, u8, u16, Vec<u32>),
        Imm(u8, u16, u32),
        Nop,
    }

    fn step() -> impl Strategy<Value = Step> {
        let kind = prop_oneof![
            Just(Kind::Inc),
            Just(Kind::NonInc),
            Just(Kind::OneInc),
            Just(Kind::OldInc),
            Just(Kind::OldNonInc)
        ];
        prop_oneof![
            8 => (kind, 0u8..8, 1u16..0x700, prop::collection::vec(any::<u32>(), 1..40))
                .prop_map(|(k, s, a, v)| Step::Methods(k, s, a * 4, v)),
            2 => (0u8..8, 1u16..0x1000, 0u32..0x2000).prop_map(|(s, a, v)| Step::Imm(s, a * 4, v)),
            1 => Just(Step::Nop),
        ]
    }

    proptest! {
        /// decode(encode(x)) = x, however the words are cut into segments.
        #[test]
        fn decode_is_the_inverse_of_encode(steps in prop::collection::vec(step(), 0..20), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4)) {
            let mut buffer = vec![0; 2048];
            let mut w = Words::new(&mut buffer);
            let mut expected = Vec::new();
            for step in &steps {
                match step {
                    Step::Methods(kind, subch, address, values) => {
                        w.methods(*kind, *subch, *address, values).unwrap();
                        for (i, value) in values.iter().enumerate() {
                            let on = match kind {
                                Kind::Inc | Kind::OldInc => i as u16,
                                Kind::OneInc => i.min(1) as u16,
                                Kind::NonInc | Kind::OldNonInc | Kind::Immediate => 0,
                            };
                            expected.push((*kind, *subch, address + 4 * on, *value));
                        }
                    }
                    Step::Imm(subch, address, value) => {
                        w.imm(*subch, *address, *value).unwrap();
                        expected.push((Kind::Immediate, *subch, *address, *value));
                    }
                    Step::Nop => w.nop().unwrap(),
                }
            }
            let words = w.as_slice();
            let mut cuts: Vec<usize> = cuts.iter().map(|i| i.index(words.len() + 1)).chain([0, words.len()]).collect();
            cuts.sort_unstable();
            let mut got = Vec::new();
            let mut decoder = Decoder::new(0xc86f);
            for pair in cuts.windows(2) {
                decoder.segment(&words[pair[0]..pair[1]], |item| match item {
                    Item::Write(w) => got.push((w.kind, w.target.subch, w.address, w.value)),
                    Item::Run(r) => got.extend(r.writes().map(|w| (w.kind, w.target.subch, w.address, w.value))),
                    Item::Nop { .. } => {}
                    other => panic!("{other:?}"),
                });
            }
            prop_assert_eq!(got, expected);
            prop_assert!(decoder.pending().is_none());
        }
    }
}

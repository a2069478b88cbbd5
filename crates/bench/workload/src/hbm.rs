//! Kernels that read and write the GPU's memory as fast as possible: memory bandwidth as a load, and as measurable work.
//!
//! Each launch adds a number to every word of a buffer that no cache holds, with 16 bytes per load and store. So one word shows that every launch
//! since the start ran exactly once.

use crate::Difference;
use crate::entry::{Call, Entry, Number, PLAIN, Result as Open};
use crate::launch::{PRIORITY, stream};
use crate::{Checks, Did, Error, Machine, Opened, Subject, Waiting, Wanted, Wrong};
use cuda::{Argument, DeviceBuffer, Function, Module, PinnedBuffer, Stream};
use std::time::Duration;

pub(crate) const HBM: Entry = Entry {
    name: "hbm",
    form: "hbm(LAUNCHES,priority=high|low)",
    about: "this many launches of a kernel that reads and writes a whole buffer in GPU memory, and cuStreamSynchronize; \
            both directions are counted; priority: the stream's",
    // Larger than the second-level cache of any GPU so far.
    bytes: 256 << 20,
    number: Some(Number { of: "launches", default: 4, least: 1, most: 1000 }),
    values: &[PRIORITY],
    open,
    ..PLAIN
};

/// Bytes that one thread takes at a time.
const QUAD: u64 = 16;
const BLOCK: u32 = 256;
/// Enough to fill any GPU; a loop does the rest.
const MOST_BLOCKS: u64 = 4096;
/// Bytes that are compared at the start, in the middle and at the end.
const LOOKED_AT: usize = 4096;

/// PTX 7.0 for sm_70: the driver compiles it for the installed GPU.
const PTX: &str = r"
.version 7.0
.target sm_70
.address_size 64
// words[4 * i .. 4 * i + 4] += value, for all i < quads
.visible .entry stream_memory(.param .u64 stream_words, .param .u32 stream_quads, .param .u32 stream_value)
{
    .reg .pred %p<2>;
    .reg .b32 %r<20>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [stream_words];
    ld.param.u32 %r1, [stream_quads];
    ld.param.u32 %r2, [stream_value];
    cvta.to.global.u64 %rd2, %rd1;
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mov.u32 %r5, %tid.x;
    mov.u32 %r6, %nctaid.x;
    mad.lo.u32 %r7, %r3, %r4, %r5;
    mul.lo.u32 %r8, %r6, %r4;
STREAM_NEXT:
    setp.ge.u32 %p1, %r7, %r1;
    @%p1 bra STREAM_END;
    mul.wide.u32 %rd3, %r7, 16;
    add.u64 %rd4, %rd2, %rd3;
    ld.global.v4.u32 {%r9, %r10, %r11, %r12}, [%rd4];
    add.u32 %r13, %r9, %r2;
    add.u32 %r14, %r10, %r2;
    add.u32 %r15, %r11, %r2;
    add.u32 %r16, %r12, %r2;
    st.global.v4.u32 [%rd4], {%r13, %r14, %r15, %r16};
    add.u32 %r7, %r7, %r8;
    bra STREAM_NEXT;
STREAM_END:
    ret;
}
";
const NAME: &str = "stream_memory";

fn open<'m>(machine: &'m Machine, call: &Call, wanted: &Wanted) -> Open<'m> {
    let bytes = wanted.bytes.next_multiple_of(QUAD);
    // The kernel counts in 32 bits, its own stride included.
    let quads = u32::try_from(bytes / QUAD).ok().filter(|quads| *quads < u32::MAX - MOST_BLOCKS as u32 * BLOCK);
    let (Some(quads), Ok(len)) = (quads, usize::try_from(bytes)) else { return Err(Error::Memory { bytes }) };
    let context = machine.context()?;
    let memory = DeviceBuffer::new(context, len)?;
    let (stream, module) = (stream(context, call)?, Module::from_ptx(context, PTX)?);
    let seen = PinnedBuffer::new(context, len.min(LOOKED_AT))?;
    Ok(Box::new(Hbm { stream, module, memory, seen, quads, launches: call.number }))
}

struct Hbm<'m> {
    // Declared before the code and the memory that it names.
    stream: Stream<'m>,
    module: Module<'m>,
    memory: DeviceBuffer<'m>,
    /// For comparisons.
    seen: PinnedBuffer<'m>,
    quads: u32,
    /// Of one `fire`.
    launches: u32,
}

impl Opened for Hbm<'_> {
    fn about(&self) -> String {
        format!("{} launches of a kernel that reads and writes {} bytes of the GPU's", self.launches, self.memory.len())
    }

    fn prepare(&mut self, seed: u64) -> Result<Box<dyn Subject + '_>, Error> {
        let Hbm { stream, module, memory, seen, quads, launches } = self;
        let (word, value) = (seed as u32, seed as u32 | 1);
        stream.fill32(memory.slice(0, memory.len())?, word)?;
        stream.synchronize()?;
        let function = module.function(NAME)?;
        Ok(Box::new(Streams { function, stream, memory, seen, quads: *quads, launches: *launches, word, value }))
    }
}

struct Streams<'h, 'm> {
    function: Function<'h>,
    stream: &'h Stream<'h>,
    memory: &'h DeviceBuffer<'h>,
    seen: &'h mut PinnedBuffer<'m>,
    quads: u32,
    launches: u32,
    /// The value of every word when all launches are complete.
    word: u32,
    value: u32,
}

impl Subject for Streams<'_, '_> {
    fn waiting(&self) -> Waiting {
        Waiting::Called
    }

    fn fire(&mut self) -> Result<(), Error> {
        let blocks = u64::from(self.quads.div_ceil(BLOCK)).min(MOST_BLOCKS) as u32;
        let arguments = [Argument::U64(self.memory.address()), Argument::U32(self.quads), Argument::U32(self.value)];
        for _ in 0..self.launches {
            // SAFETY: the arguments are the kernel's, which stays within the buffer; the stream is waited for before the buffer is freed.
            unsafe { self.function.launch([blocks, 1, 1], [BLOCK, 1, 1], 0, self.stream, &arguments) }?;
            self.word = self.word.wrapping_add(self.value);
        }
        Ok(())
    }

    fn poll(&mut self) -> Result<bool, Error> {
        Ok(self.stream.is_done()?)
    }

    fn wait(&mut self, _timeout: Duration) -> Result<(), Error> {
        Ok(self.stream.synchronize()?)
    }

    fn did(&mut self) -> Did {
        let bytes = 2 * self.memory.len() as u64 * u64::from(self.launches);
        Did { times: self.launches.into(), bytes, ..Did::ONCE }
    }

    fn checks(&self) -> Checks {
        Checks::Bytes
    }

    fn check(&mut self) -> Result<Option<Wrong>, Error> {
        let (whole, part) = (self.memory.len(), self.seen.len());
        let expected = self.word.to_le_bytes().repeat(part / 4);
        for from in [0, (whole - part) / 8 * 4, whole - part] {
            // SAFETY: the buffer stays, unused, until the stream is synchronised in the next line.
            unsafe { self.stream.download(self.seen.bytes_mut(), self.memory.slice(from, part)?) }?;
            self.stream.synchronize()?;
            if let Some(wrong) = Difference::between(&expected, self.seen.bytes(), None) {
                return Ok(Some(Wrong::Data(wrong)));
            }
        }
        Ok(None)
    }
}

impl Drop for Streams<'_, '_> {
    fn drop(&mut self) {
        let _ = self.stream.synchronize();
    }
}

//! The consumer of a device's frames: a kernel for GPU memory where there is CUDA, else the CPU. Both compare the number in every page, and neither finishes
//! before its given time is over.

use crate::buffer::Buffer;
use crate::error::Error;
use crate::machine::Machine;
use cuda::{Argument, DeviceBuffer, Function, Module, PinnedBuffer, Stream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Each page carries a number.
pub(super) const PAGE: u64 = 4096;
/// Threads of the kernel's only block.
const THREADS: u32 = 256;
const NAME: &str = "consume";

/// Each thread compares the first word of its pages, and counts wrong ones in a word that is 0 between launches. The first thread works until the time is over.
/// Then it writes how many were wrong, and after that the launch's number.
///
/// PTX 6.0 for sm_70: the driver compiles it for the GPU of the machine.
const PTX: &str = "
.version 6.0
.target sm_70
.address_size 64
.visible .entry consume(.param .u64 consume_frame, .param .u64 consume_pages, .param .u64 consume_expected, .param .u64 consume_ns, .param .u64 consume_told, .param .u64 consume_wrong, .param .u32 consume_number)
{
    .reg .pred %p<2>;
    .reg .b32 %tid_x, %threads, %number, %count;
    .reg .b64 %frame, %pages, %expected, %ns, %told, %wrong, %begun, %now, %page, %step, %at, %word, %should;
    mov.u64 %begun, %globaltimer;
    ld.param.u64 %frame, [consume_frame];
    ld.param.u64 %pages, [consume_pages];
    ld.param.u64 %expected, [consume_expected];
    ld.param.u64 %ns, [consume_ns];
    ld.param.u64 %told, [consume_told];
    ld.param.u64 %wrong, [consume_wrong];
    ld.param.u32 %number, [consume_number];
    cvta.to.global.u64 %frame, %frame;
    cvta.to.global.u64 %told, %told;
    cvta.to.global.u64 %wrong, %wrong;
    mov.u32 %tid_x, %tid.x;
    mov.u32 %threads, %ntid.x;
    cvt.u64.u32 %page, %tid_x;
    cvt.u64.u32 %step, %threads;
NEXT:
    setp.ge.u64 %p0, %page, %pages;
    @%p0 bra SEEN;
    shl.b64 %at, %page, 12;
    add.u64 %at, %frame, %at;
    ld.relaxed.sys.global.u64 %word, [%at];
    add.u64 %should, %expected, %page;
    add.u64 %page, %page, %step;
    setp.eq.u64 %p0, %word, %should;
    @%p0 bra NEXT;
    atom.acq_rel.gpu.global.add.u32 %count, [%wrong], 1;
    bra NEXT;
SEEN:
    bar.sync 0;
    setp.ne.u32 %p0, %tid_x, 0;
    @%p0 bra OUT;
WORK:
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %begun;
    setp.lt.u64 %p0, %now, %ns;
    @%p0 bra WORK;
    ld.relaxed.gpu.global.u32 %count, [%wrong];
    st.relaxed.gpu.global.u32 [%wrong], 0;
    st.global.u32 [%told+4], %count;
    st.release.sys.global.u32 [%told], %number;
OUT:
    ret;
}
";

/// The consumer before it gets frames.
pub(super) enum Consumer<'m> {
    Cpu,
    Kernel(Box<OfKernel<'m>>),
}

pub(super) struct OfKernel<'m> {
    // Before the memory that its work may name.
    stream: Stream<'m>,
    module: Module<'m>,
    /// Count of wrong pages.
    wrong: DeviceBuffer<'m>,
    /// The number of the last finished launch, and how many pages were wrong in it.
    told: PinnedBuffer<'m>,
}

impl<'m> Consumer<'m> {
    /// The consumer for frames in that memory.
    pub(super) fn new(machine: &'m Machine, frames: &Buffer<'_>) -> Result<Consumer<'m>, Error> {
        let (Some(_), Ok(context)) = (frames.gpu(), machine.context()) else { return Ok(Consumer::Cpu) };
        let kernel = OfKernel {
            stream: Stream::new(context)?,
            module: Module::from_ptx(context, PTX)?,
            wrong: DeviceBuffer::new(context, 4)?,
            told: PinnedBuffer::new(context, 64)?,
        };
        kernel.wrong.write(&[0; 4])?;
        // After this, the bytes from pageable memory have arrived.
        context.synchronize_default_stream()?;
        Ok(Consumer::Kernel(Box::new(kernel)))
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Consumer::Cpu => "the CPU",
            Consumer::Kernel(_) => "a kernel",
        }
    }

    /// Prepares it for frames of `pages` pages, each consumed for `time`.
    pub(super) fn start<'r>(
        &'r self,
        frames: &'r Buffer<'r>,
        pages: u64,
        time: Duration,
    ) -> Result<Consuming<'r>, Error> {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let by = match self {
            Consumer::Cpu => By::Cpu { begun: Instant::now(), wrong: 0 },
            Consumer::Kernel(of) => {
                // SAFETY: two aligned words of pinned memory that lives as long as the borrow; they are touched only by atomic accesses.
                let told = unsafe {
                    let words: *mut u32 = of.told.as_ptr().cast();
                    [AtomicU32::from_ptr(words), AtomicU32::from_ptr(words.add(1))]
                };
                told[0].store(0, Ordering::Release);
                let at = of.told.device_address()?;
                By::Kernel { of, function: of.module.function(NAME)?, told, at, number: 0 }
            }
        };
        Ok(Consuming { by, frames, pages, ns })
    }
}

enum By<'r> {
    Cpu {
        begun: Instant,
        wrong: u64,
    },
    /// `at` is the GPU's address of `told`.
    Kernel {
        of: &'r OfKernel<'r>,
        function: Function<'r>,
        told: [&'r AtomicU32; 2],
        at: u64,
        number: u32,
    },
}

/// Consumes one frame after another.
pub(super) struct Consuming<'r> {
    by: By<'r>,
    frames: &'r Buffer<'r>,
    pages: u64,
    ns: u64,
}

impl Consuming<'_> {
    /// Begins with the frame at this offset, whose first page should begin with `expected`.
    #[inline]
    pub(super) fn begin(&mut self, at: u64, expected: u64) -> Result<(), Error> {
        match &mut self.by {
            By::Cpu { begun, wrong } => {
                *begun = Instant::now();
                *wrong = 0;
                for page in 0..self.pages {
                    let mut found = [0; 8];
                    self.frames.read((at + page * PAGE) as i64, &mut found)?;
                    *wrong += u64::from(u64::from_le_bytes(found) != expected.wrapping_add(page));
                }
                Ok(())
            }
            By::Kernel { of, function, at: told, number, .. } => {
                // No launch has number 0, which means that none has finished.
                *number = number.wrapping_add(1).max(1);
                let arguments = [
                    Argument::U64(self.frames.va() + at),
                    Argument::U64(self.pages),
                    Argument::U64(expected),
                    Argument::U64(self.ns),
                    Argument::U64(*told),
                    Argument::U64(of.wrong.address()),
                    Argument::U32(*number),
                ];
                // SAFETY: the arguments are the kernel's; the frame is within the buffer, which outlives this, and so do the words. The stream is waited for
                // before any of them is dropped.
                Ok(unsafe { function.launch([1; 3], [THREADS, 1, 1], 0, &of.stream, &arguments) }?)
            }
        }
    }

    /// How many pages of the frame were wrong, once it is consumed.
    #[inline]
    pub(super) fn end(&mut self) -> Result<Option<u64>, Error> {
        match &self.by {
            By::Cpu { begun, wrong } => {
                let is_over = begun.elapsed().as_nanos() >= u128::from(self.ns);
                Ok(is_over.then_some(*wrong))
            }
            By::Kernel { told: [word, wrong], number, .. } => {
                // ORDERING: the number is released after the count.
                let is_done = word.load(Ordering::Acquire) == *number;
                Ok(is_done.then(|| wrong.load(Ordering::Relaxed).into()))
            }
        }
    }
}

impl Drop for Consuming<'_> {
    fn drop(&mut self) {
        if let By::Kernel { of, .. } = &self.by {
            let _ = of.stream.synchronize();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::tests::{Kernel, Memory, Running};

    const FRAME: u64 = 0x10_0000;
    const TOLD: u64 = 0x9000_0000;
    const WRONG: u64 = 0xa000_0000;

    /// The kernel's report for a frame whose pages begin with these words, and its clock's time then.
    fn told(words: &[u64], expected: u64, ns: u64) -> [u32; 2] {
        let mut memory = Memory::default();
        // The page after the frame does not belong to it.
        memory.add(FRAME, vec![0; (words.len() + 1) * PAGE as usize]);
        memory.add(TOLD, vec![0xee; 64]);
        memory.add(WRONG, vec![0; 4]);
        for (page, word) in words.iter().enumerate() {
            let at = FRAME + page as u64 * PAGE;
            memory.bytes(at, 8).copy_from_slice(&word.to_le_bytes());
        }
        let kernel = Kernel::parse(PTX, NAME);
        let parameters = [
            ("frame", FRAME),
            ("pages", words.len() as u64),
            ("expected", expected),
            ("ns", ns),
            ("told", TOLD),
            ("wrong", WRONG),
            ("number", 77),
        ];
        let mut running = Running::new(&kernel, [0, 1], THREADS, &parameters);
        while running.turn(&mut memory) {}
        assert_eq!(memory.word(WRONG), 0, "it is 0 between launches");
        assert_eq!(memory.word(TOLD + 8), 0xeeee_eeee, "no third word");
        [memory.word(TOLD), memory.word(TOLD + 4)]
    }

    #[test]
    fn the_kernel_counts_the_pages_that_are_wrong() {
        let first = u64::MAX - 3;
        for pages in [1, 2, 255, 256, 257, 600] {
            let right: Vec<u64> = (0..pages).map(|page| first.wrapping_add(page)).collect();
            assert_eq!(told(&right, first, 50), [77, 0], "{pages} pages");
            assert_eq!(told(&right, first.wrapping_add(1), 0), [77, pages as u32], "a frame that was lost");
            for torn in [0, pages / 2, pages - 1] {
                let mut words = right.clone();
                words[torn as usize] ^= 1 << 63;
                assert_eq!(told(&words, first, 0), [77, 1], "page {torn} of {pages}");
            }
        }
    }
}

//! `host->sm->gpu0`: a kernel launched for each transfer copies with loads and stores of 16 bytes. It copies between pinned host
//! memory and GPU memory in either direction, within the GPU's memory, or between it and the memory of another GPU that it
//! reaches.
//!
//! Its grid has a block for each 8 KiB, at most one for each multiprocessor, or as many as `blocks=N` gives. It is the only route
//! here whose bytes the multiprocessors carry as fast as they can. A program's own kernels wait or share them during the copy.
//! The kernel runs in a separate stream, in CUDA's context. CUDA signals the end (the stream is waited for) or, with `polled`, the
//! kernel does: the last block to finish writes a number into pinned memory, after all copied bytes.

use super::polling::{self, Word};
use super::ptx::{WEAK, copy};
use crate::buffer::{Buffer, PAGEABLE};
use crate::ends::{A_DEVICES, Ends, between_gpus, both_ways};
use crate::error::Error;
use crate::executor::{Executor, Transfer};
use crate::inspect::Inspect;
use crate::machine::Machine;
use crate::routes::entry::{Entry, Found, number};
use crate::spec::{self, Host, Memory, Spec};
use cuda::{Argument, Attribute, DeviceBuffer, Function, Module, PinnedBuffer, Stream};
use machine::Unavailable;
use std::time::Duration;

const POLLED: &str = "polled";
const BLOCKS: &str = "blocks=";
/// More than any GPU runs at the same time.
const MOST_BLOCKS: u32 = 4096;
/// Threads of a block.
const THREADS: u32 = 512;
/// Bytes of each load and store.
const WIDE: u64 = 16;

pub(crate) const ENTRY: Entry = Entry {
    word: spec::Word { name: "sm", numbered: false, options: &[POLLED, BLOCKS] },
    about: |_, spec| {
        let end =
            if spec.executor.has(POLLED) { "the kernel writes its end to host memory" } else { "CUDA says its end" };
        format!("a kernel launched for each copy: 16 bytes a load, a block for each 8 KiB or blocks=N; {end}")
    },
    list: |machine| {
        let host = ["sm", "sm[polled]"].map(|sm| both_ways(machine, "host", sm)).concat();
        [host, between_gpus(machine, "sm[polled]")].concat()
    },
    check: |machine, spec| {
        blocks(&spec.executor)?;
        check(machine, spec)
    },
    open,
};

fn blocks(executor: &spec::Executor) -> Result<Option<u32>, Unavailable> {
    number(executor, BLOCKS, 1..=MOST_BLOCKS, &format!("a grid has one number of blocks, 1 to {MOST_BLOCKS}"))
}

/// Why this machine's kernels cannot copy between these ends.
pub(super) fn check(machine: &Machine, spec: &Spec) -> Result<(), Unavailable> {
    let no_kernel = |why: Unavailable| Unavailable::new(format!("the kernel that copies is launched by CUDA: {why}"));
    machine.context().map(drop).map_err(no_kernel)?;
    let ends = [spec.source.memory, spec.destination.memory];
    if ends.contains(&Memory::Device) {
        return Err(Unavailable::new(A_DEVICES));
    }
    if ends.contains(&Memory::Host(Host::Pageable)) {
        return Err(Unavailable::new(PAGEABLE));
    }
    let index = machine.index();
    if !ends.contains(&Memory::Gpu(index)) {
        return Err(Unavailable::new(format!("the kernel runs on gpu{index}: one end has to be its memory")));
    }
    match other_gpu(machine, spec) {
        Some(n) if !machine.context()?.can_reach(machine.gpu(n)?.context()?).unwrap_or(false) => Err(no_way(index, n)),
        _ => Ok(()),
    }
}

/// The GPU at one of the ends that is not this machine's, if there is one.
fn other_gpu(machine: &Machine, spec: &Spec) -> Option<u32> {
    [spec.source.memory, spec.destination.memory].into_iter().find_map(|end| match end {
        Memory::Gpu(n) if n != machine.index() => Some(n),
        _ => None,
    })
}

fn no_way(index: u32, n: u32) -> Unavailable {
    Unavailable::new(format!("kernels of gpu{index} do not reach the memory of gpu{n}"))
}

/// `CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED`.
const ALREADY: i32 = 704;

/// The GPUs whose memory this machine's kernels may touch: those of a route's ends. An access to other memory would be a kernel
/// fault, which ends CUDA's context.
#[derive(Debug)]
pub(super) struct Reach(Vec<u32>);

impl Reach {
    pub(super) fn of(machine: &Machine, spec: &Spec) -> Result<Reach, Error> {
        let (index, other) = (machine.index(), other_gpu(machine, spec));
        if let Some(n) = other {
            match machine.context()?.enable_peer(machine.gpu(n)?.context()?) {
                Ok(true) | Err(cuda::Error::Call { code: ALREADY, .. }) => {}
                Ok(false) => return Err(no_way(index, n).into()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Reach([index].into_iter().chain(other).collect()))
    }

    /// Checks that both memories are on these GPUs.
    pub(super) fn check(&self, from: &Buffer<'_>, to: &Buffer<'_>) -> Result<(), Error> {
        for buffer in [from, to] {
            if !buffer.is_pinned() {
                return Err(Unavailable::new(PAGEABLE).into());
            }
            if buffer.is_device() {
                return Err(Unavailable::new(A_DEVICES).into());
            }
            if let Some(n) = buffer.gpu()
                && !self.0.contains(&n)
            {
                return Err(no_way(self.0[0], n).into());
            }
        }
        Ok(())
    }
}

/// Blocks for a transfer of that size: those that the route names, else one for each piece.
fn grid(blocks: Option<u32>, multiprocessors: u32, bytes: u64) -> u32 {
    let pieces = bytes.div_ceil(u64::from(THREADS) * WIDE);
    blocks.unwrap_or(pieces.clamp(1, multiprocessors.into()) as u32)
}

fn open<'m>(machine: &'m Machine, spec: &Spec) -> Found<'m> {
    let context = machine.context()?;
    let multiprocessors = context.device().attribute(Attribute::MultiprocessorCount)?;
    let count = DeviceBuffer::new(context, 4)?;
    count.write(&[0; 4])?;
    let launches = Launches {
        stream: Stream::new(context)?,
        module: Module::from_ptx(context, &source())?,
        count,
        told: PinnedBuffer::new(context, 64)?,
        blocks: blocks(&spec.executor)?,
        multiprocessors: u32::try_from(multiprocessors).unwrap_or(1).max(1),
        polled: spec.executor.has(POLLED),
        reach: Reach::of(machine, spec)?,
    };
    launches.try_out()?;
    Ok(Box::new(launches))
}

struct Launches<'m> {
    // Before the memory that its work may name.
    stream: Stream<'m>,
    module: Module<'m>,
    /// Blocks that have finished; 0 between launches.
    count: DeviceBuffer<'m>,
    /// Where the kernel reports its end.
    told: PinnedBuffer<'m>,
    blocks: Option<u32>,
    multiprocessors: u32,
    polled: bool,
    reach: Reach,
}

impl Launches<'_> {
    /// One launch that copies no bytes. At a first launch CUDA loads code, which must not be part of a transfer.
    fn try_out(&self) -> Result<(), Error> {
        let told = Word::of(&self.told);
        told.reset(0);
        let told_at = self.told.device_address()?;
        let launch = Launch { told: told_at, number: 1, ..self.launch([0, 0], 0)? };
        launch.submit(&self.stream)?;
        self.stream.synchronize()?;
        let lost = || Unavailable::new("the kernel that copies ran and did not say so in host memory");
        if told.is(1) { Ok(()) } else { Err(lost().into()) }
    }

    fn launch(&self, addresses: [u64; 2], bytes: u64) -> Result<Launch<'_>, Error> {
        Ok(Launch {
            function: self.module.function(SM)?,
            addresses,
            bytes,
            told: if self.polled { self.told.device_address()? } else { 0 },
            count: self.count.address(),
            number: 0,
            blocks: grid(self.blocks, self.multiprocessors, bytes),
        })
    }
}

/// The launch for one transfer.
struct Launch<'r> {
    function: Function<'r>,
    /// From and to.
    addresses: [u64; 2],
    bytes: u64,
    /// Null if the end is not polled.
    told: u64,
    count: u64,
    number: u32,
    blocks: u32,
}

impl Launch<'_> {
    #[inline]
    fn submit(&self, stream: &Stream<'_>) -> Result<(), Error> {
        let [from, to] = self.addresses;
        let arguments = [
            Argument::U64(to),
            Argument::U64(from),
            Argument::U64(self.bytes),
            Argument::U64(self.told),
            Argument::U64(self.count),
            Argument::U32(self.number),
        ];
        // SAFETY: the arguments are the kernel's. The addresses are those of the transfer's buffers, checked to hold that many
        // bytes. They and the executor's memory outlive the transfer, which waits for the stream before it is dropped.
        Ok(unsafe { self.function.launch([self.blocks, 1, 1], [THREADS, 1, 1], 0, stream, &arguments) }?)
    }
}

impl Executor for Launches<'_> {
    fn reach(&mut self, from: &Buffer<'_>, to: &Buffer<'_>) -> Result<(), Error> {
        self.reach.check(from, to)
    }

    fn prepare<'r>(&'r mut self, ends: Ends<'r>, bytes: u64) -> Result<Box<dyn Transfer + 'r>, Error> {
        self.reach(ends.source, ends.destination)?;
        ends.check(bytes)?;
        let told = Word::of(&self.told);
        told.reset(0);
        let launch = self.launch([ends.source.va(), ends.destination.va()], bytes)?;
        Ok(Box::new(Launched { executor: self, launch, told, ends, submitted: false }))
    }
}

struct Launched<'r> {
    executor: &'r Launches<'r>,
    launch: Launch<'r>,
    told: Word<'r>,
    ends: Ends<'r>,
    submitted: bool,
}

impl Transfer for Launched<'_> {
    #[inline]
    fn submit(&mut self) -> Result<(), Error> {
        self.launch.number = self.launch.number.wrapping_add(1);
        self.launch.submit(&self.executor.stream)?;
        self.submitted = true;
        Ok(())
    }

    #[inline]
    fn poll(&mut self) -> Result<bool, Error> {
        if self.executor.polled {
            Ok(self.submitted && self.told.is(self.launch.number))
        } else {
            Ok(self.executor.stream.is_done()?)
        }
    }

    fn is_polled(&self) -> bool {
        self.executor.polled
    }

    /// CUDA's own wait has no time limit, so `timeout` is ignored where CUDA signals the end.
    #[inline]
    fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        if !self.executor.polled {
            return Ok(self.executor.stream.synchronize()?);
        }
        if !self.submitted {
            return Err(Error::Idle);
        }
        match polling::until(timeout, || self.told.is(self.launch.number)) {
            Ok(()) => Ok(()),
            Err(after) => {
                // A kernel that failed reports no end; CUDA returns the reason.
                self.executor.stream.is_done()?;
                Err(Error::Late { bytes: self.launch.bytes, after })
            }
        }
    }

    fn move_to(&mut self, source: u64, destination: u64) -> Result<(), Error> {
        self.ends.hold([source, destination], self.launch.bytes)?;
        self.launch.addresses = [self.ends.source.va() + source, self.ends.destination.va() + destination];
        Ok(())
    }

    fn ends(&self) -> Option<&dyn Inspect> {
        Some(&self.ends)
    }
}

impl Drop for Launched<'_> {
    fn drop(&mut self) {
        // After a wait this costs one more call, outside of any transfer.
        let _ = self.executor.stream.synchronize();
    }
}

const SM: &str = "copy_sm";
/// Pending loads of 16 bytes for each thread.
const UNROLL: usize = 4;

/// Warps are spread over the blocks in turn, so that each multiprocessor has a part of a short transfer too.
const START: &str = ".visible .entry copy_sm(.param .u64 copy_sm_to, .param .u64 copy_sm_from, .param .u64 copy_sm_bytes, .param .u64 copy_sm_told, .param .u64 copy_sm_count, .param .u32 copy_sm_number)
{
    .reg .pred %p<4>;
    .reg .b32 %r<4>;
    .reg .b32 %tid_x, %threads, %blocks, %block, %before, %number;
    .reg .b64 %dst, %src, %bytes, %told, %count, %first, %step;
    ld.param.u64 %dst, [copy_sm_to];
    ld.param.u64 %src, [copy_sm_from];
    ld.param.u64 %bytes, [copy_sm_bytes];
    ld.param.u64 %told, [copy_sm_told];
    ld.param.u64 %count, [copy_sm_count];
    ld.param.u32 %number, [copy_sm_number];
    cvta.to.global.u64 %dst, %dst;
    cvta.to.global.u64 %src, %src;
    mov.u32 %tid_x, %tid.x;
    mov.u32 %threads, %ntid.x;
    mov.u32 %blocks, %nctaid.x;
    mov.u32 %block, %ctaid.x;
    shr.u32 %r0, %tid_x, 5;
    mad.lo.u32 %r0, %r0, %blocks, %block;
    shl.b32 %r0, %r0, 5;
    and.b32 %r1, %tid_x, 31;
    add.u32 %r0, %r0, %r1;
    cvt.u64.u32 %first, %r0;
    mul.wide.u32 %step, %threads, %blocks;
";

/// If `told` is not null, the last block to finish stores `number` there, after all copied bytes. `count` is a word that is 0
/// between launches.
const END: &str = "
    setp.eq.u64 %p1, %told, 0;
    @%p1 bra OUT;
    bar.sync 0;
    setp.ne.u32 %p1, %tid_x, 0;
    @%p1 bra OUT;
    setp.eq.u32 %p1, %blocks, 1;
    @%p1 bra LAST;
    atom.acq_rel.gpu.global.add.u32 %before, [%count], 1;
    add.u32 %before, %before, 1;
    setp.ne.u32 %p1, %before, %blocks;
    @%p1 bra OUT;
    st.relaxed.gpu.global.u32 [%count], 0;
LAST:
    st.release.sys.global.u32 [%told], %number;
OUT:
    ret;
}
";

/// PTX 6.0 for sm_70: the driver compiles it for the GPU of the machine.
fn source() -> String {
    format!("\n.version 6.0\n.target sm_70\n.address_size 64\n{START}{}{END}", copy(WEAK, UNROLL))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Kernel, Memory, Running};
    use super::*;

    #[test]
    fn grids_follow_size_and_multiprocessors() {
        let sm = |blocks, bytes| grid(blocks, 132, bytes);
        assert_eq!((sm(None, 1), sm(None, 8192), sm(None, 8193)), (1, 1, 2));
        assert_eq!((sm(None, 64 << 20), sm(Some(4), 1), sm(Some(4), 64 << 20)), (132, 4, 4));
    }

    /// Bytes that differ from their neighbours and from those of another seed.
    fn noise(seed: usize, length: usize) -> Vec<u8> {
        (0..length).map(|n| (((n + 1) * (2 * seed + 1) * 0x9e37) >> 5) as u8 ^ seed as u8).collect()
    }

    #[test]
    fn the_kernel_copies_its_bytes_and_no_others() {
        const FROM: u64 = 0x1_0000;
        const TO: u64 = 0x2_0000;
        const TOLD: u64 = 0x1000;
        let kernel = Kernel::parse(&source(), SM);
        for (n, [source, destination]) in
            [[0, 0], [0, 5], [7, 0], [4, 12], [12, 8], [9, 3], [15, 14]].into_iter().enumerate()
        {
            for (bytes, blocks) in [(1, 1), (4, 2), (13, 1), (16, 1), (31, 3), (56, 1), (1000, 1), (2049, 2)] {
                let (from, to) = (FROM + source, TO + destination);
                let mut memory = Memory::default();
                // The source includes all 16 bytes of the group that has its last byte.
                let data = noise(n, (source + bytes).next_multiple_of(16) as usize);
                let before = noise(n + 99, 2200);
                memory.add(FROM, data.clone());
                memory.add(TO, before.clone());
                memory.add(TOLD, vec![0; 8]);
                let arguments =
                    [("to", to), ("from", from), ("bytes", bytes), ("told", TOLD), ("count", TOLD + 4), ("number", 77)];
                for block in 0..blocks {
                    assert_eq!(memory.word(TOLD), 0, "told before the last block has finished");
                    let mut running = Running::new(&kernel, [block, blocks], 64, &arguments);
                    while running.turn(&mut memory) {}
                }
                let (start, end) = (destination as usize, (destination + bytes) as usize);
                let place = format!("{blocks} blocks, {bytes} bytes from {source} to {destination}");
                let found = memory.bytes(TO, before.len());
                assert!(found[start..end] == data[source as usize..][..bytes as usize], "{place}");
                assert!(found[..start] == before[..start] && found[end..] == before[end..], "{place}: others");
                assert_eq!((memory.word(TOLD), memory.word(TOLD + 4)), (77, 0), "{place}");
            }
        }
    }
}

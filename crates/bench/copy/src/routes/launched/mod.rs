//! Kernels that are launched for each transfer, under `sm` and `zerocopy`.
//!
//! They run in a separate stream, in CUDA's context. CUDA signals the end (the stream is waited for) or, with `polled`, the
//! kernel does: the last block to finish writes a number into pinned memory, after all copied bytes.

mod ptx;

use super::polling::{self, Word};
use crate::buffer::{Buffer, PAGEABLE};
use crate::ends::{A_DEVICES, Ends};
use crate::entry::Found;
use crate::error::Error;
use crate::inspect::Inspect;
use crate::machine::Machine;
use crate::route::{Executor, Transfer};
use crate::spec::{Host, Memory, Spec};
use cuda::{Argument, Attribute, DeviceBuffer, Function, Module, PinnedBuffer, Stream};
use machine::Unavailable;
use std::time::Duration;

pub(super) const POLLED: &str = "polled";

/// Threads of a block of the copy kernel.
const COPYING: u32 = 512;
/// Bytes of each of its loads and stores.
const WIDE: u64 = 16;
/// Threads of a block of the kernel for elements.
const LOADING: u32 = 256;
/// Bytes of an element.
const WORD: u64 = 4;

/// The kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Wide loads and stores. `blocks` sets the number of blocks; by default there is one for each piece, at most one for each
    /// multiprocessor.
    Sm { blocks: Option<u32> },
    /// One element for each thread.
    Zerocopy,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Sm { .. } => ptx::SM,
            Kind::Zerocopy => ptx::ZEROCOPY,
        }
    }

    /// Blocks and threads for a transfer between these addresses.
    fn grid(self, multiprocessors: u32, [from, to]: [u64; 2], bytes: u64) -> [u32; 2] {
        match self {
            Kind::Sm { blocks } => {
                let pieces = bytes.div_ceil(u64::from(COPYING) * WIDE);
                let most = blocks.unwrap_or(multiprocessors).max(1);
                let of_size = pieces.clamp(1, most.into()) as u32;
                [blocks.unwrap_or(of_size), COPYING]
            }
            Kind::Zerocopy => {
                let words = if (from | to).is_multiple_of(WORD) { bytes / WORD } else { 0 };
                let elements = words + (bytes - words * WORD);
                // Buffers are at most 16 GiB, far below the largest grid.
                [elements.div_ceil(LOADING.into()).max(1) as u32, LOADING]
            }
        }
    }
}

/// Why this machine has no such route, or not between these ends.
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

pub(super) fn open<'m>(machine: &'m Machine, spec: &Spec, kind: Kind) -> Found<'m> {
    let context = machine.context()?;
    let multiprocessors = context.device().attribute(Attribute::MultiprocessorCount)?;
    let count = DeviceBuffer::new(context, 4)?;
    count.write(&[0; 4])?;
    let launches = Launches {
        stream: Stream::new(context)?,
        module: Module::from_ptx(context, &ptx::source())?,
        count,
        told: PinnedBuffer::new(context, 64)?,
        kind,
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
    kind: Kind,
    multiprocessors: u32,
    polled: bool,
    reach: Reach,
}

impl Launches<'_> {
    /// One launch that copies no bytes. At a first launch CUDA loads code, which must not be part of a transfer.
    fn try_out(&self) -> Result<(), Error> {
        let told = Word::of(&self.told);
        let mut launch = self.launch([0, 0], 0)?;
        launch.number = 1;
        told.reset(0);
        launch.told = self.told.device_address()?;
        launch.submit(&self.stream)?;
        self.stream.synchronize()?;
        let lost = || Unavailable::new("the kernel that copies ran and did not say so in host memory");
        if told.is(1) { Ok(()) } else { Err(lost().into()) }
    }

    fn launch(&self, addresses: [u64; 2], bytes: u64) -> Result<Launch<'_>, Error> {
        let [blocks, threads] = self.kind.grid(self.multiprocessors, addresses, bytes);
        Ok(Launch {
            function: self.module.function(self.kind.name())?,
            addresses,
            bytes,
            told: if self.polled { self.told.device_address()? } else { 0 },
            count: self.count.address(),
            number: 0,
            blocks,
            threads,
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
    threads: u32,
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
        Ok(unsafe { self.function.launch([self.blocks, 1, 1], [self.threads, 1, 1], 0, stream, &arguments) }?)
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
        let addresses = [self.ends.source.va() + source, self.ends.destination.va() + destination];
        let [blocks, threads] = self.executor.kind.grid(self.executor.multiprocessors, addresses, self.launch.bytes);
        (self.launch.addresses, self.launch.blocks, self.launch.threads) = (addresses, blocks, threads);
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

#[cfg(test)]
mod tests {
    use super::super::interpreter::{Kernel, Memory, Running};
    use super::*;

    #[test]
    fn grids_follow_size_and_multiprocessors() {
        let sm = |blocks, bytes| Kind::Sm { blocks }.grid(132, [0, 0], bytes);
        assert_eq!(sm(None, 1), [1, 512]);
        assert_eq!((sm(None, 8192), sm(None, 8193)), ([1, 512], [2, 512]));
        assert_eq!(sm(None, 64 << 20), [132, 512]);
        assert_eq!((sm(Some(4), 1), sm(Some(4), 64 << 20)), ([4, 512], [4, 512]));
        let elements = |addresses, bytes| Kind::Zerocopy.grid(132, addresses, bytes);
        assert_eq!((elements([0, 4], 1024), elements([0, 4], 1028)), ([1, 256], [2, 256]));
        // Words and the three bytes after them: 258 and 256 elements. Where words are not aligned, each byte is an element.
        assert_eq!((elements([8, 4], 1023), elements([8, 4], 1015)), ([2, 256], [1, 256]));
        assert_eq!((elements([1, 4], 1024), elements([4, 2], 256)), ([4, 256], [1, 256]));
        assert_eq!(elements([0, 0], 64 << 20), [65_536, 256]);
    }

    /// Bytes that differ from their neighbours and from those of another seed.
    fn noise(seed: usize, length: usize) -> Vec<u8> {
        (0..length).map(|n| (((n + 1) * (2 * seed + 1) * 0x9e37) >> 5) as u8 ^ seed as u8).collect()
    }

    #[test]
    fn the_kernels_copy_their_bytes_and_no_others() {
        const FROM: u64 = 0x1_0000;
        const TO: u64 = 0x2_0000;
        const TOLD: u64 = 0x1000;
        let text = ptx::source();
        for name in [ptx::SM, ptx::ZEROCOPY] {
            let kernel = Kernel::parse(&text, name);
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
                    let blocks =
                        if name == ptx::SM { blocks } else { Kind::Zerocopy.grid(1, [from, to], bytes)[0] * 4 };
                    let arguments = [
                        ("to", to),
                        ("from", from),
                        ("bytes", bytes),
                        ("told", TOLD),
                        ("count", TOLD + 4),
                        ("number", 77),
                    ];
                    for block in 0..blocks {
                        assert_eq!(memory.word(TOLD), 0, "{name}: told before the last block has finished");
                        let mut running = Running::new(&kernel, [block, blocks], [1, 64], &arguments);
                        while running.turn(&mut memory) {}
                    }
                    let (start, end) = (destination as usize, (destination + bytes) as usize);
                    let place = format!("{name}, {blocks} blocks, {bytes} bytes from {source} to {destination}");
                    let found = memory.bytes(TO, before.len());
                    assert!(found[start..end] == data[source as usize..][..bytes as usize], "{place}");
                    assert!(found[..start] == before[..start] && found[end..] == before[end..], "{place}: others");
                    assert_eq!((memory.word(TOLD), memory.word(TOLD + 4)), (77, 0), "{place}");
                }
            }
        }
    }

    #[test]
    fn both_kernels_are_in_the_text() {
        let text = ptx::source();
        for kernel in [ptx::SM, ptx::ZEROCOPY] {
            assert_eq!(text.matches(&format!(".entry {kernel}(")).count(), 1, "{kernel}");
        }
        assert!(!text.contains("NAME"));
    }
}

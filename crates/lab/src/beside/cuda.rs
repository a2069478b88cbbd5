//! CUDA's part: kernels, memsets, copies and graphs on streams of their own, each against the same arithmetic on the CPU.

use super::{Beat, Job, Plan, Trouble, any_size, capturing, outside_capture};
use copy::{Difference, Machine};
use cuda::{Argument, Context, DeviceBuffer, Function, Graph, Module, PinnedBuffer, Stream};
use std::sync::Arc;

/// Workers of each kind, each with a stream of its own.
const OF_EACH: usize = 2;
/// Words of the buffers that kernels and memsets work on.
const WORDS: usize = 1 << 14;
const BLOCK: u32 = 128;

/// cells[i] = cells[i] * 1664525 + value + i: launches only give the right end in the right order, each exactly once.
/// PTX 7.0 for sm_70: the driver compiles it for whatever GPU there is.
const STEP: &str = r"
.version 7.0
.target sm_70
.address_size 64
.visible .entry step(.param .u64 step_cells, .param .u32 step_n, .param .u32 step_value)
{
    .reg .pred %p<2>;
    .reg .b32 %r<10>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [step_cells];
    ld.param.u32 %r1, [step_n];
    ld.param.u32 %r2, [step_value];
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mov.u32 %r5, %tid.x;
    mad.lo.u32 %r6, %r3, %r4, %r5;
    setp.ge.u32 %p1, %r6, %r1;
    @%p1 bra STEP_END;
    cvta.to.global.u64 %rd2, %rd1;
    mul.wide.u32 %rd3, %r6, 4;
    add.u64 %rd4, %rd2, %rd3;
    ld.global.u32 %r7, [%rd4];
    mad.lo.u32 %r8, %r7, 1664525, %r2;
    add.u32 %r9, %r8, %r6;
    st.global.u32 [%rd4], %r9;
STEP_END:
    ret;
}
";

type Worker = fn(&Context, u64, u64, &Beat) -> Result<(), Trouble>;
const WORKERS: [(&str, Worker); 4] =
    [("cuda kernels", kernels), ("cuda memsets", memsets), ("cuda copies", copies), ("cuda graphs", graphs)];

pub(super) fn jobs(machine: &Arc<Machine>, plan: &Plan) -> Vec<Job> {
    let (seed, capacity) = (plan.seed, plan.capacity);
    let mut all = Vec::new();
    for n in 0..OF_EACH {
        for (name, worker) in WORKERS {
            let machine = machine.clone();
            let seed = seed ^ (all.len() as u64 + 1) << 32;
            all.push(Job::new(format!("{name} {}", n + 1), move |beat: &Beat| {
                machine.enter()?;
                worker(machine.context()?, seed, capacity, beat)
            }));
        }
    }
    all
}

/// What was written from pageable memory has arrived.
fn settled(context: &Context) -> cuda::Result<()> {
    let _outside = outside_capture();
    context.synchronize()
}

/// `step` on the CPU.
fn step(cells: &mut [u32], value: u32) {
    for (n, cell) in (0u32..).zip(cells) {
        *cell = cell.wrapping_mul(1_664_525).wrapping_add(value).wrapping_add(n);
    }
}

fn launch(function: &Function<'_>, cells: &DeviceBuffer<'_>, value: u32, stream: &Stream<'_>) -> cuda::Result<()> {
    let n = (cells.len() / 4) as u32;
    let arguments = [Argument::U64(cells.address()), Argument::U32(n), Argument::U32(value)];
    // SAFETY: the arguments are the kernel's, which stays within `n` words; freeing the buffer waits.
    unsafe { function.launch([n.div_ceil(BLOCK), 1, 1], [BLOCK, 1, 1], 0, stream, &arguments) }
}

fn bytes_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

/// What the stream leaves in `device`, through pinned memory, against `expected`.
fn compare(
    what: &str,
    stream: &Stream<'_>,
    device: &DeviceBuffer<'_>,
    pinned: &mut PinnedBuffer<'_>,
    expected: &[u8],
) -> Result<(), Trouble> {
    let into = &mut pinned.bytes_mut()[..expected.len()];
    // SAFETY: the buffer stays, unused, until the stream is synchronised in the next line.
    unsafe { stream.download(into, device.slice(0, expected.len())?) }?;
    stream.synchronize()?;
    match Difference::between(expected, &pinned.bytes()[..expected.len()], None) {
        None => Ok(()),
        Some(d) => Err(Trouble::Data(format!("{what}: {d}"))),
    }
}

fn kernels(context: &Context, seed: u64, _capacity: u64, beat: &Beat) -> Result<(), Trouble> {
    let module = Module::from_ptx(context, STEP)?;
    let (function, stream) = (module.function("step")?, Stream::new(context)?);
    let device = DeviceBuffer::new(context, 4 * WORDS)?;
    let mut pinned = PinnedBuffer::new(context, 4 * WORDS)?;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut model: Vec<u32> = (0..WORDS).map(|_| random.u32(..)).collect();
    device.write(&bytes_of(&model))?;
    settled(context)?;
    while !beat.stopped() {
        for _ in 0..random.u32(1..=32) {
            let value = random.u32(..);
            launch(&function, &device, value, &stream)?;
            step(&mut model, value);
        }
        compare("kernels", &stream, &device, &mut pinned, &bytes_of(&model))?;
        beat.round(4 * WORDS as u64);
    }
    Ok(())
}

fn memsets(context: &Context, seed: u64, _capacity: u64, beat: &Beat) -> Result<(), Trouble> {
    let stream = Stream::new(context)?;
    let device = DeviceBuffer::new(context, 4 * WORDS)?;
    let mut pinned = PinnedBuffer::new(context, 4 * WORDS)?;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut model = vec![0u8; 4 * WORDS];
    stream.fill8(device.slice(0, 4 * WORDS)?, 0)?;
    while !beat.stopped() {
        for _ in 0..random.u32(1..=8) {
            let bytes = any_size(&mut random, 4 * WORDS as u64) as usize;
            let at = random.usize(0..=4 * WORDS - bytes);
            if random.bool() {
                let value = random.u8(..);
                stream.fill8(device.slice(at, bytes)?, value)?;
                model[at..at + bytes].fill(value);
            } else {
                let (at, words, value) = (at / 4 * 4, bytes.div_ceil(4).min((4 * WORDS - at) / 4), random.u32(..));
                stream.fill32(device.slice(at, 4 * words)?, value)?;
                model[at..at + 4 * words].copy_from_slice(&value.to_le_bytes().repeat(words));
            }
        }
        compare("memsets", &stream, &device, &mut pinned, &model)?;
        beat.round(model.len() as u64);
    }
    Ok(())
}

/// Up, across and down again.
fn copies(context: &Context, seed: u64, capacity: u64, beat: &Beat) -> Result<(), Trouble> {
    let stream = Stream::new(context)?;
    let room = capacity.max(1) as usize;
    let (first, second) = (DeviceBuffer::new(context, room)?, DeviceBuffer::new(context, room)?);
    let (mut up, mut down) = (PinnedBuffer::new(context, room)?, PinnedBuffer::new(context, room)?);
    let mut random = fastrand::Rng::with_seed(seed);
    while !beat.stopped() {
        let bytes = any_size(&mut random, room as u64) as usize;
        random.fill(&mut up.bytes_mut()[..bytes]);
        // SAFETY: the buffer stays, unchanged, until the stream is synchronised below or dropped, which waits too.
        unsafe { stream.upload(first.slice(0, bytes)?, &up.bytes()[..bytes]) }?;
        stream.copy(second.slice(0, bytes)?, first.slice(0, bytes)?)?;
        compare("copies", &stream, &second, &mut down, &up.bytes()[..bytes])?;
        beat.round(bytes as u64);
    }
    stream.synchronize()?;
    Ok(())
}

/// A captured graph of kernels, a memset and a copy, launched again and again, and captured anew.
fn graphs(context: &Context, seed: u64, _capacity: u64, beat: &Beat) -> Result<(), Trouble> {
    const HALF: usize = 2 * WORDS;
    let module = Module::from_ptx(context, STEP)?;
    let (function, stream) = (module.function("step")?, Stream::new(context)?);
    let (cells, set) = (DeviceBuffer::new(context, 2 * HALF)?, DeviceBuffer::new(context, 2 * HALF)?);
    let mut pinned = PinnedBuffer::new(context, 2 * HALF)?;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut model: Vec<u32> = (0..WORDS).map(|_| random.u32(..)).collect();
    cells.write(&bytes_of(&model))?;
    settled(context)?;
    while !beat.stopped() {
        let values: Vec<u32> = (0..random.usize(1..=8)).map(|_| random.u32(..)).collect();
        let byte = random.u8(..);
        let alone = capturing();
        let graph = Graph::capture(&stream, || {
            values.iter().try_for_each(|value| launch(&function, &cells, *value, &stream))?;
            stream.copy(set.slice(0, HALF)?, cells.slice(0, HALF)?)?;
            stream.fill8(set.slice(HALF, HALF)?, byte)
        })?;
        drop(alone);
        let executable = graph.instantiate()?;
        for _ in 0..random.u32(1..=8) {
            // SAFETY: its buffers live until after the stream has been synchronised.
            unsafe { executable.launch(&stream) }?;
            values.iter().for_each(|value| step(&mut model, *value));
        }
        let expected = bytes_of(&model);
        compare("graphs, cells", &stream, &cells, &mut pinned, &expected)?;
        let half = [&expected[..HALF], &vec![byte; HALF]].concat();
        compare("graphs, copy and memset", &stream, &set, &mut pinned, &half)?;
        beat.round(4 * HALF as u64);
    }
    Ok(())
}

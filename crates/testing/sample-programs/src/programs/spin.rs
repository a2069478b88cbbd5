//! A kernel that waits for a flag in pinned host memory, and then far more submissions than a ring has entries.
//!
//! Launches block when the queue is full, so another thread sets the flag after a while, whatever happens here.

use crate::data::{check, to_bytes, words};
use crate::kernels::module;
use crate::programs::read;
use crate::{Error, Options, Report, Result};
use cuda::step::{self, Steps};
use cuda::{Argument, Context, DeviceBuffer, PinnedBuffer, Stream};
use fastrand::Rng;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const CELLS: usize = 1000;
const DELAY: Duration = Duration::from_millis(300);
/// A submission that took longer than this has waited for room.
const WAITED: Duration = Duration::from_millis(1);
/// One submission in this many is a fill instead of a kernel.
const FILL_EVERY: u64 = 5;

pub(crate) fn run(context: &Context, options: &Options, report: &mut Report) -> Result<()> {
    let stream = Stream::new(context)?;
    let module = module(context)?;
    let cells = DeviceBuffer::new(context, CELLS * 4)?;
    let filled = DeviceBuffer::new(context, 4096)?;
    let flag = PinnedBuffer::new(context, 4096)?;
    let steps = Steps::new(&module, &cells)?;
    let spin = module.function("spin")?;
    let mut random = Rng::with_seed(options.seed);
    let mut expected = words(&mut random, CELLS);

    // Everything that CUDA loads at its first use is loaded here: it could not be while the kernel spins.
    steps.launch(&stream, 0)?;
    stream.fill32(filled.slice(0, filled.len())?, 0)?;
    // SAFETY: the flag outlives the kernel: the stream is synchronised before `flag` is dropped, or CUDA waits there.
    let launch_spin =
        || unsafe { spin.launch([1, 1, 1], [1, 1, 1], 0, &stream, &[Argument::U64(flag.device_address()?)]) };
    word(&flag, 0).store(1, Ordering::Release);
    launch_spin()?;
    stream.synchronize()?;
    word(&flag, 0).store(0, Ordering::Release);
    word(&flag, 1).store(0, Ordering::Release);
    cells.write(&to_bytes(&expected))?;

    let count = options.count_or(5_000);
    let (mut last_fill, mut waited) = (0, 0);
    let go = random.u32(..) | 1;
    let values: Vec<u32> = words(&mut random, count as usize);
    std::thread::scope(|scope| {
        let setter = scope.spawn(|| {
            std::thread::sleep(DELAY);
            let early = word(&flag, 1).load(Ordering::Acquire);
            word(&flag, 0).store(go, Ordering::Release);
            early
        });
        let submitted = (|| {
            launch_spin()?;
            for (n, value) in (0u64..).zip(&values) {
                let start = Instant::now();
                if n % FILL_EVERY == FILL_EVERY - 1 {
                    stream.fill32(filled.slice(0, filled.len())?, *value)?;
                    last_fill = *value;
                } else {
                    steps.launch(&stream, *value)?;
                }
                waited += u64::from(start.elapsed() > WAITED);
            }
            stream.synchronize()
        })();
        let early = setter.join().map_err(|_| Error::Panicked)?;
        submitted?;
        check(|| "the spinning kernel before its flag was set".into(), &[0; 4], &early.to_le_bytes())
    })?;
    let seen = word(&flag, 1).load(Ordering::Acquire);
    check(|| "the flag as the spinning kernel saw it".into(), &go.to_le_bytes(), &seen.to_le_bytes())?;

    for (n, value) in (0u64..).zip(&values) {
        if n % FILL_EVERY != FILL_EVERY - 1 {
            step::on_cpu(&mut expected, *value);
        }
    }
    let what = || format!("{count} submissions after a spinning kernel");
    report.check(what, &to_bytes(&expected), &read(&cells)?)?;
    let what = || "the last fill after a spinning kernel".into();
    report.check(what, &to_bytes(&[last_fill; 1024]), &read(&filled)?)?;
    report.fact("submissions after the spinning kernel", count);
    report.fact("of which waited over 1 ms for room", waited);
    Ok(())
}

/// The kernel waits for word 0, and reports the value that it read in word 1.
fn word<'b>(flag: &'b PinnedBuffer<'_>, n: usize) -> &'b AtomicU32 {
    assert!(n * 4 < flag.len());
    // SAFETY: inside a page-aligned pinned buffer that lives as long as the reference; both sides use it as whole words, the GPU with volatile
    // accesses.
    unsafe { AtomicU32::from_ptr(flag.as_ptr().cast::<u32>().add(n)) }
}

//! A kernel that waits for a flag in pinned host memory, and far more submissions behind it than a ring has entries.
//!
//! Launches block when the queue is full, so another thread sets the flag after a while, whatever happens here.

use crate::data::{Random, check, to_bytes};
use crate::kernels::{Steps, module, step};
use crate::programs::read;
use crate::{Error, Options, Report, Result};
use cuda::{Argument, Context, DeviceBuffer, PinnedBuffer, Stream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const CELLS: usize = 1000;
const DELAY: Duration = Duration::from_millis(300);
/// A submission that took longer than this has waited for room.
const WAITED: Duration = Duration::from_millis(1);
/// Every so many submissions, one is a fill instead of a kernel.
const FILL_EVERY: u64 = 5;

pub(crate) fn run(context: &Context, options: &Options, report: &mut Report) -> Result<()> {
    let stream = Stream::new(context)?;
    let module = module(context)?;
    let cells = DeviceBuffer::new(context, CELLS * 4)?;
    let filled = DeviceBuffer::new(context, 4096)?;
    let flag = PinnedBuffer::new(context, 4096)?;
    let steps = Steps::new(&module, &cells)?;
    let spin = module.function("spin")?;
    let mut random = Random::new(options.seed);
    let mut expected = random.words(CELLS);

    // Everything that CUDA loads at its first use is loaded here: it could not be while the kernel spins.
    steps.launch(&stream, 0)?;
    stream.fill32(filled.slice(0, filled.len())?, 0)?;
    // SAFETY: the flag outlives the kernel: the stream is synchronised before `flag` is dropped, or CUDA waits there.
    let launch_spin =
        || unsafe { spin.launch([1, 1, 1], [1, 1, 1], 0, &stream, &[Argument::U64(flag.device_address()?)]) };
    set(&flag, 1);
    launch_spin()?;
    stream.synchronize()?;
    set(&flag, 0);
    cells.write(&to_bytes(&expected))?;

    let count = options.count_or(5_000);
    let (mut last_fill, mut waited) = (0, 0);
    let values: Vec<u32> = random.words(count as usize);
    std::thread::scope(|scope| {
        let setter = scope.spawn(|| {
            std::thread::sleep(DELAY);
            set(&flag, 1);
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
        setter.join().map_err(|_| Error::Panicked)?;
        Ok::<_, Error>(submitted?)
    })?;

    for (n, value) in (0u64..).zip(&values) {
        if n % FILL_EVERY != FILL_EVERY - 1 {
            step(&mut expected, *value);
        }
    }
    let got = read(&cells)?;
    check(|| format!("{count} submissions behind a spinning kernel"), &to_bytes(&expected), &got)?;
    report.add(&got);
    let got = read(&filled)?;
    check(|| "the last fill behind a spinning kernel".into(), &to_bytes(&[last_fill; 1024]), &got)?;
    report.add(&got);
    report.fact("submissions behind the spinning kernel", count);
    report.fact("of which waited over 1 ms for room", waited);
    Ok(())
}

fn set(flag: &PinnedBuffer<'_>, value: u32) {
    // SAFETY: the first word of a page-aligned pinned buffer; both sides use it as one word, the GPU with volatile loads.
    unsafe { AtomicU32::from_ptr(flag.as_ptr().cast()) }.store(value, Ordering::Release);
}

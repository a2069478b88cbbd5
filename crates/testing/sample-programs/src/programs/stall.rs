//! A thread launches a frame each millisecond while another one pins host memory: CUDA's lock holds the launches up. A doorbell channel does
//! not take that lock.

use crate::data::{check, to_bytes};
use crate::programs::graphs::{self, PastCuda};
use crate::programs::read;
use crate::{Launcher, Options, Report, Result};
use cuda::{Argument, Context, DeviceBuffer, Graph, PinnedBuffer, Stream};
use fastrand::Rng;
use launch::OnStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const FRAMES: u64 = 500;
const PERIOD: Duration = Duration::from_millis(1);
/// A frame that takes this long is late.
const LATE: Duration = Duration::from_millis(2);
/// Maximum number of launches before the frames: a first one, and those from which a graph is learnt.
const BEFORE: usize = 64;
const PINNED: usize = 256 << 20;
const BETWEEN: Duration = Duration::from_millis(60);

pub(crate) fn run(context: &Context, options: &Options, report: &mut Report) -> Result<()> {
    let over = AtomicBool::new(false);
    let (over, begun) = (&over, &AtomicBool::new(false));
    std::thread::scope(|scope| {
        // (A recording shows the names.)
        let frames = std::thread::Builder::new().name("frames".into());
        let frames = frames.spawn_scoped(scope, move || {
            let done = frames_of(context, options, begun);
            over.store(true, Ordering::Relaxed);
            begun.store(true, Ordering::Release);
            done
        });
        let pins = std::thread::Builder::new().name("pins".into());
        let pins = pins.spawn_scoped(scope, move || pin(context, begun, over));
        let frames = frames.map_err(crate::Error::Thread)?.join().unwrap_or(Err(crate::Error::Panicked));
        over.store(true, Ordering::Relaxed);
        let pinned = pins.map_err(crate::Error::Thread)?.join().unwrap_or(Err(crate::Error::Panicked))?;
        let frames = frames?;
        report.add(&frames.result);
        report.fact("thread of the frames", frames.thread);
        report.fact("frames", frames.count);
        report.fact("late frames", frames.late);
        report.fact("longest frame, us", frames.longest.as_micros() as u64);
        report.fact("pinned", pinned);
        Ok(())
    })
}

struct Frames {
    thread: u64,
    count: u64,
    late: u64,
    longest: Duration,
    result: Vec<u8>,
}

fn frames_of(context: &Context, options: &Options, begun: &AtomicBool) -> Result<Frames> {
    context.make_current()?;
    let (module, stream) = (graphs::logging(context)?, Stream::new(context)?);
    let function = module.function("log")?;
    let value = Rng::with_seed(options.seed).u32(..);
    let count = options.count_or(FRAMES);
    let out = DeviceBuffer::new(context, 4 * (count as usize + BEFORE + 1))?;
    out.write(&vec![0; out.len()])?;
    let arguments = [Argument::U64(out.address()), Argument::U32(value)];
    // SAFETY: the arguments are those of `log`, the buffer has a word for each launch, and outlives all of them, which are waited for.
    let graph = Graph::capture(&stream, || unsafe { function.launch([1; 3], [1; 3], 0, &stream, &arguments) })?;
    let exec = graph.instantiate()?;
    let by_cuda = || -> Result<()> {
        // SAFETY: as above.
        unsafe { exec.launch(&stream) }?;
        Ok(stream.synchronize()?)
    };
    let mut before = 0;
    let mut frames = Frames {
        // SAFETY: no arguments.
        thread: unsafe { libc::syscall(libc::SYS_gettid) } as u64,
        count,
        late: 0,
        longest: Duration::ZERO,
        result: Vec::new(),
    };
    match options.launcher {
        Launcher::Cuda => {
            // What CUDA loads at the first launch is no part of a frame.
            by_cuda()?;
            before += 1;
            frames.each(begun, by_cuda)?;
        }
        Launcher::Doorbell => {
            let mut past = PastCuda::open(context)?;
            // SAFETY: graph and stream live as long as this.
            let mut learnt = unsafe { OnStream::new(context, exec.handle(), stream.handle()) };
            // SAFETY: as for the capture.
            let mut graph = unsafe { past.learn_on(&mut learnt) }?;
            before += learnt.launched() as usize;
            frames.each(begun, || past.launch_and_wait(&mut graph))?;
        }
    }
    let launched = before + count as usize;
    let mut expected = vec![value; launched];
    expected.insert(0, launched as u32);
    let mut got = read(&out)?;
    got.truncate(4 * expected.len());
    check(|| "frames".into(), &to_bytes(&expected), &got)?;
    // (The same for each launcher.)
    frames.result = to_bytes(&vec![value; count as usize]);
    Ok(frames)
}

impl Frames {
    fn each(&mut self, begun: &AtomicBool, mut frame: impl FnMut() -> Result<()>) -> Result<()> {
        begun.store(true, Ordering::Release);
        let mut due = Instant::now();
        for _ in 0..self.count {
            due += PERIOD;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let start = Instant::now();
            frame()?;
            let took = start.elapsed();
            self.late += u64::from(took >= LATE);
            self.longest = self.longest.max(took);
            // A late frame delays the next ones, and does not bring them closer together.
            due = due.max(start);
        }
        Ok(())
    }
}

/// Pins memory and gives it back until the frames are over; how often.
fn pin(context: &Context, begun: &AtomicBool, over: &AtomicBool) -> Result<u64> {
    context.make_current()?;
    while !begun.load(Ordering::Acquire) {
        std::thread::sleep(PERIOD);
    }
    let mut times = 0;
    while !over.load(Ordering::Relaxed) {
        drop(PinnedBuffer::as_given(context, PINNED)?);
        times += 1;
        std::thread::sleep(BETWEEN);
    }
    Ok(times)
}

//! The measured loops: a channel on the software GPU, one prepared segment, one doorbell per iteration.
//!
//! `ring` measures the tap's own work. In `posted` the stores to GPFIFO and USERD take time to leave the core, as stores to a GPU do. Without a
//! GPU, only this loop shows whether the doorbell waits for them after the program's store.

use crate::launches::Launches;
use crate::{print, stay_on};
use anyhow::Context;
use gpu::{AddressSpace, Channel, ChannelOptions, Device, Engine, Pushbuffer};
use rm::driver::Libc;
use serde_json::{Map, Value, json};
use std::arch::x86_64::{_mm_clflush, _mm_mfence};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Instant;

/// Words of each entry's segment.
pub const DWORDS: usize = 64;
const WARM_UP: usize = 1000;
/// Iterations between pauses in which the GPU catches up.
const A_WAIT: usize = 128;
/// Offset of the page with GP_PUT after a channel's GPFIFO, and GP_PUT's offset there.
const USERD: usize = 0x2000;
const GP_PUT: usize = 0x8c;
const LINE: usize = 64;

/// Rings `count` times in each loop.
pub fn run(count: u32, cpu: Option<usize>) -> anyhow::Result<()> {
    stay_on(cpu)?;
    let device = Device::open(Arc::new(Libc), 0).context("the software GPU")?;
    let space = AddressSpace::new(&device)?;
    let mut channel = Channel::new(&space, Engine::Graphics, ChannelOptions::default())?;
    let target = space.alloc_host(4096)?;
    let mut words = Pushbuffer::new(&space, DWORDS)?;
    // An inline copy: 9 words of methods, and data.
    let data: Vec<u8> = (0..(DWORDS - 9) * 4).map(|i| (i * 37 + 11) as u8).collect();
    words.inline(target.va(), &data)?;
    anyhow::ensure!(words.len() == DWORDS, "the segment has {} words instead of {DWORDS}", words.len());
    let segment = words.validate(&channel)?;
    let mut submit = || channel.submit(&segment).map(drop);
    let ring = times(count as usize, || {}, &mut submit)?;
    let far = VideoMemory::of_this_process()?;
    let posted = times(count as usize, || far.forget(), &mut submit)?;
    let mut got = vec![0; data.len()];
    target.read(0, &mut got);
    anyhow::ensure!(got == data, "the copy's data did not arrive");
    let launches = RefCell::new(Launches::open(&space)?);
    let launch = times(count as usize, || launches.borrow_mut().write(), || launches.borrow_mut().submit())?;
    print(Map::from_iter(
        [("ring", ring), ("posted", posted), ("launch", launch)].map(|(name, ns)| (name.to_owned(), figures(ns))),
    ));
    Ok(())
}

/// Nanoseconds of each submission; `before` runs before each, outside the measured time.
fn times(
    count: usize,
    before: impl Fn(),
    mut submit: impl FnMut() -> Result<(), gpu::Error>,
) -> anyhow::Result<Vec<u64>> {
    let mut times = Vec::with_capacity(WARM_UP + count);
    while times.len() < WARM_UP + count {
        before();
        let begun = Instant::now();
        let submitted = submit();
        // ORDERING: after this fence the stores have left the core. A driver's unlock of its channel also waits for them, tapped or not.
        fence(Ordering::SeqCst);
        match submitted {
            Ok(_) => times.push(begun.elapsed().as_nanos() as u64),
            // The GPU lags, which is not measured.
            Err(gpu::Error::RingFull(_)) => std::thread::yield_now(),
            Err(e) => return Err(e.into()),
        }
        if times.len() % A_WAIT == 0 {
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
    }
    times.drain(..WARM_UP);
    times.sort_unstable();
    Ok(times)
}

fn figures(times: Vec<u64>) -> Value {
    let rank = |p: usize| times.get((times.len() * p).div_ceil(100).saturating_sub(1)).copied();
    // A clock may tick in steps of 10 ns: the median alone would hide smaller differences.
    let middle = times.get(times.len() / 4..times.len().div_ceil(4) * 3).unwrap_or(&times);
    let mean = middle.iter().sum::<u64>() as f64 / middle.len().max(1) as f64;
    json!({ "n": times.len(), "p50_ns": rank(50), "middle_ns": mean, "p99_ns": rank(99), "max_ns": times.last() })
}

/// Where the software GPU's memory is mapped here: the rings of its channels, with or without a tap.
struct VideoMemory(Vec<usize>);

impl VideoMemory {
    fn of_this_process() -> anyhow::Result<VideoMemory> {
        let maps = std::fs::read_to_string("/proc/self/maps")?;
        let at = maps.lines().filter_map(|line| {
            let mut fields = line.split_ascii_whitespace();
            let range = fields.next()?;
            let (rights, offset) = (fields.next()?, fields.next()?);
            let (from, to) = range.split_once('-')?;
            let from = usize::from_str_radix(from, 16).ok()?;
            let to = usize::from_str_radix(to, 16).ok()?;
            let whole = rights.starts_with("rw") && usize::from_str_radix(offset, 16) == Ok(0);
            (line.contains("softgpu-video") && whole && to - from > USERD).then_some(from)
        });
        let at: Vec<usize> = at.collect();
        anyhow::ensure!(!at.is_empty(), "the software GPU has no memory mapped");
        Ok(VideoMemory(at))
    }

    /// Evicts the channel's GPFIFO and GP_PUT from the caches, so that the next stores to them leave the core as late as stores to memory.
    fn forget(&self) {
        for at in &self.0 {
            for offset in (0..USERD).step_by(LINE).chain([USERD + GP_PUT]) {
                // SAFETY: a permanent mapping of this process; clflush does not change memory.
                unsafe { _mm_clflush((at + offset) as *const u8) };
            }
        }
        // ORDERING: the evictions are complete before the time begins. SAFETY: a fence.
        unsafe { _mm_mfence() };
    }
}

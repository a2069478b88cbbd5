//! The loop that is measured: a channel of our own on the software GPU, one prepared segment, one doorbell an iteration.

use crate::stay_on;
use anyhow::Context;
use gpu::{AddressSpace, Channel, ChannelOptions, Device, Engine, Pushbuffer};
use rm::driver::Libc;
use serde_json::json;
use std::sync::Arc;
use std::time::Instant;

/// Words of each entry's segment.
pub const DWORDS: usize = 64;
const WARM_UP: u32 = 1000;
/// Between pauses in which the GPU catches up.
const A_WAIT: usize = 128;

/// Rings `count` times and prints one line of JSON with the loop's times.
pub fn run(count: u32, cpu: Option<usize>) -> anyhow::Result<()> {
    if let Some(cpu) = cpu {
        stay_on(cpu)?;
    }
    let device = Device::open(Arc::new(Libc), 0).context("the software GPU")?;
    let space = AddressSpace::new(&device)?;
    let mut channel = Channel::new(&space, Engine::Graphics, ChannelOptions::default())?;
    let target = space.alloc_host(4096)?;
    let mut words = Pushbuffer::new(&space, DWORDS)?;
    // An inline copy: 9 words of methods, the rest data.
    let data: Vec<u8> = (0..(DWORDS - 9) * 4).map(|i| (i * 37 + 11) as u8).collect();
    words.inline(target.va(), &data)?;
    anyhow::ensure!(words.len() == DWORDS, "the segment has {} words instead of {DWORDS}", words.len());
    let segment = words.validate(&channel)?;
    let mut times = Vec::with_capacity(count as usize);
    while times.len() < (WARM_UP + count) as usize {
        let begun = Instant::now();
        match channel.submit(&segment) {
            Ok(_) => times.push(begun.elapsed().as_nanos() as u64),
            // The GPU lags: not what is measured.
            Err(gpu::Error::RingFull(_)) => std::thread::yield_now(),
            Err(e) => return Err(e.into()),
        }
        if times.len() % A_WAIT == 0 {
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
    }
    times.drain(..WARM_UP as usize);
    let mut got = vec![0; data.len()];
    target.read(0, &mut got);
    anyhow::ensure!(got == data, "the copy's data did not arrive");
    times.sort_unstable();
    let rank = |p: usize| times.get((times.len() * p).div_ceil(100).saturating_sub(1)).copied();
    let l = json!({ "n": times.len(), "p50_ns": rank(50), "p99_ns": rank(99), "max_ns": times.last() });
    println!("{}", json!({ "loops": { "ring": l } }));
    Ok(())
}

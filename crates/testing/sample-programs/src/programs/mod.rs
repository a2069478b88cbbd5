//! The programs, one file each, for a GPU with libcuda.

pub(crate) mod copies;
pub(crate) mod graphs;
pub(crate) mod launches;
pub(crate) mod stall;
pub(crate) mod starve;
pub(crate) mod storm;

use crate::{Error, Options, Report, Result};
use cuda::DeviceBuffer;
use std::time::Instant;

/// Reads all of a buffer back (`cuMemcpyDtoH`).
fn read(buffer: &DeviceBuffer<'_>) -> cuda::Result<Vec<u8>> {
    let mut bytes = vec![0; buffer.len()];
    buffer.read(&mut bytes)?;
    Ok(bytes)
}

/// Runs `work` on a thread for each lane, with a seed of its own, and adds the results in the order of the lanes.
pub(crate) fn side_by_side<L: Sync>(
    what: &str,
    lanes: &[L],
    options: &Options,
    report: &mut Report,
    work: impl Fn(&L, u64) -> Result<Vec<u8>> + Sync,
) -> Result<()> {
    let work = &work;
    let results = std::thread::scope(|scope| {
        let start = |(lane, n): (_, u64)| scope.spawn(move || work(lane, options.seed ^ (n + 1) << 32));
        let threads: Vec<_> = lanes.iter().zip(0..).map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or(Err(Error::Panicked))).collect::<Result<Vec<_>>>()
    })?;
    results.iter().for_each(|result| report.add(result));
    (options.progress)(&format!("{} threads on {what}", lanes.len()));
    Ok(())
}

/// Submissions between two readings of the clock.
const STRIDE: u64 = 256;

/// Calls `submit` until the count or the time that was requested, or without end. Returns how often, with a first one that the caller has made.
pub(crate) fn without_end(options: &Options, mut submit: impl FnMut() -> Result<()>) -> Result<u64> {
    let deadline = options.deadline(Instant::now())?;
    let mut made = 1;
    while options.count.is_none_or(|count| made < count) {
        if made % STRIDE == 0 && deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            break;
        }
        submit()?;
        made += 1;
    }
    Ok(made)
}

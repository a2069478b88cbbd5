//! The profiler's times of CUDA's copies of the same sizes (the paper's Table 2), for comparison with the raw times.
//!
//! In a separate run: CUPTI traces these copies and no other measured work.

use super::Direction;
use cuda::cupti::{CopyKind, Cupti, Memcpy};
use cuda::{Context, DeviceBuffer, PinnedBuffer, Stream, Unavailable};
use serde::Serialize;
use statistics::Summary;
use workload::Difference;

/// Copies of each size before the counted ones.
const WARM_UP: u32 = 10;

#[derive(Clone, Debug, Serialize)]
pub struct Reported {
    pub direction: Direction,
    pub bytes: u64,
    pub samples: u64,
    /// From start to end of the activity record, nanoseconds.
    pub p50_ns: u64,
    pub min_ns: u64,
    pub max_ns: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Cuda(#[from] cuda::Error),
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    #[error("the profiler reports {found} of {wanted} copies of {bytes} bytes")]
    Missing { bytes: u64, found: usize, wanted: u32 },
    #[error("{bytes} bytes by CUDA under the profiler: {difference}")]
    Data { bytes: u64, difference: Difference },
}

/// `samples` copies of each size and direction through pinned memory, each waited for.
pub fn run(cupti: &Cupti, context: &Context, sizes: &[u64], samples: u32, seed: u64) -> Result<Vec<Reported>, Error> {
    let mut random = fastrand::Rng::with_seed(seed);
    let room = sizes.iter().copied().max().unwrap_or(0) as usize;
    let mut host = PinnedBuffer::new(context, room)?;
    let device = DeviceBuffer::new(context, room)?;
    let stream = Stream::new(context)?;
    let mut all = Vec::new();
    for &bytes in sizes {
        for direction in [Direction::HostToDevice, Direction::DeviceToHost] {
            let length = bytes as usize;
            let mut data = vec![0; length];
            random.fill(&mut data);
            let mut moved = vec![0; length];
            if direction == Direction::HostToDevice {
                host.bytes_mut()[..length].copy_from_slice(&data);
            } else {
                device.write(&data)?;
            }
            let mut outcome = Ok(());
            let records = cupti.copies(|| {
                outcome = copies(&stream, &device, &mut host, length, direction, WARM_UP + samples);
            })?;
            outcome?;
            if direction == Direction::HostToDevice {
                device.read(&mut moved)?;
            } else {
                moved.copy_from_slice(&host.bytes()[..length]);
            }
            if let Some(difference) = Difference::between(&data, &moved, None) {
                return Err(Error::Data { bytes, difference });
            }
            all.push(reported(records, direction, bytes, samples)?);
        }
    }
    Ok(all)
}

fn copies(
    stream: &Stream<'_>,
    device: &DeviceBuffer<'_>,
    host: &mut PinnedBuffer<'_>,
    length: usize,
    direction: Direction,
    count: u32,
) -> cuda::Result<()> {
    for _ in 0..count {
        // SAFETY: the pinned buffer outlives the copy, which is waited for before any other access to it.
        unsafe {
            match direction {
                Direction::HostToDevice => stream.upload(device.slice(0, length)?, &host.bytes()[..length])?,
                Direction::DeviceToHost => {
                    stream.download(&mut host.bytes_mut()[..length], device.slice(0, length)?)?;
                }
            }
        }
        stream.synchronize()?;
    }
    Ok(())
}

/// The records of these copies in the order of their starts, without the warm-up.
fn reported(mut records: Vec<Memcpy>, direction: Direction, bytes: u64, samples: u32) -> Result<Reported, Error> {
    let kind = match direction {
        Direction::HostToDevice => CopyKind::HostToDevice,
        Direction::DeviceToHost => CopyKind::DeviceToHost,
    };
    // If it could not collect times, both are 0.
    records.retain(|record| record.kind == kind && record.bytes == bytes && record.duration().is_some());
    records.sort_by_key(|record| record.start);
    let mut taken: Vec<u64> = records.iter().skip(WARM_UP as usize).filter_map(Memcpy::duration).collect();
    let missing = Error::Missing { bytes, found: records.len(), wanted: WARM_UP + samples };
    let summary = Summary::of(&mut taken).filter(|s| s.count >= u64::from(samples)).ok_or(missing)?;
    Ok(Reported {
        direction,
        bytes,
        samples: summary.count,
        p50_ns: summary.p50,
        min_ns: summary.min,
        max_ns: summary.max,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: CopyKind, bytes: u64, start: u64, took: u64) -> Memcpy {
        Memcpy { kind, bytes, start, end: start + took }
    }

    #[test]
    fn the_warm_up_other_copies_and_other_ways_are_left_out() {
        let mut records: Vec<Memcpy> =
            (0..13).map(|n| record(CopyKind::HostToDevice, 8, 100 * n + 1, if n < 10 { 9000 } else { n })).collect();
        records.push(record(CopyKind::HostToDevice, 16, 5000, 1));
        records.push(record(CopyKind::DeviceToHost, 8, 5000, 1));
        records.reverse();
        let r = reported(records.clone(), Direction::HostToDevice, 8, 3).unwrap();
        assert_eq!((r.samples, r.min_ns, r.p50_ns, r.max_ns), (3, 10, 11, 12));
        let error = reported(records, Direction::HostToDevice, 8, 4).unwrap_err();
        assert_eq!(error.to_string(), "the profiler reports 13 of 14 copies of 8 bytes");
    }

    #[test]
    fn copies_without_times_do_not_count() {
        let mut records: Vec<Memcpy> = (0..12).map(|n| record(CopyKind::HostToDevice, 8, n + 1, 5)).collect();
        records[11] = Memcpy { kind: CopyKind::HostToDevice, bytes: 8, start: 0, end: 0 };
        assert!(reported(records, Direction::HostToDevice, 8, 2).is_err());
    }
}

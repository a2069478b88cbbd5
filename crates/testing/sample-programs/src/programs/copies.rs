//! Every size on every path: host to device, device to device, device to host, from pinned and from pageable memory, and
//! fills of bytes and words.

use crate::data::bytes as random_bytes;
use crate::{Options, Report, Result};
use cuda::{Context, DeviceBuffer, DeviceSlice, PinnedBuffer, Stream};
use fastrand::Rng;

/// Powers of two, the borders at which drivers change their method, and sizes that are no round numbers.
const SIZES: [usize; 21] = [
    4,
    8,
    13,
    64,
    256,
    1 << 10,
    4 << 10,
    (4 << 10) + 1,
    8 << 10,
    16 << 10,
    24 << 10,
    (24 << 10) + 4,
    32 << 10,
    64 << 10,
    (64 << 10) + 7,
    256 << 10,
    1 << 20,
    4 << 20,
    (4 << 20) - 3,
    16 << 20,
    64 << 20,
];
const LARGEST: usize = 64 << 20;

pub(crate) fn run(context: &Context, options: &Options, report: &mut Report) -> Result<()> {
    let stream = Stream::new(context)?;
    let all = DeviceBuffer::new(context, LARGEST)?;
    let other = DeviceBuffer::new(context, LARGEST)?;
    let mut pinned = PinnedBuffer::new(context, LARGEST)?;
    let mut pinned_back = PinnedBuffer::new(context, LARGEST)?;
    let mut pageable_back = vec![0; LARGEST];
    let mut random = Rng::with_seed(options.seed);
    let rounds = options.count_or(1);
    let (mut bytes, mut copies) = (0, 0);
    for _ in 0..rounds {
        for size in SIZES {
            let data = random_bytes(&mut random, size);
            let (there, beside) = (all.slice(0, size)?, other.slice(0, size)?);

            pinned.bytes_mut()[..size].copy_from_slice(&data);
            pinned_back.bytes_mut()[..size].fill(0);
            // SAFETY: both pinned buffers stay untouched until the stream has been synchronised.
            unsafe {
                stream.upload(there, &pinned.bytes()[..size])?;
                stream.copy(beside, there)?;
                stream.download(&mut pinned_back.bytes_mut()[..size], beside)?;
            }
            stream.synchronize()?;
            report.check(|| format!("{size} B from pinned memory and back"), &data, &pinned_back.bytes()[..size])?;

            let data = random_bytes(&mut random, size);
            let back = &mut pageable_back[..size];
            back.fill(0);
            // SAFETY: both vectors stay untouched until the stream has been synchronised.
            unsafe {
                stream.upload(there, &data)?;
                stream.copy(beside, there)?;
                stream.download(back, beside)?;
            }
            stream.synchronize()?;
            report.check(|| format!("{size} B from pageable memory and back"), &data, back)?;
            copies += 6;
            bytes += 6 * size as u64;

            let byte = random.u8(..);
            stream.fill8(there, byte)?;
            download(&stream, &mut pinned_back, there, size)?;
            let what = || format!("{size} B filled with {byte:#04x}");
            report.check(what, &vec![byte; size], &pinned_back.bytes()[..size])?;

            // Only whole words; for other sizes, the part that whole words cover.
            let size = size / 4 * 4;
            let word = random.u32(..);
            stream.fill32(all.slice(0, size)?, word)?;
            download(&stream, &mut pinned_back, all.slice(0, size)?, size)?;
            let expected = word.to_le_bytes().repeat(size / 4);
            report.check(|| format!("{size} B filled with {word:#010x}"), &expected, &pinned_back.bytes()[..size])?;
        }
    }
    report.fact("copies of random data", copies);
    report.fact("bytes copied", bytes);
    report.fact("fills", rounds * SIZES.len() as u64 * 2);
    Ok(())
}

/// Copies to the start of `to` and waits.
fn download(stream: &Stream<'_>, to: &mut PinnedBuffer<'_>, from: DeviceSlice<'_>, size: usize) -> Result<()> {
    // SAFETY: the pinned buffer stays untouched until the stream has been synchronised, which is now.
    unsafe { stream.download(&mut to.bytes_mut()[..size], from) }?;
    Ok(stream.synchronize()?)
}

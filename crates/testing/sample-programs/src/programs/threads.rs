//! Several threads that submit at once: eight on eight streams, then two on one stream. Each has its own memory, so the result does not depend on
//! their order.

use crate::data::{check, to_bytes, words};
use crate::kernels::module;
use crate::programs::side_by_side;
use crate::{Options, Report, Result};
use cuda::step::{self, Steps};
use cuda::{Context, DeviceBuffer, Module, PinnedBuffer, Stream};
use fastrand::Rng;

const CELLS: usize = 1024;
const THREADS: u64 = 8;
const SHARING: usize = 2;

pub(crate) fn run(context: &Context, options: &Options, report: &mut Report) -> Result<()> {
    let module = module(context)?;
    let rounds = options.count_or(200);
    let streams = (0..THREADS).map(|_| Stream::new(context)).collect::<cuda::Result<Vec<_>>>()?;
    let work = |stream: &&Stream<'_>, seed| worker(context, &module, stream, seed, rounds);
    side_by_side("streams of their own", &streams.iter().collect::<Vec<_>>(), options, report, work)?;
    side_by_side("one stream", &[&streams[0]; SHARING], options, report, work)?;
    report.fact("launches", rounds * (THREADS + SHARING as u64));
    report.fact("copies", rounds * (THREADS + SHARING as u64) * 2);
    Ok(())
}

/// Uploads cells, steps them, downloads them, and continues with the result.
fn worker(context: &Context, module: &Module<'_>, stream: &Stream<'_>, seed: u64, rounds: u64) -> Result<Vec<u8>> {
    context.make_current()?;
    let cells = DeviceBuffer::new(context, CELLS * 4)?;
    let steps = Steps::new(module, &cells)?;
    let mut host = PinnedBuffer::new(context, CELLS * 4)?;
    let mut random = Rng::with_seed(seed);
    let mut expected = words(&mut random, CELLS);
    host.bytes_mut().copy_from_slice(&to_bytes(&expected));
    for round in 0..rounds {
        let value = random.u32(..);
        let all = cells.slice(0, cells.len())?;
        // SAFETY: the pinned buffer stays untouched until the stream has been synchronised.
        unsafe {
            stream.upload(all, host.bytes())?;
            steps.launch(stream, value)?;
            stream.download(host.bytes_mut(), all)?;
        }
        stream.synchronize()?;
        step::on_cpu(&mut expected, value);
        check(|| format!("round {round} of a thread"), &to_bytes(&expected), host.bytes())?;
    }
    Ok(host.bytes().to_vec())
}

//! Several threads that submit at once: eight on eight streams, then two on one stream. Each has its own memory, so the result does not depend on
//! their order.

use crate::data::{Random, check, to_bytes};
use crate::kernels::module;
use crate::{Error, Options, Report, Result};
use cuda::step::{self, Steps};
use cuda::{Context, DeviceBuffer, Module, PinnedBuffer, Stream};

const CELLS: usize = 1024;
const THREADS: u64 = 8;
const SHARING: u64 = 2;

pub(crate) fn run(context: &Context, options: &Options, report: &mut Report) -> Result<()> {
    let module = module(context)?;
    let rounds = options.count_or(200);
    let streams = (0..THREADS).map(|_| Stream::new(context)).collect::<cuda::Result<Vec<_>>>()?;
    let own: Vec<&Stream<'_>> = streams.iter().collect();
    let shared: Vec<&Stream<'_>> = streams.iter().take(1).cycle().take(SHARING as usize).collect();
    for (what, streams) in [("streams of their own", own), ("one stream", shared)] {
        let results = std::thread::scope(|scope| {
            let threads: Vec<_> = (0u64..)
                .zip(&streams)
                .map(|(n, stream)| {
                    let (module, seed) = (&module, options.seed ^ (n + 1) << 32);
                    scope.spawn(move || worker(context, module, stream, seed, rounds))
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or(Err(Error::Panicked)))
                .collect::<Result<Vec<Vec<u8>>>>()
        })?;
        results.iter().for_each(|result| report.add(result));
        (options.progress)(&format!("{} threads on {what}: {rounds} rounds each", results.len()));
    }
    report.fact("launches", rounds * (THREADS + SHARING));
    report.fact("copies", rounds * (THREADS + SHARING) * 2);
    Ok(())
}

/// Uploads cells, steps them, downloads them, and continues with the result.
fn worker(context: &Context, module: &Module<'_>, stream: &Stream<'_>, seed: u64, rounds: u64) -> Result<Vec<u8>> {
    context.make_current()?;
    let cells = DeviceBuffer::new(context, CELLS * 4)?;
    let steps = Steps::new(module, &cells)?;
    let mut host = PinnedBuffer::new(context, CELLS * 4)?;
    let mut random = Random::new(seed);
    let mut expected = random.words(CELLS);
    host.bytes_mut().copy_from_slice(&to_bytes(&expected));
    for round in 0..rounds {
        let value = random.next32();
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

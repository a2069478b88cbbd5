//! Contexts and streams that are created and destroyed. A context has its own channels and destroys them with itself; work runs in one while others
//! are made and destroyed.

use crate::data::{check, to_bytes, words};
use crate::kernels::module;
use crate::{Options, Report, Result};
use cuda::step::{self, Steps};
use cuda::{Context, DeviceBuffer, Event, PinnedBuffer, Stream};
use fastrand::Rng;

const CELLS: usize = 1024;
const STREAMS: usize = 4;

pub(crate) fn run(context: &Context, options: &Options, report: &mut Report) -> Result<()> {
    let contexts = options.count_or(6);
    let mut random = Rng::with_seed(options.seed);
    for n in 0..contexts {
        report.add(&once(context, &mut random, n)?);
        let passing = context.device().new_context()?;
        let result = once(&passing, &mut random, n);
        drop(passing);
        context.make_current()?;
        report.add(&result?);
    }
    report.fact("contexts", contexts);
    report.fact("streams", contexts * 2 * STREAMS as u64);
    Ok(())
}

/// Streams that each start where the one before them ended, ordered only by events.
fn once(context: &Context, random: &mut Rng, n: u64) -> Result<Vec<u8>> {
    let module = module(context)?;
    let cells = DeviceBuffer::new(context, CELLS * 4)?;
    let steps = Steps::new(&module, &cells)?;
    let mut host = PinnedBuffer::new(context, CELLS * 4)?;
    let mut expected = words(random, CELLS);
    host.bytes_mut().copy_from_slice(&to_bytes(&expected));
    for _ in 0..STREAMS {
        let stream = Stream::new(context)?;
        let done = Event::new(context)?;
        let value = random.u32(..);
        let all = cells.slice(0, cells.len())?;
        // SAFETY: the pinned buffer stays untouched until the event, which is the stream's last work.
        unsafe {
            stream.upload(all, host.bytes())?;
            steps.launch(&stream, value)?;
            stream.download(host.bytes_mut(), all)?;
        }
        done.record(&stream)?;
        done.synchronize()?;
        step::on_cpu(&mut expected, value);
        check(|| format!("a stream of context {n}"), &to_bytes(&expected), host.bytes())?;
    }
    Ok(host.bytes().to_vec())
}

//! The loops that a recorder's overhead is measured with: CPU time of each iteration's calls, and results that are checked
//! like any other.

use crate::data::{Random, check, to_bytes};
use crate::kernels::module;
use crate::programs::read;
use crate::report::Loop;
use crate::{Options, Report, Result};
use cuda::step::{self, Steps};
use cuda::{Context, DeviceBuffer, Graph, PinnedBuffer, Stream};
use std::time::Instant;

const CELLS: usize = 128;
const NODES: usize = 100;
const COPY: usize = 4096;
const WARM_UP: u64 = 200;
/// Waits between launches keep the queue from filling, because waiting for room should not be measured.
const LAUNCHES_A_WAIT: u64 = 256;
const GRAPHS_A_WAIT: u64 = 8;
/// Graph launches are this many times rarer: each runs 100 kernels.
const GRAPH_SHARE: u64 = 5;

pub(crate) fn run(context: &Context, options: &Options, report: &mut Report) -> Result<()> {
    let stream = Stream::new(context)?;
    let module = module(context)?;
    let cells = DeviceBuffer::new(context, CELLS * 4)?;
    let steps = Steps::new(&module, &cells)?;
    let mut random = Random::new(options.seed);
    let count = options.count_or(5_000).max(1);

    let mut expected = random.words(CELLS);
    cells.write(&to_bytes(&expected))?;
    let value = random.next32();
    let times = timed(count, LAUNCHES_A_WAIT, &stream, || steps.launch(&stream, value))?;
    (0..count + WARM_UP).for_each(|_| step::on_cpu(&mut expected, value));
    finish("launch", times, &expected, &cells, report)?;

    let values = random.words(NODES);
    let graph = Graph::capture(&stream, || values.iter().try_for_each(|value| steps.launch(&stream, *value)))?;
    let exec = graph.instantiate()?;
    let count_graphs = count.div_ceil(GRAPH_SHARE);
    // SAFETY: the cells live until after the stream has been synchronised.
    let times = timed(count_graphs, GRAPHS_A_WAIT, &stream, || unsafe { exec.launch(&stream) })?;
    for _ in 0..count_graphs + WARM_UP {
        values.iter().for_each(|value| step::on_cpu(&mut expected, *value));
    }
    finish("graph", times, &expected, &cells, report)?;

    let target = DeviceBuffer::new(context, COPY)?;
    let mut host = PinnedBuffer::new(context, COPY)?;
    random.fill(host.bytes_mut());
    let to = target.slice(0, COPY)?;
    let times = timed(count, u64::MAX, &stream, || {
        // SAFETY: the pinned buffer is not written from here on.
        unsafe { stream.upload(to, host.bytes()) }?;
        stream.synchronize()
    })?;
    let got = read(&target)?;
    check(|| "the last 4 KiB copy".into(), host.bytes(), &got)?;
    report.add(&got);
    report.loops.extend(Loop::from_times(times).map(|times| ("copy_sync", times)));
    Ok(())
}

/// Calls `submit` some times to warm up and `count` times against the clock. The stream is waited for after every
/// `a_wait` calls, outside of the times, and at the end.
fn timed(
    count: u64,
    a_wait: u64,
    stream: &Stream<'_>,
    mut submit: impl FnMut() -> cuda::Result<()>,
) -> Result<Vec<u64>> {
    let mut times = Vec::with_capacity(usize::try_from(count).unwrap_or(0));
    for n in 0..WARM_UP + count {
        if n % a_wait == 0 {
            stream.synchronize()?;
        }
        let start = Instant::now();
        submit()?;
        let time = start.elapsed();
        if n >= WARM_UP {
            times.push(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        }
    }
    stream.synchronize()?;
    Ok(times)
}

fn finish(
    name: &'static str,
    times: Vec<u64>,
    expected: &[u32],
    cells: &DeviceBuffer<'_>,
    report: &mut Report,
) -> Result<()> {
    let got = read(cells)?;
    check(|| format!("the loop {name}"), &to_bytes(expected), &got)?;
    report.add(&got);
    report.loops.extend(Loop::from_times(times).map(|times| (name, times)));
    Ok(())
}

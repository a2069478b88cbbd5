//! Graphs of 1, 10 and 100 kernels that depend on each other, launched again and again without a wait between.

use crate::data::{Random, check, to_bytes};
use crate::kernels::module;
use crate::programs::read;
use crate::{Options, Report, Result};
use cuda::step::{self, Steps};
use cuda::{Context, DeviceBuffer, Graph, Stream};

const NODES: [usize; 3] = [1, 10, 100];
const CELLS: usize = 1000;

pub(crate) fn run(context: &Context, options: &Options, report: &mut Report) -> Result<()> {
    let stream = Stream::new(context)?;
    let module = module(context)?;
    let cells = DeviceBuffer::new(context, CELLS * 4)?;
    let steps = Steps::new(&module, &cells)?;
    let mut random = Random::new(options.seed);
    let times = options.count_or(50);
    for nodes in NODES {
        let mut expected = random.words(CELLS);
        cells.write(&to_bytes(&expected))?;
        let values = random.words(nodes);
        let graph = Graph::capture(&stream, || values.iter().try_for_each(|value| steps.launch(&stream, *value)))?;
        let exec = graph.instantiate()?;
        for _ in 0..times {
            // SAFETY: the cells live until after the stream has been synchronised.
            unsafe { exec.launch(&stream) }?;
        }
        stream.synchronize()?;
        for _ in 0..times {
            values.iter().for_each(|value| step::on_cpu(&mut expected, *value));
        }
        let got = read(&cells)?;
        check(|| format!("graph of {nodes} kernels, launched {times} times"), &to_bytes(&expected), &got)?;
        report.add(&got);
    }
    report.fact("graph launches", times * NODES.len() as u64);
    report.fact("kernels in them", times * NODES.iter().sum::<usize>() as u64);
    Ok(())
}

//! Launches without end or wait, for recordings that are to be cut off. Every launch writes the same, so the result does
//! not depend on how many there were.

use crate::data::to_bytes;
use crate::kernels::{cells, module};
use crate::programs::{read, without_end};
use crate::{Options, Report, Result};
use cuda::{Argument, Context, DeviceBuffer, Stream};
use fastrand::Rng;

const GRID: [u32; 3] = [4, 1, 1];
const BLOCK: [u32; 3] = [64, 1, 1];

pub(crate) fn run(context: &Context, options: &Options, report: &mut Report) -> Result<()> {
    let stream = Stream::new(context)?;
    let module = module(context)?;
    let function = module.function("cells")?;
    let key = Rng::with_seed(options.seed).u32(..);
    let expected = to_bytes(&cells(GRID, BLOCK, key, true));
    let out = DeviceBuffer::new(context, expected.len())?;
    let arguments = [Argument::U64(out.address()), Argument::U32(key), Argument::U32(1)];
    // SAFETY: the arguments are those of `cells`, the buffer has a word for each thread, and dropping it waits.
    let launch = || unsafe { function.launch(GRID, BLOCK, 256, &stream, &arguments) };
    launch()?;
    stream.synchronize()?;
    (options.progress)("storm: launching");

    let launches = without_end(options, || Ok(launch()?))?;
    stream.synchronize()?;
    report.check(|| format!("{launches} launches"), &expected, &read(&out)?)?;
    report.fact("launches", launches);
    Ok(())
}

//! Launches without end or wait, for recordings that are to be cut off. Every launch writes the same, so the result does
//! not depend on how many there were.

use crate::data::{Random, check, to_bytes};
use crate::kernels::{cells, module};
use crate::programs::read;
use crate::{Options, Report, Result};
use cuda::{Argument, Context, DeviceBuffer, Stream};
use std::time::Instant;

const GRID: [u32; 3] = [4, 1, 1];
const BLOCK: [u32; 3] = [64, 1, 1];
/// Launches between two readings of the clock.
const STRIDE: u64 = 256;

pub(crate) fn run(context: &Context, options: &Options, report: &mut Report) -> Result<()> {
    let stream = Stream::new(context)?;
    let module = module(context)?;
    let function = module.function("cells")?;
    let expected = to_bytes(&cells(GRID, BLOCK, Random::new(options.seed).next32(), true));
    let out = DeviceBuffer::new(context, expected.len())?;
    let key = Random::new(options.seed).next32();
    let arguments = [Argument::U64(out.address()), Argument::U32(key), Argument::U32(1)];
    // SAFETY: the arguments are those of `cells`, the buffer has a word for each thread, and dropping it waits.
    let launch = || unsafe { function.launch(GRID, BLOCK, 256, &stream, &arguments) };
    launch()?;
    stream.synchronize()?;
    (options.progress)("storm: launching");

    let deadline = options.deadline(Instant::now())?;
    let mut launches = 1;
    while options.count.is_none_or(|count| launches < count) {
        if launches % STRIDE == 0 && deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            break;
        }
        launch()?;
        launches += 1;
    }
    stream.synchronize()?;
    let got = read(&out)?;
    check(|| format!("{launches} launches"), &expected, &got)?;
    report.add(&got);
    report.fact("launches", launches);
    Ok(())
}

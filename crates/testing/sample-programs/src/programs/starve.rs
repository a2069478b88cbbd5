//! One thread creates streams while others launch. libcuda's cuStreamCreate takes a rwlock for writing that every launch takes for reading; glibc's
//! rwlock prefers readers, so with enough launching threads no stream is ever created.

use crate::data::{check, to_bytes};
use crate::kernels::{cells, module};
use crate::programs::read;
use crate::starving::{Turn, starve};
use crate::{Options, Report, Result};
use cuda::{Argument, Context, DeviceBuffer, Module, Stream};
use fastrand::Rng;

const GRID: [u32; 3] = [1, 1, 1];
const BLOCK: [u32; 3] = [32, 1, 1];
/// Launches between two waits: a stream takes about a thousand before a launch waits for the GPU.
const STRIDE: u64 = 256;

pub(crate) fn run(context: &Context, options: &Options, report: &mut Report) -> Result<()> {
    let module = module(context)?;
    let create = || {
        Stream::new(context)?;
        Ok(())
    };
    starve(options, report, create, |n, turn| launches(context, &module, options.seed ^ (n + 1) << 32, turn))
}

/// Launches until the turn ends, and returns what the kernel wrote.
fn launches(context: &Context, module: &Module<'_>, seed: u64, turn: &Turn<'_>) -> Result<Vec<u8>> {
    context.make_current()?;
    let stream = Stream::new(context)?;
    let function = module.function("cells")?;
    let key = Rng::with_seed(seed).u32(..);
    let expected = to_bytes(&cells(GRID, BLOCK, key, true));
    let out = DeviceBuffer::new(context, expected.len())?;
    let arguments = [Argument::U64(out.address()), Argument::U32(key), Argument::U32(1)];
    turn.ready();
    let mut n = 0;
    while n == 0 || turn.goes_on() {
        // SAFETY: the arguments are those of `cells`, the buffer has a word for each thread, and dropping it waits.
        unsafe { function.launch(GRID, BLOCK, 128, &stream, &arguments) }?;
        n += 1;
        if n % STRIDE == 0 {
            stream.synchronize()?;
        }
    }
    stream.synchronize()?;
    let got = read(&out)?;
    check(|| format!("{n} launches of a thread"), &expected, &got)?;
    Ok(got)
}

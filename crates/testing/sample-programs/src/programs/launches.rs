//! Kernels of several shapes: one word for each thread shows that every thread of every block ran with the right indices and its block's own shared
//! memory.

use crate::data::to_bytes;
use crate::kernels::{cells, module};
use crate::programs::read;
use crate::{Options, Report, Result};
use cuda::{Argument, Context, DeviceBuffer, Stream};
use fastrand::Rng;

/// Grid, block, bytes of dynamic shared memory (none, or at least a word for each thread).
type Shape = ([u32; 3], [u32; 3], u32);

const SHAPES: [Shape; 10] = [
    ([1, 1, 1], [1, 1, 1], 0),
    ([1, 1, 1], [32, 1, 1], 128),
    ([7, 1, 1], [96, 1, 1], 0),
    ([64, 1, 1], [256, 1, 1], 1024),
    ([5, 3, 2], [8, 4, 2], 256),
    ([132, 1, 1], [1024, 1, 1], 4096),
    ([3, 2, 1], [16, 16, 1], 48 << 10),
    ([1, 1, 7], [4, 4, 4], 16 << 10),
    ([1, 9, 1], [1, 33, 1], 132),
    ([4096, 1, 1], [64, 1, 1], 0),
];

fn threads((grid, block, _): &Shape) -> usize {
    grid.iter().chain(block).map(|n| *n as usize).product()
}

pub(crate) fn run(context: &Context, options: &Options, report: &mut Report) -> Result<()> {
    let stream = Stream::new(context)?;
    let module = module(context)?;
    let function = module.function("cells")?;
    let mut random = Rng::with_seed(options.seed);
    let each = options.count_or(10);
    for shape in &SHAPES {
        let (grid, block, shared) = *shape;
        let out = DeviceBuffer::new(context, threads(shape) * 4)?;
        for _ in 0..each {
            let key = random.u32(..);
            let arguments = [Argument::U64(out.address()), Argument::U32(key), Argument::U32(u32::from(shared != 0))];
            // SAFETY: the arguments are those of `cells`, and the buffer has a word for each thread.
            unsafe { function.launch(grid, block, shared, &stream, &arguments) }?;
            stream.synchronize()?;
            let expected = to_bytes(&cells(grid, block, key, shared != 0));
            report.check(|| format!("grid {grid:?}, block {block:?}, {shared} B shared"), &expected, &read(&out)?)?;
        }
    }
    report.fact("launches", each * SHAPES.len() as u64);
    report.fact("shapes", SHAPES.len() as u64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_is_one_that_any_gpu_can_run() {
        for shape in &SHAPES {
            let (_, block, shared) = shape;
            let threads: u32 = block.iter().product();
            assert!(threads <= 1024 && *shared <= 48 << 10, "{shape:?}");
            assert!(*shared == 0 || *shared >= threads * 4, "{shape:?}");
        }
    }
}

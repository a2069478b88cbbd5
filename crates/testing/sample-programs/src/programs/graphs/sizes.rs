//! Kernels that differ in their launch parameters: grids, frames, shared memory, clusters, parameters, attributes.

use super::capture::Maker;
use super::kernels::{Code, FRAMES, TURN, WIDE, frame_on_cpu, on};
use super::{Made, Shape, shape};
use crate::Result;
use crate::data::to_bytes;
use cuda::Launch;

/// Grid, block, bytes of dynamic shared memory.
const GRIDS: [([u32; 3], [u32; 3], u32); 6] = [
    ([1, 1, 1], [1, 1, 1], 0),
    ([7, 1, 1], [96, 1, 1], 0),
    ([5, 3, 2], [8, 4, 2], 256),
    ([1, 1, 7], [4, 4, 4], 1024),
    ([1, 9, 1], [1, 33, 1], 132),
    ([300, 1, 1], [64, 1, 1], 0),
];
/// Blocks of kernels that work on cells.
const BLOCKS: u32 = 4;
const CELLS: usize = (BLOCKS * TURN) as usize;

pub(super) fn shapes() -> Vec<Shape> {
    let frames = FRAMES.map(|words| shape(format!("frame-{}", 4 * words), move |m| frames(m, words)));
    let dynamic = [16u32, 48, 96, 200].map(|kib| shape(format!("shared-{kib}KiB"), move |m| reach(m, kib << 10)));
    let clusters = [2, 8].map(|blocks| shape(format!("cluster-{blocks}"), move |m| clusters(m, blocks)));
    let plain = Launch::new([4, 1, 1], [32, 1, 1]);
    let cooperative = Launch { cooperative: true, ..plain };
    let programmatic = Launch { programmatic: true, ..plain };
    let others = [
        shape("shared-static", turn),
        shape("grids", grids),
        shape("parameters-4", small),
        shape("parameters-4096", wide),
        shape("cooperative", move |m| attributes(m, Code::Plain, "log", cooperative)),
        shape("programmatic", move |m| attributes(m, Code::Newer, "log_early", programmatic)),
    ];
    frames.into_iter().chain(dynamic).chain(clusters).chain(others).collect()
}

fn cells() -> Launch {
    Launch::new([BLOCKS, 1, 1], [TURN, 1, 1])
}

fn frames<'c>(m: &Maker<'c>, words: u32) -> Result<Made<'c>> {
    let (place, name) = (m.take(4 * CELLS)?, format!("frame_{words}"));
    m.need(&[(Code::Sizes, &name)], 1)?;
    let part = m.capture(|| {
        (0..2).try_for_each(|_| {
            let value = m.value();
            let others: [&[u8]; 2] = [&(CELLS as u32).to_le_bytes(), &value.to_le_bytes()];
            m.at((Code::Sizes, &name), &cells(), place, &others, move |model| {
                model.each(place, CELLS, |_, cell| frame_on_cpu(cell, words, value));
            })
        })
    })?;
    Ok(part.into())
}

/// Cells go to their neighbours in the block; twice, so that the order counts.
fn turned<'c>(m: &Maker<'c>, name: &str, launch: &Launch, offset: Option<u32>) -> Result<Made<'c>> {
    m.need(&[(Code::Sizes, name)], 1)?;
    let place = m.take(4 * CELLS)?;
    let part = m.capture(|| {
        (0..2).try_for_each(|_| {
            let (value, offset) = (m.value(), offset.map(u32::to_le_bytes));
            let value_bytes = value.to_le_bytes();
            let others: Vec<&[u8]> =
                std::iter::once(&value_bytes[..]).chain(offset.iter().map(|bytes| &bytes[..])).collect();
            m.at((Code::Sizes, name), launch, place, &others, move |model| {
                let was: Vec<u32> = (0..CELLS).map(|i| model.word(place, i)).collect();
                let neighbour = |i: usize| i / TURN as usize * TURN as usize + (i + 1) % TURN as usize;
                model.each(place, CELLS, |i, _| on(was[neighbour(i)], value));
            })
        })
    })?;
    Ok(part.into())
}

fn turn<'c>(m: &Maker<'c>) -> Result<Made<'c>> {
    turned(m, "turn", &cells(), None)
}

/// Uses the last bytes of the dynamic shared memory.
fn reach<'c>(m: &Maker<'c>, bytes: u32) -> Result<Made<'c>> {
    if bytes > 48 << 10 {
        m.function(Code::Sizes, "reach")?.allow_shared(bytes)?;
    }
    turned(m, "reach", &Launch { shared_bytes: bytes, ..cells() }, Some(bytes - 4 * TURN))
}

fn clusters<'c>(m: &Maker<'c>, blocks: u32) -> Result<Made<'c>> {
    let launch = Launch { cluster: Some([blocks, 1, 1]), ..Launch::new([2 * blocks, 1, 1], [32, 1, 1]) };
    m.need(&[(Code::Newer, "cluster")], 1)?;
    let n = 2 * blocks as usize * 32;
    let place = m.take(4 * n)?;
    let part = m.capture(|| {
        (0..2).try_for_each(|_| {
            let value = m.value();
            m.at((Code::Newer, "cluster"), &launch, place, &[&value.to_le_bytes()], move |model| {
                model.each(place, n, |i, cell| on(cell, value).wrapping_add(i as u32 / 32 % blocks));
            })
        })
    })?;
    Ok(part.into())
}

/// All of [`GRIDS`], in one chain.
fn grids<'c>(m: &Maker<'c>) -> Result<Made<'c>> {
    let threads = |(grid, block, _): &([u32; 3], [u32; 3], u32)| grid.iter().chain(block).product::<u32>() as usize;
    m.need(&[(Code::Cells, "cells")], 1)?;
    let most = GRIDS.iter().map(threads).max().unwrap_or(0);
    let (place, out) = (m.take(4 * most)?, m.take(4 * most * GRIDS.len())?);
    let part = m.capture(|| {
        for (number, of) in GRIDS.iter().enumerate() {
            let ((grid, block, shared), key, words) = (*of, m.value(), threads(of));
            let launch = Launch { shared_bytes: shared, ..Launch::new(grid, block) };
            let others: [&[u8]; 2] = [&key.to_le_bytes(), &u32::from(shared != 0).to_le_bytes()];
            m.at((Code::Cells, "cells"), &launch, place, &others, move |model| {
                let found = to_bytes(&crate::kernels::cells(grid, block, key, shared != 0));
                model.bytes(place.first(4 * words)).copy_from_slice(&found);
            })?;
            m.copy(0, out.part(4 * most * number, 4 * most), place)?;
        }
        Ok(())
    })?;
    Ok(part.into())
}

/// Four bytes of parameters: the memory's addresses are only in the code.
fn small<'c>(m: &Maker<'c>) -> Result<Made<'c>> {
    m.need(&[(Code::Sizes, "small"), (Code::Sizes, "small_out")], 1)?;
    let (out, value) = (m.take(4)?, m.value());
    let mut cell = 0;
    let launch = Launch::new([1; 3], [1; 3]);
    let part = m.capture(|| {
        m.kernel((Code::Sizes, "small"), &launch, 0, &[&value.to_le_bytes()], |_| {})?;
        m.at((Code::Sizes, "small_out"), &launch, out, &[], move |model| {
            cell = on(cell, value);
            model.set(out, 0, cell);
        })
    })?;
    Ok(part.into())
}

fn wide<'c>(m: &Maker<'c>) -> Result<Made<'c>> {
    m.need(&[(Code::Sizes, "wide")], 1)?;
    let place = m.take(4 * WIDE)?;
    let part = m.capture(|| {
        (0..2).try_for_each(|_| {
            let words: Vec<u32> = (0..WIDE).map(|_| m.value()).collect();
            let mut all = m.memory.address(place).to_le_bytes().to_vec();
            all.extend((WIDE as u32).to_le_bytes());
            all.extend(to_bytes(&words));
            let launch = Launch::new([8, 1, 1], [128, 1, 1]);
            m.kernel((Code::Sizes, "wide"), &launch, 0, &[&all], move |model| {
                model.each(place, WIDE, |i, cell| on(cell, words[i]));
            })
        })
    })?;
    Ok(part.into())
}

/// A chain of three, each launched so.
fn attributes<'c>(m: &Maker<'c>, code: Code, name: &str, launch: Launch) -> Result<Made<'c>> {
    m.need(&[(code, name)], 1)?;
    let log = m.take_log(3)?;
    Ok(m.capture(|| (0..3).try_for_each(|_| m.log_as((code, name), &launch, 0, log, m.value())))?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_grid_is_one_that_any_gpu_can_run() {
        for (grid, block, shared) in GRIDS {
            let threads: u32 = block.iter().product();
            assert!(threads <= 1024 && grid.iter().all(|n| *n > 0) && (shared == 0 || shared >= 4 * threads));
        }
    }
}

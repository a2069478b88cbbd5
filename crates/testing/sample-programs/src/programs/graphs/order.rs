//! Kernels in every order: chains, fans, forks.

use super::capture::{HEAD, Maker};
use super::memory::Place;
use super::{Made, Play, Shape, shape};
use crate::Result;

const CHAINS: [usize; 4] = [2, 10, 100, 2000];
const FANS: [usize; 3] = [2, 8, 40];

pub(super) fn shapes() -> Vec<Shape> {
    let chains = CHAINS.map(|kernels| shape(format!("chain-{kernels}"), move |m| chain(m, kernels)));
    let out = FANS.map(|branches| shape(format!("fan-out-{branches}"), move |m| fan(m, branches, true, false)));
    let into = FANS.map(|branches| shape(format!("fan-in-{branches}"), move |m| fan(m, branches, false, true)));
    let others = [
        shape("diamond", |m| fan(m, 2, true, true)),
        shape("fork", |m| forks(m, &[2])),
        shape("fork-3", |m| forks(m, &[3])),
        shape("forks-2", |m| forks(m, &[2, 2])),
        shape("queued", |m| Ok(Made { play: Play::Queued, ..chain(m, 10)? })),
    ];
    std::iter::once(shape("one", |m| chain(m, 1))).chain(chains).chain(out).chain(into).chain(others).collect()
}

/// Kernels one after the other.
fn chain<'c>(m: &Maker<'c>, kernels: usize) -> Result<Made<'c>> {
    let log = m.take_log(kernels)?;
    Ok(m.capture(|| (0..kernels).try_for_each(|_| m.log(0, log, m.value())))?.into())
}

/// Parallel kernels; optionally one before them whose entry they copy, and one after them that copies their results.
fn fan<'c>(m: &Maker<'c>, branches: usize, before: bool, behind: bool) -> Result<Made<'c>> {
    m.need(&[], branches)?;
    let (log, all, out) = (m.take_log(1)?, m.take(branches * HEAD)?, m.take(branches * HEAD)?);
    let part = m.capture(|| {
        if before {
            m.log(0, log, m.value())?;
        }
        (1..branches).try_for_each(|stream| m.after(stream, 0))?;
        (0..branches).try_for_each(|stream| m.copy(stream, branch(all, stream), log.first(HEAD)))?;
        (1..branches).try_for_each(|stream| m.after(0, stream))?;
        if behind { m.copy(0, out, all) } else { Ok(()) }
    })?;
    Ok(part.into())
}

/// For each number: a fork to this many streams, each with its own chain, and their join.
fn forks<'c>(m: &Maker<'c>, widths: &[usize]) -> Result<Made<'c>> {
    const EACH: usize = 3;
    let log = m.take_log(2 * widths.len())?;
    let most = widths.iter().copied().max().unwrap_or(1);
    m.need(&[], most)?;
    let logs = (0..most).map(|_| m.take_log(EACH * widths.len())).collect::<Result<Vec<Place>>>()?;
    let out = m.take(most * HEAD)?;
    let part = m.capture(|| {
        for width in widths {
            m.log(0, log, m.value())?;
            (1..*width).try_for_each(|stream| m.after(stream, 0))?;
            for (stream, its) in logs.iter().enumerate().take(*width) {
                (0..EACH).try_for_each(|_| m.log(stream, *its, m.value()))?;
            }
            (1..*width).try_for_each(|stream| m.after(0, stream))?;
            for (stream, its) in logs.iter().enumerate().take(*width) {
                m.copy(0, branch(out, stream), its.first(HEAD))?;
            }
            m.log(0, log, m.value())?;
        }
        Ok(())
    })?;
    Ok(part.into())
}

fn branch(all: Place, number: usize) -> Place {
    all.part(number * HEAD, HEAD)
}

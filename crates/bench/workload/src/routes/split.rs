//! One transfer by several copy engines. `split` uses asynchronous engines that share no physical engine, `split[engines=3+4]`
//! uses those two. The bytes are split into one piece for each engine, at page boundaries of the destination. A submission rings
//! each channel, and the transfer is done when all pieces are.
//!
//! If a channel refuses its piece, earlier pieces are already on their way. The submission then returns an error, and a repeated
//! submission moves all pieces again.

use super::channel::{self, Own};
use crate::buffer::Buffer;
use crate::ends::{Ends, between_gpus, both_ways, seat};
use crate::error::Error;
use crate::executor::{Executor, Transfer};
use crate::inspect::Inspect;
use crate::machine::Machine;
use crate::routes::entry::{Entry, Found};
use crate::spec::{self, Spec, Word};
use gpu::{Channel, CopyMode, Engine, Prepared};
use machine::Unavailable;
use std::ops::Range;
use std::time::{Duration, Instant};

const ENGINES: &str = "engines=";
const PAGE: u64 = 0x1000;
/// Engines for one transfer, if they are not named.
const DEFAULT: usize = 2;

pub(crate) const ENTRY: Entry = Entry {
    word: Word { name: "split", numbered: false, options: &[ENGINES] },
    about: |machine, spec| {
        let machine = seat(machine, spec).unwrap_or(machine);
        let all: Vec<String> = engines(machine, &spec.executor).iter().map(|n| format!("ce{n}")).collect();
        format!("one transfer by several copy engines, on channels of our own: {}", all.join(" and "))
    },
    list: |machine| [both_ways(machine, "host", "split").to_vec(), between_gpus(machine, "split")].concat(),
    check,
    open,
};

/// The named engines, or the first that share no physical engine.
fn engines(machine: &Machine, executor: &spec::Executor) -> Vec<u32> {
    if let Some(named) = executor.numbers(ENGINES) {
        return named.to_vec();
    }
    let mut chosen: Vec<&gpu::CopyEngine> = Vec::new();
    for engine in machine.asynchronous_engines() {
        if chosen.len() < DEFAULT && chosen.iter().all(|other| engine.shares_with(other) != Some(true)) {
            chosen.push(engine);
        }
    }
    chosen.iter().map(|engine| engine.number).collect()
}

fn check(machine: &Machine, spec: &Spec) -> Result<(), Unavailable> {
    let machine = seat(machine, spec)?;
    channel::check(machine, spec)?;
    let mut engines = engines(machine, &spec.executor);
    engines.iter().try_for_each(|n| channel::engine(machine, *n))?;
    let count = engines.len();
    engines.sort_unstable();
    engines.dedup();
    if engines.len() < 2 || engines.len() < count {
        return Err(Unavailable::new("a transfer is split between at least two engines, each named once"));
    }
    Ok(())
}

fn open<'m>(machine: &'m Machine, spec: &Spec) -> Found<'m> {
    let machine = seat(machine, spec)?;
    let space = machine.space()?;
    let channel = |n| Channel::new(space, Engine::Copy(n), channel::options(&spec.executor));
    let channels = engines(machine, &spec.executor).into_iter().map(channel).collect::<Result<Vec<_>, _>>()?;
    Ok(Box::new(Split { channels }))
}

struct Split {
    channels: Vec<Channel>,
}

/// Splits `bytes` at `va` into at most `count` pieces that are not empty and begin on pages where possible.
fn pieces(va: u64, bytes: u64, count: u64) -> Vec<Range<u64>> {
    let border = |n: u64| {
        let at = bytes / count * n + (bytes % count) * n / count;
        // The last page boundary up to there.
        ((va + at) / PAGE * PAGE).saturating_sub(va).min(bytes)
    };
    let mut all = Vec::new();
    let mut start = 0;
    for n in 1..=count {
        let end = if n == count { bytes } else { border(n) };
        if end > start {
            all.push(start..end);
            start = end;
        }
    }
    all
}

impl Executor for Split {
    fn reach(&mut self, from: &Buffer<'_>, to: &Buffer<'_>) -> Result<(), Error> {
        self.channels.iter().try_for_each(|channel| channel::reach(channel, from, to))
    }

    fn prepare<'r>(&'r mut self, ends: Ends<'r>, bytes: u64) -> Result<Box<dyn Transfer + 'r>, Error> {
        let Ends { source: from, destination: to, .. } = ends;
        ends.check(bytes)?;
        let mut parts = Vec::new();
        let pieces = pieces(to.va(), bytes, self.channels.len() as u64);
        for (channel, piece) in self.channels.iter_mut().zip(pieces) {
            let length = channel::in_one_copy(piece.end - piece.start, "by one copy engine")?;
            // All of both buffers, because a transfer may be moved within them.
            let (target, source) = (to.region(channel.space())?, from.region(channel.space())?);
            let prepared = Prepared::copy(channel, &target, &source, length, CopyMode::Plain)?;
            parts.push((piece.start, Own::new(channel, prepared, None, ends)));
        }
        let mut transfer = Parts { parts, ends, bytes };
        transfer.move_to(0, 0)?;
        Ok(Box::new(transfer))
    }
}

struct Parts<'r> {
    /// Each with its first byte's offset in the transfer.
    parts: Vec<(u64, Own<'r>)>,
    ends: Ends<'r>,
    bytes: u64,
}

impl Transfer for Parts<'_> {
    #[inline]
    fn submit(&mut self) -> Result<(), Error> {
        self.parts.iter_mut().try_for_each(|(_, part)| part.submit())
    }

    #[inline]
    fn poll(&mut self) -> Result<bool, Error> {
        for (_, part) in &mut self.parts {
            if !part.poll()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    #[inline]
    fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        let start = Instant::now();
        for (_, part) in &mut self.parts {
            part.wait(timeout.saturating_sub(start.elapsed())).map_err(|error| match error {
                Error::Late { after, .. } => Error::Late { bytes: self.bytes, after },
                other => other,
            })?;
        }
        Ok(())
    }

    fn move_to(&mut self, source: u64, destination: u64) -> Result<(), Error> {
        self.ends.hold([source, destination], self.bytes)?;
        self.parts.iter_mut().try_for_each(|(at, part)| part.move_to(source + *at, destination + *at))
    }

    /// The timestamp of the piece that was done last.
    #[inline]
    fn released_gpu_ns(&self) -> Option<u64> {
        self.parts.iter().try_fold(0, |latest, (_, part)| Some(part.released_gpu_ns()?.max(latest)))
    }

    fn ends(&self) -> Option<&dyn Inspect> {
        Some(&self.ends)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_the_transfer_and_begin_on_pages() {
        for va in [0x7000, 0x7001, 0x7fff, 0x10_0000] {
            for bytes in [1, 2, 4095, 4096, 4097, 8192, 12_289, 70_001, 1 << 20] {
                for count in [2, 3, 4, 7] {
                    let pieces = pieces(va, bytes, count);
                    let text = format!("{bytes} bytes at {va:#x} in {count}: {pieces:?}");
                    assert!(!pieces.is_empty() && pieces.len() <= count as usize, "{text}");
                    assert_eq!((pieces[0].start, pieces[pieces.len() - 1].end), (0, bytes), "{text}");
                    assert!(pieces.windows(2).all(|two| two[0].end == two[1].start), "{text}");
                    assert!(pieces.iter().all(|piece| piece.start < piece.end), "{text}");
                    assert!(pieces[1..].iter().all(|piece| (va + piece.start) % PAGE == 0), "{text}");
                    let most = pieces.iter().map(|piece| piece.end - piece.start).max().unwrap();
                    assert!(most <= bytes / count + 2 * PAGE, "{text}");
                }
            }
        }
        assert_eq!(pieces(0, 1 << 20, 2), [0..1 << 19, 1 << 19..1 << 20]);
    }
}

//! Scattered pieces with a single doorbell write, by one copy engine. `batch[pieces=256]` moves a transfer in that many pieces of
//! equal size (the last has the rest). The engine gets them in shuffled order, so that consecutive pieces are rarely adjacent.
//! `batch[engine=3]` names the engine. The default is the first that runs while kernels run; between GPUs, the one made for their
//! link. CUDA's counterpart is `cuda[batch,pieces=256]`.

use super::channel::{self, Own};
use crate::buffer::Buffer;
use crate::ends::{Ends, between_gpus, both_ways, seat};
use crate::error::Error;
use crate::executor::{Executor, Transfer};
use crate::machine::Machine;
use crate::routes::entry::{Entry, Found, number};
use crate::spec::{self, Memory, Spec, Word};
use gpu::{Batch, Channel, CopyRelease, Engine, Piece};
use machine::Unavailable;

/// Number of pieces, 1 to 4,096.
pub(super) const PIECES: &str = "pieces=";
const ENGINE: &str = "engine=";
/// The default number.
const DEFAULT: u32 = 256;

pub(crate) const ENTRY: Entry = Entry {
    word: Word { name: "batch", numbered: false, options: &[PIECES, ENGINE] },
    about: |machine, spec| {
        let machine = seat(machine, spec).unwrap_or(machine);
        let (count, engine) = (count(&spec.executor).unwrap_or(DEFAULT), engine(machine, spec));
        format!("{count} scattered pieces behind one doorbell, by copy engine {engine} on a channel of our own")
    },
    list: |machine| {
        let batch = "batch[pieces=256]";
        [both_ways(machine, "host", batch).to_vec(), between_gpus(machine, batch)].concat()
    },
    check,
    open,
};

/// The number of pieces in an executor's options, or the default.
pub(super) fn count(executor: &spec::Executor) -> Result<u32, Unavailable> {
    let most = Batch::MOST as u32;
    let why = format!("pieces=N: 1 to {most} go behind one doorbell");
    Ok(number(executor, PIECES, 1..=most, &why)?.unwrap_or(DEFAULT))
}

/// Offset and length of each piece of a transfer, in shuffled order.
pub(super) fn pieces(bytes: u64, count: u32) -> Result<Vec<(u64, u64)>, Unavailable> {
    let count = u64::from(count);
    if bytes < count {
        return Err(Unavailable::new(format!("{bytes} bytes in {count} pieces: a piece has at least one byte")));
    }
    let size = bytes / count;
    let piece = |n| (n * size, if n + 1 == count { bytes - n * size } else { size });
    let mut all: Vec<(u64, u64)> = (0..count).map(piece).collect();
    // The same each time.
    fastrand::Rng::with_seed(1).shuffle(&mut all);
    Ok(all)
}

fn engine(machine: &Machine, spec: &Spec) -> u32 {
    match (spec.executor.numbers(ENGINE), spec.source.memory, spec.destination.memory) {
        (Some([engine]), ..) => *engine,
        (_, Memory::Gpu(from), Memory::Gpu(to)) if from != to => machine.engine_between_gpus(),
        _ => machine.copy_engine(),
    }
}

fn check(machine: &Machine, spec: &Spec) -> Result<(), Unavailable> {
    count(&spec.executor)?;
    if spec.executor.numbers(ENGINE).is_some_and(|engines| engines.len() != 1) {
        return Err(Unavailable::new("a batch is one engine's: several are `split`"));
    }
    let machine = seat(machine, spec)?;
    channel::check(machine, spec)?;
    channel::engine(machine, engine(machine, spec))
}

fn open<'m>(machine: &'m Machine, spec: &Spec) -> Found<'m> {
    let machine = seat(machine, spec)?;
    let engine = Engine::Copy(engine(machine, spec));
    let channel = Channel::new(machine.space()?, engine, channel::options(&spec.executor))?;
    Ok(Box::new(Scattered { channel, count: count(&spec.executor)? }))
}

struct Scattered {
    channel: Channel,
    count: u32,
}

impl Executor for Scattered {
    fn reach(&mut self, from: &Buffer<'_>, to: &Buffer<'_>) -> Result<(), Error> {
        channel::reach(&self.channel, from, to)
    }

    fn prepare<'r>(&'r mut self, ends: Ends<'r>, bytes: u64) -> Result<Box<dyn Transfer + 'r>, Error> {
        ends.check(bytes)?;
        let all = pieces(bytes, self.count)?;
        let most = all.iter().map(|(_, length)| *length).max().unwrap_or(0);
        channel::in_one_copy(most, "in one piece")?;
        let space = self.channel.space();
        let (target, source) = (ends.destination.region(space)?, ends.source.region(space)?);
        let piece = |(at, length)| Piece { to: target.va() + at, from: source.va() + at, bytes: length as u32 };
        let all: Vec<Piece> = all.into_iter().map(piece).collect();
        let regions = [target.part(0, bytes)?, source.part(0, bytes)?];
        let batch = Batch::new(&mut self.channel, &regions, &all, CopyRelease::default())?;
        Ok(Box::new(Own::batch(&mut self.channel, batch, ends)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_every_byte_once_and_are_scattered() {
        for (bytes, count) in [(1, 1), (7, 7), (4096, 5), (70_001, 256), (4096, 4096)] {
            let mut all = pieces(bytes, count).unwrap();
            assert_eq!(all.len(), count as usize);
            let beside = all.windows(2).filter(|two| two[0].0 + two[0].1 == two[1].0).count();
            assert!(beside * 10 < all.len().max(11), "{beside} of {count} follow the one before");
            all.sort_unstable();
            let mut at = 0;
            for (start, length) in all {
                assert!(start == at && length > 0, "{bytes} bytes in {count}");
                at += length;
            }
            assert_eq!(at, bytes);
        }
        assert!(pieces(3, 4).is_err());
    }
}

//! Runs stand-in kernels.

use super::Fault;
use crate::space::AddressSpace;
use crate::standin::{Operation, StandIn, pattern};

/// Words that [`Operation::Step`] processes in one piece.
const WORDS: usize = 1024;

/// The stand-in at a program address, if there is one.
pub(super) fn fetch(space: &AddressSpace, program: u64) -> Result<Option<StandIn>, Fault> {
    let mut code = [0; StandIn::BYTES];
    // (A QMD without code has 0 there; unmapped memory is unknown code.)
    if program == 0 || space.read(program, &mut code).is_err() {
        return Ok(None);
    }
    StandIn::parse(&code)
        .transpose()
        .map_err(|number| Fault::engine("stand-in kernel of no known operation", number.into()))
}

/// Runs one with its parameters, on a grid of this many threads.
pub(super) fn run(space: &AddressSpace, operation: Operation, parameters: &[u8], threads: u32) -> Result<(), Fault> {
    let bytes = |at: usize, len: usize| {
        let short = Fault::engine("constant bank 0 is shorter than the parameters", parameters.len() as u64);
        parameters.get(at..at + len).ok_or(short)
    };
    let word = |at| bytes(at, 4).map(|b| b.iter().rev().fold(0u32, |all, b| all << 8 | u32::from(*b)));
    let long = |at| Ok::<u64, Fault>(u64::from(word(at)?) | u64::from(word(at + 4)?) << 32);
    match operation {
        Operation::Nothing => Ok(()),
        Operation::Add => {
            let to = long(0)?;
            space.write_u32(to, space.read_u32(to)?.wrapping_add(threads))
        }
        Operation::Store => space.write_u32(long(0)?, word(8)?),
        Operation::Log => {
            let (log, value) = (long(0)?, word(8)?);
            let n = space.read_u32(log)?;
            space.write_u32(log + 4 + 4 * u64::from(n), value)?;
            space.write_u32(log, n.wrapping_add(1))
        }
        Operation::Copy => {
            let (to, from, bytes) = (long(0)?, long(8)?, word(16)?);
            space.check(from, bytes.into(), false)?;
            space.check(to, bytes.into(), true)?;
            let mut data = vec![0; bytes as usize];
            space.read(from, &mut data)?;
            space.write(to, &data)
        }
        Operation::CountAndTell => {
            let to = long(0)?;
            let sum = space.read_u32(to)?.wrapping_add(1);
            space.write_u32(to, sum)?;
            space.write_u32(long(8)?, sum)
        }
        Operation::Step => {
            let found = step(space, long(0)?, (word(8)?, word(12)?), (word(16)?, word(20)?))?;
            let wrong = long(24)?;
            if found == 0 { Ok(()) } else { space.write_u64(wrong, space.read_u64(wrong)?.wrapping_add(found)) }
        }
    }
}

/// Words that are not as expected; the next pattern is written.
fn step(
    space: &AddressSpace,
    buffer: u64,
    (check, expected): (u32, u32),
    (write, next): (u32, u32),
) -> Result<u64, Fault> {
    let mut found = 0;
    let mut data = vec![0; 4 * WORDS];
    for first in (0..check).step_by(WORDS) {
        let piece = &mut data[..4 * WORDS.min((check - first) as usize)];
        space.read(buffer + 4 * u64::from(first), piece)?;
        let words = piece.chunks_exact(4).zip(first..);
        found += words.filter(|(bytes, i)| **bytes != pattern(expected, *i).to_le_bytes()).count() as u64;
    }
    for first in (0..write).step_by(WORDS) {
        let piece = &mut data[..4 * WORDS.min((write - first) as usize)];
        piece.chunks_exact_mut(4).zip(first..).for_each(|(to, i)| to.copy_from_slice(&pattern(next, i).to_le_bytes()));
        space.write(buffer + 4 * u64::from(first), piece)?;
    }
    Ok(found)
}

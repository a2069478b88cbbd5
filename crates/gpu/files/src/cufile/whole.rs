//! Whole files by cuFile.

use super::{CuFile, Report};
use crate::error::Error;
use crate::extents::Extents;
use crate::memory::Target;
use crate::options::Options;
use crate::queue::Direction;
use crate::source::Source;
use crate::{verify, whole};
use machine::Machine;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

/// cuFile moves one block at a time on each thread.
const THREADS: usize = 16;

fn shape(options: &Options) -> (usize, usize) {
    (options.block, (options.depth * options.threads).min(THREADS))
}

/// Checks that it has at least `bytes` bytes.
fn check(memory: &Target<'_>, bytes: u64) -> Result<(), Error> {
    if memory.bytes() < bytes {
        return Err(Error::Argument(format!("{bytes} bytes do not fit into {}", memory.bytes())));
    }
    Ok(())
}

/// Reads a whole file to the start of the GPU memory. Uses a thread for each block that may be pending, at most 16.
///
/// # Errors
/// [`CuFile::transfer`]'s; [`Error::Changed`], [`Error::Truncated`]; [`Error::Differs`] with [`Options::verify`].
pub fn read(
    library: &CuFile,
    machine: &Machine,
    source: &Source,
    memory: &Target<'_>,
    options: &Options,
    require_direct: bool,
    progress: &AtomicU64,
) -> Result<(Report, Option<u64>), Error> {
    options.check()?;
    check(memory, source.length())?;
    let to = (memory.va(), source.length());
    // SAFETY: the memory has that many bytes (`check`), and the caller has lent it.
    let report = unsafe { library.transfer(source, Direction::Read, to, shape(options), require_direct, progress) }?;
    source.unchanged()?;
    let places = Arc::new(Extents::whole(source.length()));
    let verify = || verify::verify(machine, source, (memory, &places));
    Ok((report, options.verify.then(verify).transpose()?))
}

/// Writes `bytes` of the GPU memory to a file, which exists afterwards as a whole or not at all.
///
/// # Errors
/// [`CuFile::transfer`]'s, and [`crate::write`]'s.
#[expect(clippy::too_many_arguments, reason = "what crate::write takes, and the library")]
pub fn write(
    library: &CuFile,
    machine: &Machine,
    path: &Path,
    memory: &Target<'_>,
    bytes: u64,
    options: &Options,
    (force, require_direct): (bool, bool),
    progress: &AtomicU64,
) -> Result<(Report, Option<u64>), Error> {
    options.check()?;
    check(memory, bytes)?;
    let begun = Instant::now();
    whole::new_file(path, bytes, options.buffered, force, |source| {
        let from = (memory.va(), bytes);
        // SAFETY: as above.
        let mut report =
            unsafe { library.transfer(source, Direction::Write, from, shape(options), require_direct, progress) }?;
        whole::cut(source, bytes)?;
        report.took = begun.elapsed();
        let places = Arc::new(Extents::whole(bytes));
        let verify = || verify::verify(machine, source, (memory, &places));
        Ok((report, options.verify.then(verify).transpose()?))
    })
}

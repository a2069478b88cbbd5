//! Whole files by cuFile.

use super::{CuFile, Report};
use crate::error::Error;
use crate::extents::Extents;
use crate::options::Options;
use crate::queue::Direction;
use crate::source::Source;
use crate::{verify, whole};
use copy::{Buffer, Machine};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

/// cuFile moves one block at a time on each thread.
const THREADS: usize = 16;

fn shape(options: &Options) -> (usize, usize) {
    (options.block, (options.depth * options.threads).min(THREADS))
}

/// That it is the GPU's memory and has so many bytes.
fn check(memory: &Buffer<'_>, bytes: u64) -> Result<(), Error> {
    match memory.gpu() {
        None => Err(Error::Argument("cuFile moves bytes between files and memory of the GPU's".into())),
        Some(_) if memory.capacity() < bytes => {
            Err(Error::Argument(format!("{bytes} bytes do not fit into {}", memory.capacity())))
        }
        Some(_) => Ok(()),
    }
}

/// Reads all of a file to the start of the GPU's memory; as many threads as blocks are to be under way, 16 at most.
///
/// # Errors
/// [`CuFile::transfer`]'s; [`Error::Changed`], [`Error::Truncated`]; [`Error::Differs`] with [`Options::verify`].
pub fn read(
    library: &CuFile,
    machine: &Machine,
    source: &Source,
    memory: &Buffer<'_>,
    options: &Options,
    require_direct: bool,
    progress: &AtomicU64,
) -> Result<(Report, Option<u64>), Error> {
    options.check()?;
    check(memory, source.length())?;
    let to = (memory.va(), source.length());
    // SAFETY: as many bytes are there (`check`), which the caller has lent.
    let report = unsafe { library.transfer(source, Direction::Read, to, shape(options), require_direct, progress) }?;
    source.unchanged()?;
    let places = Arc::new(Extents::whole(source.length()));
    let verify = || verify::verify(machine, source, (memory, &places));
    Ok((report, options.verify.then(verify).transpose()?))
}

/// Writes `bytes` of the GPU's memory to a file that is there as a whole or not at all.
///
/// # Errors
/// [`CuFile::transfer`]'s, and those of [`crate::write`].
#[expect(clippy::too_many_arguments, reason = "what crate::write takes, and the library")]
pub fn write(
    library: &CuFile,
    machine: &Machine,
    path: &Path,
    memory: &Buffer<'_>,
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

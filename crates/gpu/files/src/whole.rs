//! Transfers between a whole file and memory, by queues on one or more threads.

use crate::error::Error;
use crate::extents::Extents;
use crate::io::Backend;
use crate::memory::Target;
use crate::options::Options;
use crate::queue::{Counts, Direction, Done, Queue};
use crate::source::{Buffered, Source};
use machine::Machine;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The result of a transfer.
#[derive(Clone, Debug)]
pub struct Report {
    /// Bytes of the file that have arrived.
    pub bytes: u64,
    /// From the first block's submission to the last one's end. Written files are on the disk by then.
    pub took: Duration,
    pub threads: usize,
    pub depth: usize,
    pub block: usize,
    pub backend: Backend,
    /// Why the page cache was used; none with O_DIRECT.
    pub buffered: Option<Buffered>,
    pub counts: Counts,
    /// Bytes that were compared with the file, if verification was requested.
    pub verified: Option<u64>,
}

/// Reads the bytes of a file that have a place in `memory` to their places. `progress` counts bytes of the file.
///
/// # Errors
/// [`Error::Read`], [`Error::Truncated`], [`Error::Changed`], [`Error::Differs`] with [`Options::verify`], and all of
/// [`Queue::new`]'s errors. Parts of the file may have arrived.
pub fn read(
    machine: &Machine,
    source: &Source,
    (memory, places): (&Target<'_>, &Arc<Extents>),
    options: &Options,
    progress: &AtomicU64,
) -> Result<Report, Error> {
    let queue = || Queue::new(machine, source, Direction::Read, (memory, places), options);
    let mut report = drive(source, Direction::Read, places.range(), options, progress, queue)?;
    source.unchanged()?;
    if options.verify {
        report.verified = Some(crate::verify::verify(machine, source, (memory, places))?);
    }
    Ok(report)
}

/// Reads a file only to slots of host memory, for comparison with [`read`].
///
/// # Errors
/// As [`read`].
pub fn bare(source: &Source, options: &Options, progress: &AtomicU64) -> Result<Report, Error> {
    let queue = || Queue::bare(source, Direction::Read, options);
    let report = drive(source, Direction::Read, (0, source.length()), options, progress, queue)?;
    source.unchanged()?;
    Ok(report)
}

/// Writes `bytes` of memory, from its start, to a file, which exists afterwards as a whole or not at all. `force` replaces an old
/// file.
///
/// # Errors
/// [`Error::Write`] and [`Error::Output`]. Then there is no new file, and an old one is unchanged.
pub fn write(
    machine: &Machine,
    path: &Path,
    memory: &Target<'_>,
    bytes: u64,
    options: &Options,
    force: bool,
    progress: &AtomicU64,
) -> Result<Report, Error> {
    let places = Arc::new(Extents::whole(bytes));
    let start = Instant::now();
    let write = |source: &Source| {
        let queue = || Queue::new(machine, source, Direction::Write, (memory, &places), options);
        let mut report = drive(source, Direction::Write, (0, bytes), options, progress, queue)?;
        cut(source, bytes)?;
        report.took = start.elapsed();
        if options.verify {
            report.verified = Some(crate::verify::verify(machine, source, (memory, &places))?);
        }
        Ok(report)
    };
    new_file(path, bytes, options.buffered, force, write)
}

/// Calls `fill` to write a file of `bytes` bytes. The file gets its name when that is done.
///
/// # Errors
/// `fill`'s, or an error if the file cannot be created. Then there is no new file, and an old one is unchanged.
pub(crate) fn new_file<T>(
    path: &Path,
    bytes: u64,
    buffered: bool,
    force: bool,
    fill: impl FnOnce(&Source) -> Result<T, Error>,
) -> Result<T, Error> {
    if bytes == 0 {
        return Err(Error::Argument("no bytes to write".into()));
    }
    refuse(path, force)?;
    output::replace(path, |file| -> Result<T, Failed> {
        let file = file.try_clone()?;
        reserve(&file, bytes)?;
        let source = Source::to_write(file, path, bytes, buffered).map_err(Failed::Ours)?;
        fill(&source).map_err(Failed::Ours)
    })
    .map_err(|error| match error {
        Failed::Ours(error) => error,
        Failed::Disk(cause) => output::Error::Write { path: path.to_owned(), cause }.into(),
    })
}

/// Cuts off bytes that were written after the end, where the last block was written whole, and waits for the disk.
pub(crate) fn cut(source: &Source, bytes: u64) -> Result<(), Error> {
    let done = source.file.set_len(bytes).and_then(|()| source.file.sync_all());
    done.map_err(|cause| output::Error::Write { path: source.path().to_owned(), cause }.into())
}

/// Why a file was not written.
enum Failed {
    Ours(Error),
    Disk(std::io::Error),
}

impl From<std::io::Error> for Failed {
    fn from(cause: std::io::Error) -> Failed {
        Failed::Disk(cause)
    }
}

/// Refuses paths that must not be replaced.
fn refuse(path: &Path, force: bool) -> Result<(), Error> {
    let Ok(there) = path.symlink_metadata() else { return Ok(()) };
    let path = path.to_owned();
    Err(match there.file_type() {
        kind if kind.is_dir() => output::Error::Directory(path),
        kind if !kind.is_file() && !kind.is_symlink() => {
            return Err(Error::Kind { path, what: "neither a regular file nor free to become one" });
        }
        _ if force => return Ok(()),
        kind if kind.is_symlink() => output::Error::Link(path),
        _ => output::Error::Exists(path),
    }
    .into())
}

/// Reserves the space on the disk before the first write, where the file system can.
fn reserve(file: &std::fs::File, bytes: u64) -> std::io::Result<()> {
    use std::os::fd::AsRawFd;
    // SAFETY: an open descriptor and numbers. Unlike posix_fallocate, this does not write zeros where the file system cannot
    // reserve space.
    let done = unsafe { libc::fallocate64(file.as_raw_fd(), 0, 0, bytes as libc::off64_t) };
    if done == 0 {
        return Ok(());
    }
    match std::io::Error::last_os_error() {
        e if matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS)) => file.set_len(bytes),
        e => Err(e),
    }
}

/// State that all threads of a transfer share.
struct Shared<'s> {
    source: &'s Source,
    direction: Direction,
    /// The next block's offset in the file.
    next: AtomicU64,
    end: u64,
    block: u64,
    stop: AtomicBool,
    failed: Mutex<Option<Error>>,
    progress: &'s AtomicU64,
}

impl Shared<'_> {
    /// Takes the next block that no thread has.
    fn take(&self) -> Option<(u64, usize)> {
        if self.stop.load(Ordering::Relaxed) {
            return None;
        }
        let offset = self.next.fetch_add(self.block, Ordering::Relaxed);
        (offset < self.end).then(|| (offset, self.block.min(self.end - offset) as usize))
    }

    fn fail(&self, error: Error) {
        self.stop.store(true, Ordering::Relaxed);
        poison::ignore(self.failed.lock()).get_or_insert(error);
    }

    /// Checks the result of a block that is done.
    fn judge(&self, done: &Done) -> Result<(), Error> {
        let wanted = self.block.min(self.end - done.offset);
        let path = || self.source.path().to_owned();
        match (done.result, self.direction) {
            (Ok(bytes), _) if bytes as u64 == wanted => {
                self.progress.fetch_add(wanted, Ordering::Relaxed);
                Ok(())
            }
            (Ok(bytes), _) => {
                // Compares with the file's current end. If several blocks are after that end, any of them may be reaped first.
                self.source.unchanged()?;
                Err(Error::Truncated { path: path(), end: done.offset + bytes as u64, expected: self.source.length() })
            }
            (Err(cause), Direction::Read) => {
                Err(Error::Read { path: path(), offset: done.offset, bytes: wanted, cause })
            }
            (Err(cause), Direction::Write) => {
                Err(Error::Write { path: path(), offset: done.offset, bytes: wanted, cause })
            }
        }
    }

    /// One thread's part.
    fn work(&self, queue: &mut Queue<'_>) -> Result<(), Error> {
        let mut free: Vec<usize> = (0..queue.depth()).rev().collect();
        let mut done = vec![Done::NONE; queue.depth()];
        loop {
            while let Some(&slot) = free.last() {
                let Some((offset, bytes)) = self.take() else { break };
                queue.submit(slot, offset, bytes)?;
                free.pop();
            }
            let count = queue.wait(&mut done)?;
            if count == 0 {
                return Ok(());
            }
            for done in &done[..count] {
                self.judge(done)?;
                free.push(done.slot);
            }
        }
    }
}

fn drive<'m>(
    source: &Source,
    direction: Direction,
    (start, end): (u64, u64),
    options: &Options,
    progress: &AtomicU64,
    queue: impl Fn() -> Result<Queue<'m>, Error>,
) -> Result<Report, Error> {
    let first = queue()?;
    let block = first.slot_bytes() as u64;
    // A thread without a block would open a channel that it never uses.
    let blocks = end.saturating_sub(start).div_ceil(block).max(1);
    let threads = options.threads.min(usize::try_from(blocks).unwrap_or(usize::MAX));
    let mut queues = vec![first];
    while queues.len() < threads {
        queues.push(queue()?);
    }
    let shared = Shared {
        source,
        direction,
        next: (start - start % block).into(),
        end,
        block,
        stop: false.into(),
        failed: Mutex::new(None),
        progress,
    };
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let mut queues = queues.iter_mut();
        let first = queues.next();
        let work = |queue: &mut Queue<'m>| {
            if let Err(error) = shared.work(queue) {
                shared.fail(error);
            }
        };
        for queue in queues {
            scope.spawn(move || work(queue));
        }
        // The calling thread does one thread's part.
        first.map(work);
    });
    let took = begun.elapsed();
    if let Some(error) = poison::ignore(shared.failed.into_inner()) {
        return Err(error);
    }
    let mut counts = Counts::default();
    queues.iter().for_each(|queue| counts += queue.counts());
    Ok(Report {
        bytes: end.saturating_sub(start),
        took,
        threads,
        depth: options.depth,
        block: block as usize,
        backend: queues[0].backend().clone(),
        buffered: source.buffered().cloned(),
        counts,
        verified: None,
    })
}

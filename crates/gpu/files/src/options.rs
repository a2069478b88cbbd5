//! How a file is read or written.

use crate::error::Error;

/// The system calls that move the bytes between file and slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// io_uring; threads where the kernel refuses it.
    #[default]
    Auto,
    /// io_uring or an error.
    Uring,
    /// pread and pwrite on threads.
    Threads,
}

/// Sizes and counts. The default: 1 MiB, 16 pending blocks, one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of one read or write.
    pub block: usize,
    /// Pending blocks of each thread.
    pub depth: usize,
    pub threads: usize,
    /// Through the page cache, without O_DIRECT.
    pub buffered: bool,
    pub way: Way,
    /// Compare the bytes in memory with the file, which is read a second time.
    pub verify: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { block: 1 << 20, depth: 16, threads: 1, buffered: false, way: Way::default(), verify: false }
    }
}

impl Options {
    pub const BLOCKS: std::ops::RangeInclusive<usize> = 512..=(64 << 20);
    /// A channel has room for the words of this many copies.
    pub const DEPTHS: std::ops::RangeInclusive<usize> = 1..=128;
    pub const THREADS: std::ops::RangeInclusive<usize> = 1..=32;
    /// Bytes of all slots together.
    pub const SLOTS: usize = 4 << 30;

    /// # Errors
    /// [`Error::Argument`] for a value out of range.
    pub fn check(&self) -> Result<(), Error> {
        let wrong = |what: String| Err(Error::Argument(what));
        if !Options::BLOCKS.contains(&self.block) || !self.block.is_multiple_of(512) {
            return wrong(format!("a block of {} bytes: 512 bytes to 64 MiB in steps of 512 are possible", self.block));
        }
        if !Options::DEPTHS.contains(&self.depth) {
            return wrong(format!("a depth of {}: 1 to 128 are possible", self.depth));
        }
        if !Options::THREADS.contains(&self.threads) {
            return wrong(format!("{} threads: 1 to 32 are possible", self.threads));
        }
        match self.block * self.depth * self.threads {
            bytes if bytes > Options::SLOTS => wrong(format!("{bytes} bytes under way: 4 GiB are possible")),
            _ => Ok(()),
        }
    }
}

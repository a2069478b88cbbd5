//! A kernel launch: one thread that moves one word.

use super::word::Word;
use copy::{Error, Machine, Route, Transfer};
use cuda::{Argument, Function, Stream};
use std::time::Duration;

pub use super::word::BYTES;

/// How it is called among routes.
pub const NAME: &str = "launch";

/// Opens it: its module is loaded and its two words lie in memory of the GPU.
///
/// # Errors
/// [`Error::Unavailable`] where there is no CUDA.
pub fn open(machine: &Machine) -> Result<Box<dyn Route + '_>, Error> {
    Ok(Box::new(Launches { word: Word::open(machine)? }))
}

struct Launches<'m> {
    word: Word<'m>,
}

impl Route for Launches<'_> {
    fn name(&self) -> &str {
        NAME
    }

    fn capacity(&self) -> u64 {
        BYTES
    }

    fn prepare(&mut self, bytes: u64) -> Result<Box<dyn Transfer + '_>, Error> {
        self.word.fits(bytes)?;
        let function = self.word.function()?;
        Ok(Box::new(Launch { function, stream: &self.word.stream, arguments: self.word.arguments() }))
    }

    fn fill(&mut self, data: &[u8]) -> Result<(), Error> {
        self.word.fill(data)
    }

    fn read_back(&mut self, into: &mut [u8]) -> Result<(), Error> {
        self.word.read_back(into)
    }
}

struct Launch<'r> {
    function: Function<'r>,
    stream: &'r Stream<'r>,
    arguments: [Argument; 2],
}

impl Transfer for Launch<'_> {
    #[inline]
    fn submit(&mut self) -> Result<(), Error> {
        // SAFETY: the arguments are the kernel's; the memory lives as long as the route, which waits for its stream.
        unsafe { self.function.launch([1; 3], [1; 3], 0, self.stream, &self.arguments) }?;
        Ok(())
    }

    fn poll(&mut self) -> Result<bool, Error> {
        Ok(self.stream.is_done()?)
    }

    /// CUDA's wait has no time limit: `timeout` is not looked at.
    #[inline]
    fn wait(&mut self, _timeout: Duration) -> Result<(), Error> {
        Ok(self.stream.synchronize()?)
    }
}

impl Drop for Launch<'_> {
    fn drop(&mut self) {
        let _ = self.stream.synchronize();
    }
}

//! A kernel launch: one thread that moves one word.

mod word;

use copy::{Error, Machine, Route, Transfer};
pub use word::{BYTES, InStream, Word};

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
        let (function, arguments, stream) = (self.word.function()?, self.word.arguments(), &self.word.stream);
        let submit = move || {
            // SAFETY: the arguments are the kernel's; the memory lives as long as the route, which waits for its stream.
            unsafe { function.launch([1; 3], [1; 3], 0, stream, &arguments) }?;
            Ok(())
        };
        Ok(Box::new(InStream { stream, submit }))
    }

    fn fill(&mut self, data: &[u8]) -> Result<(), Error> {
        self.word.fill(data)
    }

    fn read_back(&mut self, into: &mut [u8]) -> Result<(), Error> {
        self.word.read_back(into)
    }
}

//! A graph's launch: a chain of kernels of one thread, each of which moves one word.

use copy::{Error, Machine, Route, Transfer};
use cuda::{Graph, GraphExec};
use lab::launch::{BYTES, InStream, Word};

pub const NAME: &str = "graph";
/// Kernels in it: one call submits what would be so many launches.
pub const KERNELS: usize = 20;

/// Opens it: captured once, launched as often as one likes.
///
/// # Errors
/// [`Error::Unavailable`] where there is no CUDA.
pub fn open(machine: &Machine) -> Result<Box<dyn Route + '_>, Error> {
    let word = Word::open(machine)?;
    let exec = {
        let (function, arguments) = (word.function()?, word.arguments());
        let graph = Graph::capture(&word.stream, || {
            for _ in 0..KERNELS {
                // SAFETY: the arguments are the kernel's; the memory lives as long as the route, which waits for its stream.
                unsafe { function.launch([1; 3], [1; 3], 0, &word.stream, &arguments) }?;
            }
            Ok(())
        })?;
        graph.instantiate()?
    };
    Ok(Box::new(Graphs { exec, word }))
}

struct Graphs<'m> {
    // Before the memory and the code that it names.
    exec: GraphExec<'m>,
    word: Word<'m>,
}

impl Route for Graphs<'_> {
    fn name(&self) -> &str {
        NAME
    }

    fn capacity(&self) -> u64 {
        BYTES
    }

    fn prepare(&mut self, bytes: u64) -> Result<Box<dyn Transfer + '_>, Error> {
        self.word.fits(bytes)?;
        let (exec, stream) = (&self.exec, &self.word.stream);
        let submit = move || {
            // SAFETY: its kernels name memory of the route, which this borrows and which waits for its stream.
            unsafe { exec.launch(stream) }?;
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

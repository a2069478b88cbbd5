//! A CUDA graph as something that can be timed and compared: a chain of kernels of one thread, each of which moves one word.

use crate::worst::launch::{BYTES, WORD};
use copy::{Error, Machine, Route, Transfer, Unavailable};
use cuda::{Argument, DeviceBuffer, Graph, GraphExec, Module, Stream};
use std::time::Duration;

pub const NAME: &str = "graph";
/// Kernels in it: one call submits what would be so many launches.
pub const KERNELS: usize = 20;

/// Opens it: captured once, launched as often as one likes.
///
/// # Errors
/// [`Error::Unavailable`] where there is no CUDA.
pub fn open(machine: &Machine) -> Result<Box<dyn Route + '_>, Error> {
    let context = machine.context()?;
    let stream = Stream::new(context)?;
    let module = Module::from_ptx(context, WORD)?;
    let to = DeviceBuffer::new(context, BYTES as usize)?;
    let from = DeviceBuffer::new(context, BYTES as usize)?;
    let arguments = [Argument::U64(to.address()), Argument::U64(from.address())];
    let exec = {
        let function = module.function("word")?;
        let graph = Graph::capture(&stream, || {
            for _ in 0..KERNELS {
                // SAFETY: the arguments are the kernel's; the memory lives as long as the route, which waits for its stream.
                unsafe { function.launch([1; 3], [1; 3], 0, &stream, &arguments) }?;
            }
            Ok(())
        })?;
        graph.instantiate()?
    };
    Ok(Box::new(Graphs { stream, exec, _module: module, to, from }))
}

struct Graphs<'m> {
    // Before the memory and the code that its work names.
    stream: Stream<'m>,
    exec: GraphExec<'m>,
    _module: Module<'m>,
    to: DeviceBuffer<'m>,
    from: DeviceBuffer<'m>,
}

impl Route for Graphs<'_> {
    fn name(&self) -> &str {
        NAME
    }

    fn capacity(&self) -> u64 {
        BYTES
    }

    fn prepare(&mut self, bytes: u64) -> Result<Box<dyn Transfer + '_>, Error> {
        if bytes != BYTES {
            return Err(Unavailable::new(format!("the graph moves {BYTES} bytes, not {bytes}")).into());
        }
        Ok(Box::new(Launch { exec: &self.exec, stream: &self.stream }))
    }

    fn fill(&mut self, data: &[u8]) -> Result<(), Error> {
        Ok(self.from.write(data)?)
    }

    fn read_back(&mut self, into: &mut [u8]) -> Result<(), Error> {
        Ok(self.to.read(into)?)
    }
}

struct Launch<'r> {
    exec: &'r GraphExec<'r>,
    stream: &'r Stream<'r>,
}

impl Transfer for Launch<'_> {
    #[inline]
    fn submit(&mut self) -> Result<(), Error> {
        // SAFETY: its kernels name memory of the route, which this borrows and which waits for its stream.
        unsafe { self.exec.launch(self.stream) }?;
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

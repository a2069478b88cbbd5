//! A kernel of one thread that moves one word, and all that it takes to launch it.

use copy::{Error, Machine, Transfer, Unavailable};
use cuda::{Argument, DeviceBuffer, Function, Module, Stream};
use std::time::Duration;

/// What one launch moves.
pub const BYTES: u64 = 4;

/// PTX 7.0 for sm_70: the driver compiles it for whatever GPU there is.
const PTX: &str = r"
.version 7.0
.target sm_70
.address_size 64
.visible .entry word(.param .u64 word_to, .param .u64 word_from)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [word_to];
    ld.param.u64 %rd2, [word_from];
    cvta.to.global.u64 %rd3, %rd1;
    cvta.to.global.u64 %rd4, %rd2;
    ld.volatile.global.u32 %r1, [%rd4];
    st.volatile.global.u32 [%rd3], %r1;
    ret;
}
";

/// The kernel, its two words in memory of the GPU, and a stream. Whoever launches waits for the stream before this goes.
pub struct Word<'m> {
    // Before the memory that its work names.
    pub stream: Stream<'m>,
    module: Module<'m>,
    to: DeviceBuffer<'m>,
    from: DeviceBuffer<'m>,
}

impl<'m> Word<'m> {
    /// # Errors
    /// [`Error::Unavailable`] where there is no CUDA.
    pub fn open(machine: &'m Machine) -> Result<Word<'m>, Error> {
        let context = machine.context()?;
        Ok(Word {
            stream: Stream::new(context)?,
            module: Module::from_ptx(context, PTX)?,
            to: DeviceBuffer::new(context, BYTES as usize)?,
            from: DeviceBuffer::new(context, BYTES as usize)?,
        })
    }

    pub fn function(&self) -> Result<Function<'_>, Error> {
        Ok(self.module.function("word")?)
    }

    pub fn arguments(&self) -> [Argument; 2] {
        [Argument::U64(self.to.address()), Argument::U64(self.from.address())]
    }

    /// Nothing but whole words.
    pub fn fits(&self, bytes: u64) -> Result<(), Error> {
        if bytes == BYTES {
            Ok(())
        } else {
            Err(Unavailable::new(format!("it moves {BYTES} bytes, not {bytes}")).into())
        }
    }

    pub fn fill(&mut self, data: &[u8]) -> Result<(), Error> {
        Ok(self.from.write(data)?)
    }

    pub fn read_back(&mut self, into: &mut [u8]) -> Result<(), Error> {
        Ok(self.to.read(into)?)
    }
}

/// A call that puts work into a stream, and the wait for it.
pub struct InStream<'r, F> {
    pub stream: &'r Stream<'r>,
    pub submit: F,
}

impl<F: FnMut() -> Result<(), Error>> Transfer for InStream<'_, F> {
    #[inline]
    fn submit(&mut self) -> Result<(), Error> {
        (self.submit)()
    }

    fn poll(&mut self) -> Result<bool, Error> {
        Ok(self.stream.is_done()?)
    }

    fn is_polled(&self) -> bool {
        false
    }

    /// CUDA's wait has no time limit: `timeout` is not looked at.
    #[inline]
    fn wait(&mut self, _timeout: Duration) -> Result<(), Error> {
        Ok(self.stream.synchronize()?)
    }
}

impl<F> Drop for InStream<'_, F> {
    fn drop(&mut self) {
        let _ = self.stream.synchronize();
    }
}

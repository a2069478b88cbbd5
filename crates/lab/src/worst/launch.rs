//! A kernel launch of CUDA's as something that can be timed and compared: one thread that moves one word.

use copy::{Error, Machine, Route, Transfer, Unavailable};
use cuda::{Argument, DeviceBuffer, Function, Module, Stream};
use std::time::Duration;

/// How it is called among routes.
pub const NAME: &str = "launch";
/// What one launch moves.
pub const BYTES: u64 = 4;

/// PTX 7.0 for sm_70: the driver compiles it for whatever GPU there is.
pub(crate) const WORD: &str = r"
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

/// Opens it: its module is loaded and its two words lie in memory of the GPU.
///
/// # Errors
/// [`Error::Unavailable`] where there is no CUDA.
pub fn open(machine: &Machine) -> Result<Box<dyn Route + '_>, Error> {
    let context = machine.context()?;
    Ok(Box::new(Launches {
        stream: Stream::new(context)?,
        module: Module::from_ptx(context, WORD)?,
        to: DeviceBuffer::new(context, BYTES as usize)?,
        from: DeviceBuffer::new(context, BYTES as usize)?,
    }))
}

struct Launches<'m> {
    // Before the memory that its work names.
    stream: Stream<'m>,
    module: Module<'m>,
    to: DeviceBuffer<'m>,
    from: DeviceBuffer<'m>,
}

impl Route for Launches<'_> {
    fn name(&self) -> &str {
        NAME
    }

    fn capacity(&self) -> u64 {
        BYTES
    }

    fn prepare(&mut self, bytes: u64) -> Result<Box<dyn Transfer + '_>, Error> {
        if bytes != BYTES {
            return Err(Unavailable::new(format!("a launch moves {BYTES} bytes, not {bytes}")).into());
        }
        let function = self.module.function("word")?;
        let arguments = [Argument::U64(self.to.address()), Argument::U64(self.from.address())];
        Ok(Box::new(Launch { function, stream: &self.stream, arguments }))
    }

    fn fill(&mut self, data: &[u8]) -> Result<(), Error> {
        Ok(self.from.write(data)?)
    }

    fn read_back(&mut self, into: &mut [u8]) -> Result<(), Error> {
        Ok(self.to.read(into)?)
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

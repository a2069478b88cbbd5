//! A transfer that is one call: the CPU's own stores or loads, or a call of CUDA. It is complete when the call returns, or when
//! the stream into which the call put it is.

use crate::ends::Ends;
use crate::error::Error;
use crate::executor::Transfer;
use crate::inspect::Inspect;
use std::time::Duration;

/// A stream of CUDA. Its wait has no time limit.
pub(super) trait Stream {
    fn is_done(&self) -> cuda::Result<bool>;
    fn synchronize(&self) -> cuda::Result<()>;
}

impl Stream for cuda::Stream<'_> {
    fn is_done(&self) -> cuda::Result<bool> {
        cuda::Stream::is_done(self)
    }

    fn synchronize(&self) -> cuda::Result<()> {
        cuda::Stream::synchronize(self)
    }
}

impl Stream for cuda::runtime::Stream {
    fn is_done(&self) -> cuda::Result<bool> {
        cuda::runtime::Stream::is_done(self)
    }

    fn synchronize(&self) -> cuda::Result<()> {
        cuda::runtime::Stream::synchronize(self)
    }
}

/// Waits until what a call stored has arrived.
type Arrived<A> = fn(&A) -> Result<(), Error>;

pub(super) struct Call<'r, A, F, G> {
    ends: Ends<'r>,
    bytes: u64,
    /// What the call takes, for places of source and destination.
    aim: F,
    takes: A,
    call: G,
    arrived: Option<Arrived<A>>,
    /// What is waited for, if the call does not wait.
    stream: Option<&'r dyn Stream>,
    called: bool,
}

impl<'r, A, F, G> Call<'r, A, F, G>
where
    F: Fn(&Ends<'r>, [u64; 2]) -> Result<A, Error>,
    G: FnMut(&mut A) -> Result<(), Error>,
{
    pub(super) fn new(ends: Ends<'r>, bytes: u64, aim: F, call: G) -> Result<Self, Error> {
        ends.check(bytes)?;
        let takes = aim(&ends, [0, 0])?;
        Ok(Call { ends, bytes, aim, takes, call, arrived: None, stream: None, called: false })
    }

    /// The call returns before `arrived` does.
    pub(super) fn until(mut self, arrived: Arrived<A>) -> Self {
        self.arrived = Some(arrived);
        self
    }

    /// The call puts it into this stream.
    pub(super) fn within(mut self, stream: &'r dyn Stream) -> Self {
        self.stream = Some(stream);
        self
    }
}

impl<'r, A, F, G> Transfer for Call<'r, A, F, G>
where
    F: Fn(&Ends<'r>, [u64; 2]) -> Result<A, Error>,
    G: FnMut(&mut A) -> Result<(), Error>,
{
    #[inline]
    fn submit(&mut self) -> Result<(), Error> {
        (self.call)(&mut self.takes)?;
        self.called = true;
        Ok(())
    }

    #[inline]
    fn poll(&mut self) -> Result<bool, Error> {
        match (self.stream, self.arrived) {
            (Some(stream), _) => return Ok(stream.is_done()?),
            (None, Some(arrived)) if self.called => arrived(&self.takes)?,
            _ => {}
        }
        Ok(self.called)
    }

    fn is_polled(&self) -> bool {
        self.stream.is_none()
    }

    #[inline]
    fn wait(&mut self, _timeout: Duration) -> Result<(), Error> {
        if let Some(stream) = self.stream {
            return Ok(stream.synchronize()?);
        }
        if self.poll()? { Ok(()) } else { Err(Error::Idle) }
    }

    fn move_to(&mut self, source: u64, destination: u64) -> Result<(), Error> {
        self.ends.hold([source, destination], self.bytes)?;
        self.takes = (self.aim)(&self.ends, [source, destination])?;
        Ok(())
    }

    fn ends(&self) -> Option<&dyn Inspect> {
        Some(&self.ends)
    }
}

impl<A, F, G> Drop for Call<'_, A, F, G> {
    fn drop(&mut self) {
        if let Some(stream) = self.stream {
            // After a wait this costs one more call, outside of any transfer.
            let _ = stream.synchronize();
        }
    }
}

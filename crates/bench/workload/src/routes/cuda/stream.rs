//! The work in one of CUDA's streams, and how its end is detected.

use super::{Side, THERE, side_at};
use crate::ends::{Direction, Ends};
use crate::error::Error;
use crate::executor::Transfer;
use crate::inspect::Inspect;
use crate::routes::polling;
use cuda::{GraphExec, PinnedBuffer, Stream};
use machine::Unavailable;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The work that a submission puts into the stream.
pub(super) enum How<'r> {
    Copy,
    Batch(Pieces),
    Graph(GraphExec<'r>),
}

/// The pieces of a batch, in the form that CUDA takes.
pub(super) struct Pieces {
    /// Each piece's offset in the transfer.
    at: Vec<u64>,
    to: Vec<u64>,
    from: Vec<u64>,
    bytes: Vec<usize>,
}

impl Pieces {
    /// Pieces with these offsets and lengths, which are within the transfer.
    pub(super) fn new(side: Side<'_>, pieces: &[(u64, u64)]) -> Pieces {
        let at: Vec<u64> = pieces.iter().map(|(at, _)| *at).collect();
        let bytes = pieces.iter().map(|(_, bytes)| *bytes as usize).collect();
        let mut pieces = Pieces { to: at.clone(), from: at.clone(), at, bytes };
        pieces.aim(side);
        pieces
    }

    fn aim(&mut self, side: Side<'_>) {
        let (host, device) = (side.host as u64, side.device.address());
        let (to, from) = match side.direction {
            Direction::ToGpu => (device, host),
            Direction::FromGpu => (host, device),
        };
        for (n, at) in self.at.iter().enumerate() {
            (self.to[n], self.from[n]) = (to + at, from + at);
        }
    }
}

/// How the end is detected.
pub(super) enum End<'r> {
    /// By a query of CUDA.
    Asked,
    /// By a word in pinned memory.
    Told {
        word: &'r AtomicU32,
        /// The address at which the GPU sees it.
        at: u64,
        /// Its value when the last copy is done.
        number: u32,
    },
}

impl<'r> End<'r> {
    pub(super) fn told(buffer: &'r PinnedBuffer<'_>) -> Result<End<'r>, Error> {
        // SAFETY: an aligned word of pinned memory that lives as long as the buffer is borrowed; the CPU touches it only by
        // atomic accesses.
        let word = unsafe { AtomicU32::from_ptr(buffer.as_ptr().cast()) };
        word.store(0, Ordering::Relaxed);
        Ok(End::Told { word, at: buffer.device_address()?, number: 0 })
    }

    /// A graph writes the same number each time, so its word is cleared first.
    #[inline]
    fn clear(&mut self, submitted: bool, stream: &Stream<'_>) -> Result<(), Error> {
        let End::Told { word, number, .. } = self else { return Ok(()) };
        if submitted && !is_told(word, *number) {
            // The previous copy is still in flight: its word would look like the end of this one.
            stream.synchronize()?;
        }
        *number = THERE;
        // ORDERING: the call that launches the graph is after this store, and so is the graph's own write.
        word.store(0, Ordering::Release);
        Ok(())
    }
}

#[inline]
fn is_told(word: &AtomicU32, number: u32) -> bool {
    // ORDERING: all writes before the word are visible with it.
    word.load(Ordering::Acquire) == number
}

pub(super) struct InStream<'r> {
    stream: &'r Stream<'r>,
    side: Side<'r>,
    ends: Ends<'r>,
    how: How<'r>,
    end: End<'r>,
    submitted: bool,
}

impl<'r> InStream<'r> {
    pub(super) fn new(
        stream: &'r Stream<'r>,
        side: Side<'r>,
        ends: Ends<'r>,
        how: How<'r>,
        end: End<'r>,
    ) -> InStream<'r> {
        InStream { stream, side, ends, how, end, submitted: false }
    }
}

impl Transfer for InStream<'_> {
    #[inline]
    fn submit(&mut self) -> Result<(), Error> {
        match &mut self.how {
            // SAFETY: the transfer borrows the memory, and waits for the stream when it is dropped.
            How::Copy => unsafe { self.side.enqueue(self.stream) }?,
            // SAFETY: as above.
            How::Batch(Pieces { to, from, bytes, .. }) => unsafe { self.stream.copy_batch(to, from, bytes) }?,
            How::Graph(exec) => {
                self.end.clear(self.submitted, self.stream)?;
                // SAFETY: as above; it names only the route's memories.
                unsafe { exec.launch(self.stream) }?;
            }
        }
        match (&self.how, &mut self.end) {
            (How::Copy | How::Batch(_), End::Told { at, number, .. }) => {
                *number = number.wrapping_add(1);
                // SAFETY: as above.
                unsafe { self.stream.write_word(*at, *number) }?;
            }
            (How::Graph(_), _) | (_, End::Asked) => {}
        }
        self.submitted = true;
        Ok(())
    }

    #[inline]
    fn poll(&mut self) -> Result<bool, Error> {
        match &self.end {
            End::Asked => Ok(self.stream.is_done()?),
            End::Told { word, number, .. } => Ok(self.submitted && is_told(word, *number)),
        }
    }

    fn is_polled(&self) -> bool {
        matches!(self.end, End::Told { .. })
    }

    /// CUDA's own wait has no time limit, so `timeout` is ignored for it.
    #[inline]
    fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        let End::Told { word, number, .. } = &self.end else { return Ok(self.stream.synchronize()?) };
        if !self.submitted {
            return Err(Error::Idle);
        }
        polling::wait(timeout, self.side.device.len() as u64, || is_told(word, *number))
    }

    fn move_to(&mut self, source: u64, destination: u64) -> Result<(), Error> {
        if matches!(self.how, How::Graph(_)) {
            return Err(Unavailable::new("a graph's copy has the addresses that it was made with").into());
        }
        let bytes = self.side.device.len() as u64;
        self.side = side_at(self.ends, bytes, [source, destination])?;
        if let How::Batch(pieces) = &mut self.how {
            pieces.aim(self.side);
        }
        Ok(())
    }

    fn ends(&self) -> Option<&dyn Inspect> {
        Some(&self.ends)
    }
}

impl Drop for InStream<'_> {
    fn drop(&mut self) {
        // After a wait this costs one more call, outside of any transfer.
        let _ = self.stream.synchronize();
    }
}

//! The words of a chain: what its steps say, and what they wait for.
//!
//! A chain has a counter of its own, which its kernels add to. Each run of copies sets it when it is over, and whatever needs what was before waits for it,
//! except where engines keep the order themselves ([`Order`]). The channel's tracker is waited for once, in front, and set once, at the end.

use crate::chain::Order;
use crate::error::Error;
use gpu::Source;
use pushbuf::encode::{Words, inline_dma, launch_dma};
use pushbuf::header::Header;
use pushbuf::semaphore::{Execute, Operation};
use recipe::{Own, Refused};

/// Subchannels of the compute class and of the copy engine on a graphics channel.
const COMPUTE: u8 = 1;
const COPY: u8 = 4;
/// Of a semaphore operation of the host's, and where its payload is.
const ACQUIRE: usize = 6;
const PAYLOAD: usize = 3;
/// Of an inline write beside its data: addresses, lengths, launch. Each header of data is one more.
const INLINE: usize = 16;

/// What was said last, and whether the counter knows when it is over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    /// The tracker's wait in front: nothing is under way.
    Nothing,
    /// Copies that the counter does not know of.
    Copies,
    /// Inline data that it does not know of.
    Inline,
    /// All is known to the counter.
    Counted,
}

/// A chain that is being written.
pub(crate) struct Stream {
    pub words: Vec<u32>,
    /// Payloads that count from the tracker, and from the chain's counter.
    pub tracker_counts: Vec<(usize, u32)>,
    pub counts: Vec<(usize, u32)>,
    /// What the counter will have been added.
    pub adds: u32,
    pub sources: Vec<Source>,
    tracker: u64,
    counter: u64,
    order: Order,
    wait: Execute,
    last: Last,
    /// What the last wait waits for.
    acquired: u32,
}

/// One that counts as CUDA's graphs wait for their counters.
const WAIT: Execute = Execute { operation: Operation::AcquireCircGeq, ..Execute::RELEASE };

impl Stream {
    /// Waits until all that was launched earlier is over.
    pub fn begin(tracker: u64, counter: u64, order: Order) -> Result<Stream, Error> {
        let mut stream = Stream {
            words: Vec::new(),
            tracker_counts: Vec::new(),
            counts: Vec::new(),
            adds: 0,
            sources: Vec::new(),
            tracker,
            counter,
            order,
            wait: WAIT,
            last: Last::Nothing,
            acquired: 0,
        };
        stream.tracker_counts.push((PAYLOAD, 0));
        stream.put(ACQUIRE, |w| w.host_semaphore(0, tracker, 0, WAIT))?;
        Ok(stream)
    }

    fn put(
        &mut self,
        most: usize,
        write: impl FnOnce(&mut Words<'_>) -> Result<(), pushbuf::encode::Error>,
    ) -> Result<usize, Error> {
        let at = self.words.len();
        self.words.resize(at + most, 0);
        let mut to = Words::new(self.words.get_mut(at..).unwrap_or_default());
        let written = write(&mut to).map(|()| to.len());
        let written = written.map_err(gpu::Error::from);
        self.words.truncate(at + written.as_ref().copied().unwrap_or(0));
        written?;
        Ok(at)
    }

    fn added(&self, more: u32) -> Result<u32, Error> {
        self.adds.checked_add(more).ok_or(Error::Refused(Refused::Form { what: "a chain of more than 2^32 releases" }))
    }

    /// The counter is told when the copies or the inline data before are over.
    fn tell(&mut self) -> Result<(), Error> {
        if !matches!(self.last, Last::Copies | Last::Inline) {
            return Ok(());
        }
        let (counter, adds) = (self.counter, self.added(1)?);
        let payload = self.release(counter)?;
        self.counts.push((payload, adds));
        (self.adds, self.last) = (adds, Last::Counted);
        Ok(())
    }

    /// A release by whoever did the last step, in order behind it: which word is its payload.
    fn release(&mut self, to: u64) -> Result<usize, Error> {
        match self.last {
            // SET_SEMAPHORE_A, B, PAYLOAD, and LAUNCH_DMA with a flush for all who look: what was written to host memory is there before the number is.
            Last::Copies => Ok(self.put(8, |w| w.copy_release(COPY, to, 0, false))? + 3),
            // Behind the barrier of the data.
            Last::Inline => {
                let launch = inline_dma::PITCH | inline_dma::NO_SYSMEMBAR;
                self.put(INLINE, |w| w.inline(COMPUTE, to, &[0; 4], launch))?;
                Ok(self.words.len() - 1)
            }
            // All is over that went before: the host tells it, and waits for no engine to be idle, which would be CUDA's kernels, too.
            Last::Nothing | Last::Counted => {
                let release = Execute::RELEASE;
                Ok(self.put(ACQUIRE, |w| w.host_semaphore(0, to, 0, release))? + PAYLOAD)
            }
        }
    }

    /// Waits until all that was said before is over.
    fn wait(&mut self) -> Result<(), Error> {
        self.tell()?;
        if self.acquired != self.adds {
            let (counter, wait, adds) = (self.counter, self.wait, self.adds);
            let at = self.put(ACQUIRE, |w| w.host_semaphore(0, counter, 0, wait))?;
            self.counts.push((at + PAYLOAD, adds));
            self.acquired = adds;
        }
        Ok(())
    }

    /// A copy by the channel's copy engine. Those that follow one another wait for each other there.
    pub fn copy(&mut self, to: u64, from: u64, bytes: u32) -> Result<(), Error> {
        if self.last != Last::Copies {
            self.wait()?;
        }
        let launch = launch_dma::NON_PIPELINED | launch_dma::PITCH;
        self.put(9, |w| w.copy(COPY, from, to, bytes, launch))?;
        self.last = Last::Copies;
        Ok(())
    }

    /// Bytes in the words, read at each submission.
    pub fn inline(&mut self, to: u64, from: gpu::Region) -> Result<(), Error> {
        if self.last != Last::Inline {
            self.wait()?;
        }
        let bytes = from.length() as usize;
        let most = INLINE + bytes.div_ceil(4) + bytes / pushbuf::encode::MAX_INLINE;
        let at = self.put(most, |w| w.inline_long(COMPUTE, to, &vec![0; bytes], inline_dma::PITCH))?;
        let blocks = data(&self.words, at);
        self.sources.push(Source { from, blocks });
        self.last = Last::Inline;
        Ok(())
    }

    /// A graph, in words that wait for the counter in front.
    pub fn launch(&mut self, own: &Own) -> Result<(), Error> {
        let front = own.counts.first().is_some_and(|count| (count.word, count.more) == (PAYLOAD, 0));
        let wait = own.launch.get(..ACQUIRE).filter(|words| front && is_semaphore(words));
        let wait =
            wait.and_then(|words| words.last()).ok_or(Refused::Form { what: "a launch without a wait in front" })?;
        if own.adds == 0 {
            return Err(Refused::Form { what: "a launch whose end nobody hears of" }.into());
        }
        self.wait = Execute::parse(*wait);
        match (self.last, self.order) {
            // Inline data and kernels go through one engine, in order.
            (Last::Inline, Order::AsCuda | Order::Engines) => {}
            // The host changes the engine only when the first one is idle and flushed.
            (Last::Copies, Order::Engines) => {}
            _ => self.wait()?,
        }
        let at = self.words.len();
        self.words.extend_from_slice(own.launch.get(ACQUIRE..).unwrap_or_default());
        for count in own.counts.iter().skip(1) {
            let more = self.added(count.more)?;
            self.counts.push((at + count.word - ACQUIRE, more));
        }
        self.adds = self.added(own.adds)?;
        self.last = Last::Counted;
        Ok(())
    }

    /// The tracker is told when all is over.
    pub fn end(&mut self) -> Result<(), Error> {
        if !matches!(self.last, Last::Copies | Last::Inline) {
            self.wait()?;
        }
        let payload = self.release(self.tracker)?;
        self.tracker_counts.push((payload, 1));
        Ok(())
    }
}

/// Whether these words are one semaphore operation of the host's.
fn is_semaphore(words: &[u32]) -> bool {
    let header = words.first().map(|word| Header::parse(*word));
    matches!(header, Some(Header::Methods { address: pushbuf::semaphore::method::SEM_ADDR_LO, count: 5, .. }))
}

/// Blocks of inline data from a word on: first word, words.
fn data(words: &[u32], mut at: usize) -> Vec<(usize, usize)> {
    let mut blocks = Vec::new();
    while let Some(word) = words.get(at) {
        let Header::Methods { address, count, .. } = Header::parse(*word) else { break };
        if address == pushbuf::encode::offset::INLINE_LOAD_DATA {
            blocks.push((at + 1, usize::from(count)));
        }
        at += 1 + usize::from(count);
    }
    blocks
}

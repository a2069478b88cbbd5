//! The words of a chain: its steps and their waits.
//!
//! A chain has its own counter, which its kernels add to. Each run of copies sets it when they have ended. A step that needs earlier ones waits for the
//! counter, unless engines keep the order themselves ([`Order`]). The channel's tracker is waited for once, at the start, and set once, at the end.

use crate::error::Error;
use cuda_graph::{Own, Refused};
use gpu::Source;
use pushbuf::encode::layout::{self, PAYLOAD, SEMAPHORE};
use pushbuf::encode::subchannel::{COMPUTE, COPY, HOST};
use pushbuf::encode::{Words, inline_dma, launch_dma};
use pushbuf::header::Header;
use pushbuf::semaphore::Execute;

/// What keeps launches after earlier copies. (Copies after launches always wait for the counter.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Copies and inline data release a counter when they have ended, and launches wait for it.
    Counter,
    /// As CUDA does it: inline data is sent before kernels, as CUDA's own constant banks and QMDs are, through the engine that starts them. This engine
    /// executes its methods in order, which saves 16 words and a round trip to the counter. Copies by the copy engine release the counter.
    #[default]
    AsCuda,
    /// Launches do not wait for copies of the copy engine, either; this saves 12 words. The host waits when a channel changes its engine, as GA100's manual
    /// says.
    Engines,
}

/// Words of an inline write without its data: addresses, lengths, launch. Each header of data is one more.
const INLINE: usize = 16;

/// The last step written, and whether its end is counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    /// The initial wait for the tracker: no step is pending.
    Nothing,
    /// Copies that the counter does not count yet.
    Copies,
    /// Inline data that it does not count yet.
    Inline,
    /// The counter counts all steps.
    Counted,
}

/// The words of one channel.
pub(crate) struct Part {
    pub words: Vec<u32>,
    /// Payloads that count from the tracker, and from the chain's counter.
    pub tracker_counts: Vec<(usize, u32)>,
    pub counts: Vec<(usize, u32)>,
    pub sources: Vec<Source>,
    tracker: u64,
    /// The counter value of the last wait; none yet: all work before the chain.
    acquired: Option<u32>,
}

/// A chain that is being written.
pub(crate) struct Stream {
    pub launches: Part,
    /// For copies on a separate channel.
    pub copies: Option<Part>,
    /// The sum of all additions to the counter.
    pub adds: u32,
    counter: u64,
    order: Order,
    last: Last,
    /// The release of the counter by a copy engine at the end of the last graph: first and last word, exclusive, of the launch channel.
    release: Option<(usize, usize)>,
}

impl Part {
    fn new(tracker: u64) -> Part {
        Part {
            words: Vec::new(),
            tracker_counts: Vec::new(),
            counts: Vec::new(),
            sources: Vec::new(),
            tracker,
            acquired: None,
        }
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

    /// Waits until this much has been added to the counter.
    fn wait(&mut self, counter: u64, adds: u32) -> Result<(), Error> {
        if self.acquired != Some(adds) {
            let at = self.put(SEMAPHORE, |w| w.host_semaphore(HOST, counter, 0, Execute::WAIT))?;
            self.counts.push((at + PAYLOAD, adds));
            self.acquired = Some(adds);
        }
        Ok(())
    }

    /// Adds a release by the engine of the last step, in order after it. Returns the index of its payload word.
    fn release(&mut self, to: u64, last: Last) -> Result<usize, Error> {
        match last {
            // SET_SEMAPHORE_A, B, PAYLOAD, and LAUNCH_DMA with a flush for all observers: bytes written to host memory are visible before the number is.
            Last::Copies => Ok(self.put(SEMAPHORE, |w| w.copy_release(COPY, to, 0, false))? + PAYLOAD),
            // After the barrier of the data.
            Last::Inline => {
                let launch = inline_dma::PITCH | inline_dma::NO_SYSMEMBAR;
                self.put(INLINE, |w| w.inline(COMPUTE, to, &[0; 4], launch))?;
                Ok(self.words.len() - 1)
            }
            // All earlier work is over, so the host makes the release. It does not wait for an idle engine; such a wait would include CUDA's kernels.
            Last::Nothing | Last::Counted => {
                Ok(self.put(SEMAPHORE, |w| w.host_semaphore(HOST, to, 0, Execute::RELEASE))? + PAYLOAD)
            }
        }
    }

    /// Releases the tracker.
    fn end(&mut self, last: Last) -> Result<(), Error> {
        let payload = self.release(self.tracker, last)?;
        self.tracker_counts.push((payload, 1));
        Ok(())
    }
}

impl Stream {
    /// Waits until all earlier launches have ended. `copies`: the tracker of a separate copy channel.
    pub fn begin(tracker: u64, copies: Option<u64>, counter: u64, order: Order) -> Result<Stream, Error> {
        let mut launches = Part::new(tracker);
        launches.tracker_counts.push((PAYLOAD, 0));
        launches.put(SEMAPHORE, |w| w.host_semaphore(HOST, tracker, 0, Execute::WAIT))?;
        // After the wait for the tracker, no earlier chain is pending.
        launches.acquired = Some(0);
        let copies = copies.map(Part::new);
        Ok(Stream { launches, copies, adds: 0, counter, order, last: Last::Nothing, release: None })
    }

    /// The part that has the copies.
    fn copier(&mut self) -> &mut Part {
        self.copies.as_mut().unwrap_or(&mut self.launches)
    }

    fn added(&self, more: u32) -> Result<u32, Error> {
        self.adds.checked_add(more).ok_or(Error::Refused(Refused::Form { what: "a chain of more than 2^32 releases" }))
    }

    /// Has the engine of the last step release the counter when that step has ended.
    fn tell(&mut self) -> Result<(), Error> {
        let (counter, adds, last) = (self.counter, self.added(1)?, self.last);
        let part = if last == Last::Copies { self.copier() } else { &mut self.launches };
        let payload = part.release(counter, last)?;
        part.counts.push((payload, adds));
        (self.adds, self.last) = (adds, Last::Counted);
        Ok(())
    }

    /// Makes the counter cover all earlier steps.
    fn settle(&mut self) -> Result<(), Error> {
        if matches!(self.last, Last::Copies | Last::Inline) { self.tell() } else { Ok(()) }
    }

    /// A copy by a copy engine. Consecutive copies wait for each other in that engine.
    pub fn copy(&mut self, to: u64, from: u64, bytes: u32) -> Result<(), Error> {
        if self.last != Last::Copies {
            // A copy channel cannot see when the launch channel reaches this chain.
            if self.last == Last::Nothing && self.copies.is_some() {
                self.tell()?;
            }
            self.settle()?;
            let (counter, adds) = (self.counter, self.adds);
            self.copier().wait(counter, adds)?;
        }
        let launch = launch_dma::NON_PIPELINED | launch_dma::PITCH;
        self.copier().put(layout::COPY, |w| w.copy(COPY, from, to, bytes, launch))?;
        self.last = Last::Copies;
        Ok(())
    }

    /// The launch channel waits for all earlier steps.
    fn wait(&mut self) -> Result<(), Error> {
        self.settle()?;
        self.launches.wait(self.counter, self.adds)
    }

    /// Bytes in the words, read at each submission.
    pub fn inline(&mut self, to: u64, from: gpu::Region) -> Result<(), Error> {
        if self.last != Last::Inline {
            self.wait()?;
        }
        let bytes = from.length() as usize;
        let most = INLINE + bytes.div_ceil(4) + bytes / pushbuf::encode::MAX_INLINE;
        let part = &mut self.launches;
        let at = part.put(most, |w| w.inline_long(COMPUTE, to, &vec![0; bytes], inline_dma::PITCH))?;
        let blocks = data(&part.words, at);
        part.sources.push(Source { from, blocks });
        self.last = Last::Inline;
        Ok(())
    }

    /// Adds a graph, whose words begin with a wait for the counter.
    pub fn launch(&mut self, own: &Own) -> Result<(), Error> {
        let front = own.counts.first().is_some_and(|count| (count.word, count.more) == (PAYLOAD, 0));
        if !front || !own.launch.get(..SEMAPHORE).is_some_and(is_semaphore) {
            return Err(Refused::Form { what: "a launch without a wait in front" }.into());
        }
        if own.adds == 0 {
            return Err(Refused::Form { what: "a launch whose end nobody hears of" }.into());
        }
        match (self.last, self.order) {
            // One engine executes inline data and kernels in order.
            (Last::Inline, Order::AsCuda | Order::Engines) => {}
            // The host changes the engine only when the first one is idle and flushed.
            (Last::Copies, Order::Engines) if self.copies.is_none() => {}
            _ => self.wait()?,
        }
        let at = self.launches.words.len();
        self.launches.words.extend_from_slice(own.launch.get(SEMAPHORE..).unwrap_or_default());
        for count in own.counts.iter().skip(1) {
            let more = self.added(count.more)?;
            self.launches.counts.push((at + count.word - SEMAPHORE, more));
        }
        self.adds = self.added(own.adds)?;
        self.last = Last::Counted;
        self.release = own.release.map(|begin| (at + begin - SEMAPHORE, self.launches.words.len()));
        Ok(())
    }

    /// Releases the tracker when all steps have ended. With two channels, both trackers are released, the copies' first.
    pub fn end(&mut self) -> Result<(), Error> {
        let last = self.last;
        let Some(copies) = &mut self.copies else {
            if let Some((begin, _)) = self.release.filter(|(_, end)| *end == self.launches.words.len()) {
                // No step waits for the counter after this: the copy engine releases the tracker instead.
                self.launches.words.truncate(begin);
                self.launches.counts.retain(|(word, _)| *word < begin);
                self.adds -= 1;
                return self.launches.end(Last::Copies);
            }
            if !matches!(last, Last::Copies | Last::Inline) {
                self.wait()?;
            }
            return self.launches.end(last);
        };
        if last == Last::Copies {
            // The chain's ticket is released first, then the counter: a release by a copy engine takes 0.65 us (H200).
            copies.end(last)?;
        }
        self.settle()?;
        let (counter, adds) = (self.counter, self.adds);
        if let Some(copies) = self.copies.as_mut().filter(|_| last != Last::Copies) {
            copies.wait(counter, adds)?;
            copies.end(Last::Counted)?;
        }
        // The next launch waits for this tracker, and thereby for the copies.
        self.launches.wait(counter, adds)?;
        self.launches.end(Last::Counted)
    }
}

/// Whether these words are one semaphore operation of the host.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_waits_for_copies_beside_hears_of_their_end_before_the_counter() {
        let (launches, copies, counter) = (0x1000, 0x2000, 0x3000);
        let mut stream = Stream::begin(launches, Some(copies), counter, Order::default()).unwrap();
        stream.copy(0x10_0000, 0x20_0000, 64).unwrap();
        stream.end().unwrap();
        let part = stream.copies.unwrap();
        let at = |address: u32| part.words.iter().rposition(|word| *word == address).unwrap();
        assert!(at(copies as u32) < at(counter as u32), "{:x?}", part.words);
        // The next launch waits for the counter, and so for the tracker, too.
        let wait = stream.launches.words.iter().rposition(|word| *word == counter as u32).unwrap();
        assert!(stream.launches.counts.contains(&(wait + 2, stream.adds)), "{:?}", stream.launches.counts);
    }

    /// A graph of one copy, which releases its counter at its end.
    fn copy(counter: u64) -> Own {
        let mut part = Part::new(counter);
        part.wait(counter, 0).unwrap();
        part.put(layout::COPY, |w| w.copy(COPY, 0x20_0000, 0x10_0000, 64, launch_dma::PITCH)).unwrap();
        let release = part.words.len();
        let payload = part.release(counter, Last::Copies).unwrap();
        let counts = [(PAYLOAD, 0), (payload, 1)].map(|(word, more)| cuda_graph::Count { word, more });
        let (upload, qmds, parameters, touched) = Default::default();
        let (launch, counts, release) = (part.words, counts.into(), Some(release));
        Own { upload, launch, counts, adds: 1, release, qmds, parameters, touched }
    }

    #[test]
    fn a_graph_that_ends_with_a_copy_tells_the_tracker_and_no_counter() {
        let (tracker, counter) = (0x1000, 0x3000);
        let (mut alone, mut twice) =
            [(); 2].map(|()| Stream::begin(tracker, None, counter, Order::default()).unwrap()).into();
        let own = copy(counter);
        alone.launch(&own).unwrap();
        alone.end().unwrap();
        let names = |stream: &Stream, address: u64| {
            stream.launches.words.iter().filter(|word| **word == address as u32).count()
        };
        // At the start, and at the end.
        assert_eq!((names(&alone, tracker), names(&alone, counter)), (2, 0));
        assert_eq!((alone.adds, &alone.launches.counts[..]), (0, &[][..]));
        // The first of two releases the counter for the second.
        twice.launch(&own).unwrap();
        twice.launch(&own).unwrap();
        twice.end().unwrap();
        assert_eq!((names(&twice, tracker), names(&twice, counter), twice.adds), (2, 2, 1));
    }
}

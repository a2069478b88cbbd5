//! The graphics channel that graphs are launched on: opened with the device, as CUDA opens its channels, and seen by
//! whoever watches the driver's calls.

use crate::fills;
use crate::wait::{has_come, wait_until};
use gpu::{AddressSpace, Channel, ChannelOptions, Engine, Error, Memory, Observer};
use pushbuf::encode::{Words, launch_dma, offset};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Bytes of the pushbuffers, which are used in turn.
const PUSHBUFFERS: u64 = 4 << 20;

pub(crate) struct GraphicsChannel {
    state: Mutex<State>,
    observer: Observer,
    /// A launch could not be submitted.
    refused: AtomicBool,
    /// Launches whose words the GPU may still read.
    in_flight: AtomicUsize,
    /// Fills that were submitted; the host's word counts those that are done.
    fills: Mutex<u32>,
    filled: Arc<Memory>,
    /// Likewise for copies by the copy engine.
    copies: Mutex<u32>,
}

/// Where completed copies are counted, next to the fills.
const COPIED: u64 = 0x40;

struct State {
    channel: Channel,
    words: Arc<Memory>,
    /// Where the next words go.
    at: u64,
}

/// A launch that was submitted. Its owner waits until it is done.
pub(crate) struct InFlight<'a>(&'a GraphicsChannel);

impl GraphicsChannel {
    pub fn open(space: &Arc<AddressSpace>) -> Result<GraphicsChannel, Error> {
        let engines = space.device().engines()?;
        // A copy engine of the graphics engine: its channel has the compute class, too.
        let engine = engines.iter().find(|engine| engine.is_graphics());
        let engine = engine.ok_or(Error::NoClass(rm::class::HOPPER_DMA_COPY_A))?;
        let channel = Channel::new(space, Engine::Copy(engine.number), ChannelOptions::default())?;
        let observer = channel.observer();
        let state = Mutex::new(State { channel, words: space.alloc_host(PUSHBUFFERS)?, at: 0 });
        let opened = GraphicsChannel {
            state,
            observer,
            refused: AtomicBool::new(false),
            in_flight: AtomicUsize::new(0),
            fills: Mutex::new(0),
            filled: space.alloc_host(0x1000)?,
            copies: Mutex::new(0),
        };
        let mut first = [0; 16];
        let mut words = Words::new(&mut first);
        words.set_object(cuda_graph::words::COMPUTE, rm::class::HOPPER_COMPUTE_A)?;
        words.set_object(cuda_graph::words::COPY, rm::class::HOPPER_DMA_COPY_A)?;
        fills::load(&mut words)?;
        opened.submit(words.as_slice()).map(drop)?;
        Ok(opened)
    }

    /// Whether these words are short enough for a launch.
    pub fn has_room_for(words: &[u32]) -> bool {
        4 * words.len() as u64 <= PUSHBUFFERS
    }

    /// One entry and one doorbell.
    pub fn submit(&self, words: &[u32]) -> Result<InFlight<'_>, Error> {
        let submitted = self.try_to_submit(words);
        if submitted.is_err() {
            self.refused.store(true, Ordering::SeqCst);
        }
        submitted
    }

    fn try_to_submit(&self, words: &[u32]) -> Result<InFlight<'_>, Error> {
        let bytes = 4 * words.len() as u64;
        if !GraphicsChannel::has_room_for(words) {
            return Err(Error::Words(words.len()));
        }
        let mut state = poison::ignore(self.state.lock());
        if state.at + bytes > PUSHBUFFERS {
            wait_until(|| self.in_flight.load(Ordering::SeqCst) == 0 || self.has_failed());
            state.at = 0;
        }
        for (i, word) in words.iter().enumerate() {
            state.words.word(state.at + 4 * i as u64).store(*word, Ordering::Relaxed);
        }
        let va = state.words.va() + state.at;
        state.at += bytes.next_multiple_of(64);
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        let submitted = InFlight(self);
        state.channel.submit_unchecked(va, words.len() as u32)?;
        Ok(submitted)
    }

    /// Fills memory by the macro and waits. False: it could not be submitted.
    pub fn fill(&self, at: u64, value: u32, bytes: u32) -> bool {
        let mut buffer = [0; 24];
        let mut words = Words::new(&mut buffer);
        let submitted = {
            let mut fills = poison::ignore(self.fills.lock());
            let (number, done) = (fills.wrapping_add(1), self.filled.va());
            // SET_REPORT_SEMAPHORE_A to D: RELEASE, ONE_WORD.
            let report = [(done >> 32) as u32, done as u32, number, 1 << 28];
            cuda_graph::words::fill(&mut words, at, bytes, fills::arguments(value, bytes))
                .and_then(|()| words.inc(cuda_graph::words::COMPUTE, offset::REPORT_SEMAPHORE_A, &report))
                .map_err(Error::from)
                .and_then(|()| self.submit(words.as_slice()))
                .map(|submitted| {
                    *fills = number;
                    (submitted, number)
                })
        };
        let Ok((submitted, number)) = submitted else { return false };
        submitted.wait(|| has_come(self.filled.word(0), number));
        true
    }

    /// Copies with the copy engine and waits, in words as CUDA writes them. False: it could not be submitted.
    pub fn copy(&self, to: u64, from: u64, bytes: u32) -> bool {
        let mut buffer = [0; 32];
        let mut words = Words::new(&mut buffer);
        let submitted = {
            let mut copies = poison::ignore(self.copies.lock());
            let (number, done) = (copies.wrapping_add(1), self.filled.va() + COPIED);
            let launch = launch_dma::NON_PIPELINED | launch_dma::PITCH;
            words
                .copy(cuda_graph::words::COPY, from, to, bytes, launch)
                .and_then(|()| words.copy_release(cuda_graph::words::COPY, done, number, true))
                .map_err(Error::from)
                .and_then(|()| self.submit(words.as_slice()))
                .map(|submitted| {
                    *copies = number;
                    (submitted, number)
                })
        };
        let Ok((submitted, number)) = submitted else { return false };
        submitted.wait(|| has_come(self.filled.word(COPIED), number));
        true
    }

    /// The GPU has killed it, or it has not taken a launch.
    pub fn has_failed(&self) -> bool {
        self.refused.load(Ordering::SeqCst) || self.observer.error().is_some()
    }
}

impl InFlight<'_> {
    /// Until it is done, or the channel is dead.
    pub fn wait(self, done: impl Fn() -> bool) {
        wait_until(|| done() || self.0.has_failed());
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::SeqCst);
    }
}

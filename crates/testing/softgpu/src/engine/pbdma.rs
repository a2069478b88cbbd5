//! The PBDMA: fetches GPFIFO entries and pushbuffer words, turns them into methods, hands each to its engine.
//!
//! It stops at any word and continues there: an acquire that is not satisfied is tried again with all state kept.

use super::channel::{Channel, Engine, Work};
use super::compute::Compute;
use super::copy::Copy;
use super::host::Host;
use super::inline::Inline;
use super::{Fault, Flow, Runlists, Turn};
use crate::counters::{self, HASH_SEED, Progress, add};
use crate::doorbell::USERD_GP_GET;
use pushbuf::class::{self, Class, Family};
use pushbuf::gpfifo::{Entry, Opcode};
use pushbuf::header::{Header, Kind, MaskOp};

/// Entries that a channel may consume before the next channel's turn.
const SLICE: usize = 16;

/// Methods below this byte offset are the host's (GA100 `dev_pbdma`).
const HOST_METHODS: u16 = 0x100;

/// A method sequence that still lacks data; it may span segments.
#[derive(Clone, Copy, Debug)]
struct Pending {
    kind: Kind,
    subch: u8,
    address: u16,
    left: u16,
}

#[derive(Debug)]
pub struct Pbdma {
    get: u32,
    words: Vec<u32>,
    at: usize,
    /// An entry is in work: its words end at `words.len()`.
    busy: bool,
    pending: Option<Pending>,
    /// SET_PB_SEGMENT_EXTENDED_BASE: address bits from 40 up.
    base: u64,
    mask: u16,
    stored_mask: u16,
    bound: [Option<&'static Class>; 8],
    progress: Progress,
    pub host: Host,
    pub copy: Copy,
    pub compute: Compute,
    pub inline: Inline,
}

impl Default for Pbdma {
    fn default() -> Self {
        Pbdma {
            get: 0,
            words: Vec::new(),
            at: 0,
            busy: false,
            pending: None,
            base: 0,
            mask: 0xfff,
            stored_mask: 0xfff,
            bound: [None; 8],
            progress: Progress { entries: 0, dwords: 0, hash: HASH_SEED },
            host: Host::default(),
            copy: Copy::default(),
            compute: Compute::default(),
            inline: Inline::default(),
        }
    }
}

impl Work for Pbdma {
    fn turn(&mut self, channel: &Channel, gpu: &Runlists) -> Result<Turn, Fault> {
        self.compute.kernels.turn(channel, gpu)?;
        let turn = self.entries(channel, gpu)?;
        Ok(if turn == Turn::Ready || self.compute.kernels.idle() { turn } else { Turn::Active })
    }

    fn end(&mut self, channel: &Channel, gpu: &Runlists) {
        self.compute.kernels.clear(channel, gpu);
    }
}

impl Pbdma {
    fn entries(&mut self, channel: &Channel, gpu: &Runlists) -> Result<Turn, Fault> {
        for _ in 0..SLICE {
            if !self.busy {
                let put = channel.limit(gpu.poll);
                if put >= channel.entries {
                    return Err(Fault::pbdma("GP_PUT outside the GPFIFO", put.into()));
                }
                if self.get == put {
                    return Ok(Turn::Idle);
                }
                self.fetch(channel)?;
                if let Some(fault) = gpu.plot.kills(self.progress.entries + 1) {
                    return Err(fault);
                }
                if gpu.plot.loses_entry() {
                    self.words.clear();
                }
            }
            while self.at < self.words.len() {
                if self.word(self.words[self.at], channel, gpu)? == Flow::Blocked {
                    return Ok(Turn::Blocked);
                }
                self.at += 1;
            }
            self.retire(channel, gpu);
        }
        Ok(Turn::Ready)
    }

    fn fetch(&mut self, channel: &Channel) -> Result<(), Fault> {
        let raw = channel.space.read_u64(channel.gpfifo.wrapping_add(8 * u64::from(self.get)))?;
        self.words.clear();
        self.at = 0;
        match Entry::parse(raw) {
            Entry::Segment(segment) => {
                let va = self.base | segment.va;
                self.words.resize(segment.dwords as usize, 0);
                // SAFETY: a Vec<u32> of `dwords` words is that many times four bytes, any bytes are words.
                let bytes = unsafe { self.words.align_to_mut::<u8>().1 };
                channel.space.read(va, bytes)?;
                // SYNC_WAIT holds the fetch until earlier segments are done: always so here, one entry at a time.
            }
            Entry::Control(control) => match control.opcode {
                Opcode::Nop | Opcode::GpCrc | Opcode::PbCrc => {}
                Opcode::SetPbSegmentExtendedBase if channel.class >= 0xc86f => {
                    self.base = control.extended_base().unwrap_or(0);
                }
                _ => return Err(Fault::pbdma("illegal GPFIFO opcode", raw)),
            },
        }
        self.busy = true;
        Ok(())
    }

    /// The entry is consumed: counts it, and reports it to the program by GP_GET.
    fn retire(&mut self, channel: &Channel, gpu: &Runlists) {
        self.busy = false;
        self.get = (self.get + 1) % channel.entries;
        self.progress.entries += 1;
        self.progress.dwords += self.words.len() as u64;
        self.progress.hash = counters::hash(self.progress.hash, &self.words);
        add(&gpu.counters.entries, 1);
        add(&gpu.counters.dwords, self.words.len() as u64);
        if let Some(counters) = channel.counters {
            counters.set_progress(self.progress);
        }
        channel.set_userd_word(USERD_GP_GET, self.get);
    }

    fn word(&mut self, word: u32, channel: &Channel, gpu: &Runlists) -> Result<Flow, Fault> {
        if let Some(pending) = self.pending {
            let flow = self.method(pending.subch, pending.address, word, channel, gpu)?;
            if flow == Flow::Next {
                self.pending = step(pending);
            }
            return Ok(flow);
        }
        match Header::parse(word) {
            Header::Nop => {}
            Header::Methods { kind, subch, address, count } => {
                self.pending = (count > 0).then_some(Pending { kind, subch, address, left: count });
            }
            Header::Immediate { subch, address, value } => {
                return self.method(subch, address, value.into(), channel, gpu);
            }
            Header::SubdeviceMask { op: MaskOp::Set, mask } => self.mask = mask,
            Header::SubdeviceMask { op: MaskOp::Store, mask } => self.stored_mask = mask,
            Header::SubdeviceMask { op: MaskOp::Use, .. } => self.mask = self.stored_mask,
            // Skips the rest; the loop adds one.
            Header::EndSegment { .. } => self.at = self.words.len() - 1,
            Header::Unknown(word) => return Err(Fault::pbdma("illegal method header", word.into())),
        }
        Ok(Flow::Next)
    }

    fn method(&mut self, subch: u8, address: u16, data: u32, ch: &Channel, gpu: &Runlists) -> Result<Flow, Fault> {
        // This GPU is sub-device 0.
        if self.mask & 1 == 0 {
            return Ok(Flow::Next);
        }
        if address == 0 {
            return self.set_object(subch, data, ch).map(|()| Flow::Next);
        }
        if address < HOST_METHODS {
            return self.host.method(address, data, ch, gpu, self.compute.kernels.idle());
        }
        let class = self.bound[usize::from(subch & 7)]
            .ok_or(Fault::pbdma("method on a subchannel without an object", address.into()))?;
        if class.method(address).is_none() {
            return Err(Fault::engine("method unknown to the class", u64::from(class.id) << 16 | u64::from(address)));
        }
        match class.family() {
            Some(Family::Copy) => self.copy.method(address, data, ch, gpu).map(|()| Flow::Next),
            Some(Family::Compute) => self.compute.method(address, data, ch, gpu),
            Some(Family::InlineToMemory) => self.inline.method(address, data, ch, gpu).map(|()| Flow::Next),
            _ => Err(Fault::engine("class without an engine", class.id.into())),
        }
    }

    /// SET_OBJECT (+0x0): NVCLASS 15:0. Subchannels of the graphics engine are fixed: 1 compute, 2 inline-to-memory, 4 copy.
    fn set_object(&mut self, subch: u8, data: u32, channel: &Channel) -> Result<(), Fault> {
        let id = data & 0xffff;
        if !channel.has_object(id) {
            return Err(Fault::engine("SET_OBJECT of a class that the channel has no object of", data.into()));
        }
        let class = class::by_id(id).ok_or(Fault::engine("SET_OBJECT of an unknown class", data.into()))?;
        let place = match class.family() {
            Some(Family::Compute) => Some(1),
            Some(Family::InlineToMemory) => Some(2),
            Some(Family::Copy) => Some(4),
            _ => None,
        };
        if channel.engine == Engine::Graphics && place != Some(subch) {
            return Err(Fault::engine(
                "SET_OBJECT on another class's subchannel",
                u64::from(subch) << 32 | u64::from(id),
            ));
        }
        self.bound[usize::from(subch & 7)] = Some(class);
        Ok(())
    }
}

/// The destination of the next data word.
fn step(pending: Pending) -> Option<Pending> {
    let left = pending.left - 1;
    let (kind, address) = match pending.kind {
        Kind::Inc | Kind::OldInc => (pending.kind, pending.address.wrapping_add(4)),
        // The first word went to the method, all others go to the next one.
        Kind::OneInc => (Kind::NonInc, pending.address.wrapping_add(4)),
        Kind::NonInc | Kind::OldNonInc | Kind::Immediate => (pending.kind, pending.address),
    };
    (left > 0).then_some(Pending { kind, address, left, ..pending })
}

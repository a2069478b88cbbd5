//! A controller that a test implements: as specified, except for the faults that the test sets.
#![allow(dead_code)] // each test file uses a part

use pcie::model::{Model, ModelBus, header};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;
pub const BLOCK: u64 = 512;

/// Changes an entry of the completion queue `.0` before it is posted. If it returns `false`, no entry is posted.
pub type Bend = Box<dyn FnMut(u16, &mut [u32; 4]) -> bool + Send>;
/// Changes an answer to Identify (`.0`: CNS).
pub type Page = Box<dyn FnMut(u32, &mut [u8]) + Send>;

pub struct Soft {
    pub cap: u64,
    pub version: u32,
    pub media: Vec<u8>,
    pub largest: u8,
    pub bend: Option<Bend>,
    pub page: Option<Page>,
    /// I/O commands wait for [`Soft::work`].
    pub hold: bool,
    /// Admin commands are not answered.
    pub deaf: bool,
    /// CSTS.RDY stays as it is.
    pub stuck: bool,
    pub fatal: bool,
    /// Values that CSTS returns, in turn, instead of its state.
    pub states: Vec<u32>,
    /// What register CRTO reads as.
    pub crto: u32,
    /// How long CSTS.RDY takes to follow CC.EN, when that is set.
    pub slow: Duration,
    pub enabled_at: Option<Instant>,
    /// Function reset works.
    pub resets: bool,
    pub aborts: u32,
    pub shut_down: bool,
    pub cc: u32,
    pub ready: bool,
    pub admin: [u64; 3],
    pub queues: BTreeMap<u16, Pair>,
    pub completions: BTreeMap<u16, (u64, u32)>,
}

#[derive(Clone, Debug)]
pub struct Pair {
    submissions: u64,
    completions: u64,
    entries: u32,
    head: u32,
    tail: u32,
    pub posted: u32,
}

impl Default for Soft {
    fn default() -> Soft {
        Soft {
            // 64 entries, contiguous, at once, NVM commands.
            cap: 63 | 1 << 16 | 1 << 37,
            version: 0x0001_0400,
            media: (0..128u32 << 10).map(|at| (at / 512 + at * 7) as u8).collect(),
            largest: 4,
            bend: None,
            page: None,
            hold: false,
            deaf: false,
            stuck: false,
            fatal: false,
            states: Vec::new(),
            crto: 0,
            slow: Duration::ZERO,
            enabled_at: None,
            resets: false,
            aborts: 0,
            shut_down: false,
            cc: 0,
            ready: false,
            admin: [0; 3],
            queues: BTreeMap::new(),
            completions: BTreeMap::new(),
        }
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[4 * at..4 * at + 4].try_into().unwrap())
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 1)) << 32
}

impl Soft {
    pub fn pairs(&self) -> usize {
        self.queues.len()
    }

    fn csts(&mut self) -> u32 {
        if !self.states.is_empty() {
            let next = self.states.remove(0);
            self.states.push(next);
            return next;
        }
        let is_late = self.enabled_at.is_some_and(|at| at.elapsed() < self.slow);
        u32::from(self.ready && !is_late) | u32::from(self.fatal) << 1 | if self.shut_down { 2 << 2 } else { 0 }
    }

    fn configure(&mut self, value: u32) {
        let (was, is) = (self.cc & 1 != 0, value & 1 != 0);
        self.cc = value;
        self.shut_down = value >> 14 & 3 != 0;
        if self.stuck {
            return;
        }
        if was && !is {
            self.queues.clear();
            self.completions.clear();
            self.fatal = false;
        }
        if is && !was {
            let entries = (self.admin[0] as u32 & 0xfff) + 1;
            let (submissions, completions) = (self.admin[1], self.admin[2]);
            self.queues.insert(0, Pair { submissions, completions, entries, head: 0, tail: 0, posted: 0 });
        }
        self.ready = is;
        self.enabled_at = if is && !was { Some(Instant::now()) } else { self.enabled_at.filter(|_| is) };
    }

    /// Runs the commands that queue `number` was given: at most `most` of them.
    pub fn work(&mut self, bus: &ModelBus, number: u16, most: usize) {
        for _ in 0..most {
            let Some(pair) = self.queues.get_mut(&number).filter(|pair| pair.head != pair.tail) else { return };
            let mut entry = [0; 64];
            let at = pair.submissions + u64::from(pair.head) * 64;
            pair.head = (pair.head + 1) % pair.entries;
            if bus.read(at, &mut entry).is_err() {
                return;
            }
            let (status, result) = if number == 0 { self.admin(bus, &entry) } else { self.io(bus, &entry) };
            let id = word(&entry, 0) >> 16;
            self.post(bus, number, id as u16, status, result);
        }
    }

    /// Posts a completion to queue `number`, whether there was such a command or not.
    pub fn post(&mut self, bus: &ModelBus, number: u16, id: u16, status: u16, result: u32) {
        let Some(pair) = self.queues.get_mut(&number) else { return };
        let phase = (pair.posted / pair.entries).is_multiple_of(2);
        let mut words = [
            result,
            0,
            pair.head | u32::from(number) << 16,
            u32::from(id) | u32::from(phase) << 16 | u32::from(status) << 17,
        ];
        let at = pair.completions + u64::from(pair.posted % pair.entries) * 16;
        if self.bend.as_mut().is_none_or(|bend| bend(number, &mut words)) {
            pair.posted += 1;
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let _ = bus.write(at, &bytes);
        }
    }

    fn admin(&mut self, bus: &ModelBus, entry: &[u8; 64]) -> (u16, u32) {
        let (data, ten, eleven) = (long(entry, 6), word(entry, 10), word(entry, 11));
        let number = ten as u16;
        match entry[0] {
            0x06 => {
                let mut page = self.identify(ten, word(entry, 1));
                if let Some(bend) = &mut self.page {
                    bend(ten, &mut page);
                }
                let _ = bus.write(data, &page);
                (0, 0)
            }
            0x09 => (0, 7 | 7 << 16),
            0x05 => {
                self.completions.insert(number, (data, (ten >> 16) + 1));
                (0, 0)
            }
            0x01 => match self.completions.get(&((eleven >> 16) as u16)) {
                Some((completions, entries)) => {
                    let (completions, entries) = (*completions, *entries);
                    self.queues
                        .insert(number, Pair { submissions: data, completions, entries, head: 0, tail: 0, posted: 0 });
                    (0, 0)
                }
                None => (0x100, 0),
            },
            0x00 => (if self.queues.remove(&number).is_some() { 0 } else { 0x101 }, 0),
            0x04 => (if self.completions.remove(&number).is_some() { 0 } else { 0x101 }, 0),
            0x08 => {
                self.aborts += 1;
                (0, 1)
            }
            _ => (0x4001, 0),
        }
    }

    fn identify(&self, cns: u32, _: u32) -> Vec<u8> {
        let mut page = vec![0; PAGE as usize];
        match cns {
            0 => {
                let blocks = self.media.len() as u64 / BLOCK;
                page[0..8].copy_from_slice(&blocks.to_le_bytes());
                page[8..16].copy_from_slice(&blocks.to_le_bytes());
                page[130] = 9;
            }
            1 => {
                page[24..28].copy_from_slice(b"soft");
                page[77] = self.largest;
                page[516] = 1;
            }
            _ => page[0] = 1,
        }
        page
    }

    fn io(&mut self, bus: &ModelBus, entry: &[u8; 64]) -> (u16, u32) {
        let block = long(entry, 10);
        let bytes = (u64::from(word(entry, 12) & 0xffff) + 1) * BLOCK;
        if entry[0] == 0 {
            return (0, 0);
        }
        let Some(end) = block.checked_mul(BLOCK).and_then(|at| at.checked_add(bytes)) else { return (0x4080, 0) };
        if end > self.media.len() as u64 {
            return (0x4080, 0);
        }
        let mut at = (block * BLOCK) as usize;
        for (address, length) in prps(bus, long(entry, 6), long(entry, 8), bytes) {
            let part = &mut self.media[at..at + length as usize];
            let moved = if entry[0] == 2 { bus.write(address, part) } else { bus.read(address, part) };
            if moved.is_err() {
                return (0x04, 0);
            }
            at += length as usize;
        }
        (0, 0)
    }
}

/// The pages that PRP entries name (Base 1.4, section 4.3).
fn prps(bus: &ModelBus, first: u64, second: u64, bytes: u64) -> Vec<(u64, u64)> {
    let mut found = vec![(first, bytes.min(PAGE - first % PAGE))];
    let mut left = bytes - found[0].1;
    if left == 0 {
        return found;
    }
    if left <= PAGE {
        found.push((second, left));
        return found;
    }
    let mut at = second;
    while left > 0 {
        let mut entry = [0; 8];
        if bus.read(at, &mut entry).is_err() {
            return found;
        }
        let entry = u64::from_le_bytes(entry);
        if (at + 8).is_multiple_of(PAGE) && left > PAGE {
            at = entry;
            continue;
        }
        found.push((entry, left.min(PAGE)));
        left -= left.min(PAGE);
        at += 8;
    }
    found
}

impl Model for Soft {
    fn config(&self) -> Vec<u8> {
        header(0x1b36, 0x0010, 0x01_0802)
    }

    fn bars(&self) -> [u64; 6] {
        [16 << 10, 0, 0, 0, 0, 0]
    }

    fn load(&mut self, _: &ModelBus, _: u8, offset: u64, bytes: usize) -> u64 {
        match (offset, bytes) {
            (0, 8) => self.cap,
            (0, _) => self.cap & 0xffff_ffff,
            (4, _) => self.cap >> 32,
            (8, _) => self.version.into(),
            (0x14, _) => self.cc.into(),
            (0x1c, _) => self.csts().into(),
            (0x68, _) => self.crto.into(),
            _ => 0,
        }
    }

    fn store(&mut self, bus: &ModelBus, _: u8, offset: u64, _: usize, value: u64) {
        match offset {
            0x14 => self.configure(value as u32),
            0x24 => self.admin[0] = value,
            0x28 => self.admin[1] = value,
            0x30 => self.admin[2] = value,
            0x1000.. => {
                let stride = 4 << (self.cap >> 32 & 0xf);
                let (index, place) = ((offset - 0x1000) / stride, (offset - 0x1000) % stride);
                let number = (index / 2) as u16;
                if !index.is_multiple_of(2) || place != 0 || !self.ready {
                    return;
                }
                let Some(pair) = self.queues.get_mut(&number) else { return };
                pair.tail = value as u32 % pair.entries;
                if if number == 0 { !self.deaf } else { !self.hold } {
                    self.work(bus, number, usize::MAX);
                }
            }
            _ => {}
        }
    }

    fn reset(&mut self) -> bool {
        if self.resets {
            self.stuck = false;
            self.configure(0);
        }
        self.resets
    }
}

//! A machine for the tests of the programs: each channel is a thread with a queue as long as a ring.

use super::{Channel, Engine, Flag, Machine, Memory, Work, programs, run_on};
use crate::{Error, Options, Report, Result};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

type Bytes = Arc<Vec<AtomicU8>>;

#[derive(Default)]
struct StandIn {
    memory: Arc<Mutex<Vec<(u64, Bytes)>>>,
    /// Counts down to the submission that is lost (0: none).
    lose: Arc<AtomicU64>,
}

struct Block {
    address: u64,
    bytes: Bytes,
}

#[derive(Clone)]
enum Owned {
    Copy(u64, u64, usize),
    Fill(u64, u32, usize),
    Inline(u64, Vec<u8>),
    Acquire(Arc<AtomicU32>, u32),
    Done(std::sync::mpsc::Sender<()>),
}

struct Queue {
    entries: Option<SyncSender<Vec<Owned>>>,
    thread: Option<JoinHandle<()>>,
    lose: Arc<AtomicU64>,
}

impl Memory for Block {
    fn address(&self) -> u64 {
        self.address
    }

    fn write(&self, bytes: &[u8]) {
        self.bytes[..bytes.len()].iter().zip(bytes).for_each(|(to, byte)| to.store(*byte, Ordering::Release));
    }

    fn read(&self, bytes: &mut [u8]) {
        bytes.iter_mut().zip(&*self.bytes).for_each(|(to, byte)| *to = byte.load(Ordering::Acquire));
    }
}

impl Flag for Arc<AtomicU32> {
    fn set(&self, value: u32) {
        self.store(value, Ordering::Release);
    }
}

impl Machine for StandIn {
    type Memory = Block;
    type Flag = Arc<AtomicU32>;
    type Channel = Queue;

    fn name(&self) -> String {
        "a stand-in".into()
    }

    fn host_memory(&self, bytes: usize) -> Result<Block> {
        let block: Bytes = Arc::new((0..bytes).map(|_| AtomicU8::new(0xa5)).collect());
        let mut memory = self.memory.lock().unwrap();
        let address = memory.last().map_or(0x10_0000, |(start, block)| (start + block.len() as u64 + 0xfff) & !0xfff);
        memory.push((address, block.clone()));
        Ok(Block { address, bytes: block })
    }

    fn video_memory(&self, bytes: usize) -> Result<Block> {
        self.host_memory(bytes)
    }

    fn flag(&self) -> Result<Arc<AtomicU32>> {
        Ok(Arc::default())
    }

    fn channel(&self, _engine: Engine, entries: u32) -> Result<Queue> {
        let (entries, queue) = sync_channel::<Vec<Owned>>(entries as usize);
        let memory = self.memory.clone();
        let thread = std::thread::spawn(move || {
            queue.into_iter().flatten().for_each(|work| execute(&memory, work));
        });
        Ok(Queue { entries: Some(entries), thread: Some(thread), lose: self.lose.clone() })
    }
}

fn find(memory: &Mutex<Vec<(u64, Bytes)>>, address: u64) -> (Bytes, usize) {
    let memory = memory.lock().unwrap();
    let (start, block) = memory.iter().rev().find(|(start, _)| *start <= address).unwrap();
    (block.clone(), (address - start) as usize)
}

fn put(memory: &Mutex<Vec<(u64, Bytes)>>, to: u64, bytes: impl ExactSizeIterator<Item = u8>) {
    let (block, at) = find(memory, to);
    block[at..][..bytes.len()].iter().zip(bytes).for_each(|(to, byte)| to.store(byte, Ordering::Release));
}

fn execute(memory: &Mutex<Vec<(u64, Bytes)>>, work: Owned) {
    match work {
        Owned::Copy(to, from, len) => {
            let (block, at) = find(memory, from);
            put(memory, to, block[at..][..len].iter().map(|byte| byte.load(Ordering::Acquire)));
        }
        Owned::Fill(to, word, words) => put(memory, to, word.to_le_bytes().repeat(words).into_iter()),
        Owned::Inline(to, bytes) => put(memory, to, bytes.into_iter()),
        Owned::Acquire(flag, value) => {
            while flag.load(Ordering::Acquire) != value {
                std::thread::yield_now();
            }
        }
        Owned::Done(tell) => tell.send(()).unwrap_or(()),
    }
}

impl Queue {
    fn send(&self, work: Vec<Owned>) -> Result<()> {
        self.entries.as_ref().unwrap().send(work).map_err(|_| Error::Panicked)
    }
}

impl Channel for Queue {
    type Flag = Arc<AtomicU32>;
    type Prepared = Vec<Owned>;

    fn prepare(&mut self, work: &[Work<'_>]) -> Result<Vec<Owned>> {
        let own = |work: &Work<'_>| match *work {
            Work::Copy { to, from, bytes } => Owned::Copy(to, from, bytes as usize),
            Work::Fill { to, word, words } => Owned::Fill(to, word, words as usize),
            Work::Inline { to, bytes } => Owned::Inline(to, bytes.to_vec()),
            Work::Launch { release, payload, .. } => Owned::Fill(release, payload, 1),
        };
        Ok(work.iter().map(own).collect())
    }

    fn prepare_acquire(&mut self, flag: &Arc<AtomicU32>, value: u32) -> Result<Vec<Owned>> {
        Ok(vec![Owned::Acquire(flag.clone(), value)])
    }

    fn submit(&mut self, prepared: &mut Vec<Owned>) -> Result<()> {
        match self.lose.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)) {
            Ok(1) => Ok(()),
            _ => self.send(prepared.clone()),
        }
    }

    fn retire(&mut self, _prepared: Vec<Owned>) {}

    fn wait(&mut self) -> Result<()> {
        let (tell, done) = channel();
        self.send(vec![Owned::Done(tell)])?;
        done.recv().map_err(|_| Error::Panicked)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        drop(self.entries.take());
        self.thread.take().unwrap().join().unwrap();
    }
}

const NAMES: [&str; 6] = ["launches", "threads", "spin", "channels", "storm", "bench"];

fn options(name: &str) -> Options {
    let count = match name {
        "spin" => 1300,
        "storm" => 2000,
        _ => 5,
    };
    Options { count: Some(count), seed: 7, ..Options::default() }
}

#[test]
fn every_variant_passes_and_repeats_its_checksum() {
    for name in NAMES {
        let sum = |seed| run_on(&StandIn::default(), name, &Options { seed, ..options(name) }).unwrap().checksum();
        assert_eq!(sum(7), sum(7), "{name}");
        assert_ne!(sum(7), sum(8), "{name}");
    }
}

#[test]
fn a_lost_submission_is_noticed() {
    for (name, lost) in [("launches", 2), ("threads", 3), ("spin", 1), ("spin", 1200), ("channels", 4), ("bench", 411)]
    {
        let machine = StandIn::default();
        machine.lose.store(lost, Ordering::SeqCst);
        let result = run_on(&machine, name, &options(name));
        assert!(matches!(result, Err(Error::Wrong { .. })), "{name}, submission {lost}: {result:?}");
    }
}

#[test]
fn copies_pass_and_a_lost_one_is_noticed() {
    let sizes: Vec<u32> = programs::SIZES.into_iter().filter(|bytes| *bytes < 100_000).collect();
    let run = |machine: &StandIn, seed| {
        let mut report = Report::new("copies", machine.name(), seed);
        let options = Options { count: Some(1), seed, ..Options::default() };
        programs::copies(machine, &sizes, &options, &mut report).map(|()| report.checksum())
    };
    assert_eq!(run(&StandIn::default(), 7).unwrap(), run(&StandIn::default(), 7).unwrap());
    assert_ne!(run(&StandIn::default(), 7).unwrap(), run(&StandIn::default(), 8).unwrap());
    for lost in 1..=12 {
        let machine = StandIn::default();
        machine.lose.store(lost, Ordering::SeqCst);
        assert!(matches!(run(&machine, 7), Err(Error::Wrong { .. })), "submission {lost}");
    }
}

#[test]
fn samples_that_need_libcuda_report_that() {
    let result = run_on(&StandIn::default(), "graphs", &options("graphs"));
    assert!(matches!(result, Err(Error::Unavailable { .. })), "{result:?}");
}

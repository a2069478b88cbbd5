//! The words that a stand-in for CUDA submitted are read back one by one, or the error gives the reason.

use doorbell_softgpu::{Mode, SoftDriver};
use gpu::{AddressSpace, Channel, ChannelOptions, Device, Engine, Entry, Error, Memory, Watched, Watching};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

const ENTRIES: u32 = 32;

struct Rig {
    driver: SoftDriver,
    watched: &'static Watched,
    /// The stand-in's address space.
    cuda: Arc<AddressSpace>,
    /// doorbell's view of it.
    space: Arc<AddressSpace>,
    words: Arc<Memory>,
    /// Addresses are per process.
    _one: MutexGuard<'static, ()>,
}

static ONE: Mutex<()> = Mutex::new(());

fn rig() -> Rig {
    let one = poison::ignore(ONE.lock());
    let driver = SoftDriver::new(Mode::Strict);
    let watched: &'static Watched = Box::leak(Box::default());
    let device = Device::open(Arc::new(Watching(driver, watched)), 0).unwrap();
    let cuda = AddressSpace::new(&device).unwrap();
    let space = watched.address_space(Arc::new(driver), watched.gpus()[0], Entry::OwnClient).unwrap();
    let words = cuda.alloc_host(0x1_0000).unwrap();
    Rig { driver, watched, cuda, space, words, _one: one }
}

impl Rig {
    fn channel(&self, engine: Engine) -> Channel {
        Channel::new(&self.cuda, engine, ChannelOptions { entries: ENTRIES, ..Default::default() }).unwrap()
    }

    /// Submits `dwords` NOPs whose operands identify them.
    fn submit(&self, channel: &mut Channel, number: u32, dwords: u32) -> Vec<u32> {
        let at = u64::from(number % 64) * 0x400;
        // NOP of subchannel 4 (method 0x100), immediate.
        let words: Vec<u32> =
            (0..dwords).map(|i| 4 << 29 | ((number + i) & 0x1fff) << 16 | 4 << 13 | 0x100 >> 2).collect();
        for (i, word) in words.iter().enumerate() {
            self.words.word(at + 4 * i as u64).store(*word, Ordering::Relaxed);
        }
        channel.submit_unchecked(self.words.va() + at, dwords).unwrap();
        words
    }
}

/// Waits until every entry has been consumed.
fn settle(channel: &Channel) {
    let start = Instant::now();
    while channel.entries_written() % u64::from(ENTRIES) != u64::from(channel.gp_get()) {
        assert!(start.elapsed() < Duration::from_secs(10) && channel.error().is_none());
        std::hint::spin_loop();
    }
}

#[test]
fn the_words_of_each_channel_come_back_wherever_in_the_ring_they_lie() {
    let rig = rig();
    let (mut one, mut two) = (rig.channel(Engine::Copy(2)), rig.channel(Engine::Copy(3)));
    let mark = rig.watched.mark(&rig.space).unwrap();
    assert!(rig.watched.given(&mark).unwrap().channels.is_empty(), "nothing was given");
    let mut number = 0;
    for round in 0..40 {
        let mark = rig.watched.mark(&rig.space).unwrap();
        let (mut first, mut second) = (Vec::new(), Vec::new());
        for _ in 0..1 + round % 5 {
            number += 1;
            first.push(rig.submit(&mut one, number, 1 + number % 200));
        }
        number += 1;
        second.push(rig.submit(&mut two, number, 3));
        settle(&one);
        settle(&two);
        // (The releases at the ends of quarters are omitted.)
        let given = rig.watched.given(&mark).unwrap();
        let segments: Vec<_> = given.channels.iter().map(|channel| &channel.segments).collect();
        assert_eq!(segments, [&first, &second], "round {round}");
        assert!(given.channels.iter().all(|channel| channel.class == 0xc86f && channel.engines == [0xc8b5]));
    }
    assert_eq!(rig.driver.counters().faults.load(Ordering::Relaxed), 0);
}

#[track_caller]
fn not_seen(given: Result<gpu::Given, Error>, why: &str) {
    let error = given.unwrap_err();
    assert!(matches!(error, Error::NotSeen { .. }) && error.to_string().contains(why), "{error}");
}

#[test]
fn more_than_a_ring_holds_is_refused_however_much_it_is() {
    let rig = rig();
    let mut channel = rig.channel(Engine::Copy(2));
    for times in [ENTRIES - 1, ENTRIES, ENTRIES + 1, 3 * ENTRIES] {
        let mark = rig.watched.mark(&rig.space).unwrap();
        let first = channel.entries_written();
        while channel.entries_written() - first < times.into() {
            let number = channel.entries_written() as u32;
            rig.submit(&mut channel, number, 2);
            settle(&channel);
        }
        let given = rig.watched.given(&mark);
        match channel.entries_written() - first {
            // All entries but one were written again.
            written if written < u64::from(ENTRIES) => assert_eq!(given.unwrap().channels.len(), 1),
            _ => not_seen(given, "has gone round"),
        }
    }
}

#[test]
fn channels_that_come_and_go_and_words_that_are_not_mapped() {
    let rig = rig();
    let mut channel = rig.channel(Engine::Copy(2));
    let mark = rig.watched.mark(&rig.space).unwrap();
    let other = rig.channel(Engine::Copy(4));
    not_seen(rig.watched.given(&mark), "made in the meantime");
    let mark = rig.watched.mark(&rig.space).unwrap();
    drop(other);
    not_seen(rig.watched.given(&mark), "the channel is gone");
    let mark = rig.watched.mark(&rig.space).unwrap();
    rig.submit(&mut channel, 1, 8);
    settle(&channel);
    assert_eq!(rig.watched.given(&mark).unwrap().channels.len(), 1);
    let Rig { watched, words, .. } = &rig;
    // The stand-in's mapping for the CPU is removed, and the graph is notified.
    watched.unmapped(words.va(), words.length());
    not_seen(watched.given(&mark), "its pushbuffer is not mapped");
    watched.begin_late();
    assert!(matches!(watched.mark(&rig.space), Err(Error::NotSeen { .. })));
}

#[test]
fn a_divided_gpu_is_refused_by_name() {
    use rm::fact::{Created, Fact, What};
    let rig = rig();
    let _channel = rig.channel(Engine::Copy(2));
    rig.watched.mark(&rig.space).unwrap();
    let mut graph = rig.watched.graph();
    let (client, device, _) = graph.va_spaces()[0];
    // Its client has an object of a GPU instance.
    let what = What::Other { engine_type: None };
    let part = Created { client, parent: device, handle: 0x5c00_7777, class: 0xc637, what };
    graph.told(3, rm::graph::FileKind::Ctl, Fact::Created(part));
    drop(graph);
    let error = rig.watched.mark(&rig.space).unwrap_err();
    assert!(error.to_string().contains("MIG"), "{error}");
}

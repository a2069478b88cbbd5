//! The driver against a card that was written from the product guide and refuses what the guide forbids.

mod bytes;

use bytes::load;
use drivers::xdma::model::{Card, Faults};
use drivers::xdma::{Direction, Error, Xdma};
use pcie::model::{self, Model, ModelBus, Plugged};
use pcie::{Function, Memory, Pages};
use std::time::{Duration, Instant};
use test_support::noise;

const TIMEOUT: Duration = Duration::from_secs(10);
const BEGIN: u64 = 0x2_0000_0000;
const OWN: u64 = 32 << 20;

struct Rig {
    bus: ModelBus,
    card: Plugged<Card>,
    xdma: Xdma,
}

fn function(bus: &ModelBus, change: impl FnOnce(&mut Card)) -> (Box<dyn Function>, Plugged<Card>) {
    let mut card = Card::new(BEGIN, OWN);
    change(&mut card);
    model::plug(card, bus)
}

fn rig_with(pages: Pages, change: impl FnOnce(&mut Card)) -> Rig {
    let bus = ModelBus::new(pages);
    let (function, card) = function(&bus, change);
    let xdma = Xdma::new(function, (BEGIN, OWN)).unwrap();
    Rig { bus, card, xdma }
}

fn rig(pages: Pages) -> Rig {
    rig_with(pages, |_| {})
}

impl Rig {
    fn memory(&self, bytes: u64) -> Memory {
        self.xdma.function().allocate(bytes).unwrap()
    }

    /// The driver made no access that the guide forbids, and the bus recorded no wild access.
    fn is_right(&self) {
        self.card.with(|card| assert_eq!(card.violations, Vec::<String>::new()));
        assert_eq!(self.bus.wild(), []);
    }
}

/// To the card and back, with a check of the bytes around.
fn there_and_back(rig: &mut Rig, memory: &Memory, at: u64, own: u64, bytes: u64) {
    const BESIDE: u64 = 16;
    let sent = noise(bytes as usize, bytes);
    memory.store(at, &sent).unwrap();
    rig.xdma.copy(Direction::H2c, BEGIN + own, memory, at, bytes, TIMEOUT).unwrap();
    rig.card.with(|card| assert!(card.memory[own as usize..][..bytes as usize] == sent, "{bytes} bytes to the card"));
    memory.store(at - BESIDE, &vec![0xee; (bytes + 2 * BESIDE) as usize]).unwrap();
    rig.xdma.copy(Direction::C2h, BEGIN + own, memory, at, bytes, TIMEOUT).unwrap();
    assert!(load(memory, at, bytes) == sent, "{bytes} bytes from the card");
    let beside = [load(memory, at - BESIDE, BESIDE), load(memory, at + bytes, BESIDE)];
    assert!(beside.iter().flatten().all(|byte| *byte == 0xee));
    rig.is_right();
}

#[test]
fn every_length_goes_both_ways_in_one_piece_and_in_scattered_pages() {
    for pages in [Pages::Together, Pages::Scattered] {
        let mut rig = rig(pages);
        let memory = rig.memory((8 << 20) + 0x3000);
        for bytes in [1, 4, 4095, 4096, 4097, 64 << 10, (1 << 20) + 3, 8 << 20] {
            there_and_back(&mut rig, &memory, 0xffb, 12_345, bytes);
        }
        assert_eq!(rig.xdma.version(), 6);
    }
}

/// A list longer than a page: blocks that end with the page, and more than the six bits of adjacency say.
#[test]
fn each_scattered_page_has_a_descriptor() {
    let mut rig = rig(Pages::Scattered);
    let memory = rig.memory(300 * 4096);
    there_and_back(&mut rig, &memory, 4096, 0, 298 * 4096);
    assert_eq!(rig.card.with(|card| card.fetched), 2 * 298);
    let mut together = self::rig(Pages::Together);
    let memory = together.memory(300 * 4096);
    there_and_back(&mut together, &memory, 4096, 0, 298 * 4096);
    assert_eq!(together.card.with(|card| card.fetched), 2, "what follows on the bus is one");
}

#[test]
fn another_devices_memory_is_a_target() {
    let mut rig = rig(Pages::Together);
    let (peer, _) = rig.bus.peer(16 << 20).unwrap();
    let gpu = rig.xdma.function().reach(&peer).unwrap();
    for bytes in [4 << 10, 64 << 10, 512 << 10, 1 << 20, 4 << 20, 8 << 20] {
        there_and_back(&mut rig, &gpu, 0x1040, 64, bytes);
    }
}

#[test]
fn the_card_never_gets_addresses_it_does_not_have() {
    let mut rig = rig_with(Pages::Together, |card| card.alignment = 8);
    let memory = rig.memory(4096);
    let mut start = |own: u64, at, bytes| rig.xdma.start(Direction::C2h, own, &memory, at, bytes).unwrap_err();
    assert!(matches!(start(BEGIN, 0, 0), Error::Empty));
    for (own, bytes) in [(BEGIN - 8, 8), (BEGIN + OWN - 8, 16), (0, 8), (u64::MAX - 7, 16)] {
        assert!(matches!(start(own, 0, bytes), Error::Card { .. }), "{own:#x}");
    }
    assert!(matches!(start(BEGIN, 4096 - 8, 16), Error::Pcie(pcie::Error::OutOfBounds { .. })));
    for (own, at, bytes, which) in [(BEGIN + 4, 0, 8, "source"), (BEGIN, 4, 8, "destination"), (BEGIN, 0, 12, "length")]
    {
        let said = start(own, at, bytes).to_string();
        assert!(said.contains(which) && said.contains("no multiple of 8"), "{said}");
    }
    assert!(matches!(rig.xdma.poll(), Err(Error::Idle)));
    there_and_back(&mut rig, &memory, 1024, 8, 512);
    assert_eq!(rig.card.with(|card| card.fetched), 2);
}

#[test]
fn more_pages_than_the_list_has_room_for_are_refused() {
    let mut rig = rig(Pages::Scattered);
    let memory = rig.memory(8193 * 4096);
    let refused = rig.xdma.start(Direction::C2h, BEGIN, &memory, 0, OWN);
    assert!(refused.is_ok(), "8,192 pages: {refused:?}");
    rig.xdma.wait(TIMEOUT).unwrap();
    let refused = rig.xdma.start(Direction::C2h, BEGIN, &memory, 1, OWN).unwrap_err();
    assert!(matches!(refused, Error::TooScattered { room: 8192, .. }), "{refused}");
    rig.is_right();
}

/// The design has less memory than the caller gave.
#[test]
fn an_address_that_the_card_does_not_decode_has_a_name_and_the_next_transfer_works() {
    for silent in [false, true] {
        let mut rig = rig_with(Pages::Together, |card| {
            card.memory.truncate(1 << 20);
            card.faults = Faults { silent, ..Faults::default() };
        });
        let memory = rig.memory(4096);
        for (direction, what) in [(Direction::H2c, "that was written"), (Direction::C2h, "that was read")] {
            let error = rig.xdma.copy(direction, BEGIN + (1 << 20), &memory, 0, 4096, TIMEOUT).unwrap_err();
            let said = error.to_string();
            assert!(matches!(error, Error::Stopped { done: 0, descriptors: 1, .. }), "{said}");
            assert!(
                said.contains("decode error") && said.contains(what) && said.contains(&direction.to_string()),
                "{said}"
            );
            there_and_back(&mut rig, &memory, 64, 0, 1000);
        }
    }
}

#[test]
fn a_descriptor_that_cannot_be_read_has_a_name() {
    let mut rig = rig_with(Pages::Scattered, |card| card.faults.descriptor_error = Some(2));
    let memory = rig.memory(8 * 4096);
    let error = rig.xdma.copy(Direction::C2h, BEGIN, &memory, 0, 5 * 4096, TIMEOUT).unwrap_err();
    assert!(matches!(error, Error::Stopped { done: 2, descriptors: 5, .. }), "{error}");
    assert!(error.to_string().contains("completer abort while a descriptor was read"), "{error}");
    there_and_back(&mut rig, &memory, 64, 0, 3 * 4096);
}

/// The written-back count is wrong: the driver reads the registers, and does not report unfinished transfers as done.
#[test]
fn a_wrong_write_back_is_detected_or_harmless() {
    for (lie, stalled) in [0, 2, 0x00ff_ffff, 0x7f00_0001, 1 << 31, 1 << 31 | 1, u32::MAX]
        .iter()
        .flat_map(|lie| [(*lie, false), (*lie, true)])
    {
        let mut rig =
            rig_with(Pages::Together, |card| card.faults = Faults { lie: Some(lie), stalled, ..Faults::default() });
        let memory = rig.memory(4096);
        let sent = noise(1000, 5);
        rig.card.with(|card| card.memory[..1000].copy_from_slice(&sent));
        let end = rig.xdma.copy(Direction::C2h, BEGIN, &memory, 0, 1000, Duration::from_millis(20));
        match end {
            Ok(()) => assert!(!stalled && load(&memory, 0, 1000) == sent, "{lie:#x}"),
            Err(Error::Late { done: 0, .. }) => assert!(stalled, "{lie:#x}"),
            Err(other) => panic!("{lie:#x}: {other}"),
        }
        rig.is_right();
    }
}

#[test]
fn a_transfer_that_does_not_end_is_late_and_can_be_given_up() {
    let mut rig = rig_with(Pages::Together, |card| card.faults.stalled = true);
    let memory = rig.memory(4096);
    rig.xdma.start(Direction::C2h, BEGIN, &memory, 0, 64).unwrap();
    assert!(matches!(rig.xdma.start(Direction::H2c, BEGIN, &memory, 0, 64), Err(Error::Busy)));
    let late = rig.xdma.wait(Duration::from_millis(20)).unwrap_err();
    assert!(matches!(late, Error::Late { done: 0, descriptors: 1, bytes: 64, state: "busy", .. }), "{late}");
    // It ends by itself,
    let bus = rig.bus.clone();
    rig.card.with(|card| card.go_on(&bus));
    rig.xdma.wait(TIMEOUT).unwrap();
    // or it is stopped: then it writes no more data.
    rig.card.with(|card| card.faults.stalled = true);
    rig.xdma.start(Direction::C2h, BEGIN, &memory, 0, 64).unwrap();
    rig.xdma.abandon().unwrap();
    memory.store(0, &[7; 64]).unwrap();
    rig.card.with(|card| card.go_on(&bus));
    assert_eq!(load(&memory, 0, 64), [7; 64]);
    there_and_back(&mut rig, &memory, 64, 0, 1000);
}

#[test]
fn a_channel_that_does_not_stop_keeps_its_memory_until_a_reset() {
    let mut rig = rig_with(Pages::Together, |card| card.faults.stuck = true);
    let memory = rig.memory(4096);
    let bus_address = memory.bus(0).unwrap().0;
    rig.xdma.start(Direction::C2h, BEGIN, &memory, 0, 64).unwrap();
    drop(memory);
    assert!(matches!(rig.xdma.wait(Duration::from_millis(5)), Err(Error::Late { .. })));
    assert!(matches!(rig.xdma.abandon(), Err(Error::Stuck { direction: Direction::C2h, .. })));
    let memory = rig.memory(4096);
    let begun = Instant::now();
    assert!(rig.xdma.start(Direction::H2c, BEGIN, &memory, 0, 64).is_err(), "nothing more is started");
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert!(rig.bus.read(bus_address, &mut [0; 64]).is_ok(), "the card may still write there");
    rig.xdma.reset().unwrap();
    assert!(rig.bus.read(bus_address, &mut [0; 64]).is_err(), "it is free by now");
    let bus = ModelBus::default();
    drop(std::mem::replace(&mut rig.bus, bus));
    rig.card.with(|card| card.violations.clear());
    there_and_back(&mut rig, &memory, 64, 0, 1000);
}

#[test]
fn memory_that_a_card_may_still_write_is_nobodys_for_ever() {
    let mut rig = rig_with(Pages::Together, |card| card.faults.stuck = true);
    let memory = rig.memory(4096);
    let at = memory.bus(0).unwrap().0;
    rig.xdma.start(Direction::C2h, BEGIN, &memory, 0, 64).unwrap();
    drop((memory, rig.xdma));
    assert!(rig.bus.read(at, &mut [0; 64]).is_ok());
}

#[test]
fn a_reset_that_there_is_none_of_is_refused() {
    let mut rig = rig_with(Pages::Together, |card| card.faults.no_reset = true);
    assert!(matches!(rig.xdma.reset(), Err(Error::Pcie(pcie::Error::Refused { .. }))));
}

#[test]
fn a_card_that_is_pulled_out_is_gone() {
    let mut rig = rig_with(Pages::Together, |card| card.faults.stalled = true);
    let memory = rig.memory(4096);
    rig.xdma.start(Direction::C2h, BEGIN, &memory, 0, 64).unwrap();
    rig.card.pull();
    let gone = rig.xdma.wait(TIMEOUT).unwrap_err();
    assert!(matches!(gone, Error::Pcie(pcie::Error::Gone { .. })), "{gone}");
    let address = rig.xdma.function().identity().address.to_string();
    assert!(gone.to_string().contains(&address), "{gone}");
}

#[test]
fn another_card_is_refused_with_the_reason() {
    /// Registers of zeros.
    struct Other;
    impl Model for Other {
        fn config(&self) -> Vec<u8> {
            model::header(0x10ee, 0x7024, 0)
        }
        fn bars(&self) -> [u64; 6] {
            [4096, 1 << 16, 0, 0, 0, 0]
        }
        fn load(&mut self, _: &ModelBus, _: u8, _: u64, _: usize) -> u64 {
            0
        }
        fn store(&mut self, _: &ModelBus, _: u8, _: u64, _: usize, _: u64) {
            panic!("nothing is stored to what is not known");
        }
    }
    let bus = ModelBus::default();
    let refused = Xdma::new(model::plug(Other, &bus).0, (0, 1)).map(drop).unwrap_err();
    assert!(matches!(refused, Error::NotXdma { .. }), "{refused}");
    let (stream, _) = function(&bus, |card| card.faults.stream = true);
    let refused = Xdma::new(stream, (0, 1)).map(drop).unwrap_err();
    assert!(refused.to_string().contains("AXI4-Stream"), "{refused}");
}

/// The model itself, with actions that the driver never takes.
#[test]
fn the_card_refuses_what_the_guide_forbids() {
    let of = |change: &dyn Fn(&mut [u8]), adjacent: u32, offset: u64| {
        let bus = ModelBus::default();
        let (function, card) = function(&bus, |_| {});
        let bar = function.bar(1).unwrap();
        let list = function.allocate(8192).unwrap();
        let target = function.allocate(4096).unwrap();
        // Two descriptors: the second one with Stop and Completed.
        let mut bytes = vec![0u8; 64];
        let (at, to) = (list.bus(offset).unwrap().0, target.bus(0).unwrap().0);
        for (n, descriptor) in bytes.chunks_mut(32).enumerate() {
            descriptor[0..4].copy_from_slice(&(0xad4b_0000u32 | if n == 1 { 3 } else { 0 }).to_le_bytes());
            descriptor[4..8].copy_from_slice(&8u32.to_le_bytes());
            descriptor[8..16].copy_from_slice(&BEGIN.to_le_bytes());
            descriptor[16..24].copy_from_slice(&to.to_le_bytes());
            descriptor[24..32].copy_from_slice(&(if n == 0 { at + 32 } else { 0 }).to_le_bytes());
        }
        change(&mut bytes);
        list.store(offset, &bytes).unwrap();
        bar.store32(0x5080, at as u32);
        bar.store32(0x5084, (at >> 32) as u32);
        bar.store32(0x5088, adjacent);
        bar.store32(0x1004, 1);
        let (status, done) = (bar.load32(0x1040), bar.load32(0x1048));
        (status & !7, done, card.with(|card| card.violations.join("; ")))
    };
    let none = |_: &mut [u8]| {};
    assert_eq!(of(&none, 1, 0), (0, 2, String::new()), "as it should be");
    assert_eq!(of(&none, 0, 0), (0, 2, String::new()), "one at a time");
    assert_eq!(of(&|bytes| bytes[3] = 0, 1, 0), (1 << 4, 0, String::new()), "no magic number");
    assert_eq!(of(&|bytes| bytes[4] = 0, 1, 0), (1 << 5, 0, String::new()), "no length");
    for (change, adjacent, offset, what) in [
        (&none as &dyn Fn(&mut [u8]), 1, 4096 - 32, "cross 4 KiB"),
        (&none, 0, 16, "not on 32 bytes"),
        (&|bytes| bytes[0] = 1, 1, 0, "Stop on a descriptor that is not the last"),
        (&|bytes| bytes[24] ^= 64, 1, 0, "wrong adjacency"),
        (&|bytes| bytes[1] = 5, 1, 0, "wrong adjacency"),
        (&|bytes| bytes[1] = 0x40, 1, 0, "reserved bits"),
        (&|bytes| bytes[7] = 0x10, 1, 0, "reserved bits"),
        (&|bytes| bytes[32] = 2, 1, 0, "a list without Stop"),
    ] {
        let (_, _, violations) = of(change, adjacent, offset);
        assert!(violations.contains(what), "{what}: {violations}");
    }
}

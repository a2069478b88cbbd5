//! A controller that lies, fails or does not answer: the driver returns an error with its bytes, without a panic, a wild address, or memory that is
//! freed too early.

#[path = "support/soft.rs"]
mod soft;

use drivers::nvme::{Controller, Depth, Done, Error, Lie, Lost, Outcome, Piece, Queue};
use pcie::Memory;
use pcie::model::{ModelBus, Plugged, plug};
use proptest::prelude::*;
use soft::Soft;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

struct Bench {
    bus: ModelBus,
    model: Plugged<Soft>,
    controller: Controller,
    queue: Queue,
    memory: Memory,
}

fn opened(soft: Soft) -> (ModelBus, Plugged<Soft>, Result<Controller, Error>) {
    let bus = ModelBus::default();
    let (function, model) = plug(soft, &bus);
    let controller = Controller::open(function);
    (bus, model, controller)
}

/// A queue of four slots, each prepared for a page, whose commands run only when the test lets them.
fn bench() -> Bench {
    let (bus, model, controller) = opened(Soft { hold: true, ..Soft::default() });
    let controller = controller.unwrap();
    let depth = Depth { slots: 4, deadline: SECOND, ..Depth::default() };
    let mut queue = controller.queue(&depth).unwrap();
    let memory = controller.allocate(4 * 4096).unwrap();
    for slot in 0..4 {
        queue.prepare(slot, &[Piece::new(&memory, u64::from(slot) * 4096, 4096)]).unwrap();
    }
    Bench { bus, model, controller, queue, memory }
}

impl Bench {
    fn start(&mut self, slot: u16) {
        let io = self.controller.namespace(1).unwrap().read(8 * u64::from(slot), 8).unwrap();
        self.queue.submit(slot, &io).unwrap();
    }

    fn work(&self) {
        self.model.with(|soft| soft.work(&self.bus, 1, usize::MAX));
    }

    fn reap(&mut self) -> Result<Vec<Done>, Error> {
        let mut done = [Done::NONE; 8];
        self.queue.reap(&mut done).map(|count| done[..count].to_vec())
    }

    /// The impossible field that the controller wrote.
    fn lie(&mut self) -> Lie {
        match self.reap().unwrap_err() {
            Error::Lied { queue: 1, lie, entry, .. } => {
                assert_ne!(entry.0, [0; 4], "the bytes are told");
                lie
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn valid_completions_are_accepted() {
    let mut bench = bench();
    // Several laps of the queue, in any order of completion.
    for turn in 0..30 {
        bench.start(turn % 4);
        bench.start((turn + 1) % 4);
        assert_eq!(bench.reap().unwrap(), []);
        bench.work();
        let done = bench.reap().unwrap();
        assert!(done.len() == 2 && done.iter().all(Done::is_success), "{done:?}");
    }
    let mut found = [0; 4096];
    bench.memory.load(4096, &mut found).unwrap();
    bench.model.with(|soft| assert_eq!(found, soft.media[4096..8192]));
    assert_eq!(bench.bus.wild(), []);
    let (bus, model) = (bench.bus.clone(), bench.model.clone());
    drop(bench);
    assert!(model.with(|soft| soft.pairs() == 0), "the controller was shut down");
    assert_eq!(bus.wild(), []);
}

#[test]
fn each_lie_is_told_and_closes_the_queue() {
    type Bend = fn(&mut [u32; 4]);
    let lies: [(Bend, Lie); 7] = [
        (|entry| entry[2] |= 5 << 16, Lie::Queue(5)),
        (|entry| entry[3] |= 0xfff, Lie::UnknownCommand(0x1fff)),
        (|entry| entry[3] ^= 1, Lie::NotInFlight(0x1001)),
        (|entry| entry[3] ^= 0x3000, Lie::NotInFlight(0x2000)),
        (|entry| entry[2] |= 99, Lie::Head(99)),
        (|entry| entry[2] = entry[2] & !0xffff | 3, Lie::Head(3)),
        (|entry| entry[2] &= !0xffff, Lie::NotFetched(0x1000)),
    ];
    for (bend, lie) in lies {
        let mut bench = bench();
        bench.start(0);
        bench.model.with(|soft| {
            soft.bend = Some(Box::new(move |number, entry| {
                if number == 1 {
                    bend(entry)
                }
                true
            }))
        });
        bench.work();
        assert_eq!(bench.lie(), lie);
        assert_eq!(bench.lie(), lie, "it stays closed");
        let io = bench.controller.namespace(1).unwrap().read(0, 8).unwrap();
        assert!(matches!(bench.queue.submit(1, &io), Err(Error::Lied { .. })));
        assert!(matches!(bench.queue.expire(Instant::now()), Err(Error::Lied { .. })));
        bench.model.with(|soft| soft.bend = None);
        bench.controller.reset().unwrap();
        assert_eq!(bench.reap().unwrap(), [Done { slot: 0, outcome: Outcome::Lost(Lost::Stopped) }]);
        assert_eq!(bench.bus.wild(), []);
    }
}

#[test]
fn a_completion_told_twice_is_a_lie_and_what_came_before_is_kept() {
    let mut bench = bench();
    bench.start(0);
    bench.start(1);
    bench.model.with(|soft| {
        soft.work(&bench.bus, 1, 1);
        soft.post(&bench.bus, 1, 0x1000, 0, 0);
    });
    let done = bench.reap().unwrap();
    assert_eq!((done.len(), done[0].slot), (1, 0), "the first one is right");
    assert_eq!(bench.lie(), Lie::NotInFlight(0x1000));
    // Also a late one, when the slot is in flight again.
    let mut bench = self::bench();
    bench.start(0);
    bench.work();
    assert_eq!(bench.reap().unwrap().len(), 1);
    bench.model.with(|soft| soft.post(&bench.bus, 1, 0x1000, 0, 0));
    assert_eq!(bench.reap().unwrap(), [], "nothing is in flight, nobody looks");
    bench.start(0);
    assert_eq!(bench.lie(), Lie::NotInFlight(0x1000));
}

#[test]
fn a_phase_that_turns_back_is_a_command_that_never_ends() {
    let mut bench = bench();
    bench.start(2);
    // The phase bit has the value of the previous lap: the driver does not see the entry.
    bench.model.with(|soft| {
        soft.bend = Some(Box::new(|_, entry| {
            entry[3] ^= 1 << 16;
            true
        }))
    });
    bench.work();
    assert_eq!(bench.reap().unwrap(), []);
    bench.model.with(|soft| soft.bend = None);
    let begin = Instant::now();
    assert_eq!(bench.queue.expire(begin).unwrap().aborted, 0);
    assert_eq!(bench.queue.expire(begin + SECOND).unwrap().aborted, 1);
    assert_eq!(bench.model.with(|soft| soft.aborts), 1);
    assert!(bench.queue.expire(begin + SECOND * 2).unwrap().stopped);
    assert_eq!(bench.reap().unwrap(), [Done { slot: 2, outcome: Outcome::Lost(Lost::Stopped) }]);
}

#[test]
fn memory_is_kept_until_the_controller_was_stopped() {
    let mut bench = bench();
    bench.start(3);
    let (target, _) = bench.memory.bus(3 * 4096).unwrap();
    bench.memory = bench.controller.allocate(4096).unwrap();
    let reached = |bench: &Bench| bench.bus.write(target, &[7; 64]).is_ok();
    assert!(reached(&bench), "the user has dropped it, the command in flight has not");
    bench.model.with(|soft| soft.post(&bench.bus, 1, 0x0abc, 0, 0));
    assert_eq!(bench.lie(), Lie::UnknownCommand(0xabc));
    assert!(reached(&bench), "the queue is closed, but the device may still write");
    bench.controller.reset().unwrap();
    assert_eq!(bench.reap().unwrap().len(), 1);
    drop(bench.queue);
    assert!(bench.bus.write(target, &[7; 64]).is_err(), "now it is given back");
}

#[test]
fn a_queue_that_is_dropped_in_flight_is_deleted_first() {
    let mut bench = bench();
    bench.start(1);
    drop(bench.queue);
    assert_eq!(bench.model.with(|soft| soft.pairs()), 1, "the admin queue alone");
    assert_eq!(bench.bus.wild(), []);
    assert_eq!(bench.controller.queue(&Depth::default()).unwrap().number(), 1, "its number is free again");
}

#[test]
fn a_device_that_does_not_stop_keeps_its_memory() {
    let mut bench = bench();
    bench.start(0);
    let io = bench.controller.namespace(1).unwrap().read(0, 8).unwrap();
    let (target, _) = bench.memory.bus(0).unwrap();
    bench.model.with(|soft| soft.stuck = true);
    let wedged = bench.controller.stop().unwrap_err();
    assert!(matches!(wedged, Error::Wedged { .. }), "{wedged}");
    assert!(matches!(bench.queue.submit(1, &io), Err(Error::Stopped { .. })));
    assert!(matches!(bench.controller.active(), Err(Error::AdminClosed)));
    let bus = bench.bus.clone();
    drop((bench.queue, bench.controller, bench.memory));
    assert!(bus.write(target, &[1; 64]).is_ok(), "it may still write there, so nobody else gets it");
}

#[test]
#[ignore = "waits for half a second; run by .ci/run"]
fn the_bus_resets_a_device_that_does_not_stop() {
    let mut bench = bench();
    bench.start(0);
    bench.model.with(|soft| (soft.stuck, soft.resets) = (true, true));
    bench.controller.reset().unwrap();
    assert_eq!(bench.reap().unwrap().len(), 1);
    assert!(bench.controller.queue(&Depth::default()).is_ok());
}

#[test]
fn a_fatal_device_and_one_that_is_pulled_out_are_told_apart() {
    let mut bench = bench();
    bench.start(0);
    bench.model.with(|soft| soft.fatal = true);
    assert!(matches!(bench.queue.expire(Instant::now()), Err(Error::Fatal { csts: 3 })));
    assert!(matches!(bench.controller.check(), Err(Error::Fatal { .. })));
    bench.controller.reset().unwrap();
    assert_eq!(bench.reap().unwrap().len(), 1);
    bench.model.pull();
    assert!(bench.controller.check().unwrap_err().is_gone());

    let mut bench = self::bench();
    bench.start(0);
    bench.model.with(|soft| soft.deaf = true);
    bench.model.pull();
    assert!(bench.queue.expire(Instant::now()).unwrap_err().is_gone());
    assert_eq!(bench.reap().unwrap(), [Done { slot: 0, outcome: Outcome::Lost(Lost::Gone) }]);
}

#[test]
fn controllers_that_cannot_be_used_are_refused() {
    let refused = |soft: Soft| opened(soft).2.err().map(|error| error.to_string()).unwrap_or_default();
    let cap = Soft::default().cap;
    assert!(refused(Soft { cap: cap | 1 << 48, ..Soft::default() }).contains("memory page has 8192 B"));
    assert!(refused(Soft { cap: cap & !(1 << 37), ..Soft::default() }).contains("no NVM command set"));
    assert!(refused(Soft { cap: u64::MAX, ..Soft::default() }).contains("is gone"));
    assert!(refused(Soft { states: vec![0, 0, 0, 3], ..Soft::default() }).contains("fatal"));
    let unsorted: soft::Page = Box::new(|cns, page| {
        if cns == 2 {
            page[0..8].copy_from_slice(&[9, 0, 0, 0, 3, 0, 0, 0])
        }
    });
    let controller = opened(Soft { page: Some(unsorted), ..Soft::default() }).2.unwrap();
    assert!(matches!(controller.active(), Err(Error::Page(_))));
    let lies: soft::Bend = Box::new(|_, entry| {
        entry[3] ^= 4;
        true
    });
    assert!(refused(Soft { bend: Some(lies), ..Soft::default() }).contains("cannot be true"));
}

#[test]
#[ignore = "waits for half a second, twice; run by .ci/run"]
fn the_wait_for_ready_ends_at_the_controllers_limit() {
    let begin = Instant::now();
    let error = opened(Soft { states: vec![0], ..Soft::default() }).2.err().unwrap().to_string();
    assert!(error.contains("ready (CSTS.RDY = 1) did not happen within 500ms"), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(20));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, ..ProptestConfig::default() })]

    /// Entries that are right except for some bits: each returns a command in flight or an error, and all commands end.
    #[test]
    fn any_completion_entries_are_survived(bits in proptest::collection::vec((0u32..128, 0u32..6), 1..12)) {
        let mut bench = bench();
        let mut turns = bits.clone().into_iter();
        bench.model.with(|soft| soft.bend = Some(Box::new(move |number, entry| {
            if let Some((bit, kind)) = turns.next().filter(|_| number == 1) {
                if kind < 4 {
                    entry[bit as usize / 32] ^= 1 << (bit % 32);
                }
                return kind != 4;
            }
            true
        })));
        let mut flying = [false; 4];
        for turn in 0..bits.len() {
            let slot = (turn % 4) as u16;
            let io = bench.controller.namespace(1).unwrap().read(0, 8).unwrap();
            if bench.queue.submit(slot, &io).is_ok() {
                prop_assert!(!flying[usize::from(slot)]);
                flying[usize::from(slot)] = true;
            }
            bench.work();
            for done in bench.reap().unwrap_or_default() {
                prop_assert!(std::mem::take(&mut flying[usize::from(done.slot)]));
            }
        }
        bench.model.with(|soft| soft.bend = None);
        bench.controller.reset().unwrap();
        for done in bench.reap().unwrap() {
            prop_assert!(std::mem::take(&mut flying[usize::from(done.slot)]));
        }
        prop_assert_eq!(flying, [false; 4]);
        prop_assert_eq!(bench.bus.wild(), []);
    }

    /// Any registers and identify pages: an error or a working controller, and no address that was not allocated.
    #[test]
    fn any_registers_and_pages_are_survived(
        cap: u64,
        version: u32,
        noise in proptest::collection::vec((0usize..4096, any::<u8>()), 0..40),
        likely: bool,
        states in proptest::collection::vec(0u32..8, 0..6),
    ) {
        // A limit of half a second; the rest is the device's.
        let sane = cap & !(0xff << 24);
        let sane = if likely { sane & !(0xf << 48) | 1 << 37 | 15 } else { sane };
        let page: soft::Page = Box::new(move |_, page| noise.iter().for_each(|(at, byte)| page[*at] = *byte));
        // Ready, not ready and shut down by turns: no wait takes its whole limit.
        let mut states = states;
        if !states.is_empty() {
            states.extend([0, 1, 9]);
        }
        let (bus, model, controller) = opened(Soft { cap: sane, version, page: Some(page), states, ..Soft::default() });
        if let Ok(controller) = controller {
            model.with(|soft| soft.states.clear());
            let _ = (format!("{:?}", controller.page()), controller.active());
            for number in controller.active().unwrap_or_default().into_iter().take(2) {
                let Ok(namespace) = controller.namespace(number) else { continue };
                let Ok(mut queue) = controller.queue(&Depth { slots: 2, ..Depth::default() }) else { continue };
                let bytes = namespace.block_bytes();
                let memory = controller.allocate(bytes).unwrap();
                let io = namespace.read(namespace.blocks() - 1, 1);
                if let (Ok(()), Ok(io)) = (queue.prepare(0, &[Piece::new(&memory, 0, bytes)]), io) {
                    let _ = queue.complete(0, &io);
                }
            }
        }
        prop_assert_eq!(bus.wild(), []);
    }
}

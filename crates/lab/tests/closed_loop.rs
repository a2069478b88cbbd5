//! The runner against routes of plain memory, some of them broken in ways that real ones could be.

use copy::{Error, HostEnd, Inspect, Route, Transfer, Unavailable};
use lab::cells::{Cell, Count, Measured, Outcome, Plan, open, run};
use lab::clock::Clock;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// How a route is broken.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// The last byte of every transfer stays behind.
    LastByte,
    Nothing,
    /// One byte more than asked for.
    OneMore,
    /// One byte before the start as well.
    OneBefore,
    /// Everything is right until so many transfers were made; then nothing moves.
    StopsMoving(u64),
    /// The n-th transfer, counted from 1, moves nothing; all others are right.
    Skips(u64),
    /// The n-th transfer writes one byte more.
    OneMoreOnce(u64),
    /// Cannot do this size.
    Missing(u64),
    /// An error when this size is submitted.
    Breaks(u64),
    /// Transfers of this size never end.
    Hangs(u64),
}

/// The order in which transfers were submitted, by route.
type Log = Rc<RefCell<Vec<&'static str>>>;

struct Memory {
    name: &'static str,
    fault: Fault,
    host: HostEnd,
    log: Log,
    /// With the guards on both sides.
    source: RefCell<Vec<u8>>,
    destination: RefCell<Vec<u8>>,
    transfers: u64,
}

const G: usize = copy::GUARD as usize;

fn part(at: i64, bytes: usize) -> std::ops::Range<usize> {
    let start = usize::try_from(at + G as i64).unwrap();
    start..start + bytes
}

impl Inspect for Memory {
    fn host_end(&self) -> HostEnd {
        self.host
    }
    fn write_source(&self, at: i64, data: &[u8]) -> Result<(), Error> {
        self.source.borrow_mut()[part(at, data.len())].copy_from_slice(data);
        Ok(())
    }
    fn write_destination(&self, at: i64, data: &[u8]) -> Result<(), Error> {
        self.destination.borrow_mut()[part(at, data.len())].copy_from_slice(data);
        Ok(())
    }
    fn read_destination(&self, at: i64, into: &mut [u8]) -> Result<(), Error> {
        into.copy_from_slice(&self.destination.borrow()[part(at, into.len())]);
        Ok(())
    }
}

impl Route for Memory {
    fn name(&self) -> &str {
        self.name
    }
    fn capacity(&self) -> u64 {
        (self.source.borrow().len() - 2 * G) as u64
    }
    fn prepare(&mut self, bytes: u64) -> Result<Box<dyn Transfer + '_>, Error> {
        assert!(bytes <= self.capacity());
        if self.fault == Fault::Missing(bytes) {
            return Err(Unavailable { reason: format!("{bytes} bytes are not for this way") }.into());
        }
        Ok(Box::new(Prepared { route: self, bytes: bytes as usize, done: true }))
    }
    fn fill(&mut self, data: &[u8]) -> Result<(), Error> {
        self.write_source(0, data)
    }
    fn read_back(&mut self, into: &mut [u8]) -> Result<(), Error> {
        self.read_destination(0, into)
    }
    fn ends(&self) -> Option<&dyn Inspect> {
        Some(self)
    }
}

struct Prepared<'r> {
    route: &'r mut Memory,
    bytes: usize,
    done: bool,
}

impl Transfer for Prepared<'_> {
    fn submit(&mut self) -> Result<(), Error> {
        assert!(self.done, "submitted before the last one was seen to be done");
        let r = &mut *self.route;
        r.log.borrow_mut().push(r.name);
        r.transfers += 1;
        let bytes = match r.fault {
            Fault::LastByte => self.bytes - 1,
            Fault::Nothing => 0,
            Fault::OneMore => self.bytes + 1,
            Fault::OneMoreOnce(n) if r.transfers == n => self.bytes + 1,
            Fault::StopsMoving(n) if r.transfers > n => 0,
            Fault::Skips(n) if r.transfers == n => 0,
            Fault::Breaks(n) if n == self.bytes as u64 => return Err(gpu::Error::ChannelKilled(31).into()),
            _ => self.bytes,
        };
        let before = usize::from(r.fault == Fault::OneBefore);
        r.destination.borrow_mut()[G - before..G + bytes].copy_from_slice(&r.source.borrow()[G - before..G + bytes]);
        self.done = r.fault != Fault::Hangs(self.bytes as u64);
        Ok(())
    }
    fn poll(&mut self) -> Result<bool, Error> {
        Ok(self.done)
    }
    fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        if self.done { Ok(()) } else { Err(Error::Late { bytes: self.bytes as u64, after: timeout }) }
    }
    fn ends(&self) -> Option<&dyn Inspect> {
        Some(&*self.route)
    }
    fn rest(&mut self) -> Result<(), Error> {
        self.route.log.borrow_mut().push("rest");
        Ok(())
    }
}

fn plan(routes: &[(&'static str, Fault)], sizes: &[u64], samples: u64) -> Plan {
    Plan {
        routes: routes.iter().map(|r| r.0.to_string()).collect(),
        sizes: sizes.to_vec(),
        samples: Count::Exactly(samples),
        rounds: 10,
        time_per_cell: None,
        seed: 1,
        timeout: Duration::from_millis(1),
        check_every: u64::MAX,
        compare: vec![Some(0); routes.len()],
    }
}

fn measure(plan: &Plan, routes: &[(&'static str, Fault)]) -> (Vec<Cell>, Vec<&'static str>) {
    let log = Log::default();
    let mut opened = open(plan, |name, capacity| {
        let Some((name, fault)) = routes.iter().find(|r| r.0 == name) else {
            return Err(Unavailable { reason: "this machine has none".into() }.into());
        };
        // What a buffer held before is no zero.
        let destination = RefCell::new(vec![0xee; capacity as usize + 2 * G]);
        let source = RefCell::new(vec![0; capacity as usize + 2 * G]);
        let host = if name.ends_with("from the GPU") { HostEnd::Destination } else { HostEnd::Source };
        Ok(Box::new(Memory { name, fault: *fault, host, log: log.clone(), source, destination, transfers: 0 }))
    });
    let cells = run(plan, &mut opened, &Clock::monotonic_raw(), |_| {});
    drop(opened);
    let log = log.take();
    (cells, log)
}

fn at<'c>(cells: &'c [Cell], route: &str, bytes: u64) -> &'c Outcome {
    &cells.iter().find(|c| c.route == route && c.bytes == bytes).unwrap().outcome
}

fn good<'c>(cells: &'c [Cell], route: &str, bytes: u64) -> &'c Measured {
    match at(cells, route, bytes) {
        Outcome::Measured(m) => m,
        o => panic!("{route} {bytes}: {o:?}"),
    }
}

fn error(cells: &[Cell], route: &str, bytes: u64) -> String {
    match at(cells, route, bytes) {
        Outcome::Failed(f) => f.error.clone(),
        o => panic!("{route} {bytes} did not fail: {o:?}"),
    }
}

#[test]
fn good_routes_are_measured_and_take_turns() {
    let routes = [("a", Fault::None), ("b", Fault::None), ("c", Fault::None)];
    let p = plan(&routes, &[4, 4096], 1000);
    let (cells, log) = measure(&p, &routes);
    assert_eq!(
        cells.iter().map(|c| (c.route.as_str(), c.bytes)).collect::<Vec<_>>(),
        [("a", 4), ("b", 4), ("c", 4), ("a", 4096), ("b", 4096), ("c", 4096)]
    );
    for c in &cells {
        let m = good(&cells, &c.route, c.bytes);
        assert_eq!((m.total.count, m.submit.count, m.asked, m.worst.len()), (1000, 1000, 1000, 100));
        assert!(m.total.p99.is_some() && m.total.p999.is_some() && m.submit.min <= m.total.min);
        assert_eq!(m.worst[0].total_ns, m.total.max);
        let ratio = m.ratio.map(|(against, r)| (against, r.rounds));
        assert_eq!(ratio, if c.route == "a" { None } else { Some((0, 10)) });
    }
    // A block is 100 samples and two transfers of warm-up, before the first and after its check.
    let blocks: Vec<(&str, usize)> = log.chunk_by(|a, b| a == b).map(|c| (c[0], c.len())).collect();
    let longest = blocks.iter().map(|b| b.1).max().unwrap();
    assert!(blocks.len() > 40 && longest <= 104, "{blocks:?}");
    // After its warm-up and after each of its blocks a transfer rests, and never within one.
    let turns: Vec<(&str, usize)> = blocks.iter().copied().filter(|b| b.0 != "rest").collect();
    assert_eq!(log.iter().filter(|b| **b == "rest").count(), 6 * (1 + 10));
    assert_eq!(turns.iter().filter(|b| b.1 == 104).count(), 6 * 10);
    let orders: std::collections::BTreeSet<Vec<&str>> =
        turns.windows(3).map(|w| w.iter().map(|b| b.0).collect()).collect();
    assert!(orders.len() > 3, "the order is drawn anew: {orders:?}");
    assert_eq!(measure(&p, &routes).1, log, "the seed decides the order");
    assert_ne!(measure(&Plan { seed: 2, ..p }, &routes).1, log);
}

#[test]
fn a_lost_last_byte_is_found() {
    let routes = [("good", Fault::None), ("bad", Fault::LastByte)];
    let (cells, _) = measure(&plan(&routes, &[1, 4, 4096], 20), &routes);
    for bytes in [1, 4, 4096] {
        good(&cells, "good", bytes);
        let Outcome::Failed(f) = at(&cells, "bad", bytes) else { panic!() };
        let d = f.difference.as_ref().unwrap();
        assert_eq!((d.first, d.differing, d.bytes, d.nothing_moved), (bytes - 1, 1, bytes, bytes == 1));
        assert!(f.error.contains(&format!("1 of {bytes} bytes differs, the first at offset {}", bytes - 1)), "{f:?}");
    }
}

#[test]
fn a_transfer_that_moves_nothing_is_found_whatever_lay_there() {
    let routes = [("bad", Fault::Nothing)];
    for seed in 0..50 {
        let p = Plan { seed, ..plan(&routes, &[1, 64], 5) };
        let (cells, _) = measure(&p, &routes);
        for bytes in [1, 64] {
            assert!(error(&cells, "bad", bytes).starts_with("nothing was moved"), "seed {seed}");
        }
    }
}

/// The two of the verification and the warm-up of the cell and of the first block.
const BEFORE_THE_FIRST: u64 = 2 + 64 + 2;

/// The number of each timed transfer, as a route counts: in one round of 100, with `every`.
fn timed(every: u64) -> Vec<u64> {
    let (mut next, mut all) = (BEFORE_THE_FIRST, Vec::new());
    for taken in 0..100 {
        next += 1;
        all.push(next);
        if (taken == 0 || taken % every == 0) && taken < 99 {
            next += 2;
        }
    }
    all
}

#[test]
fn a_fault_that_begins_at_any_timed_transfer_is_found_and_so_is_one_of_a_single_transfer_where_each_is_checked() {
    for (every, single) in [(16, false), (1, true)] {
        let numbers = timed(every);
        for n in [0, 66, 99] {
            let number = numbers[n];
            for name in ["to the GPU", "from the GPU"] {
                let mut faults = vec![Fault::StopsMoving(number - 1)];
                if single {
                    faults.extend([Fault::Skips(number), Fault::OneMoreOnce(number)]);
                }
                for fault in faults {
                    let routes = [(name, fault)];
                    for bytes in [1, 8, 64, 5000] {
                        let p = Plan { rounds: 1, check_every: every, ..plan(&routes, &[bytes], 100) };
                        let (cells, log) = measure(&p, &routes);
                        let why = error(&cells, name, bytes);
                        assert!(why.starts_with("after a timed transfer: "), "{fault:?}, transfer {n}: {why}");
                        assert!(log.len() as u64 >= number, "{fault:?}: not before it");
                    }
                }
            }
        }
        // The same without a fault.
        let routes = [("to the GPU", Fault::None), ("from the GPU", Fault::None)];
        let p = Plan { rounds: 1, check_every: every, ..plan(&routes, &[1, 8, 64, 5000], 100) };
        let (cells, log) = measure(&p, &routes);
        assert!(cells.iter().all(|cell| matches!(cell.outcome, Outcome::Measured(_))), "{cells:?}");
        let made = log.iter().filter(|name| **name == "to the GPU").count() as u64;
        assert_eq!(made, 4 * numbers[99], "transfers are counted as the routes count them");
    }
}

#[test]
fn a_write_past_either_end_is_found_at_every_size_also_the_largest() {
    for (fault, what) in [(Fault::OneMore, "1 bytes past the end"), (Fault::OneBefore, "1 bytes before the start")] {
        let routes = [("long", fault)];
        let (cells, _) = measure(&plan(&routes, &[1, 8, 64], 5), &routes);
        for bytes in [1, 8, 64] {
            assert!(error(&cells, "long", bytes).contains(what), "{bytes}: {}", error(&cells, "long", bytes));
        }
    }
}

#[test]
fn what_is_missing_or_breaks_at_one_size_is_measured_at_the_others() {
    let routes = [("good", Fault::None), ("missing", Fault::Missing(8)), ("breaks", Fault::Breaks(8))];
    let p = Plan {
        routes: ["good", "missing", "breaks", "none"].map(String::from).to_vec(),
        ..plan(&routes, &[4, 8, 16], 20)
    };
    let (cells, _) = measure(&p, &routes);
    assert_eq!(cells.len(), 12);
    for bytes in [4, 8, 16] {
        good(&cells, "good", bytes);
        let Outcome::Unavailable { reason } = at(&cells, "none", bytes) else { panic!() };
        assert_eq!(reason, "this machine has none");
    }
    for bytes in [4, 16] {
        good(&cells, "missing", bytes);
        good(&cells, "breaks", bytes);
    }
    assert!(matches!(at(&cells, "missing", 8), Outcome::Unavailable { reason } if reason.contains("not for this way")));
    assert!(error(&cells, "breaks", 8).starts_with("the channel was killed by error 31 (Xid)"));
}

#[test]
fn a_route_that_hangs_is_not_used_again_and_holds_nobody_up() {
    let routes = [("good", Fault::None), ("hangs", Fault::Hangs(8))];
    let (cells, log) = measure(&plan(&routes, &[4, 8, 16], 20), &routes);
    good(&cells, "hangs", 4);
    assert!(error(&cells, "hangs", 8).contains("not there within"));
    assert!(error(&cells, "hangs", 16).contains("may still be under way"));
    let after = log.iter().rposition(|r| *r == "hangs").unwrap();
    assert!(log[after..].len() > 20, "the other went on");
    for bytes in [4, 8, 16] {
        assert_eq!(good(&cells, "good", bytes).total.count, 20);
    }
}

#[test]
fn few_samples_have_no_percentile_and_a_bound_of_time_says_how_many_there_are() {
    let routes = [("a", Fault::None), ("b", Fault::None)];
    let (cells, _) = measure(&plan(&routes, &[4], 99), &routes);
    let m = good(&cells, "b", 4);
    assert_eq!((m.total.count, m.total.p90.is_some(), m.total.p99), (99, true, None));
    let (cells, _) = measure(&plan(&routes, &[4], 1), &routes);
    let m = good(&cells, "b", 4);
    assert_eq!((m.total.count, m.total.median, m.ratio.unwrap().1.differs()), (1, None, None));

    let p = Plan { time_per_cell: Some(Duration::from_nanos(1)), ..plan(&routes, &[4], 1000) };
    let (cells, _) = measure(&p, &routes);
    let m = good(&cells, "a", 4);
    assert_eq!((m.total.count, m.asked), (10, 1000), "one of each round");
}

#[test]
fn big_transfers_get_fewer_samples_unless_a_number_is_given() {
    let p = plan(&[], &[], 0);
    let p = Plan { samples: Count::Moving { most: 10_000, least: 100, bytes: 1 << 30 }, ..p };
    assert_eq!([4, 1 << 20, 64 << 20].map(|b| p.samples_of(b)), [10_000, 1024, 100]);
    let p = Plan { samples: Count::Exactly(7), ..p };
    assert_eq!([4, 64 << 20].map(|b| p.samples_of(b)), [7, 7]);
}

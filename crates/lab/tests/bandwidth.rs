//! The bandwidth runner against ways of plain memory with a clock of their own, and on the software GPU.

use copy::{BackToBack, Error, Machine, Unavailable, back_to_back};
use doorbell_softgpu::{Mode, SoftDriver};
use lab::bandwidth::{Cell, Plan, run};
use lab::clock::Clock;
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

fn plan(routes: &[&str]) -> Plan {
    Plan {
        routes: routes.iter().map(ToString::to_string).collect(),
        bytes: 1000,
        copies: 20,
        rounds: 10,
        compare: routes.iter().enumerate().map(|(i, _)| (i > 0).then_some(0)).collect(),
        seed: 3,
        timeout: Duration::from_secs(10),
        functional: false,
    }
}

/// A way whose copies take so many nanoseconds each by its own clock.
struct Fixed<'l> {
    name: String,
    ns: f64,
    /// From this round on (0 is the one before the timed ones) its copies move nothing.
    stops: usize,
    /// In this round it is an error.
    breaks: usize,
    runs: usize,
    source: Vec<u8>,
    destination: Vec<u8>,
    ready: Option<(u64, u32)>,
    log: &'l RefCell<Vec<String>>,
}

impl BackToBack for Fixed<'_> {
    fn name(&self) -> &str {
        &self.name
    }
    fn ready(&mut self, bytes: u64, count: u32) -> Result<(), Error> {
        self.ready = Some((bytes, count));
        Ok(())
    }
    fn go(&mut self) -> Result<(), Error> {
        let (bytes, _) = self.ready.unwrap();
        self.log.borrow_mut().push(self.name.clone());
        if self.runs == self.breaks {
            return Err(gpu::Error::ChannelKilled(31).into());
        }
        if self.runs < self.stops {
            self.destination[..bytes as usize].copy_from_slice(&self.source[..bytes as usize]);
        }
        Ok(())
    }
    fn finish(&mut self, _timeout: Duration) -> Result<f64, Error> {
        let (_, count) = self.ready.take().unwrap();
        self.runs += 1;
        // The machine changes its speed for all.
        let speed = if self.runs > 5 { 2.0 } else { 1.0 };
        Ok(self.ns * f64::from(count) * speed)
    }
    fn fill(&mut self, data: &[u8]) -> Result<(), Error> {
        self.source[..data.len()].copy_from_slice(data);
        Ok(())
    }
    fn read_back(&mut self, into: &mut [u8]) -> Result<(), Error> {
        into.copy_from_slice(&self.destination[..into.len()]);
        Ok(())
    }
}

fn measure(plan: &Plan) -> (Vec<Cell>, Vec<String>) {
    let log = RefCell::default();
    let mut rounds = Vec::new();
    let open = |name: &str, capacity: u64| -> Result<Box<dyn BackToBack + '_>, Error> {
        if name == "missing" {
            return Err(Unavailable::new("this machine has none").into());
        }
        let buffer = vec![0xee; capacity as usize];
        let (stops, breaks) =
            (if name == "stops" { 1 } else { usize::MAX }, if name == "breaks" { 4 } else { usize::MAX });
        let (source, destination) = (buffer.clone(), buffer);
        let ns = if name == "fast" { 50.0 } else { 100.0 };
        Ok(Box::new(Fixed {
            name: name.into(),
            ns,
            stops,
            breaks,
            runs: 0,
            source,
            destination,
            ready: None,
            log: &log,
        }))
    };
    let cells = run(plan, &Clock::monotonic_raw(), open, |round| rounds.push(round));
    assert_eq!(rounds, (0..plan.rounds).collect::<Vec<_>>());
    (cells, log.take())
}

#[test]
fn rates_and_ratios_are_those_of_the_ways_own_clock() {
    let (cells, log) = measure(&plan(&["cuda", "fast", "same"]));
    let [cuda, fast, same] = cells.as_slice() else { panic!("{cells:?}") };
    let rate = |cell: &Cell| cell.gpu_gbps.unwrap();
    // 1000 bytes in 100 ns, and half as much in the later rounds, of which there are more.
    assert_eq!((rate(cuda).p50, rate(cuda).min, rate(cuda).max), (5.0, 5.0, 10.0));
    assert_eq!((rate(fast).p50, rate(fast).max), (10.0, 20.0));
    assert_eq!(cuda.versus, None);
    let versus = fast.versus.as_ref().unwrap();
    assert_eq!((versus.route.as_str(), versus.median, versus.low, versus.rounds), ("cuda", 2.0, Some(2.0), 10));
    assert_eq!(same.versus.as_ref().unwrap().median, 1.0);
    assert!(cells.iter().all(|cell| cell.verified && cell.rounds == 10 && cell.cpu_gbps.unwrap().p50 > 0.0));
    // Each has its turn in each round, in changing order.
    let turns: Vec<Vec<String>> = log[3..].chunks(3).map(<[String]>::to_vec).collect();
    assert_eq!(turns.len(), 10);
    for turn in &turns {
        let mut sorted = turn.clone();
        sorted.sort();
        assert_eq!(sorted, ["cuda", "fast", "same"]);
    }
    assert!(turns.iter().any(|turn| *turn != turns[0]));
}

#[test]
fn ways_that_are_missing_break_or_stop_moving_are_said_and_the_others_go_on() {
    let (cells, _) = measure(&plan(&["cuda", "missing", "breaks", "stops"]));
    let [cuda, missing, breaks, stops] = cells.as_slice() else { panic!("{cells:?}") };
    assert!(cuda.verified && cuda.gpu_gbps.is_some());
    assert_eq!((missing.unavailable.as_deref(), missing.rounds), (Some("this machine has none"), 0));
    assert!(breaks.failed.as_deref().unwrap().contains("31") && breaks.gpu_gbps.is_none());
    assert_eq!(breaks.rounds, 3);
    assert!(
        stops.failed.as_deref().unwrap().contains("after the timed copies: 1000 of 1000 bytes differ"),
        "{stops:?}"
    );
    assert!(!stops.verified && stops.gpu_gbps.is_none() && stops.versus.is_none());
}

#[test]
fn copies_of_channels_in_software_are_right_and_never_timed() {
    let machine = Machine::of_driver(Arc::new(SoftDriver::new(Mode::Strict)), false).unwrap();
    let routes = ["host->cuda->gpu0", "host->ce2->gpu0", "gpu0->ce3[pipelined]->host"];
    let plan = Plan { rounds: 3, functional: true, ..plan(&routes) };
    let open = |name: &str, capacity| back_to_back::open(&machine, name, capacity);
    let cells = run(&plan, &Clock::monotonic_raw(), open, |_| {});
    assert!(cells[0].unavailable.as_deref().unwrap().contains("no CUDA"));
    for cell in &cells[1..] {
        assert_eq!((cell.verified, cell.rounds, &cell.failed), (true, 3, &None));
        assert_eq!((cell.gpu_gbps, cell.cpu_gbps, &cell.versus), (None, None, &None));
    }
}

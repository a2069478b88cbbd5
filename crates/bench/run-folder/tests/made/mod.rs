//! Synthetic experiments, parts and samples.

#![allow(dead_code, reason = "each test uses some of it")]

use experiment::*;
use run_folder::{Compared, Part, PartCell, Sample, Status};

pub fn subject(name: &str, sizes: &[u64]) -> SubjectSpec {
    SubjectSpec {
        name: name.into(),
        what: What::Route(name.into()),
        sizes: sizes.into(),
        back_to_back: 1,
        addresses: Addresses::Fixed,
        data: Data::Fresh,
        arrival: Arrival::default(),
        observe: Observe::Done,
        class: None,
        cpus: None,
        deadline_ns: None,
        rests: false,
        baseline: None,
        beside: Vec::new(),
    }
}

pub fn experiment() -> Experiment {
    Experiment {
        name: "made-up".into(),
        variant: None,
        about: "nobody measured this".into(),
        run: Run {
            seed: 7,
            rounds: 10,
            repeats: 2,
            samples: Some(1000),
            duration_ns: None,
            timeout_ns: 1_000_000_000,
            noise_ns: 1_000_000,
            counters_every: 0,
            meter_ns: 0,
            patience_ns: None,
            class: Class::Other,
            cpus: Cpus::Last,
            policy: "stock".into(),
            gpu: Gpu::Real,
            device: experiment::Device::Engine,
            record: Record::No,
        },
        subjects: vec![subject("host->ce0->gpu0", &[8, 4096]), subject("host->bar1->gpu0", &[4096])],
        loads: Vec::new(),
        matrix: Vec::new(),
        verify: Verify { every: 100 },
        compare: None,
        repays: Vec::new(),
        largests: Vec::new(),
        asserts: Vec::new(),
    }
}

/// As in a closed loop: of about 2 us, in ten rounds, all different.
pub fn samples(seed: u64, n: usize) -> Vec<Sample> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut now = 1_000_000 * seed;
    let each = n.div_ceil(10).max(1);
    let one = |i: usize| {
        let round = (i / each) as u32;
        if i.is_multiple_of(each) {
            now += 5_000_000;
        }
        let call = now + random.u64(50..90);
        let submitted = call + random.u64(150..250);
        let started = submitted + random.u64(400..600);
        let ended = started + random.u64(300..500);
        let done = ended + random.u64(200..400) + if random.u32(..1000) == 0 { 30_000 } else { 0 };
        now = done;
        let engine = !seed.is_multiple_of(2);
        Sample {
            round,
            release_ns: call,
            call_ns: call,
            submitted_ns: submitted,
            started_ns: if engine { started } else { 0 },
            ended_ns: if engine { ended } else { 0 },
            done_ns: done,
            capped: false,
        }
    };
    (0..n).map(one).collect()
}

pub fn part(stage: u32, repeat: u32, cells: &[Vec<Sample>]) -> Part {
    let cell = |(i, samples): (usize, &Vec<Sample>)| PartCell {
        about: format!("cell {i}"),
        status: Status::Measured,
        samples: samples.len() as u64,
        compared: Compared { whole: 3, guards: true },
        worst: Vec::new(),
        counted: None,
        metered: None,
        stuck_between: None,
        turns: Vec::new(),
        commands: None,
    };
    Part {
        stage,
        repeat,
        began: "2026-11-22T18:00:00Z".into(),
        seconds: 1.5,
        cpu: Some(1),
        class: "other".into(),
        throttled: 0,
        cells: cells.iter().enumerate().map(cell).collect(),
        loads: Vec::new(),
        noise: Vec::new(),
        clock_error_ns: Some(40),
        counted: vec![("steal_ms".into(), 2.0)],
        notes: Vec::new(),
        counter: None,
        recorded: None,
    }
}

/// An experiment from its text.
pub fn read(text: &str) -> Experiment {
    experiment::read_stored(text, "made-up.toml").unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// A sample of this total duration: a tenth in the call, half in the engine.
pub fn sample(round: u32, at: u64, ns: u64) -> Sample {
    Sample {
        round,
        release_ns: at,
        call_ns: at,
        submitted_ns: at + ns / 10,
        started_ns: at + ns / 4,
        ended_ns: at + ns * 3 / 4,
        done_ns: at + ns,
        capped: false,
    }
}

/// Every route of one GPU, as in the shipped experiment, at these sizes.
pub fn routes(sizes: &str) -> String {
    let text = include_str!("../../../../../experiments/crossover.toml");
    let sizes = [format!("matrix.bytes={sizes}")];
    let read = experiment::read_variant(text, "made-up.toml", Some("routes"), &sizes, experiment::Processes::One)
        .unwrap_or_else(|e| panic!("{e}\n{text}"));
    Experiment { variant: None, ..read }.to_toml()
}

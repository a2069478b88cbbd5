//! No text panics, and a written experiment reads back as the same.

use experiment::{
    Addresses, Arrival, Assert, Axis, Bound, Class, Compare, Cpus, Data, Device, Experiment, Gpu, Largest, LoadSpec,
    Metric, MustReach, Observe, Process, Record, Repay, Run, SubjectSpec, Verify, What, WithinBest, read, shipped,
};
use proptest::prelude::*;
use proptest::sample::select;

/// Reading returns a result or an error with a text; a read experiment expands and can be written.
fn is_read_or_refused(text: &str, sets: &[String]) {
    match read(text, "x.toml", sets) {
        Ok(experiment) => {
            let again = read(&experiment.to_toml(), "x.toml", &[]);
            assert_eq!(again.as_ref(), Ok(&experiment), "{}", experiment.to_toml());
            assert!(!experiment.stages().unwrap().is_empty());
            experiment.estimate().unwrap();
        }
        Err(e) => assert!(e.to_string().len() > 10, "{e}"),
    }
}

/// Pieces of files, so that mutations are more than noise.
const PIECES: &[&str] = &[
    "[run]\n",
    "[[subject]]\n",
    "[[load]]\n",
    "[matrix]\n",
    "[compare]\n",
    "[[assert]]\n",
    "[verify]\n",
    "duration = ",
    "samples = ",
    "\"10s\"",
    "1",
    "0",
    "-1",
    "\"\"",
    "[",
    "]",
    "\"",
    "\n",
    "=",
    ".",
    "bytes = ",
    "\"4B..64MiB\"",
    "route = ",
    "\"host->cuda->gpu0\"",
    "call = ",
    "\"launch\"",
    "name = ",
    "count = ",
    "policy = ",
    "{ a = 1 }",
    "9999999999999999999999",
    "1e999",
    "nan",
    "true",
    "2020-01-01",
    "\"closed(1024)\"",
    "\"paced(1ns)\"",
    "#",
    "\u{fc}",
    "\u{1f600}",
    "\"99999999999h\"",
];

fn shipped_text() -> impl Strategy<Value = String> {
    let texts: Vec<String> = shipped().iter().map(|s| s.text.to_owned()).collect();
    select(texts)
}

/// The places of cuts, and their replacements.
fn mutations() -> impl Strategy<Value = Vec<(prop::sample::Index, usize, String)>> {
    let piece = prop_oneof![
        4 => select(PIECES).prop_map(str::to_owned),
        1 => "\\PC{0,6}",
        2 => Just(String::new()),
    ];
    prop::collection::vec((any::<prop::sample::Index>(), 0..12usize, piece), 1..6)
}

fn mutated(text: &str, mutations: &[(prop::sample::Index, usize, String)]) -> String {
    let mut letters: Vec<char> = text.chars().collect();
    for (at, cut, piece) in mutations {
        let at = at.index(letters.len() + 1);
        let end = (at + cut).min(letters.len());
        letters.splice(at..end, piece.chars());
    }
    letters.into_iter().collect()
}

/// Whole lines removed, doubled or moved, as in a file that people copy and change.
fn shuffled(text: &str, moves: &[(prop::sample::Index, prop::sample::Index, u8)]) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    for (from, to, what) in moves {
        if lines.is_empty() {
            break;
        }
        let (from, to) = (from.index(lines.len()), to.index(lines.len()));
        match what {
            0 => drop(lines.remove(from)),
            1 => lines.insert(to, lines[from]),
            _ => lines.swap(from, to),
        }
    }
    lines.join("\n")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn no_text_panics(text in "\\PC{0,200}") {
        is_read_or_refused(&text, &[]);
    }

    #[test]
    fn no_mutation_of_a_shipped_file_panics(text in shipped_text(), mutations in mutations()) {
        is_read_or_refused(&mutated(&text, &mutations), &[]);
    }

    #[test]
    fn no_order_of_its_lines_panics(
        text in shipped_text(),
        moves in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..3u8), 1..8),
    ) {
        is_read_or_refused(&shuffled(&text, &moves), &[]);
    }

    #[test]
    fn no_option_panics(text in shipped_text(), name in "run|matrix|cuda|crowd|\\PC{0,4}", key in "[a-z-]{1,9}|duration|policy|count", value in "\\PC{0,12}") {
        is_read_or_refused(&text, &[format!("{name}.{key}={value}")]);
        is_read_or_refused(&text, &[format!("{name}{value}")]);
    }

    #[test]
    fn a_written_experiment_reads_back(experiment in experiments()) {
        let text = experiment.to_toml();
        let again = read(&text, "elsewhere.toml", &[]);
        let again = again.map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?;
        prop_assert_eq!(&again, &experiment, "{}", text);
        prop_assert_eq!(again.stages(), experiment.stages());
    }
}

fn times() -> impl Strategy<Value = u64> {
    prop_oneof![1..1_000_000_000_000u64, (1..100_000u64).prop_map(|s| s * 1_000_000_000), 1..9_000_000_000_000_000u64]
}

fn meters() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0u64), 100_000_000..9_000_000_000_000u64]
}

fn classes() -> impl Strategy<Value = Class> {
    prop_oneof![
        Just(Class::Other),
        (-20..20i32).prop_map(Class::Nice),
        (1..100u32).prop_map(Class::Fifo),
        Just(Class::Deadline),
        Just(Class::RealTime)
    ]
}

fn cpus() -> impl Strategy<Value = Cpus> {
    let these = prop::collection::btree_set(0..300usize, 1..12).prop_map(|set| Cpus::These(set.into_iter().collect()));
    prop_oneof![Just(Cpus::Any), Just(Cpus::Last), Just(Cpus::Others), these]
}

fn arrivals() -> impl Strategy<Value = Arrival> {
    let closed = (1..=experiment::model::MOST_DEPTH).prop_map(|depth| Arrival::Closed { depth });
    prop_oneof![closed, times().prop_map(|period_ns| Arrival::Paced { period_ns })]
}

/// Includes characters that would end a TOML string too early.
fn names() -> impl Strategy<Value = String> {
    "[a-z][a-z \"\\\\'#=.\\[\\]\u{e9}-]{0,12}[a-z]"
}

fn whats() -> impl Strategy<Value = What> {
    prop_oneof![
        select(&["host->cuda->gpu0", "gpu0->ce3[release=word]->host", "odd \"route\"\\"][..])
            .prop_map(|t| What::Route(t.into())),
        select(&["launch", "graph(20)", "malloc"][..]).prop_map(|t| What::Call(t.into())),
    ]
}

fn runs() -> impl Strategy<Value = Run> {
    let lengths = prop_oneof![
        (1..1_000_000_000_000u64).prop_map(|n| (Some(n), None)),
        times().prop_map(|ns| (None, Some(ns))),
        (1..1_000_000_000u64, times()).prop_map(|(n, ns)| (Some(n), Some(ns))),
    ];
    let numbers = (0..=i64::MAX as u64, 1..=1_000_000u32, 1..=10_000u32, prop_oneof![Just(0u32), 2..=1_000_000u32]);
    let rest = (
        times(),
        times(),
        meters(),
        classes(),
        cpus(),
        select(&["stock", "pi+phase-fair", "plan.toml"][..]),
        any::<bool>(),
    );
    (numbers, lengths, rest).prop_map(|((seed, rounds, repeats, counters_every), (samples, duration_ns), rest)| {
        let (timeout_ns, noise_ns, meter_ns, class, cpus, policy, soft) = rest;
        let gpu = if soft { Gpu::Soft } else { Gpu::Real };
        // Both kinds of names, and what an emulated one needs.
        let device = match (soft, repeats % 3) {
            (true, 1) => Device::Edu,
            (false, 1) => Device::Xdma("0000:04:00.0".into()),
            _ => Device::Engine,
        };
        let policy = policy.to_owned();
        Run {
            seed,
            rounds,
            repeats,
            samples,
            duration_ns,
            timeout_ns,
            noise_ns,
            counters_every,
            meter_ns,
            patience_ns: None,
            class,
            cpus,
            policy,
            gpu,
            device,
            record: Record::No,
        }
    })
}

fn subjects() -> impl Strategy<Value = SubjectSpec> {
    let sizes = prop::collection::btree_set(prop_oneof![1..100_000u64, (0..20u32).prop_map(|n| 1 << n)], 1..6);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), 0..3u8);
    let own = (prop::option::of(classes()), prop::option::of(cpus()), prop::option::of(times()));
    (whats(), sizes, 1..1_000_000u32, arrivals(), flags, own).prop_map(
        |(what, sizes, back_to_back, arrival, flags, own)| SubjectSpec {
            name: String::new(),
            what,
            sizes: sizes.into_iter().collect(),
            back_to_back,
            addresses: if flags.0 { Addresses::Random } else { Addresses::Sweep { step: 1 << 20, range: 1 << 20 } },
            data: if flags.1 { Data::Fixed } else { Data::Fresh },
            arrival,
            observe: [Observe::Submit, Observe::Done, Observe::Engine][usize::from(flags.3)],
            class: own.0,
            cpus: own.1,
            deadline_ns: own.2,
            rests: flags.2,
            baseline: None,
            beside: Vec::new(),
        },
    )
}

fn loads() -> impl Strategy<Value = LoadSpec> {
    let rate = prop::option::of(prop_oneof![0.001..1e9f64, (1..1_000_000u32).prop_map(f64::from)]);
    let must_reach = prop::option::of(prop_oneof![
        (0.001..1e12f64).prop_map(MustReach::Times),
        (0.001..1e12f64).prop_map(MustReach::Bytes),
        (0.001..100.0f64).prop_map(MustReach::Percent),
    ]);
    (whats(), 1..1_000_000u64, 0..100u32, rate, cpus(), classes(), 0..1_000_000_000u64, must_reach).prop_map(
        |(what, bytes, count, rate, cpus, class, check_every, must_reach)| LoadSpec {
            name: String::new(),
            what,
            bytes,
            count,
            rate,
            cpus,
            class,
            check_every,
            must_reach,
            process: if count % 2 == 0 { Process::Own } else { Process::Shared },
        },
    )
}

fn bounds() -> impl Strategy<Value = (Metric, Bound)> {
    let time =
        || select(&[Metric::Min, Metric::Mean, Metric::P50, Metric::P99, Metric::P999, Metric::P9999, Metric::Max][..]);
    prop_oneof![
        (time(), times()).prop_map(|(metric, ns)| (metric, Bound::AtMost(ns as f64))),
        (time(), times()).prop_map(|(metric, ns)| (metric, Bound::AboveNoise(ns as f64))),
        (0.0..1.0f64).prop_map(|part| (Metric::Misses, Bound::AtMost(part))),
        (1.0..1e12f64).prop_map(|rate| (Metric::Rate, Bound::AtLeast(rate))),
        (time(), 0.001..100.0f64).prop_map(|(metric, times)| (metric, Bound::AtMostTimes(times, String::new()))),
        (time(), 0.0..100.0f64, times()).prop_map(|(metric, percent, ns)| {
            (metric, Bound::WithinBest(WithinBest { percent, ns: ns as f64, among: Vec::new() }))
        }),
    ]
}

/// Whole, consistent experiments.
fn experiments() -> impl Strategy<Value = Experiment> {
    let named = (prop::collection::vec((subjects(), names()), 1..4), prop::collection::vec((loads(), names()), 0..3));
    let axes = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let rest =
        ("[a-zA-Z0-9_-]{1,20}", "[^\\x00]{0,20}", 0..100u64, prop::option::of(bounds()), any::<prop::sample::Index>());
    (runs(), named, axes, rest).prop_map(|(run, (subjects, loads), axes, (name, about, every, bound, which))| {
        // Numbers make the names unique.
        let mut subjects: Vec<SubjectSpec> = subjects
            .into_iter()
            .enumerate()
            .map(|(i, (s, name))| SubjectSpec { name: format!("{name}{i}"), ..s })
            .collect();
        let loads: Vec<LoadSpec> =
            loads.into_iter().enumerate().map(|(i, (l, name))| LoadSpec { name: format!("{name}l{i}"), ..l }).collect();
        let which = which.index(subjects.len());
        let chosen = subjects[which].name.clone();
        let mut matrix = Vec::new();
        let mut axis = |name: String, values: &[&str]| {
            matrix.push(Axis { name, values: values.iter().map(|v| (*v).to_owned()).collect() });
        };
        if axes.0 {
            axis("policy".into(), &["stock", "pi+guard"]);
        }
        if axes.1 {
            subjects[which].sizes.clear();
            axis("bytes".into(), &["8B", "4KiB", "12288B"]);
        }
        if axes.2 {
            axis(format!("{chosen}.arrival"), &["closed(1)", "paced(50us)"]);
        }
        if let (true, Some(load)) = (axes.2, loads.last()) {
            axis("loads".into(), &["none", "all", &load.name]);
        }
        if let (true, Some(load)) = (axes.3, loads.first()) {
            axis(format!("{}.count", load.name), &["0", "8"]);
        }
        let asserts = bound.map(|(metric, bound)| {
            let bound = match bound {
                Bound::AtMostTimes(factor, _) => Bound::AtMostTimes(factor, chosen.clone()),
                Bound::WithinBest(within) => {
                    let among = subjects.iter().map(|s| s.name.clone()).filter(|name| *name != chosen).collect();
                    Bound::WithinBest(WithinBest { among, ..within })
                }
                bound => bound,
            };
            if metric == Metric::Misses {
                subjects[which].deadline_ns = Some(50_000);
            }
            Assert { subject: chosen.clone(), metric, bound }
        });
        if axes.0 && axes.3 {
            subjects[0].baseline = Some(chosen.clone());
        }
        let names = |from: usize| subjects[from..].iter().map(|s| s.name.clone()).collect::<Vec<_>>();
        let repay = Repay { once: names(0), each: vec![chosen.clone()], against: names(subjects.len() - 1) };
        let repays = if axes.1 { vec![repay] } else { Vec::new() };
        let compare = axes.0.then_some(Compare { baseline: chosen, metric: Metric::P999 });
        let asserts: Vec<Assert> = asserts.into_iter().collect();
        let is_plain = |a: &&Assert| matches!(a.bound, Bound::AtMost(_) | Bound::AtLeast(_) | Bound::AtMostTimes(..));
        let largest = |a: &Assert| Largest {
            axis: "bytes".into(),
            subject: a.subject.clone(),
            metric: a.metric,
            bound: a.bound.clone(),
        };
        let largests = asserts.iter().filter(is_plain).map(largest).collect();
        let verify = Verify { every };
        let variant = axes.2.then(|| "other".to_owned());
        Experiment { name, variant, about, run, subjects, loads, matrix, verify, compare, repays, largests, asserts }
    })
}

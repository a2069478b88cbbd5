//! CUDA's calls on an H200, joined with their recording: the test puts windows around submissions that are known from `show`.

use comparison::attribution::join;
use decode::walk::{At, Sink, walk};
use decode::{Recording, summary};
use run_folder::Sample;
use run_folder::commands::{Anchor, Commands, Counter};
use std::path::Path;

/// When a submission was made, and its thread.
#[derive(Clone, Copy)]
struct Rung {
    number: u64,
    tsc: u64,
    pid: i32,
    tid: i32,
}

#[derive(Default)]
struct All(Vec<Rung>);

impl Sink for All {
    fn submission(&mut self, at: &At<'_>) {
        let s = at.submission;
        self.0.push(Rung { number: at.number, tsc: s.tsc, pid: at.channel.pid, tid: s.tid });
    }
}

fn recording(name: &str) -> (Recording, Vec<Rung>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../explain/decode/fixtures").join(name);
    let recording = Recording::open(&path).unwrap();
    let mut all = All::default();
    walk(&recording, &mut all).unwrap();
    all.0.sort_by_key(|rung| rung.tsc);
    (recording, all.0)
}

/// A nanosecond is a tick, and the part begins with the first submission.
fn counter(all: &[Rung]) -> Counter {
    let (first, last) = (all[0], all[all.len() - 1]);
    let anchor = |tsc: u64| Anchor { ns: tsc - first.tsc, tsc, error_ns: 0.0 };
    Counter { pid: first.pid, tid: first.tid, began: anchor(first.tsc), ended: anchor(last.tsc) }
}

/// A call that contains exactly one submission.
fn round(all: &[Rung], number: u64) -> Sample {
    let ns = all.iter().find(|rung| rung.number == number).unwrap().tsc - all[0].tsc;
    let (from, to) = (ns.saturating_sub(1), ns + 1);
    Sample { release_ns: from, call_ns: from, submitted_ns: to, done_ns: to, ..Sample::default() }
}

fn commands(name: &str, numbers: &[u64]) -> Commands {
    let (recording, all) = recording(name);
    // The first call is counted separately.
    let mut samples: Vec<Sample> = vec![round(&all, numbers[0])];
    samples.extend(numbers.iter().map(|number| round(&all, *number)));
    join(&recording, &counter(&all), &[&samples[1..]]).unwrap().commands.remove(0).unwrap()
}

#[test]
fn launches_of_cudas_have_the_words_that_they_are_known_to_have() {
    // docs/how-it-works/launch.md: cuLaunchKernel takes 387 words, a graph's launch 25 for one kernel and 29 for ten, in one doorbell.
    // The stream starts the one kernel itself; of ten it starts a QMD without blocks, and the kernels start each other.
    for (number, words, kernels) in [(176, 387, Some(1)), (554, 25, Some(1)), (606, 29, None)] {
        let found = commands("h200-launches.doorbell", &[number]).first;
        assert_eq!((found.doorbells, found.entries, found.pushbuffer_bytes), (1, 1, words * 4), "{number}");
        assert_eq!(found.executors.get("kernel").map(|moved| moved.operations), kernels, "{number}: {found:?}");
        assert!(!found.executors.keys().any(|name| name.starts_with("COPY")), "{number}: {found:?}");
    }
    // Separate calls have the same figures as together, except for the first.
    let both = commands("h200-launches.doorbell", &[176, 554, 606]);
    assert_eq!((both.calls, both.first.pushbuffer_bytes), (2, 387 * 4));
    assert_eq!((both.pushbuffer_bytes.typical().min, both.pushbuffer_bytes.typical().max), (25 * 4, 29 * 4));
    let [channel] = &both.channels[..] else { panic!("{both:?}") };
    assert_eq!([&*channel.gpfifo, &*channel.userd, &*channel.pushbuffer], ["video", "video", "host"]);
}

#[test]
fn every_doorbell_of_a_tape_is_counted_once() {
    for name in ["h200-launches.doorbell", "h200-copies.doorbell"] {
        let (recording, all) = recording(name);
        let own: Vec<u64> = all.iter().filter(|rung| rung.tid == all[0].tid).map(|rung| rung.number).collect();
        // One call for every other submission.
        let calls: Vec<Sample> = own.iter().step_by(2).map(|number| round(&all, *number)).collect();
        let joined = join(&recording, &counter(&all), &[&calls]).unwrap();
        let d = joined.doorbells;
        let (in_calls, total) = (calls.len() as u64, summary(&recording).unwrap().doorbells);
        assert_eq!(
            (d.in_calls, d.in_calls + d.waiting + d.untimed + d.other_threads),
            (in_calls, total),
            "{name}: {d:?}"
        );
        let found = joined.commands[0].as_ref().unwrap();
        assert_eq!(found.channels.iter().map(|c| c.doorbells).sum::<u64>(), in_calls, "{name}");
    }
}

#[test]
fn a_tape_of_another_process_is_refused() {
    let (recording, all) = recording("h200-copies.doorbell");
    let other = Counter { pid: -7, ..counter(&all) };
    let error = join(&recording, &other, &[]).unwrap_err();
    assert_eq!(error.to_string(), "process -7 is not in the recording");
}

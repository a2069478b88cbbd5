//! `selfbench locks`: what recording adds to a lock and its unlock.

use crate::affinity;
use anyhow::{Context, bail};
use serde_json::{Value, json};
use std::cell::UnsafeCell;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Numbers instead of a table
    #[arg(long)]
    json: bool,
    /// How often bare and traced runs take turns
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Pairs of each run
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1000..=100_000_000))]
    count: u32,
    /// Run the measured loops on this CPU
    #[arg(long)]
    cpu: Option<usize>,
    /// Exit with 1 if tracing adds more to a pair, ns
    #[arg(long, value_name = "NS")]
    at_most: Option<f64>,
}

/// The loops, as a program of their own.
#[derive(Debug, clap::Args)]
pub struct PairArgs {
    #[arg(long, default_value_t = 200_000)]
    count: u32,
    #[arg(long)]
    cpu: Option<usize>,
}

/// Pairs that are timed together.
const BATCH: u32 = 1000;
/// Batches between pauses in which the recorder empties the ring.
const A_WAIT: u32 = 16;
/// How long two threads hammer one lock.
const HAMMER: Duration = Duration::from_millis(20);

/// One run of the loops.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// ns, median over the batches.
    pair: f64,
    rwlock: f64,
    /// Pairs a second of two threads at one mutex.
    contended: f64,
}

impl Args {
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let (mut bare, mut traced, mut gaps) = (Vec::new(), Vec::new(), 0);
        for round in 0..self.rounds {
            // Who goes first changes: what a machine does to the first of two it does to both.
            for first in [round % 2 == 0, round % 2 != 0] {
                if first {
                    bare.push(self.once(None)?.0);
                } else {
                    let (sample, lost) = self.traced()?;
                    traced.push(sample);
                    gaps += lost;
                }
            }
        }
        let of = |f: fn(&Sample) -> f64| -> (f64, f64, f64) {
            let added = bare.iter().zip(&traced).map(|(b, t)| f(t) - f(b)).collect();
            (median(bare.iter().map(f).collect()), median(traced.iter().map(f).collect()), median(added))
        };
        let (pair, rwlock, contended) = (of(|s| s.pair), of(|s| s.rwlock), of(|s| s.contended));
        if self.json {
            let m = recorder::machine();
            let out = json!({
                "bench": "locks",
                "rounds": self.rounds,
                "count": self.count,
                "bare_pair_ns": pair.0,
                "traced_pair_ns": pair.1,
                "added_pair_ns": pair.2,
                "bare_rdlock_pair_ns": rwlock.0,
                "traced_rdlock_pair_ns": rwlock.1,
                "added_rdlock_pair_ns": rwlock.2,
                "bare_contended_pairs_per_s": contended.0,
                "traced_contended_pairs_per_s": contended.1,
                // Events that did not fit: what is not written costs less, so this says how far to trust the figures.
                "lost_events": gaps,
                "machine": { "cpu": m.cpu, "kernel": m.kernel, "doorbell": env!("CARGO_PKG_VERSION") },
            });
            println!("{out}");
        } else {
            println!("{:<34}{:>10}{:>10}{:>10}", "uncontended pair, ns", "bare", "traced", "added");
            for (name, (b, t, a)) in [("mutex lock + unlock", pair), ("rwlock rdlock + unlock", rwlock)] {
                println!("  {name:<32}{b:>10.1}{t:>10.1}{a:>10.1}");
            }
            println!("two threads at one mutex, million pairs a second");
            println!("  {:<32}{:>10.2}{:>10.2}", "mutex lock + unlock", contended.0 / 1e6, contended.1 / 1e6);
            println!("medians of {} rounds; added: median of the rounds' differences", self.rounds);
            if gaps > 0 {
                println!("{gaps} events did not fit into the rings and cost less: give --cpu or a smaller --count");
            }
        }
        let missed = self.at_most.is_some_and(|most| pair.2 > most);
        if let Some(most) = self.at_most.filter(|_| missed) {
            eprintln!("tracing adds {:.1} ns to a pair, more than {most} ns", pair.2);
        }
        Ok(ExitCode::from(u8::from(missed)))
    }

    /// A run of the loops, with these words before their command.
    fn once(&self, before: Option<&[std::ffi::OsString]>) -> anyhow::Result<(Sample, String)> {
        let me = std::env::current_exe().context("where doorbell itself lies")?;
        let mut words: Vec<std::ffi::OsString> = before.unwrap_or_default().to_vec();
        words.push(me.into());
        words.extend(["selfbench", "pairs", "--count"].map(Into::into));
        words.push(self.count.to_string().into());
        if let Some(cpu) = self.cpu {
            words.extend(["--cpu".into(), cpu.to_string().into()]);
        }
        let out = Command::new(&words[0]).args(&words[1..]).stdin(Stdio::null()).output()?;
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        if !out.status.success() {
            bail!("the loops ended with {}: {}", out.status, String::from_utf8_lossy(&out.stderr).trim());
        }
        let v =
            text.lines().find_map(|l| serde_json::from_str::<Value>(l).ok()).context("the loops printed no JSON")?;
        let at = |k: &str| v[k].as_f64().with_context(|| format!("the loops said no {k}"));
        Ok((Sample { pair: at("pair_ns")?, rwlock: at("rdlock_ns")?, contended: at("contended_per_s")? }, text))
    }

    fn traced(&self) -> anyhow::Result<(Sample, u64)> {
        let me = std::env::current_exe()?;
        let tape: PathBuf = std::env::temp_dir().join(format!("doorbell-selfbench-{}.doorbell", std::process::id()));
        let mut before: Vec<std::ffi::OsString> = vec![me.into()];
        before.extend(["record", "--locks", "--quiet", "--tap", "off", "--ring", "32", "-o"].map(Into::into));
        before.extend([tape.clone().into(), "--".into()]);
        let run = self.once(Some(&before));
        let checked = run.and_then(|(sample, _)| Ok((sample, self.check(&tape)?)));
        let _ = std::fs::remove_file(&tape);
        checked
    }

    /// Every pair is on the tape or counted as lost: a tap that did not record would be cheap.
    fn check(&self, tape: &std::path::Path) -> anyhow::Result<u64> {
        let recording = insight::Recording::open(tape)?;
        let locks = insight::locks::Locks::of(&recording, 0)?;
        let n = locks.operations.get("mutex_lock").copied().unwrap_or(0) + locks.lost_events;
        if n < u64::from(self.count) {
            bail!("{n} locks are on the tape or counted as lost, {} were taken", self.count);
        }
        Ok(locks.lost_events)
    }
}

fn median(mut v: Vec<f64>) -> f64 {
    v.sort_unstable_by(f64::total_cmp);
    match v.len() {
        0 => 0.0,
        n if n % 2 == 1 => v[n / 2],
        n => (v[n / 2 - 1] + v[n / 2]) / 2.0,
    }
}

struct Locks {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    rwlock: UnsafeCell<libc::pthread_rwlock_t>,
}

// SAFETY: locks are for use by several threads.
unsafe impl Sync for Locks {}

static LOCKS: Locks = Locks {
    mutex: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
    rwlock: UnsafeCell::new(libc::PTHREAD_RWLOCK_INITIALIZER),
};

fn mutex_pair() {
    // SAFETY: a static, initialised mutex; this thread unlocks what it has locked.
    unsafe {
        libc::pthread_mutex_lock(LOCKS.mutex.get());
        libc::pthread_mutex_unlock(LOCKS.mutex.get());
    }
}

fn read_pair() {
    // SAFETY: as above.
    unsafe {
        libc::pthread_rwlock_rdlock(LOCKS.rwlock.get());
        libc::pthread_rwlock_unlock(LOCKS.rwlock.get());
    }
}

/// Nanoseconds of one pair, median over the batches.
fn timed(count: u32, pair: fn()) -> f64 {
    let batches = count.div_ceil(BATCH);
    let mut times = Vec::with_capacity(batches as usize);
    for i in 0..batches {
        let from = Instant::now();
        for _ in 0..BATCH {
            pair();
        }
        times.push(from.elapsed().as_nanos() as f64 / f64::from(BATCH));
        if i % A_WAIT == 0 {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    median(times)
}

/// Pairs a second of two threads at one mutex.
fn contended() -> f64 {
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let from = Instant::now();
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                let mut n = 0;
                while !stop.load(Ordering::Relaxed) {
                    mutex_pair();
                    n += 1;
                }
                done.fetch_add(n, Ordering::Relaxed);
            });
        }
        std::thread::sleep(HAMMER);
        stop.store(true, Ordering::Relaxed);
    });
    done.load(Ordering::Relaxed) as f64 / from.elapsed().as_secs_f64()
}

impl PairArgs {
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        // Before the loops are pinned: they are two threads.
        let contended = contended();
        if let Some(cpu) = self.cpu {
            affinity::stay_on(cpu)?;
        }
        // The first time maps the ring.
        timed(BATCH, mutex_pair);
        timed(BATCH, read_pair);
        let (pair, rdlock) = (timed(self.count, mutex_pair), timed(self.count / 4, read_pair));
        println!("{}", json!({ "pair_ns": pair, "rdlock_ns": rdlock, "contended_per_s": contended }));
        Ok(ExitCode::SUCCESS)
    }
}

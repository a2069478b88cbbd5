//! `selfbench calls`: what recording, and the guard, add to a CUDA call.
//!
//! The call is a function of this program with the arguments of cuLaunchKernel. It is called by its address and through an entry of the agent. So
//! the entry is measured, which is the same on every machine, with or without a GPU.

use crate::looped::{self, figure};
use crate::pairs::clock;
use crate::{Plan, median, stay_on};
use anyhow::bail;
use serde_json::{Value, json};
use std::arch::asm;
use std::ffi::OsString;
use std::hint::black_box;
use std::time::{Duration, Instant};
use tape::event::{Body, Event};

/// Calls that are timed together.
const BATCH: u32 = 1000;
/// Batches between pauses in which the recorder empties the ring.
const A_WAIT: u32 = 16;
/// cuLaunchKernel on tapes.
const LAUNCH: u32 = 1;
/// Would give the loop a policy that was not asked for.
const POLICY: &str = "DOORBELL_LOCK_POLICY";

/// One run of the loop: medians in ns over its batches, whose order alternates.
#[derive(Clone, Copy, Debug)]
struct Sample {
    bare: f64,
    /// A bare call with a clock reading before and after.
    clocked: f64,
    /// The two readings alone.
    clocks: f64,
    tapped: f64,
}

/// The result: medians over the rounds, ns.
pub struct Figures {
    plan: Plan,
    bare: f64,
    clocked: f64,
    clocked_added: f64,
    clocks: f64,
    tapped: f64,
    /// What recording adds to a call.
    pub added: f64,
    over_clock: f64,
    guarded: f64,
    added_by_guard: f64,
    lost: u64,
}

/// Runs all rounds; `tell` hears of each.
pub fn measure(plan: &Plan, tell: &dyn Fn(&str)) -> anyhow::Result<Figures> {
    let (mut recorded, mut guarded, mut lost) = (Vec::new(), Vec::new(), 0);
    for round in 0..plan.rounds {
        tell(&format!("round {} of {}", round + 1, plan.rounds));
        for first in [round % 2 == 0, round % 2 != 0] {
            if first {
                let (sample, gaps) = record(plan)?;
                recorded.push(sample);
                lost += gaps;
            } else {
                let guard = ["run", "--lock-policy", "guard", "--"].map(OsString::from);
                guarded.push(Sample::of(&plan.run("call-loop", &guard, Some(POLICY))?)?);
            }
        }
    }
    let of = |v: &[Sample], f: fn(&Sample) -> f64| median(v.iter().map(f).collect());
    let both = |f: fn(&Sample) -> f64| median(recorded.iter().chain(&guarded).map(f).collect());
    Ok(Figures {
        plan: plan.clone(),
        bare: both(|s| s.bare),
        clocked: both(|s| s.clocked),
        clocked_added: both(|s| s.clocked - s.bare),
        clocks: both(|s| s.clocks),
        tapped: of(&recorded, |s| s.tapped),
        added: of(&recorded, |s| s.tapped - s.bare),
        over_clock: of(&recorded, |s| s.tapped - s.clocked),
        guarded: of(&guarded, |s| s.tapped),
        added_by_guard: of(&guarded, |s| s.tapped - s.bare),
        lost,
    })
}

impl Figures {
    pub fn json(&self) -> Value {
        json!({
            "bench": "calls",
            "rounds": self.plan.rounds,
            "count": self.plan.count,
            "bare_call_ns": self.bare,
            "tapped_call_ns": self.tapped,
            "added_call_ns": self.added,
            "two_clock_reads_ns": self.clocks,
            "clocked_call_ns": self.clocked,
            "clocked_added_call_ns": self.clocked_added,
            "over_clock_call_ns": self.over_clock,
            "guarded_call_ns": self.guarded,
            "added_guarded_call_ns": self.added_by_guard,
            // Events that did not fit. An event that is not written costs less, so this number shows how far to trust the figures.
            "lost_events": self.lost,
            "machine": crate::machine(),
        })
    }

    pub fn table(&self) -> String {
        let mut t = format!("{:<34}{:>10}{:>10}\n", "a call that does nothing, ns", "takes", "added");
        t += &format!("  {:<32}{:>10.1}\n", "bare", self.bare);
        t += &format!("  {:<32}{:>10.1}\n", "two clock readings", self.clocks);
        t += &format!("  {:<32}{:>10.1}{:>10.1}\n", "bare, clock read twice", self.clocked, self.clocked_added);
        t += &format!("  {:<32}{:>10.1}{:>10.1}\n", "recorded", self.tapped, self.added);
        t += &format!("  {:<32}{:>10}{:>10.1}\n", "  over the clock", "", self.over_clock);
        t += &format!("  {:<32}{:>10.1}{:>10.1}\n", "guarded, no other caller", self.guarded, self.added_by_guard);
        t += &format!("medians of {} rounds; added: median of the rounds' differences\n", self.plan.rounds);
        t + &looped::not_fitted(self.lost, "ring")
    }
}

impl Sample {
    fn of(said: &looped::Said) -> anyhow::Result<Sample> {
        let (clocked, clocks) = (figure(said, "clocked_ns")?, figure(said, "clocks_ns")?);
        Ok(Sample { bare: figure(said, "bare_ns")?, clocked, clocks, tapped: figure(said, "tapped_ns")? })
    }
}

/// A run whose calls are recorded, and its lost events.
fn record(plan: &Plan) -> anyhow::Result<(Sample, u64)> {
    let is_launch = |e: &Event<'_>| matches!(e.body, Body::Call(_)) && u32::from(e.head.flags) == LAUNCH;
    let made = ("calls", plan.count.into());
    let (said, lost) = plan.run_recorded("call-loop", &["--calls"], POLICY, made, is_launch)?;
    Ok((Sample::of(&said)?, lost))
}

/// The arguments of cuLaunchKernel.
type Launch = extern "C" fn(u64, u32, u32, u32, u32, u32, u32, u32, u64, u64, u64) -> i32;

#[inline(never)]
#[allow(clippy::too_many_arguments)]
extern "C" fn launch(f: u64, x: u32, _: u32, _: u32, _: u32, _: u32, _: u32, _: u32, s: u64, p: u64, _: u64) -> i32 {
    // SAFETY: no instructions. It only keeps the compiler from removing the call.
    unsafe { asm!("/* {} {} {} */", in(reg) f, in(reg) s, in(reg) p, options(nostack, preserves_flags)) };
    x as i32
}

/// Nanoseconds of one call in a batch.
#[inline(always)]
fn timed(mut f: impl FnMut(u32)) -> f64 {
    let from = Instant::now();
    for i in 0..BATCH {
        f(i);
    }
    from.elapsed().as_nanos() as f64 / f64::from(BATCH)
}

#[inline(always)]
fn call(f: Launch, i: u32) {
    let r = f(0xf1, i, 1, 1, 32, 1, 1, 0, 0x51, 0, 0);
    assert_eq!(r, i as i32, "the call's result");
}

#[inline(never)]
fn calls(f: Launch) -> f64 {
    timed(|i| call(f, i))
}

#[inline(never)]
fn clocked_calls(f: Launch) -> f64 {
    timed(|i| {
        black_box(clock());
        call(f, i);
        black_box(clock());
    })
}

#[inline(never)]
fn clocks(_: Launch) -> f64 {
    timed(|_| {
        black_box(clock());
        black_box(clock());
    })
}

/// Measures bare and tapped calls, `count` of each, and prints one line of JSON.
pub fn run_loop(count: u32, cpu: Option<usize>) -> anyhow::Result<()> {
    if let Some(cpu) = cpu {
        stay_on(cpu)?;
    }
    // SAFETY: the name is NUL-terminated. The agent's function of that name has this type, and returns an entry for a function of the type that it
    // is given.
    let tapped: Launch = unsafe {
        let find = libc::dlsym(libc::RTLD_DEFAULT, c"doorbell_entry_of_call".as_ptr());
        if find.is_null() {
            bail!("this is the loop of `doorbell selfbench calls`, which starts it under the agent");
        }
        let find: extern "C" fn(u32, usize) -> usize = std::mem::transmute(find);
        match find(LAUNCH, launch as *const () as usize) {
            0 => bail!("the agent taps no calls here"),
            at => std::mem::transmute::<usize, Launch>(at),
        }
    };
    let bare = black_box(launch as Launch);
    // The first call maps the ring.
    calls(tapped);
    calls(bare);
    type Way = (&'static str, fn(Launch) -> f64, Launch);
    let ways: [Way; 4] = [
        ("bare_ns", calls, bare),
        ("clocked_ns", clocked_calls, bare),
        ("clocks_ns", clocks, bare),
        ("tapped_ns", calls, tapped),
    ];
    let mut times = ways.map(|_| Vec::new());
    for i in 0..count.div_ceil(BATCH) {
        for k in 0..ways.len() {
            // A different one is first each time.
            let at = (i as usize + k) % ways.len();
            let (_, run, f) = ways[at];
            times[at].push(run(f));
        }
        if i % A_WAIT == 0 {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    let out: serde_json::Map<String, Value> =
        ways.iter().zip(times).map(|((name, ..), times)| ((*name).into(), json!(median(times)))).collect();
    println!("{}", Value::Object(out));
    Ok(())
}

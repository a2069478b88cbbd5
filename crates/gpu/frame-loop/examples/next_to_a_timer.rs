//! Compares a loop with a bare thread that does the same: a timer, `Session::launch`, and a spin. They take turns, so that both run on the same machine in
//! the same state.
//!
//! ```text
//! cargo run --release -p frame-loop --example next_to_a_timer -- [--rounds 5] [--seconds 2] [--period-us 2000] [--bytes 2048]
//!     [--kernels 5] [--fifo 50] [--cpu 3] [--modules]
//! ```
//!
//! `--modules`: another thread loads modules during the run. The example also prints the cost of copying an input into the chain's own memory, and the cost
//! of a chain for each of eight slots instead.

use frame_loop::{Class, Late, Loop, LoopOptions, Pace, Part, Scheduling, Stamp, Waiting, now};
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use submit::{ChainHow, ChainStep, Follow, Graph, Kind, Options, Session};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const PTX: &str = r"
.version 7.0
.target sm_70
.address_size 64
.visible .entry count(.param .u64 count_word)
{
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [count_word];
    cvta.to.global.u64 %rd2, %rd1;
    red.global.add.u32 [%rd2], 1;
    ret;
}
";
const SLOTS: u64 = 8;

#[derive(Clone, Copy)]
pub struct Wanted {
    pub rounds: u32,
    /// Of each turn.
    pub time: Duration,
    pub period: Duration,
    pub bytes: u64,
    pub kernels: u32,
    pub fifo: Option<i32>,
    pub cpu: Option<usize>,
    pub modules: bool,
    /// Launches for the cost of an input.
    pub launches: usize,
}

/// The results of a loop or a thread, in all rounds.
#[derive(Default)]
pub struct Row {
    pub name: &'static str,
    pub frames: u64,
    pub missed: u64,
    pub wrong: u64,
    /// From the tick until the result was seen, in ns: p50, p99, p99.9 and the largest. Over the rounds, the median of the first two and the largest of the
    /// others.
    pub rounds: Vec<[u64; 4]>,
}

struct Chain {
    graph: Graph,
    input: Part,
    output: Part,
}

fn main() -> Result<()> {
    let wanted = arguments()?;
    let rows = measure(wanted)?;
    println!(
        "{:<22} {:>8} {:>7} {:>6} {:>9} {:>9} {:>9} {:>9}",
        "us after the tick", "frames", "missed", "wrong", "p50", "p99", "p99.9", "max"
    );
    for row in rows {
        let of = |at: usize| {
            let mut all: Vec<u64> = row.rounds.iter().map(|round| round[at]).collect();
            all.sort_unstable();
            let value = if at < 2 { all[all.len() / 2] } else { all[all.len() - 1] };
            value as f64 / 1e3
        };
        let Row { name, frames, missed, wrong, .. } = row;
        println!(
            "{name:<22} {frames:>8} {missed:>7} {wrong:>6} {:>9.1} {:>9.1} {:>9.1} {:>9.1}",
            of(0),
            of(1),
            of(2),
            of(3)
        );
    }
    Ok(())
}

pub fn measure(wanted: Wanted) -> Result<Vec<Row>> {
    Session::watch()?;
    let context: &'static cuda::Context = Box::leak(Box::new(cuda::Cuda::load()?.device(0)?.primary_context()?));
    context.make_current()?;
    let session = Arc::new(Session::new());
    session.open(&Options { kind: Kind::Cuda, lanes: 1, profile: Follow::Nothing, ..Options::default() })?;
    let module = cuda::Module::from_ptx(context, PTX)?;
    let chains = (0..SLOTS).map(|_| chain(&session, context, &module, wanted)).collect::<Result<Vec<_>>>()?;
    input_costs(&session, &chains, wanted)?;
    let mut rows =
        ["a timer and a spin", "the loop, spinning", "the loop, napping"].map(|name| Row { name, ..Row::default() });
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        if wanted.modules {
            scope.spawn(|| load_modules(context, &over));
        }
        let mut all = (0..wanted.rounds as usize).flat_map(|round| (0..3).map(move |turn| (round + turn) % 3));
        let done = all.try_for_each(|which| turn(&session, &chains[0], wanted, which, &mut rows[which]));
        over.store(true, Ordering::SeqCst);
        done
    })?;
    session.close()?;
    Ok(rows.into())
}

fn turn(session: &Arc<Session>, chain: &Chain, wanted: Wanted, which: usize, row: &mut Row) -> Result<()> {
    match which {
        0 => bare(session, chain, wanted, row),
        1 => looped(session, chain, wanted, Waiting::Spin, row),
        _ => looped(session, chain, wanted, Waiting::Nap, row),
    }
}

/// A frame: bytes in, `kernels` kernels that add 1 to their first word, bytes out.
fn chain(session: &Session, context: &cuda::Context, module: &cuda::Module<'_>, wanted: Wanted) -> Result<Chain> {
    let bytes = wanted.bytes;
    let at = bytes.next_multiple_of(4096);
    let (host, video) = (session.allocate(2 * at, false)?, session.allocate(at, true)?);
    let (word, _) = session.place(video)?;
    let count = module.function("count")?;
    let stream = cuda::Stream::new(context)?;
    let captured = cuda::Graph::capture(&stream, || {
        // SAFETY: the argument is the kernel's, and the word outlives the session's launches.
        (0..wanted.kernels)
            .try_for_each(|_| unsafe { count.launch([1; 3], [1; 3], 0, &stream, &[cuda::Argument::U64(word)]) })
    })?;
    let exec = captured.instantiate()?;
    // SAFETY: module and memory stay until the session is closed.
    let graph = unsafe { session.prepare_graph(exec.handle(), stream.handle()) }?;
    let copy = |to, from| ChainStep::Copy { to, from, bytes, by: None };
    let steps = [copy((video, 0), (host, 0)), ChainStep::Launch(graph), copy((host, at), (video, 0))];
    let part = |at| Part { buffer: host, at, bytes };
    Ok(Chain { graph: session.prepare_chain(&steps, ChainHow::default())?, input: part(0), output: part(at) })
}

fn scheduling(wanted: Wanted) -> Scheduling {
    let class = wanted.fifo.map_or(Class::Ordinary, Class::Fifo);
    Scheduling { class, cpu: wanted.cpu, lock_memory: true, ..Scheduling::default() }
}

fn looped(session: &Arc<Session>, chain: &Chain, wanted: Wanted, waiting: Waiting, row: &mut Row) -> Result<()> {
    let options = LoopOptions {
        input: Some(chain.input),
        output: Some(chain.output),
        slots: 256,
        results: 4096,
        late: Late::Skip,
        waiting,
        signal_each: 0,
        scheduling: scheduling(wanted),
        ..LoopOptions::new(chain.graph, Pace::Period(wanted.period))
    };
    let running = Loop::start(session.clone(), options)?;
    running.refused().iter().for_each(|why| eprintln!("{why}"));
    let (Some(mut producer), Some(mut results)) = (running.producer(), running.results()) else { return Ok(()) };
    let (until, mut number) = (now() + wanted.time.as_nanos() as u64, 0u32);
    let mut bytes = vec![0u8; wanted.bytes as usize];
    while now() < until {
        while let Ok(slot) = producer.slot() {
            slot[..4].copy_from_slice(&number.to_le_bytes());
            producer.commit(Stamp { sequence: number.into(), ..Stamp::default() })?;
            number += 1;
        }
        while let Some(outcome) = results.next(&mut bytes)? {
            let right = bytes[..4] == (outcome.sequence as u32).wrapping_add(wanted.kernels).to_le_bytes();
            row.wrong += u64::from(!right && !outcome.refused);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let status = running.stop();
    let seen = running.statistics();
    if seen.starved > 0 || status.reason != frame_loop::Reason::Asked {
        eprintln!("{}: {} ticks had no input; {}", row.name, seen.starved, status.reason);
    }
    (row.frames, row.missed) = (row.frames + seen.frames, row.missed + seen.missed);
    let [p50, p99, p999] = [50.0, 99.0, 99.9].map(|percent| seen.done.percentile(percent));
    row.rounds.push([p50, p99, p999, seen.done.max]);
    Ok(())
}

/// The code that a program would write itself, as in C.
fn bare(session: &Arc<Session>, chain: &Chain, wanted: Wanted, row: &mut Row) -> Result<()> {
    let period = wanted.period.as_nanos() as u64;
    let (input, output) = (
        session.hold((chain.input.buffer, chain.input.at), wanted.bytes)?,
        session.hold((chain.output.buffer, chain.output.at), wanted.bytes)?,
    );
    let (frame, mut result) = (vec![0u8; wanted.bytes as usize], vec![0u8; wanted.bytes as usize]);
    let mut took = Vec::with_capacity((wanted.time.as_nanos() as u64 / period) as usize + 16);
    let work = || -> std::result::Result<(u64, u64), submit::Error> {
        let _placed = placed(wanted);
        let (mut missed, mut wrong, mut number) = (0, 0, 0u32);
        let mut due = now() + period;
        let until = due + wanted.time.as_nanos() as u64;
        while due < until {
            let at = libc::timespec { tv_sec: (due / 1_000_000_000) as _, tv_nsec: (due % 1_000_000_000) as _ };
            // SAFETY: reads one timespec.
            unsafe {
                libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &raw const at, std::ptr::null_mut())
            };
            let late = now().saturating_sub(due) / period;
            missed += late;
            due += late * period;
            // SAFETY: both have as many bytes, and no launch is pending.
            unsafe {
                input.pointer().as_ptr().copy_from_nonoverlapping(frame.as_ptr(), frame.len());
                input.pointer().cast::<u32>().write(number);
            }
            let copy = session.launch(chain.graph)?;
            while !session.poll(copy)? {
                std::hint::spin_loop();
            }
            took.push(now() - due);
            // SAFETY: as above.
            unsafe { result.as_mut_ptr().copy_from_nonoverlapping(output.pointer().as_ptr(), result.len()) };
            wrong += u64::from(result[..4] != number.wrapping_add(wanted.kernels).to_le_bytes());
            number += 1;
            due += period;
        }
        Ok((missed, wrong))
    };
    let done = std::thread::scope(|scope| scope.spawn(work).join());
    let (missed, wrong) = done.map_err(|_| "the bare thread failed")??;
    took.sort_unstable();
    let at =
        |per_mille: usize| took.get((took.len() * per_mille).div_ceil(1000).saturating_sub(1)).copied().unwrap_or(0);
    row.rounds.push([at(500), at(990), at(999), at(1000)]);
    (row.frames, row.missed, row.wrong) = (row.frames + took.len() as u64, row.missed + missed, row.wrong + wrong);
    Ok(())
}

fn placed(wanted: Wanted) -> environment::placement::Placement {
    // SAFETY: sets a number of this thread.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1u64) };
    environment::placement::Placement::take(environment::placement::Wish { cpu: wanted.cpu, fifo: wanted.fifo })
}

/// A launch whose input is copied from one of eight slots, and a launch of one of eight chains: CPU time of both, and time until they are done.
fn input_costs(session: &Session, chains: &[Chain], wanted: Wanted) -> Result<()> {
    let slots = vec![1u8; (SLOTS * wanted.bytes) as usize];
    let input = session.hold((chains[0].input.buffer, chains[0].input.at), wanted.bytes)?;
    let mut all: [[Vec<u64>; 2]; 2] = Default::default();
    for n in 0..wanted.launches {
        let (copied, slot) = ((n / SLOTS as usize).is_multiple_of(2), n % SLOTS as usize);
        let start = now();
        if copied {
            let from = &slots[slot * wanted.bytes as usize..][..wanted.bytes as usize];
            // SAFETY: both have as many bytes, and no launch is pending.
            unsafe { input.pointer().as_ptr().copy_from_nonoverlapping(from.as_ptr(), from.len()) };
        }
        let copy = session.launch(chains[if copied { 0 } else { slot }].graph)?;
        let launched = now();
        while !session.poll(copy)? {
            std::hint::spin_loop();
        }
        let [by_cpu, done] = &mut all[usize::from(copied)];
        by_cpu.push(launched - start);
        done.push(now() - start);
    }
    for (name, [by_cpu, done]) in ["a chain for each slot", "copied into one chain"].into_iter().zip(&mut all) {
        let [launched, done] = [by_cpu, done].map(|times| {
            times.sort_unstable();
            times.get(times.len() / 2).copied().unwrap_or(0)
        });
        println!("{name}: launched after {launched} ns, done after {done} ns (p50, {} bytes)", wanted.bytes);
    }
    Ok(())
}

fn load_modules(context: &cuda::Context, over: &AtomicBool) {
    let _ = context.make_current();
    for n in 0u64.. {
        if over.load(Ordering::SeqCst) {
            return;
        }
        // Another text each time, so that the driver compiles it.
        let text = format!("{PTX}\n.visible .global .u64 salt = {};\n", n + now());
        drop(cuda::Module::from_ptx(context, &text));
    }
}

fn arguments() -> Result<Wanted> {
    let mut wanted = Wanted {
        rounds: 5,
        time: Duration::from_secs(2),
        period: Duration::from_millis(2),
        bytes: 2048,
        kernels: 5,
        fifo: None,
        cpu: None,
        modules: false,
        launches: 4000,
    };
    let mut all = std::env::args().skip(1);
    while let Some(name) = all.next() {
        if name == "--modules" {
            wanted.modules = true;
            continue;
        }
        let value: u32 = all.next().ok_or_else(|| format!("{name} takes a number"))?.parse()?;
        match name.as_str() {
            "--rounds" => wanted.rounds = value.max(1),
            "--seconds" => wanted.time = Duration::from_secs(value.max(1).into()),
            "--period-us" => wanted.period = Duration::from_micros(value.max(1).into()),
            "--bytes" => wanted.bytes = value.max(4).into(),
            "--kernels" => wanted.kernels = value.max(1),
            "--fifo" => wanted.fifo = Some(value as i32),
            "--cpu" => wanted.cpu = Some(value as usize),
            _ => return Err(format!("no option is called {name}").into()),
        }
    }
    Ok(wanted)
}

//! One recording: start the program with the agent in it, drain until it ends, close the tape.

use crate::drain::Drain;
use crate::preload::Preload;
use crate::program::{Program, ProgramError};
use crate::shared::Shared;
use crate::signals::Signals;
use crate::switches::Switches;
use crate::{clock, machine};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tape::file::{End, EndChannel, Header, TapeError, Writer};
use tape::region;

/// How doorbells are tapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tap {
    /// Rewrite sites where that is proven safe, else trap.
    #[default]
    Auto,
    Trap,
    Patch,
    /// Driver calls only.
    Off,
}

impl Tap {
    pub fn name(self) -> &'static str {
        match self {
            Tap::Auto => "auto",
            Tap::Trap => "trap",
            Tap::Patch => "patch",
            Tap::Off => "off",
        }
    }

    fn code(self) -> u32 {
        match self {
            Tap::Auto => region::tap::AUTO,
            Tap::Trap => region::tap::TRAP,
            Tap::Patch => region::tap::PATCH,
            Tap::Off => region::tap::OFF,
        }
    }
}

pub struct Options<'a> {
    /// Program and its arguments.
    pub command: Vec<OsString>,
    pub out: PathBuf,
    pub tap: Tap,
    /// Wait for the recorder when a ring is full, instead of counting a gap.
    pub wait_on_full: bool,
    /// Record every operation of locks.
    pub locks: bool,
    /// With locks or calls: when its threads were taken off their CPUs, and by whom.
    pub switches: bool,
    /// Record CUDA's calls.
    pub calls: bool,
    /// Bytes of each thread's ring; rounded up to a power of two.
    pub ring_bytes: usize,
    pub no_data: bool,
    pub no_args: bool,
    /// Stop recording (not the program) at this size of the tape.
    pub limit: Option<u64>,
    /// The agent library's bytes.
    pub agent: &'a [u8],
    /// The software GPU's bytes, if the program is to find that one.
    pub soft: Option<&'a [u8]>,
    /// doorbell's version, for the header.
    pub version: &'a str,
}

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    pub status: ExitStatus,
    pub end: End,
    /// Size of the tape.
    pub bytes: u64,
}

/// Why nothing was recorded. As with [`TapeError`], each text says all.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error(transparent)]
    Tape(#[from] TapeError),
    #[error("shared memory for the rings: {0}")]
    Region(io::Error),
    /// Told before it is made: SIGXFSZ would end us.
    #[error(
        "shared memory for the rings: {needed} bytes of address space are above the file size limit of {limit} bytes"
    )]
    FileSizeLimit { needed: u64, limit: u64 },
    #[error("{path}: could not be started: {cause}")]
    Start { path: PathBuf, cause: io::Error },
    #[error("{0}: is the program itself, which the tape would replace")]
    IsProgram(PathBuf),
    /// `how`: what became of the program.
    #[error("{path}: the tape could not be closed: {cause} ({how})")]
    Close { path: PathBuf, cause: io::Error, how: String },
}

/// Records one program from its start to its end.
pub fn record(o: &Options) -> Result<Outcome, RecordError> {
    let name = o.command.first().cloned().unwrap_or_default();
    let program = Program::find(&name)?;
    if same_file(&o.out, &program.path) {
        return Err(RecordError::IsProgram(o.out.clone()));
    }
    let tsc_hz = clock::tsc_hz();
    let ring_bytes = o.ring_bytes.clamp(RING_BYTES.0, RING_BYTES.1).next_power_of_two();
    let on_full = if o.wait_on_full { region::on_full::WAIT } else { region::on_full::GAP };
    within_file_size_limit(region::region_bytes(ring_bytes) as u64)?;
    let wish = |on: bool, bit: u32| if on { bit } else { 0 };
    let locks = wish(o.locks, region::locks::RECORD)
        | wish(o.calls, region::locks::CALLS)
        | wish(o.no_args, region::locks::NO_NAMES);
    let shared = Shared::new(ring_bytes, o.tap.code(), on_full, locks).map_err(RecordError::Region)?;
    // The rest while the program starts.
    shared.make_ring_ready(0).map_err(RecordError::Region)?;
    let preload = Preload::new(o.agent, o.soft).map_err(RecordError::Region)?;

    let writer = Writer::replace(&o.out, &header(o, &program.path, tsc_hz))?;
    let mut drain = Drain::new(&shared, writer, o.no_data, o.limit);
    drain.clock(&clock::read(tsc_hz));
    if o.locks || o.calls {
        let (switches, first) = Switches::open(o.switches, !o.no_args);
        drain.add_switches(switches, first);
    }

    let mut command = preload.command(&program, &o.command);
    command.env("DOORBELL_REGION", shared.path());
    // Not earlier: a tape on a pipe that nobody reads must not outlive a SIGINT.
    let signals = Signals::handle();
    signals.prepare(&mut command);
    let begun = Instant::now();
    let child = match command.spawn() {
        Ok(c) => c,
        Err(cause) => {
            // Not a device or a pipe: those are not ours.
            if o.out.symlink_metadata().is_ok_and(|m| m.is_file()) {
                let _ = std::fs::remove_file(&o.out);
            }
            return Err(RecordError::Start { path: program.path, cause });
        }
    };
    let pid = child.id() as i32;
    drain.program(pid);
    signals.program(Some(pid));
    let status = beating(&shared, || follow(&mut drain, pid, &signals, tsc_hz, ring_bytes));
    drain.clock(&clock::read(tsc_hz));
    let mut end = End { pid, ..end_of(&shared, &drain, status, begun.elapsed()) };
    let bytes = drain.end(&mut end).map_err(|cause| {
        let how = format!("the program itself: {}", how_it_ended(status));
        RecordError::Close { path: o.out.clone(), cause, how }
    })?;
    Ok(Outcome { status, end, bytes })
}

/// Bytes of a ring: what the longest events need, and what a mapping of a thousand rings leaves of the address space.
const RING_BYTES: (usize, usize) = (256 << 10, 256 << 20);

fn within_file_size_limit(needed: u64) -> Result<(), RecordError> {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: writes the struct it is given.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) };
    if limit.rlim_cur < needed { Err(RecordError::FileSizeLimit { needed, limit: limit.rlim_cur }) } else { Ok(()) }
}

fn same_file(a: &Path, b: &Path) -> bool {
    match (a.metadata(), b.metadata()) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => false,
    }
}

/// Runs `work` while the heartbeat goes on: a program that waits for room (`--on-full wait`) gives up on a recorder that
/// stands still, and a disk may make it wait longer than that.
fn beating<R>(shared: &Shared, work: impl FnOnce() -> R) -> R {
    let beat = &shared.control().beat;
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        let ticker = s.spawn(|| {
            while !done.load(Ordering::Acquire) {
                beat.fetch_add(1, Ordering::Relaxed);
                std::thread::park_timeout(Duration::from_millis(100));
            }
        });
        let r = work();
        done.store(true, Ordering::Release);
        ticker.thread().unpark();
        r
    })
}

/// A round that took more than this is followed by the next at once.
const BUSY: usize = 512 << 10;
/// Else by a pause: a reader close behind a writer takes the cache lines that the writer is about to write, and its
/// prefetcher the ones after them (seen on an H200: 0.5 us a 4 KiB copy). A ring of 8 MiB fills in 16 ms at 500 MB/s.
const PAUSE: Duration = Duration::from_millis(1);

/// Nothing came for so many rounds: the pause may be longer.
const IDLE: u32 = 1000;
/// A ring is looked at before so many bytes a second can fill it.
const FASTEST: u64 = 2 << 30;

/// Drains until the program has ended and the rings are empty.
fn follow(drain: &mut Drain, pid: i32, signals: &Signals, tsc_hz: f64, ring_bytes: usize) -> ExitStatus {
    let fills_in = Duration::from_nanos(ring_bytes as u64 * 1_000_000_000 / FASTEST);
    let mut looked = Instant::now();
    let mut clocked = Instant::now();
    let mut idle = 0u32;
    let mut freed = 0;
    loop {
        let taken = drain.round();
        drain.switches(false);
        idle = if taken > 0 { 0 } else { idle.saturating_add(1) };
        // By time, not by leisure: one busy thread must not keep the others' rings from being freed.
        // More often while threads come and go faster than that.
        let often = if drain.is_short_of_rings() && freed > 0 { 2 } else { 50 };
        if looked.elapsed() > Duration::from_millis(often) {
            looked = Instant::now();
            freed = drain.free_dead();
        }
        if clocked.elapsed() > Duration::from_secs(60) {
            clocked = Instant::now();
            drain.clock(&clock::read(tsc_hz));
        }
        if taken > BUSY {
            continue;
        }
        if has_ended(pid, false) {
            // From here on the number may be another process's.
            signals.program(None);
            let status = reap(pid);
            while drain.round() > 0 {}
            drain.switches(true);
            drain.held_at_the_end();
            return status;
        }
        std::thread::sleep(if idle > IDLE { fills_in } else { PAUSE.min(fills_in) });
    }
}

/// True when the child has ended; `wait`: waits for that, or a signal. It is not reaped yet: its number stays its own.
pub fn has_ended(pid: i32, wait: bool) -> bool {
    // SAFETY: zeroed is a siginfo; our own child.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let flags = libc::WEXITED | libc::WNOWAIT | if wait { 0 } else { libc::WNOHANG };
        match libc::waitid(libc::P_PID, pid as libc::id_t, &mut info, flags) {
            0 => info.si_pid() == pid,
            // No such child: somebody else has waited for it.
            _ => io::Error::last_os_error().raw_os_error() == Some(libc::ECHILD),
        }
    }
}

pub fn reap(pid: i32) -> ExitStatus {
    let mut raw = 0;
    // SAFETY: our own child, which has ended.
    while unsafe { libc::waitpid(pid, &mut raw, 0) } < 0
        && io::Error::last_os_error().raw_os_error() == Some(libc::EINTR)
    {}
    ExitStatus::from_raw(raw)
}

fn header(o: &Options, exe: &Path, tsc_hz: f64) -> Header {
    let m = machine::machine();
    let lossy = |s: &OsStr| String::from_utf8_lossy(s.as_bytes()).into_owned();
    Header {
        doorbell: o.version.into(),
        args: (!o.no_args).then(|| o.command.iter().map(|s| lossy(s)).collect()),
        exe: if o.no_args { String::new() } else { exe.display().to_string() },
        started: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        driver: if o.soft.is_some() { "soft".into() } else { m.driver },
        gpu: if o.soft.is_some() { "software GPU".into() } else { m.gpu },
        cuda: None,
        kernel: m.kernel,
        cpu: m.cpu,
        host: m.host,
        tsc_hz,
        tap: o.tap.name().into(),
        no_data: o.no_data,
        locks: o.locks,
        extra: Default::default(),
    }
}

fn end_of(shared: &Shared, drain: &Drain, status: ExitStatus, took: Duration) -> End {
    let c = shared.control();
    let how = match &drain.stopped {
        Some(why) => format!("recording stopped early: {why}"),
        None => how_it_ended(status),
    };
    let (gap_events, gap_entries, gap_bytes) = drain.gaps();
    let live = || shared.slots().iter().filter(|s| s.state.load(Ordering::Acquire) == 1);
    // (Saturating: the program may have written anything over its counters.)
    let sum = |of: fn(&region::Slot) -> &std::sync::atomic::AtomicU64| {
        live().fold(0u64, |n, s| n.saturating_add(of(s).load(Ordering::Relaxed)))
    };
    let (trapped, rings) = (sum(|s| &s.trapped_total), sum(|s| &s.rings_total));
    let channels = shared.slots().iter().enumerate().filter(|(_, s)| s.state.load(Ordering::Acquire) == 1);
    End {
        pid: 0,
        how,
        exit_code: status.code(),
        signal: status.signal(),
        seconds: took.as_secs_f64(),
        trapped: c.trapped.load(Ordering::Relaxed).saturating_add(trapped),
        tapped: c.tapped.load(Ordering::Relaxed).saturating_add(rings.saturating_sub(trapped)),
        strangers: c.strangers.load(Ordering::Relaxed),
        sites_patched: c.patched.load(Ordering::Relaxed),
        gap_events: gap_events.saturating_add(c.ringless.load(Ordering::Relaxed)),
        gap_entries,
        gap_bytes,
        trouble: trouble(shared),
        channels: channels.map(|(i, s)| end_channel(shared, i, s)).collect(),
        agent: c.state.load(Ordering::Relaxed) != 0,
        ..End::default()
    }
}

fn how_it_ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited {code}"),
        (_, Some(s)) => format!("killed by signal {s}"),
        _ => "ended".into(),
    }
}

fn end_channel(shared: &Shared, i: usize, s: &region::Slot) -> EndChannel {
    let userd = s.shadow_userd.load(Ordering::Relaxed);
    EndChannel {
        slot: i as u32,
        generation: s.generation.load(Ordering::Relaxed),
        handle: s.handle.load(Ordering::Relaxed),
        client: s.client.load(Ordering::Relaxed),
        token: s.token.load(Ordering::Relaxed),
        put: s.put.load(Ordering::Relaxed),
        entries: s.entries_total.load(Ordering::Relaxed),
        rings: s.rings_total.load(Ordering::Relaxed),
        lost: s.lost.load(Ordering::Relaxed),
        // GP_PUT in USERD, +0x8C.
        final_put: (userd != 0).then(|| shared.word(userd.checked_add(0x8c)?)).flatten(),
    }
}

fn trouble(shared: &Shared) -> Vec<String> {
    let c = shared.control();
    let bits = c.trouble.load(Ordering::Relaxed);
    let known = [
        (
            region::trouble::UNDECODED,
            "an instruction that rang a doorbell could not be decoded: that page was opened and is not tapped any more",
        ),
        (region::trouble::NO_SECOND_MAPPING, "a doorbell page could not be mapped a second time: it is not tapped"),
        (
            region::trouble::NO_SHADOW,
            "a ring in video memory could not be shadowed: it is read through BAR1, about 1 us a word",
        ),
        (region::trouble::TABLE_FULL, "a table of the agent was full: some mappings or channels are not followed"),
        (region::trouble::NO_PATCH, "the kernel refused to have code rewritten: doorbells go on trapping"),
        (region::trouble::NO_CALLS, "a page of a library could not be written: calls of CUDA are missing"),
        (region::trouble::UNKNOWN_DRIVER, "the driver is none that we know: nothing was tapped"),
    ];
    let mut out: Vec<String> = known.iter().filter(|(b, _)| bits & b != 0).map(|(_, t)| (*t).to_owned()).collect();
    if c.refused.load(Ordering::Relaxed) != 0 {
        out.push("the agent is of another version than this doorbell".into());
    }
    if c.state.load(Ordering::Relaxed) == 0 {
        out.push("the agent never reported in: the program did not load it".into());
    }
    out
}

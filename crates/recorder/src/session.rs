//! One recording: start the program with the agent in it, drain until it ends, close the tape.

use crate::drain::Drain;
use crate::program::{Program, ProgramError};
use crate::shared::{Shared, memfd, path_of};
use crate::{clock, machine};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicI32, Ordering};
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

#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error(transparent)]
    Tape(#[from] TapeError),
    #[error("shared memory for the rings: {0}")]
    Region(io::Error),
    #[error("{path}: could not be started: {source}")]
    Start { path: PathBuf, source: io::Error },
    #[error("{path}: the tape could not be closed: {source}")]
    Close { path: PathBuf, source: io::Error },
}

static CHILD: AtomicI32 = AtomicI32::new(0);

/// SIGTERM and SIGHUP to us are meant for the program; SIGINT and SIGQUIT reach it from the terminal by themselves.
extern "C" fn pass_on(signal: libc::c_int) {
    let pid = CHILD.load(Ordering::Relaxed);
    if pid > 0 && (signal == libc::SIGTERM || signal == libc::SIGHUP) {
        // SAFETY: kill may be called in a handler.
        unsafe { libc::kill(pid, signal) };
    }
}

fn stay_alive() {
    for s in [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: a plain handler; a handler (not SIG_IGN) is reset by exec, so the program starts with its own.
        unsafe { libc::signal(s, pass_on as *const () as libc::sighandler_t) };
    }
    // A tape on a pipe that closed, or over the size limit, is an error to be told, not a death.
    // SAFETY: as above.
    unsafe { libc::signal(libc::SIGXFSZ, pass_on as *const () as libc::sighandler_t) };
}

/// Records one program from its start to its end.
pub fn record(o: &Options) -> Result<Outcome, RecordError> {
    let name = o.command.first().cloned().unwrap_or_default();
    let program = Program::find(&name)?;
    let tsc_hz = clock::tsc_hz();
    let ring_bytes = o.ring_bytes.max(256 << 10).next_power_of_two();
    let on_full = if o.wait_on_full { region::on_full::WAIT } else { region::on_full::GAP };
    let shared = Shared::new(ring_bytes, o.tap.code(), on_full).map_err(RecordError::Region)?;
    shared.make_ready(1).map_err(RecordError::Region)?;
    let agent = memfd(c"doorbell-agent.so", o.agent).map_err(RecordError::Region)?;
    let soft = o.soft.map(|b| memfd(c"doorbell-softgpu.so", b)).transpose().map_err(RecordError::Region)?;

    let writer = Writer::create(&o.out, &header(o, &program.path, tsc_hz))?;
    let mut drain = Drain::new(&shared, writer, o.no_data, o.limit);
    drain.clock(&clock::read(tsc_hz));

    let mut preload = OsString::from(path_of(&agent));
    if let Some(s) = &soft {
        preload.push(":");
        preload.push(path_of(s));
    }
    let was = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    if !was.is_empty() {
        preload.push(":");
        preload.push(&was);
    }
    let mut command = Command::new(&program.path);
    command.arg0(&name).args(o.command.get(1..).unwrap_or(&[]));
    command.env("LD_PRELOAD", &preload).env("DOORBELL_REGION", shared.path()).env("DOORBELL_PRELOAD_WAS", &was);
    stay_alive();
    let begun = Instant::now();
    let child = command.spawn();
    let child = match child {
        Ok(c) => c,
        Err(source) => {
            let _ = std::fs::remove_file(&o.out);
            return Err(RecordError::Start { path: program.path, source });
        }
    };
    let pid = child.id() as i32;
    CHILD.store(pid, Ordering::Relaxed);
    drain.program(pid);
    let status = follow(&mut drain, pid, tsc_hz);
    CHILD.store(0, Ordering::Relaxed);
    drain.clock(&clock::read(tsc_hz));
    let end = End { pid, ..end_of(&shared, &drain, status, begun.elapsed()) };
    let bytes = drain.end(&end).map_err(|source| RecordError::Close { path: o.out.clone(), source })?;
    Ok(Outcome { status, end, bytes })
}

/// A round that took more than this is followed by the next at once.
const BUSY: usize = 512 << 10;
/// Else by a pause: a reader close behind a writer takes the cache lines that the writer is about to write, and its
/// prefetcher the ones after them (seen on an H200: 0.5 us a 4 KiB copy). A ring of 8 MiB fills in 16 ms at 500 MB/s.
const PAUSE: Duration = Duration::from_millis(1);

/// Drains until the program has ended and the rings are empty.
fn follow(drain: &mut Drain, pid: i32, tsc_hz: f64) -> ExitStatus {
    let mut looked = Instant::now();
    let mut clocked = Instant::now();
    loop {
        if drain.round() > BUSY {
            continue;
        }
        if looked.elapsed() > Duration::from_millis(50) {
            looked = Instant::now();
            drain.free_dead();
        }
        if clocked.elapsed() > Duration::from_secs(60) {
            clocked = Instant::now();
            drain.clock(&clock::read(tsc_hz));
        }
        if let Some(status) = ended(pid) {
            while drain.round() > 0 {}
            return status;
        }
        std::thread::sleep(PAUSE);
    }
}

fn ended(pid: i32) -> Option<ExitStatus> {
    let mut raw = 0;
    // SAFETY: our own child.
    let r = unsafe { libc::waitpid(pid, &mut raw, libc::WNOHANG) };
    (r == pid || (r < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ECHILD)))
        .then(|| ExitStatus::from_raw(raw))
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
        tsc_hz,
        tap: o.tap.name().into(),
        no_data: o.no_data,
        extra: Default::default(),
    }
}

fn end_of(shared: &Shared, drain: &Drain, status: ExitStatus, took: Duration) -> End {
    let c = shared.control();
    let how = match (&drain.stopped, status.code(), status.signal()) {
        (Some(why), _, _) => format!("recording stopped early: {why}"),
        (_, Some(code), _) => format!("exited {code}"),
        (_, _, Some(s)) => format!("killed by signal {s}"),
        _ => "ended".into(),
    };
    let (gap_events, gap_entries, gap_bytes) = drain.gaps();
    let live = || shared.slots().iter().filter(|s| s.state.load(Ordering::Acquire) == 1);
    let trapped: u64 = live().map(|s| s.trapped_total.load(Ordering::Relaxed)).sum();
    let rings: u64 = live().map(|s| s.rings_total.load(Ordering::Relaxed)).sum();
    let channels = shared.slots().iter().enumerate().filter(|(_, s)| s.state.load(Ordering::Acquire) == 1);
    End {
        pid: 0,
        how,
        exit_code: status.code(),
        signal: status.signal(),
        seconds: took.as_secs_f64(),
        trapped: c.trapped.load(Ordering::Relaxed) + trapped,
        tapped: c.tapped.load(Ordering::Relaxed) + rings.saturating_sub(trapped),
        strangers: c.strangers.load(Ordering::Relaxed),
        sites_patched: c.patched.load(Ordering::Relaxed),
        gap_events: gap_events + c.ringless.load(Ordering::Relaxed),
        gap_entries,
        gap_bytes,
        trouble: trouble(shared),
        channels: channels.map(|(i, s)| end_channel(shared, i, s)).collect(),
        agent: c.state.load(Ordering::Relaxed) != 0,
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
        final_put: (userd != 0).then(|| shared.word(userd + 0x8c)).flatten(),
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

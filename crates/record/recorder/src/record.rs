//! One recording: starts the program with the agent in it, follows it and its children until it ends, and closes the
//! tape.

use crate::beside::Beside;
use crate::control::Control;
use crate::counters::Counters;
use crate::end::how_it_ended;
use crate::flight::{Flight, Schedule};
use crate::followed::Followed;
use crate::gpu_clock::GpuClocks;
use crate::last::{Last, Newest};
use crate::orphans::{has_ended, reap, wait_for};
use crate::output::Output;
use crate::parts::{Cut, Parts, Rotation};
use crate::place::Place;
use crate::preload::Preload;
use crate::program::{Program, ProgramError};
use crate::region::Settings;
use crate::saving::{Saver, Saves, Tell};
use crate::shared_session::SharedSession;
use crate::signals::Signals;
use crate::switches::Switches;
use crate::wishes::{About, Wishes};
use crate::writing::Store;
use crate::{clock, closing, limits, machine, processes, rights, usage};
use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tape::file::{End, Header, TapeError, Writer};
use tape::fix::Fixes;
use tape::nvtx;
use tape::region::{self, contents};
use tape::rings::{Geometry, SMALL_BYTES};
use tape::session::{ANY_DOMAIN, Noted, environment, paused, unwatched};

/// How doorbells are tapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tap {
    /// Rewrite sites if that is proven safe, otherwise trap.
    #[default]
    Auto,
    Trap,
    /// Driver calls only.
    Off,
}

impl Tap {
    pub fn name(self) -> &'static str {
        match self {
            Tap::Auto => "auto",
            Tap::Trap => "trap",
            Tap::Off => "off",
        }
    }

    fn code(self) -> u32 {
        match self {
            Tap::Auto => region::tap::AUTO,
            Tap::Trap => region::tap::TRAP,
            Tap::Off => region::tap::OFF,
        }
    }
}

/// When the program is recorded. It may begin and end pauses by itself at any time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Capture {
    /// From its start on.
    #[default]
    Always,
    /// Only after it requests it.
    Call,
    /// From cudaProfilerStart to cudaProfilerStop.
    Profiler,
    /// From one SIGUSR2 to the next.
    Signal,
    /// While a range of NVTX is open.
    Range(Range),
    /// While a peer of the control socket requests it.
    Attach,
}

/// Which range of NVTX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The number of its text ([`tape::nvtx::text`]).
    pub text: u64,
    /// The number of its domain's name, 0 for the default domain; `None`: any domain.
    pub domain: Option<u64>,
}

impl Range {
    /// From its text and its domain, which is empty for the default domain.
    pub fn new(text: &str, domain: Option<&str>) -> Range {
        let number = |name: &str| if name.is_empty() { 0 } else { nvtx::text(name.as_bytes()) };
        Range { text: nvtx::text(text.as_bytes()), domain: domain.map(number) }
    }
}

impl Capture {
    fn code(self) -> u32 {
        match self {
            Capture::Always => region::capture::ALWAYS,
            Capture::Call => region::capture::CALL,
            Capture::Profiler => region::capture::PROFILER,
            Capture::Signal => region::capture::SIGNAL,
            Capture::Range(_) => region::capture::RANGE,
            Capture::Attach => region::capture::ATTACH,
        }
    }

    fn range(self) -> (u64, u64) {
        match self {
            Capture::Range(range) => (range.text, range.domain.unwrap_or(ANY_DOMAIN)),
            _ => (0, 0),
        }
    }
}

/// Which lock operations are recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Locks {
    #[default]
    Off,
    /// Every operation.
    All,
    /// Waits, and the holds that caused them.
    Waits,
}

pub struct Options<'a> {
    /// Program and its arguments.
    pub command: Vec<OsString>,
    pub out: PathBuf,
    pub tap: Tap,
    /// Wait for the recorder when a ring is full, instead of counting a gap.
    pub wait_on_full: bool,
    pub locks: Locks,
    /// With locks or calls: when its threads were taken off their CPUs, and by which thread.
    pub switches: bool,
    /// Record CUDA's calls.
    pub calls: bool,
    /// Record the Python frames that make them.
    pub python: bool,
    /// Make the GPU store when kernels end. Needs `calls`.
    pub gpu_times: bool,
    /// Record ranges and marks of NVTX.
    pub nvtx: bool,
    /// Fixes that are wanted: [`tape::fix::Fixes::wanted`].
    pub fixes: u32,
    /// The number of a compiler's socket: [`tape::fix::Fixes::compiler`].
    pub compiler: u32,
    /// Bytes of the ring of a thread that records much; rounded up to a power of two.
    pub ring_bytes: usize,
    /// Bytes of all rings together; `None`: [`RINGS_MEMORY`], or one in eight of the control group's memory if that is less.
    pub memory: Option<u64>,
    /// Folder for the agent and the shared memory, for programs that cannot open the recorder's memory files.
    pub agent_dir: Option<PathBuf>,
    /// Replace an existing file.
    pub force: bool,
    /// Continue until all followed processes have ended, not only the first.
    pub wait: bool,
    pub no_data: bool,
    pub no_args: bool,
    /// Stop recording (not the program) at this size of the tape.
    pub limit: Option<u64>,
    /// Continue in another file at this size of the tape, and keep the newest.
    pub rotation: Option<Rotation>,
    pub capture: Capture,
    /// Keep only the newest part, in memory, and save it when something happens. `out` is not written then.
    pub last: Option<Last>,
    /// Called with each file that is saved.
    pub tell: Option<Arc<Tell>>,
    /// The agent library's bytes.
    pub agent: &'a [u8],
    /// The software GPU's bytes, if the program is to use it.
    pub soft: Option<&'a [u8]>,
    /// doorbell's version, for the header.
    pub version: &'a str,
}

/// The result of a recording.
#[derive(Debug)]
pub struct Outcome {
    pub status: ExitStatus,
    pub end: End,
    /// What the fixes did.
    pub fixes: Fixes,
    /// Size of the tape.
    pub bytes: u64,
    /// Files of a flight recorder.
    pub saves: Option<Saves>,
    /// The files of a recording in parts.
    pub parts: Option<PartsWritten>,
    /// Why no peer could send requests; `None` if peers could.
    pub no_control: Option<String>,
}

/// The files of a recording in parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartsWritten {
    /// The existing files, the newest last.
    pub files: Vec<PathBuf>,
    /// The number of files that were begun.
    pub count: u32,
    /// Why the newest file is larger than it should be: another could not be begun.
    pub failure: Option<String>,
}

/// Why nothing was recorded. As with [`TapeError`], each text is a complete message.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error(transparent)]
    Tape(#[from] TapeError),
    #[error("shared memory for the rings: {0}")]
    Region(io::Error),
    #[error(
        "shared memory for the rings: larger than the file size limit of {limit} bytes, which holds for memory files, too"
    )]
    FileSizeLimit { limit: u64 },
    #[error("the limit of its memory, {limit} bytes, is too low to load the agent")]
    NoRoom { limit: u64 },
    #[error("/proc is not mounted, or not to be read: doorbell finds the program's processes there")]
    NoProc,
    #[error("/proc is of another pid namespace: doorbell is process {outside} there and process {inside} here")]
    OtherProc { outside: i32, inside: i32 },
    #[error("{path}: cannot hold the agent: {cause}")]
    AgentDir { path: PathBuf, cause: io::Error },
    #[error("{path}: could not be started: {cause}")]
    Start { path: PathBuf, cause: io::Error },
    #[error("nobody could attach to it, because it has no control socket: {0}")]
    NoControl(String),
    #[error("{0}: is the program itself, which the tape would replace")]
    IsProgram(PathBuf),
    #[error("{path}: the tape could not be closed: {cause} (the program itself: {})", how_it_ended(*status))]
    Close { path: PathBuf, cause: io::Error, status: ExitStatus },
    #[error("{path}: the recording ended with a fault of doorbell's (the program itself: {})", how_it_ended(*status))]
    Fault { path: PathBuf, status: ExitStatus },
}

impl RecordError {
    /// How the program ended, if it was started.
    pub fn program(&self) -> Option<ExitStatus> {
        match self {
            RecordError::Close { status, .. } | RecordError::Fault { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// True if the machine lacks something that only doorbell needs: the program could run without it.
    pub fn is_lack(&self) -> bool {
        match self {
            RecordError::Region(_)
            | RecordError::FileSizeLimit { .. }
            | RecordError::NoRoom { .. }
            | RecordError::NoProc
            | RecordError::OtherProc { .. } => true,
            RecordError::AgentDir { cause, .. }
            | RecordError::Start { cause, .. }
            | RecordError::Tape(TapeError::Io { cause, .. }) => output::is_lack(cause),
            _ => false,
        }
    }

    /// For memory that could not be allocated.
    pub(crate) fn memory(cause: io::Error) -> RecordError {
        let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: the call writes only the struct that it is given.
        unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) };
        match cause.raw_os_error() {
            Some(libc::EFBIG) => RecordError::FileSizeLimit { limit: limit.rlim_cur },
            _ => RecordError::Region(cause),
        }
    }
}

/// Records one program and the processes that it starts, from its start to its end.
pub fn record(o: &Options) -> Result<Outcome, RecordError> {
    let name = o.command.first().cloned().unwrap_or_default();
    let program = Program::find(&name)?;
    if same_file(&o.out, &program.path) {
        return Err(RecordError::IsProgram(o.out.clone()));
    }
    processes::can_be_followed()?;
    // A file over the size limit must be a reported error, not the recorder's death.
    let _no_death = (crate::signals::survive_file_size_limit(), crate::signals::survive_lost_memory());
    let tsc_hz = clock::tsc_hz();
    let settings = settings(o);
    let place = match &o.agent_dir {
        Some(dir) => Place::folder(dir).map_err(|cause| RecordError::AgentDir { path: dir.clone(), cause })?,
        None => Place::memory(),
    };
    let memory = o.memory.unwrap_or_else(|| limits::at_most(RINGS_MEMORY, 8) as u64);
    if limits::memory().is_some() || o.last.is_some() {
        crate::memory::return_large_blocks();
    }
    let session = SharedSession::new(&place, settings, memory).map_err(RecordError::memory)?;
    let preload = Preload::new(&place, o.agent, o.soft).map_err(RecordError::memory)?;

    let switches = (o.locks != Locks::Off || o.calls || o.python).then(|| Switches::open(o.switches, !o.no_args));
    // After everything that needs privileges.
    rights::let_the_program_see_us();
    let (store, cut, flight) = store(o, header(o, &program.path, tsc_hz))?;
    let output = Output::new(store, o.limit, o.no_data);
    let clocks = (o.gpu_times && o.soft.is_none()).then(GpuClocks::open);
    let mut followed = Followed::new(&session, output, Counters::new(tsc_hz), !o.no_args, switches, clocks);
    (followed.cut, followed.flight) = (cut, flight);
    followed.out.beside(Beside::Clock(clock::read(tsc_hz)));
    let begun = Instant::now();
    let (control, signals, pid) = start(o, &program, &preload, &session).inspect_err(|_| {
        // Not a device or a pipe, which the recorder did not create.
        if o.last.is_none() && o.out.symlink_metadata().is_ok_and(|m| m.is_file()) {
            let _ = std::fs::remove_file(&o.out);
        }
    })?;
    let ended = Cell::new(None);
    // Whatever goes wrong from here on, this process waits for the program and has its status.
    let rest = || {
        followed.out.start_thread();
        rights::have_many_files();
        rights::be_warned_of_the_time_limit();
        followed.program(pid);
        signals.program(Some(pid));
        let path = program.path.as_os_str().as_bytes();
        for (is, why) in [(program.is_static, unwatched::STATIC), (unwatched::elsewhere(path), unwatched::ELSEWHERE)] {
            if is {
                followed.unwatched(Noted { why, pid, parent: 0, tsc: clock::tsc(), path });
            }
        }
        let wishes = Wishes::new(&signals, control, About::new(o, pid));
        let pace = Pace::new(settings.geometry.large);
        let mut running = Running { followed, session: &session, signals: &signals, wishes, pace, pid, tsc_hz, begun };
        let mut status = ExitStatus::default();
        beating(&session, || {
            status = running.follow();
            ended.set(Some(status));
            running.go_on(if o.wait { None } else { Some(GRACE) });
            running.followed.look_for_others();
        });
        running.close(o, status)
    };
    catch_unwind(AssertUnwindSafe(rest)).unwrap_or_else(|_| {
        session.stop();
        let status = ended.get().unwrap_or_else(|| wait_for(pid));
        Err(RecordError::Fault { path: o.out.clone(), status })
    })
}

fn settings(o: &Options) -> Settings {
    let large = o.ring_bytes.clamp(RING_BYTES.0, RING_BYTES.1).next_power_of_two();
    let bit = |on: bool, bit: u32| if on { bit } else { 0 };
    Settings {
        tap: o.tap.code(),
        on_full: if o.wait_on_full { region::on_full::WAIT } else { region::on_full::GAP },
        contents: bit(o.locks != Locks::Off, contents::LOCKS)
            | bit(o.locks == Locks::Waits, contents::WAITS)
            | bit(o.calls || o.python, contents::CALLS)
            | bit(o.python, contents::PYTHON)
            | bit(o.nvtx, contents::NVTX)
            | bit(o.gpu_times, contents::GPU_TIMES)
            | bit(o.no_args, contents::NO_NAMES),
        capture: o.capture.code(),
        range: o.capture.range(),
        fixes: o.fixes,
        compiler: o.compiler,
        geometry: Geometry { small: SMALL_BYTES.min(large), large },
    }
}

/// Where events are written. Also what requests a new part, and what saves the newest part.
fn store(o: &Options, header: Header) -> Result<(Store, Option<Cut>, Option<Flight>), RecordError> {
    if let Some(last) = &o.last {
        let tell = o.tell.clone().unwrap_or_else(|| Arc::new(|_| ()));
        let schedule = Schedule::new(last.clone(), header.tsc_hz, tell);
        let newest = Newest::new(header, Saver::new(schedule.clone()), clock::tsc);
        return Ok((Store::Memory(Box::new(newest)), None, Some(Flight::new(schedule))));
    }
    let create = if o.force { Writer::replace } else { Writer::create };
    let Some(rotation) = o.rotation else {
        return Ok((Store::File(Box::new(create(&o.out, &header)?)), None, None));
    };
    let (writer, cut) = (create(&o.out, &Parts::header(&header))?, Cut::default());
    Ok((Store::Parts(Box::new(Parts::new(header, rotation, writer, cut.clone()))), Some(cut), None))
}

/// Starts the program with the agent in it. Returns its number, and what reaches it.
fn start(
    o: &Options,
    program: &Program,
    preload: &Preload,
    session: &SharedSession,
) -> Result<(Control, Signals, i32), RecordError> {
    let control = Control::make();
    if let Some(why) = control.why_not().filter(|_| o.capture == Capture::Attach) {
        return Err(RecordError::NoControl(why.to_owned()));
    }
    let starts = &session.page().starts;
    closing::open(starts);
    let mut command = preload.command(program, &o.command, (environment::SESSION, session.path()));
    // Not earlier: a tape on a pipe without a reader must not survive a SIGINT.
    let signals = Signals::handle(o.capture == Capture::Signal, o.last.as_ref().and_then(|last| Some(last.signal?.0)));
    signals.prepare(&mut command);
    if !program.is_static {
        starts.expect();
    }
    let child = command.spawn().map_err(|cause| RecordError::Start { path: program.path.clone(), cause })?;
    Ok((control, signals, child.id() as i32))
}

/// Bytes of all rings together.
pub const RINGS_MEMORY: usize = 1 << 30;

/// Minimum and maximum bytes of a large ring: room for the longest events, and address space for some hundred rings.
const RING_BYTES: (usize, usize) = (256 << 10, 256 << 20);

/// Whether both paths lead to the same file.
pub fn same_file(a: &Path, b: &Path) -> bool {
    match (a.metadata(), b.metadata()) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => false,
    }
}

/// Runs `work` while the heartbeat continues. A program that waits for room (`--on-full wait`) gives up when the
/// recorder's heartbeat stops, and a disk may take longer than that.
fn beating<R>(session: &SharedSession, work: impl FnOnce() -> R) -> R {
    let beat = &session.page().beat;
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        let ticks = || {
            while !done.load(Ordering::Acquire) {
                beat.fetch_add(1, Ordering::Relaxed);
                let paused = session.page().paused.load(Ordering::Relaxed) == paused::BY_RECORDER;
                std::thread::park_timeout(if paused { BEAT_PAUSED } else { BEAT });
            }
        };
        // (Without a thread, each round is a beat.)
        let ticker = std::thread::Builder::new().name("beat".into()).spawn_scoped(s, ticks).ok();
        // (A panic must end the thread, too.)
        let r = catch_unwind(AssertUnwindSafe(work));
        done.store(true, Ordering::Release);
        ticker.inspect(|ticker| ticker.thread().unpark());
        r.unwrap_or_else(|panic| resume_unwind(panic))
    })
}

const BEAT: Duration = Duration::from_millis(50);
/// Agents give up after half a second or more.
const BEAT_PAUSED: Duration = Duration::from_millis(250);

/// A round that took more than this is followed by the next immediately.
const BUSY: usize = 512 << 10;
/// Otherwise a pause follows. A reader close to a writer takes the cache lines that the writer is about to write. Its
/// prefetcher takes the lines after them (seen on an H200: 0.5 us a 4 KiB copy). A ring of 8 MiB fills in 16 ms at 500
/// MB/s.
const PAUSE: Duration = Duration::from_millis(1);

/// After this many rounds without events the pause may be longer.
const IDLE: u32 = 1000;
/// While everything is paused. An agent that ends a pause calls. A ring has room for the driver calls of this time.
const PAUSED: Duration = Duration::from_millis(50);
/// A ring is looked at before this many bytes a second can fill it.
const FASTEST: u64 = 2 << 30;

/// How long to sleep between two rounds.
struct Pace {
    idle: u32,
    fills_in: Duration,
}

impl Pace {
    fn new(ring_bytes: usize) -> Pace {
        Pace { idle: 0, fills_in: Duration::from_nanos(ring_bytes as u64 * 1_000_000_000 / FASTEST) }
    }

    /// The pause after a round that took `taken` bytes. `None`: no pause. `paused`: only driver calls arrive.
    fn after(&mut self, taken: usize, paused: bool) -> Option<Duration> {
        self.idle = if taken > 0 { 0 } else { self.idle.saturating_add(1) };
        let pause = match self.idle > IDLE {
            true if paused => PAUSED.max(self.fills_in),
            true => self.fills_in,
            false => PAUSE.min(self.fills_in),
        };
        (taken <= BUSY).then_some(pause)
    }
}

/// The time that processes have to end after the first program.
const GRACE: Duration = Duration::from_secs(1);
/// Processes that may still attach are searched for this often.
const SEARCH: Duration = Duration::from_millis(100);
/// The clocks are read this often.
const CLOCK: Duration = Duration::from_secs(60);

/// A recording while programs run.
struct Running<'a> {
    followed: Followed<'a>,
    session: &'a SharedSession,
    signals: &'a Signals,
    wishes: Wishes<'a>,
    pace: Pace,
    /// The first program, and when it was started.
    pid: i32,
    begun: Instant,
    tsc_hz: f64,
}

impl Running<'_> {
    /// Drains until the first program has ended and its rings are empty.
    fn follow(&mut self) -> ExitStatus {
        let mut clocked = Instant::now();
        loop {
            let pause = self.round();
            if clocked.elapsed() > CLOCK {
                clocked = Instant::now();
                self.followed.out.beside(Beside::Clock(clock::read(self.tsc_hz)));
            }
            let Some(pause) = pause else { continue };
            if has_ended(self.pid, false) {
                // From here on the number may belong to another process.
                self.signals.program(None);
                // (/proc has these facts until the process is reaped.)
                let last = processes::stat(self.pid);
                let status = reap(self.pid);
                self.signals.ended(status);
                self.followed.program_has_ended(status.into_raw(), last.as_ref());
                return status;
            }
            self.followed.sleep(pause);
        }
    }

    /// Drains the processes that outlive the first program. Without `patience` it drains all of them until they end, otherwise
    /// those that are recorded, for at most that time.
    fn go_on(&mut self, patience: Option<Duration>) {
        let begun = Instant::now();
        let mut searched = None::<Instant>;
        while !self.signals.interrupted() {
            let pause = self.round();
            match patience {
                Some(patience) if self.followed.live() == 0 || begun.elapsed() > patience => return,
                None if self.followed.live_and_found() == 0 && searched.is_none_or(|t| t.elapsed() > SEARCH) => {
                    // A process that has recorded no event so far may still do so.
                    searched = Some(Instant::now());
                    if processes::all_with(environment::SESSION, self.session.path()).is_empty() {
                        return;
                    }
                }
                _ => {}
            }
            if let Some(pause) = pause {
                self.followed.sleep(pause);
            }
        }
    }

    /// One round. Returns the pause after it.
    fn round(&mut self) -> Option<Duration> {
        self.wishes.look(&mut self.followed);
        let taken = self.followed.round();
        self.pace.after(taken, self.followed.is_dormant())
    }

    /// All processes have ended, or are no longer recorded. (The control socket is closed last: a peer that is refused finds the
    /// file in its final state.)
    fn close(self, o: &Options, status: ExitStatus) -> Result<Outcome, RecordError> {
        let Running { mut followed, session, wishes, pid, begun, tsc_hz, .. } = self;
        let (took, late, flight) = (begun.elapsed(), followed.lateness.worst(), followed.flight.take());
        closing::close(&session.page().starts);
        let (mut out, mut totals) = followed.finish();
        totals.wants_python = o.python;
        out.beside(Beside::Clock(clock::read(tsc_hz)));
        let end = |stopped: Option<&str>| {
            let end = totals.end(pid, status, took, stopped);
            End { recorder_use: Some(usage::now(late)), ..end }
        };
        let failed = |cause| RecordError::Close { path: o.out.clone(), cause, status };
        let (store, end) = out.close(end).map_err(failed)?;
        let no_control = wishes.no_control().map(str::to_owned);
        // (The program may have written over the rest.)
        let fixes = Fixes { wanted: o.fixes, ..session.page().fixes.copied() };
        let mut outcome = Outcome { status, end, fixes, bytes: store.bytes(), saves: None, parts: None, no_control };
        match store {
            Store::File(_) => {}
            Store::Parts(parts) => {
                let (files, count) = parts.files();
                outcome.parts = Some(PartsWritten { files, count, failure: parts.failure });
            }
            Store::Memory(newest) => {
                let last = flight.and_then(|flight| flight.at_the_end(&outcome.end));
                outcome.saves = Some(newest.finish(last));
            }
        }
        Ok(outcome)
    }
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
        locks: o.locks != Locks::Off,
        lock_waits: o.locks == Locks::Waits,
        python: o.python,
        gpu_times: o.gpu_times,
        saved: None,
        extra: Default::default(),
    }
}

//! The process that leads a soak: it starts the measuring process, reads its reports, and feeds a watchdog while it lives. If the measuring
//! process stalled, died or lost a transfer, the leader starts a new one.
//!
//! The invariant: the watchdog is fed only after a message of the measuring process, so a stall of the measurement stops it.

use crate::runner::threads;
use crate::soak::account::{FaultKind, Process};
use crate::soak::clock::{self, utc_s};
use crate::soak::folder::Measured;
use crate::soak::sum_up::process_fault;
use crate::soak::{Error, Folder};
use experiment::Gpu;
use numbers::{duration, nanoseconds};
use sd_notify::NotifyState;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Seek};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The prefixes of the measuring process's lines. `PROGRESS` is followed by its current activity. `LAP` comes after a lap, with the period, the
/// seconds measured so far and the slowest sample so far, ns. `OVER` comes at the end, with how it ends, and why.
pub const PROGRESS: &str = "# ";
pub const LAP: &str = "lap ";
pub const OVER: &str = "over ";

/// Exit status if the soak is not possible on this machine.
const IMPOSSIBLE: i32 = 77;
/// How often the leader checks whether the soak should stop.
const LOOK: Duration = Duration::from_millis(50);
/// This many processes in a row that measured nothing end the soak.
const IN_VAIN: u32 = 3;
/// While the soak runs, `soak.json` is rewritten at most this often.
const SUM_UP: Duration = Duration::from_secs(30);

pub struct Leader<'l> {
    pub folder: &'l Folder,
    /// This program's own file: the measuring process runs it, too.
    pub program: PathBuf,
    /// Its arguments besides the folder.
    pub more: Vec<OsString>,
    /// How often the soak was asked to stop from outside. The second time it stops without waiting.
    pub stop: &'l AtomicU32,
    /// A measuring process that reports nothing for this long has stalled.
    pub stall_after: Duration,
}

/// What a soak reports while it runs.
#[derive(Clone, Debug, PartialEq)]
pub enum News<'n> {
    Doing(&'n str),
    Lap {
        period: u32,
        done_s: f64,
        worst_ns: Option<u64>,
    },
    /// The measuring process ended, and why; a new one continues.
    Again(&'n str),
}

/// How a soak ended, this time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    Complete,
    Stopped,
    /// A sample was above the bound.
    Above(String),
    Impossible(String),
    /// Process after process measured nothing.
    GaveUp(String),
}

/// How a measuring process ended.
enum Gone {
    End(End),
    /// Why, and whether it had measured anything.
    Again {
        why: String,
        measured: bool,
    },
}

impl Leader<'_> {
    /// Runs until all is measured, or something ends it.
    ///
    /// # Errors
    /// A process cannot be started; the folder cannot be written.
    pub fn run(&self, hear: &mut dyn FnMut(News<'_>)) -> Result<End, Error> {
        let (mut in_vain, mut systemd) = (0, Systemd::new());
        let end = loop {
            if self.stop.load(Ordering::Relaxed) > 0 {
                break End::Stopped;
            }
            match self.process(hear, &mut systemd)? {
                Gone::End(end) => break end,
                Gone::Again { why, measured } => {
                    in_vain = if measured { 0 } else { in_vain + 1 };
                    if in_vain == IN_VAIN {
                        break End::GaveUp(why);
                    }
                    hear(News::Again(&why));
                }
            }
        };
        systemd.stopping();
        Ok(end)
    }

    fn process(&self, hear: &mut dyn FnMut(News<'_>), systemd: &mut Systemd) -> Result<Gone, Error> {
        let start = |cause| Error::Start { what: "the measuring process".into(), cause };
        let number = self.folder.processes()?.len() as u32;
        let from = self.folder.periods()?.len() as u32;
        let mut errors = tempfile::tempfile().map_err(start)?;
        let mut child = self.spawn(number, errors.try_clone().map_err(start)?).map_err(start)?;
        let process = Process::begun(child.id(), from, utc_s());
        let mut record = Measured { process, ended: None, fault: None };
        let written = self.folder.write_process(number, &record);
        let heard = written.map(|()| Heard::of(self, &mut child, hear, systemd));
        let mut heard = match heard {
            Ok(heard) => heard,
            Err(e) => {
                let _ = child.kill().and_then(|()| child.wait());
                return Err(e);
            }
        };
        let status = self.end(&mut child, &mut heard).map_err(start)?;
        let mut text = String::new();
        let _ = errors.rewind().and_then(|()| errors.read_to_string(&mut text));
        let stopped = self.stop.load(Ordering::Relaxed) > 0;
        let now = utc_s();
        let fault = |kind, what: &str| Some(process_fault(kind, now, heard.period.unwrap_or(from), what.to_owned()));
        let (why, gone) = match (&heard.stall, heard.over.as_ref().map(|(kind, why)| (kind.as_str(), why.as_str()))) {
            (Some(stall), _) => {
                record.fault = fault(FaultKind::Stall, stall);
                (stall.clone(), None)
            }
            (None, Some(("done", _))) => ("all is measured".into(), Some(End::Complete)),
            (None, Some(("stopped", _))) => ("it was told to stop".into(), Some(End::Stopped)),
            (None, Some(("above", why))) => (why.to_owned(), Some(End::Above(why.to_owned()))),
            (None, Some(("impossible", why))) => (why.to_owned(), Some(End::Impossible(why.to_owned()))),
            (None, Some((_, why))) => (why.to_owned(), None),
            (None, None) if stopped => ("it was told to stop, and killed".into(), Some(End::Stopped)),
            (None, None) => match status.and_then(|s| s.code()) {
                Some(code) if code == i32::from(crate::runner::UNWRITTEN) => {
                    let what = line(&text, "error: ").unwrap_or_else(|| "a period could not be written".into());
                    let hint = line(&text, "hint: ").unwrap_or_default();
                    record.process.ended_because = Some(what.clone());
                    // The disk is full: this write may fail, too.
                    let _ = self.folder.write_process(number, &Measured { ended: Some(clock::text(now)), ..record });
                    return Err(Error::Unwritten { what, hint });
                }
                Some(IMPOSSIBLE) => {
                    let why = line(&text, "error: ").unwrap_or_default();
                    (why.clone(), Some(End::Impossible(why)))
                }
                _ => {
                    let why = line(&text, "error: ").map(|why| format!(": {why}")).unwrap_or_default();
                    let why = format!("the measuring process ended, {}{why}", ended(status));
                    record.fault = fault(FaultKind::Died, &why);
                    (why, None)
                }
            },
        };
        record.process.ended_because = Some(why.clone());
        record.ended = Some(clock::text(now));
        self.folder.write_process(number, &record)?;
        if let Some(tape) = self.folder.recording().filter(|_| !matches!(gone, Some(End::Above(_)))) {
            // A process without recorded events leaves no recording.
            let _ = std::fs::remove_file(tape);
        }
        Ok(gone.map_or(Gone::Again { why, measured: heard.laps > 0 }, Gone::End))
    }

    fn spawn(&self, number: u32, errors: std::fs::File) -> std::io::Result<Child> {
        let run = &self.folder.experiment().run;
        let policy = self.folder.stages().first().map_or(run.policy.as_str(), |stage| stage.run.policy.as_str());
        let mut child: Vec<OsString> = vec![self.program.clone().into()];
        child.extend(["soak", "--child"].map(OsString::from));
        child.push(self.folder.path().into());
        child.extend(["--process".into(), number.to_string().into()]);
        child.extend(self.more.iter().cloned());
        let (gpu, program) = (if run.gpu == Gpu::Soft { Gpu::Soft } else { Gpu::Real }, self.program.as_os_str());
        let whole = match self.folder.recording() {
            Some(tape) => crate::runner::recorded_command(gpu, program, &tape, true, child),
            None => crate::runner::policy_command(policy, gpu, program, self.folder.path(), number, child),
        };
        let mut command = Command::new(&whole[0]);
        command.args(&whole[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
        // The watchdog listens to this process, not to the measuring one.
        command.env_remove("NOTIFY_SOCKET").env_remove("WATCHDOG_USEC").env_remove("WATCHDOG_PID");
        let parent = std::process::id();
        // SAFETY: system calls with numbers, between fork and exec. In a separate process group, Ctrl-C of the terminal reaches only this process,
        // which then stops the other.
        unsafe {
            command.process_group(0).pre_exec(move || {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                // The parent may have died before the call above.
                if libc::getppid() as u32 == parent { Ok(()) } else { Err(std::io::ErrorKind::NotFound.into()) }
            });
        }
        command.spawn()
    }

    /// Waits for its end, for a bounded time. A stalled process is killed.
    fn end(&self, child: &mut Child, heard: &mut Heard) -> std::io::Result<Option<ExitStatus>> {
        if heard.stall.is_some() || heard.left {
            let all = threads::family(child.id());
            all.iter().for_each(|process| kill(*process, libc::SIGKILL));
        }
        let begun = Instant::now();
        let mut killed = false;
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(Some(status));
            }
            if !killed && (begun.elapsed() > self.stall_after || self.stop.load(Ordering::Relaxed) > 1) {
                killed = true;
                threads::family(child.id()).iter().for_each(|process| kill(*process, libc::SIGKILL));
            }
            // A call of the GPU's driver cannot be interrupted.
            if begun.elapsed() > 2 * self.stall_after + Duration::from_secs(1) {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// What a measuring process has said.
#[derive(Default)]
struct Heard {
    laps: u64,
    period: Option<u32>,
    over: Option<(String, String)>,
    stall: Option<String>,
    /// It was asked to stop and did not, or the caller stops waiting.
    left: bool,
}

impl Heard {
    /// Reads its lines until they end, it stalls, or the caller waits no longer.
    fn of(leader: &Leader<'_>, child: &mut Child, hear: &mut dyn FnMut(News<'_>), systemd: &mut Systemd) -> Heard {
        let mut heard = Heard::default();
        let Some(lines) = lines_of(child) else { return heard };
        let (mut last, mut said, mut told) = (Instant::now(), "its start".to_owned(), None::<Instant>);
        let mut summed = Instant::now();
        loop {
            match lines.recv_timeout(LOOK) {
                Ok(line) => {
                    last = Instant::now();
                    if let Some(text) = line.strip_prefix(PROGRESS) {
                        said = text.to_owned();
                        hear(News::Doing(text));
                        systemd.feed(None);
                    } else if let Some(over) = line.strip_prefix(OVER) {
                        let (kind, why) = over.split_once(' ').unwrap_or((over, ""));
                        heard.over = Some((kind.into(), why.into()));
                    } else if let Some(lap) = line.strip_prefix(LAP).and_then(read_lap) {
                        heard.laps += 1;
                        let News::Lap { period, .. } = lap else { continue };
                        let is_new = heard.period.replace(period).is_some_and(|before| before != period);
                        said = format!("a lap of period {period}");
                        systemd.feed(Some(status(leader.folder, &lap)));
                        hear(lap);
                        if is_new && summed.elapsed() >= SUM_UP {
                            summed = Instant::now();
                            // For programs that read the file at that time. At the end a full disk is an error.
                            let _ = leader.folder.soak().and_then(|soak| leader.folder.write_soak(&soak));
                        }
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return heard,
                Err(RecvTimeoutError::Timeout) => {}
            }
            match (leader.stop.load(Ordering::Relaxed), told) {
                (0, _) => {}
                (1, None) => {
                    told = Some(Instant::now());
                    threads::family(child.id()).iter().for_each(|process| kill(*process, libc::SIGTERM));
                }
                (1, Some(at)) if at.elapsed() <= leader.stall_after => {}
                _ => {
                    heard.left = true;
                    return heard;
                }
            }
            if last.elapsed() > leader.stall_after {
                let silent = duration(leader.stall_after.as_secs_f64());
                let threads = threads::where_threads_are(child.id());
                heard.stall = Some(format!("it stalled: no message for {silent} after {said}{threads}"));
                return heard;
            }
        }
    }
}

fn lines_of(child: &mut Child) -> Option<Receiver<String>> {
    let out = child.stdout.take()?;
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    Some(lines)
}

fn read_lap(text: &str) -> Option<News<'static>> {
    let mut words = text.split_ascii_whitespace();
    let (period, done_s) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    Some(News::Lap { period, done_s, worst_ns: words.next().and_then(|ns| ns.parse().ok()) })
}

/// One line about a lap: the period, the slowest sample so far, and the time left.
pub fn status(folder: &Folder, lap: &News<'_>) -> String {
    let News::Lap { period, done_s, worst_ns } = lap else { return String::new() };
    let asked = folder.asked();
    let of = (asked.asked_s / asked.every_s).ceil();
    let worst = match worst_ns.filter(|_| folder.experiment().run.gpu != Gpu::Soft) {
        Some(ns) => format!(", worst {}", nanoseconds(ns)),
        None => String::new(),
    };
    format!("period {} of {of}{worst}, {} left", period + 1, duration((asked.asked_s - done_s).max(0.0)))
}

/// systemd, if it started this process (`Type=notify`), and its watchdog (`WatchdogSec=`). A separate thread sends the messages, so a receiver that
/// does not read them causes no delay.
struct Systemd {
    say: Option<(SyncSender<Word>, JoinHandle<()>)>,
    every: Option<Duration>,
    fed: Option<Instant>,
    told: Option<Instant>,
}

enum Word {
    Ready,
    Status(String),
    Alive,
    Stopping,
}

/// Words on their way; more are dropped.
const WORDS: usize = 16;
/// A status is sent at most this often.
const STATUS: Duration = Duration::from_secs(1);
/// The time for the last message to be received.
const LAST: Duration = Duration::from_millis(500);

impl Systemd {
    fn new() -> Systemd {
        let say = std::env::var_os("NOTIFY_SOCKET").map(|_| {
            let (sender, words) = mpsc::sync_channel(WORDS);
            let tell = move || {
                for word in words {
                    // Nobody may listen.
                    let _ = sd_notify::notify(&[match &word {
                        Word::Ready => NotifyState::Ready,
                        Word::Status(status) => NotifyState::Status(status),
                        Word::Alive => NotifyState::Watchdog,
                        Word::Stopping => NotifyState::Stopping,
                    }]);
                }
            };
            (sender, std::thread::spawn(tell))
        });
        // Four times per interval: one late message does not trip the watchdog.
        let every = sd_notify::watchdog_enabled().map(|time| time / 4);
        Systemd { say, every, fed: None, told: None }
    }

    fn say(&self, word: Word) {
        if let Some((sender, _)) = &self.say {
            let _ = sender.try_send(word);
        }
    }

    /// The last word.
    fn stopping(&mut self) {
        self.say(Word::Stopping);
        let Some((sender, thread)) = self.say.take() else { return };
        drop(sender);
        let begun = Instant::now();
        while !thread.is_finished() && begun.elapsed() < LAST {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The measuring process reported something; after a lap, with the status.
    fn feed(&mut self, status: Option<String>) {
        if let Some(status) = status
            && self.told.is_none_or(|at| at.elapsed() >= STATUS)
        {
            if self.told.replace(Instant::now()).is_none() {
                self.say(Word::Ready);
            }
            self.say(Word::Status(status));
        }
        if self.every.is_some_and(|every| self.fed.is_none_or(|at| at.elapsed() >= every)) {
            self.fed = Some(Instant::now());
            self.say(Word::Alive);
        }
    }
}

fn kill(process: u32, signal: libc::c_int) {
    // SAFETY: two numbers.
    unsafe { libc::kill(process as i32, signal) };
}

fn ended(status: Option<ExitStatus>) -> String {
    match status.map(|s| (s.code(), s.signal())) {
        Some((Some(code), _)) => format!("status {code}"),
        Some((None, Some(signal))) => format!("signal {signal}"),
        _ => "and is not gone: it is in a call of the kernel's".into(),
    }
}

/// The last line that begins so.
fn line(text: &str, begins: &str) -> Option<String> {
    text.lines().rev().find_map(|line| line.strip_prefix(begins)).map(str::to_owned)
}

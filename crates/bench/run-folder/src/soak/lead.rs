//! The process that leads a soak: it starts the measuring process, reads its reports, and feeds a watchdog while it lives. If the measuring
//! process stalled, died or lost a transfer, the leader starts a new one.
//!
//! The invariant: the watchdog is fed only after a message of the measuring process, so a stall of the measurement stops it.

use crate::Error;
use crate::child::{Child, Gone, PROGRESS, policy_command, recorded_command};
use crate::runner::threads;
use crate::soak::Folder;
use crate::soak::account::{Fault, FaultKind, Process};
use crate::soak::clock::{self, utc_s};
use crate::soak::folder::Measured;
use crate::soak::measuring::Over;
use experiment::Gpu;
use numbers::{duration, nanoseconds};
use std::ffi::OsString;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

/// The prefixes of the measuring process's lines. `LAP` comes after a lap, with the period, the seconds measured so far and the slowest sample so far,
/// ns. `OVER` comes at the end, with an [`Over`] as JSON.
pub const LAP: &str = "lap ";
pub const OVER: &str = "over ";

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

impl Leader<'_> {
    /// Runs until all is measured, or something ends it: [`Over::Renew`] after several processes in a row that measured nothing.
    ///
    /// # Errors
    /// A process cannot be started; the folder cannot be written.
    pub fn run(&self, hear: &mut dyn FnMut(News<'_>)) -> Result<Over, Error> {
        let (mut in_vain, mut systemd) = (0, Systemd::new());
        let over = loop {
            if self.stopped() > 0 {
                break Over::Stopped;
            }
            let (over, has_measured) = self.process(hear, &mut systemd)?;
            let Over::Renew(why) = &over else { break over };
            in_vain = if has_measured { 0 } else { in_vain + 1 };
            if in_vain == IN_VAIN {
                break over;
            }
            hear(News::Again(why));
        };
        systemd.say("STOPPING=1");
        Ok(over)
    }

    /// Number of stop requests.
    fn stopped(&self) -> u32 {
        self.stop.load(Ordering::Relaxed)
    }

    /// Runs one measuring process: why it ended, and whether it had measured anything.
    fn process(&self, hear: &mut dyn FnMut(News<'_>), systemd: &mut Systemd) -> Result<(Over, bool), Error> {
        let what = "the measuring process";
        let number = self.folder.processes()?.len() as u32;
        let from_period = self.folder.periods()?.len() as u32;
        let mut child = Child::start(&self.command(number), |command| {
            // The watchdog listens to this process, not to the measuring one. In a separate process group, Ctrl-C of the terminal reaches only this
            // process, which then stops the other.
            command.env_remove("NOTIFY_SOCKET").env_remove("WATCHDOG_USEC").env_remove("WATCHDOG_PID").process_group(0);
        })
        .map_err(Error::start(what))?;
        let process = Process { pid: child.id(), from_period, started: clock::text(utc_s()), ended_because: None };
        let mut record = Measured { process, ended: None, fault: None };
        self.folder.write_process(number, &record)?;
        let heard = Heard::of(self, &child, hear, systemd);
        let mut status = None;
        if heard.stall.is_none() && !heard.left {
            status = child.wait(self.stall_after, || self.stopped() > 1).map_err(Error::start(what))?;
        }
        if status.is_none() {
            status = child.end(Duration::ZERO, || true, &mut |_| {}).map_err(Error::start(what))?;
        }
        let now = utc_s();
        record.ended = Some(clock::text(now));
        let mut fault = |kind, why: &str| {
            let (period, what) = (Some(heard.period.unwrap_or(from_period)), why.to_owned());
            record.fault = Some(Fault { kind, at: Some(clock::precise(now)), period, cell: None, what });
        };
        let over = match (heard.stall, heard.over) {
            (Some(stall), _) => {
                fault(FaultKind::Stall, &stall);
                Over::Renew(stall)
            }
            (None, Some(over)) => over,
            (None, None) if self.stopped() > 0 => Over::Stopped,
            (None, None) => match status.map(|status| child.gone(status)) {
                Some(Gone::Unwritten { what, hint }) => {
                    record.process.ended_because = Some(what.clone());
                    // The disk is full: this write may fail, too.
                    let _ = self.folder.write_process(number, &record);
                    return Err(Error::Unwritten { what, hint });
                }
                Some(Gone::Impossible(why)) => Over::Impossible(why),
                gone => {
                    let how = match gone {
                        Some(Gone::Died(how)) => how,
                        Some(_) => "without a word".into(),
                        None => "and is not gone: it is in a call of the kernel's".into(),
                    };
                    let why = format!("the measuring process ended, {how}");
                    fault(FaultKind::Died, &why);
                    Over::Renew(why)
                }
            },
        };
        record.process.ended_because = Some(match &over {
            Over::Done => "all is measured".into(),
            Over::Stopped => "it was told to stop".into(),
            Over::Above(why) | Over::Renew(why) | Over::Impossible(why) => why.clone(),
        });
        self.folder.write_process(number, &record)?;
        if let Some(tape) = self.folder.recording().filter(|_| !matches!(over, Over::Above(_))) {
            // A process without recorded events leaves no recording.
            let _ = std::fs::remove_file(tape);
        }
        Ok((over, heard.laps > 0))
    }

    fn command(&self, number: u32) -> Vec<OsString> {
        let run = &self.folder.experiment().run;
        let policy = self.folder.stages().first().map_or(run.policy.as_str(), |stage| stage.run.policy.as_str());
        let mut child: Vec<OsString> = vec![self.program.clone().into()];
        child.extend(["soak", "--child"].map(OsString::from));
        child.push(self.folder.path().into());
        child.extend(["--process".into(), number.to_string().into()]);
        child.extend(self.more.iter().cloned());
        match self.folder.recording() {
            Some(tape) => recorded_command(run.gpu, self.program.as_os_str(), &tape, true, child),
            None => policy_command(policy, run.gpu, self.program.as_os_str(), self.folder.path(), number, child),
        }
    }
}

/// What a measuring process has said.
#[derive(Default)]
struct Heard {
    laps: u64,
    period: Option<u32>,
    over: Option<Over>,
    stall: Option<String>,
    /// It was asked to stop and did not, or the caller stops waiting.
    left: bool,
}

impl Heard {
    /// Reads its lines until they end, it stalls, or the caller waits no longer.
    fn of(leader: &Leader<'_>, child: &Child, hear: &mut dyn FnMut(News<'_>), systemd: &mut Systemd) -> Heard {
        let mut heard = Heard::default();
        let (mut last, mut said, mut told) = (Instant::now(), "its start".to_owned(), None::<Instant>);
        let mut summed = Instant::now();
        loop {
            match child.line() {
                Ok(line) => {
                    last = Instant::now();
                    if let Some(text) = line.strip_prefix(PROGRESS) {
                        said = text.to_owned();
                        hear(News::Doing(text));
                        systemd.feed(None);
                    } else if let Some(over) = line.strip_prefix(OVER) {
                        heard.over = serde_json::from_str(over).ok();
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
            match (leader.stopped(), told) {
                (0, _) => {}
                (1, None) => {
                    told = Some(Instant::now());
                    child.signal(libc::SIGTERM);
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

/// systemd, if it started this process (`Type=notify`), and its watchdog (`WatchdogSec=`). What a receiver does not read is lost, so it causes no delay.
struct Systemd {
    socket: Option<UnixDatagram>,
    every: Option<Duration>,
    fed: Option<Instant>,
    told: Option<Instant>,
}

/// A status is sent at most this often.
const STATUS: Duration = Duration::from_secs(1);

impl Systemd {
    fn new() -> Systemd {
        let variable = |name: &str| std::env::var(name).ok();
        // Four times per interval: one late message does not trip the watchdog.
        let is_mine = variable("WATCHDOG_PID").is_none_or(|pid| pid == std::process::id().to_string());
        let every = variable("WATCHDOG_USEC").filter(|_| is_mine).and_then(|us| us.parse().ok());
        let every = every.map(|us| Duration::from_micros(us) / 4);
        Systemd { socket: Systemd::socket().ok(), every, fed: None, told: None }
    }

    /// sd_notify(3): the path of a socket, or after an `@` its name.
    fn socket() -> std::io::Result<UnixDatagram> {
        let path = std::env::var_os("NOTIFY_SOCKET").unwrap_or_default();
        let socket = UnixDatagram::unbound()?;
        match path.as_bytes().strip_prefix(b"@") {
            Some(name) => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
            None => socket.connect(path)?,
        }
        socket.set_nonblocking(true)?;
        Ok(socket)
    }

    fn say(&self, word: &str) {
        // Nobody may listen.
        let _ = self.socket.as_ref().map(|socket| socket.send(word.as_bytes()));
    }

    /// The measuring process reported something; after a lap, with the status.
    fn feed(&mut self, status: Option<String>) {
        if let Some(status) = status
            && self.told.is_none_or(|at| at.elapsed() >= STATUS)
        {
            if self.told.replace(Instant::now()).is_none() {
                self.say("READY=1");
            }
            self.say(&format!("STATUS={status}"));
        }
        if self.every.is_some_and(|every| self.fed.is_none_or(|at| at.elapsed() >= every)) {
            self.fed = Some(Instant::now());
            self.say("WATCHDOG=1");
        }
    }
}

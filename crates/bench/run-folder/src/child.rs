//! A measuring process: this program, under doorbell where that is asked for, which prints a line for each thing that it does.
//!
//! The invariant: it ends with this process, and in bounded time when it is to end.

use crate::runner::threads;
use experiment::Gpu;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Prefix of a line with its current activity.
pub const PROGRESS: &str = "# ";

/// Exit status of a process that could not write its measurement: EX_IOERR of sysexits.h. The reason is on standard error.
pub const UNWRITTEN: u8 = 74;
/// Exit status for a measurement that is not possible on this machine.
const IMPOSSIBLE: i32 = 77;
/// With the agent and no policy: the cost of the agent itself.
const AGENT: &str = "agent";
/// Recorded, with its locks.
const TRACED: &str = "traced";
const STOCK: &str = "stock";

/// How long to wait for a line: then it is checked whether the run must stop.
const LOOK: Duration = Duration::from_millis(50);
/// Interval between checks whether a process has ended.
const SHORT: Duration = Duration::from_millis(5);
/// Time for a killed process to end. Calls of the GPU's driver cannot be interrupted, and may wait for each other.
pub const GO: Duration = Duration::from_secs(1);
/// After this time, the wait for a process is reported.
const AT_ONCE: Duration = Duration::from_millis(200);

pub struct Child {
    process: std::process::Child,
    lines: Receiver<String>,
    errors: File,
}

/// How a process ended by itself.
#[derive(Debug)]
pub enum Gone {
    Done,
    Interrupted,
    Impossible(String),
    /// It measured, but could not write the result.
    Unwritten {
        what: String,
        hint: String,
    },
    /// Its exit status or signal, and its last words.
    Died(String),
}

/// What a process that should end does not do.
#[derive(Clone, Copy, Debug)]
pub enum Slow<'s> {
    /// It has not ended yet.
    Ending,
    /// These were killed, but have not ended.
    LeftBehind(&'s [u32]),
}

impl Child {
    pub fn start(words: &[OsString], set: impl FnOnce(&mut Command)) -> io::Result<Child> {
        let errors = tempfile::tempfile()?;
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors.try_clone()?);
        set(&mut command);
        let parent = std::process::id();
        // SAFETY: system calls with numbers, between fork and exec.
        unsafe {
            command.pre_exec(move || {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                // The parent may have died before the call above.
                if libc::getppid() as u32 == parent { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
            });
        }
        let mut process = command.spawn()?;
        let (sender, lines) = mpsc::channel();
        if let Some(out) = process.stdout.take() {
            std::thread::spawn(move || {
                BufReader::new(out).lines().map_while(Result::ok).all(|line| sender.send(line).is_ok())
            });
        }
        Ok(Child { process, lines, errors })
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Its next line, if it prints one soon; [`RecvTimeoutError::Disconnected`] after its last one.
    pub fn line(&self) -> Result<String, RecvTimeoutError> {
        self.lines.recv_timeout(LOOK)
    }

    /// It and its descendants: under a lock policy one of them measures.
    pub fn signal(&self, signal: libc::c_int) {
        for process in threads::family(self.id()) {
            // SAFETY: two numbers.
            unsafe { libc::kill(process as i32, signal) };
        }
    }

    /// Waits for a process that has closed its output: `None` if it hangs, or `stop` says so.
    pub fn wait(&mut self, at_most: Duration, stop: impl Fn() -> bool) -> io::Result<Option<ExitStatus>> {
        let begun = Instant::now();
        while !stop() && begun.elapsed() < at_most {
            if let Some(status) = self.process.try_wait()? {
                return Ok(Some(status));
            }
            std::thread::sleep(SHORT);
        }
        self.process.try_wait()
    }

    /// Ends it, in bounded time. It is sent SIGTERM, then killed after `leave` (or once `now` says so), then abandoned: `None`.
    pub fn end(
        &mut self,
        leave: Duration,
        now: impl Fn() -> bool,
        tell: &mut dyn FnMut(Slow<'_>),
    ) -> io::Result<Option<ExitStatus>> {
        let all = threads::family(self.id());
        // SAFETY: two numbers. The process has not been waited for, so its id is not reused.
        unsafe { libc::kill(self.id() as i32, libc::SIGTERM) };
        let (begun, mut killed, mut told) = (Instant::now(), None::<Instant>, false);
        loop {
            let status = self.process.try_wait()?;
            let left: Vec<u32> = all.iter().copied().filter(|p| threads::is_alive(*p)).collect();
            if status.is_some() && left.is_empty() {
                return Ok(status);
            }
            if killed.is_none() && (begun.elapsed() >= leave || now() || status.is_some()) {
                self.signal(libc::SIGKILL);
                killed = Some(Instant::now());
            }
            if killed.is_some_and(|at| at.elapsed() >= GO) {
                tell(Slow::LeftBehind(if left.is_empty() { &all[..1] } else { &left }));
                return Ok(None);
            }
            if !told && begun.elapsed() >= AT_ONCE {
                told = true;
                tell(Slow::Ending);
            }
            std::thread::sleep(SHORT);
        }
    }

    /// What its status and its standard error say.
    pub fn gone(&mut self, status: ExitStatus) -> Gone {
        let mut text = String::new();
        let _ = self.errors.rewind().and_then(|()| self.errors.read_to_string(&mut text));
        let why = why(&text);
        match (status.code(), status.signal()) {
            (Some(0), _) => Gone::Done,
            (Some(IMPOSSIBLE), _) => Gone::Impossible(why.unwrap_or_default()),
            (Some(code), _) if code == i32::from(UNWRITTEN) => {
                Gone::Unwritten { what: why.unwrap_or_default(), hint: hint(&text).unwrap_or_default() }
            }
            (_, Some(libc::SIGINT)) => Gone::Interrupted,
            (code, signal) => {
                let ended =
                    code.map(|code| format!("status {code}")).or(signal.map(|signal| format!("signal {signal}")));
                let why = why.map_or(String::new(), |why| format!(": {why}"));
                Gone::Died(format!("{}{why}", ended.unwrap_or_else(|| status.to_string())))
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // (Nothing happens to one that has ended.)
        let _ = self.process.kill();
    }
}

/// The command line of a child under a policy. Files of the policy itself (its account, or a recording) are written into the run's folder.
pub fn policy_command(
    policy: &str,
    gpu: Gpu,
    program: &OsStr,
    folder: &Path,
    repeat: u32,
    child: Vec<OsString>,
) -> Vec<OsString> {
    let gpu = word(gpu);
    let mut all: Vec<OsString> = Vec::new();
    let told = |name: &str, end: &str| folder.join(format!("{name}-{repeat:02}.{end}")).into_os_string();
    match policy {
        STOCK => {}
        TRACED => {
            all.push(program.into());
            all.extend(["record", "-q", "--force", "--locks", "--tap", "off", "--gpu", gpu, "-o"].map(OsString::from));
            all.extend([told(TRACED, "doorbell"), "--".into()]);
        }
        policy => {
            let names = if policy == AGENT { STOCK.to_owned() } else { policy.replace('+', ",") };
            all.push(program.into());
            all.extend(["run", "--lock-policy", &names, "--gpu", gpu, "--force", "--out"].map(OsString::from));
            all.extend([told(&format!("policy-{policy}"), "txt"), "--".into()]);
        }
    }
    all.extend(child);
    all
}

/// The command line of a child that is recorded, with its locks. A thread whose ring is full waits, so that the recording is complete.
pub fn recorded_command(
    gpu: Gpu,
    program: &OsStr,
    tape: &Path,
    with_switches: bool,
    child: Vec<OsString>,
) -> Vec<OsString> {
    let mut all: Vec<OsString> = vec![program.into()];
    all.extend(["record", "-q", "--force", "--locks"].map(OsString::from));
    all.extend((!with_switches).then(|| "--no-switches".into()));
    all.extend(["--on-full", "wait", "--ring", "64MiB", "--gpu", word(gpu), "-o"].map(OsString::from));
    all.extend([tape.into(), "--".into()]);
    all.extend(child);
    all
}

/// The GPU of a program, as a word on the command line.
fn word(gpu: Gpu) -> &'static str {
    match gpu {
        Gpu::Real | Gpu::None => "real",
        Gpu::Soft => "soft",
    }
}

/// The line of standard error that gives the reason. The first line of an error names its subject; hints or the program's output come after it.
fn why(text: &str) -> Option<String> {
    let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
    let line = lines.iter().rev().find(|l| l.starts_with("error: ")).or(lines.last())?;
    Some(line.trim_start_matches("error: ").to_owned())
}

/// Its hint, from standard error.
fn hint(text: &str) -> Option<String> {
    text.lines().rev().find_map(|l| l.strip_prefix("hint: ")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(policy: &str) -> String {
        let child = ["doorbell", "bench"].map(OsString::from).into();
        let all = policy_command(policy, Gpu::Soft, "doorbell".as_ref(), "/f".as_ref(), 2, child);
        all.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_policy_is_a_command_line() {
        let run = "doorbell run --lock-policy";
        let rest = "-02.txt -- doorbell bench";
        assert_eq!(line("stock"), "doorbell bench");
        assert_eq!(line("agent"), format!("{run} stock --gpu soft --force --out /f/policy-agent{rest}"));
        assert_eq!(line("pi+ticket"), format!("{run} pi,ticket --gpu soft --force --out /f/policy-pi+ticket{rest}"));
        let record = "doorbell record -q --force --locks --tap off --gpu soft -o /f/traced-02.doorbell";
        assert_eq!(line("traced"), format!("{record} -- doorbell bench"));
    }

    #[test]
    fn a_recorded_stage_is_a_command_line() {
        let child = ["doorbell", "bench"].map(OsString::from).into();
        let all = recorded_command(Gpu::Soft, "doorbell".as_ref(), "/f/tapes/0003-01.doorbell".as_ref(), false, child);
        let all: Vec<_> = all.iter().map(|word| word.to_string_lossy()).collect();
        let record = "doorbell record -q --force --locks --no-switches --on-full wait --ring 64MiB --gpu soft";
        assert_eq!(all.join(" "), format!("{record} -o /f/tapes/0003-01.doorbell -- doorbell bench"));
    }

    #[test]
    fn the_line_with_the_reason_is_found() {
        assert_eq!(why("error: no disk\nhint: buy one\n").as_deref(), Some("no disk"));
        assert_eq!(hint("error: no disk\nhint: buy one\n").as_deref(), Some("buy one"));
        assert_eq!(hint("error: hint: none\n"), None);
        assert_eq!(why("a\n\nb\n").as_deref(), Some("b"));
        assert_eq!(why("\n"), None);
    }
}

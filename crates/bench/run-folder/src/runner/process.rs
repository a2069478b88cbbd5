//! One process under one policy: its start, and the lines that it prints.

use crate::Folder;
use crate::runner::{Error, News, Runner};
use experiment::{Gpu, Record, Stage, What};
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read, Seek};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Prefixes of the lines that a process prints: the number of a stage that begins, the number of a finished stage, and its current activity.
pub const STAGE: &str = "stage ";
pub const PART: &str = "part ";
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

/// Time limit for starting, and for opening and closing a stage's routes and threads. A process that prints no line for longer is treated as hung.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time limit of a stage without a duration.
const UNBOUNDED: Duration = Duration::from_secs(600);
/// Interval between checks whether the run must stop.
const LOOK: Duration = Duration::from_millis(100);
/// Interval between checks whether a process has ended.
const SHORT: Duration = Duration::from_millis(10);
/// Time for a process to end after SIGTERM.
const LEAVE: Duration = Duration::from_secs(5);
/// Time for a killed process to end. Calls of the GPU's driver cannot be interrupted, and may wait for each other.
const GO: Duration = Duration::from_secs(1);
/// After this time, the wait for a process is reported.
const AT_ONCE: Duration = Duration::from_millis(200);

/// Whether a part of the stage loads modules from the driver's cache of compiled code: `module(400,cached)`.
pub(crate) fn needs_cache(stage: &Stage) -> bool {
    let of_cells = stage.cells.iter().map(|cell| &cell.subject.what);
    let has = |what: &What| matches!(what, What::Call(text) if text.split(['(', ',', ')']).any(|word| word.trim() == "cached"));
    of_cells.chain(stage.loads.iter().map(|load| &load.what)).any(has)
}

pub(crate) struct Process<'p> {
    pub runner: &'p Runner<'p>,
    pub policy: &'p str,
    pub repeat: u32,
    pub stages: &'p [&'p Stage],
}

/// How a process ended.
#[derive(Debug)]
pub(crate) enum End {
    Done,
    /// The stage, if it had begun one.
    Stopped {
        at: Option<u32>,
    },
    Impossible(String),
    /// It measured, but could not write the result.
    Unwritten {
        what: String,
        hint: String,
    },
    /// The stage, if it had begun one.
    Died {
        at: Option<u32>,
        why: String,
    },
}

impl<'p> Process<'p> {
    pub fn run(&self, hear: &mut dyn FnMut(&'p Stage, News<'_>)) -> Result<End, Error> {
        let start = |what: &str| {
            let what = what.to_owned();
            move |cause| Error::Start { what, cause }
        };
        let mut errors = tempfile::tempfile().map_err(start("a temporary file"))?;
        let stderr = errors.try_clone().map_err(start("a temporary file"))?;
        let whole = self.command();
        let mut command = Command::new(&whole[0]);
        command.args(&whole[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
        // The measurement is of code that is compiled each time, not of the driver's cache on disk, unless the load uses the cache. Then the cache
        // is in a folder of this process.
        let cache = if self.stages.iter().any(|stage| needs_cache(stage)) {
            Some(tempfile::tempdir().map_err(start("a temporary folder"))?)
        } else {
            None
        };
        match &cache {
            Some(folder) => command.env("CUDA_CACHE_DISABLE", "0").env("CUDA_CACHE_PATH", folder.path()),
            None => command.env("CUDA_CACHE_DISABLE", "1"),
        };
        let parent = std::process::id();
        // SAFETY: system calls with numbers, between fork and exec.
        unsafe {
            command.pre_exec(move || {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                // The parent may have died before the call above.
                if libc::getppid() as u32 == parent { Ok(()) } else { Err(std::io::ErrorKind::NotFound.into()) }
            });
        }
        let mut process = command.spawn().map_err(start(&whole[0].to_string_lossy()))?;
        let mut at = None;
        let silence = self.hear(&mut process, &mut at, hear);
        let gone = match silence {
            None => self.wait(&mut process),
            Some(_) => Ok(None),
        };
        let (hung, status) = match gone.map_err(start("its end"))? {
            Some(status) => (None, Some(status)),
            None => {
                let hung = match (silence, self.stopped()) {
                    (Some(what), 0) => {
                        Some(format!("{what}{}", crate::runner::threads::where_threads_are(process.id())))
                    }
                    (what, _) => Some(what.unwrap_or_else(|| "its process hung at its end".into())),
                };
                let stage = at.and_then(|n| self.stages.iter().find(|s| s.number == n)).or(self.stages.first());
                let mut tell = |what: News<'_>| stage.iter().for_each(|stage| hear(stage, what));
                (hung, self.end(&mut process, &mut tell).map_err(start("its end"))?)
            }
        };
        if self.stopped() > 0 {
            return Ok(End::Stopped { at });
        }
        if let Some(why) = hung {
            return Ok(End::Died { at, why });
        }
        let Some(status) = status else { return Ok(End::Died { at, why: "its process hung".into() }) };
        if status.success() {
            return Ok(End::Done);
        }
        let mut text = String::new();
        let _ = errors.rewind().and_then(|()| errors.read_to_string(&mut text));
        let why = why(&text);
        if status.code() == Some(IMPOSSIBLE) {
            return Ok(End::Impossible(why.unwrap_or_default()));
        }
        if status.code() == Some(UNWRITTEN.into()) {
            return Ok(End::Unwritten { what: why.unwrap_or_default(), hint: hint(&text).unwrap_or_default() });
        }
        if status.signal() == Some(libc::SIGINT) {
            return Ok(End::Stopped { at });
        }
        let why = match why {
            Some(why) => format!("its process ended, {}: {why}", ended(status)),
            None => format!("its process ended, {}", ended(status)),
        };
        Ok(End::Died { at, why })
    }

    /// Reads its lines until the end: `None`. Also returns if it prints no line for too long, or if the run must stop.
    fn hear(
        &self,
        process: &mut Child,
        at: &mut Option<u32>,
        hear: &mut dyn FnMut(&'p Stage, News<'_>),
    ) -> Option<String> {
        let out = process.stdout.take()?;
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let (mut last, mut heard) = ("its start".to_owned(), Instant::now());
        loop {
            let stage = at.and_then(|n| self.stages.iter().find(|s| s.number == n)).copied();
            let patience = PATIENCE + stage.map_or(PATIENCE, time_of);
            match lines.recv_timeout(LOOK) {
                Ok(line) => {
                    heard = Instant::now();
                    if let Some(number) = line.strip_prefix(STAGE) {
                        *at = number.trim().parse().ok();
                    } else if line.starts_with(PART) {
                        if let Some(stage) = stage {
                            hear(stage, News::Finished);
                        }
                        last = format!("the end of stage {}", at.unwrap_or_default());
                        // Between two stages: a process that dies now has lost no stage.
                        let next = at.and_then(|n| self.stages.iter().position(|s| s.number == n)).map(|i| i + 1);
                        *at = next.and_then(|i| self.stages.get(i)).map(|s| s.number);
                    } else if let Some(text) = line.strip_prefix(PROGRESS) {
                        last = text.to_owned();
                        if let Some(stage) = stage {
                            hear(stage, News::Doing(text));
                        }
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) if self.stopped() > 0 => {
                    return Some("it was told to stop".into());
                }
                Err(RecvTimeoutError::Timeout) if heard.elapsed() > patience => {
                    return Some(format!("its process hung: no message for {} s after {last}", patience.as_secs()));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Number of stop requests.
    fn stopped(&self) -> u32 {
        self.runner.stop.load(Ordering::Relaxed)
    }

    /// Waits for a process that has closed its output: `None` if it hangs, or the run must stop.
    fn wait(&self, process: &mut Child) -> std::io::Result<Option<ExitStatus>> {
        let begun = Instant::now();
        while self.stopped() == 0 && begun.elapsed() < PATIENCE {
            if let Some(status) = process.try_wait()? {
                return Ok(Some(status));
            }
            std::thread::sleep(SHORT);
        }
        process.try_wait()
    }

    /// Ends a process, in bounded time. It is sent SIGTERM, then killed (immediately after a second stop request), then abandoned: `None`.
    fn end(&self, process: &mut Child, tell: &mut dyn FnMut(News<'_>)) -> std::io::Result<Option<ExitStatus>> {
        // Includes its descendants: under a lock policy one of them measures.
        let all = crate::runner::threads::family(process.id());
        // SAFETY: two numbers. The process has not been waited for, so its id is not reused.
        unsafe { libc::kill(process.id() as i32, libc::SIGTERM) };
        let (begun, mut killed, mut told) = (Instant::now(), None::<Instant>, false);
        loop {
            let status = process.try_wait()?;
            let left: Vec<u32> = all.iter().copied().filter(|p| crate::runner::threads::is_alive(*p)).collect();
            if status.is_some() && left.is_empty() {
                return Ok(status);
            }
            if killed.is_none() && (begun.elapsed() >= LEAVE || self.stopped() > 1 || status.is_some()) {
                let _ = process.kill();
                killed = Some(Instant::now());
            }
            if killed.is_some_and(|at| at.elapsed() >= GO) {
                tell(News::LeftBehind(if left.is_empty() { &all[..1] } else { &left }));
                return Ok(None);
            }
            if !told && begun.elapsed() >= AT_ONCE {
                told = true;
                tell(News::Ending { process: process.id(), at_most: LEAVE + GO });
            }
            std::thread::sleep(SHORT);
        }
    }

    fn command(&self) -> Vec<OsString> {
        let runner = self.runner;
        let stages: Vec<String> = self.stages.iter().map(|s| s.number.to_string()).collect();
        let mut child: Vec<OsString> = vec![runner.program.clone().into()];
        child.extend(["bench", "--child"].map(OsString::from));
        child.push(runner.folder.path().into());
        child.extend(["--repeat".into(), self.repeat.to_string().into()]);
        child.extend(["--stages".into(), stages.join(",").into()]);
        let gpu = self.stages.first().map_or(Gpu::Real, |s| s.run.gpu);
        if let Some(stage) = self.stages.first().filter(|s| s.run.record == Record::Commands) {
            let tape = runner.folder.path().join(Folder::tape_name(stage.number, self.repeat));
            return recorded_command(gpu, runner.program.as_os_str(), &tape, false, child);
        }
        policy_command(self.policy, gpu, runner.program.as_os_str(), runner.folder.path(), self.repeat, child)
    }
}

/// Maximum time of a stage without output.
fn time_of(stage: &Stage) -> Duration {
    let run = &stage.run;
    let blocked = Duration::from_nanos(run.patience_ns.unwrap_or(0));
    let measured = run.duration_ns.map_or(UNBOUNDED, Duration::from_nanos).max(blocked) * 2;
    let metered = Duration::from_nanos(run.meter_ns) * 2 * stage.cells.len() as u32;
    measured + metered + Duration::from_nanos(run.noise_ns) + Duration::from_nanos(run.timeout_ns)
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

fn ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
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
    fn stages_that_load_from_the_cache_of_compiled_code_are_known_by_their_calls() {
        for (load, needs) in [
            ("module(40,cached)", true),
            ("module( cached )", true),
            ("module(400)", false),
            ("lock(name=cached)", false),
        ] {
            let text = format!("[run]\nsamples = 1\n[[subject]]\ncall = \"launch\"\n[[load]]\ncall = \"{load}\"\n");
            let stages = experiment::read(&text, "x.toml", &[]).unwrap().stages().unwrap();
            assert_eq!(needs_cache(&stages[0]), needs, "{load}");
        }
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

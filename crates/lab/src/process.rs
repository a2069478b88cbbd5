//! A load in a process of its own, as another program on the same GPU: with a CUDA context, locks and memory of its own.
//!
//! The process is this program again ([`starts_by`]). It does the one thing that it was told on its command line, writes a line every
//! few milliseconds with what it has done so far, and reads `go` and `rest`. It ends when what it reads ends: the kernel closes that
//! when the process that measures ends, whatever ended it.

use crate::clock::Clock;
use crate::load::{self, Running};
use copy::Unavailable;
use experiment::{Gpu, LoadSpec, Process};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};
use subject::{Checks, Did, Error, Machine, Opened, Subject, Waiting, Wrong};

static COMMAND: OnceLock<Vec<OsString>> = OnceLock::new();

/// How this program is started to work for a load: it calls [`work`] with what stands behind these arguments.
pub fn starts_by(command: Vec<OsString>) {
    let _ = COMMAND.set(command);
}

/// Between two lines.
const EACH: Duration = Duration::from_millis(5);
/// A process that was told to end and has not by then is killed.
const LEAVE: Duration = Duration::from_secs(3);

/// What a process is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Work {
    load: LoadSpec,
    cpus: Vec<usize>,
    seed: u64,
    timeout_ns: u64,
    gpu: Gpu,
}

/// What it has done since it began.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Line {
    done: u64,
    bytes: u64,
    longest_ns: u64,
    checked: u64,
    unavailable: Option<String>,
    failed: Option<String>,
}

impl Line {
    fn error(self) -> Result<Line, Error> {
        match (self.unavailable, self.failed) {
            (Some(why), _) => Err(Unavailable::new(why).into()),
            (_, Some(why)) => Err(Error::Process(why)),
            (None, None) => Ok(Line { unavailable: None, failed: None, ..self }),
        }
    }
}

/// A load's thread here, whose work is done elsewhere.
pub(crate) struct Elsewhere {
    work: Work,
}

impl Elsewhere {
    pub fn new(plan: &load::Plan<'_>, load: usize, seed: u64) -> Elsewhere {
        let spec = LoadSpec { process: Process::Shared, count: 1, ..plan.loads[load].clone() };
        let timeout_ns = plan.timeout.as_nanos() as u64;
        Elsewhere { work: Work { load: spec, cpus: plan.cpus[load].clone(), seed, timeout_ns, gpu: plan.gpu } }
    }
}

impl Opened for Elsewhere {
    fn about(&self) -> String {
        format!("{}, in a process of its own", self.work.load.what)
    }

    fn verify(&mut self, _seed: u64, _timeout: Duration) -> Result<Option<Wrong>, Error> {
        Ok(None)
    }

    fn prepare(&mut self, _seed: u64) -> Result<Box<dyn Subject + '_>, Error> {
        let none = || Unavailable::new("this program cannot be started again for a load".to_owned());
        let (program, arguments) = COMMAND.get().and_then(|all| all.split_first()).ok_or_else(none)?;
        let work = serde_json::to_string(&self.work).map_err(|e| Error::Process(e.to_string()))?;
        let mut command = Command::new(program);
        command.args(arguments).arg(work).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|cause| Error::System { what: "a process of a load".into(), cause })?;
        let Some(lines) = child.stdout.take() else { return Err(Error::Idle) };
        let mut far =
            Far { child, lines: BufReader::new(lines), goes: false, last: Line::default(), before: Line::default() };
        // Behind its first turn.
        far.read()?;
        far.before = far.last.clone();
        Ok(Box::new(far))
    }
}

struct Far {
    child: Child,
    lines: BufReader<ChildStdout>,
    goes: bool,
    last: Line,
    before: Line,
}

impl Far {
    fn read(&mut self) -> Result<(), Error> {
        let mut text = String::new();
        let lost = |cause| Error::System { what: "what a load's process says".into(), cause };
        if self.lines.read_line(&mut text).map_err(lost)? == 0 {
            let status = self.child.wait().map_err(lost)?;
            return Err(Error::Process(format!("its process ended: {status}")));
        }
        let line: Line =
            serde_json::from_str(&text).map_err(|e| Error::Process(format!("its process says {text:?}: {e}")))?;
        self.last = line.error()?;
        Ok(())
    }

    fn tell(&mut self, word: &str) -> Result<(), Error> {
        let Some(stdin) = &mut self.child.stdin else { return Ok(()) };
        let told = writeln!(stdin, "{word}").and_then(|()| stdin.flush());
        told.map_err(|cause| Error::System { what: "a word to a load's process".into(), cause })
    }

    /// Until it has ended; killed if it does not.
    fn end(&mut self) {
        drop(self.child.stdin.take());
        let begun = Instant::now();
        while begun.elapsed() < LEAVE {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        self.end();
    }
}

impl Subject for Far {
    fn waiting(&self) -> Waiting {
        Waiting::Called
    }

    fn fire(&mut self) -> Result<(), Error> {
        if !self.goes {
            self.tell(GO)?;
            self.goes = true;
        }
        Ok(())
    }

    fn poll(&mut self) -> Result<bool, Error> {
        Ok(true)
    }

    fn wait(&mut self, _timeout: Duration) -> Result<(), Error> {
        self.before = std::mem::take(&mut self.last);
        self.read()
    }

    fn did(&mut self) -> Did {
        let since = |of: fn(&Line) -> u64| of(&self.last).saturating_sub(of(&self.before));
        Did { times: since(|l| l.done), bytes: since(|l| l.bytes), longest_ns: Some(self.last.longest_ns) }
    }

    fn rest(&mut self) -> Result<(), Error> {
        if self.goes {
            self.tell(REST)?;
            self.goes = false;
        }
        Ok(())
    }

    fn checks(&self) -> Checks {
        Checks::Bytes
    }

    /// Ends it: its data is compared there, behind its last turn.
    fn check(&mut self) -> Result<Option<Wrong>, Error> {
        drop(self.child.stdin.take());
        loop {
            match self.read() {
                Ok(()) if self.last.checked > 0 => return Ok(None),
                Ok(()) => {}
                // What compares nothing ends without having compared.
                Err(Error::Process(_)) if matches!(self.child.try_wait(), Ok(Some(status)) if status.success()) => {
                    return Ok(None);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

const GO: &str = "go";
const REST: &str = "rest";

/// What it was told last.
const RESTS: u8 = 0;
const GOES: u8 = 1;
const ENDS: u8 = 2;

/// Works for a load until standard input ends: what a process does that was started with the arguments of [`starts_by`] and this text.
///
/// # Errors
/// A text that is no work, and an end of standard output.
pub fn work(text: &str, open: impl FnOnce(Gpu) -> Result<Machine, String>) -> std::io::Result<()> {
    // SAFETY: takes numbers. The thread that started this process is there as long as the load is.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let Work { load, cpus, seed, timeout_ns, gpu } = serde_json::from_str(text)?;
    let machine = match open(gpu) {
        Ok(machine) => machine,
        Err(why) => return say(&Line { unavailable: Some(why), ..Line::default() }),
    };
    let clock = Clock::new();
    let timeout = Duration::from_nanos(timeout_ns);
    let plan = load::Plan { loads: std::slice::from_ref(&load), cpus: vec![cpus], seed, timeout, clock: &clock, gpu };
    let told = &*Box::leak(Box::new(AtomicU8::new(RESTS)));
    // Not waited for: it reads until there is nothing more.
    std::thread::spawn(|| {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            told.store(if line == GO { GOES } else { RESTS }, Ordering::Relaxed);
        }
        told.store(ENDS, Ordering::Relaxed);
    });
    let follow = |running: &Running<'_>| {
        let mark = running.mark();
        let mut said = Ok(());
        while said.is_ok() {
            match told.load(Ordering::Relaxed) {
                ENDS => break,
                now => running.rest(now == RESTS),
            }
            let (done, bytes, longest_ns, failed) = running.so_far(0);
            let (unavailable, failed) = match failed {
                Some(load::Reason::Unavailable(why)) => (Some(why), None),
                Some(load::Reason::Failed(why)) => (None, Some(why)),
                None => (None, None),
            };
            said = say(&Line { done, bytes, longest_ns, checked: 0, unavailable, failed });
            std::thread::sleep(EACH);
        }
        running.rest(false);
        (said, running.since(&mark))
    };
    let (said, loaded) = load::beside(&machine, &plan, &|_| {}, follow);
    said?;
    let loaded = loaded.into_iter().next().unwrap_or_default();
    let failed = loaded.failed.into_iter().next().map(|(why, _)| why);
    let (done, longest_ns) = (loaded.transfers, loaded.longest_ns);
    say(&Line {
        done,
        bytes: loaded.bytes,
        longest_ns,
        checked: loaded.checked,
        unavailable: loaded.unavailable,
        failed,
    })
}

fn say(line: &Line) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, line)?;
    out.write_all(b"\n")?;
    out.flush()
}

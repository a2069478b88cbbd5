//! A load in a separate process, like another program on the same GPU: with its own CUDA context, locks and memory.
//!
//! The process is this program again ([`starts_by`]). It repeats the operation from its command line, writes a line with its counts every few
//! milliseconds, and reads `go` and `rest`. It ends at the end of its input: the kernel closes the pipe when the measuring process ends, for any
//! reason.

use experiment::{Gpu, LoadSpec, Process};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use workload::Unavailable;
use workload::{Checks, Did, Error, Opened, Subject, Waiting, Wrong};

static COMMAND: OnceLock<Vec<OsString>> = OnceLock::new();

/// The command that starts this program as a load: it calls [`crate::working::work`] with the arguments after these.
pub fn starts_by(command: Vec<OsString>) {
    let _ = COMMAND.set(command);
}

/// Time between two lines.
pub(crate) const EACH: Duration = Duration::from_millis(5);
/// A process is killed if it has not ended this long after the request to end.
const LEAVE: Duration = Duration::from_secs(3);

/// The work of a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Work {
    pub load: LoadSpec,
    pub cpus: Vec<usize>,
    pub seed: u64,
    pub timeout_ns: u64,
    pub gpu: Gpu,
}

/// Its counts since it began.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Line {
    pub done: u64,
    pub bytes: u64,
    pub longest_ns: u64,
    pub checked: u64,
    pub unavailable: Option<String>,
    pub failed: Option<String>,
}

impl Line {
    fn error(self) -> Result<Line, Error> {
        match (self.unavailable, self.failed) {
            (Some(why), _) => Err(Unavailable::new(why).into()),
            (_, Some(why)) => Err(Error::Told(why)),
            (None, None) => Ok(Line { unavailable: None, failed: None, ..self }),
        }
    }
}

/// A load's thread in this process, for work in another process.
pub(crate) struct Elsewhere(Work);

impl Elsewhere {
    pub fn new(load: &LoadSpec, cpus: &[usize], seed: u64, timeout: Duration, gpu: Gpu) -> Elsewhere {
        let load = LoadSpec { process: Process::Shared, count: 1, ..load.clone() };
        Elsewhere(Work { load, cpus: cpus.to_vec(), seed, timeout_ns: timeout.as_nanos() as u64, gpu })
    }
}

impl Opened for Elsewhere {
    fn about(&self) -> String {
        format!("{}, in a separate process", self.0.load.what)
    }

    fn verify(&mut self, _seed: u64, _timeout: Duration) -> Result<Option<Wrong>, Error> {
        Ok(None)
    }

    fn prepare(&mut self, _seed: u64) -> Result<Box<dyn Subject + '_>, Error> {
        let none = || Unavailable::new("this program cannot be started again for a load".to_owned());
        let (program, arguments) = COMMAND.get().and_then(|all| all.split_first()).ok_or_else(none)?;
        let work = serde_json::to_string(&self.0).map_err(|e| Error::Told(e.to_string()))?;
        let mut command = Command::new(program);
        command.args(arguments).arg(work).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|cause| Error::System { what: "a process of a load".into(), cause })?;
        let Some(lines) = child.stdout.take() else { return Err(Error::Idle) };
        let mut far =
            Far { child, lines: BufReader::new(lines), goes: false, last: Line::default(), before: Line::default() };
        // After its first turn.
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
            return Err(Error::Told(format!("its process ended: {status}")));
        }
        let line: Line =
            serde_json::from_str(&text).map_err(|e| Error::Told(format!("its process says {text:?}: {e}")))?;
        self.last = line.error()?;
        Ok(())
    }

    fn tell(&mut self, word: &str) -> Result<(), Error> {
        let Some(stdin) = &mut self.child.stdin else { return Ok(()) };
        let told = writeln!(stdin, "{word}").and_then(|()| stdin.flush());
        told.map_err(|cause| Error::System { what: "a word to a load's process".into(), cause })
    }

    /// Waits until it has ended; kills it if it does not.
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

    /// Ends it: it compares its data after its last turn.
    fn check(&mut self) -> Result<Option<Wrong>, Error> {
        drop(self.child.stdin.take());
        loop {
            match self.read() {
                Ok(()) if self.last.checked > 0 => return Ok(None),
                Ok(()) => {}
                // A subject without data to compare ends without a comparison.
                Err(Error::Told(_)) if matches!(self.child.try_wait(), Ok(Some(status)) if status.success()) => {
                    return Ok(None);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

pub(crate) const GO: &str = "go";
const REST: &str = "rest";

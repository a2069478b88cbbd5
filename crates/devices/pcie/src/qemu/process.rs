//! QEMU as a child process: inherits file descriptors, its stderr is kept for messages, and it is killed when this process ends.

use crate::error::Error;
use std::io::{BufRead, BufReader};
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The last lines of stderr go into messages.
const KEPT: usize = 20;

pub(super) struct Process {
    shared: Arc<Shared>,
}

struct Shared {
    child: Mutex<Child>,
    stderr: Mutex<Stderr>,
}

#[derive(Default)]
struct Stderr {
    lines: Vec<String>,
    /// QEMU has closed its stderr.
    complete: bool,
}

impl Process {
    /// Starts `program`. It inherits `inherited` under the same numbers; this process closes its own copies.
    pub fn start(program: &str, arguments: &[String], inherited: Vec<OwnedFd>) -> Result<Process, Error> {
        let mut command = Command::new(program);
        // In a separate process group: a terminal signal reaches only this process, which ends QEMU when no command is in flight.
        command.process_group(0);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let numbers: Vec<RawFd> = inherited.iter().map(std::os::fd::AsRawFd::as_raw_fd).collect();
        let parent = std::process::id();
        // SAFETY: between fork and exec only system calls are made; `numbers` was allocated before.
        unsafe { command.pre_exec(move || prepare(&numbers, parent)) };
        // PR_SET_PDEATHSIG fires when the *thread* that forked ends, so a separate thread forks and lives as long as the child.
        let (tell, told) = mpsc::channel();
        std::thread::Builder::new()
            .name("qemu".into())
            .spawn(move || start_and_read(&mut command, &tell))
            .map_err(|e| Error::system("starting a thread for QEMU", e))?;
        let started = told.recv().map_err(|_| Error::Qemu(format!("{program}: the thread that starts it ended")))?;
        drop(inherited);
        let shared = started.map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => {
                Error::Qemu(format!("{program} is not installed; Debian's package is qemu-system-x86"))
            }
            _ => Error::system(format!("starting {program}"), e),
        })?;
        Ok(Process { shared })
    }

    /// Exit status, if the child ends within `patience`, and its stderr.
    pub fn ending(&self, patience: Duration) -> String {
        let until = Instant::now() + patience;
        let status = loop {
            match poison::ignore(self.shared.child.lock()).try_wait() {
                Ok(Some(status)) => break Some(status),
                Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(2)),
                _ => break None,
            }
        };
        // The thread that reads stderr may not be done yet.
        while status.is_some() && !poison::ignore(self.shared.stderr.lock()).complete && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
        let words = poison::ignore(self.shared.stderr.lock()).lines.join("; ");
        let words = if words.is_empty() { "it said nothing".into() } else { format!("it said: {words}") };
        match status {
            Some(status) => format!("it ended ({status}), {words}"),
            None => format!("it is still running, {words}"),
        }
    }

    pub fn id(&self) -> u32 {
        poison::ignore(self.shared.child.lock()).id()
    }

    pub fn kill(&self) {
        let mut child = poison::ignore(self.shared.child.lock());
        // Errors mean that it has ended already.
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs in the child between fork and exec.
fn prepare(numbers: &[RawFd], parent: u32) -> std::io::Result<()> {
    for &number in numbers {
        // SAFETY: sets a flag of a descriptor that is open.
        if unsafe { libc::fcntl(number, libc::F_SETFD, 0) } < 0 {
            return Err(std::io::Error::last_os_error());
        }
    }
    // SAFETY: a flag of this process.
    if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: only reads a number.
    if unsafe { libc::getppid() } as u32 != parent {
        return Err(std::io::Error::from_raw_os_error(libc::ESRCH));
    }
    Ok(())
}

/// Starts the child, sends it to `tell`, and reads its stderr until it ends.
fn start_and_read(command: &mut Command, tell: &mpsc::Sender<std::io::Result<Arc<Shared>>>) {
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(e) => {
            let _ = tell.send(Err(e));
            return;
        }
    };
    let stderr = child.stderr.take();
    let shared = Arc::new(Shared { child: Mutex::new(child), stderr: Mutex::default() });
    if tell.send(Ok(Arc::clone(&shared))).is_err() {
        return;
    }
    for line in stderr.into_iter().flat_map(|stderr| BufReader::new(stderr).lines()) {
        let Ok(line) = line else { break };
        let lines = &mut poison::ignore(shared.stderr.lock()).lines;
        if lines.len() == KEPT {
            lines.remove(0);
        }
        lines.push(line);
    }
    poison::ignore(shared.stderr.lock()).complete = true;
    while let Ok(None) = poison::ignore(shared.child.lock()).try_wait() {
        std::thread::sleep(Duration::from_millis(20));
    }
}

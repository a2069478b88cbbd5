//! QEMU as a child of this process: started with file descriptors that it inherits, its last words kept, ended with us.

use crate::error::Error;
use std::io::{BufRead, BufReader};
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Lines of stderr that are kept for messages.
const KEPT: usize = 20;

pub(super) struct Process {
    shared: Arc<Shared>,
}

struct Shared {
    child: Mutex<Child>,
    last_words: Mutex<LastWords>,
}

#[derive(Default)]
struct LastWords {
    lines: Vec<String>,
    /// Nothing more comes.
    all: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Process {
    /// Starts `program`. It inherits `inherited` under their own numbers; they are closed here.
    pub fn start(program: &str, arguments: &[String], inherited: Vec<OwnedFd>) -> Result<Process, Error> {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let numbers: Vec<RawFd> = inherited.iter().map(std::os::fd::AsRawFd::as_raw_fd).collect();
        let parent = std::process::id();
        // SAFETY: between fork and exec only system calls are made; `numbers` was allocated before.
        unsafe { command.pre_exec(move || prepare(&numbers, parent)) };
        // The kernel kills the child when the *thread* that started it ends: so it is started by a thread that lives as long as it.
        let (tell, told) = mpsc::channel();
        std::thread::Builder::new()
            .name("qemu".into())
            .spawn(move || keep(&mut command, &tell))
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

    /// How it ended, if it ends within `patience`, and what it said last.
    pub fn epitaph(&self, patience: Duration) -> String {
        let until = Instant::now() + patience;
        let status = loop {
            match lock(&self.shared.child).try_wait() {
                Ok(Some(status)) => break Some(status),
                Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(2)),
                _ => break None,
            }
        };
        // The thread that reads stderr may be a moment behind.
        while status.is_some() && !lock(&self.shared.last_words).all && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
        let words = lock(&self.shared.last_words).lines.join("; ");
        let words = if words.is_empty() { "it said nothing".into() } else { format!("it said: {words}") };
        match status {
            Some(status) => format!("it ended ({status}), {words}"),
            None => format!("it is still running, {words}"),
        }
    }

    pub fn id(&self) -> u32 {
        lock(&self.shared.child).id()
    }

    pub fn kill(&self) {
        let mut child = lock(&self.shared.child);
        // It may have ended already. Nothing is left to do then.
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// In the child, before it becomes QEMU.
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
    // SAFETY: asks a number.
    if unsafe { libc::getppid() } as u32 != parent {
        return Err(std::io::Error::from_raw_os_error(libc::ESRCH));
    }
    Ok(())
}

/// Starts the child, tells it, and reads what it says until it ends.
fn keep(command: &mut Command, tell: &mpsc::Sender<std::io::Result<Arc<Shared>>>) {
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(e) => {
            let _ = tell.send(Err(e));
            return;
        }
    };
    let stderr = child.stderr.take();
    let shared = Arc::new(Shared { child: Mutex::new(child), last_words: Mutex::default() });
    if tell.send(Ok(Arc::clone(&shared))).is_err() {
        return;
    }
    for line in stderr.into_iter().flat_map(|stderr| BufReader::new(stderr).lines()) {
        let Ok(line) = line else { break };
        let lines = &mut lock(&shared.last_words).lines;
        if lines.len() == KEPT {
            lines.remove(0);
        }
        lines.push(line);
    }
    lock(&shared.last_words).all = true;
    while let Ok(None) = lock(&shared.child).try_wait() {
        std::thread::sleep(Duration::from_millis(20));
    }
}

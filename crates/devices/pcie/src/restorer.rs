//! A process that restores settings if this one dies without doing so: on SIGKILL, SIGTERM, a panic that aborts.
//!
//! It is a shell that waits on a pipe whose other end only this process has. The kernel closes that end when the process ends, for any reason. The
//! shell is in a separate process group, so that Ctrl-C does not reach it. It keeps three kinds of files open until it has ended. Huge pages stay
//! open so that a device never writes into memory that already has another owner. The lock on the function stays open so that no other program
//! opens the function in the meantime. The pipe of another restorer stays open so that the other restorer waits for this one.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A text that is written into a file of /sys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Deed {
    pub path: PathBuf,
    pub text: String,
}

impl Deed {
    pub(crate) fn new(path: impl Into<PathBuf>, text: impl Into<String>) -> Deed {
        Deed { path: path.into(), text: text.into() }
    }

    pub(crate) fn run(&self) -> io::Result<()> {
        // Without O_CREAT: a missing file must not be created.
        File::options().write(true).open(&self.path)?.write_all(format!("{}\n", self.text).as_bytes())
    }
}

/// One step of giving something back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Write(Deed),
    /// Ends all DMA of the function in this folder of /sys, unless a driver has it. `command` is the lower half of its command register afterwards.
    Stop {
        folder: PathBuf,
        command: u8,
    },
}

/// One line on its input dismisses it. The end of its input makes it act. After a step that fails it still tries the next.
///
/// `stop` ends a function's DMA in three steps. It lowers the kernel's enable count, which clears bus mastering at zero. It clears the bit
/// itself, whatever the count was. It resets the function, which waits for pending transactions and clears the addresses in the registers. A
/// function without a reset gets one second instead: its transactions have arrived by then.
const SCRIPT: &str = r#"trap '' HUP INT QUIT TERM PIPE
put() { [ -e "$1" ] && printf '%s\n' "$2" 2>/dev/null >"$1"; }
stop() {
  [ -e "$1/driver" ] && return
  put "$1/enable" 0
  [ -e "$1/config" ] && printf "$2" | dd of="$1/config" bs=1 seek=4 conv=notrunc 2>/dev/null
  put "$1/reset" 1 || sleep 1
}
read -r word && exit 0
while [ $# -gt 2 ]; do
  "$1" "$2" "$3"
  shift 3
done"#;

/// The folders of `dd` and `sleep`, independent of this process's PATH.
const PROGRAMS: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// The waiting process. Drop dismisses it.
pub(crate) struct Restorer {
    shell: Child,
}

impl Restorer {
    /// Starts it. It keeps `hold` open until it has ended.
    pub(crate) fn start(steps: &[Step], hold: &[BorrowedFd<'_>]) -> io::Result<Restorer> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", SCRIPT, "pcie-restorer"]).env("PATH", PROGRAMS);
        for step in steps {
            match step {
                Step::Write(deed) => command.arg("put").arg(&deed.path).arg(&deed.text),
                Step::Stop { folder, command: byte } => command.arg("stop").arg(folder).arg(format!("\\{byte:03o}")),
            };
        }
        let held: Vec<i32> = hold.iter().map(|fd| fd.as_raw_fd()).collect();
        // SAFETY: only system calls between fork and exec, on descriptors that stay open until `spawn` has returned; the flag is the child's own.
        unsafe {
            command.pre_exec(move || {
                held.iter().try_for_each(|fd| match libc::fcntl(*fd, libc::F_SETFD, 0) {
                    0 => Ok(()),
                    _ => Err(io::Error::last_os_error()),
                })
            });
        }
        let command = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // So that it does not block unmounting the folder in which this process was started.
        let shell = command.current_dir(Path::new("/")).process_group(0).spawn()?;
        Ok(Restorer { shell })
    }

    /// A process that holds this file, too, keeps the restorer from acting.
    pub(crate) fn delay(&self) -> io::Result<Option<OwnedFd>> {
        let pipe = self.shell.stdin.as_ref();
        pipe.map(|pipe| std::os::fd::AsFd::as_fd(pipe).try_clone_to_owned()).transpose()
    }

    /// Makes it act now, and waits until then. If it is not done by then, it continues alone.
    pub(crate) fn act(mut self, until: Instant) {
        drop(self.shell.stdin.take());
        while Instant::now() < until && self.running() {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn running(&mut self) -> bool {
        matches!(self.shell.try_wait(), Ok(None))
    }
}

impl Drop for Restorer {
    fn drop(&mut self) {
        if let Some(mut pipe) = self.shell.stdin.take() {
            // One that has already ended needs no dismissal.
            let _ = pipe.write_all(b"done\n");
            drop(pipe);
            let _ = self.shell.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn scratch(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("pcie-restorer-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn it_acts_when_the_pipe_ends_and_not_when_it_is_dismissed() {
        let folder = scratch("acts");
        let deed = |name: &str| Step::Write(Deed::new(folder.join(name), "it's $HOME \\n back"));
        for name in ["a", "b", "c"] {
            fs::write(folder.join(name), "changed").unwrap();
        }
        let mut left = Restorer::start(&[deed("a"), deed("missing"), deed("b")], &[]).unwrap();
        // The kernel does this when the process dies.
        drop(left.shell.stdin.take());
        left.shell.wait().unwrap();
        for name in ["a", "b"] {
            assert_eq!(fs::read_to_string(folder.join(name)).unwrap(), "it's $HOME \\n back\n");
        }
        assert!(!folder.join("missing").exists());
        drop(Restorer::start(&[deed("c")], &[]).unwrap());
        assert_eq!(fs::read_to_string(folder.join("c")).unwrap(), "changed");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn signals_that_end_a_session_do_not_end_it() {
        let folder = scratch("signals");
        fs::write(folder.join("a"), "changed").unwrap();
        let mut left = Restorer::start(&[Step::Write(Deed::new(folder.join("a"), "back"))], &[]).unwrap();
        // The shell has set its trap once the kernel reports that it ignores SIGTERM.
        let status = format!("/proc/{}/status", left.shell.id());
        let ignores = || {
            let text = fs::read_to_string(&status).unwrap();
            let mask = text.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap().trim().to_owned();
            u64::from_str_radix(&mask, 16).unwrap() & (1 << (libc::SIGTERM - 1)) != 0
        };
        let started = std::time::Instant::now();
        while !ignores() {
            assert!(started.elapsed().as_secs() < 20, "the shell has not set its trap");
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        // SAFETY: a signal to this test's own child, which was not waited for yet.
        unsafe { libc::kill(left.shell.id() as i32, libc::SIGTERM) };
        drop(left.shell.stdin.take());
        assert!(left.shell.wait().unwrap().success());
        assert_eq!(fs::read_to_string(folder.join("a")).unwrap(), "back\n");
        fs::remove_dir_all(folder).unwrap();
    }

    /// A folder that looks like a function's, with a reset or without one.
    fn function(name: &str, reset: bool) -> PathBuf {
        let folder = scratch(name);
        fs::write(folder.join("enable"), "1").unwrap();
        fs::write(folder.join("config"), [1, 2, 3, 4, 0x06, 0x04, 7, 8]).unwrap();
        if reset {
            fs::write(folder.join("reset"), "").unwrap();
        }
        folder
    }

    #[test]
    fn a_function_is_stopped_and_one_that_a_driver_has_is_left_alone() {
        let stop = |folder: &PathBuf| {
            let mut left = Restorer::start(&[Step::Stop { folder: folder.clone(), command: 0x02 }], &[]).unwrap();
            drop(left.shell.stdin.take());
            left.shell.wait().unwrap();
        };
        let text = |folder: &PathBuf, name: &str| fs::read_to_string(folder.join(name)).unwrap();
        let folder = function("stops", true);
        stop(&folder);
        assert_eq!((text(&folder, "enable").as_str(), text(&folder, "reset").as_str()), ("0\n", "1\n"));
        assert_eq!(fs::read(folder.join("config")).unwrap(), [1, 2, 3, 4, 0x02, 0x04, 7, 8]);
        fs::remove_dir_all(&folder).unwrap();

        let folder = function("stays", true);
        fs::create_dir(folder.join("driver")).unwrap();
        stop(&folder);
        assert_eq!((text(&folder, "enable").as_str(), text(&folder, "reset").as_str()), ("1", ""));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn memory_stays_and_the_driver_waits_until_the_function_has_stopped() {
        // Without a reset a function gets a second.
        let (folder, driver) = (function("ordered", false), scratch("driver"));
        fs::write(driver.join("bind"), "").unwrap();
        let memory = File::create(folder.join("memory")).unwrap();
        let mut second = Restorer::start(&[Step::Write(Deed::new(driver.join("bind"), "at"))], &[]).unwrap();
        let delay = second.delay().unwrap().unwrap();
        let stop = Step::Stop { folder: folder.clone(), command: 0x02 };
        use std::os::fd::AsFd;
        let mut first = Restorer::start(&[stop], &[memory.as_fd(), delay.as_fd()]).unwrap();
        let holds = |id: u32, path: PathBuf| {
            let mut held = fs::read_dir(format!("/proc/{id}/fd")).unwrap().flatten();
            held.any(|entry| fs::read_link(entry.path()).is_ok_and(|to| to == path))
        };
        assert!(holds(first.shell.id(), folder.join("memory")) && !holds(second.shell.id(), folder.join("memory")));

        // The kernel does this when the process dies: for all at the same time.
        let started = Instant::now();
        drop((delay, second.shell.stdin.take(), first.shell.stdin.take()));
        second.shell.wait().unwrap();
        assert!(started.elapsed() > Duration::from_millis(900), "{:?}", started.elapsed());
        first.shell.wait().unwrap();
        assert_eq!(fs::read_to_string(driver.join("bind")).unwrap(), "at\n");
        fs::remove_dir_all(folder).unwrap();
        fs::remove_dir_all(driver).unwrap();
    }
}

//! A process that puts things back when this one dies without doing so: on SIGKILL, SIGTERM, a panic that aborts.
//!
//! It is a shell that waits on a pipe whose other end only this process has. The kernel closes that end with the process, whatever it dies
//! of. The shell is in a process group of its own, so that Ctrl-C does not reach it. What it holds open (huge pages) stays until it has ended, so a
//! device does not write into memory that has another owner already.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
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
        // Without O_CREAT: what is not there is not to be made.
        File::options().write(true).open(&self.path)?.write_all(format!("{}\n", self.text).as_bytes())
    }
}

/// One line on its input dismisses it. The end of its input makes it act; a deed that fails does not keep the next from being tried.
const SCRIPT: &str = "trap '' HUP INT QUIT TERM PIPE
read -r word && exit 0
while [ $# -gt 1 ]; do
  [ -e \"$1\" ] && printf '%s\\n' \"$2\" 2>/dev/null >\"$1\"
  shift 2
done";

/// The waiting process. Dropped, it is dismissed.
pub(crate) struct Restorer {
    shell: Child,
}

impl Restorer {
    /// Starts it. It keeps the first two of `hold` open until it has ended.
    pub(crate) fn start(deeds: &[Deed], hold: &[&File]) -> io::Result<Restorer> {
        let held = |index: usize| match hold.get(index) {
            Some(file) => Ok::<_, io::Error>(Stdio::from(file.try_clone()?)),
            None => Ok(Stdio::null()),
        };
        let mut command = Command::new("/bin/sh");
        command.args(["-c", SCRIPT, "pcie-restorer"]);
        for deed in deeds {
            command.arg(&deed.path).arg(&deed.text);
        }
        // Its standard output and error are the places for what it holds: the script writes nothing there.
        let shell = command.stdin(Stdio::piped()).stdout(held(0)?).stderr(held(1)?).process_group(0).spawn()?;
        Ok(Restorer { shell })
    }

    /// Has it act now, and waits for it until then. Where it is not done, it goes on by itself.
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
            // One that has died already needs no word.
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
        let deed = |name: &str| Deed::new(folder.join(name), "it's $HOME \\n back");
        for name in ["a", "b", "c"] {
            fs::write(folder.join(name), "changed").unwrap();
        }
        let mut left = Restorer::start(&[deed("a"), deed("missing"), deed("b")], &[]).unwrap();
        // What the kernel does when the process dies.
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
        let mut left = Restorer::start(&[Deed::new(folder.join("a"), "back")], &[]).unwrap();
        // The shell has set its trap when the kernel says that it ignores SIGTERM.
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
        // SAFETY: a signal to our own child, which was not waited for yet.
        unsafe { libc::kill(left.shell.id() as i32, libc::SIGTERM) };
        drop(left.shell.stdin.take());
        assert!(left.shell.wait().unwrap().success());
        assert_eq!(fs::read_to_string(folder.join("a")).unwrap(), "back\n");
        fs::remove_dir_all(folder).unwrap();
    }
}

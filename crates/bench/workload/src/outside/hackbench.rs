//! The scheduler under stress: hackbench of rt-tests, started repeatedly during the measurement. Groups of 20 senders and 20 receivers pass
//! messages through sockets or pipes.
//!
//! The invariant: all its processes end no later than this one. All of them are in a process group of a shell that waits for the end of a pipe
//! whose other end is here. The kernel closes that end when this process ends, for whatever reason, and the shell kills the group.

use crate::entry::{Call, Entry, Number, PLAIN, Result as Open};
use crate::{Did, Error, Opened, Subject, Unavailable, Waiting};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PIPE: &str = "pipe";
const THREADS: &str = "threads";

pub(crate) const HACKBENCH: Entry = Entry {
    name: "hackbench",
    form: "hackbench(GROUPS,pipe,threads)",
    about: "hackbench of rt-tests, once: this many groups of 40 processes that pass messages; each message counts",
    number: Some(Number { of: "groups", default: 4, least: 1, most: 100 }),
    words: &[PIPE, THREADS],
    open: |_, call, _| open(call),
    ..PLAIN
};

/// Messages of each sender to each receiver: short runs, so that the load ends soon when it should.
const LOOPS: u64 = 20;
/// Each sender sends to each receiver of its group.
const PAIRS: u64 = 20 * 20;
/// A run that takes longer is stuck.
const STUCK: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(1);

fn open<'m>(call: &Call) -> Open<'m> {
    let program = find("hackbench").ok_or_else(|| {
        Unavailable::new("hackbench is not installed: it comes with rt-tests (`apt install rt-tests`)".to_owned())
    })?;
    let mut arguments: Vec<String> = [("-g", u64::from(call.number)), ("-l", LOOPS)]
        .iter()
        .flat_map(|(key, n)| [(*key).into(), n.to_string()])
        .collect();
    arguments.extend(call.has(PIPE).then(|| "-p".to_owned()));
    arguments.extend(call.has(THREADS).then(|| "-T".to_owned()));
    Ok(Box::new(Hackbench { program, arguments, messages: u64::from(call.number) * PAIRS * LOOPS }))
}

fn find(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|folder| folder.join(name)).find(|path| path.is_file())
}

struct Hackbench {
    program: PathBuf,
    arguments: Vec<String>,
    /// Of one run.
    messages: u64,
}

impl Opened for Hackbench {
    fn about(&self) -> String {
        format!("{} {}: {} messages", self.program.display(), self.arguments.join(" "), self.messages)
    }

    fn prepare(&mut self, _seed: u64) -> Result<Box<dyn Subject + '_>, Error> {
        Ok(Box::new(Runs { group: Group::new()?, bench: self, run: None }))
    }
}

fn system(what: &str) -> impl FnOnce(std::io::Error) -> Error {
    let what = what.to_owned();
    |cause| Error::System { what, cause }
}

/// A process group that ends with this process.
struct Group {
    /// Its leader: a shell that reads until the pipe to it ends.
    shell: Child,
}

impl Group {
    fn new() -> Result<Group, Error> {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", "read end; kill -KILL 0"]).process_group(0);
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Group { shell: shell.spawn().map_err(system("/bin/sh"))? })
    }

    fn spawn(&self, command: &mut Command) -> Result<Child, Error> {
        command.process_group(self.shell.id() as i32);
        command.spawn().map_err(system(&command.get_program().to_string_lossy()))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

struct Runs<'h> {
    // The group is declared before the process that is waited for, because the group kills it.
    group: Group,
    bench: &'h Hackbench,
    run: Option<Child>,
}

impl Subject for Runs<'_> {
    fn waiting(&self) -> Waiting {
        Waiting::Called
    }

    fn fire(&mut self) -> Result<(), Error> {
        let mut command = Command::new(&self.bench.program);
        command.args(&self.bench.arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.run = Some(self.group.spawn(&mut command)?);
        Ok(())
    }

    fn poll(&mut self) -> Result<bool, Error> {
        let Some(run) = &mut self.run else { return Ok(true) };
        match run.try_wait().map_err(system("hackbench"))? {
            None => Ok(false),
            Some(status) => {
                self.run = None;
                if status.success() { Ok(true) } else { Err(Error::Told(format!("hackbench ended with {status}"))) }
            }
        }
    }

    fn wait(&mut self, _timeout: Duration) -> Result<(), Error> {
        let begun = Instant::now();
        while !self.poll()? {
            if begun.elapsed() > STUCK {
                return Err(Error::Told(format!("hackbench has not ended within {STUCK:?}")));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    fn did(&mut self) -> Did {
        Did { times: self.bench.messages, ..Did::ONCE }
    }
}

impl Drop for Runs<'_> {
    fn drop(&mut self) {
        if let Some(mut run) = self.run.take() {
            drop(self.group.shell.stdin.take());
            let _ = run.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_counts_its_messages() {
        let call = Call { name: "hackbench", number: 1, words: vec![PIPE], number_given: true, values: Vec::new() };
        let mut opened = match open(&call) {
            Ok(opened) => opened,
            Err(Error::Unavailable(why)) => test_support::skip!("{}", why.reason),
            Err(e) => panic!("{e}"),
        };
        let mut subject = opened.prepare(1).unwrap();
        subject.fire().unwrap();
        subject.wait(Duration::ZERO).unwrap();
        assert_eq!(subject.did().times, 20 * 20 * LOOPS);
        // It is dropped while it runs: the group is killed, and its end is not waited for.
        subject.fire().unwrap();
    }

    /// Whether the process exists and is not a zombie.
    fn runs(pid: u32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
    }

    #[test]
    fn a_group_ends_with_the_pipe_to_it() {
        let group = Group::new().unwrap();
        let mut sleeper = group.spawn(Command::new("sleep").arg("1000")).unwrap();
        assert!(runs(sleeper.id()));
        // As the kernel does when this process is killed.
        drop(group);
        let status = sleeper.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGKILL));
    }
}

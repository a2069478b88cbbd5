//! The libraries that are loaded into the program, and the command that starts it with them.
//!
//! Invariant: except for doorbell's variables, which the agent removes, the program starts with what the recorder got:
//! the environment entry by entry, and blocked and ignored signals.

use crate::place::{Place, SharedFile};
use crate::program::Program;
use crate::record::RecordError;
use std::ffi::{CStr, CString, OsString, c_char};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use tape::session::environment;

/// Kept until the program has loaded them.
pub struct Preload {
    agent: SharedFile,
    soft: Option<SharedFile>,
    /// A further library, by its path.
    beside: Option<String>,
}

impl Preload {
    /// The bytes of the agent, and of the software GPU if the program is to use it.
    pub fn new(place: &Place, agent: &[u8], soft: Option<&[u8]>) -> io::Result<Preload> {
        let agent = place.file(c"doorbell-agent.so", agent, 0, 0o755)?;
        let soft = soft.map(|b| place.file(c"doorbell-softgpu.so", b, 0, 0o755)).transpose()?;
        Ok(Preload { agent, soft, beside: None })
    }

    /// Loads this library, too, after the agent.
    pub fn beside(self, library: Option<String>) -> Preload {
        Preload { beside: library, ..self }
    }

    /// Starts `program` with `words`, its name and arguments. `place`: the variable that names the session or the board, and
    /// its value. If the agent is not to be loaded, the program gets its own environment.
    pub fn command(&self, program: &Program, words: &[OsString], place: (&str, &str)) -> Command {
        let mut libraries = self.agent.path.clone();
        for further in self.soft.iter().map(|soft| &soft.path).chain(&self.beside) {
            libraries = format!("{libraries}:{further}");
        }
        start(program, words, (!program.is_static).then_some((libraries.as_str(), place)))
    }
}

/// Runs a program without doorbell, in this process. Returns only if it cannot be executed.
pub fn run_alone(words: &[OsString]) -> RecordError {
    let name = words.first().cloned().unwrap_or_default();
    match Program::find(&name) {
        Ok(program) => {
            let cause = start(&program, words, None).exec();
            RecordError::Start { path: program.path, cause }
        }
        Err(e) => e.into(),
    }
}

/// Starts `program` with `words`, its name and arguments. `with`: as for [`Strings::new`].
fn start(program: &Program, words: &[OsString], with: Option<(&str, (&str, &str))>) -> Command {
    let name = words.first().cloned().unwrap_or_default();
    let mut command = Command::new(&program.path);
    command.arg0(program.arg0.as_ref().unwrap_or(&name)).args(&program.first_args);
    command.args(words.get(1..).unwrap_or(&[]));
    let strings = Strings::new(&own_environment(), with);
    let (blocked, no_pipe_signal) = (blocked(), PIPE_IGNORED.load(Ordering::Relaxed));
    let closed = CLOSED.load(Ordering::Relaxed);
    // SAFETY: the child has this process's memory, and so the strings. All calls are allowed between fork and exec. (std
    // takes the environment from libc's variable if the command has no own one. It set the mask and SIGPIPE earlier.)
    unsafe {
        command.pre_exec(move || {
            environ = strings.array();
            libc::pthread_sigmask(libc::SIG_SETMASK, &blocked, std::ptr::null_mut());
            if no_pipe_signal {
                libc::signal(libc::SIGPIPE, libc::SIG_IGN);
            }
            for fd in (0..3).filter(|fd| closed >> fd & 1 == 1) {
                libc::close(fd);
            }
            Ok(())
        });
    }
    command
}

unsafe extern "C" {
    static mut environ: *const *const c_char;
}

/// The entries of this process's environment as they are. std shows neither duplicates nor entries without a name.
fn own_environment() -> Vec<CString> {
    let mut out = Vec::new();
    // SAFETY: libc's array, which no code here changes.
    unsafe {
        let mut at = environ;
        while !at.is_null() && !(*at).is_null() {
            out.push(CStr::from_ptr(*at).to_owned());
            at = at.add(1);
        }
    }
    out
}

/// An environment to start a program with.
struct Strings {
    strings: Vec<CString>,
    array: Vec<usize>,
}

impl Strings {
    /// `own`, then the variables that load the agent, if it is to be loaded: the libraries, and session or board.
    fn new(own: &[CString], agent: Option<(&str, (&str, &str))>) -> Strings {
        let is = |entry: &CString, name: &str| {
            entry.to_bytes().strip_prefix(name.as_bytes()).is_some_and(|rest| rest.starts_with(b"="))
        };
        let names = [environment::SESSION, environment::BOARD, environment::PRELOAD];
        let mut strings: Vec<_> = own.iter().filter(|e| !names.iter().any(|n| is(e, n))).cloned().collect();
        if let Some((libraries, (name, place))) = agent {
            // The loader uses the last one.
            let theirs = own.iter().rfind(|e| is(e, "LD_PRELOAD")).map(|e| &e.to_bytes()["LD_PRELOAD=".len()..]);
            let mut preload = b"LD_PRELOAD=".to_vec();
            if let Some(theirs) = theirs {
                preload.extend_from_slice(theirs);
                preload.push(b':');
            }
            preload.extend_from_slice(libraries.as_bytes());
            let ours =
                [format!("{}={libraries}", environment::PRELOAD).into(), format!("{name}={place}").into(), preload];
            // (None of them has a NUL in it: they contain names, numbers, and the text of C strings.)
            strings.extend(ours.into_iter().filter_map(|s| CString::new(s).ok()));
        }
        let array = strings.iter().map(|s| s.as_ptr() as usize).chain([0]).collect();
        Strings { strings, array }
    }

    fn array(&self) -> *const *const c_char {
        debug_assert_eq!(self.strings.len() + 1, self.array.len());
        self.array.as_ptr().cast()
    }
}

/// This thread's signal mask.
fn blocked() -> libc::sigset_t {
    // SAFETY: all zero is a set, and the call only reads the mask.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &mut set);
        set
    }
}

/// SIGPIPE was ignored when this process began. (std always ignores it, and gives programs the default.)
static PIPE_IGNORED: AtomicBool = AtomicBool::new(false);

/// Bits of the standard descriptors that were closed when this process began. (std opens them on /dev/null.)
static CLOSED: AtomicU32 = AtomicU32::new(0);

extern "C" fn look_at_what_was_inherited() {
    // SAFETY: the calls only read.
    unsafe {
        let mut d: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGPIPE, std::ptr::null(), &mut d) == 0 {
            PIPE_IGNORED.store(d.sa_sigaction == libc::SIG_IGN, Ordering::Relaxed);
        }
        let is_closed = |fd: &i32| libc::fcntl(*fd, libc::F_GETFD) < 0;
        CLOSED.store((0..3).filter(is_closed).fold(0, |bits, fd| bits | 1 << fd), Ordering::Relaxed);
    }
}

/// Runs before std begins.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look_at_what_was_inherited;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_gets_our_environment_as_it_is_and_the_agent_behind_it() {
        let own = ["Z=1", "A=1", "A=2", "noequal", "=x", "LD_PRELOAD=a.so", "LD_PRELOAD=b.so", "DOORBELL_SESSION=old"];
        let own = own.map(|s| CString::new(s).unwrap());
        let text = |s: &Strings| s.strings.iter().map(|s| s.to_str().unwrap().to_owned()).collect::<Vec<_>>();
        let bare = Strings::new(&own, None);
        assert_eq!(text(&bare), ["Z=1", "A=1", "A=2", "noequal", "=x", "LD_PRELOAD=a.so", "LD_PRELOAD=b.so"]);
        let with = Strings::new(&own, Some(("/proc/1/fd/3", ("DOORBELL_SESSION", "new"))));
        let ours = ["DOORBELL_PRELOAD=/proc/1/fd/3", "DOORBELL_SESSION=new", "LD_PRELOAD=b.so:/proc/1/fd/3"];
        assert_eq!(text(&with), [&text(&bare)[..], &ours.map(str::to_owned)].concat());
    }
}

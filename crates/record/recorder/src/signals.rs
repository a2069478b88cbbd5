//! What signals to the recorder mean while a program runs.
//!
//! It outlives what is meant for the program: SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 are passed on, and SIGINT and SIGQUIT where
//! a process sent them: from the terminal they reach the program by themselves. Once it has ended, any of them ends the wait
//! for the processes that it left behind. A signal that was ignored when we started stays ignored, by us and by the
//! program (`nohup`); the program's own dispositions are those it would have without us.
//! Where the user asked for it, SIGUSR2 begins and ends pauses instead, and SIGUSR1 saves what a flight recorder has.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

static PROGRAM: AtomicI32 = AtomicI32::new(0);
/// Signals that came before there was a program to take them: a bit each.
static EARLY: AtomicU64 = AtomicU64::new(0);

/// The program has ended, and a signal came after that.
static OVER: AtomicBool = AtomicBool::new(false);
static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// The user wants a pause to begin or to end.
static TOGGLED: AtomicBool = AtomicBool::new(false);

/// The user wants a file of what is in memory.
static SAVE: AtomicBool = AtomicBool::new(false);

extern "C" fn save(_: libc::c_int) {
    SAVE.store(true, Ordering::SeqCst);
}

extern "C" fn toggle(_: libc::c_int) {
    TOGGLED.store(true, Ordering::SeqCst);
}

/// What the terminal sends goes to the program, too, which is in the same group.
extern "C" fn pass_on_if_sent(signal: libc::c_int, info: *const libc::siginfo_t, _: *const libc::c_void) {
    // SAFETY: the kernel's, of this signal. Codes above 0 are the kernel's own.
    if OVER.load(Ordering::SeqCst) || unsafe { (*info).si_code } <= 0 {
        pass_on(signal);
    }
}

extern "C" fn pass_on(signal: libc::c_int) {
    if OVER.load(Ordering::SeqCst) {
        INTERRUPTED.store(true, Ordering::SeqCst);
        return;
    }
    let bit = 1u64 << (signal & 63);
    EARLY.fetch_or(bit, Ordering::SeqCst);
    let pid = PROGRAM.load(Ordering::SeqCst);
    if pid > 0 && EARLY.fetch_and(!bit, Ordering::SeqCst) & bit != 0 {
        // SAFETY: kill may be called in a handler.
        unsafe { libc::kill(pid, signal) };
    }
}

extern "C" fn stay(_: libc::c_int) {}

/// While it lives, signals are handled as the head of this module says.
pub struct Signals {
    before: Vec<(libc::c_int, libc::sigaction)>,
    child_ignored: bool,
}

/// While it lives, a file over the size limit is an error to be told, not a death.
pub fn survive_file_size_limit() -> Signals {
    let mut s = Signals { before: Vec::new(), child_ignored: false };
    s.set(libc::SIGXFSZ, stay as *const () as libc::sighandler_t);
    s
}

impl Signals {
    /// `toggles`: SIGUSR2 begins and ends pauses; `saves`: SIGUSR1 has memory saved. Neither is passed on then.
    pub fn handle(toggles: bool, saves: bool) -> Signals {
        let mut s = Signals { before: Vec::new(), child_ignored: false };
        EARLY.store(0, Ordering::SeqCst);
        OVER.store(false, Ordering::SeqCst);
        INTERRUPTED.store(false, Ordering::SeqCst);
        TOGGLED.store(false, Ordering::SeqCst);
        SAVE.store(false, Ordering::SeqCst);
        for signal in [libc::SIGTERM, libc::SIGHUP] {
            s.set(signal, pass_on as *const () as libc::sighandler_t);
        }
        let ours = [(libc::SIGUSR2, toggles, toggle as *const ()), (libc::SIGUSR1, saves, save as *const ())];
        for (signal, is_ours, handler) in ours {
            let handler = if is_ours { handler } else { pass_on as *const () };
            s.set(signal, handler as libc::sighandler_t);
            if is_ours {
                // For good: one that comes while the recording is being closed must not end us.
                s.before.retain(|(before, _)| *before != signal);
            }
        }
        for signal in [libc::SIGINT, libc::SIGQUIT] {
            s.set(signal, pass_on_if_sent as *const () as libc::sighandler_t);
        }
        // An ignored SIGCHLD would take the program's exit status from us.
        if disposition(libc::SIGCHLD).is_some_and(|d| d.sa_sigaction == libc::SIG_IGN) {
            s.child_ignored = true;
            s.install(libc::SIGCHLD, libc::SIG_DFL);
        }
        s
    }

    /// Handlers (unlike ignored signals) are reset by exec, so the program starts with its own.
    fn set(&mut self, signal: libc::c_int, handler: libc::sighandler_t) {
        if disposition(signal).is_some_and(|d| d.sa_sigaction != libc::SIG_IGN) {
            self.install(signal, handler);
        }
    }

    fn install(&mut self, signal: libc::c_int, handler: libc::sighandler_t) {
        // SAFETY: zeroed is a sigaction without flags and with an empty mask; the handlers may run at any time, with the three
        // arguments that SA_SIGINFO gives those that take them.
        unsafe {
            let mut new: libc::sigaction = std::mem::zeroed();
            new.sa_sigaction = handler;
            new.sa_flags = libc::SA_RESTART | libc::SA_SIGINFO;
            let mut old: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(signal, &new, &mut old) == 0 {
                self.before.push((signal, old));
            }
        }
    }

    /// Has the program start with the dispositions that we were started with.
    pub fn prepare(&self, command: &mut Command) {
        if self.child_ignored {
            // SAFETY: signal may be called between fork and exec.
            unsafe {
                command.pre_exec(|| {
                    libc::signal(libc::SIGCHLD, libc::SIG_IGN);
                    Ok(())
                })
            };
        }
    }

    /// The program runs: signals go to it, those that came before it too. `None`: it has ended, and they are for us.
    pub fn program(&self, pid: Option<i32>) {
        let Some(pid) = pid else {
            OVER.store(true, Ordering::SeqCst);
            PROGRAM.store(0, Ordering::SeqCst);
            return;
        };
        PROGRAM.store(pid, Ordering::SeqCst);
        let early = EARLY.swap(0, Ordering::SeqCst);
        for signal in (1..64).filter(|s| early >> s & 1 != 0) {
            // SAFETY: our own child, not yet waited for.
            unsafe { libc::kill(pid, signal) };
        }
    }
}

impl Signals {
    /// The user wants a pause to begin or to end. Says it once.
    pub fn toggled(&self) -> bool {
        TOGGLED.swap(false, Ordering::SeqCst)
    }

    /// The user wants a file of what is in memory. Says it once.
    pub fn saves(&self) -> bool {
        SAVE.swap(false, Ordering::SeqCst)
    }

    /// A signal came after the program had ended: somebody wants an end of it.
    pub fn interrupted(&self) -> bool {
        INTERRUPTED.load(Ordering::SeqCst)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        PROGRAM.store(0, Ordering::SeqCst);
        // The latest first, should one have been set twice.
        for (signal, before) in self.before.iter().rev() {
            // SAFETY: what was in force before us.
            unsafe { libc::sigaction(*signal, before, std::ptr::null_mut()) };
        }
    }
}

fn disposition(signal: libc::c_int) -> Option<libc::sigaction> {
    // SAFETY: asks only.
    unsafe {
        let mut d: libc::sigaction = std::mem::zeroed();
        (libc::sigaction(signal, std::ptr::null(), &mut d) == 0).then_some(d)
    }
}

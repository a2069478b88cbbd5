//! The meaning of signals to the recorder while a program runs.
//!
//! The recorder survives signals for the program, and passes them on: those that end a process by default ([`ENDING`], and the
//! real-time ones), SIGCONT, and the ones of [`TERMINALS`]. The last are passed on only if a process sent them, because the
//! terminal sends them to the program itself. After the program has ended, a signal that ends a process ends the wait for the
//! processes that it left. A signal that was ignored when the recorder started stays ignored in the recorder and in the program
//! (`nohup`). The program has the dispositions that it would have without doorbell. After a fault of its own, and at its limit of
//! CPU time, the recorder only waits for the program, and ends with its status. If the user requested it, SIGUSR2 begins and ends
//! pauses instead. A flight recorder has a signal that saves its memory, unless the program handles this signal itself: then it is
//! passed on.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

static PROGRAM: AtomicI32 = AtomicI32::new(0);
/// Signals that arrived before there was a program to receive them, one bit each.
static EARLY: AtomicU64 = AtomicU64::new(0);

/// The program has ended. INTERRUPTED: a signal arrived after that.
static OVER: AtomicBool = AtomicBool::new(false);
static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// The user requested that a pause begin or end.
static TOGGLED: AtomicBool = AtomicBool::new(false);

/// The user requested a file of the events in memory.
static SAVE: AtomicBool = AtomicBool::new(false);

extern "C" fn save(_: libc::c_int) {
    SAVE.store(true, Ordering::SeqCst);
}

extern "C" fn toggle(_: libc::c_int) {
    TOGGLED.store(true, Ordering::SeqCst);
}

/// The terminal sends its signals also to the program, which is in the same group.
extern "C" fn pass_on_if_sent(signal: libc::c_int, info: *const libc::siginfo_t, context: *const libc::c_void) {
    if OVER.load(Ordering::SeqCst) || is_sent(info) {
        pass_on(signal, info, context);
    }
}

/// True if a process sent it.
fn is_sent(info: *const libc::siginfo_t) -> bool {
    // SAFETY: the kernel's pointer, for this signal. Codes above 0 are the kernel's own.
    unsafe { (*info).si_code <= 0 }
}

/// What the program itself sends to its group (`kill(0, ..)`) has arrived there already. (A sender in an outer pid namespace has number 0.)
fn is_the_programs(info: *const libc::siginfo_t, program: i32) -> bool {
    // SAFETY: the kernel's pointer, for this signal; a signal that a process sent has a sender.
    program > 0 && is_sent(info) && unsafe { (*info).si_pid() } == program
}

extern "C" fn pass_on(signal: libc::c_int, info: *const libc::siginfo_t, _: *const libc::c_void) {
    if OVER.load(Ordering::SeqCst) || !is_the_programs(info, PROGRAM.load(Ordering::SeqCst)) {
        hand_over(signal);
    }
}

fn hand_over(signal: libc::c_int) {
    if OVER.load(Ordering::SeqCst) {
        let ends = ![libc::SIGCONT, libc::SIGTSTP, libc::SIGWINCH, libc::SIGURG].contains(&signal);
        INTERRUPTED.fetch_or(ends, Ordering::SeqCst);
        return;
    }
    let bit = 1u64 << (signal - 1);
    EARLY.fetch_or(bit, Ordering::SeqCst);
    let pid = PROGRAM.load(Ordering::SeqCst);
    if pid > 0 && EARLY.fetch_and(!bit, Ordering::SeqCst) & bit != 0 {
        // SAFETY: kill may be called in a handler.
        unsafe { libc::kill(pid, signal) };
    }
}

/// A real-time signal has a value, and each one counts.
extern "C" fn pass_on_value(signal: libc::c_int, info: *const libc::siginfo_t, context: *const libc::c_void) {
    let pid = PROGRAM.load(Ordering::SeqCst);
    // SAFETY: the kernel's pointer, for this signal; sigqueue may be called in a handler.
    unsafe {
        if pid <= 0 || (*info).si_code != libc::SI_QUEUE || libc::sigqueue(pid, signal, (*info).si_value()) != 0 {
            pass_on(signal, info, context);
        }
    }
}

/// The recorder stops with the program: whoever waits for it learns that.
extern "C" fn stop(signal: libc::c_int, info: *const libc::siginfo_t, context: *const libc::c_void) {
    if is_sent(info) {
        pass_on(signal, info, context);
    }
    // SAFETY: plain structs; calls that a handler may make.
    unsafe {
        let (mut default, mut ours): (libc::sigaction, libc::sigaction) = std::mem::zeroed();
        default.sa_sigaction = libc::SIG_DFL;
        libc::sigaction(signal, &default, &mut ours);
        libc::raise(signal);
        let (mut set, mut before): (libc::sigset_t, libc::sigset_t) = std::mem::zeroed();
        libc::sigaddset(&mut set, signal);
        // (It stops here.)
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, &mut before);
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        libc::sigaction(signal, &ours, std::ptr::null_mut());
    }
}

/// Signals that end a process by default, and that a launcher or an earlier `alarm` may send.
const ENDING: [libc::c_int; 10] = [
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGIO,
    libc::SIGPWR,
    libc::SIGSTKFLT,
];

/// Signals that the terminal, or the kernel for a file, sends to the program itself.
const TERMINALS: [libc::c_int; 4] = [libc::SIGINT, libc::SIGQUIT, libc::SIGWINCH, libc::SIGURG];

extern "C" fn stay(_: libc::c_int) {}

/// Faults that would end the recorder, and its limit of CPU time. (Memory that cannot be had ends in SIGABRT.)
const FAULTS: [libc::c_int; 5] = [libc::SIGABRT, libc::SIGSEGV, libc::SIGILL, libc::SIGFPE, libc::SIGXCPU];

/// The status of the program that has ended, as wait gives it; [`NOT_ENDED`] before.
static STATUS: AtomicI32 = AtomicI32::new(NOT_ENDED);
const NOT_ENDED: i32 = -1;

/// A fault of the recorder's own, or its limit of CPU time. Another process may send these signals for the program (systemd's
/// watchdog, a batch system).
extern "C" fn fault(signal: libc::c_int, info: *const libc::siginfo_t, context: *const libc::c_void) {
    // SAFETY: the kernel's pointer, for this signal. (`abort` sends to its own process.)
    if is_sent(info) && unsafe { (*info).si_pid() != libc::getpid() } {
        pass_on(signal, info, context);
    } else {
        outlive(signal);
    }
}

/// After a fault nothing more is recorded, but whoever waits for this process still gets the program's status.
pub extern "C" fn outlive(signal: libc::c_int) {
    let pid = PROGRAM.load(Ordering::SeqCst);
    let text = match signal {
        libc::SIGXCPU => {
            &b"doorbell: its limit of CPU time (ulimit -t): the program goes on, its recording has no end\n"[..]
        }
        _ => b"doorbell: a fault of its own, perhaps a lack of memory: the program goes on, its recording has no end\n",
    };
    // SAFETY: calls that a handler may make; a child of this process.
    unsafe {
        if pid <= 0 && STATUS.load(Ordering::SeqCst) == NOT_ENDED {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
            return;
        }
        libc::write(2, text.as_ptr().cast(), text.len());
        let mut raw = 0;
        // (Another thread may have waited for it, and stores its status.)
        while pid > 0 && libc::waitpid(pid, &mut raw, 0) != pid && STATUS.load(Ordering::SeqCst) == NOT_ENDED {
            libc::poll(std::ptr::null_mut(), 0, 10);
        }
        let raw = match STATUS.load(Ordering::SeqCst) {
            NOT_ENDED => raw,
            known => known,
        };
        libc::_exit(if libc::WIFEXITED(raw) { libc::WEXITSTATUS(raw) } else { 128 + libc::WTERMSIG(raw) });
    }
}

/// While it lives, signals are handled as the head of this module describes.
pub struct Signals {
    before: Vec<(libc::c_int, libc::sigaction)>,
    child_ignored: bool,
}

/// While it lives, a page that is gone from a shared file reads as zeros, and does not end the recorder.
pub fn survive_lost_memory() -> Signals {
    let mut s = Signals { before: Vec::new(), child_ignored: false };
    s.set(libc::SIGBUS, crate::memory::replace_lost_page as *const () as libc::sighandler_t);
    s
}

/// While it lives, a file over the size limit is a reported error, not the recorder's death.
pub fn survive_file_size_limit() -> Signals {
    let mut s = Signals { before: Vec::new(), child_ignored: false };
    s.set(libc::SIGXFSZ, stay as *const () as libc::sighandler_t);
    s
}

impl Signals {
    /// `toggles`: SIGUSR2 begins and ends pauses, and is not passed on. `saves`: this signal saves memory ([`Signals::saves`]).
    pub fn handle(toggles: bool, saves: Option<libc::c_int>) -> Signals {
        let mut s = Signals { before: Vec::new(), child_ignored: false };
        EARLY.store(0, Ordering::SeqCst);
        OVER.store(false, Ordering::SeqCst);
        INTERRUPTED.store(false, Ordering::SeqCst);
        TOGGLED.store(false, Ordering::SeqCst);
        SAVE.store(false, Ordering::SeqCst);
        STATUS.store(NOT_ENDED, Ordering::SeqCst);
        for signal in FAULTS {
            s.set(signal, fault as *const () as libc::sighandler_t);
        }
        for signal in libc::SIGRTMIN()..=libc::SIGRTMAX() {
            s.set(signal, pass_on_value as *const () as libc::sighandler_t);
        }
        s.set(libc::SIGCONT, pass_on as *const () as libc::sighandler_t);
        s.set(libc::SIGTSTP, stop as *const () as libc::sighandler_t);
        for signal in ENDING {
            let ours = match signal {
                libc::SIGUSR2 if toggles => Some(toggle as *const ()),
                _ if saves == Some(signal) => Some(save as *const ()),
                _ => None,
            };
            s.set(signal, ours.unwrap_or(pass_on as *const ()) as libc::sighandler_t);
            if ours.is_some() {
                // Never restored: a signal while the recording is being closed must not end the recorder.
                s.before.retain(|(before, _)| *before != signal);
            }
        }
        for signal in TERMINALS {
            s.set(signal, pass_on_if_sent as *const () as libc::sighandler_t);
        }
        // With SIGCHLD ignored, the recorder could not get the program's exit status.
        if disposition(libc::SIGCHLD).is_some_and(|d| d.sa_sigaction == libc::SIG_IGN) {
            s.child_ignored = true;
            s.install(libc::SIGCHLD, libc::SIG_DFL);
        }
        s
    }

    /// An exec resets handlers (unlike ignored signals), so the program starts with its own.
    fn set(&mut self, signal: libc::c_int, handler: libc::sighandler_t) {
        if disposition(signal).is_some_and(|d| d.sa_sigaction != libc::SIG_IGN) {
            self.install(signal, handler);
        }
    }

    fn install(&mut self, signal: libc::c_int, handler: libc::sighandler_t) {
        // SAFETY: zeroed is a sigaction without flags and with an empty mask. The handlers may run at any time, and those that
        // take three arguments get them from SA_SIGINFO.
        unsafe {
            let mut new: libc::sigaction = std::mem::zeroed();
            new.sa_sigaction = handler;
            // (A fault may be that of a full stack.)
            new.sa_flags = libc::SA_RESTART | libc::SA_SIGINFO | libc::SA_ONSTACK;
            let mut old: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(signal, &new, &mut old) == 0 {
                self.before.push((signal, old));
            }
        }
    }

    /// Makes the program start with the dispositions that the recorder was started with.
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

    /// The program has ended with this status.
    pub fn ended(&self, status: ExitStatus) {
        STATUS.store(status.into_raw(), Ordering::SeqCst);
    }

    /// The program runs: it gets signals from now on, and those that arrived earlier. `None`: it has ended, and signals
    /// are for the recorder.
    pub fn program(&self, pid: Option<i32>) {
        let Some(pid) = pid else {
            OVER.store(true, Ordering::SeqCst);
            PROGRAM.store(0, Ordering::SeqCst);
            return;
        };
        PROGRAM.store(pid, Ordering::SeqCst);
        let early = EARLY.swap(0, Ordering::SeqCst);
        for signal in (1..=64).filter(|s| early >> (s - 1) & 1 != 0) {
            // SAFETY: this process's own child, not yet waited for.
            unsafe { libc::kill(pid, signal) };
        }
    }
}

impl Signals {
    /// Whether the user requested that a pause begin or end. True once for each request.
    pub fn toggled(&self) -> bool {
        TOGGLED.swap(false, Ordering::SeqCst)
    }

    /// Whether the user requested a file of the events in memory, by this signal. True once for each request. A signal that the
    /// program handles is no request: the program gets it.
    pub fn saves(&self, signal: libc::c_int) -> bool {
        if !SAVE.swap(false, Ordering::SeqCst) {
            return false;
        }
        let pid = PROGRAM.load(Ordering::SeqCst);
        let is_theirs = pid > 0 && crate::processes::handles(pid, signal);
        if is_theirs {
            hand_over(signal);
        }
        !is_theirs
    }

    /// A signal arrived after the program had ended: the user wants the recording to end.
    pub fn interrupted(&self) -> bool {
        INTERRUPTED.load(Ordering::SeqCst)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        PROGRAM.store(0, Ordering::SeqCst);
        // The latest first, in case one was set twice.
        for (signal, before) in self.before.iter().rev() {
            // SAFETY: restores the previous disposition.
            unsafe { libc::sigaction(*signal, before, std::ptr::null_mut()) };
        }
    }
}

fn disposition(signal: libc::c_int) -> Option<libc::sigaction> {
    // SAFETY: the call only reads the disposition.
    unsafe {
        let mut d: libc::sigaction = std::mem::zeroed();
        (libc::sigaction(signal, std::ptr::null(), &mut d) == 0).then_some(d)
    }
}

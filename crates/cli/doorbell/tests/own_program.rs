//! Programs with their own signal handlers, masks, forks and execs: they must not notice that they are recorded.
//!
//! The programs are the ignored tests below (`plays_..`): this file's binary is started again as the program to be recorded.
//! It has no software GPU linked into it, so it finds the preloaded one as any program would.

mod work;

use gpu::{Pushbuffer, Semaphores, Site};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use test_support::finished;
use work::{SAYS, Work, say};

/// Longer than any step here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

// ---- the tests

fn doorbell() -> Command {
    Command::new(assert_cmd::cargo::cargo_bin!("doorbell"))
}

/// One of the programs below, recorded, and the summary of its tape.
struct Recorded {
    out: Output,
    summary: Value,
}

impl Recorded {
    fn text(&self) -> String {
        format!("{}{}", String::from_utf8_lossy(&self.out.stdout), String::from_utf8_lossy(&self.out.stderr))
    }

    fn said(&self, what: &str) -> u64 {
        let text = self.text();
        let line = text.lines().find_map(|l| l.split_once(SAYS)?.1.strip_prefix(what));
        line.and_then(|l| l.trim().parse().ok()).unwrap_or_else(|| panic!("it did not say {what}: {text}"))
    }

    fn number(&self, pointer: &str) -> u64 {
        let n = self.summary.pointer(pointer).and_then(Value::as_u64);
        n.unwrap_or_else(|| panic!("{pointer} is no number in {}", self.summary))
    }

    /// Everything that the program submitted is on the tape.
    fn whole(&self, what: &str) {
        assert_eq!(self.number("/lost"), 0, "{what}: {}", self.summary["lost_detail"]);
        assert_eq!(self.number("/entries"), self.said("entries"), "{what}");
        assert_eq!(self.number("/lost_detail/strangers"), 0, "{what}");
    }
}

fn record(dir: &Path, tap: &str, program: &str, set: &[(&str, &str)]) -> Recorded {
    record_with(dir, tap, program, set, &[])
}

fn record_with(dir: &Path, tap: &str, program: &str, set: &[(&str, &str)], arguments: &[&str]) -> Recorded {
    let tape = dir.join(format!("{program}.{tap}.doorbell"));
    let mut command = doorbell();
    command.args(["record", "--force", "--gpu", "soft", "--tap", tap, "-o"]).arg(&tape).args(arguments).arg("--");
    let test = format!("plays_{program}");
    command.arg(std::env::current_exe().unwrap()).args([&test, "--exact", "--ignored", "--nocapture"]);
    let out = finished(command.envs(set.iter().copied()), &format!("{program} under {tap}"));
    let shown = finished(doorbell().args(["show", "--summary", "--json"]).arg(&tape), "show");
    let summary = serde_json::from_slice(&shown.stdout).unwrap_or_default();
    Recorded { out, summary }
}

fn under_each_tap(program: &str, check: impl Fn(&Recorded, &str)) {
    let dir = tempfile::tempdir().unwrap();
    for tap in ["trap", "patch"] {
        let what = format!("{program} under {tap}");
        check(&record(dir.path(), tap, program, &[]), &what);
    }
}

fn succeeds(program: &str) {
    under_each_tap(program, |r, what| {
        assert_eq!(r.out.status.code(), Some(0), "{what}: {}", r.text());
        assert!(r.text().contains("test result: ok. 1 passed"), "{what}: the program did not run: {}", r.text());
        r.whole(what);
    });
}

#[test]
fn handlers_that_were_there_before_the_gpu_go_on_working() {
    succeeds("handlers_before");
}

/// The kernel's frame of a trap alone may be longer than the stack that the program gave its handlers.
#[test]
fn an_alternate_stack_of_the_least_size_is_enough() {
    succeeds("small_alternate_stack");
}

#[test]
fn handlers_that_come_later_are_called_and_told_of() {
    succeeds("handlers_later");
}

#[test]
fn doorbells_are_seen_while_every_signal_is_blocked() {
    succeeds("all_blocked");
}

/// As Go with C does: libc blocks all signals before a thread is made, and the thread unblocks them by a system call.
#[test]
fn a_mask_that_changes_past_libc_is_the_one_that_counts() {
    succeeds("mask_past_libc");
}

#[test]
fn a_signal_that_the_program_blocks_waits_until_it_does_not() {
    succeeds("blocked_signal_waits");
}

#[test]
fn whoever_waits_for_room_in_a_full_ring_sees_the_gpu_take_entries() {
    succeeds("full_ring");
}

#[test]
fn an_instruction_that_no_tap_understands_rings_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    for tap in ["trap", "patch"] {
        // The strict software GPU would not decode it either.
        let r = record(dir.path(), tap, "exchange", &[("DOORBELL_SOFTGPU", "poll")]);
        assert_eq!(r.out.status.code(), Some(0), "{tap}: {}", r.text());
        assert!(r.text().contains("test result: ok. 1 passed"), "{tap}: the program did not run: {}", r.text());
        assert!(r.summary["trouble"].to_string().contains("could not be decoded"), "{tap}: {}", r.summary["trouble"]);
    }
}

#[test]
fn a_doorbell_makes_no_system_call() {
    let dir = tempfile::tempdir().unwrap();
    // The strict software GPU traps: its signals are system calls.
    let rings = ["--ring", "1MiB", "--on-full", "wait"];
    let r = record_with(dir.path(), "patch", "quiet", &[("DOORBELL_SOFTGPU", "poll")], &rings);
    assert_eq!(r.out.status.code(), Some(0), "{}", r.text());
    assert!(r.text().contains("test result: ok. 1 passed"), "the program did not run: {}", r.text());
    r.whole("quiet");
}

#[test]
fn a_handler_may_ring() {
    succeeds("handler_rings");
}

#[test]
fn signals_that_arrive_between_doorbells_disturb_nothing() {
    succeeds("timer_and_doorbells");
}

#[test]
fn a_fault_of_the_programs_own_kills_it_as_ever() {
    under_each_tap("dies_of_its_own_fault", |r, what| {
        assert_eq!(r.out.status.code(), Some(139), "{what}: {}", r.text());
        r.whole(what);
        assert_eq!(r.number("/end/signal"), 11, "{what}");
    });
}

#[test]
fn an_exit_without_clean_up_leaves_a_whole_tape() {
    under_each_tap("exits_at_once", |r, what| {
        assert_eq!(r.out.status.code(), Some(3), "{what}: {}", r.text());
        r.whole(what);
    });
}

#[test]
fn a_forked_child_does_not_write_to_its_parents_tape() {
    let dir = tempfile::tempdir().unwrap();
    for tap in ["trap", "patch"] {
        let what = format!("fork under {tap}");
        let quiet = record(dir.path(), tap, "forks", &[("CHILD_CALLS", "0")]);
        let busy = record(dir.path(), tap, "forks", &[("CHILD_CALLS", "500")]);
        for r in [&quiet, &busy] {
            assert_eq!(r.out.status.code(), Some(0), "{what}: {}", r.text());
            r.whole(&what);
        }
        // A child that does not use the driver has no row in the recording. One that does is a separate process, and its parent's
        // rows are as without it.
        let rows = |r: &Recorded| r.summary["processes"].as_array().cloned().unwrap_or_default();
        let (quiet_rows, busy_rows) = (rows(&quiet), rows(&busy));
        assert_eq!((quiet_rows.len(), busy_rows.len()), (1, 2), "{what}");
        assert_eq!(busy_rows[1]["pid"], busy.said("child"), "{what}");
        assert_eq!(quiet_rows[0]["driver_calls"], busy_rows[0]["driver_calls"], "{what}");
        // ("ended": its parent had waited for it before the recorder could ask how.)
        assert!(["exited 5", "ended"].iter().any(|how| busy_rows[1]["end"]["how"] == *how), "{what}: {}", busy_rows[1]);
        assert_eq!(busy_rows[1]["submissions"], 0, "{what}");
    }
}

#[test]
fn programs_that_it_starts_are_not_recorded() {
    succeeds("starts_a_program");
}

#[test]
fn an_exec_ends_the_recording_cleanly() {
    under_each_tap("execs", |r, what| {
        assert_eq!(r.out.status.code(), Some(7), "{what}: {}", r.text());
        r.whole(what);
        assert_eq!(r.number("/end/exit_code"), 7, "{what}");
    });
}

/// Opens the driver and queries its version before main, in a library that is initialised before the preloaded ones.
const EARLY: &str = r#"
#include <fcntl.h>
#include <sys/ioctl.h>
int early;
__attribute__((constructor)) static void use(void) {
    struct { unsigned command, reply; char version[64]; } a = { '2' };
    int fd = open("/dev/nvidiactl", O_RDWR);
    early = fd >= 0 && ioctl(fd, _IOC(_IOC_READ | _IOC_WRITE, 'F', 210, sizeof a), &a) == 0 ? a.version[0] : 0;
}
"#;
const MAIN: &str = r#"
#include <stdlib.h>
extern int early;
int main(void) { return getenv("LD_PRELOAD") || getenv("DOORBELL_REGION") ? 3 : early == 0 ? 4 : 5; }
"#;

/// The program with that library; an error without a compiler.
fn early(dir: &Path) -> std::io::Result<std::path::PathBuf> {
    std::fs::write(dir.join("early.c"), EARLY).unwrap();
    std::fs::write(dir.join("main.c"), MAIN).unwrap();
    let cc = |arguments: &[&str]| Command::new("cc").current_dir(dir).args(arguments).status();
    assert!(cc(&["-shared", "-fPIC", "-o", "libearly.so", "early.c"])?.success());
    assert!(cc(&["-o", "main", "main.c", "-L.", "-learly", "-Wl,-rpath,$ORIGIN"])?.success());
    Ok(dir.join("main"))
}

#[test]
fn a_library_that_uses_the_driver_before_main_is_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let program = match early(dir.path()) {
        Ok(program) => program,
        Err(e) => test_support::skip!("no cc: {e}"),
    };
    let tape = dir.path().join("tape.doorbell");
    let mut command = doorbell();
    command.args(["record", "--gpu", "soft", "-q", "-o"]).arg(&tape).arg("--").arg(&program);
    let out = finished(&mut command, "main");
    assert_eq!(out.status.code(), Some(5), "{}", String::from_utf8_lossy(&out.stderr));
    let exported = finished(doorbell().args(["export", "--jsonl"]).arg(&tape), "export");
    let text = String::from_utf8_lossy(&exported.stdout);
    assert!(text.contains("CHECK_VERSION"), "the call is not on the tape: {text}");
}

#[test]
fn more_sites_than_there_is_room_for_go_on_trapping_and_the_tape_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let r = record(dir.path(), "patch", "many_sites", &[]);
    assert_eq!(r.out.status.code(), Some(0), "{}", r.text());
    r.whole("70 sites");
    let sites = r.summary["sites"].to_string();
    assert!(sites.contains("out of slots for sites"), "{sites}");
}

#[test]
fn a_segment_longer_than_half_a_ring_is_cut_and_the_tape_says_so() {
    let dir = tempfile::tempdir().unwrap();
    for (on_full, cut) in [("gap", true), ("wait", false)] {
        let dir = dir.path().join(on_full);
        std::fs::create_dir(&dir).unwrap();
        let r = record_with(&dir, "patch", "long_segment", &[], &["--ring", "1MiB", "--on-full", on_full]);
        assert_eq!(r.out.status.code(), Some(0), "{on_full}: {}", r.text());
        r.whole(on_full);
        let all = r.summary.to_string();
        assert_eq!(all.contains("longer than is recorded"), cut, "{on_full}: {all}");
    }
}

/// Without `structs` the driver has those of its branch, or of the nearest branch.
fn trouble_with(dir: &Path, program: &Path, version: &str, structs: Option<&str>) -> String {
    let tape = dir.join(format!("{version}-{structs:?}"));
    let mut command = doorbell();
    command.env("DOORBELL_SOFTGPU_DRIVER", version).env("DOORBELL_SOFTGPU_STRUCTS", structs.unwrap_or_default());
    command.args(["record", "--gpu", "soft", "-q", "-o"]).arg(&tape);
    let out = finished(command.arg("--").arg(program), "main");
    assert_eq!(out.status.code(), Some(5), "{version}: {}", String::from_utf8_lossy(&out.stderr));
    let shown = finished(doorbell().args(["show", "--summary", "--json"]).arg(&tape), "show");
    let summary: Value = serde_json::from_slice(&shown.stdout).unwrap();
    summary["trouble"].to_string()
}

#[test]
fn a_driver_that_is_not_known_is_asked_for_its_structs_and_only_what_is_otherwise_is_distrusted() {
    let dir = tempfile::tempdir().unwrap();
    let program = match early(dir.path()) {
        Ok(program) => program,
        Err(e) => test_support::skip!("no cc: {e}"),
    };
    // A known patch version, new ones, a branch without headers and one that does not exist: recorded, with one note.
    for (version, new) in [("595.45.04", false), ("580.178.04", true), ("610.57.04", true), ("999.10.1", true)] {
        let trouble = trouble_with(dir.path(), &program, version, None);
        assert_eq!(trouble.contains("not one that was checked"), new, "{version}: {trouble}");
        assert!(!trouble.contains("nothing was tapped"), "{version}: {trouble}");
    }
    // A wrong size on purpose: the channel of 610 in a driver that reports 580.
    for (version, caught) in [("580.178.04", true), ("999.10.1", false)] {
        let trouble = trouble_with(dir.path(), &program, version, Some("610"));
        assert_eq!(trouble.contains("nothing was tapped"), caught, "{version}: {trouble}");
    }
}

// ---- the programs

/// The site to which [`any_site`] jumps: `mov rax,rdi; mov ecx,esi`, then libcuda's store and the instructions after it.
static SITE: AtomicUsize = AtomicUsize::new(0);

#[unsafe(naked)]
unsafe extern "sysv64" fn any_site(_: *mut u8, _: u32) {
    std::arch::naked_asm!("jmp qword ptr [rip + {site}]", site = sym SITE)
}

/// Bytes from one site to the next.
const APART: usize = 48;

/// So many copies of a site, in separate memory.
fn sites(n: usize) -> usize {
    let mut one = vec![0x48u8, 0x89, 0xf8, 0x89, 0xf1];
    one.resize(16, 0x90);
    one.extend([0x89, 0x08, 0xe9, 9, 0, 0, 0, 0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0xc3]);
    one.resize(APART, 0x90);
    let (rw, how) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: fresh memory, filled before it is executable.
    unsafe {
        let at = libc::mmap(ptr::null_mut(), n * APART, rw, how, -1, 0);
        assert_ne!(at, libc::MAP_FAILED);
        let code = one.repeat(n);
        ptr::copy_nonoverlapping(code.as_ptr(), at.cast(), code.len());
        assert_eq!(libc::mprotect(at, n * APART, libc::PROT_READ | libc::PROT_EXEC), 0);
        at as usize
    }
}

#[test]
#[ignore = "a program for the tests above"]
fn plays_many_sites() {
    const SITES: usize = 70;
    let first = sites(SITES);
    SITE.store(first, Ordering::SeqCst);
    let mut work = Work::with(Site::At(any_site as *const () as usize));
    for n in 0..SITES {
        SITE.store(first + n * APART, Ordering::SeqCst);
        work.rounds(3);
    }
    work.say_entries();
}

#[test]
#[ignore = "a program for the tests above"]
fn plays_long_segment() {
    let mut work = Work::new();
    work.rounds(3);
    let mut words = Pushbuffer::new(work.channel.space(), 150_000).unwrap();
    while words.len() < 140_000 {
        words.copy(work.target.va(), work.source.va(), 64).unwrap();
    }
    let words = words.validate(&work.channel).unwrap();
    work.channel.submit(&words).unwrap();
    work.rounds(3);
    work.say_entries();
}

/// A page that faults, and how often each handler was called.
static PAGE: AtomicUsize = AtomicUsize::new(0);
static FIRST: AtomicU32 = AtomicU32::new(0);
static SECOND: AtomicU32 = AtomicU32::new(0);
static TRAPS: AtomicU32 = AtomicU32::new(0);

fn count(c: &AtomicU32) -> u32 {
    c.load(Ordering::SeqCst)
}

/// Makes the page writable, as a garbage collector does.
fn open_page(info: *mut libc::siginfo_t, counter: &AtomicU32) {
    // SAFETY: the kernel's siginfo of a fault; the page belongs to this program; both calls may be made in a handler.
    unsafe {
        if (*info).si_addr() as usize != PAGE.load(Ordering::SeqCst) {
            libc::_exit(99);
        }
        libc::mprotect((*info).si_addr(), 4096, libc::PROT_READ | libc::PROT_WRITE);
    }
    counter.fetch_add(1, Ordering::SeqCst);
}

extern "C" fn first(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    open_page(info, &FIRST);
}

extern "C" fn second(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    open_page(info, &SECOND);
}

extern "C" fn trapped(_: i32) {
    TRAPS.fetch_add(1, Ordering::SeqCst);
}

type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);

/// Installs a handler and returns the previous one.
fn install(signal: i32, handler: usize, flags: i32) -> libc::sigaction {
    // SAFETY: plain structs; the handlers match their flags.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let mut old: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        libc::sigaddset(&mut action.sa_mask, libc::SIGUSR2);
        assert_eq!(libc::sigaction(signal, &action, &mut old), 0);
        old
    }
}

fn installed(signal: i32) -> libc::sigaction {
    // SAFETY: plain structs.
    unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(signal, ptr::null(), &mut old), 0);
        old
    }
}

/// Stores to a page without rights; returns only if a handler grants some.
fn fault() {
    // SAFETY: a fresh page that is never unmapped.
    unsafe {
        let page = libc::mmap(ptr::null_mut(), 4096, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0);
        assert_ne!(page, libc::MAP_FAILED);
        PAGE.store(page as usize, Ordering::SeqCst);
        ptr::write_volatile(page.cast::<u32>(), 77);
        assert_eq!(ptr::read_volatile(page.cast::<u32>()), 77);
    }
}

fn breakpoint() {
    // SAFETY: every program here that does this has a handler for SIGTRAP.
    unsafe { std::arch::asm!("int3") };
}

fn full_set() -> libc::sigset_t {
    // SAFETY: sigfillset initialises it.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigfillset(&mut set);
        set
    }
}

fn mask(how: i32, set: &libc::sigset_t) -> libc::sigset_t {
    // SAFETY: plain sets.
    unsafe {
        let mut old = std::mem::zeroed();
        assert_eq!(libc::pthread_sigmask(how, set, &mut old), 0);
        old
    }
}

fn blocked(signal: i32) -> bool {
    // SAFETY: plain sets; a call with a null set only reads the mask.
    unsafe {
        let mut now = std::mem::zeroed();
        assert_eq!(libc::sigprocmask(libc::SIG_BLOCK, ptr::null(), &mut now), 0);
        libc::sigismember(&now, signal) == 1
    }
}

#[test]
#[ignore = "a program for the tests above"]
fn plays_handlers_before() {
    install(libc::SIGSEGV, first as Handler as usize, libc::SA_SIGINFO);
    install(libc::SIGTRAP, trapped as *const () as usize, 0);
    let mut work = Work::new();
    for n in 1..=20 {
        work.rounds(2);
        fault();
        breakpoint();
        assert_eq!((count(&FIRST), count(&TRAPS)), (n, n));
    }
    work.say_entries();
}

#[test]
#[ignore = "a program for the tests above"]
fn plays_small_alternate_stack() {
    let stack = |new: Option<&libc::stack_t>| {
        // SAFETY: plain structs.
        unsafe {
            let mut old: libc::stack_t = std::mem::zeroed();
            assert_eq!(libc::sigaltstack(new.map_or(ptr::null(), ptr::from_ref), &mut old), 0);
            (old.ss_sp as usize, old.ss_size, old.ss_flags)
        }
    };
    let rusts = stack(None);
    let mut work = Work::with(Site::Displacement);
    for size in [libc::MINSIGSTKSZ, libc::SIGSTKSZ] {
        // A write below it does not pass unseen.
        // SAFETY: a fresh mapping, whose first page is inaccessible.
        let at = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let page = libc::mmap(ptr::null_mut(), 5 * 4096, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
            assert_ne!(page, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(page, 4096, libc::PROT_NONE), 0);
            page as usize + 4096
        };
        let new = libc::stack_t { ss_sp: at as *mut _, ss_flags: 0, ss_size: size };
        stack(Some(&new));
        assert_eq!(stack(None), (at, size, 0), "the program is told of its own");
        work.rounds(10);
        // The kernel refuses a stack that is too small, and keeps the previous one.
        // SAFETY: plain structs.
        let refused = unsafe { libc::sigaltstack(&libc::stack_t { ss_size: 100, ..new }, ptr::null_mut()) };
        assert_eq!((refused, std::io::Error::last_os_error().raw_os_error()), (-1, Some(libc::ENOMEM)));
        assert_eq!(stack(None), (at, size, 0));
    }
    work.say_entries();
    let new = libc::stack_t { ss_sp: rusts.0 as *mut _, ss_flags: rusts.2, ss_size: rusts.1 };
    stack(Some(&new));
    assert_eq!(stack(None), rusts);
}

#[test]
#[ignore = "a program for the tests above"]
fn plays_handlers_later() {
    let mut work = Work::with(Site::Displacement);
    work.rounds(3);
    let rusts = install(libc::SIGSEGV, first as Handler as usize, libc::SA_SIGINFO | libc::SA_ONSTACK);
    assert_ne!(rusts.sa_sigaction, first as Handler as usize);
    fault();
    work.rounds(3);
    let seen = installed(libc::SIGSEGV);
    assert_eq!(seen.sa_sigaction, first as Handler as usize);
    assert_eq!(seen.sa_flags & (libc::SA_SIGINFO | libc::SA_ONSTACK), libc::SA_SIGINFO | libc::SA_ONSTACK);
    // SAFETY: an initialised set.
    assert_eq!(unsafe { libc::sigismember(&seen.sa_mask, libc::SIGUSR2) }, 1);
    let old = install(libc::SIGSEGV, second as Handler as usize, libc::SA_SIGINFO);
    assert_eq!(old.sa_sigaction, first as Handler as usize);
    fault();
    work.rounds(3);
    assert_eq!((count(&FIRST), count(&SECOND)), (1, 1));
    // SAFETY: the handler takes a signal number.
    let old = unsafe { libc::signal(libc::SIGTRAP, trapped as *const () as usize) };
    assert_eq!(old, libc::SIG_DFL);
    breakpoint();
    // SAFETY: raises a signal that has a handler.
    unsafe { libc::raise(libc::SIGTRAP) };
    assert_eq!(count(&TRAPS), 2);
    // Once only, then the default again.
    install(libc::SIGTRAP, trapped as *const () as usize, libc::SA_RESETHAND);
    breakpoint();
    assert_eq!(count(&TRAPS), 3);
    assert_eq!(installed(libc::SIGTRAP).sa_sigaction, libc::SIG_DFL);
    work.rounds(3);
    work.say_entries();
}

#[test]
#[ignore = "a program for the tests above"]
fn plays_all_blocked() {
    install(libc::SIGSEGV, first as Handler as usize, libc::SA_SIGINFO);
    let before = mask(libc::SIG_SETMASK, &full_set());
    let mut work = Work::new();
    work.rounds(10);
    assert!(blocked(libc::SIGSEGV) && blocked(libc::SIGTRAP) && blocked(libc::SIGUSR1));
    // A thread that begins with everything blocked.
    let mut work = std::thread::spawn(move || {
        work.rounds(10);
        work
    })
    .join()
    .unwrap();
    let told = mask(libc::SIG_SETMASK, &before);
    // SAFETY: an initialised set.
    unsafe { assert!(libc::sigismember(&told, libc::SIGSEGV) == 1 && libc::sigismember(&told, libc::SIGTRAP) == 1) };
    assert!(!blocked(libc::SIGSEGV) && !blocked(libc::SIGTRAP) && !blocked(libc::SIGUSR1));
    work.rounds(10);
    fault();
    assert_eq!(count(&FIRST), 1);
    work.say_entries();
}

fn raw_mask(bits: u64) {
    // SAFETY: a word, of the given size.
    let r = unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &bits, ptr::null::<u64>(), 8) };
    assert_eq!(r, 0);
}

/// Its context has no signal blocked.
extern "C" fn unblocks(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel's context, from which it takes the mask when this function returns.
    unsafe { libc::sigemptyset(&raw mut (*context.cast::<libc::ucontext_t>()).uc_sigmask) };
}

#[test]
#[ignore = "a program for the tests above"]
fn plays_mask_past_libc() {
    install(libc::SIGSEGV, first as Handler as usize, libc::SA_SIGINFO);
    install(libc::SIGUSR1, unblocks as Handler as usize, libc::SA_SIGINFO);
    let mut work = Work::new();
    work.rounds(3);
    // In a thread that begins with everything blocked.
    let before = mask(libc::SIG_SETMASK, &full_set());
    let mut work = std::thread::spawn(move || {
        raw_mask(0);
        fault();
        work.rounds(3);
        work
    })
    .join()
    .unwrap();
    assert_eq!(count(&FIRST), 1);
    // What libc is told after that is right, and counts again.
    raw_mask(0);
    assert!(!blocked(libc::SIGSEGV));
    fault();
    mask(libc::SIG_SETMASK, &full_set());
    assert!(blocked(libc::SIGSEGV));
    // By a context.
    let mut all_but_one = full_set();
    // SAFETY: an initialised set; a signal with a handler.
    unsafe {
        libc::sigdelset(&mut all_but_one, libc::SIGUSR1);
        mask(libc::SIG_SETMASK, &all_but_one);
        libc::raise(libc::SIGUSR1);
    }
    assert!(!blocked(libc::SIGSEGV));
    fault();
    assert_eq!(count(&FIRST), 3);
    mask(libc::SIG_SETMASK, &before);
    work.rounds(3);
    work.say_entries();
}

#[test]
#[ignore = "a program for the tests above"]
fn plays_blocked_signal_waits() {
    install(libc::SIGTRAP, trapped as *const () as usize, 0);
    let mut work = Work::new();
    work.rounds(3);
    // SAFETY: an initialised set of one.
    let set = unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGTRAP);
        set
    };
    mask(libc::SIG_BLOCK, &set);
    // SAFETY: the signal has a handler.
    unsafe { libc::raise(libc::SIGTRAP) };
    assert_eq!(count(&TRAPS), 0, "blocked, and yet delivered");
    work.rounds(3);
    assert_eq!(count(&TRAPS), 0, "blocked, and yet delivered");
    mask(libc::SIG_UNBLOCK, &set);
    assert_eq!(count(&TRAPS), 1, "delivered once it may be");
    work.rounds(3);
    work.say_entries();
}

/// The work of `handler_rings`, while no other code uses it.
static MINE: AtomicUsize = AtomicUsize::new(0);

extern "C" fn rings(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    open_page(info, &FIRST);
    // SAFETY: points to the program's work, which waits for this handler to return. The interrupted code is a store in `fault`,
    // not an allocator.
    unsafe { (*(MINE.load(Ordering::SeqCst) as *mut Work)).rounds(2) };
}

#[test]
#[ignore = "a program for the tests above"]
fn plays_handler_rings() {
    install(libc::SIGSEGV, rings as Handler as usize, libc::SA_SIGINFO);
    let mut work = Box::new(Work::new());
    work.rounds(1);
    MINE.store(&raw mut *work as usize, Ordering::SeqCst);
    for n in 1..=5 {
        fault();
        assert_eq!(count(&FIRST), n);
    }
    work.rounds(1);
    assert_eq!(work.round, 12);
    work.say_entries();
}

#[test]
#[ignore = "a program for the tests above"]
fn plays_timer_and_doorbells() {
    install(libc::SIGSEGV, first as Handler as usize, libc::SA_SIGINFO);
    install(libc::SIGALRM, trapped as *const () as usize, libc::SA_RESTART);
    let mut work = Work::new();
    let every = libc::timeval { tv_sec: 0, tv_usec: 200 };
    let timer = libc::itimerval { it_interval: every, it_value: every };
    // SAFETY: plain structs; SIGALRM has a handler.
    assert_eq!(unsafe { libc::setitimer(libc::ITIMER_REAL, &timer, ptr::null_mut()) }, 0);
    let begun = Instant::now();
    while count(&TRAPS) < 50 || work.round < 400 {
        work.rounds(20);
        assert!(begun.elapsed() < Duration::from_secs(20), "{} signals, {} rounds", count(&TRAPS), work.round);
    }
    let none = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let timer = libc::itimerval { it_interval: none, it_value: none };
    // SAFETY: as above.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &timer, ptr::null_mut()) };
    assert_eq!(count(&FIRST), 0);
    work.say_entries();
}

#[test]
#[ignore = "a program for the tests above"]
fn plays_dies_of_its_own_fault() {
    let mut work = Work::new();
    work.rounds(5);
    work.say_entries();
    // SAFETY: none. This is the fault.
    unsafe { ptr::write_volatile(ptr::without_provenance_mut::<u32>(8), 1) };
}

#[test]
#[ignore = "a program for the tests above"]
fn plays_exits_at_once() {
    let mut work = Work::new();
    work.rounds(5);
    work.say_entries();
    // SAFETY: ends the process.
    unsafe { libc::_exit(3) };
}

/// Opens the driver's files so often, in the child.
fn child_calls(n: u64) {
    for _ in 0..n {
        // SAFETY: a name that ends in NUL; the descriptor was opened by the inner call.
        unsafe { libc::close(libc::open(c"/dev/nvidiactl".as_ptr(), libc::O_RDWR)) };
    }
}

#[test]
#[ignore = "a program for the tests above"]
fn plays_forks() {
    let calls = std::env::var("CHILD_CALLS").unwrap().parse().unwrap();
    let mut work = Work::new();
    work.rounds(5);
    // SAFETY: the child makes system calls and leaves.
    let child = unsafe { libc::fork() };
    if child == 0 {
        child_calls(calls);
        // SAFETY: ends the child.
        unsafe { libc::_exit(5) };
    }
    assert!(child > 0);
    work.rounds(5);
    let mut status = 0;
    // SAFETY: a child of this program.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 5, "the child: {status:#x}");
    work.rounds(5);
    say("child", child as u64);
    work.say_entries();
}

#[test]
#[ignore = "a program for the tests above"]
fn plays_starts_a_program() {
    let mut work = Work::new();
    work.rounds(3);
    let out = Command::new("env").output().unwrap();
    let env = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success() && !env.contains("LD_PRELOAD") && !env.contains("DOORBELL_"), "{env}");
    work.rounds(3);
    work.say_entries();
}

#[test]
#[ignore = "a program for the tests above"]
fn plays_execs() {
    use std::os::unix::process::CommandExt;
    let mut work = Work::new();
    work.rounds(5);
    work.say_entries();
    panic!("{}", Command::new("sh").args(["-c", "exit 7"]).exec());
}

/// Reads GP_GET to find out when there is room, as a driver may that keeps no count. Under `patch` GP_GET is in a shadow that only
/// the agent updates.
#[test]
#[ignore = "a program for the tests above"]
fn plays_full_ring() {
    let mut work = Work::new();
    work.rounds(3);
    let gate = Semaphores::new(work.channel.space()).unwrap().alloc().unwrap();
    let behind = |work: &Work| {
        let mut words = Pushbuffer::new(work.channel.space(), 64).unwrap();
        words.copy(work.target.va(), work.source.va(), 64).unwrap();
        words.validate(&work.channel).unwrap()
    };
    for round in 1..=3 {
        let mut wait = Pushbuffer::new(work.channel.space(), 64).unwrap();
        wait.host_acquire(&gate, round).unwrap();
        let wait = wait.validate(&work.channel).unwrap();
        work.channel.submit(&wait).unwrap();
        let copy = behind(&work);
        let mut queued = 0;
        loop {
            match work.channel.submit(&copy) {
                Ok(_) => queued += 1,
                Err(gpu::Error::RingFull(_)) => break,
                Err(e) => panic!("{e}"),
            }
        }
        assert!(queued > 300, "only {queued} entries behind the gate");
        // While the gate is shut no entry moves, and all move when it opens.
        let stuck = work.channel.gp_get();
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(work.channel.gp_get(), stuck, "GP_GET moved behind a shut gate");
        gate.set(round);
        let begun = std::time::Instant::now();
        let put = (work.channel.entries_written() % 1024) as u32;
        while work.channel.gp_get() != put {
            assert!(begun.elapsed() < Duration::from_secs(20), "GP_GET stands at {}", work.channel.gp_get());
            std::thread::yield_now();
        }
        work.rounds(20);
    }
    work.say_entries();
}

#[test]
#[ignore = "a program for the tests above"]
fn plays_exchange() {
    let mut work = Work::with(Site::Exchange);
    work.rounds(50);
    work.say_entries();
}

/// Whether a system call of this thread goes to SIGSYS instead of the kernel (syscall user dispatch).
static GATE: AtomicU8 = AtomicU8::new(0);
static CALLS: AtomicU32 = AtomicU32::new(0);

extern "C" fn called(_: i32) {
    // Lets this handler's return and everything after it pass.
    GATE.store(0, Ordering::SeqCst);
    CALLS.fetch_add(1, Ordering::SeqCst);
}

#[test]
#[ignore = "a program for the tests above"]
fn plays_quiet() {
    const DISPATCH: i32 = 59; // PR_SET_SYSCALL_USER_DISPATCH, Linux 5.11
    let mut work = Work::new();
    work.rounds(40);
    let mut words = Pushbuffer::new(work.channel.space(), 64).unwrap();
    words.copy(work.target.va(), work.source.va(), 64).unwrap();
    let words = words.validate(&work.channel).unwrap();
    // Once round the channel's ring: what the rounds left in it is freed, and that takes system calls. While the recorder is
    // stopped, the thread moves to its larger ring. Then once round that one, whose memory becomes resident on the way.
    // SAFETY: no arguments.
    let recorder = unsafe { libc::getppid() };
    for burst in 0..100 {
        let told = [(0, libc::SIGSTOP), (10, libc::SIGCONT)].into_iter().find(|(at, _)| *at == burst);
        // SAFETY: two numbers; the recorder waits for this program, and is continued later.
        told.inspect(|(_, signal)| assert_eq!(unsafe { libc::kill(recorder, *signal) }, 0));
        let last = (0..200).map(|_| work.channel.submit(&words).unwrap()).last().unwrap();
        work.channel.wait(last, PATIENCE).unwrap();
    }
    // All batches fit into the ring, if the recorder reads the earlier ones.
    std::thread::sleep(Duration::from_millis(100));
    install(libc::SIGSYS, called as *const () as usize, 0);
    // SAFETY: the gate lives as long as the process; no range is exempt.
    if unsafe { libc::prctl(DISPATCH, 1u64, 0u64, 0u64, GATE.as_ptr()) } != 0 {
        test_support::skip_part!("this kernel has no syscall user dispatch");
        return work.say_entries();
    }
    for batch in 0..20 {
        GATE.store(1, Ordering::SeqCst);
        let last = (0..100).try_fold(None, |_, _| work.channel.submit(&words).map(Some));
        GATE.store(0, Ordering::SeqCst);
        assert_eq!(count(&CALLS), 0, "a system call in batch {batch}");
        let last = last.unwrap_or_else(|e| panic!("batch {batch}: {e}")).unwrap();
        work.channel.wait(last, PATIENCE).unwrap();
    }
    // The gate works: this one is seen.
    GATE.store(1, Ordering::SeqCst);
    // SAFETY: no arguments.
    unsafe { libc::getppid() };
    GATE.store(0, Ordering::SeqCst);
    assert_eq!(count(&CALLS), 1);
    work.say_entries();
}

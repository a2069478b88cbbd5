//! SCHED_DEADLINE, for machines that refuse SCHED_FIFO: the kernel runs such a thread before every other until its budget is used up. Then it keeps
//! the thread off its CPU for the rest of the period.
//!
//! The invariant: a thread that calls [`rest_if_due`] between its samples gives up the rest of its period itself, before its budget ends. So no
//! sample shorter than the margin contains the kernel's throttling. Remaining throttled periods are counted.

use std::cell::Cell;
use std::io;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// `struct sched_attr` as of Linux 4.13 (SCHED_ATTR_SIZE_VER0, 48 bytes).
#[repr(C)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// SCHED_FLAG_RESET_ON_FORK: without it the thread may not start threads.
const RESET_ON_FORK: u64 = 0x01;
/// SCHED_FLAG_DL_OVERRUN: SIGXCPU for each period in which the budget was exceeded.
const TELL_OVERRUN: u64 = 0x04;

/// Long, so that the thread rests rarely; the kernel's limit is about four seconds.
const PERIOD_NS: u64 = 100_000_000;
/// Percentages of the period to request, in this order: each CPU's bandwidth is 95 %, of which the kernel keeps a part for ordinary threads since
/// 6.8.
const SHARES: [u64; 3] = [95, 90, 80];
/// The thread rests when this percentage of its budget may be used up.
const REST_AT: u64 = 80;

/// The granted budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Budget {
    pub runtime_ns: u64,
    pub period_ns: u64,
}

/// While it lives, the calling thread is under SCHED_DEADLINE. After the first one, SIGXCPU is counted in this process and does not end it.
#[derive(Debug)]
pub struct Deadline {
    pub budget: Budget,
    overruns_before: u64,
}

static OVERRUNS: AtomicU64 = AtomicU64::new(0);
static COUNTING: Once = Once::new();

extern "C" fn count(_signal: libc::c_int) {
    OVERRUNS.fetch_add(1, Ordering::Relaxed);
}

thread_local! {
    /// The budget of the calling thread, and when the current period began (CLOCK_MONOTONIC, ns).
    static RUNNING: Cell<Option<(Budget, u64)>> = const { Cell::new(None) };
}

impl Deadline {
    /// # Errors
    /// The kernel's error: EPERM without the permission or if the thread may not run on all CPUs of its domain, EBUSY if the bandwidth is used up.
    pub fn take() -> io::Result<Deadline> {
        COUNTING.call_once(counting);
        let mut refused = io::Error::from_raw_os_error(libc::EBUSY);
        for share in SHARES {
            let budget = Budget { runtime_ns: PERIOD_NS / 100 * share, period_ns: PERIOD_NS };
            match set(&of(budget)) {
                Ok(()) => {
                    RUNNING.set(Some((budget, now())));
                    return Ok(Deadline { budget, overruns_before: OVERRUNS.load(Ordering::Relaxed) });
                }
                Err(e) => refused = e,
            }
            if refused.raw_os_error() != Some(libc::EBUSY) {
                break;
            }
        }
        Err(refused)
    }

    /// Periods in which the kernel took the thread off its CPU because its budget was used up.
    pub fn throttled(&self) -> u64 {
        OVERRUNS.load(Ordering::Relaxed) - self.overruns_before
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        RUNNING.set(None);
        let _ = set(&ORDINARY);
    }
}

/// Puts the calling thread under SCHED_DEADLINE with a budget of the caller's, for as long as the thread lives. No overrun is counted, no signal is requested,
/// and [`rest_if_due`] does nothing.
///
/// # Errors
/// As [`Deadline::take`]; EINVAL where not runtime <= deadline <= period.
pub fn enter(runtime: Duration, deadline: Duration, period: Duration) -> io::Result<()> {
    let [runtime, deadline, period] =
        [runtime, deadline, period].map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    let policy = libc::SCHED_DEADLINE as u32;
    set(&Attributes { policy, flags: RESET_ON_FORK, runtime, deadline, period, ..ORDINARY })
}

/// Whether [`rest_if_due`] would rest now. Costs a reading of the clock where the calling thread has a budget, and less where it has none.
#[inline]
pub fn rest_is_due() -> bool {
    RUNNING.get().is_some_and(|(budget, since)| now().saturating_sub(since) >= budget.runtime_ns / 100 * REST_AT)
}

/// Gives up the rest of the period if most of the budget may be used up; returns whether it did. It costs what [`rest_is_due`] costs.
#[inline]
pub fn rest_if_due() -> bool {
    let Some((budget, _)) = RUNNING.get().filter(|_| rest_is_due()) else { return false };
    // SAFETY: takes no argument; a SCHED_DEADLINE thread sleeps until its next period begins.
    unsafe { libc::sched_yield() };
    RUNNING.set(Some((budget, now())));
    true
}

const ORDINARY: Attributes = Attributes {
    size: size_of::<Attributes>() as u32,
    policy: libc::SCHED_OTHER as u32,
    flags: 0,
    nice: 0,
    priority: 0,
    runtime: 0,
    deadline: 0,
    period: 0,
};

fn of(budget: Budget) -> Attributes {
    Attributes {
        policy: libc::SCHED_DEADLINE as u32,
        flags: RESET_ON_FORK | TELL_OVERRUN,
        runtime: budget.runtime_ns,
        deadline: budget.period_ns,
        period: budget.period_ns,
        ..ORDINARY
    }
}

fn set(attributes: &Attributes) -> io::Result<()> {
    let flags: libc::c_uint = 0;
    // SAFETY: reads `size` bytes of the structure, for the calling thread.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, 0, std::ptr::from_ref(attributes), flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Counts SIGXCPU from now on, until the process ends: threads start and end, and a late signal still finds its handler.
fn counting() {
    // SAFETY: all zeros are a set without signals and no flags; the handler does one atomic addition.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = count as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGXCPU, &action, std::ptr::null_mut());
    }
}

fn now() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_without_a_budget_does_not_rest() {
        assert!(!rest_if_due());
    }

    #[test]
    fn a_thread_with_one_rests_before_its_budget_ends() {
        let Ok(deadline) = Deadline::take() else {
            test_support::skip!("SCHED_DEADLINE is refused here");
        };
        assert!(deadline.budget.runtime_ns * 100 >= PERIOD_NS * 80, "{:?}", deadline.budget);
        // It uses no budget while it is off its CPU.
        let used = || {
            let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: the clock is the thread's own, and the place is a timespec.
            unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
            time.tv_sec * 1_000_000_000 + time.tv_nsec
        };
        let (from, mut rests) = (used(), 0);
        while used() - from < 300_000_000 && rests < 2 {
            rests += u64::from(rest_if_due());
        }
        // 300 ms are at least two budgets of at most 95 ms.
        assert!(rests >= 2, "{rests}");
        drop(deadline);
        assert!(!rest_if_due(), "an ordinary thread again");
    }
    #[test]
    fn a_thread_has_the_budget_that_it_asks_for_until_it_ends() {
        let ms = Duration::from_millis;
        let given = std::thread::spawn(move || {
            assert_eq!(enter(ms(20), ms(10), ms(10)).unwrap_err().raw_os_error(), Some(libc::EINVAL));
            let given = enter(ms(1), ms(50), ms(100));
            let policy = crate::placement::scheduler().unwrap().0;
            assert_eq!(policy == "SCHED_DEADLINE", given.is_ok(), "{policy}, {given:?}");
            assert!(!rest_if_due());
            given
        });
        if let Err(error) = given.join().unwrap() {
            test_support::skip!("SCHED_DEADLINE is not given here: {error}");
        }
        assert_ne!(crate::placement::scheduler().unwrap().0, "SCHED_DEADLINE");
    }
}

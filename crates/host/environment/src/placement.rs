//! The placement of the measuring thread: a CPU and SCHED_FIFO if this process may have them, else the nearest alternative.

pub mod alone;
pub mod cpus;
pub mod deadline;

pub use deadline::{rest_if_due, rest_is_due};

use deadline::{Budget, Deadline};
use std::io;

/// The requested placement. The default leaves the thread as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// Only this CPU.
    pub cpu: Option<usize>,
    /// SCHED_FIFO with this priority, 1 to 99.
    pub fifo: Option<i32>,
}

/// The scheduling class of the calling thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(tag = "policy", rename_all = "snake_case")]
pub enum Class {
    /// SCHED_FIFO: before every ordinary thread, always.
    Fifo { priority: i32 },
    /// SCHED_DEADLINE: before every other thread while it has a budget.
    Deadline(Budget),
    /// SCHED_OTHER: it gets a larger share of its CPU than others, but no precedence.
    Nice { nice: i32 },
}

impl Class {
    /// No ordinary thread runs before it.
    pub fn is_real_time(&self) -> bool {
        !matches!(self, Class::Nice { .. })
    }
}

impl std::fmt::Display for Class {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Class::Fifo { priority } => write!(f, "SCHED_FIFO {priority}"),
            Class::Deadline(b) => {
                let ms = |ns: u64| ns as f64 / 1e6;
                write!(f, "SCHED_DEADLINE, {} of every {} ms", ms(b.runtime_ns), ms(b.period_ns))
            }
            Class::Nice { nice } => write!(f, "SCHED_OTHER, nice {nice}"),
        }
    }
}

/// The placement of the calling thread. On drop, the thread gets its earlier placement again.
#[derive(Debug)]
pub struct Placement {
    /// The CPU that it was pinned to. Under SCHED_DEADLINE, the CPU that it was on: such a thread cannot be pinned, and stays there unless the
    /// kernel moves it.
    pub cpu: Option<usize>,
    /// The SCHED_FIFO priority that was granted.
    pub fifo: Option<i32>,
    /// The granted class; `None` if none was requested or granted.
    pub class: Option<Class>,
    /// Refused requests, and their possible consequences for a measurement.
    pub notes: Vec<String>,
    affinity: Option<libc::cpu_set_t>,
    scheduler: Option<(i32, libc::sched_param)>,
    deadline: Option<Deadline>,
    nice: Option<i32>,
    /// Only the thread that made it may restore it.
    _of_one_thread: std::marker::PhantomData<*const ()>,
}

impl Placement {
    /// Places the calling thread. Threads that it starts later do not inherit SCHED_FIFO, but they do inherit its CPU.
    pub fn take(wish: Wish) -> Placement {
        let mut p = Placement::unchanged();
        if let Some(cpu) = wish.cpu {
            match pin(cpu) {
                Ok(was) => (p.cpu, p.affinity) = (Some(cpu), Some(was)),
                Err(e) => p.notes.push(format!("CPU {cpu} was refused: {e}")),
            }
        }
        if let Some(priority) = wish.fifo {
            match fifo(priority) {
                Ok(was) => p.is_fifo(priority, was),
                Err(e) => p.notes.push(no_fifo(priority, &e)),
            }
        }
        p
    }

    /// Puts the calling thread on a CPU, with precedence over other threads there: SCHED_FIFO with this priority, or if that is refused
    /// SCHED_DEADLINE, or if that is refused too nice -20. The notes give the reason for each refusal.
    ///
    /// Under SCHED_DEADLINE the caller must call [`rest_if_due`] between its samples, or the kernel takes the thread off its CPU within them;
    /// [`Placement::throttled`] counts that. The caller must also keep other threads off its CPU ([`cpus::clear`]), because the thread itself
    /// cannot be pinned.
    pub fn real_time(cpu: Option<usize>, priority: i32) -> Placement {
        let mut p = Placement::take(Wish { cpu, fifo: Some(priority) });
        if p.class.is_some() {
            return p;
        }
        match p.deadline() {
            Ok(()) => return p,
            Err(e) => p.notes.push(format!("SCHED_DEADLINE was refused: {e}{}", hint(&e))),
        }
        match renice(-20) {
            Ok(was) => {
                (p.nice, p.class) = (Some(was), Some(Class::Nice { nice: -20 }));
                p.notes.push(
                    "the measuring thread is an ordinary one: other work on its CPU is part of the measured times"
                        .into(),
                );
            }
            Err(e) => p.notes.push(format!("nice -20 was refused: {e}{}", hint(&e))),
        }
        p
    }

    /// Periods in which the kernel took a SCHED_DEADLINE thread off its CPU because its budget was used up.
    pub fn throttled(&self) -> u64 {
        self.deadline.as_ref().map_or(0, Deadline::throttled)
    }

    fn unchanged() -> Placement {
        Placement {
            cpu: None,
            fifo: None,
            class: None,
            notes: Vec::new(),
            affinity: None,
            scheduler: None,
            deadline: None,
            nice: None,
            _of_one_thread: std::marker::PhantomData,
        }
    }

    fn is_fifo(&mut self, priority: i32, was: (i32, libc::sched_param)) {
        (self.fifo, self.scheduler, self.class) = (Some(priority), Some(was), Some(Class::Fifo { priority }));
        self.notes.extend(throttling());
    }

    /// The kernel grants SCHED_DEADLINE only to a thread that may run on every CPU. So the thread is first moved to its CPU, and stays there when
    /// it may run on all again.
    fn deadline(&mut self) -> io::Result<()> {
        let pinned = self.affinity.as_ref().map(|was| (*was, affinity_set()));
        if let Some(was) = &self.affinity {
            set_affinity(was)?;
        }
        match Deadline::take() {
            Ok(deadline) => {
                self.class = Some(Class::Deadline(deadline.budget));
                self.deadline = Some(deadline);
                Ok(())
            }
            Err(e) => {
                if let Some((_, Ok(pinned))) = pinned {
                    set_affinity(&pinned)?;
                }
                Err(e)
            }
        }
    }
}

fn no_fifo(priority: i32, e: &io::Error) -> String {
    format!("SCHED_FIFO {priority} was refused: {e}{}", hint(e))
}

fn hint(e: &io::Error) -> &'static str {
    match e.kind() {
        io::ErrorKind::PermissionDenied => {
            " (needs CAP_SYS_NICE or a limit, `ulimit -r 99`; a control group without real-time budget refuses it too)"
        }
        _ => "",
    }
}

impl Drop for Placement {
    fn drop(&mut self) {
        // First: under SCHED_DEADLINE the kernel allows no pinning.
        self.deadline = None;
        if let Some(nice) = self.nice {
            let _ = renice(nice);
        }
        // SAFETY: restores the values that the kernel returned, for the calling thread, which is the one that made this (not Send).
        unsafe {
            if let Some((policy, param)) = &self.scheduler {
                libc::sched_setscheduler(0, *policy, param);
            }
        }
        if let Some(set) = &self.affinity {
            let _ = set_affinity(set);
        }
    }
}

/// The CPUs on which the calling thread may run.
pub fn affinity() -> io::Result<Vec<usize>> {
    affinity_of(0)
}

/// The CPUs on which a thread (0: the calling one) may run.
fn affinity_of(thread: i32) -> io::Result<Vec<usize>> {
    let set = set_of(thread)?;
    // SAFETY: every index is below the size of the set.
    Ok((0..libc::CPU_SETSIZE as usize).filter(|c| unsafe { libc::CPU_ISSET(*c, &set) }).collect())
}

fn affinity_set() -> io::Result<libc::cpu_set_t> {
    set_of(0)
}

fn set_of(thread: i32) -> io::Result<libc::cpu_set_t> {
    // SAFETY: an empty set is all zeros; the kernel writes no more than its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(thread, size_of_val(&set), &mut set) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(set)
    }
}

fn set_affinity(set: &libc::cpu_set_t) -> io::Result<()> {
    // SAFETY: reads one set.
    match unsafe { libc::sched_setaffinity(0, size_of_val(set), set) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets the calling thread's nice value; returns the earlier one.
pub fn renice(nice: i32) -> io::Result<i32> {
    // SAFETY: the calls take numbers; -1 is also a valid result of the first, so errno is cleared before it.
    unsafe {
        let thread = libc::syscall(libc::SYS_gettid) as libc::id_t;
        *libc::__errno_location() = 0;
        let was = libc::getpriority(libc::PRIO_PROCESS, thread);
        if was == -1 && *libc::__errno_location() != 0 || libc::setpriority(libc::PRIO_PROCESS, thread, nice) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(was)
    }
}

/// The calling thread's scheduling policy by name, and its real-time priority.
pub fn scheduler() -> io::Result<(String, i32)> {
    let (policy, param) = scheduler_raw()?;
    let name = match policy & !libc::SCHED_RESET_ON_FORK {
        libc::SCHED_OTHER => "SCHED_OTHER".into(),
        libc::SCHED_FIFO => "SCHED_FIFO".into(),
        libc::SCHED_RR => "SCHED_RR".into(),
        libc::SCHED_BATCH => "SCHED_BATCH".into(),
        libc::SCHED_IDLE => "SCHED_IDLE".into(),
        libc::SCHED_DEADLINE => "SCHED_DEADLINE".into(),
        n => format!("policy {n}"),
    };
    Ok((name, param.sched_priority))
}

fn scheduler_raw() -> io::Result<(i32, libc::sched_param)> {
    let mut param = libc::sched_param { sched_priority: 0 };
    // SAFETY: both read the calling thread's state; the second writes one sched_param.
    unsafe {
        let policy = libc::sched_getscheduler(0);
        if policy < 0 || libc::sched_getparam(0, &mut param) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((policy, param))
    }
}

/// Pins the calling thread to `cpu`; returns its earlier affinity.
fn pin(cpu: usize) -> io::Result<libc::cpu_set_t> {
    let was = affinity_set()?;
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "there is no such CPU"));
    }
    // SAFETY: `cpu` is below the size of the set.
    let done = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set)
    };
    match done {
        0 => Ok(was),
        _ => Err(match io::Error::last_os_error() {
            e if e.raw_os_error() == Some(libc::EINVAL) => {
                let kind = io::ErrorKind::InvalidInput;
                io::Error::new(kind, "there is no such CPU, or this process may not use it (cpuset)")
            }
            e => e,
        }),
    }
}

fn fifo(priority: i32) -> io::Result<(i32, libc::sched_param)> {
    let was = scheduler_raw()?;
    let param = libc::sched_param { sched_priority: priority };
    // SAFETY: reads one sched_param.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &param) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(was)
}

/// The kernel takes a spinning SCHED_FIFO thread off its CPU for part of each period; a transfer then looks slow.
fn throttling() -> Option<String> {
    let number = |f: &str| std::fs::read_to_string(format!("/proc/sys/kernel/{f}")).ok()?.trim().parse::<i64>().ok();
    let (runtime, period) = (number("sched_rt_runtime_us")?, number("sched_rt_period_us")?);
    (runtime >= 0 && runtime < period).then(|| {
        format!(
            "the kernel may take a SCHED_FIFO thread off its CPU for {} us in every {period} us if other threads wait for it \
             (kernel.sched_rt_runtime_us = {runtime}; -1 lifts that)",
            period - runtime
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_is_restored_afterwards() {
        let (cpus, class) = (affinity().unwrap(), scheduler().unwrap());
        let last = *cpus.last().unwrap();
        {
            let p = Placement::take(Wish { cpu: Some(last), fifo: Some(1) });
            assert_eq!(p.cpu, Some(last), "{:?}", p.notes);
            assert_eq!(affinity().unwrap(), [last]);
            match p.fifo {
                Some(_) => assert_eq!(scheduler().unwrap(), ("SCHED_FIFO".into(), 1)),
                None => assert!(p.notes.iter().any(|n| n.contains("SCHED_FIFO")), "{:?}", p.notes),
            }
        }
        assert_eq!((affinity().unwrap(), scheduler().unwrap()), (cpus, class));
    }

    #[test]
    fn refused_requests_are_reported_and_change_nothing() {
        let (cpus, class) = (affinity().unwrap(), scheduler().unwrap());
        for cpu in [1023, 1_000_000] {
            let p = Placement::take(Wish { cpu: Some(cpu), fifo: Some(1000) });
            assert_eq!((p.cpu, p.fifo), (None, None));
            assert!(p.notes.len() == 2 && p.notes[0].contains("no such CPU"), "{:?}", p.notes);
            assert_eq!((affinity().unwrap(), scheduler().unwrap()), (cpus.clone(), class.clone()));
        }
        let nothing = Placement::take(Wish::default());
        assert!(nothing.notes.is_empty());
    }

    #[test]
    fn whatever_is_given_is_said_and_taken_back() {
        let (cpus, class) = (affinity().unwrap(), scheduler().unwrap());
        {
            let p = Placement::real_time(cpus.last().copied(), 1);
            match p.class {
                Some(Class::Fifo { priority }) => assert_eq!((priority, p.fifo), (1, Some(1))),
                Some(given) => assert!(!p.notes.is_empty(), "{given}: no note gives the reason"),
                None => assert!(p.notes.len() >= 3, "{:?}", p.notes),
            }
        }
        assert_eq!((affinity().unwrap(), scheduler().unwrap()), (cpus, class));
    }

    #[test]
    fn a_deadline_is_given_to_a_thread_that_may_run_anywhere_and_leaves_it_where_it_was() {
        let (cpus, class) = (affinity().unwrap(), scheduler().unwrap());
        let last = *cpus.last().unwrap();
        {
            let mut p = Placement::take(Wish { cpu: Some(last), fifo: None });
            match p.deadline() {
                Ok(()) => {
                    assert_eq!(scheduler().unwrap().0, "SCHED_DEADLINE");
                    assert_eq!(affinity().unwrap(), cpus);
                    assert!(p.class.is_some_and(|c| c.is_real_time() && c.to_string().contains("100 ms")));
                }
                Err(e) => {
                    test_support::skip_part!("SCHED_DEADLINE is refused here: {e}");
                    assert_eq!(affinity().unwrap(), [last]);
                }
            }
        }
        assert_eq!((affinity().unwrap(), scheduler().unwrap()), (cpus, class));
    }
}

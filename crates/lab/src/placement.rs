//! Where the measuring thread runs, and before whom: a CPU and SCHED_FIFO, where this process may have them.

use std::io;

/// What is asked for. The default leaves the thread as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// Only this CPU.
    pub cpu: Option<usize>,
    /// SCHED_FIFO with this priority, 1 to 99.
    pub fifo: Option<i32>,
}

/// What the calling thread got. Dropped, the thread is again what it was.
#[derive(Debug)]
pub struct Placement {
    /// The CPU that it was put on.
    pub cpu: Option<usize>,
    /// The SCHED_FIFO priority that it was given.
    pub fifo: Option<i32>,
    /// What was asked for and not given, and what this may mean for a measurement.
    pub notes: Vec<String>,
    affinity: Option<libc::cpu_set_t>,
    scheduler: Option<(i32, libc::sched_param)>,
    /// It restores the thread that made it.
    _of_one_thread: std::marker::PhantomData<*const ()>,
}

impl Placement {
    /// Places the calling thread. Threads that it starts from now on do not inherit SCHED_FIFO, but they do inherit its CPU.
    pub fn take(wish: Wish) -> Placement {
        let mut p = Placement {
            cpu: None,
            fifo: None,
            notes: Vec::new(),
            affinity: None,
            scheduler: None,
            _of_one_thread: std::marker::PhantomData,
        };
        if let Some(cpu) = wish.cpu {
            match pin(cpu) {
                Ok(was) => (p.cpu, p.affinity) = (Some(cpu), Some(was)),
                Err(e) => p.notes.push(format!("CPU {cpu} was not given: {e}")),
            }
        }
        if let Some(priority) = wish.fifo {
            match fifo(priority) {
                Ok(was) => {
                    (p.fifo, p.scheduler) = (Some(priority), Some(was));
                    p.notes.extend(throttling());
                }
                Err(e) => {
                    let hint = match e.kind() {
                        io::ErrorKind::PermissionDenied => " (needs CAP_SYS_NICE or a limit: `ulimit -r 99`)",
                        _ => "",
                    };
                    p.notes.push(format!("SCHED_FIFO {priority} was not given: {e}{hint}"));
                }
            }
        }
        p
    }
}

impl Drop for Placement {
    fn drop(&mut self) {
        // SAFETY: both take what the kernel gave us, for the calling thread, which is the one that made this (not Send).
        unsafe {
            if let Some((policy, param)) = &self.scheduler {
                libc::sched_setscheduler(0, *policy, param);
            }
            if let Some(set) = &self.affinity {
                libc::sched_setaffinity(0, size_of_val(set), set);
            }
        }
    }
}

/// The CPUs on which the calling thread may run.
pub fn affinity() -> io::Result<Vec<usize>> {
    let set = affinity_set()?;
    // SAFETY: every index is below the size of the set.
    Ok((0..libc::CPU_SETSIZE as usize).filter(|c| unsafe { libc::CPU_ISSET(*c, &set) }).collect())
}

fn affinity_set() -> io::Result<libc::cpu_set_t> {
    // SAFETY: an empty set is all zeros; the kernel writes no more than its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of_val(&set), &mut set) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(set)
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
    // SAFETY: both ask about the calling thread; the second writes one sched_param.
    unsafe {
        let policy = libc::sched_getscheduler(0);
        if policy < 0 || libc::sched_getparam(0, &mut param) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((policy, param))
    }
}

/// Puts the calling thread on `cpu`; what its affinity was.
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

/// The kernel takes a spinning SCHED_FIFO thread off its CPU for part of each period, which looks like a slow transfer.
fn throttling() -> Option<String> {
    let number = |f: &str| std::fs::read_to_string(format!("/proc/sys/kernel/{f}")).ok()?.trim().parse::<i64>().ok();
    let (runtime, period) = (number("sched_rt_runtime_us")?, number("sched_rt_period_us")?);
    (runtime >= 0 && runtime < period).then(|| {
        format!(
            "the kernel may take a SCHED_FIFO thread off its CPU for {} us in every {period} us where others wait for it \
             (kernel.sched_rt_runtime_us = {runtime}; -1 lifts that)",
            period - runtime
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_is_what_it_was_afterwards() {
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
    fn what_is_not_given_is_said_and_nothing_changes() {
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
}

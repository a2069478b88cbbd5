//! A thread's use of its CPU: cycles if the kernel allows counting them, and its CPU time.

use perf_event_open_sys as sys;
use std::io::Read;
use std::os::fd::FromRawFd;
use sys::bindings as abi;

/// A counter of the calling thread's cycles.
#[derive(Debug)]
pub struct Cycles {
    counter: Option<(std::fs::File, bool)>,
}

/// A moment, or the difference of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// The thread's CPU time.
    pub cpu_ns: u64,
    /// `None` where they are not counted.
    pub cycles: Option<u64>,
    /// Whether those in the kernel are included in the cycles.
    pub with_kernel: bool,
}

impl Used {
    pub fn since(self, before: Used) -> Used {
        Used {
            cpu_ns: self.cpu_ns.saturating_sub(before.cpu_ns),
            cycles: self.cycles.zip(before.cycles).map(|(now, then)| now.saturating_sub(then)),
            with_kernel: self.with_kernel,
        }
    }
}

impl Cycles {
    /// For the calling thread, including the kernel's if that is allowed.
    pub fn open() -> Cycles {
        let counter = open(false).map(|file| (file, true)).or_else(|| open(true).map(|file| (file, false)));
        Cycles { counter }
    }

    /// As it is now: two system calls.
    pub fn now(&mut self) -> Used {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: writes the struct; the clock always exists.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
        let cycles = self.counter.as_mut().and_then(|(file, _)| {
            let mut bytes = [0; 8];
            file.read_exact(&mut bytes).ok()?;
            Some(u64::from_ne_bytes(bytes))
        });
        Used {
            cpu_ns: time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64,
            cycles,
            with_kernel: self.counter.as_ref().is_some_and(|(_, kernel)| *kernel),
        }
    }
}

fn open(without_kernel: bool) -> Option<std::fs::File> {
    let mut wanted = abi::perf_event_attr {
        size: size_of::<abi::perf_event_attr>() as u32,
        type_: abi::PERF_TYPE_HARDWARE,
        config: u64::from(abi::PERF_COUNT_HW_CPU_CYCLES),
        ..Default::default()
    };
    wanted.set_exclude_hv(1);
    wanted.set_exclude_kernel(without_kernel.into());
    // SAFETY: the attributes are complete; this thread, on any CPU.
    let fd = unsafe { sys::perf_event_open(&mut wanted, 0, -1, -1, abi::PERF_FLAG_FD_CLOEXEC.into()) };
    if fd < 0 {
        return None;
    }
    // SAFETY: the call has just opened it, and there is no other owner.
    Some(unsafe { std::fs::File::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_uses_time_and_sleep_does_not() {
        let mut cycles = Cycles::open();
        let begun = cycles.now();
        let mut n = 1u64;
        let worked = loop {
            n = std::hint::black_box(n.wrapping_mul(3));
            let used = cycles.now().since(begun);
            if used.cpu_ns > 5_000_000 {
                break used;
            }
        };
        // A core does between 100 million and 10 billion cycles a second.
        assert!(worked.cycles.is_none_or(|cycles| cycles > 500_000), "{worked:?}");
        let begun = cycles.now();
        std::thread::sleep(std::time::Duration::from_millis(30));
        let slept = cycles.now().since(begun);
        assert!(slept.cpu_ns < 15_000_000, "{slept:?}");
    }
}

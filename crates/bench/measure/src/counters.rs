//! The kernel's counts for the calling thread: how often it gave up the CPU, and how long it waited for one.
//!
//! Each reading costs system calls: about 2 us for all of them.

use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The kernel's counters at a moment, or their differences between two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters {
    /// CLOCK_MONOTONIC_RAW.
    pub wall_ns: u64,
    /// CLOCK_THREAD_CPUTIME_ID.
    pub cpu_ns: u64,
    /// Times it slept: in a lock, in a call (getrusage, ru_nvcsw).
    pub voluntary: u64,
    /// How often its CPU was given to another thread (ru_nivcsw).
    pub involuntary: u64,
    /// Runnable without a CPU (/proc/thread-self/schedstat, second field); `None` if the kernel does not count it.
    pub run_queue_ns: Option<u64>,
}

thread_local! {
    /// Opened once: it is read before every call.
    static SCHEDSTAT: RefCell<Option<Option<File>>> = const { RefCell::new(None) };
}

impl Counters {
    pub fn of_thread() -> Counters {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: writes one rusage, of which all zeros are a value too.
        let usage = unsafe {
            libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
            usage.assume_init()
        };
        Counters {
            run_queue_ns: run_queue_ns(),
            voluntary: usage.ru_nvcsw as u64,
            involuntary: usage.ru_nivcsw as u64,
            cpu_ns: nanoseconds(libc::CLOCK_THREAD_CPUTIME_ID),
            wall_ns: nanoseconds(libc::CLOCK_MONOTONIC_RAW),
        }
    }
}

fn nanoseconds(clock: libc::clockid_t) -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec.
    unsafe { libc::clock_gettime(clock, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

fn run_queue_ns() -> Option<u64> {
    SCHEDSTAT.with_borrow_mut(|file| {
        let file = file.get_or_insert_with(|| File::open("/proc/thread-self/schedstat").ok()).as_ref()?;
        let mut text = [0u8; 96];
        let length = file.read_at(&mut text, 0).ok()?;
        second_field(&text[..length])
    })
}

/// `on-cpu waiting slices`; all zeros where the kernel keeps no scheduler statistics.
fn second_field(text: &[u8]) -> Option<u64> {
    let mut fields = std::str::from_utf8(text).ok()?.split_ascii_whitespace().map(str::parse);
    let (on_cpu, waiting): (u64, u64) = (fields.next()?.ok()?, fields.next()?.ok()?);
    (on_cpu > 0).then_some(waiting)
}

impl Counters {
    /// What was counted since an earlier reading.
    pub fn since(&self, from: &Counters) -> Counters {
        Counters {
            wall_ns: self.wall_ns.saturating_sub(from.wall_ns),
            cpu_ns: self.cpu_ns.saturating_sub(from.cpu_ns),
            voluntary: self.voluntary.saturating_sub(from.voluntary),
            involuntary: self.involuntary.saturating_sub(from.involuntary),
            run_queue_ns: self.run_queue_ns.zip(from.run_queue_ns).map(|(to, from)| to.saturating_sub(from)),
        }
    }

    /// Neither on a CPU nor waiting for one: asleep. `None` if the run queue is unknown and the thread gave up its CPU in either way, because then
    /// the two cannot be separated.
    pub fn asleep_ns(&self) -> Option<u64> {
        let off = self.wall_ns.saturating_sub(self.cpu_ns);
        match (self.run_queue_ns, self.voluntary) {
            // A thread without a voluntary switch has not slept, whatever the clocks' rounding leaves.
            (_, 0) => Some(0),
            (Some(queue), _) => Some(off.saturating_sub(queue)),
            (None, _) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn sleeping_is_seen_as_sleeping() {
        let from = Counters::of_thread();
        std::thread::sleep(Duration::from_millis(20));
        let spent = Counters::of_thread().since(&from);
        assert!(spent.voluntary >= 1 && spent.wall_ns >= 20_000_000, "{spent:?}");
        // In 20 ms of sleep the thread used no CPU, and the time in the run queue is separate if the kernel counts it.
        assert!(spent.cpu_ns < spent.wall_ns / 2, "{spent:?}");
        if let Some(asleep) = spent.asleep_ns() {
            assert!(asleep + spent.run_queue_ns.unwrap_or(0) >= 15_000_000, "{spent:?}");
        }
    }

    #[test]
    fn a_busy_thread_does_not_sleep() {
        let from = Counters::of_thread();
        while nanoseconds(libc::CLOCK_THREAD_CPUTIME_ID) < from.cpu_ns + 3_000_000 {}
        let spent = Counters::of_thread().since(&from);
        assert!(spent.cpu_ns >= 3_000_000, "{spent:?}");
        assert!(spent.voluntary > 0 || spent.asleep_ns() == Some(0), "{spent:?}");
    }

    #[test]
    fn a_kernel_without_statistics_yields_none() {
        assert_eq!(second_field(b"123 45 6\n"), Some(45));
        assert_eq!(second_field(b"0 0 0\n"), None);
        assert_eq!(second_field(b"12"), None);
    }
}

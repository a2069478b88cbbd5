//! The recorder's own use of the machine.

use crate::lateness::Late;
use tape::file::RecorderUse;

/// CPU time of all threads, with those that have ended, memory, and how late the recorder was.
pub fn now(late: Late) -> RecorderUse {
    // SAFETY: zeroed is a rusage; the kernel fills it.
    let used = unsafe {
        let mut used: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut used);
        used
    };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    RecorderUse {
        user_seconds: seconds(used.ru_utime),
        system_seconds: seconds(used.ru_stime),
        // (In KiB: getrusage(2).)
        peak_memory_bytes: (used.ru_maxrss as u64) << 10,
        late_seconds: late.late.as_secs_f64(),
        held_up_seconds: late.held_up.as_secs_f64(),
        longest_write_seconds: late.write.as_secs_f64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_have_ended_count() {
        let before = now(Late::default());
        let burn = || {
            let begun = std::time::Instant::now();
            while begun.elapsed().as_millis() < 100 {
                std::hint::black_box(begun);
            }
        };
        std::thread::spawn(burn).join().unwrap();
        let after = now(Late::default());
        // (A busy machine gives less than all of a CPU.)
        assert!(after.user_seconds > before.user_seconds);
        assert!(after.peak_memory_bytes > 1 << 20);
    }
}

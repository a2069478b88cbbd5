//! The recorder's own use of the machine.

use tape::file::RecorderUse;

/// CPU time of all threads, with those that have ended, and memory.
pub fn now() -> RecorderUse {
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_have_ended_count() {
        let before = now();
        let burn = || {
            let begun = std::time::Instant::now();
            while begun.elapsed().as_millis() < 100 {
                std::hint::black_box(begun);
            }
        };
        std::thread::spawn(burn).join().unwrap();
        let after = now();
        // (A busy machine gives less than all of a CPU.)
        assert!(after.user_seconds > before.user_seconds);
        assert!(after.peak_memory_bytes > 1 << 20);
    }
}

//! CPU time and other use that the kernel charges this process, all its threads together, or one thread.

use super::Counted;
use std::io;

/// Use up to now, or between two moments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Used {
    user_ms: f64,
    system_ms: f64,
    voluntary: f64,
    involuntary: f64,
    minor: f64,
    major: f64,
}

impl Used {
    pub fn now() -> Result<Used, String> {
        Used::of(libc::RUSAGE_SELF)
    }

    pub fn of_this_thread() -> Result<Used, String> {
        Used::of(libc::RUSAGE_THREAD)
    }

    fn of(whose: libc::c_int) -> Result<Used, String> {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: writes one rusage, of which all zeros are a value too.
        let usage = unsafe {
            match libc::getrusage(whose, usage.as_mut_ptr()) {
                0 => usage.assume_init(),
                _ => return Err(format!("getrusage: {}", io::Error::last_os_error())),
            }
        };
        let ms = |t: libc::timeval| t.tv_sec as f64 * 1e3 + t.tv_usec as f64 / 1e3;
        Ok(Used {
            user_ms: ms(usage.ru_utime),
            system_ms: ms(usage.ru_stime),
            voluntary: usage.ru_nvcsw as f64,
            involuntary: usage.ru_nivcsw as f64,
            minor: usage.ru_minflt as f64,
            major: usage.ru_majflt as f64,
        })
    }

    /// The difference to `other`. Values below zero become zero: the kernel divides its ticks of a process and of a thread separately.
    pub fn less(&self, other: &Used) -> Used {
        let less = |a: f64, b: f64| (a - b).max(0.0);
        Used {
            user_ms: less(self.user_ms, other.user_ms),
            system_ms: less(self.system_ms, other.system_ms),
            voluntary: less(self.voluntary, other.voluntary),
            involuntary: less(self.involuntary, other.involuntary),
            minor: less(self.minor, other.minor),
            major: less(self.major, other.major),
        }
    }

    pub fn put(&self, counted: &mut Counted) {
        counted.put("cpu_user_ms", Ok(self.user_ms));
        counted.put("cpu_system_ms", Ok(self.system_ms));
        counted.put("switches_voluntary", Ok(self.voluntary));
        counted.put("switches_involuntary", Ok(self.involuntary));
        counted.put("faults_minor", Ok(self.minor));
        counted.put("faults_major", Ok(self.major));
    }
}

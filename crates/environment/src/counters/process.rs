//! What the kernel charges this process, all its threads together.

use super::Counted;
use std::io;

#[derive(Clone, Copy, Debug)]
pub struct Used(libc::rusage);

impl Used {
    pub fn now() -> Result<Used, String> {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: writes one rusage, of which all zeros are a value too.
        unsafe {
            match libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) {
                0 => Ok(Used(usage.assume_init())),
                _ => Err(format!("getrusage: {}", io::Error::last_os_error())),
            }
        }
    }

    pub fn since(&self, earlier: &Used, counted: &mut Counted) {
        let (now, then) = (&self.0, &earlier.0);
        let ms = |t: libc::timeval| t.tv_sec as f64 * 1e3 + t.tv_usec as f64 / 1e3;
        counted.put("cpu_user_ms", Ok(ms(now.ru_utime) - ms(then.ru_utime)));
        counted.put("cpu_system_ms", Ok(ms(now.ru_stime) - ms(then.ru_stime)));
        let more = |now: libc::c_long, then: libc::c_long| Ok(now.saturating_sub(then) as f64);
        counted.put("switches_voluntary", more(now.ru_nvcsw, then.ru_nvcsw));
        counted.put("switches_involuntary", more(now.ru_nivcsw, then.ru_nivcsw));
        counted.put("faults_minor", more(now.ru_minflt, then.ru_minflt));
        counted.put("faults_major", more(now.ru_majflt, then.ru_majflt));
    }
}

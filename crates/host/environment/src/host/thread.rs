//! The measuring thread, which is the calling one.

use crate::gather::Gathered;
use crate::value::Known;

pub fn facts(into: &mut Gathered) {
    let scheduler = crate::placement::scheduler().map_err(|e| e.to_string());
    into.put("thread.scheduler", scheduler.clone().map(|s| s.0));
    into.put("thread.priority", scheduler.map(|s| i64::from(s.1)));
    into.put("thread.affinity", crate::placement::affinity().map_err(|e| e.to_string()));
    into.put("thread.timer_slack_ns", timer_slack());
    into.put("thread.priority_limit", priority_limit());
}

/// The CPU whose facts are reported: the only one that the thread may run on, or the last of them, as in experiments. Not the current CPU: that may
/// be another one at the next call.
pub fn cpu() -> Known<u64> {
    let all = crate::placement::affinity().map_err(|e| e.to_string())?;
    all.last().map(|cpu| *cpu as u64).ok_or_else(|| "the thread may run on no CPU".into())
}

/// How much longer than requested the kernel may let an ordinary thread sleep.
fn timer_slack() -> Known<i64> {
    // SAFETY: concerns the calling thread only and takes no pointer.
    match unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) } {
        n if n >= 0 => Ok(i64::from(n)),
        _ => Err(format!("prctl: {}", std::io::Error::last_os_error())),
    }
}

/// RLIMIT_RTPRIO: the highest real-time priority that a process without privileges may use.
fn priority_limit() -> Known<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes one rlimit.
    match unsafe { libc::getrlimit(libc::RLIMIT_RTPRIO, &mut limit) } {
        0 => Ok(limit.rlim_cur),
        _ => Err(format!("getrlimit: {}", std::io::Error::last_os_error())),
    }
}

/// UTC, RFC 3339.
pub fn time() -> Known<String> {
    // SAFETY: gmtime_r reads one time and writes one tm, both local variables.
    let tm = unsafe {
        let now = libc::time(std::ptr::null_mut());
        let mut tm: libc::tm = std::mem::zeroed();
        if libc::gmtime_r(&now, &mut tm).is_null() {
            return Err("the clock is out of range".into());
        }
        tm
    };
    let (year, month, day) = (tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday);
    Ok(format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", tm.tm_hour, tm.tm_min, tm.tm_sec))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_has_the_form_of_rfc_3339() {
        let t = time().unwrap();
        let shape: String = t.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        assert_eq!(shape, "0000-00-00T00:00:00Z");
        assert!(t.as_str() > "2026");
    }

    #[test]
    fn the_cpu_is_the_one_that_this_thread_may_use() {
        let all = crate::placement::affinity().unwrap();
        assert_eq!(cpu().unwrap(), *all.last().unwrap() as u64);
        let placed = crate::placement::Placement::take(crate::placement::Wish { cpu: Some(all[0]), fifo: None });
        assert_eq!((cpu().unwrap(), placed.cpu), (all[0] as u64, Some(all[0])));
    }
}

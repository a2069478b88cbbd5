//! The machine without its GPU, from /proc, /sys and the C library.

use super::Known;
use std::fs;

fn read(path: &str) -> Known<String> {
    fs::read_to_string(path).map(|t| t.trim().to_string()).map_err(|e| format!("{path}: {e}"))
}

fn cpuinfo(key: &str) -> Known<String> {
    let text = read("/proc/cpuinfo")?;
    let line = text.lines().find_map(|l| l.strip_prefix(key)?.split_once(':').map(|(_, v)| v.trim().to_string()));
    line.ok_or_else(|| format!("/proc/cpuinfo has no line {key:?}"))
}

pub fn cpu() -> Known<String> {
    cpuinfo("model name")
}

pub fn virtual_machine() -> Known<bool> {
    Ok(cpuinfo("flags")?.split(' ').any(|f| f == "hypervisor"))
}

pub fn cpus() -> Known<u64> {
    // SAFETY: takes and returns numbers.
    match unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) } {
        n if n > 0 => Ok(n as u64),
        _ => Err("sysconf does not say".into()),
    }
}

pub fn governor(cpu: usize) -> Known<String> {
    read(&format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor"))
}

/// The CPUs that the scheduler leaves alone, as the kernel lists them; empty where there are none.
pub fn isolated() -> Known<String> {
    read("/sys/devices/system/cpu/isolated")
}

pub fn kernel() -> Known<String> {
    read("/proc/sys/kernel/osrelease")
}

/// How the kernel was built to be preempted, from its version line.
pub fn preemption() -> Known<String> {
    let version = read("/proc/version")?;
    let word = version.split_whitespace().find(|w| w.starts_with("PREEMPT"));
    word.map(str::to_string).ok_or_else(|| "/proc/version does not say".into())
}

pub fn rt_runtime() -> Known<i64> {
    let path = "/proc/sys/kernel/sched_rt_runtime_us";
    read(path)?.parse().map_err(|_| format!("{path} holds no number"))
}

pub fn load() -> Known<[f64; 3]> {
    let text = read("/proc/loadavg")?;
    let mut words = text.split(' ').map(str::parse);
    match (words.next(), words.next(), words.next()) {
        (Some(Ok(a)), Some(Ok(b)), Some(Ok(c))) => Ok([a, b, c]),
        _ => Err(format!("/proc/loadavg reads {text:?}")),
    }
}

pub fn time() -> Known<String> {
    // SAFETY: gmtime_r reads one time and writes one tm, both of ours.
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
    fn a_missing_file_is_a_reason_that_names_it() {
        assert!(governor(100_000).unwrap_err().contains("cpu100000"));
    }
}

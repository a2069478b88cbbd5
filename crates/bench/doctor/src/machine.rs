//! The machine under the driver: processor, sandbox.

use crate::Check;
use std::fs;

pub fn checks() -> Vec<Check> {
    vec![processor(), sandbox()]
}

fn processor() -> Check {
    let name = "processor";
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |key: &str| {
        text.lines().find(|l| l.starts_with(key)).and_then(|l| l.split_once(':')).map(|(_, v)| v.trim().to_string())
    };
    let model = field("model name").unwrap_or_else(|| "unknown processor".into());
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return Check::no(name, model, "the taps decode x86-64 stores on Linux only").required();
    }
    let flags = field("flags").unwrap_or_default();
    let steady = ["constant_tsc", "nonstop_tsc"].iter().all(|f| flags.split(' ').any(|g| g == *f));
    let cpus = std::thread::available_parallelism().map(usize::from).unwrap_or(1);
    let detail =
        format!("{model}, {cpus} CPUs, time stamp counter {}", if steady { "invariant" } else { "not invariant" });
    let check = Check::yes(name, detail).required();
    if steady { check } else { check.because("time stamps may drift between CPUs or with the clock") }
}

fn sandbox() -> Check {
    let name = "outside a sandbox";
    // gVisor's own kernel log begins with this line; its kernel version is one constant string.
    let mut log = [0u8; 4096];
    // SAFETY: SYSLOG_ACTION_READ_ALL (3) writes at most the length given.
    let n = unsafe { libc::klogctl(3, log.as_mut_ptr().cast(), log.len() as i32) };
    let log = String::from_utf8_lossy(&log[..n.max(0) as usize]);
    let version = fs::read_to_string("/proc/version").unwrap_or_default();
    if log.contains("gVisor") || version.contains("4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016") {
        return Check::no(name, "gVisor", "gVisor passes only the driver calls it knows, and maps the doorbell itself")
            .required();
    }
    let virtual_machine = fs::read_to_string("/proc/cpuinfo").is_ok_and(|t| t.contains(" hypervisor"));
    Check::yes(name, if virtual_machine { "no gVisor; a virtual machine" } else { "no gVisor; no virtual machine" })
        .required()
}

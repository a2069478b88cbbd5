//! The machine below the driver.

use crate::Check;
use std::fs;

pub fn checks() -> Vec<Check> {
    vec![processor()]
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

//! Facts of the machine for the tape's header.

use std::fs;

/// Facts of the machine. A fact that cannot be found is empty.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    pub driver: String,
    pub gpu: String,
    pub kernel: String,
    pub cpu: String,
    /// The machine's name.
    pub host: String,
}

/// The kernel driver's version, from /proc/driver/nvidia/version; `None` without a driver.
pub fn driver_version() -> Option<String> {
    let s = fs::read_to_string("/proc/driver/nvidia/version").ok()?;
    // "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build ..."
    s.lines()
        .next()?
        .split_whitespace()
        .find(|w| w.split('.').count() >= 2 && w.chars().all(|c| c.is_ascii_digit() || c == '.'))
        .map(str::to_owned)
}

/// Reads the facts.
pub fn machine() -> Machine {
    let first = |path: &str, key: &str| {
        fs::read_to_string(path).ok().and_then(|s| {
            s.lines().find(|l| l.starts_with(key)).and_then(|l| l.split_once(':')).map(|(_, v)| v.trim().to_owned())
        })
    };
    let gpu = fs::read_dir("/proc/driver/nvidia/gpus")
        .ok()
        .and_then(|mut d| d.next()?.ok())
        .and_then(|e| first(e.path().join("information").to_str()?, "Model"))
        .unwrap_or_default();
    Machine {
        driver: driver_version().unwrap_or_default(),
        gpu,
        kernel: fs::read_to_string("/proc/sys/kernel/osrelease").map(|s| s.trim().to_owned()).unwrap_or_default(),
        cpu: first("/proc/cpuinfo", "model name").unwrap_or_default(),
        host: fs::read_to_string("/proc/sys/kernel/hostname").map(|s| s.trim().to_owned()).unwrap_or_default(),
    }
}

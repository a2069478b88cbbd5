//! NVIDIA's driver and its GPUs.

use crate::Check;
use rm::abi::{Abi, Source, Standing};
use rm::check;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub fn checks() -> Vec<Check> {
    let mut all = Vec::new();
    let version = driver_version();
    all.push(driver(&version));
    all.extend(layouts(version.as_ref().ok().map(|(v, _)| v.as_str())));
    let gpu_node = first_gpu_node();
    for node in [Path::new("/dev/nvidiactl"), &gpu_node, Path::new("/dev/nvidia-uvm")] {
        all.push(opens(node));
    }
    all.extend(gpus());
    all.push(microcontrollers());
    all.push(libcuda());
    all
}

/// `/dev/nvidiaN` of the lowest N; a container may hide `/dev/nvidia0`.
fn first_gpu_node() -> PathBuf {
    let mut numbers: Vec<u32> = fs::read_dir("/dev")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.strip_prefix("nvidia")?.parse().ok())
        .collect();
    numbers.sort_unstable();
    PathBuf::from(format!("/dev/nvidia{}", numbers.first().copied().unwrap_or(0)))
}

fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).open(path)
}

fn why(e: &io::Error) -> String {
    match e.kind() {
        io::ErrorKind::NotFound => "there is no such file".into(),
        io::ErrorKind::PermissionDenied => "permission denied: this user may not open it".into(),
        _ => e.to_string(),
    }
}

fn opens(path: &Path) -> Check {
    let name = path.display().to_string();
    match open(path) {
        Ok(_) => Check::yes(&name, "opens for reading and writing").required(),
        Err(e) => Check::no(&name, "does not open", &why(&e)).required(),
    }
}

/// The driver's version and where it was read.
fn driver_version() -> Result<(String, &'static str), String> {
    let proc = "/proc/driver/nvidia/version";
    if let Ok(text) = fs::read_to_string(proc)
        && let Some(v) = version_in(&text)
    {
        return Ok((v, proc));
    }
    let ctl = open(Path::new("/dev/nvidiactl")).map_err(|e| format!("no {proc}, and /dev/nvidiactl: {}", why(&e)))?;
    let asked = rm::driver::driver_version(&rm::driver::Libc, ctl.as_raw_fd());
    asked.map(|version| (version, "CHECK_VERSION_STR")).map_err(|e| format!("no {proc}, and {e}"))
}

/// The first word that looks like a driver version: `NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04 ...`
fn version_in(text: &str) -> Option<String> {
    let looks = |w: &&str| {
        w.split('.').count() >= 2 && w.split('.').all(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()))
    };
    text.lines().next()?.split_whitespace().find(looks).map(str::to_string)
}

fn driver(version: &Result<(String, &'static str), String>) -> Check {
    match version {
        Ok((v, from)) => Check::yes("driver", format!("NVIDIA {v} (from {from})")).required(),
        Err(e) => {
            let reason = format!("{e}: is the driver loaded, and are its nodes passed into this container?");
            Check::no("driver", "no NVIDIA driver answers", &reason).required()
        }
    }
}

/// The driver's struct layouts, for recording, and whether separate channels may be made with them.
fn layouts(version: Option<&str>) -> [Check; 2] {
    let Some(version) = version else {
        let none = |name| Check::no(name, "not looked up", "there is no driver");
        return [none("driver layouts").required(), none("driver version")];
    };
    let begin = Instant::now();
    let asked = rm::driver::self_check(&rm::driver::Libc, Abi::of(version).branch()).ok();
    of_version(version, gpu::accepts_unverified(), asked.map(|report| (report, begin.elapsed())))
}

/// `asked`: the kernel's answer and how long it took, if it was queried.
fn of_version(version: &str, accept: bool, asked: Option<(check::Report, Duration)>) -> [Check; 2] {
    let abi = Abi::of(version);
    let branch = abi.branch();
    let known = match abi.standing() {
        Standing::UnknownBranch => format!("a branch that is not known; branch {} is the nearest", branch.number),
        _ => format!("branch {}, {} to {}", branch.number, branch.first, branch.last),
    };
    let checked = match (abi.standing(), branch.source) {
        (Standing::Known, _) => "this version compared with published headers".to_owned(),
        (Standing::NewPatch, _) => "its headers compared, this version not".to_owned(),
        (_, Source::Unverified) => "known second hand, not from published headers".to_owned(),
        (_, Source::Headers) => "its structs were not compared with any headers".to_owned(),
    };
    let asked = match asked {
        None => String::new(),
        Some((report, took)) => {
            let us = took.as_micros();
            match (check::names(report.failed).as_str(), check::names(!report.seen).as_str()) {
                ("", "") => format!("; the kernel has structs of these sizes (asked in {us} us)"),
                ("", unseen) => format!("; the kernel does not report the sizes for {unseen} (asked in {us} us)"),
                (failed, _) => format!("; the kernel has other sizes for {failed} (asked in {us} us)"),
            }
        }
    };
    let seen = match branch.seen {
        [] => "no version of it was seen on hardware".to_owned(),
        seen if seen.contains(&version.trim()) => "seen working on hardware".to_owned(),
        seen => format!("seen on hardware: {}", seen.join(", ")),
    };
    let name = "driver version";
    let own = match Abi::for_own_channels(version, accept) {
        Ok(_) if abi.standing() == Standing::Known => Check::yes(name, format!("{version} is known")),
        Ok(_) => Check::yes(name, format!("{version} is not verified, and accepted all the same")),
        Err(e) => Check::no(name, "not verified: recording works, doorbell's own channels are refused", &e.to_string()),
    };
    [Check::yes("driver layouts", format!("{known}; {checked}{asked}; {seen}")).required(), own]
}

fn gpus() -> Vec<Check> {
    let mut all = Vec::new();
    let devices = fs::read_dir("/sys/bus/pci/devices").into_iter().flatten().flatten();
    for d in devices {
        let read = |f: &str| fs::read_to_string(d.path().join(f)).unwrap_or_default().trim().to_string();
        // Vendor 10de, class 03xxxx: a display controller (VGA, or 3D without a display).
        if read("vendor") != "0x10de" || !read("class").starts_with("0x03") {
            continue;
        }
        let address = d.file_name().to_string_lossy().into_owned();
        let name = gpu_name(&address)
            .unwrap_or_else(|| format!("PCI device 10de:{}", read("device").trim_start_matches("0x")));
        let name_line = format!("{name} at {address}");
        all.push(match bar1(&read("resource")) {
            Some(bytes) => Check::yes("GPU", format!("{name_line}, BAR1 {} MiB", bytes >> 20)),
            None => Check::no("GPU", name_line, "BAR1 has no size in sysfs"),
        });
    }
    if all.is_empty() {
        all.push(Check::no("GPU", "none", "no PCI display controller of vendor 10de in /sys/bus/pci/devices"));
    }
    all
}

fn gpu_name(address: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/driver/nvidia/gpus/{address}/information")).ok()?;
    text.lines().find_map(|l| l.strip_prefix("Model:")).map(|m| m.trim().to_string())
}

/// Bytes of BAR1: the second memory BAR in a PCI device's resource file (`start end flags` a line). BAR0 takes one line or
/// two, as it has 32 or 64 address bits.
fn bar1(resource: &str) -> Option<u64> {
    const IORESOURCE_MEM: u64 = 0x200;
    let hex = |w: &str| u64::from_str_radix(w.trim_start_matches("0x"), 16).ok();
    let memory = |l: &str| {
        let mut words = l.split_whitespace().map(hex);
        let (start, end, flags) = (words.next()??, words.next()??, words.next()??);
        (end > start && flags & IORESOURCE_MEM != 0).then(|| end - start + 1)
    };
    resource.lines().take(6).filter_map(memory).nth(1)
}

/// RM's confidential-computing feature: 0 is off.
pub fn confidential_state() -> Result<u8, String> {
    let ctl = open(Path::new("/dev/nvidiactl")).map_err(|e| why(&e))?;
    match rm::driver::confidential_feature(&rm::driver::Libc, ctl.as_raw_fd()) {
        Ok(feature) => feature.ok_or_else(|| "the driver has no such state".into()),
        Err(e) => Err(e.to_string()),
    }
}

/// The firmware that readers of 'Data Transfer Matters of Real-Time GPU Computing' (2013) look for.
fn microcontrollers() -> Check {
    let why = "their firmware must be signed by NVIDIA; a kernel that waits at a mailbox does what they did: host->resident[sm]->gpu0";
    Check::info("microcontrollers", "the GPU's own (HUB, GPC) cannot be made to copy", why)
}

fn libcuda() -> Check {
    let name = "libcuda";
    // SAFETY: loading libcuda runs its initialisers, which is what every CUDA program does.
    let lib = match unsafe { libloading::Library::new("libcuda.so.1") } {
        Ok(l) => l,
        Err(e) => return Check::no(name, "libcuda.so.1 does not load", &e.to_string()).required(),
    };
    // SAFETY: cuDriverGetVersion has had this signature since CUDA 2.2 and needs no cuInit.
    let version = unsafe {
        lib.get::<unsafe extern "C" fn(*mut i32) -> i32>(b"cuDriverGetVersion\0").ok().and_then(|f| {
            let mut v = 0;
            (f(&mut v) == 0).then_some(v)
        })
    };
    let check = match version {
        Some(v) => Check::yes(name, format!("libcuda.so.1 loads, CUDA {}.{}", v / 1000, v % 1000 / 10)),
        None => Check::no(name, "libcuda.so.1 loads", "cuDriverGetVersion does not answer"),
    };
    // Its initialisers may have started threads and installed handlers: it stays loaded.
    std::mem::forget(lib);
    check.required()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_found_in_both_flavours_of_the_module() {
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\nGCC version:  gcc version 14.2.0";
        assert_eq!(version_in(open).as_deref(), Some("580.159.04"));
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.133.20  Sun Mar 30 01:07:19 UTC 2025\n";
        assert_eq!(version_in(closed).as_deref(), Some("570.133.20"));
        assert_eq!(version_in("GCC version: 14\n"), None);
    }

    #[test]
    fn a_version_is_known_checked_seen_or_none_of_it() {
        let said = |version, failed| {
            let asked = Some((check::Report { failed, seen: 15 }, Duration::from_micros(90)));
            let [layouts, own] = of_version(version, false, asked);
            assert_eq!(layouts.verdict, crate::Verdict::Yes);
            (layouts.detail, own.verdict == crate::Verdict::Yes)
        };
        let (detail, own) = said("580.159.04", 0);
        assert_eq!(
            detail,
            "branch 580, 580.65.06 to 580.173.02; this version compared with published headers; the kernel has structs of \
             these sizes (asked in 90 us); seen working on hardware"
        );
        assert!(own);
        let (detail, own) = said("580.178.04", 0);
        assert!(detail.contains(
            "this version not; the kernel has structs of these sizes (asked in 90 us); seen on hardware: 580.159.04"
        ));
        assert!(!own);
        let (detail, own) = said("610.57.04", check::part::CHANNELS | check::part::UVM);
        assert!(detail.contains("second hand") && detail.contains("other sizes for channels, UVM (asked"), "{detail}");
        assert!(!own);
        assert!(said("625.6.0", 0).0.starts_with("a branch that is not known; branch 620 is the nearest; "));
        assert_eq!(of_version("610.57.04", true, None)[1].verdict, crate::Verdict::Yes);
    }

    proptest::proptest! {
        #[test]
        fn no_text_of_the_kernel_panics(text in "[0-9a-fx .\n]{0,80}", any in ".{0,40}") {
            for text in [text, any] {
                bar1(&text);
                if let Some(v) = version_in(&text) {
                    rm::abi::Abi::of(&v);
                }
            }
        }
    }

    #[test]
    fn bar1_is_the_second_memory_bar() {
        let text = "0x00000000f0000000 0x00000000f0ffffff 0x0000000000040200\n0x0000100000000000 0x0000101fffffffff 0x000000000014220c\n";
        assert_eq!(bar1(text), Some(128 << 30));
        let wide = "0x0000000040000000 0x0000000040ffffff 0x0000000000140204\n0x0 0x0 0x0\n0x0000100000000000 0x0000103fffffffff 0x000000000014220c\n";
        assert_eq!(bar1(wide), Some(256 << 30));
        assert_eq!(bar1("0x0 0x0 0x0\n0x0 0x0 0x0\n"), None);
        assert_eq!(bar1(""), None);
    }
}

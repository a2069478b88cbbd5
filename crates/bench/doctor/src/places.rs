//! Environments in which a GPU is shared, divided, hidden or encrypted: which of them this is, and what works in it.
//!
//! Only reads; tries nothing. Cases that were not seen on hardware are marked, with what doorbell does then.

use crate::Check;
use environment::Virtualization;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// Names of checks that separate channels need: see [`crate::own`].
pub const SANDBOX: &str = "outside a sandbox";
pub const WSL: &str = "outside WSL2";
pub const MIG: &str = "MIG off";
pub const MPS: &str = "MPS off";
pub const WHOLE: &str = "whole GPU";
pub const CONFIDENTIAL: &str = "confidential computing off";

/// What works wherever there is Linux on x86-64.
const ALWAYS: &str = "`show`, `report`, `compare` and the software GPU (`--gpu soft`) work";

/// The Multi-Process Service's default folder for its pipes; the environment may name another (CUDA's documentation of MPS).
const PIPES: &str = "/tmp/nvidia-mps";
const PIPES_BY: &str = "CUDA_MPS_PIPE_DIRECTORY";

/// Sources of the checks.
pub struct Sources {
    /// In front of /proc, /dev, /etc and the rest.
    pub root: PathBuf,
    pub environment: fn(&str) -> Option<OsString>,
    pub kernel_log: String,
    /// NVML's answer.
    pub virtualization: Result<Virtualization, String>,
    /// RM's answer: 0 is off.
    pub confidential: Result<u8, String>,
}

impl Sources {
    /// The sources on this machine.
    pub fn here() -> Sources {
        Sources {
            root: "/".into(),
            environment: |name| std::env::var_os(name),
            kernel_log: kernel_log(),
            virtualization: environment::virtualization(),
            confidential: crate::nvidia::confidential_state(),
        }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    fn has(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap_or_default()
    }

    fn names(&self, folder: &str) -> Vec<String> {
        names(&self.path(folder))
    }

    /// Whether a process with a name that begins like this runs here. (The kernel keeps 15 characters of a name.)
    fn runs(&self, name: &str) -> bool {
        let numbers = self.names("/proc").into_iter().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
        numbers.into_iter().any(|number| self.text(&format!("/proc/{number}/comm")).starts_with(name))
    }

    fn cpu_flag(&self, flag: &str) -> bool {
        let text = self.text("/proc/cpuinfo");
        let flags = text.lines().find(|line| line.starts_with("flags")).unwrap_or("");
        flags.split_whitespace().any(|one| one == flag)
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn kernel_log() -> String {
    let mut log = [0u8; 4096];
    // SAFETY: SYSLOG_ACTION_READ_ALL (3) writes at most the length given.
    let n = unsafe { libc::klogctl(3, log.as_mut_ptr().cast(), log.len() as i32) };
    String::from_utf8_lossy(&log[..n.max(0) as usize]).into_owned()
}

/// One check for each place.
pub fn checks(from: &Sources) -> Vec<Check> {
    vec![sandbox(from), wsl(from), mig(from), mps(from), vgpu(from), confidential(from)]
}

fn sandbox(from: &Sources) -> Check {
    // gVisor's kernel log begins with its name; its kernel version was one constant string, and now contains its name.
    let version = from.text("/proc/version");
    let is_gvisor = from.kernel_log.contains("gVisor")
        || version.contains("4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016")
        || version.contains("gvisor");
    if is_gvisor {
        let why = "gVisor passes only the driver calls it knows, and maps the doorbell itself: neither recordings nor doorbell's own channels work";
        return Check::no(SANDBOX, "gVisor", &format!("{why}. {ALWAYS}")).required();
    }
    let virtual_machine = from.cpu_flag("hypervisor");
    Check::yes(SANDBOX, if virtual_machine { "no gVisor; a virtual machine" } else { "no gVisor; no virtual machine" })
        .required()
}

fn wsl(from: &Sources) -> Check {
    let version = from.text("/proc/version").to_ascii_lowercase();
    let kernel = version.contains("microsoft") || version.contains("wsl");
    if !kernel && !from.has("/dev/dxg") {
        return Check::yes(WSL, "a Linux kernel with its own drivers").required();
    }
    let found = if from.has("/dev/dxg") { "WSL2 with a GPU (/dev/dxg)" } else { "WSL, without a GPU" };
    let why = "the driver runs in Windows, and commands go to it through /dev/dxg: there are no calls and no doorbell to record, and doorbell's own channels do not work";
    Check::no(WSL, found, &format!("{why}. {ALWAYS}; start Linux itself to record")).required()
}

fn mig(from: &Sources) -> Check {
    const FOLDER: &str = "/proc/driver/nvidia/capabilities";
    let mut found: Vec<String> = Vec::new();
    for gpu in from.names(FOLDER) {
        let made = from.names(&format!("{FOLDER}/{gpu}/mig"));
        let n = made.iter().filter(|name| name.starts_with("gi")).count();
        if n > 0 {
            found.push(format!("{gpu} has {n} instances"));
        }
    }
    found.sort();
    // A container may have an instance without the folder that shows it.
    for name in ["CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"] {
        let value = (from.environment)(name).unwrap_or_default();
        if value.to_string_lossy().split(',').any(|device| device.starts_with("MIG-")) {
            found.push(format!("{name} names an instance"));
        }
    }
    if found.is_empty() {
        return Check::yes(MIG, "no GPU instances in /proc/driver/nvidia/capabilities");
    }
    let why = "engines are numbered within an instance: recordings and doorbell's own channels have not been tested there and are not supported";
    Check::no(MIG, found.join(", "), &format!("{why}; use a whole GPU. {ALWAYS}")).required()
}

fn mps(from: &Sources) -> Check {
    let folder = (from.environment)(PIPES_BY).filter(|folder| !folder.is_empty());
    let pipe = PathBuf::from(folder.unwrap_or_else(|| PIPES.into())).join("control");
    let found = if from.runs("nvidia-cuda-mps") {
        "the service runs".into()
    } else if from.path(&pipe.to_string_lossy()).exists() {
        format!("the service has, or left, its pipe at {}", pipe.display())
    } else {
        return Check::yes(MPS, "no service and no pipe of it");
    };
    let why = "launches of graphs by doorbell are refused, and recordings have not been tested there: they do not show what the service does for a program. \
               Doorbell's own copies are tried as elsewhere; `echo quit | nvidia-cuda-mps-control` ends the service";
    Check::no(MPS, found, why)
}

fn vgpu(from: &Sources) -> Check {
    match &from.virtualization {
        Ok(Virtualization::Guest) => {
            let why = "the hypervisor's driver owns the engines and their channels: doorbell's own channels are not supported, and recordings have not been tested there";
            Check::no(WHOLE, "the GPU is a vGPU of a virtual machine", &format!("{why}. {ALWAYS}"))
        }
        Ok(Virtualization::Host) => Check::info(WHOLE, "the GPU is shared out to virtual machines as vGPUs", ""),
        Ok(Virtualization::PassedThrough) => Check::yes(WHOLE, "the GPU is passed through to this virtual machine"),
        Ok(Virtualization::None) => Check::yes(WHOLE, "the GPU is this machine's own"),
        Err(reason) => {
            // The licence client of vGPU guests; it also runs if a licensed GPU is passed through.
            let guest = from.runs("nvidia-gridd") || from.has("/etc/nvidia/gridd.conf");
            let host = !from.names("/sys/class/mdev_bus").is_empty() && from.runs("nvidia-vgpu");
            let detail = match (guest, host) {
                (true, _) => "perhaps a vGPU, a part of a GPU: its licence client is installed",
                (_, true) => "the GPU is shared out to virtual machines as vGPUs",
                _ => "not known whether it is a vGPU, a part of a GPU",
            };
            Check::info(WHOLE, detail, reason)
        }
    }
}

fn confidential(from: &Sources) -> Check {
    match &from.confidential {
        Ok(0) => Check::yes(CONFIDENTIAL, "RM reports it as disabled"),
        Ok(feature) => {
            let why = "protected memory cannot be read and rings are encrypted: neither recordings nor doorbell's own channels work";
            Check::no(CONFIDENTIAL, format!("on (feature {feature})"), &format!("{why}. {ALWAYS}")).required()
        }
        Err(reason) => {
            let tdx = from.has("/dev/tdx_guest") || from.cpu_flag("tdx_guest");
            let sev = from.has("/dev/sev-guest") || from.cpu_flag("sev_snp");
            let detail = match (tdx, sev) {
                (true, _) => "not known; this virtual machine is encrypted (TDX), so the GPU may be",
                (_, true) => "not known; this virtual machine is encrypted (SEV), so the GPU may be",
                _ => "not known",
            };
            Check::info(CONFIDENTIAL, detail, reason)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verdict;

    /// A machine with one whole GPU, except for these files.
    fn planted(files: &[(&str, &str)]) -> (tempfile::TempDir, Sources) {
        let folder = tempfile::tempdir().unwrap();
        let usual = [
            ("/proc/version", "Linux version 6.8.0-60-generic (buildd@host) #63-Ubuntu SMP"),
            ("/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu constant_tsc\n"),
            ("/proc/1/comm", "systemd\n"),
        ];
        for (path, text) in usual.iter().chain(files) {
            let path = folder.path().join(path.trim_start_matches('/'));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let sources = Sources {
            root: folder.path().into(),
            environment: |_| None,
            kernel_log: String::new(),
            virtualization: Ok(Virtualization::None),
            confidential: Ok(0),
        };
        (folder, sources)
    }

    /// Checks that differ from a machine with one whole GPU.
    fn found(sources: &Sources) -> Vec<Check> {
        checks(sources).into_iter().filter(|check| check.verdict != Verdict::Yes).collect()
    }

    #[track_caller]
    fn one(sources: &Sources, name: &str, required: bool) -> (String, String) {
        let found = found(sources);
        assert_eq!(found.len(), 1, "{found:?}");
        let check = &found[0];
        assert_eq!((check.name.as_str(), check.verdict, check.required), (name, Verdict::No, required));
        (check.detail.clone(), check.reason.clone().unwrap())
    }

    #[test]
    fn a_machine_with_one_whole_gpu_is_none_of_them() {
        let (_folder, sources) = planted(&[]);
        assert_eq!(found(&sources), []);
        assert_eq!(checks(&sources)[0].detail, "no gVisor; no virtual machine");
        let guest = [("/proc/cpuinfo", "flags\t\t: fpu hypervisor\n")];
        let (_folder, sources) = planted(&guest);
        assert_eq!(checks(&sources)[0].detail, "no gVisor; a virtual machine");
    }

    #[test]
    fn gvisor_old_and_new() {
        let old = "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016";
        for text in [old, "Linux version 4.19.0-gvisor #1 SMP"] {
            let (_folder, sources) = planted(&[("/proc/version", text)]);
            let (_, reason) = one(&sources, SANDBOX, true);
            assert!(
                reason.contains("neither recordings nor doorbell's own channels work") && reason.contains("`show`"),
                "{reason}"
            );
        }
        let (_folder, sources) = planted(&[]);
        one(&Sources { kernel_log: "[    0.000000] Starting gVisor...".into(), ..sources }, SANDBOX, true);
    }

    #[test]
    fn wsl2_with_and_without_a_gpu() {
        let version = "Linux version 5.15.153.1-microsoft-standard-WSL2 (root@host)";
        let (_folder, sources) = planted(&[("/proc/version", version), ("/dev/dxg", "")]);
        let (detail, reason) = one(&sources, WSL, true);
        assert!(detail.contains("/dev/dxg") && reason.contains("no doorbell to record"), "{detail}: {reason}");
        let (_folder, sources) = planted(&[("/proc/version", version)]);
        assert!(one(&sources, WSL, true).0.contains("without a GPU"));
        // One of its containers has a kernel with another name, or with no visible name.
        let (_folder, sources) = planted(&[("/dev/dxg", "")]);
        one(&sources, WSL, true);
    }

    #[test]
    fn parts_of_a_gpu() {
        let folder = "/proc/driver/nvidia/capabilities";
        let files = [
            (format!("{folder}/gpu0/mig/gi1/access"), ""),
            (format!("{folder}/gpu0/mig/gi2/ci0/access"), ""),
            (format!("{folder}/gpu1/mig/config"), ""),
            (format!("{folder}/mig/config"), ""),
        ];
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let (_folder, sources) = planted(&files);
        let (detail, reason) = one(&sources, MIG, true);
        assert_eq!(detail, "gpu0 has 2 instances");
        assert!(reason.contains("use a whole GPU"), "{reason}");
        let (_folder, sources) = planted(&files[2..]);
        assert_eq!(found(&sources), [], "MIG may be switched on without an instance");
        let environment = |name: &str| (name == "CUDA_VISIBLE_DEVICES").then(|| "MIG-0f3c".into());
        let (detail, _) = one(&Sources { environment, ..sources }, MIG, true);
        assert_eq!(detail, "CUDA_VISIBLE_DEVICES names an instance");
    }

    #[test]
    fn the_multi_process_service_by_its_process_and_by_its_pipe() {
        let (_folder, sources) = planted(&[("/proc/4711/comm", "nvidia-cuda-mps\n")]);
        let (detail, reason) = one(&sources, MPS, false);
        assert_eq!(detail, "the service runs");
        assert!(reason.contains("launches of graphs by doorbell are refused") && reason.contains("quit"), "{reason}");
        let (_folder, sources) = planted(&[("/tmp/nvidia-mps/control", "")]);
        assert!(one(&sources, MPS, false).0.contains("/tmp/nvidia-mps/control"));
        let environment = |name: &str| (name == PIPES_BY).then(|| "/run/mps".into());
        assert_eq!(found(&Sources { environment, ..sources }), [], "its pipes are elsewhere");
        let (_folder, sources) = planted(&[("/run/mps/control", "")]);
        assert!(one(&Sources { environment, ..sources }, MPS, false).0.contains("/run/mps/control"));
    }

    #[test]
    fn a_vgpu_by_nvml_and_what_files_say_without_it() {
        let (_folder, sources) = planted(&[]);
        let (_, reason) = one(&Sources { virtualization: Ok(Virtualization::Guest), ..sources }, WHOLE, false);
        assert!(reason.contains("own channels are not supported"), "{reason}");
        let (_folder, sources) = planted(&[]);
        assert_eq!(found(&Sources { virtualization: Ok(Virtualization::PassedThrough), ..sources }), []);
        let unknown = |files: &[(&str, &str)]| {
            let (_folder, sources) = planted(files);
            let found = found(&Sources { virtualization: Err("no NVML here".into()), ..sources });
            assert_eq!((found.len(), found[0].verdict), (1, Verdict::Info), "{found:?}");
            found[0].detail.clone()
        };
        assert!(unknown(&[]).contains("not known"));
        assert!(unknown(&[("/proc/812/comm", "nvidia-gridd\n")]).contains("perhaps"));
        assert!(unknown(&[("/etc/nvidia/gridd.conf", "")]).contains("perhaps"));
        let host = [("/sys/class/mdev_bus/0000:41:00.0", ""), ("/proc/90/comm", "nvidia-vgpu-mgr\n")];
        assert!(unknown(&host).contains("shared out"));
    }

    #[test]
    fn confidential_computing_by_the_driver_or_by_the_machine() {
        let (_folder, sources) = planted(&[]);
        let (detail, reason) = one(&Sources { confidential: Ok(1), ..sources }, CONFIDENTIAL, true);
        assert!(detail.contains("feature 1") && reason.contains("rings are encrypted"), "{detail}: {reason}");
        let unknown = |files: &[(&str, &str)]| {
            let (_folder, sources) = planted(files);
            let found = found(&Sources { confidential: Err("permission denied".into()), ..sources });
            assert_eq!((found.len(), found[0].verdict), (1, Verdict::Info), "{found:?}");
            found[0].detail.clone()
        };
        assert_eq!(unknown(&[]), "not known");
        assert!(unknown(&[("/dev/tdx_guest", "")]).contains("TDX"));
        assert!(unknown(&[("/proc/cpuinfo", "flags\t\t: fpu sev sev_snp\n")]).contains("SEV"));
    }

    #[test]
    fn there_is_one_check_for_each_place() {
        let names: Vec<String> = checks(&planted(&[]).1).into_iter().map(|check| check.name).collect();
        assert_eq!(names, [SANDBOX, WSL, MIG, MPS, WHOLE, CONFIDENTIAL]);
    }
}

//! Resources of this process at a moment: memory, files, threads. If they grow over hours, it is a leak.

use crate::files::Files;
use crate::nvml::{self, why};
use crate::{Gpu, Known};
use nvml_wrapper::enums::device::UsedGpuMemory;

/// Each is a number, or the reason why it is unknown.
#[derive(Clone, Debug)]
pub struct Held {
    /// Resident memory (/proc/self/statm).
    pub rss_bytes: Known<u64>,
    /// Lines of /proc/self/maps.
    pub mappings: Known<u64>,
    pub descriptors: Known<u64>,
    pub threads: Known<u64>,
    /// Open files of the GPU's driver: /dev/nvidia*. Resources that the driver keeps for such a file cannot be counted.
    pub driver_files: Known<u64>,
    /// GPU memory of this process if the driver reports it separately, else of the whole GPU.
    pub gpu_used_bytes: Known<u64>,
}

impl Held {
    pub fn now(gpu: Gpu<'_>) -> Held {
        let files = Files::of_this_machine();
        let text = |path: &str| files.text(path);
        let pages = text("/proc/self/statm").and_then(|text| {
            let second = text.split_ascii_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok());
            second.ok_or_else(|| "/proc/self/statm has no second number".to_string())
        });
        let (descriptors, driver_files) = match open_files() {
            Ok((all, driver)) => (Ok(all), Ok(driver)),
            Err(why) => (Err(why.clone()), Err(why)),
        };
        Held {
            rss_bytes: pages.map(|pages| pages * page_bytes()),
            mappings: text("/proc/self/maps").map(|text| text.lines().count() as u64),
            descriptors,
            threads: files.names("/proc/self/task").map(|all| all.len() as u64),
            driver_files,
            gpu_used_bytes: gpu_used(gpu),
        }
    }
}

fn page_bytes() -> u64 {
    // SAFETY: takes and returns numbers.
    match unsafe { libc::sysconf(libc::_SC_PAGESIZE) } {
        n if n > 0 => n as u64,
        _ => 4096,
    }
}

/// Number of descriptors except the one used for counting, and how many of them are the driver's.
fn open_files() -> Known<(u64, u64)> {
    let unread = |e: std::io::Error| format!("/proc/self/fd: {e}");
    let (mut all, mut driver) = (0u64, 0);
    for entry in std::fs::read_dir("/proc/self/fd").map_err(unread)? {
        let path = entry.map_err(unread)?.path();
        all += 1;
        driver += u64::from(std::fs::read_link(path).is_ok_and(|to| to.to_string_lossy().starts_with("/dev/nvidia")));
    }
    Ok((all.saturating_sub(1), driver))
}

fn gpu_used(gpu: Gpu<'_>) -> Known<u64> {
    let device = match gpu {
        Gpu::Real { pci } => nvml::device(pci)?,
        Gpu::Soft => return Err("the software GPU has no separate memory".into()),
        Gpu::None => return Err("no GPU is used".into()),
    };
    let mine = |all: Vec<nvml_wrapper::struct_wrappers::device::ProcessInfo>| {
        all.into_iter().find(|p| p.pid == std::process::id()).and_then(|p| match p.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes),
            UsedGpuMemory::Unavailable => None,
        })
    };
    match device.running_compute_processes().ok().and_then(mine) {
        Some(bytes) => Ok(bytes),
        None => device.memory_info().map(|memory| memory.used).map_err(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_resources_are_counted_or_have_a_reason() {
        let before = Held::now(Gpu::Soft);
        let files: Vec<_> = (0..50).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
        let pages = vec![1u8; 64 << 20];
        let held = Held::now(Gpu::Soft);
        // Other tests open and close files and memory at the same time.
        assert!(held.descriptors.clone().unwrap() >= before.descriptors.unwrap() + 30);
        assert!(held.rss_bytes.clone().unwrap() >= before.rss_bytes.unwrap() + (32 << 20));
        assert!(held.threads.unwrap() >= 1 && held.mappings.unwrap() > 5 && held.driver_files.is_ok());
        assert!(held.gpu_used_bytes.unwrap_err().contains("software"));
        drop((files, std::hint::black_box(pages)));
    }
}

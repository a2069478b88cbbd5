//! The GPU through NVML, and its other users.

use crate::Virtualization;
use crate::files::Files;
use crate::gather::Gathered;
use crate::nvml::{self, why};
use crate::value::Known;
use nvml_wrapper::Device;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{
    Clock, ComputeMode, EccCounter, GpuVirtualizationMode, MemoryError, TemperatureSensor,
};

/// Returns the GPU's PCI address, for facts from the kernel.
pub fn facts(files: &Files, pci: Option<&str>, into: &mut Gathered) -> Known<String> {
    let nvml = nvml::library();
    let driver = nvml.clone().and_then(|n| n.sys_driver_version().map_err(why));
    into.put("gpu.driver", driver.or_else(|why| driver_of_kernel(files, why)));
    let cuda = nvml.and_then(|n| n.sys_cuda_driver_version().map_err(why));
    into.put("gpu.cuda", cuda.map(|v| format!("{}.{}", v / 1000, v % 1000 / 10)));
    into.put("gpu.mps", mps(files));
    match nvml::device(pci) {
        Ok(device) => {
            let address = device.pci_info().map(|p| p.bus_id).map_err(why);
            into.put("gpu.address", address.clone());
            of_device(&device, files, into);
            address
        }
        Err(reason) => {
            into.none_of("gpu.", &reason);
            pci.map(str::to_string).ok_or(reason)
        }
    }
}

fn of_device(d: &Device<'_>, files: &Files, into: &mut Gathered) {
    into.put("gpu.name", d.name().map_err(why));
    into.put("gpu.uuid", d.uuid().map_err(why));
    into.put("gpu.vbios", d.vbios_version().map_err(why));
    into.put("gpu.memory_mib", d.memory_info().map(|m| m.total >> 20).map_err(why));
    into.put("gpu.bar1_mib", d.bar1_memory_info().map(|m| m.total >> 20).map_err(why));
    into.put("gpu.virtualization", of(d).map(name_of));
    into.put("gpu.mig", d.mig_mode().map(|m| m.current != 0).map_err(why));
    into.put("gpu.compute_mode", d.compute_mode().map(compute_mode).map_err(why));
    into.put("gpu.persistence", d.is_in_persistent_mode().map_err(why));
    into.put("gpu.confidential", d.is_cc_enabled().map_err(why));

    into.put("gpu.ecc", d.is_ecc_enabled().map(|e| e.currently_enabled).map_err(why));
    let errors = |kind, counter| d.total_ecc_errors(kind, counter).map_err(why);
    into.put("gpu.ecc_corrected", errors(MemoryError::Corrected, EccCounter::Volatile));
    into.put("gpu.ecc_uncorrected", errors(MemoryError::Uncorrected, EccCounter::Volatile));
    into.put("gpu.ecc_uncorrected_ever", errors(MemoryError::Uncorrected, EccCounter::Aggregate));

    let mhz = |known: Result<u32, nvml_wrapper::error::NvmlError>| known.map(u64::from).map_err(why);
    into.put("gpu.sm_mhz", mhz(d.clock_info(Clock::SM)));
    into.put("gpu.sm_most_mhz", mhz(d.max_clock_info(Clock::SM)));
    into.put("gpu.sm_set_mhz", mhz(d.applications_clock(Clock::SM)));
    into.put("gpu.memory_mhz", mhz(d.clock_info(Clock::Memory)));
    into.put("gpu.memory_most_mhz", mhz(d.max_clock_info(Clock::Memory)));
    into.put("gpu.memory_set_mhz", mhz(d.applications_clock(Clock::Memory)));
    into.put("gpu.throttle", throttle(d));
    into.put("gpu.power_w", d.power_usage().map(|mw| f64::from(mw) / 1000.0).map_err(why));
    into.put("gpu.power_limit_w", d.enforced_power_limit().map(|mw| f64::from(mw) / 1000.0).map_err(why));
    into.put("gpu.temperature_c", d.temperature(TemperatureSensor::Gpu).map(u64::from).map_err(why));
    into.put("gpu.busy_percent", d.utilization_rates().map(|u| u64::from(u.gpu)).map_err(why));

    into.put("gpu.link_generation", mhz(d.current_pcie_link_gen()));
    into.put("gpu.link_width", mhz(d.current_pcie_link_width()));
    into.put("gpu.link_most_generation", mhz(d.max_pcie_link_gen()));
    into.put("gpu.link_most_width", mhz(d.max_pcie_link_width()));
    into.put("gpu.link_replays", mhz(d.pcie_replay_counter()));
    into.put("gpu.processes", processes(d, files));
}

pub fn of(d: &Device<'_>) -> Known<Virtualization> {
    Ok(match d.virtualization_mode().map_err(why)? {
        GpuVirtualizationMode::Bare => Virtualization::None,
        GpuVirtualizationMode::PassThrough => Virtualization::PassedThrough,
        GpuVirtualizationMode::Vgpu => Virtualization::Guest,
        GpuVirtualizationMode::HostVgpu | GpuVirtualizationMode::HostVsga => Virtualization::Host,
    })
}

fn name_of(v: Virtualization) -> &'static str {
    match v {
        Virtualization::None => "none",
        Virtualization::PassedThrough => "passed through",
        Virtualization::Guest => "vGPU",
        Virtualization::Host => "host of vGPUs",
    }
}

fn compute_mode(mode: ComputeMode) -> &'static str {
    match mode {
        ComputeMode::Default => "default",
        ComputeMode::ExclusiveThread => "exclusive thread",
        ComputeMode::Prohibited => "prohibited",
        ComputeMode::ExclusiveProcess => "exclusive process",
    }
}

/// Why clocks are lower than they could be, now.
pub fn throttle(d: &Device<'_>) -> Known<Vec<&'static str>> {
    d.current_throttle_reasons().map(reasons).map_err(why)
}

pub fn reasons(found: ThrottleReasons) -> Vec<&'static str> {
    const NAMES: [(ThrottleReasons, &str); 9] = [
        (ThrottleReasons::GPU_IDLE, "idle"),
        (ThrottleReasons::APPLICATIONS_CLOCKS_SETTING, "clocks set"),
        (ThrottleReasons::DISPLAY_CLOCK_SETTING, "display clocks set"),
        (ThrottleReasons::SYNC_BOOST, "sync boost"),
        (ThrottleReasons::SW_POWER_CAP, "power cap"),
        (ThrottleReasons::HW_SLOWDOWN, "hardware slowdown"),
        (ThrottleReasons::SW_THERMAL_SLOWDOWN, "heat"),
        (ThrottleReasons::HW_THERMAL_SLOWDOWN, "heat, by hardware"),
        (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, "power brake"),
    ];
    NAMES.iter().filter(|(bit, _)| found.contains(*bit)).map(|(_, name)| *name).collect()
}

/// Processes other than this one with a context on the GPU, `4711 python3`.
fn processes(d: &Device<'_>, files: &Files) -> Known<Vec<String>> {
    let mut all = d.running_compute_processes().map_err(why)?;
    all.extend(d.running_graphics_processes().unwrap_or_default());
    let mut pids: Vec<u32> = all.iter().map(|p| p.pid).filter(|pid| *pid != std::process::id()).collect();
    pids.sort_unstable();
    pids.dedup();
    let name = |pid: u32| match files.text(&format!("/proc/{pid}/comm")) {
        Ok(name) => format!("{pid} {name}"),
        // In another container, or ended in the meantime.
        Err(_) => format!("{pid} (not seen from here)"),
    };
    Ok(pids.into_iter().map(name).collect())
}

/// Whether a server of the CUDA Multi-Process Service runs. The kernel keeps only the first 15 characters of its name.
fn mps(files: &Files) -> Known<bool> {
    let is_server = |pid: &String| {
        pid.bytes().all(|b| b.is_ascii_digit())
            && files.text(&format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with("nvidia-cuda-mps"))
    };
    Ok(files.names("/proc")?.iter().any(is_server))
}

fn driver_of_kernel(files: &Files, otherwise: String) -> Known<String> {
    files.text("/proc/driver/nvidia/version").ok().and_then(|text| version(&text)).ok_or(otherwise)
}

fn version(text: &str) -> Option<String> {
    let number =
        |w: &&str| w.contains('.') && w.split('.').all(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()));
    text.split_whitespace().find(number).map(str::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_is_found_in_the_kernel_modules_line() {
        let text =
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (dvs-builder@U22)";
        assert_eq!(version(text).as_deref(), Some("580.159.04"));
        assert_eq!(version("NVRM version: none."), None);
    }

    #[test]
    fn reasons_have_names() {
        assert_eq!(reasons(ThrottleReasons::NONE), Vec::<&str>::new());
        assert_eq!(reasons(ThrottleReasons::GPU_IDLE | ThrottleReasons::SW_POWER_CAP), ["idle", "power cap"]);
        // Each bit that NVML defines has a name.
        for bit in ThrottleReasons::all().iter() {
            assert_eq!(reasons(bit).len(), 1, "{bit:?}");
        }
    }
}

//! The GPU, through NVML, which only answers questions here, and sysfs.

use super::Known;
use nvml_wrapper::enum_wrappers::device::Clock;
use nvml_wrapper::{Device, Nvml};

pub struct Facts {
    pub name: Known<String>,
    pub uuid: Known<String>,
    pub pci_address: Known<String>,
    pub numa_node: Known<i64>,
    pub driver: Known<String>,
    pub cuda: Known<String>,
    pub pcie_generation: Known<u64>,
    pub pcie_width: Known<u64>,
    pub sm_clock_mhz: Known<u64>,
    pub memory_clock_mhz: Known<u64>,
}

impl Facts {
    pub fn soft() -> Facts {
        Facts { name: Ok("software GPU".into()), ..Facts::none("the software GPU has none") }
    }

    fn none(reason: &str) -> Facts {
        fn no<T>(reason: &str) -> Known<T> {
            Err(reason.into())
        }
        Facts {
            name: no(reason),
            uuid: no(reason),
            pci_address: no(reason),
            numa_node: no(reason),
            driver: no(reason),
            cuda: no(reason),
            pcie_generation: no(reason),
            pcie_width: no(reason),
            sm_clock_mhz: no(reason),
            memory_clock_mhz: no(reason),
        }
    }

    pub fn of(pci: Option<&str>) -> Facts {
        let nvml = match open() {
            Ok(n) => n,
            Err(e) => return Facts { driver: driver_from_proc(&e), ..Facts::none(&e) },
        };
        let system = Facts {
            driver: nvml.sys_driver_version().map_err(why),
            cuda: nvml.sys_cuda_driver_version().map_err(why).map(|v| format!("{}.{}", v / 1000, v % 1000 / 10)),
            ..Facts::none("")
        };
        let device = match pci {
            Some(a) => nvml.device_by_pci_bus_id(a).map_err(|e| format!("no GPU at {a}: {e}")),
            None => nvml.device_by_index(0).map_err(why),
        };
        match device {
            Ok(d) => Facts { driver: system.driver, cuda: system.cuda, ..of_device(&d) },
            Err(e) => Facts { driver: system.driver, cuda: system.cuda, ..Facts::none(&e) },
        }
    }
}

/// Whose GPU 0 is, as NVML tells it.
pub fn virtualization() -> Known<super::Virtualization> {
    use super::Virtualization;
    use nvml_wrapper::enum_wrappers::device::GpuVirtualizationMode as Mode;
    let nvml = open()?;
    let device = nvml.device_by_index(0).map_err(why)?;
    Ok(match device.virtualization_mode().map_err(why)? {
        Mode::Bare => Virtualization::None,
        Mode::PassThrough => Virtualization::PassedThrough,
        Mode::Vgpu => Virtualization::Guest,
        Mode::HostVgpu | Mode::HostVsga => Virtualization::Host,
    })
}

fn why(e: impl std::fmt::Display) -> String {
    format!("NVML: {e}")
}

/// The library has a version in its name wherever no development files are installed.
fn open() -> Known<Nvml> {
    let versioned = Nvml::builder().lib_path("libnvidia-ml.so.1".as_ref()).init();
    versioned.or_else(|_| Nvml::init()).map_err(why)
}

fn of_device(d: &Device<'_>) -> Facts {
    let pci_address = d.pci_info().map(|p| p.bus_id).map_err(why);
    Facts {
        name: d.name().map_err(why),
        uuid: d.uuid().map_err(why),
        numa_node: pci_address.clone().and_then(|a| numa_node(&a)),
        pci_address,
        driver: Err(String::new()),
        cuda: Err(String::new()),
        pcie_generation: d.current_pcie_link_gen().map(u64::from).map_err(why),
        pcie_width: d.current_pcie_link_width().map(u64::from).map_err(why),
        sm_clock_mhz: d.clock_info(Clock::SM).map(u64::from).map_err(why),
        memory_clock_mhz: d.clock_info(Clock::Memory).map(u64::from).map_err(why),
    }
}

/// NVML writes eight digits of domain and capitals, sysfs four and small letters.
fn numa_node(bus_id: &str) -> Known<i64> {
    let id = bus_id.to_ascii_lowercase();
    let short = match id.split_once(':') {
        Some((domain, rest)) if domain.len() > 4 => format!("{}:{rest}", &domain[domain.len() - 4..]),
        _ => id.clone(),
    };
    let path = format!("/sys/bus/pci/devices/{short}/numa_node");
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
    match text.trim().parse() {
        Ok(n) if n >= 0 => Ok(n),
        _ => Err(format!("{path} says {}: the firmware does not tell", text.trim())),
    }
}

fn driver_from_proc(otherwise: &str) -> Known<String> {
    let text = std::fs::read_to_string("/proc/driver/nvidia/version").map_err(|_| otherwise.to_string())?;
    let number =
        |w: &&str| w.contains('.') && w.split('.').all(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()));
    text.split_whitespace().find(number).map(str::to_string).ok_or_else(|| otherwise.to_string())
}

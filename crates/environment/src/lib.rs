//! What a figure was taken on and under. What is not known is null, with the reason in `unknown`.

pub mod clock;
mod gpu;
mod host;
pub mod taken;

pub use taken::Taken;

use clock::{Calibrated, Source};
use serde::Serialize;
use std::collections::BTreeMap;

/// Which GPU the figures are about.
#[derive(Clone, Copy, Debug)]
pub enum Gpu<'a> {
    /// The software GPU: functions, never speed.
    Soft,
    /// The one at this PCI address (`0000:41:00.0`), or the driver's first.
    Real { pci: Option<&'a str> },
}

/// As it goes into result files.
#[derive(Clone, Debug, Serialize)]
pub struct Environment {
    /// UTC, RFC 3339.
    pub time: Option<String>,
    pub doorbell: String,
    pub commit: Option<String>,
    pub command: Vec<String>,
    pub seed: u64,

    pub gpu: Option<String>,
    pub gpu_uuid: Option<String>,
    pub gpu_pci_address: Option<String>,
    pub gpu_numa_node: Option<i64>,
    pub driver: Option<String>,
    pub cuda: Option<String>,
    pub pcie_generation: Option<u64>,
    pub pcie_width: Option<u64>,
    pub sm_clock_mhz: Option<u64>,
    pub memory_clock_mhz: Option<u64>,

    pub cpu: Option<String>,
    pub cpus: Option<u64>,
    pub governor: Option<String>,
    pub isolated_cpus: Option<String>,
    pub virtual_machine: Option<bool>,
    pub kernel: Option<String>,
    pub preemption: Option<String>,
    pub rt_runtime_us: Option<i64>,
    /// 1, 5 and 15 minutes.
    pub load: Option<[f64; 3]>,

    /// Of the measuring thread, while it measures.
    pub scheduler: Option<String>,
    pub priority: Option<i64>,
    pub affinity: Option<Vec<usize>>,
    /// What was asked for and not given, and what that may mean.
    pub notes: Vec<String>,

    pub clock: Source,
    pub tsc_hz: Option<f64>,
    pub clock_error_ppm: f64,
    pub clock_reading_ns: f64,

    /// Field, and why it is null.
    pub unknown: BTreeMap<&'static str, String>,
}

/// Whose a GPU is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Virtualization {
    None,
    /// A virtual machine's, as a whole.
    PassedThrough,
    /// A virtual machine's, in part: a vGPU.
    Guest,
    /// It is shared out to virtual machines.
    Host,
}

/// Whose GPU 0 is, or why that is not known.
pub fn virtualization() -> Result<Virtualization, String> {
    gpu::virtualization()
}

/// The time of day, UTC, RFC 3339.
pub fn utc_now() -> Result<String, String> {
    host::time()
}

/// A field's value, or why there is none.
type Known<T> = Result<T, String>;

struct Unknown(BTreeMap<&'static str, String>);

impl Unknown {
    fn take<T>(&mut self, field: &'static str, value: Known<T>) -> Option<T> {
        value.map_err(|reason| self.0.insert(field, reason)).ok()
    }
}

impl Environment {
    /// Gathers it from the calling thread, which is the measuring one and already where it measures.
    pub fn gather(gpu: Gpu<'_>, clock: Calibrated, seed: u64, notes: Vec<String>) -> Environment {
        let mut u = Unknown(BTreeMap::new());
        let g = match gpu {
            Gpu::Soft => gpu::Facts::soft(),
            Gpu::Real { pci } => gpu::Facts::of(pci),
        };
        let scheduler = placement::scheduler().map_err(|e| e.to_string());
        let affinity = placement::affinity().map_err(|e| e.to_string());
        let commit = match env!("DOORBELL_COMMIT") {
            "" => Err("it was not built in a git checkout".into()),
            c => Ok(c.to_string()),
        };
        let tsc_hz = clock.tsc_hz.ok_or_else(|| "the time stamp counter is not invariant here".to_string());
        let first_cpu = affinity.as_ref().ok().and_then(|a| a.first().copied()).unwrap_or(0);
        let mut e = Environment {
            time: u.take("time", host::time()),
            doorbell: env!("CARGO_PKG_VERSION").into(),
            commit: u.take("commit", commit),
            command: std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect(),
            seed,
            gpu: u.take("gpu", g.name),
            gpu_uuid: u.take("gpu_uuid", g.uuid),
            gpu_pci_address: u.take("gpu_pci_address", g.pci_address),
            gpu_numa_node: u.take("gpu_numa_node", g.numa_node),
            driver: u.take("driver", g.driver),
            cuda: u.take("cuda", g.cuda),
            pcie_generation: u.take("pcie_generation", g.pcie_generation),
            pcie_width: u.take("pcie_width", g.pcie_width),
            sm_clock_mhz: u.take("sm_clock_mhz", g.sm_clock_mhz),
            memory_clock_mhz: u.take("memory_clock_mhz", g.memory_clock_mhz),
            cpu: u.take("cpu", host::cpu()),
            cpus: u.take("cpus", host::cpus()),
            governor: u.take("governor", host::governor(first_cpu)),
            isolated_cpus: u.take("isolated_cpus", host::isolated()),
            virtual_machine: u.take("virtual_machine", host::virtual_machine()),
            kernel: u.take("kernel", host::kernel()),
            preemption: u.take("preemption", host::preemption()),
            rt_runtime_us: u.take("rt_runtime_us", host::rt_runtime()),
            load: u.take("load", host::load()),
            scheduler: u.take("scheduler", scheduler.clone().map(|s| s.0)),
            priority: u.take("priority", scheduler.map(|s| i64::from(s.1))),
            affinity: u.take("affinity", affinity),
            notes,
            clock: clock.source,
            tsc_hz: u.take("tsc_hz", tsc_hz),
            clock_error_ppm: clock.error_ppm,
            clock_reading_ns: clock.reading_ns,
            unknown: BTreeMap::new(),
        };
        e.unknown = u.0;
        e
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_null_has_its_reason_and_nothing_else_has_one() {
        for gpu in [Gpu::Soft, Gpu::Real { pci: None }, Gpu::Real { pci: Some("ffff:ff:1f.7") }] {
            let e = Environment::gather(gpu, Calibrated::MONOTONIC_RAW, 5, Vec::new());
            let v = serde_json::to_value(&e).unwrap();
            for (field, value) in v.as_object().unwrap() {
                let reason = e.unknown.get(field.as_str());
                assert_eq!(value.is_null(), reason.is_some_and(|r| !r.is_empty()), "{field}: {value} {reason:?}");
            }
            assert!(e.unknown.keys().all(|k| v.get(k).is_some()), "{:?}", e.unknown);
            assert_eq!((e.seed, e.kernel.is_some(), e.load.is_some()), (5, true, true));
        }
    }

    #[test]
    fn the_software_gpu_is_called_so() {
        let e = Environment::gather(Gpu::Soft, Calibrated::MONOTONIC_RAW, 0, Vec::new());
        assert_eq!(e.gpu.as_deref(), Some("software GPU"));
        assert!(e.driver.is_none() && e.unknown["driver"].contains("software"));
    }
}

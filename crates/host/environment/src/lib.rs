//! The conditions of a measurement: facts about the machine, its GPU and the path between them, and possible disturbances.
//!
//! [`config_space`] decodes a PCI function's configuration, [`placement`] gives a thread its CPUs and its real-time class.
//!
//! Each fact is a value, or the reason why it is unknown; every fact has one of the two. No setting is changed here.

pub mod clock;
mod compare;
pub mod config_space;
pub mod counters;
mod files;
mod gather;
mod gpu;
mod held;
mod host;
pub mod link;
pub mod lists;
pub mod names;
mod nvml;
mod pci;
pub mod placement;
pub mod taken;
mod value;
mod warm;
mod warnings;

pub use compare::Difference;
pub use counters::{Counted, Counters};
pub use held::Held;
pub use taken::Taken;
pub use value::{Known, Value};
pub use warm::{Warmed, warm_memory};
pub use warnings::{Severity, Warning};

use clock::Calibrated;
use files::Files;
use gather::Gathered;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Which GPU the figures are about.
#[derive(Clone, Copy, Debug)]
pub enum Gpu<'a> {
    /// The software GPU: functions, never speed.
    Soft,
    /// No GPU is used.
    None,
    /// The one at this PCI address (`0000:41:00.0`), or the driver's first.
    Real { pci: Option<&'a str> },
}

/// The environment as stored in result files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// By the names of [`names::ALL`].
    pub facts: BTreeMap<String, Value>,
    /// The other names, and why each is unknown.
    pub unknown: BTreeMap<String, String>,
    /// Requests that were refused, and the possible consequences.
    pub notes: Vec<String>,
}

/// How a GPU is virtualized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Virtualization {
    None,
    /// A virtual machine has the whole GPU.
    PassedThrough,
    /// A virtual machine has a part of it: a vGPU.
    Guest,
    /// The host shares it out to virtual machines.
    Host,
}

/// How GPU 0 is virtualized, or why that is unknown.
pub fn virtualization() -> Result<Virtualization, String> {
    gpu::of(&nvml::device(None)?)
}

/// Why clocks were lower than they could be: the bits of `throttle_reasons`, by name.
pub fn throttle_names(bits: u64) -> Vec<&'static str> {
    gpu::reasons(nvml_wrapper::bitmasks::device::ThrottleReasons::from_bits_truncate(bits))
}

/// The time of day, UTC, RFC 3339.
pub fn utc_now() -> Result<String, String> {
    host::thread::time()
}

impl Environment {
    /// Gathers the facts from the calling thread, which must be the measuring thread and already be placed.
    pub fn gather(gpu: Gpu<'_>, clock: Option<Calibrated>, notes: Vec<String>) -> Environment {
        Environment::gather_of(gpu, clock, notes, host::thread::cpu())
    }

    /// From another thread, with the CPU that the measuring thread will use.
    pub fn gather_for(cpu: usize, gpu: Gpu<'_>, clock: Option<Calibrated>, notes: Vec<String>) -> Environment {
        Environment::gather_of(gpu, clock, notes, Ok(cpu as u64))
    }

    fn gather_of(gpu: Gpu<'_>, clock: Option<Calibrated>, notes: Vec<String>, cpu: Known<u64>) -> Environment {
        let files = Files::of_this_machine();
        let mut into = Gathered::default();
        run(&mut into);
        clock::facts(clock, &mut into);
        host::facts(&files, cpu, &mut into);
        let node = into.facts.get("cpu.numa_node").and_then(Value::integer);
        let node = node.map(|n| n as u64).ok_or_else(|| "the node of the measuring CPU is not known".to_string());
        match gpu {
            Gpu::Soft => {
                const NONE: &str = "the software GPU has none";
                into.put("gpu.name", Ok("software GPU"));
                pci::facts(&files, Err(NONE.into()), node, &mut into);
                into.none_of("gpu.", NONE);
            }
            Gpu::None => {
                const NONE: &str = "no GPU is used";
                pci::facts(&files, Err(NONE.into()), node, &mut into);
                into.none_of("gpu.", NONE);
            }
            Gpu::Real { pci } => {
                let address = gpu::facts(&files, pci, &mut into);
                pci::facts(&files, address, node, &mut into);
            }
        }
        let Gathered { facts, unknown } = into;
        Environment { facts, unknown, notes }
    }

    pub fn get(&self, name: &str) -> Option<&Value> {
        self.facts.get(name)
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.text()
    }

    pub fn integer(&self, name: &str) -> Option<i64> {
        self.get(name)?.integer()
    }

    pub fn number(&self, name: &str) -> Option<f64> {
        self.get(name)?.number()
    }

    pub fn truth(&self, name: &str) -> Option<bool> {
        self.get(name)?.truth()
    }

    /// A fact that is a list; empty if unknown.
    pub fn list(&self, name: &str) -> &[Value] {
        self.get(name).and_then(Value::list).unwrap_or_default()
    }

    /// Sets a fact, and replaces its earlier value.
    pub fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.unknown.remove(name);
        self.facts.insert(name.into(), value.into());
    }

    /// Removes a fact.
    pub fn forget(&mut self, name: &str, why: &str) {
        self.facts.remove(name);
        self.unknown.insert(name.into(), why.into());
    }

    /// Adds the seed of a run.
    pub fn seeded(mut self, seed: u64) -> Environment {
        self.set("run.seed", seed);
        self
    }
}

fn run(into: &mut Gathered) {
    let commit = match env!("DOORBELL_COMMIT") {
        "" => Err("it was not built in a git checkout".into()),
        c => Ok(c),
    };
    into.put("run.time", host::thread::time());
    into.put("run.doorbell", Ok(env!("CARGO_PKG_VERSION")));
    into.put("run.commit", commit);
    let command: Vec<String> = std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect();
    into.put("run.command", Ok(command));
    into.put::<u64>("run.seed", Err("the run has none".into()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fact_is_a_value_or_has_its_reason() {
        for gpu in [Gpu::Soft, Gpu::Real { pci: None }, Gpu::Real { pci: Some("ffff:ff:1f.7") }] {
            let e = Environment::gather(gpu, Some(Calibrated::MONOTONIC_RAW), Vec::new()).seeded(5);
            for fact in names::ALL {
                let reason = e.unknown.get(fact.name);
                assert_eq!(e.get(fact.name).is_none(), reason.is_some_and(|r| !r.is_empty()), "{}: {e:?}", fact.name);
            }
            let undocumented = e.facts.keys().chain(e.unknown.keys()).find(|n| names::of(n).is_none());
            assert_eq!(undocumented, None);
            assert_eq!(e.integer("run.seed"), Some(5));
            assert!(e.text("kernel.release").is_some() && e.list("kernel.load").len() == 3);
        }
    }

    #[test]
    fn the_measuring_cpu_may_be_another_than_this_threads() {
        let e = Environment::gather_for(100_000, Gpu::Soft, None, Vec::new());
        assert_eq!(e.integer("thread.cpu"), Some(100_000));
        assert!(e.unknown["cpu.governor"].contains("cpu100000") && e.unknown["cpu.idle_states"].contains("cpu100000"));
    }

    #[test]
    fn the_software_gpu_is_called_so() {
        let e = Environment::gather(Gpu::Soft, None, Vec::new());
        assert_eq!(e.text("gpu.name"), Some("software GPU"));
        assert!(e.unknown["gpu.driver"].contains("software") && e.unknown["pci.max_payload"].contains("software"));
        assert_eq!(e.unknown["clock.source"], "no clock was calibrated");
    }

    #[test]
    fn json_and_back_is_the_same() {
        let e = Environment::gather(Gpu::Soft, Some(Calibrated::MONOTONIC_RAW), vec!["a note".into()]);
        let text = serde_json::to_string(&e).unwrap();
        assert_eq!(serde_json::from_str::<Environment>(&text).unwrap(), e);
    }
}

//! What a profile is tied to, asked of this machine.

use environment::{Environment, Gpu};
use planner::Facts;

const UNKNOWN: &str = "not known";

/// The facts of this machine and its GPU with this PCI address (none: the first).
pub fn of_this_machine(soft: bool, pci: Option<&str>) -> Facts {
    let gpu = if soft { Gpu::Soft } else { Gpu::Real { pci } };
    let all = Environment::gather(gpu, None, Vec::new());
    let text = |name: &str| all.text(name).filter(|text| !text.is_empty()).unwrap_or(UNKNOWN).to_owned();
    let of_gpu = |name: &str| if soft { "none".to_owned() } else { text(name) };
    let nodes = std::fs::read_to_string("/sys/devices/system/node/online");
    Facts {
        doorbell: text("run.doorbell"),
        gpu: text("gpu.name"),
        uuid: of_gpu("gpu.uuid"),
        driver: of_gpu("gpu.driver"),
        cpu: text("cpu.model"),
        nodes: nodes.map_or_else(|_| UNKNOWN.to_owned(), |text| text.trim().to_owned()),
        kernel: text("kernel.release"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_the_same_as_a_moment_ago() {
        let facts = of_this_machine(true, None);
        assert_eq!((facts.gpu.as_str(), facts.driver.as_str()), ("software GPU", "none"));
        assert!(facts.each().iter().all(|(_, value)| !value.is_empty()), "{facts:?}");
        assert_eq!(facts.still(&of_this_machine(true, None)), Ok(()));
    }
}

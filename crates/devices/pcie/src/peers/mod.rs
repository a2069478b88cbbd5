//! Whether one device's DMA can reach another device's memory without a kernel module, and if not, why.
//!
//! A device reaches a peer's memory at the peer's BAR address. The address must not be translated (IOMMU off or passing through), and no port on
//! the way may redirect the request (access control). This module only reads the kernel's files; it does not try or change anything else.

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;
mod way;

use way::RootComplexes;
pub use way::Way;

use crate::address::Address;
use crate::confidential;
use crate::error::Error;
use crate::list::{Listed, functions};
use crate::tree::Tree;
use environment::config_space::{Config, Kind};
use serde::Serialize;
use std::collections::BTreeMap;

/// A machine's functions, and facts that concern all of them.
pub struct Machine {
    functions: BTreeMap<Address, Listed>,
    root_complexes: RootComplexes,
    /// This process runs as root.
    root: bool,
    /// A virtual machine.
    guest: bool,
    /// The kind of confidential computing, if this is a confidential virtual machine.
    confidential: Option<&'static str>,
}

impl Machine {
    /// # Errors
    /// [`Error::System`] where the kernel shows no PCI bus.
    pub fn read(tree: &Tree, root: bool) -> Result<Machine, Error> {
        let functions = functions(tree)?.into_iter().map(|one| (one.identity.address, one)).collect();
        let processor = tree.text("proc/cpuinfo").unwrap_or_default();
        let flags = processor.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
        let guest = flags.split_whitespace().any(|flag| flag == "hypervisor");
        Ok(Machine {
            functions,
            root_complexes: RootComplexes::of(&processor),
            root,
            guest,
            confidential: confidential::kind(tree),
        })
    }

    /// # Errors
    /// As [`Machine::read`].
    pub fn this() -> Result<Machine, Error> {
        // SAFETY: only reads a number.
        Machine::read(&Tree::default(), unsafe { libc::geteuid() } == 0)
    }

    pub fn function(&self, address: Address) -> Option<&Listed> {
        self.functions.get(&address)
    }

    /// NVIDIA's GPUs.
    pub fn gpus(&self) -> Vec<Address> {
        self.those(|one| one.identity.vendor == 0x10de && one.identity.class >> 16 == 0x03)
    }

    /// Devices that could write to a GPU: NVMe controllers, network cards, Xilinx's cards, processing accelerators, QEMU's edu.
    pub fn sources(&self) -> Vec<Address> {
        self.those(|one| {
            let identity = one.identity;
            identity.class == 0x01_08_02
                || matches!(identity.class >> 16, 0x02 | 0x12)
                || identity.vendor == 0x10ee
                || (identity.vendor, identity.device) == (0x1234, 0x11e8)
        })
    }

    fn those(&self, wanted: impl Fn(&Listed) -> bool) -> Vec<Address> {
        self.functions.values().filter(|one| wanted(one)).map(|one| one.identity.address).collect()
    }

    /// Every source with every GPU.
    pub fn pairs(&self) -> Vec<Pair> {
        let gpus = self.gpus();
        let pairs = self.sources().into_iter().flat_map(|device| gpus.iter().map(move |gpu| (device, *gpu)));
        pairs.filter_map(|(device, target)| self.between(device, target)).collect()
    }

    /// Judges `device`'s DMA to `target`'s memory. None if one of them does not exist.
    pub fn between(&self, device: Address, target: Address) -> Option<Pair> {
        let (from, to) = (self.functions.get(&device)?, self.functions.get(&target)?);
        let way = Way::of(from, to);
        let mut pair = Pair { device, target, way, obstacles: Vec::new(), needs: Vec::new(), doubts: Vec::new() };
        self.whole_machine(&mut pair);
        translation(from, &mut pair);
        self.access_control(from, to, &mut pair);
        target_memory(to, &mut pair);
        let bridges = [from, to].map(|one| self.host_bridge(one).map(|bridge| bridge.identity));
        if !self.root_complexes.forward(way, bridges) {
            let why = format!("requests go {way}, and this machine is not known to forward them");
            pair.doubts.push(Finding::new("root complex", why, "verify the first transfers"));
        }
        self.steps(from, &mut pair);
        Some(pair)
    }

    /// The function by which Linux identifies a root complex (`drivers/pci/p2pdma.c`): the first function of its root bus, if that is 00.0 or a
    /// root port.
    fn host_bridge(&self, one: &Listed) -> Option<&Listed> {
        let (domain, bus) = one.host_bridge.strip_prefix("pci")?.split_once(':')?;
        let number = |digits: &str| u32::from_str_radix(digits, 16).ok();
        let first = Address { domain: number(domain)?, bus: u8::try_from(number(bus)?).ok()?, device: 0, function: 0 };
        let (address, found) = self.functions.range(first..).next()?;
        let is_root_port = || Config::of(&found.config).express().is_ok_and(|express| express.kind == Kind::RootPort);
        let is_of_bus = (address.domain, address.bus) == (first.domain, first.bus);
        (is_of_bus && (*address == first || is_root_port())).then_some(found)
    }

    fn whole_machine(&self, pair: &mut Pair) {
        if let Some(how) = self.confidential {
            let why = format!("this is a confidential virtual machine ({how}): devices cannot access its memory");
            pair.obstacles.push(Finding::new("confidential", why, "use the host, or an ordinary virtual machine"));
        } else if self.guest {
            pair.doubts.push(Finding::new(
                "guest",
                "this is a virtual machine: it cannot see whether the host maps its addresses to the other device",
                "verify the first transfers, or use the host",
            ));
        }
    }

    fn access_control(&self, from: &Listed, to: &Listed, pair: &mut Pair) {
        let common = way::common(from, to);
        // Requests to another root port are sent up to the root complex in any case: redirection has no effect.
        let ports: Vec<Address> = match pair.way {
            Way::Switch { .. } => from.above[common..].iter().chain(&to.above[common..]).copied().collect(),
            _ => Vec::new(),
        };
        let mut hidden = Vec::new();
        for port in ports {
            let Some(listed) = self.functions.get(&port) else { continue };
            match Config::of(&listed.config).access_control() {
                Ok(control) if control.redirects() => pair.obstacles.push(Finding::new(
                    "redirect",
                    format!(
                        "the port {port} redirects requests to the root complex (ACS {})",
                        control.names().join(" ")
                    ),
                    format!("setpci -s {port} ECAP_ACS+6.w=0, or boot with pci=disable_acs_redir={port}"),
                )),
                Ok(control) if control.blocks() => pair.obstacles.push(Finding::new(
                    "blocked",
                    format!("the port {port} blocks requests between functions (ACS EgressCtrl)"),
                    format!("setpci -s {port} ECAP_ACS+6.w=0"),
                )),
                Ok(_) | Err(environment::config_space::Missing::Extended(_)) => {}
                Err(_) => hidden.push(port.to_string()),
            }
        }
        if !hidden.is_empty() {
            let why = format!("access control of {} cannot be read by this user", hidden.join(", "));
            pair.doubts.push(Finding::new("hidden", why, "run it as root"));
        }
    }

    /// Steps that the user has to take first.
    fn steps(&self, from: &Listed, pair: &mut Pair) {
        if !self.root {
            let why = "driving a function needs root";
            pair.needs.push(Finding::new("root", why, "run it with sudo"));
        }
        match from.driver.as_deref() {
            Some("vfio-pci") => {
                let why = format!("vfio-pci has {}, and vfio cannot map a BAR that another driver holds", pair.device);
                pair.needs.push(Finding::new(
                    "vfio",
                    why,
                    "unbind it from vfio-pci, so that it is opened through /sys",
                ));
            }
            Some(driver) => {
                let why = format!("the kernel's driver {driver} has {}", pair.device);
                pair.needs.push(Finding::new("driver", why, "--bind takes it, after listing what would be lost"));
            }
            None => {}
        }
    }
}

fn translation(from: &Listed, pair: &mut Pair) {
    let Some(group) = from.group.as_ref().filter(|group| !group.passes_through()) else { return };
    let number = group.number;
    let why = match &group.domain {
        Some(domain) => format!("the IOMMU translates addresses from {} (group {number}, {domain})", pair.device),
        None => {
            format!("{} is behind an IOMMU, and the kernel does not say whether it translates", pair.device)
        }
    };
    let change = format!(
        "boot with iommu=pt, or, while no driver has the group: echo identity > /sys/kernel/iommu_groups/{number}/type"
    );
    pair.obstacles.push(Finding::new("translation", why, change));
}

/// The target needs memory on the bus, and a driver that makes it visible.
fn target_memory(to: &Listed, pair: &mut Pair) {
    if !to.bars.iter().any(|bar| bar.length >= 1 << 20 && bar.prefetchable) {
        let why = format!("{} has no memory on the bus: no large BAR has an address", pair.target);
        let change =
            "reserve room for it in the firmware ('Above 4G decoding', 'Resizable BAR'), or boot with pci=realloc";
        pair.obstacles.push(Finding::new("no bus address", why, change));
    }
    match to.driver.as_deref() {
        Some("vfio-pci") => pair.obstacles.push(Finding::new(
            "vfio",
            format!("vfio-pci has {}, so its memory cannot be mapped", pair.target),
            "bind it to NVIDIA's driver again",
        )),
        None if to.identity.vendor == 0x10de => pair.obstacles.push(Finding::new(
            "no driver",
            format!("no driver has {}, so its memory cannot be mapped", pair.target),
            "load NVIDIA's driver",
        )),
        _ => {}
    }
}

/// Why `device` cannot use addresses of `target`'s memory. None if it can, or if one of them does not exist.
pub fn refusal(tree: &Tree, device: Address, target: Address) -> Option<Error> {
    // The caller drives the device already, so it is root.
    Machine::read(tree, true).ok()?.between(device, target)?.refusal()
}

/// A fact, and how to change it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// A stable name, for programs.
    pub what: &'static str,
    pub why: String,
    pub change: String,
}

impl Finding {
    fn new(what: &'static str, why: impl Into<String>, change: impl Into<String>) -> Finding {
        Finding { what, why: why.into(), change: change.into() }
    }
}

/// Whether a pair can work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Yes,
    /// No obstacle was found, but not everything is known: check the first bytes that arrive.
    Unsure,
    No,
}

/// A device, and the device whose memory it is to reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    pub device: Address,
    pub target: Address,
    pub way: Way,
    /// Reasons why it cannot work.
    pub obstacles: Vec<Finding>,
    /// Steps to take first.
    pub needs: Vec<Finding>,
    /// Facts that could not be determined.
    pub doubts: Vec<Finding>,
}

/// What happens with a refused pair.
pub const FALLBACK: &str = "data goes over host memory: device -> host -> GPU (path [B])";

impl Pair {
    pub fn answer(&self) -> Answer {
        match (self.obstacles.is_empty(), self.doubts.is_empty()) {
            (false, _) => Answer::No,
            (true, true) => Answer::Yes,
            (true, false) => Answer::Unsure,
        }
    }

    /// The error for a driver, if there are obstacles.
    pub fn refusal(&self) -> Option<Error> {
        if self.obstacles.is_empty() {
            return None;
        }
        let join = |what: fn(&Finding) -> &str| self.obstacles.iter().map(what).collect::<Vec<_>>().join("; ");
        Some(Error::Unreachable {
            address: self.device,
            what: format!("the memory of {}", self.target),
            why: join(|one| &one.why),
            hint: join(|one| &one.change),
        })
    }
}

impl Serialize for Pair {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut pair = serializer.serialize_struct("Pair", 8)?;
        pair.serialize_field("device", &self.device.to_string())?;
        pair.serialize_field("target", &self.target.to_string())?;
        pair.serialize_field("answer", &self.answer())?;
        pair.serialize_field("way", &self.way.to_string())?;
        pair.serialize_field("obstacles", &self.obstacles)?;
        pair.serialize_field("needs", &self.needs)?;
        pair.serialize_field("doubts", &self.doubts)?;
        pair.serialize_field("fallback", &(self.answer() == Answer::No).then_some(FALLBACK))?;
        pair.end()
    }
}

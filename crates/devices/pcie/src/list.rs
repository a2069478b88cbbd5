//! Lists the machine's PCI functions from /sys: identity, driver, IOMMU group, link, BARs and the bridges above.

use crate::address::Address;
use crate::error::Error;
use crate::function::Identity;
use crate::sysfs::resource;
use crate::tree::{Tree, names, text};
use environment::config_space::{Config, Express, Link};
use std::fs;
use std::path::Path;

/// A function that was found and not opened.
#[derive(Clone, Debug)]
pub struct Listed {
    pub identity: Identity,
    /// The kernel driver that it is bound to.
    pub driver: Option<String>,
    /// None without an IOMMU.
    pub group: Option<Group>,
    /// Current and best possible.
    pub link: Option<(Link, Link)>,
    /// Memory BARs that have an address.
    pub bars: Vec<ListedBar>,
    /// The bridges above it, the root's first.
    pub above: Vec<Address>,
    /// Its host bridge: `pci0000:40`.
    pub host_bridge: String,
    /// Its NUMA node.
    pub node: Option<u32>,
    /// Configuration space as far as this user may read it: 64, 256 or 4096 bytes.
    pub config: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub number: u32,
    /// Type of its IOMMU domain: `identity`, `DMA`, `DMA-FQ`. None: the kernel does not say.
    pub domain: Option<String>,
}

impl Group {
    /// The IOMMU does not translate its addresses.
    pub fn passes_through(&self) -> bool {
        self.domain.as_deref() == Some("identity")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedBar {
    pub index: u8,
    pub bus: u64,
    pub length: u64,
    pub prefetchable: bool,
}

/// All functions, by address.
///
/// # Errors
/// [`Error::System`] where the kernel shows no PCI bus.
pub fn functions(tree: &Tree) -> Result<Vec<Listed>, Error> {
    let folder = tree.path("sys/bus/pci/devices");
    if let Err(e) = fs::read_dir(&folder) {
        return Err(Error::system(format!("reading {}", folder.display()), e));
    }
    let addresses = names(&folder).into_iter().filter_map(|name| name.parse().ok());
    let mut found: Vec<Listed> = addresses.filter_map(|address| listed(tree, address)).collect();
    found.sort_by_key(|function| function.identity.address);
    Ok(found)
}

/// None if the function is gone by now.
fn listed(tree: &Tree, address: Address) -> Option<Listed> {
    let folder = tree.function(address);
    let config = fs::read(folder.join("config")).ok()?;
    let header = Config::of(&config).header().ok().filter(|header| header.vendor != 0xffff)?;
    let identity = Identity {
        address,
        vendor: header.vendor,
        device: header.device,
        class: header.class,
        revision: header.revision,
    };
    let (host_bridge, above) = way_to(&folder);
    let group = tree.iommu_group(address).map(|number| Group {
        number,
        domain: tree.text(format!("sys/kernel/iommu_groups/{number}/type")).filter(|domain| !domain.is_empty()),
    });
    let bars = resource::read(&folder).unwrap_or_default().into_iter().enumerate();
    let bars = bars.filter(|(_, bar)| bar.usable().is_ok()).map(|(index, bar)| ListedBar {
        index: index as u8,
        bus: bar.start,
        length: bar.length,
        prefetchable: bar.prefetchable,
    });
    Some(Listed {
        identity,
        driver: tree.driver(address),
        group,
        link: link(&config, &folder),
        bars: bars.collect(),
        above,
        host_bridge,
        // -1: not known.
        node: text(&folder.join("numa_node")).and_then(|node| node.parse().ok()),
        config,
    })
}

/// Host bridge and bridges, from `/sys/devices/pci0000:40/0000:40:01.0/0000:41:00.0`.
fn way_to(folder: &Path) -> (String, Vec<Address>) {
    let real = fs::canonicalize(folder).unwrap_or_default();
    let parts: Vec<String> = real.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let root = parts.iter().rposition(|part| part.starts_with("pci") && part.contains(':'));
    let Some(root) = root else { return (String::new(), Vec::new()) };
    let mut above: Vec<Address> = parts[root + 1..].iter().filter_map(|part| part.parse().ok()).collect();
    above.pop();
    (parts[root].clone(), above)
}

/// From the capability if it is readable, else from the kernel's files.
fn link(config: &[u8], folder: &Path) -> Option<(Link, Link)> {
    if let Ok(Express { link, link_possible, .. }) = Config::of(config).express() {
        // A function within the root complex has no link; its generation reads as 0.
        return (link.generation > 0).then_some((link, link_possible));
    }
    let end = |which: &str| {
        let speed = text(&folder.join(format!("{which}_link_speed")))?;
        let generation = generation(&speed)?;
        let width = text(&folder.join(format!("{which}_link_width")))?.parse().ok()?;
        Some(Link { generation, width })
    };
    Some((end("current")?, end("max")?))
}

/// `32.0 GT/s PCIe`
fn generation(speed: &str) -> Option<u8> {
    let steps = ["2.5", "5.0", "8.0", "16.0", "32.0", "64.0"];
    let number = speed.split_whitespace().next()?;
    steps.iter().position(|step| *step == number).map(|at| at as u8 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::fixture::{Place, machine};
    use proptest::prelude::*;

    #[test]
    fn functions_are_listed_with_the_kernels_facts() {
        let fixture = machine("list", |tree| {
            tree.switch("0000:40", "0000:40:01.0", &[Place::Gpu("0000:43:00.0"), Place::Nvme("0000:44:00.0")]);
            tree.group("0000:44:00.0", 7, "DMA-FQ");
            tree.driver("0000:44:00.0", "nvme");
        });
        let found = functions(&fixture.tree).unwrap();
        let nvme = found.iter().find(|one| one.identity.class == 0x01_08_02).unwrap();
        assert_eq!(nvme.identity.address.to_string(), "0000:44:00.0");
        assert_eq!(nvme.driver.as_deref(), Some("nvme"));
        assert_eq!(nvme.group, Some(Group { number: 7, domain: Some("DMA-FQ".into()) }));
        assert_eq!(nvme.above.iter().map(ToString::to_string).collect::<Vec<_>>().len(), 3);
        assert_eq!((nvme.host_bridge.as_str(), nvme.node), ("pci0000:40", None));
        assert_eq!(nvme.bars.len(), 1);
        let gpu = found.iter().find(|one| one.identity.vendor == 0x10de).unwrap();
        assert_eq!(gpu.bars[1], ListedBar { index: 1, bus: 0x20_0000_0000, length: 1 << 37, prefetchable: true });
        assert_eq!(gpu.group, None);
        assert!(functions(&Tree::at("/nonexistent")).is_err());
    }

    #[test]
    fn a_link_is_known_without_root() {
        let fixture = machine("link", |tree| tree.below("0000:00", &["0000:00:01.0"], Place::Nvme("0000:01:00.0")));
        let found = functions(&fixture.tree).unwrap();
        let now = |all: &[Listed]| all.iter().find(|one| one.identity.class == 0x01_08_02).and_then(|one| one.link);
        assert_eq!(now(&found), Some((Link { generation: 4, width: 4 }, Link { generation: 5, width: 4 })));
        let folder = fixture.tree.function("0000:01:00.0".parse().unwrap());
        let config = fs::read(folder.join("config")).unwrap();
        fs::write(folder.join("config"), &config[..64]).unwrap();
        let head = functions(&fixture.tree).unwrap();
        assert_eq!(now(&head), None);
        for (name, value) in [("current_link_speed", "16.0 GT/s PCIe"), ("max_link_speed", "32.0 GT/s PCIe")] {
            fs::write(folder.join(name), value).unwrap();
        }
        for name in ["current_link_width", "max_link_width"] {
            fs::write(folder.join(name), "4\n").unwrap();
        }
        assert_eq!(now(&functions(&fixture.tree).unwrap()), now(&found));
    }

    /// Random configuration space and random files: no panic, and the pair still has an answer.
    #[test]
    fn any_file_contents_are_listed_or_left_out() {
        let fixture = machine("any", |tree| {
            tree.switch("0000:40", "0000:40:01.0", &[Place::Gpu("0000:43:00.0"), Place::Nvme("0000:44:00.0")]);
            tree.group("0000:44:00.0", 7, "");
        });
        let folder = |address: &str| fixture.tree.function(address.parse().unwrap());
        let (port, nvme) = (folder("0000:42:01.0").join("config"), folder("0000:44:00.0").join("config"));
        let (group, resource) =
            (fixture.tree.path("sys/kernel/iommu_groups/7/type"), folder("0000:43:00.0").join("resource"));
        let as_built = fs::read(&nvme).unwrap();
        proptest!(ProptestConfig::with_cases(16), |(
            bytes in prop::collection::vec(any::<u8>(), 0..4097),
            text in ".{0,80}",
            domain in ".{0,10}",
        )| {
            fs::write(&port, &bytes).unwrap();
            fs::write(&nvme, &as_built).unwrap();
            fs::write(&resource, &text).unwrap();
            fs::write(&group, &domain).unwrap();
            // The port's bytes may say that it is a device that could write to a GPU, too.
            let pairs = crate::peers::Machine::read(&fixture.tree, true).unwrap().pairs().len();
            prop_assert!((1..=2).contains(&pairs), "{}", pairs);
            fs::write(&nvme, &bytes).unwrap();
            prop_assert!(functions(&fixture.tree).unwrap().len() >= 3);
        });
    }

    #[test]
    fn any_listing_of_this_machine_is_read() {
        // A container may have no bus at all.
        if let Ok(found) = functions(&Tree::default()) {
            assert!(found.windows(2).all(|pair| pair[0].identity.address < pair[1].identity.address));
        }
    }
}

//! Opens a function by its address, through vfio or /sys.

use crate::address::Address;
use crate::error::Error;
use crate::function::Function;
use crate::tree::Tree;
use crate::{list, sysfs, vfio};

/// Opens the function with the address `text`, as lspci writes it (`0000:04:00.0`, or without the domain). It uses vfio if the function has the
/// driver vfio-pci, and /sys if it has no driver and the user allows that (`without_iommu`).
///
/// # Errors
/// [`Error::Address`], [`Error::Refused`] with the reason and what to do, [`Error::System`].
pub fn open(text: &str, without_iommu: bool) -> Result<Box<dyn Function>, Error> {
    let address: Address = text.parse().map_err(Error::Address)?;
    let tree = Tree::default();
    if let Some(refused) = missing(&tree, address) {
        return Err(refused);
    }
    if tree.driver(address).as_deref() == Some("vfio-pci") {
        return Ok(Box::new(vfio::open(address)?));
    }
    if let Some(refused) = sysfs::refusal(&tree, address) {
        return Err(refused);
    }
    if let Some(refused) = unguarded(&tree, address).filter(|_| !without_iommu) {
        return Err(refused);
    }
    Ok(Box::new(sysfs::open(address)?))
}

/// Why driving a function needs the user's word: no IOMMU restricts its accesses to memory. None if an IOMMU does, or if there is no such function.
pub fn unguarded(tree: &Tree, address: Address) -> Option<Error> {
    if !tree.exists(address) || sysfs::translation(tree, address).is_some() {
        return None;
    }
    let why = "no IOMMU keeps it from memory: an error of the device or its driver can overwrite any program's memory, and if this program \
               and the one that gives it back (pcie-restorer) are both killed, it continues to write into pages that other programs have by then";
    let hint = "turn the IOMMU on, or say --without-iommu";
    Some(Error::Refused { address, why: why.into(), hint: hint.into() })
}

/// The error if there is no such function. It lists functions that do exist.
fn missing(tree: &Tree, address: Address) -> Option<Error> {
    if tree.exists(address) {
        return None;
    }
    // Storage, network, accelerators and unclassified devices; no bridges, no chip set.
    let worth = |class: u32| matches!(class >> 16, 0x01 | 0x02 | 0x12) || class >> 16 == 0xff || class >> 8 == 0;
    let all = list::functions(tree).unwrap_or_default();
    let there: Vec<String> = all
        .iter()
        .filter(|one| worth(one.identity.class))
        .map(|one| format!("{} ({:04x}:{:04x})", one.identity.address, one.identity.vendor, one.identity.device))
        .collect();
    let hint = match there.is_empty() {
        true => "see `lspci -D`; this machine shows no storage, network or accelerator functions".into(),
        false => format!("there are {}", there.join(", ")),
    };
    Some(Error::Refused { address, why: "there is no such function".into(), hint })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::fixture::{Place, machine};

    #[test]
    fn a_wrong_name_is_told_with_the_right_ones() {
        let told = |text: &str| open(text, false).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(told("nvme0").contains("write it as lspci does"), "{}", told("nvme0"));
        assert!(told("fffe:ff:1f.7").contains("no such function"), "{}", told("fffe:ff:1f.7"));
        let fixture = machine("open", |tree| {
            tree.switch("0000:40", "0000:40:01.0", &[Place::Gpu("0000:43:00.0"), Place::Nvme("0000:44:00.0")]);
        });
        let told = missing(&fixture.tree, "45:00.0".parse().unwrap()).unwrap().to_string();
        assert!(told.ends_with("there are 0000:44:00.0 (144d:a80a)"), "{told}");
        assert!(missing(&fixture.tree, "44:00.0".parse().unwrap()).is_none());
    }

    #[test]
    fn without_an_iommu_the_risk_is_named() {
        let fixture = crate::fixture::Fixture::new("unguarded");
        let folder = fixture.function("0000:04:00.0");
        let at = "04:00.0".parse().unwrap();
        let told = || unguarded(&fixture.tree, at).map(|why| why.to_string()).unwrap_or_default();
        assert!(
            told().contains("continues to write into pages") && told().ends_with("say --without-iommu"),
            "{}",
            told()
        );
        fixture.link(&format!("{folder}/iommu_group"), "sys/kernel/iommu_groups/7");
        fixture.file("sys/kernel/iommu_groups/7/type", "identity\n");
        assert!(told().contains("no IOMMU"), "one that passes through guards nothing: {}", told());
        fixture.file("sys/kernel/iommu_groups/7/type", "DMA-FQ\n");
        assert_eq!(told(), "");
        assert!(unguarded(&fixture.tree, "05:00.0".parse().unwrap()).is_none());
    }
}

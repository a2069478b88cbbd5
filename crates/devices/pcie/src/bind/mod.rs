//! Takes a function from the kernel's driver, and gives it back: when the guard is dropped, and also when this process dies (`restorer`).
//!
//! A function that is in use is never taken without the user's explicit word.

mod held;
mod in_use;

pub use in_use::{How, Use, disks, uses};

use crate::address::Address;
use crate::error::Error;
use crate::restorer::{Deed, Restorer, Step};
use crate::tree::{Tree, text};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Who gets the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// vfio-pci, for [`crate::vfio`].
    Vfio,
    /// No driver, for [`crate::sysfs`].
    Nobody,
}

impl To {
    /// The choice for this machine: vfio with an IOMMU, else no driver.
    pub fn fitting(tree: &Tree, address: Address) -> To {
        if crate::sysfs::translation(tree, address).is_some() { To::Vfio } else { To::Nobody }
    }
}

/// The user's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// No word: a function in use is refused.
    None,
    /// "Take it although these are lost": the user has seen [`uses`].
    TakeIt,
}

/// A function that was taken. On drop, its driver gets it back: first drop everything that was opened on it, and its memory and BARs.
#[must_use = "dropped, the function goes back to its driver"]
pub struct Bound {
    address: Address,
    /// The driver that had it.
    before: Option<String>,
    restorer: Option<Restorer>,
}

/// How long a restoration may take until the process continues without waiting for it: vfio-pci releases a device when its last file is closed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Files that keep the drivers of functions that this process has taken from getting them back. Code that opens such a function lets its own
/// restorer hold this file: then the function has stopped before its driver gets it.
static DELAYS: Mutex<BTreeMap<Address, OwnedFd>> = Mutex::new(BTreeMap::new());

/// Held by another process, it keeps the function's driver away.
pub(crate) fn delay(address: Address) -> Option<OwnedFd> {
    poison::ignore(DELAYS.lock()).get(&address)?.try_clone().ok()
}

/// Takes the function. One that is already with the wanted driver stays there, and is not restored.
///
/// # Errors
/// [`Error::Refused`] if it is in use without the user's word, if the driver vfio-pci is missing, or if there is no such function;
/// [`Error::System`].
pub fn take(tree: &Tree, address: Address, to: To, word: Word) -> Result<Bound, Error> {
    let refused = |why: String, hint: &str| Error::Refused { address, why, hint: hint.into() };
    if !tree.exists(address) {
        return Err(refused("there is no such function".into(), "see `lspci -D`"));
    }
    let before = tree.driver(address);
    match (to, before.as_deref()) {
        (To::Vfio, Some("vfio-pci")) | (To::Nobody, None) => return Ok(Bound { address, before, restorer: None }),
        (To::Nobody, Some("vfio-pci")) => return Err(refused("vfio-pci has it".into(), "open it through vfio")),
        _ => {}
    }
    let (lost, alone) = still_used(tree, address, word);
    if let Some(bridge) = lost.iter().find(|one| one.how == How::Bridge) {
        return Err(refused(bridge.to_string(), "take a function behind it"));
    }
    if word == Word::None && !lost.is_empty() {
        let lost = lost.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        return Err(refused(format!("it is in use: {lost}"), "unmount and stop these first"));
    }
    if to == To::Vfio {
        vfio_is_possible(tree, address)?;
    }

    let plan = Plan::new(tree, address, to, before.as_deref());
    let failed = |why| Error::system("start the process that gives the device back if this one dies", why);
    let back: Vec<Step> = plan.back.iter().cloned().map(Step::Write).collect();
    let restorer = Restorer::start(&back, &[]).map_err(failed)?;
    if let Some(delay) = restorer.delay().map_err(failed)? {
        poison::ignore(DELAYS.lock()).insert(address, delay);
    }
    // From here on, an error restores the function on return.
    let bound = Bound { address, before, restorer: Some(restorer) };
    for deed in &plan.there {
        deed.run().map_err(|why| Error::system(format!("write {:?} to {}", deed.text, deed.path.display()), why))?;
    }
    drop(alone);
    let wanted = (to == To::Vfio).then_some("vfio-pci");
    match tree.driver(address) {
        now if now.as_deref() == wanted => Ok(bound),
        now => {
            let why = format!("it is bound to {} still", now.as_deref().unwrap_or("no driver"));
            Err(refused(why, "the kernel's log (dmesg) says why"))
        }
    }
}

/// How long a use that may end by itself is waited for.
const PASSING: Duration = Duration::from_secs(2);

/// The uses that would be lost, and the function's block devices, opened exclusively. With the user's word no device is opened.
fn still_used(tree: &Tree, address: Address, word: Word) -> (Vec<Use>, Vec<File>) {
    let until = Instant::now() + PASSING;
    loop {
        let mut lost = uses(tree, address);
        if word == Word::None && lost.is_empty() {
            match held::alone(tree, address) {
                Ok(alone) => return (lost, alone),
                Err(one) => lost.push(one),
            }
        }
        if word == Word::TakeIt || !lost.iter().all(held::is_passing) || Instant::now() > until {
            return (lost, Vec::new());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn vfio_is_possible(tree: &Tree, address: Address) -> Result<(), Error> {
    let refused = |why: String, hint: &str| Err(Error::Refused { address, why, hint: hint.into() });
    let Some(group) = tree.iommu_group(address) else {
        return refused(
            "there is no IOMMU for it".into(),
            "go without vfio (sysfs, --without-iommu), or turn the IOMMU on (intel_iommu=on)",
        );
    };
    if !tree.path("sys/bus/pci/drivers/vfio-pci").exists() {
        return refused("the driver vfio-pci is not loaded".into(), "modprobe vfio-pci");
    }
    // The kernel allows a group to be used only when every function has the driver vfio-pci or none. Bridges are the exception.
    let with: Vec<String> = tree
        .in_group(group)
        .into_iter()
        .filter(|other| *other != address)
        .filter_map(|other| Some((other, tree.driver(other)?)))
        .filter(|(_, driver)| !matches!(driver.as_str(), "vfio-pci" | "pcieport" | "pci-stub"))
        .map(|(other, driver)| format!("{other} ({driver})"))
        .collect();
    if !with.is_empty() {
        let why = format!("other functions of its IOMMU group {group} have drivers: {}", with.join(", "));
        return refused(why, "take these, too, or put the device into a slot with a group of its own");
    }
    Ok(())
}

/// The writes that take a function, and those that give it back.
struct Plan {
    there: Vec<Deed>,
    back: Vec<Deed>,
}

impl Plan {
    fn new(tree: &Tree, address: Address, to: To, before: Option<&str>) -> Plan {
        let name = address.to_string();
        let driver = |driver: &str, file: &str| tree.path(format!("sys/bus/pci/drivers/{driver}/{file}"));
        let own = tree.function(address).join("driver_override");
        let (mut there, mut back) = (Vec::new(), Vec::new());
        if let Some(before) = before {
            there.push(Deed::new(driver(before, "unbind"), &name));
        }
        if to == To::Vfio {
            // An empty line ends an override. The kernel shows none as "(null)".
            let old = text(&own).filter(|old| old != "(null)").unwrap_or_default();
            there.push(Deed::new(&own, "vfio-pci"));
            there.push(Deed::new(tree.path("sys/bus/pci/drivers_probe"), &name));
            back.push(Deed::new(driver("vfio-pci", "unbind"), &name));
            back.push(Deed::new(&own, old));
        }
        if let Some(before) = before {
            back.push(Deed::new(driver(before, "bind"), &name));
        }
        Plan { there, back }
    }
}

impl Bound {
    pub fn address(&self) -> Address {
        self.address
    }

    /// The driver that gets it back; none where it had none.
    pub fn before(&self) -> Option<&str> {
        self.before.as_deref()
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let Some(restorer) = self.restorer.take() else { return };
        poison::ignore(DELAYS.lock()).remove(&self.address);
        // By the same process as on death: writing `unbind` blocks as long as someone has the device open, which may be this process.
        restorer.act(Instant::now() + PATIENCE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    const AT: &str = "0000:04:00.0";

    fn at() -> Address {
        AT.parse().unwrap()
    }

    /// nvme has the function; vfio-pci is loaded. The fixture's files do not act like the kernel's: the test only sees the writes to them.
    fn fixture() -> (Fixture, String) {
        let fixture = Fixture::new("bind");
        let folder = fixture.function(AT);
        fixture.link(&format!("{folder}/driver"), "sys/bus/pci/drivers/nvme");
        fixture.link(&format!("{folder}/iommu_group"), "sys/kernel/iommu_groups/7");
        fixture.folder(&format!("sys/kernel/iommu_groups/7/devices/{AT}"));
        fixture.file(&format!("{folder}/driver_override"), "(null)\n");
        for path in ["drivers/nvme/bind", "drivers/nvme/unbind", "drivers/vfio-pci/unbind", "drivers_probe"] {
            fixture.file(&format!("sys/bus/pci/{path}"), "");
        }
        (fixture, folder)
    }

    fn error(result: Result<Bound, Error>) -> String {
        result.err().map(|why| why.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_driver_that_does_not_let_go_gets_all_back() {
        let (fixture, folder) = fixture();
        // The fixture's driver link never changes: so this fails, and restores.
        let why = error(take(&fixture.tree, at(), To::Vfio, Word::None));
        assert!(why.contains("bound to nvme still"), "{why}");
        assert_eq!(fixture.text("sys/bus/pci/drivers/nvme/unbind"), format!("{AT}\n"));
        assert_eq!(fixture.text("sys/bus/pci/drivers_probe"), format!("{AT}\n"));
        assert_eq!(fixture.text("sys/bus/pci/drivers/vfio-pci/unbind"), format!("{AT}\n"));
        assert_eq!(fixture.text("sys/bus/pci/drivers/nvme/bind"), format!("{AT}\n"));
        assert_eq!(fixture.text(&format!("{folder}/driver_override")), "\n", "an empty line ends an override");
    }

    #[test]
    fn a_function_in_use_stays_without_the_users_word() {
        let (fixture, folder) = fixture();
        fixture.file(&format!("{folder}/net/eth0/flags"), "0x1003\n");
        fixture.link("sys/class/net/eth0", &format!("{folder}/net/eth0"));
        let why = error(take(&fixture.tree, at(), To::Vfio, Word::None));
        assert!(why.contains("in use: the network interface eth0 is up"), "{why}");
        assert_eq!(fixture.text("sys/bus/pci/drivers/nvme/unbind"), "");
        let why = error(take(&fixture.tree, at(), To::Vfio, Word::TakeIt));
        assert!(why.contains("bound to nvme still"), "{why}");
        fixture.file(&format!("{folder}/class"), "0x060400\n");
        let why = error(take(&fixture.tree, at(), To::Nobody, Word::TakeIt));
        assert!(why.contains("bridge"), "a bridge is never taken: {why}");
    }

    #[test]
    fn a_group_of_several_is_refused_with_their_names() {
        let (fixture, _) = fixture();
        let beside = fixture.function("0000:04:00.1");
        fixture.folder("sys/kernel/iommu_groups/7/devices/0000:04:00.1");
        fixture.link(&format!("{beside}/driver"), "sys/bus/pci/drivers/snd_hda_intel");
        let why = error(take(&fixture.tree, at(), To::Vfio, Word::TakeIt));
        assert!(why.contains("0000:04:00.1 (snd_hda_intel)"), "{why}");
        assert_eq!(fixture.text("sys/bus/pci/drivers/nvme/unbind"), "");
    }

    #[test]
    fn a_function_without_a_driver_stays_as_it_is() {
        let (fixture, _) = fixture();
        fixture.function("0000:05:00.0");
        let bound = take(&fixture.tree, "05:00.0".parse().unwrap(), To::Nobody, Word::None).unwrap();
        assert!(bound.before().is_none() && bound.restorer.is_none());
        assert!(error(take(&fixture.tree, "06:00.0".parse().unwrap(), To::Nobody, Word::None)).contains("no such"));
    }

    #[test]
    fn the_kind_fits_the_machine() {
        let (fixture, _) = fixture();
        assert_eq!(To::fitting(&fixture.tree, at()), To::Vfio);
        fixture.file("sys/kernel/iommu_groups/7/type", "identity\n");
        assert_eq!(To::fitting(&fixture.tree, at()), To::Nobody);
    }
}

//! Obstacles to driving a function through /sys, by name, with the remedy.

use crate::address::Address;
use crate::confidential;
use crate::error::Error;
use crate::tree::Tree;

/// Why [`super::open`] would refuse; none if it would not.
pub fn refusal(tree: &Tree, address: Address) -> Option<Error> {
    // SAFETY: only reads a number.
    let root = unsafe { libc::geteuid() } == 0;
    let (why, hint) = reason(tree, address, root)?;
    Some(Error::Refused { address, why, hint })
}

fn reason(tree: &Tree, address: Address, root: bool) -> Option<(String, String)> {
    if !tree.exists(address) {
        return Some(("there is no such function".into(), "see `lspci -D`".into()));
    }
    if !root {
        return Some(("this needs root".into(), "run it with sudo".into()));
    }
    if let Some(mode) = lockdown(tree) {
        let why = format!("the kernel is locked down ({mode}), so /sys gives no access to BARs");
        return Some((why, "use vfio (bind it with --bind), or boot without Secure Boot".into()));
    }
    if let Some(how) = confidential::kind(tree) {
        let why = format!(
            "this is a confidential virtual machine ({how}): devices cannot access this program's memory by its address"
        );
        return Some((why, "use an ordinary virtual machine or the host".into()));
    }
    if let Some(driver) = tree.driver(address) {
        let hint = match driver.as_str() {
            "vfio-pci" => "open it through vfio".into(),
            _ => "--bind takes it from that driver, after listing what would be lost".into(),
        };
        return Some((format!("the kernel's driver {driver} has it"), hint));
    }
    if let Some(kind) = super::translation(tree, address) {
        let why = format!("its IOMMU translates addresses (the group's type is {kind})");
        return Some((why, pass_through(tree, address)));
    }
    None
}

fn pass_through(tree: &Tree, address: Address) -> String {
    let group = tree.iommu_group(address).unwrap_or_default();
    let boot = if super::command_line(tree).split_whitespace().any(|word| word == "iommu=pt") {
        "the kernel was booted with iommu=pt, which this group does not follow"
    } else {
        "boot with iommu=pt"
    };
    format!("use vfio (--bind), or {boot}, or: echo identity > /sys/kernel/iommu_groups/{group}/type")
}

/// `integrity` or `confidentiality`, where it is one of the two: `none [integrity] confidentiality`.
fn lockdown(tree: &Tree) -> Option<String> {
    let text = tree.text("sys/kernel/security/lockdown")?;
    let mode = text.split_once('[')?.1.split_once(']')?.0;
    (mode != "none").then(|| mode.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    fn at() -> Address {
        "04:00.0".parse().unwrap()
    }

    /// A machine without obstacles, and the function's folder.
    fn fixture() -> (Fixture, String) {
        let fixture = Fixture::new("checks");
        let folder = fixture.function("0000:04:00.0");
        fixture.file("sys/kernel/security/lockdown", "[none] integrity confidentiality\n");
        fixture.file("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu sev\n");
        (fixture, folder)
    }

    fn why(fixture: &Fixture, root: bool) -> String {
        reason(&fixture.tree, at(), root).map(|(why, hint)| format!("{why}; {hint}")).unwrap_or_default()
    }

    #[test]
    fn every_refusal_has_a_reason() {
        let (fixture, _) = fixture();
        assert_eq!(why(&fixture, true), "");
        assert!(why(&fixture, false).contains("root"));
        let missing = reason(&fixture.tree, "05:00.0".parse().unwrap(), true).unwrap();
        assert!(missing.0.contains("no such function"));
    }

    #[test]
    fn a_driver_is_named() {
        let (fixture, folder) = fixture();
        fixture.link(&format!("{folder}/driver"), "sys/bus/pci/drivers/nvme");
        assert!(why(&fixture, true).starts_with("the kernel's driver nvme has it; --bind"));
    }

    #[test]
    fn an_iommu_that_translates_is_named_and_one_that_passes_through_is_not() {
        let (fixture, folder) = fixture();
        fixture.link(&format!("{folder}/iommu_group"), "sys/kernel/iommu_groups/7");
        fixture.file("sys/kernel/iommu_groups/7/type", "DMA-FQ\n");
        let text = why(&fixture, true);
        assert!(text.contains("DMA-FQ") && text.contains("echo identity > /sys/kernel/iommu_groups/7/type"), "{text}");
        fixture.file("proc/cmdline", "quiet iommu=pt\n");
        assert!(why(&fixture, true).contains("does not follow"));
        fixture.file("sys/kernel/iommu_groups/7/type", "identity\n");
        assert_eq!(why(&fixture, true), "");
    }

    #[test]
    fn an_older_kernel_that_does_not_tell_the_kind_is_refused() {
        let (fixture, folder) = fixture();
        fixture.link(&format!("{folder}/iommu_group"), "sys/kernel/iommu_groups/7");
        assert!(why(&fixture, true).contains("unknown"));
    }

    #[test]
    fn lockdown_and_confidential_guests_are_named() {
        let (fixture, _) = fixture();
        fixture.file("sys/kernel/security/lockdown", "none [integrity] confidentiality\n");
        assert!(why(&fixture, true).contains("locked down (integrity)"));
        fixture.file("sys/kernel/security/lockdown", "[none] integrity confidentiality\n");
        fixture.file("proc/cpuinfo", "flags\t\t: fpu tdx_guest\n");
        assert!(why(&fixture, true).contains("TDX"));
        fixture.file("proc/cpuinfo", "flags\t\t: fpu\n");
        fixture.file("dev/sev-guest", "");
        assert!(why(&fixture, true).contains("SEV-SNP"));
    }
}

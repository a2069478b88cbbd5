//! Whether devices can write to GPU memory by their own DMA.

use crate::Check;
use pcie::peers::{Answer, FALLBACK, Finding, Machine, Pair};
use pcie::{Address, Identity};

/// Most pairs shown as text; JSON has all of them.
const SHOWN: usize = 16;

/// Every such device with every GPU. Empty if the kernel shows no PCI bus.
pub fn pairs() -> Vec<Pair> {
    Machine::this().map(|machine| machine.pairs()).unwrap_or_default()
}

pub fn checks() -> Vec<Check> {
    let machine = match Machine::this() {
        Ok(machine) => machine,
        Err(e) => return vec![Check::info(NAME, "not looked up", &e.to_string())],
    };
    let what = |address: Address| machine.function(address).map_or("a device", |one| kind(&one.identity));
    lines(&machine.pairs(), machine.gpus().len(), machine.sources().len(), what)
}

const NAME: &str = "devices that write to a GPU";

fn lines(pairs: &[Pair], gpus: usize, sources: usize, what: impl Fn(Address) -> &'static str) -> Vec<Check> {
    if gpus == 0 {
        return vec![Check::info(NAME, "none", "no NVIDIA GPU on the PCI bus")];
    }
    if sources == 0 {
        return vec![Check::info(NAME, "none", "no NVMe controller, network card or FPGA on the PCI bus")];
    }
    let mut all: Vec<Check> = pairs.iter().take(SHOWN).map(|pair| line(pair, what(pair.device))).collect();
    if let Some(more) = pairs.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        all.push(Check::info(NAME, format!("{more} more pairs"), "--json lists all of them"));
    }
    all
}

fn line(pair: &Pair, what: &str) -> Check {
    let name = format!("{} -> {}", pair.device, pair.target);
    let told = |findings: &[Finding]| {
        let one = |finding: &Finding| format!("{} ({})", finding.why, finding.change);
        findings.iter().map(one).collect::<Vec<_>>().join("; ")
    };
    let first = match told(&pair.needs) {
        needs if needs.is_empty() => String::new(),
        needs => format!("first: {needs}"),
    };
    let detail = format!("{what} to GPU memory, {}", pair.way);
    match pair.answer() {
        Answer::Yes if first.is_empty() => Check::yes(&name, detail),
        Answer::Yes => Check::yes(&name, detail).because(&first),
        Answer::Unsure => {
            let doubts = told(&pair.doubts);
            let reason = if first.is_empty() { doubts } else { format!("{doubts}; {first}") };
            Check::info(&name, detail, &reason)
        }
        Answer::No => Check::no(&name, detail, &format!("{}; until then {FALLBACK}", told(&pair.obstacles))),
    }
}

fn kind(identity: &Identity) -> &'static str {
    match (identity.vendor, identity.class) {
        (_, 0x01_08_02) => "NVMe",
        (0x10ee, _) => "Xilinx",
        (0x1234, _) => "edu",
        (_, class) if class >> 16 == 0x02 => "network",
        _ => "an accelerator",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verdict;
    use pcie::peers::Way;

    fn pair(device: u8) -> Pair {
        let address = |bus, device| Address { domain: 0, bus, device, function: 0 };
        Pair {
            device: address(0x44, device),
            target: address(0x43, 0),
            way: Way::Switch { at: address(0x41, 0) },
            obstacles: Vec::new(),
            needs: Vec::new(),
            doubts: Vec::new(),
        }
    }

    fn finding(why: &str, change: &str) -> Finding {
        Finding { what: "test", why: why.into(), change: change.into() }
    }

    fn texts(pairs: &[Pair]) -> Vec<String> {
        let all = lines(pairs, 1, 1, |_| "NVMe").into_iter();
        all.map(|check| {
            format!("{:?} {}: {}: {}", check.verdict, check.name, check.detail, check.reason.unwrap_or_default())
        })
        .collect()
    }

    #[test]
    fn each_pair_reports_what_is_between_and_what_to_change() {
        let refused =
            Pair { obstacles: vec![finding("a port redirects", "setpci")], needs: vec![finding("x", "y")], ..pair(0) };
        let unsure = Pair { doubts: vec![finding("not known", "check")], ..pair(1) };
        let bound = Pair { needs: vec![finding("nvme has it", "--bind")], ..pair(2) };
        let way = "NVMe to GPU memory, within the switch below 0000:41:00.0";
        assert_eq!(
            texts(&[refused, unsure, bound, pair(3)]),
            [
                format!("No 0000:44:00.0 -> 0000:43:00.0: {way}: a port redirects (setpci); until then {FALLBACK}"),
                format!("Info 0000:44:01.0 -> 0000:43:00.0: {way}: not known (check)"),
                format!("Yes 0000:44:02.0 -> 0000:43:00.0: {way}: first: nvme has it (--bind)"),
                format!("Yes 0000:44:03.0 -> 0000:43:00.0: {way}: "),
            ]
        );
    }

    #[test]
    fn missing_devices_are_reported_and_extra_pairs_are_counted() {
        let told = |gpus, sources| lines(&[], gpus, sources, |_| "").remove(0).reason.unwrap();
        assert!(told(0, 1).contains("no NVIDIA GPU") && told(1, 0).contains("no NVMe"));
        let many: Vec<Pair> = (0..20).map(pair).collect();
        let all = lines(&many, 1, 20, |_| "NVMe");
        assert_eq!((all.len(), all[16].detail.as_str()), (17, "4 more pairs"));
        assert_eq!(lines(&many[..16], 1, 16, |_| "NVMe").len(), 16);
    }

    #[test]
    fn no_finding_here_prevents_recording() {
        assert!(checks().iter().all(|check| !check.required && !check.name.is_empty()));
        assert!(checks().iter().all(|check| check.verdict == Verdict::Yes || check.reason.is_some()));
    }
}

//! The path from the root complex to the GPU: links, packets, access control and address translation.

use crate::config_space::{Config, Link, Missing};
use crate::files::Files;
use crate::gather::Gathered;
use crate::lists;
use crate::value::Known;

const DEVICES: &str = "/sys/bus/pci/devices";

/// `address` is that of the GPU, as NVML or the kernel writes it.
pub fn facts(files: &Files, address: Known<String>, cpu_node: Known<u64>, into: &mut Gathered) {
    let device = address.and_then(|a| short(&a));
    let folder = device.map(|a| format!("{DEVICES}/{a}"));
    let file = |name: &str| folder.clone().map(|f| format!("{f}/{name}"));
    let bytes = file("config").and_then(|path| files.bytes(&path));
    let express = bytes.and_then(|b| Config::of(&b).express().map_err(|why| why.to_string()));
    let reserved = |size: Option<u64>| size.ok_or_else(|| "a code that the specification reserves".to_string());
    into.put("pci.max_payload", express.clone().and_then(|e| reserved(e.max_payload)));
    into.put("pci.max_payload_possible", express.clone().and_then(|e| reserved(e.max_payload_possible)));
    into.put("pci.max_read_request", express.clone().and_then(|e| reserved(e.max_read_request)));
    into.put("pci.relaxed_ordering", express.clone().map(|e| e.relaxed_ordering));
    into.put("pci.extended_tags", express.clone().map(|e| e.extended_tags));
    into.put("pci.no_snoop", express.clone().map(|e| e.no_snoop));
    into.put("pci.link_sleeps", express.clone().map(|e| e.sleeps));
    let text = |l: Link| format!("generation {} x{}", l.generation, l.width);
    into.put("pci.link", express.clone().map(|e| text(e.link)));
    into.put("pci.link_possible", express.map(|e| text(e.link_possible)));

    let bridges = folder.clone().and_then(|f| files.real(&f)).map(|real| bridges(&real));
    into.put("pci.bridges", bridges.clone());
    let links = bridges.clone().map(|all| all.iter().map(|b| link(files, b)).collect::<Vec<_>>());
    into.put("pci.bridge_links", links);
    into.put("pci.access_control", bridges.and_then(|all| access_control(files, &all)));

    let node = file("numa_node").and_then(|path| gpu_node(files, &path));
    into.put("gpu.numa_node", node.clone());
    into.put("gpu.numa_distance", node.and_then(|gpu| distance(files, cpu_node?, gpu)));
    translation(files, file("iommu_group"), into);
}

/// NVML writes eight digits of domain and capitals, sysfs four and small letters.
fn short(address: &str) -> Known<String> {
    let low = address.trim().to_ascii_lowercase();
    let known = match low.split_once(':') {
        Some((domain, rest)) if domain.len() > 4 && domain.is_ascii() => {
            format!("{}:{rest}", &domain[domain.len() - 4..])
        }
        _ => low,
    };
    if is_address(&known) { Ok(known) } else { Err(format!("{address:?} is no PCI address")) }
}

/// `0000:41:00.0`; a domain may have more digits (those of VMD controllers do).
fn is_address(name: &str) -> bool {
    let hex = |t: &str, least: usize, most: usize| {
        (least..=most).contains(&t.len()) && t.bytes().all(|b| b.is_ascii_hexdigit())
    };
    let parts: Vec<&str> = name.split([':', '.']).collect();
    name.matches('.').count() == 1
        && matches!(parts[..], [domain, bus, device, function]
            if hex(domain, 4, 8) && hex(bus, 2, 2) && hex(device, 2, 2) && hex(function, 1, 1))
}

/// The bridges above a device, the root's first, from `/sys/devices/pci0000:40/0000:40:01.0/0000:41:00.0`.
fn bridges(real: &str) -> Vec<String> {
    let mut all: Vec<String> = real.split('/').filter(|part| is_address(part)).map(str::to_string).collect();
    all.pop();
    all
}

/// `0000:40:01.0: 32.0 GT/s x16 of 32.0 GT/s x16`
fn link(files: &Files, bridge: &str) -> String {
    let of = |file: &str| files.text(&format!("{DEVICES}/{bridge}/{file}")).unwrap_or_else(|_| "?".into());
    let speed = |file: &str| of(file).trim_end_matches(" PCIe").to_string();
    let now = format!("{} x{}", speed("current_link_speed"), of("current_link_width"));
    format!("{bridge}: {now} of {} x{}", speed("max_link_speed"), of("max_link_width"))
}

/// Bridges with their enabled access controls; bridges without any are left out.
fn access_control(files: &Files, bridges: &[String]) -> Known<Vec<String>> {
    let mut all = Vec::new();
    for bridge in bridges {
        let bytes = files.bytes(&format!("{DEVICES}/{bridge}/config"))?;
        match Config::of(&bytes).access_control() {
            Ok(acs) if acs.names().is_empty() => {}
            Ok(acs) => all.push(format!("{bridge}: {}", acs.names().join(" "))),
            Err(Missing::Extended(_)) => {}
            Err(why) => return Err(format!("{bridge}: {why}")),
        }
    }
    Ok(all)
}

fn gpu_node(files: &Files, path: &str) -> Known<u64> {
    let node = files.number(path)?;
    u64::try_from(node).map_err(|_| format!("{path} has {node}: the firmware gives no node"))
}

/// 10 within a node; for others the relative distance that the firmware gives.
fn distance(files: &Files, cpu: u64, gpu: u64) -> Known<u64> {
    let path = format!("/sys/devices/system/node/node{cpu}/distance");
    let online = files.text("/sys/devices/system/node/online").and_then(|t| lists::parse(&t))?;
    let place = online.iter().position(|node| *node as u64 == gpu);
    let text = files.text(&path)?;
    let column = place.and_then(|p| text.split_whitespace().nth(p)?.parse().ok());
    column.ok_or_else(|| format!("{path} does not name node {gpu}"))
}

/// What translates the addresses that the GPU uses.
fn translation(files: &Files, group: Known<String>, into: &mut Gathered) {
    let units = files.names("/sys/class/iommu").map(|all| all.len());
    into.put("iommu.units", units.or_else(|why| if files.is_there("/sys/class") { Ok(0) } else { Err(why) }));
    let group = group.and_then(|link| match files.is_there(&link) {
        true => files.real(&link),
        false => Err(format!("{link} is not there: no address translation that this kernel knows of")),
    });
    let number = group.clone().map(|g| g.rsplit('/').next().unwrap_or_default().to_string());
    into.put("iommu.group", number);
    into.put("iommu.group_devices", group.clone().and_then(|g| files.names(&format!("{g}/devices"))));
    into.put("iommu.domain", group.and_then(|g| files.text(&format!("{g}/type"))));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config_space::build::{express, space};
    use crate::files::tree::Tree;

    #[test]
    fn addresses_are_written_as_the_kernel_does() {
        assert_eq!(short("00000000:9A:00.0").as_deref(), Ok("0000:9a:00.0"));
        assert_eq!(short("0000:41:00.0").as_deref(), Ok("0000:41:00.0"));
        for wrong in ["", "41:00.0", "0000:41:00", "0000:41:00.0.1", "../../etc", "0000:4g:00.0", "éééé:41:00.0"] {
            assert!(short(wrong).is_err(), "{wrong}");
        }
        let real = "/sys/devices/pci0000:40/0000:40:01.0/0000:41:00.0/0000:42:04.0/0000:43:00.0";
        assert_eq!(bridges(real), ["0000:40:01.0", "0000:41:00.0", "0000:42:04.0"]);
        assert!(bridges("/sys/devices/pci0000:00/0000:00:05.0").is_empty());
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_an_address_or_refused(text in ".{0,20}") {
            let _ = (short(&text), bridges(&text));
        }
    }

    /// A GPU below a switch, below a root port; on node 1 of two.
    fn machine() -> Tree {
        let tree = Tree::new("pci");
        let devices = "/sys/devices/pci0000:40";
        let path = ["0000:40:01.0", "0000:41:00.0", "0000:42:04.0", "0000:43:00.0"];
        let mut at = devices.to_string();
        for (i, address) in path.iter().enumerate() {
            at = format!("{at}/{address}");
            let body = express(2, 1 << 5 | 2 << 12, 5 | 16 << 4, 0, 5 | 16 << 4);
            let acs: &[u8] = if i == 2 { &[0x1f, 0, 0x1d, 0] } else { &[0x1f, 0, 0, 0] };
            let extended: &[(u16, &[u8])] = if i < 3 { &[(0x0d, acs)] } else { &[] };
            tree.write(&format!("{at}/config"), space(&[(0x10, &body)], extended));
            tree.write(&format!("{at}/current_link_speed"), b"32.0 GT/s PCIe\n");
            tree.write(&format!("{at}/max_link_speed"), b"32.0 GT/s PCIe\n");
            tree.write(&format!("{at}/current_link_width"), b"16\n");
            tree.write(&format!("{at}/max_link_width"), b"16\n");
            tree.link(&format!("{DEVICES}/{address}"), &at.replace("/sys", "../../.."));
        }
        tree.write(&format!("{at}/numa_node"), b"1\n");
        tree.link(&format!("{at}/iommu_group"), "../../../../../../kernel/iommu_groups/7");
        tree.write("/sys/kernel/iommu_groups/7/type", b"DMA-FQ\n");
        tree.write("/sys/kernel/iommu_groups/7/devices/0000:43:00.0", b"");
        tree.write("/sys/class/iommu/dmar0", b"");
        tree.write("/sys/devices/system/node/online", b"0-1\n");
        tree.write("/sys/devices/system/node/node0/distance", b"10 21\n");
        tree
    }

    #[test]
    fn a_gpu_below_a_switch_is_found_with_its_path() {
        let tree = machine();
        let files = tree.files();
        let mut into = Gathered::default();
        facts(&files, Ok("00000000:43:00.0".into()), Ok(0), &mut into);
        let fact = |name: &str| into.facts.get(name).map(ToString::to_string).ok_or_else(|| into.unknown.get(name));
        assert_eq!(fact("pci.max_payload").unwrap(), "256");
        assert_eq!(fact("pci.max_read_request").unwrap(), "512");
        assert_eq!(fact("pci.link").unwrap(), "generation 5 x16");
        assert_eq!(fact("pci.bridges").unwrap(), "0000:40:01.0, 0000:41:00.0, 0000:42:04.0");
        assert_eq!(
            fact("pci.access_control").unwrap(),
            "0000:42:04.0: SrcValid ReqRedir CmpltRedir UpstreamFwd",
            "only where something is on"
        );
        assert!(fact("pci.bridge_links").unwrap().starts_with("0000:40:01.0: 32.0 GT/s x16 of 32.0 GT/s x16, "));
        assert_eq!((fact("gpu.numa_node").unwrap(), fact("gpu.numa_distance").unwrap()), ("1".into(), "21".into()));
        assert_eq!((fact("iommu.units").unwrap(), fact("iommu.domain").unwrap()), ("1".into(), "DMA-FQ".into()));
        assert_eq!(
            (fact("iommu.group").unwrap(), fact("iommu.group_devices").unwrap()),
            ("7".into(), "0000:43:00.0".into())
        );

        // As a user other than root: 64 bytes of each space.
        let config = "/sys/bus/pci/devices/0000:43:00.0/config";
        let bytes = files.bytes(config).unwrap();
        tree.write(config, &bytes[..64]);
        let mut into = Gathered::default();
        facts(&files, Ok("0000:43:00.0".into()), Ok(0), &mut into);
        assert!(into.unknown["pci.max_payload"].contains("needs root"), "{:?}", into.unknown);
    }

    #[test]
    fn without_a_gpu_each_fact_has_its_reason() {
        let mut into = Gathered::default();
        facts(&Files::of_this_machine(), Err("no GPU".into()), Ok(0), &mut into);
        assert_eq!(into.unknown["pci.max_payload"], "no GPU");
        assert!(into.facts.contains_key("iommu.units"), "{:?}", into.unknown);
    }
}

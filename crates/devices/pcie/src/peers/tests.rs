use super::fixture::{Maker, Place, machine};
use super::*;
use crate::fixture::Fixture;

const GPU: &str = "0000:43:00.0";
const NVME: &str = "0000:44:00.0";

/// The only pair of a machine, as root sees it.
fn pair(fixture: &Fixture) -> Pair {
    let mut pairs = Machine::read(&fixture.tree, true).unwrap().pairs();
    assert_eq!(pairs.len(), 1, "{pairs:?}");
    pairs.remove(0)
}

fn what(findings: &[Finding]) -> Vec<&'static str> {
    findings.iter().map(|one| one.what).collect()
}

fn below_one_switch(tree: &Maker) {
    tree.switch("0000:40", "0000:40:01.0", &[Place::Gpu(GPU), Place::Nvme(NVME)]);
}

#[test]
fn below_one_switch_without_access_control_it_works() {
    let found = pair(&machine("switch", below_one_switch));
    assert_eq!((found.answer(), found.way.to_string()), (Answer::Yes, "within the switch below 0000:41:00.0".into()));
    assert!(found.needs.is_empty() && found.refusal().is_none());
}

#[test]
fn on_bare_metal_without_an_iommu_it_works_where_the_root_complex_is_known_to_forward() {
    let make = |device: u16| {
        machine("bare", |tree: &Maker| {
            tree.host_bridge("0000:40", device);
            tree.below("0000:40", &["0000:40:01.0"], Place::Gpu(GPU));
            tree.below("0000:40", &["0000:40:02.0"], Place::Nvme(NVME));
            // Redirection in root ports has no effect: they send requests up anyway.
            tree.redirecting("0000:40:02.0");
        })
    };
    let known = pair(&make(0x09a2));
    assert_eq!((known.answer(), known.way), (Answer::Yes, Way::RootComplex));
    let fixture = make(0x1237);
    let unknown = pair(&fixture);
    assert_eq!((unknown.answer(), what(&unknown.doubts)), (Answer::Unsure, vec!["root complex"]));
    assert!(unknown.refusal().is_none(), "a doubt is no refusal");
    fixture.file("proc/cpuinfo", "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nflags\t\t: fpu svm\n");
    assert_eq!(pair(&fixture).answer(), Answer::Yes);
}

#[test]
fn a_root_complex_without_00_0_is_told_by_its_first_root_port() {
    let make = |device: u16| {
        machine("ports", |tree: &Maker| {
            tree.root_port("0000:40", "0000:40:01.0", device);
            tree.below("0000:40", &["0000:40:01.0"], Place::Gpu(GPU));
            tree.below("0000:40", &["0000:40:02.0"], Place::Nvme(NVME));
        })
    };
    assert_eq!(pair(&make(0x2030)).answer(), Answer::Yes);
    assert_eq!(pair(&make(0x1237)).answer(), Answer::Unsure);
    // A bridge that is no root port does not identify the root complex.
    let other = machine("bridges", |tree: &Maker| {
        tree.below("0000:40", &["0000:40:01.0"], Place::Gpu(GPU));
        tree.below("0000:40", &["0000:40:02.0"], Place::Nvme(NVME));
    });
    assert_eq!(pair(&other).answer(), Answer::Unsure);
}

#[test]
fn another_socket_is_a_doubt_if_forwarding_is_unknown() {
    let make = |device: u16| {
        machine("sockets", |tree: &Maker| {
            tree.host_bridge("0000:40", device);
            tree.host_bridge("0000:c0", device);
            tree.below("0000:40", &["0000:40:01.0"], Place::Gpu(GPU));
            tree.below("0000:c0", &["0000:c0:01.0"], Place::Xilinx("0000:c1:00.0"));
        })
    };
    // Old ones forward only between their own ports.
    let old = pair(&make(0x2f00));
    assert_eq!((old.answer(), old.way, what(&old.doubts)), (Answer::Unsure, Way::RootComplexes, vec!["root complex"]));
    assert_eq!(pair(&make(0x2020)).answer(), Answer::Yes);
}

#[test]
fn a_port_that_redirects_is_named() {
    for port in ["0000:42:00.0", "0000:42:01.0"] {
        let fixture = machine("redirect", |tree| {
            below_one_switch(tree);
            tree.redirecting(port);
        });
        let found = pair(&fixture);
        assert_eq!((found.answer(), what(&found.obstacles)), (Answer::No, vec!["redirect"]));
        let refused = refusal(&fixture.tree, found.device, found.target).unwrap().to_string();
        assert!(refused.contains(&format!("the port {port} redirects")), "{refused}");
        assert!(refused.contains(&format!("disable_acs_redir={port}")), "{refused}");
    }
    // SrcValid alone redirects no request; EgressCtrl may.
    for (on, obstacles) in [(1u16, &[][..]), (1 << 5, &["blocked"])] {
        let found = pair(&machine("egress", |tree| {
            below_one_switch(tree);
            tree.access_control("0000:42:01.0", on);
        }));
        assert_eq!(what(&found.obstacles), obstacles);
    }
    // A port above both does not redirect requests between them.
    let found = pair(&machine("above", |tree| {
        below_one_switch(tree);
        tree.redirecting("0000:40:01.0");
        tree.redirecting("0000:41:00.0");
    }));
    assert_eq!(found.answer(), Answer::Yes);
}

#[test]
fn an_iommu_that_translates_is_an_obstacle_and_one_that_passes_through_is_none() {
    for (domain, answer) in [("DMA-FQ", Answer::No), ("DMA", Answer::No), ("", Answer::No), ("identity", Answer::Yes)] {
        let found = pair(&machine("iommu", |tree| {
            below_one_switch(tree);
            // The target's own group does not matter.
            tree.group(GPU, 6, "DMA-FQ");
            tree.group(NVME, 7, domain);
        }));
        assert_eq!(found.answer(), answer, "{domain}");
        if answer == Answer::No {
            assert_eq!(what(&found.obstacles), ["translation"]);
            assert!(found.obstacles[0].change.contains("iommu_groups/7/type"));
        }
    }
}

#[test]
fn the_driver_of_a_device_and_the_users_rights_are_reported() {
    let fixture = machine("bound", |tree| {
        below_one_switch(tree);
        tree.driver(NVME, "nvme");
    });
    let found = pair(&fixture);
    assert_eq!((found.answer(), what(&found.needs)), (Answer::Yes, vec!["driver"]));
    let as_user = Machine::read(&fixture.tree, false).unwrap().pairs().remove(0);
    assert_eq!(what(&as_user.needs), ["root", "driver"]);
    let fixture_of_vfio = machine("vfio", |tree| {
        below_one_switch(tree);
        tree.driver(NVME, "vfio-pci");
    });
    assert_eq!(what(&pair(&fixture_of_vfio).needs), ["vfio"]);
    // Registers that the user cannot read are a doubt.
    for port in ["0000:42:00.0", "0000:42:01.0"] {
        let config = fixture.tree.function(port.parse().unwrap()).join("config");
        let bytes = std::fs::read(&config).unwrap();
        std::fs::write(&config, &bytes[..64]).unwrap();
    }
    let as_user = Machine::read(&fixture.tree, false).unwrap().pairs().remove(0);
    assert_eq!((as_user.answer(), what(&as_user.doubts)), (Answer::Unsure, vec!["hidden"]));

    for (driver, finding) in [("vfio-pci", "vfio"), ("", "no driver")] {
        let fixture = machine("gpu", |tree| {
            below_one_switch(tree);
            tree.driver(GPU, driver);
        });
        if driver.is_empty() {
            std::fs::remove_file(fixture.tree.function(GPU.parse().unwrap()).join("driver")).unwrap();
        }
        assert_eq!(what(&pair(&fixture).obstacles), [finding]);
    }
}

#[test]
fn a_guest_is_a_doubt_and_a_confidential_one_an_obstacle() {
    let make = |flags: &str| {
        machine("guest", |tree: &Maker| {
            below_one_switch(tree);
            tree.file("proc/cpuinfo", &format!("processor\t: 0\nflags\t\t: fpu {flags}\n"));
        })
    };
    let found = pair(&make("hypervisor"));
    assert_eq!((found.answer(), what(&found.doubts)), (Answer::Unsure, vec!["guest"]));
    let found = pair(&make("hypervisor tdx_guest"));
    assert_eq!((found.answer(), what(&found.obstacles)), (Answer::No, vec!["confidential"]));
    // A GPU without an address on the bus.
    let found = pair(&machine("unassigned", |tree| {
        below_one_switch(tree);
        tree.resources(GPU, &[(0x9000_0000, 0x90ff_ffff, 0x40200), (0, 0x1f_ffff_ffff, 0x2014_220c)]);
    }));
    assert_eq!((found.answer(), what(&found.obstacles)), (Answer::No, vec!["no bus address"]));
}

#[test]
fn without_a_device_or_a_gpu_there_is_no_pair() {
    let fixture = machine("alone", |tree| tree.below("0000:40", &["0000:40:01.0"], Place::Gpu(GPU)));
    let found = Machine::read(&fixture.tree, true).unwrap();
    assert_eq!((found.gpus().len(), found.sources().len(), found.pairs().len()), (1, 0, 0));
    assert!(found.between(NVME.parse().unwrap(), GPU.parse().unwrap()).is_none());
    let fixture = machine("none", |tree| tree.below("0000:40", &["0000:40:01.0"], Place::Nvme(NVME)));
    assert!(Machine::read(&fixture.tree, true).unwrap().pairs().is_empty());
}

#[test]
fn a_pair_in_json_has_words_that_stay() {
    let fixture = machine("json", |tree| {
        below_one_switch(tree);
        tree.group(NVME, 7, "DMA-FQ");
        tree.driver(NVME, "nvme");
    });
    let json = serde_json::to_value(pair(&fixture)).unwrap();
    assert_eq!((&json["device"], &json["target"]), (&NVME.into(), &GPU.into()));
    assert_eq!((&json["answer"], &json["fallback"]), (&"no".into(), &FALLBACK.into()));
    assert_eq!(json["obstacles"][0]["what"], "translation");
    assert_eq!(json["needs"][0]["what"], "driver");
}

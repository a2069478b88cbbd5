//! Synthetic machines, as the kernel's files show them.

use crate::fixture::Fixture;
use environment::config_space::build::{express, space};
use std::fs;

/// The device in a slot.
#[derive(Clone, Copy)]
pub(crate) enum Place<'a> {
    Gpu(&'a str),
    Nvme(&'a str),
    Xilinx(&'a str),
}

pub(crate) struct Maker {
    fixture: Fixture,
}

/// A bare Intel machine with these functions.
pub(crate) fn machine(name: &str, make: impl FnOnce(&Maker)) -> Fixture {
    let fixture = Fixture::new(name);
    fixture.file("proc/cpuinfo", "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nflags\t\t: fpu vmx\n");
    fixture.folder("sys/bus/pci/devices");
    let maker = Maker { fixture };
    make(&maker);
    maker.fixture
}

const BRIDGE: u32 = 0x06_04_00;
/// All that is on in a port that an IOMMU needs: SrcValid, ReqRedir, CmpltRedir, UpstreamFwd.
const REDIRECTING: u16 = 0x1d;

impl Maker {
    pub(crate) fn file(&self, path: &str, text: &str) {
        self.fixture.file(path, text);
    }

    /// A device below these bridges, the root's first. `root` is the root bus.
    pub(crate) fn below(&self, root: &str, bridges: &[&str], place: Place<'_>) {
        let mut folder = format!("sys/devices/pci{root}");
        for bridge in bridges {
            folder = format!("{folder}/{bridge}");
            if !self.exists(bridge) {
                self.function(&folder, bridge, 0x8086, 0x1234, BRIDGE, 0);
            }
        }
        let (address, vendor, device, class) = match place {
            Place::Gpu(address) => (address, 0x10de, 0x2335, 0x03_02_00),
            Place::Nvme(address) => (address, 0x144d, 0xa80a, 0x01_08_02),
            Place::Xilinx(address) => (address, 0x10ee, 0x9038, 0x12_00_00),
        };
        self.function(&format!("{folder}/{address}"), address, vendor, device, class, 0);
        if matches!(place, Place::Gpu(_)) {
            self.driver(address, "nvidia");
            let resources = [(0x9000_0000u64, 0x90ff_ffffu64, 0x40200), (0x20_0000_0000, 0x3f_ffff_ffff, 0x14220c)];
            self.resources(address, &resources);
        } else {
            self.resources(address, &[(0xa000_0000, 0xa000_3fff, 0x140204)]);
        }
    }

    /// Devices below one switch below a root port.
    pub(crate) fn switch(&self, root: &str, port: &str, places: &[Place<'_>]) {
        let domain = &root[..4];
        for (i, place) in places.iter().enumerate() {
            self.below(root, &[port, &format!("{domain}:41:00.0"), &format!("{domain}:42:{i:02x}.0")], *place);
        }
    }

    /// The function 00.0 of a root bus.
    pub(crate) fn host_bridge(&self, root: &str, device: u16) {
        let address = format!("{root}:00.0");
        self.function(&format!("sys/devices/pci{root}/{address}"), &address, 0x8086, device, 0x06_00_00, 0);
    }

    /// A root port: the first function of root buses that have no function 00.0.
    pub(crate) fn root_port(&self, root: &str, port: &str, device: u16) {
        let folder = format!("sys/devices/pci{root}/{port}");
        self.function(&folder, port, 0x8086, device, BRIDGE, 0);
        // The first capability is right after the header; device/port type is in bits 7:4 of its register (PCI Express 7.5.3.2).
        let file = self.fixture.tree.path(format!("{folder}/config"));
        let mut bytes = fs::read(&file).unwrap();
        bytes[0x42] = 0x42;
        fs::write(file, bytes).unwrap();
    }

    fn exists(&self, address: &str) -> bool {
        self.fixture.tree.exists(address.parse().unwrap())
    }

    fn function(&self, folder: &str, address: &str, vendor: u16, device: u16, class: u32, access_control: u16) {
        let body = express(2, 1 << 5 | 2 << 12, 5 | 4 << 4, 0, 4 | 4 << 4);
        let [low, high] = access_control.to_le_bytes();
        let control: &[u8] = &[0x7f, 0, low, high];
        let extended: &[(u16, &[u8])] = if class == BRIDGE { &[(0x0d, control)] } else { &[] };
        let mut bytes = space(&[(0x10, &body)], extended);
        bytes[0..2].copy_from_slice(&vendor.to_le_bytes());
        bytes[2..4].copy_from_slice(&device.to_le_bytes());
        bytes[9..12].copy_from_slice(&class.to_le_bytes()[..3]);
        self.fixture.file(&format!("{folder}/numa_node"), "-1\n");
        fs::write(self.fixture.tree.path(format!("{folder}/config")), bytes).unwrap();
        if !self.exists(address) {
            self.fixture.link(&format!("sys/bus/pci/devices/{address}"), folder);
        }
    }

    fn path(&self, address: &str) -> String {
        format!("sys/bus/pci/devices/{address}")
    }

    pub(crate) fn resources(&self, address: &str, bars: &[(u64, u64, u64)]) {
        let line = |(start, end, flags): &(u64, u64, u64)| format!("{start:#018x} {end:#018x} {flags:#018x}\n");
        self.fixture.file(&format!("{}/resource", self.path(address)), &bars.iter().map(line).collect::<String>());
    }

    pub(crate) fn redirecting(&self, port: &str) {
        self.access_control(port, REDIRECTING);
    }

    /// What is on in a port.
    pub(crate) fn access_control(&self, port: &str, on: u16) {
        let real = fs::canonicalize(self.fixture.tree.path(self.path(port))).unwrap();
        let mut bytes = fs::read(real.join("config")).unwrap();
        bytes[0x106..0x108].copy_from_slice(&on.to_le_bytes());
        fs::write(real.join("config"), bytes).unwrap();
    }

    pub(crate) fn driver(&self, address: &str, driver: &str) {
        let (link, driver) = (format!("{}/driver", self.path(address)), format!("sys/bus/pci/drivers/{driver}"));
        let _ = fs::remove_file(self.fixture.tree.path(&link));
        self.fixture.folder(&driver);
        self.fixture.link(&link, &driver);
    }

    pub(crate) fn group(&self, address: &str, number: u32, domain: &str) {
        let group = format!("sys/kernel/iommu_groups/{number}");
        self.fixture.file(&format!("{group}/type"), &format!("{domain}\n"));
        self.fixture.link(&format!("{}/iommu_group", self.path(address)), &group);
    }
}

//! Two GPUs with a copy engine made for the link between them, as an H200's driver reports its engines.

use crate::{TIMEOUT, moves};
use doorbell_softgpu::{Mode, SoftDriver};
use rm::abi::control::{CE_ALL_CAPS, CE_PCE_MASK, CeAllCaps, CePceMask, ce_caps};
use rm::abi::{Nvos54, Plain, nr, rm_nr};
use rm::class::engine;
use rm::driver::{Driver, Layer};
use std::ffi::c_void;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use workload::device::{Device, EngineDevice};
use workload::routes::{names, open};
use workload::{Machine, verify};

/// Copy engines 2 to 4 of an H200, as `doorbell doctor` lists them.
const H200: [(u16, u32); 3] =
    [(ce_caps::SYSMEM_READ, 0x5000), (ce_caps::SYSMEM_WRITE, 0xa000), (ce_caps::NVLINK_P2P, 0x0fff)];

/// The software GPU's driver, with other data for its copy engines from the second on: capabilities in addition to those that all
/// have, and physical engines.
struct Told {
    driver: SoftDriver,
    engines: Vec<(u16, u32)>,
}

impl Told {
    fn tell(&self, call: &Nvos54) {
        let engines = || self.engines.iter().zip(2u32..);
        match call.cmd {
            CE_ALL_CAPS => change(call, |all: &mut CeAllCaps| {
                for ((caps, _), n) in engines() {
                    all.caps[n as usize] = (u16::from_le_bytes(all.caps[n as usize]) | caps).to_le_bytes();
                }
            }),
            CE_PCE_MASK => change(call, |mask: &mut CePceMask| {
                for ((_, physical), _) in engines().filter(|(_, n)| engine::copy(*n) == Some(mask.engine_type)) {
                    mask.mask = *physical;
                }
            }),
            _ => {}
        }
    }
}

fn change<P: Plain>(call: &Nvos54, how: impl FnOnce(&mut P)) {
    assert_eq!(call.params_size as usize, size_of::<P>());
    // SAFETY: the control's parameters, which its caller lets the driver write to.
    how(unsafe { &mut *(call.params as *mut P) });
}

impl Layer for Told {
    fn below(&self) -> &dyn Driver {
        &self.driver
    }

    unsafe fn ioctl(&self, fd: RawFd, request: u64, arg: *mut c_void) -> io::Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.driver.ioctl(fd, request, arg)? };
        if rm_nr(request) == Some(nr::CONTROL) {
            // SAFETY: the request's struct.
            self.tell(unsafe { &*arg.cast::<Nvos54>() });
        }
        Ok(())
    }
}

/// A second GPU that is the first one with another number.
fn two(engines: &[(u16, u32)]) -> Machine {
    let driver = Told { driver: SoftDriver::new(Mode::Strict), engines: engines.to_vec() };
    super::with_itself(Machine::of_driver(Arc::new(driver), false).unwrap())
}

fn about(machine: &Machine, name: &str) -> String {
    names(machine).into_iter().find(|listed| listed.name == name).unwrap_or_else(|| panic!("{name}")).about
}

#[test]
fn what_goes_between_gpus_goes_by_the_engine_of_their_link() {
    let machine = two(&H200);
    for (name, engine) in [
        ("gpu0->batch[pieces=256]->gpu1", 4),
        ("gpu1->batch[pieces=256]->gpu0", 4),
        ("gpu0->batch[pieces=256]->gpu0", 3),
        ("host->batch[pieces=256]->gpu0", 3),
    ] {
        assert!(about(&machine, name).contains(&format!("by copy engine {engine} ")), "{}", about(&machine, name));
    }
    let device = EngineDevice::new(&machine).unwrap();
    assert_eq!(device.about(), "copy engine 4 of GPU 1 in the place of a device");
    for name in ["gpu0->batch[pieces=256]->gpu1", "gpu1->batch[pieces=64,engine=2]->gpu0"] {
        let mut route = open(&machine, name, 70_001).unwrap();
        assert_eq!(verify(&mut route, 70_001, 1, TIMEOUT).unwrap(), None, "{name}");
    }
    moves(&machine, "device->dma->gpu0", 70_001);
    // The listed routes of single engines between GPUs name it, too.
    assert!(names(&machine).iter().any(|listed| listed.name == "gpu0->ce4->gpu1"));
}

/// More pieces than fit into host memory at a time.
#[test]
#[ignore = "1 s: 12 MiB through the software GPU; run by .ci/run"]
fn without_peer_access_copies_are_made_in_pieces_and_arrive_completely() {
    let machine = two(&H200);
    let bytes = 3 * (4 << 20);
    let mut route = open(&machine, "gpu0->staged->gpu1", bytes).unwrap();
    assert_eq!(verify(&mut route, bytes, 3, TIMEOUT).unwrap(), None);
    assert_eq!(verify(&mut route, 24, 4, TIMEOUT).unwrap(), None);
    let odd = route.prepare((4 << 20) + 1).map(drop).unwrap_err().to_string();
    assert!(odd.contains("a multiple"), "{odd}");
    let refused = |name| open(&machine, name, 4096).map(drop).unwrap_err().to_string();
    assert!(refused("gpu0->staged->gpu0").contains("within one GPU"));
    assert!(refused("gpu0->staged[ce=3]->gpu1").contains("no options"));
}

#[test]
fn of_several_engines_of_the_link_the_one_with_the_most_physical_engines() {
    let link = ce_caps::NVLINK_P2P;
    let by = |engines: &[(u16, u32)]| EngineDevice::new(&two(engines)).unwrap().about();
    assert!(by(&[(link, 0x3), (link, 0xf0), (link, 0x700)]).starts_with("copy engine 3 "));
    assert!(by(&[(link, 0xf), (link, 0x30), (0, 0xfff00)]).starts_with("copy engine 2 "));
    // Equally many: the engine that the kernel driver does not use to clear memory.
    assert!(by(&[(link, 0xf), (link, 0xf0), (0, 0)]).starts_with("copy engine 3 "));
    // No engine is made for the link: the same as for all other copies.
    assert!(by(&[(0, 0xf), (0, 0x10), (0, 0xfff00)]).starts_with("copy engine 3 "));
}

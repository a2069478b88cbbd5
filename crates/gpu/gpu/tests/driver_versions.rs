//! doorbell's channels on drivers of every branch, and the drivers that are refused.

use doorbell_softgpu::{Mode, SoftDriver};
use gpu::{AddressSpace, Channel, ChannelOptions, CopyMode, Device, DeviceOptions, Engine, Error, Prepared};
use rm::abi::{Abi, BRANCHES, Standing};
use std::sync::Arc;
use std::time::Duration;

fn open(version: &str, structs: u32, unverified: bool) -> Result<Arc<Device>, Error> {
    let driver = Arc::new(SoftDriver::of_driver(Mode::Strict, version, structs));
    let options = DeviceOptions::default();
    if unverified { options.unverified_driver() } else { options }.open(driver, 0)
}

#[test]
fn a_copy_channel_and_a_graphics_channel_work_on_every_branch() {
    for branch in &BRANCHES {
        let device = open(branch.last, branch.number, true).unwrap();
        let space = AddressSpace::new(&device).unwrap();
        let (from, to) = (space.alloc_host(0x1000).unwrap(), space.alloc_video(0x1000).unwrap());
        let mut channel = Channel::new(&space, Engine::Copy(2), ChannelOptions::default()).unwrap();
        from.write(0, &branch.number.to_le_bytes());
        let part = |memory: &Arc<gpu::Memory>| memory.region().part(0, 4).unwrap();
        let mut copy = Prepared::copy(&mut channel, &part(&to), &part(&from), 4, CopyMode::Plain).unwrap();
        let ticket = copy.submit(&mut channel).unwrap();
        channel.wait(ticket, Duration::from_secs(10)).unwrap();
        let mut arrived = [0; 4];
        to.read(0, &mut arrived);
        assert_eq!(u32::from_le_bytes(arrived), branch.number);
        Channel::new(&space, Engine::Graphics, ChannelOptions::default()).unwrap();
    }
}

#[test]
fn versions_in_use_are_recognised_and_those_not_named_need_consent() {
    for (version, branch, known) in [
        ("535.309.01", 535, true),
        ("580.159.04", 580, true),
        ("580.178.04", 580, false),
        ("595.91.07", 595, false),
        ("610.57.04", 610, false),
        ("615.71.09", 615, false),
        ("620.6.0", 620, false),
    ] {
        let abi = Abi::of(version);
        assert_eq!((abi.branch().number, abi.standing() == Standing::Known), (branch, known), "{version}");
        match open(version, branch, false) {
            Ok(_) => assert!(known, "{version}"),
            Err(e) => assert!(!known && e.to_string().contains("--unverified-driver"), "{version}: {e}"),
        }
        assert!(open(version, branch, true).is_ok(), "{version}");
    }
}

#[test]
fn structs_that_the_kernel_has_otherwise_open_no_channel_whoever_consents() {
    let e = open("580.178.04", 610, true).unwrap_err();
    assert_eq!(
        e.to_string(),
        "driver 580.178.04 has other structs than branch 580 for channels, UVM: no channel is made on it"
    );
    let e = open("999.1.1", 580, true).unwrap_err();
    let newest = &BRANCHES[BRANCHES.len() - 1];
    assert!(e.to_string().contains(&format!("branch {} for channels, UVM", newest.number)), "{e}");
}

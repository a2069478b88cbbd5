//! The example, in both of its modes.

#[path = "../../../../examples/rust/fpga.rs"]
mod fpga;

use workload::device::transfers::Settings;

#[test]
fn a_program_for_host_buffers_is_the_same_in_both_modes() {
    if !test_support::installed(pcie::qemu::PROGRAM) {
        test_support::skip!("{} is not installed", pcie::qemu::PROGRAM);
    }
    let machine = fpga::machine("edu").unwrap();
    for (lines, way) in [("", "by way of host memory"), ("mode = \"gpu-pinned\"\ngpu = 0", "straight to GPU 0")] {
        let said = fpga::program(&machine, Settings::parse(lines).unwrap()).unwrap();
        assert!(said.starts_with("4 frames of 16384 bytes are right") && said.contains(way), "{said}");
    }
    assert!(fpga::machine("other").is_err());
}

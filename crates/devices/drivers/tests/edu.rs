//! The card in QEMU: its DMA moves bytes into host memory and into the BAR of another device. No timing is measured.

mod bytes;

use bytes::load;
use drivers::edu::{Edu, Error, MASK};
use pcie::Memory;
use pcie::qemu::{Machine, PROGRAM, Pages};
use std::time::Duration;
use test_support::noise;

const TIMEOUT: Duration = Duration::from_secs(30);
const WIDE: &str = "edu,dma_mask=0xffffffffffffffff";
/// With this option the machine's clock jumps to the next timer while its processor is halted, so the 100 ms of each DMA need not be waited for.
const NO_SLEEP: [&str; 2] = ["-icount", "shift=0,sleep=off"];

macro_rules! needs_qemu {
    () => {
        if !test_support::installed(PROGRAM) {
            test_support::skip!("{PROGRAM} is not installed");
        }
    };
}

fn start(device: &str) -> Machine {
    let builder = Machine::builder().peer_memory(4 << 20).pages(Pages::Scattered).args(NO_SLEEP);
    builder.device(device).device("pci-testdev").start().unwrap()
}

/// Moves bytes through the card from one memory to another, and checks the bytes around them.
fn moves(edu: &mut Edu, from: (&Memory, u64), to: (&Memory, u64), bytes: u64) {
    const BESIDE: u64 = 64;
    let sent = noise(bytes as usize, bytes);
    from.0.store(from.1, &sent).unwrap();
    to.0.store(to.1 - BESIDE, &vec![0xee; (bytes + 2 * BESIDE) as usize]).unwrap();
    edu.copy((from.0.clone(), from.1), (to.0.clone(), to.1), bytes, TIMEOUT).unwrap();
    let found = load(to.0, to.1 - BESIDE, bytes + 2 * BESIDE);
    let (front, rest) = found.split_at(BESIDE as usize);
    let (moved, behind) = rest.split_at(bytes as usize);
    assert!(moved == sent, "{bytes} bytes");
    assert!(front.iter().chain(behind).all(|byte| *byte == 0xee), "{bytes} bytes and some beside them");
}

fn every_length_arrives(sizes: &[u64]) {
    let machine = start(WIDE);
    let mut edu = Edu::new(machine.function(0).unwrap(), u64::MAX).unwrap();
    let most = sizes.iter().max().unwrap() + 0x2000;
    let memory = || edu.function().allocate(most).unwrap();
    let (a, b) = (memory(), memory());
    assert!(most < 0x4000 || a.runs().len() > 1, "pages that do not follow one another");
    let gpu = edu.function().reach(&machine.peer().0).unwrap();
    for &bytes in sizes {
        moves(&mut edu, (&a, 0xffb), (&b, 0x841), bytes);
        moves(&mut edu, (&a, 0x10), (&gpu, 0x1_0123), bytes);
        moves(&mut edu, (&gpu, 0x40), (&a, 0x1000), bytes);
    }
    // Each piece is two commands, and none is longer than the buffer.
    let pieces = edu.pieces();
    moves(&mut edu, (&a, 0), (&gpu, 0x100), 4095);
    assert!(edu.pieces() - pieces >= 4);
}

#[test]
fn its_own_dma_writes_host_memory_and_another_devices_bar() {
    needs_qemu!();
    every_length_arrives(&[1, 4095, 10_000]);
}

#[test]
#[ignore = "seconds; run by .ci/run"]
fn its_own_dma_moves_every_size_of_a_gpu_direct_test() {
    needs_qemu!();
    every_length_arrives(&[4089, 4 << 10, 64 << 10, 512 << 10]);
}

#[test]
fn the_card_never_gets_addresses_beyond_its_mask_or_buffer() {
    needs_qemu!();
    let machine = start("edu");
    let other = Edu::new(machine.function(1).unwrap(), MASK).map(drop).unwrap_err();
    assert!(matches!(other, Error::NotEdu { vendor: 0x1b36, device: 5, .. }), "{other}");
    let mut edu = Edu::new(machine.function(0).unwrap(), MASK).unwrap();
    let host = edu.function().allocate(0x2000).unwrap();
    let gpu = edu.function().reach(&machine.peer().0).unwrap();
    assert!(matches!(edu.poll(), Err(Error::Idle)));
    // The BAR is above 28 bits.
    let start = edu.start((host.clone(), 0), (gpu.clone(), 0), 16);
    assert!(matches!(start, Err(Error::Mask { .. })), "{start:?}");
    let start = edu.start((host.clone(), 0x1fff), (host.clone(), 0), 2);
    assert!(matches!(start, Err(Error::Pcie(pcie::Error::OutOfBounds { .. }))), "{start:?}");
    assert_eq!(edu.pieces(), 0);
    moves(&mut edu, (&host, 0), (&host, 0x1000), 0x100);
    assert!(load(&gpu, 0, 0x1000).iter().all(|byte| *byte == 0));
}

#[test]
#[ignore = "starts a QEMU of its own; run by .ci/run"]
fn a_card_with_a_stopped_clock_is_late_and_keeps_its_memory() {
    needs_qemu!();
    let machine = Machine::builder().paused().device(WIDE).start().unwrap();
    let mut edu = Edu::new(machine.function(0).unwrap(), u64::MAX).unwrap();
    let host = edu.function().allocate(0x1000).unwrap();
    edu.start((host.clone(), 0), (host.clone(), 64), 8).unwrap();
    assert!(matches!(edu.start((host.clone(), 0), (host, 64), 8), Err(Error::Busy)));
    let late = edu.wait(Duration::from_millis(30)).unwrap_err();
    assert!(matches!(late, Error::Late { done: 0, bytes: 8, .. }) && late.to_string().contains("paused"), "{late}");
    machine.qmp("cont", &serde_json::json!({})).unwrap();
    edu.wait(TIMEOUT).unwrap();
}

#[test]
#[ignore = "starts a QEMU of its own; run by .ci/run"]
fn a_card_that_is_pulled_out_is_gone() {
    needs_qemu!();
    let machine = Machine::builder().device("pcie-root-port,id=port0,chassis=1,slot=1").args(NO_SLEEP).start().unwrap();
    machine.plug("edu,id=card,bus=port0,dma_mask=0xffffffffffffffff").unwrap();
    let mut edu = Edu::new(machine.function("card").unwrap(), u64::MAX).unwrap();
    let host = edu.function().allocate(0x2000).unwrap();
    moves(&mut edu, (&host, 0), (&host, 0x1000), 5);
    edu.start((host.clone(), 0), (host.clone(), 0x1000), 0x1000).unwrap();
    machine.pull("card").unwrap();
    let gone = edu.wait(TIMEOUT).and_then(|()| edu.copy((host.clone(), 0), (host, 64), 1, TIMEOUT)).unwrap_err();
    assert!(matches!(gone, Error::Pcie(pcie::Error::Gone { .. })), "{gone}");
}

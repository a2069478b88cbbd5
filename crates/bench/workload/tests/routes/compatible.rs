//! A program that was written for host buffers, in both modes: only two lines of settings differ.

use super::{KIB, soft};
use workload::device::transfers::{Mode, Settings, Transfers};
use workload::spec::{End, Memory};
use workload::{Buffer, Error, Machine};

/// What such a program does with three frames. Returns the bytes that it finds in the GPU's memory, and those that it wrote to
/// the device.
fn program(machine: &Machine, settings: Settings) -> (Vec<Vec<u8>>, Vec<u8>) {
    let own = Buffer::new(machine, End { memory: Memory::Device, offset: 0 }, 64 * KIB).unwrap();
    let sent: Vec<u8> = (0..64 * KIB).map(|at| (at * 7 + at / 256) as u8).collect();
    own.write(0, &sent).unwrap();
    let mut transfers = Transfers::new(machine, settings, own).unwrap();
    let frames = [0; 3].map(|_| transfers.frame(5000).unwrap());
    let mut found = Vec::new();
    for (n, frame) in (0..).zip(frames) {
        transfers.read(frame, n * 9001, 5000).unwrap();
        transfers.upload(frame, 5000).unwrap();
        let mut bytes = vec![0; 5000];
        transfers.gpu(frame).unwrap().read(0, &mut bytes).unwrap();
        assert!(bytes == sent[n as usize * 9001..][..5000]);
        found.push(bytes);
    }
    transfers.gpu(frames[1]).unwrap().write(0, &[9; 5000]).unwrap();
    transfers.download(frames[1], 4999).unwrap();
    transfers.write(frames[1], 100, 4999).unwrap();
    let mut back = vec![0; 5002];
    transfers.own().read(99, &mut back).unwrap();
    assert!(back[0] == sent[99] && back[1..5000].iter().all(|byte| *byte == 9) && back[5000] == sent[5099]);
    assert!(matches!(transfers.read(frames[0], 0, 5001), Err(Error::Capacity { .. })));
    assert!(matches!(transfers.read(frames[0], 64 * KIB - 1, 2), Err(Error::Gpu(_) | Error::Capacity { .. })));
    assert_eq!(transfers.mode(), settings.mode);
    (found, back)
}

#[test]
fn both_modes_leave_the_same_bytes() {
    let (driver, machine) = soft();
    let copies = || driver.counters().copies.load(std::sync::atomic::Ordering::Relaxed);
    let count = |settings: &str| {
        let before = copies();
        let left = program(&machine, Settings::parse(settings).unwrap());
        (left, copies() - before)
    };
    let (by_host, many) = count("");
    let (direct, few) = count("mode = \"gpu-pinned\"\ngpu = 0");
    assert!(by_host == direct);
    assert_eq!(many - few, 4, "three uploads and a download were left out");
    assert_eq!(Settings::parse("").unwrap().mode, Mode::Host);
}

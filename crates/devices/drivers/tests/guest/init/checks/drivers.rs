//! The drivers of `nvme` and `edu` on functions of the kernel; the kernel's own driver reads their writes again.

use crate::devices::{bar_contents, contents, pattern};
use crate::report::{Outcome, ensure};
use drivers::edu;
use drivers::nvme::{Controller, Depth, Namespace, Overwrite, Piece, Queue, Word};
use pcie::{Address, Function, Memory, Tree, bind};
use std::error::Error;
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::{Duration, Instant};

/// Where a drive is written, and with which bytes.
const PLACES: [(u64, usize); 4] = [(0, 4096), (1 << 20, 64 << 10), (3 << 20, 256 << 10), ((8 << 20) - 8192, 8192)];

/// A place that was written, and its bytes.
pub fn written() -> (u64, Vec<u8>) {
    (PLACES[1].0, bytes_of(1))
}

fn bytes_of(place: usize) -> Vec<u8> {
    pattern(place as u64 + 40, PLACES[place].1)
}

/// Blocks are written from host memory, and read back into it and into another device's BAR, if one is given. The memory has several runs if the
/// kernel allocates it so, and pieces begin within pages.
pub fn blocks(drive: Box<dyn Function>, block: u64, other: Option<&dyn Function>) -> Outcome {
    let controller = Controller::open(drive)?;
    ensure(controller.is_functional(), || "an emulated drive is mistaken for a real one".into())?;
    let namespace = controller.namespace(1)?;
    ensure(namespace.block_bytes() == block, || format!("blocks of {} B", namespace.block_bytes()))?;
    let mut queue = controller.queue(&Depth { deadline: Duration::from_secs(30), ..Depth::default() })?;
    let word = Word { destroy: vec!["unknown".into()], ..Word::of(controller.identity().address.to_string()) };
    // The word for doorbell's own emulated drives does not name this machine's drives, which are emulated as well.
    let wrong = Word { device: Some("qemu".into()), ..word.clone() };
    let refused = Overwrite::ask(&controller, &mut queue, &namespace, &wrong).map(drop).map_err(|why| why.to_string());
    ensure(refused.as_ref().is_err_and(|why| why.contains("your word is for qemu")), || format!("{refused:?}"))?;
    let leave = Overwrite::ask(&controller, &mut queue, &namespace, &word)?;

    let host = controller.allocate(5 << 20)?;
    let other = other.map(|other| Ok::<_, pcie::Error>((other.bar(2)?, other.identity().address))).transpose()?;
    let peer = other.as_ref().map(|(bar, at)| controller.reach(&bar.peer("ivshmem", *at))).transpose()?;
    // The last page of the first 2 MiB, and the bytes after it.
    let from = (2 << 20) - 4096;
    for (place, (at, bytes)) in PLACES.into_iter().enumerate() {
        let sent = bytes_of(place);
        host.store(from, &sent)?;
        queue.prepare(0, &[Piece::new(&host, from, bytes as u64)])?;
        queue.complete(0, &leave.write(at / block, bytes as u64 / block)?)?;
        read(&mut queue, &namespace, at, &host, 0x200, bytes)?;
        ensure(contents(&host, 0x200, bytes)? == sent, || format!("other bytes from {at:#x} in host memory"))?;
        if let (Some(peer), Some((bar, _))) = (&peer, &other) {
            read(&mut queue, &namespace, at, peer, 0x1_0000, bytes)?;
            let found = bar_contents(bar, 0x1_0000, bytes as u64);
            ensure(found == sent, || format!("other bytes from {at:#x} in the BAR"))?;
        }
    }
    queue.complete(0, &namespace.flush())?;
    Ok(())
}

fn read(queue: &mut Queue, namespace: &Namespace, at: u64, to: &Memory, offset: u64, bytes: usize) -> Outcome {
    let block = namespace.block_bytes();
    queue.prepare(0, &[Piece::new(to, offset, bytes as u64)])?;
    Ok(queue.complete(0, &namespace.read(at / block, bytes as u64 / block)?)?)
}

/// The kernel's driver reads what doorbell's driver wrote, and zeros around it.
pub fn seen_by_the_kernel(drive: Address) -> Outcome {
    let (disk, file) = disk(drive)?;
    for (place, (at, bytes)) in PLACES.into_iter().enumerate() {
        let mut found = vec![0; bytes];
        file.read_exact_at(&mut found, at)?;
        ensure(found == bytes_of(place), || format!("the kernel reads other bytes at {at:#x} of {disk}"))?;
        let mut beside = vec![1; 4096];
        file.read_exact_at(&mut beside, at + bytes as u64)?;
        ensure(beside.iter().all(|byte| *byte == 0), || format!("{disk} was written after {at:#x}"))?;
    }
    Ok(())
}

/// The kernel's driver reads these bytes from `at` on.
pub fn kernel_reads(drive: Address, at: u64, expected: &[u8]) -> Outcome {
    let (disk, file) = disk(drive)?;
    let mut found = vec![0; expected.len()];
    file.read_exact_at(&mut found, at)?;
    let wrong = found.iter().zip(expected).position(|(found, expected)| found != expected);
    ensure(wrong.is_none(), || format!("the kernel reads another byte at {wrong:?} of {disk}"))
}

/// Its block device, once the kernel lets it be opened: the name is there a little earlier.
fn disk(drive: Address) -> Result<(String, File), Box<dyn Error>> {
    let started = Instant::now();
    loop {
        let disk = bind::disks(&Tree::default(), drive).into_iter().next().unwrap_or_default();
        match File::options().read(true).custom_flags(libc::O_SYNC).open(format!("/dev/{disk}")) {
            Ok(file) if !disk.is_empty() => return Ok((disk, file)),
            opened if started.elapsed().as_secs() > 60 => {
                return Err(format!("its block device {disk:?} after 60 s: {:?}", opened.err()).into());
            }
            _ => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// edu's driver moves more than its buffer holds: host memory to host memory, and into another device's BAR.
pub fn card(edu: Box<dyn Function>, other: &dyn Function) -> Outcome {
    let host = edu.allocate(64 << 10)?;
    let bar = other.bar(2)?;
    let peer = edu.reach(&bar.peer("ivshmem", other.identity().address))?;
    let mut card = edu::Edu::new(edu, u64::MAX)?;
    let sent = pattern(90, 10_000);
    host.store(0x123, &sent)?;
    let from = (host.clone(), 0x123);
    card.copy(from, (peer.clone(), 0x2_0000), 10_000, Duration::from_secs(30))?;
    ensure(bar_contents(&bar, 0x2_0000, 10_000) == sent, || "other bytes in the BAR".into())?;
    card.copy((peer.clone(), 0x2_0000), (host.clone(), 0x8000), 10_000, Duration::from_secs(30))?;
    ensure(contents(&host, 0x8000, 10_000)? == sent, || "other bytes back in host memory".into())
}

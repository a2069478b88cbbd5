//! Checks that are the same through sysfs and through vfio.

use crate::devices::{self, Edu, bar_contents, contents, pattern};
use crate::report::{Outcome, ensure};
use pcie::Function;
use std::fs;
use std::time::Instant;

/// edu's registers, by its BAR.
pub fn registers(edu: &dyn Function) -> Outcome {
    let identity = edu.identity();
    ensure((identity.vendor, identity.device) == devices::EDU, || format!("{identity:?}"))?;
    ensure(edu.is_functional(), || "an emulated device is mistaken for a real one".into())?;
    ensure(edu.is_present(), || "it is taken for gone".into())?;
    let device = Edu::new(edu)?;
    let found = device.identification();
    ensure(found & 0xff == 0xed, || format!("identification {found:#x}"))?;
    let inverted = device.inverted(0x1234_5678);
    ensure(inverted == !0x1234_5678, || format!("liveness {inverted:#x}"))
}

/// A BAR that does not exist is refused with a reason.
pub fn missing_bars(edu: &dyn Function) -> Outcome {
    for index in [1, 5, 6, 255] {
        ensure(edu.bar(index).is_err(), || format!("BAR {index} was opened"))?;
    }
    ensure(edu.bar(0)?.holds(0x10_0000, 1).is_err(), || "BAR 0 has no end".into())
}

/// Configuration space: read, and a register written and read back.
pub fn configuration(edu: &dyn Function) -> Outcome {
    let mut ids = [0; 4];
    edu.read_config(0, &mut ids)?;
    ensure(ids == [0x34, 0x12, 0xe8, 0x11], || format!("{ids:x?}"))?;
    edu.master()?;
    let mut command = [0; 2];
    edu.read_config(4, &mut command)?;
    ensure(command[0] & 6 == 6, || format!("command register {command:x?}: memory and bus mastering are off"))?;
    // The interrupt line is a scratch register.
    let mut line = [0];
    edu.read_config(0x3c, &mut line)?;
    edu.write_config(0x3c, &[!line[0]])?;
    let mut after = [0];
    edu.read_config(0x3c, &mut after)?;
    edu.write_config(0x3c, &line)?;
    ensure(after[0] == !line[0], || format!("interrupt line {line:x?}, then {after:x?}"))?;
    ensure(edu.read_config(0xffff, &mut [0; 2]).is_err(), || "bytes beyond configuration space were read".into())
}

/// edu's DMA: from host memory to edu and to another place in host memory, at several offsets, and the memory around it does not change.
pub fn host_dma(edu: &dyn Function) -> Outcome {
    let device = Edu::new(edu)?;
    // The second size needs more than one huge page.
    for bytes in [8192, 5 << 20] {
        let memory = edu.allocate(bytes)?;
        ensure(memory.length() >= bytes, || format!("{} bytes", memory.length()))?;
        let end = memory.length();
        ensure(contents(&memory, 0, 8192)?.iter().all(|byte| *byte == 0), || "memory is not zeroed".into())?;
        // At the begin of each run, and in the middle of the memory.
        let mut places: Vec<u64> = memory.runs().iter().map(|run| run.offset).collect();
        places.extend([end / 2, end - 4096]);
        for (index, place) in places.into_iter().enumerate() {
            let sent = pattern(index as u64 + 1, 256);
            memory.store(place, &sent)?;
            device.fetch(&memory, place, 256)?;
            memory.store(place, &[0x5a; 1024])?;
            device.deliver(&memory, place + 512, 256)?;
            let found = contents(&memory, place, 1024)?;
            ensure(found[512..768] == sent[..], || format!("other bytes at {place:#x}"))?;
            let beside = found[..512].iter().chain(&found[768..]).all(|byte| *byte == 0x5a);
            ensure(beside, || format!("bytes next to {place:#x} were written"))?;
        }
    }
    Ok(())
}

/// Dropped memory can be allocated again, in total many times more than there is.
pub fn memory_comes_back(edu: &dyn Function) -> Outcome {
    for round in 0..40 {
        let kept: Vec<_> = [4096, 3 << 20, 64 << 10, 16 << 20].into_iter().map(|n| edu.allocate(n)).collect();
        for (index, memory) in kept.into_iter().enumerate() {
            let memory = memory.map_err(|why| format!("round {round}, {index}: {why}"))?;
            memory.store(memory.length() - 8, &[7; 8])?;
        }
    }
    let too_much = edu.allocate(1 << 42).err().ok_or("4 TiB were allocated")?;
    ensure(too_much.to_string().len() > 20, || too_much.to_string())
}

/// Pieces of a huge page are different pages.
pub fn pieces_are_apart(edu: &dyn Function) -> Outcome {
    let pieces = (0..700).map(|_| edu.allocate(4096)).collect::<Result<Vec<_>, _>>()?;
    let mut at: Vec<u64> = pieces.iter().map(|piece| piece.bus(0).map(|found| found.0)).collect::<Result<_, _>>()?;
    at.sort_unstable();
    at.dedup();
    ensure(at.len() == pieces.len(), || format!("{} places for {} pieces", at.len(), pieces.len()))?;
    ensure(at.iter().all(|bus| bus % 4096 == 0), || "a piece does not begin at a page".into())
}

/// edu's DMA into another device's BAR and out of it, with no memory of the host between.
pub fn peer_dma(edu: &dyn Function, other: &dyn Function) -> Outcome {
    let bar = other.bar(2)?;
    let peer = bar.peer("ivshmem", other.identity().address);
    let memory = edu.reach(&peer)?;
    ensure(memory.length() == 4 << 20, || format!("{:#x} bytes", memory.length()))?;
    ensure(memory.as_ptr().is_none(), || "the CPU reaches a peer's memory through this".into())?;
    let device = Edu::new(edu)?;
    let host = edu.allocate(4096)?;
    for (index, place) in [0, 0x1000, 0x20_0ff0, (4 << 20) - 256].into_iter().enumerate() {
        let sent = pattern(index as u64 + 100, 256);
        host.store(0, &sent)?;
        device.fetch(&host, 0, 256)?;
        device.deliver(&memory, place, 256)?;
        ensure(bar_contents(&bar, place, 256) == sent, || format!("other bytes at {place:#x} of the BAR"))?;
        // In the opposite direction: what the CPU stores there arrives in the host's memory.
        bar.store32(place + 4, 0x600d_600d);
        device.fetch(&memory, place, 256)?;
        device.deliver(&host, 512, 256)?;
        let back = contents(&host, 512, 256)?;
        ensure(back[..4] == sent[..4] && back[8..] == sent[8..], || format!("other bytes back from {place:#x}"))?;
        ensure(back[4..8] == 0x600d_600du32.to_le_bytes(), || "the CPU's store is missing".into())?;
    }
    Ok(())
}

/// A drive's registers (NVM Express Base Specification 2.0, section 3.1.3): enabled, with queues in allocated memory, it is ready, and after a
/// reset it is not.
pub fn drive(drive: &dyn Function) -> Outcome {
    const VERSION: u64 = 0x08;
    const CONFIGURATION: u64 = 0x14;
    const STATUS: u64 = 0x1c;
    const QUEUES: u64 = 0x24;
    ensure(drive.identity().class == 0x01_08_02, || format!("{:?}", drive.identity()))?;
    let bar = drive.bar(0)?;
    bar.holds(0, 0x1000)?;
    let ready = |wanted: u32| {
        let started = Instant::now();
        while bar.load32(STATUS) & 1 != wanted {
            ensure(started.elapsed().as_secs() < 60, || format!("status {:#x} after 60 s", bar.load32(STATUS)))?;
        }
        Ok::<(), Box<dyn std::error::Error>>(())
    };
    let version = bar.load32(VERSION);
    ensure((1..=2).contains(&(version >> 16)), || format!("version {version:#x}"))?;
    bar.store32(CONFIGURATION, 0);
    ready(0)?;
    let queues = drive.allocate(8192)?;
    bar.store32(QUEUES, 0x000f_000f);
    bar.store64(0x28, queues.bus(0)?.0);
    bar.store64(0x30, queues.bus(4096)?.0);
    // ORDERING: stores to a BAR arrive in order, so the drive has the addresses of its queues when it is enabled.
    bar.store32(CONFIGURATION, 0x0046_0001);
    ready(1)?;
    drive.reset()?;
    ready(0)?;
    ensure(bar.load32(CONFIGURATION) & 1 == 0, || "it is enabled after a reset".into())
}

/// `checked` runs with only this way of resetting it enabled in the kernel. A mark in its configuration space (the cache line size, which PCI
/// Express does not use) shows the harness what was written meanwhile.
pub fn reset_by(function: &dyn Function, method: &str, mark: u8, checked: impl FnOnce() -> Outcome) -> Outcome {
    const MARKED: u16 = 0x0c;
    let file = format!("/sys/bus/pci/devices/{}/reset_method", function.identity().address);
    let ways = fs::read_to_string(&file)?;
    ensure(ways.split_whitespace().any(|way| way == method), || {
        format!("it has the reset methods {ways:?}, but not {method}")
    })?;
    fs::write(&file, method)?;
    function.write_config(MARKED, &[mark])?;
    let result = checked();
    function.write_config(MARKED, &[0])?;
    fs::write(&file, "default")?;
    result
}

/// A reset by power states. QEMU's network card keeps its registers during it, so this shows only that the function works afterwards, not that it
/// was reset.
pub fn power_states(card: &dyn Function) -> Outcome {
    const STATUS: u64 = 8;
    let command = || {
        let mut command = [0; 2];
        card.read_config(4, &mut command).map(|()| command)
    };
    card.master()?;
    let bar = card.bar(0)?;
    let (before, status) = (command()?, bar.load32(STATUS));
    ensure(before[0] & 6 == 6 && status != 0 && status != u32::MAX, || format!("{before:x?}, {status:#x}"))?;
    card.reset()?;
    let (after, now) = (command()?, bar.load32(STATUS));
    ensure((after, now) == (before, status), || format!("{before:x?}, {status:#x}; then {after:x?}, {now:#x}"))?;
    ensure(card.is_present(), || "it is taken for gone".into())
}

/// The error's text has all of these words.
pub fn refused<T>(result: Result<T, pcie::Error>, words: &[&str]) -> Outcome {
    let why = match result {
        Ok(_) => return Err("it was not refused".into()),
        Err(why) => why.to_string(),
    };
    ensure(words.iter().all(|word| why.contains(word)), || format!("refused otherwise: {why}"))
}

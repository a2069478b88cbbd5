//! Checks that are the same through sysfs and through vfio.

use crate::devices::{self, Edu, contents, fill, pattern};
use crate::report::{Outcome, ensure};
use pcie::Function;

/// edu's registers, by its BAR.
pub fn registers(edu: &dyn Function) -> Outcome {
    let identity = edu.identity();
    ensure((identity.vendor, identity.device) == devices::EDU, || format!("{identity:?}"))?;
    ensure(edu.is_functional(), || "an emulated device is taken for a real one".into())?;
    ensure(edu.is_present(), || "it is taken for gone".into())?;
    let device = Edu::new(edu)?;
    let found = device.identification();
    ensure(found & 0xff == 0xed, || format!("identification {found:#x}"))?;
    let inverted = device.inverted(0x1234_5678);
    ensure(inverted == !0x1234_5678, || format!("liveness {inverted:#x}"))
}

/// What is no BAR is refused with a reason.
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

/// edu's DMA: host memory to edu and to another place in host memory, at several offsets, and nothing beside it.
pub fn host_dma(edu: &dyn Function) -> Outcome {
    let device = Edu::new(edu)?;
    // The second is of more than one huge page.
    for bytes in [8192, 5 << 20] {
        let memory = edu.allocate(bytes)?;
        ensure(memory.length() >= bytes, || format!("{} bytes", memory.length()))?;
        let end = memory.length();
        ensure(contents(&memory, 0, 8192)?.iter().all(|byte| *byte == 0), || "memory is not zeroed".into())?;
        // At the begin of each run, and in the middle of the whole.
        let mut places: Vec<u64> = memory.runs().iter().map(|run| run.offset).collect();
        places.extend([end / 2, end - 4096]);
        for (index, place) in places.into_iter().enumerate() {
            let sent = pattern(index as u64 + 1, 256);
            fill(&memory, place, &sent)?;
            device.fetch(&memory, place, 256)?;
            fill(&memory, place, &[0x5a; 1024])?;
            device.deliver(&memory, place + 512, 256)?;
            let found = contents(&memory, place, 1024)?;
            ensure(found[512..768] == sent[..], || format!("other bytes at {place:#x}"))?;
            let beside = found[..512].iter().chain(&found[768..]).all(|byte| *byte == 0x5a);
            ensure(beside, || format!("bytes beside {place:#x} were written"))?;
        }
    }
    Ok(())
}

/// Memory that is dropped can be had again, many times more than there is.
pub fn memory_comes_back(edu: &dyn Function) -> Outcome {
    for round in 0..40 {
        let kept: Vec<_> = [4096, 3 << 20, 64 << 10, 16 << 20].into_iter().map(|n| edu.allocate(n)).collect();
        for (index, memory) in kept.into_iter().enumerate() {
            let memory = memory.map_err(|why| format!("round {round}, {index}: {why}"))?;
            fill(&memory, memory.length() - 8, &[7; 8])?;
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

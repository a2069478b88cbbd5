//! Whether the driver can make memory on this machine's NUMA nodes without a fault.
//!
//! Before branch 595, `cuMemCreate` on a node of the host can end the process where nodes have unequal memory (NVIDIA/nccl issue 2106).

use crate::process::sys;
use core::ffi::CStr;
use core::sync::atomic::{AtomicU8, Ordering};

/// 0 before it is known, 1: yes, 2: no.
static KNOWN: AtomicU8 = AtomicU8::new(0);

/// The first branch that is known to be right on all machines.
const FIRST: u64 = 595;

/// Reads files once.
pub fn are_usable() -> bool {
    if KNOWN.load(Ordering::Relaxed) == 0 {
        let mut text = [0; 512];
        let branch = sys::read_file(c"/sys/module/nvidia/version", &mut text).and_then(number);
        let usable = branch.is_some_and(|branch| branch >= FIRST) || are_even();
        KNOWN.store(if usable { 1 } else { 2 }, Ordering::Relaxed);
    }
    KNOWN.load(Ordering::Relaxed) == 1
}

/// Each node with CPUs has memory, about as much as the first one. (Without these files there is one node.)
fn are_even() -> bool {
    let (mut cpu, mut memory) = ([0; 512], [0; 512]);
    let (cpu, memory) = (
        sys::read_file(c"/sys/devices/system/node/has_cpu", &mut cpu),
        sys::read_file(c"/sys/devices/system/node/has_memory", &mut memory),
    );
    let (Some(cpu), Some(memory)) = (cpu, memory) else { return true };
    cpu == memory && is_short(cpu) && are_alike((0..NODES).filter_map(memory_of))
}

const NODES: u32 = 64;

/// Numbers up to 63 alone: `0-1`, `0,8`.
fn is_short(list: &[u8]) -> bool {
    list.split(|b| !b.is_ascii_digit()).all(|n| n.is_empty() || number(n).is_some_and(|n| n < u64::from(NODES)))
}

/// None is smaller than three quarters of another.
fn are_alike(all: impl Iterator<Item = u64>) -> bool {
    let (least, most) = all.fold((u64::MAX, 0), |(least, most), n| (n.min(least), n.max(most)));
    most == 0 || least as u128 * 4 >= most as u128 * 3
}

/// KiB of a node's memory.
fn memory_of(node: u32) -> Option<u64> {
    let mut path = *b"/sys/devices/system/node/node00/meminfo\0\0";
    let digits = [b'0' + (node / 10) as u8, b'0' + (node % 10) as u8];
    let (at, tail) = (b"/sys/devices/system/node/node".len(), b"/meminfo\0");
    let digits = if node < 10 { digits.get(1..)? } else { &digits };
    path.get_mut(at..)?.iter_mut().zip(digits.iter().chain(tail)).for_each(|(to, from)| *to = *from);
    let mut text = [0; 256];
    total(sys::read_file(CStr::from_bytes_until_nul(&path).ok()?, &mut text)?)
}

/// `Node 0 MemTotal:       24684084 kB`
fn total(text: &[u8]) -> Option<u64> {
    let at = text.windows(9).position(|w| w == b"MemTotal:")?;
    number(text.get(at + 9..)?.trim_ascii_start())
}

/// The number with which it begins.
fn number(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
    core::str::from_utf8(text.get(..digits)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_unequal_memory_are_told_apart() {
        assert_eq!(total(b"Node 0 MemTotal:       24684084 kB\nNode 0 MemFree: 1 kB"), Some(24_684_084));
        assert_eq!((number(b"580.159.04\n"), number(b"x")), (Some(580), None));
        assert!(are_alike([128_399, 128_955].into_iter()) && are_alike([].into_iter()));
        assert!(!are_alike([64, 128].into_iter()) && !are_alike([0, 128].into_iter()));
        assert!(is_short(b"0-1,8\n") && !is_short(b"0,252-255\n"));
        assert_eq!(memory_of(63), None);
    }

    #[test]
    fn this_machine_has_an_answer() {
        assert_eq!(are_usable(), are_usable());
        assert!(memory_of(0).is_none_or(|kib| kib > 1024));
    }
}

//! Time that a hypervisor took from this machine's CPUs, if it reports that.
//!
//! The kernel counts it by CPU (proc_stat(5), `steal`), in hundredths of a second. That is too coarse for one call, and
//! enough to see whether it happened. A count of 0 has a meaning only if the hypervisor counts.

use std::time::{Duration, Instant};
use tape::fault::steal;

/// The count is read this often.
const EVERY: Duration = Duration::from_millis(100);
/// CPUID 0x40000001, EAX: KVM_FEATURE_STEAL_TIME (Documentation/virt/kvm/x86/cpuid.rst).
const KVM_STEAL_TIME: u32 = 1 << 5;

pub struct Steal {
    /// One of [`steal`].
    pub known: u32,
    /// Hundredths of a second so far.
    last: u64,
    read: Instant,
}

impl Steal {
    pub fn watch() -> Steal {
        Steal { known: known(), last: count().unwrap_or(0), read: Instant::now() }
    }

    /// Nanoseconds taken since the last reading, if it is time to read and there are some.
    pub fn taken(&mut self, end: bool) -> Option<u64> {
        if self.known != steal::COUNTED || (!end && self.read.elapsed() < EVERY) {
            return None;
        }
        self.read = Instant::now();
        let now = count()?;
        let taken = now.saturating_sub(self.last);
        self.last = now;
        (taken > 0).then(|| taken.saturating_mul(10_000_000))
    }
}

#[cfg(target_arch = "x86_64")]
fn known() -> u32 {
    use std::arch::x86_64::__cpuid;
    // CPUID 1, ECX bit 31: there is a hypervisor.
    if __cpuid(1).ecx >> 31 == 0 {
        return steal::NONE;
    }
    let who = __cpuid(0x4000_0000);
    let name: Vec<u8> = [who.ebx, who.ecx, who.edx].iter().flat_map(|w| w.to_le_bytes()).collect();
    let counts = match name.as_slice() {
        b"KVMKVMKVM\0\0\0" => who.eax >= 0x4000_0001 && __cpuid(0x4000_0001).eax & KVM_STEAL_TIME != 0,
        b"XenVMMXenVMM" => true,
        _ => false,
    };
    if counts { steal::COUNTED } else { steal::NOT_KNOWN }
}

#[cfg(not(target_arch = "x86_64"))]
fn known() -> u32 {
    steal::NOT_KNOWN
}

/// `steal` of all CPUs together.
fn count() -> Option<u64> {
    of_text(&std::fs::read_to_string("/proc/stat").ok()?)
}

fn of_text(text: &str) -> Option<u64> {
    // cpu user nice system idle iowait irq softirq steal
    text.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace().nth(7)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_the_eighth_of_all_cpus() {
        assert_eq!(of_text("cpu  402177 0 28092 368512 1153 1 143 112 5 6\ncpu0 1 2\n"), Some(112));
        for text in ["", "cpu", "cpu 1 2 3", "cpu 1 2 3 4 5 6 7 x", "intr 1 2 3 4 5 6 7 8"] {
            assert_eq!(of_text(text), None);
        }
        assert!(count().is_some());
    }

    #[test]
    fn what_was_taken_is_told_once_and_only_where_it_is_counted() {
        let mut s = Steal { known: steal::COUNTED, last: count().unwrap().saturating_sub(3), read: Instant::now() };
        assert_eq!(s.taken(false), None, "it is not yet time");
        assert!(s.taken(true).unwrap() >= 30_000_000);
        let mut s = Steal { known: steal::NOT_KNOWN, last: 0, read: Instant::now() };
        assert_eq!(s.taken(true), None);
    }
}

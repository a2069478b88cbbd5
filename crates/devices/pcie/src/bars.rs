//! Kind and size of BARs, decoded from any register values (PCI Local Bus Specification 3.0, section 6.2.5.1).

/// Offset of the first BAR register in configuration space.
pub const FIRST: u16 = 0x10;

/// One BAR of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Index of its (first) register, 0 to 5.
    pub index: u8,
    /// A power of two.
    pub length: u64,
    /// 64 bits: two registers.
    pub wide: bool,
    /// I/O ports, not memory.
    pub ports: bool,
    pub prefetchable: bool,
}

/// Decodes the registers' values before (`before`) and after all ones were written (`ones`). The kind bits are read-only: a register
/// whose kind changed is invalid and counts as no BAR.
pub fn layouts(before: &[u32], ones: &[u32]) -> Vec<Layout> {
    let mut found = Vec::new();
    let mut index = 0;
    while index < before.len().min(ones.len()).min(6) {
        let (held, sized) = (before[index], ones[index]);
        let wide = sized & 7 == 4;
        let upper = if wide { ones.get(index + 1).copied() } else { Some(u32::MAX) };
        if let Some(length) = upper.and_then(|upper| length(sized, upper)).filter(|_| held & 0xf == sized & 0xf) {
            let ports = sized & 1 != 0;
            found.push(Layout { index: index as u8, length, wide, ports, prefetchable: !ports && sized & 8 != 0 });
        }
        index += if wide { 2 } else { 1 };
    }
    found
}

/// None: no bits are writable, or the writable bits do not describe a power of two.
fn length(sized: u32, upper: u32) -> Option<u64> {
    let ports = sized & 1 != 0;
    let flags = if ports { 3 } else { 0xf };
    // The upper half may be absent for ports.
    let lower = if ports && sized >> 16 == 0 { sized | 0xffff_0000 } else { sized };
    if sized & !flags == 0 && (ports || sized & 7 != 4) {
        return None;
    }
    let mask = u64::from(upper) << 32 | u64::from(lower & !flags);
    let length = (!mask).wrapping_add(1);
    // All ones: no device answered. Even a BAR of 16 bytes has kind bits that are 0.
    (sized != u32::MAX && length.is_power_of_two()).then_some(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn registers_tell_kind_and_size() {
        let wide = Layout { index: 0, length: 1 << 34, wide: true, ports: false, prefetchable: true };
        let small = Layout { index: 2, length: 4096, wide: false, ports: false, prefetchable: false };
        let ports = Layout { index: 3, length: 32, wide: false, ports: true, prefetchable: false };
        let ones = [0x0000_000c, 0xffff_fffc, 0xffff_f000, 0xffff_ffe1, 0, u32::MAX];
        let before = [0xc, 0x10, 0xfebf_0000, 1, 0, u32::MAX];
        assert_eq!(layouts(&before, &ones), [wide, small, ports]);
        assert_eq!(layouts(&[1], &[0x0000_ffe1]), [Layout { index: 0, ..ports }]);
        // A 64-bit BAR without a second register, a mask with holes, a kind that changes.
        assert_eq!(layouts(&[0, 0, 0, 0, 0, 4], &[0, 0, 0, 0, 0, 4]), []);
        assert_eq!(layouts(&[0, 0], &[0xff0f_0000, 0xffff_f001]), []);
    }

    proptest! {
        #[test]
        fn no_registers_panic(before in prop::collection::vec(any::<u32>(), 0..9), ones in prop::collection::vec(any::<u32>(), 0..9)) {
            for bar in layouts(&before, &ones) {
                prop_assert!(bar.index < 6 && bar.length.is_power_of_two() && bar.length >= 4, "{bar:?}");
                prop_assert!(bar.wide || bar.length <= 1 << 31);
            }
        }

        #[test]
        fn a_built_bar_size_reads_back(bits in 4u32..63, wide in any::<bool>(), base in any::<u64>()) {
            let bits = if wide { bits } else { bits.min(31) };
            let (mask, kind) = (!((1u64 << bits) - 1), if wide { 4 } else { 0 });
            let base = base & mask;
            let found = layouts(&[base as u32 & !0xf | kind, (base >> 32) as u32], &[mask as u32 & !0xf | kind, (mask >> 32) as u32]);
            let first = found.first().copied();
            prop_assert_eq!(first, Some(Layout { index: 0, length: 1 << bits, wide, ports: false, prefetchable: false }));
        }
    }
}

//! What a BAR's register says of its kind and size, from any bytes: PCI Local Bus Specification 3.0, section 6.2.5.1.

/// Where a BAR's registers stand in configuration space.
pub const FIRST: u16 = 0x10;

/// One of a function's BARs, as its registers tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// 0 to 5: the (first) register's.
    pub index: u8,
    /// A power of two.
    pub length: u64,
    /// Two registers.
    pub wide: bool,
    /// Ports, not memory.
    pub ports: bool,
    pub prefetchable: bool,
}

/// The BARs of a function, from what its registers read as after ones were written to each. `before` is what they held: the kind of a
/// BAR cannot be written, so both must agree on it, else the function answers nonsense there and has no BAR.
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

/// None where there is no BAR: nothing can be written there, or what can be written is no power of two's multiples.
fn length(sized: u32, upper: u32) -> Option<u64> {
    let ports = sized & 1 != 0;
    let flags = if ports { 3 } else { 0xf };
    // Ports may leave out their upper half.
    let lower = if ports && sized >> 16 == 0 { sized | 0xffff_0000 } else { sized };
    if sized & !flags == 0 && (ports || sized & 7 != 4) {
        return None;
    }
    let mask = u64::from(upper) << 32 | u64::from(lower & !flags);
    let length = (!mask).wrapping_add(1);
    // All ones is what nothing answers with: a BAR of 16 bytes reads as 0xfffffff0 with its kind.
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
        // A wide BAR whose second register is not there, one with holes in its mask, one that changes its kind.
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
        fn a_size_that_was_built_comes_back(bits in 4u32..63, wide in any::<bool>(), base in any::<u64>()) {
            let bits = if wide { bits } else { bits.min(31) };
            let (mask, kind) = (!((1u64 << bits) - 1), if wide { 4 } else { 0 });
            let base = base & mask;
            let found = layouts(&[base as u32 & !0xf | kind, (base >> 32) as u32], &[mask as u32 & !0xf | kind, (mask >> 32) as u32]);
            let first = found.first().copied();
            prop_assert_eq!(first, Some(Layout { index: 0, length: 1 << bits, wide, ports: false, prefetchable: false }));
        }
    }
}

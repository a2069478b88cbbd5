//! The uses of a device that its first and last blocks show: partition tables, LVM, RAID, swap, file systems. Known formats are named; a device
//! counts as empty only if both ends are.
//!
//! A kernel without a driver on the device cannot know whether it is in use, so the device's bytes are read. Offsets and magic numbers are those of
//! the formats' own headers (include/uapi/linux/raid/md_p.h, lvm2's label.h, the UEFI specification, and so on).

use std::fmt;

/// A use of the device that someone may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Its name, also for `--destroy`.
    pub what: &'static str,
    /// The byte at which it was found.
    pub at: u64,
}

/// Bytes of no known format.
const UNKNOWN: &str = "unknown";

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {:#x}", self.what, self.at)
    }
}

impl Signature {
    /// The user cannot override it: partitions, and devices that are a part of something larger. The user may give up a file system, or a device
    /// that is encrypted as a whole.
    pub fn is_final(&self) -> bool {
        let encrypted = matches!(self.what, "luks" | "bitlocker");
        let linux = matches!(self.what, "ext" | "xfs" | "btrfs" | "f2fs" | "nilfs2" | "reiserfs" | "jfs");
        !encrypted && !linux && !matches!(self.what, "ntfs" | "exfat" | "fat" | "apfs" | UNKNOWN)
    }

    /// As text for a sentence.
    pub(crate) fn text(&self) -> String {
        match self.what {
            UNKNOWN => format!("bytes of no known format (unknown at byte {:#x})", self.at),
            _ => self.to_string(),
        }
    }
}

/// How much of each end is read: VMFS begins 1 MiB after the first byte, its volumes 2 MiB.
pub(crate) const AREA: u64 = (2 << 20) + (64 << 10);

/// The two ends of a device.
pub(crate) struct Ends<'a> {
    pub(crate) first: &'a [u8],
    /// The device's last bytes; may overlap the first ones.
    pub(crate) last: &'a [u8],
    /// Bytes of the device.
    pub(crate) length: u64,
    pub(crate) block_bytes: u64,
}

impl Ends<'_> {
    fn at(&self, offset: u64, bytes: usize) -> Option<&[u8]> {
        let part = |all: &'_ [u8], from: u64| {
            let from = usize::try_from(from).ok()?;
            all.get(from..from.checked_add(bytes)?).map(|found| (found.as_ptr(), found.len()))
        };
        let in_first = part(self.first, offset).map(|_| &self.first[offset as usize..offset as usize + bytes]);
        let begin = self.length.checked_sub(self.last.len() as u64)?;
        in_first.or_else(|| {
            let from = offset.checked_sub(begin)?;
            part(self.last, from).map(|_| &self.last[from as usize..from as usize + bytes])
        })
    }

    fn has(&self, offset: u64, magic: &[u8]) -> bool {
        self.at(offset, magic.len()) == Some(magic)
    }

    /// Everything found, in no particular order.
    pub(crate) fn signatures(&self) -> Vec<Signature> {
        let fixed = FIXED.iter().filter(|(_, at, magic)| self.has(*at, magic)).map(|(what, at, _)| (*what, *at));
        let all = fixed.chain(self.tables()).chain(self.raids()).chain(self.zfs());
        let mut found = Vec::new();
        for (what, at) in all {
            let one = Signature { what, at };
            // Two places of one kind may be the same byte.
            if !found.contains(&one) {
                found.push(one);
            }
        }
        if found.is_empty() {
            found.extend(self.first_unknown().map(|at| Signature { what: UNKNOWN, at }));
        }
        found
    }

    /// The first byte that does not look unwritten: unwritten drives have zeros, or an end that is all ones.
    fn first_unknown(&self) -> Option<u64> {
        let begin = self.length.saturating_sub(self.last.len() as u64);
        [(0, self.first), (begin, self.last)].into_iter().find_map(|(from, bytes)| {
            if bytes.iter().all(|byte| *byte == 0xff) {
                return None;
            }
            bytes.iter().position(|byte| *byte != 0).map(|at| from + at as u64)
        })
    }

    /// GPT in the second block or the last one; a table in the first sector with a partition in it.
    fn tables(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let last = self.length.saturating_sub(self.block_bytes);
        // Also for the case that the device had blocks of another size earlier.
        let places = [self.block_bytes, 512, 4096, last, self.length.saturating_sub(512)];
        let gpt = places.into_iter().filter(|at| self.has(*at, b"EFI PART")).map(|at| ("gpt", at));
        let mbr = self.at(0, 512).is_some_and(|sector| {
            let entries = || sector[446..510].chunks_exact(16);
            let plain = entries().all(|entry| matches!(entry[0], 0 | 0x80));
            sector[510..] == [0x55, 0xaa] && plain && entries().any(|entry| entry[4] != 0)
        });
        gpt.chain(mbr.then_some(("mbr", 0)))
    }

    /// Superblocks near the end.
    fn raids(&self) -> impl Iterator<Item = (&'static str, u64)> {
        const MD: &[u8] = &0xa92b_4efc_u32.to_le_bytes();
        let sectors = self.length / 512;
        let newest = (sectors.saturating_sub(16) & !7) * 512;
        let oldest = (self.length & !0xffff).saturating_sub(0x1_0000);
        let mut found = Vec::new();
        let mut look = |what, at, magic: &[u8]| found.extend(self.has(at, magic).then_some((what, at)));
        look("md", newest, MD);
        look("md", oldest, MD);
        look("imsm", self.length.saturating_sub(1024), b"Intel Raid ISM Cfg Sig. ");
        look("imsm", self.length.saturating_sub(2 * self.block_bytes), b"Intel Raid ISM Cfg Sig. ");
        look("ddf", self.length.saturating_sub(512), &0xde11_de11_u32.to_be_bytes());
        look("ddf", self.length.saturating_sub(self.block_bytes), &0xde11_de11_u32.to_be_bytes());
        found.into_iter()
    }

    /// An uberblock in one of the four labels of 256 KiB, in either byte order.
    fn zfs(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let end = self.length & !0x3_ffff;
        let labels = [0, 0x4_0000, end.saturating_sub(0x8_0000), end.saturating_sub(0x4_0000)];
        let places = labels.into_iter().flat_map(|label| (0..128).map(move |i| label + 0x2_0000 + i * 1024));
        let magic = 0x00ba_b10c_u64;
        let mut found = places.filter(|at| self.has(*at, &magic.to_le_bytes()) || self.has(*at, &magic.to_be_bytes()));
        found.next().map(|at| ("zfs", at)).into_iter()
    }
}

const FIXED: &[(&str, u64, &[u8])] = &[
    ("lvm", 0, b"LABELONE"),
    ("lvm", 512, b"LABELONE"),
    ("lvm", 1024, b"LABELONE"),
    ("lvm", 1536, b"LABELONE"),
    ("md", 0, &0xa92b_4efc_u32.to_le_bytes()),
    ("md", 4096, &0xa92b_4efc_u32.to_le_bytes()),
    ("swap", 4096 - 10, b"SWAPSPACE2"),
    ("swap", 4096 - 10, b"SWAP-SPACE"),
    ("swap", 8192 - 10, b"SWAPSPACE2"),
    ("swap", 16384 - 10, b"SWAPSPACE2"),
    ("swap", 32768 - 10, b"SWAPSPACE2"),
    ("swap", 65536 - 10, b"SWAPSPACE2"),
    // Hibernation overwrites it.
    ("swap", 4096 - 10, b"S1SUSPEND"),
    ("swap", 4096 - 10, b"S2SUSPEND"),
    ("swap", 4096 - 10, b"ULSUSPEND"),
    ("sun", 508, &0xdabe_u16.to_be_bytes()),
    ("sgi", 0, &0x0be5_a941_u32.to_be_bytes()),
    ("mac", 512, b"PM\0\0"),
    (
        "bcachefs",
        4096 + 24,
        &[0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9, 0xd9, 0x6a, 0x60, 0xcf, 0x80, 0x3d, 0xf7, 0xef],
    ),
    ("asm", 32, b"ORCLDISK"),
    ("asm", 32, b"ORCLCLRD"),
    ("vmfs", 1 << 20, &0xc001_d00d_u32.to_le_bytes()),
    ("vmfs", 2 << 20, &0x2fab_f15e_u32.to_le_bytes()),
    ("stratis", 512 + 4, b"!Stra0tis\x86\xff\x02^\x41rh"),
    ("stratis", 9 * 512 + 4, b"!Stra0tis\x86\xff\x02^\x41rh"),
    ("bitlocker", 3, b"-FVE-FS-"),
    ("nilfs2", 1024 + 6, &0x3434_u16.to_le_bytes()),
    ("reiserfs", 65536 + 52, b"ReIsErFs"),
    ("reiserfs", 65536 + 52, b"ReIsEr2Fs"),
    ("reiserfs", 65536 + 52, b"ReIsEr3Fs"),
    ("reiserfs", 8192 + 52, b"ReIsErFs"),
    ("jfs", 32768, b"JFS1"),
    ("apfs", 32, b"NXSB"),
    (
        "bcache",
        4096 + 24,
        &[0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca, 0x82, 0x65, 0xf5, 0x7f, 0x48, 0xba, 0x6d, 0x81],
    ),
    ("bluestore", 0, b"bluestore block device"),
    ("luks", 0, b"LUKS\xba\xbe"),
    ("luks", 16384, b"SKUL\xba\xbe"),
    ("ext", 1024 + 56, &[0x53, 0xef]),
    ("xfs", 0, b"XFSB"),
    ("btrfs", 65536 + 64, b"_BHRfS_M"),
    ("f2fs", 1024, &0xf2f5_2010_u32.to_le_bytes()),
    ("ntfs", 3, b"NTFS    "),
    ("exfat", 3, b"EXFAT   "),
    ("fat", 54, b"FAT12   "),
    ("fat", 54, b"FAT16   "),
    ("fat", 82, b"FAT32   "),
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn found(bytes: &[u8], block_bytes: u64) -> Vec<&'static str> {
        let area = (AREA as usize).min(bytes.len());
        let ends =
            Ends { first: &bytes[..area], last: &bytes[bytes.len() - area..], length: bytes.len() as u64, block_bytes };
        ends.signatures().iter().map(|found| found.what).collect()
    }

    fn is_final(what: &'static str) -> bool {
        Signature { what, at: 0 }.is_final()
    }

    fn with(parts: &[(usize, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0; 8 << 20];
        for (at, part) in parts {
            bytes[*at..at + part.len()].copy_from_slice(part);
        }
        bytes
    }

    #[test]
    fn an_empty_device_has_none_and_each_kind_is_found() {
        assert_eq!(found(&with(&[]), 512), [""; 0]);
        for (what, at, magic) in FIXED {
            assert_eq!(found(&with(&[(*at as usize, magic)]), 512), [*what]);
        }
        assert_eq!(found(&with(&[(512, b"EFI PART")]), 512), ["gpt"]);
        assert_eq!(found(&with(&[(4096, b"EFI PART")]), 4096), ["gpt"]);
        assert_eq!(found(&with(&[((8 << 20) - 4096, b"EFI PART")]), 4096), ["gpt"]);
        assert_eq!(found(&with(&[(450, &[0x83]), (510, &[0x55, 0xaa])]), 512), ["mbr"]);
        assert_eq!(found(&with(&[(510, &[0x55, 0xaa])]), 512), ["unknown"], "a table without partitions");
        let md = 0xa92b_4efc_u32.to_le_bytes();
        assert_eq!(found(&with(&[((8 << 20) - 8192, &md)]), 512), ["md"]);
        assert_eq!(found(&with(&[((8 << 20) - 65536, &md)]), 512), ["md"]);
        assert_eq!(found(&with(&[((8 << 20) - 1024, b"Intel Raid ISM Cfg Sig. ")]), 512), ["imsm"]);
        assert_eq!(found(&with(&[((8 << 20) - 512, &[0xde, 0x11, 0xde, 0x11])]), 512), ["ddf"]);
        let uberblock = 0x00ba_b10c_u64.to_le_bytes();
        assert_eq!(found(&with(&[(0x2_0000 + 5 * 1024, &uberblock)]), 512), ["zfs"]);
        assert_eq!(found(&with(&[((8 << 20) - 0x2_0000, &uberblock)]), 512), ["zfs"]);
    }

    #[test]
    fn only_empty_devices_count_as_empty() {
        for (at, byte) in [(0, 1), (100_000, 0x80), ((8 << 20) - 1, 7), ((8 << 20) - (1 << 20), 9)] {
            assert_eq!(found(&with(&[(at, &[byte])]), 512), ["unknown"], "at {at}");
        }
        assert_eq!(found(&vec![0xff; 8 << 20], 512), [""; 0], "erased flash");
        assert!(!is_final(UNKNOWN));
    }

    #[test]
    fn devices_in_a_larger_set_are_always_refused() {
        for what in ["gpt", "mbr", "sun", "lvm", "md", "swap", "zfs", "asm", "vmfs"] {
            assert!(is_final(what));
        }
        assert!(!is_final("ext") && !is_final("luks"));
        let mut may_be_lost: Vec<&str> = FIXED.iter().map(|(what, ..)| *what).filter(|what| !is_final(what)).collect();
        may_be_lost.dedup();
        may_be_lost.sort_unstable();
        let all = "apfs bitlocker btrfs exfat ext f2fs fat jfs luks nilfs2 ntfs reiserfs xfs";
        assert_eq!(may_be_lost.join(" "), all);
    }

    proptest! {
        #[test]
        fn any_ends_are_looked_at(first in 0usize..4096, last in 0usize..4096, length: u64, block in 9u32..17, fill: u8) {
            let (first, last) = (vec![fill; first], vec![fill; last]);
            let _ = Ends { first: &first, last: &last, length, block_bytes: 1 << block }.signatures();
        }
    }
}

//! The uses of a device that its first and last blocks show: partition tables, LVM, RAID, swap, file systems. Known formats are named; a device
//! counts as empty only if both ends are.
//!
//! A kernel without a driver on the device cannot know whether it is in use, so the device's bytes are read. Offsets and magic numbers are those of
//! the formats' own headers (include/uapi/linux/raid/md_p.h, lvm2's label.h, the UEFI specification, and so on).

use std::fmt;

/// A use of the device that someone may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature {
    pub what: Use,
    /// The byte at which it was found.
    pub at: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    Gpt,
    Mbr,
    Sun,
    Sgi,
    Mac,
    Lvm,
    MdRaid,
    IntelRaid,
    DdfRaid,
    Swap,
    Zfs,
    Bcache,
    BlueStore,
    Bcachefs,
    Asm,
    Vmfs,
    Stratis,
    Luks,
    BitLocker,
    Ext,
    Xfs,
    Btrfs,
    F2fs,
    Ntfs,
    ExFat,
    Fat,
    Nilfs,
    ReiserFs,
    Jfs,
    Apfs,
    /// Bytes of no known format.
    Unknown,
}

impl Use {
    /// The name for `--destroy`.
    pub fn name(self) -> &'static str {
        match self {
            Use::Gpt => "gpt",
            Use::Mbr => "mbr",
            Use::Sun => "sun",
            Use::Sgi => "sgi",
            Use::Mac => "mac",
            Use::Bcachefs => "bcachefs",
            Use::Asm => "asm",
            Use::Vmfs => "vmfs",
            Use::Stratis => "stratis",
            Use::BitLocker => "bitlocker",
            Use::Nilfs => "nilfs2",
            Use::ReiserFs => "reiserfs",
            Use::Jfs => "jfs",
            Use::Apfs => "apfs",
            Use::Unknown => "unknown",
            Use::Lvm => "lvm",
            Use::MdRaid => "md",
            Use::IntelRaid => "imsm",
            Use::DdfRaid => "ddf",
            Use::Swap => "swap",
            Use::Zfs => "zfs",
            Use::Bcache => "bcache",
            Use::BlueStore => "bluestore",
            Use::Luks => "luks",
            Use::Ext => "ext",
            Use::Xfs => "xfs",
            Use::Btrfs => "btrfs",
            Use::F2fs => "f2fs",
            Use::Ntfs => "ntfs",
            Use::ExFat => "exfat",
            Use::Fat => "fat",
        }
    }

    /// The user cannot override it: partitions, and devices that are a part of something larger. The user may give up a file system, or a device
    /// that is encrypted as a whole.
    pub fn is_final(self) -> bool {
        let encrypted = matches!(self, Use::Luks | Use::BitLocker);
        let linux =
            matches!(self, Use::Ext | Use::Xfs | Use::Btrfs | Use::F2fs | Use::Nilfs | Use::ReiserFs | Use::Jfs);
        !encrypted && !linux && !matches!(self, Use::Ntfs | Use::ExFat | Use::Fat | Use::Apfs | Use::Unknown)
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {:#x}", self.what.name(), self.at)
    }
}

impl Signature {
    /// As text for a sentence.
    pub(crate) fn text(&self) -> String {
        match self.what {
            Use::Unknown => format!("bytes of no known format (unknown at byte {:#x})", self.at),
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
            found.extend(self.first_unknown().map(|at| Signature { what: Use::Unknown, at }));
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
    fn tables(&self) -> impl Iterator<Item = (Use, u64)> {
        let last = self.length.saturating_sub(self.block_bytes);
        // Also for the case that the device had blocks of another size earlier.
        let places = [self.block_bytes, 512, 4096, last, self.length.saturating_sub(512)];
        let gpt = places.into_iter().filter(|at| self.has(*at, b"EFI PART")).map(|at| (Use::Gpt, at));
        let mbr = self.at(0, 512).is_some_and(|sector| {
            let entries = || sector[446..510].chunks_exact(16);
            let plain = entries().all(|entry| matches!(entry[0], 0 | 0x80));
            sector[510..] == [0x55, 0xaa] && plain && entries().any(|entry| entry[4] != 0)
        });
        gpt.chain(mbr.then_some((Use::Mbr, 0)))
    }

    /// Superblocks near the end.
    fn raids(&self) -> impl Iterator<Item = (Use, u64)> {
        const MD: &[u8] = &0xa92b_4efc_u32.to_le_bytes();
        let sectors = self.length / 512;
        let newest = (sectors.saturating_sub(16) & !7) * 512;
        let oldest = (self.length & !0xffff).saturating_sub(0x1_0000);
        let mut found = Vec::new();
        let mut look = |what, at, magic: &[u8]| found.extend(self.has(at, magic).then_some((what, at)));
        look(Use::MdRaid, newest, MD);
        look(Use::MdRaid, oldest, MD);
        look(Use::IntelRaid, self.length.saturating_sub(1024), b"Intel Raid ISM Cfg Sig. ");
        look(Use::IntelRaid, self.length.saturating_sub(2 * self.block_bytes), b"Intel Raid ISM Cfg Sig. ");
        look(Use::DdfRaid, self.length.saturating_sub(512), &0xde11_de11_u32.to_be_bytes());
        look(Use::DdfRaid, self.length.saturating_sub(self.block_bytes), &0xde11_de11_u32.to_be_bytes());
        found.into_iter()
    }

    /// An uberblock in one of the four labels of 256 KiB, in either byte order.
    fn zfs(&self) -> impl Iterator<Item = (Use, u64)> {
        let end = self.length & !0x3_ffff;
        let labels = [0, 0x4_0000, end.saturating_sub(0x8_0000), end.saturating_sub(0x4_0000)];
        let places = labels.into_iter().flat_map(|label| (0..128).map(move |i| label + 0x2_0000 + i * 1024));
        let magic = 0x00ba_b10c_u64;
        let mut found = places.filter(|at| self.has(*at, &magic.to_le_bytes()) || self.has(*at, &magic.to_be_bytes()));
        found.next().map(|at| (Use::Zfs, at)).into_iter()
    }
}

const FIXED: &[(Use, u64, &[u8])] = &[
    (Use::Lvm, 0, b"LABELONE"),
    (Use::Lvm, 512, b"LABELONE"),
    (Use::Lvm, 1024, b"LABELONE"),
    (Use::Lvm, 1536, b"LABELONE"),
    (Use::MdRaid, 0, &0xa92b_4efc_u32.to_le_bytes()),
    (Use::MdRaid, 4096, &0xa92b_4efc_u32.to_le_bytes()),
    (Use::Swap, 4096 - 10, b"SWAPSPACE2"),
    (Use::Swap, 4096 - 10, b"SWAP-SPACE"),
    (Use::Swap, 8192 - 10, b"SWAPSPACE2"),
    (Use::Swap, 16384 - 10, b"SWAPSPACE2"),
    (Use::Swap, 32768 - 10, b"SWAPSPACE2"),
    (Use::Swap, 65536 - 10, b"SWAPSPACE2"),
    // Hibernation overwrites it.
    (Use::Swap, 4096 - 10, b"S1SUSPEND"),
    (Use::Swap, 4096 - 10, b"S2SUSPEND"),
    (Use::Swap, 4096 - 10, b"ULSUSPEND"),
    (Use::Sun, 508, &0xdabe_u16.to_be_bytes()),
    (Use::Sgi, 0, &0x0be5_a941_u32.to_be_bytes()),
    (Use::Mac, 512, b"PM\0\0"),
    (
        Use::Bcachefs,
        4096 + 24,
        &[0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9, 0xd9, 0x6a, 0x60, 0xcf, 0x80, 0x3d, 0xf7, 0xef],
    ),
    (Use::Asm, 32, b"ORCLDISK"),
    (Use::Asm, 32, b"ORCLCLRD"),
    (Use::Vmfs, 1 << 20, &0xc001_d00d_u32.to_le_bytes()),
    (Use::Vmfs, 2 << 20, &0x2fab_f15e_u32.to_le_bytes()),
    (Use::Stratis, 512 + 4, b"!Stra0tis\x86\xff\x02^\x41rh"),
    (Use::Stratis, 9 * 512 + 4, b"!Stra0tis\x86\xff\x02^\x41rh"),
    (Use::BitLocker, 3, b"-FVE-FS-"),
    (Use::Nilfs, 1024 + 6, &0x3434_u16.to_le_bytes()),
    (Use::ReiserFs, 65536 + 52, b"ReIsErFs"),
    (Use::ReiserFs, 65536 + 52, b"ReIsEr2Fs"),
    (Use::ReiserFs, 65536 + 52, b"ReIsEr3Fs"),
    (Use::ReiserFs, 8192 + 52, b"ReIsErFs"),
    (Use::Jfs, 32768, b"JFS1"),
    (Use::Apfs, 32, b"NXSB"),
    (
        Use::Bcache,
        4096 + 24,
        &[0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca, 0x82, 0x65, 0xf5, 0x7f, 0x48, 0xba, 0x6d, 0x81],
    ),
    (Use::BlueStore, 0, b"bluestore block device"),
    (Use::Luks, 0, b"LUKS\xba\xbe"),
    (Use::Luks, 16384, b"SKUL\xba\xbe"),
    (Use::Ext, 1024 + 56, &[0x53, 0xef]),
    (Use::Xfs, 0, b"XFSB"),
    (Use::Btrfs, 65536 + 64, b"_BHRfS_M"),
    (Use::F2fs, 1024, &0xf2f5_2010_u32.to_le_bytes()),
    (Use::Ntfs, 3, b"NTFS    "),
    (Use::ExFat, 3, b"EXFAT   "),
    (Use::Fat, 54, b"FAT12   "),
    (Use::Fat, 54, b"FAT16   "),
    (Use::Fat, 82, b"FAT32   "),
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn found(bytes: &[u8], block_bytes: u64) -> Vec<&'static str> {
        let area = (AREA as usize).min(bytes.len());
        let ends =
            Ends { first: &bytes[..area], last: &bytes[bytes.len() - area..], length: bytes.len() as u64, block_bytes };
        ends.signatures().iter().map(|found| found.what.name()).collect()
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
            assert_eq!(found(&with(&[(*at as usize, magic)]), 512), [what.name()]);
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
        assert!(!Use::Unknown.is_final());
    }

    #[test]
    fn devices_in_a_larger_set_are_always_refused() {
        for what in [Use::Gpt, Use::Mbr, Use::Sun, Use::Lvm, Use::MdRaid, Use::Swap, Use::Zfs, Use::Asm, Use::Vmfs] {
            assert!(what.is_final());
        }
        assert!(!Use::Ext.is_final() && !Use::Luks.is_final());
    }

    proptest! {
        #[test]
        fn any_ends_are_looked_at(first in 0usize..4096, last in 0usize..4096, length: u64, block in 9u32..17, fill: u8) {
            let (first, last) = (vec![fill; first], vec![fill; last]);
            let _ = Ends { first: &first, last: &last, length, block_bytes: 1 << block }.signatures();
        }
    }
}

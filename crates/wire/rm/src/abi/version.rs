//! Which layouts a driver has, by its version string.
//!
//! A layout that is wrong for the running driver is refused by RM (sizes travel in the call) but not by UVM, which would
//! read or write past a struct. Hence: an unknown version is an error, and insisting on a branch opens RM only.

use super::{Plain, v570, v580};
use core::fmt;
use core::mem::size_of;

/// A driver branch whose layouts we have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Branch {
    V570,
    V580,
}

/// Versions of a branch that are known to share its layouts, first to last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownRange {
    pub branch: Branch,
    pub first: &'static str,
    pub last: &'static str,
}

/// Every version that we know. All structs and numbers of `tests/abi.tsv` came out the same from the headers of every
/// published release from 570.86.15 to 570.211.01 and from 580.65.06 to 580.142; 580.159.04 was seen working on hardware.
pub const KNOWN: [KnownRange; 2] = [
    KnownRange { branch: Branch::V570, first: "570.86.15", last: "570.211.01" },
    KnownRange { branch: Branch::V580, first: "580.65.06", last: "580.159.04" },
];

/// The layouts of one driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abi {
    branch: Branch,
    known: bool,
}

/// The driver's version is not one whose layouts we know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownDriver {
    version: [u8; 32],
    len: u8,
}

impl UnknownDriver {
    fn new(text: &str) -> Self {
        let mut version = [0; 32];
        let mut len = text.len().min(32);
        while !text.is_char_boundary(len) {
            len -= 1;
        }
        version[..len].copy_from_slice(&text.as_bytes()[..len]);
        UnknownDriver { version, len: len as u8 }
    }

    /// What was asked for, its first 32 bytes.
    pub fn version(&self) -> &str {
        core::str::from_utf8(&self.version[..self.len as usize]).unwrap_or("")
    }
}

impl fmt::Display for UnknownDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "driver {:?} is not known; known are", self.version())?;
        for (i, k) in KNOWN.iter().enumerate() {
            write!(f, "{} {} to {}", if i == 0 { "" } else { "," }, k.first, k.last)?;
        }
        Ok(())
    }
}

impl core::error::Error for UnknownDriver {}

/// Up to four dotted numbers; `None` if `text` is not such a version.
fn numbers(text: &str) -> Option<[u32; 4]> {
    let mut n = [0; 4];
    let mut parts = 0;
    for part in text.trim().split('.') {
        if part.is_empty() || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        *n.get_mut(parts)? = part.parse().ok()?;
        parts += 1;
    }
    (parts >= 2).then_some(n)
}

impl Abi {
    /// The layouts of the driver with this version, as `580.159.04`.
    pub fn for_version(version: &str) -> Result<Abi, UnknownDriver> {
        let unknown = || UnknownDriver::new(version);
        let v = numbers(version).ok_or_else(unknown)?;
        KNOWN
            .iter()
            .find(|k| numbers(k.first).is_some_and(|first| first <= v) && numbers(k.last).is_some_and(|last| v <= last))
            .map(|k| Abi { branch: k.branch, known: true })
            .ok_or_else(unknown)
    }

    /// The layouts of a branch (`570`, `580`, or a version of it) whatever the driver is. RM only.
    pub fn insist(branch: &str) -> Result<Abi, UnknownDriver> {
        let branch = match branch.trim().split('.').next() {
            Some("570") => Branch::V570,
            Some("580") => Branch::V580,
            _ => return Err(UnknownDriver::new(branch)),
        };
        Ok(Abi { branch, known: false })
    }

    /// The layouts for the driver that runs, unless the user insists on a branch. Insisting on the branch that the
    /// driver is known to have changes nothing.
    pub fn resolve(version: &str, insist: Option<&str>) -> Result<Abi, UnknownDriver> {
        let known = Abi::for_version(version);
        match insist {
            None => known,
            Some(branch) => {
                let forced = Abi::insist(branch)?;
                Ok(known.ok().filter(|k| k.branch == forced.branch).unwrap_or(forced))
            }
        }
    }

    /// UVM calls may be made: the driver's version is known. Their numbers carry no size, so nothing else protects them.
    pub fn uvm_allowed(&self) -> bool {
        self.known
    }

    pub fn branch(&self) -> Branch {
        self.branch
    }

    /// Bytes of NV_VASPACE_ALLOCATION_PARAMETERS.
    pub const fn vaspace_alloc_size(&self) -> usize {
        match self.branch {
            Branch::V570 => size_of::<v570::VaspaceAlloc>(),
            Branch::V580 => size_of::<v580::VaspaceAlloc>(),
        }
    }

    /// NV_VASPACE_ALLOCATION_PARAMETERS for a new VA space: a buffer and how many bytes of it to pass.
    pub fn vaspace_alloc(&self, flags: u32, va_base: u64, va_size: u64) -> ([u8; 56], usize) {
        // The branches share the layout up to the end of the older one: pasid is at its end.
        let v = v580::VaspaceAlloc { flags, va_base, va_size, ..Default::default() };
        let mut bytes = [0; 56];
        bytes.copy_from_slice(v.as_bytes());
        (bytes, self.vaspace_alloc_size())
    }

    /// Bytes of NVOS46 (RM_MAP_MEMORY_DMA).
    pub const fn nvos46_size(&self) -> usize {
        match self.branch {
            Branch::V570 => size_of::<v570::Nvos46>(),
            Branch::V580 => size_of::<v580::Nvos46>(),
        }
    }

    /// Bytes of NVA06F_CTRL_GPFIFO_SCHEDULE_PARAMS, of which [`super::control::Schedule`] is the longer.
    pub const fn schedule_size(&self) -> usize {
        match self.branch {
            Branch::V570 => size_of::<v570::Schedule>(),
            Branch::V580 => size_of::<super::control::Schedule>(),
        }
    }

    /// Bytes of NV0000_CTRL_GPU_GET_PROBED_IDS_PARAMS.
    pub const fn probed_ids_size(&self) -> usize {
        match self.branch {
            Branch::V570 => size_of::<v570::ProbedIds>(),
            Branch::V580 => size_of::<v580::ProbedIds>(),
        }
    }

    /// Bytes of NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS.
    pub const fn class_list_v2_size(&self) -> usize {
        match self.branch {
            Branch::V570 => size_of::<v570::ClassListV2>(),
            Branch::V580 => size_of::<v580::ClassListV2>(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_choose_their_branch() {
        for (v, b) in [
            ("570.86.15", Branch::V570),
            ("570.133.20", Branch::V570),
            ("570.211.01", Branch::V570),
            ("580.65.06", Branch::V580),
            ("580.142", Branch::V580),
            ("580.159.04\n", Branch::V580),
        ] {
            let abi = Abi::for_version(v).unwrap();
            assert_eq!(abi.branch(), b, "{v}");
            assert!(abi.uvm_allowed());
        }
    }

    #[test]
    fn unknown_versions_are_refused_with_the_known_ones() {
        for v in ["", "580", "565.57.01", "570.1", "580.159.05", "590.44.01", "5.8.0", "580.x.1", "580..1", "1.2.3.4.5"]
        {
            let e = Abi::for_version(v).unwrap_err();
            let text = format!("{e}");
            assert!(text.contains("570.86.15 to 570.211.01") && text.contains("580.65.06 to 580.159.04"), "{text}");
        }
        assert_eq!(Abi::for_version(&"é".repeat(40)).unwrap_err().version().len(), 32);
    }

    #[test]
    fn insisting_opens_rm_only() {
        assert!(!Abi::insist("580").unwrap().uvm_allowed());
        assert!(Abi::insist("595").is_err());
        assert!(!Abi::resolve("595.1.1", Some("580")).unwrap().uvm_allowed());
        assert!(!Abi::resolve("570.133.20", Some("580")).unwrap().uvm_allowed());
        assert_eq!(Abi::resolve("570.133.20", Some("580")).unwrap().branch(), Branch::V580);
        assert!(Abi::resolve("580.105.08", Some("580")).unwrap().uvm_allowed());
        assert!(Abi::resolve("595.1.1", None).is_err());
    }

    #[test]
    fn vaspace_params_have_the_size_of_the_branch() {
        assert_eq!(Abi::insist("570").unwrap().vaspace_alloc(8, 0x1000, 0).1, 48);
        let (b, n) = Abi::insist("580").unwrap().vaspace_alloc(0x48, 0x1000, 7);
        assert_eq!(n, 56);
        let v = v580::VaspaceAlloc::read(&b).unwrap();
        assert_eq!((v.flags, v.va_base, v.va_size), (0x48, 0x1000, 7));
        let older = v570::VaspaceAlloc::read(&b).unwrap();
        assert_eq!((older.flags, older.va_base, older.va_size), (0x48, 0x1000, 7));
    }
}

//! The layouts of a driver, chosen by its version string, and what they may be used for.
//!
//! Recording only reads calls that the program and the kernel both understand, so it continues with the most likely layouts. For separate channels
//! doorbell passes structs to the kernel, so they need a version that the table names, or a user who accepts another version.

use super::branch::{BRANCHES, Branch, Source};
use core::fmt;

/// If set to anything but 0 or the empty string: separate channels are also allowed on a driver whose version the table does not name.
pub const UNVERIFIED_DRIVER: &str = "DOORBELL_UNVERIFIED_DRIVER";

/// How much is known of a driver's layouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The table names the version.
    Known,
    /// A branch of the table, but a version that it does not name.
    NewPatch,
    /// A branch of which no published headers were compiled.
    Unverified,
    /// No branch of the table: the layouts are the nearest branch's.
    UnknownBranch,
}

/// The layouts of one driver.
#[derive(Clone, Copy, Debug)]
pub struct Abi {
    branch: &'static Branch,
    standing: Standing,
    accepted: bool,
}

/// Own channels are not for this driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownDriver {
    version: [u8; 32],
    len: u8,
    standing: Standing,
}

impl UnknownDriver {
    fn new(text: &str, standing: Standing) -> Self {
        let mut version = [0; 32];
        let mut len = text.len().min(32);
        while !text.is_char_boundary(len) {
            len -= 1;
        }
        version[..len].copy_from_slice(&text.as_bytes()[..len]);
        UnknownDriver { version, len: len as u8, standing }
    }

    /// What was asked for, its first 32 bytes.
    pub fn version(&self) -> &str {
        core::str::from_utf8(&self.version[..self.len as usize]).unwrap_or("")
    }
}

impl fmt::Display for UnknownDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = self.version();
        match self.standing {
            Standing::Known | Standing::NewPatch => {
                write!(f, "driver {version:?} is not a version whose structs were checked")?;
            }
            Standing::Unverified => write!(f, "the structs of driver {version:?} are not verified")?,
            Standing::UnknownBranch => write!(f, "driver {version:?} is of no known branch")?,
        }
        f.write_str("; checked are")?;
        for (i, b) in BRANCHES.iter().filter(|b| b.source == Source::Headers).enumerate() {
            write!(f, "{} {} to {}", if i == 0 { "" } else { "," }, b.first, b.last)?;
        }
        write!(f, "; --unverified-driver (or {UNVERIFIED_DRIVER}=1) uses it all the same")
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
    /// What is known of the driver with this version, as `580.159.04`.
    pub fn of(version: &str) -> Abi {
        let Some(v) = numbers(version) else {
            return Abi { branch: Branch::usual(), standing: Standing::UnknownBranch, accepted: false };
        };
        let branch = Branch::nearest(v[0]);
        let named =
            numbers(branch.first).is_some_and(|first| first <= v) && numbers(branch.last).is_some_and(|last| v <= last);
        let standing = match branch.source {
            _ if branch.number != v[0] => Standing::UnknownBranch,
            Source::Unverified => Standing::Unverified,
            Source::Headers if named => Standing::Known,
            Source::Headers => Standing::NewPatch,
        };
        Abi { branch, standing, accepted: standing == Standing::Known }
    }

    /// For own channels. `accept`: the user takes a version that the table does not name.
    pub fn for_own_channels(version: &str, accept: bool) -> Result<Abi, UnknownDriver> {
        let mut abi = Abi::of(version);
        abi.accepted |= accept;
        if abi.accepted { Ok(abi) } else { Err(UnknownDriver::new(version, abi.standing)) }
    }

    /// Structs may be handed to the kernel.
    pub fn accepted(&self) -> bool {
        self.accepted
    }

    pub fn branch(&self) -> &'static Branch {
        self.branch
    }

    pub fn standing(&self) -> Standing {
        self.standing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_have_their_branch_and_their_standing() {
        use Standing::*;
        for (version, branch, standing) in [
            ("535.86.05", 535, Known),
            ("535.309.01", 535, Known),
            ("570.133.20", 570, Known),
            ("580.65.06", 580, Known),
            ("580.142", 580, Known),
            ("580.159.04\n", 580, Known),
            ("580.178.04", 580, NewPatch),
            ("595.45.04", 595, Known),
            ("595.91.07", 595, NewPatch),
            ("535.54.03", 535, NewPatch),
            ("610.57.04", 610, Unverified),
            ("615.71.09", 615, Unverified),
            ("620.6.0", 620, Unverified),
            ("625.1", 620, UnknownBranch),
            ("585.1", 580, UnknownBranch),
            ("470.1", 535, UnknownBranch),
            ("", 580, UnknownBranch),
            ("soft", 580, UnknownBranch),
        ] {
            let abi = Abi::of(version);
            assert_eq!((abi.branch().number, abi.standing()), (branch, standing), "{version}");
            assert_eq!(abi.accepted(), standing == Known, "{version}");
            assert_eq!(Abi::for_own_channels(version, false).is_ok(), standing == Known, "{version}");
            assert!(Abi::for_own_channels(version, true).is_ok_and(|abi| abi.accepted()), "{version}");
        }
    }

    #[test]
    fn a_refusal_names_the_known_versions() {
        for v in ["", "580", "520.1", "580.178.04", "610.57.04", "5.8.0", "580.x.1", "580..1", "1.2.3.4.5"] {
            let text = format!("{}", Abi::for_own_channels(v, false).unwrap_err());
            assert!(text.contains("570.86.15 to 570.211.01") && text.contains("580.65.06 to 580.173.02"), "{text}");
            assert!(
                text.ends_with("--unverified-driver (or DOORBELL_UNVERIFIED_DRIVER=1) uses it all the same"),
                "{text}"
            );
        }
        assert_eq!(Abi::for_own_channels(&"é".repeat(40), false).unwrap_err().version().len(), 32);
    }

    #[test]
    fn branches_are_in_order_and_find_themselves() {
        assert!(BRANCHES.windows(2).all(|pair| pair[0].number < pair[1].number));
        for (i, b) in BRANCHES.iter().enumerate() {
            assert_eq!((b.index(), Branch::nearest(b.number).number), (i, b.number));
            assert!(b.seen.iter().all(|v| Abi::of(v).standing() == Standing::Known));
            for v in [b.first, b.last] {
                assert_eq!(Abi::of(v).branch().number, b.number);
            }
        }
    }
}

//! Capabilities beyond the first 256 bytes: access control, address translation, virtual functions, errors.

use super::{Config, Missing};

const ERRORS: u16 = 0x0001;
pub(super) const ACCESS_CONTROL: u16 = 0x000d;
const ADDRESS_TRANSLATION: u16 = 0x000f;
const VIRTUAL: u16 = 0x0010;

impl Config<'_> {
    /// # Errors
    /// [`Missing`].
    pub fn access_control(&self) -> Result<AccessControl, Missing> {
        let at = self.extended(ACCESS_CONTROL)?;
        let word = |offset: usize| self.word(at + offset).ok_or(Missing::CutOff("access control"));
        Ok(AccessControl { able: word(4)?, on: word(6)? })
    }

    /// ATS: the function caches address translations.
    ///
    /// # Errors
    /// [`Missing`].
    pub fn address_translation(&self) -> Result<AddressTranslation, Missing> {
        let at = self.extended(ADDRESS_TRANSLATION)?;
        let word = |offset: usize| self.word(at + offset).ok_or(Missing::CutOff("address translation"));
        let (able, control) = (word(4)?, word(6)?);
        // 0 stands for 32.
        let requests = if able & 0x1f == 0 { 32 } else { able & 0x1f };
        Ok(AddressTranslation { on: control & 1 << 15 != 0, requests })
    }

    /// SR-IOV: virtual functions.
    ///
    /// # Errors
    /// [`Missing`].
    pub fn virtual_functions(&self) -> Result<Virtual, Missing> {
        let at = self.extended(VIRTUAL)?;
        let word = |offset: usize| self.word(at + offset).ok_or(Missing::CutOff("SR-IOV"));
        Ok(Virtual {
            on: word(0x08)? & 1 != 0,
            possible: word(0x0e)?,
            functions: word(0x10)?,
            first: word(0x14)?,
            stride: word(0x16)?,
            device: word(0x1a)?,
        })
    }

    /// Advanced error reporting: errors since the last clear.
    ///
    /// # Errors
    /// [`Missing`].
    pub fn errors(&self) -> Result<Errors, Missing> {
        let at = self.extended(ERRORS)?;
        let double = |offset: usize| self.double(at + offset).ok_or(Missing::CutOff("error reporting"));
        Ok(Errors { uncorrectable: double(0x04)?, correctable: double(0x10)? })
    }
}

/// Access Control Services of a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessControl {
    pub able: u16,
    pub on: u16,
}

impl AccessControl {
    /// Enabled controls, by the names that lspci uses.
    pub fn names(&self) -> Vec<&'static str> {
        const NAMES: [&str; 7] =
            ["SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans"];
        NAMES.iter().enumerate().filter(|(bit, _)| self.on & self.able & 1 << bit != 0).map(|(_, n)| *n).collect()
    }

    fn has(&self, bit: u16) -> bool {
        self.on & self.able & 1 << bit != 0
    }

    /// Peer requests or completions are redirected to the root complex.
    pub fn redirects(&self) -> bool {
        self.has(2) || self.has(3)
    }

    /// The port blocks some peer requests.
    pub fn blocks(&self) -> bool {
        self.has(5)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressTranslation {
    pub on: bool,
    /// Invalidate queue depth.
    pub requests: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Virtual {
    pub on: bool,
    pub possible: u16,
    pub functions: u16,
    /// Offset of the first virtual function's number from the function's own.
    pub first: u16,
    /// Distance from one virtual function's number to the next.
    pub stride: u16,
    pub device: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errors {
    pub uncorrectable: u32,
    pub correctable: u32,
}

impl Errors {
    /// Names of the errors, as lspci writes them.
    pub fn names(&self) -> Vec<&'static str> {
        const UNCORRECTABLE: [(u8, &str); 13] = [
            (4, "DLP"),
            (5, "SDES"),
            (12, "TLP"),
            (13, "FCP"),
            (14, "CmpltTO"),
            (15, "CmpltAbrt"),
            (16, "UnxCmplt"),
            (17, "RxOF"),
            (18, "MalfTLP"),
            (19, "ECRC"),
            (20, "UnsupReq"),
            (21, "ACSViol"),
            (22, "UncorrIntErr"),
        ];
        const CORRECTABLE: [(u8, &str); 6] =
            [(0, "RxErr"), (6, "BadTLP"), (7, "BadDLLP"), (8, "Rollover"), (12, "Timeout"), (13, "AdvNonFatalErr")];
        let of = |bits: u32| move |(bit, name): &(u8, &'static str)| (bits & 1 << bit != 0).then_some(*name);
        let uncorrectable = UNCORRECTABLE.iter().filter_map(of(self.uncorrectable));
        uncorrectable.chain(CORRECTABLE.iter().filter_map(of(self.correctable))).collect()
    }
}

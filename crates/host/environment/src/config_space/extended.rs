//! Capabilities beyond the first 256 bytes: access control.

use super::{Config, Missing};

pub(super) const ACCESS_CONTROL: u16 = 0x000d;

impl Config<'_> {
    /// # Errors
    /// [`Missing`].
    pub fn access_control(&self) -> Result<AccessControl, Missing> {
        let at = self.extended(ACCESS_CONTROL)?;
        let word = |offset: usize| self.word(at + offset).ok_or(Missing::CutOff("access control"));
        Ok(AccessControl { able: word(4)?, on: word(6)? })
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

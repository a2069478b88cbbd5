//! Why a channel is killed, with the numbers that a kernel log has.

use std::fmt;

/// Codes of the robust channel's error notifier (`nverror.h`), the same numbers that a kernel log calls Xid.
pub mod code {
    /// ROBUST_CHANNEL_GR_EXCEPTION: an engine refused a method or its data. This GPU uses it for every engine.
    pub const ENGINE: u32 = 13;
    /// ROBUST_CHANNEL_FIFO_ERROR_MMU_ERR_FLT
    pub const MMU: u32 = 31;
    /// ROBUST_CHANNEL_PBDMA_ERROR
    pub const PBDMA: u32 = 32;
    /// ROBUST_CHANNEL_PREEMPTIVE_REMOVAL: the channel was freed with pending work.
    pub const PREEMPTIVE_REMOVAL: u32 = 45;
}

/// Why a channel was killed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// One of [`code`].
    pub code: u32,
    pub what: &'static str,
    /// The address, method or word that did it.
    pub detail: u64,
}

impl Fault {
    pub fn unmapped(va: u64) -> Fault {
        Fault { code: code::MMU, what: "address not mapped", detail: va }
    }

    pub fn read_only(va: u64) -> Fault {
        Fault { code: code::MMU, what: "address mapped read-only", detail: va }
    }

    pub fn pbdma(what: &'static str, detail: u64) -> Fault {
        Fault { code: code::PBDMA, what, detail }
    }

    pub fn engine(what: &'static str, detail: u64) -> Fault {
        Fault { code: code::ENGINE, what, detail }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:#x}), error {}", self.what, self.detail, self.code)
    }
}

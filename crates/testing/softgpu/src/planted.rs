//! Planted faults: what a broken GPU would do, to show that a test of its users fails for the right reason.
//!
//! One at a time and none by default. In process through [`Machine::plant`](crate::Machine::plant); in the preloaded
//! library through `DOORBELL_SOFTGPU_FAULT=NAME`, with the names of [`Planted::parse`].

use crate::fault::Fault;
use std::fmt;
use std::sync::Mutex;

/// The notifier's default error: MMU fault, the result of a wrong address on real hardware.
const XID: u32 = 31;
/// How far a planted backward timestamp is before the previous one.
const BACK_NS: u64 = 1 << 20;

/// Turns of a slow kernel: longer than a CPU takes to submit the next launch.
const SLOW_TURNS: u64 = 10_000;

/// How often a slow copy reads its source.
const SLOW_TIMES: u64 = 10;

/// What is wrong with the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// Copies leave out the last byte of every line.
    ShortCopy,
    /// From the n-th on, counted from 1, this many copied lines leave out their last byte; all others are complete.
    TornCopy { from: u64, lines: u64 },
    /// Copies write one byte past every line, if something is mapped there: the complement of the earlier byte.
    LongCopy,
    /// From the n-th on, counted from 1, semaphore releases and reductions of all engines have no effect.
    LostRelease { from: u64 },
    /// Each channel dies at its n-th GPFIFO entry, counted from 1, with this error in its notifier.
    DeadChannel { entry: u64, xid: u32 },
    /// The n-th GPFIFO entry of all channels, counted from 1, has no effect.
    LostEntry { nth: u64 },
    /// Copies read their source this many times, like a slower link.
    SlowCopy { times: u64 },
    /// Every second timestamp is about a millisecond before the previous one.
    ClockBack,
    /// The n-th store to the doorbell, counted from 1, is not seen.
    LostDoorbell { nth: u32 },
    /// Every QMD stays active for this many more turns of the GPU's thread, which exposes programs that do not wait for it.
    SlowKernel { turns: u64 },
    /// The n-th decrement of a QMD's dependence counter, counted from 1, has no effect.
    LostDecrement { nth: u64 },
    /// The n-th release by a QMD, counted from 1, has no effect.
    LostQmdRelease { nth: u64 },
    /// Constant caches are never invalidated: kernels run with the parameters that they had first.
    StaleBank,
    /// The driver reports that confidential computing is on. (Nothing is encrypted.)
    Confidential,
    /// The driver reports that the GPU is divided (MIG): clients may have a part of it.
    Divided,
    /// The GPU has this compute class and no other: that of another chip.
    Compute { class: u32 },
}

impl Planted {
    /// `short-copy`, `torn-copy[:FROM[:LINES]]`, `long-copy`, `lost-release[:FROM]`, `dead-channel:ENTRY[:XID]`, `lost-entry[:NTH]`, `clock-back`, `lost-doorbell[:NTH]`,
    /// `slow-copy[:TIMES]`, `slow-kernel[:TURNS]`, `lost-decrement[:NTH]`, `lost-qmd-release[:NTH]`, `stale-bank`, `confidential`, `divided`,
    /// `compute:CLASS` (the number in decimals).
    pub fn parse(text: &str) -> Result<Planted, NoFault> {
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or_default();
        let mut number = |default: u64| match parts.next() {
            None => Ok(default),
            Some(part) => part.parse::<u64>().ok().filter(|&n| n > 0).ok_or_else(|| NoFault(text.into())),
        };
        let fault = match name {
            "short-copy" => Planted::ShortCopy,
            "torn-copy" => Planted::TornCopy { from: number(1)?, lines: number(1)? },
            "long-copy" => Planted::LongCopy,
            // The first is the answer of a new channel.
            "lost-release" => Planted::LostRelease { from: number(2)? },
            "lost-entry" => Planted::LostEntry { nth: number(1)? },
            "slow-copy" => Planted::SlowCopy { times: number(SLOW_TIMES)? },
            "clock-back" => Planted::ClockBack,
            // The first is a new channel's own.
            "lost-doorbell" => {
                Planted::LostDoorbell { nth: u32::try_from(number(2)?).map_err(|_| NoFault(text.into()))? }
            }
            "slow-kernel" => Planted::SlowKernel { turns: number(SLOW_TURNS)? },
            "lost-decrement" => Planted::LostDecrement { nth: number(1)? },
            "lost-qmd-release" => Planted::LostQmdRelease { nth: number(1)? },
            "stale-bank" => Planted::StaleBank,
            "confidential" => Planted::Confidential,
            "divided" => Planted::Divided,
            "compute" => match u32::try_from(number(0)?) {
                Ok(class) if class > 0 => Planted::Compute { class },
                _ => return Err(NoFault(text.into())),
            },
            "dead-channel" => {
                let entry = number(2)?;
                let xid = u32::try_from(number(XID.into())?).map_err(|_| NoFault(text.into()))?;
                Planted::DeadChannel { entry, xid }
            }
            _ => return Err(NoFault(text.into())),
        };
        if parts.next().is_some() { Err(NoFault(text.into())) } else { Ok(fault) }
    }
}

/// The name of no fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoFault(String);

impl fmt::Display for NoFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no fault is called {:?}: short-copy, torn-copy[:FROM[:LINES]], long-copy, lost-release[:FROM], dead-channel:ENTRY[:XID], \
             lost-entry[:NTH], clock-back, lost-doorbell[:NTH], slow-copy[:TIMES], slow-kernel[:TURNS], lost-decrement[:NTH], lost-qmd-release[:NTH], stale-bank, \
             confidential, divided, compute:CLASS",
            self.0
        )
    }
}

impl std::error::Error for NoFault {}

/// The fault planted in a GPU now. Read by its one thread, changed by any.
#[derive(Debug, Default)]
pub(crate) struct Plot {
    planted: Mutex<(Option<Planted>, u64)>,
}

impl Plot {
    pub(crate) fn set(&self, fault: Option<Planted>) {
        *poison::ignore(self.planted.lock()) = (fault, 0);
    }

    fn now(&self) -> Option<Planted> {
        poison::ignore(self.planted.lock()).0
    }

    /// Bytes of a copied line of `length` that are written; one more than `length` means one past the end.
    pub(crate) fn line(&self, length: u64) -> u64 {
        match self.now() {
            Some(Planted::ShortCopy) => length.saturating_sub(1),
            Some(Planted::LongCopy) if length > 0 => length + 1,
            Some(Planted::TornCopy { .. }) if self.tears() => length.saturating_sub(1),
            _ => length,
        }
    }

    fn tears(&self) -> bool {
        let mut planted = poison::ignore(self.planted.lock());
        let Some(Planted::TornCopy { from, lines }) = planted.0 else { return false };
        planted.1 += 1;
        (from..from.saturating_add(lines)).contains(&planted.1)
    }

    /// False where releases are lost.
    pub(crate) fn releases(&self) -> bool {
        let mut planted = poison::ignore(self.planted.lock());
        let Some(Planted::LostRelease { from }) = planted.0 else { return true };
        planted.1 += 1;
        planted.1 < from
    }

    /// True for the event that is lost, of those that `which` picks.
    fn nth(&self, which: impl Fn(Planted) -> Option<u64>) -> bool {
        let mut planted = poison::ignore(self.planted.lock());
        let Some(nth) = planted.0.and_then(which) else { return false };
        planted.1 += 1;
        planted.1 == nth
    }

    /// How often a copy reads its source.
    pub(crate) fn reads(&self) -> u64 {
        match self.now() {
            Some(Planted::SlowCopy { times }) => times,
            _ => 1,
        }
    }

    /// Turns that a QMD stays active beyond its own.
    pub(crate) fn turns(&self) -> u64 {
        match self.now() {
            Some(Planted::SlowKernel { turns }) => turns,
            _ => 0,
        }
    }

    /// Whether an entry is lost.
    pub(crate) fn loses_entry(&self) -> bool {
        self.nth(|fault| match fault {
            Planted::LostEntry { nth } => Some(nth),
            _ => None,
        })
    }

    /// Whether a decrement is lost.
    pub(crate) fn loses_decrement(&self) -> bool {
        self.nth(|fault| match fault {
            Planted::LostDecrement { nth } => Some(nth),
            _ => None,
        })
    }

    /// Whether a QMD's release is made; false if it is lost.
    pub(crate) fn releases_of_qmd(&self) -> bool {
        !self.nth(|fault| match fault {
            Planted::LostQmdRelease { nth } => Some(nth),
            _ => None,
        })
    }

    /// True where constant caches are not invalidated.
    pub(crate) fn keeps_banks(&self) -> bool {
        self.now() == Some(Planted::StaleBank)
    }

    /// Whether the driver reports that confidential computing is on.
    pub(crate) fn is_confidential(&self) -> bool {
        self.now() == Some(Planted::Confidential)
    }

    /// Whether clients may have a part of the GPU.
    pub(crate) fn is_divided(&self) -> bool {
        self.now() == Some(Planted::Divided)
    }

    /// The compute class, if it is another chip's.
    pub(crate) fn compute_class(&self) -> Option<u32> {
        match self.now() {
            Some(Planted::Compute { class }) => Some(class),
            _ => None,
        }
    }

    /// The time that a release writes; without a fault, `clock`.
    pub(crate) fn timestamp(&self, clock: u64) -> u64 {
        let mut planted = poison::ignore(self.planted.lock());
        if planted.0 != Some(Planted::ClockBack) {
            return clock;
        }
        // (Relative to the last one, not to the clock: on a busy machine more time than that may have passed.)
        match std::mem::take(&mut planted.1) {
            0 => {
                planted.1 = clock;
                clock
            }
            last => last.saturating_sub(BACK_NS),
        }
    }

    /// The fault that kills a channel at its n-th entry, counted from 1.
    pub(crate) fn kills(&self, entry: u64) -> Option<Fault> {
        match self.now() {
            Some(Planted::DeadChannel { entry: at, xid }) if entry >= at => {
                Some(Fault { code: xid, what: "a planted fault at entry", detail: entry })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_wrong_ones_say_which_there_are() {
        let good = [
            ("short-copy", Planted::ShortCopy),
            ("torn-copy:7:2", Planted::TornCopy { from: 7, lines: 2 }),
            ("long-copy", Planted::LongCopy),
            ("lost-release", Planted::LostRelease { from: 2 }),
            ("clock-back", Planted::ClockBack),
            ("lost-doorbell:3", Planted::LostDoorbell { nth: 3 }),
            ("slow-kernel:9", Planted::SlowKernel { turns: 9 }),
            ("lost-decrement", Planted::LostDecrement { nth: 1 }),
            ("lost-qmd-release:2", Planted::LostQmdRelease { nth: 2 }),
            ("stale-bank", Planted::StaleBank),
            ("lost-entry:4", Planted::LostEntry { nth: 4 }),
            ("confidential", Planted::Confidential),
            ("divided", Planted::Divided),
            ("compute:51136", Planted::Compute { class: 0xc7c0 }),
            ("dead-channel", Planted::DeadChannel { entry: 2, xid: 31 }),
            ("dead-channel:7", Planted::DeadChannel { entry: 7, xid: 31 }),
            ("dead-channel:7:32", Planted::DeadChannel { entry: 7, xid: 32 }),
        ];
        for (text, fault) in good {
            assert_eq!(Planted::parse(text), Ok(fault));
        }
        for text in ["", "short", "short-copy:1", "dead-channel:0", "dead-channel:x", "dead-channel:1:2:3"] {
            let error = Planted::parse(text).unwrap_err().to_string();
            assert!(error.contains("lost-release"), "{error}");
        }
    }

    #[test]
    fn every_second_timestamp_is_before_the_last_one_however_late() {
        let plot = Plot::default();
        plot.set(Some(Planted::ClockBack));
        let times = [5, 6, 7, 500].map(|ms| plot.timestamp(ms * 1_000_000));
        assert!(times[1] < times[0] && times[1] < times[2] && times[3] < times[2], "{times:?}");
    }

    #[test]
    fn some_copied_lines_are_torn() {
        let plot = Plot::default();
        plot.set(Some(Planted::TornCopy { from: 3, lines: 2 }));
        assert_eq!([8; 6].map(|length| plot.line(length)), [8, 8, 7, 7, 8, 8]);
    }

    #[test]
    fn no_fault_is_planted_by_default() {
        let plot = Plot::default();
        assert_eq!((plot.line(8), plot.releases(), plot.timestamp(5)), (8, true, 5));
        assert_eq!(plot.kills(u64::MAX), None);
    }
}

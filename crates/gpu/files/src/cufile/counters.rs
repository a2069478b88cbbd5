//! The path of the bytes, determined from the kernel's counters.
//!
//! In compatibility mode cuFile reads into host memory with calls such as pread, which the kernel counts for the
//! process (/proc/self/io). With GDS the bytes pass through the module nvidia-fs, which counts them for the machine
//! (/proc/driver/nvidia-fs/stats). cuFile's own statements are not used.

use std::fmt;
use std::path::PathBuf;

/// The path of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Between the drive and the GPU, without host memory.
    Direct,
    /// Through host memory.
    Compatibility,
    /// The kernel's counters do not show it.
    Unknown,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Direct => "direct (GPUDirect Storage)",
            Mode::Compatibility => "compatibility mode (through host memory)",
            Mode::Unknown => "unknown (the kernel's counters do not say)",
        })
    }
}

/// The counts while bytes moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    pub mode: Mode,
    /// Bytes that this process read or wrote by system calls, through its own memory.
    pub through_host: Option<u64>,
    /// Bytes that nvidia-fs moved, for all processes, in whole MiB; none without the module.
    pub by_nvidia_fs: Option<u64>,
}

/// Paths of the kernel's counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    pub io: PathBuf,
    pub nvidia_fs: PathBuf,
}

impl Default for Counters {
    fn default() -> Counters {
        Counters { io: "/proc/self/io".into(), nvidia_fs: "/proc/driver/nvidia-fs/stats".into() }
    }
}

const MIB: u64 = 1 << 20;

/// The counts at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    host: Option<u64>,
    nvidia_fs: Option<u64>,
}

impl Counters {
    pub(super) fn read(&self, writes: bool) -> Reading {
        let (calls, direct) = if writes { ("wchar:", "writeMiB=") } else { ("rchar:", "readMiB=") };
        let io = std::fs::read_to_string(&self.io).unwrap_or_default();
        let host = io.lines().find_map(|line| line.strip_prefix(calls)?.trim().parse().ok());
        let stats = std::fs::read_to_string(&self.nvidia_fs).unwrap_or_default();
        // Sparse reads have a separate line, so all lines are added.
        let words = stats.split_whitespace().filter_map(|word| word.strip_prefix(direct)?.parse::<u64>().ok());
        let found: Vec<u64> = words.collect();
        Reading { host, nvidia_fs: (!found.is_empty()).then(|| found.iter().sum::<u64>() * MIB) }
    }
}

impl Reading {
    /// The counts from here to `after`, while `bytes` moved.
    pub(super) fn until(self, after: Reading, bytes: u64) -> Measured {
        let between = |from: Option<u64>, to: Option<u64>| Some(to?.saturating_sub(from?));
        let through_host = between(self.host, after.host);
        let by_nvidia_fs = between(self.nvidia_fs, after.nvidia_fs);
        // nvidia-fs counts whole MiB, rounded down for each of some requests. Other calls read small files such as
        // these counters.
        let mode = match (through_host, by_nvidia_fs) {
            (Some(host), _) if host >= bytes => Mode::Compatibility,
            (Some(host), Some(direct)) if direct + MIB > bytes && direct > 0 && host < bytes / 16 => Mode::Direct,
            _ => Mode::Unknown,
        };
        Measured { mode, through_host, by_nvidia_fs }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_decide_and_doubt_is_not_direct() {
        let mode = |host: [u64; 2], direct: Option<[u64; 2]>| {
            let reading = |n: usize| Reading { host: Some(host[n]), nvidia_fs: direct.map(|d| d[n] * MIB) };
            reading(0).until(reading(1), 100 * MIB).mode
        };
        assert_eq!(mode([5, 5 + 100 * MIB], Some([7, 7])), Mode::Compatibility);
        assert_eq!(mode([5, 5 + 100 * MIB], None), Mode::Compatibility);
        assert_eq!(mode([5, 9_000], Some([7, 107])), Mode::Direct);
        assert_eq!(mode([5, 9_000], Some([7, 60])), Mode::Unknown, "half of it");
        assert_eq!(mode([5, 9_000], None), Mode::Unknown, "no nvidia-fs");
        assert_eq!(mode([5, 5 + 50 * MIB], Some([7, 107])), Mode::Unknown, "another process may have had the module");
        let none = Reading { host: None, nvidia_fs: Some(0) };
        assert_eq!(none.until(Reading { host: None, nvidia_fs: Some(200 * MIB) }, 100 * MIB).mode, Mode::Unknown);
    }
}

//! Cells by name: what runs beside the measuring thread.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The host's memory in the copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Memory {
    #[default]
    Pinned,
    Pageable,
}

/// Threads that copy without a pause, each with a stream and buffers of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Copies {
    pub threads: u32,
    pub bytes: u64,
    pub memory: Memory,
}

/// What runs beside the measuring thread. Written as [`fmt::Display`] says, read back by [`FromStr`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Cell {
    /// Nothing; what is measured are launches.
    Alone,
    /// Nothing; what is measured are copies of CUDA's, of sizes from 4 KiB to 64 MiB.
    Sizes,
    /// Threads that copy and threads that launch, on the other CPUs.
    Crowd { copies: Option<Copies>, launches: u32 },
    /// The same threads; what is measured is what another thread needs before it can work: a stream, memory.
    Setup { copies: Option<Copies>, launches: u32 },
    /// Threads that copy, at nice 19 on one CPU that they share with threads that only burn it.
    Inversion { copies: Copies, hogs: u32, nice: i32 },
}

/// More threads than anybody has asked for.
const MOST_THREADS: u32 = 512;
/// Host and device memory of all copying threads together, each.
const MOST_BYTES: u64 = 4 << 30;
/// Threads that burn the CPU of the copying one, in an inversion.
const HOGS: u32 = 3;
pub const MIB_4: u64 = 4 << 20;

impl Cell {
    pub const fn copies(threads: u32, bytes: u64, memory: Memory) -> Cell {
        Cell::Crowd { copies: Some(Copies { threads, bytes, memory }), launches: 0 }
    }

    /// The paper's worst case, as its text has it and as `bench worst` measures it: 64 threads, 4 MiB, pinned.
    pub const WORST: Cell = Cell::copies(64, MIB_4, Memory::Pinned);

    /// Threads beside the measuring one.
    pub fn threads(&self) -> u32 {
        match *self {
            Cell::Alone | Cell::Sizes => 0,
            Cell::Crowd { copies, launches } | Cell::Setup { copies, launches } => {
                copies.map_or(0, |c| c.threads) + launches
            }
            Cell::Inversion { copies, hogs, .. } => hogs + copies.threads,
        }
    }

    /// What is measured are the calls of a thread that sets up.
    pub fn is_setup(&self) -> bool {
        matches!(self, Cell::Setup { .. })
    }

    fn check(self) -> Result<Cell, String> {
        if self.threads() > MOST_THREADS {
            return Err(format!("{self}: at most {MOST_THREADS} threads"));
        }
        let bytes = match self {
            Cell::Crowd { copies: Some(c), .. }
            | Cell::Setup { copies: Some(c), .. }
            | Cell::Inversion { copies: c, .. } => u64::from(c.threads).saturating_mul(c.bytes),
            _ => return Ok(self),
        };
        if bytes > MOST_BYTES {
            return Err(format!("{self}: all threads' buffers together are more than {} GiB", MOST_BYTES >> 30));
        }
        Ok(self)
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        b if b % (1 << 20) == 0 => format!("{}MiB", b >> 20),
        b if b % (1 << 10) == 0 => format!("{}KiB", b >> 10),
        b => format!("{b}B"),
    }
}

fn options(memory: Memory) -> &'static str {
    match memory {
        Memory::Pinned => "",
        Memory::Pageable => "[pageable]",
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Cell::Alone => f.write_str("alone"),
            Cell::Sizes => f.write_str("sizes"),
            Cell::Setup { copies: None, launches: 0 } => f.write_str(SETUP),
            Cell::Crowd { copies, launches } | Cell::Setup { copies, launches } => {
                if self.is_setup() {
                    write!(f, "{SETUP}+")?;
                }
                if let Some(c) = copies {
                    write!(f, "copy={}x{}{}", c.threads, size(c.bytes), options(c.memory))?;
                }
                if launches > 0 || copies.is_none() {
                    write!(f, "{}launch={launches}", if copies.is_some() { "+" } else { "" })?;
                }
                Ok(())
            }
            Cell::Inversion { copies: c, hogs, nice } => {
                write!(f, "inversion={}x{}{}+hogs={hogs}", c.threads, size(c.bytes), options(c.memory))?;
                if nice != 0 { write!(f, "@{nice}") } else { Ok(()) }
            }
        }
    }
}

impl From<Cell> for String {
    fn from(cell: Cell) -> String {
        cell.to_string()
    }
}

impl TryFrom<String> for Cell {
    type Error = String;

    fn try_from(text: String) -> Result<Cell, String> {
        text.parse()
    }
}

const SETUP: &str = "setup";
const SYNTAX: &str = "cells are written alone, sizes, copy=64x4MiB, copy=64x4MiB[pageable], launch=32, \
                      copy=8x64KiB+launch=8, setup, setup+launch=32, inversion=1x4MiB+hogs=3, inversion=8x64KiB[pageable]+hogs=3@-20";

impl FromStr for Cell {
    type Err = String;

    fn from_str(text: &str) -> Result<Cell, String> {
        match text {
            "alone" => return Ok(Cell::Alone),
            "sizes" => return Ok(Cell::Sizes),
            SETUP => return Ok(Cell::Setup { copies: None, launches: 0 }),
            _ => {}
        }
        let (beside, setup) = match text.strip_prefix(SETUP).and_then(|rest| rest.strip_prefix('+')) {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let wrong = || format!("{text:?} is no cell: {SYNTAX}");
        let (mut copies, mut launches, mut inversion, mut hogs) = (None, None, None, None);
        for part in beside.split('+') {
            let (name, value) = part.split_once('=').ok_or_else(wrong)?;
            let twice = match name {
                "copy" => copies.replace(crowd(value).ok_or_else(wrong)?).is_some(),
                "launch" => launches.replace(value.parse::<u32>().map_err(|_| wrong())?).is_some(),
                "inversion" => inversion.replace(crowd(value).ok_or_else(wrong)?).is_some(),
                "hogs" => hogs.replace(burning(value).ok_or_else(wrong)?).is_some(),
                _ => return Err(wrong()),
            };
            if twice {
                return Err(wrong());
            }
        }
        let cell = match (inversion, hogs, copies, launches) {
            (Some(copies), hogs, None, None) if !setup => {
                let (hogs, nice) = hogs.unwrap_or((HOGS, 0));
                Cell::Inversion { copies, hogs, nice }
            }
            (None, None, copies, launches) if setup => Cell::Setup { copies, launches: launches.unwrap_or(0) },
            (None, None, copies, launches) => Cell::Crowd { copies, launches: launches.unwrap_or(0) },
            _ => return Err(wrong()),
        };
        if cell.threads() == 0 {
            return Err(format!("{text:?}: no thread; nothing beside the measurement is `alone`"));
        }
        cell.check()
    }
}

/// `64x4MiB[pageable]`
fn crowd(value: &str) -> Option<Copies> {
    let (threads, rest) = value.split_once('x')?;
    let (bytes, memory) = sized(rest)?;
    Some(Copies { threads: threads.parse().ok().filter(|n| *n > 0)?, bytes, memory })
}

/// `4MiB[pageable]`
fn sized(value: &str) -> Option<(u64, Memory)> {
    let (text, memory) = match value.split_once('[') {
        None => (value, Memory::Pinned),
        Some((text, "pageable]")) => (text, Memory::Pageable),
        Some((text, "pinned]")) => (text, Memory::Pinned),
        Some(_) => return None,
    };
    match lab::sizes::parse(text).ok()?.as_slice() {
        [one] if *one > 0 => Some((*one, memory)),
        _ => None,
    }
}

/// `3@-20`
fn burning(value: &str) -> Option<(u32, i32)> {
    let (hogs, nice) = value.split_once('@').unwrap_or((value, "0"));
    let nice = nice.parse().ok().filter(|n| (-20..=19).contains(n))?;
    Some((hogs.parse().ok()?, nice))
}

/// Sets of cells that have a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// Threads, sizes and kinds of memory one after the other, the others held.
    Matrix,
    /// Every number of threads with every size and kind of memory.
    Full,
    /// The few on which policies are compared.
    Policies,
    Worst,
    Inversion,
    /// What setting up costs beside threads that launch or copy.
    Setup,
}

const THREADS: [u32; 5] = [1, 8, 32, 64, 100];
const BYTES: [u64; 4] = [4 << 10, 64 << 10, 1 << 20, MIB_4];
const MEMORIES: [Memory; 2] = [Memory::Pinned, Memory::Pageable];

impl Set {
    pub const NAMES: [(&'static str, Set); 6] = [
        ("matrix", Set::Matrix),
        ("full", Set::Full),
        ("policies", Set::Policies),
        ("worst", Set::Worst),
        ("inversion", Set::Inversion),
        ("setups", Set::Setup),
    ];

    pub fn cells(self) -> Vec<Cell> {
        let with = |cell: Cell, launches: u32| match cell {
            Cell::Crowd { copies, .. } => Cell::Crowd { copies, launches },
            other => other,
        };
        let launches = |n: u32| Cell::Crowd { copies: None, launches: n };
        let mut cells = Vec::new();
        match self {
            Set::Matrix => {
                cells.push(Cell::Alone);
                for memory in MEMORIES {
                    cells.extend(THREADS.map(|n| Cell::copies(n, MIB_4, memory)));
                    cells.extend(BYTES[..3].iter().map(|bytes| Cell::copies(64, *bytes, memory)));
                }
                cells.extend(THREADS.map(launches));
                cells.extend([1, 8, 32, 100].map(|n| with(Cell::copies(n, MIB_4, Memory::Pinned), n)));
                cells.push(with(Cell::copies(100, MIB_4, Memory::Pageable), 100));
            }
            Set::Full => {
                cells.push(Cell::Alone);
                cells.extend(THREADS.map(launches));
                for (memory, bytes) in MEMORIES.iter().flat_map(|m| BYTES.map(|b| (*m, b))) {
                    for n in THREADS {
                        cells.push(Cell::copies(n, bytes, memory));
                        cells.extend(THREADS.map(|l| with(Cell::copies(n, bytes, memory), l)));
                    }
                }
            }
            Set::Policies => {
                cells.extend([Cell::Alone, Cell::WORST, Cell::copies(64, MIB_4, Memory::Pageable)]);
                cells.extend([Cell::copies(64, 4 << 10, Memory::Pinned), launches(64)]);
                cells.push(with(Cell::copies(100, MIB_4, Memory::Pinned), 100));
                cells.push(Cell::Setup { copies: None, launches: 32 });
            }
            Set::Setup => {
                let beside = |copies, launches| Cell::Setup { copies, launches };
                let copies = |threads, bytes, memory| Some(Copies { threads, bytes, memory });
                cells.push(beside(None, 0));
                cells.extend([1, 4, 8, 16, 32, 64].map(|n| beside(None, n)));
                cells.push(beside(copies(64, 4 << 10, Memory::Pinned), 0));
                cells.push(beside(copies(64, 64 << 10, Memory::Pageable), 0));
                cells.push(beside(copies(64, MIB_4, Memory::Pinned), 0));
            }
            Set::Worst => cells.push(Cell::WORST),
            Set::Inversion => {
                let copies = |threads, bytes, memory| Copies { threads, bytes, memory };
                for (copies, nice) in [
                    (copies(1, MIB_4, Memory::Pinned), 0),
                    (copies(1, MIB_4, Memory::Pageable), 0),
                    (copies(8, 64 << 10, Memory::Pageable), 0),
                    (copies(8, 64 << 10, Memory::Pageable), -20),
                ] {
                    cells.push(Cell::Inversion { copies, hogs: HOGS, nice });
                }
            }
        }
        cells
    }

    /// Reads a list of cells and of sets of them, separated by commas; each cell is there once.
    ///
    /// # Errors
    /// Which name is neither, and how cells are written.
    pub fn read(list: &str) -> Result<Vec<Cell>, String> {
        let mut cells = Vec::new();
        for name in list.split(',').map(str::trim) {
            match Set::NAMES.iter().find(|(n, _)| *n == name) {
                Some((_, set)) => cells.extend(set.cells()),
                None => cells.push(name.parse()?),
            }
        }
        let mut seen = std::collections::HashSet::new();
        cells.retain(|cell| seen.insert(*cell));
        Ok(cells)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_cells_lead_back_to_them() {
        let mut all = vec![Cell::Sizes];
        Set::NAMES.iter().for_each(|(_, set)| all.extend(set.cells()));
        for cell in all {
            assert_eq!(cell.to_string().parse(), Ok(cell), "{cell}");
            let json = serde_json::to_string(&cell).unwrap();
            assert_eq!(serde_json::from_str::<Cell>(&json).unwrap(), cell, "{json}");
        }
        assert_eq!(Cell::WORST.to_string(), "copy=64x4MiB");
        assert_eq!("inversion=1x4MiB".parse::<Cell>().unwrap().to_string(), "inversion=1x4MiB+hogs=3");
        assert_eq!("copy=2x6B[pinned]+launch=0".parse::<Cell>().unwrap().to_string(), "copy=2x6B");
    }

    #[test]
    fn what_is_no_cell_is_said_with_how_cells_are_written() {
        let wrong = [
            "",
            "copy",
            "copy=64",
            "copy=0x4MiB",
            "copy=64x0B",
            "copy=64x4MiB[warm]",
            "launch=x",
            "launch=0",
            "copy=1x1KiB+copy=1x1KiB",
            "inversion=1x4MiB+launch=2",
            "inversion=4MiB",
            "hogs=3",
            "inversion=1x4MiB+hogs=3@40",
            "copy=8x4..8KiB",
            "copy=513x1KiB",
            "launch=4294967295",
            "copy=300x1GiB",
            "alone+launch=1",
            "setup+",
            "setup+launch=0",
            "setup=1",
            "setup+inversion=1x4MiB",
            "launch=1+setup",
        ];
        for text in wrong {
            let e = text.parse::<Cell>().unwrap_err();
            assert!(e.contains("cells are written") || e.contains("thread") || e.contains("GiB"), "{text}: {e}");
        }
    }

    #[test]
    fn sets_hold_what_they_promise() {
        assert_eq!(Set::Full.cells().len(), 1 + 5 + 2 * 4 * 5 * 6);
        let matrix = Set::Matrix.cells();
        assert!(matrix.len() <= 30 && matrix.contains(&Cell::WORST), "{}", matrix.len());
        assert!(Set::Policies.cells().contains(&Cell::WORST));
        let read = Set::read("worst,policies, alone,launch=3").unwrap();
        assert_eq!((read[0], read.len()), (Cell::WORST, Set::Policies.cells().len() + 1), "{read:?}");
        assert!(Set::read("worst,best").unwrap_err().contains("best"));
    }
}

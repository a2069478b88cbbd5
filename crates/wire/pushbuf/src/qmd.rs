//! QMD, queue meta data: the 256 or 384 bytes that describe one kernel launch.
//!
//! The fields' places come from `classes/*qmd.tsv`. A QMD contains its version: the major version is in bits 583:580 up to version 4, in 471:468
//! from 5 on. Bits are counted from bit 0 of word 0.

use crate::class::Enum;

mod check;
pub mod end_time;
mod order;

pub use check::Unfit;
pub use order::{Dependent, DependentAction, PcasAction};

/// Words of the longest QMD.
pub const MAX_WORDS: usize = 96;

/// Bits `hi..=lo` of the QMD; an array, `stride` bits apart, when `stride` is not 0.
#[derive(Debug, PartialEq, Eq)]
pub struct Field {
    pub name: &'static str,
    pub hi: u16,
    pub lo: u16,
    pub stride: u16,
    pub enums: &'static [Enum],
}

impl Field {
    /// Elements of the field: 1 if it is no array.
    pub fn count(&self) -> u32 {
        // The class reference gives strides, not lengths. Five sub-tasks fit in 384 bytes; eight words of TPC_DISABLE_MASK are what version 5 leaves
        // room for, and version 4 has at least that.
        let known = [
            ("CONSTANT_BUFFER_", 8),
            ("RELEASE_", 3),
            ("DEPENDENT_QMD_", 2),
            ("SUB_TASK_", 5),
            ("TPC_DISABLE_MASK", 8),
        ];
        match self.stride {
            0 => 1,
            _ => known.iter().find(|(prefix, _)| self.name.starts_with(prefix)).map_or(1, |(_, count)| *count),
        }
    }

    fn width(&self) -> u32 {
        u32::from(self.hi.saturating_sub(self.lo)) + 1
    }

    pub fn enum_name(&self, value: u32) -> Option<&'static str> {
        self.enums.iter().find(|(_, v)| *v == value).map(|(name, _)| *name)
    }
}

/// One version's fields.
#[derive(Debug, PartialEq, Eq)]
pub struct Layout {
    /// As the class reference has it: `QMDV04_00`.
    pub name: &'static str,
    pub major: u8,
    pub minor: u8,
    /// The class whose reference the fields are taken from.
    pub class: u32,
    pub fields: &'static [Field],
    places: Places,
}

/// Index of fields by name: comparing a name with all others would take most of the time needed to read a launch.
#[derive(Debug, PartialEq, Eq)]
struct Places {
    /// The index of the first field with such a name, plus one (0: no field).
    first: [u16; 256],
    /// The same for the next field, by the index of the current one.
    next: [u16; 512],
}

impl Places {
    const fn of(fields: &[Field]) -> Places {
        let mut places = Places { first: [0; 256], next: [0; 512] };
        // (In reverse order, so that the first of several equal names is found.)
        let mut i = fields.len();
        while i > 0 {
            let first = &mut places.first[Places::of_name(fields[i - 1].name)];
            places.next[i - 1] = *first;
            *first = i as u16;
            i -= 1;
        }
        places
    }

    const fn of_name(name: &str) -> usize {
        let (b, n) = (name.as_bytes(), name.len());
        if n == 0 {
            return 0;
        }
        ((n * 7) ^ (b[n - 1] as usize * 13) ^ (b[n / 2] as usize * 31) ^ (b[n / 4] as usize * 57)) & 0xff
    }
}

impl Layout {
    pub fn of(major: u8, minor: u8) -> Option<&'static Layout> {
        LAYOUTS.iter().find(|l| (l.major, l.minor) == (major, minor))
    }

    /// Words of a QMD of this version: 64 up to version 3, 96 after.
    pub fn words(&self) -> usize {
        if self.major < 4 { 64 } else { MAX_WORDS }
    }

    pub fn field(&self, name: &str) -> Option<&'static Field> {
        let mut next = *self.places.first.get(Places::of_name(name))?;
        while let Some(i) = usize::from(next).checked_sub(1) {
            let field = self.fields.get(i)?;
            if field.name == name {
                return Some(field);
            }
            next = self.places.next.get(i).copied().unwrap_or(0);
        }
        None
    }
}

/// Why a field could not be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("{0} has no such field")]
    NoField(&'static str),
    #[error("{field}: {value:#x} does not fit in {bits} bits")]
    TooWide { field: &'static str, value: u64, bits: u32 },
    #[error("{field} has {count} elements, not {index}")]
    NoElement { field: &'static str, count: u32, index: u32 },
    #[error("{field} cannot hold the address {address:#x}: it is not aligned, or too high")]
    Misplaced { field: &'static str, address: u64 },
}

/// A QMD, whole, with its version known.
#[derive(Clone, Copy)]
pub struct Qmd {
    words: [u32; MAX_WORDS],
    layout: &'static Layout,
}

/// One value of [`Qmd::fields`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Value {
    pub field: &'static Field,
    /// Index of the array element.
    pub index: Option<u32>,
    pub value: u64,
    pub name: Option<&'static str>,
}

/// A semaphore that the launch releases when it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Release {
    pub address: u64,
    pub payload: u64,
    pub wide: bool,
    /// Four words: with a timestamp.
    pub timestamp: bool,
}

/// A constant buffer; number 0 holds the kernel's parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConstantBuffer {
    pub address: u64,
    pub bytes: u32,
}

impl Qmd {
    /// Reads the version from the words. `None` for a version without a table, or for too few words.
    pub fn parse(words: &[u32]) -> Option<Qmd> {
        Qmd::with_versions(words, [4, 5])
    }

    /// As [`Qmd::parse`], with the QMD's compute class (0 if unknown), which decides between two possible versions.
    pub fn parse_for(class: u32, words: &[u32]) -> Option<Qmd> {
        match class {
            0 => Qmd::parse(words),
            // (Before Blackwell the bits of version 5 are a dependent's address.)
            1..0xcdc0 => Qmd::with_versions(words, [4]),
            _ => Qmd::with_versions(words, [5, 4]),
        }
    }

    fn with_versions<const N: usize>(words: &[u32], order: [u8; N]) -> Option<Qmd> {
        let (old, new) = (words.get(18)?, words.get(14)?);
        let version = |word: u32, shift: u32| ((word >> (shift + 4) & 15) as u8, (word >> shift & 15) as u8);
        let layout = order.iter().find_map(|&first| {
            let (major, minor) = if first == 4 { version(*old, 0) } else { version(*new, 16) };
            Layout::of(major, minor).filter(|_| (major >= 5) == (first == 5))
        })?;
        Qmd::with_layout(layout, words)
    }

    /// Takes the words as a QMD of this version, whatever their version bits say. `None` for too few words.
    pub fn with_layout(layout: &'static Layout, words: &[u32]) -> Option<Qmd> {
        let mut qmd = Qmd { words: [0; MAX_WORDS], layout };
        let source = words.get(..layout.words())?;
        qmd.words.get_mut(..source.len())?.copy_from_slice(source);
        Some(qmd)
    }

    /// An empty QMD, but for its version.
    pub fn new(layout: &'static Layout) -> Qmd {
        let mut qmd = Qmd { words: [0; MAX_WORDS], layout };
        let (major, minor) = (u32::from(layout.major), u32::from(layout.minor));
        if layout.major >= 5 {
            qmd.words[14] = major << 20 | minor << 16;
        } else {
            qmd.words[18] = major << 4 | minor;
        }
        qmd
    }

    pub fn layout(&self) -> &'static Layout {
        self.layout
    }

    /// The words of this version's length.
    pub fn words(&self) -> &[u32] {
        &self.words[..self.layout.words()]
    }

    /// Raw value of a field, or of an array's first element.
    pub fn field(&self, name: &str) -> Option<u64> {
        self.element(name, 0)
    }

    /// Raw value of element `index` of a field.
    pub fn element(&self, name: &str, index: u32) -> Option<u64> {
        let field = self.layout.field(name)?;
        (index < field.count()).then(|| self.get(field, index))
    }

    fn get(&self, field: &Field, index: u32) -> u64 {
        let lo = u32::from(field.lo) + index * u32::from(field.stride);
        // A field has at most 32 bits and may straddle two words.
        let word = |i: u32| u64::from(self.words.get(i as usize).copied().unwrap_or(0));
        let both = word(lo / 32) | word(lo / 32 + 1) << 32;
        both >> (lo % 32) & ((1 << field.width().min(32)) - 1)
    }

    /// Sets a field, or an array's first element.
    pub fn set(&mut self, name: &str, value: u64) -> Result<(), Error> {
        self.set_element(name, 0, value)
    }

    pub fn set_element(&mut self, name: &str, index: u32, value: u64) -> Result<(), Error> {
        let field = self.layout.field(name).ok_or(Error::NoField(self.layout.name))?;
        let (bits, count) = (field.width().min(32), field.count());
        if index >= count {
            return Err(Error::NoElement { field: field.name, count, index });
        }
        let mask = (1u64 << bits) - 1;
        if value > mask {
            return Err(Error::TooWide { field: field.name, value, bits });
        }
        let lo = u32::from(field.lo) + index * u32::from(field.stride);
        let (mask, value) = (u128::from(mask) << (lo % 32), u128::from(value) << (lo % 32));
        for half in 0..2 {
            if let Some(word) = self.words.get_mut((lo / 32 + half) as usize) {
                *word = (*word & !((mask >> (32 * half)) as u32)) | (value >> (32 * half)) as u32;
            }
        }
        Ok(())
    }

    /// Every field with its value, arrays element by element, in the order of the class reference.
    pub fn fields(&self) -> impl Iterator<Item = Value> + '_ {
        self.layout.fields.iter().flat_map(move |field| {
            (0..field.count()).map(move |i| {
                let value = self.get(field, i);
                let name = field.enum_name(value as u32);
                Value { field, index: (field.stride > 0).then_some(i), value, name }
            })
        })
    }

    fn first_of(&self, names: &[&str]) -> Option<u64> {
        names.iter().find_map(|name| self.field(name))
    }

    fn three(&self, names: [[&str; 3]; 3]) -> [u32; 3] {
        names.map(|alternatives| self.first_of(&alternatives).unwrap_or(0) as u32)
    }

    /// Blocks in x, y, z. (Of the first sub-task, in version 5.1.)
    ///
    /// The fields count clusters where there are any: on an H200, 4 blocks in clusters of 2 and 16 in clusters of 8 both have GRID_WIDTH 2. (Seen in x; the
    /// others are taken to be alike.)
    pub fn grid(&self) -> [u32; 3] {
        let mut grid = self.three([
            ["GRID_WIDTH", "CTA_RASTER_WIDTH", "SUB_TASK_GRID_WIDTH"],
            ["GRID_HEIGHT", "CTA_RASTER_HEIGHT", "SUB_TASK_GRID_HEIGHT"],
            ["GRID_DEPTH", "CTA_RASTER_DEPTH", "SUB_TASK_GRID_DEPTH"],
        ]);
        // (A cluster of no blocks is no cluster: it must not make a grid look empty.)
        let cluster = self.cluster().unwrap_or([1; 3]);
        grid.iter_mut().zip(cluster).for_each(|(clusters, blocks)| *clusters = clusters.saturating_mul(blocks.max(1)));
        grid
    }

    /// Threads of a block in x, y, z.
    pub fn block(&self) -> [u32; 3] {
        self.three([
            ["CTA_THREAD_DIMENSION0", "SUB_TASK_CTA_THREAD_DIMENSION0", ""],
            ["CTA_THREAD_DIMENSION1", "SUB_TASK_CTA_THREAD_DIMENSION1", ""],
            ["CTA_THREAD_DIMENSION2", "SUB_TASK_CTA_THREAD_DIMENSION2", ""],
        ])
    }

    /// Blocks of a cluster in x, y, z; `None` if the launch has no clusters (QMD_TYPE) or the version does not support them.
    pub fn cluster(&self) -> Option<[u32; 3]> {
        // QMD_TYPE: GRID_GPC_CGA or GRID_GPU_GPC_CGA. (5.1 has the type, but no sizes: `clcdc0qmd.h`, `clcec0qmd.h`.)
        self.field("GPC_CGA_WIDTH")?;
        matches!(self.field("QMD_TYPE")?, 3 | 5)
            .then(|| self.three([["GPC_CGA_WIDTH", "", ""], ["GPC_CGA_HEIGHT", "", ""], ["GPC_CGA_DEPTH", "", ""]]))
    }

    /// Registers of a thread.
    pub fn registers(&self) -> u32 {
        // (2.2 and 2.3 have both of the first two: REGISTER_COUNT is where Pascal has it.)
        self.first_of(&["REGISTER_COUNT_V", "REGISTER_COUNT", "SUB_TASK_REGISTER_COUNT"]).unwrap_or(0) as u32
    }

    /// Shared memory of a block, in bytes.
    pub fn shared_memory(&self) -> u32 {
        match self.field("SHARED_MEMORY_SIZE") {
            Some(bytes) => bytes as u32,
            None => {
                let names = ["SHARED_MEMORY_SIZE_SHIFTED7", "SUB_TASK_SHARED_MEMORY_SIZE_SHIFTED7"];
                (self.first_of(&names).unwrap_or(0) << 7) as u32
            }
        }
    }

    /// The address of the kernel's code.
    pub fn program_address(&self) -> u64 {
        let join = |lower: u64, upper: Option<u64>| lower | upper.unwrap_or(0) << 32;
        if let Some(lower) = self.field("PROGRAM_ADDRESS_LOWER") {
            return join(lower, self.field("PROGRAM_ADDRESS_UPPER"));
        }
        let lower = self.first_of(&["PROGRAM_ADDRESS_LOWER_SHIFTED4", "SUB_TASK_PROGRAM_ADDRESS_LOWER_SHIFTED4"]);
        let upper = self.first_of(&["PROGRAM_ADDRESS_UPPER_SHIFTED4", "SUB_TASK_PROGRAM_ADDRESS_UPPER_SHIFTED4"]);
        join(lower.unwrap_or(0), upper) << 4
    }

    /// The semaphores that are released at the end, by their number: up to three.
    pub fn releases(&self) -> impl Iterator<Item = (u32, Release)> + '_ {
        (0..3).filter_map(move |i| self.release(i).map(|r| (i, r)))
    }

    fn release(&self, i: u32) -> Option<Release> {
        let at = |names: [&str; 3]| names.get(i as usize).and_then(|name| self.field(name));
        let enabled =
            self.element("RELEASE_ENABLE", i).or_else(|| at(["RELEASE0_ENABLE", "RELEASE1_ENABLE", "RELEASE2_ENABLE"]));
        let enabled = enabled.or_else(|| at(["SEMAPHORE_RELEASE_ENABLE0", "SEMAPHORE_RELEASE_ENABLE1", ""]))?;
        if enabled == 0 {
            return None;
        }
        let structure = self.element("RELEASE_STRUCTURE_SIZE", i);
        let structure = structure
            .or_else(|| at(["RELEASE0_STRUCTURE_SIZE", "RELEASE1_STRUCTURE_SIZE", "RELEASE2_STRUCTURE_SIZE"]))
            .unwrap_or(0);
        let wide = self.element("RELEASE_PAYLOAD64B", i);
        let wide =
            wide.or_else(|| at(["RELEASE0_PAYLOAD64B", "RELEASE1_PAYLOAD64B", "RELEASE2_PAYLOAD64B"])).unwrap_or(0);
        let lower =
            at(["RELEASE_SEMAPHORE0_ADDR_LOWER", "RELEASE_SEMAPHORE1_ADDR_LOWER", "RELEASE_SEMAPHORE2_ADDR_LOWER"])
                .or_else(|| at(["RELEASE0_ADDRESS_LOWER", "RELEASE1_ADDRESS_LOWER", "RELEASE2_ADDRESS_LOWER"]))?;
        let upper =
            at(["RELEASE_SEMAPHORE0_ADDR_UPPER", "RELEASE_SEMAPHORE1_ADDR_UPPER", "RELEASE_SEMAPHORE2_ADDR_UPPER"])
                .or_else(|| at(["RELEASE0_ADDRESS_UPPER", "RELEASE1_ADDRESS_UPPER", "RELEASE2_ADDRESS_UPPER"]))
                .unwrap_or(0);
        let payload = at([
            "RELEASE_SEMAPHORE0_PAYLOAD_LOWER",
            "RELEASE_SEMAPHORE1_PAYLOAD_LOWER",
            "RELEASE_SEMAPHORE2_PAYLOAD_LOWER",
        ])
        .or_else(|| at(["RELEASE0_PAYLOAD_LOWER", "RELEASE1_PAYLOAD_LOWER", "RELEASE2_PAYLOAD_LOWER"]))
        .or_else(|| at(["RELEASE0_PAYLOAD", "RELEASE1_PAYLOAD", ""]))?;
        let payload_upper = at([
            "RELEASE_SEMAPHORE0_PAYLOAD_UPPER",
            "RELEASE_SEMAPHORE1_PAYLOAD_UPPER",
            "RELEASE_SEMAPHORE2_PAYLOAD_UPPER",
        ])
        .or_else(|| at(["RELEASE0_PAYLOAD_UPPER", "RELEASE1_PAYLOAD_UPPER", "RELEASE2_PAYLOAD_UPPER"]))
        .unwrap_or(0);
        let wide = wide != 0;
        let payload = if wide { payload | payload_upper << 32 } else { payload };
        Some(Release { address: lower | upper << 32, payload, wide, timestamp: structure == 0 })
    }

    /// Constant buffer `i` of 8, where it is valid.
    pub fn constant_buffer(&self, i: u32) -> Option<ConstantBuffer> {
        if self.layout.field("CONSTANT_BUFFER_VALID").is_some() {
            if self.element("CONSTANT_BUFFER_VALID", i)? == 0 {
                return None;
            }
            let bytes = (self.element("CONSTANT_BUFFER_SIZE_SHIFTED4", i)? << 4) as u32;
            let address = match self.element("CONSTANT_BUFFER_ADDR_LOWER_SHIFTED6", i) {
                Some(lower) => (lower | self.element("CONSTANT_BUFFER_ADDR_UPPER_SHIFTED6", i)? << 32) << 6,
                None => {
                    self.element("CONSTANT_BUFFER_ADDR_LOWER", i)?
                        | self.element("CONSTANT_BUFFER_ADDR_UPPER", i)? << 32
                }
            };
            return Some(ConstantBuffer { address, bytes });
        }
        let [valid, lower, upper, size] = match i {
            0 => [
                "SUB_TASK_CONSTANT_BANK0_VALID",
                "SUB_TASK_CONSTANT_BANK0_ADDR_LOWER_SHIFTED6",
                "SUB_TASK_CONSTANT_BANK0_ADDR_UPPER_SHIFTED6",
                "SUB_TASK_CONSTANT_BANK0_SIZE_SHIFTED4",
            ],
            1 => [
                "SUB_TASK_CONSTANT_BANK1_VALID",
                "SUB_TASK_CONSTANT_BANK1_ADDR_LOWER_SHIFTED6",
                "SUB_TASK_CONSTANT_BANK1_ADDR_UPPER_SHIFTED6",
                "SUB_TASK_CONSTANT_BANK1_SIZE_SHIFTED4",
            ],
            _ => return None,
        };
        if self.field(valid)? == 0 {
            return None;
        }
        let address = (self.field(lower)? | self.field(upper)? << 32) << 6;
        Some(ConstantBuffer { address, bytes: (self.field(size)? << 4) as u32 })
    }
}

impl PartialEq for Qmd {
    fn eq(&self, other: &Self) -> bool {
        self.layout.name == other.layout.name && self.words() == other.words()
    }
}

impl Eq for Qmd {}

impl core::fmt::Debug for Qmd {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (grid, block) = (self.grid(), self.block());
        write!(f, "{} grid {grid:?} block {block:?} program {:#x}", self.layout.name, self.program_address())
    }
}

include!(concat!(env!("OUT_DIR"), "/qmd.rs"));

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn all_versions_are_there_and_lie_within_their_words() {
        let names: Vec<_> = LAYOUTS.iter().map(|l| l.name).collect();
        assert_eq!(
            names,
            ["QMDV02_02", "QMDV02_03", "QMDV02_04", "QMDV03_00", "QMDV04_00", "QMDV04_01", "QMDV05_00", "QMDV05_01"]
        );
        for layout in LAYOUTS {
            for field in layout.fields {
                let last = u32::from(field.hi) + (field.count() - 1) * u32::from(field.stride);
                assert!((last as usize) < layout.words() * 32, "{} {}", layout.name, field.name);
                assert!(field.lo <= field.hi && field.width() <= 32, "{} {}", layout.name, field.name);
            }
        }
    }

    #[test]
    fn a_qmd_of_each_version_reads_back() {
        for layout in LAYOUTS {
            let mut qmd = Qmd::new(layout);
            let mut set = |names: &[&str], value: u64| {
                let name = names
                    .iter()
                    .find(|n| layout.field(n).is_some())
                    .unwrap_or_else(|| panic!("{} {names:?}", layout.name));
                qmd.set(name, value).unwrap();
            };
            set(&["GRID_WIDTH", "CTA_RASTER_WIDTH", "SUB_TASK_GRID_WIDTH"], 70_000);
            set(&["GRID_HEIGHT", "CTA_RASTER_HEIGHT", "SUB_TASK_GRID_HEIGHT"], 3);
            set(&["GRID_DEPTH", "CTA_RASTER_DEPTH", "SUB_TASK_GRID_DEPTH"], 2);
            set(&["CTA_THREAD_DIMENSION0", "SUB_TASK_CTA_THREAD_DIMENSION0"], 256);
            set(&["CTA_THREAD_DIMENSION1", "SUB_TASK_CTA_THREAD_DIMENSION1"], 2);
            set(&["CTA_THREAD_DIMENSION2", "SUB_TASK_CTA_THREAD_DIMENSION2"], 1);
            set(&["REGISTER_COUNT_V", "REGISTER_COUNT", "SUB_TASK_REGISTER_COUNT"], 40);
            let shared = if layout.major == 5 { 4 } else { 512 };
            set(&["SHARED_MEMORY_SIZE", "SHARED_MEMORY_SIZE_SHIFTED7", "SUB_TASK_SHARED_MEMORY_SIZE_SHIFTED7"], shared);
            let shift = if layout.major == 5 { 4 } else { 0 };
            let program = 0x7f_1234_5600_u64 >> shift;
            set(
                &["PROGRAM_ADDRESS_LOWER", "PROGRAM_ADDRESS_LOWER_SHIFTED4", "SUB_TASK_PROGRAM_ADDRESS_LOWER_SHIFTED4"],
                program & 0xffff_ffff,
            );
            set(
                &["PROGRAM_ADDRESS_UPPER", "PROGRAM_ADDRESS_UPPER_SHIFTED4", "SUB_TASK_PROGRAM_ADDRESS_UPPER_SHIFTED4"],
                program >> 32,
            );
            let read = Qmd::parse(qmd.words()).unwrap();
            assert_eq!(read, qmd, "{}", layout.name);
            assert_eq!((read.grid(), read.block()), ([70_000, 3, 2], [256, 2, 1]), "{}", layout.name);
            assert_eq!((read.registers(), read.shared_memory()), (40, 512), "{}", layout.name);
            assert_eq!(read.program_address(), 0x7f_1234_5600, "{}", layout.name);
            assert_eq!(read.cluster(), None);
        }
    }

    #[test]
    fn hopper_bits_are_where_the_class_reference_has_them() {
        let mut words = [0u32; 96];
        words[18] = 4 << 4; // 583:580
        words[32] = 108; // 1055:1024
        words[36] = 128 | 4 << 16; // 1167:1152, 1183:1168
        words[37] = 1 | 32 << 16; // 1199:1184, 1208:1200
        words[38] = 0x1234_5600; // 1247:1216
        words[39] = 0x7f;
        words[0] = 3 << 23; // QMD_TYPE = GRID_GPC_CGA
        words[67] = 2 | 1 << 8 | 1 << 16; // 2149:2144 ..
        words[10] = 1; // RELEASE_ENABLE(0)
        words[20] = 0x9000;
        words[21] = 0x12;
        words[22] = 77;
        let qmd = Qmd::parse(&words).unwrap();
        assert_eq!(qmd.layout().name, "QMDV04_00");
        assert_eq!((qmd.grid(), qmd.block()), ([216, 0, 0], [128, 4, 1]), "108 clusters of 2 blocks");
        assert_eq!((qmd.registers(), qmd.program_address()), (32, 0x7f_1234_5600));
        assert_eq!(qmd.cluster(), Some([2, 1, 1]));
        let release = Release { address: 0x12_0000_9000, payload: 77, wide: false, timestamp: true };
        assert_eq!(qmd.releases().collect::<Vec<_>>(), [(0, release)]);
        assert!(Qmd::parse(&words[..95]).is_none());
        assert!(Qmd::parse(&[]).is_none());
        assert!(Qmd::parse(&[0; 96]).is_none());
    }

    #[test]
    fn constant_buffers_of_old_and_new_layouts() {
        let mut new = Qmd::new(Layout::of(4, 0).unwrap());
        new.set_element("CONSTANT_BUFFER_VALID", 3, 1).unwrap();
        new.set_element("CONSTANT_BUFFER_ADDR_LOWER_SHIFTED6", 3, 0x40).unwrap();
        new.set_element("CONSTANT_BUFFER_SIZE_SHIFTED4", 3, 0x10).unwrap();
        assert_eq!(new.constant_buffer(3), Some(ConstantBuffer { address: 0x1000, bytes: 0x100 }));
        assert_eq!((new.constant_buffer(0), new.constant_buffer(8)), (None, None));
        let mut old = Qmd::new(Layout::of(3, 0).unwrap());
        old.set_element("CONSTANT_BUFFER_VALID", 0, 1).unwrap();
        old.set_element("CONSTANT_BUFFER_ADDR_UPPER", 0, 1).unwrap();
        assert_eq!(old.constant_buffer(0), Some(ConstantBuffer { address: 1 << 32, bytes: 0 }));
    }

    #[test]
    fn each_field_is_found_by_its_name_and_no_other_is() {
        for layout in LAYOUTS {
            for field in layout.fields {
                let first = layout.fields.iter().find(|f| f.name == field.name);
                assert_eq!(layout.field(field.name), first);
                let longer = std::format!("{}_", field.name);
                assert_eq!(layout.field(&longer), layout.fields.iter().find(|f| f.name == longer));
            }
            assert_eq!((layout.field(""), layout.field("NONE")), (None, None));
        }
    }

    #[test]
    fn a_value_that_does_not_fit_is_refused() {
        let mut qmd = Qmd::new(Layout::of(4, 0).unwrap());
        assert_eq!(
            qmd.set("GRID_HEIGHT", 1 << 16),
            Err(Error::TooWide { field: "GRID_HEIGHT", value: 1 << 16, bits: 16 })
        );
        assert_eq!(qmd.set("NO_SUCH", 0), Err(Error::NoField("QMDV04_00")));
        assert!(matches!(qmd.set_element("RELEASE_ENABLE", 3, 1), Err(Error::NoElement { .. })));
        assert_eq!(qmd, Qmd::new(Layout::of(4, 0).unwrap()));
    }

    proptest! {
        #[test]
        fn a_field_that_is_set_reads_back_and_no_other_bit_moves(
            layout in 0..LAYOUTS.len(), field in any::<prop::sample::Index>(), index: u32, value: u64, noise in prop::array::uniform32(any::<u32>()),
        ) {
            let layout = &LAYOUTS[layout];
            let words: Vec<u32> = noise.iter().cycle().take(layout.words()).copied().collect();
            let before = Qmd::with_layout(layout, &words).unwrap();
            let field = field.get(layout.fields);
            let (index, value) = (index % field.count(), value & ((1 << field.width()) - 1));
            let mut after = before;
            after.set_element(field.name, index, value).unwrap();
            prop_assert_eq!(after.element(field.name, index), Some(value));
            let changed: u32 = before.words().iter().zip(after.words()).map(|(a, b)| (a ^ b).count_ones()).sum();
            let old = before.element(field.name, index).unwrap();
            prop_assert_eq!(changed, (old ^ value).count_ones());
        }
    }
}

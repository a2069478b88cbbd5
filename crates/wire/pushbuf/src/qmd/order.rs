//! How QMDs order each other: what one QMD does to others when it is done, what the host does to a QMD, and setting a QMD's pointers.
//!
//! Fields and values as in NVIDIA's class references (open-gpu-doc: `clc6c0qmd.h` to `clcec0qmd.h`, `clcbc0.h`); their bits are in
//! `classes/*qmd.tsv`. Versions 2.2 and 2.3 have one dependent, which they schedule; later ones have two.

use super::{Error, Qmd};
use crate::semaphore::Reduction;

/// DEPENDENT_QMD_ACTION: what a QMD does to another when it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DependentAction {
    IncrementPut,
    Schedule,
    InvalidateCopySchedule,
    DecrementDependence,
    Reserved(u8),
}

impl DependentAction {
    pub const fn from_code(code: u32) -> DependentAction {
        match code & 7 {
            0 => DependentAction::IncrementPut,
            1 => DependentAction::Schedule,
            3 => DependentAction::InvalidateCopySchedule,
            4 => DependentAction::DecrementDependence,
            other => DependentAction::Reserved(other as u8),
        }
    }

    pub const fn code(self) -> u8 {
        match self {
            DependentAction::IncrementPut => 0,
            DependentAction::Schedule => 1,
            DependentAction::InvalidateCopySchedule => 3,
            DependentAction::DecrementDependence => 4,
            DependentAction::Reserved(code) => code,
        }
    }

    /// As the class reference has it, without `QMD_`.
    pub const fn name(self) -> &'static str {
        match self {
            DependentAction::IncrementPut => "INCREMENT_PUT",
            DependentAction::Schedule => "SCHEDULE",
            DependentAction::InvalidateCopySchedule => "INVALIDATE_COPY_SCHEDULE",
            DependentAction::DecrementDependence => "DECREMENT_DEPENDENCE",
            DependentAction::Reserved(_) => "reserved",
        }
    }
}

/// Another QMD that a QMD acts on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Dependent {
    /// A multiple of 256.
    pub address: u64,
    pub action: DependentAction,
    pub prefetch: bool,
}

/// PCAS_ACTION of SEND_SIGNALING_PCAS2_B, +0x2C0 bits 3:0 (class 0xC6C0 and later): what the host does to a QMD.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PcasAction {
    Nop,
    Invalidate,
    Schedule,
    InvalidateCopySchedule,
    IncrementPut,
    DecrementDependence,
    Prefetch,
    PrefetchSchedule,
    InvalidatePrefetchCopySchedule,
    InvalidatePrefetchCopyForceRequireScheduling,
    IncrementDependence,
    IncrementCwdRefCounter,
    Reserved(u8),
}

impl PcasAction {
    const CODES: [(PcasAction, u8, &'static str); 12] = [
        (PcasAction::Nop, 0, "NOP"),
        (PcasAction::Invalidate, 1, "INVALIDATE"),
        (PcasAction::Schedule, 2, "SCHEDULE"),
        (PcasAction::InvalidateCopySchedule, 3, "INVALIDATE_COPY_SCHEDULE"),
        (PcasAction::IncrementPut, 6, "INCREMENT_PUT"),
        (PcasAction::DecrementDependence, 7, "DECREMENT_DEPENDENCE"),
        (PcasAction::Prefetch, 8, "PREFETCH"),
        (PcasAction::PrefetchSchedule, 9, "PREFETCH_SCHEDULE"),
        (PcasAction::InvalidatePrefetchCopySchedule, 10, "INVALIDATE_PREFETCH_COPY_SCHEDULE"),
        (
            PcasAction::InvalidatePrefetchCopyForceRequireScheduling,
            11,
            "INVALIDATE_PREFETCH_COPY_FORCE_REQUIRE_SCHEDULING",
        ),
        (PcasAction::IncrementDependence, 12, "INCREMENT_DEPENDENCE"),
        (PcasAction::IncrementCwdRefCounter, 13, "INCREMENT_CWD_REF_COUNTER"),
    ];

    /// The action in the method's data word. (SELECT and OFFSET_MINUS_ONE belong to INCREMENT_PUT and are ignored.)
    pub fn of_word(word: u32) -> PcasAction {
        let code = (word & 15) as u8;
        PcasAction::CODES.iter().find(|c| c.1 == code).map_or(PcasAction::Reserved(code), |c| c.0)
    }

    pub fn code(self) -> u8 {
        match self {
            PcasAction::Reserved(code) => code,
            known => PcasAction::CODES.iter().find(|c| c.0 == known).map_or(0, |c| c.1),
        }
    }

    /// As the class reference has it.
    pub fn name(self) -> &'static str {
        PcasAction::CODES.iter().find(|c| c.0 == self).map_or("reserved", |c| c.2)
    }
}

const ENABLE: [&str; 2] = ["DEPENDENT_QMD0_ENABLE", "DEPENDENT_QMD1_ENABLE"];
const ACTION: [&str; 2] = ["DEPENDENT_QMD0_ACTION", "DEPENDENT_QMD1_ACTION"];
const PREFETCH: [&str; 2] = ["DEPENDENT_QMD0_PREFETCH", "DEPENDENT_QMD1_PREFETCH"];
const POINTER: [&str; 2] = ["DEPENDENT_QMD0_POINTER", "DEPENDENT_QMD1_POINTER"];

impl Qmd {
    /// The version that words say for a compute class, `(major, minor)`, whether it has a table or not. 0 where words are missing.
    pub fn version_of(class: u32, words: &[u32]) -> (u8, u8) {
        if let Some(Qmd { layout, .. }) = Qmd::parse_for(class, words) {
            return (layout.major, layout.minor);
        }
        let (word, shift) = if class >= 0xcdc0 { (14, 16) } else { (18, 0) };
        words.get(word).map_or((0, 0), |w| ((w >> (shift + 4) & 15) as u8, (w >> shift & 15) as u8))
    }

    /// Element `i` of an array of version 4 or 5, or the field that earlier versions number.
    fn numbered(&self, array: &str, names: [&str; 2], i: u32) -> Option<u64> {
        self.element(array, i).or_else(|| self.field(names.get(i as usize)?))
    }

    /// The QMDs that this one acts on when it is done, by their number: up to two.
    pub fn dependents(&self) -> impl Iterator<Item = (u32, Dependent)> + '_ {
        (0..2).filter_map(move |i| {
            // Versions 2.2 and 2.3 have one dependent, and no action: they schedule it.
            let only = |name| self.field(name).filter(|_| i == 0);
            let enabled = self.numbered("DEPENDENT_QMD_ENABLE", ENABLE, i);
            if enabled.or_else(|| only("DEPENDENT_QMD_SCHEDULE_ENABLE"))? == 0 {
                return None;
            }
            let pointer = self.field(POINTER.get(i as usize)?);
            let address = pointer.or_else(|| only("DEPENDENT_QMD_POINTER"))? << 8;
            let action = self.numbered("DEPENDENT_QMD_ACTION", ACTION, i);
            let action = action.unwrap_or(DependentAction::Schedule.code().into());
            let prefetch = self.numbered("DEPENDENT_QMD_PREFETCH", PREFETCH, i).unwrap_or(0) != 0;
            Some((i, Dependent { address, action: DependentAction::from_code(action as u32), prefetch }))
        })
    }

    /// Points dependent `i` at another QMD, whose address is a multiple of 256 below 2^40.
    pub fn set_dependent(&mut self, i: u32, address: u64) -> Result<(), Error> {
        let name = *POINTER.get(i as usize).ok_or(Error::NoField(self.layout.name))?;
        self.shifted(name, 0, address, 8, 40)
    }

    /// Points constant buffer `i` elsewhere (versions that shift its address by 6: from 4 on).
    pub fn set_constant_buffer(&mut self, i: u32, address: u64) -> Result<(), Error> {
        let (lower, upper) = ("CONSTANT_BUFFER_ADDR_LOWER_SHIFTED6", "CONSTANT_BUFFER_ADDR_UPPER_SHIFTED6");
        self.shifted(lower, i, address, 6, 57)?;
        self.set_element(upper, i, address >> 38)
    }

    /// Points release `i` elsewhere (version 4).
    pub fn set_release(&mut self, i: u32, address: u64) -> Result<(), Error> {
        let names = [
            ("RELEASE_SEMAPHORE0_ADDR_LOWER", "RELEASE_SEMAPHORE0_ADDR_UPPER"),
            ("RELEASE_SEMAPHORE1_ADDR_LOWER", "RELEASE_SEMAPHORE1_ADDR_UPPER"),
            ("RELEASE_SEMAPHORE2_ADDR_LOWER", "RELEASE_SEMAPHORE2_ADDR_UPPER"),
        ];
        let (lower, upper) = *names.get(i as usize).ok_or(Error::NoField(self.layout.name))?;
        self.set(lower, address & 0xffff_ffff)?;
        self.set(upper, address >> 32)
    }

    /// What release `i` does to its semaphore, if it is a reduction (version 4).
    pub fn release_reduction(&self, i: u32) -> Option<Reduction> {
        (self.element("RELEASE_REDUCTION_ENABLE", i)? != 0)
            .then(|| Reduction::graphics(self.element("RELEASE_REDUCTION_OP", i).unwrap_or(0) as u32))
    }

    /// The code that is fetched ahead, of this kernel or of the next (version 4).
    pub fn program_prefetch(&self) -> Option<u64> {
        self.field("PROGRAM_PREFETCH_SIZE").filter(|size| *size != 0)?;
        let lower = self.field("PROGRAM_PREFETCH_ADDR_LOWER_SHIFTED")?;
        Some((lower | self.field("PROGRAM_PREFETCH_ADDR_UPPER_SHIFTED")? << 32) << 8)
    }

    /// True for a programmatic dependent launch (version 4): the kernel may begin while the one before it in its stream still runs.
    pub fn waits_on_latch(&self) -> bool {
        self.field("WAIT_ON_LATCH_VALID") == Some(1)
    }

    /// How many times the QMD must be decremented before it runs.
    pub fn dependence_counter(&self) -> u32 {
        self.field("DEPENDENCE_COUNTER").unwrap_or(0) as u32
    }

    /// The first word with bits set that no field of the version names, and these bits.
    pub fn unnamed(&self) -> Option<(usize, u32)> {
        let mut named = [0u32; super::MAX_WORDS];
        for field in self.layout.fields {
            for i in 0..field.count() {
                let lo = u32::from(field.lo) + i * u32::from(field.stride);
                let bits = ((1u64 << field.width().min(32)) - 1) << (lo % 32);
                for (half, bits) in [bits as u32, (bits >> 32) as u32].into_iter().enumerate() {
                    if let Some(word) = named.get_mut((lo / 32) as usize + half) {
                        *word |= bits;
                    }
                }
            }
        }
        let bits = self.words().iter().zip(named).map(|(word, named)| word & !named);
        bits.enumerate().find(|(_, bits)| *bits != 0)
    }

    /// Sets a field to the low 32 bits of `address >> shift`; what the field leaves out must be 0. `bits`: of an address.
    fn shifted(&mut self, name: &str, i: u32, address: u64, shift: u32, bits: u32) -> Result<(), Error> {
        let field = self.layout.field(name).ok_or(Error::NoField(self.layout.name))?;
        if address & ((1 << shift) - 1) != 0 || address >> bits != 0 {
            return Err(Error::Misplaced { field: field.name, address });
        }
        self.set_element(name, i, address >> shift & 0xffff_ffff)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Layout;
    use super::*;

    #[test]
    fn pointers_of_a_qmd_are_read_and_set() {
        let mut qmd = Qmd::new(Layout::of(4, 0).unwrap());
        assert_eq!(qmd.dependents().count(), 0);
        qmd.set_element("DEPENDENT_QMD_ENABLE", 1, 1).unwrap();
        qmd.set_element("DEPENDENT_QMD_ACTION", 1, 4).unwrap();
        qmd.set_dependent(1, 0x2_04c0_0400).unwrap();
        let action = DependentAction::DecrementDependence;
        let dependent = Dependent { address: 0x2_04c0_0400, action, prefetch: false };
        assert_eq!(qmd.dependents().collect::<Vec<_>>(), [(1, dependent)]);
        // The pointer is bits 511:480, word 15.
        assert_eq!(qmd.words()[15], 0x0204_c004);

        qmd.set_element("CONSTANT_BUFFER_VALID", 5, 1).unwrap();
        qmd.set_constant_buffer(5, 0x7f63_da01_1000).unwrap();
        assert_eq!(qmd.constant_buffer(5).unwrap().address, 0x7f63_da01_1000);
        qmd.set_element("RELEASE_ENABLE", 0, 1).unwrap();
        qmd.set_element("RELEASE_REDUCTION_ENABLE", 0, 1).unwrap();
        qmd.set_release(0, 0x2_0462_7fa4).unwrap();
        assert_eq!(qmd.releases().next().unwrap().1.address, 0x2_0462_7fa4);
        assert_eq!(qmd.release_reduction(0), Some(Reduction::Add));
        for (wrong, address) in [(0, 0x2_04c0_0410), (0, 1 << 40), (2, 0x400)] {
            assert!(qmd.set_dependent(wrong, address).is_err(), "{wrong} {address:#x}");
        }
        assert!(qmd.set_constant_buffer(5, 0x20).is_err());
    }

    #[test]
    fn bits_without_a_name_are_found() {
        let mut words = *Qmd::new(Layout::of(4, 0).unwrap()).words().first_chunk::<96>().unwrap();
        assert_eq!(Qmd::parse(&words).unwrap().unnamed(), None);
        // Bits 2047:2144 of version 4.0 hold no field but 2079:2048 and 2087:2080.
        words[65] = 0x100;
        assert_eq!(Qmd::parse(&words).unwrap().unnamed(), Some((65, 0x100)));
    }

    #[test]
    fn actions_have_the_names_of_the_class_reference() {
        let class = crate::class::by_id(0xcbc0).unwrap();
        let method = class.method(crate::encode::offset::SEND_SIGNALING_PCAS2_B).unwrap();
        let field = method.method.fields.iter().find(|f| f.name == "PCAS_ACTION").unwrap();
        for code in 0..16 {
            let action = PcasAction::of_word(code);
            assert_eq!(u32::from(action.code()), code);
            assert_eq!(field.enum_name(code).unwrap_or("reserved"), action.name());
        }
    }
}

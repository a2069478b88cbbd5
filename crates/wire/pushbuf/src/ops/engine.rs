//! The state machine: writes in, operations out.

use alloc::vec::Vec;

use super::inline::{self, Active, Recent};
use super::{At, How, Inline, Launch, Op, Origin, Purpose, Semaphore, What, address, copy};
use crate::class::Family;
use crate::decode::{Decoder, Item, Run, Target, Write};
use crate::qmd::{MAX_WORDS, Qmd};
use crate::semaphore::{Execute, Operation, Reduction, method};
use crate::snapshot::Snapshot;

/// Operations that wait for the launch that may use an inline copy before them.
const HELD: usize = 64;
/// Where in constant buffer 0 the driver names the kernel (driver 580.159, CUDA 13.0).
const KERNEL: u64 = 0x118;

const REPORT_PAYLOAD_LOWER: u16 = 0x158;
const REPORT_ADDRESS_UPPER: u16 = 0x164;
const REPORT_EXECUTE: u16 = 0x168;
const SEND_PCAS_A: u16 = 0x2b4;
const SEND_SIGNALING_PCAS_B: u16 = 0x2bc;
const SEND_SIGNALING_PCAS2_B: u16 = 0x2c0;
const INLINE_QMD_ADDRESS_A: u16 = 0x318;
const INLINE_QMD_ADDRESS_B: u16 = 0x31c;
const LOAD_INLINE_QMD_DATA: u16 = 0x320;
const LOAD_INLINE_QMD_LAST: u16 = LOAD_INLINE_QMD_DATA + 4 * (MAX_WORDS as u16 - 1);
const REPORT_A: u16 = 0x1b00;
/// CALL_MME_MACRO and CALL_MME_DATA in turns, of all macros.
const CALL_MME_MACRO: u16 = 0x3800;
const REPORT_D: u16 = 0x1b0c;

#[derive(Debug, Clone, Copy, Default)]
struct Host {
    old: [u32; 3],
    /// SEM_ADDR_LO, SEM_ADDR_HI, SEM_PAYLOAD_LO, SEM_PAYLOAD_HI.
    new: [u32; 4],
    /// Registers whose value is not known, a bit each: `old` from 0, `new` from 3.
    unknown: u8,
}

impl Host {
    fn write(&mut self, offset: u16, value: u32) {
        let (slot, bit) = match offset {
            method::SEMAPHORE_A..=method::SEMAPHORE_C => {
                let i = (offset - method::SEMAPHORE_A) / 4;
                (self.old.get_mut(usize::from(i)), 1 << i)
            }
            method::SEM_ADDR_LO..=method::SEM_PAYLOAD_HI => {
                let i = (offset - method::SEM_ADDR_LO) / 4;
                (self.new.get_mut(usize::from(i)), 1 << (3 + i))
            }
            _ => return,
        };
        if let Some(slot) = slot {
            *slot = value;
        }
        self.unknown &= !bit;
    }

    /// True if the semaphore method at `offset` uses a register that is not known.
    fn guesses(&self, offset: u16, value: u32) -> bool {
        let used = match offset {
            method::SEM_EXECUTE if Execute::parse(value).wide => 0b0111_1000,
            method::SEM_EXECUTE => 0b0011_1000,
            _ => 0b0000_0111,
        };
        self.unknown & used != 0
    }

    /// SEM_EXECUTE, +0x6C.
    fn execute(&self, value: u32) -> Semaphore {
        let [lower, upper, payload, payload_upper] = self.new;
        let Execute { operation, wfi, wide, timestamp, .. } = Execute::parse(value);
        let releases = !operation.is_acquire();
        Semaphore {
            origin: Origin::Host,
            operation,
            address: address(upper, lower & !3),
            payload: if wide { u64::from(payload_upper) << 32 } else { 0 } | u64::from(payload),
            wide,
            timestamp: releases && timestamp,
            wfi: releases && wfi,
        }
    }

    /// SEMAPHORED, +0x1C.
    fn execute_old(&self, value: u32) -> Semaphore {
        let [upper, lower, payload] = self.old;
        let operation = match value & 0x1f {
            1 => Operation::Acquire,
            2 => Operation::Release,
            // The class reference does not say how ACQ_GEQ compares; taken as the circular comparison.
            4 => Operation::AcquireCircGeq,
            8 => Operation::AcquireAnd,
            16 => Operation::Reduction { op: Reduction::host(value >> 27 & 15), signed: value >> 31 == 0 },
            other => Operation::Reserved(other as u8),
        };
        let releases = !operation.is_acquire();
        Semaphore {
            origin: Origin::HostOld,
            operation,
            address: address(upper & 0xff, lower & !3),
            payload: u64::from(payload),
            wide: false,
            // RELEASE_SIZE: 16BYTE is 0. RELEASE_WFI: EN is 0.
            timestamp: releases && value >> 24 & 1 == 0,
            wfi: releases && value >> 20 & 1 == 0,
        }
    }
}

/// The registers of one subchannel's engine.
#[derive(Debug, Clone)]
struct Registers {
    copy: copy::Registers,
    inline: inline::Registers,
    active: Option<Active>,
    /// SET_REPORT_SEMAPHORE_PAYLOAD_LOWER, _UPPER, ADDRESS_LOWER, _UPPER.
    report: [u32; 4],
    report_old: [u32; 3],
    pcas: u32,
    qmd_address: [u32; 2],
    qmd: [u32; MAX_WORDS],
    /// Registers with unknown values, one bit each: `report` from 0, `report_old` from 4, `pcas` 7, `qmd_address` from 8. `unknown_qmd` has one bit
    /// for each word of `qmd`.
    unknown: u16,
    unknown_qmd: u128,
}

const PCAS: u16 = 1 << 7;

crate::snapshot!(Host { old, new, unknown });

impl Registers {
    fn save(&self, to: &mut Vec<u8>) {
        let Registers { copy, inline, active: _, report, report_old, pcas, qmd_address, qmd, unknown, unknown_qmd } =
            self;
        (*copy, *inline).save(to);
        (*report, *report_old, *pcas, *qmd_address, *qmd, *unknown, *unknown_qmd).save(to);
    }

    fn load(&mut self, from: &mut &[u8]) -> Option<()> {
        (self.copy, self.inline) = Snapshot::load(from)?;
        (self.report, self.report_old, self.pcas, self.qmd_address, self.qmd, self.unknown, self.unknown_qmd) =
            Snapshot::load(from)?;
        Some(())
    }

    /// Words are missing: no register is known until it is written again.
    fn forget(&mut self) {
        self.copy.forget();
        self.inline.forget();
        let Registers { copy, inline, .. } = *self;
        *self = Registers { copy, inline, unknown: u16::MAX, unknown_qmd: u128::MAX, ..Registers::new() };
    }

    fn new() -> Registers {
        Registers {
            copy: copy::Registers::default(),
            inline: inline::Registers::default(),
            active: None,
            report: [0; 4],
            report_old: [0; 3],
            pcas: 0,
            qmd_address: [0; 2],
            qmd: [0; MAX_WORDS],
            unknown: 0,
            unknown_qmd: 0,
        }
    }
}

/// From the writes of one channel to operations.
///
/// Operations come in the order of the stream. An inline copy and the operations after it are held back until a launch in the same segment shows
/// its purpose, until the segment ends, or until 64 operations are held. All memory is allocated by [`Engine::new`].
#[derive(Debug, Clone)]
pub struct Engine {
    segment: u64,
    host: Host,
    subchannels: [Registers; 8],
    recent: Recent,
    held: Vec<Op>,
}

impl Default for Engine {
    fn default() -> Self {
        Engine::new()
    }
}

impl Engine {
    pub fn new() -> Engine {
        Engine {
            segment: 0,
            host: Host::default(),
            subchannels: core::array::from_fn(|_| Registers::new()),
            recent: Recent::new(),
            held: Vec::with_capacity(HELD),
        }
    }

    /// Decodes the words of one GPFIFO entry and emits its operations.
    pub fn segment(&mut self, decoder: &mut Decoder, words: &[u32], mut sink: impl FnMut(&Op)) {
        decoder.segment(words, |item| self.item(&item, &mut sink));
        self.end_segment(&mut sink);
    }

    /// Takes one item of the stream.
    #[inline]
    pub fn item(&mut self, item: &Item<'_>, sink: &mut impl FnMut(&Op)) {
        match item {
            Item::Write(write) => self.write(write, sink),
            Item::Run(run) => self.run(run, sink),
            _ => {}
        }
    }

    /// The segment is over: everything that was held is emitted. An inline copy whose data continues in the next segment is kept.
    pub fn end_segment(&mut self, sink: &mut impl FnMut(&Op)) {
        self.release_held(sink);
        self.segment += 1;
    }

    /// Words are missing between the last segment and the next: registers may have changed. Operations that use a register before it is written
    /// again are [`Op::guessed`]; an unfinished inline copy is emitted as it is.
    pub fn forget(&mut self, sink: &mut impl FnMut(&Op)) {
        for subch in 0..8 {
            self.end_inline(subch, sink);
        }
        self.release_held(sink);
        self.host = Host { unknown: u8::MAX, ..Host::default() };
        self.subchannels.iter_mut().for_each(Registers::forget);
        // A QMD that was copied before may have been overwritten.
        self.recent.forget();
    }

    /// Segments that have ended.
    pub fn segments(&self) -> u64 {
        self.segment
    }

    /// Writes what it was told. False, and nothing is written: it is in the middle of an inline copy.
    pub fn save(&self, to: &mut Vec<u8>) -> bool {
        let is_between = self.held.is_empty() && self.subchannels.iter().all(|r| r.active.is_none());
        if is_between {
            (self.segment, self.host).save(to);
            self.subchannels.iter().for_each(|r| r.save(to));
            self.recent.save(to);
        }
        is_between
    }

    /// One that goes on from what was written; `None` if the bytes are not that.
    pub fn load(from: &mut &[u8]) -> Option<Engine> {
        let mut engine = Engine::new();
        (engine.segment, engine.host) = Snapshot::load(from)?;
        for registers in &mut engine.subchannels {
            registers.load(from)?;
        }
        engine.recent = Recent::load(from)?;
        Some(engine)
    }

    fn at(&self, word: u32) -> At {
        At { segment: self.segment, word }
    }

    fn run(&mut self, run: &Run<'_>, sink: &mut impl FnMut(&Op)) {
        let Target { subch, class_id, .. } = run.target;
        let inline_data = !run.host
            && run.address == inline::LOAD_INLINE_DATA
            && matches!(Family::answering(subch, class_id), Some(Family::Compute | Family::InlineToMemory));
        if inline_data {
            self.inline_data(subch, run.word_index, run.words, sink);
        } else {
            run.writes().for_each(|write| self.write(&write, sink));
        }
    }

    /// Most writes only fill a register. Methods that trigger an operation are in separate functions, because their stack frames hold whole
    /// operations.
    #[inline]
    fn write(&mut self, write: &Write, sink: &mut impl FnMut(&Op)) {
        let Target { subch, class_id, .. } = write.target;
        match (write.address, write.host) {
            (method::SEMAPHORE_D | method::SEM_EXECUTE, true) => self.host_semaphore(write, sink),
            (offset, true) => self.host.write(offset, write.value),
            (offset, false) => match Family::answering(subch, class_id) {
                Some(Family::Copy) if offset == copy::LAUNCH_DMA => self.copy(write, sink),
                Some(Family::Copy) => self.registers(subch).copy.write(offset, write.value),
                Some(Family::Compute | Family::InlineToMemory) if has_meaning(offset) => self.compute(write, sink),
                Some(_) | None => {}
            },
        }
    }

    #[inline(never)]
    fn copy(&mut self, write: &Write, sink: &mut impl FnMut(&Op)) {
        let registers = &self.registers(write.target.subch).copy;
        if let Some(what) = registers.launch(write.value) {
            let guessed = registers.guesses(write.value);
            self.emit_at(write, guessed, what, sink);
        }
    }

    #[inline(never)]
    fn host_semaphore(&mut self, write: &Write, sink: &mut impl FnMut(&Op)) {
        let semaphore = if write.address == method::SEM_EXECUTE {
            self.host.execute(write.value)
        } else {
            self.host.execute_old(write.value)
        };
        let guessed = self.host.guesses(write.address, write.value);
        self.emit_at(write, guessed, What::Semaphore(semaphore), sink);
    }

    fn emit_at(&mut self, write: &Write, guessed: bool, what: What, sink: &mut impl FnMut(&Op)) {
        let Target { subch, class_id, .. } = write.target;
        self.emit(Op { at: self.at(write.word_index), subch, class_id, guessed, what }, sink);
    }

    fn registers(&mut self, subch: u8) -> &mut Registers {
        &mut self.subchannels[usize::from(subch & 7)]
    }

    /// Compute and inline-to-memory classes, which agree on the methods that both have.
    #[inline(never)]
    fn compute(&mut self, write: &Write, sink: &mut impl FnMut(&Op)) {
        let Write { word_index, address: offset, value, target: Target { subch, class_id, .. }, .. } = *write;
        let at = self.at(word_index);
        let registers = self.registers(subch);
        let (what, used) = match offset {
            inline::LOAD_INLINE_DATA => return self.inline_data(subch, word_index, &[value], sink),
            inline::LAUNCH_DMA => {
                self.end_inline(subch, sink);
                let registers = self.registers(subch);
                let inline = registers.inline.launch(value);
                let active = Active { at, class_id, guessed: registers.inline.guesses(value), inline };
                registers.active = Some(active);
                self.recent.begin(at, &inline);
                if active.is_full() {
                    self.end_inline(subch, sink);
                }
                return;
            }
            0x180..=0x190 | 0x1dc..=0x1e4 => {
                registers.inline.write(offset, value);
                return;
            }
            _ if Family::answering(subch, class_id) == Some(Family::InlineToMemory) => return,
            CALL_MME_MACRO.. => {
                if let Some(active) = registers.active.as_mut() {
                    active.inline.by_macro = active.inline.data.is_none();
                    self.end_inline(subch, sink);
                }
                return;
            }
            REPORT_PAYLOAD_LOWER..=REPORT_ADDRESS_UPPER => {
                let i = (offset - REPORT_PAYLOAD_LOWER) / 4;
                if let Some(slot) = registers.report.get_mut(usize::from(i)) {
                    *slot = value;
                }
                registers.unknown &= !(1 << i);
                return;
            }
            // (The upper half of the payload counts for wide ones only.)
            REPORT_EXECUTE => (report(registers.report, value), if value >> 12 & 1 != 0 { 0b1111 } else { 0b1101 }),
            REPORT_A..REPORT_D => {
                let i = (offset - REPORT_A) / 4;
                if let Some(slot) = registers.report_old.get_mut(usize::from(i)) {
                    *slot = value;
                }
                registers.unknown &= !(1 << (4 + i));
                return;
            }
            REPORT_D => (report_old(registers.report_old, value), 0b0111_0000),
            SEND_PCAS_A => {
                registers.pcas = value;
                registers.unknown &= !PCAS;
                return;
            }
            SEND_SIGNALING_PCAS_B if value >> 1 & 1 != 0 => {
                return self.pcas(write, How::Pcas { invalidate: value & 1 != 0 }, sink);
            }
            // SCHEDULE, INVALIDATE_COPY_SCHEDULE, PREFETCH_SCHEDULE, INVALIDATE_PREFETCH_COPY_SCHEDULE; other actions launch no kernel.
            SEND_SIGNALING_PCAS2_B if matches!(value & 15, 2 | 3 | 9 | 10) => {
                return self.pcas(write, How::Pcas2 { action: (value & 15) as u8 }, sink);
            }
            INLINE_QMD_ADDRESS_A => {
                registers.qmd_address[0] = value;
                registers.unknown &= !(1 << 8);
                return;
            }
            INLINE_QMD_ADDRESS_B => {
                registers.qmd_address[1] = value;
                registers.unknown &= !(1 << 9);
                return;
            }
            LOAD_INLINE_QMD_DATA..=LOAD_INLINE_QMD_LAST => {
                let index = usize::from((offset - LOAD_INLINE_QMD_DATA) / 4);
                if let Some(slot) = registers.qmd.get_mut(index) {
                    *slot = value;
                    registers.unknown_qmd &= !(1 << index);
                }
                let [upper, lower] = registers.qmd_address;
                // INLINE_SIZE, from class 0xCBC0 on: 384 bytes instead of 256. The last word launches.
                let words = if class_id >= 0xcbc0 && upper >> 30 & 1 != 0 { MAX_WORDS } else { 64 };
                if index + 1 != words {
                    return;
                }
                // If words of a QMD are missing, it counts as not seen.
                let whole = registers.unknown_qmd & ((1 << words) - 1) == 0;
                let qmd = registers.qmd.get(..words).filter(|_| whole).and_then(|w| Qmd::parse_for(class_id, w));
                let qmd_address = address(upper & 0x1ff, lower) << 8;
                let kernel = qmd.as_ref().and_then(|qmd| self.kernel(qmd));
                let launch = Launch { how: How::InlineQmd, qmd_address, qmd, kernel, written_at: None };
                (Some(What::Launch(launch)), 0b11 << 8)
            }
            _ => return,
        };
        if let Some(what) = what {
            let guessed = self.registers(subch).unknown & used != 0;
            self.emit(Op { at, subch, class_id, guessed, what }, sink);
        }
    }

    fn inline_data(&mut self, subch: u8, word_index: u32, words: &[u32], sink: &mut impl FnMut(&Op)) {
        let at = self.at(word_index);
        let Some(active) = self.registers(subch).active.as_mut() else { return };
        let taken = active.take(at, u32::try_from(words.len()).unwrap_or(u32::MAX));
        let (begun, full) = (active.at, active.is_full());
        self.recent.append(begun, words.get(..taken as usize).unwrap_or(words));
        if full {
            self.end_inline(subch, sink);
        }
    }

    fn end_inline(&mut self, subch: u8, sink: &mut impl FnMut(&Op)) {
        if let Some(active) = self.registers(subch).active.take() {
            let Active { at, class_id, guessed, inline } = active.finish();
            self.emit(Op { at, subch, class_id, guessed, what: What::Inline(inline) }, sink);
        }
    }

    /// A launch of the QMD that SEND_PCAS_A named.
    fn pcas(&mut self, write: &Write, how: How, sink: &mut impl FnMut(&Op)) {
        let Target { subch, class_id, .. } = write.target;
        self.end_inline(subch, sink);
        let qmd_address = u64::from(self.registers(subch).pcas) << 8;
        let mut words = [0; MAX_WORDS];
        let (known, newest) = self.recent.read(qmd_address, &mut words);
        let qmd = words.get(..known).and_then(|w| Qmd::parse_for(class_id, w));
        if let Some(qmd) = &qmd {
            self.give_purpose(qmd_address, qmd);
        }
        let written_at = newest.filter(|_| qmd.is_some());
        let kernel = qmd.as_ref().and_then(|qmd| self.kernel(qmd));
        let what = What::Launch(Launch { how, qmd_address, qmd, kernel, written_at });
        let guessed = self.registers(subch).unknown & PCAS != 0;
        self.emit(Op { at: self.at(write.word_index), subch, class_id, guessed, what }, sink);
        if self.held.iter().all(|op| !unresolved(op)) {
            self.release_held(sink);
        }
    }

    /// The address of the kernel that the driver puts into constant buffer 0, if that is among the recent copies.
    fn kernel(&self, qmd: &Qmd) -> Option<u64> {
        let constants = qmd.constant_buffer(0)?;
        let mut words = [0; 2];
        let (known, _) = self.recent.read(constants.address.saturating_add(KERNEL), &mut words);
        let kernel = u64::from(words[1]) << 32 | u64::from(words[0]);
        // Other drivers may store another value there. Code is aligned, and is within one range of 4 GiB.
        let is_code = kernel != 0 && kernel.is_multiple_of(128) && kernel >> 32 == qmd.program_address() >> 32;
        (known == words.len() && is_code).then_some(kernel)
    }

    /// Sets the purpose of the held inline copies that this launch uses.
    fn give_purpose(&mut self, qmd_address: u64, qmd: &Qmd) {
        let qmd_end = qmd_address.saturating_add(4 * qmd.words().len() as u64);
        let touches =
            |inline: &Inline, from: u64, to: u64| inline.dst < to && from < inline.dst.saturating_add(inline.bytes());
        // Looked up only if another inline copy is held.
        let mut constants = None;
        for op in &mut self.held {
            let What::Inline(inline) = &mut op.what else { continue };
            if touches(inline, qmd_address, qmd_end) {
                inline.purpose = Purpose::Qmd;
            } else if inline.purpose == Purpose::Data
                && let Some(c) = constants.get_or_insert_with(|| qmd.constant_buffer(0))
                && touches(inline, c.address, c.address.saturating_add(u64::from(c.bytes)))
            {
                inline.purpose = Purpose::Constants;
            }
        }
    }

    fn emit(&mut self, op: Op, sink: &mut impl FnMut(&Op)) {
        if self.held.is_empty() && !unresolved(&op) {
            return sink(&op);
        }
        if self.held.len() >= HELD {
            self.release_held(sink);
        }
        self.held.push(op);
    }

    fn release_held(&mut self, sink: &mut impl FnMut(&Op)) {
        self.held.iter().for_each(&mut *sink);
        self.held.clear();
    }
}

/// Whether [`Engine::compute`] has a use for the method: for most it has none.
fn has_meaning(offset: u16) -> bool {
    matches!(
        offset,
        REPORT_PAYLOAD_LOWER..=inline::SET_I2M_SEMAPHORE_C
            | SEND_PCAS_A..=SEND_SIGNALING_PCAS2_B
            | INLINE_QMD_ADDRESS_A..=LOAD_INLINE_QMD_LAST
            | REPORT_A..=REPORT_D
            | CALL_MME_MACRO..
    )
}

fn unresolved(op: &Op) -> bool {
    matches!(op.what, What::Inline(inline) if inline.purpose == Purpose::Data)
}

/// REPORT_SEMAPHORE_EXECUTE, +0x168, from class 0xC7C0 on.
fn report([payload, payload_upper, lower, upper]: [u32; 4], value: u32) -> Option<What> {
    let reduction = Operation::Reduction { op: Reduction::graphics(value >> 7 & 7), signed: value >> 10 & 3 == 1 };
    let operation = match value & 3 {
        0 if value >> 6 & 1 != 0 => reduction,
        0 => Operation::Release,
        1 => Operation::Acquire,
        // REPORT_ONLY and TRAP move no semaphore.
        _ => return None,
    };
    let wide = value >> 12 & 1 != 0;
    Some(What::Semaphore(Semaphore {
        origin: Origin::Report,
        operation,
        address: address(upper, lower),
        payload: if wide { u64::from(payload_upper) << 32 } else { 0 } | u64::from(payload),
        wide,
        // STRUCTURE_SIZE=SEMAPHORE_FOUR_WORDS.
        timestamp: !operation.is_acquire() && value >> 3 & 3 == 0,
        wfi: !operation.is_acquire(),
    }))
}

/// SET_REPORT_SEMAPHORE_D, +0x1B0C.
fn report_old([upper, lower, payload]: [u32; 3], value: u32) -> Option<What> {
    if value & 3 != 0 {
        return None;
    }
    let reduction = Operation::Reduction { op: Reduction::graphics(value >> 9 & 7), signed: value >> 17 & 3 == 1 };
    Some(What::Semaphore(Semaphore {
        origin: Origin::ReportOld,
        operation: if value >> 3 & 1 != 0 { reduction } else { Operation::Release },
        address: address(upper, lower),
        payload: u64::from(payload),
        wide: false,
        timestamp: value >> 28 & 1 == 0,
        wfi: true,
    }))
}

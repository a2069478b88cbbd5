//! The compute class (0xC3C0 to 0xCBC0): launches, report semaphores, and inline-to-memory on the way.
//!
//! The scheduler ([`super::sked`]) implements what PCAS does to a QMD of version 4. A QMD of version 3 runs no kernel: it releases its
//! semaphores, and is counted. A missing QMD is a fault.

use super::channel::Channel;
use super::host::acquired;
use super::inline::{self, Inline};
use super::mme::Mme;
use super::release::{self, shape};
use super::semaphore::{self, Reduction, Shape};
use super::sked::Kernels;
use super::{Fault, Flow, Runlists};
use crate::counters::add;
use pushbuf::qmd::PcasAction;

const WAIT_FOR_IDLE: u16 = 0x110;
const LOAD_MME_INSTRUCTION_RAM_POINTER: u16 = 0x114;
const LOAD_MME_INSTRUCTION_RAM: u16 = 0x118;
const LOAD_MME_START_ADDRESS_RAM_POINTER: u16 = 0x11c;
const LOAD_MME_START_ADDRESS_RAM: u16 = 0x120;
const SET_REPORT_SEMAPHORE_PAYLOAD_LOWER: u16 = 0x158;
const SET_REPORT_SEMAPHORE_PAYLOAD_UPPER: u16 = 0x15c;
const SET_REPORT_SEMAPHORE_ADDRESS_LOWER: u16 = 0x160;
const SET_REPORT_SEMAPHORE_ADDRESS_UPPER: u16 = 0x164;
const REPORT_SEMAPHORE_EXECUTE: u16 = 0x168;
const INVALIDATE_SHADER_CACHES: u16 = 0x21c;
const SEND_PCAS_A: u16 = 0x2b4;
const SEND_SIGNALING_PCAS_B: u16 = 0x2bc;
const SEND_SIGNALING_PCAS2_B: u16 = 0x2c0;
const SET_INLINE_QMD_ADDRESS_A: u16 = 0x318;
const SET_INLINE_QMD_ADDRESS_B: u16 = 0x31c;
const LOAD_INLINE_QMD_DATA: u16 = 0x320;
const LOAD_INLINE_QMD_DATA_END: u16 = LOAD_INLINE_QMD_DATA + 96 * 4;
const INVALIDATE_SHADER_CACHES_NO_WFI: u16 = 0x1698;
const SET_REPORT_SEMAPHORE_A: u16 = 0x1b00;
const SET_REPORT_SEMAPHORE_B: u16 = 0x1b04;
const SET_REPORT_SEMAPHORE_C: u16 = 0x1b08;
const SET_REPORT_SEMAPHORE_D: u16 = 0x1b0c;
/// CALL_MME_MACRO and CALL_MME_DATA in turns, of each macro.
const CALL_MME_MACRO: u16 = 0x3800;

/// CONSTANT of the invalidations.
const CONSTANT: u32 = 1 << 12;
/// Words of a QMD of version 3.
const QMD_WORDS: usize = 64;
/// Bit offset of the word with a QMD's version.
const VERSION: u64 = 4 * 18;

#[derive(Debug, Default)]
pub struct Compute {
    inline: Inline,
    report: u64,
    payload: u64,
    old_report: u64,
    old_payload: u32,
    qmd: u64,
    inline_qmd: u64,
    mme: Mme,
    pub(super) kernels: Kernels,
}

impl Compute {
    pub(super) fn method(&mut self, address: u16, data: u32, channel: &Channel, gpu: &Runlists) -> Result<Flow, Fault> {
        let hi = u64::from(data) << 32;
        match address {
            inline::LINE_LENGTH_IN..=inline::SET_I2M_SEMAPHORE_C => self.inline.method(address, data, channel, gpu)?,
            SET_REPORT_SEMAPHORE_PAYLOAD_LOWER => self.payload = self.payload & !0xffff_ffff | u64::from(data),
            SET_REPORT_SEMAPHORE_PAYLOAD_UPPER => self.payload = self.payload & 0xffff_ffff | hi,
            SET_REPORT_SEMAPHORE_ADDRESS_LOWER => self.report = self.report & !0xffff_ffff | u64::from(data),
            SET_REPORT_SEMAPHORE_ADDRESS_UPPER => {
                self.report = self.report & 0xffff_ffff | hi & 0x01ff_ffff_0000_0000;
            }
            REPORT_SEMAPHORE_EXECUTE => return self.execute(data, channel, gpu),
            SET_REPORT_SEMAPHORE_A => self.old_report = self.old_report & 0xffff_ffff | hi & 0x01ff_ffff_0000_0000,
            SET_REPORT_SEMAPHORE_B => self.old_report = self.old_report & !0xffff_ffff | u64::from(data),
            SET_REPORT_SEMAPHORE_C => self.old_payload = data,
            SET_REPORT_SEMAPHORE_D => self.old_execute(data, channel, gpu)?,
            SEND_PCAS_A => self.qmd = u64::from(data) << 8,
            // INVALIDATE 0, SCHEDULE 1
            SEND_SIGNALING_PCAS_B => {
                let action = match data & 3 {
                    0 => PcasAction::Nop,
                    1 => PcasAction::Invalidate,
                    2 => PcasAction::Schedule,
                    _ => PcasAction::InvalidateCopySchedule,
                };
                self.pcas(action, channel, gpu)?;
            }
            // PCAS_ACTION 3:0
            SEND_SIGNALING_PCAS2_B => self.pcas(PcasAction::of_word(data), channel, gpu)?,
            INVALIDATE_SHADER_CACHES | INVALIDATE_SHADER_CACHES_NO_WFI
                if data & CONSTANT != 0 && !gpu.plot.keeps_banks() =>
            {
                gpu.sked.invalidate_constants();
            }
            WAIT_FOR_IDLE if !self.kernels.idle() => return Ok(Flow::Blocked),
            // QMD_ADDRESS_SHIFTED8_UPPER 8:0
            SET_INLINE_QMD_ADDRESS_A => {
                self.inline_qmd = self.inline_qmd & 0xff_ffff_ffff | u64::from(data & 0x1ff) << 40;
            }
            SET_INLINE_QMD_ADDRESS_B => self.inline_qmd = self.inline_qmd & !0xff_ffff_ffff | u64::from(data) << 8,
            LOAD_INLINE_QMD_DATA..LOAD_INLINE_QMD_DATA_END => {
                channel.space.write_u32(self.inline_qmd + u64::from(address - LOAD_INLINE_QMD_DATA), data)?;
            }
            LOAD_MME_INSTRUCTION_RAM_POINTER => self.mme.point(data),
            LOAD_MME_INSTRUCTION_RAM => self.mme.load(data),
            LOAD_MME_START_ADDRESS_RAM_POINTER => self.mme.point_starts(data),
            LOAD_MME_START_ADDRESS_RAM => self.mme.load_start(data),
            CALL_MME_MACRO.. => {
                let (index, begins) = (usize::from((address - CALL_MME_MACRO) / 8), address & 4 == 0);
                if let Some((word, words)) = self.mme.argument(index, begins, data) {
                    for _ in 0..words {
                        self.inline.method(inline::LOAD_INLINE_DATA, word, channel, gpu)?;
                    }
                }
            }
            // State of shaders, caches and the like, which has no effect here.
            _ => {}
        }
        Ok(Flow::Next)
    }

    /// REPORT_SEMAPHORE_EXECUTE: OPERATION 1:0, STRUCTURE_SIZE 4:3, REDUCTION_ENABLE 6, REDUCTION_OP 9:7,
    /// REDUCTION_FORMAT 11:10, PAYLOAD_SIZE64 12.
    fn execute(&mut self, data: u32, channel: &Channel, gpu: &Runlists) -> Result<Flow, Fault> {
        let space = &channel.space;
        let payload64 = data >> 12 & 1 != 0;
        let shape = shape(data >> 3 & 3, payload64).ok_or(Fault::engine("STRUCTURE_SIZE", data.into()))?;
        match data & 3 {
            0 if data >> 6 & 1 != 0 => {
                let op = Reduction::of_engine(data >> 7 & 7).ok_or(Fault::engine("REDUCTION_OP", data.into()))?;
                semaphore::reduce(gpu, space, self.report, self.payload, shape, op, data >> 10 & 3 == 1)?;
                add(&gpu.counters.releases, 1);
            }
            0 => {
                semaphore::release(gpu, space, self.report, self.payload, shape)?;
                add(&gpu.counters.releases, 1);
            }
            1 if payload64 => return Ok(acquired(space.read_u64(self.report)? == self.payload, gpu)),
            1 => return Ok(acquired(space.read_u32(self.report)? == self.payload as u32, gpu)),
            // REPORT_ONLY and TRAP raise interrupts, which are not handled here.
            _ => {}
        }
        Ok(Flow::Next)
    }

    /// SET_REPORT_SEMAPHORE_D: OPERATION 1:0, STRUCTURE_SIZE 28 (1: one word), REDUCTION_ENABLE 3, REDUCTION_OP 11:9.
    fn old_execute(&mut self, data: u32, channel: &Channel, gpu: &Runlists) -> Result<(), Fault> {
        if data & 3 != 0 {
            return Ok(());
        }
        let one = data >> 28 & 1 != 0;
        let shape = if one { Shape::OneWord } else { Shape::FourWords { payload64: false } };
        if data >> 3 & 1 != 0 {
            let op = Reduction::of_engine(data >> 9 & 7).ok_or(Fault::engine("REDUCTION_OP", data.into()))?;
            semaphore::reduce(
                gpu,
                &channel.space,
                self.old_report,
                self.old_payload.into(),
                shape,
                op,
                data >> 17 & 3 == 1,
            )?;
        } else {
            semaphore::release(gpu, &channel.space, self.old_report, self.old_payload.into(), shape)?;
        }
        add(&gpu.counters.releases, 1);
        Ok(())
    }

    fn pcas(&mut self, action: PcasAction, channel: &Channel, gpu: &Runlists) -> Result<(), Fault> {
        if matches!(action, PcasAction::Nop | PcasAction::Prefetch) {
            return Ok(());
        }
        // QMD_MAJOR_VERSION, bits 583:580 in V01 to V04.
        match channel.space.read_u32(self.qmd + VERSION)? >> 4 & 15 {
            4 => self.kernels.pcas(self.qmd, action, channel, gpu),
            3 => {
                let mut words = [0u32; QMD_WORDS];
                for (i, word) in words.iter_mut().enumerate() {
                    *word = channel.space.read_u32(self.qmd + 4 * i as u64)?;
                }
                launch_v03(&words, action, channel, gpu)
            }
            version => Err(Fault::engine("QMD version", version.into())),
        }
    }
}

/// Actions with SCHEDULE in their name launch; all others have no effect.
fn launch_v03(words: &[u32], action: PcasAction, channel: &Channel, gpu: &Runlists) -> Result<(), Fault> {
    if matches!(action.code(), 2 | 3 | 9 | 0xa | 0xb) {
        release::run(words, &release::V03, channel, gpu)?;
        add(&gpu.counters.launches, 1);
    }
    Ok(())
}

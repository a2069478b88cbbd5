//! The compute class (0xC3C0 to 0xCBC0): launches, report semaphores, and inline-to-memory on the way.
//!
//! No kernel is executed. A launch reads its QMD (a QMD that is not there is a fault), releases the semaphores that the QMD
//! asks for, and is counted.

use super::channel::Channel;
use super::host::acquired;
use super::inline::{self, Inline};
use super::semaphore::{self, Reduction, Shape};
use super::{Fault, Flow, Runlists};
use crate::counters::add;

const SET_REPORT_SEMAPHORE_PAYLOAD_LOWER: u16 = 0x158;
const SET_REPORT_SEMAPHORE_PAYLOAD_UPPER: u16 = 0x15c;
const SET_REPORT_SEMAPHORE_ADDRESS_LOWER: u16 = 0x160;
const SET_REPORT_SEMAPHORE_ADDRESS_UPPER: u16 = 0x164;
const REPORT_SEMAPHORE_EXECUTE: u16 = 0x168;
const SEND_PCAS_A: u16 = 0x2b4;
const SEND_SIGNALING_PCAS_B: u16 = 0x2bc;
const SEND_SIGNALING_PCAS2_B: u16 = 0x2c0;
const SET_INLINE_QMD_ADDRESS_A: u16 = 0x318;
const SET_INLINE_QMD_ADDRESS_B: u16 = 0x31c;
const LOAD_INLINE_QMD_DATA: u16 = 0x320;
const LOAD_INLINE_QMD_DATA_END: u16 = LOAD_INLINE_QMD_DATA + 96 * 4;
const SET_REPORT_SEMAPHORE_A: u16 = 0x1b00;
const SET_REPORT_SEMAPHORE_B: u16 = 0x1b04;
const SET_REPORT_SEMAPHORE_C: u16 = 0x1b08;
const SET_REPORT_SEMAPHORE_D: u16 = 0x1b0c;

/// Words of a V03 QMD; V04 has 96.
const QMD_WORDS: usize = 64;
const QMD_WORDS_V04: usize = 96;

#[derive(Debug, Default)]
pub struct Compute {
    inline: Inline,
    report: u64,
    payload: u64,
    old_report: u64,
    old_payload: u32,
    qmd: u64,
    inline_qmd: u64,
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
            // SCHEDULE bit 1
            SEND_SIGNALING_PCAS_B if data >> 1 & 1 != 0 => self.launch(channel, gpu)?,
            // PCAS_ACTION 3:0: SCHEDULE, INVALIDATE_COPY_SCHEDULE, PREFETCH_SCHEDULE, INVALIDATE_PREFETCH_COPY_SCHEDULE,
            // INVALIDATE_PREFETCH_COPY_FORCE_REQUIRE_SCHEDULING
            SEND_SIGNALING_PCAS2_B if matches!(data & 15, 2 | 3 | 9 | 0xa | 0xb) => self.launch(channel, gpu)?,
            // QMD_ADDRESS_SHIFTED8_UPPER 8:0
            SET_INLINE_QMD_ADDRESS_A => {
                self.inline_qmd = self.inline_qmd & 0xff_ffff_ffff | u64::from(data & 0x1ff) << 40;
            }
            SET_INLINE_QMD_ADDRESS_B => self.inline_qmd = self.inline_qmd & !0xff_ffff_ffff | u64::from(data) << 8,
            LOAD_INLINE_QMD_DATA..LOAD_INLINE_QMD_DATA_END => {
                channel.space.write_u32(self.inline_qmd + u64::from(address - LOAD_INLINE_QMD_DATA), data)?;
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
            // REPORT_ONLY and TRAP raise interrupts, which nobody listens to.
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

    fn launch(&mut self, channel: &Channel, gpu: &Runlists) -> Result<(), Fault> {
        let mut words = [0u32; QMD_WORDS_V04];
        for (i, word) in words[..QMD_WORDS].iter_mut().enumerate() {
            *word = channel.space.read_u32(self.qmd + 4 * i as u64)?;
        }
        // QMD_MAJOR_VERSION, bits 583:580 in V01 to V04.
        let releases = match bits(&words, 580, 4) {
            4 => {
                for (i, word) in words.iter_mut().enumerate().skip(QMD_WORDS) {
                    *word = channel.space.read_u32(self.qmd + 4 * i as u64)?;
                }
                V04
            }
            3 => V03,
            version => return Err(Fault::engine("QMD version", version)),
        };
        for at in releases.iter().filter(|at| bits(&words, at.enable, 1) != 0) {
            let va = bits(&words, at.address, 32) | bits(&words, at.address + 32, at.upper_bits) << 32;
            let payload = bits(&words, at.payload, 32) | bits(&words, at.payload + 32, 32) << 32;
            let shape = shape(bits(&words, at.size, 2) as u32, bits(&words, at.payload64, 1) != 0)
                .ok_or(Fault::engine("QMD release structure size", self.qmd))?;
            semaphore::release(gpu, &channel.space, va, payload, shape)?;
            add(&gpu.counters.releases, 1);
        }
        add(&gpu.counters.launches, 1);
        Ok(())
    }
}

/// SEMAPHORE_FOUR_WORDS 0, ONE_WORD 1, TWO_WORDS 2.
fn shape(size: u32, payload64: bool) -> Option<Shape> {
    match size {
        0 => Some(Shape::FourWords { payload64 }),
        1 => Some(Shape::OneWord),
        2 => Some(Shape::TwoWords),
        _ => None,
    }
}

/// Where a QMD keeps one release semaphore: bit offsets.
struct Release {
    enable: usize,
    size: usize,
    payload64: usize,
    address: usize,
    upper_bits: usize,
    payload: usize,
}

/// QMDV03_00: RELEASEn_ENABLE, _STRUCTURE_SIZE, _PAYLOAD64B, _ADDRESS_LOWER, _PAYLOAD_LOWER.
const V03: &[Release] = &[
    Release { enable: 823, size: 830, payload64: 829, address: 768, upper_bits: 8, payload: 832 },
    Release { enable: 951, size: 958, payload64: 957, address: 896, upper_bits: 8, payload: 960 },
    Release { enable: 1719, size: 1726, payload64: 1725, address: 1664, upper_bits: 8, payload: 1728 },
];

/// QMDV04_00: RELEASE_ENABLE(i), RELEASE_STRUCTURE_SIZE(i), RELEASE_PAYLOAD64B(i), RELEASE_SEMAPHOREi_ADDR, _PAYLOAD.
const V04: &[Release] = &[
    Release { enable: 320, size: 321, payload64: 332, address: 640, upper_bits: 25, payload: 704 },
    Release { enable: 336, size: 337, payload64: 348, address: 768, upper_bits: 25, payload: 832 },
    Release { enable: 352, size: 353, payload64: 364, address: 896, upper_bits: 25, payload: 960 },
];

/// A field that lies within one word.
fn bits(words: &[u32], at: usize, count: usize) -> u64 {
    let word = words.get(at / 32).copied().unwrap_or(0);
    u64::from(word >> (at % 32)) & (u64::MAX >> (64 - count))
}

//! Host methods (classes 0xC36F to 0xC86F, byte offsets below 0x100): what the PBDMA itself executes.

use super::channel::Channel;
use super::semaphore::{self, Reduction, Shape};
use super::{Fault, Flow, Runlists};
use crate::counters::add;
use crate::doorbell::USERD_REFERENCE;

const NOP: u16 = 0x08;
const SEMAPHOREA: u16 = 0x10;
const SEMAPHOREB: u16 = 0x14;
const SEMAPHOREC: u16 = 0x18;
const SEMAPHORED: u16 = 0x1c;
const NON_STALL_INTERRUPT: u16 = 0x20;
const FB_FLUSH: u16 = 0x24;
const MEM_OP_A: u16 = 0x28;
const MEM_OP_D: u16 = 0x34;
const SET_REFERENCE: u16 = 0x50;
const SEM_ADDR_LO: u16 = 0x5c;
const SEM_ADDR_HI: u16 = 0x60;
const SEM_PAYLOAD_LO: u16 = 0x64;
const SEM_PAYLOAD_HI: u16 = 0x68;
const SEM_EXECUTE: u16 = 0x6c;
const WFI: u16 = 0x78;
const RELEASE_WFI: u32 = 1 << 20;
const YIELD: u16 = 0x80;
const CLEAR_FAULTED: u16 = 0x84;

/// The host's registers of one channel.
#[derive(Debug, Default)]
pub struct Host {
    old_address: u64,
    old_payload: u32,
    address: u64,
    payload: u64,
}

fn set_hi(value: u64, hi: u32) -> u64 {
    value & 0xffff_ffff | u64::from(hi) << 32
}

fn set_lo(value: u64, lo: u32) -> u64 {
    value & !0xffff_ffff | u64::from(lo)
}

impl Host {
    /// `idle`: no kernel of the channel is active.
    pub(super) fn method(
        &mut self,
        address: u16,
        data: u32,
        channel: &Channel,
        gpu: &Runlists,
        idle: bool,
    ) -> Result<Flow, Fault> {
        match address {
            WFI | SET_REFERENCE if !idle => return Ok(Flow::Blocked),
            // Everything before is complete when a method is executed here, except kernels, so no flush is needed.
            NOP | NON_STALL_INTERRUPT | FB_FLUSH | WFI | YIELD | CLEAR_FAULTED | MEM_OP_A..MEM_OP_D => {}
            MEM_OP_D => match data >> 27 {
                0x05 | 0x09 | 0x0a | 0x0b | 0x0d..=0x10 | 0x15 | 0x16 => {}
                _ => return Err(Fault::pbdma("MEM_OP_D operation", data.into())),
            },
            SET_REFERENCE => channel.set_userd_word(USERD_REFERENCE, data),
            SEMAPHOREA => self.old_address = set_hi(self.old_address, data & 0xff),
            SEMAPHOREB => self.old_address = set_lo(self.old_address, data & !3),
            SEMAPHOREC => self.old_payload = data,
            SEMAPHORED => {
                // OPERATION RELEASE, RELEASE_WFI 20 (0: wait)
                if data & 0x1f == 2 && data & RELEASE_WFI == 0 && !idle {
                    return Ok(Flow::Blocked);
                }
                return self.old_semaphore(data, channel, gpu);
            }
            SEM_ADDR_LO => self.address = set_lo(self.address, data & !3),
            // OFFSET 7:0 before Hopper, 24:0 since.
            SEM_ADDR_HI => {
                let bits = if channel.class >= 0xc86f { 0x1ff_ffff } else { 0xff };
                self.address = set_hi(self.address, data & bits);
            }
            SEM_PAYLOAD_LO => self.payload = set_lo(self.payload, data),
            SEM_PAYLOAD_HI => self.payload = set_hi(self.payload, data),
            SEM_EXECUTE => {
                // OPERATION RELEASE and REDUCTION, RELEASE_WFI 20 (1: wait)
                if matches!(data & 7, 1 | 6) && data & RELEASE_WFI != 0 && !idle {
                    return Ok(Flow::Blocked);
                }
                return self.execute(data, channel, gpu);
            }
            // ILLEGAL (+0x4) among them.
            _ => return Err(Fault::pbdma("unknown host method", address.into())),
        }
        Ok(Flow::Next)
    }

    /// SEM_EXECUTE: OPERATION 2:0, PAYLOAD_SIZE 24, RELEASE_TIMESTAMP 25, REDUCTION 30:27, REDUCTION_FORMAT 31.
    fn execute(&mut self, data: u32, channel: &Channel, gpu: &Runlists) -> Result<Flow, Fault> {
        let space = &channel.space;
        let wide = data >> 24 & 1 != 0;
        let shape = match (data >> 25 & 1 != 0, wide) {
            (true, payload64) => Shape::FourWords { payload64 },
            (false, true) => Shape::TwoWords,
            (false, false) => Shape::OneWord,
        };
        let operation = data & 7;
        match operation {
            1 => {
                semaphore::release(gpu, space, self.address, self.payload, shape)?;
                add(&gpu.counters.releases, 1);
                return Ok(Flow::Next);
            }
            6 => {
                let op = Reduction::of_host(data >> 27 & 15).ok_or(Fault::pbdma("reduction", data.into()))?;
                semaphore::reduce(gpu, space, self.address, self.payload, shape, op, data >> 31 == 0)?;
                add(&gpu.counters.releases, 1);
                return Ok(Flow::Next);
            }
            7 => return Err(Fault::pbdma("SEM_EXECUTE operation", data.into())),
            _ => {}
        }
        if !self.address.is_multiple_of(if wide { 8 } else { 4 }) {
            return Err(Fault::pbdma("semaphore address not aligned", self.address));
        }
        let (value, payload, ones) = if wide {
            (space.read_u64(self.address)?, self.payload, u64::MAX)
        } else {
            (space.read_u32(self.address)?.into(), self.payload & 0xffff_ffff, 0xffff_ffff)
        };
        let half = ones / 2 + 1;
        let holds = match operation {
            0 => value == payload,
            // ACQ_STRICT_GEQ
            2 => value >= payload,
            // ACQ_CIRC_GEQ: the difference is not negative.
            3 => value.wrapping_sub(payload) & half == 0,
            // ACQ_AND
            4 => value & payload != 0,
            // ACQ_NOR
            _ => !(value | payload) & ones != 0,
        };
        Ok(acquired(holds, gpu))
    }

    /// SEMAPHORED: OPERATION 4:0, RELEASE_SIZE 24 (1: 4 bytes), REDUCTION 30:27, FORMAT 31.
    fn old_semaphore(&mut self, data: u32, channel: &Channel, gpu: &Runlists) -> Result<Flow, Fault> {
        let space = &channel.space;
        let payload = self.old_payload;
        let holds = match data & 0x1f {
            0x01 => space.read_u32(self.old_address)? == payload,
            0x04 => space.read_u32(self.old_address)?.wrapping_sub(payload) as i32 >= 0,
            0x08 => space.read_u32(self.old_address)? & payload != 0,
            0x02 => {
                let one = data >> 24 & 1 != 0;
                let shape = if one { Shape::OneWord } else { Shape::FourWords { payload64: false } };
                semaphore::release(gpu, space, self.old_address, payload.into(), shape)?;
                add(&gpu.counters.releases, 1);
                return Ok(Flow::Next);
            }
            0x10 => {
                let op = Reduction::of_host(data >> 27 & 15).ok_or(Fault::pbdma("reduction", data.into()))?;
                semaphore::reduce(gpu, space, self.old_address, payload.into(), Shape::OneWord, op, data >> 31 == 0)?;
                add(&gpu.counters.releases, 1);
                return Ok(Flow::Next);
            }
            _ => return Err(Fault::pbdma("SEMAPHORED operation", data.into())),
        };
        Ok(acquired(holds, gpu))
    }
}

pub(super) fn acquired(holds: bool, gpu: &Runlists) -> Flow {
    if holds {
        add(&gpu.counters.acquires, 1);
        return Flow::Next;
    }
    Flow::Blocked
}

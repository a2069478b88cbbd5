//! Inline-to-memory: data in the pushbuffer itself. The methods are the same in class 0xA140 and in every compute class.

use super::channel::Channel;
use super::semaphore::{self, Reduction, Shape};
use super::{Fault, Runlists};
use crate::counters::add;

pub const LINE_LENGTH_IN: u16 = 0x180;
pub const LINE_COUNT: u16 = 0x184;
pub const OFFSET_OUT_UPPER: u16 = 0x188;
pub const OFFSET_OUT: u16 = 0x18c;
pub const PITCH_OUT: u16 = 0x190;
pub const LAUNCH_DMA: u16 = 0x1b0;
pub const LOAD_INLINE_DATA: u16 = 0x1b4;
pub const SET_I2M_SEMAPHORE_A: u16 = 0x1dc;
pub const SET_I2M_SEMAPHORE_B: u16 = 0x1e0;
pub const SET_I2M_SEMAPHORE_C: u16 = 0x1e4;

#[derive(Debug, Default)]
pub struct Inline {
    line_length: u32,
    line_count: u32,
    target: u64,
    pitch: u32,
    semaphore: u64,
    payload: u32,
    load: Option<Load>,
}

/// A transfer that waits for the rest of its data.
#[derive(Debug)]
struct Load {
    launch: u32,
    /// Bytes of a line, as they were at the launch.
    line: usize,
    data: Vec<u8>,
    /// Bytes, each line rounded up to words.
    expected: usize,
}

impl Inline {
    pub(super) fn method(&mut self, address: u16, data: u32, channel: &Channel, gpu: &Runlists) -> Result<(), Fault> {
        match address {
            LINE_LENGTH_IN => self.line_length = data,
            LINE_COUNT => self.line_count = data,
            OFFSET_OUT_UPPER => self.target = self.target & 0xffff_ffff | u64::from(data & 0x1ff_ffff) << 32,
            OFFSET_OUT => self.target = self.target & !0xffff_ffff | u64::from(data),
            PITCH_OUT => self.pitch = data,
            SET_I2M_SEMAPHORE_A => self.semaphore = self.semaphore & 0xffff_ffff | u64::from(data & 0x1ff_ffff) << 32,
            SET_I2M_SEMAPHORE_B => self.semaphore = self.semaphore & !0xffff_ffff | u64::from(data),
            SET_I2M_SEMAPHORE_C => self.payload = data,
            LAUNCH_DMA => return self.launch(data, channel, gpu),
            LOAD_INLINE_DATA => return self.load(data, channel, gpu),
            _ => {}
        }
        Ok(())
    }

    /// LAUNCH_DMA: DST_MEMORY_LAYOUT 0 (1: pitch), REDUCTION_ENABLE 1, REDUCTION_FORMAT 3:2, COMPLETION_TYPE 5:4,
    /// SEMAPHORE_STRUCT_SIZE 12 (1: one word), REDUCTION_OP 15:13.
    fn launch(&mut self, data: u32, channel: &Channel, gpu: &Runlists) -> Result<(), Fault> {
        if self.load.is_some() {
            return Err(Fault::engine("LAUNCH_DMA before all inline data has come", data.into()));
        }
        if data & 1 == 0 {
            return Err(Fault::engine("block-linear layout not modelled", data.into()));
        }
        let line = (self.line_length as usize).next_multiple_of(4);
        let expected = line.saturating_mul(self.line_count as usize);
        self.load = Some(Load { launch: data, line: self.line_length as usize, data: Vec::new(), expected });
        if expected == 0 { self.complete(channel, gpu) } else { Ok(()) }
    }

    fn load(&mut self, data: u32, channel: &Channel, gpu: &Runlists) -> Result<(), Fault> {
        let load = self.load.as_mut().ok_or(Fault::engine("LOAD_INLINE_DATA without LAUNCH_DMA", data.into()))?;
        load.data.extend_from_slice(&data.to_le_bytes());
        if load.data.len() < load.expected { Ok(()) } else { self.complete(channel, gpu) }
    }

    fn complete(&mut self, channel: &Channel, gpu: &Runlists) -> Result<(), Fault> {
        let Some(load) = self.load.take() else { return Ok(()) };
        let length = load.line;
        let mut to = self.target;
        let mut bytes = 0;
        for line in load.data.chunks_exact(length.next_multiple_of(4).max(4)) {
            channel.space.write(to, &line[..length])?;
            bytes += length as u64;
            to = to.wrapping_add(self.pitch.into());
        }
        add(&gpu.counters.inline_copies, 1);
        add(&gpu.counters.inline_bytes, bytes);
        if load.launch >> 4 & 3 != 2 {
            return Ok(());
        }
        let one = load.launch >> 12 & 1 != 0;
        let shape = if one { Shape::OneWord } else { Shape::FourWords { payload64: false } };
        let payload = self.payload.into();
        if load.launch >> 1 & 1 != 0 {
            let op =
                Reduction::of_engine(load.launch >> 13 & 7).ok_or(Fault::engine("REDUCTION_OP", load.launch.into()))?;
            semaphore::reduce(gpu, &channel.space, self.semaphore, payload, shape, op, load.launch >> 2 & 3 == 1)?;
        } else {
            semaphore::release(gpu, &channel.space, self.semaphore, payload, shape)?;
        }
        add(&gpu.counters.releases, 1);
        Ok(())
    }
}

//! The copy engine (classes 0xC3B5 to 0xCAB5): pitch copies, fills by remapping, semaphores.

use super::channel::Channel;
use super::semaphore::{self, Reduction, Shape};
use super::{Fault, Runlists};
use crate::counters::add;
use std::collections::HashMap;

const SET_SEMAPHORE_A: u16 = 0x240;
const SET_SEMAPHORE_B: u16 = 0x244;
const SET_SEMAPHORE_PAYLOAD: u16 = 0x248;
const SET_SEMAPHORE_PAYLOAD_UPPER: u16 = 0x24c;
const LAUNCH_DMA: u16 = 0x300;
const OFFSET_IN_UPPER: u16 = 0x400;
const OFFSET_IN_LOWER: u16 = 0x404;
const OFFSET_OUT_UPPER: u16 = 0x408;
const OFFSET_OUT_LOWER: u16 = 0x40c;
const PITCH_IN: u16 = 0x410;
const PITCH_OUT: u16 = 0x414;
const LINE_LENGTH_IN: u16 = 0x418;
const LINE_COUNT: u16 = 0x41c;
const SET_REMAP_CONST_A: u16 = 0x700;
const SET_REMAP_CONST_B: u16 = 0x704;
const SET_REMAP_COMPONENTS: u16 = 0x708;

/// Bytes moved at a time.
const CHUNK: u64 = 64 << 10;

/// The last value of every method: the engine's state between launches.
#[derive(Debug, Default)]
pub struct Copy {
    registers: HashMap<u16, u32>,
    buffer: Vec<u8>,
}

impl Copy {
    fn get(&self, address: u16) -> u32 {
        self.registers.get(&address).copied().unwrap_or(0)
    }

    /// 57-bit addresses: UPPER 24:0.
    fn address(&self, upper: u16, lower: u16) -> u64 {
        u64::from(self.get(upper) & 0x1ff_ffff) << 32 | u64::from(self.get(lower))
    }

    pub(super) fn method(&mut self, address: u16, data: u32, channel: &Channel, gpu: &Runlists) -> Result<(), Fault> {
        self.registers.insert(address, data);
        if address == LAUNCH_DMA { self.launch(data, channel, gpu) } else { Ok(()) }
    }

    /// LAUNCH_DMA: DATA_TRANSFER_TYPE 1:0, SEMAPHORE_TYPE 4:3, SRC_MEMORY_LAYOUT 7, DST_MEMORY_LAYOUT 8, MULTI_LINE 9,
    /// REMAP 10, SRC_TYPE 12, DST_TYPE 13, SEMAPHORE_REDUCTION 17:14, sign 18, enable 19, SEMAPHORE_PAYLOAD_SIZE 27.
    fn launch(&mut self, data: u32, channel: &Channel, gpu: &Runlists) -> Result<(), Fault> {
        let transfer = data & 3;
        if transfer == 3 {
            return Err(Fault::engine("LAUNCH_DMA DATA_TRANSFER_TYPE", data.into()));
        }
        if transfer != 0 {
            // Physical addresses are not modelled; a channel that denies them is refused on real hardware too.
            if data >> 12 & 3 != 0 {
                let what =
                    if channel.deny_physical { "physical address denied" } else { "physical address not modelled" };
                return Err(Fault::engine(what, data.into()));
            }
            let remap = data >> 10 & 1 != 0;
            let fill = remap && self.reads_nothing();
            if data >> 8 & 1 == 0 || !fill && data >> 7 & 1 == 0 {
                return Err(Fault::engine("block-linear layout not modelled", data.into()));
            }
            self.transfer(data >> 9 & 1 != 0, remap, fill, channel, gpu)?;
        }
        self.semaphore(data, channel, gpu)
    }

    fn transfer(&mut self, lines: bool, remap: bool, fill: bool, ch: &Channel, gpu: &Runlists) -> Result<(), Fault> {
        let (source, target) =
            (self.address(OFFSET_IN_UPPER, OFFSET_IN_LOWER), self.address(OFFSET_OUT_UPPER, OFFSET_OUT_LOWER));
        let count = if lines { self.get(LINE_COUNT) } else { 1 };
        // Lines without bytes access no memory, whatever their number.
        let count = if self.get(LINE_LENGTH_IN) == 0 { 0 } else { count };
        let (pitch_in, pitch_out) = (self.get(PITCH_IN) as i32 as i64, self.get(PITCH_OUT) as i32 as i64);
        let length = u64::from(self.get(LINE_LENGTH_IN));
        let mut moved = 0;
        for line in 0..i64::from(count) {
            let from = source.wrapping_add_signed(line.wrapping_mul(pitch_in));
            let to = target.wrapping_add_signed(line.wrapping_mul(pitch_out));
            moved += if remap {
                self.remap_line(from, to, length, fill, ch)?
            } else {
                self.copy_line(from, to, length, ch, gpu)?
            };
        }
        if fill {
            add(&gpu.counters.fills, 1);
        } else {
            add(&gpu.counters.copies, 1);
            add(&gpu.counters.copy_bytes, moved);
        }
        Ok(())
    }

    fn copy_line(&mut self, from: u64, to: u64, length: u64, ch: &Channel, gpu: &Runlists) -> Result<u64, Fault> {
        let (written, reads) = (gpu.plot.line(length), gpu.plot.reads());
        let mut done = 0;
        while done < length {
            let part = CHUNK.min(length - done);
            self.buffer.resize(part as usize, 0);
            for _ in 0..reads {
                ch.space.read(from.wrapping_add(done), &mut self.buffer)?;
            }
            self.buffer.truncate((written.max(done) - done) as usize);
            ch.space.write(to.wrapping_add(done), &self.buffer)?;
            done += part;
        }
        if written > length {
            let past = to.wrapping_add(length);
            let mut byte = [0];
            if ch.space.read(past, &mut byte).is_ok() {
                ch.space.write(past, &[!byte[0]])?;
            }
        }
        Ok(length)
    }

    /// SET_REMAP_COMPONENTS: DST_X 2:0, Y 6:4, Z 10:8, W 14:12, COMPONENT_SIZE 17:16, NUM_SRC 21:20, NUM_DST 25:24, each
    /// size and number less one.
    fn components(&self) -> (usize, usize, usize, [u32; 4]) {
        let word = self.get(SET_REMAP_COMPONENTS);
        let field = |shift: u32| (word >> shift & 3) as usize + 1;
        (field(16), field(20), field(24), [word & 7, word >> 4 & 7, word >> 8 & 7, word >> 12 & 7])
    }

    /// Every destination component is a constant or is not written: the source is not read.
    fn reads_nothing(&self) -> bool {
        let (_, _, targets, select) = self.components();
        select[..targets].iter().all(|&s| s >= 4)
    }

    /// LINE_LENGTH_IN counts elements here.
    fn remap_line(&mut self, from: u64, to: u64, length: u64, fill: bool, channel: &Channel) -> Result<u64, Fault> {
        let (size, sources, targets, select) = self.components();
        let constants = [self.get(SET_REMAP_CONST_A).to_le_bytes(), self.get(SET_REMAP_CONST_B).to_le_bytes()];
        let (source_bytes, target_bytes) = ((size * sources) as u64, (size * targets) as u64);
        let keeps = select[..targets].contains(&6);
        let (mut source, mut target) = (Vec::new(), Vec::new());
        let step = CHUNK / 16;
        let mut done = 0;
        while done < length {
            let part = step.min(length - done);
            target.resize((part * target_bytes) as usize, 0);
            if keeps {
                channel.space.read(to.wrapping_add(done * target_bytes), &mut target)?;
            }
            if !fill {
                source.resize((part * source_bytes) as usize, 0);
                channel.space.read(from.wrapping_add(done * source_bytes), &mut source)?;
            }
            for element in 0..part as usize {
                for (component, &chosen) in select[..targets].iter().enumerate() {
                    let into = &mut target[(element * targets + component) * size..][..size];
                    match chosen {
                        0..=3 if (chosen as usize) < sources => {
                            into.copy_from_slice(&source[(element * sources + chosen as usize) * size..][..size]);
                        }
                        4 | 5 => into.copy_from_slice(&constants[chosen as usize - 4][..size]),
                        6 => {}
                        _ => return Err(Fault::engine("SET_REMAP_COMPONENTS", self.get(SET_REMAP_COMPONENTS).into())),
                    }
                }
            }
            channel.space.write(to.wrapping_add(done * target_bytes), &target)?;
            done += part;
        }
        Ok(length * target_bytes)
    }

    fn semaphore(&self, data: u32, channel: &Channel, gpu: &Runlists) -> Result<(), Fault> {
        let wide = data >> 27 & 1 != 0;
        let shape = match (data >> 3 & 3, wide) {
            (0, _) => return Ok(()),
            (1, false) => Shape::OneWord,
            (1, true) => Shape::TwoWords,
            (2, payload64) => Shape::FourWords { payload64 },
            _ => return Err(Fault::engine("conditional interrupt semaphore not modelled", data.into())),
        };
        let va = self.address(SET_SEMAPHORE_A, SET_SEMAPHORE_B);
        let payload =
            u64::from(self.get(SET_SEMAPHORE_PAYLOAD_UPPER)) << 32 | u64::from(self.get(SET_SEMAPHORE_PAYLOAD));
        if data >> 19 & 1 != 0 {
            let op = Reduction::of_host(data >> 14 & 15).ok_or(Fault::engine("SEMAPHORE_REDUCTION", data.into()))?;
            semaphore::reduce(gpu, &channel.space, va, payload, shape, op, data >> 18 & 1 == 0)?;
        } else {
            semaphore::release(gpu, &channel.space, va, payload, shape)?;
        }
        add(&gpu.counters.releases, 1);
        Ok(())
    }
}

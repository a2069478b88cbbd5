//! The copy engine's registers (classes 0xC3B5 to 0xCAB5, which agree on offsets and bits) and what LAUNCH_DMA makes of them.

use super::{Component, Copy, Fill, Layout, Origin, Remap, Semaphore, Space, Transfer, What, address};
use crate::semaphore::{Operation, Reduction};

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Registers {
    semaphore: [u32; 4],
    /// OFFSET_IN_UPPER (0x400) to LINE_COUNT (0x41C).
    transfer: [u32; 8],
    const_a: u32,
    const_b: u32,
    components: u32,
    /// Registers whose value is not known, a bit each: `semaphore` from 0, `transfer` from 4, then the constants and components.
    unknown: u16,
}

crate::snapshot!(Registers { semaphore, transfer, const_a, const_b, components, unknown });

const CONST_A: u16 = 1 << 12;
const CONST_B: u16 = 1 << 13;
const COMPONENTS: u16 = 1 << 14;

const SET_SEMAPHORE_A: u16 = 0x240;
const SET_SEMAPHORE_PAYLOAD_UPPER: u16 = 0x24c;
pub(super) const LAUNCH_DMA: u16 = 0x300;
const OFFSET_IN_UPPER: u16 = 0x400;
const LINE_COUNT: u16 = 0x41c;
const SET_REMAP_CONST_A: u16 = 0x700;
const SET_REMAP_CONST_B: u16 = 0x704;
const SET_REMAP_COMPONENTS: u16 = 0x708;

fn layout(pitch: bool) -> Layout {
    if pitch { Layout::Pitch } else { Layout::BlockLinear }
}

fn space(physical: bool) -> Space {
    if physical { Space::Physical } else { Space::Virtual }
}

impl Registers {
    pub(super) fn write(&mut self, offset: u16, value: u32) {
        let (slot, bit) = match offset {
            SET_SEMAPHORE_A..=SET_SEMAPHORE_PAYLOAD_UPPER => {
                let i = (offset - SET_SEMAPHORE_A) / 4;
                (self.semaphore.get_mut(usize::from(i)), 1 << i)
            }
            OFFSET_IN_UPPER..=LINE_COUNT => {
                let i = (offset - OFFSET_IN_UPPER) / 4;
                (self.transfer.get_mut(usize::from(i)), 1 << (4 + i))
            }
            SET_REMAP_CONST_A => (Some(&mut self.const_a), CONST_A),
            SET_REMAP_CONST_B => (Some(&mut self.const_b), CONST_B),
            SET_REMAP_COMPONENTS => (Some(&mut self.components), COMPONENTS),
            _ => return,
        };
        if let Some(slot) = slot {
            *slot = value;
        }
        self.unknown &= !bit;
    }

    /// Words are missing: no register is known until it is written again.
    pub(super) fn forget(&mut self) {
        *self = Registers { unknown: u16::MAX, ..Registers::default() };
    }

    /// True if this LAUNCH_DMA uses a register that is not known.
    pub(super) fn guesses(&self, launch: u32) -> bool {
        let bit = |i: u32| launch >> i & 1 != 0;
        let mut used = 0;
        if launch & 3 != 0 {
            // Addresses and line length; pitches and count of several lines.
            used |= 0b0100_1111 << 4;
            used |= if bit(9) { 0b1011_0000 << 4 } else { 0 };
            if bit(10) {
                used |= COMPONENTS;
                // A component may be a constant; a fill reads no source.
                let remap = Remap { components: self.components, const_a: self.const_a, const_b: self.const_b };
                let is =
                    |wanted: fn(Component) -> bool| self.unknown & COMPONENTS != 0 || remap.destination().any(wanted);
                used |= if is(|c| c == Component::ConstA) { CONST_A } else { 0 };
                used |= if is(|c| c == Component::ConstB) { CONST_B } else { 0 };
                used &= if is(|c| matches!(c, Component::Source(_))) { u16::MAX } else { !(0b0011 << 4) };
            }
        }
        if launch >> 3 & 3 != 0 {
            used |= 0b0111;
            used |= if bit(27) { 0b1000 } else { 0 };
        }
        self.unknown & used != 0
    }

    /// LAUNCH_DMA, +0x300. `None` if it neither moves data nor releases.
    pub(super) fn launch(&self, launch: u32) -> Option<What> {
        let bit = |i: u32| launch >> i & 1 != 0;
        let semaphore = self.release(launch);
        let transfer = match launch & 3 {
            0 => return semaphore.map(What::Semaphore),
            1 => Transfer::Pipelined,
            2 => Transfer::NonPipelined,
            _ => Transfer::Prefetch,
        };
        let [src_hi, src_lo, dst_hi, dst_lo, src_pitch, dst_pitch, line_length, line_count] = self.transfer;
        let (flush, multi_line) = (bit(2), bit(9));
        let line_count = if multi_line { line_count } else { 1 };
        let (dst, dst_layout, dst_space) = (address(dst_hi, dst_lo), layout(bit(8)), space(bit(13)));
        let remap =
            bit(10).then_some(Remap { components: self.components, const_a: self.const_a, const_b: self.const_b });
        if let Some((element_bytes, pattern, written)) = remap.and_then(|r| pattern(&r)) {
            let (elements, lines) = (line_length, line_count);
            return Some(What::Fill(Fill {
                dst,
                dst_pitch,
                elements,
                lines,
                element_bytes,
                pattern,
                written,
                transfer,
                dst_layout,
                dst_space,
                flush,
                semaphore,
                launch,
            }));
        }
        Some(What::Copy(Copy {
            src: address(src_hi, src_lo),
            dst,
            line_length,
            line_count,
            src_pitch,
            dst_pitch,
            multi_line,
            transfer,
            src_layout: layout(bit(7)),
            dst_layout,
            src_space: space(bit(12)),
            dst_space,
            remap,
            scrub: bit(23),
            flush,
            semaphore,
            launch,
        }))
    }

    fn release(&self, launch: u32) -> Option<Semaphore> {
        let kind = launch >> 3 & 3;
        if kind == 0 {
            return None;
        }
        let [upper, lower, payload, payload_upper] = self.semaphore;
        // SEMAPHORE_PAYLOAD_SIZE=TWO_WORD, from class 0xC7B5 on; before that the bit is reserved.
        let wide = launch >> 27 & 1 != 0;
        let operation = if launch >> 19 & 1 != 0 {
            Operation::Reduction { op: Reduction::host(launch >> 14 & 15), signed: launch >> 18 & 1 == 0 }
        } else {
            Operation::Release
        };
        Some(Semaphore {
            origin: Origin::CopyEngine,
            operation,
            address: address(upper, lower),
            payload: if wide { u64::from(payload_upper) << 32 } else { 0 } | u64::from(payload),
            wide,
            timestamp: kind == 2,
            wfi: true,
        })
    }
}

/// One element and its written bytes, if no component comes from the source.
fn pattern(remap: &Remap) -> Option<(u32, [u8; 16], u16)> {
    let size = remap.component_bytes() as usize;
    let (mut bytes, mut written) = ([0u8; 16], 0u16);
    for ((i, component), slots) in remap.destination().enumerate().zip(bytes.chunks_mut(size)) {
        let value = match component {
            Component::ConstA => remap.const_a,
            Component::ConstB => remap.const_b,
            Component::NoWrite => continue,
            Component::Source(_) => return None,
        };
        slots.iter_mut().zip(value.to_le_bytes()).for_each(|(slot, byte)| *slot = byte);
        written |= (((1u32 << size) - 1) << (i * size)) as u16;
    }
    Some((remap.dst_bytes(), bytes, written))
}

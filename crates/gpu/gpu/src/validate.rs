//! The validator: which words may be sent to a GPU that others use.
//!
//! Walks over the words, accepts a short list of methods, and refuses all others. Registers keep their values from one
//! submission to the next, so a launch may only use values that the same pushbuffer has set.

use crate::architecture::Architecture;
use pushbuf::encode::subchannel::{COMPUTE, COPY};
use pushbuf::encode::{CONSTANT_CACHES, offset};
use pushbuf::header::{Header, Kind};

/// The maximum bytes of one transfer.
const MAX_BYTES: u64 = 1 << 30;
/// The maximum lines of one transfer.
const MAX_LINES: u32 = 1 << 16;

/// The ranges that addresses may point to, for example an [`crate::AddressSpace`].
pub trait Ranges {
    fn contains(&self, va: u64, length: u64) -> bool;

    /// Whether an acquire of this word may keep other channel groups off the GPU (without ACQUIRE_SWITCH_TSG). Only
    /// doorbell writes such a word, and soon.
    fn may_hold(&self, _va: u64) -> bool {
        false
    }
}

/// The rules for a channel's words.
#[derive(Clone, Copy)]
pub struct Rules<'a> {
    /// The architecture whose classes may be bound; it also defines the length of a QMD.
    pub architecture: &'a Architecture,
    /// Compute and inline-to-memory on subchannel 1; otherwise the copy engine on subchannel 4.
    pub graphics: bool,
    /// A copy engine on subchannel 4 of a graphics channel.
    pub copies: bool,
    /// QMDs that may be started, ascending. The memory that a kernel touches cannot be seen here, so a caller is
    /// responsible for each.
    pub launches: &'a [u64],
    pub space: &'a dyn Ranges,
}

/// Why a pushbuffer is refused, and at which word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("word {at}: {why} ({detail:#x})")]
pub struct Invalid {
    pub at: usize,
    pub why: &'static str,
    pub detail: u64,
}

#[derive(Default)]
struct State {
    /// Values that this pushbuffer has set, by engine method.
    copy: Registers,
    compute: Registers,
    host: Registers,
    /// Words of inline data still to come.
    inline: u64,
}

/// A few registers, found by method address: as many as the lists below let a pushbuffer set on one class (15, for the
/// copy engine). No allocation: some submissions are checked when they are made.
#[derive(Default)]
struct Registers {
    set: [(u16, u32); 16],
    count: usize,
}

impl Registers {
    fn set(&mut self, address: u16, value: u32) -> Verdict {
        if let Some((_, old)) = self.set[..self.count].iter_mut().find(|(a, _)| *a == address) {
            *old = value;
            return Ok(());
        }
        let free = self.set.get_mut(self.count).ok_or(("more registers than are known", address.into()))?;
        *free = (address, value);
        self.count += 1;
        Ok(())
    }

    fn get(&self, address: u16) -> Result<u32, (&'static str, u64)> {
        let found = self.set[..self.count].iter().find(|(a, _)| *a == address);
        found.map(|(_, v)| *v).ok_or(("a register that this pushbuffer does not set", address.into()))
    }

    fn address(&self, upper: u16, lower: u16) -> Result<u64, (&'static str, u64)> {
        Ok(u64::from(self.get(upper)?) << 32 | u64::from(self.get(lower)?))
    }
}

/// Checks a whole pushbuffer.
pub fn check(words: &[u32], rules: &Rules<'_>) -> Result<(), Invalid> {
    if words.is_empty() {
        return Err(Invalid { at: 0, why: "an empty pushbuffer", detail: 0 });
    }
    let mut state = State::default();
    let mut at = 0;
    while let Some(&word) = words.get(at) {
        let refuse = |why, detail| Invalid { at, why, detail };
        let (kind, subch, address, count) = match Header::parse(word) {
            Header::Nop => {
                at += 1;
                continue;
            }
            Header::Immediate { subch, address, value } => {
                state.method(subch, address, value.into(), rules).map_err(|(why, detail)| refuse(why, detail))?;
                at += 1;
                continue;
            }
            Header::Methods { kind: kind @ (Kind::Inc | Kind::NonInc | Kind::OneInc), subch, address, count } => {
                (kind, subch, address, usize::from(count))
            }
            _ => return Err(refuse("a header that is not used here", word.into())),
        };
        let data = words.get(at + 1..at + 1 + count).ok_or(refuse("a method sequence that ends early", word.into()))?;
        for (i, &value) in data.iter().enumerate() {
            let step = match kind {
                Kind::Inc => i,
                Kind::OneInc => i.min(1),
                _ => 0,
            };
            let method = u16::try_from(usize::from(address) + 4 * step).unwrap_or(u16::MAX);
            state.method(subch, method, value, rules).map_err(|(why, detail)| Invalid {
                at: at + 1 + i,
                why,
                detail,
            })?;
        }
        at += 1 + count;
    }
    if state.inline != 0 {
        return Err(Invalid { at, why: "inline data that ends early", detail: state.inline });
    }
    Ok(())
}

type Verdict = Result<(), (&'static str, u64)>;

impl State {
    fn method(&mut self, subch: u8, address: u16, value: u32, rules: &Rules<'_>) -> Verdict {
        if self.inline > 0 && !(subch == COMPUTE && address == 0x1b4) {
            return Err(("a method before all inline data has come", address.into()));
        }
        match (address, rules.graphics) {
            (0, true) if subch == COMPUTE && value == rules.architecture.compute => Ok(()),
            (0, graphics) if subch == COPY && value == rules.architecture.copy && (!graphics || rules.copies) => Ok(()),
            (0, _) => Err(("SET_OBJECT of another class or subchannel", u64::from(subch) << 32 | u64::from(value))),
            (1..0x100, _) => self.host_method(address, value, rules.space),
            (_, true) if subch == COMPUTE => self.compute_method(address, value, rules),
            (_, graphics) if subch == COPY && (!graphics || rules.copies) => {
                self.copy_method(address, value, rules.space)
            }
            _ => Err(("a subchannel without an object", subch.into())),
        }
    }

    /// NOP, WFI, and the semaphore methods SEM_ADDR_LO to SEM_EXECUTE.
    fn host_method(&mut self, address: u16, value: u32, space: &dyn Ranges) -> Verdict {
        match address {
            0x08 | 0x78 => Ok(()),
            0x5c | 0x60 | 0x64 | 0x68 => self.host.set(address, value),
            0x6c => {
                let execute = pushbuf::semaphore::Execute::parse(value);
                if matches!(execute.operation, pushbuf::semaphore::Operation::Reserved(_)) {
                    return Err(("SEM_EXECUTE operation", value.into()));
                }
                let va = self.host.address(0x60, 0x5c)?;
                self.host.get(0x64)?;
                if execute.wide {
                    self.host.get(0x68)?;
                }
                let length = if execute.timestamp {
                    16
                } else if execute.wide {
                    8
                } else {
                    4
                };
                within(space, va, length, execute.alignment())?;
                let waits = !matches!(
                    execute.operation,
                    pushbuf::semaphore::Operation::Release | pushbuf::semaphore::Operation::Reduction { .. }
                );
                if waits && !execute.switch_tsg && !space.may_hold(va) {
                    return Err(("an acquire that holds the channel group, of a word that somebody else writes", va));
                }
                Ok(())
            }
            _ => Err(("a host method that is not on the list", address.into())),
        }
    }

    fn copy_method(&mut self, address: u16, value: u32, space: &dyn Ranges) -> Verdict {
        match address {
            0x240 | 0x244 | 0x248 | 0x24c | 0x400..=0x41c | 0x700 | 0x704 | 0x708 => self.copy.set(address, value),
            0x100 => Ok(()),
            0x300 => self.launch_copy(value, space),
            _ => Err(("a copy method that is not on the list", address.into())),
        }
    }

    /// LAUNCH_DMA (+0x300): transfer type 1:0, flush 2, semaphore type 4:3, pitch 7 and 8, lines 9, remap 10, flush
    /// type 25, and the payload size 27. All other bits, above all physical addresses (12, 13), must be 0.
    fn launch_copy(&self, value: u32, space: &dyn Ranges) -> Verdict {
        const ALLOWED: u32 = 0x0a00_079f;
        if value & !ALLOWED != 0 {
            return Err(("LAUNCH_DMA bits that are not allowed", value.into()));
        }
        if value & 3 == 3 || value >> 3 & 3 == 3 {
            return Err(("LAUNCH_DMA transfer or semaphore type", value.into()));
        }
        if value & 3 != 0 {
            if value & 0x180 != 0x180 {
                return Err(("a layout that is not pitch", value.into()));
            }
            self.transfer(value, space)?;
        }
        if value >> 3 & 3 != 0 {
            let va = self.copy.address(0x240, 0x244)?;
            self.copy.get(0x248)?;
            let wide = value >> 27 & 1 != 0;
            if wide {
                self.copy.get(0x24c)?;
            }
            let length = if value >> 3 & 3 == 2 {
                16
            } else if wide {
                8
            } else {
                4
            };
            within(space, va, length, length)?;
        }
        Ok(())
    }

    fn transfer(&self, launch: u32, space: &dyn Ranges) -> Verdict {
        let length = self.copy.get(0x418)?;
        // The engine's behaviour for that is undocumented.
        if length == 0 {
            return Err(("a transfer of no bytes", 0));
        }
        let (mut read, mut written) = (u64::from(length), u64::from(length));
        if launch >> 10 & 1 != 0 {
            let components = self.copy.get(0x708)?;
            let field = |shift: u32| u64::from(components >> shift & 3) + 1;
            let select = |i: u64| components >> (4 * i) & 7;
            let constants: Vec<u32> = (0..field(24)).map(select).collect();
            // 7 is reserved; 0 to 3 name a component of the source, which must exist.
            if constants.iter().any(|&c| c == 7 || c < 4 && u64::from(c) >= field(20)) {
                return Err(("SET_REMAP_COMPONENTS", components.into()));
            }
            if constants.contains(&4) {
                self.copy.get(0x700)?;
            }
            if constants.contains(&5) {
                self.copy.get(0x704)?;
            }
            written *= field(16) * field(24);
            let reads = constants.iter().any(|&c| c < 4);
            read = if reads { read * field(16) * field(20) } else { 0 };
        }
        let lines = if launch >> 9 & 1 != 0 { self.copy.get(0x41c)? } else { 1 };
        // No lines: the engine's behaviour is undocumented, and no address would be checked.
        if lines == 0 {
            return Err(("a transfer of no lines", length.into()));
        }
        if lines > MAX_LINES || written.saturating_mul(lines.into()) > MAX_BYTES || read > MAX_BYTES {
            return Err(("a transfer that is too long", written));
        }
        for (upper, lower, pitch, bytes) in [(0x400, 0x404, 0x410, read), (0x408, 0x40c, 0x414, written)] {
            if bytes == 0 {
                continue;
            }
            let va = self.copy.address(upper, lower)?;
            let pitch = if lines > 1 { self.copy.get(pitch)? } else { 0 };
            all_lines(space, va, pitch, lines, bytes)?;
        }
        Ok(())
    }

    fn compute_method(&mut self, address: u16, value: u32, rules: &Rules<'_>) -> Verdict {
        let registers = &mut self.compute;
        match address {
            // NO_OPERATION, WAIT_FOR_IDLE
            0x100 | 0x110 => Ok(()),
            0x158 | 0x15c | 0x160 | 0x164 | 0x180..=0x190 | 0x1b00 | 0x1b04 | 0x1b08 => registers.set(address, value),
            // REPORT_SEMAPHORE_EXECUTE: release only; no reductions, traps or conditions.
            0x168 => {
                if value & !0x103c != 0 {
                    return Err(("REPORT_SEMAPHORE_EXECUTE bits that are not allowed", value.into()));
                }
                registers.get(0x158)?;
                registers.get(0x15c)?;
                let va = registers.address(0x164, 0x160)?;
                let length = match value >> 3 & 3 {
                    0 => 16,
                    1 => 4,
                    2 => 8,
                    _ => return Err(("REPORT_SEMAPHORE_EXECUTE structure size", value.into())),
                };
                within(rules.space, va, length, length)
            }
            // SET_REPORT_SEMAPHORE_D: RELEASE of four words or (28) one, FLUSH_DISABLE (2) or not.
            0x1b0c => {
                if value & !0x1000_0004 != 0 {
                    return Err(("SET_REPORT_SEMAPHORE_D bits that are not allowed", value.into()));
                }
                registers.get(0x1b08)?;
                let length = if value >> 28 == 0 { 16 } else { 4 };
                within(rules.space, registers.address(0x1b00, 0x1b04)?, length, length)
            }
            0x1b0 => self.launch_inline(value, rules.space),
            0x1b4 => {
                self.inline = self.inline.checked_sub(1).ok_or(("inline data without LAUNCH_DMA", value.into()))?;
                Ok(())
            }
            offset::SEND_PCAS_A => {
                let qmd = u64::from(value) << 8;
                if rules.launches.binary_search(&qmd).is_err() {
                    return Err(("a kernel launch that nobody answers for, and that cannot be validated", qmd));
                }
                within(rules.space, qmd, rules.architecture.qmd_bytes(), 256)?;
                registers.set(address, value)
            }
            // DECREMENT_DEPENDENCE and INVALIDATE_PREFETCH_COPY_SCHEDULE: the actions that launches of graphs need.
            offset::SEND_SIGNALING_PCAS2_B if value == 0x7 || value == 0xa => {
                registers.get(offset::SEND_PCAS_A).map(|_| ())
            }
            offset::SEND_SIGNALING_PCAS2_B => Err(("a PCAS action that launches do not need", value.into())),
            offset::INVALIDATE_SHADER_CACHES_NO_WFI if value == CONSTANT_CACHES && !rules.launches.is_empty() => Ok(()),
            _ => Err(("a compute method that is not on the list", address.into())),
        }
    }

    /// LAUNCH_DMA (+0x1B0): pitch 0, no sysmembar 6. No reductions, no interrupts, and no completion type (5:4): a
    /// GH100 killed the channel for RELEASE_SEMAPHORE without sysmembar (Xid 69, class error 4), and CUDA never uses one.
    fn launch_inline(&mut self, value: u32, space: &dyn Ranges) -> Verdict {
        let registers = &self.compute;
        if value & !0x41 != 0 || value & 1 == 0 {
            return Err(("inline LAUNCH_DMA bits that are not allowed", value.into()));
        }
        let (length, lines) = (u64::from(registers.get(0x180)?), registers.get(0x184)?);
        if lines == 0 || length == 0 || lines > MAX_LINES || length * u64::from(lines) > MAX_BYTES {
            return Err(("the size of an inline transfer", length));
        }
        let va = registers.address(0x188, 0x18c)?;
        let pitch = if lines > 1 { registers.get(0x190)? } else { 0 };
        all_lines(space, va, pitch, lines, length)?;
        self.inline = length.div_ceil(4) * u64::from(lines);
        Ok(())
    }
}

/// Checks that every line of a transfer is where addresses may point.
fn all_lines(space: &dyn Ranges, va: u64, pitch: u32, lines: u32, bytes: u64) -> Verdict {
    // A pitch is signed in hardware; only forward ones are accepted.
    if pitch > i32::MAX as u32 {
        return Err(("a pitch that goes backwards", pitch.into()));
    }
    for line in 0..u64::from(lines) {
        let at = va.checked_add(line * u64::from(pitch)).ok_or(("an address that overflows", va))?;
        within(space, at, bytes, 1)?;
    }
    Ok(())
}

fn within(space: &dyn Ranges, va: u64, length: u64, alignment: u64) -> Verdict {
    if !va.is_multiple_of(alignment) {
        return Err(("an address that is not aligned", va));
    }
    if space.contains(va, length) {
        Ok(())
    } else {
        Err(("an address that is neither in memory of this address space nor pinned", va))
    }
}

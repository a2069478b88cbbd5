//! The frames of a thread's stack, from the unwind tables (`.eh_frame`) that the process itself has mapped. No file is opened, so a
//! program in a container, or one whose files were replaced, is read as well.
//!
//! Of a thread in a system call only two registers are known: where it is, and its stack pointer. That is enough for most functions.
//! Where it is not, the frame's return address is searched for on the stack: a word that follows a call. It is certain only if the
//! call's target is the function that is to be left.
//!
//! Invariant: a frame that is not certain is marked, and so is each one after it. No contents of the memory make this panic.

use super::maps::Maps;
use super::memory::{fill, half, words};
use gimli::{BaseAddresses, CfaRule, EhFrame, EndianSlice, EvaluationResult, LittleEndian, Register, RegisterRule};
use gimli::{UnwindContext, UnwindExpression, UnwindSection, Value};
use std::cell::RefCell;
use std::collections::HashMap;

/// Words of the stack that are searched for one return address.
const SEARCHED: u64 = 512;
/// Maximum size of a function's unwind instructions, and steps of an expression.
const INSTRUCTIONS: usize = 1 << 16;
const STEPS: u32 = 200;
/// DWARF's numbers of the registers on x86-64.
const RSP: usize = 7;
const RETURN: usize = 16;
/// rbx, rbp, r12 to r15: a function restores them before it returns.
const KEPT: [usize; 6] = [3, 6, 12, 13, 14, 15];

type Section<'a> = EhFrame<EndianSlice<'a, LittleEndian>>;
pub type Registers = [Option<u64>; RETURN + 1];

/// Where a thread is, or where it continues after a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    pub address: u64,
    /// Where its function begins, if its unwind table is known.
    pub function: Option<u64>,
    /// From the tables alone, or a call of the function of the frame before.
    pub is_certain: bool,
}

/// A thread's registers, by their numbers in unwind tables, and a copy of its stack from an address on. Other memory is read from the
/// process.
#[derive(Default)]
pub struct Start<'a> {
    pub registers: Registers,
    pub at: u64,
    pub copy: &'a [u8],
}

impl<'a> Start<'a> {
    /// A thread that sleeps: where it is, and its stack pointer.
    pub fn asleep(pc: u64, sp: u64) -> Start<'a> {
        let mut start = Start::default();
        (start.registers[RETURN], start.registers[RSP]) = (Some(pc), Some(sp));
        start
    }
}

/// The memory of a process, with a copy of a stack.
#[derive(Clone, Copy)]
struct Memory<'a> {
    pid: i32,
    at: u64,
    copy: &'a [u8],
}

impl Memory<'_> {
    fn fill(&self, at: u64, to: &mut [u8]) -> Option<()> {
        match at.checked_sub(self.at).and_then(|n| self.copy.get(n as usize..)?.get(..to.len())) {
            Some(copied) => to.copy_from_slice(copied),
            None => fill(self.pid, at, to)?,
        }
        Some(())
    }

    fn word(&self, at: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.fill(at, &mut bytes)?;
        Some(u64::from_le_bytes(bytes))
    }
}

/// A process whose stacks are read.
pub struct Process {
    pub pid: i32,
    pub maps: Maps,
    /// The unwind tables of the files, by their first mapping.
    tables: RefCell<HashMap<u64, Option<Table>>>,
}

/// The sorted table of a file's functions (`.eh_frame_hdr`): where it is, and its number of rows.
#[derive(Clone, Copy)]
struct Table {
    at: u64,
    rows: u64,
}

/// A function's unwind instructions, and those that it shares with others, as one section.
struct Entry {
    bytes: Vec<u8>,
    /// Where the function's part begins, in `bytes` and in the process.
    offset: usize,
    at: u64,
}

impl Process {
    pub fn of(pid: i32) -> Process {
        Process { pid, maps: Maps::of(pid), tables: RefCell::default() }
    }

    /// The frames of a thread, the innermost first.
    pub fn frames(&self, from: &Start<'_>, most: usize) -> Vec<Frame> {
        let memory = Memory { pid: self.pid, at: from.at, copy: from.copy };
        let mut registers = from.registers;
        let mut frames: Vec<Frame> = Vec::new();
        let (mut is_certain, mut is_exact) = (true, true);
        while let (Some(address), Some(sp)) = (registers[RETURN], registers[RSP]) {
            if frames.len() == most || !self.maps.is_code(address) {
                break;
            }
            // (A return address may be the first one of the next function.)
            let lookup = if is_exact { address } else { address.saturating_sub(1) };
            let entry = self.entry(lookup);
            let function = entry.as_ref().and_then(|e| e.function());
            frames.push(Frame { address, function, is_certain });
            let step = entry.as_ref().and_then(|e| e.step(memory, lookup, &registers));
            match step {
                Some(None) => break,
                Some(Some((next, is_signal))) if next[RSP] > Some(sp) => {
                    (registers, is_exact) = (next, is_signal);
                }
                _ => {
                    let Some((slot, is_call)) = self.search(memory, sp, function) else { break };
                    is_certain &= is_call;
                    // (With the place of the return address the rules of the other registers are known again.)
                    let next = entry.as_ref().and_then(|e| e.registers(memory, lookup, &registers, slot + 8));
                    registers = next.unwrap_or_else(|| {
                        let mut only: Registers = [None; RETURN + 1];
                        only[RETURN] = memory.word(slot);
                        only[RSP] = Some(slot + 8);
                        only
                    });
                    is_exact = false;
                }
            }
        }
        frames
    }

    /// The first word of the stack from `sp` on that is a return address, and whether it is one of a call of `function`. One of
    /// those is preferred.
    fn search(&self, memory: Memory<'_>, sp: u64, function: Option<u64>) -> Option<(u64, bool)> {
        let mut first = None;
        for slot in (0..SEARCHED).map_while(|i| (sp & !7).checked_add(i * 8)) {
            let Some(word) = memory.word(slot) else { break };
            match self.call_before(word) {
                Some(Some(target)) if Some(target) == function => return Some((slot, true)),
                Some(_) => first = first.or(Some((slot, false))),
                None => {}
            }
        }
        first
    }

    /// A return address: `Some`, with the called function if the call itself names it.
    pub fn call_before(&self, address: u64) -> Option<Option<u64>> {
        if !self.maps.is_code(address) {
            return None;
        }
        let code = code(self.pid, address.checked_sub(7)?)?;
        let relative = |at: [u8; 4]| address.wrapping_add_signed(i64::from(i32::from_le_bytes(at)));
        match code {
            // call rel32; maybe of a stub that jumps through a table.
            [_, _, 0xe8, a, b, c, d] => {
                let target = relative([a, b, c, d]);
                self.maps.is_code(target).then(|| Some(self.behind_stub(target).unwrap_or(target)))
            }
            // call *[rip+disp32]
            [_, 0xff, 0x15, a, b, c, d] => Some(words::<1>(self.pid, relative([a, b, c, d])).map(|[target]| target)),
            // call *register; call *[register]; with a displacement of one or four bytes, also from rsp.
            [.., 0xff, 0xd0..=0xd7 | 0x10..=0x13 | 0x16 | 0x17]
            | [.., 0xff, 0x50..=0x53 | 0x55..=0x57, _]
            | [.., 0xff, 0x14, _]
            | [.., 0xff, 0x54, _, _]
            | [_, 0xff, 0x90..=0x93 | 0x95..=0x97, _, _, _, _]
            | [0xff, 0x94, _, _, _, _, _] => Some(None),
            _ => None,
        }
    }

    /// Where a stub of the procedure linkage table jumps: `endbr64`, `bnd` may be there or not, then `jmp *[rip+disp32]`.
    fn behind_stub(&self, at: u64) -> Option<u64> {
        let bytes: [u8; 11] = code(self.pid, at)?;
        let skip = if bytes.starts_with(&[0xf3, 0x0f, 0x1e, 0xfa]) { 4 } else { 0 };
        let skip = skip + usize::from(bytes.get(skip) == Some(&0xf2));
        let [0xff, 0x25, a, b, c, d] = *bytes.get(skip..)?.first_chunk::<6>()? else { return None };
        let next = at + skip as u64 + 6;
        let slot = next.wrapping_add_signed(i64::from(i32::from_le_bytes([a, b, c, d])));
        words::<1>(self.pid, slot).map(|[target]| target)
    }

    fn entry(&self, address: u64) -> Option<Entry> {
        let start = self.maps.first_of_file(address)?;
        let table = *self.tables.borrow_mut().entry(start).or_insert_with(|| Table::of(self.pid, start));
        let table = table?;
        let row = |i: u64| {
            let mut both = [[0; 4]; 2];
            fill(self.pid, table.at + 12 + i * 8, both.as_flattened_mut())?;
            Some(both.map(|half| table.at.wrapping_add_signed(i64::from(i32::from_le_bytes(half)))))
        };
        let (mut low, mut high) = (0, table.rows);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if row(middle)?[0] <= address {
                low = middle;
            } else {
                high = middle;
            }
        }
        Entry::read(self.pid, row(low)?[1]).filter(|e| e.contains(address))
    }
}

fn code<const N: usize>(pid: i32, at: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    fill(pid, at, &mut bytes)?;
    Some(bytes)
}

impl Table {
    /// From the program headers of the file that is mapped at `start`.
    fn of(pid: i32, start: u64) -> Option<Table> {
        const LOAD: u32 = 1;
        const EH_FRAME: u32 = 0x6474_e550;
        let head: [u8; 64] = code(pid, start)?;
        let half_word = |at: usize| Some(u16::from_le_bytes(*head.get(at..)?.first_chunk()?));
        if !head.starts_with(b"\x7fELF\x02\x01") || half_word(54)? != 56 {
            return None;
        }
        let at = u64::from_le_bytes(*head.get(32..)?.first_chunk()?);
        let headers = (0..u64::from(half_word(56)?.min(64))).filter_map(|i| {
            // (Type and flags, offset, virtual address.)
            let [kind, offset, address] = words::<3>(pid, start.checked_add(at)?.checked_add(i * 56)?)?;
            Some((kind as u32, offset, address))
        });
        let headers: Vec<_> = headers.collect();
        let (_, offset, address) = headers.iter().find(|(kind, ..)| *kind == LOAD)?;
        let bias = start.wrapping_sub(address.wrapping_sub(*offset) & !0xfff);
        let (.., address) = headers.iter().find(|(kind, ..)| *kind == EH_FRAME)?;
        let at = bias.wrapping_add(*address);
        // Version 1; the number of rows as udata4, the rows as sdata4 from the table's begin. Linkers write no other form.
        let [1, _, 0x03, 0x3b] = code(pid, at)? else { return None };
        Some(Table { at, rows: u64::from(half(pid, at + 8)?) }).filter(|t| t.rows > 0)
    }
}

/// The caller's registers, and whether this frame is a signal's. `None`: there is no caller.
type Step = Option<(Registers, bool)>;

impl Entry {
    fn read(pid: i32, at: u64) -> Option<Entry> {
        let part = |at: u64| {
            let n = half(pid, at).filter(|n| (n.wrapping_sub(1) as usize) < INSTRUCTIONS)?;
            let mut bytes = vec![0; n as usize + 4];
            fill(pid, at, &mut bytes)?;
            Some(bytes)
        };
        let mut own = part(at)?;
        let pointer = u32::from_le_bytes(*own.get(4..)?.first_chunk()?);
        let mut bytes = part((at + 4).checked_sub(u64::from(pointer))?)?;
        let offset = bytes.len();
        own.get_mut(4..8)?.copy_from_slice(&(offset as u32 + 4).to_le_bytes());
        bytes.extend(own);
        Some(Entry { bytes, offset, at })
    }

    fn with<T>(
        &self,
        f: impl FnOnce(
            &Section<'_>,
            &BaseAddresses,
            &gimli::FrameDescriptionEntry<EndianSlice<'_, LittleEndian>>,
        ) -> Option<T>,
    ) -> Option<T> {
        let mut section = EhFrame::new(&self.bytes, LittleEndian);
        section.set_address_size(8);
        let bases = BaseAddresses::default().set_eh_frame(self.at.wrapping_sub(self.offset as u64));
        let entry = section.fde_from_offset(&bases, self.offset.into(), EhFrame::cie_from_offset).ok()?;
        f(&section, &bases, &entry)
    }

    fn contains(&self, address: u64) -> bool {
        self.with(|_, _, entry| Some(entry.contains(address))).unwrap_or(false)
    }

    fn function(&self) -> Option<u64> {
        self.with(|_, _, entry| Some(entry.initial_address()))
    }

    fn step(&self, memory: Memory<'_>, address: u64, now: &Registers) -> Option<Step> {
        self.with(|section, bases, entry| {
            let mut context = UnwindContext::new();
            let row = entry.unwind_info_for_address(section, bases, &mut context, address).ok()?;
            if matches!(row.register(Register(RETURN as u16)), Some(RegisterRule::Undefined)) {
                return Some(None);
            }
            let cfa = match row.cfa() {
                CfaRule::RegisterAndOffset { register, offset } => {
                    (*now.get(usize::from(register.0))?)?.wrapping_add_signed(*offset)
                }
                CfaRule::Expression(e) => evaluate(memory, section, e, entry.cie().encoding(), now, None)?,
            };
            let registers = restored(memory, section, entry.cie().encoding(), row, now, cfa);
            registers[RETURN]?;
            Some(Some((registers, entry.is_signal_trampoline())))
        })
    }

    /// The caller's registers, if this frame is known to end at `cfa`.
    fn registers(&self, memory: Memory<'_>, address: u64, now: &Registers, cfa: u64) -> Option<Registers> {
        self.with(|section, bases, entry| {
            let mut context = UnwindContext::new();
            let row = entry.unwind_info_for_address(section, bases, &mut context, address).ok()?;
            let registers = restored(memory, section, entry.cie().encoding(), row, now, cfa);
            registers[RETURN].map(|_| registers)
        })
    }
}

fn restored(
    memory: Memory<'_>,
    section: &Section<'_>,
    encoding: gimli::Encoding,
    row: &gimli::UnwindTableRow<usize>,
    now: &Registers,
    cfa: u64,
) -> Registers {
    let read = |at: u64| memory.word(at);
    let mut next: Registers = [None; RETURN + 1];
    next[RSP] = Some(cfa);
    for (n, to) in next.iter_mut().enumerate() {
        let expression = |e: &UnwindExpression<usize>| evaluate(memory, section, e, encoding, now, Some(cfa));
        match row.register(Register(n as u16)) {
            None if KEPT.contains(&n) => *to = now.get(n).copied().flatten(),
            Some(RegisterRule::SameValue) => *to = now.get(n).copied().flatten(),
            Some(RegisterRule::Offset(offset)) => *to = read(cfa.wrapping_add_signed(offset)),
            Some(RegisterRule::ValOffset(offset)) => *to = Some(cfa.wrapping_add_signed(offset)),
            Some(RegisterRule::Register(from)) => *to = now.get(usize::from(from.0)).copied().flatten(),
            Some(RegisterRule::Expression(e)) => *to = expression(&e).and_then(read),
            Some(RegisterRule::ValExpression(e)) => *to = expression(&e),
            Some(RegisterRule::Constant(value)) => *to = Some(value),
            Some(RegisterRule::Undefined) => *to = None,
            _ => {}
        }
    }
    next
}

fn evaluate(
    memory: Memory<'_>,
    section: &Section<'_>,
    expression: &UnwindExpression<usize>,
    encoding: gimli::Encoding,
    now: &Registers,
    cfa: Option<u64>,
) -> Option<u64> {
    let mut evaluation = expression.get(section).ok()?.evaluation(encoding);
    evaluation.set_max_iterations(STEPS);
    if let Some(cfa) = cfa {
        evaluation.set_initial_value(cfa);
    }
    let mut result = evaluation.evaluate().ok()?;
    loop {
        result = match result {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresRegister { register, .. } => {
                let value = (*now.get(usize::from(register.0))?)?;
                evaluation.resume_with_register(Value::Generic(value)).ok()?
            }
            EvaluationResult::RequiresMemory { address, size, .. } => {
                let mut bytes = [0; 8];
                memory.fill(address, bytes.get_mut(..usize::from(size))?)?;
                evaluation.resume_with_memory(Value::Generic(u64::from_le_bytes(bytes))).ok()?
            }
            _ => return None,
        };
    }
    match evaluation.as_result().first()?.location {
        gimli::Location::Address { address } => Some(address),
        gimli::Location::Value { value } => value.to_u64(u64::MAX).ok(),
        gimli::Location::Register { register } => now.get(usize::from(register.0)).copied().flatten(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    /// Sleeps in a system call, below functions of this file.
    #[inline(never)]
    fn outer(depth: u32, tell: &std::sync::mpsc::Sender<i32>, wait: &std::sync::Mutex<()>) -> u32 {
        if depth > 0 {
            return outer(depth - 1, tell, wait) + depth;
        }
        // SAFETY: no arguments.
        let _ = tell.send(unsafe { libc::syscall(libc::SYS_gettid) as i32 });
        let _unlocked = wait.lock();
        1
    }

    #[test]
    fn the_frames_of_a_sleeping_thread_are_those_of_its_functions() {
        let (tell, told) = channel();
        let wait = std::sync::Mutex::new(());
        let kept = wait.lock().unwrap();
        std::thread::scope(|s| {
            s.spawn(|| outer(20, &tell, &wait));
            let tid = told.recv().unwrap();
            let process = Process::of(std::process::id() as i32);
            let frames = loop {
                let text = std::fs::read_to_string(format!("/proc/self/task/{tid}/syscall")).unwrap_or_default();
                let words: Vec<_> = text.split_whitespace().collect();
                if words.first() == Some(&libc::SYS_futex.to_string().as_str()) {
                    let hex = |n: usize| u64::from_str_radix(&words[n][2..], 16).unwrap();
                    break process.frames(&Start::asleep(hex(8), hex(7)), 200);
                }
                std::thread::yield_now();
            };
            drop(kept);
            let of = |f: &Frame| f.function == Some(outer as *const () as u64);
            assert_eq!(frames.iter().filter(|f| of(f)).count(), 21, "{frames:x?}");
            assert!(frames.iter().all(|f| f.is_certain) && frames.len() > 24, "{frames:x?}");
            let last = process.maps.at(frames.last().unwrap().address).unwrap();
            assert!(last.file().starts_with(b"libc"), "the thread's start in the C library");
        });
    }

    #[test]
    fn no_memory_makes_it_panic() {
        let process = Process::of(std::process::id() as i32);
        let mut seed: Vec<u64> = (1..1024).collect();
        let place = seed.as_ptr() as u64;
        for i in 0..2000 {
            // A stack of words that are addresses of code, of data, and others.
            let code = outer as *const () as u64;
            seed.iter_mut().enumerate().for_each(|(n, w)| {
                *w = w.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(i + n as u64);
                if n % 3 == 0 {
                    *w = code + *w % 4096;
                }
            });
            let frames = process.frames(&Start::asleep(code + i % 512, place), 64);
            assert!(frames.len() <= 64);
        }
        assert!([0, u64::MAX].iter().all(|at| process.frames(&Start::asleep(*at, *at), 64).is_empty()));
    }

    #[inline(never)]
    fn spins(depth: u32, over: &std::sync::atomic::AtomicBool) -> u32 {
        if depth > 0 {
            return spins(depth - 1, over) + depth;
        }
        while !over.load(std::sync::atomic::Ordering::Relaxed) {
            std::hint::spin_loop();
        }
        1
    }

    #[test]
    fn the_frames_of_a_running_thread_are_those_of_its_functions() {
        use crate::inspect::sample::Sample;
        let over = std::sync::atomic::AtomicBool::new(false);
        let (tell, told) = channel();
        let sample = std::thread::scope(|s| {
            s.spawn(|| {
                // SAFETY: no arguments.
                let _ = tell.send(unsafe { libc::syscall(libc::SYS_gettid) as i32 });
                spins(20, &over)
            });
            let tid = told.recv().unwrap();
            let begun = std::time::Instant::now();
            let sample = loop {
                match Sample::of(tid) {
                    Ok(None) if begun.elapsed().as_secs() < 10 => {}
                    other => break other,
                }
            };
            over.store(true, std::sync::atomic::Ordering::Relaxed);
            sample
        });
        let sample = match sample {
            Ok(sample) => sample.unwrap(),
            Err(e) => test_support::skip!("perf_event_open: {e}"),
        };
        let start = Start { registers: sample.registers.map(Some), at: sample.registers[RSP], copy: &sample.stack };
        let frames = Process::of(std::process::id() as i32).frames(&start, 200);
        let of = |f: &&Frame| f.function == Some(spins as *const () as u64);
        assert_eq!(frames.iter().filter(of).count(), 21, "{frames:x?}");
        assert!(frames.iter().all(|f| f.is_certain), "{frames:x?}");
    }
}

//! Executes the kernels' PTX, instruction by instruction, on a test's memory. This shows without a GPU what the text does.
//!
//! It has only the instructions that the kernels use. Each load and store must be aligned and within memory that the test gave.
//! An unwritten register holds a number that no test expects. Threads run one after another, from barrier to barrier; a thread
//! that polls a mailbox lets the others run after each poll.

use std::collections::BTreeMap;

/// Memory that all threads see, by address.
#[derive(Default)]
pub(crate) struct Memory {
    ranges: Vec<(u64, Vec<u8>)>,
    clock: u64,
}

impl Memory {
    pub(crate) fn add(&mut self, at: u64, bytes: Vec<u8>) {
        self.ranges.push((at, bytes));
    }

    pub(crate) fn bytes(&mut self, at: u64, length: usize) -> &mut [u8] {
        let range = self.ranges.iter_mut().find(|(from, bytes)| (*from..*from + bytes.len() as u64).contains(&at));
        let (from, bytes) = range.unwrap_or_else(|| panic!("no memory at {at:#x}"));
        let start = (at - *from) as usize;
        bytes.get_mut(start..start + length).unwrap_or_else(|| panic!("{length} bytes at {at:#x} go past its end"))
    }

    pub(crate) fn word(&mut self, at: u64) -> u32 {
        u32::from_le_bytes(self.bytes(at, 4).try_into().unwrap())
    }

    pub(crate) fn set(&mut self, at: u64, words: &[u32]) {
        for (n, word) in words.iter().enumerate() {
            self.bytes(at + 4 * n as u64, 4).copy_from_slice(&word.to_le_bytes());
        }
    }
}

#[derive(Clone, Debug)]
enum Operand {
    Register(usize),
    /// A special register of the GPU, such as `%tid.x`.
    Special(String),
    Number(u64),
    Address(Box<Operand>, u64),
    Vector(Vec<Operand>),
    /// A label, a parameter, or a variable in shared memory, which begins at 0.
    Name(String),
}

struct Step {
    /// Executed only if this register is (not) set.
    only: Option<(usize, bool)>,
    /// The instruction's parts: `ld`, `global`, `u32`.
    parts: Vec<String>,
    operands: Vec<Operand>,
}

/// One kernel.
pub(crate) struct Kernel {
    steps: Vec<Step>,
    labels: BTreeMap<String, usize>,
    registers: BTreeMap<String, usize>,
    name: String,
}

/// A thread's position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) thread: u32,
    pub(crate) threads: u32,
    pub(crate) block: u32,
    pub(crate) blocks: u32,
}

/// Why a thread stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Looked,
    Warp,
    Block,
    End,
}

struct Thread {
    at: usize,
    registers: Vec<u64>,
    place: Place,
    stop: Option<Stop>,
}

/// Splits operands at the commas outside of brackets and braces.
fn split(text: &str) -> Vec<&str> {
    let (mut all, mut depth, mut from) = (Vec::new(), 0, 0);
    for (n, c) in text.char_indices() {
        match c {
            '[' | '{' => depth += 1,
            ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                all.push(text[from..n].trim());
                from = n + 1;
            }
            _ => {}
        }
    }
    all.push(text[from..].trim());
    all.retain(|one| !one.is_empty());
    all
}

impl Kernel {
    pub(crate) fn parse(text: &str, name: &str) -> Kernel {
        let text: Vec<&str> = text.lines().map(|line| line.split("//").next().unwrap_or("")).collect();
        let text = text.join("\n");
        let from = text.split(&format!(".entry {name}(")).nth(1).unwrap_or_else(|| panic!("no kernel {name}"));
        let body = from.split(".visible").next().unwrap_or("").split_once('{').unwrap().1;
        let mut kernel =
            Kernel { steps: Vec::new(), labels: BTreeMap::new(), registers: BTreeMap::new(), name: name.into() };
        for statement in body.split(';') {
            let mut rest = statement.trim();
            // Blocks and labels come before an instruction.
            loop {
                let label = rest.split_once(':').filter(|(label, _)| {
                    !label.is_empty() && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
                });
                if let Some((label, behind)) = label.filter(|(_, behind)| !behind.starts_with(':')) {
                    kernel.labels.insert(label.into(), kernel.steps.len());
                    rest = behind.trim();
                } else if let Some(behind) = rest.strip_prefix(['{', '}']) {
                    rest = behind.trim();
                } else {
                    break;
                }
            }
            if !rest.is_empty() && !rest.starts_with('.') {
                kernel.step(rest);
            }
        }
        kernel
    }

    fn step(&mut self, text: &str) {
        let (only, text) = match text.strip_prefix('@') {
            None => (None, text),
            Some(guarded) => {
                let (guard, text) = guarded.split_once(char::is_whitespace).unwrap();
                let (is_set, name) = guard.strip_prefix('!').map_or((true, guard), |name| (false, name));
                (Some((self.register(name), is_set)), text.trim())
            }
        };
        let (operation, operands) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let operands = split(operands).into_iter().map(|one| self.operand(one)).collect();
        let parts = operation.split('.').map(str::to_owned).collect();
        self.steps.push(Step { only, parts, operands });
    }

    fn register(&mut self, name: &str) -> usize {
        let next = self.registers.len();
        *self.registers.entry(name.into()).or_insert(next)
    }

    fn operand(&mut self, text: &str) -> Operand {
        if let Some(inner) = text.strip_prefix('[') {
            let inner = inner.strip_suffix(']').unwrap();
            let (base, offset) = inner.split_once('+').unwrap_or((inner, "0"));
            return Operand::Address(Box::new(self.operand(base)), offset.parse().unwrap());
        }
        if let Some(inner) = text.strip_prefix('{') {
            let all = split(inner.strip_suffix('}').unwrap());
            return Operand::Vector(all.into_iter().map(|one| self.operand(one)).collect());
        }
        const GPUS: [&str; 5] = ["%tid.x", "%ntid.x", "%ctaid.x", "%nctaid.x", "%globaltimer"];
        if GPUS.contains(&text) {
            return Operand::Special(text.into());
        }
        if text.starts_with('%') {
            return Operand::Register(self.register(text));
        }
        let number = match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => text.parse::<i64>().ok().map(|number| number as u64),
        };
        number.map_or_else(|| Operand::Name(text.into()), Operand::Number)
    }

    fn value(&self, thread: &Thread, memory: &mut Memory, operand: &Operand) -> u64 {
        let Place { thread: tid, threads, block, blocks } = thread.place;
        match operand {
            Operand::Register(n) => thread.registers[*n],
            Operand::Number(number) => *number,
            Operand::Address(base, offset) => self.value(thread, memory, base).wrapping_add(*offset),
            Operand::Name(_) => 0,
            Operand::Vector(_) => panic!("a vector is no value"),
            Operand::Special(name) => match name.as_str() {
                "%tid.x" => tid.into(),
                "%ntid.x" => threads.into(),
                "%ctaid.x" => block.into(),
                "%nctaid.x" => blocks.into(),
                "%globaltimer" => {
                    memory.clock += 1;
                    memory.clock
                }
                other => panic!("no register {other}"),
            },
        }
    }

    /// Runs until the thread must wait for others, or ends. `shared` is the memory of its block.
    fn run(&self, thread: &mut Thread, memory: &mut Memory, shared: &mut [u8], parameters: &[(&str, u64)]) -> Stop {
        for _ in 0..1_000_000 {
            let step = &self.steps[thread.at];
            thread.at += 1;
            if step.only.is_some_and(|(register, is_set)| (thread.registers[register] != 0) != is_set) {
                continue;
            }
            let parts: Vec<&str> = step.parts.iter().map(String::as_str).collect();
            let (kind, operands) = (parts[parts.len() - 1], &step.operands);
            let mask = if kind.ends_with("64") { u64::MAX } else { u32::MAX.into() };
            let target = match operands.first() {
                Some(Operand::Register(n)) => *n,
                _ => usize::MAX,
            };
            match (parts[0], parts.get(1).copied().unwrap_or("")) {
                ("bra", _) => {
                    let Operand::Name(label) = &operands[0] else { panic!("a label") };
                    thread.at = self.labels[label];
                    continue;
                }
                ("ret", _) => return Stop::End,
                ("bar", "warp") => return Stop::Warp,
                ("bar", "sync") | ("barrier", "sync") => return Stop::Block,
                ("fence", _) => continue,
                ("ld", "param") => {
                    let Operand::Address(name, _) = &operands[1] else { panic!("a parameter") };
                    let Operand::Name(name) = &**name else { panic!("a parameter") };
                    let short = name.strip_prefix(&format!("{}_", self.name)).unwrap();
                    let found = parameters.iter().find(|(name, _)| *name == short);
                    thread.registers[target] = found.unwrap_or_else(|| panic!("no parameter {short}")).1 & mask;
                    continue;
                }
                ("ld", _) => {
                    let is_look = self.load(thread, memory, shared, &parts, operands);
                    if is_look {
                        return Stop::Looked;
                    }
                    continue;
                }
                ("st", _) => {
                    self.store(thread, memory, shared, &parts, operands);
                    continue;
                }
                _ => {}
            }
            let values: Vec<u64> = match operands.get(1) {
                Some(Operand::Vector(halves)) => halves.iter().map(|half| self.value(thread, memory, half)).collect(),
                _ => operands[1..].iter().map(|one| self.value(thread, memory, one)).collect(),
            };
            let v = |n: usize| values[n] & mask;
            let result = match (parts[0], parts[1]) {
                ("mov", _) if values.len() == 2 => values[0] | values[1] << 32,
                ("mov" | "cvta" | "cvt", _) => v(0),
                ("add", _) => v(0).wrapping_add(v(1)),
                ("sub", _) => v(0).wrapping_sub(v(1)),
                ("neg", _) => v(0).wrapping_neg(),
                ("and", _) => v(0) & v(1),
                ("or", "pred") => u64::from(values[0] != 0 || values[1] != 0),
                ("or", _) => v(0) | v(1),
                ("shl", _) => v(0) << values[1],
                ("shr", _) => v(0) >> values[1],
                ("min", _) => v(0).min(v(1)),
                ("mul", "wide") => {
                    thread.registers[target] = v(0) * v(1);
                    continue;
                }
                ("mul", "lo") => v(0).wrapping_mul(v(1)),
                ("mad", "lo") => v(0).wrapping_mul(v(1)).wrapping_add(v(2)),
                ("selp", _) => {
                    if values[2] != 0 {
                        v(0)
                    } else {
                        v(1)
                    }
                }
                ("shf", "r") => (v(1) << 32 | v(0)) >> (values[2] & 31) & u64::from(u32::MAX),
                ("setp", "eq") => u64::from(v(0) == v(1)),
                ("setp", "ne") => u64::from(v(0) != v(1)),
                ("setp", "lt") => u64::from(v(0) < v(1)),
                ("setp", "ge") => u64::from(v(0) >= v(1)),
                ("atom", _) => {
                    let (before, operand) = (memory.word(values[0]), values[1] as u32);
                    let after = match parts.contains(&"inc") {
                        true if before >= operand => 0,
                        true => before + 1,
                        false => before.wrapping_add(operand),
                    };
                    memory.set(values[0], &[after]);
                    before.into()
                }
                _ => panic!("no instruction {parts:?}"),
            };
            thread.registers[target] = result & mask;
        }
        panic!("a thread that does not end, at step {}", thread.at);
    }

    /// True if the thread polled the mailbox (a load of several words). The others then run before it continues.
    fn load(
        &self,
        thread: &mut Thread,
        memory: &mut Memory,
        shared: &mut [u8],
        parts: &[&str],
        operands: &[Operand],
    ) -> bool {
        let (width, count) = shape(parts);
        let at = self.value(thread, memory, &operands[1]);
        let targets = match &operands[0] {
            Operand::Vector(all) => all.clone(),
            one => vec![one.clone()],
        };
        assert!(at.is_multiple_of((width * count) as u64) && targets.len() == count, "{parts:?} at {at:#x}");
        for (n, target) in targets.iter().enumerate() {
            let Operand::Register(target) = target else { panic!("a register") };
            let (from, mut value) = (at + (n * width) as u64, [0; 8]);
            let bytes = if parts.contains(&"shared") {
                &mut shared[from as usize..][..width]
            } else {
                memory.bytes(from, width)
            };
            value[..width].copy_from_slice(bytes);
            thread.registers[*target] = u64::from_le_bytes(value);
        }
        parts.contains(&"relaxed") && count > 1
    }

    fn store(&self, thread: &mut Thread, memory: &mut Memory, shared: &mut [u8], parts: &[&str], operands: &[Operand]) {
        let (width, count) = shape(parts);
        let at = self.value(thread, memory, &operands[0]);
        let values = match &operands[1] {
            Operand::Vector(all) => all.clone(),
            one => vec![one.clone()],
        };
        assert!(at.is_multiple_of((width * count) as u64) && values.len() == count, "{parts:?} at {at:#x}");
        for (n, value) in values.iter().enumerate() {
            let value = self.value(thread, memory, value).to_le_bytes();
            let to = at + (n * width) as u64;
            let bytes =
                if parts.contains(&"shared") { &mut shared[to as usize..][..width] } else { memory.bytes(to, width) };
            bytes.copy_from_slice(&value[..width]);
        }
    }

    fn thread(&self, place: Place) -> Thread {
        Thread { at: 0, registers: vec![0xdead_dead_dead_dead; self.registers.len()], place, stop: None }
    }
}

/// Bytes of an element, and the number of elements.
fn shape(parts: &[&str]) -> (usize, usize) {
    let width = match parts[parts.len() - 1] {
        "u8" => 1,
        "u32" | "b32" => 4,
        "u64" => 8,
        other => panic!("no type {other}"),
    };
    (width, if parts.contains(&"v4") { 4 } else { 1 })
}

/// The threads of one block.
pub(crate) struct Running<'k> {
    kernel: &'k Kernel,
    threads: Vec<Thread>,
    shared: Vec<u8>,
    parameters: Vec<(&'static str, u64)>,
}

impl<'k> Running<'k> {
    pub(crate) fn new(
        kernel: &'k Kernel,
        [block, blocks]: [u32; 2],
        threads: u32,
        parameters: &[(&'static str, u64)],
    ) -> Running<'k> {
        let all = (0..threads).map(|thread| kernel.thread(Place { thread, threads, block, blocks }));
        Running { kernel, threads: all.collect(), shared: vec![0xee; 64], parameters: parameters.to_vec() }
    }

    /// Runs each thread as far as it can run without the others; false when all have ended.
    pub(crate) fn turn(&mut self, memory: &mut Memory) -> bool {
        for thread in &mut self.threads {
            if matches!(thread.stop, None | Some(Stop::Looked)) {
                thread.stop = Some(self.kernel.run(thread, memory, &mut self.shared, &self.parameters));
            }
        }
        self.meet(Stop::Warp, |a, b| a.place.thread / 32 == b.place.thread / 32);
        self.meet(Stop::Block, |_, _| true);
        self.threads.iter().any(|thread| thread.stop != Some(Stop::End))
    }

    /// Lets threads continue that all wait at the same barrier. Threads that have ended are not waited for.
    fn meet(&mut self, at: Stop, same: impl Fn(&Thread, &Thread) -> bool) {
        let all = &self.threads;
        let is_met = |one: &Thread| {
            let mut others = all.iter().filter(|other| same(one, other));
            one.stop == Some(at)
                && others.all(|other| matches!(other.stop, Some(stop) if stop == at || stop == Stop::End))
        };
        let met: Vec<bool> = all.iter().map(is_met).collect();
        for (thread, met) in self.threads.iter_mut().zip(met) {
            thread.stop = if met { None } else { thread.stop };
        }
    }
}

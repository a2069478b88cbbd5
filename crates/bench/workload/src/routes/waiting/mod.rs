//! Kernels that run before any transfer is submitted and wait for a line of 64 bytes in GPU memory, which the CPU stores through
//! BAR1 as one write. They answer in pinned host memory.
//!
//! - `host->message->gpu0` sends up to 56 bytes from the CPU into a running kernel, which answers with all of them. A message is
//!   not a copy: the line is written as a whole into the destination. Up to 8 bytes and their number arrive in one load of the
//!   kernel. More need four loads and a sum that shows that they belong together ([`gpu::message`]), as libdoorbell's messages do. So compare a message with another message or a launch; `bar1`, `ce` and `inline` are copies.
//! - `host->resident->gpu0`: the line is a command, and 512 threads on one multiprocessor copy, or on N with `blocks=N`. They have
//!   the role of the GPU's microcontrollers (HUB, GPC, GPC4) in 'Data Transfer Matters of Real-Time GPU Computing' (2013), whose
//!   firmware must be signed today.
//!
//! A submission makes no call. The kernel is launched when a transfer is prepared. It ends when it rests or is dropped, and by
//! itself 20 s after the last line. The next submission launches it again through CUDA, and takes longer for that. While it runs
//! it occupies its multiprocessors, and a wait for CUDA's whole context waits for it too.

mod ptx;

use super::polling::until;
use super::sm::{self, Reach};
use crate::buffer::{Buffer, HostBytes};
use crate::ends::{Direction, Ends, both_ways};
use crate::error::Error;
use crate::executor::{self, Transfer};
use crate::inspect::Inspect;
use crate::machine::Machine;
use crate::routes::entry::{Entry, Found, number};
use crate::spec::{End, Host, Memory, Spec, Word};
use cuda::{Argument, Attribute, Module, PinnedBuffer, Stream};
use gpu::stores::{self, Line};
use gpu::{Bar1Map, message};
use machine::Unavailable;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// One multiprocessor, as without it.
const SM: &str = "sm";
const BLOCKS: &str = "blocks=";
/// Bytes of the longest message.
const LONGEST: u64 = message::LONGEST as u64;
const LINE: u64 = stores::LINE as u64;
/// Bytes of GPU memory: the line of commands, and after it room to try a copy out.
const MEMORY: u64 = 4096;
/// Bytes that are tried out, and their places in that memory.
const TRIED: usize = 1024;
/// The kernels end this long after the last line.
const LIMIT: Duration = Duration::from_secs(20);
/// Limit of the kernel that is tried out, which answers within `AT_ONCE`. Other work may use the GPU for a while.
const TRY_OUT: Duration = Duration::from_secs(2);
const AT_ONCE: Duration = Duration::from_secs(1);

pub(crate) const MESSAGE: Entry = Entry {
    word: Word { name: "message", numbered: false, options: &[] },
    about: |_, _| {
        "a message of up to 56 bytes to a kernel that spins, and its answer in host memory; not a copy".into()
    },
    list: |machine| vec![format!("host->message->gpu{}", machine.index())],
    check: |machine, spec| {
        if Direction::of(machine, spec)? == Direction::FromGpu {
            return Err(Unavailable::new("a message goes to a kernel; its answer is what comes from the GPU"));
        }
        if !spec.destination.offset.is_multiple_of(LINE) {
            return Err(Unavailable::new("a message is a line of 64 bytes: its mailbox begins at a multiple of 64"));
        }
        let no_kernel = |why| Unavailable::new(format!("the kernel that answers is launched by CUDA: {why}"));
        machine.context().map_err(no_kernel)?;
        machine.space().map(drop)
    },
    open: |machine, spec| open(machine, spec, Kind::Message),
};

pub(crate) const RESIDENT: Entry = Entry {
    word: Word { name: "resident", numbered: false, options: &[SM, BLOCKS] },
    about: |_, _| {
        "a kernel on one multiprocessor (blocks=N: on N) waits at a mailbox and copies when told by one store; today's equivalent \
         of the GPU's microcontrollers, whose firmware must be signed"
            .into()
    },
    list: |machine| both_ways(machine, "host", "resident[sm]").into(),
    check: |machine, spec| {
        sm::check(machine, spec)?;
        blocks(machine, spec)?;
        machine.space().map(drop)
    },
    open: |machine, spec| open(machine, spec, Kind::Copy),
};

/// At most one for each multiprocessor: all must run, because the last one answers. (Also those of several at once: more than fit do not answer in time.)
fn blocks(machine: &Machine, spec: &Spec) -> Result<u32, Unavailable> {
    let most = machine.context()?.device().attribute(Attribute::MultiprocessorCount);
    let most = most.ok().and_then(|most| u32::try_from(most).ok()).unwrap_or(1);
    let why = format!("blocks=N has one number: 1 to {most}, this GPU's multiprocessors; `sm` is one");
    let found = number(&spec.executor, BLOCKS, 1..=most, &why)?;
    match found {
        Some(1) | None => Ok(1),
        Some(_) if spec.executor.has(SM) => Err(Unavailable::new(why)),
        Some(blocks) => Ok(blocks),
    }
}

/// What the kernel does with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Message,
    Copy,
}

/// One kernel and its line.
struct Form {
    kernel: &'static str,
    threads: u32,
    /// Where a line has its number, and where the answer has it.
    numbers: &'static [u64],
    answer: u64,
    /// Bytes of the line that the answer repeats.
    echoed: usize,
}

/// Bytes of a message that arrive with their number in one load.
const BESIDE: u64 = 8;
static SHORT: Form = Form { kernel: ptx::SHORT, threads: 1, numbers: &[BESIDE], answer: BESIDE, echoed: 16 };
static LONG: Form = Form { kernel: ptx::LONG, threads: 1, numbers: &[LONGEST], answer: LONGEST, echoed: 64 };
/// The kernel reads two pieces of 16 bytes, and each has the number.
static COMMAND: Form =
    Form { kernel: ptx::RESIDENT, threads: ptx::THREADS, numbers: &[12, 28], answer: LONGEST, echoed: 0 };

impl Kind {
    fn form(self, bytes: u64) -> &'static Form {
        match self {
            Kind::Message if bytes <= BESIDE => &SHORT,
            Kind::Message => &LONG,
            Kind::Copy => &COMMAND,
        }
    }
}

fn open<'m>(machine: &'m Machine, spec: &Spec, kind: Kind) -> Found<'m> {
    let context = machine.context()?;
    let text = if kind == Kind::Message { ptx::messages() } else { ptx::resident() };
    let waits = Waits {
        stream: Stream::new(context)?,
        module: Module::from_ptx(context, &text)?,
        host: PinnedBuffer::new(context, 2 * stores::LINE)?,
        memory: Buffer::new(machine, End { memory: Memory::Gpu(machine.index()), offset: 0 }, MEMORY)?,
        reach: Reach::of(machine, spec)?,
        blocks: if kind == Kind::Copy { blocks(machine, spec)? } else { 1 },
        kind,
    };
    match kind {
        Kind::Copy => waits.try_out(machine, TRIED as u64)?,
        Kind::Message => [BESIDE, LONGEST].into_iter().try_for_each(|bytes| waits.try_out(machine, bytes))?,
    }
    Ok(Box::new(waits))
}

struct Waits<'m> {
    // Before the memory that its work may name.
    stream: Stream<'m>,
    module: Module<'m>,
    /// Where the kernel answers: the line, or its number alone. The second line shows why it ended.
    host: PinnedBuffer<'m>,
    /// Begins with the line of commands. A message's line is in its destination.
    memory: Buffer<'m>,
    reach: Reach,
    /// Of a kernel.
    blocks: u32,
    kind: Kind,
}

impl Waits<'_> {
    /// A word of the host's two lines.
    #[inline]
    fn word(&self, at: u64) -> &AtomicU32 {
        // SAFETY: an aligned word of pinned memory (the callers' offsets are within its two lines) that lives as long as this, and
        // that the CPU touches only by atomic accesses.
        unsafe { AtomicU32::from_ptr(self.host.as_ptr().add(at as usize).cast()) }
    }

    fn told<'r>(&'r self, ends: Ends<'r>, bytes: u64, limit: Duration) -> Result<Told<'r>, Error> {
        let (mailbox, sends) = match self.kind {
            Kind::Message => (ends.destination, Sends::Message(ends.source.host_bytes(0, bytes)?)),
            Kind::Copy => (&self.memory, Sends::Command([ends.source.va(), ends.destination.va(), bytes])),
        };
        let (map, line) = (mailbox.bar1()?, Line([0; stores::LINE]));
        let (waits, form, mailbox) = (self, self.kind.form(bytes), mailbox.va());
        let answer = self.word(form.answer);
        let mut told = Told {
            waits,
            form,
            answer,
            map,
            mailbox,
            sends,
            ends,
            bytes,
            limit,
            line,
            number: 0,
            running: false,
            submitted: false,
        };
        told.wake()?;
        Ok(told)
    }

    /// One line, from launch to end. At a first launch CUDA loads code, and may wait for the whole context. That must not happen
    /// while a kernel waits. A kernel that fails ends by its own limit.
    fn try_out(&self, machine: &Machine, bytes: u64) -> Result<(), Error> {
        let host = Buffer::new(machine, End { memory: Memory::Host(Host::Pageable), offset: 0 }, LONGEST)?;
        let data: [u8; TRIED] = std::array::from_fn(|n| ((n * 31) >> 3) as u8 ^ 0x5a);
        let refuse = |why: String| Err(Unavailable::new(why).into());
        self.memory.write(0, &[0; 3 * TRIED])?;
        self.memory.write(TRIED as i64, &data)?;
        let is_copy = self.kind == Kind::Copy;
        let source = if is_copy { &self.memory } else { &host };
        let mut told = self.told(Ends::new(source, &self.memory), bytes, TRY_OUT)?;
        if is_copy {
            told.move_to(TRIED as u64, 2 * TRIED as u64)?;
        }
        told.submit()?;
        if told.wait(AT_ONCE).is_err() {
            return refuse(format!(
                "the kernel that waits did not answer what was stored through BAR1 within {AT_ONCE:?}"
            ));
        }
        told.rest()?;
        if told.ended() != ptx::STOPPED {
            return refuse("the kernel that waits did not see that it was to end".into());
        }
        drop(told);
        let mut found = [0; TRIED];
        self.memory.read(2 * TRIED as i64, &mut found)?;
        if is_copy && found != data {
            return refuse("the kernel that waits answered and had not copied what it was told".into());
        }
        Ok(())
    }
}

impl executor::Executor for Waits<'_> {
    fn room(&self, capacity: u64) -> Result<u64, Error> {
        match self.kind {
            Kind::Copy => Ok(capacity),
            Kind::Message if capacity <= LONGEST => Ok(LINE),
            Kind::Message => {
                let why =
                    format!("a message carries 1 to {LONGEST} bytes, not {capacity}: copies are bar1, ce and inline");
                Err(Unavailable::new(why).into())
            }
        }
    }

    fn line(&self) -> u64 {
        if self.kind == Kind::Message { LINE } else { 0 }
    }

    fn reach(&mut self, from: &Buffer<'_>, to: &Buffer<'_>) -> Result<(), Error> {
        match self.kind {
            Kind::Copy => self.reach.check(from, to),
            Kind::Message => to.bar1().map(drop),
        }
    }

    fn prepare<'r>(&'r mut self, ends: Ends<'r>, bytes: u64) -> Result<Box<dyn Transfer + 'r>, Error> {
        self.reach(ends.source, ends.destination)?;
        ends.check(bytes)?;
        if self.kind == Kind::Message && bytes > LONGEST {
            return Err(Error::Capacity { bytes, capacity: LONGEST });
        }
        let ends = Ends { line: self.line(), ..ends };
        Ok(Box::new(self.told(ends, bytes, LIMIT)?))
    }
}

/// What a line says.
enum Sends<'r> {
    Message(HostBytes<'r>),
    /// From, to, bytes.
    Command([u64; 3]),
}

impl Sends<'_> {
    #[inline]
    fn line(&self, number: u32) -> Line {
        let [from, to, bytes] = match self {
            Sends::Message(bytes) if bytes.len() as u64 > BESIDE => return Line(message::line(bytes.bytes(), number)),
            Sends::Message(bytes) => {
                let mut line = Line([0; stores::LINE]);
                line.0[..bytes.len()].copy_from_slice(bytes.bytes());
                line.0[8..12].copy_from_slice(&number.to_le_bytes());
                line.0[12..16].copy_from_slice(&number.to_le_bytes());
                return line;
            }
            Sends::Command(command) => command,
        };
        let [low, high] = [|n: &u64| *n as u32, |n: &u64| (*n >> 32) as u32];
        let words = [low(from), high(from), low(to), number, high(to), low(bytes), high(bytes), number];
        let mut line = Line([0; stores::LINE]);
        for (place, word) in line.0.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        line
    }
}

struct Told<'r> {
    waits: &'r Waits<'r>,
    form: &'static Form,
    /// The number of the answer.
    answer: &'r AtomicU32,
    /// The map of the line, and the GPU's address of it.
    map: &'r Bar1Map,
    mailbox: u64,
    sends: Sends<'r>,
    ends: Ends<'r>,
    bytes: u64,
    limit: Duration,
    /// The last line, and its number.
    line: Line,
    number: u32,
    running: bool,
    submitted: bool,
}

impl Told<'_> {
    /// Why the kernel has ended; 0 while it runs.
    #[inline]
    fn ended(&self) -> u32 {
        self.waits.word(ptx::ENDED).load(Ordering::Acquire)
    }

    /// Changes the number of the line in GPU memory, and no other bytes.
    fn send_number(&self, number: u32) -> Result<(), Error> {
        Ok(self.form.numbers.iter().try_for_each(|at| self.map.store32(*at, number))?)
    }

    /// Sends the line, which is on its way when this returns.
    #[inline]
    fn send(&mut self) -> Result<(), Error> {
        self.line = self.sends.line(self.number);
        if let Sends::Command(_) = self.sends {
            // ORDERING: the line's store bypasses the caches and could overtake earlier writes to the source.
            stores::sfence();
        }
        Ok(self.map.store_line(0, &self.line)?)
    }

    /// Launches a kernel that waits for the number after this one.
    #[cold]
    fn wake(&mut self) -> Result<(), Error> {
        self.rest()?;
        // The answer to an earlier line must not look like the answer to the next number.
        for at in (0..LINE).step_by(4) {
            self.waits.word(at).store(if at == self.form.answer { self.number } else { 0 }, Ordering::Relaxed);
        }
        self.waits.word(ptx::ENDED).store(0, Ordering::Release);
        self.send_number(self.number)?;
        if self.waits.kind == Kind::Copy {
            self.map.store32(ptx::COUNT, 0)?;
        }
        // A load returns after the stores have arrived, so the kernel does not find older contents.
        self.map.load32(0)?;
        let waits = self.waits;
        let arguments = [
            Argument::U64(self.mailbox),
            Argument::U64(waits.host.device_address()?),
            Argument::U32(self.number),
            Argument::U64(self.limit.as_nanos() as u64),
        ];
        let function = waits.module.function(self.form.kernel)?;
        // SAFETY: the arguments are the kernel's. The line and the executor's memory outlive the stream's work, which this waits for before it is
        // dropped, and commands name memory of this transfer.
        unsafe { function.launch([waits.blocks, 1, 1], [self.form.threads, 1, 1], 0, &waits.stream, &arguments) }?;
        self.running = true;
        Ok(())
    }

    /// The kernel ended by its limit just when the line arrived, so a new one is told again.
    #[cold]
    fn tell_again(&mut self) -> Result<(), Error> {
        // 0 is no line's number.
        let number = std::mem::take(&mut self.number);
        self.wake()?;
        self.number = number;
        self.send()
    }

    #[inline]
    fn is_answered(&self) -> bool {
        // ORDERING: the kernel's copied bytes are before its fence, and the fence is before its answer.
        self.answer.load(Ordering::Acquire) == self.number && (self.form.echoed == 0 || self.is_echoed())
    }

    /// The kernel answers a message in four pieces, which may arrive in any order.
    #[inline]
    fn is_echoed(&self) -> bool {
        let mut words = self.line.0[..self.form.echoed].chunks_exact(4).zip((0..).step_by(4));
        words.all(|(word, at)| self.waits.word(at).load(Ordering::Relaxed).to_le_bytes() == *word)
    }
}

impl Transfer for Told<'_> {
    #[inline]
    fn submit(&mut self) -> Result<(), Error> {
        if !self.running || self.ended() != 0 {
            self.wake()?;
        }
        self.number = if self.number >= ptx::STOP - 1 { 1 } else { self.number + 1 };
        self.send()?;
        self.submitted = true;
        Ok(())
    }

    #[inline]
    fn poll(&mut self) -> Result<bool, Error> {
        Ok(self.submitted && self.is_answered())
    }

    #[inline]
    fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        if !self.submitted {
            return Err(Error::Idle);
        }
        let (bytes, mut looks) = (self.bytes, 0u32);
        let late = |after| Error::Late { bytes, after };
        let is_over = || {
            looks = looks.wrapping_add(1);
            self.is_answered() || looks.is_multiple_of(1024) && self.ended() != 0
        };
        until(timeout, is_over).map_err(late)?;
        if !self.is_answered() {
            self.tell_again()?;
            until(timeout, || self.is_answered()).map_err(late)?;
        }
        Ok(())
    }

    fn rest(&mut self) -> Result<(), Error> {
        if self.running {
            self.send_number(ptx::STOP)?;
            self.waits.stream.synchronize()?;
            self.running = false;
        }
        Ok(())
    }

    fn move_to(&mut self, source: u64, destination: u64) -> Result<(), Error> {
        let Sends::Command(command) = &mut self.sends else {
            return Err(Unavailable::new("a message is in the line that it was prepared for").into());
        };
        self.ends.hold([source, destination], self.bytes)?;
        [command[0], command[1]] = [self.ends.source.va() + source, self.ends.destination.va() + destination];
        Ok(())
    }

    fn ends(&self) -> Option<&dyn Inspect> {
        Some(&self.ends)
    }
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        // Where the line can no longer be stored to, the kernel's own limit ends it before its stream is dropped.
        if self.rest().is_err() {
            let _ = self.waits.stream.synchronize();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_halves_of_a_command_carry_its_number() {
        let command = [0x1122_3344_5566_7788, 0x99aa_bbcc_ddee_ff00, 0x0000_0102_0304_0506];
        let line = Sends::Command(command).line(7).0;
        let word = |n: usize| u32::from_le_bytes(line[4 * n..][..4].try_into().unwrap());
        assert_eq!([0, 1, 2, 3].map(word), [0x5566_7788, 0x1122_3344, 0xddee_ff00, 7]);
        assert_eq!([4, 5, 6, 7].map(word), [0x99aa_bbcc, 0x0304_0506, 0x0102, 7]);
        assert_eq!(line[32..], [0; 32]);
    }
}

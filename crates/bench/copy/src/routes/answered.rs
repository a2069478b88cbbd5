//! A kernel that spins, sees the CPU's stores through BAR1, and answers in pinned host memory. Under `bar1[answered]` it
//! acknowledges the arrival of a copy. Under `message` there is no copy.
//!
//! A submission stores the transfer's bytes and a number. A kernel of a few warps spins on the number (`ld.relaxed.sys`). It
//! stores each number that it sees into pinned host memory (`st.relaxed.sys`), on which the wait spins. The [`Form`] determines
//! where the number is:
//!
//! - message: up to 8 bytes and the number after them in one line of GPU memory, the mailbox, which one store sends as one write.
//!   One load of the kernel returns both, and its answer carries the bytes back. Then the kernel has the bytes; there is no other
//!   copy of them. Each message writes the whole line of 64 bytes;
//! - long: a message of 9 to 56 bytes. The kernel reads it in four loads and checks its sum ([`long`]);
//! - plain: a copy. The bytes are stored to the destination, and then the number to a separate word of GPU memory. Posted
//!   writes of one CPU arrive in their order;
//! - `mail`: a copy of 8 bytes. They and the number are sent twice in a line elsewhere. The kernel stores the bytes to the
//!   destination and answers after a fence. So a CUDA kernel writes the destination, at the price of the fence.
//!
//! The kernel is launched with the transfer and ends with it. It also ends when the transfer rests ([`Transfer::rest`]), because
//! while it runs CUDA's context never leaves the GPU's compute engine to channels of other groups. And it ends by itself 20 s
//! after the last number. After each of these, the next submission launches it again through CUDA, and takes longer for that. It
//! runs in its own stream; a wait for CUDA's whole context waits for the kernel too.

use super::long;
use crate::buffer::{Buffer, HostBytes};
use crate::ends::Ends;
use crate::entry::Found;
use crate::error::Error;
use crate::inspect::Inspect;
use crate::machine::Machine;
use crate::route::{self, Transfer};
use crate::spec::Executor;
use cuda::{Argument, DeviceBuffer, Function, Module, PinnedBuffer, Stream};
use gpu::stores::{Line, LineStore};
use gpu::{Bar1Map, message};
use machine::{Pinned, Unavailable};
use std::arch::x86_64::__m128i;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub(super) const MAIL: &str = "mail";
/// How many warps poll, if not [`WARPS`].
pub(super) const WARPS_4: &str = "warps=4";
pub(super) const WARPS_16: &str = "warps=16";
/// Blocks of one warp each, on separate multiprocessors: one may be nearer.
pub(super) const BLOCKS_4: &str = "blocks=4";
pub(super) const BLOCKS_16: &str = "blocks=16";
/// The answer is a whole line, by four lanes, instead of sixteen bytes.
pub(super) const WHOLE: &str = "answer=line";
/// How a line is stored, if not in the CPU's best way.
pub(super) const STORE_AVX512: &str = "store=avx512";
pub(super) const STORE_FENCED: &str = "store=fenced";

/// Warps that poll. More do not see the number earlier (H100).
const WARPS: u32 = 1;
/// Bytes sent together with their number.
pub(super) const BESIDE: u64 = 8;
/// Bytes of the longest message.
pub(super) const LONGEST: u64 = message::LONGEST as u64;
/// Ends the kernel; no transfer has this number.
const STOP: u32 = u32::MAX;
/// The kernel ends this long after the last number that it saw.
const LIMIT: Duration = Duration::from_secs(20);
/// Bytes of a line, and of the flag's memory; the answer has two lines.
pub(super) const LINE_BYTES: usize = 64;
/// Offset in the answer's memory: why the kernel ended, 0 while it runs. The answer is before it.
const ENDED: usize = LINE_BYTES;
/// It saw the request to end.
const STOPPED: u32 = 1;
/// The kernel's limit in `try_out`.
const TRY_OUT: Duration = Duration::from_secs(1);
/// Polls without a pause between them, which would add to the transfer's time.
const EAGER: u32 = 4096;

/// Where the number is, and what the kernel does with the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Plain,
    Message,
    Long,
    Mail,
}

impl Form {
    fn kernel(self) -> &'static str {
        match self {
            Form::Plain => "answer",
            Form::Message => "answer_line",
            Form::Long => "answer_long",
            Form::Mail => "answer_mail",
        }
    }

    /// Loads the number into %r2 (and the bytes into %r10 and %r11), or jumps back to the spin loop.
    fn load(self) -> &'static str {
        match self {
            Form::Plain => "ld.relaxed.sys.global.u32 %r2, [%rd4];",
            Form::Message => "ld.relaxed.sys.global.v4.u32 {%r10, %r11, %r2, %r12}, [%rd4];",
            Form::Long => long::LOAD,
            // Each four bytes have their own number, so only eight bytes at a time must arrive together.
            Form::Mail => {
                "ld.relaxed.sys.global.v4.u32 {%r10, %r2, %r11, %r12}, [%rd4];
    setp.ne.u32 %p1, %r2, %r12;
    @%p1 bra NAME_IDLE;"
            }
        }
    }

    fn answer(self) -> String {
        let text = match self {
            Form::Plain => "st.relaxed.sys.global.u32 [%rd5], %r2;",
            Form::Message => "st.relaxed.sys.global.v4.u32 [%rd5], {%r10, %r11, %r2, %r2};",
            Form::Long => return long::answer(),
            Form::Mail => {
                "setp.eq.u32 %p2, %r2, 0xffffffff;
    @%p2 bra NAME_STOPPED;
    st.relaxed.sys.global.v2.u32 [%rd9], {%r10, %r11};
    fence.acq_rel.sys;
    st.relaxed.sys.global.u32 [%rd5], %r2;"
            }
        };
        text.into()
    }

    /// A message, which is a line in the destination and not a copy.
    fn is_message(self) -> bool {
        matches!(self, Form::Message | Form::Long)
    }

    /// Offset of the number in the message's line.
    fn number_at(self) -> u64 {
        if self == Form::Long { message::NUMBER as u64 } else { BESIDE }
    }

    /// The form of a transfer of `bytes` by an executor of this form.
    fn of_length(self, bytes: u64) -> Form {
        if self == Form::Message && bytes > BESIDE { Form::Long } else { self }
    }
}

/// Stores each number that follows `seen` at `flag` to `to`, until the number is 2^32 - 1 or `limit` nanoseconds have passed
/// without a new one. Then stores the reason, 1 or 2, at `ended`. Several lanes see the same number and answer 16 bytes each, in
/// consecutive places. 2^32 - 1 is answered too (except with mail, because the bytes with it are not a copy). The clock is read
/// only while no number arrives, so that it delays no answer. One thread of each warp does this, and the first that sees the
/// number answers first. A slow warp's older answer is followed by its newer one. All warps end together. PTX 7.0 for sm_70: the
/// driver compiles it for the GPU of the machine.
const ANSWER: &str = r"
.visible .entry NAME(.param .u64 NAME_flag, .param .u64 NAME_to, .param .u64 NAME_ended, .param .u32 NAME_seen, .param .u64 NAME_limit, .param .u64 NAME_data)
{
    .reg .pred %p<4>;
    .reg .b32 %r<13>;
    .reg .b32 %a<16>;
    .reg .b64 %rd<13>;
    mov.u32 %r6, %tid.x;
    and.b32 %r7, %r6, 31;
    setp.ge.u32 %p1, %r7, LANES;
    @%p1 bra NAME_OUT;
    ld.param.u64 %rd1, [NAME_flag];
    ld.param.u64 %rd2, [NAME_to];
    ld.param.u64 %rd10, [NAME_ended];
    ld.param.u32 %r1, [NAME_seen];
    ld.param.u64 %rd3, [NAME_limit];
    ld.param.u64 %rd8, [NAME_data];
    cvta.to.global.u64 %rd4, %rd1;
    cvta.to.global.u64 %rd5, %rd2;
    cvta.to.global.u64 %rd9, %rd8;
    cvta.to.global.u64 %rd11, %rd10;
    shl.b32 %r9, %r7, 4;
    cvt.u64.u32 %rd12, %r9;
    add.u64 %rd5, %rd5, %rd12;
    mov.u64 %rd6, %globaltimer;
    mov.u32 %r3, 0;
    mov.u32 %r8, 0;
NAME_AGAIN:
    LOAD
    setp.eq.u32 %p1, %r2, %r1;
    @%p1 bra NAME_IDLE;
    STORE
    setp.eq.u32 %p2, %r2, 0xffffffff;
    @%p2 bra NAME_STOPPED;
    mov.u32 %r1, %r2;
    mov.u32 %r8, 1;
    bra NAME_AGAIN;
NAME_IDLE:
    add.u32 %r3, %r3, 1;
    and.b32 %r4, %r3, 63;
    setp.ne.u32 %p3, %r4, 0;
    @%p3 bra NAME_AGAIN;
    mov.u64 %rd7, %globaltimer;
    setp.eq.u32 %p3, %r8, 0;
    @%p3 bra NAME_SINCE;
    mov.u64 %rd6, %rd7;
    mov.u32 %r8, 0;
NAME_SINCE:
    sub.u64 %rd8, %rd7, %rd6;
    setp.lt.u64 %p3, %rd8, %rd3;
    @%p3 bra NAME_AGAIN;
    mov.u32 %r5, 2;
    bra NAME_END;
NAME_STOPPED:
    mov.u32 %r5, 1;
NAME_END:
    bar.sync 0;
    st.release.sys.global.u32 [%rd11], %r5;
NAME_OUT:
    ret;
}
";

fn source(form: Form, lanes: u32) -> String {
    let kernel = |form: Form, lanes: u32| {
        ANSWER
            .replace("LANES", &lanes.to_string())
            .replace("LOAD", form.load())
            .replace("STORE", &form.answer())
            .replace("NAME", form.kernel())
    };
    let mut text = format!("\n.version 7.0\n.target sm_70\n.address_size 64\n{}", kernel(form, lanes));
    if form == Form::Message {
        // The answer to a long message is always a whole line.
        text += &kernel(Form::Long, 4);
    }
    text
}

/// Why this machine has no such route, in addition to the checks of every route through BAR1.
pub(super) fn check(machine: &Machine, executor: &Executor) -> Result<(), Unavailable> {
    let no_kernel = |why: Unavailable| Unavailable::new(format!("the kernel that answers is launched by CUDA: {why}"));
    machine.context().map(drop).map_err(no_kernel)?;
    for two in [[WARPS_4, WARPS_16], [BLOCKS_4, BLOCKS_16], [STORE_AVX512, STORE_FENCED]] {
        if two.iter().all(|one| executor.has(one)) {
            return Err(Unavailable::new(format!("{} and {} exclude one another: choose one", two[0], two[1])));
        }
    }
    if executor.has(MAIL) && [WARPS_4, WARPS_16, BLOCKS_4, BLOCKS_16].iter().any(|warps| executor.has(warps)) {
        return Err(Unavailable::new("mail is carried by one warp: a second one could carry older bytes later"));
    }
    Ok(())
}

pub(super) fn open<'m>(machine: &'m Machine, executor: &Executor, form: Form) -> Found<'m> {
    let context = machine.context()?;
    let flag = DeviceBuffer::new(context, LINE_BYTES)?;
    let pinned = machine::pin(machine, flag.address(), LINE_BYTES as u64)?;
    let mut flag_map = Bar1Map::of_pin(pinned.pin(), 0, LINE_BYTES as u64)?;
    let mut store = None;
    for (option, how) in [(STORE_AVX512, LineStore::Full), (STORE_FENCED, LineStore::Fenced)] {
        if executor.has(option) {
            if !flag_map.set_line_store(how) {
                return Err(Unavailable::new(format!("this CPU cannot: {option}")).into());
            }
            store = Some(how);
        }
    }
    let warps = match form {
        Form::Mail => 1,
        _ if executor.has(WARPS_4) => 4,
        _ if executor.has(WARPS_16) => 16,
        _ => WARPS,
    };
    let lanes = if form == Form::Message && executor.has(WHOLE) { 4 } else { 1 };
    let blocks = match executor {
        _ if executor.has(BLOCKS_4) => 4,
        _ if executor.has(BLOCKS_16) => 16,
        _ => 1,
    };
    Ok(Box::new(Answers {
        stream: Stream::new(context)?,
        module: Module::from_ptx(context, &source(form, lanes))?,
        mapped: None,
        flag_map,
        _pinned: pinned,
        flag,
        answer: PinnedBuffer::new(context, 2 * LINE_BYTES)?,
        form,
        store,
        warps,
        blocks,
    }))
}

/// The last used destination, through BAR1.
struct Mapped {
    buffer: u64,
    va: u64,
    map: Bar1Map,
}

struct Answers<'m> {
    // Users of memory are dropped before it, and maps and pins before the memory that they name.
    stream: Stream<'m>,
    module: Module<'m>,
    mapped: Option<Mapped>,
    flag_map: Bar1Map,
    _pinned: Pinned,
    flag: DeviceBuffer<'m>,
    answer: PinnedBuffer<'m>,
    form: Form,
    /// How lines are stored, if not in the best way.
    store: Option<LineStore>,
    warps: u32,
    blocks: u32,
}

impl Answers<'_> {
    /// Runs the kernel once from launch to end before transfers begin. At a first launch CUDA loads code, and may wait for the
    /// whole context. That must not happen while a kernel spins.
    fn try_out(&self, mapped: &Mapped, form: Form) -> Result<(), Error> {
        let kernel = self.kernel(mapped, form)?;
        let line = self.line(mapped, form);
        line.send(&[], STOP)?;
        line.arrived()?;
        kernel.launch(0, TRY_OUT)?;
        self.stream.synchronize()?;
        let lost = || Unavailable::new("the kernel that answers did not see what was stored through BAR1");
        if kernel.ended.load(Ordering::Acquire) == STOPPED { Ok(()) } else { Err(lost().into()) }
    }

    /// The line or word that carries the number.
    fn line<'r>(&'r self, mapped: &'r Mapped, form: Form) -> Numbered<'r> {
        let map = if form.is_message() { &mapped.map } else { &self.flag_map };
        Numbered { form, map, bytes: if form == Form::Plain { Some(&mapped.map) } else { None } }
    }

    fn kernel(&self, mapped: &Mapped, form: Form) -> Result<Kernel<'_>, Error> {
        let word = self.answer.as_ptr().cast::<u32>();
        // SAFETY: an aligned word of pinned memory that lives as long as self, touched only by atomic accesses.
        let ended = unsafe { AtomicU32::from_ptr(word.add(ENDED / 4)) };
        let data = mapped.va;
        Ok(Kernel {
            stream: &self.stream,
            function: self.module.function(form.kernel())?,
            flag: if form.is_message() { data } else { self.flag.address() },
            data,
            answer: self.answer.device_address()?,
            answered: Answer { at: word, form },
            ended,
            warps: self.warps,
            blocks: self.blocks,
        })
    }
}

/// How a number and its bytes reach the GPU.
struct Numbered<'r> {
    form: Form,
    /// The map of the line with the number.
    map: &'r Bar1Map,
    /// Where the bytes are stored first, if elsewhere.
    bytes: Option<&'r Bar1Map>,
}

impl Numbered<'_> {
    /// Sends the bytes and the number, which are on their way when this returns. `from` has at most eight bytes for a message or
    /// mail, 56 for a long message.
    #[inline]
    fn send(&self, from: &[u8], number: u32) -> Result<(), Error> {
        let mut line = Line([0; LINE_BYTES]);
        let n = number.to_le_bytes();
        match self.form {
            Form::Plain => {
                if let Some(map) = self.bytes
                    && !from.is_empty()
                {
                    map.write(0, from)?;
                }
                // ORDERING: after the bytes, which `write` has fenced.
                return Ok(self.map.store32(0, number)?);
            }
            Form::Message => {
                line.0[..from.len()].copy_from_slice(from);
                line.0[8..12].copy_from_slice(&n);
            }
            Form::Long => line = Line(message::line(from, number)),
            Form::Mail => {
                let mut eight = [0; 8];
                eight[..from.len()].copy_from_slice(from);
                line.0[..4].copy_from_slice(&eight[..4]);
                line.0[4..8].copy_from_slice(&n);
                line.0[8..12].copy_from_slice(&eight[4..]);
                line.0[12..16].copy_from_slice(&n);
            }
        }
        // ORDERING: bytes and number are one write.
        Ok(self.map.store_line(0, &line)?)
    }

    /// As [`Numbered::send`], with a number that belongs to no transfer. A message's bytes, which are before the number, stay
    /// unchanged.
    fn send_number(&self, number: u32) -> Result<(), Error> {
        match self.form {
            Form::Message | Form::Long => Ok(self.map.store32(self.form.number_at(), number)?),
            Form::Plain => self.send(&[], number),
            Form::Mail => self.send(&[0; 8], number),
        }
    }

    /// Returns when the sent bytes have arrived.
    fn arrived(&self) -> Result<(), Error> {
        self.map.load32(0)?;
        Ok(())
    }
}

/// Pinned memory that the kernel writes in pieces of sixteen bytes.
#[derive(Clone, Copy)]
struct Answer {
    at: *mut u32,
    form: Form,
}

/// The line's contents when the kernel has answered.
type Expected = [[u32; 4]; LINE_BYTES / 16];

impl Answer {
    /// The contents when the kernel has answered `number`. A line has the bytes before the number.
    #[inline]
    fn expected(self, from: &[u8], number: u32) -> Expected {
        let mut all = [[0; 4]; 4];
        match self.form {
            Form::Message => {
                let mut eight = [0; 8];
                eight[..from.len()].copy_from_slice(from);
                let bytes = u64::from_le_bytes(eight);
                all[0] = [bytes as u32, (bytes >> 32) as u32, number, number];
            }
            Form::Long => {
                let line = message::line(from, number);
                for (to, word) in all.iter_mut().flatten().zip(line.chunks_exact(4)) {
                    *to = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
                }
            }
            Form::Plain | Form::Mail => all[0][0] = number,
        }
        all
    }

    /// The n-th sixteen bytes.
    #[inline]
    fn piece(self, n: usize) -> [u32; 4] {
        // SAFETY: aligned pinned memory of a line that its executor keeps. One load of sixteen bytes, because the kernel's store
        // is one.
        unsafe { std::mem::transmute(self.at.cast::<__m128i>().add(n).read_volatile()) }
    }

    #[inline]
    fn is(self, expected: &Expected) -> bool {
        match self.form {
            Form::Message => self.piece(0) == expected[0],
            // The number arrives last.
            Form::Long => (0..expected.len()).rev().all(|n| self.piece(n) == expected[n]),
            Form::Plain | Form::Mail => {
                // SAFETY: as above, a word.
                // ORDERING: the bytes that the kernel saw before it answered had arrived.
                unsafe { AtomicU32::from_ptr(self.at) }.load(Ordering::Acquire) == expected[0][0]
            }
        }
    }

    /// Writes contents that are not the answer to any number after `number`. Call it while no kernel runs.
    fn reset(self, number: u32) {
        for word in 0..LINE_BYTES / 4 {
            let to = if word == 0 { number } else { 0 };
            // SAFETY: as above; no other thread or kernel writes there now.
            unsafe { AtomicU32::from_ptr(self.at.add(word)) }.store(to, Ordering::Relaxed);
        }
    }
}

/// The kernel, and the memory that it writes.
struct Kernel<'r> {
    stream: &'r Stream<'r>,
    function: Function<'r>,
    flag: u64,
    data: u64,
    answer: u64,
    answered: Answer,
    ended: &'r AtomicU32,
    warps: u32,
    blocks: u32,
}

impl Kernel<'_> {
    /// The flag holds `seen`, or the next number.
    fn launch(&self, seen: u32, limit: Duration) -> Result<(), Error> {
        self.ended.store(0, Ordering::Release);
        let arguments = [
            Argument::U64(self.flag),
            Argument::U64(self.answer),
            Argument::U64(self.answer + ENDED as u64),
            Argument::U32(seen),
            Argument::U64(limit.as_nanos() as u64),
            Argument::U64(self.data),
        ];
        // SAFETY: the arguments are the kernel's; all memories outlive the transfer, and the stream is waited for before they are
        // dropped.
        Ok(unsafe { self.function.launch([self.blocks, 1, 1], [32 * self.warps, 1, 1], 0, self.stream, &arguments) }?)
    }

    #[inline]
    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire) != 0
    }
}

impl route::Executor for Answers<'_> {
    fn room(&self, capacity: u64) -> Result<u64, Error> {
        match self.form {
            Form::Message if capacity > LONGEST => {
                let reason =
                    format!("a message carries 1 to {LONGEST} bytes, not {capacity}: copies are bar1, ce and inline");
                Err(Unavailable::new(reason).into())
            }
            Form::Message | Form::Long => Ok(LINE_BYTES as u64),
            Form::Plain | Form::Mail => Ok(capacity),
        }
    }

    fn line(&self) -> u64 {
        if self.form.is_message() { LINE_BYTES as u64 } else { 0 }
    }

    fn reach(&mut self, _: &Buffer<'_>, to: &Buffer<'_>) -> Result<(), Error> {
        if self.mapped.as_ref().is_some_and(|mapped| mapped.buffer == to.id()) {
            return Ok(());
        }
        let mut map = to.new_bar1()?;
        if let Some(how) = self.store {
            // The flag's map accepted it, and this is the same CPU.
            map.set_line_store(how);
        }
        let mapped = Mapped { buffer: to.id(), va: to.va(), map };
        self.try_out(&mapped, self.form)?;
        if self.form == Form::Message {
            self.try_out(&mapped, Form::Long)?;
        }
        self.mapped = Some(mapped);
        Ok(())
    }

    fn prepare<'r>(&'r mut self, ends: Ends<'r>, bytes: u64) -> Result<Box<dyn Transfer + 'r>, Error> {
        self.reach(ends.source, ends.destination)?;
        ends.check(bytes)?;
        let ends = Ends { line: route::Executor::line(self), ..ends };
        match self.form {
            Form::Message if bytes > LONGEST => return Err(Error::Capacity { bytes, capacity: LONGEST }),
            Form::Mail if bytes != BESIDE => return Err(Unavailable::new("mail is 8 bytes").into()),
            _ => {}
        }
        let from = ends.source.host_bytes(0, bytes)?;
        let mapped = self.mapped.as_ref().ok_or(Error::Idle)?;
        let form = self.form.of_length(bytes);
        let (line, kernel) = (self.line(mapped, form), self.kernel(mapped, form)?);
        let expected = Expected::default();
        let mut answered = Answered { line, kernel, from, ends, number: 0, expected, running: false, submitted: false };
        answered.wake()?;
        Ok(Box::new(answered))
    }
}

struct Answered<'r> {
    line: Numbered<'r>,
    kernel: Kernel<'r>,
    from: HostBytes<'r>,
    ends: Ends<'r>,
    /// Number of the last transfer.
    number: u32,
    /// The expected answer to it.
    expected: Expected,
    running: bool,
    submitted: bool,
}

impl Answered<'_> {
    /// Launches a kernel that waits for the number after this one.
    #[cold]
    fn wake(&mut self) -> Result<(), Error> {
        if self.running {
            // It has ended by itself; this waits at most for its last instructions.
            self.kernel.stream.synchronize()?;
        }
        // The result of an earlier transfer must not look like the answer to the next number.
        self.kernel.answered.reset(self.number);
        self.line.send_number(self.number)?;
        self.line.arrived()?;
        self.kernel.launch(self.number, LIMIT)?;
        self.running = true;
        Ok(())
    }

    #[inline]
    fn is_answered(&self) -> bool {
        self.kernel.answered.is(&self.expected)
    }
}

impl Transfer for Answered<'_> {
    #[inline]
    fn submit(&mut self) -> Result<(), Error> {
        if !self.running || self.kernel.has_ended() {
            self.wake()?;
        }
        // The flag holds 0 at first.
        self.number = if self.number >= STOP - 1 { 1 } else { self.number + 1 };
        let from = self.from.bytes();
        self.line.send(from, self.number)?;
        self.expected = self.kernel.answered.expected(from, self.number);
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
        for _ in 0..EAGER {
            if self.is_answered() {
                return Ok(());
            }
        }
        let start = Instant::now();
        loop {
            for _ in 0..64 {
                if self.is_answered() {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
            let after = start.elapsed();
            // A kernel that ended first sends no more answers.
            if after > timeout || (self.kernel.has_ended() && !self.is_answered()) {
                return Err(Error::Late { bytes: self.from.len() as u64, after });
            }
        }
    }

    fn rest(&mut self) -> Result<(), Error> {
        if self.running {
            self.line.send_number(STOP)?;
            self.kernel.stream.synchronize()?;
            self.running = false;
        }
        Ok(())
    }

    fn ends(&self) -> Option<&dyn Inspect> {
        Some(&self.ends)
    }
}

impl Drop for Answered<'_> {
    fn drop(&mut self) {
        // Where the flag can no longer be stored to, the kernel's own limit ends it.
        let _ = self.rest();
    }
}

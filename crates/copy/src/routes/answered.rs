//! Stores through BAR1 that a spinning kernel sees and answers: `bar1[answered]`, from the CPU into a running kernel and back.
//!
//! A submission stores the transfer's bytes, then a number into a word of video memory of its own, behind them (posted writes
//! of one CPU arrive in their order). A kernel of a few warps spins on that word (`ld.relaxed.sys`) and stores each number that
//! it sees into pinned host memory (`st.relaxed.sys`), which is what the wait spins on. So a transfer of 8 bytes is those and
//! the four of the number.
//!
//! The kernel is launched with the transfer and ends with it. It also ends when the transfer rests ([`Transfer::rest`]), for
//! beside it CUDA's context never leaves the GPU's compute engine to channels of other groups; and by itself 20 s after the
//! last number. The first submission after either launches it again, through CUDA, and takes longer for it. It runs in a
//! stream of its own; whoever waits for CUDA's whole context meanwhile waits for the kernel too.

use super::Ends;
use crate::error::{Error, Unavailable};
use crate::machine::Machine;
use crate::pin::{self, Pinned};
use crate::registry::Opened;
use crate::route::{Route, Transfer};
use cuda::{Argument, DeviceBuffer, Function, Module, PinnedBuffer, Stream};
use gpu::Bar1Map;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Warps that look at the flag.
const WARPS: u32 = 4;
/// Ends the kernel; no transfer has this number.
const STOP: u32 = u32::MAX;
/// The kernel ends so long after the last number that it saw.
const LIMIT: Duration = Duration::from_secs(20);
/// Bytes of the flag's memory, of which the first four are used.
const FLAG_BYTES: usize = 64;
/// Word 0: the number answered last. Word 1: 0 while the kernel runs, then why it ended.
const ANSWER_BYTES: usize = 8;
/// It saw that it was to end.
const STOPPED: u32 = 1;
/// The limit of the one that is tried out.
const TRY_OUT: Duration = Duration::from_secs(1);

/// Stores each number that comes after `seen` in the word at `flag` into the word at `to`, until it is 2^32 - 1 or `limit`
/// nanoseconds have passed without one; then 1 or 2, which it was, into the next word. One thread of each warp does so: the more
/// look, the sooner one sees; a slow one's older answer is followed by its newer one. They end together. It answers the number alone: a kernel
/// that also reads the data puts an acquire fence between. PTX 7.0 for sm_70: the driver compiles it for whatever GPU there
/// is.
const ANSWER: &str = r"
.version 7.0
.target sm_70
.address_size 64
.visible .entry answer(.param .u64 answer_flag, .param .u64 answer_to, .param .u32 answer_seen, .param .u64 answer_limit)
{
    .reg .pred %p<4>;
    .reg .b32 %r<8>;
    .reg .b64 %rd<9>;
    mov.u32 %r6, %tid.x;
    and.b32 %r7, %r6, 31;
    setp.ne.u32 %p1, %r7, 0;
    @%p1 bra ANSWER_OUT;
    ld.param.u64 %rd1, [answer_flag];
    ld.param.u64 %rd2, [answer_to];
    ld.param.u32 %r1, [answer_seen];
    ld.param.u64 %rd3, [answer_limit];
    cvta.to.global.u64 %rd4, %rd1;
    cvta.to.global.u64 %rd5, %rd2;
    mov.u64 %rd6, %globaltimer;
    mov.u32 %r3, 0;
ANSWER_AGAIN:
    ld.relaxed.sys.global.u32 %r2, [%rd4];
    setp.eq.u32 %p1, %r2, %r1;
    @%p1 bra ANSWER_IDLE;
    setp.eq.u32 %p2, %r2, 0xffffffff;
    @%p2 bra ANSWER_STOPPED;
    st.relaxed.sys.global.u32 [%rd5], %r2;
    mov.u32 %r1, %r2;
    mov.u64 %rd6, %globaltimer;
    bra ANSWER_AGAIN;
ANSWER_IDLE:
    add.u32 %r3, %r3, 1;
    and.b32 %r4, %r3, 63;
    setp.ne.u32 %p3, %r4, 0;
    @%p3 bra ANSWER_AGAIN;
    mov.u64 %rd7, %globaltimer;
    sub.u64 %rd8, %rd7, %rd6;
    setp.lt.u64 %p3, %rd8, %rd3;
    @%p3 bra ANSWER_AGAIN;
    mov.u32 %r5, 2;
    bra ANSWER_END;
ANSWER_STOPPED:
    mov.u32 %r5, 1;
ANSWER_END:
    bar.sync 0;
    st.release.sys.global.u32 [%rd5+4], %r5;
ANSWER_OUT:
    ret;
}
";

/// Why there is none, beyond what every route through BAR1 needs.
pub(super) fn check(machine: &Machine) -> Result<(), Unavailable> {
    let no_kernel = |why: Unavailable| Unavailable::new(format!("the kernel that answers is launched by CUDA: {why}"));
    machine.context().map(drop).map_err(no_kernel)
}

pub(super) fn open<'m>(machine: &'m Machine, map: Bar1Map, ends: Ends<'m>) -> Opened<'m> {
    let context = machine.context()?;
    let flag = DeviceBuffer::new(context, FLAG_BYTES)?;
    let pinned = pin::pin(machine, flag.address(), FLAG_BYTES as u64)?;
    let flag_map = Bar1Map::of_pin(pinned.pin(), 0, FLAG_BYTES as u64)?;
    let route = AnsweredRoute {
        stream: Stream::new(context)?,
        module: Module::from_ptx(context, ANSWER)?,
        map,
        flag_map,
        _pinned: pinned,
        flag,
        answer: PinnedBuffer::new(context, ANSWER_BYTES)?,
        ends,
    };
    route.try_out()?;
    Ok(Box::new(route))
}

struct AnsweredRoute<'m> {
    // What works on memory goes before it, and maps and pins before what they name.
    stream: Stream<'m>,
    module: Module<'m>,
    map: Bar1Map,
    flag_map: Bar1Map,
    _pinned: Pinned,
    flag: DeviceBuffer<'m>,
    answer: PinnedBuffer<'m>,
    ends: Ends<'m>,
}

impl AnsweredRoute<'_> {
    /// Once from launch to end before anything counts: CUDA loads code when it is first launched, and may wait for the whole
    /// context then, which is not to happen beside a kernel that spins.
    fn try_out(&self) -> Result<(), Error> {
        let kernel = self.kernel()?;
        self.flag_map.store32(0, STOP)?;
        self.flag_map.load32(0)?;
        kernel.launch(0, TRY_OUT)?;
        self.stream.synchronize()?;
        let lost = || Unavailable::new("the kernel that answers did not see what was stored through BAR1");
        if kernel.ended.load(Ordering::Acquire) == STOPPED { Ok(()) } else { Err(lost().into()) }
    }

    fn kernel(&self) -> Result<Kernel<'_>, Error> {
        let word = self.answer.as_ptr().cast::<u32>();
        // SAFETY: two aligned words of pinned memory that lives as long as self, touched by atomic accesses alone.
        let [answered, ended] = unsafe { [AtomicU32::from_ptr(word), AtomicU32::from_ptr(word.add(1))] };
        Ok(Kernel {
            stream: &self.stream,
            function: self.module.function("answer")?,
            flag: self.flag.address(),
            answer: self.answer.device_address()?,
            answered,
            ended,
        })
    }
}

/// The kernel and the two words that it writes.
struct Kernel<'r> {
    stream: &'r Stream<'r>,
    function: Function<'r>,
    flag: u64,
    answer: u64,
    answered: &'r AtomicU32,
    ended: &'r AtomicU32,
}

impl Kernel<'_> {
    /// The flag holds `seen`, or what is to be seen next.
    fn launch(&self, seen: u32, limit: Duration) -> Result<(), Error> {
        self.ended.store(0, Ordering::Release);
        let limit = limit.as_nanos() as u64;
        let arguments =
            [Argument::U64(self.flag), Argument::U64(self.answer), Argument::U32(seen), Argument::U64(limit)];
        // SAFETY: the arguments are the kernel's; the route keeps both memories, and the stream is waited for before it goes.
        Ok(unsafe { self.function.launch([1, 1, 1], [32 * WARPS, 1, 1], 0, self.stream, &arguments) }?)
    }

    #[inline]
    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire) != 0
    }
}

impl Route for AnsweredRoute<'_> {
    fn name(&self) -> &str {
        &self.ends.name
    }

    fn capacity(&self) -> u64 {
        self.ends.capacity()
    }

    fn prepare(&mut self, bytes: u64) -> Result<Box<dyn Transfer + '_>, Error> {
        self.ends.check(bytes)?;
        let from: &[u8] = self.ends.host_bytes(super::Direction::ToGpu, bytes)?;
        let kernel = self.kernel()?;
        let mut answered = Answered {
            map: &self.map,
            flag: &self.flag_map,
            kernel,
            from,
            number: 0,
            running: false,
            submitted: false,
        };
        answered.wake()?;
        Ok(Box::new(answered))
    }

    fn fill(&mut self, data: &[u8]) -> Result<(), Error> {
        self.ends.fill(data)
    }

    fn read_back(&mut self, into: &mut [u8]) -> Result<(), Error> {
        self.ends.read_back(into)
    }
}

struct Answered<'r> {
    map: &'r Bar1Map,
    flag: &'r Bar1Map,
    kernel: Kernel<'r>,
    from: &'r [u8],
    /// Of the last transfer.
    number: u32,
    running: bool,
    submitted: bool,
}

impl Answered<'_> {
    /// A kernel that waits for the number after this one.
    #[cold]
    fn wake(&mut self) -> Result<(), Error> {
        if self.running {
            // It has ended by itself: at most its last instructions are waited for.
            self.kernel.stream.synchronize()?;
        }
        // What an earlier transfer left there is no answer to this one's next number.
        self.kernel.answered.store(self.number, Ordering::Relaxed);
        self.flag.store32(0, self.number)?;
        // The load comes back after the store has arrived.
        self.flag.load32(0)?;
        self.kernel.launch(self.number, LIMIT)?;
        self.running = true;
        Ok(())
    }

    #[inline]
    fn is_answered(&self) -> bool {
        // ORDERING: what the kernel saw before it answered was there.
        self.kernel.answered.load(Ordering::Acquire) == self.number
    }
}

impl Transfer for Answered<'_> {
    #[inline]
    fn submit(&mut self) -> Result<(), Error> {
        if !self.running || self.kernel.has_ended() {
            self.wake()?;
        }
        self.map.write(0, self.from)?;
        // 0 is what the flag holds at first.
        self.number = if self.number >= STOP - 1 { 1 } else { self.number + 1 };
        // ORDERING: behind the bytes, which `write` has fenced.
        self.flag.store32(0, self.number)?;
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
        let start = Instant::now();
        loop {
            for _ in 0..64 {
                if self.is_answered() {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
            let after = start.elapsed();
            // A kernel that ended first answers no more.
            if after > timeout || (self.kernel.has_ended() && !self.is_answered()) {
                return Err(Error::Late { bytes: self.from.len() as u64, after });
            }
        }
    }

    fn rest(&mut self) -> Result<(), Error> {
        if self.running {
            self.flag.store32(0, STOP)?;
            self.kernel.stream.synchronize()?;
            self.running = false;
        }
        Ok(())
    }
}

impl Drop for Answered<'_> {
    fn drop(&mut self) {
        // Where the flag cannot be stored to any more, the kernel's own limit ends it.
        let _ = self.rest();
    }
}

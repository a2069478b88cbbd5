//! Loops: a doorbell thread launches a chain for each frame, at ticks or as inputs arrive.

use crate::call::{To, limit, many, put_if_wanted, run, wrong};
use crate::growing::{self, Growing};
use crate::session::numbered;
use crate::table::Table;
use crate::types::*;
use frame_loop::{
    Class, Full, Late, Loop, LoopOptions, Pace, Part, Producer, Results, Scheduling, Stamp, Take, Waiting,
};
use std::ffi::{CStr, c_char, c_void};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;
use submit::{Buffer, Error, Graph};

/// doorbell_loop_options_t.take: inputs in order.
pub const DOORBELL_TAKE_IN_ORDER: u32 = 0;
/// doorbell_loop_options_t.take: the newest input. Older ones count as skipped.
pub const DOORBELL_TAKE_NEWEST: u32 = 1;
/// doorbell_loop_options_t.late: ticks whose period has passed are missed. For each of them an input is skipped, but never the
/// newest.
pub const DOORBELL_LATE_SKIP: u32 = 0;
/// doorbell_loop_options_t.late: all ticks and inputs are launched, without a pause until the loop has caught up.
pub const DOORBELL_LATE_CATCH_UP: u32 = 1;
/// doorbell_loop_options_t.late: as DOORBELL_LATE_SKIP, but then takes the newest input.
pub const DOORBELL_LATE_NEWEST: u32 = 2;
/// doorbell_loop_options_t.flags: the loop ends if the slot for the next result has an unread one. Without it, the oldest result
/// is overwritten.
pub const DOORBELL_LOOP_STOP_UNREAD: u32 = 1;
/// doorbell_loop_options_t.flags: the thread spins for results until the next tick. Without it, the thread sleeps for most of
/// their usual time.
pub const DOORBELL_LOOP_SPIN: u32 = 2;
/// doorbell_loop_options_t.flags: the loop's memory and stack stay in memory (mlock).
pub const DOORBELL_LOOP_LOCK_MEMORY: u32 = 4;
/// doorbell_loop_options_t.flags: if the kernel refuses a scheduling request, doorbell_loop_create() returns an error. Without
/// it, the loop runs without what was refused.
pub const DOORBELL_LOOP_REQUIRED: u32 = 8;
/// doorbell_loop_options_t.flags: no other thread of the process runs on `cpu` while the loop lives, nor do threads that they
/// start meanwhile. Afterwards they may run there again.
pub const DOORBELL_LOOP_ALONE: u32 = 16;
/// doorbell_loop_options_t.scheduling: an ordinary thread.
pub const DOORBELL_SCHEDULING_ORDINARY: u32 = 0;
/// doorbell_loop_options_t.scheduling: SCHED_FIFO with `priority`.
pub const DOORBELL_SCHEDULING_FIFO: u32 = 1;
/// doorbell_loop_options_t.scheduling: SCHED_DEADLINE with `runtime_ns`, `runtime_within_ns` and `runtime_each_ns`.
pub const DOORBELL_SCHEDULING_DEADLINE: u32 = 2;

/// Options of a loop. Set all of it to 0, then `size`, then the fields that you need.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct doorbell_loop_options_t {
    /// sizeof(doorbell_loop_options_t).
    pub size: usize,
    /// A chain from doorbell_chain_create(), or a graph, that is launched for each frame. No other thread may launch it.
    pub chain: doorbell_graph_t,
    /// Where the chain reads: host memory from doorbell_buffer_create(). 0: there are no inputs, and each tick is launched.
    pub input: doorbell_buffer_t,
    pub input_offset: u64,
    pub input_bytes: u64,
    /// Where the chain writes: host memory from doorbell_buffer_create(). 0: results have only times.
    pub output: doorbell_buffer_t,
    pub output_offset: u64,
    pub output_bytes: u64,
    /// Number of slots for inputs. 0 means 8.
    pub slots: u32,
    /// Number of slots for results. 0 means 64.
    pub results: u32,
    /// Time between ticks. 0: a frame is launched when its input arrives.
    pub period_ns: u64,
    /// Time of tick 0, in CLOCK_MONOTONIC. 0: a period after the start.
    pub first_ns: u64,
    /// For an input without a deadline, its result is late this long after its tick or its arrival. 0: at the next tick, or never
    /// if there is no period.
    pub deadline_ns: u64,
    /// How long the thread spins before a tick, or for the next input before it sleeps. 0 means 50 us.
    pub spin_ns: u64,
    /// Maximum wait for a result. 0 means 2 s.
    pub limit_ns: u64,
    /// DOORBELL_TAKE_IN_ORDER or DOORBELL_TAKE_NEWEST.
    pub take: u32,
    /// DOORBELL_LATE_SKIP, DOORBELL_LATE_CATCH_UP or DOORBELL_LATE_NEWEST.
    pub late: u32,
    /// 0, or a combination of DOORBELL_LOOP_STOP_UNREAD, DOORBELL_LOOP_SPIN, DOORBELL_LOOP_LOCK_MEMORY, DOORBELL_LOOP_REQUIRED
    /// and DOORBELL_LOOP_ALONE.
    pub flags: u32,
    /// The descriptor is signalled once for this many results. 0 means 1.
    pub signal_each: u32,
    /// DOORBELL_SCHEDULING_ORDINARY, DOORBELL_SCHEDULING_FIFO or DOORBELL_SCHEDULING_DEADLINE.
    pub scheduling: u32,
    /// For SCHED_FIFO, 1 to 99.
    pub priority: i32,
    /// The thread's CPU plus 1. 0: any.
    pub cpu: u32,
    pub reserved: u32,
    /// For SCHED_DEADLINE: its runtime, deadline and period.
    pub runtime_ns: u64,
    pub runtime_within_ns: u64,
    pub runtime_each_ns: u64,
    /// The thread's name, up to 15 bytes. Null: doorbell-loop.
    pub name: *const c_char,
}

// SAFETY: numbers and a pointer.
unsafe impl Growing for doorbell_loop_options_t {
    const FIRST: usize = size_of::<doorbell_loop_options_t>();
}

/// The data of a frame. Times are nanoseconds of CLOCK_MONOTONIC, and 0 means no time.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct doorbell_result_t {
    /// sizeof(doorbell_result_t): set it before the call.
    pub size: usize,
    /// The tick, or the number of the input; both count from 0.
    pub frame: u64,
    /// From the producer, as is `tag`.
    pub sequence: u64,
    pub tag: u64,
    /// Time of the tick. Without a period, the time when the input was put.
    pub due_ns: u64,
    pub put_ns: u64,
    pub launched_ns: u64,
    pub done_ns: u64,
    pub deadline_ns: u64,
    /// Inputs that were skipped since the result before this.
    pub skipped: u64,
    /// Not launched, because its deadline had passed.
    pub refused: bool,
    /// Done after its deadline.
    pub late: bool,
}

// SAFETY: numbers and flags.
unsafe impl Growing for doorbell_result_t {
    const FIRST: usize = size_of::<doorbell_result_t>();
}

/// Counts and times of a loop so far. Each figure is right by itself, but two of them may be a frame apart.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct doorbell_loop_statistics_t {
    /// sizeof(doorbell_loop_statistics_t): set it before the call.
    pub size: usize,
    /// Frames that were launched and have a result.
    pub frames: u64,
    /// Ticks that passed without a launch.
    pub missed: u64,
    /// Results after their deadline.
    pub late: u64,
    /// Inputs that were not launched: overtaken by newer ones, or too late.
    pub skipped: u64,
    /// Ticks without an input.
    pub starved: u64,
    /// Results that overwrote an unread one.
    pub overruns: u64,
    /// Launches that found another thread launching, and were tried again.
    pub busy: u64,
    /// From the tick or the input until the result was seen, in nanoseconds.
    pub done_p50_ns: u64,
    pub done_p99_ns: u64,
    pub done_p999_ns: u64,
    pub done_max_ns: u64,
    /// How much later than requested the thread woke up, in nanoseconds.
    pub wake_p50_ns: u64,
    pub wake_p99_ns: u64,
    pub wake_p999_ns: u64,
    pub wake_max_ns: u64,
    /// 1 while it runs, 2 when it has ended.
    pub state: u32,
    /// Why it has ended: 0 not ended, 1 stopped by the program, 2 results not read, 3 channel killed, 4 channel stopped, 5 memory
    /// freed, 6 session freed, 7 chain freed, 8 fork's child, 9 result not in time, 10 launch refused, 11 error in doorbell.
    pub reason: u32,
}

// SAFETY: numbers.
unsafe impl Growing for doorbell_loop_statistics_t {
    const FIRST: usize = size_of::<doorbell_loop_statistics_t>();
}

pub(crate) struct Held {
    of: Loop,
    slots: u32,
    producer: Mutex<Option<Producer>>,
    results: Mutex<Option<Results>>,
}

impl Held {
    pub fn stop(&self) {
        self.of.stop();
    }
}

pub(crate) static LOOPS: Table<Held> = Table::new(9, "loop");

/// `slots`: for inputs.
fn told(error: frame_loop::Error, slots: u32) -> Error {
    use frame_loop::{Error as Of, Reason};
    match error {
        Of::Argument(what) => Error::Argument(what),
        Of::Session(error) => error,
        Of::Forked | Of::Ended(Reason::Forked) => Error::Forked,
        Of::Full => Error::Full(slots),
        Of::Ended(Reason::Closed) => Error::Closed,
        Of::Ended(Reason::Freed) => Error::Freed,
        Of::Ended(Reason::Stopped) => Error::Stopped,
        other => Error::Unavailable(other.to_string()),
    }
}

/// For one thread at a time: a second one does not wait, but gets an error.
fn mine<T>(of: &Mutex<T>) -> Result<MutexGuard<'_, T>, Error> {
    match of.try_lock() {
        Ok(mine) => Ok(mine),
        Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => Err(Error::Busy),
    }
}

/// # Safety
/// Each text of the options is a valid C string.
unsafe fn options(from: &doorbell_loop_options_t) -> Result<LoopOptions, Error> {
    const FLAGS: u32 = DOORBELL_LOOP_STOP_UNREAD
        | DOORBELL_LOOP_SPIN
        | DOORBELL_LOOP_LOCK_MEMORY
        | DOORBELL_LOOP_REQUIRED
        | DOORBELL_LOOP_ALONE;
    if from.flags & !FLAGS != 0 || from.reserved != 0 {
        return Err(wrong("options.flags of a loop has a flag that this version does not know"));
    }
    let pace = if from.period_ns == 0 { Pace::Frames } else { Pace::Period(limit(from.period_ns)) };
    let mut of = LoopOptions::new(Graph::from_raw(from.chain), pace);
    let part = |buffer, at, bytes| (buffer != 0).then(|| Part { buffer: Buffer::from_raw(buffer), at, bytes });
    of.input = part(from.input, from.input_offset, from.input_bytes);
    of.output = part(from.output, from.output_offset, from.output_bytes);
    let or = |given: u32, otherwise: u32| if given == 0 { otherwise } else { given };
    (of.slots, of.results, of.signal_each) =
        (or(from.slots, of.slots), or(from.results, of.results), or(from.signal_each, 1));
    of.first = from.first_ns;
    let some = |ns: u64, otherwise: Duration| if ns == 0 { otherwise } else { limit(ns) };
    (of.spin, of.limit) = (some(from.spin_ns, of.spin), some(from.limit_ns, of.limit));
    of.deadline = (from.deadline_ns != 0).then(|| limit(from.deadline_ns));
    of.take = match from.take {
        DOORBELL_TAKE_IN_ORDER => Take::InOrder,
        DOORBELL_TAKE_NEWEST => Take::Newest,
        _ => return Err(wrong("options.take of a loop is none that this version knows")),
    };
    of.late = match from.late {
        DOORBELL_LATE_SKIP => Late::Skip,
        DOORBELL_LATE_CATCH_UP => Late::CatchUp,
        DOORBELL_LATE_NEWEST => Late::Latest,
        _ => return Err(wrong("options.late of a loop is none that this version knows")),
    };
    let has = |flag| from.flags & flag != 0;
    of.full = if has(DOORBELL_LOOP_STOP_UNREAD) { Full::Stop } else { Full::Overwrite };
    of.waiting = if has(DOORBELL_LOOP_SPIN) { Waiting::Spin } else { Waiting::Nap };
    let class = match from.scheduling {
        DOORBELL_SCHEDULING_ORDINARY => Class::Ordinary,
        DOORBELL_SCHEDULING_FIFO => Class::Fifo(from.priority),
        DOORBELL_SCHEDULING_DEADLINE => Class::Deadline {
            runtime: limit(from.runtime_ns),
            deadline: limit(from.runtime_within_ns),
            period: limit(from.runtime_each_ns),
        },
        _ => return Err(wrong("options.scheduling of a loop is none that this version knows")),
    };
    let cpu = (from.cpu as usize).checked_sub(1);
    of.scheduling = Scheduling {
        class,
        cpu,
        alone: has(DOORBELL_LOOP_ALONE),
        lock_memory: has(DOORBELL_LOOP_LOCK_MEMORY),
        required: has(DOORBELL_LOOP_REQUIRED),
    };
    if !from.name.is_null() {
        // SAFETY: the caller guarantees it.
        of.name = unsafe { CStr::from_ptr(from.name) }.to_string_lossy().into_owned();
    }
    Ok(of)
}

/// Starts a loop: a doorbell thread that launches a chain for each frame, waits for it, and puts its result into a ring. No CUDA
/// lock and no interpreter delays it.
/// Cost: milliseconds, a thread and some memory. Threads: any. Errors: DOORBELL_ARGUMENT with the reason. DOORBELL_UNAVAILABLE if
/// the kernel refuses a required request. DOORBELL_HANDLE, DOORBELL_LIMIT, DOORBELL_CLOSED, DOORBELL_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_loop_create(
    doorbell: *mut doorbell_t,
    options: *const doorbell_loop_options_t,
    frame_loop: *mut doorbell_loop_t,
) -> i32 {
    run(|| {
        // SAFETY: the caller guarantees it.
        let (answer, given) = unsafe { (To::new(frame_loop)?, growing::one(options)?) };
        let (pointer, session) = numbered(doorbell)?;
        // SAFETY: the caller guarantees it.
        let options = unsafe { self::options(&given.ok_or(wrong("a loop has options: the chain at least"))?) }?;
        let slots = options.slots;
        let started = Loop::start(session, options).map_err(|error| told(error, slots))?;
        let (producer, results) = (Mutex::new(started.producer()), Mutex::new(started.results()));
        answer.put(LOOPS.put(pointer, Held { of: started, slots, producer, results })?);
        Ok(())
    })
}

/// Puts an input: its bytes, the producer's number for it, when its result is due, and a tag. `deadline_ns` is in
/// CLOCK_MONOTONIC, or 0 for the deadline of the options. The result returns number and tag. `number` (may be null) becomes the
/// input's number, from 0.
/// Cost: a copy of the bytes, and a system call if the loop sleeps. Threads: one at a time, otherwise DOORBELL_BUSY. Errors:
/// DOORBELL_FULL if no slot is free. DOORBELL_UNAVAILABLE if the loop has ended. DOORBELL_ARGUMENT, DOORBELL_HANDLE,
/// DOORBELL_CLOSED, DOORBELL_FREED, DOORBELL_STOPPED, DOORBELL_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_loop_put(
    doorbell: *mut doorbell_t,
    frame_loop: doorbell_loop_t,
    data: *const c_void,
    bytes: usize,
    sequence: u64,
    deadline_ns: u64,
    tag: u64,
    number: *mut u64,
) -> i32 {
    run(|| {
        // SAFETY: the caller guarantees it.
        let data = unsafe { many(data.cast::<u8>(), bytes) }?;
        let held = LOOPS.find(doorbell, frame_loop)?;
        let mut producer = mine(&held.producer)?;
        let producer = producer.as_mut().ok_or(wrong("the loop has no inputs"))?;
        let put = producer
            .put(data, Stamp { sequence, deadline: deadline_ns, tag })
            .map_err(|error| told(error, held.slots))?;
        // SAFETY: the caller guarantees it.
        unsafe { put_if_wanted(number, put) };
        Ok(())
    })
}

/// Takes the next result, if there is one, which `there` reports. Copies as many of its bytes to `data` (may be null) as fit into
/// `room`.
/// Cost: a copy of the bytes. Threads: one at a time, otherwise DOORBELL_BUSY. Errors: DOORBELL_HANDLE, DOORBELL_ARGUMENT,
/// DOORBELL_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_loop_next(
    doorbell: *mut doorbell_t,
    frame_loop: doorbell_loop_t,
    result: *mut doorbell_result_t,
    data: *mut c_void,
    room: usize,
    there: *mut bool,
) -> i32 {
    run(|| {
        // SAFETY: the caller guarantees it. All that can be wrong is wrong before a result is taken.
        let (answer, result) = unsafe { (To::new(there)?, growing::room(result)?) };
        let held = LOOPS.find(doorbell, frame_loop)?;
        let mut results = mine(&held.results)?;
        let results = results.as_mut().ok_or(wrong("somebody else reads the results"))?;
        if room > isize::MAX as usize || room > 0 && data.is_null() {
            return Err(wrong("the place for the bytes is null, or too large"));
        }
        let into = if room == 0 {
            &mut []
        } else {
            // SAFETY: the caller guarantees it.
            unsafe { std::slice::from_raw_parts_mut(data.cast::<u8>(), room) }
        };
        let found = results.next(into).map_err(|error| told(error, held.slots))?;
        if let Some(one) = found {
            let said = doorbell_result_t {
                size: 0,
                frame: one.frame,
                sequence: one.sequence,
                tag: one.tag,
                due_ns: one.due,
                put_ns: one.time_in,
                launched_ns: one.launched,
                done_ns: one.done,
                deadline_ns: one.deadline,
                skipped: one.skipped,
                refused: one.refused,
                late: one.late,
            };
            result.put(said);
        }
        answer.put(found.is_some());
        Ok(())
    })
}

/// Waits until results were signalled or the loop has ended. Then take all of them.
/// Cost: a system call. Threads: one at a time, otherwise DOORBELL_BUSY. Errors: DOORBELL_TIMEOUT, DOORBELL_HANDLE,
/// DOORBELL_FORKED.
#[unsafe(no_mangle)]
pub extern "C" fn doorbell_loop_wait(doorbell: *mut doorbell_t, frame_loop: doorbell_loop_t, timeout_ns: u64) -> i32 {
    run(|| {
        let held = LOOPS.find(doorbell, frame_loop)?;
        let results = mine(&held.results)?;
        let results = results.as_ref().ok_or(wrong("somebody else reads the results"))?;
        if results.wait(limit(timeout_ns)) { Ok(()) } else { Err(Error::Timeout(limit(timeout_ns))) }
    })
}

/// Returns a descriptor for poll, epoll and asyncio. It becomes readable when results were signalled, and stays so until
/// doorbell_loop_wait() has returned. It ends with the loop.
/// Cost: none. Threads: any. Errors: DOORBELL_HANDLE, DOORBELL_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_loop_descriptor(
    doorbell: *mut doorbell_t,
    frame_loop: doorbell_loop_t,
    descriptor: *mut i32,
) -> i32 {
    run(|| {
        // SAFETY: the caller guarantees it.
        let answer = unsafe { To::new(descriptor) }?;
        answer.put(LOOPS.find(doorbell, frame_loop)?.of.event_fd());
        Ok(())
    })
}

/// Returns the counts and times of a loop so far, and whether it runs. `text` (may be null) gets at most `room` bytes of English
/// with a zero at the end: why the loop has ended, and which scheduling requests the kernel refused.
/// Cost: microseconds. Threads: any. Errors: DOORBELL_HANDLE, DOORBELL_ARGUMENT, DOORBELL_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_loop_statistics(
    doorbell: *mut doorbell_t,
    frame_loop: doorbell_loop_t,
    statistics: *mut doorbell_loop_statistics_t,
    text: *mut c_char,
    room: usize,
) -> i32 {
    run(|| {
        // SAFETY: the caller guarantees it.
        let answer = unsafe { growing::room(statistics) }?;
        let held = LOOPS.find(doorbell, frame_loop)?;
        let (of, status) = (held.of.statistics(), held.of.status());
        let said = doorbell_loop_statistics_t {
            size: 0,
            frames: of.frames,
            missed: of.missed,
            late: of.late,
            skipped: of.skipped,
            starved: of.starved,
            overruns: of.overruns,
            busy: of.busy,
            done_p50_ns: of.done.percentile(50.0),
            done_p99_ns: of.done.percentile(99.0),
            done_p999_ns: of.done.percentile(99.9),
            done_max_ns: of.done.max,
            wake_p50_ns: of.wake.percentile(50.0),
            wake_p99_ns: of.wake.percentile(99.0),
            wake_p999_ns: of.wake.percentile(99.9),
            wake_max_ns: of.wake.max,
            state: status.state as u32,
            reason: status.reason as u32,
        };
        answer.put(said);
        let why = held.of.why().into_iter().chain(held.of.refused().iter().cloned()).collect::<Vec<_>>().join("; ");
        // SAFETY: the caller guarantees it.
        unsafe { crate::call::put_text(text, room, &why) };
        Ok(())
    })
}

/// Stops a loop and waits until its thread has ended, a tenth of a second at most. Its results can still be taken.
/// Cost: the wait. Threads: any. Errors: DOORBELL_HANDLE, DOORBELL_FORKED.
#[unsafe(no_mangle)]
pub extern "C" fn doorbell_loop_stop(doorbell: *mut doorbell_t, frame_loop: doorbell_loop_t) -> i32 {
    run(|| LOOPS.find(doorbell, frame_loop).map(|held| held.stop()))
}

/// Stops and ends a loop. The chain stays.
/// Cost: the wait. Threads: any. Errors: DOORBELL_HANDLE, DOORBELL_FORKED.
#[unsafe(no_mangle)]
pub extern "C" fn doorbell_loop_free(doorbell: *mut doorbell_t, frame_loop: doorbell_loop_t) -> i32 {
    run(|| LOOPS.take(doorbell, frame_loop).map(|held| held.stop()))
}

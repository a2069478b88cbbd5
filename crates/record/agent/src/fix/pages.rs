//! Batches of copies, made by libdoorbell on channels of its own (`run --fix=pages`).
//!
//! CUDA sends small pieces to the GPU inside its commands, one after the other: 2 to 7 GB/s. libdoorbell's copy engine takes them where they are. The batch has the place
//! in its stream that CUDA's would have: the stream is waited for, and its later work waits for the copies.
//!
//! One thread at a time has the sessions and the list. Another one's batch is passed on: nobody waits here.
//!
//! Each stream with pending batches has a session of its own, with one lane: what waits on a lane for its stream must not hold up another stream's batch.

use super::batch::Batch;
use super::driver::{self, Driver, SUCCESS};
use super::known::Known;
use super::{told, turn_off};
use crate::process::{symbol, sys};
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, Ordering};
use tape::fix::{Count, Why};

/// Codes of doorbell.h.
const OK: i32 = 0;
const FREED: i32 = 4;
const BUSY: i32 = 6;
const FULL: i32 = 7;
const NOT_PINNABLE: i32 = 14;
const UNAVAILABLE: i32 = 15;

/// `doorbell_piece_t`
#[repr(C)]
struct Piece {
    to: u64,
    to_at: u64,
    from: u64,
    from_at: u64,
    bytes: u64,
}

/// `doorbell_options_t`
#[repr(C)]
struct Options {
    size: usize,
    kind: u32,
    gpu: u32,
    lanes: u32,
    flags: u32,
    log: usize,
    log_user: usize,
    profile: *const core::ffi::c_char,
    launch_lanes: u32,
}

/// `doorbell_order_t`
#[repr(C)]
struct Order {
    size: usize,
    flags: u32,
    ticket_count: u32,
    tickets: usize,
    stream: usize,
    rest: [u64; 6],
}

/// DOORBELL_ORDER_STREAM and DOORBELL_ORDER_STREAM_WAITS
const IN_STREAM: u32 = 3;

/// An allocation that libdoorbell knows.
#[derive(Clone, Copy)]
struct Range {
    first: usize,
    bytes: usize,
    buffer: u64,
    on_device: bool,
}

impl Range {
    const NONE: Range = Range { first: 0, bytes: 0, buffer: 0, on_device: false };
}

const RANGES: usize = 256;
/// What a session's lane has room for, in slots of some 80 pieces. A batch that waits for its stream takes its place there until the stream goes on.
const ROOM: usize = 110;
/// As many streams as CUDA has channels for by default. The others' batches are passed on.
const STREAMS: usize = 8;

/// What one thread at a time has.
struct State {
    library: Option<Library>,
    /// No session can be opened, or no other one.
    failed: bool,
    sessions: [Session; STREAMS],
    /// Room for pieces.
    list: usize,
    room: usize,
}

/// A session of libdoorbell's, or 0 if it was not opened yet.
struct Session {
    handle: usize,
    /// CUDA's number.
    gpu: i32,
    /// The stream of the last batch, and its ticket; [`UNKNOWN`] if it failed: the lane may wait for the stream.
    stream: usize,
    ticket: u64,
    /// Slots of batches that may be pending.
    used: usize,
    ranges: [Range; RANGES],
    n: usize,
    /// Buffers that pending batches may name, to be freed.
    leaving: [u64; RANGES],
    leaving_n: usize,
}

const UNKNOWN: u64 = u64::MAX;

struct Library {
    create: unsafe extern "C" fn(*const c_void, *mut usize) -> i32,
    register: unsafe extern "C" fn(usize, usize, u64, *mut u64) -> i32,
    free: unsafe extern "C" fn(usize, u64) -> i32,
    batch: unsafe extern "C" fn(usize, *const Piece, usize, usize, *const Order, *mut u64) -> i32,
    wait: unsafe extern "C" fn(usize, u64, u64) -> i32,
    poll: unsafe extern "C" fn(usize, u64, *mut bool) -> i32,
}

static IS_TAKEN: AtomicBool = AtomicBool::new(false);
struct One(core::cell::UnsafeCell<State>);
// SAFETY: only the thread that has set IS_TAKEN reaches it.
unsafe impl Sync for One {}
static STATE: One = One(core::cell::UnsafeCell::new(State {
    library: None,
    failed: false,
    sessions: [const { Session::NONE }; STREAMS],
    list: 0,
    room: 0,
}));

struct Taken;

impl Taken {
    fn try_new() -> Option<Taken> {
        // ORDERING: Acquire: the state is as the thread before left it.
        (!IS_TAKEN.swap(true, Ordering::Acquire)).then_some(Taken)
    }

    fn state(&mut self) -> &mut State {
        // SAFETY: this thread has set IS_TAKEN, and there is one Taken.
        unsafe { &mut *STATE.0.get() }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        IS_TAKEN.store(false, Ordering::Release);
    }
}

impl Library {
    /// `None` if it is not loaded.
    fn look_up() -> Option<Library> {
        let at = [
            c"doorbell_create",
            c"doorbell_buffer_register",
            c"doorbell_buffer_free",
            c"doorbell_copy_batch_async",
            c"doorbell_wait",
            c"doorbell_poll",
        ]
        .map(symbol::next);
        if at.contains(&0) {
            return None;
        }
        let [create, register, free, batch, wait, poll] = at;
        // SAFETY: functions of these types (doorbell.h).
        unsafe {
            Some(Library {
                create: core::mem::transmute::<usize, unsafe extern "C" fn(*const c_void, *mut usize) -> i32>(create),
                register: core::mem::transmute::<usize, unsafe extern "C" fn(usize, usize, u64, *mut u64) -> i32>(
                    register,
                ),
                free: core::mem::transmute::<usize, unsafe extern "C" fn(usize, u64) -> i32>(free),
                batch: core::mem::transmute::<
                    usize,
                    unsafe extern "C" fn(usize, *const Piece, usize, usize, *const Order, *mut u64) -> i32,
                >(batch),
                wait: core::mem::transmute::<usize, unsafe extern "C" fn(usize, u64, u64) -> i32>(wait),
                poll: core::mem::transmute::<usize, unsafe extern "C" fn(usize, u64, *mut bool) -> i32>(poll),
            })
        }
    }
}

/// libdoorbell observes CUDA's calls to the kernel driver from now on.
pub fn observe() {
    let init = symbol::next(c"doorbell_init");
    if init != 0 {
        // SAFETY: libdoorbell's function, without arguments. If it fails, the session cannot be opened, which is said then.
        unsafe { core::mem::transmute::<usize, unsafe extern "C" fn() -> i32>(init)() };
    }
}

/// # Safety
/// The arguments are a caller's of a function that copies a batch in a stream.
pub unsafe fn batch(count: &Count, b: &Batch, stream: usize) -> Result<i32, Why> {
    let d = super::driver(count)?;
    if stream <= driver::PER_THREAD {
        return Err(Why::DefaultStream);
    }
    let mut capturing = 0;
    // SAFETY: a place for the result.
    if unsafe { (d.is_capturing)(stream, &raw mut capturing) } != SUCCESS || capturing != 0 {
        return Err(Why::Capture);
    }
    // SAFETY: the caller's arrays.
    let pieces = unsafe { b.count()? };
    let slots = 3 + pieces / 40;
    let mut taken = Taken::try_new().ok_or(Why::Busy)?;
    let state = taken.state();
    state.make_room(pieces)?;
    let mut gpu = 0;
    // SAFETY: a place for the result.
    if unsafe { (d.current_device)(&raw mut gpu) } != SUCCESS {
        return Err(Why::Context);
    }
    let (at, list) = (state.session_for(stream, gpu)?, state.list);
    let (Some(library), Some(session)) = (&state.library, state.sessions.get_mut(at)) else { return Err(Why::Library) };
    if session.is_idle(library) {
        session.settle(library);
    } else if session.used + slots > ROOM || session.n == RANGES {
        // (The call would wait for its stream, which may wait for this thread.)
        return Err(Why::Busy);
    }
    // SAFETY: the caller's arrays, and room for as many pieces.
    let (pieces, total) = unsafe { session.put(library, &d, b, (list as *mut Piece, pieces))? };
    session.used += slots;
    session.submit(library, count, stream, (list as *const Piece, pieces, total))
}

impl State {
    /// The session of the stream's pending batches, one without any, or a new one.
    fn session_for(&mut self, stream: usize, gpu: i32) -> Result<usize, Why> {
        if self.library.is_none() && !self.failed {
            self.library = Library::look_up();
            self.failed = self.library.is_none();
        }
        let library = self.library.as_ref().ok_or(Why::Library)?;
        let open = self.sessions.iter().take_while(|session| session.handle != 0).count();
        let opened = self.sessions.get(..open).unwrap_or(&[]);
        let own = opened.iter().position(|session| (session.stream, session.gpu) == (stream, gpu));
        let idle = || opened.iter().position(|session| session.gpu == gpu && session.is_idle(library));
        if let Some(at) = own.or_else(idle) {
            return Ok(at);
        }
        if self.failed {
            return Err(if open == 0 { Why::Library } else { Why::Busy });
        }
        let room = self.sessions.get_mut(open).ok_or(Why::Busy)?;
        // DOORBELL_BESIDE_CUDA. Copies that wait for a stream are engines': without a profile.
        let options = Options {
            size: size_of::<Options>(),
            kind: 1,
            gpu: gpu as u32,
            lanes: 1,
            flags: 0,
            log: 0,
            log_user: 0,
            profile: c"".as_ptr(),
            launch_lanes: 1,
        };
        // SAFETY: options of that size, and a place for the session.
        if unsafe { (library.create)((&raw const options).cast(), &raw mut room.handle) } != OK || room.handle == 0 {
            room.handle = 0;
            self.failed = true;
            return Err(if open == 0 { Why::Library } else { Why::Busy });
        }
        room.gpu = gpu;
        Ok(open)
    }

    fn make_room(&mut self, count: usize) -> Result<(), Why> {
        if count <= self.room {
            return Ok(());
        }
        let room = count.next_power_of_two().max(4096);
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let bytes = room.checked_mul(size_of::<Piece>()).ok_or(Why::Full)?;
        // SAFETY: a new mapping; the old one is this state's own.
        unsafe {
            let list = sys::mmap(sys::AWAY, bytes, protection, flags, -1, 0).ok_or(Why::Full)?;
            if self.list != 0 {
                sys::munmap(self.list, self.room * size_of::<Piece>());
            }
            (self.list, self.room) = (list, room);
        }
        Ok(())
    }
}

impl Session {
    const NONE: Session = Session {
        handle: 0,
        gpu: 0,
        stream: 0,
        ticket: 0,
        used: 0,
        ranges: [Range::NONE; RANGES],
        n: 0,
        leaving: [0; RANGES],
        leaving_n: 0,
    };

    /// Whether no batch is pending.
    fn is_idle(&self, library: &Library) -> bool {
        if self.ticket == 0 || self.ticket == UNKNOWN {
            return self.ticket == 0;
        }
        let mut done = false;
        // SAFETY: the session's ticket, and a place for the answer.
        unsafe { (library.poll)(self.handle, self.ticket, &raw mut done) != OK || done }
    }

    /// No batch is pending: buffers that leave are freed, and all if there is room for no more.
    fn settle(&mut self, library: &Library) {
        self.used = 0;
        self.free(library);
        if self.n == RANGES {
            self.forget();
            self.free(library);
        }
    }

    fn free(&mut self, library: &Library) {
        for buffer in self.leaving.iter().take(self.leaving_n) {
            // SAFETY: a handle of the session's.
            unsafe { (library.free)(self.handle, *buffer) };
        }
        self.leaving_n = 0;
    }

    /// The buffer of a byte range, and its offset there.
    fn find(&self, at: usize, bytes: usize) -> Option<(Range, u64)> {
        let holds =
            |range: &&Range| at >= range.first && bytes <= range.bytes && at - range.first <= range.bytes - bytes;
        let range = self.ranges.get(..self.n)?.iter().find(holds)?;
        Some((*range, (at - range.first) as u64))
    }

    /// Makes the allocation around an address known to libdoorbell.
    fn register(&mut self, library: &Library, d: &Driver, at: usize, piece: usize) -> Result<(), Why> {
        let Some(known) = Known::at(d, at) else { return Err(Why::NotPinned) };
        let on_device = known.is_on_device();
        if !on_device && !known.is_pinned() {
            return Err(Why::NotPinned);
        }
        let mut buffer = 0;
        let (first, bytes) = told::range(d, at).ok_or(Why::Range)?;
        if first == 0 || piece > bytes || at - first > bytes - piece {
            return Err(Why::Range);
        }
        let room = self.ranges.get_mut(self.n).ok_or(Why::Full)?;
        // SAFETY: an allocation of CUDA's, and a place for the handle.
        match unsafe { (library.register)(self.handle, first, bytes as u64, &raw mut buffer) } {
            OK => {}
            NOT_PINNABLE | UNAVAILABLE => return Err(Why::NotPinned),
            _ => return Err(Why::Full),
        }
        *room = Range { first, bytes, buffer, on_device };
        self.n += 1;
        Ok(())
    }

    fn buffer(
        &mut self,
        (library, d): (&Library, &Driver),
        last: &mut Range,
        at: usize,
        bytes: usize,
    ) -> Result<u64, Why> {
        if at >= last.first && bytes <= last.bytes && at - last.first <= last.bytes - bytes {
            return Ok((at - last.first) as u64);
        }
        if self.find(at, bytes).is_none() {
            self.register(library, d, at, bytes)?;
        }
        let (range, offset) = self.find(at, bytes).ok_or(Why::Range)?;
        *last = range;
        Ok(offset)
    }

    /// Writes the list. The number of its pieces, and of their bytes.
    ///
    /// # Safety
    /// As [`batch`], and room for that many pieces.
    unsafe fn put(
        &mut self,
        library: &Library,
        d: &Driver,
        b: &Batch,
        (list, room): (*mut Piece, usize),
    ) -> Result<(usize, u64), Why> {
        let (mut to_range, mut from_range, mut total, mut n) = (Range::NONE, Range::NONE, 0u64, 0);
        // SAFETY: the caller's arrays.
        unsafe {
            b.each(|of| {
                /// libdoorbell's pieces of long lists.
                const LONGEST: usize = 1 << 30;
                if of.bytes == 0 || of.bytes > LONGEST {
                    return Err(Why::Flags);
                }
                // (Another thread has changed the arrays meanwhile.)
                if n == room {
                    return Err(Why::Full);
                }
                let to_at = self.buffer((library, d), &mut to_range, of.to, of.bytes)?;
                let from_at = self.buffer((library, d), &mut from_range, of.from, of.bytes)?;
                if to_range.on_device == from_range.on_device {
                    return Err(Why::NotPinned);
                }
                let bytes = of.bytes as u64;
                let piece = Piece { to: to_range.buffer, to_at, from: from_range.buffer, from_at, bytes };
                list.add(n).write(piece);
                (n, total) = (n + 1, total + bytes);
                Ok(())
            })?;
        }
        Ok((n, total))
    }

    fn submit(
        &mut self,
        library: &Library,
        count: &Count,
        stream: usize,
        (list, pieces, total): (*const Piece, usize, u64),
    ) -> Result<i32, Why> {
        let order =
            Order { size: size_of::<Order>(), flags: IN_STREAM, ticket_count: 0, tickets: 0, stream, rest: [0; 6] };
        let mut ticket = 0;
        // SAFETY: the list that was written, and a stream of the caller's.
        let mut code = unsafe {
            (library.batch)(self.handle, list, pieces, size_of::<Piece>(), &raw const order, &raw mut ticket)
        };
        if code != OK && ticket != 0 {
            // (It was submitted, but the stream does not wait for it.)
            // SAFETY: the session's ticket.
            code = unsafe { (library.wait)(self.handle, ticket, u64::MAX) };
        }
        (self.stream, self.ticket) = (stream, if ticket == 0 { UNKNOWN } else { ticket });
        match code {
            OK => {
                count.answered(total);
                Ok(SUCCESS)
            }
            FREED => {
                self.forget();
                Err(Why::Range)
            }
            BUSY | FULL => Err(Why::Busy),
            _ => Err(turn_off(count, code)),
        }
    }

    /// Some memory has ended: what is still there is made known again. (A free waits for pending batches, and would stop them.)
    fn forget(&mut self) {
        for range in self.ranges.iter().take(self.n) {
            if let Some(to) = self.leaving.get_mut(self.leaving_n) {
                *to = range.buffer;
                self.leaving_n += 1;
            }
        }
        self.n = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;

    #[test]
    fn structs_are_as_in_libdoorbells_header() {
        let header = include_str!("../../../../gpu/libdoorbell/include/abi.txt");
        let places = |name: &str| {
            let of = header.lines().skip_while(|line| line.split(' ').next() != Some(name));
            let fields = of.skip(1).take_while(|line| line.starts_with("  "));
            fields
                .map(|line| {
                    let mut words = line.split_whitespace();
                    (words.next().unwrap(), words.next().unwrap().parse::<usize>().unwrap())
                })
                .collect::<Vec<_>>()
        };
        macro_rules! of {
            ($of:ty, $name:literal, $($field:ident)*) => {
                let all = places($name);
                $(assert!(all.contains(&(stringify!($field), offset_of!($of, $field))), "{} {}", $name, stringify!($field));)*
            };
        }
        of!(Options, "doorbell_options_t", size kind gpu lanes flags log log_user profile launch_lanes);
        of!(Order, "doorbell_order_t", size flags ticket_count tickets stream);
        assert_eq!(size_of::<Order>(), 80);
        assert!(size_of::<Piece>() == 40 && places("doorbell_piece_t").contains(&("bytes", offset_of!(Piece, bytes))));
    }
}

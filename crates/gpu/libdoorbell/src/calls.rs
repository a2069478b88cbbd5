//! The functions.

use crate::codes::*;
use crate::detail;
use crate::types::*;
use std::ffi::{CStr, CString, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use submit::{Buffer, Copy, Error, Executor, Follow, Kind, Message, Options, Piece, Ring, Session, Transfer};

/// The process's.
pub(crate) static SESSION: Session = Session::new();

/// A piece of C's is one of submit's.
const _: () = assert!(size_of::<Piece>() == size_of::<doorbell_piece_t>());
const _: () = assert!(Session::MESSAGE == DOORBELL_MESSAGE_BYTES);

/// A null or otherwise wrong argument.
const fn wrong(what: &'static str) -> Error {
    Error::Argument(what)
}

#[inline]
pub(crate) fn run(call: impl FnOnce() -> Result<(), Error>) -> i32 {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => DOORBELL_OK,
        Ok(Err(error)) => failed(&error),
        Err(panic) => panicked(&*panic),
    }
}

#[cold]
fn failed(error: &Error) -> i32 {
    detail::set(error);
    code(error)
}

#[cold]
fn panicked(panic: &(dyn std::any::Any + Send)) -> i32 {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    detail::set(&text.unwrap_or("a panic without a text"));
    DOORBELL_PANIC
}

/// Writes an answer, and asks first whether there is a place for it.
pub(crate) struct To<T>(*mut T);

impl<T> To<T> {
    /// # Safety
    /// `at` is null or may be written.
    pub(crate) unsafe fn new(at: *mut T) -> Result<To<T>, Error> {
        if at.is_null() { Err(wrong("the pointer for the answer is null")) } else { Ok(To(at)) }
    }

    pub(crate) fn put(self, value: T) {
        // SAFETY: not null, and the caller of `new` says that it may be written.
        unsafe { self.0.write(value) };
    }
}

/// # Safety
/// `at` is null or leads to `count` values.
pub(crate) unsafe fn many<'a, T>(at: *const T, count: usize) -> Result<&'a [T], Error> {
    if count == 0 {
        return Ok(&[]);
    }
    if at.is_null() || !at.is_aligned() || count > isize::MAX as usize / size_of::<T>() {
        return Err(wrong("a pointer is null or not aligned, or the count is too large"));
    }
    // SAFETY: the caller's.
    Ok(unsafe { std::slice::from_raw_parts(at, count) })
}

fn limit(nanoseconds: u64) -> Duration {
    Duration::from_nanos(nanoseconds)
}

/// The library's version: major << 16 | minor << 8 | patch. Programs that were built for the same major version go on to work.
/// Cost: none. Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn doorbell_version() -> u32 {
    let part = |text: &str| text.parse::<u32>().unwrap_or(0);
    part(env!("CARGO_PKG_VERSION_MAJOR")) << 16
        | part(env!("CARGO_PKG_VERSION_MINOR")) << 8
        | part(env!("CARGO_PKG_VERSION_PATCH"))
}

/// From now on CUDA's calls to the kernel driver are seen, as a session beside CUDA needs it. Call it before anything initialises
/// CUDA; doorbell_open() may come later, when CUDA is at work. It loads libcuda and initialises nothing. A second call does
/// nothing. Where CUDA was initialised before, this is DOORBELL_OK, too: doorbell_watching() tells, doorbell_open() then asks the kernel driver what CUDA
/// has, and graphs are DOORBELL_UNAVAILABLE.
/// Cost: milliseconds, once. Threads: any. Errors: DOORBELL_UNAVAILABLE where there is no libcuda.
#[unsafe(no_mangle)]
pub extern "C" fn doorbell_init() -> i32 {
    run(Session::watch)
}

/// Whether CUDA's calls to the kernel driver have been seen from CUDA's start on. False: CUDA was initialised before doorbell_init().
/// Cost: that of doorbell_init(), where nobody has called it. Threads: any. Errors: DOORBELL_UNAVAILABLE where there is no libcuda.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_watching(from_the_start: *mut bool) -> i32 {
    run(|| {
        // SAFETY: the caller's.
        let answer = unsafe { To::new(from_the_start) }?;
        answer.put(Session::watches_from_the_start()?);
        Ok(())
    })
}

/// Opens the process's session. options may be null: GPU 0, 8 lanes, and the profile that $DOORBELL_PROFILE names, if it is set. A profile that is
/// no file, or was taken on another machine, is DOORBELL_UNAVAILABLE, and the detail says what is different.
/// Cost: some milliseconds for each lane; beside CUDA it makes the GPU's primary context, if there is none. The thread's
/// current context stays what it was. Threads: any; others wait. Errors: DOORBELL_ALREADY_OPEN, DOORBELL_UNAVAILABLE, DOORBELL_ARGUMENT, DOORBELL_DRIVER,
/// DOORBELL_CUDA, DOORBELL_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_open(options: *const doorbell_options_t) -> i32 {
    run(|| {
        // SAFETY: the caller's.
        let options = unsafe { given(options) }?.map_or(Ok(Options::default()), |options| read(&options))?;
        SESSION.open(&options)
    })
}

/// What the program gave, as this version knows it; `None` for null.
///
/// # Safety
/// Null, or options as long as their `size` says.
unsafe fn given(options: *const doorbell_options_t) -> Result<Option<doorbell_options_t>, Error> {
    // Programs that were built before there were profiles have no such field.
    const SIZES: [usize; 2] = [std::mem::offset_of!(doorbell_options_t, profile), size_of::<doorbell_options_t>()];
    if options.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's; the size comes first.
    let size = unsafe { options.cast::<usize>().read() };
    if !SIZES.contains(&size) {
        return Err(wrong("options.size is not sizeof(doorbell_options_t)"));
    }
    let mut whole = std::mem::MaybeUninit::<doorbell_options_t>::zeroed();
    // SAFETY: so many bytes are there, and all of them are plain numbers and pointers, for which zero is good.
    Ok(Some(unsafe {
        whole.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(options.cast(), size);
        whole.assume_init()
    }))
}

fn read(from: &doorbell_options_t) -> Result<Options, Error> {
    if from.flags & !(DOORBELL_CHECK | DOORBELL_OWN_PROFILE) != 0 {
        return Err(wrong("options.flags has a flag that this version does not know"));
    }
    let kind = match from.kind {
        DOORBELL_ANY => Kind::Any,
        DOORBELL_BESIDE_CUDA => Kind::Cuda,
        DOORBELL_SOFTWARE => Kind::Software,
        _ => return Err(wrong("options.kind is none that this version knows")),
    };
    let lanes = if from.lanes == 0 { Options::default().lanes } else { from.lanes as usize };
    let log = from.log.map(|log| {
        let user = User(from.log_user);
        Arc::new(move |text: &str| user.tell(log, text)) as Arc<dyn Fn(&str) + Send + Sync>
    });
    let check_each_submission = from.flags & DOORBELL_CHECK != 0;
    let own = from.flags & DOORBELL_OWN_PROFILE != 0;
    // SAFETY: null or the program's text.
    let named = (!from.profile.is_null()).then(|| unsafe { CStr::from_ptr(from.profile) }.to_bytes());
    let profile = match named {
        Some(_) if own => return Err(wrong("a profile is named, and flags asks for the machine's own: choose one")),
        Some(b"") => Follow::Nothing,
        Some(path) => Follow::File(OsStr::from_bytes(path).into()),
        None if own => Follow::Own,
        None => Follow::Variable,
    };
    Ok(Options { kind, gpu: from.gpu, lanes, check_each_submission, profile, log })
}

struct User(*mut c_void);

// SAFETY: only handed back to the program, whose function is documented to be called from any thread.
unsafe impl Send for User {}
// SAFETY: as above.
unsafe impl Sync for User {}

impl User {
    fn tell(&self, log: unsafe extern "C" fn(*mut c_void, *const c_char), text: &str) {
        let text = CString::new(text).unwrap_or_default();
        // SAFETY: the program's function, with the program's pointer.
        unsafe { log(self.0, text.as_ptr()) };
    }
}

/// Closes the session. What is under way is waited for, up to ten seconds; what is not done then is stopped. All handles end.
/// Cost: some milliseconds for each lane. Threads: any; calls of others that are under way end first, later ones answer
/// DOORBELL_CLOSED. Errors: DOORBELL_CLOSED, DOORBELL_FORKED.
#[unsafe(no_mangle)]
pub extern "C" fn doorbell_close() -> i32 {
    run(|| SESSION.close())
}

/// Makes `length` bytes of CUDA's memory at `pointer` (cudaMalloc, cudaHostAlloc, cudaHostRegister) nameable, until
/// doorbell_unpin() or until CUDA frees them: copies answer DOORBELL_FREED then. With a profile that names stores or loads of the CPU, video memory of up
/// to 256 MiB is mapped for them too (a descriptor, and the kernel driver's locks).
/// Cost: microseconds, and CUDA's locks: it waits where another thread is in a long call of CUDA's. Threads: any. Errors:
/// DOORBELL_NOT_PINNABLE with the reason, DOORBELL_UNAVAILABLE without CUDA, DOORBELL_LIMIT (65,536 at a time),
/// DOORBELL_ARGUMENT, DOORBELL_CLOSED, DOORBELL_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_pin(pointer: *const c_void, length: usize, buffer: *mut doorbell_buffer_t) -> i32 {
    run(|| {
        // SAFETY: the caller's.
        let to = unsafe { To::new(buffer) }?;
        to.put(SESSION.pin(pointer as u64, length as u64)?.raw());
        Ok(())
    })
}

/// Allocates memory of doorbell's own: DOORBELL_HOST or DOORBELL_VIDEO, in whole pages. Host memory is pinned, and its pages
/// are there: no call of CUDA's is made for it. doorbell_unpin() frees it.
/// Cost: some hundred microseconds, and the kernel driver's locks. Threads: any. Errors: DOORBELL_DRIVER, DOORBELL_LIMIT,
/// DOORBELL_ARGUMENT (no bytes, or more than 16 GiB), DOORBELL_CLOSED, DOORBELL_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_allocate(
    place: u32,
    length: usize,
    buffer: *mut doorbell_buffer_t,
    pointer: *mut *mut c_void,
) -> i32 {
    run(|| {
        // SAFETY: the caller's.
        let to = unsafe { To::new(buffer) }?;
        if place > DOORBELL_VIDEO {
            return Err(wrong("the place is neither DOORBELL_HOST nor DOORBELL_VIDEO"));
        }
        let made = SESSION.allocate(length as u64, place == DOORBELL_VIDEO)?;
        if !pointer.is_null() {
            let at = SESSION.place(made)?.0;
            To(pointer).put(at as *mut c_void);
        }
        to.put(made.raw());
        Ok(())
    })
}

/// Ends a buffer. From this call on no submission names it. The call waits for other threads' calls that use the buffer, and up to a
/// second for submissions that name it. After that, lanes that still copy to or from memory of doorbell_pin() are stopped; memory of
/// doorbell_allocate() is freed when those submissions are done. Other submissions are neither waited for nor stopped.
/// Cost: microseconds and the wait. Threads: any. Errors: DOORBELL_HANDLE, DOORBELL_CLOSED, DOORBELL_FORKED.
#[unsafe(no_mangle)]
pub extern "C" fn doorbell_unpin(buffer: doorbell_buffer_t) -> i32 {
    run(|| SESSION.unpin(Buffer::from_raw(buffer)))
}

/// Where a buffer is, and how long. Either pointer may be null.
/// Cost: a microsecond. Threads: any. Errors: DOORBELL_HANDLE, DOORBELL_CLOSED, DOORBELL_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_buffer(
    buffer: doorbell_buffer_t,
    pointer: *mut *mut c_void,
    length: *mut u64,
) -> i32 {
    run(|| {
        let (at, bytes) = SESSION.place(Buffer::from_raw(buffer))?;
        if !pointer.is_null() {
            To(pointer).put(at as *mut c_void);
        }
        if !length.is_null() {
            To(length).put(bytes);
        }
        Ok(())
    })
}

/// Which way a copy from one buffer to another goes, `prepared` (doorbell_prepare) or not (doorbell_copy, doorbell_copy_async), and why. `way`:
/// DOORBELL_BY_ENGINE, DOORBELL_BY_INLINE, DOORBELL_BY_STORES or DOORBELL_BY_LOADS. `text` gets at most `room` bytes of English, which end with a zero.
/// Either may be null. Batches of several pieces, rings and what is ordered always go by copy engines.
/// Cost: microseconds; it allocates. Threads: any. Errors: DOORBELL_HANDLE, DOORBELL_ARGUMENT (no bytes), DOORBELL_CLOSED,
/// DOORBELL_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_explain(
    to: doorbell_buffer_t,
    from: doorbell_buffer_t,
    bytes: u64,
    prepared: bool,
    way: *mut u32,
    text: *mut c_char,
    room: usize,
) -> i32 {
    run(|| {
        let choice = SESSION.explain(Buffer::from_raw(to), Buffer::from_raw(from), bytes, prepared)?;
        if !way.is_null() {
            let number = match choice.executor {
                Executor::CopyEngine => DOORBELL_BY_ENGINE,
                Executor::Inline => DOORBELL_BY_INLINE,
                Executor::Stores => DOORBELL_BY_STORES,
                Executor::Loads => DOORBELL_BY_LOADS,
            };
            // SAFETY: the caller's.
            unsafe { way.write(number) };
        }
        if !text.is_null() && room > 0 {
            let fits =
                (0..room.min(choice.why.len() + 1)).rev().find(|end| choice.why.is_char_boundary(*end)).unwrap_or(0);
            // SAFETY: the caller has room for so many bytes; one is left for the zero.
            unsafe {
                text.cast::<u8>().copy_from_nonoverlapping(choice.why.as_ptr(), fits);
                text.add(fits).write(0);
            }
        }
        Ok(())
    })
}

/// Copies bytes from one buffer to another and waits until they are there; for a lane, and for room on it, too.
/// Cost: that of doorbell_copy_async() and the copy. It spins for some 100 us, then yields. Threads: any. Errors: those of
/// doorbell_copy_async() but DOORBELL_BUSY and DOORBELL_FULL, and DOORBELL_TIMEOUT: it may be under way then, and nobody has a ticket for it; its memory is free
/// when doorbell_unpin() has returned. Who wants to go on waiting takes doorbell_copy_async().
#[unsafe(no_mangle)]
pub extern "C" fn doorbell_copy(
    to: doorbell_buffer_t,
    to_offset: u64,
    from: doorbell_buffer_t,
    from_offset: u64,
    bytes: u64,
    timeout_ns: u64,
) -> i32 {
    run(|| {
        let (to, from) = ((Buffer::from_raw(to), to_offset), (Buffer::from_raw(from), from_offset));
        SESSION.copy(to, from, bytes, limit(timeout_ns))
    })
}

/// Submits a copy from one buffer to another. With a profile, sizes for which it names stores or loads of the CPU go by these, and are there when this returns:
/// see doorbell_explain(). All else goes to the thread's lane, or to any other where another thread submits on that
/// one now; so copies end in any order, unless the program waits for the one before.
/// Cost: a submission, whose words are written and checked: more than doorbell_submit(); no lock, no allocation, no system call, unless memory was unmapped since. (A thread's very first call may
/// allocate: the loader makes room for its variables.) Threads: any. Errors: DOORBELL_BUSY and DOORBELL_FULL, after which it may be
/// tried again; DOORBELL_HANDLE, DOORBELL_OUTSIDE, DOORBELL_FREED, DOORBELL_ARGUMENT, DOORBELL_CLOSED, DOORBELL_FORKED,
/// DOORBELL_KILLED, DOORBELL_STOPPED. Nothing was submitted then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_copy_async(
    to: doorbell_buffer_t,
    to_offset: u64,
    from: doorbell_buffer_t,
    from_offset: u64,
    bytes: u64,
    ticket: *mut doorbell_ticket_t,
) -> i32 {
    run(|| {
        // SAFETY: the caller's.
        let answer = unsafe { To::new(ticket) }?;
        let (to, from) = ((Buffer::from_raw(to), to_offset), (Buffer::from_raw(from), from_offset));
        answer.put(SESSION.copy_async(to, from, bytes)?.raw());
        Ok(())
    })
}

/// Submits up to 4,096 copies behind one doorbell, with one ticket for all. They may overtake one another: none may need what
/// another writes. The first says to the GPU or from it; others may go the other way, on the same copy engine.
/// Cost: that of doorbell_copy_async(), and the words of each piece; no lock, no allocation, no system call, as doorbell_copy_async(). Threads: any.
/// Errors: as doorbell_copy_async(), and DOORBELL_LIMIT. None of the pieces was submitted then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_copy_batch(
    pieces: *const doorbell_piece_t,
    count: usize,
    ticket: *mut doorbell_ticket_t,
) -> i32 {
    // SAFETY: the caller's.
    unsafe { doorbell_copy_ordered(pieces, count, std::ptr::null(), std::ptr::null(), ticket) }
}

/// As doorbell_copy_batch(), between two words. The lane waits until the word `after` has come to its value (counting up, and
/// wrapping); the word `before` is written when all pieces are there. Either may be null. With both ends in CUDA's memory
/// (cuStreamWriteValue32, cuStreamWaitValue32) a stream and doorbell wait for each other. What goes by that lane later waits
/// behind the first word, too; what goes another way (doorbell_explain()) or in the other direction does not.
/// Cost, threads, errors: as doorbell_copy_batch().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_copy_ordered(
    pieces: *const doorbell_piece_t,
    count: usize,
    after: *const doorbell_word_t,
    before: *const doorbell_word_t,
    ticket: *mut doorbell_ticket_t,
) -> i32 {
    run(|| {
        // SAFETY: the caller's; a piece is laid out as submit's (asserted above), whose handles are numbers.
        let (answer, pieces) = unsafe { (To::new(ticket)?, many(pieces.cast::<Piece>(), count)?) };
        // SAFETY: the caller's.
        let [after, before] = [after, before].map(|word| unsafe { word.as_ref() });
        let word = |word: &doorbell_word_t| (Buffer::from_raw(word.buffer), word.offset, word.value);
        answer.put(SESSION.ordered(pieces, after.map(word), before.map(word))?.raw());
        Ok(())
    })
}

/// As doorbell_copy_batch(), behind all that the CUDA stream (CUstream, cudaStream_t; null: the default stream) has queued now: a
/// write of a word goes into the stream, and the lane waits for it. What goes by that lane later waits
/// behind it, too; what goes another way (doorbell_explain()) or in the other direction does not.
/// Cost: a call of cuStreamWriteValue32, with CUDA's locks: it waits where another thread is in a long call of CUDA's. Threads: any.
/// Errors: as doorbell_copy_batch(); DOORBELL_UNAVAILABLE without CUDA, DOORBELL_CUDA, and DOORBELL_FULL while 1,024 orders of
/// streams are under way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_copy_after_stream(
    pieces: *const doorbell_piece_t,
    count: usize,
    stream: *mut c_void,
    ticket: *mut doorbell_ticket_t,
) -> i32 {
    run(|| {
        // SAFETY: the caller's, as in doorbell_copy_ordered.
        let (answer, pieces) = unsafe { (To::new(ticket)?, many(pieces.cast::<Piece>(), count)?) };
        // SAFETY: the caller's.
        answer.put(unsafe { SESSION.copy_after(stream, pieces) }?.raw());
        Ok(())
    })
}

/// What is put into the CUDA stream from now on waits for a submission: the lane writes a word behind it, and a wait for that goes
/// into the stream. Of a copy by stores or loads nothing goes into the stream: it is over. If the lane dies before it has written
/// the word, a thread of doorbell's writes it within a tenth of a second: the stream goes on, and the ticket answers the error.
/// Cost: a submission, and a call of cuStreamWaitValue32 with CUDA's locks. Threads: any. Errors: as doorbell_copy_after_stream();
/// DOORBELL_BUSY while another thread submits on the lane.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_hold_stream(stream: *mut c_void, ticket: doorbell_ticket_t) -> i32 {
    // SAFETY: the caller's.
    run(|| unsafe { SESSION.hold_stream(stream, Copy::from_raw(ticket)) })
}

/// Makes a copy ready, to be submitted often: it is checked here, once, and goes the way that doorbell_explain() says. It belongs to the lane of the thread that prepares it.
/// Cost: some hundred microseconds; it allocates, and asks the kernel driver for memory. Threads: any; it waits for the thread's
/// lane. Errors: DOORBELL_HANDLE, DOORBELL_OUTSIDE, DOORBELL_FREED, DOORBELL_ARGUMENT (no bytes, or more than 1 GiB),
/// DOORBELL_LIMIT (4,096 for each lane), DOORBELL_DRIVER, DOORBELL_CLOSED, DOORBELL_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_prepare(
    to: doorbell_buffer_t,
    to_offset: u64,
    from: doorbell_buffer_t,
    from_offset: u64,
    bytes: u64,
    transfer: *mut doorbell_transfer_t,
) -> i32 {
    run(|| {
        // SAFETY: the caller's.
        let answer = unsafe { To::new(transfer) }?;
        let (to, from) = ((Buffer::from_raw(to), to_offset), (Buffer::from_raw(from), from_offset));
        answer.put(SESSION.prepare(to, from, bytes)?.raw());
        Ok(())
    })
}

/// Makes a copy of up to 64 KiB ready whose bytes are given at each submission: they travel in the command stream, and need no
/// buffer. Good for parameters of a running kernel. All of these share one lane, on the graphics engine.
/// Cost, threads, errors: as doorbell_prepare().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_prepare_bytes(
    to: doorbell_buffer_t,
    to_offset: u64,
    bytes: u64,
    transfer: *mut doorbell_transfer_t,
) -> i32 {
    run(|| {
        // SAFETY: the caller's.
        let answer = unsafe { To::new(transfer) }?;
        answer.put(SESSION.prepare_bytes((Buffer::from_raw(to), to_offset), bytes)?.raw());
        Ok(())
    })
}

/// Submits what doorbell_prepare() made ready. Up to 32 submissions of a transfer may be under way.
/// Cost: some 60 ns (H100 and H200), by stores or loads the whole copy; no lock, no allocation, no system call. Threads: any; two that submit on the same lane at the same instant
/// do not wait for each other: the second gets DOORBELL_BUSY. Errors: DOORBELL_BUSY and DOORBELL_FULL, after which it may be tried
/// again; DOORBELL_HANDLE, DOORBELL_FREED, DOORBELL_ARGUMENT, DOORBELL_CLOSED, DOORBELL_FORKED, DOORBELL_KILLED, DOORBELL_STOPPED.
/// Nothing was submitted then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_submit(transfer: doorbell_transfer_t, ticket: *mut doorbell_ticket_t) -> i32 {
    run(|| {
        // SAFETY: the caller's.
        let answer = unsafe { To::new(ticket) }?;
        answer.put(SESSION.submit(Transfer::from_raw(transfer))?.raw());
        Ok(())
    })
}

/// As doorbell_submit(), with the bytes of what doorbell_prepare_bytes() made ready: as many as were prepared. They are read before
/// this returns.
/// Cost: that of doorbell_submit(), and the storing of the bytes. Threads, errors: as doorbell_submit().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_submit_bytes(
    transfer: doorbell_transfer_t,
    data: *const c_void,
    bytes: usize,
    ticket: *mut doorbell_ticket_t,
) -> i32 {
    run(|| {
        // SAFETY: the caller's.
        let (answer, data) = unsafe { (To::new(ticket)?, many(data.cast::<u8>(), bytes)?) };
        answer.put(SESSION.submit_bytes(Transfer::from_raw(transfer), data)?.raw());
        Ok(())
    })
}

/// Ends a transfer. What of it is under way goes on.
/// Cost: microseconds; it frees memory. Threads: any; it waits for the transfer's lane. Errors: DOORBELL_HANDLE, DOORBELL_CLOSED,
/// DOORBELL_FORKED.
#[unsafe(no_mangle)]
pub extern "C" fn doorbell_release(transfer: doorbell_transfer_t) -> i32 {
    run(|| SESSION.release(Transfer::from_raw(transfer)))
}

/// Waits until a submission is done: what it wrote is there then, for the CPU and for the GPU. DOORBELL_FOREVER waits without
/// limit.
/// Cost: it spins for some 100 us, then yields between polls. Threads: any, several at a time. Errors: DOORBELL_TIMEOUT,
/// DOORBELL_HANDLE, DOORBELL_CLOSED, DOORBELL_FORKED, DOORBELL_KILLED, DOORBELL_STOPPED.
#[unsafe(no_mangle)]
pub extern "C" fn doorbell_wait(ticket: doorbell_ticket_t, timeout_ns: u64) -> i32 {
    run(|| SESSION.wait(Copy::from_raw(ticket), limit(timeout_ns)))
}

/// Whether a submission is done.
/// Cost: a load, and two atomic instructions; no lock, no allocation, no system call. Threads: any. Errors: as doorbell_wait() but DOORBELL_TIMEOUT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_poll(ticket: doorbell_ticket_t, done: *mut bool) -> i32 {
    run(|| {
        // SAFETY: the caller's.
        let answer = unsafe { To::new(done) }?;
        answer.put(SESSION.poll(Copy::from_raw(ticket))?);
        Ok(())
    })
}

/// How many submissions of the ticket's lane, up to this one, are not done: 0 when it is done.
/// Cost, threads, errors: as doorbell_poll().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_query(ticket: doorbell_ticket_t, left: *mut u64) -> i32 {
    run(|| {
        // SAFETY: the caller's.
        let answer = unsafe { To::new(left) }?;
        answer.put(SESSION.query(Copy::from_raw(ticket))?);
        Ok(())
    })
}

/// A ring of 2 to 1,024 frames of `bytes` each, one behind the other in both buffers from the offsets on: the producer fills the
/// next one while the copy of the one before is under way. It goes by the copy engine; up to 32 frames may be under way.
/// Cost: that of doorbell_prepare(). Threads: any may open it; one at a time uses it. Errors: as
/// doorbell_prepare().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_ring_open(
    to: doorbell_buffer_t,
    to_offset: u64,
    from: doorbell_buffer_t,
    from_offset: u64,
    bytes: u64,
    frames: u32,
    ring: *mut doorbell_ring_t,
) -> i32 {
    run(|| {
        // SAFETY: the caller's.
        let answer = unsafe { To::new(ring) }?;
        let (to, from) = ((Buffer::from_raw(to), to_offset), (Buffer::from_raw(from), from_offset));
        answer.put(SESSION.ring(to, from, bytes, frames as usize)?.raw());
        Ok(())
    })
}

/// The next frame, for the producer to fill. Asked again before doorbell_ring_submit() it is the same one.
/// Cost: a few loads and atomic instructions; no lock, no allocation, no system call. Threads: one at a time. Errors: DOORBELL_OVERRUN while its last copy is
/// under way, DOORBELL_BUSY, DOORBELL_HANDLE, DOORBELL_ARGUMENT, DOORBELL_CLOSED, DOORBELL_FORKED, DOORBELL_KILLED,
/// DOORBELL_STOPPED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_ring_next(ring: doorbell_ring_t, frame: *mut doorbell_frame_t) -> i32 {
    run(|| {
        // SAFETY: the caller's.
        let answer = unsafe { To::new(frame) }?;
        let found = SESSION.ring_next(Ring::from_raw(ring))?;
        let (index, pointer) = (found.index as u32, found.pointer as *mut c_void);
        answer.put(doorbell_frame_t { index, offset: found.offset, pointer });
        Ok(())
    })
}

/// Submits the copy of the frame that doorbell_ring_next() gave, and goes on to the next.
/// Cost: that of doorbell_submit(). Threads: one at a time. Errors: DOORBELL_ARGUMENT without a frame, and as doorbell_submit(); the
/// frame stays the next then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_ring_submit(ring: doorbell_ring_t, ticket: *mut doorbell_ticket_t) -> i32 {
    run(|| {
        // SAFETY: the caller's.
        let answer = unsafe { To::new(ticket) }?;
        answer.put(SESSION.ring_submit(Ring::from_raw(ring))?.raw());
        Ok(())
    })
}

/// Ends a ring. What of it is under way goes on.
/// Cost, threads, errors: as doorbell_release().
#[unsafe(no_mangle)]
pub extern "C" fn doorbell_ring_close(ring: doorbell_ring_t) -> i32 {
    run(|| SESSION.ring_release(Ring::from_raw(ring)))
}

/// A mailbox for messages to a running kernel: 64 bytes of video memory, and 64 bytes of host memory for its answers, both at multiples of 64.
/// Both are set to 0; launch the kernel then. A message is one line, written as a whole: 56 bytes (those that are not given are 0), a number, and a
/// sum. The words w[0] to w[14] (bytes and number) are summed up, modulo 2^32, as w[i] * (2 * i + 1) * 0x9e3779b1; w[15] is that sum. A kernel looks at the
/// line (four loads of 16 bytes, ld.relaxed.sys), takes it when the number is not the last one and the sum is right, and answers with a
/// line of the same form and number (st.relaxed.sys). The newest message counts: one that was not taken is written over. A message
/// is no copy, and no copy is ordered behind it.
/// Cost: that of doorbell_prepare(), and one descriptor; a write to the GPU's memory and a load from it. Threads: any; it waits for the thread's
/// lane. Errors: DOORBELL_ARGUMENT for other memory or another place, DOORBELL_OUTSIDE, DOORBELL_FREED, DOORBELL_LIMIT (256 for each lane),
/// DOORBELL_DRIVER where the mailbox cannot be mapped, DOORBELL_HANDLE, DOORBELL_CLOSED, DOORBELL_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_message_open(
    mailbox: doorbell_buffer_t,
    mailbox_offset: u64,
    answers: doorbell_buffer_t,
    answers_offset: u64,
    message: *mut doorbell_message_t,
) -> i32 {
    run(|| {
        // SAFETY: the caller's.
        let answer = unsafe { To::new(message) }?;
        let (to, from) = ((Buffer::from_raw(mailbox), mailbox_offset), (Buffer::from_raw(answers), answers_offset));
        answer.put(SESSION.message(to, from)?.raw());
        Ok(())
    })
}

/// Sends up to 56 bytes. Messages are numbered 1, 2, ..; `number` may be null.
/// Cost: one store of 64 bytes to the GPU; no lock, no allocation, no system call. Threads: any; DOORBELL_BUSY while another submits on the lane.
/// Errors: DOORBELL_BUSY and DOORBELL_FULL, after which it may be tried again; DOORBELL_ARGUMENT, DOORBELL_FREED, DOORBELL_HANDLE,
/// DOORBELL_CLOSED, DOORBELL_FORKED. Nothing was sent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_message_send(
    message: doorbell_message_t,
    data: *const c_void,
    bytes: usize,
    number: *mut u32,
) -> i32 {
    run(|| {
        // SAFETY: the caller's.
        let data = unsafe { many(data.cast::<u8>(), bytes) }?;
        let sent = SESSION.send(Message::from_raw(message), data)?;
        if !number.is_null() {
            // SAFETY: the caller's.
            unsafe { number.write(sent) };
        }
        Ok(())
    })
}

/// Waits until the kernel has answered the message of this number or a later one, and gives the answer's 56 bytes; `answer` may be null. A
/// timeout of 0 looks once.
/// Cost: it reads host memory, spins for some 100 us, then yields; no lock, no allocation. Threads: any. Errors: DOORBELL_TIMEOUT,
/// DOORBELL_FREED, DOORBELL_HANDLE, DOORBELL_CLOSED, DOORBELL_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_message_wait(
    message: doorbell_message_t,
    number: u32,
    answer: *mut c_void,
    timeout_ns: u64,
) -> i32 {
    run(|| {
        let bytes = SESSION.answered(Message::from_raw(message), number, limit(timeout_ns))?;
        if !answer.is_null() {
            // SAFETY: the caller has room for 56 bytes.
            unsafe { answer.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        }
        Ok(())
    })
}

/// Ends a mailbox. The kernel is told nothing: send it what it ends by first.
/// Cost, threads, errors: as doorbell_release().
#[unsafe(no_mangle)]
pub extern "C" fn doorbell_message_close(message: doorbell_message_t) -> i32 {
    run(|| SESSION.message_release(Message::from_raw(message)))
}

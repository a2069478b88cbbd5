//! Sessions: opening, finding and closing them.

use crate::call::{To, run, wrong};
use crate::growing::{self, Growing};
use crate::types::doorbell_t;
use std::ffi::{CStr, CString, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use submit::{Error, Follow, Kind, Options, Session};

/// doorbell_options_t.kind: in CUDA's address space. Without CUDA, on the software GPU if it is preloaded.
pub const DOORBELL_ANY: u32 = 0;
/// doorbell_options_t.kind: in CUDA's address space.
pub const DOORBELL_BESIDE_CUDA: u32 = 1;
/// doorbell_options_t.kind: on the software GPU, which must be preloaded.
pub const DOORBELL_SOFTWARE: u32 = 2;

/// doorbell_options_t.flags: each submission checks with CUDA that the memory is still the registered allocation. This finds
/// frees that doorbell cannot see otherwise. It costs 1 us or more, and CUDA's locks, for each submission: a submission waits
/// while another thread is in a long CUDA call.
pub const DOORBELL_CHECK: u32 = 1;
/// doorbell_options_t.flags: use the machine's own profile, if `doorbell calibrate` has written one. It is the file that
/// $DOORBELL_PROFILE names, otherwise the command's default file. A profile of another machine is an error.
pub const DOORBELL_OWN_PROFILE: u32 = 2;
/// doorbell_options_t.flags: lists to the GPU leave the engine with the most physical engines alone. On an H200, 16 KiB pages move
/// at 29 GB/s instead of 53, and matrix products next to them lose 0.4 % of their speed instead of 3.4 %.
pub const DOORBELL_SPARE_KERNELS: u32 = 4;

/// Called with a text when a session or one of its channels is opened, and when the session is closed. Any thread may make the
/// call. The function must not call doorbell, and must return: a C++ exception or a longjmp that leaves it ends the process.
pub type doorbell_log_t = Option<unsafe extern "C" fn(user: *mut c_void, text: *const c_char)>;

/// Options of a session. Set all of it to 0, then `size`, then the fields that you need.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct doorbell_options_t {
    /// sizeof(doorbell_options_t).
    pub size: usize,
    /// DOORBELL_ANY, DOORBELL_BESIDE_CUDA or DOORBELL_SOFTWARE.
    pub kind: u32,
    /// CUDA's number of the GPU. The session uses the GPU's primary context.
    pub gpu: u32,
    /// How many threads have their own lane, up to 64. 0 means 8. A lane is DOORBELL_BUSY while another thread submits on it, or
    /// makes or frees an object of that lane.
    pub lanes: u32,
    /// 0, or of DOORBELL_CHECK, DOORBELL_OWN_PROFILE and DOORBELL_SPARE_KERNELS those that you want.
    pub flags: u32,
    /// Null, or a function that gets a text when the session or a channel is opened, and when the session is closed.
    pub log: doorbell_log_t,
    /// Passed to log.
    pub log_user: *mut c_void,
    /// Null, or the file of the profile (`doorbell calibrate -o FILE`) that decides how copies are made. Null without
    /// DOORBELL_OWN_PROFILE: the file that $DOORBELL_PROFILE names, if it is set. An empty text: no profile.
    pub profile: *const c_char,
    /// Number of channels for launches of graphs, up to 16. 0 means 1. Threads that launch on different channels never get
    /// DOORBELL_BUSY because of each other, and their launches are not ordered. A graph belongs to the launch lane of the thread
    /// that made it, or to the lane that doorbell_graph_create_copy() names. With as many launch lanes as threads, each thread
    /// has its own. A channel is opened with its first graph.
    pub launch_lanes: u32,
}

// SAFETY: numbers, pointers, and a function that may be none. The next field must begin after the padding, at a multiple of 8.
unsafe impl Growing for doorbell_options_t {
    const FIRST: usize = std::mem::offset_of!(doorbell_options_t, launch_lanes);
}

/// Maximum number of sessions of a process at a time.
const MOST: usize = 64;
/// A place gets its session when it is first used, because 64 sessions would take 14 MB of the file. It keeps the session, for
/// calls of other threads that still use it.
static SESSIONS: [OnceLock<Box<Session>>; MOST] = [const { OnceLock::new() }; MOST];
static PLACES: Places = Places(AtomicU64::new(0));

/// The places that are taken, one bit each. No lock: a fork's child would wait for it forever.
struct Places(AtomicU64);

impl Places {
    fn take(&self) -> Option<usize> {
        let lowest = |taken: u64| (taken != u64::MAX).then(|| taken | (taken + 1));
        let before = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, lowest);
        before.ok().map(|taken| taken.trailing_ones() as usize)
    }

    fn give_back(&self, place: usize) {
        self.0.fetch_and(!(1 << place), Ordering::SeqCst);
    }
}

/// What a program has as a `doorbell_t *`: no address, but a number that no other session of the process ever has. From the top: 16
/// bits that no address begins with, 42 of the session's opening, 6 of its place. The page of this library's table is mixed in: a
/// process may have several copies of the library, and each counts its openings.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pointer(u64);

impl Pointer {
    const TOP: u64 = 0xdb00 << 48;

    fn new(place: usize, session: &Session) -> Pointer {
        Pointer(Pointer::TOP | (session.opening() << 6 | place as u64) ^ Pointer::library())
    }

    fn library() -> u64 {
        (SESSIONS.as_ptr().addr() as u64 >> 12) << 18 & ((1 << 48) - 1)
    }

    fn opening(self) -> u64 {
        ((self.0 & ((1 << 48) - 1)) ^ Pointer::library()) >> 6
    }

    fn place(self) -> usize {
        self.0 as usize % MOST
    }
}

const NONE: Error = Error::Handle("session (doorbell_t *)");

fn found(doorbell: *const doorbell_t) -> Result<(Pointer, &'static Session), Error> {
    if doorbell.is_null() {
        return Err(wrong("the doorbell_t * is null"));
    }
    let pointer = Pointer(doorbell as u64);
    if pointer.0 >> 48 != Pointer::TOP >> 48 {
        return Err(NONE);
    }
    let session = SESSIONS[pointer.place()].get().ok_or(NONE)?;
    match session.opening().cmp(&pointer.opening()) {
        std::cmp::Ordering::Equal => Ok((pointer, session)),
        // The place has a later session.
        std::cmp::Ordering::Greater => Err(Error::Closed),
        std::cmp::Ordering::Less => Err(NONE),
    }
}

/// The session of a pointer. After it is freed, its calls return an error themselves.
#[inline]
pub(crate) fn of(doorbell: *const doorbell_t) -> Result<&'static Session, Error> {
    found(doorbell).map(|(_, session)| session)
}

/// The same, with the number for objects that are not in the session.
pub(crate) fn numbered(doorbell: *const doorbell_t) -> Result<(Pointer, &'static Session), Error> {
    found(doorbell)
}

/// Returns the library's version, in the form of DOORBELL_VERSION. A program that was built with the header of 1.2 works with
/// libraries 1.2 and later of the same major version.
/// Cost: none. Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn doorbell_version() -> u32 {
    crate::VERSION
}

/// Begins to observe CUDA's calls to the kernel driver, which a session in CUDA's address space needs. Call it before CUDA is
/// initialised. doorbell_create() may come later, when CUDA is in use. It loads libcuda but does not initialise it. A second call
/// has no effect. If CUDA was initialised before, this also returns DOORBELL_OK. Then doorbell_watching() gives false,
/// doorbell_create() gets CUDA's state from the kernel driver, and graphs return DOORBELL_UNAVAILABLE.
/// Cost: milliseconds, once. Threads: any. Errors: DOORBELL_UNAVAILABLE without libcuda, DOORBELL_FORKED.
#[unsafe(no_mangle)]
pub extern "C" fn doorbell_init() -> i32 {
    run(Session::watch)
}

/// Reports whether doorbell has observed CUDA's driver calls since CUDA was initialised. False means that CUDA was initialised
/// before doorbell_init().
/// Cost: that of doorbell_init(), if it was not called before. Threads: any. Errors: as doorbell_init().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_watching(from_the_start: *mut bool) -> i32 {
    run(|| {
        // SAFETY: the caller guarantees it.
        let answer = unsafe { To::new(from_the_start) }?;
        answer.put(Session::watches_from_the_start()?);
        Ok(())
    })
}

/// Opens a session. `options` may be null: GPU 0, 8 lanes, one launch lane, and the profile that $DOORBELL_PROFILE names, if it
/// is set. If the profile is not a file or is of another machine, the call returns DOORBELL_UNAVAILABLE and the detail lists the
/// differences. A process may have 64 sessions at a time. Sessions share no state: a handle of one gives DOORBELL_HANDLE in
/// another. If two libraries of a process use doorbell, each makes its own session. The pointer is no address: do not follow it.
/// Cost: some milliseconds for each lane. With CUDA, it also makes the GPU's primary context if there is none. The thread's
/// current context does not change. Threads: any. Errors: DOORBELL_UNAVAILABLE, DOORBELL_ARGUMENT, DOORBELL_LIMIT,
/// DOORBELL_DRIVER, DOORBELL_CUDA, DOORBELL_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_create(options: *const doorbell_options_t, doorbell: *mut *mut doorbell_t) -> i32 {
    run(|| {
        // SAFETY: the caller guarantees it.
        let (answer, options) = unsafe { (To::new(doorbell)?, growing::one(options)?) };
        let options = options.map_or(Ok(Options::default()), |options| read(&options))?;
        let place = PLACES.take().ok_or(Error::Limit(MOST))?;
        let session = SESSIONS[place].get_or_init(Session::boxed);
        session.open(&options).inspect_err(|_| PLACES.give_back(place))?;
        // (An earlier session in this place may have had another value.)
        session.set_wait(submit::Wait::Spin);
        answer.put(std::ptr::without_provenance_mut(Pointer::new(place, session).0 as usize));
        Ok(())
    })
}

fn read(from: &doorbell_options_t) -> Result<Options, Error> {
    if from.flags & !(DOORBELL_CHECK | DOORBELL_OWN_PROFILE | DOORBELL_SPARE_KERNELS) != 0 {
        return Err(wrong("options.flags has a flag that this version does not know"));
    }
    let kind = match from.kind {
        DOORBELL_ANY => Kind::Any,
        DOORBELL_BESIDE_CUDA => Kind::Cuda,
        DOORBELL_SOFTWARE => Kind::Software,
        _ => return Err(wrong("options.kind is none that this version knows")),
    };
    let lanes = if from.lanes == 0 { Options::default().lanes } else { from.lanes as usize };
    let launch_lanes = from.launch_lanes.max(1) as usize;
    let log = from.log.map(|log| {
        let user = User(from.log_user);
        Arc::new(move |text: &str| user.tell(log, text)) as Arc<dyn Fn(&str) + Send + Sync>
    });
    let check_each_submission = from.flags & DOORBELL_CHECK != 0;
    let spare_kernels = from.flags & DOORBELL_SPARE_KERNELS != 0;
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
    Ok(Options { kind, gpu: from.gpu, lanes, launch_lanes, check_each_submission, spare_kernels, profile, log })
}

struct User(*mut c_void);

// SAFETY: only passed back to the program's function, which must accept calls from any thread, as documented.
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

/// Closes a session and ends all its handles. It waits up to ten seconds for pending work and then stops the rest. Null has no
/// effect.
/// Cost: some milliseconds for each lane. Threads: any. Pending calls of other threads end first, and later calls return
/// DOORBELL_CLOSED. Errors: DOORBELL_CLOSED, DOORBELL_HANDLE, DOORBELL_FORKED.
#[unsafe(no_mangle)]
pub extern "C" fn doorbell_free(doorbell: *mut doorbell_t) -> i32 {
    run(|| {
        if doorbell.is_null() {
            return Ok(());
        }
        let (pointer, session) = found(doorbell)?;
        // (A loop ends before its session does, and waits for its launches.)
        Session::same_process()?;
        for held in crate::loops::LOOPS.end(pointer) {
            held.stop();
        }
        let closed = session.close();
        for queue in crate::queues::QUEUES.end(pointer) {
            queue.wake()?;
        }
        closed?;
        PLACES.give_back(pointer.place());
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_free_again_after_it_was_given_back() {
        let places = Places(AtomicU64::new(0));
        assert!((0..MOST).all(|n| places.take() == Some(n)));
        places.give_back(7);
        assert_eq!((places.take(), places.take()), (Some(7), None));
    }

    #[test]
    fn what_is_no_session_is_an_error() {
        let session = SESSIONS[3].get_or_init(Session::boxed);
        let is = |number: u64| of(std::ptr::without_provenance(number as usize));
        let first = Pointer::new(3, session).0;
        assert!(matches!(is(first).map(Session::close), Ok(Err(Error::Closed))));
        // Another place, a later opening, an address, and null.
        for wrong in [first + 1, first + 64, (&raw const *session).addr() as u64, 8] {
            assert!(matches!(is(wrong), Err(Error::Handle(_))), "{wrong:#x}");
        }
        assert!(matches!(is(0), Err(Error::Argument(_))));
    }

    #[test]
    fn a_small_stack_is_enough() {
        let small = std::thread::Builder::new().stack_size(64 << 10);
        small.spawn(|| drop(Session::boxed())).unwrap().join().unwrap();
    }
}

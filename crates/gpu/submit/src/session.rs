//! The session: opened once, used by all threads, closed when its pending work is done.

use crate::buffers::{Buffers, Entry};
use crate::choose::Ways;
use crate::error::Error;
use crate::handle::{BUFFER, Buffer};
use crate::lane::{Claim, Inner, Lane};
use crate::numbering::{ALL, INLINE, LAUNCH_LANES, LAUNCHES, LOOKS, WIDE, has_launches, launches_of};
use crate::open::{LANES, Options, Setup};
use crate::openings::{self, SetUp};
use crate::staged;
use crate::thread;
use crate::watch::Watch;
use crate::wide::Wide;
use gpu::points::Point;
use gpu::{AddressSpace, Channel, ChannelOptions, Copies, Engine};
use rm::graph::Place;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

/// How long a close waits for pending work before it stops the channels.
const CLOSE: Duration = Duration::from_secs(10);
/// GPFIFO entries of a lane's channel.
pub(crate) const ENTRIES: u32 = 512;

/// Copies and launches on one GPU. A process may have several sessions. All calls take `&self`, from any thread.
pub struct Session {
    pub(crate) lanes: [Lane; ALL],
    pub(crate) buffers: Buffers,
    /// Held while CUDA launches a graph that is learnt: launches of another graph would be mistaken for this one's.
    pub(crate) learning: Mutex<()>,
    /// Bit 0: open. 1: each submission checks with CUDA. 2 to 5: number of launch lanes, less one. 8 to 15: lanes in use. 16 on: number of the opening.
    state: AtomicU64,
    setup: RwLock<Option<Setup>>,
    /// [`Wait`], as a number.
    pub(crate) how: AtomicU64,
    pub(crate) watch: Watch,
    pub(crate) wide: Wide,
}

/// A value of `state`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Now(u64);

impl Now {
    /// The part of the opening's number that all handles contain.
    #[inline]
    pub fn opening(self) -> u8 {
        (self.0 >> 16) as u8
    }

    #[inline]
    pub fn whole_opening(self) -> u64 {
        self.0 >> 16
    }

    /// Each submission checks with CUDA whether the memory is still the allocation that was pinned.
    #[inline]
    pub fn asks(self) -> bool {
        self.0 & 2 != 0
    }

    #[inline]
    pub fn lanes(self) -> usize {
        (self.0 >> 8 & 0xff) as usize
    }

    /// The half for copies within GPU memory and between GPUs.
    #[inline]
    pub fn between(self) -> usize {
        if self.0 & 1 << 6 == 0 { 0 } else { LANES }
    }

    pub fn launch_lanes(self) -> usize {
        (self.0 >> 2 & 0xf) as usize + 1
    }

    /// This thread's launch lane.
    pub fn own_launches(self) -> usize {
        LAUNCHES + thread::number() % self.launch_lanes()
    }
}

impl Default for Session {
    fn default() -> Session {
        Session::new()
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("open", &self.now().is_ok()).finish_non_exhaustive()
    }
}

impl Session {
    /// Closed. It may be a `static`.
    pub const fn new() -> Session {
        Session {
            lanes: [const { Lane::new() }; ALL],
            buffers: Buffers::new(),
            learning: Mutex::new(()),
            state: AtomicU64::new(0),
            setup: RwLock::new(None),
            how: AtomicU64::new(u64::MAX),
            watch: Watch::new(),
            wide: Wide::new(),
        }
    }

    /// A closed session on the heap. It has 200 KiB, more than the stack of some threads.
    pub fn boxed() -> Box<Session> {
        static CLOSED: Session = Session::new();
        let mut session = Box::<Session>::new_uninit();
        // SAFETY: both have the size of a session. A closed session owns no memory, so its bytes may be copied; CLOSED itself is never used.
        unsafe {
            std::ptr::copy_nonoverlapping(&raw const CLOSED, session.as_mut_ptr(), 1);
            session.assume_init()
        }
    }

    /// From now on doorbell sees CUDA's calls to the kernel driver, as a session next to CUDA requires. Call it before CUDA is initialised; the session may be
    /// opened later, while CUDA is in use. It loads libcuda without initialising it.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if there is no libcuda, [`Error::Forked`].
    pub fn watch() -> Result<(), Error> {
        let _set_up = SetUp::begin()?;
        gpu::Libcuda::open().map(|_| ()).map_err(|error| Error::Unavailable(error.to_string()))
    }

    /// Whether CUDA's calls have been seen from CUDA's start on. False if CUDA was initialised earlier.
    ///
    /// # Errors
    /// As [`Session::watch`].
    pub fn watches_from_the_start() -> Result<bool, Error> {
        let _set_up = SetUp::begin()?;
        let libcuda = gpu::Libcuda::open().map_err(|error| Error::Unavailable(error.to_string()))?;
        Ok(!libcuda.watched().is_late())
    }

    /// Opens the session.
    ///
    /// # Errors
    /// [`Error::AlreadyOpen`], [`Error::Forked`], [`Error::Unavailable`] with the reason, and errors of the driver.
    pub fn open(&self, options: &Options) -> Result<(), Error> {
        self.open_with(options, Setup::new)
    }

    /// As [`Session::open`], in the caller's address space, and next to the caller's CUDA if there is one.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub fn open_in(
        &self,
        space: Arc<AddressSpace>,
        machine: Option<machine::Machine>,
        options: &Options,
    ) -> Result<(), Error> {
        self.open_with(options, |options| Setup::of(machine, space, options))
    }

    fn open_with(&self, options: &Options, make: impl FnOnce(&Options) -> Result<Setup, Error>) -> Result<(), Error> {
        let _set_up = SetUp::begin()?;
        if !(1..=LANES).contains(&options.lanes) {
            return Err(Error::Argument("a session has 1 to 64 lanes"));
        }
        if !(1..=LAUNCH_LANES).contains(&options.launch_lanes) {
            return Err(Error::Argument("a session has 1 to 16 launch lanes"));
        }
        let mut setup = poison::ignore(self.setup.write());
        if setup.is_some() {
            return Err(Error::AlreadyOpen);
        }
        let opening = openings::take()?;
        // The 8 bits of the opening repeat. Numbers of submissions do not, whichever session has them.
        for lane in &self.lanes {
            lane.before.fetch_max(openings::numbers(), Ordering::SeqCst);
        }
        let mut has_wide = false;
        let mut lanes = |made: &Setup| {
            (0..options.lanes).try_for_each(|lane| {
                let mut halves = [0, LANES].into_iter().zip(made.engines);
                halves.try_for_each(|(half, engine)| make_lane(&self.lanes[half + lane], made, engine))
            })?;
            // (Lists have other lanes, too.)
            has_wide =
                made.between && !options.spare_kernels && make_lane(&self.lanes[WIDE], made, made.engines[1]).is_ok();
            Ok(())
        };
        let made = make(options).and_then(|made| match lanes(&made) {
            Ok(()) => Ok(made),
            Err(error) => {
                self.empty();
                Err(error)
            }
        });
        let made = made.inspect_err(|_| openings::give_back(opening))?;
        openings::opened();
        self.wide.opened(has_wide);
        let asks = u64::from(options.check_each_submission) << 1;
        let lanes = (options.lanes as u64) << 8 | (options.launch_lanes as u64 - 1) << 2 | u64::from(made.between) << 6;
        self.state.store(opening << 16 | lanes | asks | 1, Ordering::SeqCst);
        *setup = Some(made);
        Ok(())
    }

    /// Closes the session: waits for pending work, up to ten seconds, and then stops the rest. All handles end.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`].
    pub fn close(&self) -> Result<(), Error> {
        Session::same_process()?;
        // Before the lock: calls that have it may wait for launches, and so may these for the thread whose next call would wait for this close.
        let state = self.state.fetch_and(!1, Ordering::SeqCst);
        if state & 1 == 0 {
            return Err(Error::Closed);
        }
        self.lanes.iter().for_each(|lane| lane.sleepers.wake_all());
        self.watch.closing();
        Point::AfterClose.reached();
        let mut setup = poison::ignore(self.setup.write());
        let was = setup.take().ok_or(Error::Closed)?;
        // The session's CUDA objects are freed in CUDA's context.
        let kept = was.enter();
        self.empty();
        self.watch.closed();
        self.buffers.clear(&self.lanes);
        was.say(|| "closed".into());
        drop(was);
        drop(kept);
        openings::give_back(state >> 16);
        Ok(())
    }

    /// Removes the channels of all lanes.
    fn empty(&self) {
        // (No thread waits for a lane that precedes one that it has.)
        let mut claims: Vec<Claim<'_>> = self.lanes.iter().map(Lane::claim_in_time).collect();
        wait_for_all(&mut claims);
        for (lane, mut claim) in self.lanes.iter().zip(claims) {
            let Some(mut inner) = claim.take() else { continue };
            let submitted = inner.channel.submitted();
            openings::numbers_reached(lane.before.fetch_add(submitted, Ordering::Relaxed) + submitted);
            staged::bring(&mut inner);
            drop(lane.retract());
            // The channel first: memory that its launches may have used stays until the channel has ended.
            let Inner { graphs, leaving, channel, .. } = inner;
            drop(channel);
            drop((graphs, leaving));
        }
    }

    /// The state, if it is open: it includes the number of the opening.
    #[inline]
    pub(crate) fn now(&self) -> Result<Now, Error> {
        let state = self.state.load(Ordering::SeqCst);
        if state & 1 == 1 { Ok(Now(state)) } else { Err(Error::Closed) }
    }

    /// The number of the current opening, or of the last one: no other opening of a session of this process has it. 0 before the first.
    #[inline]
    pub fn opening(&self) -> u64 {
        Now(self.state.load(Ordering::SeqCst)).whole_opening()
    }

    /// Whether this is the process that opened sessions, and not a fork's child. Call it before taking a lock that another thread may have held at the fork.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn same_process() -> Result<(), Error> {
        openings::same_process()
    }

    pub(crate) fn setup(&self) -> Result<Opened<'_>, Error> {
        Session::same_process()?;
        // A close holds the lock until all pending work has ended, and a call need not wait for that.
        self.now()?;
        let once = Once::new();
        let setup = poison::ignore(self.setup.read());
        if setup.is_some() { Ok(Opened(setup, once)) } else { Err(Error::Closed) }
    }

    /// Claims the lane at `at`, if the session is still in the opening of `now`.
    #[inline]
    pub(crate) fn claim(&self, at: usize, now: Now) -> Result<Claim<'_>, Error> {
        let claim = self.lanes[at].claim().ok_or_else(|| self.busy(at))?;
        self.still(claim, now)
    }

    /// Why a lane cannot be claimed. In a fork's child, a lane that was claimed at the fork stays claimed forever.
    #[cold]
    fn busy(&self, at: usize) -> Error {
        match self.lanes[at].observe(|observer| Ok(observer.forked())) {
            Ok(true) => Error::Forked,
            _ => Error::Busy,
        }
    }

    #[inline]
    pub(crate) fn still<'l>(&self, claim: Claim<'l>, now: Now) -> Result<Claim<'l>, Error> {
        // ORDERING: after the claim: either a close in progress waits for the claim, or this load sees the close.
        if self.state.load(Ordering::SeqCst) == now.0 { Ok(claim) } else { Err(Error::Closed) }
    }

    /// This thread's lane in one half, or another that is free now.
    #[inline]
    pub(crate) fn any_lane(&self, half: usize, now: Now) -> Result<(usize, Claim<'_>), Error> {
        let (own, lanes) = (thread::number(), now.lanes());
        for other in 0..lanes {
            let at = half + (own + other) % lanes;
            if let Some(claim) = self.lanes[at].claim() {
                return Ok((at, self.still(claim, now)?));
            }
        }
        Err(self.busy(half))
    }

    /// Waits for this thread's lane in one half. The set-up must be taken first, and never by a thread that has a lane: a close has the set-up while it waits
    /// for the lanes.
    pub(crate) fn own_lane(&self, setup: &Opened<'_>, half: usize, now: Now) -> Result<(usize, Claim<'_>), Error> {
        let at = if half == INLINE { INLINE } else { half + thread::number() % now.lanes() };
        if half == LANES {
            self.wide.take();
        }
        let mut claim = self.lanes[at].claim_in_time();
        if at == INLINE && claim.is_none() {
            // Only few sessions need it.
            fill(&self.lanes[at], &mut claim, setup, Engine::Graphics)?;
        }
        Ok((at, self.still(claim, now)?))
    }

    /// Makes a buffer of `length` bytes of CUDA's memory at `pointer`: cudaMalloc's, cudaHostAlloc's or registered memory, of this GPU or of another one to
    /// which it has peer access (cuCtxEnablePeerAccess). Takes CUDA's locks.
    ///
    /// # Errors
    /// [`Error::Pin`] for any other memory, [`Error::Unavailable`] without CUDA, [`Error::Closed`], [`Error::Forked`].
    pub fn pin(&self, pointer: u64, length: u64) -> Result<Buffer, Error> {
        let (setup, now) = (self.setup()?, self.now()?);
        let machine = setup.machine.as_ref();
        let machine = machine.ok_or_else(|| {
            Error::Unavailable("the session is without CUDA: let doorbell allocate the memory".into())
        })?;
        let _context = setup.enter()?;
        self.add(now, Entry::of_cuda(machine, pointer, length, setup.ways.map())?)
    }

    /// The session's own memory: host memory or (`video`) GPU memory, which the CPU sees, too. Allocated without CUDA, in whole pages.
    ///
    /// # Errors
    /// Errors of the driver, [`Error::Closed`], [`Error::Forked`].
    pub fn allocate(&self, bytes: u64, video: bool) -> Result<Buffer, Error> {
        let (setup, now) = (self.setup()?, self.now()?);
        if bytes > gpu::MAX_LENGTH {
            return Err(Error::Argument("one allocation has at most 16 GiB: make several"));
        }
        let memory = if video { setup.space.alloc_video(bytes)? } else { setup.space.alloc_host(bytes)? };
        let place = if video { Place::Video } else { Place::Host };
        self.add(now, Entry::of_memory(memory, place, bytes, setup.ways.map())?)
    }

    fn add(&self, now: Now, entry: Entry) -> Result<Buffer, Error> {
        let (place, used) = self.buffers.add(entry)?;
        Ok(Buffer(BUFFER.encode(now.opening(), place, used)))
    }

    /// Ends a buffer. From now on no submission can name it, and the call waits for pending work with it, up to a second. After that second, an unpin of
    /// CUDA's memory stops the lanes that still copy there; the session's own memory is kept until they are done. Other lanes are not affected. Objects that
    /// use the memory for longer (a mailbox, a chain, a parameter) keep it in place.
    ///
    /// # Errors
    /// [`Error::Handle`], [`Error::Closed`], [`Error::Forked`].
    pub fn unpin(&self, buffer: Buffer) -> Result<(), Error> {
        let _setup = self.setup()?;
        let entry = self.buffers.remove(BUFFER.decode(self.now()?.opening(), buffer.0)?, &self.lanes)?;
        entry.end();
        Ok(())
    }

    /// A buffer's address, for CPU and GPU, and its length in bytes. The CPU may use the address of host memory and of memory from [`Session::allocate`].
    ///
    /// # Errors
    /// [`Error::Handle`], [`Error::Closed`], [`Error::Forked`].
    pub fn place(&self, buffer: Buffer) -> Result<(u64, u64), Error> {
        let _setup = self.setup()?;
        let now = self.now()?;
        // Any lane's claim keeps the entry.
        let claim = self.lanes[LOOKS].claim_in_time();
        // SAFETY: the claim lives until the end of the function.
        let entry = unsafe { self.buffers.find(BUFFER.decode(now.opening(), buffer.0)?) }?;
        let place = (entry.pointer, entry.region.length());
        drop(claim);
        Ok(place)
    }
}

/// The set-up of an open session, which stays open while this lives.
pub(crate) struct Opened<'s>(RwLockReadGuard<'s, Option<Setup>>, #[allow(dead_code, reason = "counted")] Once);

/// One per thread: a thread that has the set-up and takes it again would wait for a close that waits for the first. Checked in builds with debug assertions.
pub(crate) struct Once;

#[cfg(debug_assertions)]
thread_local!(static HAS_SETUP: std::cell::Cell<bool> = const { std::cell::Cell::new(false) });

impl Once {
    fn new() -> Once {
        #[cfg(debug_assertions)]
        assert!(
            !HAS_SETUP.replace(true),
            "a thread asks for the set-up that it has: a close between the two would wait for ever"
        );
        Once
    }
}

#[cfg(debug_assertions)]
impl Drop for Once {
    fn drop(&mut self) {
        HAS_SETUP.set(false);
    }
}

impl std::ops::Deref for Opened<'_> {
    type Target = Setup;

    fn deref(&self) -> &Setup {
        self.0.as_ref().expect("asked for when it was made")
    }
}

/// Waits for pending work on all lanes together, up to [`CLOSE`]. Lanes that wait for a dead lane end with it. Afterwards, the lanes that are not done are
/// stopped.
fn wait_for_all(claims: &mut [Claim<'_>]) {
    let (start, mut no_launches) = (Instant::now(), [false; ALL]);
    let mut waiting: Vec<usize> = (0..claims.len()).filter(|at| claims[*at].is_some()).collect();
    loop {
        waiting.retain(|at| {
            let Some(Inner { channel, .. }) = claims[*at].as_mut() else { return false };
            let ended = channel.idle(Duration::ZERO);
            no_launches[*at] |=
                has_launches(*at) && matches!(ended, Err(gpu::Error::ChannelKilled(_) | gpu::Error::ChannelStopped));
            // Copies next to launches wait for these: if the launch channel has ended, they never run.
            let never = launches_of(*at).is_some_and(|launches| no_launches[launches]);
            matches!(ended, Err(gpu::Error::Timeout { .. })) && !never
        });
        if waiting.is_empty() || start.elapsed() > CLOSE {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    for inner in claims.iter_mut().filter_map(|claim| claim.as_mut()) {
        if inner.channel.idle(Duration::ZERO).is_err() {
            inner.channel.stop();
        }
    }
}

fn make_lane(lane: &Lane, setup: &Setup, engine: Engine) -> Result<(), Error> {
    let mut claim = lane.claim_in_time();
    fill(lane, &mut claim, setup, engine)
}

fn fill(lane: &Lane, claim: &mut Claim<'_>, setup: &Setup, engine: Engine) -> Result<(), Error> {
    let options = ChannelOptions { entries: ENTRIES, ..Default::default() };
    let mut channel = Channel::new(&setup.space, engine, options)?;
    let copies = matches!(engine, Engine::Copy(_)).then(|| Copies::new(&mut channel)).transpose()?;
    equip(lane, claim, channel, copies, setup.ways.clone());
    Ok(())
}

/// Gives a lane its channel.
pub(crate) fn equip(lane: &Lane, claim: &mut Claim<'_>, channel: Channel, copies: Option<Copies>, ways: Arc<Ways>) {
    let observer = channel.observer();
    **claim = Some(Inner {
        rings: Vec::new(),
        transfers: Vec::new(),
        messages: Vec::new(),
        graphs: Vec::new(),
        leaving: Vec::new(),
        word: None,
        copies,
        ways,
        channel,
    });
    lane.publish(claim, observer);
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.close().is_err() && Session::same_process().is_err() {
            // A fork's child: it must not free the parent's objects.
            self.watch.forget();
            std::mem::forget(poison::ignore(self.setup.get_mut()).take());
        }
    }
}

//! How the processes of a recording find their recorder: one shared page, a table of regions and a table of programs that
//! cannot be recorded.
//!
//! A *session* is one run of `doorbell record`. It is the first [`SESSION_BYTES`] of the recorder's memory file, whose path
//! (`/proc/RECORDER/fd/N`) is in the environment of every followed process as [`environment::SESSION`]. A *region*
//! ([`crate::region`]) is the memory of one recorded process image: a piece of the *slab*, the rest of that file. It is sparse,
//! so a region takes no memory until it is used. All regions are ready from the start, so no process of a burst waits for the
//! recorder to make one. No place is used twice: a child may still have an ended process's region mapped.
//!
//! The steps, with the writer of each:
//!
//! 1. **Start.** The recorder fills in the settings and offers its regions ([`Session::offer`]) before the first program starts.
//!    Until it ends, it raises [`Session::beat`] at least every 50 ms, also while the disk stalls, and every 250 ms while it
//!    keeps all processes paused.
//! 2. **Load** (agent, its constructor). Map the session, and check `magic`, `version` and `region_version`
//!    ([`Session::check`]). If they differ, add 1 to `refused` and go on unrecorded. Call [`Starts::arrive`]. Read in `locks`
//!    whether locks or calls are to be hooked. A process without an event that matters costs no more than that.
//! 3. **Attach** (agent, at the first event that matters, once an image, and never in a vfork child). The function
//!    [`Session::claim`] takes a ready region by one compare-and-swap that includes the pid. So a process that is killed at any
//!    moment leaves either a ready region or one with its owner's number. Then open the file again with O_CLOEXEC, map
//!    [`crate::region::FIXED_BYTES`] where it begins, write the settings ([`Session::begin_region`]), fill in the
//!    [`crate::region::Identity`], store `pid` in the [`crate::region::Control`], then 1 in its `state`. If that fails,
//!    [`Session::abandon`] with the reason. If no region was ready, [`Session::call`] the recorder. Then wait (futex) on
//!    [`Session::word`] as it was before the claim failed. Wait at most [`PATIENCE_MS`] in all, while `beat` moves and
//!    `stopped` is 0. Then add 1 to `turned_away` and go on unrecorded. Try again at later events, and subtract that 1 after a
//!    success. After a claim, [`Session::call`], so that the recorder looks at it. The pid is that of the process in the
//!    recorder's /proc (the target of the link `/proc/self` there). In a pid namespace getpid returns another number, which is
//!    stored in the control page. Where another /proc is mounted ([`Starts::proc`]), or none, the claim has the negative of the
//!    number from getpid and the namespace's number. The recorder finds the process by both.
//! 4. **Record.** Events pass through the region's rings ([`crate::rings`]). After `Control::stopped` is set, this region is not
//!    written any further. A thread that waits for room watches `beat` here.
//! 5. **Later pieces** of the region (rings, shadow pages) need its file again. The descriptor must not stay open in the
//!    program, which would see it and could close it. The path can be opened again while the recorder lives and the process has
//!    the rights it began with. Where that fails (setuid, chroot, another namespace), a piece can be mapped from the session's
//!    mapping. An mremap of it with an old length of 0 makes a second mapping of any length, from the file's beginning.
//! 6. **Fork.** The child's copy of the agent is inactive. At its own first event that matters it attaches, as in 3.
//! 7. **Exec.** The new image attaches, as in 3, with the pid of the old one, which shows the recorder that the old image has
//!    ended. If the new image never attaches, the recorder does not learn this.
//! 8. **End.** At exit the agent stores 2 in `Control::state`, after its last event. The recorder drains the region for the last
//!    time when the process has ended (pidfd), with or without that 2. Then its pages are given back, and the entry offers
//!    another region. An agent never frees an entry.
//! 9. **A program that cannot be followed** is noted in the table of the unwatched ([`Session::note_unwatched`]), by the agent
//!    whose process is about to start it.
//!
//! Invariant: as for the region, the program may write anything over this memory. The recorder checks each number from here
//! against its limits.

use crate::fix::Fixes;
use crate::region::Control;
use crate::rings::Geometry;
use crate::starts::Starts;
use core::sync::atomic::{AtomicI32, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// "DRBLSES1"
pub const MAGIC: u64 = u64::from_le_bytes(*b"DRBLSES1");
/// Changes whenever a layout here changes.
pub const VERSION: u32 = 6;

/// Images recorded at a time.
pub const REGIONS: usize = 1024;
/// Programs noted as unwatched and not yet taken by the recorder, at a time.
pub const UNWATCHED: usize = 256;
/// How long an agent waits for a region where all entries are in use, ms.
pub const PATIENCE_MS: u32 = 3;
/// Bytes: minimum limit of a program's data (`ulimit -d`) or address space for the agent to be loaded into it. The agent's own data is 4 MiB.
pub const LEAST_ROOM: u64 = 16 << 20;

/// Names in the environment of followed processes. The agent takes them out before the program sees them.
pub mod environment {
    /// Path of the session.
    pub const SESSION: &str = "DOORBELL_SESSION";
    /// Path of the board of lock policies ([`crate::policy`]).
    pub const BOARD: &str = "DOORBELL_POLICY_BOARD";
    /// Doorbell's part of LD_PRELOAD; the program's own may follow it there.
    pub const PRELOAD: &str = "DOORBELL_PRELOAD";
    /// Set for a shell that is started by its path and must see the name that libc's `system` gives it: `sh`.
    pub const SHELL: &str = "DOORBELL_SHELL";
}

/// A value of [`Session::range_domain`].
pub const ANY_DOMAIN: u64 = u64::MAX;

/// One region.
#[repr(C, align(64))]
pub struct RegionEntry {
    /// Low half: one of [`state`]. High half: pid of the process that claimed it, as the recorder sees it. Where the process cannot find
    /// that, it is the negative of the number from getpid.
    pub owner: AtomicU64,
    /// Which region of the slab it is. Recorder, before the entry is ready.
    pub place: AtomicU32,
    /// Parent of the process, from getppid. Agent, after the claim; 0 until then.
    pub ppid: AtomicI32,
    /// Time stamp counter at the claim. Agent, after the claim; 0 until then.
    pub tsc: AtomicU64,
    /// With [`state::ABANDONED`]: one of [`unwatched`]. Agent.
    pub why: AtomicU32,
    /// The pid namespace of the process, its file number; 0 if it is not known. Agent, after the claim, before `tsc`.
    pub namespace: AtomicU64,
    _pad: [u32; 4],
}

/// Whether a region begins with a pause.
pub mod paused {
    pub const NO: u32 = 0;
    /// Yes, and the program ends it.
    pub const AT_FIRST: u32 = 1;
    /// Yes, and the recorder ends it. It keeps all processes paused and sleeps for long, so [`Session::call`] it after ending a
    /// pause.
    ///
    /// [`Session::call`]: super::Session::call
    pub const BY_RECORDER: u32 = 2;
}

/// States of a [`RegionEntry`].
pub mod state {
    /// No region. The recorder may offer one: READY.
    pub const FREE: u32 = 0;
    /// An agent may claim it: CLAIMED.
    pub const READY: u32 = 1;
    /// An agent has it, until its process has ended; then the recorder drains it: FREE.
    pub const CLAIMED: u32 = 2;
    /// The agent could not use the region that it had claimed. The recorder closes it: FREE.
    pub const ABANDONED: u32 = 3;
}

/// Why a program or a process is not watched.
pub mod unwatched {
    /// Statically linked: preloading has no effect. It sees its own environment, so the programs that it starts are not followed
    /// either.
    pub const STATIC: u32 = 1;
    /// Set-user-ID or set-group-ID: the loader ignores preloads.
    pub const SET_ID: u32 = 2;
    /// The file has capabilities: as above.
    pub const CAPABILITIES: u32 = 3;
    pub const THIRTY_TWO_BIT: u32 = 4;
    /// For another processor.
    pub const FOREIGN: u32 = 5;
    /// Not glibc's dynamic loader.
    pub const LOADER: u32 = 6;
    /// Its environment is too long to be changed on the way.
    pub const ENVIRONMENT: u32 = 7;
    /// The command of `system` or `popen` is too long to be changed on the way.
    pub const COMMAND: u32 = 8;
    /// The agent could not open or map its region.
    pub const NO_REGION: u32 = 9;
    /// Could not be looked at before it was started.
    pub const UNREADABLE: u32 = 10;
    /// It makes a service or another machine start programs ([`elsewhere`]). It is watched, they are not.
    pub const ELSEWHERE: u32 = 11;
    /// It loses rights at its exec without which it cannot open the recorder's files.
    pub const RIGHTS: u32 = 12;
    /// Its limits of memory leave no room for the agent.
    pub const LIMIT: u32 = 13;
    /// Its namespaces or its root directory do not have the recorder's files.
    pub const PLACE: u32 = 14;
    /// Its glibc lacks what the agent needs: the loader would end it.
    pub const GLIBC: u32 = 15;
    /// Another doorbell starts it, which this one has started.
    pub const ANOTHER: u32 = 16;
    pub const COUNT: usize = 17;

    pub const TEXT: [&str; COUNT] = [
        "not known",
        "statically linked",
        "set-user-ID or set-group-ID",
        "with capabilities of its own",
        "a 32-bit program",
        "a program for another processor",
        "not linked against glibc",
        "its environment is too long",
        "its command line is too long",
        "its memory could not be attached",
        "its file could not be read",
        "what it starts is not its child",
        "started with fewer capabilities than doorbell has",
        "its memory is limited too much",
        "doorbell's files cannot be opened from its namespaces, its root directory or by its user",
        "its glibc is older than the agent needs",
        "another doorbell inside this one watches it",
    ];

    /// True for a program, by its path, whose work is done by processes that are not its children. srun's tasks are children of
    /// a Slurm daemon, even on the same machine; mpirun reaches other machines through ssh; containers are started by daemons.
    pub fn elsewhere(path: &[u8]) -> bool {
        let name = path.rsplit(|&b| b == b'/').next().unwrap_or(path);
        const NAMES: [&[u8]; 13] = [
            b"srun",
            b"sbatch",
            b"ssh",
            b"docker",
            b"docker-compose",
            b"podman",
            b"nerdctl",
            b"ctr",
            b"crictl",
            b"kubectl",
            b"lxc",
            b"machinectl",
            b"systemd-run",
        ];
        NAMES.contains(&name)
    }
}

/// Bytes of a path that are kept; of a longer one the end.
pub const PATH: usize = 200;

/// A program that cannot be followed.
#[repr(C, align(64))]
pub struct UnwatchedEntry {
    /// 0 free, 1 an agent writes it, 2 complete. The agent raises it, the recorder clears it.
    pub state: AtomicU32,
    /// One of [`unwatched`].
    pub why: AtomicU32,
    /// The process that is about to become it, in the recorder's numbers; 0 if it will be a child of `parent`, or that is not known.
    pub pid: AtomicI32,
    /// The process that starts it, in the recorder's numbers; 0 if it is not known.
    pub parent: AtomicI32,
    pub tsc: AtomicU64,
    /// Bytes of `path` that are used.
    pub len: AtomicU32,
    _pad: u32,
    pub path: [AtomicU8; PATH],
    _pad2: [u8; 24],
}

/// The shared page, and the tables after it.
#[repr(C)]
pub struct Session {
    pub magic: u64,
    pub version: u32,
    /// [`crate::region::VERSION`]
    pub region_version: u32,
    /// The recorder's pid, in its own numbers.
    pub recorder: i32,
    /// [`crate::region::tap`], as in each region's control page.
    pub tap: u32,
    /// [`crate::region::on_full`], as in each region's control page.
    pub on_full: u32,
    /// [`crate::region::contents`], as in each region's control page: whether locks and calls are hooked at all.
    pub contents: u32,
    /// Bytes of a small and of a large ring, as in each region's control page.
    pub small_bytes: u32,
    pub ring_bytes: u32,
    /// [`crate::region::capture`], as in each region's control page.
    pub capture: u32,
    /// One of [`paused`]. Recorder.
    pub paused: AtomicU32,
    /// With [`crate::region::capture::RANGE`]: the number of the range's text ([`crate::nvtx::text`]), and that of its domain's
    /// name, 0 for the default domain, [`ANY_DOMAIN`] for all.
    pub range: u64,
    pub range_domain: u64,
    /// 1: the file may be larger than its file system has room for. Whoever hands out or takes a part of it first reserves that
    /// (fallocate), or does without: a page that is not there ends the program.
    pub reserve: u32,
    _pad0: [u32; 15],
    /// The heartbeat: it moves as long as the recorder lives. Recorder.
    pub beat: AtomicU64,
    /// 1 when regions are no longer offered: the recording has ended or stopped. Recorder.
    pub stopped: AtomicU32,
    /// Moves, and its waiters are woken (a shared futex), when a region becomes ready or `stopped` is set. Recorder.
    pub word: AtomicU32,
    _pad1: [u32; 28],
    /// Moves, and its waiter is woken (a shared futex), when an agent has something for the recorder. Agents.
    pub calls: AtomicU32,
    /// Processes that found no region. Agents.
    pub turned_away: AtomicU32,
    /// Agents that found a session of another version than theirs. Agents.
    pub refused: AtomicU32,
    /// Programs that found no room in the table of the unwatched. Agents.
    pub unwatched_lost: AtomicU32,
    /// Bytes of memory that are left for rings. Agents take, the recorder gives.
    pub memory: AtomicI64,
    _pad2: [u32; 26],
    /// Programs that are started with the agent.
    pub starts: Starts,
    /// `wanted`: recorder, the rest: agents.
    pub fixes: Fixes,
    pub regions: [RegionEntry; REGIONS],
    pub unwatched: [UnwatchedEntry; UNWATCHED],
}

pub const SESSION_BYTES: usize = size_of::<Session>().next_multiple_of(crate::region::PAGE);

const _: () = assert!(size_of::<RegionEntry>() == 64 && size_of::<UnwatchedEntry>() == 256);
const _: () = assert!(core::mem::offset_of!(Session, beat) == 128 && core::mem::offset_of!(Session, calls) == 256);

/// A region that an agent has claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Index of the entry.
    pub region: usize,
    /// Which region of the slab it is.
    pub place: u32,
}

/// An entry of the table of the unwatched, copied out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noted<'a> {
    pub why: u32,
    pub pid: i32,
    pub parent: i32,
    pub tsc: u64,
    pub path: &'a [u8],
}

const fn owner(state: u32, pid: i32) -> u64 {
    (pid as u32 as u64) << 32 | state as u64
}

/// Where a region begins in the session's file. `None` if that is more than a file may have.
pub fn begins(geometry: Geometry, place: u32) -> Option<usize> {
    let at = geometry.region_bytes().checked_mul(place as usize)?.checked_add(SESSION_BYTES)?;
    (at <= i64::MAX as usize).then_some(at)
}

impl RegionEntry {
    /// One of [`state`], and the pid of its owner (0 where there is none).
    pub fn state(&self) -> (u32, i32) {
        // ORDERING: Acquire pairs with the Release in `moves`, `offer` and `free`.
        let o = self.owner.load(Ordering::Acquire);
        (o as u32, (o >> 32) as u32 as i32)
    }

    fn moves(&self, from: u64, to: u64) -> bool {
        // ORDERING: Acquire and Release: all that was written before the state moved is visible to the next one that moves it.
        self.owner.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

impl Session {
    /// True if this is a session that this version can use.
    pub fn check(&self) -> bool {
        self.magic == MAGIC && self.version == VERSION && self.region_version == crate::region::VERSION
    }

    /// Offers a region by this entry (recorder), which is free. [`Session::word`] is to be woken afterwards.
    pub fn offer(&self, entry: usize, place: u32) {
        let Some(e) = self.regions.get(entry) else { return };
        e.place.store(place, Ordering::Relaxed);
        e.ppid.store(0, Ordering::Relaxed);
        e.tsc.store(0, Ordering::Relaxed);
        e.why.store(0, Ordering::Relaxed);
        // ORDERING: Release: the place is stored before the state.
        e.owner.store(owner(state::READY, 0), Ordering::Release);
        self.word.fetch_add(1, Ordering::AcqRel);
    }

    /// Writes this session's settings into a region's control page: the recorder does it where it makes the region ready, else
    /// the agent that has claimed it.
    ///
    /// # Safety
    /// `to` is the first page of a region that no other thread accesses so far.
    pub unsafe fn begin_region(&self, to: *mut Control) {
        // SAFETY: the caller's; numbers.
        unsafe {
            (&raw mut (*to).magic).write(crate::region::MAGIC);
            (&raw mut (*to).version).write(crate::region::VERSION);
            (&raw mut (*to).tap).write(self.tap);
            (&raw mut (*to).on_full).write(self.on_full);
            (&raw mut (*to).contents).write(self.contents);
            (&raw mut (*to).small_bytes).write(self.small_bytes);
            (&raw mut (*to).ring_bytes).write(self.ring_bytes);
            (&raw mut (*to).capture).write(self.capture);
            (&raw mut (*to).pauses).write(AtomicU32::new(u32::from(self.paused.load(Ordering::Relaxed) != 0)));
        }
    }

    /// Offset in the file at which a region of the slab begins: the session's bytes and `place` whole regions. `None` if that is
    /// impossible.
    pub fn begins(&self, place: u32) -> Option<usize> {
        begins(Geometry::of_sizes(self.small_bytes, self.ring_bytes)?, place)
    }

    /// Claims a ready region for the process `pid` (agent): see [`RegionEntry::owner`]. Makes no system call.
    pub fn claim(&self, pid: i32, namespace: u64, ppid: i32, tsc: u64) -> Option<Claim> {
        if self.stopped.load(Ordering::Acquire) != 0 {
            return None;
        }
        for (i, e) in self.regions.iter().enumerate() {
            if e.state().0 == state::READY && e.moves(owner(state::READY, 0), owner(state::CLAIMED, pid)) {
                e.ppid.store(ppid, Ordering::Relaxed);
                e.namespace.store(namespace, Ordering::Relaxed);
                // ORDERING: Release: the parent and the namespace are stored before the time. When the recorder sees the time,
                // they are valid.
                e.tsc.store(tsc, Ordering::Release);
                return Some(Claim { region: i, place: e.place.load(Ordering::Relaxed) });
            }
        }
        None
    }

    /// The process cannot use the claimed region (agent). `why`: one of [`unwatched`].
    pub fn abandon(&self, region: usize, pid: i32, why: u32) {
        if let Some(e) = self.regions.get(region) {
            e.why.store(why, Ordering::Relaxed);
            e.moves(owner(state::CLAIMED, pid), owner(state::ABANDONED, pid));
        }
    }

    /// The entry is free again (recorder): its process has ended.
    pub fn free(&self, region: usize) {
        if let Some(e) = self.regions.get(region) {
            e.owner.store(owner(state::FREE, 0), Ordering::Release);
        }
    }

    /// Notes that there is work for the recorder (agent). The caller wakes the futex [`Session::calls`].
    pub fn call(&self) {
        self.calls.fetch_add(1, Ordering::AcqRel);
    }

    /// Takes memory for a ring; false if not enough is left (agent, or the recorder for a ring ahead of use).
    pub fn take_memory(&self, bytes: u64) -> bool {
        let take = |left: i64| left.checked_sub_unsigned(bytes).filter(|left| *left >= 0);
        self.memory.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    /// Gives it back (recorder).
    pub fn give_memory(&self, bytes: u64) {
        let give = |left: i64| Some(left.saturating_add_unsigned(bytes));
        let _ = self.memory.fetch_update(Ordering::Relaxed, Ordering::Relaxed, give);
    }

    /// Notes a program that cannot be followed (agent; also in a vfork child, because it writes only this table). `pid`: of the
    /// process that becomes it, 0 if a child will; `parent`: of the process that starts it. [`Session::call`] afterwards.
    pub fn note_unwatched(&self, why: u32, pid: i32, parent: i32, tsc: u64, path: &[u8]) {
        for e in &self.unwatched {
            // ORDERING: Acquire pairs with the Release with which the recorder cleared the entry.
            if e.state.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                continue;
            }
            let path = path.get(path.len().saturating_sub(PATH)..).unwrap_or_default();
            e.why.store(why, Ordering::Relaxed);
            e.pid.store(pid, Ordering::Relaxed);
            e.parent.store(parent, Ordering::Relaxed);
            e.tsc.store(tsc, Ordering::Relaxed);
            e.len.store(path.len() as u32, Ordering::Relaxed);
            for (to, from) in e.path.iter().zip(path) {
                to.store(*from, Ordering::Relaxed);
            }
            // ORDERING: Release: the entry is stored before the state that marks it complete.
            e.state.store(2, Ordering::Release);
            return;
        }
        self.unwatched_lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes the noted programs (recorder).
    pub fn take_unwatched(&self, mut each: impl FnMut(Noted<'_>)) {
        for e in &self.unwatched {
            if e.state.load(Ordering::Acquire) != 2 {
                continue;
            }
            let mut path = [0; PATH];
            let n = (e.len.load(Ordering::Relaxed) as usize).min(PATH);
            for (to, from) in path.iter_mut().zip(&e.path) {
                *to = from.load(Ordering::Relaxed);
            }
            let number = |of: &AtomicI32| of.load(Ordering::Relaxed);
            let (why, tsc) = (e.why.load(Ordering::Relaxed), e.tsc.load(Ordering::Relaxed));
            each(Noted { why, pid: number(&e.pid), parent: number(&e.parent), tsc, path: &path[..n] });
            // ORDERING: Release: the entry is read before another agent writes it.
            e.state.store(0, Ordering::Release);
        }
    }
}

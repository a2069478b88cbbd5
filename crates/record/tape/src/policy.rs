//! The orders of `run` to the agent, and the agent's report: one shared file. `run` writes it before the program starts
//! and reads it after its end; the agent counts in it in between.
//!
//! Invariant: the program may have written anything over it, so both sides check the numbers that they read.

use crate::fix::{Fixes, Kernels};
use crate::starts::Starts;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

pub const MAGIC: u64 = u64::from_le_bytes(*b"dbpolicy");
pub const VERSION: u32 = 7;
/// Rules of a plan, at most.
pub const RULES: usize = 1024;
/// Maximum number of events with details; all are counted.
pub const EVENTS: usize = 512;
/// Bytes of a module's name.
pub const NAME: usize = 56;

/// Policies of a lock, as the plan, the lock's own mark and the report number them.
pub mod protocol {
    /// The lock's own protocol.
    pub const STOCK: u8 = 1;
    pub const TICKET: u8 = 2;
    pub const PI: u8 = 3;
    pub const PHASE_FAIR: u8 = 4;
    pub const BOOST: u8 = 5;
    pub const COUNT: usize = 6;

    pub const NAMES: [&str; COUNT] = ["", "stock", "ticket", "pi", "phase-fair", "boost"];
}

/// What a rule is for.
pub mod class {
    pub const MUTEX: u8 = 1;
    pub const RWLOCK: u8 = 2;
}

/// Why a lock kept its own protocol, or what happened to it.
pub mod why {
    pub const SHARED: u8 = 0;
    pub const ROBUST: u8 = 1;
    pub const ALREADY_INHERITS: u8 = 2;
    pub const CEILING: u8 = 3;
    pub const ELIDED: u8 = 4;
    pub const FOREIGN_UNLOCK: u8 = 5;
    pub const LOCKED: u8 = 6;
    pub const BYPASSED: u8 = 7;
    pub const UNKNOWN_KIND: u8 = 8;
    pub const INIT: u8 = 9;
    pub const PLANNED: u8 = 10;
    pub const LAYOUT: u8 = 11;
    pub const SANITIZER: u8 = 12;
    pub const COUNT: usize = 13;

    /// Reasons that hold for every lock of the process.
    pub const OF_PROCESS: [u8; 2] = [LAYOUT, SANITIZER];

    pub const TEXT: [&str; COUNT] = [
        "shared between processes, which would not follow the policy",
        "robust: the bytes that a policy needs are in use",
        "inherits priorities already",
        "has a priority ceiling",
        "lock elision is on",
        "unlocked by a thread that did not own it",
        "locked when it was first seen",
        "locked by code that bypassed doorbell",
        "destroyed, or of an unknown kind",
        "the process id is 1: thread ids cannot be told from lock values",
        "the plan says so",
        "the layout of locks in this C library is not known",
        "the program is built with ThreadSanitizer, which must see each of its locks",
    ];
}

/// The lock that a rule names: where it was made or first used, or the static lock itself.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Rule {
    /// The module's file name up to `.so`, then zeros.
    pub module: [u8; NAME],
    /// Offset in the module; [`Rule::WHOLE`] for all locks of it.
    pub offset: u64,
    /// One of [`protocol`].
    pub policy: u8,
    /// One of [`class`], or 0 for both.
    pub class: u8,
    pub pad: [u8; 6],
}

impl Rule {
    pub const WHOLE: u64 = u64::MAX;
    pub const NONE: Rule = Rule { module: [0; NAME], offset: 0, policy: 0, class: 0, pad: [0; 6] };
}

#[repr(C)]
pub struct Event {
    pub addr: AtomicU64,
    pub offset: AtomicU64,
    pub tid: AtomicU32,
    /// One of [`why`], plus 1: 0 is an event that is not complete.
    pub what: AtomicU8,
    /// The policy that was wanted.
    pub policy: AtomicU8,
    pub class: AtomicU8,
    pub pad: AtomicU8,
    pub module: [AtomicU8; NAME],
}

#[repr(C)]
pub struct Board {
    pub magic: u64,
    pub version: u32,
    /// Policy of mutexes and of rwlocks that no rule names.
    pub mutex: u8,
    pub rwlock: u8,
    /// Nonzero: one real-time mutex around CUDA's launches and copies.
    pub guard: u8,
    pub pad: u8,
    pub rules: u32,
    pub pad3: u32,
    /// 1 when the agent has attached, 2 when the kill switch prevented that.
    pub state: AtomicU32,
    /// Locks that were given each policy.
    pub given: [AtomicU64; protocol::COUNT],
    /// Locks that were not, by reason; for [`why::FOREIGN_UNLOCK`] those that went back to their own protocol.
    pub refused: [AtomicU64; why::COUNT],
    /// Unlocks of mutexes by threads that did not own them.
    pub foreign: AtomicU64,
    /// Threads that were raised, and brought back; raises that the kernel refused.
    pub raised: AtomicU64,
    pub restored: AtomicU64,
    pub raise_refused: AtomicU64,
    /// Calls that entered the guard, and those of them that waited.
    pub guarded: AtomicU64,
    pub guard_waited: AtomicU64,
    /// Those of them that gave up and continued without it.
    pub guard_gave_up: AtomicU64,
    /// Their waits in total, and the longest one, nanoseconds.
    pub guard_wait_ns: AtomicU64,
    pub guard_longest_ns: AtomicU64,
    /// Events begun in `events`; may be more than there is room for.
    pub events_total: AtomicU32,
    pub pad2: u32,
    pub fixes: Fixes,
    pub rule: [Rule; RULES],
    pub events: [Event; EVENTS],
    /// Programs that are started with the agent.
    pub starts: Starts,
    pub kernels: Kernels,
}

const _: () = assert!(size_of::<Rule>() == 72 && size_of::<Event>() == 80);

impl Board {
    /// The rules; none if the program wrote an impossible number.
    pub fn rules(&self) -> &[Rule] {
        self.rule.get(..self.rules as usize).unwrap_or(&[])
    }

    /// The name of a module as rules and events have it.
    pub fn module(name: &[u8]) -> [u8; NAME] {
        let file = name.rsplit(|&b| b == b'/').next().unwrap_or(name);
        let end = file.windows(3).position(|w| w == b".so").filter(|&n| n > 0).unwrap_or(file.len());
        let mut out = [0; NAME];
        for (to, from) in out.iter_mut().zip(&file[..end]) {
            *to = *from;
        }
        out
    }

    /// Puts an event into the table, if there is room.
    pub fn record_event(&self, what: u8, policy: u8, class: u8, tid: u32, addr: u64, place: ([u8; NAME], u64)) {
        let i = self.events_total.fetch_add(1, Ordering::Relaxed) as usize;
        let Some(e) = self.events.get(i) else {
            self.events_total.store(EVENTS as u32 + 1, Ordering::Relaxed);
            return;
        };
        e.addr.store(addr, Ordering::Relaxed);
        e.offset.store(place.1, Ordering::Relaxed);
        e.tid.store(tid, Ordering::Relaxed);
        e.policy.store(policy, Ordering::Relaxed);
        e.class.store(class, Ordering::Relaxed);
        for (to, from) in e.module.iter().zip(place.0) {
            to.store(from, Ordering::Relaxed);
        }
        // ORDERING: Release: the event is stored before the word that makes it valid.
        e.what.store(what + 1, Ordering::Release);
    }
}

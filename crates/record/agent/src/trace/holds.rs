//! The locks that a thread holds, and their events.
//!
//! The table is in the first page of the thread's ring, so the recorder can read which locks a killed program held. A row
//! is reserved before it is filled and read before it is freed. So a signal handler that locks and unlocks in between
//! leaves it as it was.

use super::arrival::{enter, enter_in_pause, waits_only};
use super::{asked, call};
use crate::process::thread::{self, Thread};
use crate::process::{region, sys};
use crate::record;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{Ordering, compiler_fence};
use locks::leaving;
use tape::event::Plain;
use tape::lock::{HoldBody, OpBody, PairBody, attr, ended, kind, op};
use tape::region::{HELD, HeldLock, LockTable};

/// A call that takes, releases or does something else with a lock.
#[derive(Clone, Copy)]
pub struct Call {
    pub addr: usize,
    /// Return address of the call.
    pub site: usize,
    /// One of [`op`] and, below it, [`attr`].
    pub flags: u16,
}

impl Call {
    #[inline(always)]
    pub fn new(addr: usize, site: usize, op: u8, attr: u8) -> Call {
        Call { addr, site, flags: u16::from(op) << 8 | u16::from(attr) }
    }
}

/// Writes an event to the thread's ring. An event from a signal handler that interrupts a write is counted as lost.
#[inline(never)]
pub fn put<B: Plain>(t: &Thread, k: u16, flags: u16, body: B) {
    put_at(t, k, flags, sys::rdtsc(), body);
}

#[inline(never)]
fn put_at<B: Plain>(t: &Thread, k: u16, flags: u16, tsc: u64, body: B) {
    if t.busy.replace(true) {
        return lost();
    }
    compiler_fence(Ordering::SeqCst);
    // (A recorder that has stopped drops and counts what it reads.)
    // SAFETY: `enter` has made sure that this thread has a writer, and `busy` keeps a signal handler from making a second
    // reference.
    let w = unsafe { &mut *t.writer.get() };
    record::push(w, k, flags, tsc, &body, &[], &[]);
    w.publish();
    compiler_fence(Ordering::SeqCst);
    t.busy.set(false);
}

/// As [`put_at`], for the most frequent event; returns 0. (Functions that are not inlined get words, not bodies: a body
/// with an address is stored and loaded again, which costs as much as all the rest.)
#[inline(always)]
fn put_pair(t: &Thread, flags: u16, tsc: u64, addr: u64, site: u64, hold: u32, release: i32) -> c_int {
    if t.busy.replace(true) {
        return lost_pair();
    }
    compiler_fence(Ordering::SeqCst);
    // SAFETY: as in `put_at`.
    let w = unsafe { &mut *t.writer.get() };
    let body = PairBody { addr, site, hold, release }.words();
    if !w.push_words(kind::PAIR, flags, tsc, body) {
        return pair_with_gap(t, flags, tsc, addr, site, body[2]);
    }
    w.publish();
    compiler_fence(Ordering::SeqCst);
    t.busy.set(false);
    0
}

/// A pair that does not fit: waits for room or counts a gap. The thread is busy.
#[cold]
#[inline(never)]
fn pair_with_gap(t: &Thread, flags: u16, tsc: u64, addr: u64, site: u64, rest: u64) -> c_int {
    // SAFETY: as in `put_at`.
    let w = unsafe { &mut *t.writer.get() };
    let body = PairBody { addr, site, hold: rest as u32, release: (rest >> 32) as i32 };
    record::push(w, kind::PAIR, flags, tsc, &body, &[], &[]);
    w.publish();
    compiler_fence(Ordering::SeqCst);
    t.busy.set(false);
    done()
}

#[cold]
#[inline(never)]
fn lost_pair() -> c_int {
    lost();
    done()
}

#[cold]
fn lost() {
    region::count(|c| &c.ringless);
}

#[inline(always)]
fn table(t: &Thread) -> &LockTable {
    // SAFETY: set together with the writer, to a page that is never unmapped.
    unsafe { &*t.locks.get() }
}

/// The rows in use.
#[inline(always)]
fn rows(table: &LockTable) -> &[HeldLock] {
    let n = table.n.load(Ordering::Relaxed) as usize;
    // (The table is in shared memory: a stray store of the program may have left any number.)
    table.held.get(..n).unwrap_or(&table.held)
}

/// The call has taken a lock that was free, at `tsc`. Returns 0, which its caller returns, too. So the path for a thread
/// that already holds locks is a jump, and this function saves no registers for it.
#[inline(always)]
pub fn took(t: &Thread, c: &Call, tsc: u64) -> c_int {
    let table = table(t);
    if table.n.load(Ordering::Relaxed) != 0 {
        return took_inside(t, c.addr, c.site, c.flags, tsc);
    }
    first_row(table, c, 0, tsc);
    0
}

/// The only lock that the thread holds.
#[inline(always)]
fn first_row<'t>(table: &'t LockTable, c: &Call, flags: u32, since: u64) -> &'t HeldLock {
    let row = &table.held[0];
    table.n.store(1, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
    row.addr.store(c.addr as u64, Ordering::Relaxed);
    row.site.store(c.site as u64, Ordering::Relaxed);
    row.flags.store(u32::from(c.flags) | flags, Ordering::Relaxed);
    row.since.store(since, Ordering::Relaxed);
    row
}

/// As [`took`], now. If only waits are recorded, does not read the clock.
#[inline(always)]
pub fn took_now(t: &Thread, c: &Call) -> c_int {
    if waits_only() { took_open(t, c) } else { took(t, c, sys::rdtsc()) }
}

/// As [`took`], for a hold that no thread waits for: its begin is not stored.
#[inline(always)]
pub fn took_open(t: &Thread, c: &Call) -> c_int {
    let Some(turn) = asked::nobody(c.addr) else {
        return took_asked(t, c.addr, c.site, c.flags);
    };
    let table = table(t);
    if table.n.load(Ordering::Relaxed) != 0 {
        return took_open_inside(t, c.addr, c.site, c.flags, turn);
    }
    let row = first_row(table, c, HeldLock::OPEN, 0);
    row.wait.store(HeldLock::open(turn, current_call(t)), Ordering::Relaxed);
    0
}

/// The number of the thread's current CUDA call; 0 if there is none.
#[inline(always)]
fn current_call(t: &Thread) -> u32 {
    // SAFETY: set together with the writer, to a row in a page that is never unmapped.
    let row = unsafe { &*t.call.get() };
    if row.function.load(Ordering::Relaxed) == 0 { 0 } else { row.seq.load(Ordering::Relaxed) }
}

/// As [`took_open`], by a thread that already holds locks.
#[inline(never)]
fn took_open_inside(t: &Thread, addr: usize, site: usize, flags: u16, turn: u32) -> c_int {
    if let Some(row) = new_row(t, &Call { addr, site, flags }, HeldLock::OPEN) {
        row.since.store(0, Ordering::Relaxed);
        row.wait.store(HeldLock::open(turn, current_call(t)), Ordering::Relaxed);
    }
    done()
}

/// As [`took_open`], if another thread waits but this one was faster.
#[cold]
#[inline(never)]
fn took_asked(t: &Thread, addr: usize, site: usize, flags: u16) -> c_int {
    took(t, &Call { addr, site, flags }, sys::rdtsc())
}

/// As [`took`], by a thread that already holds locks.
#[inline(never)]
fn took_inside(t: &Thread, addr: usize, site: usize, flags: u16, tsc: u64) -> c_int {
    if let Some(row) = new_row(t, &Call { addr, site, flags }, 0) {
        row.since.store(tsc, Ordering::Relaxed);
    }
    done()
}

/// Returns 0, which the compiler does not know: otherwise a caller would not jump to the function that returns it.
#[inline(always)]
fn done() -> c_int {
    let mut zero = 0;
    // SAFETY: the code is empty.
    unsafe { core::arch::asm!("/* {0:e} */", inout(reg) zero, options(pure, nomem, nostack, preserves_flags)) };
    zero
}

/// The call has taken its lock at `tsc`, after a wait of `wait` ticks, or with a result that is not 0.
#[inline(never)]
pub fn took_late(t: &Thread, c: Call, tsc: u64, wait: u64, result: c_int) {
    if let Some(row) = new_row(t, &c, HeldLock::LONG) {
        row.since.store(tsc, Ordering::Relaxed);
        row.wait.store(wait, Ordering::Relaxed);
        row.result.store(result, Ordering::Relaxed);
    }
}

#[inline]
fn new_row<'t>(t: &'t Thread, c: &Call, long: u32) -> Option<&'t HeldLock> {
    let table = table(t);
    let mut n = table.n.load(Ordering::Relaxed) as usize;
    let mut flags = u32::from(c.flags) | long;
    if n != 0 {
        n = make_room(t, table, c.addr, c.site, c.flags);
        flags |= (n.min(3) as u32) << attr::DEPTH_SHIFT;
    }
    let row = table.held.get(n)?;
    table.n.store(n as u32 + 1, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
    row.addr.store(c.addr as u64, Ordering::Relaxed);
    row.site.store(c.site as u64, Ordering::Relaxed);
    row.flags.store(flags, Ordering::Relaxed);
    Some(row)
}

/// Called if the thread already holds locks. If this lock can only be held once, an old row of it is removed. If the
/// table is full, the oldest row is removed. Returns the number of rows in use.
#[inline(never)]
fn make_room(t: &Thread, table: &LockTable, addr: usize, site: usize, flags: u16) -> usize {
    let c = Call { addr, site, flags };
    let recursive = match (c.flags >> 8) as u8 {
        op::MUTEX_LOCK..=op::MUTEX_CLOCKLOCK => c.flags as u8 & attr::KIND == 1,
        op::RWLOCK_RDLOCK..=op::RWLOCK_CLOCKRDLOCK => true,
        _ => false,
    };
    if !recursive && let Some(i) = find(table, c.addr) {
        let h = read(&table.held[i]);
        remove(table, i);
        // (Of an open hold only its end is known.)
        if !h.is_open {
            put_hold(t, &h, sys::rdtsc(), c.site as u64, ended::BY_ANOTHER);
        }
    }
    if rows(table).len() == HELD {
        let h = read(&table.held[0]);
        remove(table, 0);
        // (An open hold has no time: the reader counts it.)
        let wait = if h.is_open { 0 } else { h.wait };
        let other = if h.is_open { 0 } else { h.since };
        let body = OpBody { addr: h.addr, site: h.site, wait, other, result: h.result, pad: 0 };
        put(t, kind::OP, h.flags, body);
    }
    rows(table).len()
}

/// There was a pause since the thread's last operation, so its operations on the locks that it held then were not seen.
/// `one`: there was only one pause.
#[cold]
pub fn forget(t: &Thread, one: bool) {
    let table = table(t);
    let began = region::control().map_or(0, |c| c.paused_at.load(Ordering::Relaxed));
    for row in rows(table) {
        let h = read(row);
        if h.is_open {
            continue;
        }
        let until = if one { began.max(h.since) } else { h.since };
        put_hold(t, &h, until, 0, ended::PAUSED);
    }
    table.n.store(0, Ordering::Relaxed);
}

/// A row's values.
struct Held {
    addr: u64,
    site: u64,
    since: u64,
    wait: u64,
    flags: u16,
    result: i32,
    /// `since` is unknown, and `wait` is [`HeldLock::open`].
    is_open: bool,
}

fn read(r: &HeldLock) -> Held {
    let flags = r.flags.load(Ordering::Relaxed);
    let (long, is_open) = (flags & HeldLock::LONG != 0, flags & HeldLock::OPEN != 0);
    Held {
        addr: r.addr.load(Ordering::Relaxed),
        site: r.site.load(Ordering::Relaxed),
        since: r.since.load(Ordering::Relaxed),
        wait: if long || is_open { r.wait.load(Ordering::Relaxed) } else { 0 },
        flags: flags as u16,
        result: if long { r.result.load(Ordering::Relaxed) } else { 0 },
        is_open,
    }
}

/// The latest row of a lock.
fn find(table: &LockTable, addr: usize) -> Option<usize> {
    rows(table).iter().rposition(|r| r.addr.load(Ordering::Relaxed) == addr as u64)
}

fn remove(table: &LockTable, i: usize) {
    let rows = rows(table);
    compiler_fence(Ordering::SeqCst);
    for (to, from) in rows.iter().zip(rows.iter().skip(1)).skip(i) {
        for (to, from) in
            [(&to.addr, &from.addr), (&to.site, &from.site), (&to.since, &from.since), (&to.wait, &from.wait)]
        {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        to.flags.store(from.flags.load(Ordering::Relaxed), Ordering::Relaxed);
        to.result.store(from.result.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    table.n.store(rows.len() as u32 - 1, Ordering::Relaxed);
}

/// The call has released its lock; `tsc` was read before. Returns 0, as [`took`].
#[inline(always)]
pub fn released(t: &Thread, c: &Call, tsc: u64) -> c_int {
    let table = table(t);
    let n = table.n.load(Ordering::Relaxed) as usize;
    // The usual case: the latest lock, taken without waiting, not long ago, by code that is near.
    let Some(row) = table.held.get(n.wrapping_sub(1)) else {
        return released_otherwise(t, c.addr, c.site, c.flags, tsc);
    };
    let (site, flags) = (row.site.load(Ordering::Relaxed), row.flags.load(Ordering::Relaxed));
    let hold = tsc.wrapping_sub(row.since.load(Ordering::Relaxed));
    let release = (c.site as u64).wrapping_sub(site) as i64;
    let usual = row.addr.load(Ordering::Relaxed) == c.addr as u64
        && flags & (HeldLock::LONG | HeldLock::OPEN) == 0
        && hold >> 32 == 0
        && i64::from(release as i32) == release;
    if !usual {
        return released_otherwise(t, c.addr, c.site, c.flags, tsc);
    }
    compiler_fence(Ordering::SeqCst);
    table.n.store(n as u32 - 1, Ordering::Relaxed);
    put_pair(t, flags as u16, tsc, c.addr as u64, site, hold as u32, release as i32)
}

#[inline(never)]
fn released_otherwise(t: &Thread, addr: usize, site: usize, flags: u16, tsc: u64) -> c_int {
    let c = Call { addr, site, flags };
    let table = table(t);
    let Some(i) = find(table, c.addr) else {
        // Taken by another thread, or before the taps began.
        op(t, c, 0, 0, 0);
        return 0;
    };
    let h = read(&table.held[i]);
    remove(table, i);
    if h.is_open {
        return released_open(t, &h, tsc, c.site);
    }
    let hold = tsc.wrapping_sub(h.since);
    let release = (c.site as u64).wrapping_sub(h.site) as i64;
    if h.since != 0 && h.wait == 0 && h.result == 0 && hold >> 32 == 0 && i64::from(release as i32) == release {
        let body = PairBody { addr: h.addr, site: h.site, hold: hold as u32, release: release as i32 };
        put_at(t, kind::PAIR, h.flags, tsc, body);
    } else {
        let how = if h.since == 0 { ended::CANCELLED_WAIT } else { ended::UNLOCK };
        put_hold(t, &h, tsc, c.site as u64, how);
    }
    done()
}

/// The time before an unlock. If only waits are recorded, the clock is read only for a hold that a thread waits for, or
/// whose times are stored. 0: not read.
#[inline(always)]
pub fn releases(t: &Thread, addr: usize) -> u64 {
    if !waits_only() {
        return sys::rdtsc();
    }
    if is_asked(t, addr) { note_since(t, addr) } else { 0 }
}

/// A thread waits for the lock that is about to be released: stores the start of the wait in the row. (After the unlock,
/// other threads may have waited and ended.) Returns the time.
#[cold]
#[inline(never)]
fn note_since(t: &Thread, addr: usize) -> u64 {
    let (table, tsc) = (table(t), sys::rdtsc());
    if let Some(row) = find(table, addr).and_then(|i| table.held.get(i))
        && row.flags.load(Ordering::Relaxed) & HeldLock::OPEN != 0
    {
        let turn = row.wait.load(Ordering::Relaxed) as u32;
        row.since.store(asked::since(addr, turn, tsc).unwrap_or(0), Ordering::Relaxed);
    }
    tsc
}

/// False if the lock is the latest that the thread holds, its hold is open, and no thread has begun to wait for it since.
#[inline(always)]
fn is_asked(t: &Thread, addr: usize) -> bool {
    let table = table(t);
    let n = table.n.load(Ordering::Relaxed) as usize;
    let Some(row) = table.held.get(n.wrapping_sub(1)) else { return true };
    row.addr.load(Ordering::Relaxed) != addr as u64
        || row.flags.load(Ordering::Relaxed) & HeldLock::OPEN == 0
        || row.wait.load(Ordering::Relaxed) as u32 != asked::begun(addr)
}

/// As [`released`], with the result of [`releases`] as `tsc`.
#[inline(always)]
pub fn has_released(t: &Thread, c: &Call, tsc: u64) -> c_int {
    if tsc != 0 {
        return released(t, c, tsc);
    }
    // Checked again: a thread that began to wait between that check and the unlock waited for this thread.
    if is_asked(t, c.addr) {
        return released_otherwise(t, c.addr, c.site, c.flags, 0);
    }
    let table = table(t);
    let n = table.n.load(Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
    table.n.store(n.wrapping_sub(1), Ordering::Relaxed);
    0
}

/// An open hold is over. It gets an event only if a thread has begun to wait since, and if this thread, having taken the
/// lock more than once, does not still hold it.
#[inline(never)]
fn released_open(t: &Thread, h: &Held, tsc: u64, release: usize) -> c_int {
    let (addr, turn) = (h.addr as usize, h.wait as u32);
    if asked::begun(addr) == turn || find(table(t), addr).is_some() {
        return done();
    }
    let since = if h.since != 0 { Some(h.since) } else { asked::since(addr, turn, sys::rdtsc()) };
    match since.filter(|since| *since < tsc) {
        Some(since) => put_open(t, h, since, tsc, release, ended::OPEN_UNLOCK),
        None => {
            let now = sys::rdtsc();
            put_open(t, h, since.unwrap_or(now), now, release, ended::OPEN_LATE);
        }
    }
    done()
}

/// An open hold that lasted at least from `since` to `tsc`.
fn put_open(t: &Thread, h: &Held, since: u64, tsc: u64, release: usize, ended: u32) {
    let call = h.wait >> 32;
    put_hold(t, &Held { addr: h.addr, since, wait: call, result: 0, ..*h }, tsc, release as u64, ended);
}

#[inline(never)]
fn put_hold(t: &Thread, h: &Held, tsc: u64, release_site: u64, ended: u32) {
    let hold = if h.since == 0 { 0 } else { tsc.wrapping_sub(h.since) };
    let (addr, site, wait, result) = (h.addr, h.site, h.wait, h.result);
    put_at(t, kind::HOLD, h.flags, tsc, HoldBody { addr, site, release_site, wait, hold, result, ended });
}

/// Any operation that is not a pair.
#[inline(always)]
pub fn op(t: &Thread, c: Call, wait: u64, other: u64, result: c_int) {
    put_op(t, c.addr as u64, c.site as u64, c.flags, wait, other, result);
}

/// (Words again, as in [`put_pair`].)
#[inline(never)]
fn put_op(t: &Thread, addr: u64, site: u64, flags: u16, wait: u64, other: u64, result: c_int) {
    if t.busy.replace(true) {
        return lost();
    }
    compiler_fence(Ordering::SeqCst);
    let tsc = sys::rdtsc();
    let body = OpBody { addr, site, wait, other, result, pad: 0 };
    // SAFETY: as in `put_at`.
    let w = unsafe { &mut *t.writer.get() };
    if !w.push_words(kind::OP, flags, tsc, body.words()) {
        record::push(w, kind::OP, flags, tsc, &body, &[], &[]);
    }
    w.publish();
    compiler_fence(Ordering::SeqCst);
    t.busy.set(false);
}

/// Runs a call that may wait, and stores for the recorder what it waits for. Returns the call's result, the time of its
/// return, and its duration.
#[inline(always)]
pub fn waiting(t: &Thread, c: &Call, f: impl FnOnce() -> c_int) -> (c_int, u64, u64) {
    let table = table(t);
    let row = &table.waiting;
    let from = if waits_only() { asked::begins(c.addr) } else { sys::rdtsc() };
    row.addr.store(c.addr as u64, Ordering::Relaxed);
    row.site.store(c.site as u64, Ordering::Relaxed);
    row.since.store(from, Ordering::Relaxed);
    row.flags.store(u32::from(c.flags), Ordering::Relaxed);
    // ORDERING: Release: the row before the word that makes it count, for the recorder.
    table.waits.store(1, Ordering::Release);
    let r = leaving::run(table, waits_no_more, f);
    table.waits.store(0, Ordering::Relaxed);
    let now = sys::rdtsc();
    if waits_only() {
        asked::ends(c.addr);
    }
    // Never 0: that would mean that it did not wait.
    (r, now, now.wrapping_sub(from).max(1))
}

/// Runs a call that takes a lock which is not free, in a pause. It gets an event only if the recording has gone on when it
/// returns; until then the recorder finds the wait in the thread's table. `has`: whether a result means that it got the lock.
#[inline(always)]
pub fn waiting_in_pause(c: Call, has: fn(c_int) -> bool, f: impl FnOnce() -> c_int) -> c_int {
    let Some(t) = enter_in_pause(c.site) else { return f() };
    let is_in_call = call::waits(t);
    let (r, now, wait) = waiting(t, &c, f);
    if is_in_call {
        call::waited(t);
    }
    if enter(c.site).is_some() {
        if has(r) {
            took_late(t, c, now, wait, r);
        } else {
            op(t, c, wait, 0, r);
        }
    }
    r
}

/// The thread was cancelled in its wait, or jumped out of it.
extern "C" fn waits_no_more(table: *mut c_void) {
    // SAFETY: `leaving::run` was given a table, in a page that is never unmapped.
    let table = unsafe { &*table.cast::<LockTable>() };
    table.waits.store(0, Ordering::Relaxed);
    if waits_only() {
        asked::ends(table.waiting.addr.load(Ordering::Relaxed) as usize);
    }
}

/// The thread is about to wait for a condition with the mutex in `c`: the hold ends here, and another begins at
/// [`resumed`].
pub fn suspended(t: &Thread, c: &Call) {
    let table = table(t);
    let Some(i) = find(table, c.addr) else { return };
    let row = &table.held[i];
    let h = read(row);
    let tsc = sys::rdtsc();
    row.since.store(0, Ordering::Relaxed);
    row.site.store(c.site as u64, Ordering::Relaxed);
    let depth = h.flags & u16::from(attr::DEPTH);
    row.flags.store(u32::from(c.flags | depth), Ordering::Relaxed);
    if h.is_open {
        let (addr, turn) = (h.addr as usize, h.wait as u32);
        let since = if asked::begun(addr) == turn { None } else { asked::since(addr, turn, tsc) };
        if let Some(since) = since.filter(|since| *since < tsc) {
            put_open(t, &h, since, tsc, c.site, ended::OPEN_COND_WAIT);
        }
        return;
    }
    let how = if h.since == 0 { ended::CANCELLED_WAIT } else { ended::COND_WAIT };
    put_hold(t, &h, tsc, c.site as u64, how);
}

/// The wait is over and the thread has the mutex again, unless `result` means that no thread can ever have it.
pub fn resumed(t: &Thread, c: &Call, tsc: u64, result: c_int) {
    let table = table(t);
    let Some(i) = find(table, c.addr) else { return };
    if result == libc::ENOTRECOVERABLE {
        remove(table, i);
        return;
    }
    let row = &table.held[i];
    row.since.store(tsc, Ordering::Relaxed);
    if result == libc::EOWNERDEAD {
        row.wait.store(0, Ordering::Relaxed);
        row.result.store(result, Ordering::Relaxed);
        row.flags.fetch_or(HeldLock::LONG, Ordering::Relaxed);
    }
}

/// An operation that ended without a wait. If only waits are recorded, it is recorded only if it failed for another
/// reason than a busy lock.
#[inline(always)]
pub fn op_without_wait(t: &Thread, c: Call, r: c_int) {
    if !(waits_only() && matches!(r, 0 | libc::EBUSY | libc::EAGAIN)) {
        op(t, c, 0, 0, r);
    }
}

/// True if a signal of this condition, or a post of this semaphore, is recorded. If only waits are, then only while a
/// thread waits.
#[inline(always)]
pub fn wakes(addr: usize) -> bool {
    !waits_only() || asked::nobody(addr).is_none()
}

/// A refused unlock, of any kind of lock. Returns its result.
#[cold]
#[inline(never)]
pub fn not_released(addr: usize, site: usize, flags: u16, r: c_int) -> c_int {
    op(thread::here(), Call { addr, site, flags }, 0, 0, r);
    r
}

//! Which of the agent's signals a thread has blocked, as the thread sees it, and which were sent to it since.
//!
//! A signal that the thread blocks by a call has a bit in the agent's own data. A signal that is blocked while its
//! handler runs must be unblocked as the kernel does it: when the handler returns or jumps out (siglongjmp). So that
//! state is kept in the kernel's mask, as a signal of libc's own that libc lets no program block ([`STANDS_FOR`]).
//!
//! A mask can also change past the agent: by a raw system call (Go), siglongjmp, or a context that a handler edits. So
//! the bits count only while the kernel's mask has all signals that it had when they were set ([`by_calls`]).

use crate::process::sys;
use crate::process::thread;
use crate::process::wiped::{self, Place};
use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};

/// SIGSEGV and SIGTRAP. An index here is the bit number.
pub const OURS: [c_int; 2] = [libc::SIGSEGV, libc::SIGTRAP];

pub fn index(signal: c_int) -> Option<usize> {
    OURS.iter().position(|&s| s == signal)
}

/// glibc's internal signals SIGSETXID and SIGCANCEL (nptl/internal-signals.h). If one is blocked in the kernel's mask,
/// SIGSEGV or SIGTRAP counts as blocked.
const STANDS_FOR: [c_int; 2] = [33, 32];

pub const fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

pub const OUR_BITS: u64 = bit(OURS[0]) | bit(OURS[1]);
const STANDING: u64 = bit(STANDS_FOR[0]) | bit(STANDS_FOR[1]);
pub const UNBLOCKABLE: u64 = bit(libc::SIGKILL) | bit(libc::SIGSTOP);

/// The kernel's part of a set.
pub fn word(set: &libc::sigset_t) -> u64 {
    // SAFETY: a sigset_t begins with the kernel's eight bytes.
    unsafe { core::ptr::from_ref(set).cast::<u64>().read() }
}

/// Changes the kernel's part of a set.
pub fn change(set: &mut libc::sigset_t, f: impl FnOnce(u64) -> u64) {
    let now = f(word(set));
    // SAFETY: as in `word`.
    unsafe { core::ptr::from_mut(set).cast::<u64>().write(now) };
}

/// The kernel's bits as the agent's (0 SIGSEGV, 1 SIGTRAP).
pub fn bits_of(mask: u64) -> u8 {
    pick(mask, &OURS)
}

fn pick(mask: u64, of: &[c_int; 2]) -> u8 {
    u8::from(mask & bit(of[0]) != 0) | u8::from(mask & bit(of[1]) != 0) << 1
}

fn spread(bits: u8, to: &[c_int; 2]) -> u64 {
    let one = |i: usize| if bits >> i & 1 != 0 { bit(to[i]) } else { 0 };
    one(0) | one(1)
}

/// The agent's bits as the kernel's.
pub fn mask_of(bits: u8) -> u64 {
    spread(bits, &OURS)
}

/// The signals that stand for these bits in the kernel's mask.
pub fn standing_for(bits: u8) -> u64 {
    spread(bits, &STANDS_FOR)
}

/// Bits that are blocked because a handler runs, from the kernel's mask.
pub fn in_handler(mask: u64) -> u8 {
    pick(mask, &STANDS_FOR)
}

/// The signals that the calling thread has blocked by calls, if `mask` is the kernel's mask. Handlers add to that mask,
/// so it may have more signals than it had.
pub fn by_calls(mask: u64) -> u8 {
    let t = thread::here();
    if t.under.get() & !mask == 0 { t.blocked.get() } else { 0 }
}

/// The calling thread has blocked these signals, and `mask` is the kernel's mask.
pub fn set_by_calls(bits: u8, mask: u64) {
    let t = thread::here();
    t.blocked.set(bits);
    t.under.set(mask & !(OUR_BITS | STANDING));
}

/// The signals that the calling thread has blocked, as it sees it.
pub fn blocked() -> u8 {
    let mask = sys::signal_mask(libc::SIG_BLOCK, 0);
    let over = thread::here().handed_over.get();
    let by_calls = if over != 0 && over == sys::getpid() { 0 } else { by_calls(mask) };
    by_calls | in_handler(mask) | bits_of(mask)
}

/// In a vfork child, before its mask changes. It has its parent's memory, but its own mask, and rings no doorbell. So
/// from now on the kernel keeps its whole mask.
pub fn hand_over() {
    let (t, me) = (thread::here(), sys::getpid());
    if t.handed_over.get() != me {
        let mask = sys::signal_mask(libc::SIG_BLOCK, 0);
        sys::signal_mask(libc::SIG_BLOCK, mask_of(by_calls(mask)));
        // (The parent is another process, so it ignores this entry.)
        t.handed_over.set(me);
    }
}

/// A mask of the kernel as the program reads it.
pub fn told(mask: u64, blocked: u8) -> u64 {
    mask & !STANDING | mask_of(blocked)
}

/// After the agent's handlers are in place: signals that the calling thread has blocked in the kernel's mask become bits
/// of its own.
pub fn take_over() {
    let mask = sys::signal_mask(libc::SIG_UNBLOCK, OUR_BITS);
    set_by_calls(by_calls(mask) | bits_of(mask), mask);
}

/// The caller's place, for calls that change something. In a forked child no signal is pending any more.
pub fn place() -> Place {
    let place = wiped::place();
    if place == Place::JustForked {
        thread::here().pending.set(0);
        PENDING.store(0, Ordering::Relaxed);
        for w in &WAITS {
            w.store(0, Ordering::Relaxed);
        }
    }
    place
}

/// The effect that `how` has in the kernel, on the agent's bits.
pub fn after(how: c_int, before: u8, asked: u8) -> u8 {
    match how {
        libc::SIG_BLOCK => before | asked,
        libc::SIG_UNBLOCK => before & !asked,
        _ => asked,
    }
}

/// The program has changed its mask, and so the kernel's: `before` was that one, and `now` is blocked from now on.
pub fn set(before: u64, now: u8) {
    let had = by_calls(before);
    let mask = sys::signal_mask(libc::SIG_BLOCK, 0);
    // What was blocked already may stay so when a handler returns, and its mask ends.
    let under = if now & !had == 0 { mask & thread::here().under.get() } else { mask };
    if in_handler(before) == 0 {
        set_by_calls(now, under);
    } else {
        // In a handler: a block that the handler makes ends with it.
        set_by_calls(had & now, mask & thread::here().under.get());
        let stays = standing_for(now & !had);
        sys::signal_mask(libc::SIG_BLOCK, stays);
        sys::signal_mask(libc::SIG_UNBLOCK, STANDING & !stays);
    }
    deliver();
}

/// A `siginfo_t` as words: 128 bytes.
pub type Sent = [u64; 16];
const _: () = assert!(size_of::<libc::siginfo_t>() == size_of::<Sent>());

/// Signals sent to the process, not to a thread, whose receiving thread had them blocked.
static PENDING: AtomicU32 = AtomicU32::new(0);
struct Kept(UnsafeCell<[Sent; 2]>);
// SAFETY: element i is written by the thread that has set bit i + 8 of PENDING, and read by the one that has cleared bit
// i.
unsafe impl Sync for Kept {}
static KEPT: Kept = Kept(UnsafeCell::new([[0; 16]; 2]));
/// The thread that waits for each of the agent's signals, 0 if there is none.
static WAITS: [AtomicI32; 2] = [const { AtomicI32::new(0) }; 2];

const TO_THREAD: i32 = -6; // SI_TKILL

/// Keeps a signal that was sent while it is blocked. As in the kernel, only the first of several.
///
/// # Safety
/// `info` is the kernel's.
pub unsafe fn keep(i: usize, info: *const libc::siginfo_t) {
    let bit = 1u8 << i;
    // SAFETY: the caller's.
    let (sent, code) = unsafe { (info.cast::<Sent>().read(), (*info).si_code) };
    if code == TO_THREAD {
        let t = thread::here();
        if t.pending.get() & bit == 0 {
            // SAFETY: this thread's own; it is read only while the bit is set.
            unsafe { (*t.sent.get())[i] = sent };
            t.pending.set(t.pending.get() | bit);
        }
        return;
    }
    let filling = u32::from(bit) << 8;
    if PENDING.fetch_or(filling, Ordering::AcqRel) & (filling | u32::from(bit)) != 0 {
        return;
    }
    // SAFETY: see Kept.
    unsafe { (*KEPT.0.get())[i] = sent };
    // ORDERING: SeqCst: pairs with `begin_wait`: either the waiting thread sees the signal, or this thread sees the
    // waiting one.
    PENDING.fetch_xor(filling | u32::from(bit), Ordering::SeqCst);
    let waits = WAITS[i].load(Ordering::SeqCst);
    if waits != 0
        && let Some(mut sent) = take_of_process(i)
    {
        send(waits, OURS[i], &mut sent);
    }
}

fn take_of_process(i: usize) -> Option<Sent> {
    let bit = 1u32 << i;
    if PENDING.load(Ordering::SeqCst) & bit == 0 {
        return None;
    }
    // SAFETY: a copy, used only if this thread is the one that clears the bit.
    let sent = unsafe { (*KEPT.0.get())[i] };
    (PENDING.fetch_and(!bit, Ordering::AcqRel) & bit != 0).then_some(sent)
}

/// Takes a kept signal.
pub fn take(i: usize) -> Option<Sent> {
    let t = thread::here();
    let bit = 1u8 << i;
    if t.pending.get() & bit != 0 {
        t.pending.set(t.pending.get() & !bit);
        // SAFETY: this thread's own.
        return Some(unsafe { (*t.sent.get())[i] });
    }
    take_of_process(i)
}

/// The signals kept for the calling thread.
pub fn pending() -> u8 {
    thread::here().pending.get() | PENDING.load(Ordering::Relaxed) as u8 & 3
}

/// The program ignores a signal: kept ones are dropped.
pub fn drop_kept(i: usize) {
    while take(i).is_some() {}
}

fn send(tid: i32, signal: c_int, sent: &mut Sent) {
    let (pid, info) = (sys::getpid() as usize, core::ptr::from_mut(sent) as usize);
    // SAFETY: a local siginfo; a process may send itself any.
    unsafe { sys::syscall6(libc::SYS_rt_tgsigqueueinfo, pid, tid as usize, signal as usize, info, 0, 0) };
}

/// Sends this thread its unblocked signals again, all together, so that the kernel chooses the order.
pub fn deliver() {
    let due = pending() & !blocked();
    if due == 0 {
        return;
    }
    let before = sys::signal_mask(libc::SIG_BLOCK, OUR_BITS);
    for (i, &signal) in OURS.iter().enumerate() {
        if due >> i & 1 != 0
            && let Some(mut sent) = take(i)
        {
            send(sys::gettid(), signal, &mut sent);
        }
    }
    sys::signal_mask(libc::SIG_UNBLOCK, OUR_BITS & !before);
}

/// A signal that was sent while the program's handler runs: the kernel blocks it until that handler returns or jumps out,
/// and then delivers it. `mask` is the one that the handler returns to.
pub fn postpone(i: usize, mask: &mut libc::sigset_t, info: *const libc::siginfo_t) {
    sys::signal_mask(libc::SIG_BLOCK, bit(OURS[i]));
    change(mask, |m| m | bit(OURS[i]));
    // SAFETY: the kernel's siginfo.
    let mut sent = unsafe { info.cast::<Sent>().read() };
    send(sys::gettid(), OURS[i], &mut sent);
}

/// The calling thread is about to wait for these signals in the kernel.
pub fn begin_wait(bits: u8) {
    for (i, w) in WAITS.iter().enumerate() {
        if bits >> i & 1 != 0 {
            w.store(sys::gettid(), Ordering::SeqCst);
        }
    }
}

pub fn end_wait(bits: u8) {
    for (i, w) in WAITS.iter().enumerate() {
        if bits >> i & 1 != 0 {
            let _ = w.compare_exchange(sys::gettid(), 0, Ordering::SeqCst, Ordering::SeqCst);
        }
    }
}

//! How the kernel schedules a thread.

use tape::lock::{SchedBody, sched_why};

pub const DEADLINE: i32 = 6;

/// A thread's policy and its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    pub policy: i32,
    pub priority: i32,
    pub nice: i32,
    /// SCHED_DEADLINE, ns.
    pub runtime: u64,
    pub deadline: u64,
    pub period: u64,
}

/// The attributes of a thread; `None` if it is gone.
pub fn of(tid: i32) -> Option<Attributes> {
    /// `struct sched_attr`, version 0 (sched_setattr(2)).
    #[repr(C)]
    #[derive(Default)]
    struct Attr {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    let mut a = Attr::default();
    // SAFETY: the kernel writes no more than the size that it is given.
    let r = unsafe { libc::syscall(libc::SYS_sched_getattr, tid, &raw mut a, size_of::<Attr>() as u32, 0) };
    (r == 0).then_some(Attributes {
        policy: a.policy as i32,
        priority: a.priority as i32,
        nice: a.nice,
        runtime: a.runtime,
        deadline: a.deadline,
        period: a.period,
    })
}

/// The number of CPUs that the thread may run on, and the first 128 of them; zeros if unknown.
pub fn cpus(tid: i32) -> (u32, [u64; 2]) {
    let mut mask = [0u64; 128];
    // SAFETY: as in `of`.
    let r = unsafe { libc::syscall(libc::SYS_sched_getaffinity, tid, size_of_val(&mask), mask.as_mut_ptr()) };
    if r > 0 { (mask.iter().map(|w| w.count_ones()).sum(), [mask[0], mask[1]]) } else { (0, [0; 2]) }
}

/// A thread's attributes, and with `names` its name, as they are now; `None` if it is gone.
pub fn body(pid: i32, tid: i32, names: bool) -> Option<SchedBody> {
    let Attributes { policy, priority, nice, .. } = of(tid)?;
    let (cpus, mask) = cpus(tid);
    let name = if names { name(pid, tid) } else { [0; 16] };
    Some(SchedBody { pthread: 0, tid, policy, priority, nice, why: sched_why::ASKED, cpus, mask, name })
}

/// A thread's name, padded with zeros; empty if the thread is gone.
pub fn name(pid: i32, tid: i32) -> [u8; 16] {
    let mut out = [0; 16];
    let text = std::fs::read(format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default();
    let text = text.strip_suffix(b"\n").unwrap_or(&text);
    // (A kernel thread's name may be longer.)
    out.iter_mut().zip(text).for_each(|(to, from)| *to = *from);
    out
}

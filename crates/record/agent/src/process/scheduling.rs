//! A thread's attributes in the kernel: policy, priority, CPUs, name.

use super::restrictions::{may, need};
use super::sys::syscall6;
use super::thread;
use tape::lock::{SchedBody, sched_why};

/// Reads the kernel's attributes of a thread; 0 is the calling one.
pub fn ask(tid: i32, body: &mut SchedBody) {
    if !may(need::SCHEDULING) {
        return;
    }
    let tid = tid as usize;
    let mut mask = [0u64; 128];
    // SAFETY: these calls only read; the kernel writes at most the lengths that it is given.
    unsafe {
        body.policy = syscall6(libc::SYS_sched_getscheduler, tid, 0, 0, 0, 0, 0) as i32;
        let mut p = 0i32;
        syscall6(libc::SYS_sched_getparam, tid, &raw mut p as usize, 0, 0, 0, 0);
        body.priority = p;
        // The system call returns 20 - nice.
        let nice = syscall6(libc::SYS_getpriority, libc::PRIO_PROCESS as usize, tid, 0, 0, 0, 0);
        body.nice = if nice > 0 { 20 - nice as i32 } else { 0 };
        let n = size_of_val(&mask);
        let got = syscall6(libc::SYS_sched_getaffinity, tid, n, mask.as_mut_ptr() as usize, 0, 0, 0);
        if got > 0 {
            body.cpus = mask.iter().map(|w| w.count_ones()).sum();
            body.mask = [mask[0], mask[1]];
        }
    }
    // SCHED_RESET_ON_FORK is not a policy.
    body.policy &= 0xfff;
}

/// The calling thread, at its first event, with its name if that may be read.
#[cold]
pub fn of_this_thread(tid: i32, name: bool) -> SchedBody {
    let mut body =
        SchedBody { pthread: thread::pointer() as u64, tid, why: sched_why::FIRST_EVENT, ..SchedBody::default() };
    ask(0, &mut body);
    if name && may(need::SCHEDULING) {
        // SAFETY: PR_GET_NAME writes sixteen bytes.
        unsafe { syscall6(libc::SYS_prctl, libc::PR_GET_NAME as usize, body.name.as_mut_ptr() as usize, 0, 0, 0, 0) };
    }
    body
}

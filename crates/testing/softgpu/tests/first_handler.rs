//! The first doorbell page of a process, mapped by several threads at once: each finds the handler registered, and none loses the handler that it
//! installs.

use doorbell_softgpu::signal;
use std::sync::atomic::{AtomicU32, Ordering};

const THREADS: u32 = 4;

extern "C" fn above(_: i32) {}

/// The kernel's handler for SIGSEGV.
fn kernels() -> usize {
    let mut action = [0usize; 4];
    // SAFETY: room for the kernel's struct: handler, flags, restorer, mask.
    let r = unsafe { libc::syscall(libc::SYS_rt_sigaction, libc::SIGSEGV, 0, action.as_mut_ptr(), 8usize) };
    assert_eq!(r, 0);
    action[0]
}

fn threads() -> bool {
    let ready = AtomicU32::new(0);
    std::thread::scope(|s| {
        let all: Vec<_> = (0..THREADS)
            .map(|_| {
                s.spawn(|| {
                    // SAFETY: plain structs.
                    let (mut new, mut old): (libc::sigaction, libc::sigaction) = unsafe { std::mem::zeroed() };
                    new.sa_sigaction = above as *const () as usize;
                    ready.fetch_add(1, Ordering::SeqCst);
                    // (A barrier of the kernel would release them one after the other.)
                    while ready.load(Ordering::SeqCst) < THREADS {
                        std::thread::yield_now();
                    }
                    signal::install();
                    let there = kernels();
                    // SAFETY: both actions are this function's own.
                    unsafe {
                        signal::sigaction(libc::SIGSEGV, &new, std::ptr::null_mut());
                        signal::sigaction(libc::SIGSEGV, std::ptr::null(), &mut old);
                    }
                    there != libc::SIG_DFL && there == kernels() && old.sa_sigaction == new.sa_sigaction
                })
            })
            .collect();
        all.into_iter().all(|t| t.join().unwrap_or(false))
    })
}

#[test]
fn several_threads_at_once_install_it() {
    // SAFETY: nothing in this process has mapped a doorbell page; SIGSEGV has its default action, as in a C program.
    unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
    for n in 0..400 {
        // SAFETY: the child runs its own threads and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let good = std::panic::catch_unwind(threads).unwrap_or(false);
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!good)) };
        }
        let mut status = 0;
        // SAFETY: our child.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0, "process {n}");
    }
}

//! The kernels that modules have, by name: those of the examples, which have them as PTX text.

use crate::stream::Stream;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

type Kernel = Box<dyn FnOnce(&Stream) + Send>;

const NAMES: [&str; 4] = ["step", "gate", "mark", "serve"];

/// A function's handle.
pub(crate) fn find(name: &str) -> Option<u64> {
    NAMES.iter().position(|known| *known == name).map(|at| at as u64 + 1)
}

/// What a launch does; its arguments are read now.
///
/// # Safety
/// `arguments` has a pointer to each of the kernel's arguments, whose addresses are memory that lives until it has run.
pub(crate) unsafe fn launch(function: u64, arguments: *mut *mut c_void) -> Option<Kernel> {
    // SAFETY: the caller's.
    let long = |n: usize| unsafe { *(*arguments.add(n)).cast::<u64>() };
    // SAFETY: the caller's.
    let short = |n: usize| unsafe { *(*arguments.add(n)).cast::<u32>() };
    match *NAMES.get((function as usize).checked_sub(1)?)? {
        "step" => {
            let (buffer, check, expected, write, next, wrong) =
                (long(0), short(1), short(2), short(3), short(4), long(5));
            Some(Box::new(move |_| step(buffer, (check, expected), (write, next), wrong)))
        }
        "gate" => {
            let (gate, data, flag, number) = (long(0), long(1), long(2), short(3));
            Some(Box::new(move |stream| {
                // SAFETY: words of the program's, which live until the kernel has run.
                unsafe { stream.wait_for(gate, number) };
                word(data).store(number, Ordering::SeqCst);
                word(flag).store(number, Ordering::SeqCst);
            }))
        }
        "mark" => {
            let (flag, number) = (long(0), short(1));
            Some(Box::new(move |_| word(flag).store(number, Ordering::SeqCst)))
        }
        "serve" => {
            let (mailbox, answers) = (long(0), long(1));
            Some(Box::new(move |stream| serve(stream, mailbox, answers)))
        }
        _ => None,
    }
}

fn word(at: u64) -> &'static AtomicU32 {
    // SAFETY: memory that lives until the kernel has run, as the launch has promised.
    unsafe { AtomicU32::from_ptr(at as *mut u32) }
}

/// As in `examples/c/ordered.c`.
fn pattern(seed: u32, index: u32) -> u32 {
    seed.wrapping_mul(0x9e37_79b1) ^ index.wrapping_mul(0x85eb_ca6b)
}

fn step(buffer: u64, (check, expected): (u32, u32), (write, next): (u32, u32), wrong: u64) {
    let mut found = 0;
    for index in 0..check.max(write) {
        let word = word(buffer + 4 * u64::from(index));
        found += u64::from(index < check && word.load(Ordering::Relaxed) != pattern(expected, index));
        if index < write {
            word.store(pattern(next, index), Ordering::Relaxed);
        }
    }
    if found > 0 {
        // SAFETY: a counter of the program's, as in `word`.
        unsafe { AtomicU64::from_ptr(wrong as *mut u64) }.fetch_add(found, Ordering::SeqCst);
    }
    std::sync::atomic::fence(Ordering::SeqCst);
}

/// As in `examples/c/message.c`, but for its end without a message.
fn serve(stream: &Stream, mailbox: u64, answers: u64) {
    let sum = |words: &[u32; 16]| {
        let factor = |i: usize| 0x9e37_79b1u32.wrapping_mul(2 * i as u32 + 1);
        (0..15).fold(0u32, |sum, i| sum.wrapping_add(words[i].wrapping_mul(factor(i))))
    };
    let mut seen = 0;
    while !stream.has_ended() {
        let mut words = [0; 16];
        for (i, to) in words.iter_mut().enumerate() {
            *to = word(mailbox + 4 * i as u64).load(Ordering::SeqCst);
        }
        if words[14] == seen || words[15] != sum(&words) {
            std::thread::yield_now();
            continue;
        }
        seen = words[14];
        let is_last = words[0] == u32::MAX;
        for (i, value) in words[..14].iter_mut().enumerate() {
            *value = value.wrapping_add(i as u32 + 1);
        }
        words[15] = sum(&words);
        for (i, value) in words.iter().enumerate() {
            word(answers + 4 * i as u64).store(*value, Ordering::SeqCst);
        }
        if is_last {
            return;
        }
    }
}

//! The kernels in modules, by name: those of the examples and tests, which have them as PTX text.

use crate::wait::Ended;
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A kernel.
pub(crate) struct Kernel {
    name: &'static CStr,
    /// Bytes of each argument.
    arguments: &'static [usize],
    /// The equivalent operation of the software GPU; `None` for kernels that wait for the program, or that no operation replaces.
    pub operation: Option<u32>,
    run: fn(&Launch, &Ended),
}

static KERNELS: [Kernel; 11] = [
    Kernel { name: c"step", arguments: &[8, 4, 4, 4, 4, 8], operation: Some(5), run: step },
    Kernel { name: c"gate", arguments: &[8, 8, 8, 4], operation: None, run: gate },
    Kernel { name: c"mark", arguments: &[8, 4], operation: Some(2), run: store },
    Kernel { name: c"serve", arguments: &[8, 8], operation: None, run: serve },
    Kernel { name: c"count", arguments: &[8], operation: Some(1), run: add },
    Kernel { name: c"count_and_tell", arguments: &[8, 8], operation: Some(6), run: count_and_tell },
    Kernel { name: c"add1", arguments: &[8], operation: Some(1), run: add },
    Kernel { name: c"store", arguments: &[8, 4], operation: Some(2), run: store },
    Kernel { name: c"log", arguments: &[8, 4], operation: Some(3), run: log },
    Kernel { name: c"copy", arguments: &[8, 8, 4], operation: Some(4), run: copy },
    Kernel { name: c"stream_memory", arguments: &[8, 4, 4], operation: None, run: stream_memory },
];

/// A kernel with its launch parameters. Its arguments name memory that lives until it has run, as the program promises.
#[derive(Clone)]
pub(crate) struct Launch {
    pub kernel: &'static Kernel,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    /// The arguments, laid out as a C compiler lays out a struct of them.
    pub arguments: Vec<u8>,
}

/// A function's handle, and its name.
pub(crate) fn named(name: &CStr) -> Option<(u64, &'static CStr)> {
    let at = KERNELS.iter().position(|known| known.name == name)?;
    Some((at as u64 + 1, KERNELS[at].name))
}

/// The name of a function's handle.
pub(crate) fn name(function: u64) -> Option<&'static CStr> {
    Some(KERNELS.get((function as usize).checked_sub(1)?)?.name)
}

/// A launch; its arguments are read now.
///
/// # Safety
/// `arguments` has a pointer to each of the kernel's arguments.
pub(crate) unsafe fn launch(
    function: u64,
    (grid, block): ([u32; 3], [u32; 3]),
    arguments: *mut *mut c_void,
) -> Option<Launch> {
    let kernel = KERNELS.get((function as usize).checked_sub(1)?)?;
    let mut bytes = Vec::new();
    for (n, &size) in kernel.arguments.iter().enumerate() {
        bytes.resize(bytes.len().next_multiple_of(size), 0);
        // SAFETY: the caller's.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts((*arguments.add(n)).cast::<u8>(), size) });
    }
    Some(Launch { kernel, grid, block, arguments: bytes })
}

impl Launch {
    /// On the stream's thread.
    pub fn run(&self, ended: &Ended) {
        (self.kernel.run)(self, ended);
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    /// An argument by its number.
    fn argument(&self, number: usize) -> u64 {
        let before = self.kernel.arguments.iter().take(number);
        let size = self.kernel.arguments.get(number).copied().unwrap_or(8);
        let at = before.fold(0, |at: usize, size| at.next_multiple_of(*size) + size).next_multiple_of(size);
        let mut bytes = [0; 8];
        bytes[..size].copy_from_slice(&self.arguments[at..at + size]);
        u64::from_le_bytes(bytes)
    }

    fn word(&self, number: usize) -> u32 {
        self.argument(number) as u32
    }
}

fn word(at: u64) -> &'static AtomicU32 {
    // SAFETY: memory that lives until the kernel has run, as the launch has promised.
    unsafe { AtomicU32::from_ptr(at as *mut u32) }
}

fn add(launch: &Launch, _: &Ended) {
    let threads = launch.grid.iter().chain(&launch.block).fold(1u32, |all, n| all.wrapping_mul(*n));
    word(launch.argument(0)).fetch_add(threads, Ordering::SeqCst);
}

fn count_and_tell(launch: &Launch, _: &Ended) {
    let sum = word(launch.argument(0)).fetch_add(1, Ordering::SeqCst).wrapping_add(1);
    word(launch.argument(1)).store(sum, Ordering::SeqCst);
}

fn store(launch: &Launch, _: &Ended) {
    word(launch.argument(0)).store(launch.word(1), Ordering::SeqCst);
}

fn log(launch: &Launch, _: &Ended) {
    let log = launch.argument(0);
    let count = word(log).load(Ordering::SeqCst);
    word(log + 4 * u64::from(count) + 4).store(launch.word(1), Ordering::SeqCst);
    word(log).store(count + 1, Ordering::SeqCst);
}

fn copy(launch: &Launch, _: &Ended) {
    // SAFETY: memory that lives until the kernel has run, as the launch has promised.
    unsafe { crate::memory::copy(launch.argument(0), launch.argument(1), launch.word(2) as usize) };
}

/// Adds to every word of this many groups of four.
fn stream_memory(launch: &Launch, _: &Ended) {
    let (words, value) = (launch.argument(0), launch.word(2));
    for index in 0..4 * u64::from(launch.word(1)) {
        word(words + 4 * index).fetch_add(value, Ordering::Relaxed);
    }
}

fn gate(launch: &Launch, ended: &Ended) {
    let (gate, data, flag, number) = (launch.argument(0), launch.argument(1), launch.argument(2), launch.word(3));
    // SAFETY: words of the program's, which live until the kernel has run.
    unsafe { ended.wait_for(gate, number) };
    word(data).store(number, Ordering::SeqCst);
    word(flag).store(number, Ordering::SeqCst);
}

/// As in `examples/c/ordered.c`.
fn pattern(seed: u32, index: u32) -> u32 {
    seed.wrapping_mul(0x9e37_79b1) ^ index.wrapping_mul(0x85eb_ca6b)
}

fn step(launch: &Launch, _: &Ended) {
    let (buffer, wrong) = (launch.argument(0), launch.argument(5));
    let [check, expected, write, next] = [1, 2, 3, 4].map(|n| launch.word(n));
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
}

/// As in `examples/c/message.c`, but for its end without a message.
fn serve(launch: &Launch, ended: &Ended) {
    let (mailbox, answers) = (launch.argument(0), launch.argument(1));
    let sum = |words: &[u32; 16]| {
        let factor = |i: usize| 0x9e37_79b1u32.wrapping_mul(2 * i as u32 + 1);
        (0..15).fold(0u32, |sum, i| sum.wrapping_add(words[i].wrapping_mul(factor(i))))
    };
    let mut seen = 0;
    while !ended.has_ended() {
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

//! The loops that `selfbench locks` measures, as a separate program: recording or a policy is applied from outside.

use crate::{BATCH, batch, clock, in_turns, print, stay_on, two_clock_reads};
use serde_json::{Map, Value, json};
use std::cell::{Cell, UnsafeCell};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Pairs that fill the ring of a thread that records much, as `selfbench locks` records it: 8 MiB, 40 bytes each.
const A_RING: u32 = (8 << 20) / 40;
/// How long two threads hammer one lock.
const HAMMER: Duration = Duration::from_millis(20);

/// On separate cache lines, as far as one program allows it: a policy keeps its state in the lock.
#[repr(align(128))]
struct Alone<T>(UnsafeCell<T>);

// SAFETY: locks are made for use by several threads.
unsafe impl<T> Sync for Alone<T> {}

static MUTEX: Alone<libc::pthread_mutex_t> = Alone(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
static RWLOCK: Alone<libc::pthread_rwlock_t> = Alone(UnsafeCell::new(libc::PTHREAD_RWLOCK_INITIALIZER));
static COND: Alone<libc::pthread_cond_t> = Alone(UnsafeCell::new(libc::PTHREAD_COND_INITIALIZER));

fn mutex_pair() {
    // SAFETY: a static, initialised mutex, which this thread locks and then unlocks.
    unsafe {
        libc::pthread_mutex_lock(MUTEX.0.get());
        libc::pthread_mutex_unlock(MUTEX.0.get());
    }
}

/// No thread waits for the condition.
fn signal() {
    // SAFETY: a static, initialised condition.
    unsafe { libc::pthread_cond_signal(COND.0.get()) };
}

fn read_pair() {
    // SAFETY: as above.
    unsafe {
        libc::pthread_rwlock_rdlock(RWLOCK.0.get());
        libc::pthread_rwlock_unlock(RWLOCK.0.get());
    }
}

fn write_pair() {
    // SAFETY: as above.
    unsafe {
        libc::pthread_rwlock_wrlock(RWLOCK.0.get());
        libc::pthread_rwlock_unlock(RWLOCK.0.get());
    }
}

/// Libraries from which a mutex is locked in turn: as many as a program with PyTorch uses in one step.
const LIBRARIES: usize = 10;

/// Code that calls `lock(mutex)` and `unlock(mutex)`: push rbx, mov rbx rdi, push r12, mov r12 rdx, push rax, call rsi, mov rdi rbx, call r12, pop
/// rax, pop r12, pop rbx, ret.
const CALLER: [u8; 26] = [
    0x53, 0x48, 0x89, 0xfb, 0x41, 0x54, 0x49, 0x89, 0xd4, 0x50, 0xff, 0xd6, 0x48, 0x89, 0xdf, 0x41, 0xff, 0xd4, 0x58,
    0x41, 0x5c, 0x5b, 0xc3, 0xcc, 0xcc, 0xcc,
];

type LockAndUnlock = unsafe extern "C" fn(*mut libc::pthread_mutex_t, usize, usize);

/// Copies of [`CALLER`] in separate mappings, as if each were in a library.
fn callers() -> anyhow::Result<Vec<LockAndUnlock>> {
    const PAGE: usize = 4096;
    let (private, anywhere) = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, std::ptr::null_mut());
    // SAFETY: a fresh mapping, of which every second page becomes code. The pages between keep the mappings separate.
    unsafe {
        let at = libc::mmap(anywhere, 2 * LIBRARIES * PAGE, libc::PROT_NONE, private, -1, 0);
        anyhow::ensure!(at != libc::MAP_FAILED, "no memory for code: {}", std::io::Error::last_os_error());
        (0..LIBRARIES)
            .map(|i| {
                let page = at.byte_add(2 * i * PAGE);
                let writable = libc::mprotect(page, PAGE, libc::PROT_READ | libc::PROT_WRITE) == 0;
                if writable {
                    page.cast::<[u8; CALLER.len()]>().write(CALLER);
                }
                let is_code = writable && libc::mprotect(page, PAGE, libc::PROT_READ | libc::PROT_EXEC) == 0;
                anyhow::ensure!(is_code, "memory does not become code: {}", std::io::Error::last_os_error());
                Ok(std::mem::transmute::<*mut libc::c_void, LockAndUnlock>(page))
            })
            .collect()
    }
}

/// The minimum work to measure how long a lock was held: two clock readings.
fn clocked_pair() {
    // SAFETY: as above.
    unsafe {
        libc::pthread_mutex_lock(MUTEX.0.get());
        black_box(clock());
        black_box(clock());
        libc::pthread_mutex_unlock(MUTEX.0.get());
    }
}

/// Nanoseconds of one pair, median over the batches.
fn timed(count: u32, pair: impl Fn()) -> Value {
    in_turns(count, &mut [("", &mut || batch(&pair))]).remove("").unwrap_or_default()
}

/// Pairs per second of two threads at one mutex.
fn contended() -> f64 {
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let from = Instant::now();
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                let mut n = 0;
                while !stop.load(Ordering::Relaxed) {
                    mutex_pair();
                    n += 1;
                }
                done.fetch_add(n, Ordering::Relaxed);
            });
        }
        std::thread::sleep(HAMMER);
        stop.store(true, Ordering::Relaxed);
    });
    done.load(Ordering::Relaxed) as f64 / from.elapsed().as_secs_f64()
}

/// Measures every kind of pair, `count` times the mutex's.
pub fn run(count: u32, cpu: Option<usize>) -> anyhow::Result<()> {
    // Before the loops are pinned, because these are two threads. (And libc's locks need no locked instruction in a program that never had a second
    // thread.)
    let contended = contended();
    stay_on(cpu)?;
    // The first pair maps the ring.
    timed(BATCH, mutex_pair);
    timed(BATCH, read_pair);
    let quarter = count / 4;
    // The first pass through a ring, and later ones, when its pages are mapped.
    let start = timed(count.min(A_RING), mutex_pair);
    timed(A_RING.saturating_sub(count), mutex_pair);
    let callers = callers()?;
    let turn = Cell::new(0);
    let from_libraries = || {
        let caller = callers[turn.replace((turn.get() + 1) % LIBRARIES)];
        let (lock, unlock) =
            (libc::pthread_mutex_lock as *const () as usize, libc::pthread_mutex_unlock as *const () as usize);
        // SAFETY: as above, and the code calls these two functions.
        unsafe { caller(MUTEX.0.get(), lock, unlock) };
    };
    print(Map::from_iter(
        [
            ("start", start),
            ("mutex", timed(count, mutex_pair)),
            ("libraries", timed(quarter, from_libraries)),
            ("read", timed(quarter, read_pair)),
            ("write", timed(quarter, write_pair)),
            ("signal", timed(quarter, signal)),
            ("clocked", timed(quarter, clocked_pair)),
            ("clocks", timed(quarter, two_clock_reads)),
            ("contended", json!(contended)),
        ]
        .map(|(name, ns)| (name.to_owned(), ns)),
    ));
    Ok(())
}

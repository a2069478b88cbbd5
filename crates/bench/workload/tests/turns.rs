//! `docs/results/launch/turns.c`, with which launches of networks are timed: both sides end with the same word, in an order drawn for each round.

use libloading::{Library, Symbol};
use std::ffi::c_void;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

static WORD: AtomicU32 = AtomicU32::new(7);
static SYNCHRONIZED: AtomicU64 = AtomicU64::new(0);
static WAITED: AtomicU64 = AtomicU64::new(0);
/// How long after its launch a graph writes the word.
const TAKES: Duration = Duration::from_millis(1);

fn done_soon() {
    std::thread::spawn(|| {
        std::thread::sleep(TAKES);
        WORD.fetch_add(1, Ordering::Release);
    });
}

extern "C" fn launch_by_cuda(_: *mut c_void, _: *mut c_void) -> i32 {
    done_soon();
    0
}

extern "C" fn synchronize(_: *mut c_void) -> i32 {
    SYNCHRONIZED.fetch_add(1, Ordering::Relaxed);
    0
}

extern "C" fn launch_by_doorbell(_: *mut c_void, _: u64, _: *const c_void, _: *mut u64) -> i32 {
    done_soon();
    0
}

extern "C" fn wait(_: *mut c_void, _: u64, _: u64) -> i32 {
    WAITED.fetch_add(1, Ordering::Relaxed);
    0
}

type Turns = unsafe extern "C" fn(
    extern "C" fn(*mut c_void, *mut c_void) -> i32,
    extern "C" fn(*mut c_void) -> i32,
    *mut c_void,
    *mut c_void,
    extern "C" fn(*mut c_void, u64, *const c_void, *mut u64) -> i32,
    extern "C" fn(*mut c_void, u64, u64) -> i32,
    *mut c_void,
    u64,
    *const AtomicU32,
    i32,
    u64,
    u64,
    u64,
    *mut u64,
    *mut u8,
) -> i32;

#[test]
fn both_sides_end_with_the_same_word_in_random_order() {
    if !test_support::installed("cc") {
        test_support::skip!("no cc");
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/results/launch/turns.c");
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("turns.so");
    let mut command = Command::new("cc");
    command.args(["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]).arg(source).arg("-o").arg(&library);
    assert!(test_support::finished(&mut command, "cc").status.success());
    // SAFETY: a library without initialisers, with this function.
    let library = unsafe { Library::new(&library) }.unwrap();
    // SAFETY: as above.
    let turns: Symbol<'_, Turns> = unsafe { library.get(b"turns\0") }.unwrap();
    let (rounds, each, null) = (40, 2, std::ptr::null_mut());
    let samples = (rounds * each) as usize;
    for (own_waits, word) in [(0, true), (1, false)] {
        let (mut ns, mut first) = (vec![[0u64; 2]; 2 * samples], vec![9u8; rounds as usize]);
        // SAFETY: room for this many samples and rounds; the word outlives the call.
        let error = unsafe {
            turns(
                launch_by_cuda,
                synchronize,
                null,
                null,
                launch_by_doorbell,
                wait,
                null,
                1,
                &WORD,
                own_waits,
                rounds,
                each,
                12345,
                ns.as_mut_ptr().cast(),
                first.as_mut_ptr(),
            )
        };
        assert_eq!(error, 0);
        // Neither waiting call waits here: an end before the word is there would be seen.
        let is_late = |sample: &[u64; 2]| sample[1] >= TAKES.as_nanos() as u64;
        assert!(if word { ns.iter().all(is_late) } else { !ns.iter().all(is_late) }, "{own_waits}: {ns:?}");
        assert!(first.contains(&0) && first.contains(&1) && !first.contains(&9), "{first:?}");
        // Words that are still to come do not belong to a launch of the next run.
        std::thread::sleep(20 * TAKES);
    }
    let called = [&SYNCHRONIZED, &WAITED].map(|count| count.load(Ordering::Relaxed));
    assert_eq!(called, [2 * samples as u64; 2]);
}

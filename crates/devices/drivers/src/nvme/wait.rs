//! Waiting for a device, with a limit.

use std::time::{Duration, Instant};

/// Calls `ask` repeatedly: first without a pause, then with short ones. None when the limit is over.
pub(crate) fn until<T>(limit: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let begin = Instant::now();
    let mut turn = 0u32;
    loop {
        if let Some(answer) = ask() {
            return Some(answer);
        }
        if begin.elapsed() >= limit {
            return None;
        }
        turn = turn.saturating_add(1);
        match turn {
            ..64 => std::hint::spin_loop(),
            64..256 => std::thread::yield_now(),
            _ => std::thread::sleep(Duration::from_micros(50)),
        }
    }
}

//! The end of the recorder's files. No file is removed while a program that was started with the agent may still open
//! it.

use crate::{processes, rights};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tape::starts::Starts;

/// A started program has this much time to load the agent. Its loader does that first.
const PATIENCE: Duration = Duration::from_millis(250);

/// Publishes what agents check before they start a program. To be called when this process has the rights that it
/// keeps.
pub fn open(starts: &Starts) {
    // SAFETY: no arguments.
    starts.user.store(unsafe { libc::geteuid() }, Ordering::Relaxed);
    starts.capabilities.store(rights::capabilities(), Ordering::Relaxed);
    starts.proc.store(processes::own().map_or(0, |(_, device)| device), Ordering::Relaxed);
}

/// From now on no program is started with the agent. Waits for programs that were started and have not yet loaded it.
pub fn close(starts: &Starts) {
    starts.close();
    let begun = Instant::now();
    while starts.silent() > 0 && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_micros(500));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_waits_for_a_program_that_is_on_its_way_but_not_for_ever() {
        // SAFETY: zeroed numbers are valid.
        let s: Starts = unsafe { std::mem::zeroed() };
        assert!(s.expect());
        let late = Duration::from_millis(20);
        let begun = Instant::now();
        std::thread::scope(|t| {
            t.spawn(|| {
                std::thread::sleep(late);
                s.arrive();
            });
            close(&s);
        });
        assert!((late..PATIENCE).contains(&begun.elapsed()));
        // SAFETY: zeroed numbers are valid.
        let s: Starts = unsafe { std::mem::zeroed() };
        assert!(s.expect());
        close(&s);
        assert_eq!(s.silent(), 1);
    }
}

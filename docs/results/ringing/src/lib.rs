//! `ring` opens a channel on the software GPU, rings its doorbell, and leaves a thread behind that goes on ringing.

#[path = "../../../../crates/doorbell/tests/work/mod.rs"]
mod work;

use std::time::Duration;

#[unsafe(no_mangle)]
pub extern "C" fn ring() {
    let mut work = work::Work::new();
    // Enough for the site to be rewritten.
    work.rounds(20);
    std::thread::spawn(move || {
        loop {
            work.rounds(3);
            std::thread::sleep(Duration::from_millis(20));
        }
    });
}

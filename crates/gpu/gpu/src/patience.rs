//! How a thread polls for what another thread does.

use std::time::Duration;

/// Lets other threads run between two polls: at first not at all, then for a pause that a thread of any priority can use. (A real-time thread that yields
/// lets no thread of a lower priority run, and many threads that yield can keep all others from a CPU.)
#[derive(Debug, Default)]
pub struct Patience(usize);

impl Patience {
    /// Polls that follow one another without a pause.
    const EAGER: usize = 4096;
    const PAUSE: Duration = Duration::from_micros(50);

    /// Call it before the first poll.
    pub fn new() -> Patience {
        Patience(0)
    }

    /// Call it after a poll in vain.
    pub fn pause(&mut self) {
        self.0 += 1;
        if self.0 < Patience::EAGER {
            std::hint::spin_loop();
        } else {
            std::thread::sleep(Patience::PAUSE);
        }
    }
}

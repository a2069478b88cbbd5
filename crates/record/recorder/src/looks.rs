//! Two looks at the program for each file that a flight recorder saves: which thread waits for what at that moment.
//!
//! The thread that drains the rings copies the rows of the threads, and copies them again [`APART`] later. Another thread adds what
//! /proc and the locks have ([`Details::add`]). The thread that writes the file waits for both.
//!
//! Invariant: neither the rings nor the program wait for a look. A file without looks is complete.

use crate::live::Details;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use tape::live::{Live, Looks};

const APART: Duration = Duration::from_millis(100);
/// A file waits for its looks for this long. (Reading /proc takes time while a process hangs in the kernel.)
pub const WITHIN: Duration = Duration::from_secs(3);

/// Looks of which the second is still to be made.
#[derive(Default)]
pub struct Begun(Vec<(Instant, Sender<(Live, Details)>)>);

impl Begun {
    /// The first look. Both arrive in the channel, unless the recording ends before. `None`: there could be no thread.
    pub fn add(&mut self, (first, details): (Live, Details)) -> Option<Receiver<Looks>> {
        let ((give, second), (tell, told)) = (channel::<(Live, Details)>(), channel());
        let work = move || {
            let first = details.add(first);
            if let Ok((second, details)) = second.recv() {
                // (The file may no longer wait.)
                let _ = tell.send(Looks { first, second: details.add(second) });
            }
        };
        std::thread::Builder::new().name("looks".into()).spawn(work).ok()?;
        self.0.push((Instant::now() + APART, give));
        Some(told)
    }

    /// Once a round: the second looks that are due.
    pub fn go_on(&mut self, look: impl Fn() -> (Live, Details)) {
        let now = Instant::now();
        // (The thread that waits for it ends at any rate.)
        self.0.extract_if(.., |(at, _)| *at <= now).for_each(|(_, give)| drop(give.send(look())));
    }
}

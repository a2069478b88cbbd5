//! Why events did not fit into the rings, and what helps.

use crate::number::seconds;
use tape::file::RecorderUse;

/// Below this neither a wait nor a gap explains a full ring: one of 8 MiB holds the events of 10 ms at 800 MB/s.
const LATE: f64 = 0.010;
/// A write that takes as long as this waits for a disk.
const SLOW_WRITE: f64 = 0.050;

/// The cause, if the recorder saw one, and the hint.
pub fn why(used: &RecorderUse) -> (Option<String>, &'static str) {
    if used.held_up_seconds >= LATE && used.longest_write_seconds >= SLOW_WRITE {
        let (held, write) = (seconds(used.held_up_seconds), seconds(used.longest_write_seconds));
        let cause = format!("the recorder waited {held} for the file (one write took {write})");
        return (Some(cause), "write to a faster disk: -o, or --on-full wait");
    }
    if used.held_up_seconds >= LATE {
        let held = seconds(used.held_up_seconds);
        let cause = format!("for {held} events came faster than the recorder packed and wrote them");
        return (Some(cause), "leave it two CPUs, or --on-full wait");
    }
    if used.longest_gap_seconds >= LATE {
        let cause = format!("the recorder once did not look for {}", seconds(used.longest_gap_seconds));
        return (Some(cause), "leave it a CPU, or --ring 64MiB, or --on-full wait");
    }
    (None, "--ring 64MiB or --on-full wait")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_is_the_one_that_explains_it() {
        let of = |gap, held, write| {
            let used = RecorderUse {
                longest_gap_seconds: gap,
                held_up_seconds: held,
                longest_write_seconds: write,
                ..RecorderUse::default()
            };
            let (cause, hint) = why(&used);
            (cause.unwrap_or_default(), hint)
        };
        let is = |(cause, hint): (String, &str), says: &str, helps: &str| {
            assert!(cause.contains(says) && hint.contains(helps), "{cause}; {hint}");
        };
        is(of(0.5, 0.4, 0.3), "waited 400.0 ms for the file (one write took 300.0 ms)", "disk");
        is(of(0.5, 0.4, 0.001), "for 400.0 ms events came faster", "two CPUs");
        is(of(0.12, 0.0, 0.3), "did not look for 120.0 ms", "--ring");
        is(of(0.001, 0.0, 0.0), "", "--on-full");
    }
}

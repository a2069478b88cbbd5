//! Why events did not fit into the rings, and what helps.

use numbers::seconds;
use tape::file::RecorderUse;

/// Below this it explains no full ring: a small one of 256 KiB holds the events of 5 ms at 50 MB/s.
const LATE: f64 = 0.005;

/// The cause, if the recorder saw one, and the hint.
pub fn why(used: &RecorderUse) -> (Option<String>, &'static str) {
    let RecorderUse { late_seconds: late, held_up_seconds: held, longest_write_seconds: write, .. } = *used;
    if held >= LATE && held >= late / 2.0 && write >= held / 2.0 {
        let cause = format!("the recorder waited {} for the file (one write took {})", seconds(held), seconds(write));
        return (Some(cause), "write to a faster disk: -o, or --on-full wait");
    }
    if held >= LATE && held >= late / 2.0 {
        let cause =
            format!("events came faster than the recorder packed and wrote them, so it waited {}", seconds(held));
        return (Some(cause), "leave it two CPUs, or --on-full wait");
    }
    if late >= LATE {
        let cause = format!("the recorder looked at them {} late", seconds(late));
        return (Some(cause), "leave it a CPU, or a larger --ring, or --on-full wait");
    }
    (None, "--ring 64MiB or --on-full wait")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_is_the_one_that_explains_it() {
        let of = |late, held, write| {
            let used = RecorderUse {
                late_seconds: late,
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
        is(of(0.5, 0.4, 0.3), "waited 400 ms for the file (one write took 300 ms)", "disk");
        is(of(0.5, 0.4, 0.001), "so it waited 400 ms", "two CPUs");
        is(of(0.5, 0.01, 0.01), "looked at them 500 ms late", "--ring");
        is(of(0.12, 0.0, 0.3), "looked at them 120 ms late", "--ring");
        is(of(0.001, 0.0, 0.0), "", "--on-full");
    }
}

//! What delayed a transfer, as far as its own times show.

use crate::Sample;
use crate::soak::account::Slow;
use numbers::nanoseconds;

/// The parts of its time, the longest first, each with possible causes.
pub(crate) fn of_sample(s: &Sample, slow: Option<&Slow>) -> String {
    let engine = (s.ended_ns > 0).then(|| s.ended_ns.saturating_sub(s.submitted_ns.max(s.started_ns)));
    let mut parts = vec![
        (s.call_ns.saturating_sub(s.release_ns), "waiting for earlier transfers"),
        (s.submit(), "in the call (building commands, a lock, or no CPU)"),
    ];
    match engine {
        Some(engine) => {
            parts
                .push((s.started_ns.saturating_sub(s.submitted_ns), "before the engine began (fetch, other channels)"));
            parts.push((engine, "in the engine and on the link"));
            parts.push((s.done_ns.saturating_sub(s.ended_ns), "until the CPU saw the end (no CPU, or asleep)"));
        }
        None => parts
            .push((s.done_ns.saturating_sub(s.submitted_ns), "from the call to its end (no engine's times are known)")),
    }
    parts.retain(|(time, _)| *time > 0);
    parts.sort_by_key(|(time, _)| std::cmp::Reverse(*time));
    let mut text: Vec<String> = parts.iter().map(|(time, what)| format!("{} {what}", nanoseconds(*time))).collect();
    if let Some(gap) = slow.and_then(|slow| slow.longest_gap_ns).filter(|gap| *gap > 0) {
        text.push(format!("the polling CPU did not poll for {}", nanoseconds(gap)));
    }
    text.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_part_is_said_first() {
        let s = Sample {
            release_ns: 100,
            call_ns: 100,
            submitted_ns: 2_100,
            started_ns: 3_100,
            ended_ns: 5_100,
            done_ns: 80_100,
            ..Sample::default()
        };
        let text = of_sample(&s, Some(&Slow { longest_gap_ns: Some(74_000), ..Slow::default() }));
        assert!(text.starts_with("75.0 us until the CPU saw the end"), "{text}");
        assert!(text.contains("2.00 us in the engine") && text.ends_with("did not poll for 74.0 us"), "{text}");
        let unknown = Sample { started_ns: 0, ended_ns: 0, ..s };
        assert!(of_sample(&unknown, None).starts_with("78.0 us from the call"));
    }
}

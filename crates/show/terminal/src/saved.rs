//! What the recording of the last seconds leaves out on purpose.

use crate::number::{bytes, count, of, seconds};
use schema::summary::Saved;

/// Why it was saved, then what was left out.
pub fn lines(s: &Saved) -> Vec<String> {
    if s.reason == PART {
        let first = if s.number == 1 { "" } else { ", which begins with what lasts of those before" };
        let mut out = vec![format!("part {} of a recording in parts{first}", s.number)];
        out.extend(left_out(s).into_iter().filter(|_| s.number > 1));
        return out;
    }
    let what = if s.what.is_empty() { String::new() } else { format!(": {}", s.what) };
    let mut out = vec![format!("the last {}, because of `{}`{what}", seconds(s.seconds), s.reason)];
    out.extend(left_out(s));
    out
}

/// The reason of the files of `record --rotate`.
const PART: &str = "part";

fn left_out(s: &Saved) -> Vec<String> {
    let mut out = Vec::new();
    if s.events == 0 && s.processes == 0 {
        out.push("nothing: the file has everything from the start".into());
    } else {
        let (events, doorbells) = (of(s.events, "event"), of(s.doorbells, "doorbell"));
        out.push(format!("{events} of before ({doorbells}, {}), on purpose", bytes(s.bytes)));
    }
    if s.processes > 0 {
        out.push(format!("{} that ended before", of(s.processes, "process")));
    }
    if s.forgotten > 0 {
        let n = format!("{} driver calls, names and other facts", count(s.forgotten));
        out.push(format!(
            "{n} of before had no room in memory: some names and places of memory are not known, or those of before"
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_parts_of_a_saved_recording_are_named() {
        let s = Saved {
            reason: "call > 5ms".into(),
            what: "cuModuleLoadData took 7.2 ms in thread 12".into(),
            number: 1,
            seconds: 2.5,
            events: 0,
            bytes: 0,
            doorbells: 0,
            processes: 0,
            forgotten: 0,
        };
        let text = lines(&s).join("\n");
        assert!(text.contains("`call > 5ms`: cuModuleLoadData took 7.2 ms") && text.contains("nothing: "), "{text}");
        let text =
            lines(&Saved { events: 1200, bytes: 1 << 20, doorbells: 3, processes: 2, forgotten: 4, ..s.clone() })
                .join("\n");
        for part in ["1,200 events of before (3 doorbells, 1 MiB)", "2 processes", "4 driver calls"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let of = |number| lines(&Saved { reason: "part".into(), number, events: 1200, ..s.clone() }).join("\n");
        assert_eq!(of(1), "part 1 of a recording in parts");
        assert!(of(2).starts_with("part 2 of a recording in parts, which begins") && of(2).contains("1,200 events"));
    }
}

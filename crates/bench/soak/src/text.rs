//! How times are written in an account.

/// Nanoseconds: `62.4 us`.
pub(crate) fn ns(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

/// Seconds as hours, minutes and seconds: `12 h`, `9 min`, `11 h 51 min`, `45 s`.
pub fn duration(seconds: f64) -> String {
    if seconds < 10.0 && seconds.fract() > 0.05 {
        return format!("{seconds:.1} s");
    }
    let whole = seconds.round() as u64;
    let parts = [(whole / 3600, "h"), (whole / 60 % 60, "min"), (whole % 60, "s")];
    // Seconds matter below ten minutes only.
    let kept = parts.into_iter().filter(|(n, unit)| *n > 0 && (*unit != "s" || whole < 600));
    let text: Vec<String> = kept.map(|(n, unit)| format!("{n} {unit}")).collect();
    if text.is_empty() { "0 s".into() } else { text.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_as_people_say_them() {
        let texts = [0.0, 0.34, 45.0, 540.0, 541.0, 43_200.0, 42_660.0, 43_201.0].map(duration);
        assert_eq!(texts, ["0 s", "0.3 s", "45 s", "9 min", "9 min 1 s", "12 h", "11 h 51 min", "12 h"]);
        assert_eq!([ns(17), ns(62_400), ns(2_000_000), ns(3_000_000_000)], ["17 ns", "62.4 us", "2.0 ms", "3.00 s"]);
    }
}

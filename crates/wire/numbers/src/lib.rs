//! Times, sizes and counts as texts for people.
//!
//! The invariant: one form each, a unit with three digits (`1.34 us`, `72.5 KiB`), so that figures of different pages can be compared. Marks of axes
//! are shorter: [`tick`]. Times since a start have more digits: [`moment`].

/// With a comma every three digits.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// A count with its noun: `1 program`, `2,000 programs`, `3 processes`.
pub fn of(n: u64, noun: &str) -> String {
    let end = match noun.ends_with('s') || noun.ends_with("ch") {
        _ if n == 1 => "",
        true => "es",
        false => "s",
    };
    format!("{} {noun}{end}", count(n))
}

/// Nanoseconds with a unit that leaves one to three digits before the point; an integer below a microsecond, else three digits.
pub fn nanoseconds(ns: u64) -> String {
    match of_time(ns as f64) {
        (v, "ns") => format!("{v} ns"),
        (v, unit) => format!("{} {unit}", digits(v)),
    }
}

/// The same of seconds.
pub fn seconds(s: f64) -> String {
    if s == 0.0 { "0 s".into() } else { nanoseconds((s * 1e9).round() as u64) }
}

/// Seconds from the start of a recording or run: more digits, so that neighbours differ.
pub fn moment(s: f64) -> String {
    match s {
        0.0 => "0 s".into(),
        s if s < 0.0 => format!("-{}", moment(-s)),
        s if s >= 100.0 => format!("{s:.0} s"),
        s if s >= 1.0 => format!("{s:.2} s"),
        s if s >= 1e-3 => format!("{:.1} ms", s * 1e3),
        s => format!("{:.1} us", s * 1e6),
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
    let text: Vec<String> = kept.map(|(n, unit)| format!("{} {unit}", count(n))).collect();
    if text.is_empty() { "0 s".into() } else { text.join(" ") }
}

/// Bytes with a binary unit: exact if the unit divides them, else three digits.
pub fn bytes(n: u64) -> String {
    match of_bytes(n) {
        (v, unit) if v.fract() == 0.0 => format!("{v} {unit}"),
        (v, unit) => format!("{} {unit}", digits(v)),
    }
}

/// Marks of an axis: short, without zeros at the end.
pub mod tick {
    use super::{of_bytes, of_time};

    /// `2.5 us`
    pub fn nanoseconds(ns: f64) -> String {
        let (v, unit) = of_time(ns);
        format!("{} {unit}", digits(v))
    }

    /// `4 KiB`
    pub fn bytes(n: u64) -> String {
        let (v, unit) = of_bytes(n);
        format!("{} {unit}", digits(v))
    }

    /// `12.5 k`
    pub fn count(v: f64) -> String {
        match v {
            v if v >= 999.5e3 => format!("{} M", digits(v / 1e6)),
            v if v >= 1e3 => format!("{} k", digits(v / 1e3)),
            v => digits(v),
        }
    }

    /// `12.5`
    pub fn digits(v: f64) -> String {
        let text = super::digits(v);
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
    }
}

fn of_time(ns: f64) -> (f64, &'static str) {
    match ns {
        v if v < 999.5 => (v, "ns"),
        v if v < 999.5e3 => (v / 1e3, "us"),
        v if v < 999.5e6 => (v / 1e6, "ms"),
        v => (v / 1e9, "s"),
    }
}

fn of_bytes(n: u64) -> (f64, &'static str) {
    let unit = n.max(1).ilog2() / 10;
    (n as f64 / (1u64 << (10 * unit)) as f64, ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"][unit as usize])
}

/// Three, or all before the point.
fn digits(v: f64) -> String {
    let decimals = if v < 9.995 { 2 } else { usize::from(v < 99.95) };
    format!("{v:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_commas() {
        let cases = [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")];
        assert!(cases.iter().all(|(n, t)| count(*n) == *t));
        assert_eq!(count(u64::MAX), "18,446,744,073,709,551,615");
    }

    #[test]
    fn times_keep_three_digits() {
        let cases = [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.00 us"),
            (1_340, "1.34 us"),
            (9_994, "9.99 us"),
            (9_996, "10.0 us"),
            (99_960, "100 us"),
            (999_499, "999 us"),
            (999_500, "1.00 ms"),
            (1_221_000, "1.22 ms"),
            (999_500_000, "1.00 s"),
            (3_600_000_000_000, "3600 s"),
            (u64::MAX, "18446744074 s"),
        ];
        for (n, t) in cases {
            assert_eq!(nanoseconds(n), t);
        }
        let seconds = [0.0, -0.0, 5e-7, 1.34e-6, 0.0123, 12.34, 123.4].map(seconds);
        assert_eq!(seconds, ["0 s", "0 s", "500 ns", "1.34 us", "12.3 ms", "12.3 s", "123 s"]);
        let moments = [0.0, 7e-7, 0.1234, -0.1234, 12.34, 123.4].map(moment);
        assert_eq!(moments, ["0 s", "0.7 us", "123.4 ms", "-123.4 ms", "12.34 s", "123 s"]);
    }

    #[test]
    fn durations_are_as_people_say_them() {
        let texts = [0.0, 0.34, 45.0, 540.0, 541.0, 43_200.0, 42_660.0, 43_201.0, 4e6].map(duration);
        assert_eq!(
            texts,
            ["0 s", "0.3 s", "45 s", "9 min", "9 min 1 s", "12 h", "11 h 51 min", "12 h", "1,111 h 6 min"]
        );
    }

    #[test]
    fn sizes_are_exact_where_their_unit_divides_them() {
        let cases = [
            (0, "0 B"),
            (4, "4 B"),
            (1000, "1000 B"),
            (4096, "4 KiB"),
            (1536, "1.50 KiB"),
            (10_235, "10.0 KiB"),
            (74_240, "72.5 KiB"),
            (1023 << 10, "1023 KiB"),
            (64 << 20, "64 MiB"),
            (u64::MAX, "16 EiB"),
        ];
        for (n, t) in cases {
            assert_eq!(bytes(n), t);
        }
    }

    #[test]
    fn ticks_are_short() {
        let times = [
            (2.5, "2.5 ns"),
            (250.0, "250 ns"),
            (2500.0, "2.5 us"),
            (1e4, "10 us"),
            (1.0 / 3.0 * 1e9, "333 ms"),
            (2e9, "2 s"),
        ];
        assert!(times.iter().all(|(ns, text)| tick::nanoseconds(*ns) == *text));
        let sizes = [(0, "0 B"), (8, "8 B"), (4096, "4 KiB"), (1536, "1.5 KiB"), (64 << 20, "64 MiB")];
        assert!(sizes.iter().all(|(n, text)| tick::bytes(*n) == *text));
        assert_eq!([12_500.0, 999_500.0, 3.0].map(tick::count), ["12.5 k", "1 M", "3"]);
    }
}

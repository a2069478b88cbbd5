//! How numbers are written.

pub use schema::copy_names::bytes;

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

/// Seconds with a unit that leaves one to three digits before the point.
pub fn seconds(s: f64) -> String {
    match s {
        0.0 => "0 s".into(),
        s if s >= 100.0 => format!("{s:.0} s"),
        s if s >= 1.0 => format!("{s:.2} s"),
        s if s >= 1e-3 => format!("{:.1} ms", s * 1e3),
        s => format!("{:.1} us", s * 1e6),
    }
}

/// Nanoseconds with a unit that leaves one to three digits before the point; an integer below a microsecond, else three digits.
pub fn nanoseconds(ns: u64) -> String {
    let (v, unit) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..999_500 => (ns as f64 / 1e3, "us"),
        999_500..999_500_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    match v {
        v if v < 9.995 => format!("{v:.2} {unit}"),
        v if v < 99.95 => format!("{v:.1} {unit}"),
        _ => format!("{v:.0} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_keeps_its_unit_and_a_sign_stays_in_front() {
        assert_eq!((seconds(0.0), seconds(-0.0)), ("0 s".into(), "0 s".into()));
        let all = [0.0, -0.0, -0.5, -123.4, 123.4].map(crate::run::three_digits);
        assert_eq!(all, ["0", "0", "-0.500", "-123", "123"]);
    }

    #[test]
    fn counts_have_commas() {
        let cases = [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")];
        assert!(cases.iter().all(|(n, t)| count(*n) == *t));
        assert_eq!(count(u64::MAX), "18,446,744,073,709,551,615");
    }

    #[test]
    fn nanoseconds_keep_three_digits() {
        let cases = [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.00 us"),
            (9_994, "9.99 us"),
            (9_996, "10.0 us"),
            (99_960, "100 us"),
            (999_499, "999 us"),
            (999_500, "1.00 ms"),
            (1_221_000, "1.22 ms"),
            (999_500_000, "1.00 s"),
            (3_600_000_000_000, "3600 s"),
        ];
        for (n, t) in cases {
            assert_eq!(nanoseconds(n), t);
        }
    }
}

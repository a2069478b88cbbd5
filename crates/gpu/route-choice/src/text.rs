//! Sizes and times for readers. (Lower crates do not write them in this form.)

/// `4 KiB`, `72.5 KiB`.
pub fn bytes(n: u64) -> String {
    let (mut shift, units) = (0, ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]);
    while shift + 1 < units.len() && n >> (10 * (shift + 1)) != 0 {
        shift += 1;
    }
    let whole = n & ((1 << (10 * shift)) - 1) == 0;
    let value = n as f64 / (1u64 << (10 * shift)) as f64;
    if whole { format!("{value:.0} {}", units[shift]) } else { format!("{value:.1} {}", units[shift]) }
}

/// `900 ns`, `1.34 us`.
pub fn time(ns: u64) -> String {
    let (value, unit) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (ns as f64 / 1e3, "us"),
        1_000_000..1_000_000_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    match value {
        v if v < 9.995 => format!("{v:.2} {unit}"),
        v if v < 99.95 => format!("{v:.1} {unit}"),
        v => format!("{v:.0} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits() {
        assert_eq!([bytes(4), bytes(4096), bytes(73_728), bytes(74_240)], ["4 B", "4 KiB", "72 KiB", "72.5 KiB"]);
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
        assert_eq!([time(999), time(1_340), time(23_900), time(307_000)], ["999 ns", "1.34 us", "23.9 us", "307 us"]);
        assert_eq!([time(1_220_000), time(u64::MAX)], ["1.22 ms", "18446744074 s"]);
    }
}

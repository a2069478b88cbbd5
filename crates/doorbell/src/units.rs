//! Values with units, the same for every flag: sizes such as `64MiB`, times such as `60s`.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Value name of a size.
pub const SIZE: &str = "SIZE";
/// Value name of a time.
pub const TIME: &str = "TIME";

/// One size in bytes: `8B`, `64KiB`, `64MiB`, `1GiB`.
pub fn size(text: &str) -> Result<u64, String> {
    if text.trim().bytes().all(|b| b.is_ascii_digit()) && !text.trim().is_empty() {
        return Err(format!("a size needs a unit: {0}B, {0}KiB, {0}MiB or {0}GiB", text.trim()));
    }
    match experiment::sizes::parse(text).as_deref() {
        Ok([one]) => Ok(*one),
        Ok(_) => Err("one size is needed, such as 64MiB".into()),
        Err(e) => Err(e.to_string()),
    }
}

/// [`size`] within bounds.
pub fn size_in(bounds: RangeInclusive<u64>) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| {
        let bytes = size(text)?;
        if bounds.contains(&bytes) {
            return Ok(bytes);
        }
        let (least, most) = (report::number::bytes(*bounds.start()), report::number::bytes(*bounds.end()));
        Err(format!("it is not between {least} and {most}"))
    }
}

/// A time above zero, up to a day: `30ns`, `100us`, `20ms`, `5s`, `1m30s`.
pub fn time(text: &str) -> Result<Duration, String> {
    match long_time(text) {
        Ok(d) if d > DAY => Err("at most a day (24h) fits".into()),
        parsed => parsed,
    }
}

/// A time above zero, up to a hundred days.
pub fn long_time(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    if text.parse::<f64>().is_ok() {
        return Err(format!("a time needs a unit: {text}ns, {text}us, {text}ms, {text}s or {text}m"));
    }
    let parsed: jiff::SignedDuration =
        text.parse().map_err(|_| "it is not a time; times are written 30ns, 100us, 20ms, 5s, 1m30s".to_owned())?;
    match Duration::try_from(parsed) {
        Ok(d) if !d.is_zero() && d <= 100 * DAY => Ok(d),
        Ok(d) if d > 100 * DAY => Err("at most a hundred days (2400h) fit".into()),
        _ => Err("more than no time is needed".into()),
    }
}

const DAY: Duration = Duration::from_secs(86_400);

/// Nanoseconds with their fraction, for limits on averages.
pub fn nanoseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_need_a_unit() {
        assert_eq!(size("64MiB"), Ok(64 << 20));
        assert_eq!(size("8B"), Ok(8));
        assert!(size("64").unwrap_err().contains("64MiB"));
        for wrong in ["", "MiB", "64MB", "4B..8B", "4B,8B", "-1B", "0B"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
        assert!(size_in(1..=8)("9B").unwrap_err().contains("between 1 B and 8 B"));
    }

    #[test]
    fn times_need_a_unit() {
        for (text, ns) in
            [("30ns", 30), ("100us", 100_000), ("20ms", 20_000_000), ("0.5s", 500_000_000), ("1m30s", 90_000_000_000)]
        {
            assert_eq!(time(text), Ok(Duration::from_nanos(ns)), "{text}");
        }
        assert!(time("5").unwrap_err().contains("5s"));
        for wrong in ["", "s", "5x", "-5s", "0s", "25h", "5s ago", "1e30s", "nan", "inf"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }
}

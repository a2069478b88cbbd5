//! Values with units, the same for every flag: sizes such as `64MiB`, times such as `60s`, percentages. Their syntax is that of
//! `experiment`: a flag, `--set` and a file take the same texts.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Value name of a size.
pub const SIZE: &str = "SIZE";
/// Value name of a time.
pub const TIME: &str = "TIME";

/// One size in bytes: `64KiB`, `64MiB`, `1GiB`. A number alone is a number of bytes.
pub fn size(text: &str) -> Result<u64, String> {
    settings::sizes::one(text).map_err(|e| e.to_string())
}

/// [`size`] within bounds.
pub fn size_in(bounds: RangeInclusive<u64>) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| {
        let bytes = size(text)?;
        if bounds.contains(&bytes) {
            return Ok(bytes);
        }
        let (least, most) = (terminal::number::bytes(*bounds.start()), terminal::number::bytes(*bounds.end()));
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
    match experiment::time_ns(text).map(Duration::from_nanos)? {
        Duration::ZERO => Err("more than no time is needed".into()),
        d if d > 100 * DAY => Err("at most a hundred days (2400h) fit".into()),
        d => Ok(d),
    }
}

/// `5%`: 5. Without the sign only 0: 0.05 alone could be a part or a percentage.
pub fn percent(text: &str) -> Result<f64, String> {
    let number = if text == "0" { Some(text) } else { text.strip_suffix('%') };
    match number.map(|n| n.trim().parse::<f64>()) {
        Some(Ok(p)) if (0.0..=1000.0).contains(&p) => Ok(p),
        _ => Err("a percentage from 0% to 1000%, with its sign: 5%".into()),
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
    fn one_size_is_taken() {
        assert_eq!(size("64MiB"), Ok(64 << 20));
        assert_eq!((size("8B"), size("8")), (Ok(8), Ok(8)));
        for wrong in ["", "MiB", "64MB", "4B..8B", "4B,8B", "-1B", "0B"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
        assert!(size_in(1..=8)("9B").unwrap_err().contains("between 1 B and 8 B"));
    }

    #[test]
    fn a_percentage_has_its_sign() {
        assert_eq!((percent("5%"), percent("0"), percent("0.5 %")), (Ok(5.0), Ok(0.0), Ok(0.5)));
        for wrong in ["", "5", "0.05", "%", "-1%", "1001%", "nan%", "5 percent"] {
            assert!(percent(wrong).is_err(), "{wrong}");
        }
    }

    /// A flag, `--set` and a file accept the same texts with the same meaning.
    #[test]
    fn one_grammar_of_times_and_sizes() {
        let set = |key: &str, text: &str| {
            let file = "[run]\nsamples = 1\n[[subject]]\nname = \"s\"\ncall = \"nothing\"\n";
            experiment::read(file, "t.toml", &[format!("run.{key}={text}")])
                .map(|e| e.run.timeout_ns)
                .map_err(|e| e.to_string())
        };
        for text in ["1m30s", "2m", "2min", "1h", "100us", "1.5ms", "1h 30m", "60 s"] {
            assert_eq!(set("timeout", text), time(text).map(|d| d.as_nanos() as u64), "{text}");
            assert!(time(text).is_ok(), "{text}");
        }
        // (`--set` with an empty value removes the key.)
        assert!(time("").is_err());
        for text in ["5", "5x", "1s1m", "-5s", "1.5m30s", "PT5S", "5 minutes"] {
            assert!(time(text).is_err() && set("timeout", text).is_err(), "{text}");
        }
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

//! The clock for the periods of a soak. Samples have a separate clock; this one counts minutes and hours.
//!
//! A test must cover twelve hours: a simulated clock advances by a fixed time with each lap, however long the lap took, and every resulting file
//! records that.

use jiff::Timestamp;
use std::cell::Cell;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    /// Seconds since 1970, UTC. Somebody may set this clock.
    pub utc_s: f64,
    /// Seconds since some moment; stops while the machine sleeps.
    pub elapsed_s: f64,
}

/// Time as it is, or a simulated one.
#[derive(Debug)]
pub enum Clock {
    /// Since this clock was made.
    System(Instant),
    /// Each lap takes the same time.
    Simulated { began_utc_s: f64, each_lap_s: f64, laps: Cell<u64> },
}

impl Clock {
    pub fn system() -> Clock {
        Clock::System(Instant::now())
    }

    pub fn simulated(began_utc_s: f64, each_lap_s: f64) -> Clock {
        Clock::Simulated { began_utc_s, each_lap_s, laps: Cell::new(0) }
    }

    pub fn now(&self) -> Moment {
        match self {
            Clock::System(began) => Moment { utc_s: utc_s(), elapsed_s: began.elapsed().as_secs_f64() },
            Clock::Simulated { began_utc_s, each_lap_s, laps } => {
                let elapsed_s = laps.get() as f64 * each_lap_s;
                Moment { utc_s: began_utc_s + elapsed_s, elapsed_s }
            }
        }
    }

    /// A lap is over.
    pub fn lapped(&self) {
        if let Clock::Simulated { laps, .. } = self {
            laps.set(laps.get() + 1);
        }
    }

    /// The moment this many seconds ago. Since then only this lap was measured. (The simulated time of a lap is added when it is over.)
    pub fn back(&self, seconds: f64) -> Moment {
        let seconds = if matches!(self, Clock::System(_)) { seconds } else { 0.0 };
        let now = self.now();
        Moment { utc_s: now.utc_s - seconds, elapsed_s: now.elapsed_s - seconds }
    }
}

/// Now, seconds since 1970.
pub fn utc_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}

/// RFC 3339, to the second.
pub fn text(utc_s: f64) -> String {
    written(Timestamp::from_second(utc_s.floor() as i64).ok())
}

/// RFC 3339, to the microsecond.
pub fn precise(utc_s: f64) -> String {
    written(Timestamp::from_microsecond((utc_s * 1e6).round() as i64).ok())
}

fn written(at: Option<Timestamp>) -> String {
    at.map(|at| at.to_string()).unwrap_or_default()
}

/// Seconds since 1970 for an RFC 3339 text.
pub fn read(text: &str) -> Option<f64> {
    Some(text.parse::<Timestamp>().ok()?.as_microsecond() as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twelve_hours_are_as_many_laps_as_fit() {
        let clock = Clock::simulated(1_000.0, 300.0);
        (0..144).for_each(|_| clock.lapped());
        assert_eq!(clock.now(), Moment { utc_s: 44_200.0, elapsed_s: 43_200.0 });
    }

    #[test]
    fn times_are_read_as_they_are_written() {
        let now = utc_s();
        assert!((read(&text(now)).unwrap() - now.floor()).abs() < 1e-6 && text(now).ends_with('Z'));
        assert!((read(&precise(now)).unwrap() - now).abs() < 2e-6);
        assert_eq!(read("yesterday"), None);
        assert!(Clock::system().now().elapsed_s < 5.0);
    }
}

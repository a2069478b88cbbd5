//! Facts of the clock that timed the samples.

use crate::gather::Gathered;

/// The source of clock readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// rdtscp, fenced.
    Tsc,
    /// clock_gettime(CLOCK_MONOTONIC_RAW): the counter is missing or changes its speed.
    MonotonicRaw,
}

/// A clock with the results of its calibration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibrated {
    pub source: Source,
    /// Ticks a second; `None` where the counter is not used.
    pub tsc_hz: Option<f64>,
    /// How far the calibration can be off, parts per million.
    pub error_ppm: f64,
    /// What one reading costs, ns. It is part of every sample.
    pub reading_ns: f64,
}

impl Calibrated {
    /// CLOCK_MONOTONIC_RAW without a measured cost.
    pub const MONOTONIC_RAW: Calibrated =
        Calibrated { source: Source::MonotonicRaw, tsc_hz: None, error_ppm: 0.0, reading_ns: 0.0 };
}

pub fn facts(clock: Option<Calibrated>, into: &mut Gathered) {
    let Some(clock) = clock else {
        return into.none_of("clock.", "no clock was calibrated");
    };
    let source = match clock.source {
        Source::Tsc => "tsc",
        Source::MonotonicRaw => "monotonic_raw",
    };
    into.put("clock.source", Ok(source));
    into.put("clock.tsc_hz", clock.tsc_hz.ok_or_else(|| "the time stamp counter is not invariant here".to_string()));
    into.put("clock.error_ppm", Ok(clock.error_ppm));
    into.put("clock.reading_ns", Ok(clock.reading_ns));
}

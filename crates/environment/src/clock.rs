//! What is known of the clock that the samples were taken with.

/// Where a reading comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// rdtscp, fenced.
    Tsc,
    /// clock_gettime(CLOCK_MONOTONIC_RAW): the counter is missing or changes its speed.
    MonotonicRaw,
}

/// A clock as its calibration found it.
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
    /// CLOCK_MONOTONIC_RAW as it is, its cost not measured.
    pub const MONOTONIC_RAW: Calibrated =
        Calibrated { source: Source::MonotonicRaw, tsc_hz: None, error_ppm: 0.0, reading_ns: 0.0 };
}

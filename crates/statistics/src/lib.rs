//! What samples say: exact order statistics, histograms with a stated error, intervals over rounds, paired ratios. Pure:
//! values in, figures out.
//!
//! The invariant: no figure assumes how samples are distributed, or that the samples of one round are independent of each
//! other. Intervals and ratios take rounds as their units, because a host that changes its speed changes it for many samples
//! in a row.

pub mod distribution;
mod figure;
mod histogram;
mod interval;
mod line;
mod misses;
mod percentile;
mod ratio;
mod rounds;
mod series;
mod summary;
mod worst;

pub use figure::Figure;
pub use histogram::{Bucket, Histogram};
pub use interval::{CONFIDENCE, Interval, median, median_interval};
pub use line::{Line, Step, steps};
pub use misses::Misses;
pub use percentile::{BEYOND, Percentile};
pub use ratio::Ratio;
pub use rounds::{Draws, MIN_ROUNDS, RESAMPLES, Rounds, interval_over_rounds};
pub use series::{Shift, Trend};
pub use summary::Summary;
pub use worst::{Slow, WORST, Worst};

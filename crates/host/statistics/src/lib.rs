//! Statistics of samples: exact order statistics, histograms with a stated error, intervals over rounds, paired ratios. Pure: values in, figures
//! out.
//!
//! The invariant: no figure assumes how samples are distributed, or that the samples of one round are independent of each other. All intervals and
//! ratios come from one model (`dependence`): repeats, or rounds if there are few repeats, are the independent values, because a host that changes
//! its speed changes it for many consecutive samples.

mod dependence;
pub mod distribution;
mod estimate;
mod figure;
mod histogram;
mod interval;
mod line;
mod location;
mod misses;
mod percentile;
mod ratio;
mod rounds;
mod series;
mod summary;
mod worst;

pub use dependence::MIN_REPEATS;
pub use estimate::{Estimate, Why};
pub use figure::Figure;
pub use histogram::{Bucket, Histogram};
pub use interval::{CONFIDENCE, Interval, median};
pub use line::{Line, Step, steps};
pub use location::median_over_repeats;
pub use misses::{Due, Misses};
pub use percentile::{BEYOND, Percentile};
pub use ratio::Ratio;
pub use rounds::{MIN_ROUNDS, Rounds};
pub use series::{Shift, Trend};
pub use summary::Summary;
pub use worst::{Slow, WORST, Worst};

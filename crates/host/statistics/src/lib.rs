//! Statistics of samples: exact order statistics, histograms with a stated error, intervals over processes, paired ratios. Pure: values in, figures
//! out.
//!
//! The invariant: no figure assumes how samples are distributed, or that the samples of one process are independent of each other. All intervals and
//! ratios come from one model (`processes`): processes are the independent values.

pub mod distribution;
mod estimate;
mod figure;
mod histogram;
mod interval;
mod line;
mod misses;
mod percentile;
mod processes;
mod ratio;
mod rounds;
mod series;
mod summary;
mod worst;

pub use estimate::{Estimate, Why};
pub use figure::Figure;
pub use histogram::{Bucket, Histogram};
pub use interval::{CONFIDENCE, Interval, median, median_and_deviation, median_over_processes};
pub use line::{Line, Step, steps};
pub use misses::{Due, Misses};
pub use percentile::{BEYOND, Percentile};
pub use processes::MIN_PROCESSES;
pub use ratio::Ratio;
pub use rounds::Rounds;
pub use series::{MIN_VALUES, Shift, Trend};
pub use summary::Summary;
pub use worst::{Slow, WORST, Worst};

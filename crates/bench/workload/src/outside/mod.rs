//! Loads that need no GPU: CPUs (`hog`), memory bandwidth (`triad`), the scheduler (`hackbench`) and files (`file`). What they
//! did is counted, and is gone when they end, whatever ended them: files have no name, programs of others die with this process.

mod file;
mod hackbench;
mod hog;
mod triad;

pub(crate) use file::FILE;
pub(crate) use hackbench::HACKBENCH;
pub(crate) use hog::HOG;
pub(crate) use triad::TRIAD;

//! Loads that need no GPU: CPUs (`hog`), memory bandwidth (`triad`), the scheduler (`hackbench`) and files (`file`). Their work is counted, and
//! leaves no trace, however they end: files have no name, and other programs' processes die with this process.

mod file;
mod hackbench;
mod hog;
mod triad;

pub(crate) use file::FILE;
pub(crate) use hackbench::HACKBENCH;
pub(crate) use hog::HOG;
pub(crate) use triad::TRIAD;

//! The samples against the kernel driver's own interface, without libcuda.

use crate::{Error, Options, Report, Result};

pub(crate) fn run(name: &str, _options: &Options) -> Result<Report> {
    Err(Error::Unavailable { reason: format!("{name} has no variant without libcuda yet") })
}

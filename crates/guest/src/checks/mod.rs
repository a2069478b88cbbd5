//! The checks of each part, by name.

mod through;
mod without_iommu;

use crate::report;

/// Runs the part that the kernel's command line names.
pub fn run(line: &str) {
    let part = line.split_whitespace().find_map(|word| word.strip_prefix("part=")).unwrap_or_default();
    match part {
        "sysfs" => without_iommu::run(),
        other => report::line(&format!("not ok part there is no part {other:?}")),
    }
    report::line("end");
}

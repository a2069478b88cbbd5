//! The checks of each part, by name.

mod binding;
mod drivers;
mod faults;
mod killed;
mod many;
mod rights;
mod through;
mod used;
mod with_iommu;
mod without_iommu;

use crate::report::{self, Outcome};

/// Runs the part that the kernel's command line names.
pub fn run(line: &str) {
    let part = line.split_whitespace().find_map(|word| word.strip_prefix("part=")).unwrap_or_default();
    let done = match part {
        "sysfs" => without_iommu::run(),
        "kills" => without_iommu::kills(),
        "vfio" => with_iommu::run(),
        other => Err(format!("there is no part {other:?}").into()),
    };
    if let Err(why) = done {
        report::line(&format!("not ok part {why}"));
    }
    report::line("end");
}

/// Other modes of this program, for when the checks start it again.
pub fn child(words: &[String]) -> Outcome {
    killed::child(words)
}

//! Files that commands write.

use crate::failure::Failure;
use std::path::Path;
use terminal::foreign::plain;
use terminal::table::Style;

/// Refuses `-`, which is no file.
pub fn is_file(option: &str, path: &Path, hint: &str) -> Result<(), Failure> {
    if path.as_os_str() == "-" { Err(Failure::new(format!("{option} -: a file is needed"), hint)) } else { Ok(()) }
}

/// Prints the name of a file or a folder that was written: to standard error, for the output may go to a pipe.
pub fn tell_written(path: &Path) {
    say!("{} wrote {}", Style::of_stderr().bold("doorbell:"), plain(&path.display().to_string()));
}

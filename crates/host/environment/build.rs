//! The commit of this build, for result files: without it a figure cannot be measured again.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=DOORBELL_COMMIT");
    let commit = std::env::var("DOORBELL_COMMIT").ok().filter(|c| !c.is_empty()).or_else(of_the_checkout);
    println!("cargo::rustc-env=DOORBELL_COMMIT={}", commit.unwrap_or_default());
}

/// The commit's hash, with `-changed` at its end if files differ from the commit.
fn of_the_checkout() -> Option<String> {
    // The log of HEAD changes with every commit and checkout; the folder changes with every edit that may be uncommitted.
    println!("cargo::rerun-if-changed={}", git(&["rev-parse", "--git-path", "logs/HEAD"])?);
    println!("cargo::rerun-if-changed=..");
    let commit = git(&["rev-parse", "HEAD"])?;
    let changed = !git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    Some(if changed { format!("{commit}-changed") } else { commit })
}

fn git(arguments: &[&str]) -> Option<String> {
    let out = Command::new("git").args(arguments).output().ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).trim().to_string())
}

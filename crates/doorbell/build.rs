//! Builds the libraries that are preloaded into programs and hands them to the binary, which carries them inside itself:
//! they come along with `cargo run`, `cargo install` and a copied binary.
//!
//! They need a profile of their own (a panic in somebody else's process must abort, not unwind), which is why cargo is
//! called once more, into a target directory of its own.

use std::env;
use std::path::PathBuf;
use std::process::Command;

/// Package, file.
const LIBRARIES: [(&str, &str); 2] = [("agent", "libdoorbell_agent.so"), ("softgpu", "libdoorbell_softgpu.so")];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    // Asked for when it runs: a checkout may have moved, target folder and all, since this program was compiled.
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("../..");
    for c in ["agent", "locks", "softgpu", "tape", "rm", "trap", "pushbuf"] {
        println!("cargo::rerun-if-changed={}", root.join("crates").join(c).join("src").display());
        println!("cargo::rerun-if-changed={}", root.join("crates").join(c).join("Cargo.toml").display());
    }
    println!("cargo::rerun-if-changed={}", root.join("Cargo.toml").display());
    // <target>/<profile>/build/doorbell-<hash>/out
    let target = out.ancestors().nth(4).unwrap_or(&out).join("preload-libraries");
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(&root).args(["build", "--profile", "preload", "--target-dir"]).arg(&target);
    for (package, _) in LIBRARIES {
        cargo.args(["-p", package]);
    }
    // What the outer cargo tells its compiler (flags for coverage, clippy's wrapper) is not meant for these.
    for v in
        ["CARGO_ENCODED_RUSTFLAGS", "RUSTFLAGS", "RUSTC_WORKSPACE_WRAPPER", "CARGO_BUILD_TARGET", "CARGO_TARGET_DIR"]
    {
        cargo.env_remove(v);
    }
    match cargo.status() {
        Ok(s) if s.success() => {}
        Ok(s) => panic!("building the preloaded libraries failed ({s}); the errors are above"),
        Err(e) => panic!("cargo could not be started to build the preloaded libraries: {e}"),
    }
    for (_, file) in LIBRARIES {
        let from = target.join("preload").join(file);
        // Not over what is there: another target folder may share that file by a hard link.
        let _ = std::fs::remove_file(out.join(file));
        if let Err(e) = std::fs::copy(&from, out.join(file)) {
            panic!("{}: {e}", from.display());
        }
    }
}

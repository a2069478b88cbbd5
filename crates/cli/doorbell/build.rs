//! Builds the libraries that are preloaded into programs. The binary contains them, so they are part of `cargo run`,
//! `cargo install` and a copied binary. Those of the software GPU are compressed: few programs need them.
//!
//! They need a separate profile: a panic inside a program must abort, not unwind. So this script calls cargo again, with a
//! separate target directory.

use flate2::Compression;
use flate2::write::ZlibEncoder;
use std::collections::BTreeSet;
use std::env;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Package, file.
const LIBRARIES: [(&str, &str); 3] =
    [("agent", "libdoorbell_agent.so"), ("softgpu", "libdoorbell_softgpu.so"), ("softcuda", "libsoftcuda.so")];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if env::var("CARGO_CFG_TARGET_ARCH").as_deref() != Ok("x86_64") {
        return;
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    // Read at run time: the checkout and its target folder may have been moved since this program was compiled.
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("../../..");
    println!("cargo::rerun-if-changed={}", root.join("Cargo.toml").display());
    // <target>/<profile>/build/doorbell-<hash>/out
    let target = out.ancestors().nth(4).unwrap_or(&out).join("preload-libraries");
    // In separate builds: the software GPU's libraries need features with std, which the agent's libraries must not have.
    for (package, _) in LIBRARIES {
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.current_dir(&root).args(["build", "--profile", "preload", "-p", package, "--target-dir"]).arg(&target);
        // The software GPU is not timed.
        if package != "agent" {
            cargo.env("CARGO_PROFILE_PRELOAD_OPT_LEVEL", "s").env("CARGO_PROFILE_PRELOAD_LTO", "off");
        }
        // The outer cargo's settings for its compiler (flags for coverage, clippy's wrapper) are not meant for these
        // builds.
        for v in [
            "CARGO_ENCODED_RUSTFLAGS",
            "RUSTFLAGS",
            "RUSTC_WORKSPACE_WRAPPER",
            "CARGO_BUILD_TARGET",
            "CARGO_TARGET_DIR",
            "CARGO_PROFILE_RELEASE_DEBUG",
            "CARGO_PROFILE_RELEASE_STRIP",
        ] {
            cargo.env_remove(v);
        }
        match cargo.status() {
            Ok(s) if s.success() => {}
            Ok(s) => panic!("building the preloaded libraries failed ({s}); the errors are above"),
            Err(e) => panic!("cargo could not be started to build the preloaded libraries: {e}"),
        }
    }
    let mut manifests = BTreeSet::new();
    for (package, file) in LIBRARIES {
        let from = target.join("preload").join(file);
        for source in sources(&from.with_extension("d")) {
            println!("cargo::rerun-if-changed={}", source.display());
            manifests.extend(source.ancestors().map(|folder| folder.join("Cargo.toml")).find(|file| file.exists()));
        }
        // Removes the old file first: another target folder may share it by a hard link, and must keep its contents.
        let _ = std::fs::remove_file(out.join(file));
        let copied = match package {
            "agent" => std::fs::copy(&from, out.join(file)).map(drop),
            _ => std::fs::read(&from).and_then(|library| {
                let mut to = ZlibEncoder::new(Vec::new(), Compression::best());
                to.write_all(&library)?;
                std::fs::write(out.join(file).with_extension("so.zlib"), to.finish()?)
            }),
        };
        if let Err(e) = copied {
            panic!("{}: {e}", from.display());
        }
    }
    for manifest in manifests {
        println!("cargo::rerun-if-changed={}", manifest.display());
    }
}

/// The workspace's files that a library was built from, from the list that cargo wrote: `library: file file ..`, with a
/// backslash before a blank.
fn sources(list: &Path) -> Vec<PathBuf> {
    let text = std::fs::read_to_string(list).unwrap_or_else(|e| panic!("{}: {e}", list.display()));
    let files = text.split_once(": ").map_or("", |(_, files)| files).trim().replace("\\ ", "\0");
    files.split_whitespace().map(|file| PathBuf::from(file.replace('\0', " "))).collect()
}

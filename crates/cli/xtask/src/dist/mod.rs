//! Packages of a release: a tar, a wheel and a deb with the same binaries, their debug symbols, licences, parts and checksums.
//!
//! The same binaries and the same commit give the same bytes.

mod binaries;
mod deb;
mod dependencies;
mod files;
mod licences;
#[cfg(test)]
mod packages;
mod sbom;
mod symbols;
mod wheel;

use anyhow::{Context, bail};
pub use dependencies::Workspace;
use files::Files;
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The library name that programs link to, `libdoorbell.so.INTERFACE`: the library's major version, and before 1.0 also the
/// minor one.
fn interface() -> &'static str {
    let text = include_str!("../../../../gpu/libdoorbell/Cargo.toml");
    let version =
        text.lines().find_map(|line| line.strip_prefix("version = \"")?.strip_suffix('"')).unwrap_or_default();
    let (major, _) = version.split_once('.').unwrap_or((version, ""));
    if major == "0" { version.rsplit_once('.').map_or(version, |(interface, _)| interface) } else { major }
}
const SUMMARY: &str = "Record every command that a CUDA program sends to its GPU, explain its delays, and remove them";

/// Make the packages of a release: a tar, a wheel, a deb, debug symbols, their checksums
///
/// The binaries are linked for glibc 2.28 by cargo-zigbuild. If it is missing, it is installed from PyPI into the target folder.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where the packages are written [default: dist/packages in the target folder]
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Build nothing: take doorbell, libdoorbell.so and libdoorbell.a from this folder
    #[arg(long, value_name = "DIR")]
    from: Option<PathBuf>,
}

impl Args {
    pub fn run(self) -> anyhow::Result<()> {
        let workspace = Workspace::read()?;
        let tools = binaries::Tools::new(&workspace);
        let from = match self.from {
            Some(folder) => folder.canonicalize().with_context(|| format!("--from {}", folder.display()))?,
            None => binaries::build(&workspace, &tools)?,
        };
        check(&from)?;
        let parts = workspace.shipped()?;
        let release = Release {
            when: commit_time(&workspace.root)?,
            licences: licences::text(&workspace, &parts, &tools)?,
            sbom: sbom::json(&workspace, &parts)?,
        };
        let prefix = prefix(&workspace, &from)?;
        let named = format!("doorbell-{VERSION}-x86_64-linux");
        let mut packages = vec![
            (
                format!("{named}.tar.gz"),
                files::gzip(&release.documents(&prefix, &workspace.root)?.tar(&named, release.when)?)?,
            ),
            wheel::wheel(&workspace.root, &prefix, &release)?,
            deb::deb(&workspace.root, &prefix, &release)?,
            (format!("doorbell-{VERSION}.cdx.json"), release.sbom.clone()),
        ];
        let debug = debug(&from)?;
        if debug.iter().next().is_some() {
            packages.push((format!("{named}-debug.tar.gz"), files::gzip(&debug.tar(&named, release.when)?)?));
        }
        let out = self.out.unwrap_or_else(|| workspace.target.join("dist/packages"));
        write(&out, &packages)
    }
}

/// The contents of each package other than the files of the prefix.
struct Release {
    /// Seconds since 1970: the time of all files.
    when: u64,
    licences: Vec<u8>,
    sbom: Vec<u8>,
}

impl Release {
    /// The prefix, and its documents in share/doc.
    fn documents(&self, prefix: &Files, root: &Path) -> anyhow::Result<Files> {
        let mut files = prefix.clone();
        let documents = "share/doc/doorbell";
        for name in ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"] {
            files.add(format!("{documents}/{name}"), read(&root.join(name))?);
        }
        files.add(format!("{documents}/{}", licences::NAME), self.licences.clone());
        files.add(format!("{documents}/{}", sbom::NAME), self.sbom.clone());
        Ok(files)
    }
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("{}", path.display()))
}

/// The standard output of `command`. Its errors are written to this program's standard error.
pub fn output(command: &mut Command) -> anyhow::Result<Vec<u8>> {
    let out = command.stderr(Stdio::inherit()).output().with_context(|| format!("{command:?}"))?;
    if !out.status.success() {
        bail!("{command:?}: {}", out.status);
    }
    Ok(out.stdout)
}

/// Libraries that the command contains: the agent, and the GPU and libcuda in software.
const CARRIED: usize = 3;

fn check(from: &Path) -> anyhow::Result<()> {
    let mut wrong = Vec::new();
    for (name, carried) in [("doorbell", CARRIED), ("libdoorbell.so", 0)] {
        wrong.extend(symbols::wrong(name, &read(&from.join(name))?, carried)?);
    }
    if !wrong.is_empty() {
        bail!("what is linked cannot be loaded with glibc {}:\n  {}", symbols::newest(), wrong.join("\n  "));
    }
    Ok(())
}

/// The commit's time, or SOURCE_DATE_EPOCH.
fn commit_time(root: &Path) -> anyhow::Result<u64> {
    let text = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text,
        Err(_) => {
            String::from_utf8(output(Command::new("git").arg("-C").arg(root).args(["log", "-1", "--format=%ct"]))?)?
        }
    };
    text.trim().parse().with_context(|| format!("SOURCE_DATE_EPOCH: {text:?} is not a number of seconds"))
}

/// The files that are installed into a prefix: the command with its pages and completions, and libdoorbell's files as
/// install.sh installs them.
fn prefix(workspace: &Workspace, from: &Path) -> anyhow::Result<Files> {
    let staging = workspace.target.join("dist/prefix");
    if staging.exists() {
        fs::remove_dir_all(&staging).with_context(|| format!("{}", staging.display()))?;
    }
    let installer = workspace.root.join("crates/gpu/libdoorbell/install.sh");
    output(Command::new("sh").arg(&installer).arg("--prefix").arg(&staging).arg("--from").arg(from))?;
    let command = from.join("doorbell");
    output(Command::new(&command).args(["man", "-o"]).arg(staging.join("share/man/man1")))?;
    let mut files = Files::read(&staging)?;
    files.add_program("bin/doorbell", read(&command)?);
    for (shell, path) in [
        ("bash", "share/bash-completion/completions/doorbell"),
        ("zsh", "share/zsh/site-functions/_doorbell"),
        ("fish", "share/fish/vendor_completions.d/doorbell.fish"),
    ] {
        files.add(path, output(Command::new(&command).args(["completions", shell]))?);
    }
    Ok(files)
}

/// Debug symbols, for the folder of the tar: debuggers and backtraces look for them next to the file that they belong to.
fn debug(from: &Path) -> anyhow::Result<Files> {
    let mut files = Files::default();
    for (name, place) in binaries::LINKED {
        let path = from.join(format!("{name}.debug"));
        if path.exists() {
            files.add(format!("{place}.debug"), read(&path)?);
        }
    }
    Ok(files)
}

fn write(out: &Path, packages: &[(String, Vec<u8>)]) -> anyhow::Result<()> {
    fs::create_dir_all(out).with_context(|| format!("{}", out.display()))?;
    let mut sums = String::new();
    for (name, bytes) in packages {
        let path = out.join(name);
        fs::write(&path, bytes).with_context(|| format!("{}", path.display()))?;
        sums += &format!("{:x}  {name}\n", Sha256::digest(bytes));
        println!("{:>10}  {}", bytes.len(), path.display());
    }
    let path = out.join("SHA256SUMS");
    fs::write(&path, sums).with_context(|| format!("{}", path.display()))
}

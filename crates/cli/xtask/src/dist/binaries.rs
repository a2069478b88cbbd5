//! The binaries of a release, linked for an old glibc by zig, which has the stubs of every version.

use super::dependencies::{TARGET, Workspace};
use super::symbols;
use anyhow::{Context, bail};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// With exact versions, because the linker's version changes the bytes.
const TOOLS: [&str; 2] = ["cargo-zigbuild==0.24.1", "ziglang==0.17.1"];

/// cargo-zigbuild and zig, in a virtual environment in the target folder.
pub struct Tools {
    folder: PathBuf,
}

impl Tools {
    pub fn new(workspace: &Workspace) -> Tools {
        Tools { folder: workspace.target.join("dist/tools") }
    }

    fn install(&self) -> anyhow::Result<PathBuf> {
        let programs = self.folder.join("bin");
        if !programs.join("cargo-zigbuild").exists() {
            let hint = "install python3 with its modules venv and pip, and let it reach PyPI";
            run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&self.folder)).context(hint)?;
            run(Command::new(programs.join("python3")).args(["-m", "pip", "install", "--quiet"]).args(TOOLS))
                .context(hint)?;
        }
        Ok(programs)
    }

    /// The folder of zig's own files, some of which it links into its output.
    pub fn zig(&self) -> Option<PathBuf> {
        let versions = self.folder.join("lib").read_dir().ok()?;
        let zig = versions.filter_map(|entry| Some(entry.ok()?.path().join("site-packages/ziglang")));
        zig.into_iter().find(|folder| folder.exists())
    }
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(())
}

/// The linked files, and their places in a prefix.
pub const LINKED: [(&str, &str); 2] = [("doorbell", "bin/doorbell"), ("libdoorbell.so", "lib/libdoorbell.so")];

/// Builds the command and both libraries. Returns their folder, which also has their debug symbols (`NAME.debug`).
pub fn build(workspace: &Workspace, tools: &Tools) -> anyhow::Result<PathBuf> {
    let programs = tools.install()?;
    let target = workspace.target.join("dist/build");
    let mut path = programs.as_os_str().to_owned();
    path.push(":");
    path.push(env::var_os("PATH").unwrap_or_default());
    let builds: [&[&str]; 2] =
        [&["rustc", "-p", "libdoorbell", "--crate-type", "staticlib"], &["build", "-p", "doorbell"]];
    for arguments in builds {
        let mut cargo = Command::new(programs.join("cargo-zigbuild"));
        cargo.current_dir(&workspace.root).env("PATH", &path).env("RUSTFLAGS", remap(&workspace.root));
        cargo.env("CARGO_INCREMENTAL", "0");
        cargo.env("CARGO_PROFILE_RELEASE_DEBUG", "line-tables-only").env("CARGO_PROFILE_RELEASE_STRIP", "none");
        let (subcommand, rest) = arguments.split_first().unwrap_or((&"build", &[]));
        cargo.args([subcommand, "--release", "--locked", "--target"]).arg(format!("{TARGET}.{}", symbols::newest()));
        run(cargo.arg("--target-dir").arg(&target).args(rest))?;
    }
    let linked = target.join(TARGET).join("release");
    let zig =
        format!("{} -m ziglang cc -target x86_64-linux-gnu.{}", programs.join("python3").display(), symbols::newest());
    run(Command::new("sh").arg(workspace.root.join("crates/gpu/libdoorbell/link.sh")).arg(&linked).env("CC", zig))?;
    let shipped = target.join("shipped");
    let _ = fs::remove_dir_all(&shipped);
    fs::create_dir_all(&shipped).with_context(|| format!("{}", shipped.display()))?;
    run(objcopy("--strip-debug").arg(linked.join("libdoorbell.a")).arg(shipped.join("libdoorbell.a")))?;
    for (name, _) in LINKED {
        // Runs in the folder, because the stripped file stores the name as it was given.
        let debug = format!("{name}.debug");
        run(objcopy("--only-keep-debug").arg(linked.join(name)).arg(shipped.join(&debug)))?;
        let link = format!("--add-gnu-debuglink={debug}");
        run(objcopy("--strip-all").current_dir(&shipped).arg(link).arg(linked.join(name)).arg(name))?;
    }
    Ok(shipped)
}

/// Binutils' objcopy, because zig's has fewer options.
fn objcopy(option: &str) -> Command {
    let mut command = Command::new("objcopy");
    command.arg(option);
    command
}

/// Messages and debug symbols name source files. Their paths differ from machine to machine.
fn remap(root: &Path) -> String {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(Path::new(&env::var_os("HOME")?).join(".cargo"))).unwrap_or_default();
    format!(
        "--remap-path-prefix={}=crates.io --remap-path-prefix={}=.",
        home.join("registry/src").display(),
        root.display()
    )
}

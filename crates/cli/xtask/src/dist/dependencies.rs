//! The crates that are in the binaries, as cargo resolved them.

use super::output;
use anyhow::Context;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Crates of this workspace whose binaries are shipped. Their dependencies are shipped, too.
const SHIPPED: [&str; 4] = ["agent", "doorbell", "libdoorbell", "softgpu"];
pub const TARGET: &str = "x86_64-unknown-linux-gnu";

pub struct Workspace {
    pub root: PathBuf,
    pub target: PathBuf,
    pub metadata: Value,
}

/// A crate of a registry.
pub struct Part {
    pub name: String,
    pub version: String,
    /// In SPDX syntax.
    pub licence: String,
    /// Its sources.
    pub folder: PathBuf,
    /// The registry's checksum.
    pub checksum: String,
    /// Its dependencies, as `name@version`.
    pub uses: Vec<String>,
}

impl Part {
    pub fn id(&self) -> String {
        format!("{}@{}", self.name, self.version)
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or("")
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

impl Workspace {
    /// With the packages of registries.
    pub fn read() -> anyhow::Result<Workspace> {
        Workspace::with(&["--locked", "--filter-platform", TARGET])
    }

    /// What `cargo metadata` prints with these options.
    pub fn with(options: &[&str]) -> anyhow::Result<Workspace> {
        let mut cargo = cargo();
        cargo.args(["metadata", "--format-version", "1"]).args(options).current_dir(env!("CARGO_MANIFEST_DIR"));
        let metadata: Value = serde_json::from_slice(&output(&mut cargo)?).context("cargo metadata")?;
        let folder = |key| PathBuf::from(text(&metadata, key));
        Ok(Workspace { root: folder("workspace_root"), target: folder("target_directory"), metadata })
    }

    /// The packages that are linked: without build scripts, macros and dependencies of tests.
    pub fn shipped(&self) -> anyhow::Result<Vec<Part>> {
        let linked = self.linked()?;
        let packages: BTreeMap<&str, &Value> = list(&self.metadata["packages"]).map(|p| (text(p, "id"), p)).collect();
        let id_of = |id: &str| format!("{}@{}", text(packages[id], "name"), text(packages[id], "version"));
        let checksums = self.checksums()?;
        let mut parts = Vec::new();
        for node in list(&self.metadata["resolve"]["nodes"]) {
            let (package, id) = (packages[text(node, "id")], id_of(text(node, "id")));
            if package["source"].is_null() || !linked.contains(&id) {
                continue;
            }
            parts.push(Part {
                name: text(package, "name").to_owned(),
                version: text(package, "version").to_owned(),
                licence: text(package, "license").replace(" / ", " OR ").replace('/', " OR "),
                folder: Path::new(text(package, "manifest_path")).with_file_name(""),
                checksum: checksums.get(&id).cloned().unwrap_or_default(),
                uses: list(&node["deps"]).map(|one| id_of(text(one, "pkg"))).filter(|id| linked.contains(id)).collect(),
            });
        }
        parts.sort_by_key(Part::id);
        Ok(parts)
    }

    /// Each as `name@version`. The metadata also have packages that only an unused feature would link.
    fn linked(&self) -> anyhow::Result<BTreeSet<String>> {
        let mut tree = cargo();
        tree.current_dir(&self.root).args(["tree", "--locked", "--target", TARGET, "--edges", "normal,no-proc-macro"]);
        tree.args(["--prefix", "none", "--no-dedupe", "--format", "{p}"]);
        tree.args(SHIPPED.iter().flat_map(|name| ["--package", name]));
        let text = String::from_utf8(output(&mut tree)?).context("cargo tree")?;
        let id = |line: &str| {
            let mut words = line.split(' ');
            Some(format!("{}@{}", words.next()?, words.next()?.strip_prefix('v')?))
        };
        Ok(text.lines().filter_map(id).collect())
    }

    fn checksums(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let path = self.root.join("Cargo.lock");
        let lock: toml::Table =
            String::from_utf8(super::read(&path)?)?.parse().with_context(|| format!("{}", path.display()))?;
        let packages = lock.get("package").and_then(|p| p.as_array()).into_iter().flatten();
        let of = |package: &toml::Value, key: &str| Some(package.get(key)?.as_str()?.to_owned());
        Ok(packages
            .filter_map(|p| Some((format!("{}@{}", of(p, "name")?, of(p, "version")?), of(p, "checksum")?)))
            .collect())
    }
}

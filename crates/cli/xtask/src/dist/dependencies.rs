//! The crates that are in the binaries, as cargo resolved them.

use super::output;
use anyhow::Context;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Crates of this workspace that are linked into what is shipped. Their dependencies are, too.
const SHIPPED: [&str; 4] = ["agent", "doorbell", "libdoorbell", "softgpu"];
pub const TARGET: &str = "x86_64-unknown-linux-gnu";

pub struct Workspace {
    pub root: PathBuf,
    pub target: PathBuf,
    metadata: Value,
}

/// A crate of a registry.
pub struct Part {
    pub name: String,
    pub version: String,
    /// As SPDX writes it.
    pub licence: String,
    /// Its sources.
    pub folder: PathBuf,
    /// Its registry's.
    pub checksum: String,
    /// Others, as `name@version`.
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

impl Workspace {
    pub fn read() -> anyhow::Result<Workspace> {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["metadata", "--locked", "--format-version", "1", "--filter-platform", TARGET]);
        let metadata: Value = serde_json::from_slice(&output(&mut cargo)?).context("cargo metadata")?;
        let folder = |key| PathBuf::from(text(&metadata, key));
        Ok(Workspace { root: folder("workspace_root"), target: folder("target_directory"), metadata })
    }

    /// What is linked: without build scripts, macros and what only tests use.
    pub fn shipped(&self) -> anyhow::Result<Vec<Part>> {
        let packages: BTreeMap<&str, &Value> = list(&self.metadata["packages"]).map(|p| (text(p, "id"), p)).collect();
        let nodes: BTreeMap<&str, &Value> =
            list(&self.metadata["resolve"]["nodes"]).map(|n| (text(n, "id"), n)).collect();
        let is_macro = |id: &str| {
            list(&packages[id]["targets"]).any(|target| list(&target["kind"]).any(|kind| kind == "proc-macro"))
        };
        let linked = |id: &str| -> Vec<&str> {
            list(&nodes[id]["deps"])
                .filter(|one| list(&one["dep_kinds"]).any(|kind| kind["kind"].is_null()))
                .map(|one| text(one, "pkg"))
                .filter(|id| !is_macro(id))
                .collect()
        };
        let is_ours = |id: &str| packages[id]["source"].is_null();
        let mut found = BTreeMap::new();
        let mut next: Vec<&str> = packages
            .keys()
            .copied()
            .filter(|id| is_ours(id) && SHIPPED.contains(&text(packages[id], "name")))
            .collect();
        while let Some(id) = next.pop() {
            if !found.contains_key(id) {
                let uses = linked(id);
                next.extend(&uses);
                found.insert(id, uses);
            }
        }
        let checksums = self.checksums()?;
        let id_of = |id: &str| format!("{}@{}", text(packages[id], "name"), text(packages[id], "version"));
        let mut parts = Vec::new();
        for (id, uses) in found.iter().filter(|(id, _)| !is_ours(id)) {
            let package = packages[id];
            parts.push(Part {
                name: text(package, "name").to_owned(),
                version: text(package, "version").to_owned(),
                licence: text(package, "license").replace(" / ", " OR ").replace('/', " OR "),
                folder: Path::new(text(package, "manifest_path")).with_file_name(""),
                checksum: checksums.get(&id_of(id)).cloned().unwrap_or_default(),
                uses: uses.iter().map(|id| id_of(id)).collect(),
            });
        }
        parts.sort_by_key(Part::id);
        Ok(parts)
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

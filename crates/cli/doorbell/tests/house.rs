//! The order of the folders, and the README of each.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A crate uses only crates of its own folder and of earlier ones.
const FOLDERS: [&str; 10] = ["wire", "host", "record", "explain", "gpu", "devices", "bench", "show", "testing", "cli"];

/// What recorded programs and programs with libdoorbell run. The drivers of devices and the laboratory are above it.
const PRODUCT: [&str; 5] = ["wire", "host", "record", "explain", "gpu"];

/// Maximum number of lines of a folder's README.
const README: usize = 25;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

struct Package {
    name: String,
    /// From the root: `crates/wire/rm`.
    path: PathBuf,
    /// Normal and build dependencies within the workspace.
    uses: Vec<String>,
}

impl Package {
    fn folder(&self) -> &str {
        self.path.iter().nth(1).and_then(|name| name.to_str()).unwrap_or("")
    }
}

fn packages() -> BTreeMap<String, Package> {
    let out = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let metadata: Value = serde_json::from_slice(&out.stdout).unwrap();
    let root = Path::new(metadata["workspace_root"].as_str().unwrap());
    let list = |value: &Value| value.as_array().unwrap().clone();
    list(&metadata["packages"])
        .iter()
        .map(|package| {
            let manifest = Path::new(package["manifest_path"].as_str().unwrap());
            let ours = |one: &&Value| one["path"].is_string() && one["kind"].as_str() != Some("dev");
            let name = package["name"].as_str().unwrap().to_owned();
            let package = Package {
                name: name.clone(),
                path: manifest.parent().unwrap().strip_prefix(root).unwrap().to_owned(),
                uses: list(&package["dependencies"])
                    .iter()
                    .filter(ours)
                    .map(|one| one["name"].as_str().unwrap().to_owned())
                    .collect(),
            };
            (name, package)
        })
        .collect()
}

/// These packages, and all of the workspace that a build of them compiles.
fn compiled<'p>(packages: &'p BTreeMap<String, Package>, roots: &[&'p str]) -> BTreeSet<&'p str> {
    let mut all = BTreeSet::new();
    let mut next = roots.to_vec();
    while let Some(name) = next.pop() {
        if all.insert(name) {
            next.extend(packages[name].uses.iter().map(String::as_str));
        }
    }
    all
}

/// `--help` and the manual page take it from the package.
#[test]
fn one_tagline_everywhere() {
    let tagline = env!("CARGO_PKG_DESCRIPTION");
    assert!(tagline.len() <= 100, "{} characters", tagline.len());
    for file in ["crates/cli/xtask/src/dist/mod.rs", "python/pyproject.toml", "site/mkdocs.yml"] {
        assert!(fs::read_to_string(root().join(file)).unwrap().contains(tagline), "{file}: not the tagline");
    }
}

#[test]
fn dependencies_between_folders_point_down() {
    let packages = packages();
    let floor = |package: &Package| {
        let folder = package.folder();
        FOLDERS.iter().position(|f| *f == folder).unwrap_or_else(|| panic!("{}: no floor for {folder}", package.name))
    };
    let mut wrong = Vec::new();
    for package in packages.values() {
        for used in &package.uses {
            if floor(&packages[used]) > floor(package) {
                wrong.push(format!(
                    "{} uses {}, which is above it",
                    package.path.display(),
                    packages[used].path.display()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let there: BTreeSet<String> = fs::read_dir(root().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.starts_with('.'))
        .collect();
    assert_eq!(there, FOLDERS.iter().map(|f| f.to_string()).collect(), "folders of crates");
}

/// The order of the folders alone would let devices use channels, or a part of the product move up.
#[test]
fn the_product_stands_alone_and_devices_apart() {
    let packages = packages();
    assert_eq!(PRODUCT, FOLDERS[..PRODUCT.len()], "the product is below everything else");
    let of = |name: &str| packages[name].folder();
    let devices = packages.values().filter(|package| package.folder() == "devices");
    for (device, used) in devices.flat_map(|device| device.uses.iter().map(move |used| (&device.name, used))) {
        assert!(["wire", "host", "devices"].contains(&of(used)), "{device} uses {used} of crates/{}", of(used));
    }
    let compiled = compiled(&packages, &["libdoorbell", "agent"]);
    assert!(compiled.contains("submit") && compiled.contains("tape"), "{compiled:?}");
    for name in compiled {
        assert!(PRODUCT.contains(&of(name)), "libdoorbell or the agent needs {name} of crates/{}", of(name));
    }
}

#[test]
fn every_folder_says_what_is_in_it() {
    let packages = packages();
    for folder in FOLDERS {
        let path = root().join("crates").join(folder).join("README.md");
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert!(text.lines().count() <= README, "{}: more than {README} lines", path.display());
        for package in packages.values().filter(|p| p.folder() == folder) {
            let name = package.path.file_name().unwrap().to_str().unwrap();
            assert!(text.contains(&format!("`{name}`")), "{} does not name {name}", path.display());
        }
    }
}

/// The text in backticks, each with what stands between it and the one before.
fn quoted(text: &str) -> Vec<(String, String)> {
    let parts: Vec<&str> = text.split('`').collect();
    parts
        .chunks(2)
        .filter(|pair| pair.len() == 2)
        .map(|pair| (pair[0].to_owned(), pair[1].replace('\n', " ")))
        .collect()
}

/// ``NAME in `PATH` `` and `` `PATH`: `NAME` `` are true, and each path exists, from the root, from `crates`, or from where the path before it is.
#[test]
fn paths_and_names_in_the_developers_pages_exist() {
    let folders = FOLDERS.iter().map(|folder| format!("crates/{folder}/README.md"));
    let (mut paths, mut names) = (0, 0);
    let mut wrong = Vec::new();
    for page in ["ARCHITECTURE.md".to_owned(), "CONTRIBUTING.md".to_owned()].into_iter().chain(folders) {
        let text = fs::read_to_string(root().join(&page)).unwrap();
        let own = root().join(&page).parent().unwrap().to_owned();
        for paragraph in text.split("\n\n").flat_map(|paragraph| paragraph.split("\n- ")) {
            let mut last: Option<PathBuf> = None;
            let quoted = quoted(paragraph);
            let is_path = |word: &str| {
                !word.contains([' ', '*']) && (word.contains('/') && !word.starts_with('/') || word.ends_with(".rs"))
            };
            let mut found = Vec::new();
            for (_, word) in &quoted {
                let from = |folder: &Path| Some(folder.join(word)).filter(|path| path.exists());
                let path = is_path(word).then(|| {
                    let beside = last.as_ref().and_then(|last| from(last.parent().unwrap()));
                    beside.or_else(|| from(&root().join("crates"))).or_else(|| from(&own)).or_else(|| from(&root()))
                });
                if let Some(path) = &path {
                    paths += 1;
                    if path.is_none() {
                        wrong.push(format!("{page}: no {word}"));
                    }
                    last = path.clone().or(last);
                }
                found.push(path.flatten());
            }
            for (at, (between, word)) in quoted.iter().enumerate().skip(1) {
                let before = &quoted[at - 1].1;
                let (name, path) = match between.trim() {
                    "in" if found[at - 1].is_none() => (before, &found[at]),
                    ":" if found[at].is_none() => (word, &found[at - 1]),
                    _ => continue,
                };
                let Some(path) = path.as_ref().filter(|path| path.is_file()) else { continue };
                names += 1;
                let code = fs::read_to_string(path).unwrap();
                let name = name.split('(').next().unwrap().rsplit("::").next().unwrap();
                if !code.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name) {
                    wrong.push(format!("{page}: no {name} in {}", path.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(paths > 80 && names > 3, "{paths} paths, {names} names");
}

/// Third-party crates of a package, each with the features that it is built with.
fn third_party(package: &str) -> BTreeSet<String> {
    let out = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--offline",
            "--edges",
            "normal,build",
            "--prefix",
            "none",
            "--no-dedupe",
            "--format",
            "{p} {f}",
        ])
        .args(["--package", package])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).unwrap();
    // Packages of the workspace have a path.
    text.lines().filter(|line| !line.is_empty() && !line.contains("(/")).map(str::to_owned).collect()
}

/// After a build of the command, the build of one crate does not build third-party crates again.
#[test]
#[ignore = "6 s; run by .ci/run"]
fn one_crate_takes_third_party_crates_as_the_command_has_them() {
    // The program that makes the packages is not part of the command; what the carried libraries consist of is built with no more than it needs
    // (their tests have `third-party`).
    let apart = ["xtask", "agent", "softgpu", "softcuda", "gpu", "cuda-graph", "pushbuf", "rm"];
    let command = third_party("doorbell");
    let again: Vec<String> = packages()
        .into_keys()
        .filter(|name| !apart.contains(&name.as_str()))
        .flat_map(|name| {
            third_party(&name).difference(&command).map(|one| format!("{name}: {one}")).collect::<Vec<_>>()
        })
        .collect();
    assert!(again.is_empty(), "let them depend on `third-party`, or add the features there:\n{}", again.join("\n"));
}

/// Pages say which driver branches there are.
#[test]
fn pages_name_the_driver_branches() {
    let [oldest, .., newest] = &rm::abi::BRANCHES;
    let all = format!("{} to {}", oldest.number, newest.number);
    for page in ["README.md", "docs/how-it-works/recording.md"] {
        assert!(fs::read_to_string(root().join(page)).unwrap().contains(&all), "{page} does not say `{all}`");
    }
    let unverified = rm::abi::BRANCHES.iter().filter(|b| b.source == rm::abi::Source::Unverified);
    let text = unverified.map(|b| b.number.to_string()).collect::<Vec<_>>().join(", ");
    let page = fs::read_to_string(root().join("docs/how-it-works/recording.md")).unwrap();
    assert!(page.contains(&format!("| {text}: no published headers")), "recording.md's table does not say `{text}`");
}

/// Cargo builds the command again when a file of a library inside it has changed.
#[test]
fn a_change_of_a_carried_library_changes_the_command() {
    let packages = packages();
    let carried = compiled(&packages, &["agent", "softgpu"]);
    assert!(carried.contains("locks") && carried.contains("tape"), "{carried:?}");
    // The latest output of the build script.
    let target = Path::new(env!("CARGO_BIN_EXE_doorbell")).parent().unwrap().join("build");
    let said = fs::read_dir(&target)
        .unwrap()
        .map(|entry| entry.unwrap().path().join("output"))
        .filter(|file| file.to_str().is_some_and(|file| file.contains("/doorbell-")))
        .filter_map(|file| Some((fs::metadata(&file).ok()?.modified().ok()?, file)))
        .max()
        .map(|(_, file)| fs::read_to_string(file).unwrap())
        .expect("no output of the build script");
    let watched: BTreeSet<PathBuf> = said
        .lines()
        .filter_map(|line| line.strip_prefix("cargo::rerun-if-changed="))
        .filter_map(|file| fs::canonicalize(file).ok())
        .collect();
    // (`third-party` is with features that they do not have.)
    for name in carried.into_iter().filter(|name| *name != "third-party") {
        let package = root().join(&packages[name].path);
        for file in ["Cargo.toml", "src/lib.rs"] {
            let file = fs::canonicalize(package.join(file)).unwrap();
            assert!(watched.contains(&file), "a change of {} would not be seen", file.display());
        }
    }
}

//! Packages of a small prefix, read by the programs that install them.

use super::*;
use files::Entry;
use std::io::{Cursor, Read};
use zip::ZipArchive;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

fn small() -> Files {
    let mut files = Files::default();
    files.add_program("bin/doorbell", b"#!/bin/sh\n".to_vec());
    files.add("include/doorbell.h", vec![]);
    files.add_program("lib/libdoorbell.so.0.1.0", b"library".to_vec());
    files.insert("lib/libdoorbell.so.0", Entry::Link("libdoorbell.so.0.1.0".into()));
    files.insert("lib/libdoorbell.so", Entry::Link("libdoorbell.so.0".into()));
    files.add("lib/pkgconfig/doorbell.pc", read(&root().join("crates/gpu/libdoorbell/doorbell.pc.in")).unwrap());
    files.add("share/doorbell/python/doorbell/__init__.py", b"here = 1\n".to_vec());
    files.insert("share/doorbell/python/doorbell/libdoorbell.so", Entry::Link("../../../../lib/libdoorbell.so".into()));
    files.add("share/man/man1/doorbell.1", b".TH doorbell 1\n".to_vec());
    files.add("share/zsh/site-functions/_doorbell", vec![]);
    files
}

fn release() -> Release {
    Release { when: 1_700_000_000, licences: b"all of them\n".to_vec(), sbom: b"{}\n".to_vec() }
}

fn listed(bytes: &[u8], name: &str, command: &mut Command) -> String {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(name), bytes).unwrap();
    let out = command.arg(name).current_dir(folder.path()).output().unwrap();
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

#[test]
fn a_tar_has_folders_programs_and_links() {
    let tar = small().tar("doorbell-0", 1_700_000_000).unwrap();
    let again = small().tar("doorbell-0", 1_700_000_000).unwrap();
    assert!(tar == again, "other bytes");
    let list =
        listed(&files::gzip(&tar).unwrap(), "a.tar.gz", Command::new("tar").args(["--utc", "--full-time", "-tvzf"]));
    for line in [
        "drwxr-xr-x 0/0               0 2023-11-14 22:13:20 doorbell-0/bin/",
        "-rwxr-xr-x 0/0              10 2023-11-14 22:13:20 doorbell-0/bin/doorbell",
        "lrwxrwxrwx 0/0               0 2023-11-14 22:13:20 doorbell-0/lib/libdoorbell.so -> libdoorbell.so.0",
    ] {
        assert!(list.lines().any(|l| l == line), "{line}\n{list}");
    }
}

#[test]
fn a_wheel_lists_what_is_in_it() {
    let (name, bytes) = wheel::wheel(&root(), &small(), &release()).unwrap();
    assert!(bytes == wheel::wheel(&root(), &small(), &release()).unwrap().1, "other bytes");
    assert_eq!(name, format!("doorbell_gpu-{VERSION}-py3-none-manylinux_2_28_x86_64.whl"));
    let mut zip = ZipArchive::new(Cursor::new(bytes)).unwrap();
    let names: Vec<String> = zip.file_names().map(|name| name.unwrap().into_owned()).collect();
    let mut text = |name: String| {
        let mut text = String::new();
        zip.by_name(&name).unwrap().read_to_string(&mut text).unwrap();
        text
    };
    let record = text(format!("doorbell_gpu-{VERSION}.dist-info/RECORD"));
    let recorded: Vec<&str> = record.lines().filter_map(|line| line.split(',').next()).collect();
    assert_eq!(recorded.len(), names.len());
    assert!(names.iter().all(|name| recorded.contains(&name.as_str())), "{names:?} {record}");
    // The output of `openssl dgst -sha256` for "library".
    let line = "doorbell/libdoorbell.so,sha256=txjxNU9yRzEuyghtmgJK_l-nF93qWt7d1vErz5RbLow,7";
    assert!(record.lines().any(|l| l == line), "{line}\n{record}");
    assert!(recorded.contains(&format!("doorbell_gpu-{VERSION}.data/scripts/doorbell").as_str()));
    let metadata = text(format!("doorbell_gpu-{VERSION}.dist-info/METADATA"));
    let project = fs::read_to_string(root().join("python/pyproject.toml")).unwrap();
    for (here, there) in
        [("Name: ", "name = "), ("Version: ", "version = "), ("Requires-Python: ", "requires-python = ")]
    {
        let value = metadata.lines().find_map(|line| line.strip_prefix(here)).unwrap();
        assert!(project.contains(&format!("{there}\"{value}\"")), "python/pyproject.toml has not {value}");
    }
    let extra =
        metadata.lines().filter_map(|line| line.strip_prefix("Requires-Dist: ")?.strip_suffix("; extra == \"fleet\""));
    let extra: Vec<String> = extra.map(|package| format!("\"{package}\"")).collect();
    assert!(project.contains(&format!("\nfleet = [{}]\n", extra.join(", "))), "{extra:?}");
}

#[test]
fn a_deb_is_one_for_dpkg() {
    let (name, bytes) = deb::deb(&root(), &small(), &release()).unwrap();
    assert!(bytes == deb::deb(&root(), &small(), &release()).unwrap().1, "other bytes");
    if !test_support::installed("dpkg-deb") {
        test_support::skip!("no dpkg-deb");
    }
    let control = listed(&bytes, &name, Command::new("dpkg-deb").arg("-f"));
    assert!(control.contains("Package: doorbell\n") && control.contains("Depends: libc6 (>= 2.28)\n"), "{control}");
    let list = listed(&bytes, &name, Command::new("dpkg-deb").arg("-c"));
    let has = |end: &str| assert!(list.lines().any(|line| line.ends_with(end)), "{end}\n{list}");
    has(" usr/bin/doorbell");
    has(" usr/lib/x86_64-linux-gnu/libdoorbell.so -> libdoorbell.so.0");
    has(" usr/lib/python3/dist-packages/doorbell/libdoorbell.so -> ../../../x86_64-linux-gnu/libdoorbell.so");
    has(" usr/share/man/man1/doorbell.1.gz");
    has(" usr/share/doc/doorbell/copyright");
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(&name), &bytes).unwrap();
    output(Command::new("dpkg-deb").arg("-x").arg(&name).arg("x").current_dir(folder.path())).unwrap();
    let pc = fs::read_to_string(folder.path().join("x/usr/lib/x86_64-linux-gnu/pkgconfig/doorbell.pc")).unwrap();
    assert!(pc.starts_with("prefix=/usr\nlibdir=${prefix}/lib/x86_64-linux-gnu\n"), "{pc}");
}

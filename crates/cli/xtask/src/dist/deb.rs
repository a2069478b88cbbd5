//! The deb: the prefix in /usr, in the folders that Debian has for libraries, Python packages and documents.

use super::files::{Entry, Files, gzip};
use super::{Release, SUMMARY, VERSION, licences, read, sbom};
use anyhow::Context;
use std::io::Write;
use std::path::{Path, PathBuf};

const LIBRARIES: &str = "lib/x86_64-linux-gnu";
const PYTHON: &str = "lib/python3/dist-packages/doorbell";
const DOCUMENTS: &str = "share/doc/doorbell";

/// Its name and bytes: an `ar` archive of three files.
pub fn deb(root: &Path, prefix: &Files, release: &Release) -> anyhow::Result<(String, Vec<u8>)> {
    let files = installed(root, prefix, release)?;
    let mut kib = 0;
    for (_, entry) in files.iter() {
        kib += if let Entry::File { bytes, .. } = entry { bytes.len().div_ceil(1024) } else { 1 };
    }
    let mut control = Files::default();
    control.add("control", self::control(kib).into_bytes());
    control.add("shlibs", format!("libdoorbell {} doorbell (>= {VERSION})\n", super::interface()).into_bytes());
    control.add("triggers", b"activate-noawait ldconfig\n".to_vec());
    // Python writes there when root imports the package.
    control.add_program("prerm", format!("#!/bin/sh\nset -e\nrm -rf /usr/{PYTHON}/__pycache__\n").into_bytes());
    let mut deb = b"!<arch>\n".to_vec();
    for (name, bytes) in [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", gzip(&control.tar("", release.when)?)?),
        ("data.tar.gz", gzip(&files.tar("usr", release.when)?)?),
    ] {
        writeln!(deb, "{name:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`", release.when, 0, 0, 100644, bytes.len())?;
        deb.extend(&bytes);
        if bytes.len() % 2 == 1 {
            deb.push(b'\n');
        }
    }
    Ok((format!("doorbell_{VERSION}_amd64.deb"), deb))
}

fn control(kib: usize) -> String {
    format!(
        "Package: doorbell\nVersion: {VERSION}\nArchitecture: amd64\nMaintainer: the doorbell authors <dev@doorbell.invalid>\n\
         Installed-Size: {kib}\nDepends: libc6 (>= 2.28)\nSuggests: python3\nSection: devel\nPriority: optional\n\
         Description: {SUMMARY}\n Recordings of commands, locks and calls, lock \
         policies, and libdoorbell:\n copies and launches that any thread may submit, for C, C++ and Python.\n"
    )
}

fn installed(root: &Path, prefix: &Files, release: &Release) -> anyhow::Result<Files> {
    let mut files = Files::default();
    for (name, entry) in prefix.iter() {
        if name == "lib/pkgconfig/doorbell.pc" {
            let text = String::from_utf8(prefix.bytes(name)?.to_vec()).context("doorbell.pc")?;
            let text = text
                .replace("prefix=${pcfiledir}/../..", "prefix=/usr")
                .replace("${prefix}/lib", &format!("${{prefix}}/{LIBRARIES}"));
            files.add(format!("{LIBRARIES}/pkgconfig/doorbell.pc"), text.into_bytes());
        } else if let Some(rest) = name.strip_prefix("lib/") {
            // Debian's libraries are no programs.
            let entry = match entry {
                Entry::File { bytes, .. } => Entry::File { bytes: bytes.clone(), program: false },
                link => link.clone(),
            };
            files.insert(format!("{LIBRARIES}/{rest}"), entry);
        } else if let Some(module) = name.strip_prefix("share/doorbell/python/doorbell/") {
            let entry = match entry {
                Entry::Link(_) => Entry::Link(PathBuf::from("../../../x86_64-linux-gnu/libdoorbell.so")),
                file => file.clone(),
            };
            files.insert(format!("{PYTHON}/{module}"), entry);
        } else if name.starts_with("share/man/") {
            files.add(format!("{name}.gz"), gzip(prefix.bytes(name)?)?);
        } else if let Some(rest) = name.strip_prefix("share/zsh/site-functions/") {
            files.insert(format!("share/zsh/vendor-completions/{rest}"), entry.clone());
        } else {
            files.insert(name, entry.clone());
        }
    }
    files.add(format!("{DOCUMENTS}/README.md"), read(&root.join("README.md"))?);
    files.add(format!("{DOCUMENTS}/CHANGELOG.md.gz"), gzip(&read(&root.join("CHANGELOG.md"))?)?);
    files.add(format!("{DOCUMENTS}/copyright"), copyright(root)?.into_bytes());
    files.add(format!("{DOCUMENTS}/{}.gz", licences::NAME), gzip(&release.licences)?);
    files.add(format!("{DOCUMENTS}/{}", sbom::NAME), release.sbom.clone());
    Ok(files)
}

fn copyright(root: &Path) -> anyhow::Result<String> {
    let mit = String::from_utf8(read(&root.join("LICENSE-MIT"))?).context("LICENSE-MIT")?;
    let mit: String = mit
        .lines()
        .skip_while(|line| !line.starts_with("Permission"))
        .map(|line| if line.trim().is_empty() { " .\n".to_owned() } else { format!(" {line}\n") })
        .collect();
    Ok(format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: doorbell\n\n\
         Files: *\nCopyright: the doorbell authors\nLicense: MIT or Apache-2.0\n\
         Comment: the licences of what is linked in are in /usr/{DOCUMENTS}/{}.gz.\n\n\
         License: MIT\n{mit}\nLicense: Apache-2.0\n See /usr/share/common-licenses/Apache-2.0.\n",
        licences::NAME
    ))
}

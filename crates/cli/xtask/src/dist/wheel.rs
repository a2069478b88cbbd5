//! The wheel: the command as a script, and the Python package with the library next to it, where it looks first.

use super::files::{Entry, Files};
use super::{Release, SUMMARY, VERSION, licences, read, sbom};
use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use std::io::{Cursor, Write};
use std::path::Path;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

/// `doorbell` on PyPI is another project.
const NAME: &str = "doorbell-gpu";
const TAG: &str = "py3-none-manylinux_2_28_x86_64";
const MAXIMUM: usize = 25 << 20;

/// Its name and bytes.
pub fn wheel(root: &Path, prefix: &Files, release: &Release) -> anyhow::Result<(String, Vec<u8>)> {
    let stem = format!("{}-{VERSION}", NAME.replace('-', "_"));
    let info = format!("{stem}.dist-info");
    let mut files = Files::default();
    let modules = "share/doorbell/python/";
    for (name, entry) in
        prefix.iter().filter(|(name, entry)| name.starts_with(modules) && matches!(entry, Entry::File { .. }))
    {
        files.insert(&name[modules.len()..], entry.clone());
    }
    files.add_program("doorbell/libdoorbell.so", prefix.bytes("lib/libdoorbell.so")?.to_vec());
    files.add_program(format!("{stem}.data/scripts/doorbell"), prefix.bytes("bin/doorbell")?.to_vec());
    let readme = String::from_utf8(read(&root.join("python/README.md"))?).context("python/README.md")?;
    files.add(format!("{info}/METADATA"), metadata(&readme).into_bytes());
    files.add(
        format!("{info}/WHEEL"),
        format!("Wheel-Version: 1.0\nGenerator: doorbell {VERSION}\nRoot-Is-Purelib: false\nTag: {TAG}\n").into_bytes(),
    );
    for name in LICENCES {
        files.add(format!("{info}/licenses/{name}"), read(&root.join(name))?);
    }
    files.add(format!("{info}/licenses/{}", licences::NAME), release.licences.clone());
    files.add(format!("{info}/sboms/{}", sbom::NAME), release.sbom.clone());
    let record = format!("{info}/RECORD");
    files.add(record.clone(), self::record(&files, &record)?.into_bytes());
    let bytes = zip(&files)?;
    let name = format!("{stem}-{TAG}.whl");
    if bytes.len() > MAXIMUM {
        bail!("{name} has {} bytes, more than {MAXIMUM}: find what has grown", bytes.len());
    }
    Ok((name, bytes))
}

const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

/// Packages that `doorbell.fleet` uses if they are installed.
const FLEET: [&str; 5] = ["dask", "distributed", "duckdb", "pandas", "pyarrow"];

fn metadata(readme: &str) -> String {
    let mut text = format!("Metadata-Version: 2.4\nName: {NAME}\nVersion: {VERSION}\nSummary: {SUMMARY}\n");
    text += "Requires-Python: >=3.9\nLicense-Expression: MIT OR Apache-2.0\n";
    for name in LICENCES.iter().chain([&licences::NAME]) {
        text += &format!("License-File: {name}\n");
    }
    for package in FLEET {
        text += &format!("Requires-Dist: {package}; extra == \"fleet\"\n");
    }
    text += "Provides-Extra: fleet\n";
    text + "Description-Content-Type: text/markdown\n\n" + readme
}

/// The list of all files with their checksums; its own line has none.
fn record(files: &Files, own: &str) -> anyhow::Result<String> {
    let mut lines = String::new();
    for (name, _) in files.iter() {
        let bytes = files.bytes(name)?;
        lines += &format!("{name},sha256={},{}\n", URL_SAFE_NO_PAD.encode(Sha256::digest(bytes)), bytes.len());
    }
    Ok(lines + own + ",,\n")
}

fn zip(files: &Files) -> anyhow::Result<Vec<u8>> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, entry) in files.iter() {
        let Entry::File { bytes, program } = entry else { bail!("{name}: a wheel has no links") };
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Deflated)
            .compression_level(Some(9))
            .last_modified_time(DateTime::default())
            .unix_permissions(if *program { 0o755 } else { 0o644 });
        zip.start_file(name, options)?;
        zip.write_all(bytes)?;
    }
    Ok(zip.finish()?.into_inner())
}

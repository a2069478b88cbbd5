//! The parts of the binaries as CycloneDX 1.5, for programs that look for parts with known vulnerabilities.

use super::dependencies::{Part, Workspace};
use super::{SUMMARY, VERSION, output};
use serde_json::{Value, json};
use std::process::Command;

pub const NAME: &str = "doorbell.cdx.json";

pub fn json(workspace: &Workspace, parts: &[Part]) -> anyhow::Result<Vec<u8>> {
    let purl = |id: &str| format!("pkg:cargo/{id}");
    let licences = |expression: &str| json!([{ "expression": expression }]);
    let ours = purl(&format!("doorbell@{VERSION}"));
    let mut components: Vec<Value> = parts
        .iter()
        .map(|part| {
            json!({
                "type": "library",
                "bom-ref": purl(&part.id()),
                "name": part.name,
                "version": part.version,
                "licenses": licences(&part.licence),
                "hashes": [{ "alg": "SHA-256", "content": part.checksum }],
                "purl": purl(&part.id()),
            })
        })
        .collect();
    let rust = String::from_utf8(output(Command::new("rustc").arg("--version").current_dir(&workspace.root))?)?;
    let rust = rust.split_whitespace().nth(1).unwrap_or("").to_owned();
    components.push(json!({
        "type": "library",
        "bom-ref": format!("pkg:generic/rust-std@{rust}"),
        "name": "rust-std",
        "version": rust,
        "licenses": licences("MIT OR Apache-2.0"),
    }));
    let all = || components.iter().map(|component| component["bom-ref"].clone()).collect::<Vec<_>>();
    let mut dependencies = vec![json!({ "ref": ours, "dependsOn": all() })];
    dependencies.extend(parts.iter().map(|part| {
        let uses: Vec<String> = part.uses.iter().map(|id| purl(id)).collect();
        json!({ "ref": purl(&part.id()), "dependsOn": uses })
    }));
    let bom = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": {
            "type": "application",
            "bom-ref": ours,
            "name": "doorbell",
            "version": VERSION,
            "description": SUMMARY,
            "licenses": licences("MIT OR Apache-2.0"),
        }},
        "components": components,
        "dependencies": dependencies,
    });
    let mut bytes = serde_json::to_vec_pretty(&bom)?;
    bytes.push(b'\n');
    Ok(bytes)
}

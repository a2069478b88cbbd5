//! A program whose GPU is taken away and given back, as a checkpoint and a restore do: all memory is unmapped and all
//! files are closed by a thread of the driver library, later everything is made again at the same addresses. The program
//! goes on, and its work is recorded before and after.

mod objects;

use assert_cmd::cargo::cargo_bin;
use objects::{Opened, USERDS};
use std::process::Command;
use test_support::finished;

/// Whether the client is freed or ends with its file; whether it has the same handle again; whether the driver is asked
/// for the tokens again.
const WAYS: [&str; 6] =
    ["frees same asks", "frees same", "frees other", "closes same asks", "closes other asks", "closes other"];

#[test]
fn a_program_goes_on_after_a_restore_and_is_recorded_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut failed = Vec::new();
    for (tap, way) in ["off", "trap", "auto"].iter().flat_map(|tap| WAYS.map(|way| (tap, way))) {
        let tape = dir.path().join("t.doorbell");
        let mut command = Command::new(cargo_bin!("doorbell"));
        command.args(["record", "--force", "-q", "--gpu", "soft", "--tap", tap, "-o"]).arg(&tape).arg("--");
        command.arg(std::env::current_exe().unwrap());
        command.args(["plays_a_restored_program", "--exact", "--ignored", "--nocapture"]).env("WAY", way);
        let out = finished(&mut command, way);
        let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        if !out.status.success() || !text.contains("1 passed") {
            failed.push(format!("{tap}, {way}: {text}"));
            continue;
        }
        let mut show = Command::new(cargo_bin!("doorbell"));
        let shown = finished(show.args(["show", "--summary", "--json"]).arg(&tape), "show");
        let s: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
        let recorded = (s["entries"].as_u64(), s["lost"].as_u64(), s["lost_detail"]["strangers"].as_u64());
        if *tap != "off" && recorded != (Some(32), Some(0), Some(0)) {
            failed.push(format!("{tap}, {way}: entries, lost, unknown tokens: {recorded:?}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
#[ignore = "a program for the test above"]
fn plays_a_restored_program() {
    const RINGS: u64 = 0x20_0000_0000;
    const BELL: u64 = 0x2f_0000_0000;
    const CLIENT: u32 = 0xc1d0_1234;
    let way = std::env::var("WAY").unwrap();
    let has = |word: &str| way.split(' ').any(|w| w == word);
    let places = [0, 1].map(|i| (RINGS + 0x1000 * i, RINGS + USERDS + 0x1000 * i));
    let mut o = Opened::new(CLIENT, BELL);
    let mut rings = o.channels(places, true);
    for _ in 0..8 {
        rings.iter_mut().for_each(|r| r.submit());
    }
    let tokens = rings.map(|r| r.token);
    let restore = || {
        o.close(has("frees"));
        let mut o = Opened::new(if has("same") { CLIENT } else { CLIENT + 1 }, BELL);
        let mut rings = o.channels(places, has("asks"));
        if has("asks") {
            assert_eq!(rings.map(|r| r.token), tokens);
        }
        rings.iter_mut().zip(tokens).for_each(|(r, token)| r.token = token);
        rings
    };
    let mut rings = std::thread::scope(|s| s.spawn(restore).join().unwrap());
    for _ in 0..8 {
        rings.iter_mut().for_each(|r| r.submit());
    }
}

//! Two channels whose USERD are in one page: the writes of both reach the GPU, recorded or not.

mod objects;

use assert_cmd::cargo::cargo_bin;
use objects::{Opened, USERDS};
use std::process::Command;
use test_support::finished;

#[test]
fn channels_that_share_a_userd_page_have_no_shadow_and_all_their_work_reaches_the_gpu() {
    let dir = tempfile::tempdir().unwrap();
    for tap in ["trap", "auto"] {
        let tape = dir.path().join(tap);
        let mut command = Command::new(cargo_bin!("doorbell"));
        command.args(["record", "-q", "--gpu", "soft", "--tap", tap, "-o"]).arg(&tape).arg("--");
        command.arg(std::env::current_exe().unwrap()).args([
            "plays_two_channels",
            "--exact",
            "--ignored",
            "--nocapture",
        ]);
        let out = finished(&mut command, tap);
        let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert!(out.status.success() && text.contains("1 passed"), "{tap}: {text}");
        let mut show = Command::new(cargo_bin!("doorbell"));
        let shown = finished(show.args(["show", "--summary", "--json"]).arg(&tape), "show");
        let summary: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
        assert_eq!((&summary["entries"], &summary["lost"]), (&16.into(), &0.into()), "{tap}: {summary}");
        // If every doorbell traps, there are no shadows.
        let refused = summary["trouble"].to_string().contains("could not be shadowed");
        assert_eq!(refused, tap == "auto", "{tap}: {summary}");
    }
}

#[test]
#[ignore = "a program for the test above"]
fn plays_two_channels() {
    const RINGS: u64 = 0x20_0000_0000;
    let mut o = Opened::new(0, 0);
    // Two rings of 512 entries, and both USERDs in the page after them.
    let places = [0, 1].map(|i| (RINGS + 0x1000 * i, RINGS + USERDS + 0x200 * i));
    let mut rings = o.channels(places, true);
    for _ in 0..8 {
        rings.iter_mut().for_each(|r| r.submit());
    }
}

//! `doorbell nvme` on the emulated controller: nothing of its speed is shown, and nothing is written without the word.

use assert_cmd::Command;
use serde_json::Value;
use std::path::Path;
use test_support::skip;

fn nvme(words: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    command.arg("nvme").args(words);
    command
}

fn said(words: &[&str], status: i32) -> (String, String) {
    let done = nvme(words).assert().code(status);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&done.get_output().stdout), text(&done.get_output().stderr))
}

fn json(words: &[&str]) -> Value {
    let value: Value = serde_json::from_str(&said(words, 0).0).unwrap();
    assert_eq!(value["functional"], true);
    let keys: Vec<&String> = value.as_object().unwrap().keys().collect();
    let of_time = ["second", "rate", "iops", "time"];
    assert!(!keys.iter().any(|key| of_time.iter().any(|word| key.contains(word))), "{keys:?}");
    value
}

fn known(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 31 + (at >> 9) * 7) as u8).collect()
}

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().unwrap().to_owned()
}

#[test]
fn blocks_go_to_an_image_and_come_back() {
    if !test_support::installed("qemu-system-x86_64") {
        skip!("qemu-system-x86_64 is not installed");
    }
    let folder = tempfile::tempdir().unwrap();
    let (image, data, back) =
        (path(folder.path(), "a,b.img"), path(folder.path(), "data"), path(folder.path(), "back"));
    std::fs::File::create(&image).unwrap().set_len(2 << 20).unwrap();
    std::fs::write(&data, known(64 << 10)).unwrap();
    let on_image = ["--image", &image, "--start-block", "3", "--into", "peer", "--json"];
    let written = [&["write", "qemu", &data, "--i-mean-to-overwrite", "qemu"], &on_image[..]].concat();
    let written = json(&written);
    assert_eq!((&written["bytes"], &written["target"]["path"]), (&65536.into(), &"C".into()));
    let read = [&["read", "qemu", "--bytes", "64KiB", "-o", &back], &on_image[..]].concat();
    assert_eq!(json(&read)["commands"], written["commands"]);
    assert_eq!(std::fs::read(&back).unwrap(), known(64 << 10));
    let mut expected = vec![0; 2 << 20];
    expected[3 * 512..3 * 512 + (64 << 10)].copy_from_slice(&known(64 << 10));
    assert!(std::fs::read(&image).unwrap() == expected, "the image has it, and nothing else was written");
    let (text, _) = said(&["identify", "qemu", "--format", "4096", "--machine", "pc"], 0);
    assert!(text.contains("QEMU NVMe Ctrl") && text.contains("4096 B"), "{text}");
    assert!(text.ends_with("emulated: this shows that it works, not how fast\n"), "{text}");
}

#[test]
#[ignore = "ten machines are started; run by .ci/run"]
fn what_may_not_be_written_is_refused_with_a_hint() {
    if !test_support::installed("qemu-system-x86_64") {
        skip!("qemu-system-x86_64 is not installed");
    }
    let folder = tempfile::tempdir().unwrap();
    let (image, data) = (path(folder.path(), "disk.img"), path(folder.path(), "data"));
    std::fs::File::create(&image).unwrap().set_len(2 << 20).unwrap();
    std::fs::write(&data, known(4096)).unwrap();
    let refused = |more: &[&str], what: &str, hint: &str| {
        let (_, text) = said(&[&["write", "qemu", &data, "--image", &image], more].concat(), 2);
        assert!(text.contains(what) && text.lines().any(|l| l.starts_with("hint: ") && l.contains(hint)), "{text}");
    };
    let word = ["--i-mean-to-overwrite", "qemu"];
    refused(&[], "you have not said", "--i-mean-to-overwrite qemu");
    refused(&["--i-mean-to-overwrite", "0000:04:00.0"], "your word is for 0000:04:00.0", "--i-mean-to-overwrite qemu");
    refused(&[&word[..], &["--start-block", "4090"]].concat(), "are not within the 4096 blocks", "name others");
    let put = |at: u64, bytes: &[u8]| {
        use std::os::unix::fs::FileExt;
        std::fs::File::options().write(true).open(&image).unwrap().write_all_at(bytes, at).unwrap();
    };
    put(0, b"XFSB");
    refused(&word, "it holds xfs at byte 0x0", "--destroy xfs");
    put(512, b"LABELONE");
    refused(&[&word[..], &["--destroy", "xfs"]].concat(), "it holds lvm at byte 0x200", "wipefs");
    std::fs::write(&data, known(100)).unwrap();
    refused(&word, "has 100 B, which are not whole blocks", "truncate");
    // A pipe is not waited for, and an image with a header of its own is not written over.
    let pipe = path(folder.path(), "pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let (_, text) = said(&["write", "qemu", &pipe], 2);
    assert!(text.contains("pipe is no regular file"), "{text}");
    let other = path(folder.path(), "other.img");
    std::fs::write(&other, b"QFI\xfb and more").unwrap();
    let (_, text) = said(&["read", "qemu", "--image", &other], 2);
    assert!(text.contains("is qcow2, not raw") && text.contains("qemu-img convert"), "{text}");
    // What fails leaves an old file as it was, and no new one.
    let old = path(folder.path(), "old");
    std::fs::write(&old, "old").unwrap();
    let beyond = ["read", "qemu", "--image", &image, "--start-block", "4090", "--bytes", "1MiB", "-o"];
    said(&[&beyond[..], &[&old, "--force"]].concat(), 2);
    assert_eq!(std::fs::read(&old).unwrap(), b"old");
    let new = path(folder.path(), "new");
    said(&[&beyond[..], &[new.as_str()]].concat(), 2);
    assert!(!std::path::Path::new(&new).exists());
    let before = std::fs::read(&image).unwrap();
    let (text, _) = said(&["verify", "qemu", "--image", &image, "--bytes", "1MiB", "--depth", "4"], 0);
    assert!(text.contains("0 writes") && text.contains("every byte right"), "{text}");
    assert!(std::fs::read(&image).unwrap() == before);
}

/// The software GPU stands beside the emulated machine: the controller does not reach its memory, and the result says so.
#[test]
#[ignore = "machines and the software GPU are started; run by .ci/run"]
fn a_gpu_out_of_reach_gets_its_data_through_host_memory() {
    if !test_support::installed("qemu-system-x86_64") {
        skip!("qemu-system-x86_64 is not installed");
    }
    let folder = tempfile::tempdir().unwrap();
    let (image, back) = (path(folder.path(), "disk.img"), path(folder.path(), "back"));
    std::fs::write(&image, known(2 << 20)).unwrap();
    let on_gpu = ["--image", &image, "--into", "gpu0", "--gpu", "soft"];
    let read = json(&[&["read", "qemu", "--bytes", "1MiB", "-o", &back, "--json"], &on_gpu[..]].concat());
    assert_eq!(read["target"]["path"], "B");
    assert!(read["target"]["instead_of_c"].as_str().unwrap().contains("cannot reach"), "{read}");
    assert!(std::fs::read(&back).unwrap() == known(1 << 20));
    let (text, _) =
        said(
            &[
                &[
                    "verify",
                    "qemu",
                    "--bytes",
                    "4MiB",
                    "--threads",
                    "2",
                    "--depth",
                    "8",
                    "--i-mean-to-overwrite",
                    "qemu",
                ][..],
                &["--destroy", "unknown"][..],
                &on_gpu[..],
            ]
            .concat(),
            0,
        );
    assert!(text.contains("gpu0 by path B") && text.contains("every byte right"), "{text}");
    assert!(text.contains("through host memory, because"), "{text}");
}

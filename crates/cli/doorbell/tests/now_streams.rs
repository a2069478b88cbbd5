//! `doorbell why --now`: streams that wait, with CUDA in software.

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use test_support::{Source, finished, link_softcuda, private_folder};

/// A recorded program that hangs.
struct Hangs {
    dir: tempfile::TempDir,
    recorder: Child,
    /// Its streams, as the answer names them.
    streams: Vec<String>,
}

impl Hangs {
    fn start(what: &str) -> Result<Hangs, String> {
        let dir = tempfile::tempdir().unwrap();
        let cuda = link_softcuda(dir.path())?;
        let app = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/now_streams/app.c");
        Source { file: &app, compiler: "cc", flags: &[cuda.to_str().unwrap(), "-pthread"] }.compile(dir.path())?;
        private_folder(dir.path(), "run");
        let mut record = doorbell(dir.path());
        record.args([
            "record",
            "--quiet",
            "--locks",
            "--calls",
            "--gpu",
            "soft",
            "-o",
            "a.doorbell",
            "--",
            "./app",
            what,
        ]);
        let mut recorder = record.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(recorder.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let streams: Vec<String> = line.split_whitespace().skip(1).map(String::from).collect();
        assert_eq!(streams.len(), 2, "{line:?}");
        Ok(Hangs { dir, recorder, streams })
    }

    fn now(&self) -> Value {
        let pid = self.pid().to_string();
        let out = finished(doorbell(self.dir.path()).args(["why", "--json", "--now", &pid]), "why --now");
        serde_json::from_slice(&out.stdout).unwrap()
    }

    fn pid(&self) -> i32 {
        test_support::children(self.recorder.id() as i32).first().copied().unwrap_or(1)
    }
}

impl Drop for Hangs {
    fn drop(&mut self) {
        if let Some(pid) = test_support::children(self.recorder.id() as i32).first() {
            // SAFETY: a child of this test's child, which nobody has waited for.
            unsafe { libc::kill(*pid, libc::SIGKILL) };
        }
        let _ = self.recorder.wait();
    }
}

fn doorbell(dir: &Path) -> Command {
    let mut c = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    c.current_dir(dir).env("LD_LIBRARY_PATH", dir).env("XDG_RUNTIME_DIR", dir.join("run"));
    c
}

macro_rules! hangs {
    ($what:literal) => {
        match Hangs::start($what) {
            Ok(hangs) => hangs,
            Err(why) => test_support::skip!("{why}"),
        }
    };
}

#[test]
fn two_streams_that_wait_for_words_of_each_other_are_a_cycle() {
    let hangs = hangs!("circle");
    let now = hangs.now();
    let cycle = &now["cycles"][0];
    assert_eq!((&cycle["kind"], now["cycles"].as_array().unwrap().len()), (&"streams".into(), 1), "{now:#}");
    for stream in &hangs.streams {
        assert!(cycle["streams"].as_array().unwrap().contains(&Value::from(stream.as_str())), "{now:#}");
    }
    assert!(cycle["text"].as_str().unwrap().contains("(0 there, 1 or more wanted), which stream"), "{now:#}");
    assert_eq!(now["chains"][0]["end"], "cycle");
}

#[test]
fn a_thread_that_waits_for_a_stream_with_the_lock_that_its_host_function_needs_is_a_cycle() {
    let hangs = hangs!("host");
    let now = hangs.now();
    let text = now["cycles"][0]["text"].as_str().unwrap_or_default();
    for part in ["is in cuStreamSynchronize", "waits for its host function, in which thread", "/mutex, which thread"] {
        assert!(text.contains(part), "{part}: {now:#}");
    }
    assert_eq!(now["cycles"][0]["tids"].as_array().unwrap().len(), 2);
}

#[test]
fn an_event_that_is_asked_for_again_and_again_leads_to_the_word_for_which_its_stream_waits() {
    let hangs = hangs!("poll");
    let now = hangs.now();
    assert!(now["cycles"].as_array().unwrap().is_empty());
    let text = now["chains"][0]["text"].as_str().unwrap_or_default();
    for part in ["asks again and again (cuEventQuery", "(4 there, 5 or more wanted), which no stream is to write"] {
        assert!(text.contains(part), "{part}: {now:#}");
    }
    let stream = &now["streams"][0];
    let is = (&stream["waits_for"], &stream["there"], &stream["wanted"], &stream["is_certain"]);
    assert_eq!(is, (&"word".into(), &"0x4".into(), &"0x5".into(), &true.into()), "{now:#}");
}

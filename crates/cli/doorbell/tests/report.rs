//! `doorbell report`: what it writes, and when it fails.

use assert_cmd::Command;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

fn run_json() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/report/run.json")
}

fn report(dir: &Path) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    command.arg("report").current_dir(dir);
    command
}

/// Two lines, `error: ...` with `what` in it and `hint: ...` with `help`.
fn refused(command: &mut Command, what: &str, help: &str) {
    let out = command.assert().code(2).stdout("");
    let err = String::from_utf8(out.get_output().stderr.clone()).unwrap();
    let lines: Vec<&str> = err.lines().collect();
    let [error, hint] = lines[..] else { panic!("{err}") };
    assert!(error.starts_with("error: ") && hint.starts_with("hint: "), "{err}");
    assert!(error.contains(what) && hint.contains(help), "{err}");
}

#[test]
fn a_run_becomes_a_page_markdown_and_pictures_and_nothing_is_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let all = ["-o", "a.html", "--markdown", "a.md", "--svg", "pictures"];
    report(dir.path()).arg(run_json()).args(all).assert().success().stdout("");
    let html = fs::read_to_string(dir.path().join("a.html")).unwrap();
    assert!(html.starts_with("<!DOCTYPE html>") && html.contains("NVIDIA H200"), "{html:.200}");
    let markdown = fs::read_to_string(dir.path().join("a.md")).unwrap();
    assert!(markdown.starts_with("# ") && markdown.contains("What loads did") | markdown.contains("neighbour"));
    let pictures = fs::read_dir(dir.path().join("pictures")).unwrap().count();
    assert_eq!(pictures, html.matches("<figure>").count());
    assert!(pictures > 1);
    for option in [&["-o", "a.html"][..], &["--markdown", "a.md"]] {
        refused(report(dir.path()).arg(run_json()).args(option), "the file exists", "--force");
    }
    refused(report(dir.path()).arg(run_json()).args(["--svg", "pictures"]), "the file exists", "--force");
    report(dir.path()).arg(run_json()).args(all).arg("--force").assert().success();
}

/// The mode and the contents of a file.
fn read(path: &Path) -> (u32, Vec<u8>) {
    (fs::metadata(path).unwrap().permissions().mode() & 0o777, fs::read(path).unwrap())
}

#[test]
fn a_page_without_a_name_is_written_here_for_its_owner_and_replaces_only_doorbells_own() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let fixture =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../explain/decode/fixtures/h200-programmatic.doorbell");
    fs::create_dir(at("elsewhere")).unwrap();
    fs::copy(fixture, at("elsewhere/a%.doorbell")).unwrap();
    let page = || {
        let mut command = report(dir.path());
        command.arg("elsewhere/a%.doorbell").env_remove("RANK");
        command
    };
    page().assert().success().stdout("").stderr("doorbell: wrote a%.html\n");
    let first = read(&at("a%.html"));
    assert!(first.0 == 0o600 && first.1.starts_with(b"<!DOCTYPE html>"), "{:o}", first.0);
    assert_eq!(fs::read_dir(at("elsewhere")).unwrap().count(), 1);
    // An earlier page of doorbell's is replaced, whatever is in it.
    fs::write(at("a%.html"), &first.1[..first.1.len() / 2]).unwrap();
    page().arg("--quiet").assert().success().stdout("").stderr("");
    assert!(read(&at("a%.html")) == first);
    for other in [&b"<!DOCTYPE html>\n<p>Written by doorbell 0.1"[..], b"", &first.1[1..]] {
        fs::write(at("a%.html"), other).unwrap();
        refused(&mut page(), "a%.html: the file exists, and is no page that doorbell wrote", "--out FILE");
        assert_eq!(read(&at("a%.html")).1, other);
    }
    page().arg("--force").assert().success();
    // A link is another file, also if it leads to a page.
    fs::rename(at("a%.html"), at("target")).unwrap();
    symlink("target", at("a%.html")).unwrap();
    refused(&mut page(), "is no page that doorbell wrote", "--force");
    assert!(at("a%.html").is_symlink() && read(&at("target")) == first);
    // With another form there is no page, unless it has a name.
    page().args(["--markdown", "a.md"]).assert().success().stderr("doorbell: wrote a.md\n");
    assert!(at("a%.html").is_symlink());
}

#[test]
fn the_page_of_a_run_has_the_name_of_its_folder() {
    let dir = tempfile::tempdir().unwrap();
    for run in ["one", "two"] {
        fs::create_dir(dir.path().join(run)).unwrap();
        fs::copy(run_json(), dir.path().join(run).join("run.json")).unwrap();
    }
    let runs = |of: &[&str]| report(dir.path()).args(of).assert().success().stdout("").get_output().stderr.clone();
    for of in ["one/run.json", "two/../one/run.json"] {
        assert_eq!(runs(&[of]), b"doorbell: wrote one.html\n", "{of}");
    }
    assert_eq!(runs(&["one/run.json", "two/run.json"]), b"doorbell: wrote one-two.html\n");
    let mut inside = report(dir.path());
    inside.arg("run.json").current_dir(dir.path().join("one")).assert().success().stderr("doorbell: wrote one.html\n");
    refused(report(dir.path()).arg("three"), "No such file", "doorbell");
    assert!(!dir.path().join("three.html").exists());
}

/// A lock that is held for so long: the other run holds it longer, and violates the assertion.
fn experiment(hold: &str) -> String {
    format!(
        "[run]\ngpu = \"none\"\nrounds = 20\nsamples = 1000\nnoise = \"20ms\"\n[[subject]]\nname = \"lock\"\ncall = \"lock(mutex,hold={hold})\"\n\
         [[subject]]\ncall = \"nothing\"\n[[assert]]\nsubject = \"lock\"\nmetric = \"p50\"\nat-most = \"60us\"\n"
    )
}

/// The beginning of a page's text.
fn verdict(html: &str) -> String {
    html.split("<main").nth(1).unwrap_or_default().chars().take(600).collect()
}

#[test]
fn two_runs_have_one_verdict_ratios_and_both_distributions() {
    let dir = tempfile::tempdir().unwrap();
    // (On a busy machine one of a run's processes may be so slow that nothing is decided: then both are measured again.)
    let html = test_support::measured(|| {
        for (name, hold, status) in [("before", "20us", 0), ("after", "500us", 1)] {
            fs::write(dir.path().join("lock.toml"), experiment(hold)).unwrap();
            let mut bench = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
            bench.args(["bench", "--force", "lock.toml", "-o", name]).current_dir(dir.path()).assert().code(status);
        }
        let mut page = report(dir.path());
        page.args(["before", "after", "--force", "-o", "two.html", "--markdown", "two.md"]).assert().success();
        let html = fs::read_to_string(dir.path().join("two.html")).unwrap();
        let is_decided = ["after is slower than before. (", "lock: p50 is "].iter().all(|what| html.contains(what));
        if is_decided { Ok(html) } else { Err(verdict(&html)) }
    });
    report(dir.path()).args(["before/", "after"]).assert().success().stderr("doorbell: wrote before-after.html\n");
    let markdown = fs::read_to_string(dir.path().join("two.md")).unwrap();
    let main = html.split("<main").nth(1).unwrap();
    for text in [main, &markdown] {
        let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what}: {text:.1500}"));
        // The assertion that B violated, the verdict, then the reason.
        let order = ["after: Broken assert", "after is slower than before. (", "lock: p50 is ", "lock, 99 %"];
        let order = order.map(|what| if what == "lock, 99 %" { at("99 % interval") } else { at(what) });
        assert!(order.is_sorted(), "{order:?}");
        assert!(text.contains(" of 6 figures decided: ") && text.contains(" regression"), "{text:.1500}");
        assert!(text.contains("Both distributions") && text.contains("Rounds of both over time"));
    }
    let ratio = markdown.lines().find(|l| l.starts_with("| lock ") && l.contains("p50")).unwrap();
    assert!(ratio.contains("regression") && ratio.matches(" to ").count() == 1, "{ratio}");
    // One picture has both: two lines in each of its two widths.
    let figure = main.split("<strong>lock</strong>").nth(1).unwrap().split("</figure>").next().unwrap();
    assert_eq!(figure.matches("class=\"series\"").count(), 4);
    assert!(figure.contains("A: before") && figure.contains("B: after"));
    // The runs themselves follow.
    assert!(main.contains("id=\"run1-before\"") && main.contains("id=\"run2-after\""));
}

#[test]
fn what_is_no_run_is_refused_with_a_hint() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let whole = fs::read_to_string(run_json()).unwrap();
    fs::create_dir(path("folder")).unwrap();
    fs::write(path("text"), "hello").unwrap();
    fs::write(path("cut.json"), &whole[..whole.len() / 2]).unwrap();
    fs::write(path("newer.json"), whole.replace("doorbell.run/1", "doorbell.run/9")).unwrap();
    fs::create_dir(path("soak")).unwrap();
    fs::write(path("soak/soak.json"), "{\"schema\": \"doorbell.soak/9\", \"doorbell\": \"7.0\"}").unwrap();
    for (what, error, hint) in [
        ("folder", "no run", "doorbell bench -o"),
        ("missing", "No such file", "doorbell record"),
        ("text", "not a doorbell recording", "doorbell record"),
        ("cut.json", "no run.json", "doorbell bench -o"),
        ("newer.json", "doorbell.run/9", "doorbell bench -o"),
        ("soak", "doorbell.soak/9", "7.0"),
    ] {
        refused(report(dir.path()).args([what, "-o", "x.html"]), error, hint);
        assert!(!path("x.html").exists(), "{what} left a file");
    }
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../explain/decode/fixtures/h200-launches.doorbell");
    refused(report(dir.path()).arg(run_json()).arg(&fixture).args(["-o", "x.html"]), "a page of its own", "alone");
    report(dir.path()).arg(&fixture).args(["-o", "x.html"]).assert().success();
    // A truncated recording is reported up to the cut.
    let bytes = fs::read(&fixture).unwrap();
    fs::write(path("cut.doorbell"), &bytes[..bytes.len() / 2]).unwrap();
    report(dir.path()).args(["cut.doorbell", "-o", "y.html"]).assert().code(2);
    assert!(fs::read_to_string(path("y.html")).unwrap().contains("Damaged: "));
}

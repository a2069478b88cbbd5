//! From a run to a page's table: `report --digest`, `--fill` and `--check` as a user sees them.

use assert_cmd::Command;
use predicates::str::contains;
use std::fs;
use std::path::Path;

fn doorbell(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    command.args(arguments).current_dir(dir);
    command
}

const EXPERIMENT: &str = r#"
about = "two ways"
[run]
gpu = "soft"
repeats = 1
rounds = 6
samples = 60
noise = "10ms"
[[subject]]
route = "host->ce0->gpu0"
name = "ce"
sizes = ["64B"]
[[subject]]
route = "host->inline->gpu0"
name = "inline"
sizes = ["64B"]
[compare]
baseline = "ce"
"#;

const PAGE: &str = "<!-- table: data=run.json rows=subject columns=subject,samples,p50,ratio -->\n<!-- end -->\n";

#[test]
fn a_run_becomes_a_data_file_and_a_table() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(dir.join("two.toml"), EXPERIMENT).unwrap();
    fs::write(dir.join("page.md"), PAGE).unwrap();
    doorbell(dir, &["bench", "two.toml", "-o", "run"]).assert().success();
    doorbell(dir, &["report", "run", "--digest", "run.json"]).assert().success().stdout("");
    doorbell(dir, &["report", "run", "--digest", "run.json"]).assert().code(2).stderr(contains("--force"));
    doorbell(dir, &["report", "run", "--digest", "packed.json.gz"]).assert().success();
    let packed = fs::read(dir.join("packed.json.gz")).unwrap();
    assert!(
        packed.starts_with(&[0x1f, 0x8b]) && packed.len() < fs::metadata(dir.join("run.json")).unwrap().len() as usize
    );
    doorbell(dir, &["report", "--fill", "page.md"])
        .assert()
        .success()
        .stdout("page.md: 1 table from data, filled\n")
        .stderr(contains("software GPU"));
    let page = fs::read_to_string(dir.join("page.md")).unwrap();
    assert!(
        page.contains("crc32=") && page.contains("\n| ce | 60 | ") && page.contains("\n| inline | 60 | "),
        "{page}"
    );
    doorbell(dir, &["report", "--fill", "page.md"]).assert().success().stdout(contains("unchanged"));

    // The samples next to the file: the same figures, and no rounds.
    doorbell(dir, &["report", "run", "--digest", "exact.json", "--with-samples"]).assert().success();
    assert!(
        dir.join("exact/0000-00.parquet").is_file()
            && !fs::read_to_string(dir.join("exact.json")).unwrap().contains("\"done\":{")
    );
    fs::write(dir.join("exact.md"), PAGE.replace("run.json", "exact.json")).unwrap();
    doorbell(dir, &["report", "--fill", "exact.md"]).assert().success();
    let rows = |page: &str| page.lines().filter(|line| line.starts_with("| ")).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(rows(&fs::read_to_string(dir.join("exact.md")).unwrap()), rows(&page));
    fs::remove_file(dir.join("exact/0000-00.parquet")).unwrap();
    doorbell(dir, &["report", "--check", "exact.md"]).assert().code(1).stderr(contains("0000-00.parquet"));

    // Times of the software GPU are refused. If they were a real GPU's, a changed digit would be refused.
    doorbell(dir, &["report", "--check", "page.md"]).assert().code(1).stderr(contains("software GPU"));
    let data = fs::read_to_string(dir.join("run.json")).unwrap();
    let commit = data.find("\"commit\":").map(|at| at + data[at..].find(",\"").unwrap()).unwrap();
    let from = data.find("\"commit\":").unwrap();
    let real = format!("{}\"commit\":\"6ba3a506d601\"{}", &data[..from], &data[commit..]);
    fs::write(dir.join("run.json"), real.replace("\"functional\":true", "\"functional\":false")).unwrap();
    doorbell(dir, &["report", "--check", "page.md"]).assert().code(1).stderr(contains("crc32="));
    doorbell(dir, &["report", "--fill", "page.md"]).assert().success().stderr("");
    doorbell(dir, &["report", "--check", "page.md"]).assert().success().stdout("page.md: 1 table from data\n");
    fs::write(dir.join("page.md"), page.replace("| ce | 60 |", "| ce | 61 |")).unwrap();
    doorbell(dir, &["report", "--check", "page.md"]).assert().code(1).stderr(contains("its data give"));
}

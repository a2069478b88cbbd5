//! The pages of this repository: every table of measured figures matches its data file, and every link has a target.

use html::markdown_tables::Page;
use run_folder::data_file::Digest;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

fn pages_in(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|e| e == "md")).collect();
    pages.sort();
    pages
}

/// All pages for people.
fn pages() -> Vec<PathBuf> {
    let folders = [".", "docs/results", "docs/tutorials", "docs/guides", "docs/reference", "docs/how-it-works"];
    folders.iter().flat_map(|folder| pages_in(folder)).collect()
}

#[test]
fn tables_are_what_their_data_give() {
    let mut wrong = Vec::new();
    for path in pages() {
        if let Err(e) = Page::open(&path).unwrap().check() {
            wrong.push(e.to_string());
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// `text` with one digit changed, the first after `from`.
fn with_another_digit(text: &str, from: usize) -> String {
    let at = from + text[from..].find(|c: char| c.is_ascii_digit()).unwrap();
    let digit = if &text[at..=at] == "9" { "8" } else { "9" };
    format!("{}{digit}{}", &text[..at], &text[at + 1..])
}

/// The last row of each page, and the end of each data file of one.
#[test]
fn a_changed_digit_in_a_page_or_a_data_file_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let copied = |name: &str| {
        let to = dir.path().join("data").join(name);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(root().join("docs/results/data").join(name), &to).unwrap();
        to
    };
    for name in ["setups.md", "pcie.md", "see.md"] {
        let text = fs::read_to_string(root().join("docs/results").join(name)).unwrap();
        let page = |text: String| Page::new(&dir.path().join(name), text);
        let named: Vec<&str> = text.split("data=data/").skip(1).map(|rest| rest.split(' ').next().unwrap()).collect();
        let data: Vec<PathBuf> = named.iter().map(|name| copied(name)).collect();
        assert!(page(text.clone()).check().unwrap().tables > 0);
        let row = text[..text.rfind("|\n<!-- end -->").unwrap()].rfind('\n').unwrap();
        let e = page(with_another_digit(&text, row)).check().unwrap_err();
        assert!(e.what.contains("its data give"), "{e}");
        for path in data {
            let as_it_was = fs::read(&path).unwrap();
            let data = String::from_utf8(run_folder::data_file::read_text(&path).unwrap()).unwrap();
            let changed = with_another_digit(&data, data.rfind("\"repeat").unwrap_or(data.len() / 2));
            fs::write(&path, run_folder::data_file::to_bytes(&path, &changed).unwrap()).unwrap();
            assert!(page(text.clone()).check().is_err(), "{}", path.display());
            fs::write(&path, as_it_was).unwrap();
        }
    }
}

/// A number with a unit in which things are measured, or a number alone.
fn is_measured(cell: &str) -> bool {
    let plain = cell.replace(['*', '~', ',', '`'], "");
    let mut words = plain.split_whitespace();
    let Some(first) = words.next() else { return false };
    let is_number = |word: &str| word.trim_end_matches([';', ':', '%']).parse::<f64>().is_ok();
    let units = ["ns", "us", "ms", "s", "GB/s", "MB/s", "%", "times", "IOPS", "a"];
    is_number(first) && words.next().is_none_or(|unit| units.iter().any(|u| unit.trim_end_matches([';', ':']) == *u))
}

/// Rows of tables that no marker is above, with their line.
fn typed_rows(text: &str) -> Vec<(usize, &str)> {
    let (mut in_code, mut generated, mut typed) = (false, false, Vec::new());
    for (line, number) in text.lines().zip(1..) {
        in_code ^= line.trim_start().starts_with("```");
        if line.trim_start().starts_with("<!-- table:") {
            generated = true;
        } else if line.trim() == "<!-- end -->" {
            generated = false;
        } else if line.trim_start().starts_with('|') && !generated && !in_code {
            typed.push((number, line));
        }
    }
    typed
}

/// A typed table may say which, how and why. Measured figures come from data.
#[test]
fn measured_figures_of_results_are_generated() {
    let mut wrong = Vec::new();
    for path in pages_in("docs/results").into_iter().chain([root().join("README.md")]) {
        let text = fs::read_to_string(&path).unwrap();
        for (number, line) in typed_rows(&text) {
            let cells = line.trim().trim_matches('|').split('|').map(str::trim);
            wrong.extend(cells.filter(|c| is_measured(c)).map(|c| format!("{}:{number}: {c}", path.display())));
        }
    }
    assert!(wrong.is_empty(), "figures that no marker generates:\n{}", wrong.join("\n"));
    assert!(["12", "4.43 us", "**6**, 287 ms", "1,024 ns", "0.7"].iter().any(|c| is_measured(c)));
    assert!(!is_measured("4 KiB") && !is_measured("1 that loads modules") && !is_measured("yes"));
}

#[test]
fn data_files_are_small_and_used() {
    let folder = root().join("docs/results/data");
    let named: String = pages().iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    let mut bytes = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let within = fs::read_dir(entry.path());
        bytes += match within {
            Ok(files) => files.map(|file| file.unwrap().metadata().unwrap().len()).sum(),
            Err(_) => entry.metadata().unwrap().len(),
        };
        assert!(named.contains(&format!("data/{name}")), "{name}: no page names it");
    }
    assert!(bytes <= 8 << 20, "{bytes} bytes of data files");
}

/// Every sample of the README's tables is in the repository, and the figures are computed from these files alone.
#[test]
fn the_headline_has_all_its_samples() {
    let data = root().join("docs/results/data");
    let mut digest = Digest::read(&run_folder::data_file::read_text(&data.join("headline.json.gz")).unwrap()).unwrap();
    assert!(!digest.has_rounds());
    assert_eq!(digest.samples.len(), fs::read_dir(data.join("headline")).unwrap().count());
    digest.read_samples(&data.join("headline")).unwrap();
    let cells = digest.stages.iter().flat_map(|stage| &stage.cells).filter(|cell| cell.missing.is_none());
    let series: Vec<_> = cells.map(|cell| cell.series(cell.observe).unwrap()).collect();
    assert!(series.iter().all(|series| series.is_exact()));
    let samples: usize = series.iter().map(|series| series.values().unwrap().iter().map(Vec::len).sum::<usize>()).sum();
    assert!(samples > 500_000, "{samples}");
}

/// What `docs/results/lab.py` writes is what tables read.
#[test]
fn scripts_write_samples_that_tables_read() {
    if !test_support::installed("python3") {
        test_support::skip!("no python3");
    }
    let dir = tempfile::tempdir().unwrap();
    let script = "import sys, lab
rounds = lambda more: [[[1000 + more + r, 7000, 7000, 7000] for r in range(6)] for _ in range(5)]
stage = {'point': {'model': 'a'}, 'cells': {'paused': rounds(0), 'recorded': rounds(500)}}
lab.write_samples(sys.argv[1], 'made-up', 'nothing', ['none'], [stage], {})
lab.write(sys.argv[1], 'rows', 'nothing', ['none'], [{'a': {'ns': 5}, 'what': 'x'}], 'medians', {})
";
    let mut python = std::process::Command::new("python3");
    python.args(["-B", "-c", script]).arg(dir.path()).env("COMMIT", "6ba3a506d601");
    let done = python.env("PYTHONPATH", root().join("docs/results")).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let text = "<!-- machine: data=rows.json -->\n<!-- end -->\n<!-- table: data=rows.json rows=what columns=what,median(a.ns) -->\n<!-- end -->\n\
                <!-- table: data=made-up.json.gz rows=model unit=ns columns=model,paused:min,recorded:min,recorded:max,recorded:samples,recorded:ratio -->\n<!-- end -->\n";
    let (filled, ..) = Page::new(&dir.path().join("page.md"), text.into()).filled().unwrap();
    assert!(filled.contains("| x | 5 |") && filled.contains("| a | 1,000 | 1,500 | 7,000 | 120 | 1.00 |"), "{filled}");
}

/// `[text](target)` outside of code, with its line.
fn links(text: &str) -> Vec<(usize, &str)> {
    let (mut in_code, mut links) = (false, Vec::new());
    for (line, number) in text.lines().zip(1..) {
        in_code ^= line.trim_start().starts_with("```");
        if in_code || line.starts_with("    ") {
            continue;
        }
        for part in line.split("](").skip(1) {
            links.extend(part.split_once(')').map(|(target, _)| (number, target)));
        }
    }
    links
}

/// Anchors as GitHub makes them from headings.
fn anchors(text: &str) -> Vec<String> {
    let heads = text.lines().filter(|line| line.starts_with('#'));
    let one = |head: &str| {
        let text = head.trim_start_matches('#').trim().to_lowercase();
        let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    heads.map(one).collect()
}

#[test]
fn links_lead_somewhere() {
    let mut wrong = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for (number, target) in links(&text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            let found = path.exists()
                && (anchor.is_empty() || anchors(&fs::read_to_string(&path).unwrap()).iter().any(|a| a == anchor));
            if !found {
                wrong.push(format!("{}:{number}: {target}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

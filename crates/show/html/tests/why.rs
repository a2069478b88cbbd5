//! The page of a recording begins with what `why` says, and its timeline opens there.

#[path = "../../../explain/decode/tests/synthetic/mod.rs"]
mod synthetic;

use html::document::{Block, Document, Table};
use serde_json::Value;
use std::path::Path;

fn page(mut tape: synthetic::Tape) -> Document {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.doorbell");
    tape.write(&path);
    html::of_recording(&decode::Recording::open(&path).unwrap()).unwrap()
}

fn blocks(document: &Document) -> impl Iterator<Item = &Block> {
    document.articles.iter().flat_map(|a| &a.sections).flat_map(|s| &s.blocks)
}

fn answers(document: &Document) -> Vec<&str> {
    let section = document.articles[0].sections.iter().find(|s| s.id == "why").unwrap();
    section.blocks.iter().filter_map(|b| if let Block::Answer(text) = b { Some(text.as_str()) } else { None }).collect()
}

fn timeline(document: &Document) -> Value {
    let data = blocks(document).find_map(|b| if let Block::Timeline(t) = b { Some(&t.data) } else { None }).unwrap();
    serde_json::from_str(data).unwrap()
}

fn table<'d>(document: &'d Document, name: &str) -> &'d Table {
    document.tables().find(|t| t.name == name).unwrap_or_else(|| panic!("no table {name}"))
}

fn texts(table: &Table, row: usize) -> Vec<&str> {
    table.rows[row].cells.iter().map(|c| c.text.as_str()).collect()
}

#[test]
fn the_answer_is_a_sentence_then_the_calls_then_what_to_do_then_the_timeline() {
    let document = page(synthetic::slow_launches());
    let sections: Vec<&str> = document.articles[0].sections.iter().map(|s| s.id.as_str()).collect();
    assert_eq!(sections[..3], ["why", "timeline", "locks"], "{sections:?}");
    let [answer] = answers(&document)[..] else { panic!("{:?}", answers(&document)) };
    assert!(answer.starts_with("cuLaunchKernel of thread 100 lost 9.00 ms to the lock "), "{answer}");
    assert!(answer.ends_with(", which thread 101 held inside cuStreamSynchronize."), "{answer}");
    let slow = table(&document, "slow-calls");
    assert!(slow.caption.contains("2 calls lost 50.0 us or more"), "{}", slow.caption);
    let first = texts(slow, 0);
    assert_eq!((&first[..3], slow.rows.len()), (&["cuLaunchKernel, call 2002", "9.00 ms", "lock"][..], 2));
    assert!(first.iter().any(|text| text.contains("thread 101 held it for 9.00 ms of that inside")), "{first:?}");
    let causes = table(&document, "causes");
    let lock = (0..causes.rows.len()).map(|row| texts(causes, row)).find(|row| row[0] == "lock").unwrap();
    assert!(lock[2].contains("`doorbell plan` tries other lock protocols; saves up to 13.0 ms"), "{lock:?}");
    let text = html::html(&document);
    let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what}"));
    assert!(text.contains("<code>doorbell plan</code> tries other lock protocols"));
    assert!(at(answer) < at("data-name=\"slow-calls\"") && at("data-name=\"causes\"") < at("id=\"timeline-view\""));
    assert!(html::markdown(&document).contains("lost 9.00 ms to the lock"));
}

#[test]
fn the_timeline_goes_from_loss_to_loss_and_has_the_lines_of_why() {
    let data = timeline(&page(synthetic::slow_launches()));
    let lost = data["lost"].as_array().unwrap();
    let of = |key: &str| lost.iter().map(|one| one[key].as_u64().unwrap()).collect::<Vec<_>>();
    // (The GPU was waited for 90 ms, by design.)
    assert_eq!(of("lost"), [9_000_000, 4_000_000]);
    assert_eq!(of("kind"), [0, 0]);
    let events: Vec<i64> = data["events"].as_array().unwrap().iter().map(|n| n.as_i64().unwrap()).collect();
    for one in lost {
        let same =
            |e: &&[i64]| e[0] == one["lane"] && e[1] == one["kind"] && e[2] == one["from"] && e[4] == one["name"];
        assert!(events.chunks(5).any(|e| same(&e)), "{one} is none of the events");
    }
    let lines: Vec<&str> = lost[0]["lines"].as_array().unwrap().iter().map(|l| l[2].as_str().unwrap()).collect();
    assert_eq!(lines[0], "lock");
    assert!(lines[2].starts_with("thread 101 held it for 9.00 ms of that inside cuStreamSynchronize"), "{lines:?}");
    assert!(lines.last().unwrap().starts_with("called at "), "{lines:?}");
}

#[test]
fn without_slow_calls_the_timeline_goes_from_wait_to_wait_and_without_waits_by_length() {
    let document = page(synthetic::calls_and_locks());
    let answer = answers(&document).join(" ");
    assert_eq!(answer, "No CUDA call lost 50.0 us or more.");
    let lost = &timeline(&document)["lost"];
    assert_eq!((lost.as_array().unwrap().len(), &lost[0]["kind"], &lost[0]["lost"]), (1, &1.into(), &500.into()));
    assert!(html::html(&document).contains("press n for the next longest wait for a lock"));
    let document = page(synthetic::one_of_everything());
    assert_eq!(timeline(&document)["lost"].as_array().unwrap().len(), 0);
    assert!(html::html(&document).contains("press n for the next longest event"));
}

#[test]
fn losses_of_the_start_are_counted_with_the_option_that_shows_them() {
    let (early, starts) = ("in a process's first 1,000 launches and copies", "`doorbell why --starting` has them.");
    let said = |loads| {
        let document = page(synthetic::slow_launches_after(loads));
        let text = blocks(&document).find_map(|b| match b {
            Block::Text(text) if text.contains(early) => Some(text.clone()),
            _ => None,
        });
        (text, timeline(&document)["lost"].as_array().unwrap().len())
    };
    let (text, lost) = said(60_000);
    assert_eq!((text, lost), (Some(format!("1 call lost 50.0 us or more {early}: {starts}")), 2));
    assert_eq!(said(0), (None, 2));
}

#[test]
fn a_recording_without_calls_says_in_a_line_how_to_record_them() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../explain/decode/fixtures/h200-copies.doorbell");
    let document = html::of_recording(&decode::Recording::open(&fixture).unwrap()).unwrap();
    let section = &document.articles[0].sections[0];
    assert_eq!((section.id.as_str(), section.blocks.len()), ("why", 1));
    let [answer] = answers(&document)[..] else { panic!("{section:?}") };
    assert!(answer.starts_with("CUDA calls were not recorded. Record them with `doorbell record --locks PROGRAM`"));
}

#[test]
fn a_call_that_did_not_return_is_named_before_a_shorter_loss() {
    let mut tape = synthetic::slow_launches();
    tape.unreturned(102, 1_200_000_000);
    let document = page(tape);
    let [hangs, lost] = answers(&document)[..] else { panic!("{:?}", answers(&document)) };
    assert!(
        hangs.starts_with("when the recording ended: thread 102") && hangs.contains("cuStreamSynchronize"),
        "{hangs}"
    );
    assert!(lost.contains("lost 9.00 ms"), "{lost}");
    assert_eq!(timeline(&document)["lost"].as_array().unwrap().len(), 3);
}

#[test]
fn a_page_has_the_mark_of_doorbells_pages() {
    let page = html::html(&page(synthetic::calls_and_locks()));
    assert!(html::is_page(&page.as_bytes()[..html::HEAD]));
    for other in ["<!DOCTYPE html><p>Written by doorbell 0.1", "", &page[1..]] {
        assert!(!html::is_page(other.as_bytes()), "{other:.60}");
    }
}

#[test]
fn ranges_of_nvtx_have_a_table_with_the_gpus_work() {
    assert!(page(synthetic::copy_times()).tables().all(|t| t.name != "ranges"));
    let mut tape = synthetic::copy_times();
    for n in 0..20 {
        tape.range(200 + n, 199_000, 203_000 + n as u64, &format!("step {n}"));
    }
    let document = page(tape);
    let ranges = table(&document, "ranges");
    let heads: Vec<&str> = ranges.columns.iter().map(|c| c.head.as_str()).collect();
    for head in ["range", "GPU busy", "queued", "idle"] {
        assert!(heads.contains(&head), "{heads:?}");
    }
    assert_eq!((ranges.rows.len(), texts(ranges, 0)[0]), (12, "step 19"));
}

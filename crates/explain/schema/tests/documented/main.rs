//! docs/reference/json.md is what the doc comments of this crate say, and has every key that is printed.
//!
//! The samples in the modules have a value for each field, so a new field does not compile until it is added here.

mod commands;
mod declared;
mod locks;
mod page;
mod rank;
mod slow_calls;
mod summary;

use commands::{
    copy_row, driver_call_count, driver_call_row, each_range, graph_row, kernel_run, kernel_times, kernels, launch_row,
    objects, python, ranges, submission_row,
};
use declared::Sources;
use locks::{calls, diff, locks, one_call, one_range, one_switch, symbol_row, use_row, wait_row};
use page::Section;
use schema::document::{Document, Kind};
use schema::lines::Line;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use summary::{channel, now, recording_row, summary, top};

/// The environment variable with which this writes the page instead.
const WRITE: &str = "DOORBELL_WRITE_JSON";

const HEAD: &str = "\
# JSON

What `show --json`, `why --json`, `diff --json` and `export --jsonl` print of a recording, and `top --json` and `why --now --json` while one is made. This page is generated from the
doc comments of `crates/explain/schema/src`, by `DOORBELL_WRITE_JSON=1 cargo test -p schema --test documented`. The same test checks that it has every key.

- **Schema.** `show --summary`, `--objects`, `--locks`, `--calls` and `--rank`, `why`, `why --now`, `diff` and each line of `top` have the key `schema` with the name of their
  schema, such as `doorbell.summary/2`. The number rises when a key is removed or changes its meaning. Keys may be added without that. The first line of an
  export, of type `header`, has `doorbell.lines/2`. Other views have no `schema`: their rows are those of an export.
- **Time.** Seconds (`seconds`, `at`, `since`, `began`, `max_at`) count from the recording's first clock reading. Keys in `_ns`, and `ns`, are durations in
  nanoseconds; of `p50_ns`, half of them took no longer. `tsc` is the time stamp counter, a decimal string.
- **Large numbers.** Many readers keep numbers as doubles, exact up to 2^53. Numbers that may be larger are decimal or hex strings (`0x1f`). (A damaged recording
  may have any number.)
- **Same everywhere.** `process` is the index of a process image in the recording: what one exec, or one fork, made of a process. `pid` is its process, `tid` and
  `thread` are a thread's number and name. `slot` is the number of a channel, `generation` which channel of that number, `engine` such as `GRAPHICS` or `COPY2`.
- Each row has the kind of its value, unless that is a number, a string or a bool. A key without a meaning means what its name says.

Other forms of a recording, for Perfetto, PyTorch's tools, DuckDB and pandas: [exports](exports.md).
";

const TAIL: &str = "
## header, end, note

Lines of an export. `header` (the first line) describes the program and the machine, `end` (the last line) how the recording ended; it is absent if the recorder
was killed. `note` has a `text`. The keys of header and end are those of the file format: `crates/record/tape/src/file/records.rs`.
";

const SECTIONS: &[Section] = &[
    section(
        "summary",
        ("summary", "Summary"),
        "`show --summary --json`, schema `doorbell.summary/2`. Totals of the processes that are read.",
    ),
    section(
        "submission",
        ("submissions", "SubmissionRow"),
        "An element of `show --submissions --json`, and a line of an export.",
    ),
    section(
        "copy",
        ("operations", "CopyRow"),
        "A copy, inline write or fill: an element of `show --copies --json`, and a line of an export. Inline writes that carry a launch's QMD or constants are left out, as in the summary.",
    ),
    section(
        "launch",
        ("operations", "LaunchRow"),
        "A kernel launch: an element of `show --launches --json`, and a line of an export.",
    ),
    section(
        "kernel run",
        ("kernel_runs", "KernelRun"),
        "A run of a kernel, and a line of an export of type `kernel_run`, after its launch. `show --gpu-times --json` has those with a time as `runs`, and [kernel times](#kernel-times) as `kernel_times`.",
    ),
    section(
        "kernel times",
        ("kernel_times", "KernelTimes"),
        "How many kernels of a process have a time, and why the others have none (`record --gpu-times`).",
    ),
    section("kernels", ("kernels", "Kernels"), "`show --kernels --json`."),
    section(
        "driver calls",
        ("driver_calls", "DriverCallCount"),
        "An element of `show --driver-calls --json`, those with the longest total first.",
    ),
    section(
        "graph",
        ("graphs", "GraphRow"),
        "A CUDA graph that was launched more than once: an element of `show --graphs --json`.",
    ),
    section("ranges", ("ranges", "Ranges"), "`show --nvtx --json`."),
    section("each range", ("ranges", "EachRange"), "`show --nvtx --each --json`."),
    section("channel", ("channel", "Channel"), "An element of `show --channels --json`, and a line of an export."),
    section("objects", ("objects", "Objects"), "`show --objects --json`, schema `doorbell.objects/2`."),
    section("locks", ("locks", "Locks"), "`show --locks --json`, schema `doorbell.locks/2`."),
    section("python", ("python", "Python"), "`show --python --json`."),
    section("calls", ("cuda_calls", "Calls"), "`show --calls --json`, schema `doorbell.calls/2`."),
    section("why", ("slow_calls", "Why"), "`why --json`, schema `doorbell.why/1`."),
    section(
        "now",
        ("now", "Now"),
        "`why --now --json`, schema `doorbell.now/1`: who waits for whom in a program that is being recorded, or with `--all` in all of them.",
    ),
    section(
        "rank",
        ("rank", "Ranks"),
        "`show --rank --json`, schema `doorbell.rank/1`: what `doorbell.fleet` compares of each rank. Each moment belongs to the first of: a kernel, a copy, a collective on the GPU; while the GPU ran nothing, what the thread did that made the next submission or event: a wait for a lock, a CUDA call, a wait for a condition, else `outside`.",
    ),
    section(
        "diff",
        ("diff", "Diff"),
        "`diff --json`, schema `doorbell.diff/2`. Pairs are the first and the second recording.",
    ),
    section("call", ("driver_calls", "DriverCallRow"), "A line of an export: a driver call."),
    section("lock", ("lock_uses", "UseRow"), "A line of an export: an operation of a lock, or a lock and its unlock."),
    section("cuda_call", ("happened", "OneCall"), "A line of an export: a CUDA call."),
    section("switch", ("happened", "OneSwitch"), "A line of an export: a thread left a CPU or came onto one."),
    section("range", ("happened", "OneRange"), "A line of an export: a range of NVTX when it is over, or a mark."),
    section(
        "symbol",
        ("symbols", "SymbolRow"),
        "A line of an export, after all that name places: what the source calls the `place`. In other views an element of `symbols`, by place.",
    ),
    section(
        "recording",
        ("lines", "RecordingRow"),
        "The second line of an export: how far the recording can be trusted.",
    ),
    section(
        "top",
        ("top", "Top"),
        "A line of `top --json`, one each second, schema `doorbell.top/1`. The recorder counts them for an overview while it is asked: a recording has the exact numbers.",
    ),
];

const fn section(title: &'static str, of: (&'static str, &'static str), head: &'static str) -> Section {
    Section { title, of, head }
}

/// The keys of a section.
fn documented(title: &str) -> BTreeSet<String> {
    let section = SECTIONS.iter().find(|s| s.title == title).unwrap();
    let sources = Sources::read();
    let mut all = BTreeSet::new();
    page::paths(&sources, sources.find(section.of.0, section.of.1).unwrap(), "", &mut all);
    all
}

#[test]
fn the_page_is_what_the_doc_comments_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/reference/json.md");
    let made = page::page(&Sources::read(), HEAD, SECTIONS, TAIL);
    if std::env::var_os(WRITE).is_some() {
        return std::fs::write(path, made).unwrap();
    }
    let there = std::fs::read_to_string(path).unwrap();
    let first = there.lines().zip(made.lines()).find(|(there, made)| there != made);
    assert!(there == made, "{WRITE}=1 writes docs/reference/json.md again; the first difference: {first:?}");
}

fn keys(v: &Value, prefix: &str, into: &mut BTreeSet<String>) {
    let Value::Object(map) = v else { return };
    for (k, v) in map {
        let path = format!("{prefix}{k}");
        if k != "*" {
            into.insert(path.clone());
        }
        keys(v, &format!("{path}."), into);
        for element in v.as_array().into_iter().flatten() {
            keys(element, &format!("{path}[]."), into);
        }
    }
}

fn printed(v: &impl Serialize) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    keys(&serde_json::to_value(v).unwrap(), "", &mut all);
    all
}

fn same(section: &str, v: &impl Serialize) {
    same_keys(section, &printed(v));
}

fn same_keys(section: &str, printed: &BTreeSet<String>) {
    let documented = documented(section);
    let missing: Vec<_> = printed.difference(&documented).collect();
    let gone: Vec<_> = documented.difference(printed).collect();
    assert!(missing.is_empty() && gone.is_empty(), "{section}: not documented {missing:?}, not printed {gone:?}");
}

fn document<T: Kind>(section: &str, v: &T) {
    let mut printed = printed(&Document::of(v));
    assert!(printed.remove("schema"));
    same_keys(section, &printed);
    let head = SECTIONS.iter().find(|s| s.title == section).unwrap().head;
    assert!(head.contains(&format!("`{}`", T::SCHEMA)), "{}", T::SCHEMA);
}

#[test]
fn documented_keys_are_the_printed_ones() {
    document("summary", &summary());
    same("submission", &submission_row());
    same("copy", &copy_row());
    same("launch", &launch_row());
    same("kernel run", &kernel_run());
    same("kernel times", &kernel_times());
    same("kernels", &kernels());
    same("driver calls", &driver_call_count());
    same("python", &python());
    same("ranges", &ranges());
    same("each range", &each_range());
    same("graph", &graph_row());
    same("channel", &channel());
    document("objects", &objects());
    document("locks", &locks());
    document("why", &slow_calls::why());
    document("now", &now());
    document("calls", &calls());
    document("rank", &rank::ranks());
    document("diff", &diff());
    document("top", &top());
    same("call", &driver_call_row());
    same("lock", &use_row());
    same("cuda_call", &one_call());
    same("switch", &one_switch());
    same("range", &one_range());
    let Value::Object(mut symbol) = serde_json::to_value(Line::Symbol { place: "x", symbol: &symbol_row() }).unwrap()
    else {
        panic!()
    };
    symbol.remove("type");
    symbol.remove("place");
    same("symbol", &symbol);
    same("recording", &recording_row());
    assert!(HEAD.contains(<tape::file::Header as Kind>::SCHEMA));
}

#[test]
fn what_may_exceed_2_to_the_53_is_a_string() {
    let mut s = submission_row();
    (s.tsc, s.entries[0].gp) = (u64::MAX, u64::MAX);
    let v = serde_json::to_value(&s).unwrap();
    assert_eq!((&v["tsc"], &v["entries"][0]["gp"]), (&"18446744073709551615".into(), &"0xffffffffffffffff".into()));
    let mut c = copy_row();
    c.payload = None;
    assert!(serde_json::to_value(&c).unwrap()["payload"].is_null());
    assert_eq!(serde_json::to_value(wait_row()).unwrap()["tsc"], "1");
}

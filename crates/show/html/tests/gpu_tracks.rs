//! The GPU's tracks on the page of a recording.

#[path = "../../../explain/decode/tests/synthetic/mod.rs"]
mod synthetic;

use html::document::{Block, Document};
use serde_json::Value;
use std::path::Path;

fn page(mut tape: synthetic::Tape) -> Document {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.doorbell");
    tape.write(&path);
    html::of_recording(&decode::Recording::open(&path).unwrap()).unwrap()
}

/// The data that the script draws, and the page's text about it.
fn timeline(document: &Document) -> (Value, String) {
    let mut blocks = document.articles.iter().flat_map(|a| &a.sections).flat_map(|s| &s.blocks);
    let found = blocks.find_map(|b| if let Block::Timeline(t) = b { Some(t) } else { None }).unwrap();
    (serde_json::from_str(&found.data).unwrap(), found.says.clone())
}

fn numbers(v: &Value) -> Vec<i64> {
    v.as_array().unwrap().iter().map(|n| n.as_i64().unwrap()).collect()
}

#[test]
fn each_stream_has_a_track_and_each_kernel_leads_to_its_call() {
    let document = page(synthetic::kernel_times());
    let (data, says) = timeline(&document);
    assert!(says.contains("All 6 kernels with a time of the GPU are drawn individually."), "{says}");
    let gpu = &data["gpu"];
    let titles: Vec<&str> = gpu["tracks"].as_array().unwrap().iter().map(|t| t["title"].as_str().unwrap()).collect();
    assert_eq!(titles.len(), 3, "{titles:?}");
    assert_eq!(titles[0], "stream 0x51 on engine GRAPHICS, channel 0, GPU 0: busy 96.4 %");
    assert!(titles[2].starts_with("stream 0x53 on ") && titles[2].contains("busy at most "), "{titles:?}");
    let bars = numbers(&gpu["bars"]);
    let bars: Vec<&[i64]> = bars.chunks(11).collect();
    assert_eq!(bars.len(), 6);
    let (names, calls) = (gpu["names"].as_array().unwrap(), numbers(&gpu["calls"]));
    // The first kernel: alone, by its doorbell, launched by the first call.
    let [track, lane, kind, from, ns, name, start, _, queued, grid, call] = bars[0] else { panic!("{bars:?}") };
    assert_eq!((*track, *lane, *kind, *start), (0, 0, 0, 0));
    assert_eq!((&names[*name as usize][0], &names[*name as usize][1]), (&"add".into(), &"add(int*)".into()));
    assert_eq!(gpu["grids"][*grid as usize], "1 x 1 x 1 blocks of 128 x 1 x 1 threads");
    let launched = &calls[4 * *call as usize..][..4];
    let called = &data["names"][launched[3] as usize];
    assert_eq!(called, "cuLaunchKernel");
    assert!(launched[1] < from - queued && from - queued < launched[1] + launched[2], "its doorbell is in its call");
    assert!(*ns > 0);
    // Kernels of a graph: all have the call of its launch.
    let of_graph: Vec<i64> = bars.iter().filter(|b| b[6] >= 4).map(|b| b[10]).collect();
    assert!(of_graph.len() == 3 && of_graph.iter().all(|call| *call == of_graph[0]), "{of_graph:?}");
    assert!(bars.iter().any(|b| b[6] & 3 == 2), "one is bounded: {bars:?}");
    // Two that overlap are in two lanes.
    assert_eq!(gpu["tracks"][2]["lanes"], 2);
    let busy = numbers(&gpu["tracks"][0]["busy"]);
    assert!(!busy.is_empty() && busy.chunks(2).all(|b| b[1] > 0 && b[1] <= 1000), "{busy:?}");
}

#[test]
fn each_channel_that_copies_has_a_track_and_each_copy_leads_to_its_call() {
    let document = page(synthetic::copy_times());
    let (data, says) = timeline(&document);
    assert!(says.contains("All 1 kernels with a time") && says.contains("All 3 copies with a time"), "{says}");
    let gpu = &data["gpu"];
    let titles: Vec<&str> = gpu["tracks"].as_array().unwrap().iter().map(|t| t["title"].as_str().unwrap()).collect();
    assert_eq!(
        titles,
        [
            "stream 0x51 on engine GRAPHICS, channel 0, GPU 0: busy at most 100.0 %",
            "copies on engine COPY2, channel 1, GPU 0: busy 39.8 %",
            "copies on engine COPY3, channel 2, GPU 0: busy 100.0 %"
        ]
    );
    let bars = numbers(&gpu["bars"]);
    let bars: Vec<&[i64]> = bars.chunks(11).filter(|bar| bar[2] == 1).collect();
    let text = |key: &str, n: i64| gpu[key][n as usize].clone();
    let names: Vec<Value> = bars.iter().map(|bar| text("names", bar[5])[0].clone()).collect();
    assert_eq!(names, ["copy 4 MiB host to device", "copy 4 MiB device to host", "fill 4 KiB of device"]);
    let [track, lane, _, _, ns, _, start, earlier, queued, stream, call] = bars[0] else { panic!("{bars:?}") };
    assert_eq!((*track, *lane, *start, *earlier), (1, 0, 3, 0), "the GPU stored both times");
    assert!(ns.abs_diff(190_000) < 100 && queued.abs_diff(10_000) < 100, "{bars:?}");
    assert_eq!(text("grids", *stream), "stream 0x51");
    let called = &numbers(&gpu["calls"])[4 * *call as usize..][..4];
    assert_eq!(text("calls", 4 * call + 1), called[1]);
    assert_eq!(data["names"][called[3] as usize], "cuMemcpyHtoDAsync");
    let page = html::html(&document);
    for said in ["a copy or a fill, on the track of its channel", "c to the next longest copy"] {
        assert!(page.contains(said), "{said}");
    }
}

#[test]
fn the_page_has_a_legend_and_a_row_for_each_stream() {
    let document = page(synthetic::kernel_times());
    let text = html::html(&document);
    for said in ["const gpuTracks", "whose start is bounded", "How busy the kernels of each stream", "at most "] {
        assert!(text.contains(said), "{said}");
    }
    assert!(!text.contains("a copy or a fill"), "it has none");
    let table = document.tables().find(|t| t.name == "streams").unwrap();
    assert_eq!(table.rows.len(), 3);
    assert!(table.columns.iter().any(|c| c.head == "longest gap"));
    assert!(html::markdown(&document).contains("| 0x51 |"));
}

#[test]
fn a_recording_without_the_gpus_times_has_none_of_it() {
    let document = page(synthetic::calls_and_locks());
    let (data, says) = timeline(&document);
    assert!(data["gpu"].is_null() && says.contains("GPU's own times are not recorded"), "{says}");
    let text = html::html(&document);
    for absent in ["const gpuTracks", "bounded", "longest kernel,", "Enter from a kernel"] {
        assert!(!text.contains(absent), "{absent}");
    }
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../explain/decode/fixtures/h200-launches.doorbell");
    let document = html::of_recording(&decode::Recording::open(&fixture).unwrap()).unwrap();
    assert!(timeline(&document).0["gpu"].is_null());
}

//! Recordings of NVIDIA's driver (580.159.04, CUDA 13.0, H200, without data): every later decoder must give these results.
//!
//! Made with `docs/results/see.sh OUT fixtures` and `cargo run -p tape --example anonymous`.
//! `h200-programmatic`: with `--gpu-times`, kernels `plain` and, by programmatic dependent launch, `pdl` and `nolaunch`, then four `pdl` in a graph, twice.

use decode::walk::{At, GraphKernel, Sink, walk};
use decode::{Kernel, Recording};
use pushbuf::gpfifo::Entry;
use pushbuf::header::Header;
use pushbuf::ops::{Op, What};
use schema::operations::Start;
use schema::{Place, Summary};
use std::collections::BTreeMap;
use std::path::PathBuf;
use tape::event::{Body, Events};
use tape::file::{Item, Reader};

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name)
}

fn summary(name: &str) -> Summary {
    decode::summary(&Recording::open(&fixture(name)).unwrap()).unwrap()
}

#[test]
fn copies_of_every_size_through_cuda() {
    let s = summary("h200-copies.doorbell");
    assert_eq!((s.submissions, s.doorbells, s.entries, s.lost), (552, 552, 552, 0));
    assert!(s.complete, "{:?}", s.incomplete_because);
    assert_eq!((s.tap.trapped, s.tap.rewritten), (1, 551));
    assert_eq!((s.copies.copy_engine, s.copies.inline, s.launches, s.fills), (275, 131, 71, 85));
    let bytes = |from, to| {
        let rows = s.copies.copy_engine_detail.by_place.iter();
        rows.filter(|r| r.from == Some(from) && r.to == to).map(|r| r.bytes).sum::<u64>() >> 20
    };
    assert_eq!((bytes(Place::Host, Place::Video), bytes(Place::Video, Place::Host)), (182, 357));
    assert_eq!((s.semaphores.released, s.semaphores.timestamps), (552, 552));
    // 20 channels of class 0xC86F; GPFIFO and USERD in GPU memory, pushbuffers in host memory, rings shadowed.
    assert_eq!(s.channels, 20);
    assert!(s.problems.unknown_methods.is_empty() && s.problems.bad_headers == 0 && s.problems.unmapped_segments == 0);
}

#[test]
fn launches_and_graphs_through_cuda() {
    let s = summary("h200-launches.doorbell");
    assert_eq!((s.submissions, s.entries, s.lost, s.channels), (708, 708, 0, 40));
    assert!(s.complete, "{:?}", s.incomplete_because);
    // `sample launches`: 100 kernels. `sample graphs`: graphs of 1, 10 and 100 nodes, 50 launches of each. The first is launched like a kernel. The nodes
    // of the others come from QMDs that were written in another segment, which `--no-data` drops: they are seen without a shape, and each later launch of a
    // root counts as one more.
    assert_eq!((s.launches, s.launch_detail.without_qmd, s.launch_detail.again), (271, 111, 98));
    assert!(s.problems.unknown_methods.is_empty() && s.problems.bad_headers == 0);
    let sizes: Vec<_> = s.launch_shapes.iter().map(|l| l.shape.block[0]).collect();
    assert!(sizes.iter().all(|b| (1..=1024).contains(b)), "{sizes:?}");
}

#[derive(Default)]
struct Starts(BTreeMap<(String, bool), Vec<Start>>);

impl Starts {
    fn add(&mut self, kernel: Option<&Kernel>, in_graph: bool, start: Start) {
        let name = schema::names::short_name(kernel.map_or("?", |k| &k.name));
        self.0.entry((name, in_graph)).or_default().push(start);
    }
}

impl Sink for Starts {
    fn op(&mut self, at: &At<'_>, op: &Op) {
        if let (What::Launch(_), Some(time)) = (&op.what, at.gpu_time()) {
            self.add(at.kernel().as_deref(), false, time.start);
        }
    }

    fn graph_kernel(&mut self, _: &At<'_>, kernel: &GraphKernel) {
        self.add(kernel.kernel.as_deref(), true, kernel.gpu.start);
    }
}

#[test]
fn a_programmatic_launch_may_begin_while_the_kernel_before_it_runs() {
    let mut starts = Starts::default();
    walk(&Recording::open(&fixture("h200-programmatic.doorbell")).unwrap(), &mut starts).unwrap();
    let of = |name: &str, in_graph| starts.0.get(&(name.to_owned(), in_graph)).cloned().unwrap_or_default();
    let bounded = |starts: &[Start]| starts.iter().filter(|s| **s == Start::Bounded).count();
    for (name, in_graph, all, early) in
        [("plain", false, 4, 0), ("pdl", false, 5, 5), ("nolaunch", false, 4, 4), ("pdl", true, 8, 7)]
    {
        let starts = of(name, in_graph);
        assert_eq!((starts.len(), bounded(&starts)), (all, early), "{name} {in_graph} {starts:?}");
    }
}

#[test]
fn every_header_and_entry_of_the_driver_encodes_back_to_itself() {
    for name in ["h200-copies.doorbell", "h200-launches.doorbell"] {
        let mut r = Reader::open(&fixture(name)).unwrap();
        let (mut entries, mut headers) = (0, 0);
        while let Some(item) = r.item().unwrap() {
            let Item::Events { bytes, .. } = item else { continue };
            for e in Events::new(&bytes) {
                let Body::Entry(b, words) = e.body else { continue };
                assert_eq!(Entry::parse(b.gp).encode(), b.gp);
                entries += 1;
                for w in words.chunks_exact(4) {
                    // Every word, because data read as a header must be encoded unchanged, too.
                    let w = u32::from_le_bytes([w[0], w[1], w[2], w[3]]);
                    assert_eq!(Header::parse(w).encode(), w, "{w:#010x}");
                    headers += 1;
                }
            }
        }
        assert!(entries > 500 && headers > 100_000, "{name}: {entries} entries, {headers} words");
    }
}

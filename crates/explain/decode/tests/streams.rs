//! How busy streams were, on a tape with the GPU's times.

mod synthetic;

use decode::Recording;
use decode::kernels::kernels;
use decode::walk::{Filter, Pattern};

#[test]
fn each_stream_has_its_kernels_and_no_gap_is_of_another_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    synthetic::kernel_times().write(&path);
    let r = Recording::open(&path).unwrap();
    let streams = kernels(&r, &Filter::default()).unwrap().streams;
    let of = |handle: u64| streams.iter().find(|s| s.stream == Some(handle)).unwrap();
    // (The fifth launch has no end. The kernel of 0x52 runs at the same time as another stream of its channel.)
    let runs = [0x51, 0x52, 0x53].map(|handle| (of(handle).runs, of(handle).bounded, of(handle).gaps));
    assert_eq!((streams.len(), runs), (3, [(2, 0, 0), (1, 1, 0), (3, 1, 0)]), "{streams:#?}");
    let first = of(0x51);
    assert_eq!(first.longest_gap_ns, 1_000, "the second kernel follows the first");
    // (From about 2 us after the doorbell at 200,000 until 230,000, except for that gap.)
    assert_eq!(first.span_ns - first.busy_ns, 1_000, "{first:?}");
    assert!((26_000..29_000).contains(&first.busy_ns), "{first:?}");
    assert!(first.share > 0.96 && first.share < 0.97 && first.pid == 4242);
    let chosen = Filter { kernel: Pattern::new("add").ok(), ..Filter::default() };
    assert!(kernels(&r, &chosen).unwrap().streams.is_empty(), "of chosen kernels alone gaps mean nothing");
    let first = Filter { limit: Some(1), ..Filter::default() };
    assert_eq!(kernels(&r, &first).unwrap().streams, streams, "the limit is of rows of kernels");
}

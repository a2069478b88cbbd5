//! Encoding, decoding, operations and text make no allocation, for any length of the stream.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fmt::{self, Write as _};

use pushbuf::decode::Decoder;
use pushbuf::encode::Words;
use pushbuf::ops::Engine;

struct Counting;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed to `System` unchanged; the counter is a plain thread-local without a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.set(CALLS.get() + 1);
        // SAFETY: the caller's obligations are those of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's obligations are those of `System`.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Sink(usize);

impl fmt::Write for Sink {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        self.0 += s.len();
        Ok(())
    }
}

#[test]
fn nothing_is_allocated_after_the_engine_is_made() {
    let mut buffer = vec![0; 1 << 16];
    let data = [7; 4 * 8191];
    let (mut decoder, mut engine) = (Decoder::new(0xc86f), Engine::new());
    decoder.bind(1, 0xcbc0);
    decoder.bind(4, 0xc8b5);
    let (mut ops, mut text) = (0, Sink(0));

    let before = CALLS.get();
    for _ in 0..10 {
        let mut w = Words::new(&mut buffer);
        for i in 0..100 {
            w.copy(4, i, i << 20, 64, 0x182).unwrap();
            w.inline(1, i << 30, &data[..528], 0x41).unwrap();
            w.launch(1, i << 30).unwrap();
            w.host_release(0, 0x1000, 1, true).unwrap();
        }
        w.inline(1, 0x1000, &data, 0x41).unwrap();
        decoder.segment(w.as_slice(), |item| write!(text, "{item}").unwrap());
        engine.segment(&mut decoder, w.as_slice(), |_| ops += 1);
    }
    let calls = CALLS.get() - before;

    assert_eq!(ops, 10 * 401);
    assert!(text.0 > 1_000_000);
    assert_eq!(calls, 0);
    drop(vec![0u8; 64]);
    assert!(CALLS.get() > before, "the counter counts");
}

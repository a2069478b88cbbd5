//! Which thread has which lane: alone in its process, because threads are numbered in the whole process.

use doorbell_softgpu::{Mode, SoftDriver};
use gpu::{AddressSpace, Device};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use submit::{Options, Session};

const LIMIT: Duration = Duration::from_secs(30);

/// Set when it is dropped, even if a thread panics: other threads wait for it.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A thread that looks up a buffer's place, or the executor of a copy, keeps no thread from submitting. A thread that ends gives its
/// lane back.
#[test]
fn a_thread_with_a_lane_of_its_own_is_never_told_that_it_is_busy() {
    let device = Device::open(Arc::new(SoftDriver::new(Mode::Strict)), 0).unwrap();
    let s = &Session::new();
    s.open_in(AddressSpace::new(&device).unwrap(), None, &Options { lanes: 2, ..Options::default() }).unwrap();
    let (host, video) = (s.allocate(64, false).unwrap(), s.allocate(64, true).unwrap());
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ends = Ends(&ended);
        for _ in 0..2 {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    s.place(host).unwrap();
                    s.explain(video, host, 64, true).unwrap();
                }
            });
        }
        // Each thread has one of two lanes, one after the other: more threads than lanes, but two at a time.
        let one = || {
            let transfer = s.prepare((video, 0), (host, 0), 64).unwrap();
            for _ in 0..2000 {
                s.wait(s.submit(transfer).unwrap(), LIMIT).unwrap();
            }
            s.release(transfer).unwrap();
        };
        let mut threads = vec![scope.spawn(one), scope.spawn(one)];
        for _ in 0..6 {
            threads.remove(0).join().unwrap();
            threads.push(scope.spawn(one));
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        drop(ends);
    });
}

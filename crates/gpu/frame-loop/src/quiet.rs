//! A frame allocates no memory and makes no system call except its sleep and the write to the eventfd. Its turns run on this thread, whose calls are counted;
//! `sys` leaves these two out of the count.

#[path = "../tests/rig/mod.rs"]
mod rig;

use crate::memory::Memory;
use crate::options::{Late, LoopOptions, Pace, Take, Waiting};
use crate::sink::Results;
use crate::source::{Producer, Stamp};
use crate::turn::Turns;
use rig::{BYTES, input, is_right, program};
use std::sync::Arc;
use std::time::Duration;
use test_support::counting::{Counting, cost, watch_system_calls};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_frame_allocates_nothing_and_makes_no_system_call_but_its_sleep_and_its_signal() {
    let name = "quiet::a_frame_allocates_nothing_and_makes_no_system_call_but_its_sleep_and_its_signal";
    // A GPU that polls: to trap a doorbell, the strict one makes system calls on this thread.
    if !program::inside_with(name, "poll") {
        return;
    }
    let rig = rig::rig();
    let chain = rig.chain();
    let watched = watch_system_calls();
    if !watched {
        eprintln!("system calls are not watched: this kernel has no syscall user dispatch");
    }
    let pace = Pace::Period(Duration::from_millis(1));
    let all = [
        chain.options(Pace::Frames),
        LoopOptions { waiting: Waiting::Spin, late: Late::CatchUp, ..chain.options(Pace::Frames) },
        LoopOptions { late: Late::CatchUp, ..chain.options(pace) },
        LoopOptions { late: Late::Latest, spin: Duration::ZERO, waiting: Waiting::Spin, ..chain.options(pace) },
        LoopOptions { take: Take::Newest, ..chain.options(pace) },
        // Each is refused: its deadline has passed when it is taken.
        LoopOptions { deadline: Some(Duration::from_nanos(1)), ..chain.options(Pace::Frames) },
    ];
    for (at, options) in all.iter().enumerate() {
        let memory = Arc::new(Memory::new((options.slots, BYTES), (options.results, BYTES)).unwrap());
        let held = |part: crate::Part| Some(rig.session.hold((part.buffer, part.at), part.bytes).unwrap());
        let mut turns = Turns::new(options, held(chain.input), held(chain.output));
        let mut producer = Producer::new(&memory, options.take).unwrap();
        let mut results = Results::new(&memory).unwrap();
        let mut outcomes = 0;
        for round in 0..100u32 {
            let (mut ended, mut committed, mut bytes) = (Ok(()), false, [0; BYTES as usize]);
            let mut found = None;
            let spent = cost(watched, || {
                committed = producer.put(&input(round), Stamp::default()).is_ok();
                ended = turns.turn(&memory, &rig.session);
                found = results.next(&mut bytes).ok().flatten();
            });
            assert_eq!((ended, committed, spent), (Ok(()), true, (0, 0)), "{at}, round {round}");
            if let Some(outcome) = found {
                // (Ticks of the previous loop may pass while the thread has no CPU.)
                assert!(if at == 4 { true } else { outcome.refused == (at == 5) }, "{at}: {outcome:?}");
                assert!(outcome.refused || is_right(&bytes, round), "{at}: {outcome:?}");
                outcomes += 1;
            }
        }
        assert_eq!(outcomes, 100, "{at}");
    }
    // Both counters count.
    let (allocations, calls) = cost(watched, || {
        drop(std::hint::black_box(Box::new(7)));
        // SAFETY: no arguments.
        unsafe { libc::getppid() };
    });
    assert_eq!((allocations, calls), (2, u32::from(watched)));
}

//! The example runs, and every result is right.

mod rig;

#[allow(dead_code, reason = "its `main` is another program's")]
#[path = "../examples/next_to_a_timer.rs"]
mod next_to_a_timer;

use next_to_a_timer::{Wanted, measure};
use rig::program;
use std::time::Duration;

#[test]
fn a_loop_and_a_timer_take_turns() {
    if !program::inside("a_loop_and_a_timer_take_turns") {
        return;
    }
    let rows = measure(Wanted {
        rounds: 2,
        time: Duration::from_millis(300),
        period: Duration::from_millis(5),
        bytes: 2048,
        kernels: 3,
        fifo: None,
        cpu: None,
        modules: true,
        launches: 64,
    });
    for row in rows.unwrap() {
        assert!(row.frames > 0 && row.wrong == 0 && row.rounds.len() == 2, "{}: {} wrong", row.name, row.wrong);
    }
}

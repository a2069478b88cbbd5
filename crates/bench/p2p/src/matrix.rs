//! Measures the matrix: every method between every two GPUs, and within each.

use crate::MOST;
use crate::account::Cell;
use crate::pair::Pair;
use crate::plan::Plan;
use measure::clock::Clock;
use workload::Machine;

/// The next step between two GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct News {
    pub gpus: (u32, u32),
    /// `None`: every method is being verified.
    pub round: Option<u32>,
}

/// How many GPUs there are, up to eight; those that are not open yet are opened.
pub fn gpus(machine: &Machine) -> u32 {
    (machine.index()..machine.index() + MOST).take_while(|n| machine.gpu(*n).is_ok()).count() as u32
}

/// All cells, by method. `functional`: verified, not timed. If it is stopped between two pairs or two rounds, the results so far are returned.
pub fn run(
    machine: &Machine,
    plan: &Plan,
    functional: bool,
    is_stopped: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(News),
) -> Vec<Cell> {
    let clock = Clock::new();
    let mut cells = Vec::new();
    for gpus in (0..plan.gpus).flat_map(|a| (a..plan.gpus).map(move |b| (a, b))) {
        if is_stopped() {
            break;
        }
        tell(News { gpus, round: None });
        let mut pair = Pair::open(machine, plan, gpus);
        if functional {
            pair.try_both();
        } else {
            pair.measure(&clock, is_stopped, &mut |round| tell(News { gpus, round: Some(round) }));
        }
        cells.extend(pair.cells());
    }
    cells.sort_by_key(|cell| (cell.way, cell.from, cell.to));
    cells
}

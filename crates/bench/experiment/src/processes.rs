//! How a run is divided among processes where its file does not say how often it is repeated.

use crate::model::{Run, Stage};

/// One process has one layout of memory, one set of threads and one start: only several processes show how far a figure may be off.
pub const PROCESSES: u32 = 5;

/// The processes of an experiment that does not give `repeats`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processes {
    /// [`PROCESSES`] share the rounds, the samples and the time.
    Shared,
    /// One has all of it.
    One,
}

/// With one round, all samples of a process are from one moment.
const LEAST_ROUNDS: u32 = 2;
/// A shorter metering has no energy.
const LEAST_METER_NS: u64 = 1_000_000_000;

/// Gives each of several processes its share. `stages` are those of the undivided run.
pub(crate) fn divide(run: &mut Run, stages: &[Stage]) {
    let share = |all: u64| all.div_ceil(PROCESSES.into());
    let cells = stages.iter().flat_map(|stage| &stage.cells);
    let places = cells.map(|cell| cell.subject.addresses.places()).max().unwrap_or(1) as u32;
    let counted = if run.counters_every <= run.rounds { run.counters_every } else { 0 };
    // Each process has a round at each place of a sweep, and one in which counters are read.
    let rounds = run.rounds.div_ceil(PROCESSES).max(LEAST_ROUNDS).max(places).max(counted);
    // A call that the loads block is given up after the same time as in one process.
    run.patience_ns = run.patience_ns.or(run.duration_ns);
    run.duration_ns = run.duration_ns.map(share);
    // No round is without a sample that had one.
    run.samples = run.samples.map(|all| share(all).max(all.min(rounds.into())));
    run.noise_ns = share(run.noise_ns);
    run.meter_ns = share(run.meter_ns).max(run.meter_ns.min(LEAST_METER_NS));
    (run.rounds, run.repeats) = (rounds, PROCESSES);
}

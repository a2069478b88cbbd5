//! Steps of several channels in an order that their waits allow.
//!
//! The words of a launch may be known in order only within each channel. A recipe, and the graph in doorbell's form, need every wait to come after
//! the work that it waits for.
//!
//! Channels that only copy need more care. CUDA leaves out a wait for work that is already done when it writes the words. (Seen on an H200: a copy
//! of 1 MiB after a short kernel has no wait at all.) So a wait in the words is a true dependence, but a missing wait does not prove independence.
//! If other work waits for such a copy, the copy is placed as late as possible: everything ahead of that place was submitted before it. If the copy
//! itself waits and no other work waits for it, it is the launch's last step. In any other case its place is uncertain ([`Refused::NoPlace`]).
//!
//! If the stream was kept busy while CUDA wrote the words, no wait is missing, and copy-only channels are treated like the others.

use crate::read::{Channel, has_compute};
use crate::refused::Refused;
use crate::step::{Placed, Step};

/// Upper bound on what QMDs add to a counter in one launch.
const MOST_ADDED: i32 = 1 << 16;

/// The steps of one channel from one set of waits to the next, as indices.
struct Run {
    steps: Vec<usize>,
    /// Runs that must come before this one.
    needs: Vec<usize>,
    /// Address of its first step, for messages.
    address: u64,
}

/// The steps as they were given, if their waits allow that order, or in one that they allow. `whole`: no wait is missing.
pub(crate) fn in_order(channels: &[Channel], steps: Vec<Placed>, whole: bool) -> Result<Vec<Placed>, Refused> {
    if steps.iter().all(|placed| Some(placed.channel) == steps.first().map(|p| p.channel)) {
        return Ok(steps);
    }
    let runs = runs(&steps);
    let only_copies = |placed: &Placed| channels.get(placed.channel).is_some_and(|channel| !has_compute(channel));
    if !whole && steps.iter().any(only_copies) {
        return with_copy_channels(&steps, &runs, |placed| !only_copies(placed));
    }
    if runs.iter().all(|run| is_behind(run, &runs)) {
        return Ok(steps);
    }
    let mut left: Vec<usize> = (0..runs.len()).collect();
    left.sort_by_key(|i| runs.get(*i).and_then(|run| run.steps.first().copied()));
    let mut order = Vec::with_capacity(steps.len());
    while let Some(first) = left.first().copied() {
        let channel =
            |run: usize| runs.get(run).and_then(|r| steps.get(*r.steps.first()?)).map(|placed| placed.channel);
        let is_free = |at: usize| {
            let Some(run) = left.get(at).copied() else { return false };
            // (The runs of one channel keep their order.)
            let is_first = left.iter().take(at).all(|other| channel(*other) != channel(run));
            is_first && runs.get(run).is_some_and(|r| r.needs.iter().all(|need| !left.contains(need)))
        };
        let Some(at) = (0..left.len()).find(|at| is_free(*at)) else {
            let address = runs.get(first).map_or(0, |run| run.address);
            return Err(Refused::Order { address });
        };
        let run = left.remove(at);
        order.extend(runs.get(run).into_iter().flat_map(|run| run.steps.iter().copied()));
    }
    Ok(order.into_iter().filter_map(|i| steps.get(i).cloned()).collect())
}

/// An order for launches in which some channels only copy. The first channel with kernels keeps its order; each run of the other channels is placed
/// where another run needs it.
fn with_copy_channels(
    steps: &[Placed],
    runs: &[Run],
    computes: impl Fn(&Placed) -> bool,
) -> Result<Vec<Placed>, Refused> {
    let channel = |run: usize| runs.get(run).and_then(|r| steps.get(*r.steps.first()?)).map(|placed| placed.channel);
    let first = steps.iter().find(|placed| computes(placed)).map(|placed| placed.channel);
    let all = |on_first: bool| (0..runs.len()).filter(move |run| (channel(*run) == first) == on_first);
    let mut placing = Placing { runs, order: Vec::new(), begun: vec![false; runs.len()] };
    let is_needed = |run: usize| runs.iter().any(|other| other.needs.contains(&run));
    for run in all(true) {
        placing.place(run, &channel)?;
    }
    let last = placing.order.len();
    for run in all(false).filter(|run| !placing.order.contains(run)).collect::<Vec<_>>() {
        // A run that waits for the last run of the first channel, or for a run placed after that one, is placed last.
        let behind = |need: &usize| placing.order.iter().position(|at| at == need).is_some_and(|at| at + 1 >= last);
        let is_last = runs.get(run).is_some_and(|r| r.needs.iter().any(behind));
        if is_needed(run) || !is_last {
            return Err(Refused::NoPlace { address: runs.get(run).map_or(0, |run| run.address) });
        }
        placing.place(run, &channel)?;
    }
    let order = placing.order.iter().filter_map(|run| runs.get(*run)).flat_map(|run| &run.steps);
    Ok(order.filter_map(|i| steps.get(*i).cloned()).collect())
}

struct Placing<'a> {
    runs: &'a [Run],
    order: Vec<usize>,
    begun: Vec<bool>,
}

impl Placing<'_> {
    /// Places a run after the earlier runs of its channel and after all runs that it needs.
    fn place(&mut self, run: usize, channel: &impl Fn(usize) -> Option<usize>) -> Result<(), Refused> {
        if self.order.contains(&run) {
            return Ok(());
        }
        let Some(of) = self.runs.get(run) else { return Ok(()) };
        match self.begun.get_mut(run) {
            Some(begun) if !*begun => *begun = true,
            _ => return Err(Refused::Order { address: of.address }),
        }
        let before = (0..run).rev().find(|other| channel(*other) == channel(run));
        for need in before.into_iter().chain(of.needs.iter().copied()) {
            self.place(need, channel)?;
        }
        self.order.push(run);
        Ok(())
    }
}

fn is_behind(run: &Run, runs: &[Run]) -> bool {
    let first = run.steps.first();
    run.needs.iter().filter_map(|need| runs.get(*need)).all(|need| need.steps.last() < first)
}

fn runs(steps: &[Placed]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    // The current run of each channel.
    let mut open: Vec<(usize, usize)> = Vec::new();
    for (i, placed) in steps.iter().enumerate() {
        let waits = matches!(placed.step, Step::Acquire { .. });
        let on = open.iter().find(|(channel, _)| *channel == placed.channel).map(|(_, run)| *run);
        let goes_on = on.and_then(|run| runs.get_mut(run)).filter(|run| {
            let last = run.steps.last().and_then(|last| steps.get(*last)).map(|placed| &placed.step);
            match last {
                // A submission ends with a release.
                Some(Step::Report { .. }) => false,
                Some(Step::Acquire { .. }) => true,
                _ => !waits,
            }
        });
        match goes_on {
            Some(run) => run.steps.push(i),
            None => {
                open.retain(|(channel, _)| *channel != placed.channel);
                open.push((placed.channel, runs.len()));
                runs.push(Run { steps: vec![i], needs: Vec::new(), address: placed.step.address().unwrap_or(0) });
            }
        }
    }
    let needs: Vec<Vec<usize>> = runs.iter().map(|run| needs(run, &runs, steps)).collect();
    runs.iter_mut().zip(needs).for_each(|(run, needs)| run.needs = needs);
    runs
}

/// The runs of other channels that set or release what a run waits for.
fn needs(run: &Run, runs: &[Run], steps: &[Placed]) -> Vec<usize> {
    let mut needs = Vec::new();
    for wait in run.steps.iter().filter_map(|i| steps.get(*i)) {
        let Step::Acquire { address, payload, .. } = wait.step else { continue };
        let gives = |i: &usize| {
            let Some(placed) = steps.get(*i).filter(|p| p.channel != wait.channel && p.step.address() == Some(address))
            else {
                return false;
            };
            match &placed.step {
                Step::Report { payload: value, .. } => *value == payload as u32,
                // The QMDs of this launch add the rest. (A value that the write alone reaches was already reached in the launch before.)
                Step::Write { data, bytes: 4, .. } => {
                    let lacks = (payload as u32).wrapping_sub(data.first().copied().unwrap_or(0)) as i32;
                    (1..=MOST_ADDED).contains(&lacks)
                }
                _ => false,
            }
        };
        needs.extend(runs.iter().position(|other| other.steps.iter().any(gives)));
    }
    needs
}

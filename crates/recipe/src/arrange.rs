//! Steps of several channels in an order that their waits allow.
//!
//! Who reads the words of a launch may know the order on each channel alone. What a channel waits for must stand ahead of the wait: that is all that is
//! read of a launch, and what our own form needs.

use crate::refused::Refused;
use crate::step::{Placed, Step};

/// More than QMDs add to a counter in one launch.
const MOST_ADDED: i32 = 1 << 16;

/// What stands on one channel from its waits to the next: indices of its steps.
struct Run {
    steps: Vec<usize>,
    /// Runs that must stand ahead of it.
    needs: Vec<usize>,
    /// What it waits for.
    address: u64,
}

/// The steps as they were given, if their waits allow that order, or in one that they allow.
pub(crate) fn in_order(steps: Vec<Placed>) -> Result<Vec<Placed>, Refused> {
    if steps.iter().all(|placed| Some(placed.channel) == steps.first().map(|p| p.channel)) {
        return Ok(steps);
    }
    let runs = runs(&steps);
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

fn is_behind(run: &Run, runs: &[Run]) -> bool {
    let first = run.steps.first();
    run.needs.iter().filter_map(|need| runs.get(*need)).all(|need| need.steps.last() < first)
}

fn runs(steps: &[Placed]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    // The run that goes on on each channel.
    let mut open: Vec<(usize, usize)> = Vec::new();
    for (i, placed) in steps.iter().enumerate() {
        let waits = matches!(placed.step, Step::Acquire { .. });
        let on = open.iter().find(|(channel, _)| *channel == placed.channel).map(|(_, run)| *run);
        let goes_on = on.and_then(|run| runs.get_mut(run)).filter(|run| {
            let begun = run.steps.last().and_then(|last| steps.get(*last));
            !waits || begun.is_some_and(|last| matches!(last.step, Step::Acquire { .. }))
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
                // QMDs add to it what it lacks. (What it has already, it had in the launch before.)
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

//! A launch in doorbell's own form on several channels, each with its own tracker: work that CUDA put on several channels may run in parallel.
//!
//! The groups of one channel are cut into *parts*: one ends where another channel waits for it, and one begins where its channel waits for another.
//! A part is launched when the parts of other channels in [`Part::after`] are done. For parts on the same channel its words contain a wait, as for
//! launches on one channel ([`Own`]). So a part waits only for required parts, and never for a later part.

#[cfg(doc)]
use crate::Own;
use crate::own::{Count, Parts, Stretch, Touched};
use crate::recipe::{How, Recipe, Wait};
use crate::refused::Refused;
use std::collections::BTreeSet;

const ACROSS: Refused = Refused::Form { what: "on several channels: a QMD that groups of two channels act on" };

/// A graph's words on several channels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Branches {
    /// As [`Own::upload`].
    pub upload: Vec<u32>,
    /// In an order in which they may be submitted.
    pub parts: Vec<Part>,
    /// As [`Own::qmds`], [`Own::touched`].
    pub qmds: Vec<u64>,
    pub touched: Vec<Touched>,
}

/// What one channel does between waits for others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Index of its channel.
    pub channel: usize,
    pub launch: Vec<u32>,
    /// As [`Own::counts`] and [`Own::adds`], of the channel's tracker.
    pub counts: Vec<Count>,
    pub adds: u32,
    /// Parts of other channels that have to be done first.
    pub after: Vec<usize>,
    /// It begins the launch: all of the launch before is done first, on every channel.
    pub begins: bool,
}

/// Consecutive groups of one channel.
struct Cut {
    channel: usize,
    groups: Vec<usize>,
    /// Groups of other channels that the first of them waits for.
    waits: BTreeSet<usize>,
}

impl Branches {
    /// `trackers`: one for each of doorbell's channels. Where CUDA had more channels, several share one.
    pub fn of(recipe: &Recipe, trackers: &[u64]) -> Result<Branches, Refused> {
        if trackers.is_empty() {
            return Err(Refused::NoChannel(0));
        }
        let mut theirs: Vec<usize> = Vec::new();
        for group in &recipe.groups {
            if !theirs.contains(&group.channel) {
                theirs.push(group.channel);
            }
        }
        let ours = |channel: usize| theirs.iter().position(|c| *c == channel).unwrap_or(0) % trackers.len();
        let channels: Vec<usize> = recipe.groups.iter().map(|group| ours(group.channel)).collect();
        let of_groups = channels.iter().filter_map(|channel| trackers.get(*channel).copied()).collect();
        let parts = Parts::new(recipe, of_groups)?;
        stay_on_their_channels(recipe, &parts, &channels)?;
        let cuts =
            cut(&channels, &(0..channels.len()).map(|at| waits(recipe, &parts, &channels, at)).collect::<Vec<_>>());
        let parts_of = joined(&cuts, |cut| {
            let tracker = trackers.get(cut.channel).copied().unwrap_or(0);
            parts.stretch(&cut.groups, tracker)
        })?;
        Ok(Branches { upload: parts.upload()?, parts: parts_of, qmds: parts.qmds(), touched: parts.touched() })
    }
}

/// The channel of a group.
fn on(channels: &[usize], group: usize) -> Option<usize> {
    channels.get(group).copied()
}

/// Checks that only groups and QMDs of one channel act on each QMD, so that this channel's tracker shows when it is done.
fn stay_on_their_channels(recipe: &Recipe, parts: &Parts<'_>, channels: &[usize]) -> Result<(), Refused> {
    let of = |node: usize| parts.ready.get(node).and_then(|group| on(channels, *group));
    for (number, group) in recipe.groups.iter().enumerate() {
        if group.starts.iter().any(|start| of(start.node.0) != on(channels, number)) {
            return Err(ACROSS);
        }
    }
    let mut acts = recipe.edges.iter().filter(|edge| matches!(edge.how, How::Dependent { .. }));
    if acts.any(|edge| of(edge.from.0) != of(edge.to.0)) { Err(ACROSS) } else { Ok(()) }
}

/// Groups of other channels that a group waits for.
fn waits(recipe: &Recipe, parts: &Parts<'_>, channels: &[usize], at: usize) -> BTreeSet<usize> {
    let mut all = BTreeSet::new();
    for (_, wait) in recipe.groups.get(at).into_iter().flat_map(|group| &group.acquires) {
        match wait {
            Wait::LaunchBefore(_) | Wait::Before => {}
            Wait::Counter(counter) => {
                let by = recipe.counters.get(*counter).into_iter().flat_map(|c| &c.released);
                all.extend(by.filter_map(|(node, ..)| parts.ready.get(node.0)));
            }
            Wait::Tracker(step) => all.extend(recipe.groups.iter().position(|g| g.steps.contains(step))),
        }
    }
    all.retain(|group| *group < at && on(channels, *group) != on(channels, at));
    all
}

/// Cuts the groups, in the order of the first of each.
fn cut(channels: &[usize], waits: &[BTreeSet<usize>]) -> Vec<Cut> {
    let waited: BTreeSet<usize> = waits.iter().flatten().copied().collect();
    let mut cuts: Vec<Cut> = Vec::new();
    // The current cut of each channel.
    let mut open: Vec<(usize, usize)> = Vec::new();
    for (group, (channel, waits)) in channels.iter().zip(waits).enumerate() {
        let goes_on = open.iter().find(|(of, _)| of == channel).map(|(_, at)| *at).filter(|_| waits.is_empty());
        let at = match goes_on.and_then(|at| Some((at, cuts.get_mut(at)?))) {
            Some((at, cut)) => {
                cut.groups.push(group);
                at
            }
            None => {
                cuts.push(Cut { channel: *channel, groups: vec![group], waits: waits.clone() });
                cuts.len() - 1
            }
        };
        open.retain(|(of, _)| of != channel);
        if !waited.contains(&group) {
            open.push((*channel, at));
        }
    }
    cuts
}

/// Makes parts of the cuts. A cut that starts no work becomes no part: parts that wait for it wait for its predecessors instead.
fn joined(cuts: &[Cut], words: impl Fn(&Cut) -> Result<Stretch, Refused>) -> Result<Vec<Part>, Refused> {
    let mut parts: Vec<Part> = Vec::new();
    // For each that was cut, the parts that are done when it is; and the same of the last on each channel.
    let mut stands: Vec<BTreeSet<usize>> = Vec::new();
    let mut last: Vec<(usize, BTreeSet<usize>)> = Vec::new();
    for cut in cuts {
        let of = |group: &usize| cuts.iter().position(|other| other.groups.contains(group));
        let waits = cut.waits.iter().filter_map(|group| stands.get(of(group)?)).flatten().copied();
        let before = last.iter().find(|(channel, _)| *channel == cut.channel).map(|(_, parts)| parts.clone());
        let mut needs: BTreeSet<usize> = waits.chain(before.into_iter().flatten()).collect();
        let Stretch { words, counts, adds, .. } = words(cut)?;
        if adds > 0 {
            let on_another = |part: &usize| parts.get(*part).is_some_and(|part| part.channel != cut.channel);
            let after: Vec<usize> = needs.iter().copied().filter(on_another).collect();
            // (A part that follows another part of this launch follows everything that the other part waits for.)
            let begins = needs.is_empty();
            parts.push(Part { channel: cut.channel, launch: words, counts, adds, after, begins });
            needs = BTreeSet::from([parts.len() - 1]);
        }
        last.retain(|(channel, _)| *channel != cut.channel);
        last.push((cut.channel, needs.clone()));
        stands.push(needs);
    }
    Ok(parts)
}

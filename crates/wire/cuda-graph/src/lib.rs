//! The launch of an instantiated CUDA graph, read from its command words into a typed [`Recipe`].
//!
//! The first launch of a graph uploads it: each kernel's constant bank 0 and QMD, written inline and armed by PCAS. Each launch after it sends
//! little more than the addresses of the QMDs that start the others. [`learn`] reads the words of both and finds nodes, edges, groups, counters and
//! every reference between them. [`Recipe::relocate`] moves all memory of the graph; [`Recipe::upload_words`] and [`Recipe::relaunch_words`] encode
//! it again. [`Own`] is the same graph in doorbell's own form, for a channel that CUDA does not use. [`words`] makes synthetic graphs, for tests.
//!
//! The invariant: anything that is not understood returns a [`Refused`] that names it, and is never skipped. Nothing is submitted here, and no
//! input panics.
//!
//! Facts that are not in NVIDIA's class references were seen on an H200 (driver 580.159.04, CUDA 13.0); comments mark them.

mod arrange;
mod assemble;
mod copy_macro;
mod early;
mod encode;
mod fans;
mod fill_macro;
mod kernels;
mod own;
mod qmd;
mod read;
mod recipe;
mod reference;
mod refused;
mod step;
pub mod words;

use crate::kernels::Kernels;
use ::pushbuf::qmd::Qmd;
pub use copy_macro::{CopyCall, CopyMacro};
pub use fill_macro::{Argument, CountIn, FillCall, FillMacro};
pub use own::{Count, Own, Parameters, Touched};
pub use read::{Channel, Macros, Segment, copy_calls, fill_calls, released};
pub use recipe::{
    Bank, BankId, Block, BlockId, Counter, Edge, Form, Group, How, Kernel, Memory, Node, NodeId, Payload, Recipe,
    Start, Wait, Work,
};
pub use reference::{Reference, Site, Target};
pub use refused::Refused;
pub use step::{By, Memset, Placed, Step};

/// Reads a graph from the words of the launch that uploads it and of one or two launches after it, each as the segments that were submitted, in
/// their order. (If only the order on each channel is known, the words of one channel may follow those of another: the waits between them give the
/// rest.)
pub fn learn(channels: &[Channel], upload: &[Segment<'_>], again: &[&[Segment<'_>]]) -> Result<Recipe, Refused> {
    learn_with(None, channels, upload, again)
}

/// As [`learn`], where it is known how the arguments of macros are read that CUDA fills memory and copies a few words with. Without that a graph with such a
/// memset or memcpy is [`Refused::MacroArguments`] or [`Refused::CopyArguments`].
pub fn learn_with(
    macros: impl Into<Macros>,
    channels: &[Channel],
    upload: &[Segment<'_>],
    again: &[&[Segment<'_>]],
) -> Result<Recipe, Refused> {
    learn_all(macros.into(), None, channels, upload, again)
}

/// As [`learn_with`], where the graph's stream was kept busy while CUDA wrote the launches after the upload: no wait is missing because it was
/// over. `before`: semaphores that were released by what kept it busy ([`released`]). A wait for one of them is not a wait for this launch's work.
pub fn learn_held(
    macros: Macros,
    before: &[u64],
    channels: &[Channel],
    upload: &[Segment<'_>],
    again: &[&[Segment<'_>]],
) -> Result<Recipe, Refused> {
    learn_all(macros, Some(before), channels, upload, again)
}

/// The QMDs of the kernels that an upload writes, where the graph as a whole is refused, and whether the words of a later launch start each of them, directly or one
/// by another. If not, the driver's kernels on the GPU decide (conditional nodes). None if the upload's words are not understood.
pub fn kernels(
    macros: impl Into<Macros>,
    channels: &[Channel],
    upload: &[Segment<'_>],
    again: &[Segment<'_>],
) -> Vec<(Qmd, bool)> {
    let macros = macros.into();
    let steps = |launch| read::launch(macros, channels, launch);
    // (If only the later launch's words are not understood, it is taken to start all.)
    let again = steps(again).ok();
    let of = || Kernels::with(qmd::read, channels, &steps(upload)?, again.as_deref().unwrap_or(&[]));
    let Ok(all) = of() else { return Vec::new() };
    let started = again.map(|again| all.started_by(&again));
    let is_started = |at: &u64| started.as_ref().is_none_or(|started| started.contains(at));
    all.iter().filter(|(_, qmd)| !qmd::is_empty(qmd)).map(|(at, qmd)| (*qmd, is_started(&at))).collect()
}

fn learn_all(
    macros: Macros,
    held: Option<&[u64]>,
    channels: &[Channel],
    upload: &[Segment<'_>],
    again: &[&[Segment<'_>]],
) -> Result<Recipe, Refused> {
    let steps = |launch| {
        let steps = read::launch(macros, channels, launch)?;
        arrange::in_order(channels, steps, held.is_some())
    };
    let upload = steps(upload)?;
    let again = again.iter().map(|launch| steps(launch)).collect::<Result<Vec<_>, _>>()?;
    assemble::recipe(channels, upload, again, held.map(<[u64]>::to_vec))
}

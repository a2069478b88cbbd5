//! Graphs of `cuda_graph::words`, and learning them.
#![allow(dead_code)] // each test binary uses a part

use cuda_graph::words::{CHANNEL_CLASS, ENGINES, Graph, Places};
use cuda_graph::{Channel, Recipe, Refused, Segment, learn};

pub const BANK_AT: u64 = Places::RECORDED.banks;
pub const TRACKER: u64 = Places::RECORDED.trackers;
pub const CODE: u64 = Places::RECORDED.code;
pub const USER: u64 = 0x7f00_2000_0000;

pub fn channel() -> Channel {
    Channel { class: CHANNEL_CLASS, engines: ENGINES.to_vec(), group: Some(0x5c00_0010) }
}

pub fn qmd_at(i: usize) -> u64 {
    Places::RECORDED.qmd(i)
}

pub fn bank_at(i: usize) -> u64 {
    Places::RECORDED.bank(i)
}

pub fn counter_at(group: usize) -> u64 {
    Places::RECORDED.counter(group)
}

pub fn learn_graph(graph: &Graph) -> Result<Recipe, Refused> {
    learn_words(&graph.upload(), &[&graph.again(1), &graph.again(2)])
}

pub fn learn_words(upload: &[u32], again: &[&[u32]]) -> Result<Recipe, Refused> {
    let again: Vec<[Segment<'_>; 1]> = again.iter().map(|words| [Segment { channel: 0, words }]).collect();
    let again: Vec<&[Segment<'_>]> = again.iter().map(|launch| &launch[..]).collect();
    learn(&[channel()], &[Segment { channel: 0, words: upload }], &again)
}

//! A value for each field: what a rank contributes.

use crate::summary::summary;
use schema::rank::{Rank, Ranks, SpentOn, Step, Steps, Total};

pub fn ranks() -> Ranks {
    let total = Total { kind: "x", name: "x".into(), count: 1, ns: 1, longest_ns: 1, bytes: 1 };
    let step = Step { event: "x".into(), number: 1, begin_ns: 1, end_ns: 1, ns: vec![1] };
    let of = vec![SpentOn { kind: "x", name: Some("x".into()) }];
    let steps = Steps { by: "x".into(), events: 1, of, list: vec![step] };
    let (rows, steps) = (vec![total], vec![steps]);
    Ranks { ranks: vec![Rank { rank: Some(1), world_size: Some(1), summary: summary(), rows, steps, cut: true }] }
}

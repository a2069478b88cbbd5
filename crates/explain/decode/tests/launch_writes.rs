//! A list of few copies leaves out the same writes as a list of all, without reading to the end for that.

mod synthetic;

use decode::walk::{At, Filter, Sink, walk};
use decode::{LaunchWrites, Recording, rows, store_summary_and_places};
use pushbuf::ops::Op;
use schema::Clock;
use std::path::Path;
use std::time::Duration;

struct List<'f> {
    own: &'f LaunchWrites,
    filter: &'f Filter,
    clock: Clock,
    rows: Vec<String>,
}

impl Sink for List<'_> {
    fn op(&mut self, at: &At<'_>, op: &Op) {
        let limit = self.filter.limit.unwrap_or(u64::MAX);
        if (self.rows.len() as u64) < limit && self.filter.wants_at(at, &self.clock) && !self.own.holds(at, op) {
            self.rows.extend(rows::copy(at, op, &self.clock).map(|row| format!("{row:?}")));
        }
    }
}

fn list(r: &Recording, own: &LaunchWrites, filter: &Filter) -> Vec<String> {
    let mut list = List { own, filter, clock: rows::clock(r), rows: Vec::new() };
    walk(r, &mut list).unwrap();
    list.rows
}

#[test]
fn of_a_limit_or_a_time_the_same_copies_are_listed() {
    let dir = tempfile::tempdir().unwrap();
    let large = dir.path().join("large");
    synthetic::large(&large, 3000);
    assert!(store_summary_and_places(&large, Duration::from_secs(600), 100).unwrap());
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    for path in [large, fixtures.join("h200-launches.doorbell"), fixtures.join("h200-copies.doorbell")] {
        let r = Recording::open(&path).unwrap();
        let whole = LaunchWrites::of(&r).unwrap();
        let limits = [Some(0), Some(20), None];
        let times = [None, Some((0.0, 0.002)), Some((0.0005, 0.0011)), Some((0.003, 0.1)), Some((0.05, 1.0))];
        let mut listed = 0;
        for (limit, between) in limits.iter().flat_map(|l| times.iter().map(move |t| (*l, *t))) {
            let filter = Filter { limit, between, ..Filter::default() };
            let part = LaunchWrites::among(&r, &filter).unwrap();
            let (a, b) = (list(&r, &whole, &filter), list(&r, &part, &filter));
            assert!(a == b, "{}: {filter:?}: {} and {}", path.display(), a.len(), b.len());
            listed += a.len();
        }
        assert!(listed > 300, "{}: {listed}", path.display());
    }
}

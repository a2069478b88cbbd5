//! The order in which locks are taken while others are held, and the cycles in it. Threads that take two locks in two
//! orders can block each other forever, also where they did not on this tape.

use crate::fast_map::FastMap;
use decode::Source;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

/// Threads of an edge that are remembered.
const THREADS: usize = 4;

/// One lock was taken while another was held.
#[derive(Clone, Debug, Default)]
pub struct Edge {
    /// Holds of the first in which the second was taken.
    pub count: u64,
    /// Where the first and the second were taken, once, and when.
    pub sites: (u64, u64),
    pub when: u64,
    pub tids: Vec<i32>,
}

#[derive(Debug, Default)]
pub struct Graph {
    pub edges: BTreeMap<(usize, usize), Edge>,
    /// For each thread: locks that were taken and released inside a hold that has not ended yet.
    inside: FastMap<Source, Inside>,
    /// For each thread: its last holds. A hold that began in one of them and ended after it was inside it, too.
    ended: FastMap<Source, VecDeque<Hold>>,
}

/// Locks with the time and place of the last taking, found by lock or by time.
#[derive(Debug, Default)]
struct Inside {
    last: FastMap<usize, u64>,
    by_time: BTreeMap<(u64, usize), u64>,
}

impl Inside {
    fn took(&mut self, lock: usize, when: u64, site: u64) {
        let last = self.last.entry(lock).or_insert(when);
        if *last <= when {
            self.by_time.remove(&(*last, lock));
            *last = when;
            self.by_time.insert((when, lock), site);
        }
    }

    fn clear(&mut self) {
        self.last.clear();
        self.by_time.clear();
    }
}

/// Ended holds of a thread that are kept for holds that outlast them.
const ENDED: usize = 8;

/// A lock was held.
#[derive(Clone, Copy, Debug)]
pub struct Hold {
    pub lock: usize,
    pub taken: u64,
    pub released: u64,
    /// Where it was taken.
    pub site: u64,
    /// Locks that the thread held already.
    pub depth: u8,
    /// It was only tried, which never waits.
    pub tried: bool,
}

impl Graph {
    /// A hold has ended. Call it in the order of the ends.
    pub fn held(&mut self, thread: Source, h: Hold) {
        let tid = thread.tid;
        let inside = self.inside.entry(thread).or_default();
        for (&(_, other), &at) in inside.by_time.range((h.taken.saturating_add(1), 0)..) {
            if other != h.lock {
                add(&mut self.edges, (h.lock, other), (h.site, at), h.taken, tid);
            }
        }
        let ended = self.ended.entry(thread).or_default();
        if h.depth == 0 {
            inside.clear();
        } else if !h.tried {
            for o in ended.iter().filter(|o| o.taken < h.taken && h.taken < o.released && o.lock != h.lock) {
                add(&mut self.edges, (o.lock, h.lock), (o.site, h.site), h.taken, tid);
            }
            inside.took(h.lock, h.taken, h.site);
        }
        if ended.len() == ENDED {
            ended.pop_front();
        }
        ended.push_back(h);
    }

    /// A thread waits for `lock` while it holds `held`, and the wait did not end.
    pub fn waits(&mut self, tid: i32, held: impl IntoIterator<Item = (usize, u64)>, lock: usize, site: u64, when: u64) {
        for (other, at) in held {
            if other != lock {
                add(&mut self.edges, (other, lock), (at, site), when, tid);
            }
        }
    }

    /// One cycle of every group of locks that can be reached from each other.
    pub fn cycles(&self) -> Vec<Vec<usize>> {
        let mut next: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for &(a, b) in self.edges.keys() {
            next.entry(a).or_default().push(b);
            next.entry(b).or_default();
        }
        components(&next).into_iter().filter(|c| c.len() > 1).filter_map(|c| shortest(&next, &c)).collect()
    }
}

fn add(edges: &mut BTreeMap<(usize, usize), Edge>, key: (usize, usize), sites: (u64, u64), when: u64, tid: i32) {
    let e = edges.entry(key).or_insert_with(|| Edge { sites, when, ..Edge::default() });
    e.count += 1;
    if e.tids.len() < THREADS && !e.tids.contains(&tid) {
        e.tids.push(tid);
    }
}

/// Strongly connected components (Tarjan), without recursion: a tape may hold any graph.
fn components(next: &BTreeMap<usize, Vec<usize>>) -> Vec<Vec<usize>> {
    #[derive(Clone, Copy, Default)]
    struct Mark {
        index: usize,
        low: usize,
        on_stack: bool,
    }
    let mut marks: HashMap<usize, Mark> = HashMap::new();
    let (mut stack, mut out, mut count) = (Vec::new(), Vec::new(), 0);
    for &root in next.keys() {
        if marks.contains_key(&root) {
            continue;
        }
        // Node, and how many of its edges have been followed.
        let mut work = vec![(root, 0)];
        while let Some(&mut (node, ref mut at)) = work.last_mut() {
            if *at == 0 {
                count += 1;
                marks.insert(node, Mark { index: count, low: count, on_stack: true });
                stack.push(node);
            }
            let to = next.get(&node).and_then(|n| n.get(*at)).copied();
            *at += 1;
            match to {
                Some(to) => match marks.get(&to).copied() {
                    None => work.push((to, 0)),
                    Some(m) if m.on_stack => lower(&mut marks, node, m.index, |m, v| m.low = m.low.min(v)),
                    Some(_) => {}
                },
                None => {
                    work.pop();
                    let m = marks.get(&node).copied().unwrap_or_default();
                    if let Some(&(above, _)) = work.last() {
                        lower(&mut marks, above, m.low, |m, v| m.low = m.low.min(v));
                    }
                    if m.low == m.index {
                        let from = stack.iter().rposition(|&n| n == node).unwrap_or(0);
                        let group = stack.split_off(from);
                        for n in &group {
                            lower(&mut marks, *n, 0, |m, _| m.on_stack = false);
                        }
                        out.push(group);
                    }
                }
            }
        }
    }
    fn lower(marks: &mut HashMap<usize, Mark>, node: usize, v: usize, f: impl FnOnce(&mut Mark, usize)) {
        if let Some(m) = marks.get_mut(&node) {
            f(m, v);
        }
    }
    out
}

/// The shortest path from the lowest-numbered lock of a component back to itself.
fn shortest(next: &BTreeMap<usize, Vec<usize>>, group: &[usize]) -> Option<Vec<usize>> {
    let start = *group.iter().min()?;
    let group: HashSet<usize> = group.iter().copied().collect();
    let mut from: HashMap<usize, usize> = HashMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(node) = queue.pop_front() {
        for &to in next.get(&node).into_iter().flatten() {
            if to == start {
                let mut way = vec![node];
                while let Some(&before) = way.last().and_then(|n| from.get(n)) {
                    way.push(before);
                }
                way.reverse();
                return Some(way);
            }
            if group.contains(&to) && to != start && !from.contains_key(&to) {
                from.insert(to, node);
                queue.push_back(to);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(tid: i32) -> Source {
        Source { process: 0, tid }
    }

    /// Each pid namespace has its own thread numbers, and they are used again.
    #[test]
    fn threads_of_two_processes_with_one_number_are_two() {
        let mut g = Graph::default();
        let (a, b) = (thread(7), Source { process: 1, tid: 7 });
        g.held(a, hold(2, 20, 30, 1));
        g.held(b, hold(5, 15, 40, 0));
        g.held(b, hold(6, 5, 60, 0));
        g.held(a, hold(1, 10, 50, 0));
        assert_eq!(g.edges.keys().copied().collect::<Vec<_>>(), [(1, 2)]);
    }

    fn hold(lock: usize, taken: u64, released: u64, depth: u8) -> Hold {
        Hold { lock, taken, released, site: lock as u64 * 16, depth, tried: false }
    }

    #[test]
    fn what_is_taken_inside_a_hold_comes_after_it() {
        let mut g = Graph::default();
        for h in [hold(3, 22, 25, 2), hold(2, 20, 30, 1), hold(1, 10, 50, 0), hold(4, 60, 61, 0), hold(1, 70, 71, 0)] {
            g.held(thread(7), h);
        }
        let edges: Vec<_> = g.edges.keys().copied().collect();
        assert_eq!(edges, [(1, 2), (1, 3), (2, 3)]);
        assert_eq!((g.edges[&(1, 2)].sites, g.edges[&(1, 2)].count), ((16, 32), 1));
        assert!(g.cycles().is_empty());
    }

    #[test]
    fn two_orders_are_a_cycle_and_a_try_is_none() {
        let mut g = Graph::default();
        g.held(thread(1), hold(2, 20, 21, 1));
        g.held(thread(1), hold(1, 10, 30, 0));
        g.held(thread(2), Hold { tried: true, ..hold(1, 20, 21, 1) });
        g.held(thread(2), hold(2, 10, 30, 0));
        assert!(g.cycles().is_empty());
        g.held(thread(2), hold(1, 50, 51, 1));
        g.held(thread(2), hold(2, 40, 60, 0));
        assert_eq!(g.cycles(), [[1, 2]]);
    }

    #[test]
    fn hand_over_hand_is_an_order_too() {
        let mut g = Graph::default();
        for h in [hold(1, 10, 30, 0), hold(2, 20, 50, 1), hold(3, 40, 60, 1)] {
            g.held(thread(1), h);
        }
        assert_eq!(g.edges.keys().copied().collect::<Vec<_>>(), [(1, 2), (2, 3)]);
        g.waits(3, [(5, 0)], 6, 0, 0);
        g.waits(4, [(6, 0)], 5, 0, 0);
        assert_eq!(g.cycles(), [[5, 6]]);
    }

    #[test]
    fn a_long_cycle_is_found_among_many_locks() {
        let mut g = Graph::default();
        let n = 20_000;
        for i in 0..n {
            g.waits(i as i32, [(i, 0)], (i + 1) % n, 0, 0);
        }
        g.waits(1, [(n + 5, 0)], 0, 0, 0);
        let c = g.cycles();
        assert_eq!(c.len(), 1);
        assert_eq!(c[0].len(), n);
    }
}

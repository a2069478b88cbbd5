//! Cycles and longest chains of a directed graph. Nodes are numbers, `edges[n]` the nodes that `n` waits for.
//!
//! Nothing here recurses: a program may have thousands of threads that wait for one another in a row.

use std::collections::VecDeque;

/// The strongly connected components, each after those that it leads to (Tarjan's algorithm).
pub fn components(edges: &[Vec<usize>]) -> Vec<Vec<usize>> {
    const NEW: usize = usize::MAX;
    let n = edges.len();
    let (mut number, mut lowest, mut is_open) = (vec![NEW; n], vec![0; n], vec![false; n]);
    let (mut open, mut out, mut next) = (Vec::new(), Vec::new(), 0);
    for root in 0..n {
        if number[root] != NEW {
            continue;
        }
        // A node, and how many of its edges were followed.
        let mut path = vec![(root, 0)];
        while let Some((node, followed)) = path.last_mut() {
            let node = *node;
            if *followed == 0 {
                (number[node], lowest[node], is_open[node]) = (next, next, true);
                next += 1;
                open.push(node);
            }
            if let Some(&to) = edges[node].get(*followed) {
                *followed += 1;
                if number[to] == NEW {
                    path.push((to, 0));
                } else if is_open[to] {
                    lowest[node] = lowest[node].min(number[to]);
                }
                continue;
            }
            path.pop();
            if let Some((before, _)) = path.last() {
                lowest[*before] = lowest[*before].min(lowest[node]);
            }
            if lowest[node] == number[node] {
                let from = open.iter().rposition(|n| *n == node).unwrap_or(0);
                let component = open.split_off(from);
                component.iter().for_each(|n| is_open[*n] = false);
                out.push(component);
            }
        }
    }
    out
}

/// A shortest cycle of each component that has one. It begins with its lowest node. The nodes of the component come with it.
pub fn cycles(edges: &[Vec<usize>]) -> Vec<(Vec<usize>, Vec<usize>)> {
    let is_cycle = |c: &Vec<usize>| c.len() > 1 || c.first().is_some_and(|n| edges[*n].contains(n));
    let mut all: Vec<_> = components(edges)
        .into_iter()
        .filter(is_cycle)
        .map(|component| {
            let shortest =
                component.iter().filter_map(|n| back_to(edges, *n)).min_by_key(|c| (c.len(), c.iter().min().copied()));
            let mut cycle = shortest.unwrap_or_default();
            let first = (0..cycle.len()).min_by_key(|i| cycle[*i]).unwrap_or(0);
            cycle.rotate_left(first);
            (cycle, component)
        })
        .collect();
    all.sort();
    all
}

/// A shortest path from a node back to it, without its second end.
fn back_to(edges: &[Vec<usize>], start: usize) -> Option<Vec<usize>> {
    let mut from = vec![None; edges.len()];
    let mut next = VecDeque::from([start]);
    while let Some(node) = next.pop_front() {
        for &to in &edges[node] {
            if to == start {
                let mut path = vec![node];
                while let Some(before) = path.last().and_then(|n| from[*n]) {
                    path.push(before);
                }
                path.reverse();
                return Some(path);
            }
            if from[to].is_none() {
                from[to] = Some(node);
                next.push_back(to);
            }
        }
    }
    None
}

/// The longest chain that begins with each node. A chain ends at a node without edges, or at one of `ends`. (Every cycle must have
/// such nodes only.)
pub struct Chains {
    next: Vec<Option<usize>>,
    /// Nodes of each chain.
    pub length: Vec<usize>,
}

impl Chains {
    pub fn of(edges: &[Vec<usize>], ends: &[bool]) -> Chains {
        let mut chains = Chains { next: vec![None; edges.len()], length: vec![1; edges.len()] };
        for node in components(edges).into_iter().flatten().filter(|n| !ends[*n]) {
            let next = edges[node].iter().copied().max_by_key(|to| chains.length[*to]);
            chains.next[node] = next;
            chains.length[node] = 1 + next.map_or(0, |to| chains.length[to]);
        }
        chains
    }

    pub fn from(&self, node: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(node), |n| self.next[*n]).take(self.next.len())
    }
}

/// For each node how many of the first `starts` nodes lead to it, through any number of nodes.
pub fn lead_to(edges: &[Vec<usize>], starts: usize) -> Vec<usize> {
    let (mut count, mut seen_from) = (vec![0; edges.len()], vec![usize::MAX; edges.len()]);
    for (start, to) in edges.iter().enumerate().take(starts) {
        let mut next = to.clone();
        while let Some(node) = next.pop() {
            if std::mem::replace(&mut seen_from[node], start) != start {
                count[node] += usize::from(node != start);
                next.extend(&edges[node]);
            }
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn graphs() -> impl Strategy<Value = Vec<Vec<usize>>> {
        (1usize..12).prop_flat_map(|n| prop::collection::vec(prop::collection::vec(0..n, 0..3), n))
    }

    /// Whether each node leads to each other, by trying all ways.
    fn reach(edges: &[Vec<usize>]) -> Vec<Vec<bool>> {
        let n = edges.len();
        let mut r = vec![vec![false; n]; n];
        edges.iter().enumerate().for_each(|(i, to)| to.iter().for_each(|j| r[i][*j] = true));
        for k in 0..n {
            let onward = r[k].clone();
            for from in r.iter_mut().filter(|from| from[k]) {
                from.iter_mut().zip(&onward).for_each(|(to, more)| *to |= more);
            }
        }
        r
    }

    /// The length of the longest path without a repeated node, by trying all.
    fn longest(edges: &[Vec<usize>], ends: &[bool], node: usize) -> usize {
        if ends[node] { 1 } else { 1 + edges[node].iter().map(|to| longest(edges, ends, *to)).max().unwrap_or(0) }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn cycles_are_those_of_a_simple_search(edges in graphs()) {
            let (n, r, found) = (edges.len(), reach(&edges), cycles(&edges));
            for i in 0..n {
                let of: Vec<_> = found.iter().filter(|(_, component)| component.contains(&i)).collect();
                prop_assert_eq!(of.len(), usize::from(r[i][i]), "node {}", i);
                let Some((cycle, component)) = of.first() else { continue };
                for (j, leads) in r[i].iter().enumerate() {
                    prop_assert_eq!(component.contains(&j), *leads && r[j][i]);
                }
                // No cycle through this node is shorter.
                let mut is_at = vec![false; n];
                is_at[i] = true;
                for steps in 1..=n {
                    is_at = (0..n).map(|to| (0..n).any(|at| is_at[at] && edges[at].contains(&to))).collect();
                    prop_assert!(!is_at[i] || cycle.len() <= steps);
                }
            }
            for (cycle, _) in found {
                prop_assert!(!cycle.is_empty());
                for (i, node) in cycle.iter().enumerate() {
                    prop_assert!(edges[*node].contains(&cycle[(i + 1) % cycle.len()]));
                    prop_assert_eq!(cycle.iter().filter(|n| *n == node).count(), 1);
                }
            }
        }

        #[test]
        fn chains_are_the_longest(edges in graphs()) {
            let r = reach(&edges);
            let ends: Vec<bool> = (0..edges.len()).map(|n| r[n][n]).collect();
            let (chains, counts) = (Chains::of(&edges, &ends), lead_to(&edges, edges.len()));
            for node in 0..edges.len() {
                let chain: Vec<usize> = chains.from(node).collect();
                prop_assert_eq!(counts[node], (0..edges.len()).filter(|n| *n != node && r[*n][node]).count());
                prop_assert_eq!((chain[0], chain.len()), (node, longest(&edges, &ends, node)));
                prop_assert_eq!(chain.len(), chains.length[node]);
                for (a, b) in chain.iter().zip(&chain[1..]) {
                    prop_assert!(edges[*a].contains(b) && !ends[*a]);
                }
            }
        }
    }

    #[test]
    fn a_chain_of_a_hundred_thousand_threads_needs_no_stack() {
        let n = 100_000;
        let mut edges: Vec<Vec<usize>> = (0..n).map(|i| if i + 1 < n { vec![i + 1] } else { vec![] }).collect();
        assert!(cycles(&edges).is_empty());
        edges[n - 1].push(0);
        assert_eq!(components(&edges).len(), 1);
    }
}

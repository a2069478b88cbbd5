//! The looks of several recorders as those at one program.

use std::collections::HashMap;
use tape::live::{Live, LiveProcess, state};

/// Joins two looks of each recorder. All first ones must have been made before the first of the second ones. Numbers of processes and
/// threads are unique, because all recorders are on one machine. Of a process that several recorders see, what the recorder has
/// that records it.
pub fn joined(looks: Vec<(Live, Live)>) -> (Live, Live) {
    let (mut first, mut second) = (Live::default(), Live::default());
    let worse = |p: &LiveProcess| (p.state == state::ENDED, p.unrecorded);
    // By process: the recorder.
    let mut of: HashMap<i32, usize> = HashMap::new();
    for (n, (_, look)) in looks.iter().enumerate() {
        for p in &look.processes {
            let now = of.get(&p.pid).and_then(|n| looks.get(*n));
            let now = now.and_then(|(_, look)| look.processes.iter().find(|q| q.pid == p.pid));
            if now.is_none_or(|now| worse(p) < worse(now)) {
                of.insert(p.pid, n);
            }
        }
    }
    for (n, (was, is)) in looks.into_iter().enumerate() {
        for (to, look) in [(&mut first, was), (&mut second, is)] {
            (to.tsc, to.hz) = (to.tsc.max(look.tsc), to.hz.max(look.hz));
            to.cut |= look.cut;
            to.processes.extend(look.processes.into_iter().filter(|p| of.get(&p.pid) == Some(&n)));
        }
    }
    (first, second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_counts_as_its_own_recorder_has_it() {
        let p = |pid, state: &str, unrecorded| LiveProcess {
            pid,
            state: state.into(),
            unrecorded,
            ..LiveProcess::default()
        };
        let look = |tsc, processes: &[LiveProcess]| Live { tsc, hz: 1e9, cut: false, processes: processes.to_vec() };
        let one = [p(1, state::SLEEPING, false), p(2, state::SLEEPING, true), p(3, state::ENDED, false)];
        let two = [p(2, state::SLEEPING, false), p(3, state::SLEEPING, true), p(4, state::ENDED, false)];
        let (first, second) = joined(vec![(look(5, &one), look(15, &one)), (look(7, &two), look(14, &two))]);
        assert_eq!((first.tsc, second.tsc, first.processes == second.processes), (7, 15, true));
        assert_eq!(second.processes, [one[0].clone(), two[0].clone(), two[1].clone(), two[2].clone()]);
        assert_eq!(joined(Vec::new()), Default::default());
    }
}

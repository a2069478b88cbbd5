//! Which programs are on the tape: the images of each process with their ancestors, and programs that are not watched.

use crate::beside::Beside;
use crate::output::Output;
use crate::processes::{self, Identity};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use tape::file::{Ancestor, Process, Unwatched};
use tape::session::{Noted, unwatched};

/// Maximum number of names of programs that are not watched.
const MANY_UNWATCHED: usize = 1000;

pub struct Lineage {
    /// The first program's process; 0 when it has ended.
    pub first: i32,
    /// Names and arguments may be on the tape.
    named: bool,
    /// The index of each process's latest image, and the number of its earlier images.
    latest: HashMap<i32, (u32, u32)>,
    next: u32,
    /// Programs that could not be followed: why, and how often.
    unwatched: HashMap<(String, &'static str), u64>,
    /// How many did not fit there.
    unwatched_lost: u64,
}

impl Lineage {
    pub fn new(named: bool) -> Lineage {
        let (first, latest, next, unwatched, unwatched_lost) = Default::default();
        Lineage { first, named, latest, next, unwatched, unwatched_lost }
    }

    /// A process has a new image. `ppid`: its parent, 0 if that is not known.
    pub fn image(&mut self, pid: i32, ppid: i32, start_tsc: u64, identity: Identity) -> Process {
        let (index, image) = (self.next, self.latest.get(&pid).map_or(0, |(_, n)| n + 1));
        self.next += 1;
        // The nearest ancestor that is recorded. Shells and launchers between them are not recorded.
        let between = if ppid > 0 { processes::parents(ppid, self.first) } else { Vec::new() };
        let ancestors: Vec<i32> = std::iter::once(ppid).chain(between).filter(|p| *p > 1).collect();
        let parent = ancestors.iter().find_map(|p| self.latest_of(*p));
        let within = |p: &&i32| !self.latest.contains_key(*p) && ancestors.contains(&self.first);
        let name = |p: &i32| if self.named { processes::name(*p) } else { String::new() };
        let through = ancestors.iter().take_while(within).map(|p| Ancestor { pid: *p, name: name(p) }).collect();
        self.latest.insert(pid, (index, image));
        let Identity { exe, args, rank, .. } = identity;
        let exe = if self.named { exe } else { String::new() };
        let args = (self.named && !args.is_empty()).then_some(args);
        Process { index, pid, ppid, parent, through, image, exe, args, start_tsc, rank }
    }

    fn latest_of(&self, pid: i32) -> Option<u32> {
        self.latest.get(&pid).map(|l| l.0)
    }

    /// Another process may get the number from now on.
    pub fn forget(&mut self, pid: i32) {
        self.latest.remove(&pid);
    }

    /// A program that is not watched. The first of each name is written to the tape immediately, the number of the others at the
    /// end.
    pub fn unwatched(&mut self, n: Noted<'_>, out: &mut Output) {
        let why = *unwatched::TEXT.get(n.why as usize).unwrap_or(&unwatched::TEXT[0]);
        let path = if self.named { String::from_utf8_lossy(n.path).into_owned() } else { String::new() };
        let is_full = self.unwatched.len() >= MANY_UNWATCHED;
        match self.unwatched.entry((path.clone(), why)) {
            Entry::Occupied(mut count) => *count.get_mut() += 1,
            // (A program that starts thousands of others fills neither the tape nor the recorder's memory.)
            Entry::Vacant(_) if is_full => self.unwatched_lost += 1,
            Entry::Vacant(to) => {
                to.insert(1);
                let (parent, why) = (self.latest_of(n.parent), why.to_owned());
                let first = Unwatched { pid: n.pid, ppid: n.parent, parent, path, why, tsc: n.tsc, count: 1 };
                out.beside(Beside::Unwatched(first));
            }
        }
    }

    /// All programs that were not watched, and the number of those that have no name here.
    pub fn all_unwatched(self) -> (Vec<Unwatched>, u64) {
        let one = |((path, why), count): ((String, &str), u64)| Unwatched {
            path,
            why: why.into(),
            count,
            ..Unwatched::default()
        };
        let mut all: Vec<_> = self.unwatched.into_iter().map(one).collect();
        all.sort_by(|a, b| (&a.path, &a.why).cmp(&(&b.path, &b.why)));
        (all, self.unwatched_lost)
    }
}

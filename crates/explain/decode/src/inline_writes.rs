//! Inline writes that turn out to be part of a launch.
//!
//! The driver writes a launch's QMD and constants by inline writes, sometimes in an earlier segment. These look like
//! copies until the launch is decoded. The last ones of each channel are remembered until then.

use crate::recording::{InsightError, Recording};
use crate::rows;
use crate::walk::{At, Filter, Sink, walk};
use pushbuf::ops::{At as Word, Op, Purpose, What};
use schema::Clock;
use schema::channel::Channel;
use std::collections::{HashMap, HashSet, VecDeque};

/// Inline writes remembered for each channel.
const REMEMBERED: usize = 256;

/// The last inline writes of each channel, each with a value of the caller's.
#[derive(Debug)]
pub(crate) struct Window<T> {
    recent: HashMap<usize, VecDeque<(Word, T)>>,
}

impl<T> Default for Window<T> {
    fn default() -> Window<T> {
        Window { recent: HashMap::new() }
    }
}

impl<T> Window<T> {
    /// Remembers a write; returns the value of the one that is forgotten for it.
    pub fn wrote(&mut self, channel: usize, at: Word, what: T) -> Option<T> {
        let recent = self.recent.entry(channel).or_default();
        let oldest = if recent.len() == REMEMBERED { recent.pop_front() } else { None };
        recent.push_back((at, what));
        oldest.map(|(_, what)| what)
    }

    /// A launch uses what was written there: removes and returns that write's value.
    pub fn launched(&mut self, channel: usize, written: Word) -> Option<T> {
        let recent = self.recent.get_mut(&channel)?;
        let i = recent.iter().rposition(|(at, _)| *at == written)?;
        recent.remove(i).map(|(_, what)| what)
    }

    /// Forgets a channel; returns the values of its remembered writes.
    pub fn ended(&mut self, channel: usize) -> impl Iterator<Item = T> + use<T> {
        self.recent.remove(&channel).into_iter().flatten().map(|(_, what)| what)
    }
}

/// Inline writes of a recording that belong to launches, although this was not known when they were decoded. The summary
/// does not count them as copies, and lists of copies leave them out.
#[derive(Debug, Default)]
pub struct LaunchWrites {
    found: HashSet<(usize, Word)>,
}

impl LaunchWrites {
    /// Walks the whole recording.
    pub fn of(r: &Recording) -> Result<LaunchWrites, InsightError> {
        LaunchWrites::among(r, &Filter::default())
    }

    /// Finds the launch writes that match a filter, which a list of copies must leave out. Walks only as far as necessary.
    ///
    /// # Errors
    /// The recording cannot be read.
    pub fn among(r: &Recording, filter: &Filter) -> Result<LaunchWrites, InsightError> {
        let clock = rows::clock(r);
        let mut look = Look {
            filter,
            until: filter.until(&clock).map(|until| until.saturating_add(r.hz() as u64)),
            clock,
            window: Window::default(),
            found: HashSet::new(),
            wanted: VecDeque::new(),
            open: 0,
            first: 0,
            listed: 0,
            is_past: false,
        };
        walk(r, &mut look)?;
        Ok(LaunchWrites { found: look.found })
    }

    pub fn holds(&self, at: &At<'_>, op: &Op) -> bool {
        self.found.contains(&(at.channel.number, op.at))
    }
}

/// Whether a row is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listed {
    Yes,
    No,
    /// A later launch may use what it writes.
    Open,
}

struct Look<'f> {
    filter: &'f Filter,
    clock: Clock,
    /// The time after which no requested row follows.
    until: Option<u64>,
    /// For each write the number of its row, if the filter accepts it.
    window: Window<Option<usize>>,
    found: HashSet<(usize, Word)>,
    /// Requested rows, except for decided ones at the front, and how many are undecided.
    wanted: VecDeque<Listed>,
    open: usize,
    /// Number of the first of these, and how many rows before it are listed.
    first: usize,
    listed: u64,
    is_past: bool,
}

impl Look<'_> {
    /// Adds a row of the list. It is remembered only if the filter has a limit or a time.
    fn row(&mut self, at: &At<'_>, listed: Listed) -> Option<usize> {
        if self.filter.limit.is_none() && self.until.is_none() || !self.filter.wants_at(at, &self.clock) {
            return None;
        }
        self.open += usize::from(listed == Listed::Open);
        self.wanted.push_back(listed);
        let number = self.first + self.wanted.len() - 1;
        self.settle();
        Some(number)
    }

    fn decide(&mut self, row: Option<usize>, listed: Listed) {
        let Some(row) = row.and_then(|row| self.wanted.get_mut(row.checked_sub(self.first)?)) else { return };
        *row = listed;
        self.open -= 1;
        self.settle();
    }

    fn settle(&mut self) {
        while let Some(row) = self.wanted.front().copied().filter(|row| *row != Listed::Open) {
            self.wanted.pop_front();
            self.first += 1;
            self.listed += u64::from(row == Listed::Yes);
        }
    }
}

impl Sink for Look<'_> {
    fn done(&self) -> bool {
        self.filter.limit.is_some_and(|limit| self.listed >= limit) || self.is_past && self.open == 0
    }

    fn from(&self) -> Option<u64> {
        self.filter.from(&self.clock)
    }

    fn submission(&mut self, at: &At<'_>) {
        self.is_past |= self.until.is_some_and(|until| at.submission.tsc > until);
    }

    fn channel_end(&mut self, c: &Channel) {
        for row in self.window.ended(c.number) {
            self.decide(row, Listed::Yes);
        }
    }

    fn op(&mut self, at: &At<'_>, op: &Op) {
        let channel = at.channel.number;
        match &op.what {
            What::Copy(_) | What::Fill(_) => _ = self.row(at, Listed::Yes),
            What::Inline(i) if i.purpose == Purpose::Data => {
                let row = self.row(at, Listed::Open);
                let oldest = self.window.wrote(channel, op.at, row);
                self.decide(oldest.flatten(), Listed::Yes);
            }
            What::Launch(l) => {
                if let Some(written) = l.written_at
                    && let Some(row) = self.window.launched(channel, written)
                {
                    self.found.insert((channel, written));
                    self.decide(row, Listed::No);
                }
            }
            _ => {}
        }
    }
}

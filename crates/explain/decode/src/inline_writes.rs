//! Inline writes that turn out to be a launch's own.
//!
//! The driver writes a launch's QMD and constants by inline writes, sometimes in an earlier segment: then they look like
//! copies until the launch comes. The last ones of each channel are remembered until then.

use crate::recording::{InsightError, Recording};
use crate::walk::{At, Sink, walk};
use pushbuf::ops::{At as Word, Op, Purpose, What};
use schema::channel::Channel;
use std::collections::{HashMap, HashSet, VecDeque};

/// Inline writes remembered a channel.
const REMEMBERED: usize = 256;

/// The last inline writes of each channel, with what is to be known of them.
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
    pub fn wrote(&mut self, channel: usize, at: Word, what: T) {
        let recent = self.recent.entry(channel).or_default();
        if recent.len() == REMEMBERED {
            recent.pop_front();
        }
        recent.push_back((at, what));
    }

    /// A launch uses what was written there: takes that out.
    pub fn launched(&mut self, channel: usize, written: Word) -> Option<T> {
        let recent = self.recent.get_mut(&channel)?;
        let i = recent.iter().rposition(|(at, _)| *at == written)?;
        recent.remove(i).map(|(_, what)| what)
    }

    pub fn ended(&mut self, channel: usize) {
        self.recent.remove(&channel);
    }
}

/// Inline writes of a recording that are launches' own although nothing said so when they came: the summary does not count
/// them as copies, and lists of copies leave them out.
#[derive(Debug, Default)]
pub struct LaunchWrites {
    window: Window<()>,
    found: HashSet<(usize, Word)>,
}

impl LaunchWrites {
    /// Walks the whole recording.
    pub fn of(r: &Recording) -> Result<LaunchWrites, InsightError> {
        let mut all = LaunchWrites::default();
        walk(r, &mut all)?;
        Ok(all)
    }

    pub fn holds(&self, at: &At<'_>, op: &Op) -> bool {
        self.found.contains(&(at.channel.number, op.at))
    }
}

impl Sink for LaunchWrites {
    fn channel_end(&mut self, c: &Channel) {
        self.window.ended(c.number);
    }

    fn op(&mut self, at: &At<'_>, op: &Op) {
        let channel = at.channel.number;
        match &op.what {
            What::Inline(i) if i.purpose == Purpose::Data => self.window.wrote(channel, op.at, ()),
            What::Launch(l) => {
                if let Some(written) = l.written_at
                    && self.window.launched(channel, written).is_some()
                {
                    self.found.insert((channel, written));
                }
            }
            _ => {}
        }
    }
}

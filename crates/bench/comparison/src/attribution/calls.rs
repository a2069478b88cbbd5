//! The commands that each call sent: one walk over the submissions of a recording.

use crate::attribution::windows::{At, Windows};
use crate::attribution::{Error, locks};
use decode::walk::{self, Segment, Sink, walk};
use decode::{LaunchWrites, Recording, rows};
use pushbuf::decode::Item;
use pushbuf::gpfifo::Entry;
use pushbuf::ops::{Op, What};
use run_folder::Sample;
use run_folder::commands::{Call, Commands, Counter, Doorbells, UsedChannel};
use schema::operations::Mode;
use schema::{Clock, Place};
use std::collections::{BTreeMap, BTreeSet};

/// What a recording contains of a part's calls.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Joined {
    /// For each cell; none for cells without samples.
    pub commands: Vec<Option<Commands>>,
    pub doorbells: Doorbells,
    /// How far the clocks of samples and recording can be apart.
    pub clock_error_ns: f64,
    /// Why the recording is incomplete.
    pub incomplete_because: Vec<String>,
}

/// Joins a recording with the samples of each cell.
///
/// # Errors
/// The recording cannot be read, or is not of the measuring process.
pub fn join(recording: &Recording, counter: &Counter, cells: &[&[Sample]]) -> Result<Joined, Error> {
    if !recording.images().iter().any(|image| image.process.pid == counter.pid) {
        return Err(Error::NoProcess(counter.pid));
    }
    let windows = Windows::new(counter, cells)?;
    let incomplete_because = decode::summary(recording)?.incomplete_because;
    let mut join = Join {
        windows: &windows,
        counter,
        clock: rows::clock(recording),
        launch_writes: LaunchWrites::of(recording)?,
        calls: cells.iter().map(|samples| vec![Call::default(); samples.len()]).collect(),
        channels: vec![BTreeMap::new(); cells.len()],
        doorbells: Doorbells::default(),
        at: None,
        pushbuffer: "",
    };
    walk(recording, &mut join)?;
    let Join { mut calls, channels, doorbells, .. } = join;
    locks::count(recording, counter, &windows, &mut calls)?;
    let channels = channels.into_iter().map(|of_cell| {
        let mut all = Vec::new();
        of_cell.values().for_each(|channel| channel.row().add_to(&mut all));
        all
    });
    let commands = calls.iter().zip(channels).map(|(calls, channels)| Commands::of(calls, channels)).collect();
    Ok(Joined { commands, doorbells, clock_error_ns: windows.error_ns(), incomplete_because })
}

/// A channel while it is counted.
#[derive(Clone, Debug, Default)]
struct Used {
    row: UsedChannel,
    semaphores: BTreeSet<&'static str>,
}

impl Used {
    fn row(&self) -> UsedChannel {
        UsedChannel { semaphores: self.semaphores.iter().map(|s| (*s).to_owned()).collect(), ..self.row.clone() }
    }
}

struct Join<'w> {
    windows: &'w Windows,
    counter: &'w Counter,
    clock: Clock,
    launch_writes: LaunchWrites,
    calls: Vec<Vec<Call>>,
    /// Key: the channel's number, and the place of a submission's pushbuffers.
    channels: Vec<BTreeMap<(usize, &'static str), Used>>,
    doorbells: Doorbells,
    /// The call of the current submission.
    at: Option<(usize, usize)>,
    /// The place of its pushbuffer.
    pushbuffer: &'static str,
}

impl Join<'_> {
    /// The call of the current submission.
    fn call(&mut self) -> Option<&mut Call> {
        let (cell, index) = self.at?;
        self.calls.get_mut(cell)?.get_mut(index)
    }

    fn channel(&mut self, at: &walk::At<'_>) -> Option<&mut Used> {
        let (c, pushbuffer) = (at.channel, self.pushbuffer);
        let of_cell = self.channels.get_mut(self.at?.0)?;
        Some(of_cell.entry((c.number, pushbuffer)).or_insert_with(|| Used {
            row: UsedChannel {
                engine: c.engine.clone(),
                gpfifo: c.gpfifo_place.key().into(),
                userd: c.userd_place.key().into(),
                pushbuffer: pushbuffer.into(),
                ..UsedChannel::default()
            },
            semaphores: BTreeSet::new(),
        }))
    }

    fn moved(&mut self, executor: String, bytes: u64) {
        if let Some(call) = self.call() {
            let of = call.executors.entry(executor).or_default();
            of.operations += 1;
            of.bytes += bytes;
        }
    }

    /// Writes of methods of a class.
    fn wrote(&mut self, class: u32, writes: u64) {
        if let Some(call) = self.call() {
            let class = pushbuf::class::by_id(class).map_or_else(|| format!("{class:#06x}"), |c| c.name.to_owned());
            *call.methods.entry(class).or_default() += writes;
        }
    }
}

impl Sink for Join<'_> {
    fn submission(&mut self, at: &walk::At<'_>) {
        let s = at.submission;
        let rings = u64::from(s.ring.is_some());
        // (The channel's own place is that of its first pushbuffer: for doorbell's channels later ones are elsewhere.)
        let first = s.entries.iter().find_map(|entry| match Entry::parse(entry.gp) {
            Entry::Segment(segment) => Some(at.place(segment.va)).filter(|place| *place != Place::Unknown),
            Entry::Control(_) => None,
        });
        self.pushbuffer = first.unwrap_or(at.channel.pushbuffer_place).key();
        self.at = None;
        let is_ours = at.channel.pid == self.counter.pid && s.tid == self.counter.tid;
        match self.windows.at(s.tsc) {
            _ if !is_ours => self.doorbells.other_threads += rings,
            At::Call(cell, index) => {
                self.doorbells.in_calls += rings;
                self.at = Some((cell, index));
            }
            At::Waiting => self.doorbells.waiting += rings,
            At::Untimed => self.doorbells.untimed += rings,
        }
        let since = self.windows.since_call_ns(s.tsc);
        if let Some(call) = self.call().filter(|_| rings > 0) {
            call.doorbells += rings;
            let earlier = call.until_doorbell_ns.unwrap_or(u64::MAX);
            call.until_doorbell_ns = Some(earlier.min(since));
        }
        if let Some(channel) = self.channel(at) {
            channel.row.doorbells += rings;
        }
    }

    fn segment(&mut self, at: &walk::At<'_>, segment: &Segment<'_>) {
        let bytes = u64::from(segment.dwords) * 4;
        if let Some(call) = self.call() {
            call.entries += 1;
            call.pushbuffer_bytes += bytes;
        }
        if let Some(channel) = self.channel(at) {
            channel.row.entries += 1;
            channel.row.pushbuffer_bytes += bytes;
        }
    }

    fn item(&mut self, _: &walk::At<'_>, item: &Item<'_>) {
        match item {
            Item::Write(w) => self.wrote(w.target.class_id, 1),
            Item::Run(r) => self.wrote(r.target.class_id, r.words.len() as u64),
            _ => {}
        }
    }

    fn op(&mut self, at: &walk::At<'_>, op: &Op) {
        if self.at.is_none() {
            return;
        }
        let mut released = None;
        match &op.what {
            What::Semaphore(s) => released = Some(s.address),
            What::Launch(_) => {
                let launches = rows::launch(at, op, &self.clock).is_some_and(|row| !row.empty);
                if launches {
                    self.moved("kernel".into(), 0);
                }
            }
            _ if self.launch_writes.holds(at, op) => {}
            _ => {
                if let Some(row) = rows::copy(at, op, &self.clock) {
                    released = row.semaphore;
                    match row.mode {
                        Mode::CopyEngine => self.moved(row.when.engine, row.bytes),
                        Mode::Fill => self.moved(format!("fill {}", row.when.engine), row.bytes),
                        Mode::Inline => {
                            self.moved("inline".into(), row.bytes);
                            if let Some(call) = self.call() {
                                call.inline_bytes += row.bytes;
                            }
                        }
                    }
                }
            }
        }
        if let Some(address) = released {
            let place = at.place(address).key();
            if let Some(channel) = self.channel(at) {
                channel.semaphores.insert(place);
            }
        }
    }
}

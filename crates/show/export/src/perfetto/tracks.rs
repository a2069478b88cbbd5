//! The tracks of a trace: processes with their threads, GPUs with their channels, and the tracks below a thread.

use super::packets::Packets;
use super::proto::{Message, process_descriptor, thread_descriptor, track_descriptor};
use crate::about::About;
use crate::lanes::Lanes;
use decode::streams::Stream;
use schema::channel::Channel;
use schema::operations::When;
use schema::streams::StreamKind;
use std::collections::{BTreeMap, HashMap};
use std::io;

/// The track of the recording itself; its number is the first.
pub const RECORDING: u64 = 1;

/// Tracks below a thread, in the order in which they are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Below {
    Ranges,
    ProcessRanges,
    LockWaits,
    LocksHeld,
    LockOperations,
    DriverCalls,
    OffCpu,
}

impl Below {
    fn name(self) -> &'static str {
        match self {
            Below::Ranges => "NVTX",
            Below::ProcessRanges => "NVTX, of the process",
            Below::LockWaits => "lock waits",
            Below::LocksHeld => "locks held",
            Below::LockOperations => "lock operations",
            Below::DriverCalls => "driver calls",
            Below::OffCpu => "off CPU",
        }
    }
}

/// A process image and a thread.
pub type Thread = (u32, i32);

/// Parallel tracks, for kernels that run concurrently.
#[derive(Default)]
struct Runs {
    lanes: Lanes,
    tracks: Vec<u64>,
}

/// The tracks of the trace so far.
pub struct Tracks {
    last: u64,
    /// By image.
    pids: HashMap<u32, i32>,
    names: HashMap<Thread, String>,
    threads: HashMap<Thread, u64>,
    /// With a number, because several tracks may have the same name.
    below: HashMap<(Thread, Below, usize), u64>,
    lanes: HashMap<(Thread, Below), Lanes>,
    /// By image, slot and generation.
    channels: HashMap<(u32, u32, u32), u64>,
    gpus: HashMap<Option<u32>, u64>,
    /// The tracks of the kernels that ran in a channel's stream.
    streams: HashMap<Stream, Runs>,
    kinds: Vec<StreamKind>,
    /// Threads that are off CPU.
    off: HashMap<Thread, u64>,
}

impl Tracks {
    /// Writes those of processes, GPUs and channels.
    pub fn of(about: &About, out: &mut Packets<'_>) -> io::Result<Tracks> {
        let mut tracks = Tracks {
            last: RECORDING,
            pids: HashMap::new(),
            names: HashMap::new(),
            threads: HashMap::new(),
            below: HashMap::new(),
            lanes: HashMap::new(),
            channels: HashMap::new(),
            gpus: HashMap::new(),
            streams: HashMap::new(),
            kinds: about.summary.streams.clone(),
            off: HashMap::new(),
        };
        let title = if about.row.complete { "doorbell: complete recording" } else { "doorbell: INCOMPLETE recording" };
        out.track(|m| {
            m.varint(track_descriptor::UUID, RECORDING);
            m.text(track_descriptor::NAME, title);
        })?;
        // A process has the name of its last image.
        let mut processes = BTreeMap::new();
        for p in &about.summary.processes {
            tracks.pids.insert(p.index, shown(p.pid));
            processes.insert(shown(p.pid), p);
        }
        for (pid, p) in processes {
            let uuid = tracks.next();
            out.track(|m| {
                m.varint(track_descriptor::UUID, uuid);
                m.message(track_descriptor::PROCESS, |m| {
                    m.int(process_descriptor::PID, pid.into());
                    let arguments = p.args.iter().flatten();
                    arguments.for_each(|a| m.text(process_descriptor::CMDLINE, a));
                    let name = p.exe.rsplit('/').next().unwrap_or_default();
                    m.text(process_descriptor::PROCESS_NAME, name);
                });
            })?;
        }
        for t in about.threads.iter().filter(|t| !t.name.is_empty()) {
            tracks.names.insert((t.process, t.tid), t.name.clone());
        }
        for c in &about.summary.channel_list {
            tracks.channel(c, about, out)?;
        }
        Ok(tracks)
    }

    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn channel(&mut self, c: &Channel, about: &About, out: &mut Packets<'_>) -> io::Result<()> {
        let gpu = match self.gpus.get(&c.gpu) {
            Some(&uuid) => uuid,
            None => {
                let uuid = self.next();
                self.gpus.insert(c.gpu, uuid);
                let which = c.gpu.map_or("GPU ?".into(), |n| format!("GPU {n}"));
                let of = if about.has_gpu_times { "times of all but kernels and copies" } else { "times" };
                let name = format!("{which}: {}; {of} are those of the doorbells", about.summary.gpu);
                out.track(|m| {
                    m.varint(track_descriptor::UUID, uuid);
                    m.text(track_descriptor::NAME, &name);
                })?;
                uuid
            }
        };
        let uuid = self.next();
        self.channels.insert((c.process, c.slot, c.generation), uuid);
        let engine = if c.engine.is_empty() { "engine ?" } else { &c.engine };
        let gpu_number = c.gpu.map_or("GPU ?".into(), |n| format!("GPU {n}"));
        let name = format!("channel {} {engine}, {gpu_number}, pid {}", c.label(), c.pid);
        out.track(|m| {
            m.varint(track_descriptor::UUID, uuid);
            m.varint(track_descriptor::PARENT_UUID, gpu);
            m.text(track_descriptor::NAME, &name);
        })
    }

    /// The track of a channel.
    pub fn of_channel(&self, when: &When) -> u64 {
        self.channels.get(&(when.process, when.slot, when.generation)).copied().unwrap_or(RECORDING)
    }

    /// The track of a kernel that ran from one time to another, below its channel's.
    pub fn of_run(&mut self, when: &When, (from, to): (u64, u64), out: &mut Packets<'_>) -> io::Result<u64> {
        let stream = Stream::of(when).or_default();
        let parent = self.of_channel(when);
        let next = self.last + 1;
        let runs = self.streams.entry(stream).or_default();
        let lane = runs.lanes.place_apart(from, to);
        if let Some(&uuid) = runs.tracks.get(lane) {
            return Ok(uuid);
        }
        runs.tracks.push(next);
        self.last = next;
        let title = stream.title(&self.kinds);
        out.track(|m| {
            m.varint(track_descriptor::UUID, next);
            m.varint(track_descriptor::PARENT_UUID, parent);
            m.text(track_descriptor::NAME, &format!("work of {title}"));
        })?;
        Ok(next)
    }

    /// The track of a thread.
    pub fn of_thread(&mut self, thread: Thread, out: &mut Packets<'_>) -> io::Result<u64> {
        if let Some(&uuid) = self.threads.get(&thread) {
            return Ok(uuid);
        }
        let uuid = self.next();
        self.threads.insert(thread, uuid);
        let (pid, name) = (self.pids.get(&thread.0).copied().unwrap_or(0), self.names.get(&thread));
        out.track(|m| {
            m.varint(track_descriptor::UUID, uuid);
            m.varint(track_descriptor::CHILD_ORDERING, track_descriptor::EXPLICIT);
            m.message(track_descriptor::THREAD, |m| {
                m.int(thread_descriptor::PID, pid.into());
                m.int(thread_descriptor::TID, shown(thread.1).into());
                if let Some(name) = name {
                    m.text(thread_descriptor::THREAD_NAME, name);
                }
            });
        })?;
        Ok(uuid)
    }

    /// A track below a thread.
    pub fn below(&mut self, thread: Thread, which: Below, out: &mut Packets<'_>) -> io::Result<u64> {
        self.lane(thread, which, 0, out)
    }

    /// The track for a slice that need not nest with the others.
    pub fn beside(
        &mut self,
        thread: Thread,
        which: Below,
        (from, to): (u64, u64),
        out: &mut Packets<'_>,
    ) -> io::Result<u64> {
        let lane = self.lanes.entry((thread, which)).or_default().place(from, to);
        self.lane(thread, which, lane, out)
    }

    fn lane(&mut self, thread: Thread, which: Below, lane: usize, out: &mut Packets<'_>) -> io::Result<u64> {
        if let Some(&uuid) = self.below.get(&(thread, which, lane)) {
            return Ok(uuid);
        }
        let parent = self.of_thread(thread, out)?;
        let uuid = self.next();
        self.below.insert((thread, which, lane), uuid);
        let fill = |m: &mut Message| {
            m.varint(track_descriptor::UUID, uuid);
            m.varint(track_descriptor::PARENT_UUID, parent);
            // Viewers merge tracks of the same name and parent.
            m.text(track_descriptor::NAME, which.name());
            m.varint(track_descriptor::SIBLING_ORDER_RANK, which as u64);
        };
        out.track(fill)?;
        Ok(uuid)
    }

    /// The thread left a CPU; a track shows that.
    pub fn leaves(&mut self, thread: Thread, track: u64) {
        self.off.insert(thread, track);
    }

    /// The thread was switched in: the track of its off-CPU slice.
    pub fn comes(&mut self, thread: Thread) -> Option<u64> {
        self.off.remove(&thread)
    }
}

/// Numbers from another PID namespace are negative on tapes: apart from all others, and positive.
fn shown(number: i32) -> i32 {
    if number < 0 { number.wrapping_neg() | 1 << 30 } else { number }
}

//! Kernels whose ends are not on the tape. In a recording of a program that still runs, these have not ended.

use crate::kernel::Kernel;
use crate::recording::{InsightError, Recording};
use crate::walk::{At, GraphKernel, Sink, walk};
use pushbuf::ops::Op;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Maximum number of streams.
const STREAMS: usize = 1 << 12;

/// A stream's kernels that have not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Awaited {
    pub pid: i32,
    /// The stream's handle; 0 is the default stream, or none.
    pub stream: u64,
    /// The first of them: its name, and the address of its code.
    pub name: Option<String>,
    pub code: u64,
    /// The thread that launched it, and when.
    pub tid: i32,
    pub tsc: u64,
    /// How many there are.
    pub count: u64,
}

/// Of each stream. `None` if times were not requested.
///
/// # Errors
/// The recording cannot be read.
pub fn awaited(r: &Recording) -> Result<Option<Vec<Awaited>>, InsightError> {
    if !r.header().gpu_times {
        return Ok(None);
    }
    let mut sink = Streams::default();
    walk(r, &mut sink)?;
    let with_pid = |(key, of): (Key, Awaited)| Awaited { pid: r.pid(key.0), ..of };
    Ok(Some(sink.of.into_iter().map(with_pid).collect()))
}

/// Process, channel and stream.
type Key = (u32, usize, u64);

#[derive(Default)]
struct Streams {
    of: BTreeMap<Key, Awaited>,
}

fn key(at: &At<'_>) -> Key {
    (at.channel.process, at.channel.number, at.submission.ring.map_or(0, |ring| ring.stream))
}

impl Sink for Streams {
    fn op(&mut self, at: &At<'_>, _: &Op) {
        // (A stream's kernels end in order: the ends of those before this one are lost.)
        if at.started().is_some() && at.gpu_time().is_some() {
            self.of.remove(&key(at));
        }
    }

    fn graph_kernel(&mut self, at: &At<'_>, _: &GraphKernel) {
        self.of.remove(&key(at));
    }

    fn awaited(&mut self, at: &At<'_>, code: u64, kernel: Option<&Rc<Kernel>>) {
        let key = key(at);
        if self.of.len() >= STREAMS && !self.of.contains_key(&key) {
            return;
        }
        let first = || Awaited {
            pid: 0,
            stream: key.2,
            name: kernel.map(|kernel| kernel.name.clone()),
            code,
            tid: at.submission.tid,
            tsc: at.submission.tsc,
            count: 0,
        };
        self.of.entry(key).or_insert_with(first).count += 1;
    }
}

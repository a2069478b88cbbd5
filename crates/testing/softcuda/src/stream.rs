//! Streams: threads that do their work in order. While one captures, its work is kept for a graph instead.

use crate::node::Node;
use crate::status::{CAPTURE_INVALIDATED, CAPTURE_UNSUPPORTED, ILLEGAL_STATE, SUCCESS};
use crate::wait::Ended;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_int;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};

/// It can find out that the stream has ended.
type Work = Box<dyn FnOnce(&Ended) + Send>;

#[derive(Default)]
struct Queue {
    work: VecDeque<Work>,
    given: u64,
    done: u64,
}

#[derive(Default)]
struct Capture {
    nodes: Vec<Node>,
    /// Something was asked for that no graph can have.
    invalid: bool,
}

/// What a stream is created with.
#[derive(Clone, Copy, Default)]
pub(crate) struct Kind {
    pub flags: u32,
    pub priority: c_int,
    /// Handle of its green context; 0 without one.
    pub green: usize,
}

#[derive(Default)]
pub(crate) struct Stream {
    kind: Kind,
    capture: Mutex<Option<Capture>>,
    queue: Mutex<Queue>,
    changed: Condvar,
    ended: Ended,
}

static STREAMS: Mutex<BTreeMap<u64, Arc<Stream>>> = Mutex::new(BTreeMap::new());

impl Stream {
    fn start(kind: Kind) -> Arc<Stream> {
        let stream = Arc::new(Stream { kind, ..Stream::default() });
        let its = stream.clone();
        std::thread::spawn(move || its.run());
        stream
    }

    /// Creates a stream and returns its handle.
    pub fn create(kind: Kind) -> u64 {
        let stream = Stream::start(kind);
        let handle = Arc::as_ptr(&stream) as u64;
        poison::ignore(STREAMS.lock()).insert(handle, stream);
        handle
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// By its handle; 0, 1 (legacy) and 2 (per thread) are the default stream.
    pub fn find(handle: u64) -> Option<Arc<Stream>> {
        static DEFAULT: OnceLock<Arc<Stream>> = OnceLock::new();
        if handle <= 2 {
            return Some(DEFAULT.get_or_init(|| Stream::start(Kind::default())).clone());
        }
        poison::ignore(STREAMS.lock()).get(&handle).cloned()
    }

    pub fn destroy(handle: u64) -> bool {
        let taken = poison::ignore(STREAMS.lock()).remove(&handle);
        taken.is_some_and(|stream| {
            stream.ended.end();
            let _queue = poison::ignore(stream.queue.lock());
            stream.changed.notify_all();
            true
        })
    }

    pub fn all() -> Vec<Arc<Stream>> {
        let streams = poison::ignore(STREAMS.lock());
        streams.values().cloned().chain(Stream::find(0)).collect()
    }

    fn capture(&self) -> MutexGuard<'_, Option<Capture>> {
        poison::ignore(self.capture.lock())
    }

    /// From now on work is kept for a graph.
    pub fn begin_capture(&self) -> c_int {
        let mut capture = self.capture();
        if capture.is_some() {
            return ILLEGAL_STATE;
        }
        *capture = Some(Capture::default());
        SUCCESS
    }

    /// The work kept since then.
    pub fn end_capture(&self) -> Result<Vec<Node>, c_int> {
        let capture = self.capture().take().ok_or(ILLEGAL_STATE)?;
        if capture.invalid { Err(CAPTURE_INVALIDATED) } else { Ok(capture.nodes) }
    }

    /// `CUstreamCaptureStatus`.
    pub fn capture_status(&self) -> c_int {
        self.capture().as_ref().map_or(0, |capture| if capture.invalid { 2 } else { 1 })
    }

    /// Runs a node when all before it are complete, or keeps it for the captured graph.
    pub fn node(&self, node: Node) -> c_int {
        match &mut *self.capture() {
            Some(capture) if !node.can_be_captured() => {
                capture.invalid = true;
                return CAPTURE_UNSUPPORTED;
            }
            Some(capture) => capture.nodes.push(node),
            None => self.put(move |ended| node.run(ended)),
        }
        SUCCESS
    }

    /// For work that no graph can contain: an error while the stream captures, which also invalidates the capture.
    pub fn unless_captured(&self, then: impl FnOnce(&Stream) -> c_int) -> c_int {
        if let Some(capture) = &mut *self.capture() {
            capture.invalid = true;
            return CAPTURE_UNSUPPORTED;
        }
        then(self)
    }

    pub fn put(&self, work: impl FnOnce(&Ended) + Send + 'static) {
        let mut queue = poison::ignore(self.queue.lock());
        queue.work.push_back(Box::new(work));
        queue.given += 1;
        self.changed.notify_all();
    }

    pub fn is_idle(&self) -> bool {
        let queue = poison::ignore(self.queue.lock());
        queue.done == queue.given
    }

    /// Until all is done that was given before.
    pub fn synchronize(&self) {
        let mut queue = poison::ignore(self.queue.lock());
        let wanted = queue.given;
        while queue.done < wanted && !self.ended.has_ended() {
            queue = poison::ignore(self.changed.wait(queue));
        }
    }

    fn run(&self) {
        loop {
            let mut queue = poison::ignore(self.queue.lock());
            let work = loop {
                if self.ended.has_ended() {
                    return;
                }
                match queue.work.pop_front() {
                    Some(work) => break work,
                    None => queue = poison::ignore(self.changed.wait(queue)),
                }
            };
            drop(queue);
            work(&self.ended);
            poison::ignore(self.queue.lock()).done += 1;
            self.changed.notify_all();
        }
    }
}

//! What a reader of a tape is given, and what is known at its end.

use crate::filter::Filter;
use crate::gaps::Gaps;
use crate::gpu_times;
use crate::kernel::{Codes, Kernel};
use crate::merge::{Entry, Submission};
use crate::pauses::Pauses;
use crate::place::{Reach, place_in};
use crate::python_frames::Stacks;
use crate::qmds::Started;
use crate::ranges::{Oddities, Open, Range, Texts};
use crate::recording::Source;
use crate::state::Call;
use pushbuf::decode::Item;
use pushbuf::gpfifo;
use pushbuf::ops::Op;
use rm::abi::Branch;
use rm::graph::ObjectGraph;
use schema::Place;
use schema::channel::Channel;
use schema::operations::{GpuTime, Shape};
use schema::streams::StreamKind;
use std::collections::BTreeMap;
use std::rc::Rc;
use tape::event::{Event, PageBody, SiteBody};

/// What a reader of a tape takes. Every method does nothing unless it is written.
pub trait Sink {
    /// True to go no further.
    fn done(&self) -> bool {
        false
    }
    /// The time stamp after which no submission is wanted, asked once: the walk ends soon after it.
    fn until(&self) -> Option<u64> {
        None
    }
    /// The time stamp before which no submission is wanted, asked once: the walk may begin anywhere before it. What does not come with a submission is
    /// then given from there on only.
    fn from(&self) -> Option<u64> {
        None
    }
    /// What every submission passes that is wanted, asked once: the walk may leave out others. What does not come with a submission is then given in part.
    fn filter(&self) -> Option<&Filter> {
        None
    }
    /// `branch`: whose layouts the call is read with.
    fn call(&mut self, _source: Source, _tsc: u64, _call: &Call<'_>, _branch: &Branch) {}
    fn page(&mut self, _process: u32, _page: &PageBody) {}
    fn site(&mut self, _process: u32, _site: &SiteBody, _path: &[u8]) {}
    fn note(&mut self, _text: &[u8]) {}
    fn channel(&mut self, _tsc: u64, _channel: &Channel) {}
    /// The channel was freed, or another channel has its slot. Only delayed submissions of it follow.
    fn channel_end(&mut self, _channel: &Channel) {}
    /// A doorbell. Its segments and operations follow.
    fn submission(&mut self, _at: &At<'_>) {}
    fn segment(&mut self, _at: &At<'_>, _segment: &Segment<'_>) {}
    fn item(&mut self, _at: &At<'_>, _item: &Item<'_>) {}
    /// An operation that the commands add up to: after the items of its segment, or among them.
    fn op(&mut self, _at: &At<'_>, _op: &Op) {}
    /// A kernel of a graph ran that the submission has launched (recorded with the GPU's times).
    fn graph_kernel(&mut self, _at: &At<'_>, _kernel: &GraphKernel) {}
    /// A kernel that stores its end was launched, and the end is not on the tape: after its operation, a graph's after those of its kernels that ended.
    fn awaited(&mut self, _at: &At<'_>, _code: u64, _kernel: Option<&Rc<Kernel>>) {}
    fn submission_end(&mut self, _at: &At<'_>) {}
    /// A range of NVTX is over, or nothing more comes of it; or a mark.
    fn range(&mut self, _range: &Range, _texts: &Texts) {}
    /// True to be given events of calls, locks and context switches.
    fn wants_events(&self) -> bool {
        false
    }
    /// Such an event, and the ranges that it happened in. A call is given when it has returned.
    fn event(&mut self, _source: Source, _e: &Event<'_>, _ranges: Option<&Open>) {}
}

/// A kernel of a graph, in one launch of it.
pub struct GraphKernel {
    pub qmd: u64,
    pub shape: Shape,
    /// Where another launch has named its code.
    pub kernel: Option<Rc<Kernel>>,
    pub gpu: GpuTime,
}

/// Where in the tape a sink is.
#[derive(Clone, Copy)]
pub struct At<'a> {
    pub channel: &'a Channel,
    pub submission: &'a Submission,
    /// Counts the doorbells of known channels, from 0, in the order in which sinks see them.
    pub number: u64,
    pub graph: &'a ObjectGraph,
    /// Python's stacks of the recording.
    pub stacks: &'a Stacks,
    pub(super) reach: Reach,
    pub(super) texts: &'a Texts,
    pub(super) times: Option<gpu_times::Times<'a>>,
    pub(super) of_op: OfOp<'a>,
}

/// What is known of the operation that a sink is given.
#[derive(Clone, Copy, Default)]
pub(super) struct OfOp<'a> {
    pub started: Option<Started>,
    /// The launch's number among those of the submission.
    pub launch: u32,
    pub kernel: Option<&'a Rc<Kernel>>,
    pub gpu_time: Option<GpuTime>,
    /// It is a kernel that stores its end, which is not on the tape.
    pub is_awaited: bool,
}

impl At<'_> {
    /// Where a GPU virtual address lies at this moment.
    pub fn place(&self, va: u64) -> Place {
        self.located(va).0
    }

    /// As [`At::place`], and on which GPU (device instance) a GPU's memory lies.
    pub fn located(&self, va: u64) -> (Place, Option<u32>) {
        place_in(self.graph, self.reach, va)
    }

    /// The ranges of NVTX that it was submitted in, the outermost first, those of the process behind those of the thread.
    pub fn ranges(&self) -> impl Iterator<Item = String> {
        self.submission.ranges.as_deref().into_iter().flat_map(|open| open.labels(self.texts))
    }

    /// What the launch that a sink was just given starts, from the stream or from memory.
    pub fn started(&self) -> Option<Started> {
        self.of_op.started
    }

    /// The number, among those of its submission, of the launch that a sink was just given.
    pub fn launch(&self) -> u32 {
        self.of_op.launch
    }

    /// The kernel that the launch starts which a sink was just given: by its handle, or by its code where another launch has named that. `None` for
    /// a QMD without blocks.
    pub fn kernel(&self) -> Option<Rc<Kernel>> {
        self.of_op.kernel.cloned()
    }

    /// When the kernel ran that a sink was just given the launch of, or the transfer of a copy engine.
    pub fn gpu_time(&self) -> Option<GpuTime> {
        self.of_op.gpu_time
    }

    /// The time stamp at a time of the GPU's.
    pub fn tsc_at(&self, gpu_ns: u64) -> Option<u64> {
        self.times?.tsc(self.channel.gpu, gpu_ns)
    }
}

/// A GPFIFO entry as decoded.
pub struct Segment<'a> {
    pub entry: &'a Entry,
    pub gp: gpfifo::Entry,
    /// GPU virtual address of its words with all bits; 0 for a control entry.
    pub va: u64,
    /// Words that the entry says it has.
    pub dwords: u32,
    pub words: &'a [u32],
    /// Entries are missing between the one before and this.
    pub after_gap: bool,
    /// The upper bits of `va` were last set before entries that are missing.
    pub va_guessed: bool,
}

/// What is known at the end of a walk.
pub struct Outcome {
    /// All channels in the order in which they began, their accounts settled.
    pub channels: Vec<Channel>,
    /// By process and handle: streams with a priority, or of a green context.
    pub streams: BTreeMap<(u32, u64), StreamKind>,
    /// The driver's objects of each process image, as they stood at its end.
    pub graphs: BTreeMap<u32, ObjectGraph>,
    /// Names of each image's kernels.
    pub codes: BTreeMap<u32, Codes>,
    /// Doorbells and driver calls of each image.
    pub doorbells_of: BTreeMap<u32, (u64, u64)>,
    /// Of all processes together.
    pub pauses: Pauses,
    /// What did not fit into rings: at least so much, by the GAP events on the tape.
    pub gaps: Gaps,
    /// Layouts of the events of locks and of calls, if there are any.
    pub lock_layout: Option<u32>,
    pub call_layout: Option<u32>,
    /// What the tape says of NVTX: the layout, and bits of [`tape::nvtx::state`]; `None` if it was not asked for.
    pub nvtx: Option<(u32, u32)>,
    /// Ranges that do not add up.
    pub range_oddities: Oddities,
    /// Texts of ranges.
    pub texts: Texts,
    /// Rings whose token belongs to no channel that the agent knew.
    pub strangers: u64,
    /// Doorbells on the tape.
    pub doorbells: u64,
    /// Events of a kind that this version does not know.
    pub unknown_events: u64,
    /// Bytes in checked chunks that are no events.
    pub stray_bytes: u64,
    /// Rings that came after their turn had been given up.
    pub late: u64,
    /// First and last time stamp of a doorbell.
    pub first_ring: Option<u64>,
    pub last_ring: Option<u64>,
    /// When kernels ended.
    pub(crate) times: gpu_times::GpuTimes,
}

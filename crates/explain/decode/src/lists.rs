//! Rows of one kind, each given to a function as soon as it is found: submissions, copies, launches, runs of kernels.

use crate::inline_writes::LaunchWrites;
use crate::recording::{InsightError, Recording};
use crate::rows::{self, Collector};
use crate::walk::{At, Filter, GraphKernel, Segment, Sink, walk};
use pushbuf::decode::Item;
use pushbuf::ops::Op;
use schema::Clock;
use schema::kernel_runs::KernelRun;
use schema::operations::{CopyRow, LaunchRow};
use schema::submissions::SubmissionRow;

/// Submissions that pass the filter, with their commands.
pub fn submissions<E: From<InsightError>>(
    r: &Recording,
    filter: &Filter,
    f: impl FnMut(SubmissionRow) -> Result<(), E>,
) -> Result<(), E> {
    each(r, filter, Collector::default(), f)
}

/// Copies, inline writes and fills that pass the filter.
pub fn copies<E: From<InsightError>>(
    r: &Recording,
    filter: &Filter,
    f: impl FnMut(CopyRow) -> Result<(), E>,
) -> Result<(), E> {
    // What the summary does not count as a copy is none here.
    each(r, filter, Copies(LaunchWrites::among(r, filter)?), f)
}

/// Launches that pass the filter.
pub fn launches<E: From<InsightError>>(
    r: &Recording,
    filter: &Filter,
    f: impl FnMut(LaunchRow) -> Result<(), E>,
) -> Result<(), E> {
    each(r, filter, Launches(filter), f)
}

/// Runs of kernels that pass the filter, those of graphs too.
pub fn kernel_runs<E: From<InsightError>>(
    r: &Recording,
    filter: &Filter,
    f: impl FnMut(KernelRun) -> Result<(), E>,
) -> Result<(), E> {
    each(r, filter, Runs(filter), f)
}

/// Makes the rows of one kind.
trait Kind {
    type Row;
    /// Takes the commands.
    fn collector(&mut self) -> Option<&mut Collector> {
        None
    }
    fn op(&mut self, _at: &At<'_>, _op: &Op, _clock: &Clock) -> Option<Self::Row> {
        None
    }
    fn graph_kernel(&mut self, _at: &At<'_>, _kernel: &GraphKernel, _clock: &Clock) -> Option<Self::Row> {
        None
    }
    fn end(&mut self) -> Option<Self::Row> {
        None
    }
}

impl Kind for Collector {
    type Row = SubmissionRow;

    fn collector(&mut self) -> Option<&mut Collector> {
        Some(self)
    }

    fn op(&mut self, at: &At<'_>, op: &Op, _clock: &Clock) -> Option<SubmissionRow> {
        Collector::op(self, at, op);
        None
    }

    fn end(&mut self) -> Option<SubmissionRow> {
        Some(std::mem::take(&mut self.row))
    }
}

struct Copies(LaunchWrites);

impl Kind for Copies {
    type Row = CopyRow;

    fn op(&mut self, at: &At<'_>, op: &Op, clock: &Clock) -> Option<CopyRow> {
        rows::copy(at, op, clock).filter(|_| !self.0.holds(at, op))
    }
}

struct Launches<'f>(&'f Filter);

impl Kind for Launches<'_> {
    type Row = LaunchRow;

    fn op(&mut self, at: &At<'_>, op: &Op, clock: &Clock) -> Option<LaunchRow> {
        rows::launch(at, op, clock).filter(|l| self.0.wants_kernel(l.name.as_deref()))
    }
}

struct Runs<'f>(&'f Filter);

impl Kind for Runs<'_> {
    type Row = KernelRun;

    fn op(&mut self, at: &At<'_>, op: &Op, clock: &Clock) -> Option<KernelRun> {
        rows::kernel_run(at, op, clock).filter(|run| self.0.wants_kernel(run.name.as_deref()))
    }

    fn graph_kernel(&mut self, at: &At<'_>, kernel: &GraphKernel, clock: &Clock) -> Option<KernelRun> {
        Some(rows::graph_kernel_run(at, kernel, clock)).filter(|run| self.0.wants_kernel(run.name.as_deref()))
    }
}

fn each<K: Kind, E: From<InsightError>>(
    r: &Recording,
    filter: &Filter,
    kind: K,
    f: impl FnMut(K::Row) -> Result<(), E>,
) -> Result<(), E> {
    let left = filter.limit.unwrap_or(u64::MAX);
    let mut rows = Rows { filter, clock: rows::clock(r), left, is_wanted: false, kind, f, error: None };
    walk(r, &mut rows)?;
    rows.error.map_or(Ok(()), Err)
}

struct Rows<'f, K, F, E> {
    filter: &'f Filter,
    clock: Clock,
    left: u64,
    /// The submission at hand passes the filter.
    is_wanted: bool,
    kind: K,
    f: F,
    error: Option<E>,
}

impl<K: Kind, F: FnMut(K::Row) -> Result<(), E>, E> Rows<'_, K, F, E> {
    fn wants(&self) -> bool {
        self.is_wanted && !self.done()
    }

    fn collector(&mut self) -> Option<&mut Collector> {
        if self.wants() { self.kind.collector() } else { None }
    }

    fn give(&mut self, row: Option<K::Row>) {
        if let Some(row) = row {
            self.left -= 1;
            self.error = (self.f)(row).err();
        }
    }
}

impl<K: Kind, F: FnMut(K::Row) -> Result<(), E>, E> Sink for Rows<'_, K, F, E> {
    fn done(&self) -> bool {
        self.left == 0 || self.error.is_some()
    }

    fn from(&self) -> Option<u64> {
        self.filter.from(&self.clock)
    }

    fn until(&self) -> Option<u64> {
        self.filter.until(&self.clock)
    }

    fn filter(&self) -> Option<&Filter> {
        Some(self.filter)
    }

    fn submission(&mut self, at: &At<'_>) {
        self.is_wanted = self.filter.wants_at(at, &self.clock);
        if self.wants()
            && let Some(collector) = self.kind.collector()
        {
            collector.begin(at, &self.clock);
        }
    }

    fn segment(&mut self, at: &At<'_>, segment: &Segment<'_>) {
        self.collector().into_iter().for_each(|collector| collector.segment(at, segment));
    }

    fn item(&mut self, _at: &At<'_>, item: &Item<'_>) {
        self.collector().into_iter().for_each(|collector| collector.item(item));
    }

    fn op(&mut self, at: &At<'_>, op: &Op) {
        if self.wants() {
            let row = self.kind.op(at, op, &self.clock);
            self.give(row);
        }
    }

    fn graph_kernel(&mut self, at: &At<'_>, kernel: &GraphKernel) {
        if self.wants() {
            let row = self.kind.graph_kernel(at, kernel, &self.clock);
            self.give(row);
        }
    }

    fn submission_end(&mut self, _at: &At<'_>) {
        if self.wants() {
            let row = self.kind.end();
            self.give(row);
        }
    }
}

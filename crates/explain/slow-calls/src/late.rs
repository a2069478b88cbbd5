//! Kernels that CUDA loaded at their first launch, which took longer for that (`run --fix` with a plan loads them early).
//!
//! A kernel's name is recorded by the thread that launches it first, just before that launch. To ask CUDA for the name may load the kernel. A launch by the
//! runtime includes that time. A launch by the driver's function begins after it, so the time is added.

use decode::histogram::Sparse;
use decode::{InsightError, Recording, Source, events};
use lock_analysis::facts::Facts;
use lock_analysis::fast_map::FastMap;
use tape::call::{self, Api, CallBody, Class, NAME_TICKS, OriginBody};
use tape::event::{Body, Event};

/// A first launch is late above this multiple of the usual time, and with so many nanoseconds more. (Launches take 2 to 5 us. Loading a kernel takes 90 us or
/// more; loading its library with it takes 1.3 ms: docs/results/holds.md.)
const TIMES: u64 = 2;
const MORE_NS: u64 = 50_000;
/// From so many other launches on their median is the usual time, otherwise that of all of the process.
const OWN: u64 = 3;
/// Handles from a kernel to the code: function, kernel, module, library.
const STEPS: usize = 4;
/// A name of this length or more was cut.
const WHOLE: usize = 2048;

/// A kernel whose first launch was late.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateKernel {
    pub name: String,
    /// The file name, up to `.so`, of the module in which its code is; `None` for code in memory.
    pub library: Option<String>,
    /// The hash of that code. `None`: its load was not recorded.
    pub hash: Option<u64>,
    pub first_ns: u64,
    pub usual_ns: u64,
    /// Its other launches.
    pub launches: u64,
}

#[derive(Debug, Default)]
struct Seen {
    name: String,
    first: Option<u64>,
    /// The code's address and hash, and when it was loaded.
    code: Option<(u64, u64, u64)>,
    launches: u64,
    others: Sparse,
    process: u32,
}

/// A thread has recorded a name and is about to launch.
struct Expected {
    kernel: usize,
    handle: u64,
    at: u64,
    ticks: u64,
}

#[derive(Default)]
struct Gather {
    kernels: Vec<Seen>,
    expected: FastMap<Source, Expected>,
    /// By the process and what a launch names: a handle, or the address of the host's function.
    of: FastMap<(u32, u64), usize>,
    /// And when they were given.
    origins: FastMap<(u32, u64), (OriginBody, u64)>,
    /// By process.
    all: FastMap<u32, (u64, Sparse)>,
}

impl Gather {
    fn event(&mut self, source: Source, e: &Event<'_>) {
        match &e.body {
            Body::Origin(o) => {
                self.origins.insert((source.process, o.handle), (*o, e.head.tsc));
            }
            Body::Name(n, name) => {
                let (kernel, ticks) = (self.kernels.len(), u64::from(e.head.flags) * NAME_TICKS);
                let name = String::from_utf8_lossy(name).into_owned();
                self.kernels.push(Seen { name, process: source.process, ..Seen::default() });
                self.expected.insert(source, Expected { kernel, handle: n.handle, at: e.head.tsc, ticks });
            }
            Body::Call(c) => self.call(source, e, c),
            _ => {}
        }
    }

    fn call(&mut self, source: Source, e: &Event<'_>, c: &CallBody) {
        let Some(f) = call::function(e.head.flags).filter(|f| f.class == Class::Launch && c.result == 0) else {
            return;
        };
        let ticks = e.head.tsc.saturating_sub(c.began);
        let of = (source.process, c.object);
        if let Some(first) = self.expected.remove(&source) {
            let is_driver = f.api() == Api::Driver;
            let is_its = if is_driver { c.object == first.handle } else { c.began <= first.at };
            if is_its && first.at <= e.head.tsc {
                let code = self.code(source.process, first.handle);
                if let Some(kernel) = self.kernels.get_mut(first.kernel) {
                    kernel.first = Some(ticks.saturating_add(if is_driver { first.ticks } else { 0 }));
                    kernel.code = code;
                }
                self.of.insert(of, first.kernel);
                return;
            }
        }
        if let Some(kernel) = self.of.get(&of).and_then(|i| self.kernels.get_mut(*i)) {
            kernel.launches += 1;
            kernel.others.add(ticks);
        }
        let all = self.all.entry(source.process).or_default();
        all.0 += 1;
        all.1.add(ticks);
    }

    fn code(&self, process: u32, handle: u64) -> Option<(u64, u64, u64)> {
        let mut handle = handle;
        for _ in 0..STEPS {
            let (origin, at) = self.origins.get(&(process, handle))?;
            if origin.hash != 0 {
                return Some((origin.from, origin.hash, *at));
            }
            handle = origin.from;
        }
        None
    }
}

/// The kernels of a recording that were loaded late, those that lost most first.
///
/// # Errors
/// The recording cannot be read.
pub fn late_kernels(r: &Recording) -> Result<Vec<LateKernel>, InsightError> {
    let mut g = Gather::default();
    events::each(r, |source, e| g.event(source, e))?;
    let late = g.kernels.iter().filter_map(|kernel| {
        let first = kernel.first?;
        let all = g.all.get(&kernel.process);
        let usual = if kernel.launches >= OWN { &kernel.others } else { &all.filter(|(n, _)| *n >= OWN)?.1 };
        let usual = usual.percentile(50.0);
        let is_late = first > usual.saturating_mul(TIMES) && r.ns(first - usual) >= MORE_NS;
        // (What a plan can name.)
        let is_name = kernel.name.len() < WHOLE && kernel.name.bytes().all(|b| b.is_ascii_graphic() || b == b' ');
        (is_late && is_name).then_some((kernel, first, usual))
    });
    let late: Vec<_> = late.collect();
    if late.is_empty() {
        return Ok(Vec::new());
    }
    let facts = Facts::of(r)?;
    let library = |kernel: &Seen| {
        let (at, _, when) = kernel.code?;
        let place = facts.as_ref()?.names.of_static(kernel.process, at, when)?;
        Some(place.rsplit_once('+')?.0.to_owned())
    };
    let mut rows: Vec<_> = late
        .into_iter()
        .map(|(kernel, first, usual)| LateKernel {
            name: kernel.name.clone(),
            library: library(kernel),
            hash: kernel.code.map(|(_, hash, _)| hash),
            first_ns: r.ns(first),
            usual_ns: r.ns(usual),
            launches: kernel.launches,
        })
        .collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.first_ns - row.usual_ns));
    // (Of a kernel that several processes or contexts loaded, the slowest.)
    let mut seen = std::collections::HashSet::new();
    rows.retain(|row| seen.insert((row.hash, row.name.clone())));
    Ok(rows)
}

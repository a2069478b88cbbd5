//! The walk over all calls: the causes of their time, and the calls that lost the most time.

use crate::Wanted;
use crate::activity::{self, Span, What};
use crate::between::{self, Between, Gap};
use crate::faults::{self, Faults};
use crate::kernels::{self, Runs, Wait, Waited};
use crate::names::Names;
use crate::off_cpu::OffCpu;
use crate::pageable::{Moved, is_pageable};
use crate::parts::{About, CAUSES, Parts};
use crate::rings::Rings;
use crate::usual::Usual;
use decode::ranges::Open;
use decode::walk::{At, Call, Sink};
use decode::{Largest, Source};
use lock_analysis::call_kind::CallKind;
use lock_analysis::facts::{Addresses, Held};
use lock_analysis::fast_map::FastMap;
use lock_analysis::labels::{Labels, function_name};
use lock_analysis::ops::Class as LockClass;
use pushbuf::ops::Op;
use rm::abi::Branch;
use schema::slow_calls::Cause;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashSet};
use tape::call::{self, Answer, CallBody, Class, Effect, Function};
use tape::event::{Body, Event};
use tape::lock::left;

/// Maximum number of items that are remembered of a thread until its call ends.
const PENDING: usize = 1 << 16;
/// Maximum number of kernels and graphs that are remembered as launched.
const LAUNCHED: usize = 1 << 20;
/// Maximum number of kinds of calls, and of graphs, that are counted separately.
const KINDS: usize = 1 << 16;
/// Maximum number of unreturned calls that are listed one by one.
const UNFINISHED: usize = 10;
/// Maximum number of places that copy pageable memory.
const SITES: usize = 1 << 12;
/// Number of launches and copies with which a process begins. One that makes fewer is judged whole.
pub const STARTING: u64 = 1000;
/// The usual time before enough calls were seen, in seconds.
const USUAL_AT_FIRST: f64 = 10e-6;
/// Seconds beyond the usual for a call to count as slowed down by a full ring, if the calls before it were slow, too.
const SLOWED: f64 = 3e-6;
/// Minimum rate at which the CPU and the engine move pageable memory, in bytes a second.
const PAGEABLE: f64 = 3e9;

/// A call to be explained individually.
#[derive(Clone, Debug)]
pub struct Chosen {
    pub source: Source,
    pub function: u16,
    pub body: CallBody,
    pub ended: u64,
    pub parts: Parts,
    pub spans: Vec<Span>,
    pub pageable_bytes: u64,
    pub host_functions: u64,
    /// The kernels and copies that it waited for, if the GPU's times were recorded.
    pub waited: Option<Waited>,
}

/// Sums over all calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    pub ticks: u64,
    pub calls: u64,
    pub longest: u64,
    /// The part from the time in which a process begins.
    pub starting: u64,
}

/// A place that copies pageable memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pageable {
    pub calls: u64,
    pub bytes: u64,
    pub ticks: u64,
    /// Time of the last copy.
    pub last: u64,
}

/// What the walk found.
pub struct Gathered {
    pub calls: u64,
    pub slow: u64,
    /// Slow calls that were left out, because their process began.
    pub slow_starting: u64,
    pub sums: [Sum; CAUSES.len()],
    /// The largest loss first.
    pub chosen: Vec<Chosen>,
    /// Calls that waited for the GPU as long as a slow call loses: how many, and the longest ones. None without the GPU's
    /// times.
    pub long_waits: u64,
    pub waits: Vec<Chosen>,
    /// By process, place and function.
    pub pageable: FastMap<(u32, u64, u16), Pageable>,
    pub driver_names: Names,
    /// Calls with more activity than is remembered.
    pub cut: u64,
    pub has_sources: bool,
    /// Calls that had not returned when their thread, or the recording, ended: how many, and the first of them.
    pub unfinished: u64,
    pub first_unfinished: Vec<(Source, u16, CallBody, u64)>,
    /// Waits for Python's lock between calls, and the longest of them.
    pub between: Between,
    pub gaps: Vec<Gap>,
    /// Functions that were called, for which memory of a fix differs from CUDA's.
    pub shares: BTreeSet<u16>,
}

/// A thread since its last call.
#[derive(Debug, Default)]
struct Doing {
    spans: Vec<Span>,
    /// The submissions of its current call: their channels, and the moved bytes.
    channels: Vec<usize>,
    moved: Vec<Moved>,
    faults: Faults,
    /// When its last call ended.
    ended: Option<u64>,
    /// One bit for each of the last eight calls: whether it was slower than usual.
    slowed: u8,
    cut: bool,
}

#[derive(Debug, Default)]
struct Process {
    launched: u64,
    /// Host functions by stream, since the stream was last empty.
    host_functions: FastMap<u64, u64>,
    /// Where and when events were last recorded.
    events: FastMap<u64, (u64, u64)>,
}

pub struct Gather<'a> {
    labels: &'a Labels<'a>,
    wanted: &'a Wanted,
    slow_from: u64,
    /// Ticks a second.
    hz: f64,
    addresses: Addresses,
    threads: FastMap<Source, Doing>,
    off: OffCpu,
    processes: FastMap<u32, Process>,
    usual: FastMap<(CallKind, u64), Usual>,
    launched: HashSet<(u32, u64)>,
    rings: Rings,
    chosen: Largest<ByLoss>,
    waits: Largest<ByLoss>,
    runs: Option<&'a Runs>,
    out: Gathered,
}

/// Ordered by lost or waited time; of two equal ones, the earlier one is greater.
struct ByLoss {
    lost: u64,
    call: Chosen,
}

impl ByLoss {
    fn key(&self) -> (u64, Reverse<u64>, i32) {
        (self.lost, Reverse(self.call.body.began), self.call.source.tid)
    }
}

impl PartialEq for ByLoss {
    fn eq(&self, other: &ByLoss) -> bool {
        self.key() == other.key()
    }
}

impl Eq for ByLoss {}

impl PartialOrd for ByLoss {
    fn partial_cmp(&self, other: &ByLoss) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByLoss {
    fn cmp(&self, other: &ByLoss) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl<'a> Gather<'a> {
    pub fn new(labels: &'a Labels<'a>, wanted: &'a Wanted, runs: Option<&'a Runs>) -> Gather<'a> {
        let hz = labels.recording.hz();
        Gather {
            labels,
            wanted,
            slow_from: (wanted.slow_from_ns as f64 * hz / 1e9) as u64,
            hz,
            addresses: Addresses::default(),
            threads: FastMap::default(),
            off: OffCpu::default(),
            processes: FastMap::default(),
            usual: FastMap::default(),
            launched: HashSet::new(),
            rings: Rings::default(),
            chosen: Largest::new(wanted.worst),
            waits: Largest::new(wanted.worst),
            runs,
            out: Gathered {
                calls: 0,
                slow: 0,
                slow_starting: 0,
                sums: [Sum::default(); CAUSES.len()],
                chosen: Vec::new(),
                long_waits: 0,
                waits: Vec::new(),
                pageable: FastMap::default(),
                driver_names: Names::default(),
                cut: 0,
                has_sources: false,
                unfinished: 0,
                first_unfinished: Vec::new(),
                between: Between::default(),
                gaps: Vec::new(),
                shares: BTreeSet::new(),
            },
        }
    }

    pub fn finish(mut self) -> Gathered {
        let sorted = |all: Largest<ByLoss>| all.into_sorted().into_iter().map(|c| c.call).collect();
        (self.out.chosen, self.out.waits) = (sorted(self.chosen), sorted(self.waits));
        self.out.gaps = self.out.between.worst(self.wanted.worst);
        self.out
    }

    /// The thread, if it makes calls.
    fn doing(&mut self, thread: Source) -> Option<&mut Doing> {
        self.labels.facts.callers.contains(&thread).then(|| self.threads.entry(thread).or_default())
    }

    fn remember(&mut self, thread: Source, span: Span) {
        let Some(t) = self.doing(thread) else { return };
        if t.spans.len() < PENDING {
            t.spans.push(span);
        } else {
            t.cut = true;
        }
    }

    fn lock(&mut self, thread: Source, e: &Event<'_>) {
        if let Some(span) = waited(&mut self.addresses, thread, e) {
            self.remember(thread, span);
        }
    }

    fn call(&mut self, thread: Source, number: u16, ended: u64, c: &CallBody) {
        let labels = self.labels;
        let Some(t) = self.doing(thread) else { return };
        let mut spans = std::mem::take(&mut t.spans);
        let since = t.ended.replace(ended.max(c.began));
        let gap = since.and_then(|since| between::gap(labels, thread, &spans, (since, c.began), (number, c.seq)));
        spans.retain(|s| s.to > c.began && s.from < ended);
        let faults_are_whole = t.faults.of_call(c.began, ended, &mut spans);
        let (channels, moved) = (std::mem::take(&mut t.channels), std::mem::take(&mut t.moved));
        let mut cut = std::mem::take(&mut t.cut) || !faults_are_whole;
        let function = call::function(number);
        let class = function.map(|f| f.class);
        if function.is_some_and(|f| matches!(f.answer, Answer::Shares { .. })) {
            self.out.shares.insert(number);
        }
        let ended = ended.max(c.began);
        let pageable_bytes = if is_pageable(function, c, &moved) { c.size } else { 0 };
        let wait = function.and_then(|f| self.wait(thread, f, c, pageable_bytes > 0));
        let waited = self.runs.zip(wait).map(|(runs, wait)| {
            // (It makes no difference whether the thread sleeps or spins. For a copy, its waits for other threads do matter.)
            let waits_only = class == Some(Class::Synchronize);
            spans.retain(|s| s.what != What::Asleep && !(waits_only && s.what == What::Condition));
            let waited = runs.spans(&wait, c.began, ended, &mut spans);
            // While the last of them has not ended, a thread without a CPU loses no time.
            for s in spans.iter_mut().filter(|s| waits_only && matches!(s.what, What::Preempted | What::Fault)) {
                s.from = s.from.max(waited.last);
            }
            waited
        });
        cut |= waited.is_some_and(|w| w.is_cut);
        let process = self.processes.entry(thread.process).or_default();
        let launches = labels.facts.launched.get(&thread.process).copied().unwrap_or(0);
        let starting = launches >= STARTING && process.launched < STARTING;
        process.launched += u64::from(class.is_some_and(Class::is_guarded));
        let host_functions = self.after(thread, function, c);
        if host_functions > 0 {
            // Kernels and copies in the queue waited for the host functions.
            spans.retain(|s| !matches!(s.what, What::Beside | What::Queue));
        }
        let shares = activity::shares(c.began, ended, &spans);
        let is_first = self.is_first(thread.process, class, c.object);
        let usual = self.usual(number, c, shares.rest, is_first || pageable_bytes > 0);
        let about = About {
            is_first,
            pageable: (pageable_bytes as f64 / PAGEABLE * self.hz) as u64,
            ring_is_full: self.ring_is_full(thread, shares.rest, usual, &channels),
            host_functions: host_functions > 0,
            usual,
        };
        let parts = Parts::of(function, &shares, &about);
        self.out.cut += u64::from(cut);
        self.out.has_sources |= c.source != 0;
        self.sum(&parts, starting);
        if pageable_bytes > 0 {
            self.pageable(thread, number, c, &parts);
        }
        let is_asked_for = |is_slow: bool| {
            self.wanted.number.map_or(is_slow, |number| number == c.seq)
                && self.wanted.thread.is_none_or(|tid| tid == thread.tid)
                && self.wanted.function.as_ref().is_none_or(|name| *name == function_name(number))
        };
        let is_judged = !starting || self.wanted.starting;
        if let Some(gap) = gap {
            let is_slow = gap.ticks >= self.slow_from && is_judged;
            self.out.between.add(gap, is_asked_for(is_slow), self.wanted.worst);
        }
        let lost = parts.lost();
        let is_slow = lost >= self.slow_from && is_judged;
        self.out.slow += u64::from(is_slow);
        self.out.slow_starting += u64::from(lost >= self.slow_from && !is_judged);
        let is_long = waited.is_some() && parts.waited() >= self.slow_from && is_judged;
        self.out.long_waits += u64::from(is_long);
        let (is_chosen, is_wait) = (is_asked_for(is_slow), self.wanted.number.is_none() && is_asked_for(is_long));
        if is_chosen || is_wait {
            let (body, function) = (*c, number);
            let call =
                Chosen { source: thread, function, body, ended, parts, spans, pageable_bytes, host_functions, waited };
            if is_wait {
                choose(&mut self.waits, parts.waited(), || call.clone());
            }
            if is_chosen {
                choose(&mut self.chosen, lost, || call);
            }
        }
    }

    /// What the call waits for, if its purpose is to wait for the GPU.
    fn wait(&self, thread: Source, f: &Function, c: &CallBody, is_pageable: bool) -> Option<Wait> {
        let stream = kernels::stream(c.stream, thread.tid);
        let all = Wait { process: thread.process, stream: None, until: c.began, own: None };
        match f.class {
            Class::Synchronize if f.object == call::Object::Event => {
                let recorded = self.processes.get(&thread.process).and_then(|of| of.events.get(&c.object));
                Some(recorded.map_or(all, |(stream, until)| Wait { stream: Some(*stream), until: *until, ..all }))
            }
            Class::Synchronize if f.stream == call::Stream::None => Some(all),
            Class::Synchronize => Some(Wait { stream: Some(stream), ..all }),
            Class::Copy => Some(Wait { own: Some(thread.tid), ..all }),
            Class::CopyAsync if is_pageable => Some(Wait { stream: Some(stream), ..all }),
            _ => None,
        }
    }

    /// How long such calls usually run on a CPU. A call that is known to be slow is not counted.
    fn usual(&mut self, number: u16, c: &CallBody, rest: u64, is_slow: bool) -> u64 {
        let at_first = (USUAL_AT_FIRST * self.hz) as u64;
        let is_graph = call::function(number).is_some_and(|f| f.class == Class::GraphLaunch);
        // Each graph has its own size.
        let key = (CallKind::of(number, c), if is_graph { c.object } else { 0 });
        if self.usual.len() >= KINDS && !self.usual.contains_key(&key) {
            return at_first;
        }
        let usual = self.usual.entry(key).or_default();
        let before = usual.of(at_first);
        if !is_slow {
            usual.add(rest);
        }
        before
    }

    fn is_first(&mut self, process: u32, class: Option<Class>, object: u64) -> bool {
        matches!(class, Some(Class::Launch | Class::GraphLaunch))
            && self.launched.len() < LAUNCHED
            && self.launched.insert((process, object))
    }

    /// One of its channels may be full, and the seven calls before it were slowed down, too.
    fn ring_is_full(&mut self, thread: Source, rest: u64, usual: u64, channels: &[usize]) -> bool {
        let slowed = rest.saturating_sub(usual) > usual.max((SLOWED * self.hz) as u64);
        let Some(t) = self.threads.get_mut(&thread) else { return false };
        t.slowed = t.slowed << 1 | u8::from(slowed);
        t.slowed == u8::MAX && channels.iter().any(|channel| self.rings.may_be_full(*channel))
    }

    /// Updates the state for later calls. Returns how many host functions the call had to wait for.
    fn after(&mut self, thread: Source, function: Option<&Function>, c: &CallBody) -> u64 {
        let Some(f) = function else { return 0 };
        let process = thread.process;
        let of = self.processes.entry(process).or_default();
        match f.class {
            Class::HostFunction => {
                if of.host_functions.len() < KINDS {
                    *of.host_functions.entry(c.stream).or_default() += 1;
                }
                0
            }
            Class::EventRecord => {
                if self.runs.is_some() && (of.events.len() < KINDS || of.events.contains_key(&c.object)) {
                    of.events.insert(c.object, (kernels::stream(c.stream, thread.tid), c.began));
                }
                0
            }
            Class::Synchronize | Class::Query if c.result == 0 && f.object != call::Object::Event => {
                let whole = matches!(f.stream, call::Stream::None);
                self.rings.emptied(process, (!whole).then_some(c.stream));
                if whole {
                    return std::mem::take(&mut of.host_functions).into_values().sum();
                }
                of.host_functions.remove(&c.stream).unwrap_or(0)
            }
            _ => {
                if f.effect == Effect::ChangesGraph {
                    self.launched.remove(&(process, c.object));
                }
                0
            }
        }
    }

    fn sum(&mut self, parts: &Parts, starting: bool) {
        self.out.calls += 1;
        for (cause, ticks) in parts.each() {
            let sum = &mut self.out.sums[cause as usize];
            sum.calls += 1;
            sum.ticks = sum.ticks.saturating_add(ticks);
            sum.longest = sum.longest.max(ticks);
            sum.starting = sum.starting.saturating_add(if starting { ticks } else { 0 });
        }
    }

    fn pageable(&mut self, thread: Source, number: u16, c: &CallBody, parts: &Parts) {
        let key = (thread.process, c.site, number);
        if self.out.pageable.len() >= SITES && !self.out.pageable.contains_key(&key) {
            return;
        }
        let p = self.out.pageable.entry(key).or_default();
        p.calls += 1;
        p.bytes = p.bytes.saturating_add(c.size);
        p.ticks = p.ticks.saturating_add(parts.get(Cause::Pageable));
        p.last = p.last.max(c.began);
    }
}

/// Keeps a call if it is among those that lost the most time.
fn choose(all: &mut Largest<ByLoss>, lost: u64, call: impl FnOnce() -> Chosen) {
    if all.would_keep(|least| lost > least.lost) {
        all.add(ByLoss { lost, call: call() });
    }
}

/// The time for which a thread waited for a lock, a condition or a semaphore, according to an event. Must be called with all
/// lock events, in order.
pub fn waited(addresses: &mut Addresses, thread: Source, e: &Event<'_>) -> Option<Span> {
    let op = (e.head.flags >> 8) as u8;
    let (class, addr, result, to, wait) = match (Held::of(e), &e.body) {
        (Some(h), _) => {
            let to = if h.taken == 0 { h.released } else { h.taken };
            (LockClass::of_hold(h.op)?, h.addr, 0, to, h.wait)
        }
        (None, Body::Op(o)) => (LockClass::of(op)?, o.addr, o.result, e.head.tsc, o.wait),
        (None, Body::Held(h)) => {
            let waits = h.waiting == left::WAITING;
            let wait = if waits { e.head.tsc.saturating_sub(h.since) } else { 0 };
            (LockClass::of(op)?, h.addr, 0, e.head.tsc, wait)
        }
        _ => return None,
    };
    let (lock, _) = addresses.lock(thread.process, addr, class, op, result)?;
    let what = match class {
        LockClass::Mutex | LockClass::Rwlock => What::Lock,
        LockClass::Cond | LockClass::Sem => What::Condition,
    };
    (wait > 0).then(|| Span { from: to.saturating_sub(wait), to, what, of: lock as u64 })
}

impl Sink for Gather<'_> {
    fn call(&mut self, thread: Source, tsc: u64, call: &Call<'_>, branch: &Branch) {
        let Call::Ioctl { body, .. } = call else { return };
        if !self.labels.facts.callers.contains(&thread) {
            return;
        }
        let name = driver_call_name(self.labels, thread, tsc, call, branch);
        let of = self.out.driver_names.number(name);
        self.remember(thread, Span { from: tsc, to: body.tsc_end, what: What::Driver, of });
    }

    fn wants_events(&self) -> bool {
        true
    }

    fn event(&mut self, thread: Source, e: &Event<'_>, _: Option<&Open>) {
        match &e.body {
            Body::Call(c) => self.call(thread, e.head.flags, e.head.tsc, c),
            Body::InCall(c) if self.labels.facts.is_superseded(thread, c.seq, e.head.tsc) => {}
            Body::InCall(c) => {
                self.out.unfinished += 1;
                if self.out.first_unfinished.len() < UNFINISHED {
                    self.out.first_unfinished.push((thread, e.head.flags, *c, e.head.tsc));
                }
                self.call(thread, e.head.flags, e.head.tsc, c);
            }
            Body::Switch(s) => {
                let thread = Source { process: thread.process, tid: s.tid };
                if self.labels.facts.callers.contains(&thread)
                    && let Some(span) = self.off.event(thread, e.head.flags, e.head.tsc, s.other)
                {
                    self.remember(thread, span);
                }
            }
            Body::Faults(f, faults) => {
                if let Some(t) = self.doing(Source { process: thread.process, tid: f.tid }) {
                    faults::spans(e, faults).for_each(|span| t.faults.add(span));
                }
            }
            Body::SwitchesLost(_) => self.off = OffCpu::default(),
            _ => self.lock(thread, e),
        }
    }

    fn submission(&mut self, at: &At<'_>) {
        let (s, c) = (at.submission, at.channel);
        let stream = s.ring.filter(|ring| ring.function != 0).map(|ring| ring.stream);
        self.rings.submitted(c.number, c.process, c.ring_entries, s.entries.len(), stream);
        let thread = Source { process: c.process, tid: s.tid };
        if let Some(t) = self.doing(thread)
            && t.channels.len() < PENDING
            && !t.channels.contains(&c.number)
        {
            t.channels.push(c.number);
        }
    }

    fn op(&mut self, at: &At<'_>, op: &Op) {
        let Some(moved) = Moved::of(op) else { return };
        let thread = Source { process: at.channel.process, tid: at.submission.tid };
        if let Some(t) = self.doing(thread)
            && t.moved.len() < PENDING
        {
            t.moved.push(moved);
        }
    }
}

/// The name of a driver call.
pub fn driver_call_name(labels: &Labels<'_>, thread: Source, tsc: u64, call: &Call<'_>, branch: &Branch) -> String {
    let clock = decode::rows::clock(labels.recording);
    let row = decode::driver_call(labels.recording, thread, tsc, call, branch, &clock);
    row.what.unwrap_or_else(|| row.call.into())
}

//! Keeps what a reader of the newest part of a recording needs from all earlier events: the driver's objects, channels, names, which thread is on
//! which CPU.
//!
//! Most events concern one moment and are dropped. Driver calls that created or freed an object are kept in order, packed. Of every other
//! lasting subject, the latest event is kept. Of a channel only its counters are known, not the state that was set in its engine.
//!
//! Invariant: the memory is bounded. An event without room is forgotten and counted: the oldest names, but the newest driver calls, because all
//! others depend on the first calls.

use crate::compact::compact;
use rm::abi::{Abi, Branch};
use rm::call::{Call, FileKind};
use rm::fact::Fact;
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use tape::event::{Body, Event, Head, LEFT_OUT_WRITER, LeftOutBody, bytes_of, kind};
use tape::file::{Packer, unpack};
use tape::nvtx::NO_DEPTH;
use tape::python::UNKEPT;
use tape::switch::switch_flags;
use tape::{call, fault, lock, nvtx, python, stamp, switch};

/// One thread's driver calls are packed when they have this many bytes.
const ENOUGH: usize = 32 << 10;
/// Calls of objects that are gone are searched for when all driver calls take this many bytes, and again whenever they have doubled.
const COMPACT: usize = 512 << 10;
/// A process with more driver calls is not searched, because that would take too long.
const TOO_MANY: usize = 16 << 20;
/// Memory of one kept event in addition to its bytes, estimated.
const COST: usize = 128;
/// Maximum number of remembered threads without events in the queue.
const THREADS: usize = 4096;
/// The thread of events that belong to no thread.
const NOBODY: i32 = i32::MIN;

/// When an event has ended.
pub fn time_of(e: &Event<'_>) -> u64 {
    match &e.body {
        Body::Ioctl(i, ..) => i.tsc_end.max(e.head.tsc),
        _ => e.head.tsc,
    }
}

/// Events of one thread, packed or not.
#[derive(Clone, Debug)]
pub struct Pack {
    pub process: u32,
    pub tid: i32,
    /// Time stamp of the first event.
    pub tsc: u64,
    /// Bytes when unpacked; 0 if it is not packed.
    pub unpacked: u32,
    pub payload: Arc<[u8]>,
}

/// The meaning of an event for later events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lasting {
    /// No later event depends on it.
    Moment,
    /// A driver call that changes the set of objects.
    Call,
    /// Only the latest event of a subject counts.
    Latest(Key),
    /// Open until its end arrives.
    Push {
        domain: u64,
        depth: u64,
    },
    Pop {
        domain: u64,
        depth: u64,
    },
    Start(u64),
    End(u64),
    Pause(bool),
    Thread {
        is_new: bool,
    },
    OffCpu(i32),
    OnCpu(i32),
    SwitchesLost,
    GpuClock(u32),
    Channel(u32),
    Token(u32),
    ChannelEnd(u32),
    LeftOut,
}

/// A subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    thread: i32,
    kind: u16,
    a: u64,
    b: u64,
}

impl Key {
    const fn of(kind: u16, a: u64, b: u64) -> Key {
        Key { thread: NOBODY, kind, a, b }
    }

    /// Its loss costs a name or a place in a file. Readers continue without it.
    fn is_a_name(&self) -> bool {
        const NAMES: [u16; 13] = [
            kind::NOTE,
            kind::SITE,
            kind::THREAD,
            kind::GAP,
            nvtx::kind::TEXT,
            lock::kind::MAPPING,
            lock::kind::SCHED,
            call::kind::NAME,
            call::kind::OBJECT,
            call::kind::ORIGIN,
            python::kind::CODE,
            python::kind::STACK,
            switch::kind::TASK,
        ];
        NAMES.contains(&self.kind)
    }
}

impl Lasting {
    /// `branch`: the driver's. `tid`: the thread that recorded the event.
    pub fn of(branch: &Branch, tid: i32, e: &Event<'_>) -> Lasting {
        let latest = |kind, a, b| Lasting::Latest(Key::of(kind, a, b));
        let of_thread = |kind, a, b| Lasting::Latest(Key { thread: tid, kind, a, b });
        match &e.body {
            Body::Ioctl(i, arg, nested) => {
                let call = Call::parse(branch, FileKind::from_raw(i.file), i.request, arg, nested);
                if Fact::of(branch, &call, i.ret).is_some() { Lasting::Call } else { Lasting::Moment }
            }
            Body::Mmap(m) if m.addr == u64::MAX => Lasting::Moment,
            Body::Mmap(_) | Body::Munmap(_) | Body::Mremap(_) | Body::Open(..) | Body::Close(_) | Body::Dup(_) => {
                Lasting::Call
            }
            Body::Channel(c) => Lasting::Channel(c.slot),
            Body::Token(t) => Lasting::Token(t.slot),
            Body::ChannelEnd(c) => Lasting::ChannelEnd(c.slot),
            Body::LeftOut(_) => Lasting::LeftOut,
            Body::Page(p) => latest(kind::PAGE, p.addr, 0),
            Body::Site(s, _) => latest(kind::SITE, s.ip, 0),
            Body::Note(text) => latest(kind::NOTE, hash(text), 0),
            Body::Gap(_) => of_thread(kind::GAP, 0, 0),
            Body::Thread(t) => Lasting::Thread { is_new: t.ordinal == 0 },
            Body::Pause(p) => Lasting::Pause(p.paused != 0),
            Body::Locks(_) => latest(lock::kind::LOCKS, 0, 0),
            Body::Sched(s) => of_thread(lock::kind::SCHED, u64::from(s.why) << 32 | u64::from(s.tid as u32), s.pthread),
            Body::Mapping(m, path, id) => {
                latest(lock::kind::MAPPING, hash(&(m.start, m.end, m.offset, m.rights)), hash(&(path, id)))
            }
            Body::Switches(..) => latest(switch::kind::SWITCHES, 0, 0),
            Body::Switch(s) if e.head.flags & switch_flags::OUT != 0 => Lasting::OffCpu(s.tid),
            Body::Switch(s) => Lasting::OnCpu(s.tid),
            Body::SwitchesLost(_) => Lasting::SwitchesLost,
            Body::Task(t) => latest(switch::kind::TASK, u64::from(t.tid as u32), 0),
            Body::Deadline(d) => latest(switch::kind::DEADLINE, u64::from(d.tid as u32), 0),
            Body::FaultsWatched(..) => latest(fault::kind::WATCHED, 0, 0),
            Body::Calls(_) => latest(call::kind::CALLS, 0, 0),
            Body::ExportTable(t) => of_thread(call::kind::EXPORT_TABLE, t.id[0], t.id[1]),
            Body::Name(n, _) => latest(call::kind::NAME, n.handle, 0),
            Body::Object(o, _) => latest(call::kind::OBJECT, o.handle, 0),
            Body::Origin(o) => latest(call::kind::ORIGIN, o.handle, 0),
            Body::Python(p, _) => latest(python::kind::PYTHON, p.state.into(), 0),
            // (Numbers from `UNKEPT` on are used once, immediately.)
            Body::PythonCode(c, ..) if c.number < UNKEPT => latest(python::kind::CODE, c.number.into(), 0),
            Body::PythonStack(s, _) if s.number < UNKEPT => latest(python::kind::STACK, s.number.into(), 0),
            Body::Nvtx(n) => latest(nvtx::kind::NVTX, n.state.into(), 0),
            Body::Text(t, _) => latest(nvtx::kind::TEXT, t.id, hash(&(t.domain, t.names))),
            Body::Push(b) if b.id != NO_DEPTH => Lasting::Push { domain: b.domain, depth: b.id },
            Body::Pop(b) if b.id != NO_DEPTH => Lasting::Pop { domain: b.domain, depth: b.id },
            Body::Start(b) => Lasting::Start(b.id),
            Body::End(b) => Lasting::End(b.id),
            Body::Stamps(s) => latest(stamp::kind::STAMPS, s.state.into(), 0),
            Body::GpuClock(c) => Lasting::GpuClock(c.gpu),
            Body::Ring(_)
            | Body::Entry(..)
            | Body::Pair(_)
            | Body::Hold(_)
            | Body::Op(_)
            | Body::Held(_)
            | Body::Faults(..)
            | Body::FaultsLost(_)
            | Body::Stolen(_)
            | Body::Call(_)
            | Body::InCall(_)
            | Body::PythonCode(..)
            | Body::PythonStack(..)
            | Body::Push(_)
            | Body::Pop(_)
            | Body::Mark(_)
            | Body::Ends(..)
            | Body::Launched(..)
            | Body::Copied(_)
            | Body::Unknown => Lasting::Moment,
        }
    }
}

fn hash<T: Hash + ?Sized>(of: &T) -> u64 {
    let mut h = DefaultHasher::new();
    of.hash(&mut h);
    h.finish()
}

/// An event that is kept.
#[derive(Clone)]
struct Word {
    tid: i32,
    /// Counts kept events, so that a thread's events keep their order.
    order: u64,
    tsc: u64,
    bytes: Arc<[u8]>,
}

/// Driver calls of one thread.
#[derive(Clone, Default)]
struct Calls {
    packed: Vec<Pack>,
    open: Vec<u8>,
}

/// The channel of a slot.
#[derive(Clone, Debug, Default)]
struct Slot {
    /// The number of earlier channels in the slot.
    generation: u32,
    is_live: bool,
    /// When the channel began, or the previous one ended.
    since: u64,
    /// Its counters at some times. Pieces of two threads arrive in any order, and the previous channel's end may arrive late.
    came: Vec<(u64, LeftOutBody)>,
}

/// Maximum number of such times.
const TIMES: usize = 8;

impl Slot {
    fn came(&mut self, tsc: u64, l: LeftOutBody) {
        // (Otherwise it is the doorbell of the previous channel, which another thread rang.)
        if tsc < self.since {
            return;
        }
        let i = self.came.partition_point(|(at, _)| *at <= tsc);
        self.came.insert(i, (tsc, l));
        if self.came.len() > TIMES {
            let (_, first) = self.came.remove(0);
            if let Some((_, second)) = self.came.first_mut() {
                (second.rings, second.entries) = (second.rings.max(first.rings), second.entries.max(first.entries));
            }
        }
    }

    /// Another channel has the slot from `tsc` on, or none. False if newer facts are known.
    fn passes(&mut self, tsc: u64, to_a_channel: bool) -> bool {
        if tsc < self.since {
            return false;
        }
        if self.is_live || !to_a_channel {
            self.generation = self.generation.saturating_add(1);
        }
        (self.is_live, self.since) = (to_a_channel, tsc);
        self.came.retain(|(at, _)| *at >= tsc);
        true
    }

    /// The part of the channel that is left out; `None` if there is none.
    fn mark(&self, slot: u32) -> Option<LeftOutBody> {
        let most = |of: fn(&LeftOutBody) -> u64| self.came.iter().map(|(_, l)| of(l)).max().unwrap_or(0);
        let (rings, entries) = (most(|l| l.rings), most(|l| l.entries));
        let body = LeftOutBody { slot, generation: self.generation, rings, entries };
        ((body.generation, rings, entries) != (0, 0, 0)).then_some(body)
    }
}

#[derive(Clone, Default)]
struct Image {
    calls: BTreeMap<i32, Calls>,
    words: BTreeMap<Key, Word>,
    slots: BTreeMap<u32, Slot>,
}

/// The lasting events of all processes.
#[derive(Clone)]
pub struct Kept {
    driver: String,
    branch: &'static Branch,
    images: BTreeMap<u32, Image>,
    /// Bytes of driver calls and of everything else, and the maximum of each.
    calls: usize,
    words: usize,
    most: usize,
    /// When driver calls take this many bytes, the calls of objects that are gone are removed.
    compact_at: usize,
    order: u64,
    /// Threads, and when each had its latest events (a count).
    threads: HashMap<(u32, i32), u64>,
    /// Lasting events without room.
    pub forgotten: u64,
}

impl Kept {
    /// `driver`: its version, as in the header. `most`: bytes.
    pub fn new(driver: &str, most: usize) -> Kept {
        Kept {
            driver: driver.to_owned(),
            branch: Abi::of(driver).branch(),
            images: BTreeMap::new(),
            calls: 0,
            words: 0,
            most: most / 2,
            compact_at: (most / 8).min(COMPACT),
            order: 0,
            threads: HashMap::new(),
            forgotten: 0,
        }
    }

    pub fn branch(&self) -> &'static Branch {
        self.branch
    }

    /// Bytes that it takes, estimated.
    pub fn bytes(&self) -> usize {
        self.calls + self.words + self.threads.len() * COST / 2
    }

    /// Bytes of driver calls, and of everything else.
    #[cfg(test)]
    pub fn sizes(&self) -> (usize, usize) {
        (self.calls, self.words)
    }

    /// A thread has events in piece number `count`, so it is alive. If there are too many threads, those that have been silent since before `oldest`
    /// are forgotten.
    pub fn heard(&mut self, process: u32, tid: i32, count: u64, oldest: u64) {
        self.threads.insert((process, tid), count);
        if self.threads.len() <= THREADS {
            return;
        }
        let mut idle: Vec<_> = self.threads.iter().filter(|t| *t.1 < oldest).map(|(t, at)| (*at, *t)).collect();
        idle.sort_unstable();
        idle.truncate((self.threads.len() - THREADS / 2).min(idle.len()));
        for (_, (process, tid)) in idle {
            self.threads.remove(&(process, tid));
            self.drop_words(process, |key| key.thread == tid, Some(tid));
        }
    }

    /// Whether the thread is known, with none of its events forgotten.
    pub fn knows(&self, process: u32, tid: i32) -> bool {
        self.threads.contains_key(&(process, tid))
    }

    /// Takes the lasting events of one thread.
    pub fn absorb(&mut self, process: u32, tid: i32, mut events: &[u8], packer: &mut Packer) {
        while let Some((e, n)) = Event::parse(events) {
            let (bytes, rest) = events.split_at(n);
            events = rest;
            self.take(process, tid, &e, bytes, packer);
        }
    }

    fn take(&mut self, process: u32, tid: i32, e: &Event<'_>, bytes: &[u8], packer: &mut Packer) {
        let tsc = e.head.tsc;
        let channel = |slot: u32, kind: u16| Key::of(kind, slot.into(), 0);
        match Lasting::of(self.branch, tid, e) {
            Lasting::Moment => {}
            Lasting::Call => self.call(process, tid, bytes, packer),
            Lasting::Latest(key) => self.word(process, tid, key, tsc, bytes),
            Lasting::Push { domain, depth } => {
                self.pop(process, tid, domain, depth);
                self.word(process, tid, Key { thread: tid, kind: nvtx::kind::PUSH, a: domain, b: depth }, tsc, bytes);
            }
            Lasting::Pop { domain, depth } => self.pop(process, tid, domain, depth),
            Lasting::Start(id) => self.word(process, tid, Key::of(nvtx::kind::START, id, 0), tsc, bytes),
            Lasting::End(id) => self.drop_word(process, Key::of(nvtx::kind::START, id, 0)),
            Lasting::Pause(begins) => {
                let key = Key::of(kind::PAUSE, 0, 0);
                if begins {
                    self.drop_words(process, |key| [nvtx::kind::PUSH, nvtx::kind::START].contains(&key.kind), None);
                    self.word(process, tid, key, tsc, bytes);
                } else {
                    self.drop_word(process, key);
                }
            }
            Lasting::Thread { is_new } => {
                if is_new {
                    self.drop_words(process, |key| key.thread == tid, Some(tid));
                }
                self.word(process, tid, Key { thread: tid, kind: kind::THREAD, a: 0, b: 0 }, tsc, bytes);
            }
            Lasting::OffCpu(of) => {
                self.word(process, tid, Key::of(switch::kind::SWITCH, u64::from(of as u32), 0), tsc, bytes)
            }
            Lasting::OnCpu(of) => self.drop_word(process, Key::of(switch::kind::SWITCH, u64::from(of as u32), 0)),
            Lasting::SwitchesLost => self.drop_words(process, |key| key.kind == switch::kind::SWITCH, None),
            Lasting::GpuClock(gpu) => {
                // The first and the latest: the GPU's times between them are computed from both.
                let (first, latest) =
                    (Key::of(stamp::kind::CLOCK, gpu.into(), 0), Key::of(stamp::kind::CLOCK, gpu.into(), 1));
                let has = self.images.get(&process).is_some_and(|i| i.words.contains_key(&first));
                self.word(process, tid, if has { latest } else { first }, tsc, bytes);
            }
            Lasting::Channel(slot) => {
                if self.passes(process, slot, tsc, true) {
                    self.word(process, tid, channel(slot, kind::CHANNEL), tsc, bytes);
                }
            }
            Lasting::Token(slot) => self.word(process, tid, channel(slot, kind::TOKEN), tsc, bytes),
            Lasting::ChannelEnd(slot) => _ = self.passes(process, slot, tsc, false),
            Lasting::LeftOut => {
                if let Body::LeftOut(l) = &e.body
                    && (l.slot as usize) < tape::region::SLOTS
                {
                    self.images.entry(process).or_default().slots.entry(l.slot).or_default().came(tsc, *l);
                }
            }
        }
    }

    /// The slot has another channel from `tsc` on, or none. False if newer facts are known.
    fn passes(&mut self, process: u32, slot: u32, tsc: u64, to_a_channel: bool) -> bool {
        if slot as usize >= tape::region::SLOTS {
            return false;
        }
        let image = self.images.entry(process).or_default();
        let passes = image.slots.entry(slot).or_default().passes(tsc, to_a_channel);
        if passes {
            [kind::CHANNEL, kind::TOKEN]
                .iter()
                .for_each(|kind| self.drop_word(process, Key::of(*kind, slot.into(), 0)));
        }
        passes
    }

    fn pop(&mut self, process: u32, tid: i32, domain: u64, depth: u64) {
        self.drop_words(
            process,
            |key| key.thread == tid && key.kind == nvtx::kind::PUSH && key.a == domain && key.b >= depth,
            Some(tid),
        );
    }

    fn word(&mut self, process: u32, tid: i32, key: Key, tsc: u64, bytes: &[u8]) {
        let words = &mut self.images.entry(process).or_default().words;
        if words.get(&key).is_some_and(|w| w.tsc > tsc) {
            return;
        }
        self.order += 1;
        let word = Word { tid, order: self.order, tsc, bytes: bytes.into() };
        self.words += bytes.len() + COST;
        if let Some(old) = words.insert(key, word) {
            self.words -= old.bytes.len() + COST;
        }
        if self.words > self.most {
            self.forget_names();
        }
    }

    fn drop_word(&mut self, process: u32, key: Key) {
        if let Some(old) = self.images.get_mut(&process).and_then(|i| i.words.remove(&key)) {
            self.words -= old.bytes.len() + COST;
        }
    }

    /// `thread`: all of them belong to this thread.
    fn drop_words(&mut self, process: u32, which: impl Fn(&Key) -> bool, thread: Option<i32>) {
        let Some(image) = self.images.get_mut(&process) else { return };
        let end = |thread, kind, n| Key { thread, kind, a: n, b: n };
        let (from, to) = thread.map_or((i32::MIN, i32::MAX), |t| (t, t));
        let range = image.words.range(end(from, 0, 0)..=end(to, u16::MAX, u64::MAX));
        let going: Vec<Key> = range.map(|(key, _)| *key).filter(which).collect();
        going.into_iter().for_each(|key| self.drop_word(process, key));
    }

    /// Forgets the oldest quarter of the names. If there are no names, the other events are few and stay.
    fn forget_names(&mut self) {
        let all = self.images.iter().flat_map(|(p, image)| image.words.iter().map(move |(key, w)| (*p, key, w)));
        let mut names: Vec<_> =
            all.filter(|(_, key, _)| key.is_a_name()).map(|(p, key, w)| (w.order, p, *key)).collect();
        names.sort_unstable();
        let many = (names.len() / 4).max(1);
        for (_, process, key) in names.into_iter().take(many) {
            self.drop_word(process, key);
            self.forgotten += 1;
        }
    }

    fn call(&mut self, process: u32, tid: i32, bytes: &[u8], packer: &mut Packer) {
        if self.calls > self.compact_at {
            self.compact(packer);
            self.compact_at = (2 * self.calls).max((self.most / 4).min(COMPACT));
        }
        if self.calls + bytes.len() > self.most {
            // Calls that are not yet packed take less memory once they are.
            self.pack_calls(packer);
        }
        if self.calls + bytes.len() > self.most {
            self.forgotten += 1;
            return;
        }
        let calls = self.images.entry(process).or_default().calls.entry(tid).or_default();
        calls.open.extend_from_slice(bytes);
        self.calls += bytes.len();
        if calls.open.len() >= ENOUGH {
            self.calls = self.calls.saturating_add_signed(calls.pack(process, tid, packer));
        }
    }

    fn pack_calls(&mut self, packer: &mut Packer) {
        for (process, image) in &mut self.images {
            for (tid, calls) in &mut image.calls {
                // (Few bytes pack badly, and would be tried again and again.)
                if calls.open.len() >= ENOUGH / 8 {
                    self.calls = self.calls.saturating_add_signed(calls.pack(*process, *tid, packer));
                }
            }
        }
    }

    fn compact(&mut self, packer: &mut Packer) {
        for (&process, image) in &mut self.images {
            let before: usize = image.calls.values().map(Calls::bytes).sum();
            if before > TOO_MANY {
                continue;
            }
            let all: Option<BTreeMap<i32, Vec<u8>>> =
                image.calls.iter().map(|(tid, calls)| Some((*tid, calls.unpacked()?))).collect();
            let Some(fewer) = all.and_then(|all| compact(&self.driver, self.branch, &all)) else { continue };
            image.calls.clear();
            for (tid, open) in fewer.into_iter().filter(|(_, events)| !events.is_empty()) {
                let mut calls = Calls { packed: Vec::new(), open };
                if calls.open.len() >= ENOUGH / 8 {
                    calls.pack(process, tid, packer);
                }
                image.calls.insert(tid, calls);
            }
            self.calls -= before;
            self.calls += image.calls.values().map(Calls::bytes).sum::<usize>();
        }
    }

    /// A process has ended, and none of its events is left.
    pub fn forget(&mut self, process: u32) {
        self.threads.retain(|(p, _), _| *p != process);
        let Some(image) = self.images.remove(&process) else { return };
        self.words -= image.words.values().map(|w| w.bytes.len() + COST).sum::<usize>();
        self.calls -= image.calls.values().map(Calls::bytes).sum::<usize>();
    }

    /// Writes everything that is kept, in the order in which it is to be read, and the counters of each channel at
    /// `tsc`.
    pub fn write(&self, tsc: u64, to: &mut dyn FnMut(&Pack) -> std::io::Result<()>) -> std::io::Result<()> {
        for (&process, image) in &self.images {
            for (&tid, calls) in &image.calls {
                calls.packed.iter().try_for_each(&mut *to)?;
                plain(process, tid, &calls.open, to)?;
            }
            let mut of_threads: BTreeMap<i32, Vec<&Word>> = BTreeMap::new();
            image.words.values().for_each(|w| of_threads.entry(w.tid).or_default().push(w));
            for (tid, mut words) in of_threads {
                words.sort_by_key(|w| w.order);
                plain(process, tid, &words.iter().flat_map(|w| w.bytes.iter().copied()).collect::<Vec<u8>>(), to)?;
            }
            let mut marks = Vec::new();
            for body in image.slots.iter().filter_map(|(slot, s)| s.mark(*slot)) {
                marks.extend(left_out(tsc, &body));
            }
            plain(process, LEFT_OUT_WRITER, &marks, to)?;
        }
        Ok(())
    }
}

/// The event with a channel's counters.
pub fn left_out(tsc: u64, body: &LeftOutBody) -> Vec<u8> {
    let len = (size_of::<Head>() + size_of::<LeftOutBody>()) as u32;
    let head = Head { kind: kind::LEFT_OUT, flags: 0, len, tsc };
    [bytes_of(&head), bytes_of(body)].concat()
}

/// Whole events as they are, in pieces that fit a chunk.
pub fn plain(
    process: u32,
    tid: i32,
    mut events: &[u8],
    to: &mut dyn FnMut(&Pack) -> std::io::Result<()>,
) -> std::io::Result<()> {
    while !events.is_empty() {
        let n = tape::ring::whole_events(events, 1 << 20);
        let (part, rest) = events.split_at(if n == 0 { events.len() } else { n });
        let tsc = part.get(8..16).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
        to(&Pack { process, tid, tsc, unpacked: 0, payload: part.into() })?;
        events = rest;
    }
    Ok(())
}

impl Calls {
    fn bytes(&self) -> usize {
        self.open.len() + self.packed.iter().map(|p| p.payload.len() + COST).sum::<usize>()
    }

    fn unpacked(&self) -> Option<Vec<u8>> {
        let (mut all, mut events) = (Vec::new(), Vec::new());
        for p in &self.packed {
            match p.unpacked {
                0 => all.extend_from_slice(&p.payload),
                n => {
                    unpack(&p.payload, n as usize, &mut events).ok()?;
                    all.extend_from_slice(&events);
                }
            }
        }
        all.extend_from_slice(&self.open);
        Some(all)
    }

    /// The bytes by which it grows.
    fn pack(&mut self, process: u32, tid: i32, packer: &mut Packer) -> isize {
        let before = self.bytes();
        let packed = &mut self.packed;
        let _ = plain(process, tid, &std::mem::take(&mut self.open), &mut |p| {
            let (payload, unpacked) = match packer.pack(&p.payload) {
                Some(packed) => (packed.into(), p.payload.len() as u32),
                None => (p.payload.clone(), 0),
            };
            packed.push(Pack { unpacked, payload, ..p.clone() });
            Ok(())
        });
        self.bytes() as isize - before as isize
    }
}

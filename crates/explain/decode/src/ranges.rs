//! Ranges of NVTX: which ones a thread and its process are in at any time.
//!
//! Ranges of threads are nested, by domain; ranges of the process may end in any thread. Ends may be missing: a gap, a pause, a
//! thread that has ended. The next event has the number of ranges that its thread is in, and the ranges that must be over are
//! then given up as unfinished.
//!
//! Invariant: memory is bounded for every tape.

use crate::recording::Source;
use pushbuf::snapshot::Snapshot;
use schema::ranges::Watched;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tape::event::{Body, Event};
use tape::nvtx::{EndBody, NO_DEPTH, RangeBody, TextBody, names, state, text_flags};

/// A range by the numbers of its domain's name (0: the default domain) and of its text (0: none).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub domain: u64,
    pub text: u64,
}

/// Texts by their numbers.
#[derive(Debug, Default)]
pub struct Texts(HashMap<u64, Text>);

#[derive(Debug)]
struct Text {
    text: String,
    cut: bool,
}

pushbuf::snapshot!(Key { domain, text });
pushbuf::snapshot!(Text { text, cut });

pushbuf::snapshot!(Texts(_));

/// Maximum number of texts kept.
const TEXTS: usize = 1 << 17;

impl Texts {
    pub fn event(&mut self, flags: u16, body: &TextBody, bytes: &[u8]) {
        if body.names != names::TEXT || (self.0.len() >= TEXTS && !self.0.contains_key(&body.id)) {
            return;
        }
        let text = String::from_utf8_lossy(bytes).into_owned();
        self.0.insert(body.id, Text { text, cut: flags & text_flags::CUT != 0 });
    }

    /// The text of a range; empty if it has none, its number if only that is known.
    pub fn text(&self, key: Key) -> String {
        self.of(key.text)
    }

    /// The name of its domain; `None` for the default domain.
    pub fn domain(&self, key: Key) -> Option<String> {
        (key.domain != 0).then(|| self.of(key.domain))
    }

    /// Its text is longer than its recorded part.
    pub fn is_cut(&self, key: Key) -> bool {
        self.0.get(&key.text).is_some_and(|t| t.cut)
    }

    /// `text`, or `domain:text`.
    pub fn label(&self, key: Key) -> String {
        match self.domain(key) {
            None => self.text(key),
            Some(domain) => format!("{domain}:{}", self.text(key)),
        }
    }

    fn of(&self, id: u64) -> String {
        match self.0.get(&id) {
            Some(t) => t.text.clone(),
            None if id == 0 => String::new(),
            None => format!("text {id:#x}"),
        }
    }
}

/// Whether ranges were recorded, according to the tape ([`crate::walk::Outcome::nvtx`]).
pub fn watched(nvtx: Option<(u32, u32)>, seen: u64) -> Watched {
    let is = |state: u32| nvtx.is_some_and(|(_, states)| states >> state & 1 != 0);
    Watched {
        asked: nvtx.is_some(),
        connected: is(state::CONNECTED),
        missed: is(state::OWN) || is(state::REFUSED),
        seen,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Style {
    /// Of a thread: pushed and popped.
    Thread,
    /// Of the process: started and ended.
    Process,
    /// At a single time.
    Mark,
}

impl Style {
    pub fn name(self) -> &'static str {
        match self {
            Style::Thread => "push_pop",
            Style::Process => "start_end",
            Style::Mark => "mark",
        }
    }
}

/// A range that has ended, or was given up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// Where it began.
    pub source: Source,
    pub style: Style,
    pub key: Key,
    pub began: u64,
    /// When it ended, and in which thread. `None`: not on the tape.
    pub ended: Option<(u64, i32)>,
    /// Ranges of its thread around it.
    pub level: usize,
    /// [`tape::nvtx::range_flags`]
    pub flags: u16,
    pub body: RangeBody,
}

/// Ranges that are open at the same time.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Open {
    /// The thread's, the outermost first.
    pub thread: Vec<Key>,
    /// The process's, each once.
    pub process: Vec<Key>,
    /// The thread's, each once, in no order.
    pub of_thread: Vec<Key>,
}

impl Open {
    /// Their labels, the outermost first, those of the process after those of the thread.
    pub fn labels<'a>(&'a self, texts: &'a Texts) -> impl Iterator<Item = String> + 'a {
        self.thread.iter().chain(&self.process).map(|key| texts.label(*key))
    }
}

/// Maximum numbers of ranges of one thread, threads of one process, and ranges of one process that are tracked at the same
/// time.
const DEEPEST: usize = 128;
const THREADS: usize = 1 << 16;
const STARTED: usize = 1 << 16;
/// Maximum number of a process's ranges that count as those around a submission.
const AROUND: usize = 64;

/// Inconsistencies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Oddities {
    /// Ends of ranges whose begin is not on the tape.
    pub strays: u64,
    /// Ranges that were not tracked: too many at the same time.
    pub left_out: u64,
}

pushbuf::snapshot!(Oddities { strays, left_out });

impl Snapshot for Range {
    fn save(&self, to: &mut Vec<u8>) {
        let Range { source, style, key, began, ended, level, flags, body } = self;
        let style = match style {
            Style::Thread => 0u8,
            Style::Process => 1,
            Style::Mark => 2,
        };
        (source.process, source.tid, style, *key, *began).save(to);
        (*ended, *level, *flags).save(to);
        (body.domain, body.text, body.id, body.payload, body.color, body.category).save(to);
    }

    fn load(from: &mut &[u8]) -> Option<Range> {
        let (process, tid, style, key, began): (_, _, u8, _, _) = Snapshot::load(from)?;
        let style = match style {
            0 => Style::Thread,
            1 => Style::Process,
            _ => Style::Mark,
        };
        let (ended, level, flags) = Snapshot::load(from)?;
        let (domain, text, id, payload, color, category) = Snapshot::load(from)?;
        let body = RangeBody { domain, text, id, payload, color, category };
        Some(Range { source: Source { process, tid }, style, key, began, ended, level, flags, body })
    }
}

/// (`around` is built again.)
impl Snapshot for OfThread {
    fn save(&self, to: &mut Vec<u8>) {
        self.open.save(to);
    }

    fn load(from: &mut &[u8]) -> Option<OfThread> {
        Some(OfThread { open: Snapshot::load(from)?, ..OfThread::default() })
    }
}

pushbuf::snapshot!(Ranges { threads, started, open, version, oddities });

#[derive(Default)]
struct OfThread {
    open: Vec<Range>,
    /// Built from `open` on demand.
    around: Option<Arc<Open>>,
    /// [`Ranges::version`] when `around` was built.
    version: u64,
}

/// The ranges of one image.
#[derive(Default)]
pub struct Ranges {
    threads: HashMap<i32, OfThread>,
    started: HashMap<u64, Range>,
    /// How many of each are open.
    open: BTreeMap<Key, u32>,
    /// Changes with each change of `open`.
    version: u64,
    pub oddities: Oddities,
}

impl Ranges {
    /// Must be called with all events of the image. Calls `over` with each range that is over.
    pub fn event(&mut self, source: Source, e: &Event<'_>, over: &mut dyn FnMut(&Range)) {
        let range = |style, b: &RangeBody| Range {
            source,
            style,
            key: Key { domain: b.domain, text: b.text },
            began: e.head.tsc,
            ended: None,
            level: 0,
            flags: e.head.flags,
            body: *b,
        };
        match &e.body {
            Body::Push(b) => self.push(range(Style::Thread, b), over),
            Body::Pop(b) => self.pop(source.tid, e.head.tsc, b, over),
            Body::Start(b) => self.start(range(Style::Process, b)),
            Body::End(b) => match self.started.remove(&b.id) {
                Some(r) => {
                    self.one_less(r.key);
                    over(&Range { ended: Some((e.head.tsc, source.tid)), ..r });
                }
                None => self.oddities.strays += 1,
            },
            Body::Mark(b) => over(&Range { ended: Some((e.head.tsc, source.tid)), ..range(Style::Mark, b) }),
            // Ends during the pause are not on the tape.
            Body::Pause(p) if p.paused != 0 => self.give_up(over),
            // Another thread has reused the number.
            Body::Thread(t) if t.ordinal == 0 => {
                let of = self.threads.remove(&source.tid);
                of.iter().flat_map(|of| &of.open).for_each(over);
            }
            _ => {}
        }
    }

    fn push(&mut self, r: Range, over: &mut dyn FnMut(&Range)) {
        if self.threads.len() >= THREADS && !self.threads.contains_key(&r.source.tid) {
            self.oddities.left_out += 1;
            return;
        }
        let of = self.threads.entry(r.source.tid).or_default();
        of.around = None;
        of.give_up(r.key.domain, r.body.id, over);
        if of.open.len() >= DEEPEST {
            self.oddities.left_out += 1;
            return;
        }
        of.open.push(Range { level: of.open.len(), ..r });
    }

    fn pop(&mut self, tid: i32, tsc: u64, b: &EndBody, over: &mut dyn FnMut(&Range)) {
        let Some(of) = self.threads.get_mut(&tid) else {
            self.oddities.strays += 1;
            return;
        };
        of.around = None;
        of.give_up(b.domain, b.id.saturating_add(1), over);
        let last = of.open.iter().rposition(|r| r.key.domain == b.domain).filter(|i| of.open[*i].body.id == b.id);
        match last.map(|i| of.open.remove(i)) {
            Some(r) => over(&Range { ended: Some((tsc, tid)), ..r }),
            None => self.oddities.strays += 1,
        }
    }

    fn start(&mut self, r: Range) {
        if self.started.len() >= STARTED {
            self.oddities.left_out += 1;
            return;
        }
        // (A range with the same number: only on a tape that no agent has written.)
        if let Some(before) = self.started.insert(r.body.id, r) {
            self.one_less(before.key);
        }
        *self.open.entry(r.key).or_default() += 1;
        self.version += 1;
    }

    fn one_less(&mut self, key: Key) {
        self.version += 1;
        if let Some(n) = self.open.get_mut(&key) {
            *n -= 1;
            if *n == 0 {
                self.open.remove(&key);
            }
        }
    }

    /// Gives up all open ranges.
    pub fn give_up(&mut self, over: &mut dyn FnMut(&Range)) {
        let mut left: Vec<Range> = self.started.drain().map(|(_, r)| r).collect();
        left.extend(self.threads.drain().flat_map(|(_, of)| of.open));
        left.sort_by_key(|r| (r.began, r.source, r.style, r.body.id));
        self.open.clear();
        self.version += 1;
        left.iter().for_each(over);
    }

    /// The ranges around a thread's current activity; `None` if there are none.
    pub fn around(&mut self, tid: i32) -> Option<Arc<Open>> {
        let version = self.version;
        if self.open.is_empty() && self.threads.get(&tid).is_none_or(|of| of.open.is_empty()) {
            return None;
        }
        let open = &self.open;
        let make = |thread: Vec<Key>| {
            let process: Vec<Key> = open.keys().take(AROUND).copied().collect();
            let mut of_thread = thread.clone();
            of_thread.sort_unstable();
            of_thread.dedup();
            Arc::new(Open { thread, process, of_thread })
        };
        // (A thread without ranges is not remembered.)
        let Some(of) = self.threads.get_mut(&tid) else { return Some(make(Vec::new())) };
        if of.version != version {
            of.around = None;
        }
        of.version = version;
        Some(of.around.get_or_insert_with(|| make(of.open.iter().map(|r| r.key).collect())).clone())
    }
}

impl OfThread {
    /// Gives up the ranges of a domain beyond its first `depth`.
    fn give_up(&mut self, domain: u64, depth: u64, over: &mut dyn FnMut(&Range)) {
        let is_over =
            |r: &Range| depth != NO_DEPTH && r.key.domain == domain && r.body.id != NO_DEPTH && r.body.id >= depth;
        if self.open.iter().any(is_over) {
            self.open.iter().filter(|r| is_over(r)).for_each(over);
            self.open.retain(|r| !is_over(r));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tape::event::{Head, PauseBody, ThreadBody};
    use tape::nvtx;

    const SOURCE: Source = Source { process: 0, tid: 7 };

    #[derive(Default)]
    struct Run {
        ranges: Ranges,
        texts: Texts,
        over: Vec<String>,
        tsc: u64,
    }

    impl Run {
        fn event(&mut self, tid: i32, body: Body<'_>) {
            self.tsc += 10;
            let e = Event { head: Head { tsc: self.tsc, ..Head::default() }, body };
            let (texts, over) = (&self.texts, &mut self.over);
            self.ranges.event(Source { tid, ..SOURCE }, &e, &mut |r| {
                let end = r.ended.map_or("?".into(), |(tsc, tid)| format!("{tsc} in {tid}"));
                over.push(format!("{} {}-{end} at {}", texts.label(r.key), r.began, r.level));
            });
        }

        fn text(&mut self, text: &str) -> u64 {
            let id = nvtx::text(text.as_bytes());
            self.texts.event(0, &TextBody { id, ..TextBody::default() }, text.as_bytes());
            id
        }

        fn push(&mut self, domain: &str, text: &str, id: u64) {
            let domain = if domain.is_empty() { 0 } else { self.text(domain) };
            let text = self.text(text);
            self.event(7, Body::Push(RangeBody { domain, text, id, ..RangeBody::default() }));
        }

        fn pop(&mut self, domain: &str, id: u64) {
            let domain = if domain.is_empty() { 0 } else { self.text(domain) };
            self.event(7, Body::Pop(EndBody { domain, id }));
        }

        fn around(&mut self, tid: i32) -> Vec<String> {
            let open = self.ranges.around(tid);
            open.iter().flat_map(|o| o.thread.iter().chain(&o.process)).map(|k| self.texts.label(*k)).collect()
        }
    }

    #[test]
    fn ranges_of_domains_lie_in_each_other_and_end_on_their_own() {
        let mut r = Run::default();
        r.push("", "epoch", 0);
        r.push("lib", "a", 0);
        r.push("", "step", 1);
        assert_eq!(r.around(7), ["epoch", "lib:a", "step"]);
        r.pop("lib", 0);
        assert_eq!(r.around(7), ["epoch", "step"]);
        r.pop("", 1);
        r.pop("", 0);
        assert_eq!(r.over, ["lib:a 20-40 in 7 at 1", "step 30-50 in 7 at 2", "epoch 10-60 in 7 at 0"]);
        assert!(r.ranges.around(7).is_none() && r.ranges.oddities == Oddities::default());
    }

    #[test]
    fn ranges_of_the_process_are_around_all_of_its_threads() {
        let mut r = Run::default();
        let text = r.text("request");
        let started = |id| Body::Start(RangeBody { text, id, ..RangeBody::default() });
        r.event(7, started(1));
        r.event(7, started(2));
        assert_eq!((r.around(8), r.around(7)), (vec!["request".to_owned()], vec!["request".to_owned()]));
        r.push("", "mine", 0);
        assert_eq!(r.around(7), ["mine", "request"]);
        r.event(9, Body::End(EndBody { domain: 0, id: 1 }));
        assert_eq!(r.around(8), ["request"]);
        r.event(9, Body::End(EndBody { domain: 0, id: 2 }));
        r.event(9, Body::End(EndBody { domain: 0, id: 2 }));
        assert_eq!((r.around(8).len(), r.around(7)), (0, vec!["mine".to_owned()]));
        assert_eq!(r.over, ["request 10-40 in 9 at 0", "request 20-50 in 9 at 0"]);
        assert_eq!(r.ranges.oddities.strays, 1);
    }

    #[test]
    fn what_comes_next_says_what_is_over() {
        let mut r = Run::default();
        for (depth, text) in ["a", "b", "c"].into_iter().enumerate() {
            r.push("", text, depth as u64);
        }
        // The ends of b and c were lost in a gap.
        r.push("", "d", 1);
        assert_eq!((r.around(7), r.over.len()), (vec!["a".to_owned(), "d".to_owned()], 2));
        r.push("", "e", 2);
        r.pop("", 0);
        assert_eq!(r.over, ["b 20-? at 1", "c 30-? at 2", "d 40-? at 1", "e 50-? at 2", "a 10-60 in 7 at 0"]);
        // Ends without begin.
        r.pop("", 5);
        r.pop("", NO_DEPTH);
        r.event(12, Body::Pop(EndBody::default()));
        assert_eq!((r.ranges.oddities.strays, r.over.len()), (3, 5));
        // Begun before the recording, or in a pause.
        r.push("", "f", 9);
        r.pop("", 9);
        assert_eq!(r.over.len(), 6);
    }

    #[test]
    fn a_pause_and_a_new_thread_leave_nothing_open() {
        let mut r = Run::default();
        r.push("", "a", 0);
        r.event(7, Body::Start(RangeBody::default()));
        r.event(8, Body::Pause(PauseBody { paused: 1, by: 1 }));
        assert_eq!((r.over.len(), r.around(7).len()), (2, 0));
        r.push("", "b", 1);
        r.event(7, Body::Thread(ThreadBody { ordinal: 1, ..ThreadBody::default() }));
        assert_eq!(r.around(7), ["b"]);
        r.event(7, Body::Thread(ThreadBody::default()));
        assert_eq!((r.around(7).len(), r.over.last().map(String::as_str)), (0, Some("b 40-? at 0")));
    }

    #[test]
    fn memory_is_bounded() {
        let mut r = Run::default();
        for i in 0..3 * DEEPEST as u64 {
            r.push("", "x", i);
        }
        assert_eq!((r.around(7).len(), r.ranges.oddities.left_out), (DEEPEST, 2 * DEEPEST as u64));
        for i in 0..2 * STARTED as u64 {
            r.event(7, Body::Start(RangeBody { text: i, id: i, ..RangeBody::default() }));
        }
        assert_eq!((r.ranges.started.len(), r.around(9).len()), (STARTED, AROUND));
        for i in 0..2 * THREADS as i32 {
            r.event(i, Body::Push(RangeBody::default()));
        }
        assert_eq!(r.ranges.threads.len(), THREADS);
        for i in 0..2 * TEXTS as u64 {
            r.texts.event(0, &TextBody { id: i, ..TextBody::default() }, b"");
        }
        assert_eq!(r.texts.0.len(), TEXTS);
    }
}

//! What streams wait for, from the calls that gave them work.
//!
//! The calls do not say which work is done. So a stream is looked at only if a thread waits for it in both looks: then something that it
//! was given before is not done. What that is follows from words in memory, from threads in host functions, and from kernels whose ends
//! the GPU did not store ([`Head::is_certain`]); else it is the oldest work that may not be done.
//!
//! Invariant: every step goes back in time, or to a stream that has not been looked at. So nothing here runs forever.

use crate::wait_graph::edges::Threads;
use schema::now::NowKernel;
use std::cell::RefCell;
use std::collections::HashMap;
use tape::call::{Class, Function, Object, function, number, of_thread};
use tape::live::{Live, LiveChannel, LivePoll, LiveStream, LiveWork};

/// How many events may follow one another from stream to stream.
const DEPTH: usize = 100;

/// A stream that has something to do in both looks.
pub struct Stream<'a> {
    pub pid: i32,
    pub handle: u64,
    pub work: Vec<&'a LiveWork>,
    /// When its waits began whose words changed between the looks.
    changing: Vec<u64>,
    /// Older work was forgotten.
    pub is_cut: bool,
    /// Set if somebody waits for it.
    pub head: Option<Head<'a>>,
}

/// The work that a stream has not done.
#[derive(Clone)]
pub struct Head<'a> {
    pub work: &'a LiveWork,
    pub on: On,
    /// It is known to be not done, or all before it is known to be done and something is not.
    pub is_certain: bool,
    /// Later work of the same stream, for which the same threads wait, and that may be what is not done instead.
    pub others: Vec<&'a LiveWork>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum On {
    /// A word in memory. Streams that are to write it, by index.
    Word(Vec<usize>),
    /// The stream that recorded an event, by index, and when.
    Event(usize, u64),
    /// A host function, which these threads execute. (CUDA executes those of one context one after the other.)
    HostFunction(Vec<usize>),
    /// A kernel, a copy, a graph.
    Work,
}

/// The streams of both looks.
pub struct Streams<'a> {
    pub all: Vec<Stream<'a>>,
    /// For each thread the streams for which it waits.
    pub of_threads: Vec<Vec<usize>>,
    /// The threads that ask for something again and again.
    pub polls: HashMap<usize, &'a LivePoll>,
    /// Channels that the GPU has not read further between the looks, with the process.
    pub channels: Vec<(i32, &'a LiveChannel)>,
    /// Streams with a kernel that has not ended.
    kernels: Vec<(i32, u64)>,
    threads_in_host_functions: HashMap<i32, Vec<usize>>,
    heads: RefCell<HashMap<(usize, u64), Option<Head<'a>>>>,
}

impl<'a> Streams<'a> {
    pub fn of(first: &'a Live, second: &'a Live, threads: &Threads<'a>, kernels: &[NowKernel]) -> Streams<'a> {
        let mut all = Vec::new();
        let (mut polls, mut channels) = (HashMap::new(), Vec::new());
        for p in &second.processes {
            let Some(before) = first.processes.iter().find(|f| f.pid == p.pid) else { continue };
            let earlier: HashMap<u64, &LiveStream> = before.streams.iter().map(|s| (s.stream, s)).collect();
            for s in &p.streams {
                let Some(was) = earlier.get(&s.stream) else { continue };
                let before: HashMap<u64, &LiveWork> = was.work.iter().map(|w| (w.tsc, w)).collect();
                let same = |w: &&LiveWork| {
                    before.get(&w.tsc).is_some_and(|b| (b.function, b.tid, b.object) == (w.function, w.tid, w.object))
                };
                let work: Vec<&LiveWork> = s.work.iter().filter(same).collect();
                let changes = |w: &&&LiveWork| before.get(&w.tsc).is_some_and(|b| b.there != w.there);
                let changing = work.iter().filter(changes).map(|w| w.tsc).collect();
                if !work.is_empty() {
                    all.push(Stream { pid: p.pid, handle: s.stream, work, changing, is_cut: s.cut, head: None });
                }
            }
            channels.extend(p.channels.iter().filter(|c| before.channels.contains(c)).map(|c| (p.pid, c)));
            for poll in &p.polls {
                let same = before.polls.iter().any(|b| (b.tid, b.since) == (poll.tid, poll.since));
                if let Some(n) = threads.position(p.pid, poll.tid).filter(|_| same && poll.last > first.tsc) {
                    polls.insert(n, poll);
                }
            }
        }
        let mut threads_in_host_functions: HashMap<i32, Vec<usize>> = HashMap::new();
        for (n, t) in threads.all.iter().enumerate().filter(|(_, t)| t.is_in_host_function) {
            threads_in_host_functions.entry(t.process.pid).or_default().push(n);
        }
        let kernels = kernels.iter().map(|k| (k.pid, k.stream)).collect();
        let of_threads = vec![Vec::new(); threads.all.len()];
        let mut streams =
            Streams { all, of_threads, polls, channels, kernels, threads_in_host_functions, heads: RefCell::default() };
        streams.find(threads);
        streams
    }

    /// Finds the streams for which threads wait, and for which those wait.
    fn find(&mut self, threads: &Threads<'_>) {
        let mut wanted = Vec::new();
        for (n, t) in threads.all.iter().enumerate() {
            let asked = match (t.call, self.polls.get(&n)) {
                (Some(call), _) => {
                    let row = function(number(&call.function));
                    row.map(|f| (f, call.stream, call.object, call.began))
                }
                (None, Some(p)) => function(p.function).map(|f| (f, p.stream, p.object, p.last)),
                (None, None) => None,
            };
            let Some((f, stream, object, at)) = asked else { continue };
            let found = self.waited_for(t.process.pid, t.row.tid, f, stream, object, at);
            self.of_threads[n] = found.iter().map(|(s, _)| *s).collect();
            wanted.extend(found);
        }
        while let Some((s, until)) = wanted.pop() {
            let Some(head) = self.head(s, until, DEPTH) else { continue };
            let is_earlier = |of: &Head<'_>| (!head.is_certain, head.work.tsc) < (!of.is_certain, of.work.tsc);
            if self.all[s].head.as_ref().is_some_and(|of| !is_earlier(of)) {
                continue;
            }
            match &head.on {
                On::Event(x, at) => wanted.push((*x, *at)),
                On::Word(writers) => wanted.extend(writers.iter().map(|x| (*x, u64::MAX))),
                On::HostFunction(_) | On::Work => {}
            }
            self.all[s].head = Some(head);
        }
        // (A stream that has done all that a thread waits for is not what it waits for.)
        let has_head: Vec<bool> = self.all.iter().map(|s| s.head.is_some()).collect();
        self.of_threads.iter_mut().for_each(|of| of.retain(|s| has_head[*s]));
    }

    /// The streams for which a call waits, and up to which time what they were given counts.
    fn waited_for(&self, pid: i32, tid: i32, f: &Function, stream: u64, object: u64, at: u64) -> Vec<(usize, u64)> {
        let of_process = || (0..self.all.len()).filter(|s| self.all[*s].pid == pid).map(|s| (s, at)).collect();
        let one = |stream| self.position(pid, stream).map(|s| (s, at)).into_iter().collect();
        match f.class {
            Class::Synchronize | Class::Query if f.object == Object::Event => {
                self.recorded(pid, object, at).into_iter().collect()
            }
            Class::Synchronize | Class::Query | Class::CopyAsync | Class::Launch | Class::GraphLaunch
                if f.stream != tape::call::Stream::None =>
            {
                one(stream)
            }
            Class::Synchronize => of_process(),
            // The default stream waits for all others that are not made to be independent of it. Memory is freed after all work.
            Class::Copy | Class::Memset | Class::Free => {
                let own: Vec<_> = one(of_thread(tid));
                if own.is_empty() { of_process() } else { own }
            }
            _ => Vec::new(),
        }
    }

    fn position(&self, pid: i32, stream: u64) -> Option<usize> {
        self.all.iter().position(|s| s.pid == pid && s.handle == stream)
    }

    /// The stream that recorded an event last before this time, and when. `None`: that is done, or was never.
    fn recorded(&self, pid: i32, event: u64, until: u64) -> Option<(usize, u64)> {
        let is_record = |w: &&&LiveWork| w.object == event && w.tsc <= until && class(w) == Some(Class::EventRecord);
        let of = |(n, s): (usize, &Stream<'_>)| s.work.iter().rfind(is_record).map(|w| (n, w.tsc));
        self.all.iter().enumerate().filter(|(_, s)| s.pid == pid).filter_map(of).max_by_key(|(_, at)| *at)
    }

    fn head(&self, s: usize, until: u64, depth: usize) -> Option<Head<'a>> {
        if let Some(known) = self.heads.borrow().get(&(s, until)) {
            return known.clone();
        }
        let found = self.find_head(s, until, depth);
        self.heads.borrow_mut().insert((s, until), found.clone());
        found
    }

    fn find_head(&self, s: usize, until: u64, depth: usize) -> Option<Head<'a>> {
        let stream = self.all.get(s)?;
        let mut maybe: Option<Head<'a>> = None;
        for work in stream.work.iter().copied().take_while(|w| w.tsc <= until) {
            let (on, is_certain) = match (class(work)?, function(work.function)?.object) {
                (Class::EventRecord | Class::StreamWrite, _) => continue,
                (Class::StreamWait, Object::Event) => {
                    // (Another thread's record may have arrived after the wait.)
                    let recorded = match work.value {
                        0 => self.recorded(stream.pid, work.object, work.tsc),
                        at => self.position(stream.pid, work.how).map(|x| (x, at)),
                    };
                    let Some((x, at)) = recorded else { continue };
                    // (A record that is not among the work is done.)
                    let is_there = self.all[x].work.iter().any(|w| w.tsc == at);
                    let Some(head) = is_there.then(|| depth.checked_sub(1)).flatten().and_then(|d| self.head(x, at, d))
                    else {
                        continue;
                    };
                    (On::Event(x, at), head.is_certain)
                }
                (Class::StreamWait, _) => match (is_satisfied(work), work.there) {
                    (true, Some(_)) => continue,
                    (_, there) => {
                        let is_steady = there.is_some() && !stream.changing.contains(&work.tsc);
                        (On::Word(self.writers(stream.pid, work)), is_steady)
                    }
                },
                (Class::HostFunction, _) => {
                    let threads = self.threads_in_host_functions.get(&stream.pid).cloned().unwrap_or_default();
                    let is_certain = !threads.is_empty();
                    (On::HostFunction(threads), is_certain)
                }
                _ => (On::Work, self.kernels.contains(&(stream.pid, stream.handle))),
            };
            match &mut maybe {
                _ if is_certain => return Some(Head { work, on, is_certain, others: Vec::new() }),
                Some(first) => first.others.push(work),
                None => maybe = Some(Head { work, on, is_certain, others: Vec::new() }),
            }
        }
        // (What alone may be not done is what is not done.)
        maybe.map(|head| Head { is_certain: head.others.is_empty() && !stream.is_cut && depth == DEPTH, ..head })
    }

    /// Streams that may have to write a word.
    fn writers(&self, pid: i32, wait: &LiveWork) -> Vec<usize> {
        let of = |s: &Stream<'_>| s.pid == pid && last_write(s, wait.object).is_some();
        (0..self.all.len()).filter(|s| of(&self.all[*s])).collect()
    }

    /// The streams for which a stream waits.
    pub fn streams_of(&self, s: usize) -> Vec<usize> {
        let Some(head) = self.all.get(s).and_then(|s| s.head.as_ref()) else { return Vec::new() };
        let is_before = |x: &&usize| {
            let of = &self.all[**x];
            of.head.as_ref().zip(last_write(of, head.work.object)).is_some_and(|(first, write)| first.work.tsc < write)
        };
        match &head.on {
            On::Event(x, _) => vec![*x],
            // (One that has nothing to do before its write has written.)
            On::Word(writers) => writers.iter().filter(is_before).copied().collect(),
            On::HostFunction(_) | On::Work => Vec::new(),
        }
    }

    /// The channel of a stream that the GPU does not read.
    pub fn channel_of(&self, s: usize) -> Option<&LiveChannel> {
        let of = self.all.get(s)?;
        let works = |s: &&Stream<'_>| s.pid == of.pid && s.head.as_ref().is_some_and(|head| head.on == On::Work);
        let mut working = self.all.iter().filter(works);
        works(&of).then_some(())?;
        let mine = self.channels.iter().find(|(pid, c)| *pid == of.pid && c.stream == of.handle);
        // (Another thread may have rung, in no call.)
        let of_no_stream = || self.channels.iter().find(|(pid, c)| *pid == of.pid && c.stream == 0);
        let alone = working.next().is_some() && working.next().is_none();
        mine.or_else(|| of_no_stream().filter(|_| alone)).map(|(_, c)| *c)
    }

    /// The threads for which a stream waits.
    pub fn threads_of(&self, s: usize) -> &[usize] {
        match self.all.get(s).and_then(|s| s.head.as_ref()).map(|head| &head.on) {
            Some(On::HostFunction(threads)) => threads,
            _ => &[],
        }
    }
}

/// When a stream was given its last write of a word.
fn last_write(s: &Stream<'_>, address: u64) -> Option<u64> {
    let writes = |w: &&&LiveWork| w.object == address && class(w) == Some(Class::StreamWrite);
    s.work.iter().rfind(writes).map(|w| w.tsc)
}

fn class(w: &LiveWork) -> Option<Class> {
    function(w.function).map(|f| f.class)
}

/// Whether the word has the value that a stream waits for (cuda.h, CUstreamWaitValue_flags).
fn is_satisfied(w: &LiveWork) -> bool {
    let is_wide = w.function == const { number("cuStreamWaitValue64") };
    let there = w.there.unwrap_or(0);
    let (there, value) = if is_wide { (there, w.value) } else { (there as u32 as u64, w.value as u32 as u64) };
    match w.how {
        0 if is_wide => there.wrapping_sub(value) as i64 >= 0,
        0 => (there as u32).wrapping_sub(value as u32) as i32 >= 0,
        1 => there == value,
        2 => there & value != 0,
        _ if is_wide => !(there | value) != 0,
        _ => !(there as u32 | value as u32) != 0,
    }
}

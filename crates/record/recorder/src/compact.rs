//! Removes the driver calls of objects that are gone: freed memory, ranges of addresses, mappings, descriptors.
//!
//! Simple rules find the calls of objects that are gone. A check, not these rules, makes sure that the rest means the
//! same.
//!
//! Invariant: the calls that stay give an object graph with the same live objects as all calls give. Otherwise all calls
//! stay.

use crate::kept::time_of;
use rm::abi::Branch;
use rm::call::{Call, FileKind};
use rm::fact::{Fact, What};
use rm::graph::{IoctlRecord, MmapRecord, ObjectGraph};
use std::collections::{BTreeMap, HashMap};
use tape::event::{Body, Event};

/// A driver call.
struct One<'a> {
    tid: i32,
    time: u64,
    bytes: &'a [u8],
    event: Event<'a>,
}

/// Each thread's driver calls without the calls of objects that are gone. `None`: no call can be left out.
pub fn compact(driver: &str, branch: &Branch, threads: &BTreeMap<i32, Vec<u8>>) -> Option<BTreeMap<i32, Vec<u8>>> {
    let mut all = Vec::new();
    for (tid, bytes) in threads {
        let (mut rest, mut time) = (&bytes[..], 0);
        while let Some((event, n)) = Event::parse(rest) {
            // (A thread's events keep their order.)
            time = time_of(&event).max(time);
            all.push(One { tid: *tid, time, bytes: &rest[..n], event });
            rest = &rest[n..];
        }
    }
    all.sort_by_key(|one| one.time);
    let gone = Scan::of(branch, &all).gone();
    if !gone.contains(&true) || living(driver, &all, |_| true) != living(driver, &all, |i| !gone[i]) {
        return None;
    }
    let mut out: BTreeMap<i32, Vec<u8>> = threads.keys().map(|tid| (*tid, Vec::new())).collect();
    for (one, _) in all.iter().zip(&gone).filter(|(_, gone)| !**gone) {
        out.entry(one.tid).or_default().extend_from_slice(one.bytes);
    }
    Some(out)
}

/// Objects that are alive after the calls that stay.
fn living(driver: &str, all: &[One<'_>], stays: impl Fn(usize) -> bool) -> Vec<String> {
    let mut graph = ObjectGraph::new();
    if !matches!(driver, "" | "soft") {
        graph.set_driver(driver);
    }
    for (_, one) in all.iter().enumerate().filter(|(i, _)| stays(*i)) {
        match &one.event.body {
            Body::Ioctl(i, arg, nested) => graph.ioctl(IoctlRecord {
                fd: i.fd,
                file: FileKind::from_raw(i.file),
                request: i.request,
                ret: i.ret,
                arg,
                nested,
            }),
            Body::Mmap(m) => graph.mmap(MmapRecord {
                addr: m.addr,
                len: m.len,
                offset: m.offset,
                fd: m.fd,
                prot: m.prot,
                flags: m.flags,
            }),
            Body::Munmap(m) => graph.munmap(m.addr, m.len),
            Body::Mremap(m) => graph.mremap(m.old, m.old_len, m.new, m.new_len),
            Body::Open(f, _) => graph.open(f.fd, FileKind::from_raw(f.file)),
            Body::Close(f) => graph.close(f.fd),
            Body::Dup(f) => graph.dup(f.fd, f.other),
            _ => {}
        }
    }
    graph.living()
}

/// An object, from its creation on.
#[derive(Default)]
struct Object {
    /// Calls that concern only this object.
    calls: Vec<usize>,
    children: Vec<usize>,
    /// Its mappings, and the descriptors that show it.
    maps: Vec<usize>,
    shown: Vec<usize>,
    is_freed: bool,
    /// Another object may depend on it.
    stays: bool,
}

/// A descriptor that shows an object.
#[derive(Default)]
struct Shown {
    call: usize,
    mmaps: Vec<usize>,
    /// The descriptor was closed, or shows another object.
    is_over: bool,
}

/// An open file.
#[derive(Default)]
struct File {
    open: usize,
    close: Option<usize>,
    shown: Vec<usize>,
    mmaps: Vec<usize>,
    calls: Vec<usize>,
    stays: bool,
}

/// A range of addresses that was requested from UVM.
#[derive(Default)]
struct Range {
    length: u64,
    calls: Vec<usize>,
    is_freed: bool,
}

/// Which call belongs to which object, file or range.
#[derive(Default)]
struct Scan {
    gone: Vec<bool>,
    objects: Vec<Object>,
    live: HashMap<(u32, u32), usize>,
    /// Calls that free objects, and the objects that they name.
    frees: Vec<(usize, usize)>,
    ranges: Vec<Range>,
    range_at: BTreeMap<u64, usize>,
    shown: Vec<Shown>,
    shown_by: HashMap<i32, usize>,
    files: Vec<File>,
    fds: HashMap<i32, usize>,
    mmaps: HashMap<(u64, u64), usize>,
}

impl Scan {
    fn of(branch: &Branch, all: &[One<'_>]) -> Scan {
        let mut s = Scan { gone: vec![false; all.len()], ..Scan::default() };
        for (i, one) in all.iter().enumerate() {
            match &one.event.body {
                Body::Ioctl(b, arg, nested) => {
                    let call = Call::parse(branch, FileKind::from_raw(b.file), b.request, arg, nested);
                    if let Some(file) = s.fds.get(&b.fd).and_then(|f| s.files.get_mut(*f)) {
                        file.calls.push(i);
                    }
                    if let Some(fact) = Fact::of(branch, &call, b.ret) {
                        s.fact(i, b.fd, &fact);
                    }
                }
                Body::Mmap(m) => {
                    s.mmaps.insert((m.addr, m.len), i);
                    if let Some(shown) = s.shown_by.get(&m.fd).and_then(|n| s.shown.get_mut(*n)) {
                        shown.mmaps.push(i);
                    }
                    if let Some(file) = s.fds.get(&m.fd).and_then(|f| s.files.get_mut(*f)) {
                        file.mmaps.push(i);
                    }
                }
                Body::Munmap(m) => {
                    if let Some(made) = s.mmaps.remove(&(m.addr, m.len)) {
                        (s.gone[made], s.gone[i]) = (true, true);
                    }
                }
                Body::Open(f, _) => {
                    s.close(f.fd, None);
                    s.fds.insert(f.fd, s.files.len());
                    s.files.push(File { open: i, ..File::default() });
                }
                Body::Close(f) => s.close(f.fd, Some(i)),
                Body::Dup(f) => {
                    for fd in [f.fd, f.other] {
                        if let Some(file) = s.fds.get(&fd).and_then(|f| s.files.get_mut(*f)) {
                            file.stays = true;
                        }
                    }
                }
                _ => {}
            }
        }
        s
    }

    fn close(&mut self, fd: i32, call: Option<usize>) {
        if let Some(file) = self.fds.remove(&fd).and_then(|f| self.files.get_mut(f)) {
            file.close = call;
        }
        if let Some(shown) = self.shown_by.remove(&fd).and_then(|n| self.shown.get_mut(n)) {
            shown.is_over = call.is_some();
        }
    }

    fn object(&mut self, client: u32, handle: u32) -> Option<&mut Object> {
        self.objects.get_mut(*self.live.get(&(client, handle))?)
    }

    fn stays(&mut self, client: u32, handle: u32) {
        if let Some(o) = self.object(client, handle) {
            o.stays = true;
        }
    }

    fn made(&mut self, i: usize, client: u32, parent: u32, handle: u32, stays: bool) {
        // (An object of this handle may still live, because its free was not seen.)
        self.stays(client, handle);
        let n = self.objects.len();
        if let Some(parent) = self.object(client, parent) {
            parent.children.push(n);
        }
        self.objects.push(Object { calls: vec![i], stays, ..Object::default() });
        self.live.insert((client, handle), n);
    }

    fn fact(&mut self, i: usize, fd: i32, fact: &Fact<'_>) {
        match *fact {
            Fact::Created(c) => {
                let is_client = matches!(c.what, What::Client);
                if is_client && let Some(file) = self.fds.get(&fd).and_then(|f| self.files.get_mut(*f)) {
                    file.stays = true;
                }
                let is_shown = matches!(c.what, What::Memory(m) if m.fd.is_some());
                self.made(i, c.client, c.parent, c.handle, is_client || is_shown);
            }
            Fact::Freed { client, handle } if client == handle => {
                let of_client = |key: &(u32, u32)| key.0 == client;
                self.live.iter().filter(|(key, _)| of_client(key)).for_each(|(_, n)| self.objects[*n].stays = true);
                self.live.retain(|key, _| !of_client(key));
            }
            Fact::Freed { client, handle } => {
                let Some(top) = self.live.get(&(client, handle)).copied() else { return };
                self.frees.push((i, top));
                let mut going = vec![top];
                while let Some(n) = going.pop() {
                    self.objects[n].is_freed = true;
                    going.extend(self.objects[n].children.iter().filter(|c| !self.objects[**c].is_freed));
                }
                self.live.retain(|_, n| !self.objects[*n].is_freed);
            }
            Fact::Duplicated { client, parent, handle, source } => {
                self.stays(source.0, source.1);
                self.made(i, client, parent, handle, true);
            }
            Fact::Bound { fd, client, handle, .. } => {
                let n = self.shown.len();
                self.shown.push(Shown { call: i, ..Shown::default() });
                if let Some(before) = self.shown_by.insert(fd, n).and_then(|n| self.shown.get_mut(n)) {
                    before.is_over = true;
                }
                if let Some(o) = self.object(client, handle) {
                    o.shown.push(n);
                }
                if let Some(file) = self.fds.get(&fd).and_then(|f| self.files.get_mut(*f)) {
                    file.shown.push(n);
                }
            }
            Fact::Token { client, channel: handle, .. }
            | Fact::EngineOf { client, channel: handle, .. }
            | Fact::ChannelScheduled { client, channel: handle }
            | Fact::GroupScheduled { client, group: handle }
            | Fact::ChannelRegistered { client, channel: handle, .. }
            | Fact::ChannelUnregistered { client, channel: handle } => {
                if let Some(o) = self.object(client, handle) {
                    o.calls.push(i);
                }
            }
            Fact::MappedExternal(m) => {
                let range = self.range_of(m.base);
                if let Some(r) = range {
                    self.ranges[r].calls.push(i);
                }
                if let Some(o) = self.object(m.client, m.memory) {
                    o.maps.push(i);
                    o.stays |= range.is_none();
                }
            }
            Fact::MappedInSpace { client, memory, space, .. } => {
                self.stays(client, memory);
                self.stays(client, space);
            }
            Fact::UnmappedExternal { base, .. } => {
                if let Some(r) = self.range_of(base) {
                    self.ranges[r].calls.push(i);
                }
            }
            Fact::RangeReserved { base, length } | Fact::PoolCreated { base, length } => {
                self.range_at.insert(base, self.ranges.len());
                self.ranges.push(Range { length, calls: vec![i], is_freed: false });
            }
            Fact::RangeFreed { base, .. } => {
                if let Some(r) = self.range_at.remove(&base).and_then(|r| self.ranges.get_mut(r)) {
                    r.calls.push(i);
                    r.is_freed = true;
                }
            }
            _ => {}
        }
    }

    fn range_of(&self, base: u64) -> Option<usize> {
        let (at, r) = self.range_at.range(..=base).next_back()?;
        (base - at < self.ranges.get(*r)?.length).then_some(*r)
    }

    /// Marks the calls that belong to objects that are gone.
    fn gone(mut self) -> Vec<bool> {
        let gone = &mut self.gone;
        for r in self.ranges.iter().filter(|r| r.is_freed) {
            r.calls.iter().for_each(|i| gone[*i] = true);
        }
        let is_over = |shown: &Shown, gone: &[bool]| shown.is_over && shown.mmaps.iter().all(|i| gone[*i]);
        for shown in &self.shown {
            gone[shown.call] = is_over(shown, gone);
        }
        // Children have higher numbers than their parents.
        let mut is_gone = vec![false; self.objects.len()];
        for (n, o) in self.objects.iter().enumerate().rev() {
            is_gone[n] = o.is_freed
                && !o.stays
                && o.maps.iter().all(|i| gone[*i])
                && o.shown.iter().all(|s| gone[self.shown[*s].call])
                && o.children.iter().all(|c| is_gone[*c]);
            if is_gone[n] {
                o.calls.iter().for_each(|i| gone[*i] = true);
            }
        }
        self.frees.iter().for_each(|(i, top)| gone[*i] = is_gone[*top]);
        for f in &self.files {
            let unused = |calls: &[usize], gone: &[bool]| calls.iter().all(|i| gone[*i]);
            let over = f.shown.iter().all(|s| gone[self.shown[*s].call]);
            if let (Some(close), false) = (f.close, f.stays)
                && over
                && unused(&f.mmaps, gone)
                && unused(&f.calls, gone)
            {
                (gone[f.open], gone[close]) = (true, true);
            }
        }
        self.gone
    }
}

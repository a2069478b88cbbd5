//! The model of the driver's objects: the clients, devices, channels and memory that the taps need.
//!
//! Handles and classes decide, never sizes or the order of calls. [`rm::fact`] decides what a call means, as it does for
//! readers of a recording. The model keeps the result in fixed tables and allocates nothing.

use crate::process::own_lock::OwnLock;
use crate::process::region;
use crate::process::wiped::word;
use crate::tap::ranges::{self, Range};
use core::sync::atomic::{AtomicBool, Ordering};
use rm::class::NV01_DEVICE_0;
use rm::fact::{Created, Fact, Memory, What};
use tape::region::trouble;

/// The deepest tree: client, device, subdevice, group, channel.
const DEPTH: usize = 8;

/// An object whose place in the tree is needed: client, device, subdevice, channel group, channel, usermode.
#[derive(Clone, Copy)]
struct Object {
    client: u32,
    handle: u32,
    parent: u32,
    class: u32,
    /// Set only while objects are freed.
    going: bool,
}

/// RM_MAP_MEMORY (or RM_ALLOC_MEMORY) has bound memory to a descriptor. The descriptor's next mmap maps that memory.
#[derive(Clone, Copy)]
pub struct Bound {
    pub fd: i32,
    pub client: u32,
    pub memory: u32,
    pub offset: u64,
}

/// Memory mapped into the process.
#[derive(Clone, Copy)]
pub struct Mapped {
    pub client: u32,
    pub memory: u32,
    pub offset: u64,
    pub addr: u64,
    pub len: u64,
    pub video: bool,
    /// The program's own pages, which stay when the driver releases them.
    pub user: bool,
}

/// A GPU range that maps memory at another address than the CPU's.
#[derive(Clone, Copy)]
struct External {
    client: u32,
    /// 0 after the memory was freed. UVM holds it until the range is removed.
    memory: u32,
    offset: u64,
    va: u64,
    len: u64,
}

struct Table<T, const N: usize> {
    n: usize,
    rows: [T; N],
}

impl<T: Copy, const N: usize> Table<T, N> {
    const fn new(empty: T) -> Self {
        Table { n: 0, rows: [empty; N] }
    }
    fn iter(&self) -> core::slice::Iter<'_, T> {
        self.rows.get(..self.n).unwrap_or(&[]).iter()
    }
    fn iter_mut(&mut self) -> core::slice::IterMut<'_, T> {
        self.rows.get_mut(..self.n).unwrap_or(&mut []).iter_mut()
    }
    fn get(&self, i: usize) -> Option<&T> {
        self.rows.get(..self.n)?.get(i)
    }
    fn get_mut(&mut self, i: usize) -> Option<&mut T> {
        self.rows.get_mut(..self.n)?.get_mut(i)
    }
    fn push(&mut self, t: T) {
        match self.rows.get_mut(self.n) {
            Some(r) => {
                *r = t;
                self.n += 1;
            }
            None => region::trouble(trouble::TABLE_FULL),
        }
    }
    fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        let mut k = 0;
        for i in 0..self.n.min(N) {
            let t = self.rows[i];
            if keep(&t) {
                self.rows[k] = t;
                k += 1;
            }
        }
        self.n = k;
    }
}

/// The model's tables. The tap's own table of GPU ranges follows them, through [`Ranges`].
struct Tables {
    objects: Table<Object, 4096>,
    bound: Table<Bound, 1024>,
    mapped: Table<Mapped, 8192>,
    externals: Table<External, 8192>,
}

/// The table of GPU ranges with a CPU address.
trait Ranges {
    fn add(&mut self, r: Range);
    /// Removes ranges that overlap this one, by CPU address or by GPU address.
    fn remove(&mut self, from: u64, len: u64, by_cpu: bool);
    fn find(&self, va: u64) -> Option<Range>;
}

/// The one that the tap reads.
struct OfTap;

impl Ranges for OfTap {
    fn add(&mut self, r: Range) {
        if !ranges::add(r) {
            region::trouble(trouble::TABLE_FULL);
        }
    }
    fn remove(&mut self, from: u64, len: u64, by_cpu: bool) {
        ranges::remove(from, len, by_cpu);
    }
    fn find(&self, va: u64) -> Option<Range> {
        ranges::find(va, 1)
    }
}

static STATE: OwnLock<Tables, { word::MODEL }> = OwnLock::new(Tables::new());

/// A fact was learnt, here or in the process that forked this one.
static LEARNT: AtomicBool = AtomicBool::new(false);

/// A driver call has shown this fact. True if it made memory visible to the program.
pub fn learn(fact: &Fact<'_>) -> bool {
    LEARNT.store(true, Ordering::Relaxed);
    STATE.lock().is_some_and(|mut s| s.learn(fact, &mut OfTap))
}

/// The device above an object, 0 if unknown.
pub fn device_of(client: u32, handle: u32) -> u32 {
    STATE.lock().map_or(0, |s| s.device_of(client, handle))
}

/// The class of a followed object, otherwise 0.
pub fn class_of(client: u32, handle: u32) -> u32 {
    STATE.lock().and_then(|s| s.object(client, handle).map(|o| o.class)).unwrap_or(0)
}

/// Calls `f` with a function on the present tree: whether the second object is the first or below it. `None` from a
/// signal handler that interrupted a change of the model.
pub fn with_tree<R>(client: u32, f: impl FnOnce(&dyn Fn(u32, u32) -> bool) -> R) -> Option<R> {
    let s = STATE.lock()?;
    Some(f(&|top, handle| s.is_below(client, top, handle)))
}

/// A descriptor is mapped: returns the memory bound to it, and removes the binding.
pub fn take_bound(fd: i32) -> Option<Bound> {
    STATE.lock()?.take_bound(fd)
}

/// Memory is mapped into the process.
pub fn map(m: Mapped) {
    LEARNT.store(true, Ordering::Relaxed);
    if let Some(mut s) = STATE.lock() {
        s.map(m, &mut OfTap);
    }
}

/// This range is no longer mapped into the process.
pub fn unmap(addr: u64, len: u64) {
    if let Some(mut s) = STATE.lock() {
        s.unmap(addr, len, &mut OfTap);
    }
}

/// The program's address of `len` bytes of memory at `offset`, and whether they are in GPU memory.
pub fn address_of(client: u32, memory: u32, offset: u64, len: u64) -> Option<(u64, bool)> {
    STATE.lock()?.address_of(client, memory, offset, len)
}

impl Tables {
    const fn new() -> Tables {
        Tables {
            objects: Table::new(Object { client: 0, handle: 0, parent: 0, class: 0, going: false }),
            bound: Table::new(Bound { fd: 0, client: 0, memory: 0, offset: 0 }),
            mapped: Table::new(Mapped { client: 0, memory: 0, offset: 0, addr: 0, len: 0, video: false, user: false }),
            externals: Table::new(External { client: 0, memory: 0, offset: 0, va: 0, len: 0 }),
        }
    }

    fn clear(&mut self) {
        (self.objects.n, self.bound.n, self.mapped.n, self.externals.n) = (0, 0, 0, 0);
    }

    fn learn(&mut self, fact: &Fact<'_>, ranges: &mut impl Ranges) -> bool {
        match *fact {
            Fact::Created(ref c) => return self.created(c, ranges),
            Fact::Freed { client, handle } => self.free(client, handle, ranges),
            Fact::Bound { fd, client, handle, offset } => self.bind(Bound { fd, client, memory: handle, offset }),
            Fact::MappedExternal(ref m) => {
                let e = External { client: m.client, memory: m.memory, offset: m.offset, va: m.base, len: m.length };
                self.map_external(e, ranges);
            }
            Fact::UnmappedExternal { base, .. } | Fact::RangeFreed { base, .. } => self.unmap_external(base, ranges),
            // A second handle of an object, and RM's own mappings (which libcuda does not make), are not followed.
            _ => {}
        }
        false
    }

    fn created(&mut self, c: &Created, ranges: &mut impl Ranges) -> bool {
        let &Created { client, parent, handle, class, .. } = c;
        match c.what {
            What::Client
            | What::Device { .. }
            | What::Subdevice { .. }
            | What::Group { .. }
            | What::Channel(_)
            | What::Usermode { .. } => {
                // If there is an old one, its free was not seen.
                self.free_objects(client, handle);
                self.objects.push(Object { client, handle, parent, class, going: false });
            }
            What::Memory(Memory { user_address: Some(addr), size: len, .. }) if addr != 0 => {
                self.map(Mapped { client, memory: handle, offset: 0, addr, len, video: false, user: true }, ranges);
                return true;
            }
            What::Memory(Memory { fd: Some(fd), .. }) => self.bind(Bound { fd, client, memory: handle, offset: 0 }),
            What::Memory(_) | What::VaSpace | What::ContextShare { .. } | What::Other { .. } => {}
        }
        false
    }

    /// An object was freed with all objects below it, or all of a client's.
    fn free(&mut self, client: u32, handle: u32, ranges: &mut impl Ranges) {
        let all = handle == client;
        self.free_objects(client, handle);
        let named = |of: u32, memory: u32| of == client && (all || memory == handle);
        for i in 0..self.mapped.iter().len() {
            let Some(m) = self.mapped.get(i).filter(|m| m.user && named(m.client, m.memory)) else { continue };
            let shown = self.externals.iter().any(|e| e.client == m.client && e.memory == m.memory);
            let other = self.mapped.iter().any(|x| x.addr == m.addr && !named(x.client, x.memory));
            if !shown && !other {
                ranges.remove(m.addr, m.len, true);
            }
        }
        self.bound.retain(|b| !named(b.client, b.memory));
        // (The program itself unmaps memory that it mapped from a descriptor, and the range is removed then.)
        self.mapped.retain(|m| !named(m.client, m.memory));
        for e in self.externals.iter_mut().filter(|e| named(e.client, e.memory)) {
            // Another memory may be given the same handle.
            e.memory = 0;
        }
    }

    fn free_objects(&mut self, client: u32, handle: u32) {
        if self.object(client, handle).is_none() {
            return;
        }
        for i in 0..self.objects.iter().len() {
            let going = self
                .objects
                .get(i)
                .is_some_and(|o| o.client == client && (handle == client || self.is_below(client, handle, o.handle)));
            if let Some(o) = self.objects.get_mut(i) {
                o.going = going;
            }
        }
        self.objects.retain(|o| !o.going);
    }

    fn object(&self, client: u32, handle: u32) -> Option<&Object> {
        self.objects.iter().find(|o| o.client == client && o.handle == handle)
    }

    fn device_of(&self, client: u32, mut handle: u32) -> u32 {
        for _ in 0..DEPTH {
            let Some(o) = self.object(client, handle) else { return 0 };
            if o.class == NV01_DEVICE_0 {
                return o.handle;
            }
            handle = o.parent;
        }
        0
    }

    fn is_below(&self, client: u32, top: u32, mut handle: u32) -> bool {
        for _ in 0..DEPTH {
            if handle == top {
                return true;
            }
            let Some(o) = self.object(client, handle) else { return false };
            handle = o.parent;
        }
        false
    }

    /// The next mmap of a descriptor maps this memory.
    fn bind(&mut self, b: Bound) {
        self.bound.retain(|x| x.fd != b.fd);
        self.bound.push(b);
    }

    fn take_bound(&mut self, fd: i32) -> Option<Bound> {
        let b = self.bound.iter().find(|b| b.fd == fd).copied();
        self.bound.retain(|b| b.fd != fd);
        b
    }

    fn map(&mut self, m: Mapped, ranges: &mut impl Ranges) {
        // The program's pages may be registered more than once.
        self.mapped.retain(|x| x.addr != m.addr || (x.user && m.user && (x.client, x.memory) != (m.client, m.memory)));
        self.mapped.push(m);
        // CUDA maps memory at one address for both sides.
        ranges.add(Range { va: m.addr, len: m.len, cpu: m.addr, video: m.video });
        for e in self.externals.iter().filter(|e| e.va != m.addr) {
            show(&m, e, ranges);
        }
    }

    fn unmap(&mut self, addr: u64, len: u64, ranges: &mut impl Ranges) {
        let end = addr.saturating_add(len);
        // The driver's clients unmap only whole mappings; the rest of a partial one is forgotten too.
        self.mapped.retain(|m| !(m.addr < end && m.addr.saturating_add(m.len) > addr));
        ranges.remove(addr, len, true);
    }

    /// A GPU range maps memory.
    fn map_external(&mut self, e: External, ranges: &mut impl Ranges) {
        for m in self.mapped.iter() {
            show(m, &e, ranges);
        }
        self.externals.retain(|x| x.va != e.va);
        self.externals.push(e);
    }

    /// The GPU range at `va` maps no memory any more.
    fn unmap_external(&mut self, va: u64, ranges: &mut impl Ranges) {
        let Some(e) = self.externals.iter().find(|e| e.va == va).copied() else { return };
        self.externals.retain(|x| x.va != va);
        // A range at the CPU's own address belongs to the CPU mapping and is removed with it, or with the memory.
        let belongs = |r: &Range| r.cpu == r.va && self.mapped.iter().any(|m| m.addr == r.va);
        if ranges.find(va).is_some_and(|r| !belongs(&r)) {
            ranges.remove(e.va, e.len, false);
        }
    }

    fn address_of(&self, client: u32, memory: u32, offset: u64, len: u64) -> Option<(u64, bool)> {
        let end = offset.checked_add(len)?;
        let holds = |m: &&Mapped| {
            m.client == client && m.memory == memory && offset >= m.offset && end <= m.offset.saturating_add(m.len)
        };
        self.mapped.iter().find(holds).map(|m| (m.addr.wrapping_add(offset - m.offset), m.video))
    }
}

/// Adds the overlap of a GPU range and a CPU mapping of the same memory to the tap's table.
fn show(m: &Mapped, e: &External, ranges: &mut impl Ranges) {
    if m.client != e.client || m.memory != e.memory {
        return;
    }
    let from = m.offset.max(e.offset);
    let to = m.offset.saturating_add(m.len).min(e.offset.saturating_add(e.len));
    if from < to {
        ranges.add(Range {
            va: e.va.wrapping_add(from - e.offset),
            len: to - from,
            cpu: m.addr.wrapping_add(from - m.offset),
            video: m.video,
        });
    }
}

/// In a forked child: the objects are the parent's. (Unused tables are not touched: a write would give the child a copy
/// of the page.)
pub fn renew() {
    if LEARNT.load(Ordering::Relaxed)
        && let Some(mut s) = STATE.try_lock()
    {
        s.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rm::abi::{self, Plain, nr, rm_request, uvm};
    use rm::call::{Call, FileKind};
    use rm::graph::{IoctlRecord, MmapRecord, ObjectGraph, ObjectKind, Target};
    use std::sync::{Mutex, MutexGuard, PoisonError};

    const CLIENTS: [u32; 2] = [0xc1, 0xc2];
    const CTL: i32 = 3;
    const UVM: i32 = 4;
    const REFUSED: u32 = 0x57;

    /// Too large for a test's stack.
    static TABLES: Mutex<Tables> = Mutex::new(Tables::new());

    impl Ranges for Vec<Range> {
        fn add(&mut self, r: Range) {
            self.retain(|x| x.va != r.va);
            self.push(r);
        }
        fn remove(&mut self, from: u64, len: u64, by_cpu: bool) {
            self.retain(|r| {
                let at = if by_cpu { r.cpu } else { r.va };
                at >= from + len || at + r.len <= from
            });
        }
        fn find(&self, va: u64) -> Option<Range> {
            self.iter().find(|r| va >= r.va && va - r.va < r.len).copied()
        }
    }

    /// The agent's tables, and a reader's graph, given the same calls.
    struct Both {
        tables: MutexGuard<'static, Tables>,
        ranges: Vec<Range>,
        graph: ObjectGraph,
    }

    impl Both {
        fn new() -> Both {
            let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
            tables.clear();
            let mut graph = ObjectGraph::new();
            graph.open(CTL, FileKind::Ctl);
            graph.open(UVM, FileKind::Uvm);
            for fd in 10..14 {
                graph.open(fd, FileKind::Gpu(0));
            }
            Both { tables, ranges: Vec::new(), graph }
        }

        fn call(&mut self, fd: i32, request: u64, arg: &[u8], nested: &[u8]) {
            let file = if fd == UVM { FileKind::Uvm } else { FileKind::Ctl };
            let branch = self.graph.branch();
            if let Some(fact) = Fact::of(branch, &Call::parse(branch, file, request, arg, nested), 0) {
                self.tables.learn(&fact, &mut self.ranges);
            }
            self.graph.ioctl(IoctlRecord { fd, file, request, ret: 0, arg, nested });
        }

        fn rm<T: Plain>(&mut self, nr: u32, arg: &T) {
            self.call(CTL, rm_request(nr, size_of::<T>()), arg.as_bytes(), &[]);
        }

        fn alloc(&mut self, root: u32, parent: u32, new: u32, class: u32) {
            // As in the kernel: not under an object that does not exist, and no handle twice.
            let root_of = |client: u32| self.graph.object(client, client).is_some();
            let (client, fits) = match class {
                0x41 => (new, !root_of(new)),
                _ => (root, root_of(root) && self.graph.object(root, parent).is_some()),
            };
            let status = if fits && self.graph.object(client, new).is_none() { 0 } else { REFUSED };
            self.rm(nr::ALLOC, &abi::Nvos64 { root, parent, new, class, status, ..Default::default() });
        }

        fn alloc_memory(&mut self, client: u32, new: u32, class: u32, memory: u64, fd: i32) {
            let fits = self.graph.object(client, client).is_some() && self.graph.object(client, new).is_none();
            let (status, limit) = (if fits { 0 } else { REFUSED }, 0x3fff);
            let a = abi::Nvos02Fd {
                root: client,
                parent: client,
                new,
                class,
                memory,
                limit,
                fd,
                status,
                ..Default::default()
            };
            self.rm(nr::ALLOC_MEMORY, &a);
        }

        fn free(&mut self, root: u32, old: u32) {
            let status = if self.graph.object(root, old).is_some() { 0 } else { REFUSED };
            self.rm(nr::FREE, &abi::Nvos00 { root, old, status, ..Default::default() });
        }

        fn bind(&mut self, client: u32, memory: u32, offset: u64, fd: i32) {
            let status = if self.graph.object(client, memory).is_some() { 0 } else { REFUSED };
            self.rm(nr::MAP_MEMORY, &abi::Nvos33Fd { client, memory, offset, fd, status, ..Default::default() });
        }

        /// The next mmap after a binding, as a program makes it.
        fn mmap(&mut self, fd: i32, addr: u64, len: u64) {
            let Some(b) = self.tables.take_bound(fd) else { return };
            self.munmap(addr, len);
            let Bound { client, memory, offset, .. } = b;
            self.tables.map(Mapped { client, memory, offset, addr, len, video: false, user: false }, &mut self.ranges);
            self.graph.mmap(MmapRecord { addr, len, fd, ..Default::default() });
        }

        fn munmap(&mut self, addr: u64, len: u64) {
            self.tables.unmap(addr, len, &mut self.ranges);
            self.graph.munmap(addr, len);
        }

        fn external(&mut self, base: u64, client: u32, memory: u32, offset: u64) {
            let status = if self.graph.memory_of(client, memory).is_some() { 0 } else { REFUSED };
            let m = uvm::MapExternal { base, length: 0x4000, offset, client, memory, status, ..Default::default() };
            self.call(UVM, uvm::MAP_EXTERNAL_ALLOCATION, m.as_bytes(), &[]);
        }

        fn unmap_external(&mut self, base: u64) {
            let r = uvm::Range { base, length: 0x4000, ..Default::default() };
            self.call(UVM, uvm::FREE, r.as_bytes(), &[]);
        }

        /// The tables agree with the graph.
        fn agree(&self) {
            for client in CLIENTS {
                for handle in (1..12).chain([client]) {
                    let object = self.graph.object(client, handle);
                    let followed = object.filter(|o| {
                        use ObjectKind::*;
                        matches!(
                            o.kind,
                            Client | Device { .. } | Subdevice { .. } | Group { .. } | Channel(_) | Usermode(_)
                        )
                    });
                    let class = self.tables.object(client, handle).map(|o| o.class);
                    assert_eq!(class, followed.map(|o| o.class), "{client:#x} {handle:#x}");
                    if followed.is_none() {
                        continue;
                    }
                    let above = std::iter::successors(object, |o| o.parent.map(|p| &self.graph.objects()[p.0]));
                    let above: Vec<_> = above.take(DEPTH).map(|o| (o.handle, o.kind)).collect();
                    let device = above.iter().find(|(_, kind)| matches!(kind, ObjectKind::Device { .. }));
                    assert_eq!(self.tables.device_of(client, handle), device.map_or(0, |d| d.0));
                    for top in 1..12 {
                        let is = above.iter().any(|(h, _)| *h == top);
                        assert_eq!(self.tables.is_below(client, top, handle), is, "{top:#x} {handle:#x}");
                    }
                }
                for handle in 1..12 {
                    for offset in [0u64, 0x1000, 0x3fff, 0x5000] {
                        let at = self.tables.address_of(client, handle, offset, 1).map(|a| a.0);
                        let memory = self.graph.memory_of(client, handle);
                        let known = memory.and_then(|m| self.graph.cpu_address(m.id, offset));
                        assert_eq!(at.is_some(), known.is_some(), "{client:#x} {handle:#x} {offset:#x}");
                        let (Some(at), Some(m)) = (at, memory) else { continue };
                        let by_user = m.user_address.map(|a| a + offset);
                        let mapped = self.graph.cpu_at(at).filter(|(_, _, x)| x.target == Target::Memory(m.id));
                        assert!(
                            by_user == Some(at)
                                || mapped.is_some_and(|(start, _, x)| x.offset + (at - start) == offset)
                        );
                    }
                }
            }
        }
    }

    #[derive(Clone, Debug)]
    enum Op {
        Alloc { client: u32, parent: u32, new: u32, class: u32 },
        Memory { client: u32, new: u32, user: bool, slot: u64, fd: i32 },
        Free { client: u32, handle: u32 },
        Bind { client: u32, memory: u32, offset: u64, fd: i32 },
        Mmap { fd: i32, slot: u64 },
        Munmap { slot: u64 },
        External { slot: u64, client: u32, memory: u32 },
        Unmap { slot: u64 },
    }

    fn op() -> impl Strategy<Value = Op> {
        let client = || prop::sample::select(CLIENTS.to_vec());
        // Handles are made under smaller ones. No handle is made under an address space.
        let classes = vec![0x80u32, 0x2080, 0xa06c, 0xc86f, 0xc661];
        prop_oneof![
            2 => client().prop_map(|c| Op::Alloc { client: c, parent: c, new: c, class: 0x41 }),
            6 => (client(), 0u32..7, 1u32..8, prop::sample::select(classes))
                .prop_map(|(client, parent, new, class)| Op::Alloc {
                    client,
                    parent: if parent == 0 || parent >= new { client } else { parent },
                    new,
                    class: if new == 7 { 0x90f1 } else { class },
                }),
            2 => (client(), 8u32..12, any::<bool>(), 0u64..4, 10i32..14)
                .prop_map(|(client, new, user, slot, fd)| Op::Memory { client, new, user, slot, fd }),
            3 => (client(), 1u32..13).prop_map(|(client, h)| Op::Free { client, handle: if h == 12 { client } else { h } }),
            2 => (client(), 8u32..12, 0u64..3, 10i32..14)
                .prop_map(|(client, memory, page, fd)| Op::Bind { client, memory, offset: page << 12, fd }),
            4 => (10i32..14, 0u64..4).prop_map(|(fd, slot)| Op::Mmap { fd, slot }),
            1 => (0u64..4).prop_map(|slot| Op::Munmap { slot }),
            2 => (0u64..8, client(), 8u32..12).prop_map(|(slot, client, memory)| Op::External { slot, client, memory }),
            1 => (0u64..8).prop_map(|slot| Op::Unmap { slot }),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_tables_know_what_the_graph_knows(ops in prop::collection::vec(op(), 0..120)) {
            let mut p = Both::new();
            for op in ops {
                match op {
                    Op::Alloc { client, parent, new, class } => p.alloc(client, parent, new, class),
                    Op::Memory { client, new, user: true, slot, .. } => {
                        p.alloc_memory(client, new, 0x71, 0x8000_0000 + (slot << 16), -1);
                    }
                    Op::Memory { client, new, fd, .. } => p.alloc_memory(client, new, 0x3e, 0, fd),
                    Op::Free { client, handle } => p.free(client, handle),
                    Op::Bind { client, memory, offset, fd } => p.bind(client, memory, offset, fd),
                    Op::Mmap { fd, slot } => p.mmap(fd, 0x1000_0000 + (slot << 16), 0x2000),
                    Op::Munmap { slot } => p.munmap(0x1000_0000 + (slot << 16), 0x2000),
                    Op::External { slot, client, memory } => p.external(0x2000_0000 + (slot << 16), client, memory, 0),
                    Op::Unmap { slot } => p.unmap_external(0x2000_0000 + (slot << 16)),
                }
                p.agree();
            }
        }
    }

    #[test]
    fn memory_that_is_registered_again_and_again_takes_no_more_room() {
        let mut p = Both::new();
        p.alloc(CLIENTS[0], CLIENTS[0], CLIENTS[0], 0x41);
        for i in 0..20_000u64 {
            let at = 0x7000_0000 + (i << 16);
            p.alloc_memory(CLIENTS[0], 8, 0x71, at, -1);
            // The GPU sees it at the program's address. In turns, the range is removed first, or the memory.
            p.external(at, CLIENTS[0], 8, 0);
            if i % 2 == 0 {
                p.unmap_external(at);
                p.free(CLIENTS[0], 8);
            } else {
                p.free(CLIENTS[0], 8);
                assert!(p.ranges.find(at).is_some(), "the GPU may still use it");
                p.unmap_external(at);
            }
            assert_eq!((p.tables.mapped.n, p.tables.externals.n, p.ranges.len()), (0, 0, 0), "after {i}");
        }
    }

    #[test]
    fn a_client_that_goes_leaves_no_object() {
        let mut p = Both::new();
        for i in 0..5000 {
            let client = 0x100 + i;
            p.alloc(client, client, client, 0x41);
            p.alloc(client, client, 1, 0x80);
            p.alloc(client, 1, 2, 0xa06c);
            p.free(client, 1);
            p.free(client, client);
        }
        assert_eq!(p.tables.objects.n, 0);
    }
}

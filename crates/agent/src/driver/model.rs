//! The model of the driver's objects: what the taps need to know of clients, devices, channels and memory.
//!
//! Handles and classes decide, never sizes or the order of calls. What a call means is [`rm::fact`]'s, as it is for whoever
//! reads a recording; here it is kept, in fixed tables: nothing allocates.

use crate::process::own_lock::OwnLock;
use crate::process::region;
use crate::process::wiped::word;
use crate::tap::ranges::{self, Range};
use rm::class::NV01_DEVICE_0;
use rm::fact::{Created, Fact, Memory, What};
use tape::region::trouble;

/// The deepest tree: client, device, subdevice, group, channel.
const DEPTH: usize = 8;

/// An object whose place in the tree matters: client, device, subdevice, channel group, channel, usermode.
#[derive(Clone, Copy)]
struct Object {
    client: u32,
    handle: u32,
    parent: u32,
    class: u32,
}

/// RM_MAP_MEMORY (or RM_ALLOC_MEMORY) has bound memory to a descriptor; the next mmap of it shows that memory.
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
}

/// A GPU range that shows memory at another address than the CPU sees it.
#[derive(Clone, Copy)]
pub struct External {
    pub client: u32,
    pub memory: u32,
    pub offset: u64,
    pub va: u64,
    pub len: u64,
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

/// What is known. The tap's own table of GPU ranges follows it, through [`Ranges`].
struct Tables {
    objects: Table<Object, 4096>,
    bound: Table<Bound, 1024>,
    mapped: Table<Mapped, 8192>,
    externals: Table<External, 8192>,
}

/// The table of GPU ranges with a CPU address.
trait Ranges {
    fn add(&mut self, r: Range);
    /// Forgets what overlaps a range, by its CPU address or by its GPU address.
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

/// A driver call has said this. True if it made memory visible to the program.
pub fn learn(fact: &Fact<'_>) -> bool {
    STATE.lock().is_some_and(|mut s| s.learn(fact, &mut OfTap))
}

/// The device above an object, 0 if unknown.
pub fn device_of(client: u32, handle: u32) -> u32 {
    STATE.lock().map_or(0, |s| s.device_of(client, handle))
}

/// The class of an object that is followed, else 0.
pub fn class_of(client: u32, handle: u32) -> u32 {
    STATE.lock().and_then(|s| s.object(client, handle).map(|o| o.class)).unwrap_or(0)
}

/// Calls `f` with a question about the tree as it is now: whether an object (the second) is another (the first) or below it.
/// `None` from a signal handler that came in while the model was changed.
pub fn with_tree<R>(client: u32, f: impl FnOnce(&dyn Fn(u32, u32) -> bool) -> R) -> Option<R> {
    let s = STATE.lock()?;
    Some(f(&|top, handle| s.is_below(client, top, handle)))
}

/// A descriptor is mapped: what it was bound to, which it is no longer.
pub fn take_bound(fd: i32) -> Option<Bound> {
    STATE.lock()?.take_bound(fd)
}

/// Memory is mapped into the process.
pub fn map(m: Mapped) {
    if let Some(mut s) = STATE.lock() {
        s.map(m, &mut OfTap);
    }
}

/// What lies in this range is no longer mapped into the process.
pub fn unmap(addr: u64, len: u64) {
    if let Some(mut s) = STATE.lock() {
        s.unmap(addr, len, &mut OfTap);
    }
}

/// Where the program sees `len` bytes of memory at `offset`, and whether they lie in video memory.
pub fn address_of(client: u32, memory: u32, offset: u64, len: u64) -> Option<(u64, bool)> {
    STATE.lock()?.address_of(client, memory, offset, len)
}

impl Tables {
    const fn new() -> Tables {
        Tables {
            objects: Table::new(Object { client: 0, handle: 0, parent: 0, class: 0 }),
            bound: Table::new(Bound { fd: 0, client: 0, memory: 0, offset: 0 }),
            mapped: Table::new(Mapped { client: 0, memory: 0, offset: 0, addr: 0, len: 0, video: false }),
            externals: Table::new(External { client: 0, memory: 0, offset: 0, va: 0, len: 0 }),
        }
    }

    fn learn(&mut self, fact: &Fact<'_>, ranges: &mut impl Ranges) -> bool {
        match *fact {
            Fact::Created(ref c) => return self.created(c, ranges),
            Fact::Freed { client, handle } => self.free(client, handle),
            Fact::Bound { fd, client, handle, offset } => self.bind(Bound { fd, client, memory: handle, offset }),
            Fact::MappedExternal(ref m) => {
                let e = External { client: m.client, memory: m.memory, offset: m.offset, va: m.base, len: m.length };
                self.map_external(e, ranges);
            }
            Fact::UnmappedExternal { base, .. } | Fact::RangeFreed { base, .. } => self.unmap_external(base, ranges),
            // A second name of an object, and RM's own mappings (which libcuda does not make), are not followed.
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
                self.objects.retain(|o| o.client != client || o.handle != handle);
                self.objects.push(Object { client, handle, parent, class });
            }
            What::Memory(Memory { user_address: Some(addr), size: len, .. }) if addr != 0 => {
                self.map(Mapped { client, memory: handle, offset: 0, addr, len, video: false }, ranges);
                return true;
            }
            What::Memory(Memory { fd: Some(fd), .. }) => self.bind(Bound { fd, client, memory: handle, offset: 0 }),
            What::Memory(_) | What::VaSpace | What::ContextShare | What::Other { .. } => {}
        }
        false
    }

    /// An object was freed, or all of a client's.
    fn free(&mut self, client: u32, handle: u32) {
        self.objects.retain(|o| o.client != client || (o.handle != handle && handle != client));
        self.externals.retain(|e| e.client != client || e.memory != handle);
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

    /// The next mmap of a descriptor shows this memory.
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
        self.mapped.retain(|x| x.addr != m.addr);
        self.mapped.push(m);
        // CUDA maps memory at one address for both sides.
        ranges.add(Range { va: m.addr, len: m.len, cpu: m.addr, video: m.video });
        for e in self.externals.iter().filter(|e| e.va != m.addr) {
            show(&m, e, ranges);
        }
    }

    fn unmap(&mut self, addr: u64, len: u64, ranges: &mut impl Ranges) {
        let end = addr.saturating_add(len);
        // Only whole mappings are unmapped by the driver's clients; what a partial one leaves is forgotten too.
        self.mapped.retain(|m| !(m.addr < end && m.addr.saturating_add(m.len) > addr));
        ranges.remove(addr, len, true);
    }

    /// A GPU range shows memory.
    fn map_external(&mut self, e: External, ranges: &mut impl Ranges) {
        for m in self.mapped.iter() {
            show(m, &e, ranges);
        }
        self.externals.retain(|x| x.va != e.va);
        self.externals.push(e);
    }

    /// The GPU range at `va` shows nothing any more.
    fn unmap_external(&mut self, va: u64, ranges: &mut impl Ranges) {
        if let Some(e) = self.externals.iter().find(|e| e.va == va).copied() {
            // An identity range belongs to the CPU mapping and goes with it.
            if ranges.find(va).is_some_and(|r| r.cpu != r.va) {
                ranges.remove(e.va, e.len, false);
            }
            self.externals.retain(|x| x.va != va);
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

/// Makes the overlap of a GPU range and a CPU mapping of the same memory known to the tap.
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

/// In a forked child: the objects are the parent's.
pub fn renew() {
    if let Some(mut s) = STATE.try_lock() {
        (s.objects.n, s.bound.n, s.mapped.n, s.externals.n) = (0, 0, 0, 0);
    }
}

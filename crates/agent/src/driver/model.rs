//! The model of the driver's objects: what the taps need to know of clients, devices, channels and memory.
//!
//! Handles and classes decide, never sizes or the order of calls. Fixed tables: nothing here allocates.

use crate::process::own_lock::OwnLock;
use crate::process::region;
use crate::process::wiped::word;
use crate::tap::ranges;
use tape::region::trouble;

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

struct State {
    objects: Table<Object, 4096>,
    bound: Table<Bound, 1024>,
    mapped: Table<Mapped, 8192>,
    externals: Table<External, 8192>,
}

static STATE: OwnLock<State, { word::MODEL }> = OwnLock::new(State {
    objects: Table::new(Object { client: 0, handle: 0, parent: 0, class: 0 }),
    bound: Table::new(Bound { fd: 0, client: 0, memory: 0, offset: 0 }),
    mapped: Table::new(Mapped { client: 0, memory: 0, offset: 0, addr: 0, len: 0, video: false }),
    externals: Table::new(External { client: 0, memory: 0, offset: 0, va: 0, len: 0 }),
});

/// An object was made.
pub fn add(client: u32, parent: u32, handle: u32, class: u32) {
    if let Some(mut s) = STATE.lock() {
        s.objects.retain(|o| o.client != client || o.handle != handle);
        s.objects.push(Object { client, handle, parent, class });
    }
}

/// An object was freed, or all of a client's.
pub fn free(root: u32, old: u32) {
    let Some(mut s) = STATE.lock() else { return };
    s.objects.retain(|o| o.client != root || (o.handle != old && old != root));
    s.externals.retain(|e| e.client != root || e.memory != old);
}

/// The device above an object, 0 if unknown.
fn above(s: &State, client: u32, mut handle: u32) -> u32 {
    for _ in 0..8 {
        let Some(o) = s.objects.iter().find(|o| o.client == client && o.handle == handle) else { return 0 };
        if o.class == 0x80 {
            return o.handle;
        }
        handle = o.parent;
    }
    0
}

/// The device above an object, 0 if unknown.
pub fn device_of(client: u32, handle: u32) -> u32 {
    STATE.lock().map_or(0, |s| above(&s, client, handle))
}

/// The class of an object that is followed, else 0.
pub fn class_of(client: u32, handle: u32) -> u32 {
    let find = |s: &State| s.objects.iter().find(|o| o.client == client && o.handle == handle).map(|o| o.class);
    STATE.lock().and_then(|s| find(&s)).unwrap_or(0)
}

/// Calls `f` with a question about the tree as it is now: whether an object (the second) is another (the first) or below it.
/// `None` from a signal handler that came in while the model was changed.
pub fn with_tree<R>(client: u32, f: impl FnOnce(&dyn Fn(u32, u32) -> bool) -> R) -> Option<R> {
    let s = STATE.lock()?;
    Some(f(&|old, mut handle| {
        for _ in 0..8 {
            if handle == old {
                return true;
            }
            let Some(o) = s.objects.iter().find(|o| o.client == client && o.handle == handle) else { return false };
            handle = o.parent;
        }
        false
    }))
}

/// The next mmap of a descriptor shows this memory.
pub fn bind(b: Bound) {
    if let Some(mut s) = STATE.lock() {
        s.bound.retain(|x| x.fd != b.fd);
        s.bound.push(b);
    }
}

/// A descriptor is mapped: what it was bound to, which it is no longer.
pub fn take_bound(fd: i32) -> Option<Bound> {
    let mut s = STATE.lock()?;
    let b = s.bound.iter().find(|b| b.fd == fd).copied();
    s.bound.retain(|b| b.fd != fd);
    b
}

/// Memory is mapped into the process.
pub fn map(m: Mapped) {
    let Some(mut s) = STATE.lock() else { return };
    let old = m.addr;
    s.mapped.retain(|x| x.addr != old);
    s.mapped.push(m);
    // CUDA maps memory at one address for both sides.
    if !ranges::add(ranges::Range { va: m.addr, len: m.len, cpu: m.addr, video: m.video }) {
        region::trouble(trouble::TABLE_FULL);
    }
    for e in s.externals.iter() {
        if e.va != m.addr {
            show(&m, e);
        }
    }
}

/// What lies in this range is no longer mapped into the process.
pub fn unmap(addr: u64, len: u64) {
    let Some(mut s) = STATE.lock() else { return };
    let end = addr.saturating_add(len);
    // Only whole mappings are unmapped by the driver's clients; what a partial one leaves is forgotten too.
    s.mapped.retain(|m| !(m.addr < end && m.addr + m.len > addr));
    ranges::remove(addr, len, true);
}

/// A GPU range shows memory.
pub fn map_external(e: External) {
    let Some(mut s) = STATE.lock() else { return };
    for m in s.mapped.iter() {
        show(m, &e);
    }
    s.externals.retain(|x| x.va != e.va);
    s.externals.push(e);
}

/// The GPU range at `va` shows nothing any more.
pub fn unmap_external(va: u64) {
    let Some(mut s) = STATE.lock() else { return };
    if let Some(e) = s.externals.iter().find(|e| e.va == va).copied() {
        // An identity range belongs to the CPU mapping and goes with it.
        if ranges::find(va, 1).is_some_and(|r| r.cpu != r.va) {
            ranges::remove(e.va, e.len, false);
        }
        s.externals.retain(|x| x.va != va);
    }
}

/// Where the program sees `len` bytes of memory at `offset`, and whether they lie in video memory.
pub fn address_of(client: u32, memory: u32, offset: u64, len: u64) -> Option<(u64, bool)> {
    let holds = |m: &&Mapped| {
        m.client == client && m.memory == memory && offset >= m.offset && offset + len <= m.offset + m.len
    };
    STATE.lock()?.mapped.iter().find(holds).map(|m| (m.addr + (offset - m.offset), m.video))
}

/// Makes the overlap of a GPU range and a CPU mapping of the same memory known to the tap.
fn show(m: &Mapped, e: &External) {
    if m.client != e.client || m.memory != e.memory {
        return;
    }
    let from = m.offset.max(e.offset);
    let to = (m.offset + m.len).min(e.offset + e.len);
    if from < to {
        let r = ranges::Range {
            va: e.va + (from - e.offset),
            len: to - from,
            cpu: m.addr + (from - m.offset),
            video: m.video,
        };
        if !ranges::add(r) {
            region::trouble(trouble::TABLE_FULL);
        }
    }
}

/// In a forked child: the objects are the parent's.
pub fn renew() {
    if let Some(mut s) = STATE.try_lock() {
        (s.objects.n, s.bound.n, s.mapped.n, s.externals.n) = (0, 0, 0, 0);
    }
}

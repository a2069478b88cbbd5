//! The cold zone: driver calls. Each is recorded as it happened, and what the taps need is learnt from it: which memory
//! is mapped where, which mapping is a doorbell page, where a channel's GPFIFO and USERD lie, and its token.
//!
//! Handles and classes decide, never sizes or the order of calls.

use crate::channel::{self, Channel};
use crate::lock::Cold;
use crate::{files, lookup, page, patch, real, record, shadow, signals, sys, tap};
use core::ffi::{c_int, c_ulong, c_void};
use core::sync::atomic::Ordering;
use rm::abi::{self, ChannelAlloc, Nvos00, Nvos02Fd, Nvos21, Nvos33Fd, Nvos54, Nvos64, nr, uvm};
use tape::event::{
    self, ChannelBody, ChannelEndBody, IoctlBody, MmapBody, PageBody, TokenBody, file, ioctl_flags, kind, watch,
};
use tape::region::{self, SLOTS, trouble};

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
struct Bound {
    fd: i32,
    client: u32,
    memory: u32,
    offset: u64,
}

/// Memory mapped into the process.
#[derive(Clone, Copy)]
struct Mapped {
    client: u32,
    memory: u32,
    offset: u64,
    addr: u64,
    len: u64,
    video: bool,
}

/// A GPU range that shows memory at another address than the CPU sees it.
#[derive(Clone, Copy)]
struct External {
    client: u32,
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
    fn push(&mut self, t: T) {
        match self.rows.get_mut(self.n) {
            Some(r) => {
                *r = t;
                self.n += 1;
            }
            None => record::trouble(trouble::TABLE_FULL),
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

static STATE: Cold<State> = Cold::new(State {
    objects: Table::new(Object { client: 0, handle: 0, parent: 0, class: 0 }),
    bound: Table::new(Bound { fd: 0, client: 0, memory: 0, offset: 0 }),
    mapped: Table::new(Mapped { client: 0, memory: 0, offset: 0, addr: 0, len: 0, video: false }),
    externals: Table::new(External { client: 0, memory: 0, offset: 0, va: 0, len: 0 }),
});

/// Held while channels come, go or change what they lie on: threads create contexts at the same time.
static CHANNELS: Cold<()> = Cold::new(());

/// Longest parameter block of RM_ALLOC or RM_CONTROL that is kept.
const NESTED_MAX: u32 = 4096;

/// An ioctl on a driver file.
///
/// # Safety
/// As ioctl.
pub unsafe fn ioctl(fd: c_int, file: u32, request: c_ulong, arg: *mut c_void) -> c_int {
    let tsc = sys::tsc();
    let mut going = [0u16; SLOTS];
    // SAFETY: the program's argument, of the size that its request declares.
    let freed = unsafe { before_free(request, arg, &mut going) };
    // SAFETY: the caller's.
    let ret = unsafe { real::ioctl(fd, request, arg) };
    let errno = if ret < 0 { sys::Errno::get() } else { 0 };
    let _keep = sys::Errno::keep();
    let tsc_end = sys::tsc();
    let body = IoctlBody { fd, file, request, ret, errno, arg: 0, nested: 0, tsc_end };
    // SAFETY: the driver has just read and written these structs, so they are there.
    unsafe {
        write_down(tsc, body, arg);
        if ret == 0 && !arg.is_null() {
            match (abi::rm_nr(request), file) {
                (Some(n), _) => rm_call(n, abi::request_size(request), arg, going.get(..freed).unwrap_or(&[])),
                (None, file::UVM) => uvm_call(request, arg),
                _ => {}
            }
        }
    }
    ret
}

unsafe fn write_down(tsc: u64, mut body: IoctlBody, arg: *mut c_void) {
    let mut flags = 0;
    let mut short = [0u8; 84];
    let (mut a, mut b): (&[u8], &[u8]) = (&[], &[]);
    let view = |p: u64, n: usize| {
        // SAFETY: memory that the driver has just used with this size.
        unsafe { core::slice::from_raw_parts(p as *const u8, n) }
    };
    if body.ret == 0 && !arg.is_null() {
        match abi::rm_nr(body.request) {
            Some(n) => {
                a = view(arg as u64, abi::request_size(body.request));
                let (at, size) = match (n, a.len()) {
                    (nr::ALLOC, 32) => {
                        // SAFETY: the size says that it is an NVOS21.
                        let p = unsafe { &*(arg as *const Nvos21) };
                        (p.params, abi::alloc_params_size(p.class, p.params_size))
                    }
                    (nr::ALLOC, 48) => {
                        // SAFETY: the size says that it is an NVOS64.
                        let p = unsafe { &*(arg as *const Nvos64) };
                        (p.params, abi::alloc_params_size(p.class, p.params_size))
                    }
                    (nr::CONTROL, 32) => {
                        // SAFETY: the size says that it is an NVOS54.
                        let p = unsafe { &*(arg as *const Nvos54) };
                        (p.params, p.params_size)
                    }
                    _ => (0, 0),
                };
                if at != 0 && status_of(n, a) == Some(0) {
                    if size > NESTED_MAX {
                        flags |= ioctl_flags::NESTED_CUT;
                    }
                    b = view(at, size.min(NESTED_MAX) as usize);
                }
            }
            None if body.file == file::UVM && body.request == uvm::MAP_EXTERNAL_ALLOCATION => {
                let whole = view(arg as u64, uvm::MAP_EXTERNAL_SIZE);
                short[..60].copy_from_slice(&whole[..60]);
                short[60..].copy_from_slice(&whole[9240..9264]);
                a = &short;
                flags |= ioctl_flags::UVM_MAP_SHORT;
            }
            // Of a semaphore pool only where it lies: the rest is attributes.
            None if body.file == file::UVM => a = view(arg as u64, uvm::size(body.request).min(64)),
            None => {}
        }
    }
    body.arg = a.len() as u32;
    body.nested = b.len() as u32;
    record::event(kind::IOCTL, flags, tsc, &body, a, b);
}

/// `.status` of an RM call, if it is one whose status we know to find.
fn status_of(n: u32, a: &[u8]) -> Option<u32> {
    let at = match (n, a.len()) {
        (nr::ALLOC, 32) => 28,
        (nr::ALLOC, 48) => 40,
        (nr::CONTROL, 32) => 28,
        (nr::FREE, 16) => 12,
        (nr::MAP_MEMORY, 56) => 40,
        (nr::ALLOC_MEMORY, 56) => 40,
        _ => return None,
    };
    let b = a.get(at..at + 4)?;
    Some(u32::from_ne_bytes([b[0], b[1], b[2], b[3]]))
}

unsafe fn rm_call(n: u32, size: usize, arg: *mut c_void, going: &[u16]) {
    // SAFETY: the request declares this size and the call succeeded.
    let a = unsafe { core::slice::from_raw_parts(arg as *const u8, size) };
    if status_of(n, a).is_none_or(|s| s != 0) {
        return;
    }
    // SAFETY: in each arm the size was matched to the struct by `status_of`.
    unsafe {
        match n {
            nr::ALLOC if size == 32 => {
                let p = &*(arg as *const Nvos21);
                allocated(p.root, p.parent, p.new, p.class, p.params);
            }
            nr::ALLOC => {
                let p = &*(arg as *const Nvos64);
                allocated(p.root, p.parent, p.new, p.class, p.params);
            }
            nr::CONTROL => {
                let p = &*(arg as *const Nvos54);
                if p.cmd == abi::CTRL_WORK_SUBMIT_TOKEN && p.params != 0 {
                    token(p.client, p.object, (p.params as *const u32).read_unaligned());
                }
            }
            nr::MAP_MEMORY => {
                let p = &*(arg as *const Nvos33Fd);
                bind(Bound { fd: p.fd, client: p.client, memory: p.memory, offset: p.offset });
            }
            nr::ALLOC_MEMORY => {
                let p = &*(arg as *const Nvos02Fd);
                // 0x71 NV01_MEMORY_SYSTEM_OS_DESCRIPTOR: the program's own pages.
                if p.class == 0x71 && p.memory != 0 {
                    let len = p.limit.saturating_add(1);
                    mapped(Mapped { client: p.root, memory: p.new, offset: 0, addr: p.memory, len, video: false });
                } else if p.fd >= 0 {
                    bind(Bound { fd: p.fd, client: p.root, memory: p.new, offset: 0 });
                }
            }
            nr::FREE => {
                let p = &*(arg as *const Nvos00);
                for &slot in going {
                    end_channel(slot as usize);
                }
                let Some(mut s) = STATE.lock() else { return };
                let (root, old) = (p.root, p.old);
                s.objects.retain(|o| o.client != root || (o.handle != old && old != root));
                s.externals.retain(|e| e.client != root || e.memory != old);
            }
            _ => {}
        }
    }
}

fn bind(b: Bound) {
    if let Some(mut s) = STATE.lock() {
        s.bound.retain(|x| x.fd != b.fd);
        s.bound.push(b);
    }
}

/// # Safety
/// `params` is 0 or the allocation parameters of `class`.
unsafe fn allocated(client: u32, parent: u32, handle: u32, class: u32, params: u64) {
    let follow = matches!(class, 0x0 | 0x1 | 0x41 | 0x80 | 0x2080 | abi::CLASS_CHANNEL_GROUP)
        || abi::is_channel_class(class)
        || abi::is_usermode_class(class);
    if !follow {
        return;
    }
    if let Some(mut s) = STATE.lock() {
        s.objects.retain(|o| o.client != client || o.handle != handle);
        s.objects.push(Object { client, handle, parent, class });
    }
    if abi::is_channel_class(class) && params != 0 {
        // SAFETY: the class's parameters begin with this struct in every version that we know.
        let p = unsafe { (params as *const ChannelAlloc).read_unaligned() };
        new_channel(client, handle, class, &p);
    }
}

/// The device above an object, 0 if unknown.
fn device_of(s: &State, client: u32, mut handle: u32) -> u32 {
    for _ in 0..8 {
        let Some(o) = s.objects.iter().find(|o| o.client == client && o.handle == handle) else { return 0 };
        if o.class == 0x80 {
            return o.handle;
        }
        handle = o.parent;
    }
    0
}

fn new_channel(client: u32, handle: u32, class: u32, p: &ChannelAlloc) {
    let tsc = sys::tsc();
    let Some(_one) = CHANNELS.lock() else { return };
    let free = (0..SLOTS).find(|&i| record::slot(i).is_some_and(|s| s.state.load(Ordering::Relaxed) != 1));
    let Some(i) = free else {
        record::trouble(trouble::TABLE_FULL);
        return;
    };
    let Some(slot) = record::slot(i) else { return };
    let mut c = Channel {
        entries: p.entries,
        gpfifo_va: p.gpfifo,
        userd_memory: p.userd_memory[0],
        userd_offset: p.userd_offset[0],
        client,
        watch: watch::BLIND,
        ..Channel::NONE
    };
    slot.claim.store(1, Ordering::Relaxed);
    for zero in [&slot.entries_total, &slot.rings_total, &slot.trapped_total, &slot.lost, &slot.shadow_userd] {
        zero.store(0, Ordering::Relaxed);
    }
    slot.put.store(0, Ordering::Relaxed);
    slot.token.store(0, Ordering::Relaxed);
    slot.client.store(client, Ordering::Relaxed);
    slot.handle.store(handle, Ordering::Relaxed);
    slot.entries.store(p.entries, Ordering::Relaxed);
    slot.generation.fetch_add(1, Ordering::Relaxed);
    locate(&mut c, i);
    // SAFETY: the slot was not in use.
    if let Some(to) = unsafe { channel::get(i) } {
        *to = c;
    }
    slot.state.store(1, Ordering::Release);
    let body =
        ChannelBody { slot: i as u32, client, handle, class, gpfifo: p.gpfifo, entries: p.entries, watch: c.watch };
    record::event(kind::CHANNEL, 0, tsc, &body, &[], &[]);
    tap::settle(i);
}

/// Finds where the program sees the channel's GPFIFO and USERD, and puts a shadow under them if they lie in video memory.
fn locate(c: &mut Channel, slot: usize) {
    let Some(ring) = lookup::find(c.gpfifo_va, u64::from(c.entries) * 8) else { return };
    let userd = STATE.lock().and_then(|s| {
        s.mapped
            .iter()
            .find(|m| {
                m.client == c.client
                    && m.memory == c.userd_memory
                    && c.userd_offset >= m.offset
                    && c.userd_offset + 512 <= m.offset + m.len
            })
            .map(|m| (m.addr + (c.userd_offset - m.offset), m.video))
    });
    let Some((userd, video)) = userd else { return };
    c.ring = ring.cpu + (c.gpfifo_va - ring.va);
    c.userd = userd;
    c.watch = watch::DIRECT;
    // Only where doorbells are seen, or nobody would forward what is written to a shadow.
    let wanted = record::control().is_some_and(|c| {
        matches!(c.tap, region::tap::AUTO | region::tap::PATCH)
            && page::any()
            && c.trouble.load(Ordering::Relaxed) & (trouble::UNDECODED | trouble::NO_SECOND_MAPPING) == 0
    });
    if wanted && (ring.video || video) {
        if shadow::put_under(c, slot) {
            c.watch = watch::SHADOW;
        } else {
            record::trouble(trouble::NO_SHADOW);
        }
    }
}

fn token(client: u32, object: u32, token: u32) {
    let is_it = |i: usize| {
        record::slot(i).is_some_and(|s| {
            s.state.load(Ordering::Relaxed) == 1
                && s.client.load(Ordering::Relaxed) == client
                && s.handle.load(Ordering::Relaxed) == object
        })
    };
    let Some(i) = (0..SLOTS).find(|&i| is_it(i)) else { return };
    let device = STATE.lock().map_or(0, |s| device_of(&s, client, object));
    let Some(_one) = CHANNELS.lock() else { return };
    if !channel::set_token(i, token, device) {
        record::trouble(trouble::TABLE_FULL);
    }
    record::event(kind::TOKEN, 0, sys::tsc(), &TokenBody { slot: i as u32, token }, &[], &[]);
}

/// Before RM_FREE: which channels it will take, and their last GP_PUT while it can still be read.
///
/// # Safety
/// `arg` is the argument of `request`.
unsafe fn before_free(request: c_ulong, arg: *mut c_void, going: &mut [u16; SLOTS]) -> usize {
    if abi::rm_nr(request) != Some(nr::FREE) || abi::request_size(request) != 16 || arg.is_null() {
        return 0;
    }
    // SAFETY: an NVOS00 by its size.
    let p = unsafe { *(arg as *const Nvos00) };
    let Some(s) = STATE.lock() else { return 0 };
    let mut n = 0;
    for i in 0..SLOTS {
        let Some(slot) = record::slot(i) else { break };
        if slot.state.load(Ordering::Relaxed) != 1 || slot.client.load(Ordering::Relaxed) != p.root {
            continue;
        }
        let mut h = slot.handle.load(Ordering::Relaxed);
        let mut under = p.old == p.root;
        for _ in 0..8 {
            if under || h == p.old {
                under = true;
                break;
            }
            let Some(o) = s.objects.iter().find(|o| o.client == p.root && o.handle == h) else { break };
            h = o.parent;
        }
        if under && let Some(g) = going.get_mut(n) {
            *g = i as u16;
            n += 1;
        }
    }
    drop(s);
    for &i in going.get(..n).unwrap_or(&[]) {
        last_put(i as usize);
    }
    n
}

/// Takes entries into account that were written but never rung.
fn last_put(i: usize) {
    let Some(_one) = CHANNELS.lock() else { return };
    if !channel::claim(i) {
        return;
    }
    // SAFETY: we hold the claim.
    if let (Some(c), Some(slot)) = (unsafe { channel::get(i) }, record::slot(i)) {
        tap::unseen(c, slot);
    }
    tap::settle(i);
}

/// A channel is gone.
fn end_channel(i: usize) {
    let Some(slot) = record::slot(i) else { return };
    let Some(_one) = CHANNELS.lock() else { return };
    channel::forget_token(i);
    if !channel::claim(i) {
        return;
    }
    // SAFETY: we hold the claim.
    if let Some(c) = unsafe { channel::get(i) } {
        if c.watch == watch::SHADOW {
            let there = lookup::find(c.ring, 8).is_some();
            shadow::take_away(c, i, there);
        }
        *c = Channel::NONE;
        c.watch = watch::BLIND;
    }
    let body = ChannelEndBody {
        slot: i as u32,
        put: slot.put.load(Ordering::Relaxed),
        entries: slot.entries_total.load(Ordering::Relaxed),
        rings: slot.rings_total.load(Ordering::Relaxed),
    };
    record::event(kind::CHANNEL_END, 0, sys::tsc(), &body, &[], &[]);
    if let Some(c) = record::control() {
        let trapped = slot.trapped_total.load(Ordering::Relaxed);
        c.trapped.fetch_add(trapped, Ordering::Relaxed);
        c.tapped.fetch_add(body.rings - trapped, Ordering::Relaxed);
    }
    slot.state.store(2, Ordering::Release);
    tap::settle(i);
}

/// # Safety
/// `arg` is the argument of a UVM call that succeeded.
unsafe fn uvm_call(request: u64, arg: *mut c_void) {
    let word = |at: usize| {
        // SAFETY: inside the call's struct.
        unsafe { ((arg as usize + at) as *const u64).read_unaligned() }
    };
    let half = |at: usize| {
        // SAFETY: inside the call's struct.
        unsafe { ((arg as usize + at) as *const u32).read_unaligned() }
    };
    match request {
        uvm::MAP_EXTERNAL_ALLOCATION if half(9260) == 0 => {
            let e = External { client: half(9252), memory: half(9256), offset: word(16), va: word(0), len: word(8) };
            let Some(mut s) = STATE.lock() else { return };
            for m in s.mapped.iter() {
                show(m, &e);
            }
            s.externals.retain(|x| x.va != e.va);
            s.externals.push(e);
        }
        uvm::FREE | uvm::UNMAP_EXTERNAL => {
            let va = word(0);
            let Some(mut s) = STATE.lock() else { return };
            if let Some(e) = s.externals.iter().find(|e| e.va == va).copied() {
                // An identity range belongs to the CPU mapping and goes with it.
                if lookup::find(va, 1).is_some_and(|r| r.cpu != r.va) {
                    lookup::remove(e.va, e.len, false);
                }
                s.externals.retain(|x| x.va != va);
            }
        }
        _ => {}
    }
}

/// Makes the overlap of a GPU range and a CPU mapping of the same memory known to the tap.
fn show(m: &Mapped, e: &External) {
    if m.client != e.client || m.memory != e.memory {
        return;
    }
    let from = m.offset.max(e.offset);
    let to = (m.offset + m.len).min(e.offset + e.len);
    if from < to {
        let r = lookup::Range {
            va: e.va + (from - e.offset),
            len: to - from,
            cpu: m.addr + (from - m.offset),
            video: m.video,
        };
        if !lookup::add(r) {
            record::trouble(trouble::TABLE_FULL);
        }
    }
}

fn mapped(m: Mapped) {
    let Some(mut s) = STATE.lock() else { return };
    let old = m.addr;
    s.mapped.retain(|x| x.addr != old);
    s.mapped.push(m);
    // CUDA maps memory at one address for both sides.
    if !lookup::add(lookup::Range { va: m.addr, len: m.len, cpu: m.addr, video: m.video }) {
        record::trouble(trouble::TABLE_FULL);
    }
    for e in s.externals.iter() {
        if e.va != m.addr {
            show(&m, e);
        }
    }
    drop(s);
    // Channels that were allocated before their ring was mapped.
    let Some(_one) = CHANNELS.lock() else { return };
    for i in 0..SLOTS {
        let Some(slot) = record::slot(i) else { break };
        if slot.state.load(Ordering::Relaxed) == 1 && slot.rings_total.load(Ordering::Relaxed) == 0 && channel::claim(i)
        {
            // SAFETY: we hold the claim.
            if let Some(c) = unsafe { channel::get(i) }
                && c.watch == watch::BLIND
                && c.entries != 0
            {
                locate(c, i);
            }
            tap::settle(i);
        }
    }
}

type Mmap = unsafe fn(*mut c_void, usize, c_int, c_int, c_int, libc::c_long) -> *mut c_void;

/// mmap and mmap64 as the program calls them.
///
/// # Safety
/// As mmap.
pub unsafe fn mmap(
    f: Mmap,
    addr: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    off: libc::c_long,
) -> *mut c_void {
    let file = if fd >= 0 && flags & libc::MAP_ANONYMOUS == 0 { files::of(fd) } else { file::OTHER };
    if flags & libc::MAP_FIXED != 0 {
        unmap(addr as u64, len as u64);
    }
    let tsc = sys::tsc();
    // SAFETY: the caller's.
    let at = unsafe { f(addr, len, prot, flags, fd, off) };
    if file == file::OTHER || !record::active_here() {
        return at;
    }
    let _keep = sys::Errno::keep();
    let body = MmapBody {
        addr: at as u64,
        len: len as u64,
        offset: off as u64,
        fd,
        file,
        prot: prot as u32,
        flags: flags as u32,
    };
    record::event(kind::MMAP, 0, tsc, &body, &[], &[]);
    if at == libc::MAP_FAILED {
        return at;
    }
    let bound = STATE.lock().and_then(|mut s| {
        let b = s.bound.iter().find(|b| b.fd == fd).copied();
        s.bound.retain(|b| b.fd != fd);
        b
    });
    let Some(b) = bound else { return at };
    let class = STATE
        .lock()
        .map_or(0, |s| s.objects.iter().find(|o| o.client == b.client && o.handle == b.memory).map_or(0, |o| o.class));
    if abi::is_usermode_class(class) {
        // SAFETY: the mapping just made, of a usermode object.
        unsafe { doorbell_page(f, at as u64, len, flags, fd, off, &b, class) };
    } else {
        mapped(Mapped {
            client: b.client,
            memory: b.memory,
            offset: b.offset,
            addr: at as u64,
            len: len as u64,
            video: file >= file::GPU,
        });
    }
    at
}

#[allow(clippy::too_many_arguments)]
unsafe fn doorbell_page(
    f: Mmap,
    at: u64,
    len: usize,
    flags: c_int,
    fd: c_int,
    off: libc::c_long,
    b: &Bound,
    class: u32,
) {
    let off_limits = record::control().is_none_or(|c| c.tap == region::tap::OFF);
    let mut tapped = false;
    let mut p = u32::MAX;
    if !off_limits {
        // SAFETY: a second mapping of the same page, wherever the kernel likes.
        let real = unsafe {
            let free = flags & !(libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE);
            f(core::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, free, fd, off)
        };
        let device = STATE.lock().map_or(0, |s| device_of(&s, b.client, b.memory));
        if real == libc::MAP_FAILED {
            record::trouble(trouble::NO_SECOND_MAPPING);
        } else if !signals::install() {
            record::note(b"SIGSEGV handler refused: doorbells are not tapped");
        } else if let Some(i) = page::add(at, len as u64, real as u64, device) {
            p = i as u32;
            // SAFETY: the program's mapping: loads go on, stores fault into our handler.
            tapped = unsafe { real::mprotect(at as *mut c_void, len, libc::PROT_READ) } == 0
                // SAFETY: the same, where the mapping cannot be read: the handler makes the loads too.
                || unsafe { real::mprotect(at as *mut c_void, len, libc::PROT_NONE) } == 0;
            if tapped {
                patch::prepare();
            }
        } else {
            record::trouble(trouble::TABLE_FULL);
        }
    }
    if !tapped {
        tap::give_rings_back();
    }
    let body = PageBody { page: p, class, addr: at, len: len as u64, tapped: u32::from(tapped), handle: b.memory };
    record::event(kind::PAGE, 0, sys::tsc(), &body, &[], &[]);
}

/// A range is about to be unmapped or mapped over.
///
/// True if it held driver memory that we follow.
pub fn unmap(addr: u64, len: u64) -> bool {
    if !record::active() {
        return false;
    }
    let Some(end) = addr.checked_add(len) else { return false };
    let hit = |m: &Mapped| m.addr < end && m.addr + m.len > addr;
    let pages = page::overlaps(addr, len);
    if (!pages && !lookup::overlaps(addr, len)) || !record::active_here() {
        return false;
    }
    let Some(_one) = CHANNELS.lock() else { return true };
    for i in 0..SLOTS {
        let Some(slot) = record::slot(i) else { break };
        if slot.state.load(Ordering::Relaxed) != 1 || !channel::claim(i) {
            continue;
        }
        // SAFETY: we hold the claim.
        if let Some(c) = unsafe { channel::get(i) }
            && c.watch != watch::BLIND
            && ((c.ring < end && c.ring + u64::from(c.entries) * 8 > addr) || (c.userd < end && c.userd + 512 > addr))
        {
            if c.watch == watch::SHADOW {
                shadow::take_away(c, i, false);
            }
            c.watch = watch::BLIND;
        }
        tap::settle(i);
    }
    if pages {
        page::remove(addr, len, |real, len| {
            // SAFETY: our second mapping of a page that the program gives up.
            unsafe { real::munmap(real as *mut c_void, len as usize) };
        });
    }
    let Some(mut s) = STATE.lock() else { return true };
    // Only whole mappings are unmapped by the driver's clients; what a partial one leaves is forgotten too.
    s.mapped.retain(|m| !hit(m));
    lookup::remove(addr, len, true);
    true
}

/// The program ends: what its channels' GP_PUT says now.
pub fn finish() {
    if !record::active_here() {
        return;
    }
    for i in 0..SLOTS {
        if record::slot(i).is_some_and(|s| s.state.load(Ordering::Relaxed) == 1) {
            last_put(i);
        }
    }
    if let Some(c) = record::control() {
        c.state.store(2, Ordering::Release);
    }
}

/// Driver files opened, closed and doubled.
pub fn file_event(k: u16, fd: i32, other: i32, file: u32, path: &[u8]) {
    let body = event::FileBody { fd, other, file, path: path.len() as u32 };
    record::event(k, 0, sys::tsc(), &body, path, &[]);
}

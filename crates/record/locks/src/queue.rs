//! The waiters at a gate, in order of arrival; waiters with a higher real-time priority precede those with lower ones.
//! The nodes are on the waiters' stacks. Only the holder of the gate's latch touches the links.
//!
//! A gate has room for one pointer to its queue. So the ends of the two lists are stored in the first node (the oldest
//! writer, else the oldest reader) and move on when it leaves. All operations are O(1), except taking all readers and
//! adding a thread with a real-time priority, which passes those with a lower one.
//!
//! Invariant: a node is in a list or was taken by exactly one thread, which will grant it. A taken node stays valid
//! until its word is `GRANTED`; after that no other thread may touch it.

use core::ptr::null;

use crate::deadline::Deadline;
use crate::fork::forks;
use crate::sync::{Guarded, Ordering, SPINS, Word, spin};

const WAITING: u32 = 0;
const ASLEEP: u32 = 1;
const GRANTED: u32 = 2;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Writer,
    Reader,
}

#[derive(Clone, Copy)]
struct List {
    first: *const Node,
    last: *const Node,
}

#[derive(Clone, Copy)]
struct Lists {
    writers: List,
    readers: List,
}

/// The state of a node's thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stands {
    /// Not yet in the queue, or no longer.
    Outside,
    Queued,
    /// Let in, or about to be: the thread that took the node grants it.
    Inside,
}

#[derive(Clone, Copy)]
struct Links {
    previous: *const Node,
    next: *const Node,
    stands: Stands,
}

const EMPTY: List = List { first: null(), last: null() };

/// A waiter's place. It must not move while its thread may be in a gate's queue.
pub struct Node {
    word: Word,
    kind: Kind,
    rank: u32,
    links: Guarded<Links>,
    /// Valid in the first node only.
    lists: Guarded<Lists>,
}

impl Node {
    /// `rank`: the thread's real-time priority, 0 if it has none.
    pub fn new(kind: Kind, rank: u32) -> Node {
        Node {
            word: Word::new(WAITING),
            kind,
            rank,
            links: Guarded::new(Links { previous: null(), next: null(), stands: Stands::Outside }),
            lists: Guarded::new(Lists { writers: EMPTY, readers: EMPTY }),
        }
    }

    /// A node for a thread that was let in without waiting.
    pub fn inside(kind: Kind) -> Node {
        let node = Node::new(kind, 0);
        // SAFETY: no other thread has the node's address.
        unsafe { node.enter() };
        node
    }

    /// The thread is let in and was not in the queue.
    ///
    /// # Safety
    /// The node is in no queue.
    pub unsafe fn enter(&self) {
        self.word.value().store(GRANTED, Ordering::Relaxed);
        // SAFETY: no other thread can reach it.
        unsafe { self.set_inside() };
    }

    /// # Safety
    /// The caller holds the latch, or no other thread can reach the node.
    unsafe fn set_inside(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.links.set(Links { stands: Stands::Inside, ..self.links.get() }) };
    }

    /// The thread is in, or is about to be let in.
    ///
    /// # Safety
    /// The caller holds the latch, or the node is in no queue.
    pub unsafe fn is_inside(&self) -> bool {
        // SAFETY: the caller's promise. The links of a taken node are only read until it is granted.
        unsafe { self.links.get() }.stands == Stands::Inside
    }

    /// The node's thread is no longer in.
    ///
    /// # Safety
    /// The node is in no queue, and was granted if it was taken from one.
    pub unsafe fn leave(&self) {
        // SAFETY: the caller's promise: no other thread can reach it.
        unsafe { self.links.set(Links { stands: Stands::Outside, ..self.links.get() }) };
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// # Safety
    /// The caller holds the latch.
    pub unsafe fn is_queued(&self) -> bool {
        // SAFETY: under the latch.
        unsafe { self.links.get() }.stands == Stands::Queued
    }

    /// Spins, then sleeps. False if the deadline passed first; even then the node may have been taken.
    pub fn wait(&self, deadline: Option<&Deadline>) -> bool {
        let word = self.word.value();
        for _ in 0..SPINS {
            // ORDERING: acquire pairs with the release in `grant`.
            if word.load(Ordering::Acquire) == GRANTED {
                return true;
            }
            spin();
        }
        // A waiter that timed out and was taken sleeps a second time, so the word may already be `ASLEEP`.
        if word.compare_exchange(WAITING, ASLEEP, Ordering::Acquire, Ordering::Acquire) == Err(GRANTED) {
            return true;
        }
        loop {
            let in_time = self.word.sleep(ASLEEP, deadline);
            if word.load(Ordering::Acquire) == GRANTED {
                return true;
            }
            if !in_time {
                return false;
            }
        }
    }
}

/// Nodes that were taken out and are to be granted after the latch is released.
#[must_use]
pub struct Taken {
    first: *const Node,
    pub count: u32,
}

impl Taken {
    pub const NONE: Taken = Taken { first: null(), count: 0 };

    /// Lets the waiters in. The gate may no longer exist when this begins, and each waiter may end once it is granted.
    ///
    /// # Safety
    /// The latch was released after these nodes were taken, and they are granted once.
    pub unsafe fn grant(self) {
        let mut node = self.first;
        for _ in 0..self.count {
            // SAFETY: taken and not yet granted, so the waiter still waits and its node exists. The links of a taken
            // node belong to the thread that took it, and are read before the grant.
            unsafe {
                let next = (*node).links.get().next;
                let address = (*node).word.address();
                // ORDERING: release passes on the data written under the gate.
                if address.swap(GRANTED, Ordering::Release) == ASLEEP {
                    address.wake();
                }
                node = next;
            }
        }
    }
}

/// The first node. No user address of x86-64 or AArch64 has these bits (five-level paging included), so they hold the
/// number of forks at the last change. Nodes from before a fork have no thread, and their memory may be in other use.
const TAG: usize = 0x7f << 57;

fn tag() -> usize {
    (forks() as usize) << 57
}

pub struct Queue(Guarded<*const Node>);

impl Queue {
    #[cfg(not(loom))]
    pub const fn new() -> Queue {
        Queue(Guarded::new(null()))
    }

    #[cfg(loom)]
    pub fn new() -> Queue {
        Queue(Guarded::new(null()))
    }

    /// # Safety
    /// The caller holds the latch.
    unsafe fn first(&self) -> *const Node {
        // SAFETY: under the latch.
        let first = unsafe { self.0.get() };
        if first.addr() & TAG == tag() { first.map_addr(|address| address & !TAG) } else { null() }
    }

    /// # Safety
    /// The caller holds the latch.
    unsafe fn lists(&self) -> Lists {
        // SAFETY: under the latch; the first node is queued, so it exists.
        unsafe {
            let first = self.first();
            if first.is_null() { Lists { writers: EMPTY, readers: EMPTY } } else { (*first).lists.get() }
        }
    }

    /// # Safety
    /// The caller holds the latch.
    unsafe fn set_lists(&self, lists: Lists) {
        let first = if lists.writers.first.is_null() { lists.readers.first } else { lists.writers.first };
        // SAFETY: under the latch; what the lists name is queued.
        unsafe {
            if !first.is_null() {
                (*first).lists.set(lists);
            }
            self.0.set(if first.is_null() { first } else { first.map_addr(|address| address | tag()) });
        }
    }

    /// # Safety
    /// The caller holds the latch.
    pub unsafe fn is_empty(&self) -> bool {
        // SAFETY: under the latch.
        unsafe { self.first() }.is_null()
    }

    /// # Safety
    /// The caller holds the latch.
    pub unsafe fn has(&self, kind: Kind) -> bool {
        // SAFETY: under the latch.
        let lists = unsafe { self.lists() };
        !match kind {
            Kind::Writer => lists.writers.first,
            Kind::Reader => lists.readers.first,
        }
        .is_null()
    }

    /// # Safety
    /// The caller holds the latch; the node is in no queue and does not move until it is removed or granted.
    pub unsafe fn push(&self, node: &Node) {
        // SAFETY: under the latch; what the lists name is queued.
        unsafe {
            let mut lists = self.lists();
            let list = if node.kind == Kind::Writer { &mut lists.writers } else { &mut lists.readers };
            let mut previous = list.last;
            while !previous.is_null() && (*previous).rank < node.rank {
                previous = (*previous).links.get().previous;
            }
            let next = if previous.is_null() { list.first } else { (*previous).links.get().next };
            node.links.set(Links { previous, next, stands: Stands::Queued });
            match previous.is_null() {
                true => list.first = node,
                false => {
                    let links = &(*previous).links;
                    links.set(Links { next: node, ..links.get() });
                }
            }
            match next.is_null() {
                true => list.last = node,
                false => {
                    let links = &(*next).links;
                    links.set(Links { previous: node, ..links.get() });
                }
            }
            self.set_lists(lists);
        }
    }

    /// # Safety
    /// The caller holds the latch; the node is queued here.
    pub unsafe fn remove(&self, node: &Node) {
        // SAFETY: under the latch; the neighbours of a queued node are queued.
        unsafe {
            let mut lists = self.lists();
            let list = if node.kind == Kind::Writer { &mut lists.writers } else { &mut lists.readers };
            let Links { previous, next, .. } = node.links.get();
            if previous.is_null() {
                list.first = next;
            } else {
                let links = &(*previous).links;
                links.set(Links { next, ..links.get() });
            }
            if next.is_null() {
                list.last = previous;
            } else {
                let links = &(*next).links;
                links.set(Links { previous, ..links.get() });
            }
            node.links.set(Links { previous: null(), next: null(), stands: Stands::Outside });
            self.set_lists(lists);
        }
    }

    /// The first writer.
    ///
    /// # Safety
    /// The caller holds the latch.
    pub unsafe fn take_writer(&self) -> Taken {
        // SAFETY: under the latch.
        unsafe {
            let first = self.lists().writers.first;
            if first.is_null() {
                return Taken::NONE;
            }
            self.remove(&*first);
            (*first).set_inside();
            Taken { first, count: 1 }
        }
    }

    /// All readers.
    ///
    /// # Safety
    /// The caller holds the latch.
    pub unsafe fn take_readers(&self) -> Taken {
        // SAFETY: under the latch; what the lists name is queued.
        unsafe {
            let mut lists = self.lists();
            let first = lists.readers.first;
            let mut count = 0;
            let mut node = first;
            while !node.is_null() {
                let links = (*node).links.get();
                (*node).links.set(Links { stands: Stands::Inside, ..links });
                count += 1;
                node = links.next;
            }
            lists.readers = EMPTY;
            self.set_lists(lists);
            Taken { first, count }
        }
    }
}

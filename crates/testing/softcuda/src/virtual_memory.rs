//! Memory of the driver's functions for virtual memory, on the host or the device. It takes no lock, as in CUDA.
//!
//! All of it is the host's. The software GPU chooses an address when it makes memory. So the memory is made with the address, before its handle.

use crate::memory::{hide, show, soft};
use gpu::Memory;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

struct Range {
    memory: Arc<Memory>,
    /// The handle that is mapped there.
    handle: Option<u64>,
}

#[derive(Default)]
struct State {
    ranges: BTreeMap<u64, Range>,
    /// Bytes of each handle, and whether they are the device's.
    handles: BTreeMap<u64, (usize, bool)>,
    last: u64,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);

fn state() -> MutexGuard<'static, Option<State>> {
    poison::ignore(STATE.lock())
}

fn with<T>(then: impl FnOnce(&mut State) -> T) -> T {
    then(state().get_or_insert_default())
}

pub(crate) fn reserve(bytes: usize) -> Option<u64> {
    let memory = soft()?.space.alloc_host(bytes as u64).ok()?;
    let at = memory.va();
    with(|s| s.ranges.insert(at, Range { memory, handle: None }));
    Some(at)
}

/// Not while something is mapped.
pub(crate) fn unreserve(at: u64, bytes: usize) -> bool {
    let is_free = |range: &Range| range.handle.is_none() && range.memory.length() == bytes as u64;
    let gone = with(|s| if s.ranges.get(&at).is_some_and(is_free) { s.ranges.remove(&at) } else { None });
    gone.is_some()
}

pub(crate) fn create(bytes: usize, video: bool) -> u64 {
    with(|s| {
        s.last += 1;
        s.handles.insert(s.last, (bytes, video));
        s.last
    })
}

pub(crate) fn release(handle: u64) -> bool {
    with(|s| s.handles.remove(&handle).is_some())
}

pub(crate) fn map(at: u64, bytes: usize, handle: u64) -> bool {
    with(|s| {
        let fits = s.handles.get(&handle).is_some_and(|(its, _)| *its == bytes);
        match s.ranges.get_mut(&at) {
            Some(range) if fits && range.handle.is_none() && range.memory.length() == bytes as u64 => {
                range.handle = Some(handle);
                true
            }
            _ => false,
        }
    })
}

pub(crate) fn give_access(at: u64, bytes: usize) -> bool {
    with(|s| match s.ranges.get(&at) {
        Some(Range { memory, handle: Some(handle) }) if memory.length() == bytes as u64 => {
            let video = s.handles.get(handle).is_some_and(|(_, video)| *video);
            show(at, bytes, video, memory.clone());
            true
        }
        _ => false,
    })
}

/// Returns at once, also while work that uses the memory is pending, as CUDA's does.
pub(crate) fn unmap(at: u64, bytes: usize) -> bool {
    with(|s| {
        let range = s.ranges.get_mut(&at).filter(|range| range.memory.length() == bytes as u64);
        let was_mapped = range.is_some_and(|range| range.handle.take().is_some());
        if was_mapped {
            hide(at);
        }
        was_mapped
    })
}

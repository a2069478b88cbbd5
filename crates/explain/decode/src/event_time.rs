//! The time that orders an event among those of other threads.

use tape::event::{Body, Event};

/// The time that orders an event among other threads' events. A call that makes an object counts from its return, and
/// one that frees an object from its beginning. A handle that another thread reuses is therefore always freed first.
pub(crate) fn order_key(e: &Event<'_>) -> u64 {
    match &e.body {
        Body::Ioctl(i, ..) if !takes_away(i.request) => i.tsc_end.max(e.head.tsc),
        _ => e.head.tsc,
    }
}

fn takes_away(request: u64) -> bool {
    // RM_FREE 0x29, RM_UNMAP_MEMORY 0x4f, RM_UNMAP_MEMORY_DMA 0x58 of type 'F'; UVM_UNREGISTER_CHANNEL 28, UVM_FREE 34,
    // UVM_UNMAP_EXTERNAL 66.
    if (request >> 8) & 0xff == b'F' as u64 {
        matches!(request & 0xff, 0x29 | 0x4f | 0x58)
    } else {
        matches!(request, 28 | 34 | 66)
    }
}

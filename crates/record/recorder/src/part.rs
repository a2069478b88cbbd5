//! Cuts a recording: keeps the events from one time on, and the earlier ones that these depend on.

use crate::divided::{Divided, Left, divide};
use crate::kept::{Kept, Pack};
use crate::last::{Held, MOST};
use crate::saving::{Request, Snapshot};
use crate::triggers::Why;
use std::io;
use std::path::Path;
use std::sync::Arc;
use tape::file::{End, Item, Packer, Reader, Saved};

/// The time stamp counter now, for [`keep_from`].
pub fn now() -> u64 {
    crate::clock::tsc()
}

/// Replaces the recording at `path`, which must be complete. Events that ended before `since` are left out and counted, as in a part that a
/// flight recorder saves. `reason` is why the part was made. Returns its size.
///
/// # Errors
/// The file cannot be read or written; it stays as it was.
pub fn keep_from(path: &Path, since: u64, reason: &str) -> io::Result<u64> {
    let mut reader = Reader::open(path).map_err(io::Error::other)?;
    let header = reader.header().clone();
    let hz = if header.tsc_hz.is_finite() && header.tsc_hz > 1.0 { header.tsc_hz } else { 1e9 };
    let mut s = Snapshot {
        kept: Kept::new(&header.driver, MOST as usize),
        header,
        saved: Saved { reason: reason.into(), tsc: since, number: 1, from_tsc: since, ..Saved::default() },
        left: Left::default(),
        from: since,
        queue: Vec::new(),
        processes: Vec::new(),
        ended: Vec::new(),
        notes: Vec::new(),
        unwatched: Vec::new(),
        clocks: Vec::new(),
        request: Request {
            why: Why::default(),
            number: None,
            ends: Vec::new(),
            held: Vec::new(),
            until: u64::MAX,
            clock: None,
            looks: None,
            end: End::default(),
        },
    };
    let (mut packer, mut newest) = (Packer::default(), since);
    while let Some(item) = reader.item().map_err(io::Error::other)? {
        match item {
            Item::Events { process, tid, bytes } => {
                let mut divided = Divided::default();
                divide(&s.kept, tid, &bytes, u64::MAX, &mut divided, |_| ());
                newest = newest.max(divided.last);
                if divided.last < since {
                    s.left.add(divided.left);
                    s.kept.absorb(process, tid, &divided.lasting, &mut packer);
                    continue;
                }
                let tsc = bytes.get(8..16).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
                let (payload, unpacked) = match packer.pack(&bytes) {
                    Some(packed) => (packed.into(), bytes.len() as u32),
                    None => (bytes.as_slice().into(), 0),
                };
                let pack = Pack { process, tid, tsc, unpacked, payload };
                s.queue.push(Arc::new(Held::new(pack, divided, u64::MAX)));
            }
            Item::Clock(c) => s.clocks.push(c),
            Item::Note(text) => s.notes.push(text),
            Item::Process(p) => s.processes.push(*p),
            Item::ProcessEnd(e) => s.ended.push((newest, *e)),
            Item::Unwatched(u) => s.unwatched.push(*u),
            Item::End(end) => s.request.end = *end,
            Item::Summary(_) | Item::Checkpoint | Item::Looks(_) | Item::Unknown(_) => {}
        }
    }
    s.saved.seconds = newest.saturating_sub(since) as f64 / hz;
    output::replace(path, |file| {
        if let Ok(before) = path.metadata() {
            file.set_permissions(before.permissions())?;
        }
        s.write(file.try_clone()?, path, None)
    })
}

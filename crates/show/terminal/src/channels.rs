//! The channels of a recording.

use crate::number::{bytes, count};
use crate::table::{Out, Style};
use schema::Place;
use schema::channel::{Accounted, Channel};
use std::io;

/// What the channels can be sorted by, the largest first.
pub const SORTS: &[&str] = &["rings", "entries", "bytes", "lost"];

/// Sorts by one of [`SORTS`].
pub fn sort(channels: &mut [Channel], by: &str) {
    channels.sort_by_key(|c| {
        std::cmp::Reverse(match by {
            "rings" => c.rings,
            "entries" => c.entries,
            "bytes" => c.command_bytes,
            "lost" => c.lost,
            _ => 0,
        })
    });
}

/// Writes the channels as a table.
pub fn write(out: &mut dyn Out, style: &Style, channels: &[Channel], indent: usize) -> io::Result<()> {
    let heads = [
        "channel",
        "engine",
        ">token",
        "class",
        ">handle",
        ">ring",
        "GPFIFO",
        "USERD",
        "pushbuffer",
        "watched",
        ">rings",
        ">entries",
        ">commands",
        ">lost",
        "end",
    ];
    let mut t = style.table(&heads);
    for c in channels {
        t.add_row([
            c.label(),
            if c.engine.is_empty() { "?".into() } else { c.engine.clone() },
            c.token.map_or("-".into(), |t| format!("{t:#x}")),
            if c.class == 0 { "?".into() } else { c.class_name.clone() },
            if c.handle == 0 { "-".into() } else { format!("{:#x}", c.handle) },
            count(c.ring_entries.into()),
            place(c.gpfifo_place),
            place(c.userd_place),
            place(c.pushbuffer_place),
            c.watch.name().into(),
            count(c.rings),
            count(c.entries),
            bytes(c.command_bytes),
            count(c.lost),
            end(c),
        ]);
    }
    out.table(&t, indent)
}

fn place(p: Place) -> String {
    p.name().into()
}

fn end(c: &Channel) -> String {
    let mut s = match (c.freed, c.accounted_by) {
        (true, _) => "freed".to_string(),
        (false, Accounted::Seen) => "not known".into(),
        (false, _) => "open".into(),
    };
    if c.unrung > 0 {
        s.push_str(&format!(", {} not rung", count(c.unrung)));
    }
    if c.surplus > 0 {
        s.push_str(&format!(", {} more than GP_PUT", count(c.surplus)));
    }
    s
}

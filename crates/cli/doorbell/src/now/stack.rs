//! `--stacks`: the names of the places where threads are.

use super::{MAPS_WITHIN, Maps};
use schema::now::{Now, NowFrame};
use schema::symbols::{Places, Symbols};
use slow_calls::wait_graph::Names;
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::{SystemTime, UNIX_EPOCH};
use tape::live::LiveStack;

/// Adds the stacks of the threads that are shown.
pub fn add(now: &mut Now, stacks: &[LiveStack], maps: &Maps) {
    let of: HashMap<(i32, i32), &LiveStack> = stacks.iter().map(|s| ((s.pid, s.tid), s)).collect();
    let mut pids: Vec<i32> = Vec::new();
    for t in &mut now.threads {
        let Some(stack) = of.get(&(t.pid, t.tid)) else { continue };
        t.no_stack.clone_from(&stack.lacks);
        let frame = |f: &tape::live::LiveFrame| NowFrame {
            place: maps.site(t.pid, f.address),
            certain: f.is_certain,
            ..NowFrame::default()
        };
        t.stack = stack.frames.iter().map(frame).collect();
        pids.extend((!pids.contains(&t.pid)).then_some(t.pid));
    }
    for pid in pids {
        let symbols = symbols(pid, maps);
        let frames = now.threads.iter_mut().filter(|t| t.pid == pid).flat_map(|t| &mut t.stack);
        for frame in frames {
            let Some(row) = symbols.0.get(&frame.place) else { continue };
            frame.function.clone_from(&row.name);
            frame.source = row.file.as_ref().map(|file| match row.line {
                Some(line) => format!("{file}:{line}"),
                None => file.clone(),
            });
        }
    }
}

/// The symbols of all places of a process that were named. None if that takes long: large files are read for it.
fn symbols(pid: i32, maps: &Maps) -> Symbols {
    let by_name = maps.with(pid, |m| m.names.given()).unwrap_or_default();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let places = Places { by_name, recorded_ns: now.as_nanos() as u64 };
    let (tell, told) = channel();
    std::thread::spawn(move || {
        let names: Vec<String> = places.by_name.keys().cloned().collect();
        tell.send(symbols::look_up(&places, names.iter().map(String::as_str)))
    });
    told.recv_timeout(MAPS_WITHIN * 2).unwrap_or_default()
}

/// Of a mapped file whose path leads to another file (it was replaced, or the process is in a container), a build id that no file has.
/// Otherwise none.
pub fn build_id(line: &recorder::maps::Line<'_>) -> &'static [u8] {
    let path = Path::new(std::ffi::OsStr::from_bytes(line.path));
    let is_same = || std::fs::metadata(path).is_ok_and(|m| m.ino() == line.inode);
    if path.is_absolute() && !is_same() { b"?" } else { b"" }
}

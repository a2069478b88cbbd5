//! How values of rows are shown in the cells of tables.

use crate::foreign::plain;
use crate::number::count;
use schema::Place;
use schema::operations::{InCall, Shape};
use schema::python::{FrameRow, MainLine};
use schema::streams::StreamKind;

/// `GPU`, and which one if there are several: `GPU 1`.
pub fn place_name(p: Place, gpu: Option<u32>) -> String {
    gpu.map_or_else(|| p.name().to_owned(), |gpu| format!("{} {gpu}", p.name()))
}

/// A place as the folder of a run stores it, for people.
pub fn stored_place(key: &str) -> &str {
    if key == Place::Video.key() { Place::Video.name() } else { key }
}

/// Several: `host and GPU`.
pub fn stored_places<'a>(keys: impl IntoIterator<Item = &'a String>) -> String {
    keys.into_iter().map(|key| stored_place(key)).collect::<Vec<_>>().join(" and ")
}

/// `64 x 2 x 1`
pub fn extent(e: [u32; 3]) -> String {
    format!("{} x {} x {}", e[0], e[1], e[2])
}

/// A kernel by its short name, or by the address of its code.
pub fn kernel(name: Option<&str>, shape: &Shape) -> String {
    name.map_or_else(|| format!("{:#x}", shape.code()), schema::names::short_name)
}

/// Where the GPU starts, if that is not the kernel itself.
pub fn through(shape: &Shape) -> String {
    shape.kernel.map_or(String::new(), |_| format!(", through {:#x}", shape.program))
}

/// The call in which something was submitted: `cudaMemcpyAsync #17`, `cudaMemcpyAsync #17 at train.py:9`.
pub fn called(call: &InCall) -> String {
    let line = call.python.as_ref().map_or(String::new(), |at| format!(" at {}", line_of(at)));
    format!("{} #{}{line}", call.name, call.number)
}

/// `train.py:12`
pub fn line_of(f: &FrameRow) -> String {
    plain(&f.place())
}

/// `train.py:12`, `train.py:12 and 3 more`
pub fn main_line(line: Option<&MainLine>) -> String {
    match line {
        None => "-".into(),
        Some(l) if l.others == 0 => line_of(&l.at),
        Some(l) => format!("{} and {} more", line_of(&l.at), count(l.others)),
    }
}

/// A stream's green context: `16 SMs`.
pub fn green(kind: &StreamKind) -> String {
    match kind.sms {
        Some(sms) => format!("{sms} SMs"),
        None => (if kind.green { "yes" } else { "-" }).into(),
    }
}

pub fn time(s: Option<f64>) -> String {
    s.map_or("-".into(), |s| format!("{s:.6}"))
}

/// A channel by its number in the recording; `0.1` is the second one with number 0.
pub fn channel(slot: u32, generation: u32) -> String {
    if generation == 0 { slot.to_string() } else { format!("{slot}.{generation}") }
}

/// With a capital at the beginning.
pub fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

//! Names of copies: `copy 4 MiB host to device`.

use crate::operations::{CopyRow, Mode};
use crate::place::Place;
use numbers::bytes;

/// The place on one side of a copy, and which GPU if it is a GPU's memory.
pub type Side = (Place, Option<u32>);

/// `copy 4 MiB host to device`, `copy 4 MiB GPU 0 to GPU 1`, `fill 4 MiB of device`. `from`: `None` if the bytes do not
/// come from memory.
pub fn name(mode: Mode, bytes: u64, from: Option<Side>, to: Side) -> String {
    format!("{} {}", verb(mode), of(mode, Some(bytes), from, to))
}

/// The same for copies of different sizes: `copies host to device`.
pub fn name_of_many(mode: Mode, from: Option<Side>, to: Side) -> String {
    let verb = match mode {
        Mode::CopyEngine => "copies",
        Mode::Inline => "inline writes",
        Mode::Fill => "fills",
    };
    format!("{verb} {}", of(mode, None, from, to))
}

fn verb(mode: Mode) -> &'static str {
    match mode {
        Mode::CopyEngine => "copy",
        Mode::Inline => "inline write",
        Mode::Fill => "fill",
    }
}

fn of(mode: Mode, size: Option<u64>, from: Option<Side>, to: Side) -> String {
    let size = size.map_or_else(String::new, |n| format!("{} ", bytes(n)));
    match (mode, from) {
        (Mode::Fill, _) => format!("{size}of {}", side(to)),
        (_, None) => format!("{size}to {}", side(to)),
        (_, Some((Place::Video, Some(a)))) if matches!(to, (Place::Video, Some(b)) if a != b) => {
            format!("{size}GPU {a} to GPU {}", to.1.unwrap_or(a))
        }
        (_, Some(from)) => format!("{size}{} to {}", side(from), side(to)),
    }
}

fn side((place, _): Side) -> &'static str {
    match place {
        Place::Video => "device",
        Place::Host => "host",
        Place::Unknown => "unknown memory",
    }
}

impl CopyRow {
    /// As [`name`].
    pub fn label(&self) -> String {
        let from = self.src_place.map(|place| (place, self.src_gpu));
        name(self.mode, self.bytes, from, (self.dst_place, self.dst_gpu))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_named_by_its_size_and_both_sides() {
        let (host, gpu, other) = ((Place::Host, None), (Place::Video, Some(0)), (Place::Video, Some(1)));
        let unknown = (Place::Unknown, None);
        for (mode, from, to, one, many) in [
            (Mode::CopyEngine, Some(host), gpu, "copy 4 MiB host to device", "copies host to device"),
            (Mode::CopyEngine, Some(gpu), gpu, "copy 4 MiB device to device", "copies device to device"),
            (Mode::CopyEngine, Some(gpu), other, "copy 4 MiB GPU 0 to GPU 1", "copies GPU 0 to GPU 1"),
            (
                Mode::CopyEngine,
                Some(unknown),
                host,
                "copy 4 MiB unknown memory to host",
                "copies unknown memory to host",
            ),
            (Mode::Inline, None, gpu, "inline write 4 MiB to device", "inline writes to device"),
            (Mode::Fill, None, gpu, "fill 4 MiB of device", "fills of device"),
        ] {
            assert_eq!(name(mode, 4 << 20, from, to), one);
            assert_eq!(name_of_many(mode, from, to), many);
        }
    }
}

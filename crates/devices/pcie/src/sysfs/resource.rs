//! The file `resource` of a function: a line for each BAR, with its first address, its last, and the kernel's flags
//! (include/linux/ioport.h: IORESOURCE_*).

use crate::error::Error;
use std::fs;
use std::path::Path;

const IO: u64 = 0x100;
const MEM: u64 = 0x200;
const PREFETCH: u64 = 0x2000;
const UNSET: u64 = 0x2000_0000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resource {
    pub start: u64,
    pub length: u64,
    pub prefetchable: bool,
    flags: u64,
}

impl Resource {
    /// The reason why it cannot be mapped, if any.
    pub(crate) fn usable(&self) -> Result<(), &'static str> {
        match self.flags {
            0 => Err("the function has none there (or the upper half of another)"),
            flags if flags & IO != 0 => Err("it is of I/O ports, which no driver here uses"),
            flags if flags & MEM == 0 => Err("it is not of memory"),
            flags if flags & UNSET != 0 || self.start == 0 || self.length == 0 => {
                Err("the kernel has given it no address (too little room on its bus)")
            }
            _ => Ok(()),
        }
    }
}

pub(crate) fn read(folder: &Path) -> Result<Vec<Resource>, Error> {
    let path = folder.join("resource");
    let text = fs::read_to_string(&path).map_err(|why| Error::system(format!("read {}", path.display()), why))?;
    parse(&text)
        .ok_or_else(|| Error::system(format!("read {}", path.display()), std::io::ErrorKind::InvalidData.into()))
}

fn parse(text: &str) -> Option<Vec<Resource>> {
    text.lines().take(6).map(line).collect()
}

fn line(line: &str) -> Option<Resource> {
    let mut fields = line.split_whitespace().map(|field| u64::from_str_radix(field.strip_prefix("0x")?, 16).ok());
    let (start, end, flags) = (fields.next()??, fields.next()??, fields.next()??);
    let length = if flags == 0 { 0 } else { end.checked_sub(start)?.checked_add(1)? };
    Some(Resource { start, length, prefetchable: flags & PREFETCH != 0, flags })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_read_with_their_reasons() {
        let text = "0x00000000fea10000 0x00000000fea13fff 0x0000000000140204\n\
                    0x0000000000000000 0x0000000000000000 0x0000000000000000\n\
                    0x0000000800000000 0x000000080fffffff 0x000000000014220c\n\
                    0x0000000000000000 0x0000000000000000 0x0000000000000000\n\
                    0x000000000000c000 0x000000000000c01f 0x0000000000040101\n\
                    0x0000000000000000 0x0000000000000fff 0x0000000020040200\n\
                    0x0000000000000000 0x0000000000000000 0x0000000000000000\n";
        let bars = parse(text).unwrap();
        assert_eq!(bars.len(), 6);
        assert_eq!((bars[0].start, bars[0].length, bars[0].prefetchable), (0xfea1_0000, 0x4000, false));
        assert_eq!((bars[2].start, bars[2].length, bars[2].prefetchable), (0x8_0000_0000, 0x1000_0000, true));
        let usable: Vec<bool> = bars.iter().map(|bar| bar.usable().is_ok()).collect();
        assert_eq!(usable, [true, false, true, false, false, false]);
    }

    #[test]
    fn wrong_lines_are_refused() {
        for wrong in ["0x0", "1 2 3", "0x2 0x1 0x200", "0x0 0xffffffffffffffff 0x200"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}

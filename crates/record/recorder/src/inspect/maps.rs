//! The mappings of a process, from /proc/PID/maps.

use std::fs;
use tape::lock::MappingBody;

/// A line of /proc/PID/maps.
pub struct Line<'a> {
    /// Its range, its offset in the file, and its rights.
    pub body: MappingBody,
    pub is_shared: bool,
    /// As in the line: `00:01`.
    pub device: &'a [u8],
    /// 0 without a file.
    pub inode: u64,
    /// Empty without a file.
    pub path: &'a [u8],
}

/// A mapping: its range, its offset in the file, its rights, and the file.
pub struct Mapping {
    pub body: MappingBody,
    /// Empty without a file.
    pub path: Vec<u8>,
}

impl Mapping {
    /// The file's name, without its folder.
    pub fn file(&self) -> &[u8] {
        self.path.rsplit(|b| *b == b'/').next().unwrap_or_default()
    }
}

/// All mappings in ascending order. Empty if they cannot be read.
#[derive(Default)]
pub struct Maps(Vec<Mapping>);

impl Maps {
    pub fn of(pid: i32) -> Maps {
        Maps::from(fs::read(format!("/proc/{pid}/maps")).unwrap_or_default().as_slice())
    }

    /// The mapping of an address.
    pub fn at(&self, address: u64) -> Option<&Mapping> {
        let i = self.0.partition_point(|m| m.body.end <= address);
        self.0.get(i).filter(|m| m.body.start <= address)
    }

    pub fn files(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(Mapping::file)
    }

    pub fn is_code(&self, address: u64) -> bool {
        self.at(address).is_some_and(|m| m.body.rights & 4 != 0)
    }

    /// Where the first mapping of the file begins that has this address.
    pub fn first_of_file(&self, address: u64) -> Option<u64> {
        let i = self.0.partition_point(|m| m.body.end <= address);
        let here = self.0.get(i).filter(|m| m.body.start <= address && !m.path.is_empty())?;
        let before = self.0.get(..=i)?.iter().rev();
        let mut of_file = before.take_while(|m| m.path == here.path || m.path.is_empty());
        of_file.find(|m| m.path == here.path && m.body.offset == 0).map(|m| m.body.start)
    }

    /// The file to which an address belongs, also for variables that the file does not store: these are in the mapping without a
    /// file that follows its last one.
    pub fn file(&self, address: u64) -> Option<&[u8]> {
        let mut i = self.0.partition_point(|m| m.body.end <= address);
        let mut here = self.0.get(i).filter(|m| m.body.start <= address)?;
        if here.path.is_empty() {
            i = i.checked_sub(1)?;
            let before = self.0.get(i).filter(|m| m.body.end == here.body.start)?;
            here = before;
        }
        Some(here.file()).filter(|name| !name.is_empty())
    }
}

impl From<&[u8]> for Maps {
    fn from(text: &[u8]) -> Maps {
        let of = |line: Line<'_>| Mapping { body: line.body, path: line.path.to_vec() };
        Maps(lines(text).map(of).collect())
    }
}

pub fn lines(text: &[u8]) -> impl Iterator<Item = Line<'_>> {
    text.split(|b| *b == b'\n').filter_map(mapping)
}

/// A line of /proc/PID/maps: `begin-end rights offset device inode path`.
pub fn mapping(line: &[u8]) -> Option<Line<'_>> {
    let mut words = line.splitn(6, |b| *b == b' ');
    let (range, rights, offset) = (words.next()?, words.next()?, words.next()?);
    let (device, inode) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = words.next().unwrap_or_default().trim_ascii_start();
    let hex = |b: &[u8]| u64::from_str_radix(std::str::from_utf8(b).ok()?, 16).ok();
    let (start, end) = (range.split(|b| *b == b'-').next()?, range.rsplit(|b| *b == b'-').next()?);
    let bits = [(b'r', 1), (b'w', 2), (b'x', 4)];
    let is_shared = rights.ends_with(b"s");
    let rights = bits.iter().filter(|(letter, _)| rights.contains(letter)).map(|(_, bit)| bit).sum();
    let inode = std::str::from_utf8(inode).ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    let body = MappingBody { start: hex(start)?, end: hex(end)?, offset: hex(offset)?, rights, path: 0 };
    Some(Line { body, is_shared, device, inode, path })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_mapping_and_a_file() {
        let text =
            b"1000-2000 r-xp 00001000 fd:01 1234     /tmp/a b\n2000-3000 rw-p 0 00:00 0 \n4000-5000 rw-p 0 00:00 0 \n";
        let maps = Maps::from(text.as_slice());
        assert_eq!((maps.at(0x1000).unwrap().file(), maps.at(0x1000).unwrap().body.rights), (b"a b".as_slice(), 5));
        assert!(maps.at(0xfff).is_none() && maps.at(0x3000).is_none() && maps.at(0x5000).is_none());
        assert_eq!(maps.file(0x2fff), Some(b"a b".as_slice()), "variables behind the file's last mapping");
        assert_eq!((maps.file(0x4000), maps.file(0x3800)), (None, None));
        assert_eq!(mapping(b"7f00-7f01 rw-p 00000000 00:00 0 ").unwrap().path, b"");
        assert!(mapping(b"").is_none() && mapping(b"x-y r 0").is_none());
    }
}

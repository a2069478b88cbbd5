//! /proc/self/maps, read without allocation.
//!
//! The loader's own list is protected by a lock that a thread may hold while it waits for one of the program's locks. So
//! the agent does not use that list.

use super::sys::syscall6;

pub const READ: u32 = 1;
pub const WRITE: u32 = 2;
pub const EXECUTE: u32 = 4;
/// Not shared: libraries are mapped private.
pub const PRIVATE: u32 = 8;

/// One mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub start: usize,
    pub end: usize,
    /// Where in its file it begins.
    pub offset: u64,
    pub inode: u64,
    /// [`READ`] and its like.
    pub rights: u32,
}

/// The name of a mapped file, in a folder or in memory, without the kernel's additions.
fn name(path: &[u8]) -> &[u8] {
    let name = path.rsplit(|&b| b == b'/').next().unwrap_or(path);
    name.strip_prefix(b"memfd:").unwrap_or(name)
}

/// True for the path of the recorder's shared memory.
pub fn is_region(path: &[u8]) -> bool {
    name(path).starts_with(b"doorbell-region")
}

/// True for the path of a file that doorbell has loaded here: the shared memory, or one of doorbell's libraries.
pub fn is_ours(path: &[u8]) -> bool {
    is_region(path)
        || [&b"doorbell-agent.so"[..], b"doorbell-softgpu.so", b"doorbell-policies"]
            .iter()
            .any(|n| name(path).starts_with(n))
}

/// Calls `f` with each mapping and its path, in address order, until it returns true. `text` is the buffer for the file's
/// text: of a line that does not fit into it, the path is cut.
pub fn each(text: &mut [u8], f: impl FnMut(&Mapping, &[u8]) -> bool) {
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
    // SAFETY: a NUL-terminated path.
    let fd = unsafe {
        syscall6(libc::SYS_openat, libc::AT_FDCWD as usize, c"/proc/self/maps".as_ptr() as usize, flags, 0, 0, 0)
    };
    if fd < 0 {
        return;
    }
    let read = |room: &mut [u8]| {
        // SAFETY: a buffer with its length.
        let got = unsafe { syscall6(libc::SYS_read, fd as usize, room.as_mut_ptr() as usize, room.len(), 0, 0, 0) };
        usize::try_from(got).unwrap_or(0)
    };
    lines(text, read, f);
    // SAFETY: the agent's own descriptor.
    unsafe { syscall6(libc::SYS_close, fd as usize, 0, 0, 0, 0, 0) };
}

/// The same, of text that `read` returns in pieces; 0 bytes are its end.
fn lines(text: &mut [u8], mut read: impl FnMut(&mut [u8]) -> usize, mut f: impl FnMut(&Mapping, &[u8]) -> bool) {
    let mut ends = |line: Option<&[u8]>| line.and_then(parse).is_some_and(|(mapping, path)| f(&mapping, path));
    // The start of the line was seen, and its rest is skipped.
    let (mut have, mut is_rest) = (0, false);
    while let Some(room) = text.get_mut(have..) {
        let got = read(room).min(room.len());
        if got == 0 {
            return;
        }
        have += got;
        let mut from = 0;
        while let Some(n) = text.get(from..have).and_then(|b| b.iter().position(|&b| b == b'\n')) {
            if !is_rest && ends(text.get(from..from + n)) {
                return;
            }
            is_rest = false;
            from += n + 1;
        }
        if from == 0 && have == text.len() {
            if !is_rest && ends(text.get(..have)) {
                return;
            }
            (is_rest, from) = (true, have);
        }
        text.copy_within(from..have, 0);
        have -= from;
    }
}

/// `start-end rights offset device inode   path`
fn parse(line: &[u8]) -> Option<(Mapping, &[u8])> {
    let (start, rest) = number(line, 16)?;
    let (end, rest) = number(rest.strip_prefix(b"-")?, 16)?;
    let rights = rest.get(1..5)?;
    let bit = |i: usize, c: u8, bit: u32| if rights.get(i) == Some(&c) { bit } else { 0 };
    let rights = bit(0, b'r', READ) | bit(1, b'w', WRITE) | bit(2, b'x', EXECUTE) | bit(3, b'p', PRIVATE);
    let (offset, rest) = number(rest.get(6..)?, 16)?;
    let device = rest.get(1..)?;
    let rest = device.get(device.iter().position(|&b| b == b' ')? + 1..)?;
    let (inode, rest) = number(rest, 10)?;
    let blanks = rest.iter().position(|&b| b != b' ').unwrap_or(rest.len());
    let path = rest.get(blanks..)?;
    let path = path.get(..path.len().min(1024))?;
    Some((Mapping { start: start as usize, end: end as usize, offset, inode, rights }, path))
}

fn number(text: &[u8], base: u32) -> Option<(u64, &[u8])> {
    let n = text.iter().position(|&b| !(b as char).is_digit(base)).unwrap_or(text.len());
    let (digits, rest) = text.split_at(n);
    let mut v = 0u64;
    for &d in digits {
        v = v.checked_mul(u64::from(base))?.checked_add(u64::from((d as char).to_digit(base)?))?;
    }
    (n > 0).then_some((v, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Characters that occur in lines of the file, so that mistakes are close to valid lines.
    fn near() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(proptest::sample::select(b"0f9-: rwxps/[]\n\xff".to_vec()), 0..120)
    }

    proptest! {
        #[test]
        fn any_text_is_a_mapping_or_none(text in near()) {
            if let Some((m, path)) = parse(&text) {
                prop_assert!(path.len() <= 1024 && text.ends_with(path) | (path.len() == 1024));
                prop_assert!(m.rights <= READ | WRITE | EXECUTE | PRIVATE);
            }
        }

        #[test]
        fn any_bytes_are_a_mapping_or_none(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&text);
        }

        #[test]
        fn what_the_kernel_writes_comes_back(
            start in 0..1usize << 47, len in 1..1usize << 40, offset in any::<u32>(), inode in any::<u64>(), rights in 0..16u32,
            path in "(/[a-z .\u{e4}]{1,300})?",
        ) {
            let bit = |of: u32, letter: char, none: char| if rights & of != 0 { letter } else { none };
            let letters: String =
                [bit(READ, 'r', '-'), bit(WRITE, 'w', '-'), bit(EXECUTE, 'x', '-'), bit(PRIVATE, 'p', 's')].iter().collect();
            let end = start + len;
            let line = format!("{start:x}-{end:x} {letters} {offset:08x} fd:01 {inode}    {path}");
            let (m, found) = parse(line.as_bytes()).expect("a line of the kernel's");
            prop_assert_eq!(m, Mapping { start, end, offset: offset.into(), inode, rights });
            prop_assert_eq!(found, path.as_bytes());
        }

        #[test]
        fn a_number_is_what_the_library_reads(text in "[0-9a-f]{0,20}[-: x]?.{0,3}") {
            let digits: String = text.chars().take_while(char::is_ascii_hexdigit).collect();
            let expected = u64::from_str_radix(&digits, 16).ok();
            prop_assert_eq!(number(text.as_bytes(), 16).map(|(n, _)| n), expected);
        }
    }

    #[test]
    fn lines_of_the_maps_are_understood() {
        let (r, path) = parse(b"7f12a000-7f12b000 r-xp 0001f000 fd:01 1049  /usr/lib/lib c.so.6").unwrap();
        assert_eq!((r.start, r.end, r.offset, r.inode), (0x7f12_a000, 0x7f12_b000, 0x1f000, 1049));
        assert_eq!((r.rights, path), (READ | EXECUTE | PRIVATE, &b"/usr/lib/lib c.so.6"[..]));
        let (r, path) = parse(b"7ffd1000-7ffd2000 rw-p 00000000 00:00 0 ").unwrap();
        assert_eq!((r.rights, path.len()), (READ | WRITE | PRIVATE, 0));
        for bad in [&b""[..], b"zz", b"1-2", b"1-2 r-xp", b"1-2 r-xp 0 fd"] {
            assert!(parse(bad).is_none(), "{bad:?}");
        }
    }

    /// A file in a deep folder has a path of up to 4,095 bytes.
    #[test]
    fn a_line_that_does_not_fit_is_cut_and_the_next_are_there() {
        let deep = format!("/{}", "folder/".repeat(200));
        let line = |i: usize, path: &str| format!("{i}000-{i}800 r-xp 00000000 fd:01 {i}    {path}\n");
        let all = [line(1, "/short"), line(2, &deep), line(3, "/short"), line(4, &deep)].concat();
        for (room, piece) in [(256, 1), (256, 100), (512, 4096), (1400, 1399), (1500, 7), (4096, 4096)] {
            let (mut left, mut found) = (all.as_bytes(), Vec::new());
            let read = |to: &mut [u8]| {
                let (now, later) = left.split_at(left.len().min(to.len()).min(piece));
                to[..now.len()].copy_from_slice(now);
                left = later;
                now.len()
            };
            lines(&mut vec![0; room], read, |m, path| {
                assert!(deep.as_bytes().starts_with(path) || path == b"/short", "with room for {room} bytes");
                found.push(m.inode);
                false
            });
            assert_eq!(found, [1, 2, 3, 4], "with room for {room} bytes, {piece} at a time");
        }
    }

    #[test]
    fn our_own_code_is_on_the_maps_however_small_the_room() {
        let here = our_own_code_is_on_the_maps_however_small_the_room as *const () as usize;
        for room in [512, 4096, 1 << 16] {
            let (mut found, mut last) = (0, 0);
            each(&mut vec![0; room], |m, _| {
                assert!(m.start >= last && m.end > m.start);
                last = m.end;
                found += usize::from((m.start..m.end).contains(&here) && m.rights & EXECUTE != 0);
                false
            });
            assert_eq!(found, 1, "with room for {room} bytes");
        }
    }
}

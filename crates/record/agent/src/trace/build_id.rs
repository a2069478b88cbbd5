//! The build id of an ELF file: a number from the linker, which identifies its symbols and distinguishes it from a later
//! build.

/// Bytes of a file that are read at a time: its head with the program headers, or notes.
pub const ROOM: usize = 4096;
/// Maximum length of an id (usual: 20; `ld --build-id=0x...` accepts any).
const LONGEST: usize = 64;

const PROGRAM_HEADER: usize = 56;
const PT_NOTE: u32 = 4;
const NT_GNU_BUILD_ID: u32 = 3;

/// The id of a 64-bit file, empty if it has none. `read` copies the file's bytes at an offset and returns their number.
/// It is called once for most files, and at most once more for each segment of notes. `room`: [`ROOM`] bytes.
pub fn find(room: &mut [u8], mut read: impl FnMut(u64, &mut [u8]) -> Option<usize>) -> &[u8] {
    let (at, len) = range(room, &mut read).unwrap_or_default();
    room.get(at..at + len).unwrap_or(&[])
}

/// Position of the id in `room`.
fn range(room: &mut [u8], read: &mut impl FnMut(u64, &mut [u8]) -> Option<usize>) -> Option<(usize, usize)> {
    let n = read(0, room)?;
    let head = room.get(..n)?;
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (first, each, count) = (u64_at(head, 32)?, u16_at(head, 54)?, u16_at(head, 56)?);
    let first = usize::try_from(first).ok()?;
    // The segments of notes: offset in the file, and length.
    let mut notes = [(0, 0); 4];
    let mut segments = 0;
    for i in 0..usize::from(count) {
        let at = first.checked_add(i * usize::from(each))?;
        let Some(header) = head.get(at..).and_then(|h| h.get(..PROGRAM_HEADER)) else { break };
        if u32_at(header, 0) == Some(PT_NOTE)
            && let Some(to) = notes.get_mut(segments)
        {
            *to = (u64_at(header, 8)?, usize::try_from(u64_at(header, 32)?).ok()?);
            segments += 1;
        }
    }
    for &(offset, len) in notes.get(..segments)? {
        if let Some(at) = usize::try_from(offset).ok().filter(|at| at.saturating_add(len) <= n) {
            let found = in_notes(room.get(at..at + len)?);
            if let Some((from, len)) = found {
                return Some((at + from, len));
            }
        }
    }
    // (This overwrites the bytes that were read.)
    for &(offset, len) in notes.get(..segments)? {
        let len = len.min(room.len());
        let n = read(offset, room.get_mut(..len)?)?;
        if let Some(found) = in_notes(room.get(..n)?) {
            return Some(found);
        }
    }
    None
}

fn in_notes(notes: &[u8]) -> Option<(usize, usize)> {
    let mut at = 0usize;
    loop {
        let note = notes.get(at..)?;
        let (name, len, kind) = (u32_at(note, 0)? as usize, u32_at(note, 4)? as usize, u32_at(note, 8)?);
        let from = 12 + name.checked_next_multiple_of(4)?;
        if kind == NT_GNU_BUILD_ID && note.get(12..12 + name) == Some(b"GNU\0") {
            let whole = (1..=LONGEST).contains(&len) && note.len() >= from + len;
            return whole.then_some((at + from, len));
        }
        at = at.checked_add(from)?.checked_add(len.checked_next_multiple_of(4)?)?;
    }
}

fn u16_at(b: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(b.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(b: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(b.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(b: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(b.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ID: [u8; 20] = *b"twenty bytes of some";

    fn note(name: &[u8], kind: u32, id: &[u8]) -> Vec<u8> {
        let mut out = [name.len() as u32, id.len() as u32, kind].map(u32::to_le_bytes).concat();
        for part in [name, id] {
            out.extend(part);
            out.resize(out.len().next_multiple_of(4), 0);
        }
        out
    }

    /// A file with these notes at an offset.
    fn file(offset: usize, notes: &[u8]) -> Vec<u8> {
        let mut out = vec![0; offset.max(64 + 2 * PROGRAM_HEADER)];
        out[..6].copy_from_slice(b"\x7fELF\x02\x01");
        out[32] = 64;
        (out[54], out[56]) = (PROGRAM_HEADER as u8, 2);
        let header = &mut out[64 + PROGRAM_HEADER..];
        header[0] = PT_NOTE as u8;
        header[8..16].copy_from_slice(&(offset as u64).to_le_bytes());
        header[32..40].copy_from_slice(&(notes.len() as u64).to_le_bytes());
        out.truncate(offset.max(64 + 2 * PROGRAM_HEADER));
        out.extend(notes);
        out
    }

    fn found(file: &[u8]) -> (Vec<u8>, usize) {
        let (mut room, mut reads) = (vec![0; ROOM], 0);
        let id = find(&mut room, |at, to| {
            reads += 1;
            let part = file.get(usize::try_from(at).ok()?..)?;
            let n = part.len().min(to.len());
            to[..n].copy_from_slice(&part[..n]);
            Some(n)
        });
        (id.to_vec(), reads)
    }

    #[test]
    fn an_id_is_found_near_the_beginning_and_far_from_it() {
        let notes = [note(b"GNU\0", 5, &[1; 12]), note(b"x\0", 3, &ID), note(b"GNU\0", 3, &ID)].concat();
        assert_eq!(found(&file(1000, &notes)), (ID.to_vec(), 1));
        assert_eq!(found(&file(100_000, &notes)), (ID.to_vec(), 2));
        assert_eq!(found(&file(1000, &notes[..40])), (vec![], 2), "no such note");
        assert!(found(b"#!/bin/sh").0.is_empty());
        for long in [0, LONGEST + 1] {
            assert!(found(&file(1000, &note(b"GNU\0", 3, &vec![1; long]))).0.is_empty(), "{long} bytes");
        }
    }

    /// The id that the linker wrote into the program that runs this test, if it did.
    #[test]
    fn this_program_has_the_id_that_readelf_prints() {
        let exe = std::env::current_exe().unwrap();
        let Ok(out) = std::process::Command::new("readelf").arg("-n").arg(&exe).output() else { return };
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let said = text.lines().find_map(|l| l.trim().strip_prefix("Build ID: ").map(str::to_owned));
        let id: String = found(&std::fs::read(exe).unwrap()).0.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(id, said.unwrap_or_default());
    }

    proptest! {
        #[test]
        fn any_bytes_have_an_id_or_none(
            at in 0..6000usize, noise in proptest::collection::vec((0..400usize, any::<u8>()), 0..8),
        ) {
            let mut bytes = file(at, &note(b"GNU\0", 3, &ID));
            let len = bytes.len();
            noise.iter().for_each(|(at, with)| bytes[at % len] = *with);
            let (id, reads) = found(&bytes);
            prop_assert!(id.len() <= LONGEST && reads <= 5, "{id:?}, {reads} reads");
        }
    }
}

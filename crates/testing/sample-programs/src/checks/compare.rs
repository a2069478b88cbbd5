//! Describes differences and their places.

/// Describes where `got` differs from what it should be; `None` if they are equal.
pub fn difference(expected: &[u8], got: &[u8]) -> Option<String> {
    if expected == got {
        return None;
    }
    if expected.len() != got.len() {
        return Some(format!("{} bytes arrived instead of {}", got.len(), expected.len()));
    }
    let mut wrong = expected.iter().zip(got).enumerate().filter(|(_, (e, g))| e != g);
    let (first, (e, g)) = wrong.next()?;
    let more = wrong.count();
    let values = format!("{g:#04x} instead of {e:#04x}");
    let last = expected.len() - 1;
    Some(match more {
        0 if first == last => format!("last byte differs at offset {last} of {} bytes: {values}", expected.len()),
        _ => {
            format!("{} of {} bytes differ, the first at offset {first}: {values}", more + 1, expected.len())
        }
    })
}

/// Describes what was written outside of `before.len() - 2 * guard` bytes between two guards of `guard` bytes.
pub fn guards(before: &[u8], after: &[u8], guard: usize) -> Option<String> {
    let end = before.len().checked_sub(guard)?;
    let wrong = |range: std::ops::Range<usize>| range.into_iter().find(|&i| before.get(i) != after.get(i));
    if let Some(at) = wrong(0..guard.min(end)) {
        return Some(format!("a byte was written {} before the start: {}", guard - at, change(before, after, at)));
    }
    let at = wrong(end..before.len())?;
    Some(format!("a byte was written {} past the end: {}", at - end + 1, change(before, after, at)))
}

fn change(before: &[u8], after: &[u8], at: usize) -> String {
    let byte = |bytes: &[u8]| bytes.get(at).copied().unwrap_or_default();
    format!("{:#04x} became {:#04x}", byte(before), byte(after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_say_where() {
        assert_eq!(difference(b"same", b"same"), None);
        assert_eq!(
            difference(b"abcd", b"abcx").unwrap(),
            "last byte differs at offset 3 of 4 bytes: 0x78 instead of 0x64"
        );
        assert_eq!(
            difference(b"abcd", b"axcx").unwrap(),
            "2 of 4 bytes differ, the first at offset 1: 0x78 instead of 0x62"
        );
        assert_eq!(difference(b"ab", b"a").unwrap(), "1 bytes arrived instead of 2");
    }

    #[test]
    fn guards_say_how_far_outside() {
        assert_eq!(guards(b"GG..GG", b"GGxyGG", 2), None);
        assert_eq!(guards(b"GG..GG", b"GGxyzG", 2).unwrap(), "a byte was written 1 past the end: 0x47 became 0x7a");
        assert_eq!(guards(b"GG..GG", b"GzxyGG", 2).unwrap(), "a byte was written 1 before the start: 0x47 became 0x7a");
    }
}

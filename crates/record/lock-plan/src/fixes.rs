//! Fixes by name, and what they did.

use crate::Error;
use std::fmt::Write;
use std::sync::atomic::Ordering;
use tape::fix::{Why, fix};
use tape::policy::Board;

/// All fixes, as `--fix` without a value means.
pub const ALL: u32 = fix::PINS | fix::COPIES;

/// The bits of a list of names with commas between them.
///
/// # Errors
/// An unknown name.
pub fn of_names(list: &str) -> Result<u32, Error> {
    let bit = |name: &str| fix::NAMES.iter().position(|n| n.eq_ignore_ascii_case(name)).map(|i| 1 << i);
    list.split(',').map(str::trim).try_fold(0, |bits, name| {
        bit(name).map(|bit| bits | bit).ok_or_else(|| Error::Fixes { list: list.into(), name: name.into() })
    })
}

/// The lines of the report.
pub fn text(b: &Board) -> String {
    let mut out = String::new();
    for (i, count) in b.fixed.iter().enumerate() {
        if b.fixes >> i & 1 == 0 {
            continue;
        }
        let name = fix::NAMES[i];
        let answered = count.answered.load(Ordering::Relaxed);
        let bytes = count.bytes.load(Ordering::Relaxed);
        let answered = numbers::of(answered, "call");
        let _ = writeln!(out, "doorbell: {name}: {answered} answered, {}", numbers::bytes(bytes));
        for (n, why) in count.passed_on.iter().zip(Why::TEXT) {
            let n = n.load(Ordering::Relaxed);
            if n != 0 {
                let _ = writeln!(out, "doorbell: {name}: {n} passed on: {why}");
            }
        }
        match count.turned_off.load(Ordering::Relaxed) {
            0 => {}
            result => {
                let _ = writeln!(out, "doorbell: {name} turned itself off: a step had the result {}", result - 1);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bits_in_any_order_and_case() {
        assert_eq!(of_names("pins").unwrap(), fix::PINS);
        assert_eq!(of_names("Copies, pins").unwrap(), ALL);
        let wrong = of_names("pins,launches").unwrap_err();
        assert_eq!(wrong.to_string(), "--fix pins,launches: there is no fix `launches`");
        assert!(wrong.hint().contains("pins, copies"));
    }
}

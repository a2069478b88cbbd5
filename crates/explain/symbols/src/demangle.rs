//! Symbols as their source spells them.

use cpp_demangle::DemangleOptions;

/// Bytes of a name that are kept: instances of templates have names of many KiB.
const LONGEST: usize = 512;

/// The name of a function or variable. Characters that would move a terminal's cursor are replaced.
pub fn name(symbol: &[u8]) -> String {
    // (A version, as of `memcpy@@GLIBC_2.14`, is no part of it.)
    let end = symbol.iter().position(|b| *b == b'@').filter(|at| *at > 0).unwrap_or(symbol.len());
    let symbol = String::from_utf8_lossy(&symbol[..end.min(1 << 16)]);
    let name = rust(&symbol).or_else(|| cpp(&symbol)).unwrap_or_else(|| symbol.into_owned());
    printable(&name)
}

/// Without control characters, and no longer than a name.
pub fn printable(text: &str) -> String {
    let mut out: String = text.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    if out.len() > LONGEST {
        let end = (0..=LONGEST).rev().find(|at| out.is_char_boundary(*at)).unwrap_or(0);
        out.truncate(end);
        out.push_str("..");
    }
    out
}

fn rust(symbol: &str) -> Option<String> {
    // (Without the hash at the end.)
    rustc_demangle::try_demangle(symbol).ok().map(|name| format!("{name:#}"))
}

/// Without parameters, as a debugger says where it is.
fn cpp(symbol: &str) -> Option<String> {
    if !symbol.starts_with("_Z") {
        return None;
    }
    let options = DemangleOptions::new().no_params().no_return_type();
    cpp_demangle::Symbol::new(symbol).ok()?.demangle_with_options(&options).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_those_of_the_source() {
        let cases = [
            ("push_work", "push_work"),
            ("pthread_mutex_lock@@GLIBC_2.2.5", "pthread_mutex_lock"),
            ("_ZN5queue4pushEi", "queue::push"),
            ("_ZL4lock", "lock"),
            ("_ZN4core3ptr13drop_in_place17h0123456789abcdefE", "core::ptr::drop_in_place"),
            ("_RNvCs1234_7mycrate3foo", "mycrate::foo"),
            ("@odd", "@odd"),
            ("a\u{1b}[2Jb", "a?[2Jb"),
        ];
        for (symbol, expected) in cases {
            assert_eq!(name(symbol.as_bytes()), expected, "{symbol}");
        }
        assert_eq!(name("é".repeat(1000).as_bytes()).len(), LONGEST + 2);
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_name(symbol in proptest::collection::vec(any::<u8>(), 0..80), mangled in "_(Z|R)[A-Za-z0-9_.]{0,60}") {
            name(&symbol);
            name(mangled.as_bytes());
        }
    }
}

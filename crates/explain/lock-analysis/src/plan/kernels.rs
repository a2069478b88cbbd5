//! Kernels that are loaded with their code: on the board, and what became of them.

use crate::plan::Kernel;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::Ordering;
use tape::fix::{Kernels, loaded};

/// Whether kernels with these names have room on the board.
pub fn fit<'a>(names: impl Iterator<Item = &'a str> + Clone) -> bool {
    names.clone().count() <= Kernels::MOST && names.map(|name| name.len() + 1).sum::<usize>() <= Kernels::NAMES
}

/// Writes those that [`fit`].
pub(crate) fn write(kernels: &[Kernel], to: &mut Kernels) {
    let mut at = 0;
    for (place, kernel) in to.kernels.iter_mut().zip(kernels) {
        let name = kernel.name.as_bytes();
        // (A NUL follows: the board was zeroed.)
        let Some(bytes) = to.names.get_mut(at..at + name.len() + 1) else { return };
        bytes[..name.len()].copy_from_slice(name);
        (place.hash, place.name) = (kernel.hash, at as u32);
        at += bytes.len();
        to.count += 1;
    }
}

/// Maximum number of names in a line.
const NAMED: usize = 10;

fn why(state: u32) -> String {
    match state {
        loaded::NOT_SEEN => {
            "no code with its hash was loaded: the binary has changed, or the program did not use it".into()
        }
        loaded::NO_MOMENT => "no context was current, or a stream was being captured".into(),
        loaded::NOT_POSSIBLE => "this driver cannot load kernels, or too many libraries waited for a context".into(),
        result => format!("CUDA's result was {}", result.wrapping_sub(loaded::FAILED) as i32),
    }
}

/// The lines of the report.
pub fn text(kernels: &[Kernel], board: &Kernels) -> String {
    let mut early = 0;
    let mut others: BTreeMap<(u32, &str), Vec<&str>> = BTreeMap::new();
    for (kernel, place) in kernels.iter().zip(&board.kernels) {
        match place.state.load(Ordering::Relaxed) {
            loaded::EARLY => early += 1,
            state => {
                let library = kernel.library.as_deref().unwrap_or("code in memory");
                others.entry((state, library)).or_default().push(&kernel.name);
            }
        }
    }
    let mut out = String::new();
    if !kernels.is_empty() {
        let _ = writeln!(out, "doorbell: kernels: {early} of {} loaded early", kernels.len());
    }
    for ((state, library), names) in others {
        let (n, some) = (names.len(), names.get(..NAMED.min(names.len())).unwrap_or(&[]).join(", "));
        let more = if n > NAMED { ", .." } else { "" };
        let _ = writeln!(out, "doorbell: kernels: {n} of {library} not loaded early ({some}{more}): {}", why(state));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_names_what_was_not_loaded_and_why() {
        let kernel = |library: Option<&str>, name: &str, hash| Kernel {
            library: library.map(Into::into),
            name: name.into(),
            hash,
        };
        let kernels = [
            kernel(Some("app"), "a", 7),
            kernel(Some("app"), "bc", 7),
            kernel(Some("libx"), "d", 8),
            kernel(None, "e", 9),
        ];
        // SAFETY: zeros are valid: numbers and atomics only.
        let mut board: Box<Kernels> = unsafe { Box::new_zeroed().assume_init() };
        write(&kernels, &mut board);
        let of = |hash| board.of(hash).map(|(_, name)| name.to_str().unwrap().to_owned()).collect::<Vec<_>>();
        assert_eq!((of(7), of(9), of(1)), (vec!["a".into(), "bc".into()], vec!["e".to_owned()], vec![]));
        for (place, state) in
            board.kernels.iter().zip([loaded::EARLY, loaded::EARLY, loaded::NOT_SEEN, loaded::FAILED + 500])
        {
            place.state.store(state, Ordering::Relaxed);
        }
        let text = text(&kernels, &board);
        for line in [
            "kernels: 2 of 4 loaded early\n",
            "1 of libx not loaded early (d): no code with its hash",
            "1 of code in memory not loaded early (e): CUDA's result was 500",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(!fit(["a"; Kernels::MOST + 1].into_iter()) && fit(["a"; Kernels::MOST].into_iter()));
    }
}

//! Lists of CPUs as the kernel writes them: `0-3,8`.

use crate::value::Known;

/// Larger numbers are no CPU's.
const MOST: usize = 1 << 16;

/// Sorted, each once. Empty text is an empty list.
pub fn parse(text: &str) -> Known<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',').map(str::trim).filter(|p| !p.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (first.parse::<usize>(), last.parse::<usize>()) {
            (Ok(a), Ok(b)) if a <= b && b < MOST => cpus.extend(a..=b),
            _ => return Err(format!("{part:?} is no range of CPUs")),
        }
        if cpus.len() > MOST {
            return Err(format!("more than {MOST} CPUs"));
        }
    }
    cpus.sort_unstable();
    cpus.dedup();
    Ok(cpus)
}

/// `0-3,8` of sorted numbers.
pub fn ranges(cpus: &[usize]) -> String {
    let runs = cpus.chunk_by(|a, b| a + 1 == *b).map(|run| match run {
        [one] => one.to_string(),
        run => format!("{}-{}", run[0], run[run.len() - 1]),
    });
    runs.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn as_the_kernel_writes_them() {
        assert_eq!(parse("0-3,8\n"), Ok(vec![0, 1, 2, 3, 8]));
        assert_eq!(parse(""), Ok(vec![]));
        assert_eq!(ranges(&[0, 1, 2, 8]), "0-2,8");
        for wrong in ["a", "3-1", "1-", "-1", "0-99999999999", "1-2-3"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    proptest::proptest! {
        #[test]
        fn written_and_parsed_is_the_same(cpus: BTreeSet<u16>) {
            let cpus: Vec<usize> = cpus.into_iter().map(usize::from).filter(|c| *c < MOST).collect();
            proptest::prop_assert_eq!(parse(&ranges(&cpus)), Ok(cpus));
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in ".{0,40}") {
            let _ = parse(&text);
        }
    }
}

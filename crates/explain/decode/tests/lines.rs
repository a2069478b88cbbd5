//! Every instruction of some code has the line that CPython says, in each version.
//!
//! `fixtures/lines.py` writes what is compared with.

use decode::python_frames::lines::Lines;

const SAID: [(u8, &str); 5] = [
    (9, include_str!("../fixtures/lines-3.9.txt")),
    (10, include_str!("../fixtures/lines-3.10.txt")),
    (11, include_str!("../fixtures/lines-3.11.txt")),
    (12, include_str!("../fixtures/lines-3.12.txt")),
    (13, include_str!("../fixtures/lines-3.13.txt")),
];

#[test]
fn every_instruction_has_the_line_that_cpython_says() {
    for (minor, said) in SAID {
        let mut compared = 0;
        for row in said.lines() {
            let mut parts = row.split(' ');
            let (name, first, table) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
            let first = first.parse().unwrap();
            let table: Vec<u8> = match table {
                "-" => Vec::new(),
                hex => (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect(),
            };
            let lines = Lines::of(&table, minor, first);
            for range in parts {
                let (range, expected) = range.split_once(':').unwrap();
                let (from, to) = range.split_once('-').unwrap();
                let expected: Option<u32> = expected.parse().ok();
                for at in from.parse::<u32>().unwrap()..to.parse().unwrap() {
                    assert_eq!(lines.at(at), expected, "3.{minor} {name} at {at}");
                    compared += 1;
                }
            }
        }
        assert!(compared > 1500, "3.{minor}: {compared}");
    }
}

//! The documentation page about other chips agrees with the class tables, and their graphs are refused by name.

#[path = "../../pushbuf/tests/chips/words.rs"]
mod words;

use cuda_graph::{Channel, Refused, Segment, learn};
use pushbuf::class;
use pushbuf::qmd::Layout;
use words::{KERNEL, Kernel};

const PAGE: &str = include_str!("../../../../docs/reference/launch-chips.md");
const VERSIONS: [(u8, u8); 4] = [(2, 4), (3, 0), (4, 0), (5, 0)];
const CLASSES: [u32; 6] = [0xc6c0, 0xc7c0, 0xc9c0, 0xcbc0, 0xcdc0, 0xcec0];

/// Cells of the tables' rows.
fn rows() -> impl Iterator<Item = Vec<&'static str>> {
    PAGE.lines().filter_map(|line| Some(line.strip_prefix('|')?.strip_suffix('|')?.split('|').map(str::trim).collect()))
}

#[test]
fn fields_of_qmds_are_at_the_offsets_on_the_page() {
    let mut checked = 0;
    for row in rows().filter(|row| row.len() == 5 && row[1].starts_with('`')) {
        for (cell, (major, minor)) in row[1..].iter().zip(VERSIONS) {
            let layout = Layout::of(major, minor).unwrap();
            let mut words = cell.trim_matches('`').split(' ');
            let name = words.next().unwrap();
            let field = layout.field(name).unwrap_or_else(|| panic!("{name} of {major}.{minor}"));
            let (hi, lo) = words.next().and_then(|bits| bits.split_once(':')).unwrap();
            let stride = words.next().map_or("0", |stride| stride.trim_start_matches('+'));
            let said = [hi, lo, stride].map(|number| number.parse::<u16>().unwrap());
            assert_eq!(said, [field.hi, field.lo, field.stride], "{name} of {major}.{minor}");
            checked += 1;
        }
    }
    assert_eq!(checked, 80);
}

#[test]
fn all_chips_have_the_methods_that_the_page_names() {
    let mut checked = 0;
    for row in rows().filter(|row| row.len() == 3 && row[1].starts_with("0x")) {
        let (name, address) = (row[0].trim_matches('`'), u16::from_str_radix(&row[1][2..], 16).unwrap());
        for id in CLASSES {
            let found = class::by_id(id).unwrap().method(address).unwrap_or_else(|| panic!("{name} of {id:#x}"));
            assert_eq!(found.method.name, name, "{id:#x}");
            checked += 1;
        }
    }
    assert_eq!(checked, 30);
    let calls = |id: &u32| class::by_id(*id).unwrap().method_named("CALL_MME_MACRO").is_some();
    assert_eq!(CLASSES.iter().map(calls).collect::<Vec<_>>(), [false, true, true, true, true, true]);
    assert!(Layout::of(2, 3).is_none_or(|layout| layout.field("DEPENDENCE_COUNTER").is_none()));
}

/// Two kernels, of which one starts the other, on each chip and with each version: a graph of another version than 4.0 is refused by that, and its
/// kernels are known nevertheless.
#[test]
fn graphs_of_other_chips_are_refused_by_their_version() {
    const FIRST: u64 = 0x2_0480_0400;
    const SECOND: u64 = 0x2_0480_0800;
    for chip in &words::CHIPS {
        let [class, compute, copy] = chip.classes;
        let channels = [Channel { class, engines: vec![compute, copy], group: None }];
        for (major, minor, layout) in chip.qmds {
            let second = Kernel { grid: [7, 1, 1], ..KERNEL };
            let again = words::pcas2(FIRST);
            let upload = [
                words::write(SECOND, &layout(&second)),
                words::write(FIRST, &layout(&Kernel { next: Some(SECOND), ..KERNEL })),
                again.clone(),
            ]
            .concat();
            let name = format!("{} {major}.{minor}", chip.name);
            let (upload, again) = ([Segment { channel: 0, words: &upload }], [Segment { channel: 0, words: &again }]);
            let refused = learn(&channels, &upload, &[&again]).unwrap_err();
            if (*major, *minor) == (4, 0) {
                assert!(!matches!(refused, Refused::QmdVersion { .. }), "{name}: {refused}");
            } else {
                let text = format!("has version {major}.{minor}; only version 4.0 is understood");
                assert!(refused.to_string().ends_with(&text), "{name}: {refused}");
            }
            let kernels = cuda_graph::kernels(None, &channels, &upload, &again);
            let kernels: Vec<_> = kernels.iter().map(|(qmd, always)| (qmd.grid(), *always)).collect();
            assert_eq!(kernels, [(second.grid, true), (KERNEL.grid, true)], "{name}");
        }
    }
}

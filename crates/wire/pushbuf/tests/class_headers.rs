//! The class tables against headers that they were not made from (`class_headers.tsv`): every method and field has the same place.

use pushbuf::class::by_id;

/// Classes whose headers are whole: doorbell has no method that they do not have.
const WHOLE: [u32; 12] =
    [0xc36f, 0xc46f, 0xc56f, 0xc76f, 0xc3b5, 0xc5b5, 0xc6b5, 0xc7b5, 0xc3c0, 0xc5c0, 0xc6c0, 0xc7c0];

/// For the driver's cancelling of faults only. They share bits with fields that programs use.
const LEFT_OUT: [&str; 2] = ["TLB_INVALIDATE_CANCEL_MMU_ENGINE_ID", "TLB_INVALIDATE_ACCESS_TYPE"];

fn number(text: &str) -> u32 {
    match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).unwrap(),
        None => text.parse().unwrap(),
    }
}

#[test]
fn methods_and_fields_have_the_places_of_other_published_headers() {
    let (mut methods, mut fields) = (std::collections::BTreeMap::<u32, usize>::new(), 0);
    for line in include_str!("class_headers.tsv").lines().filter(|l| !l.starts_with('#')) {
        let [classes, name, offset, stride, places] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        for id in classes.split(' ').map(|id| u32::from_str_radix(id, 16).unwrap()) {
            let class = by_id(id).unwrap_or_else(|| panic!("no class {id:#x}"));
            let method = class.method_named(name).unwrap_or_else(|| panic!("{id:#x} has no {name}"));
            *methods.entry(id).or_default() += 1;
            let place = (u32::from(method.offset), u32::from(method.stride));
            assert_eq!(place, (number(offset), number(stride)), "{id:#x} {name}");
            for (field, bits) in places.split_terminator(' ').map(|place| place.split_once('=').unwrap()) {
                if LEFT_OUT.contains(&field) {
                    continue;
                }
                let of = method.field(field).unwrap_or_else(|| panic!("{id:#x} {name} has no {field}"));
                assert_eq!(format!("{}:{}", of.hi, of.lo), bits, "{id:#x} {name}.{field}");
                fields += 1;
            }
        }
    }
    for id in WHOLE {
        assert_eq!(by_id(id).map(|class| class.methods.len()), methods.get(&id).copied(), "methods of {id:#x}");
    }
    assert!(fields > 1_500, "{fields} fields");
}

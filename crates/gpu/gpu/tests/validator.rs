//! Words that the validator must refuse, and words that it must accept.

use gpu::{HOPPER, Invalid, Ranges, Rules, check};
use proptest::prelude::*;
use pushbuf::encode::{Lines, Words};
use pushbuf::semaphore::Execute;

/// 64 KiB at one address.
struct Range(u64);

const BASE: u64 = 0x2_0080_0000;
const END: u64 = BASE + 0x1_0000;

impl Ranges for Range {
    fn contains(&self, va: u64, length: u64) -> bool {
        va >= self.0 && va.checked_add(length).is_some_and(|end| end <= self.0 + 0x1_0000)
    }
}

fn verdict(graphics: bool, write: impl FnOnce(&mut Words<'_>)) -> Result<(), Invalid> {
    let mut buffer = [0; 4096];
    let mut words = Words::new(&mut buffer);
    write(&mut words);
    check(
        words.as_slice(),
        &Rules { architecture: &HOPPER, graphics, copies: false, launches: &[], space: &Range(BASE) },
    )
}

#[track_caller]
fn refused(graphics: bool, why: &str, write: impl FnOnce(&mut Words<'_>)) {
    let error = verdict(graphics, write).expect_err("it was let through");
    assert!(error.why.contains(why), "refused for another reason: {error}");
}

const LAUNCH: u32 = 0x182;

#[test]
fn good_ones_pass() {
    verdict(false, |w| {
        w.set_object(4, 0xc8b5).unwrap();
        w.nop().unwrap();
        w.copy(4, BASE, BASE + 0x8000, 0x8000, LAUNCH).unwrap();
        w.fill(4, BASE, 7, 0x4000, LAUNCH).unwrap();
        w.copy_release(4, BASE, 1, true).unwrap();
        w.host_release(0, END - 16, 1, true).unwrap();
        let lines = Lines { src: BASE, dst: BASE, src_pitch: 256, dst_pitch: 256, bytes: 256, lines: 256 };
        w.copy_lines(4, lines, LAUNCH).unwrap();
    })
    .unwrap();
    verdict(true, |w| {
        w.set_object(1, 0xcbc0).unwrap();
        w.inline(1, END - 4095, &[1; 4095], 0x41).unwrap();
        w.inc(1, 0x158, &[1, 0, BASE as u32, (BASE >> 32) as u32, 0x8]).unwrap();
    })
    .unwrap();
}

/// A transfer of no bytes has no addresses to check; a wait that lets no other group run must end by itself.
#[test]
fn what_cannot_be_judged_is_refused() {
    refused(false, "no bytes", |w| w.copy(4, BASE, BASE, 0, LAUNCH).unwrap());
    refused(false, "no bytes", |w| {
        w.inc(4, 0x418, &[0]).unwrap();
        w.inc(4, 0x300, &[LAUNCH]).unwrap();
    });
    for graphics in [false, true] {
        refused(graphics, "holds the channel group", |w| w.host_semaphore(0, BASE, 1, Execute::WAIT).unwrap());
        verdict(graphics, |w| w.host_semaphore(0, BASE, 1, Execute::WAIT_AND_SWITCH).unwrap()).unwrap();
    }
}

#[test]
fn addresses_outside_are_refused() {
    let outside = "neither in memory of this address space";
    refused(false, outside, |w| w.copy(4, BASE, END - 7, 8, LAUNCH).unwrap());
    refused(false, outside, |w| w.copy(4, BASE - 1, BASE, 8, LAUNCH).unwrap());
    refused(false, outside, |w| w.copy(4, u64::MAX - 3, BASE, 8, LAUNCH).unwrap());
    refused(false, outside, |w| w.fill(4, END - 4, 7, 2, LAUNCH).unwrap());
    refused(false, outside, |w| w.copy_release(4, END, 1, false).unwrap());
    refused(false, outside, |w| w.host_release(0, END, 1, false).unwrap());
    refused(true, outside, |w| w.inline(1, END - 3, b"data", 0x41).unwrap());
    refused(true, outside, |w| w.inc(1, 0x158, &[1, 0, END as u32, (END >> 32) as u32, 0x8]).unwrap());
    let lines = Lines { src: BASE, dst: BASE, src_pitch: 256, dst_pitch: 256, bytes: 256, lines: 257 };
    refused(false, outside, |w| w.copy_lines(4, lines, LAUNCH).unwrap());
}

#[test]
fn physical_addresses_are_refused() {
    for bit in [12, 13] {
        refused(false, "not allowed", |w| w.copy(4, BASE, BASE, 8, LAUNCH | 1 << bit).unwrap());
    }
    refused(false, "not on the list", |w| w.inc(4, 0x260, &[0]).unwrap());
    refused(false, "not on the list", |w| w.inc(4, 0x264, &[0]).unwrap());
}

#[test]
fn every_bit_of_launch_dma_outside_the_list_is_refused() {
    for bit in (0..32).filter(|bit| 0x0a00_079f >> bit & 1 == 0) {
        refused(false, "not allowed", |w| w.copy(4, BASE, BASE, 8, LAUNCH | 1 << bit).unwrap());
    }
}

#[test]
fn layouts_types_and_pitches() {
    refused(false, "not pitch", |w| w.copy(4, BASE, BASE, 8, 0x102).unwrap());
    refused(false, "not pitch", |w| w.copy(4, BASE, BASE, 8, 0x082).unwrap());
    refused(false, "type", |w| w.copy(4, BASE, BASE, 8, 0x183).unwrap());
    refused(false, "type", |w| w.copy(4, BASE, BASE, 8, 0x19a).unwrap());
    let backwards = Lines { src: BASE, dst: END - 8, src_pitch: 8, dst_pitch: -8i32 as u32, bytes: 8, lines: 4 };
    refused(false, "backwards", |w| w.copy_lines(4, backwards, LAUNCH).unwrap());
    refused(true, "backwards", |w| {
        w.inc(1, 0x180, &[4, 2, (BASE >> 32) as u32, BASE as u32, 0x8000_0000]).unwrap();
        w.inc(1, 0x1b0, &[0x41]).unwrap();
        w.non_inc(1, 0x1b4, &[0; 2]).unwrap();
    });
    // With no lines no address would be checked.
    for address in [BASE, 0, u64::MAX] {
        let none = Lines { src: address, dst: address, src_pitch: 8, dst_pitch: 8, bytes: 8, lines: 0 };
        refused(false, "no lines", |w| w.copy_lines(4, none, LAUNCH).unwrap());
    }
    refused(true, "inline LAUNCH_DMA", |w| w.inline(1, BASE, b"data", 0x40).unwrap());
    // DST_X=SRC_X of one component; then of a component that the source lacks, and the reserved selection.
    let remapped = |w: &mut Words<'_>, components: u32| {
        w.inc(4, 0x708, &[components]).unwrap();
        w.copy(4, BASE, BASE, 8, LAUNCH | 1 << 10).unwrap();
    };
    verdict(false, |w| remapped(w, 0x0003_6660)).unwrap();
    for components in [0x2, 0x4e65_b66b, 0x0003_6661, 0x0003_6667] {
        refused(false, "SET_REMAP_COMPONENTS", |w| remapped(w, components));
    }
}

#[test]
fn lengths_are_bounded() {
    let long = Lines { src: BASE, dst: BASE, src_pitch: 0, dst_pitch: 0, bytes: 8, lines: 1 << 17 };
    refused(false, "too long", |w| w.copy_lines(4, long, LAUNCH).unwrap());
    let wide = Lines { src: BASE, dst: BASE, src_pitch: 0, dst_pitch: 0, bytes: 1 << 20, lines: 1 << 15 };
    refused(false, "too long", |w| w.copy_lines(4, wide, LAUNCH).unwrap());
    refused(true, "size", |w| {
        w.inc(1, 0x188, &[0, 0]).unwrap();
        w.inc(1, 0x180, &[u32::MAX, u32::MAX]).unwrap();
        w.inc(1, 0x1b0, &[0x41]).unwrap();
    });
}

#[test]
fn registers_of_earlier_submissions_are_not_trusted() {
    let unset = "does not set";
    refused(false, unset, |w| w.inc(4, 0x300, &[LAUNCH]).unwrap());
    refused(false, unset, |w| w.inc(4, 0x300, &[0x14]).unwrap());
    refused(false, unset, |w| w.copy(4, BASE, BASE, 8, LAUNCH | 1 << 10).unwrap());
    refused(false, unset, |w| w.inc(0, 0x6c, &[1]).unwrap());
    refused(true, unset, |w| w.inc(1, 0x1b0, &[0x41]).unwrap());
}

#[test]
fn methods_classes_and_subchannels_that_are_not_on_the_list() {
    refused(false, "SET_OBJECT", |w| w.set_object(4, 0xcbc0).unwrap());
    refused(false, "SET_OBJECT", |w| w.set_object(3, 0xc8b5).unwrap());
    refused(true, "SET_OBJECT", |w| w.set_object(1, 0xc8b5).unwrap());
    refused(false, "not on the list", |w| w.inc(4, 0x500, &[0]).unwrap());
    refused(true, "not on the list", |w| w.inc(1, 0x318, &[0]).unwrap());
    refused(false, "subchannel", |w| w.inc(1, 0x300, &[0]).unwrap());
    for host in [0x4, 0x10, 0x1c, 0x28, 0x34, 0x50, 0x84] {
        refused(false, "host method", |w| w.inc(0, host, &[0]).unwrap());
    }
    refused(true, "launch", |w| w.launch(1, BASE).unwrap());
}

#[test]
fn misaligned_semaphores() {
    refused(false, "aligned", |w| w.host_release(0, BASE + 8, 1, false).unwrap());
    refused(false, "aligned", |w| w.copy_release(4, BASE + 8, 1, true).unwrap());
}

#[test]
fn sequences_that_do_not_end_and_headers_that_are_not_used() {
    refused(false, "ends early", |w| w.raw(&[0x2004_8100, 0]).unwrap());
    refused(true, "inline data", |w| {
        w.inline(1, BASE, &[1; 64], 0x41).unwrap();
        let len = w.len();
        w.truncate(len - 17);
        w.non_inc(1, 0x1b4, &[0; 15]).unwrap();
    });
    refused(true, "before all inline data", |w| {
        w.inc(1, 0x188, &[(BASE >> 32) as u32, BASE as u32]).unwrap();
        w.inc(1, 0x180, &[8, 1]).unwrap();
        w.inc(1, 0x1b0, &[0x41]).unwrap();
        w.host_release(0, BASE, 1, false).unwrap();
    });
    refused(true, "without LAUNCH_DMA", |w| w.non_inc(1, 0x1b4, &[0]).unwrap());
    for word in [7 << 29, 6 << 29, 1 << 16, 1 << 18 | 0x5c, 2 << 29 | 1 << 18] {
        refused(false, "header", |w| w.raw(&[word, 0]).unwrap());
    }
    refused(false, "empty", |_| ());
}

/// A graphics channel with a copy engine, and one QMD that may be started.
fn launches(qmds: &[u64], write: impl FnOnce(&mut Words<'_>)) -> Result<(), Invalid> {
    let mut buffer = [0; 256];
    let mut words = Words::new(&mut buffer);
    write(&mut words);
    check(
        words.as_slice(),
        &Rules { architecture: &HOPPER, graphics: true, copies: true, launches: qmds, space: &Range(BASE) },
    )
}

#[test]
fn launches_start_what_somebody_answers_for_and_do_nothing_else() {
    use pushbuf::qmd::PcasAction;
    let granted = [BASE, BASE + 0x200, END - 0x100];
    let (start, decrement) = (PcasAction::InvalidatePrefetchCopySchedule, PcasAction::DecrementDependence);
    launches(&granted, |w| {
        w.inline(1, BASE, &[0; 384], 0x41).unwrap();
        w.inc(1, 0x1698, &[0x1000]).unwrap();
        w.pcas(1, BASE, start).unwrap();
        w.pcas(1, BASE + 0x200, decrement).unwrap();
        w.fill(4, BASE + 0x400, 0, 16, LAUNCH).unwrap();
        w.copy_release(4, BASE + 0x800, 1, false).unwrap();
    })
    .unwrap();
    let refused = |why: &str, write: &dyn Fn(&mut Words<'_>)| {
        let error = launches(&granted, |w| write(w)).expect_err("it was let through");
        assert!(error.why.contains(why), "{error}");
    };
    refused("nobody answers for", &|w| w.pcas(1, BASE + 0x100, start).unwrap());
    refused("neither in memory", &|w| w.pcas(1, END - 0x100, start).unwrap());
    let others = (0..16).filter(|code| ![7, 0xa].contains(code));
    for code in others {
        refused("a PCAS action", &|w| {
            w.inc(1, 0x2b4, &[(BASE >> 8) as u32]).unwrap();
            w.imm(1, 0x2c0, code).unwrap();
        });
    }
    refused("a PCAS action", &|w| {
        w.inc(1, 0x2b4, &[(BASE >> 8) as u32]).unwrap();
        w.inc(1, 0x2c0, &[0x1000a]).unwrap();
    });
    refused("does not set", &|w| w.imm(1, 0x2c0, 0xa).unwrap());
    refused("not on the list", &|w| w.inc(1, 0x1698, &[0x1001]).unwrap());
    refused("not on the list", &|w| w.inc(1, 0x2bc, &[2]).unwrap());
    let none = launches(&[], |w| w.inc(1, 0x1698, &[0x1000]).unwrap());
    assert!(none.unwrap_err().why.contains("not on the list"), "without launches nothing has to be invalidated");
}

#[test]
fn a_graphics_channel_copies_only_where_it_has_a_copy_engine() {
    let copy = |copies| {
        let mut buffer = [0; 32];
        let mut words = Words::new(&mut buffer);
        words.copy(4, BASE, BASE + 64, 8, LAUNCH).unwrap();
        check(
            words.as_slice(),
            &Rules { architecture: &HOPPER, graphics: true, copies, launches: &[], space: &Range(BASE) },
        )
    };
    assert_eq!(copy(true), Ok(()));
    assert_eq!(copy(false).unwrap_err().why, "a subchannel without an object");
}

proptest! {
    /// No words cause a panic, and accepted words name no address outside.
    #[test]
    fn no_input_panics(words: Vec<u32>, graphics: bool, copies: bool) {
        let _ = check(&words, &Rules { architecture: &HOPPER, graphics, copies, launches: &[BASE], space: &Range(BASE) });
    }

    #[test]
    fn copies_pass_exactly_when_they_are_inside(src in -0x1000i64..0x1_1000, dst in -0x1000i64..0x1_1000, len in 1u32..0x1_1000) {
        let (src, dst) = (BASE.wrapping_add_signed(src), BASE.wrapping_add_signed(dst));
        let inside = |va: u64| va >= BASE && va + u64::from(len) <= END;
        let passes = verdict(false, |w| w.copy(4, src, dst, len, LAUNCH).unwrap()).is_ok();
        prop_assert_eq!(passes, inside(src) && inside(dst));
    }
}

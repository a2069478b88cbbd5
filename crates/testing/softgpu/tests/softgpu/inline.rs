//! Inline-to-memory, in the compute class and in 0xA140.

use crate::rig::*;
use doorbell_softgpu::{MacroCount, StandInMacro};
use rm::class::{self, engine};
use std::sync::atomic::Ordering;

fn setup(subch: u32, dst: u64, length: u32, lines: u32, launch: u32) -> Vec<u32> {
    [inc(subch, 0x188, &[hi(dst), lo(dst)]), inc(subch, 0x180, &[length, lines]), inc(subch, 0x1b0, &[launch])].concat()
}

fn words_of(bytes: &[u8]) -> Vec<u32> {
    bytes
        .chunks(4)
        .map(|c| {
            let mut w = [0; 4];
            w[..c.len()].copy_from_slice(c);
            u32::from_le_bytes(w)
        })
        .collect()
}

fn inline(subch: u32, dst: u64, data: &[u8], launch: u32) -> Vec<u32> {
    let mut words = setup(subch, dst, data.len() as u32, 1, launch);
    words.extend(header(3, subch, 0x1b4, &words_of(data)));
    words
}

#[test]
fn inline_copy_in_the_compute_class() {
    let rig = Rig::new();
    let channel = rig.compute_channel();
    for len in [1, 4, 7, 4096, 32764] {
        let data = noise(len, len as u64);
        rig.dst.write(0, &vec![0; len + 8]);
        channel.ok(&inline(1, DST, &data, 0x41));
        assert_eq!(rig.dst.read(0, len), data);
        assert_eq!(rig.dst.read(len, 4), [0; 4], "padding is not written");
    }
    assert_eq!(rig.counters().inline_copies.load(Ordering::Relaxed), 5);
}

#[test]
fn inline_copy_in_class_a140() {
    let rig = Rig::new();
    let channel = rig.channel(engine::GRAPHICS, class::HOPPER_CHANNEL_GPFIFO_A, 64);
    channel.ok(&inc(2, 0, &[class::KEPLER_INLINE_TO_MEMORY_B]));
    channel.ok(&inline(2, DST, b"inline to memory", 0x41));
    assert_eq!(rig.dst.read(0, 16), b"inline to memory");
}

#[test]
fn inline_data_across_headers_and_entries() {
    let rig = Rig::new();
    let channel = rig.compute_channel();
    let data = noise(64, 5);
    let words = words_of(&data);
    let mut first = setup(1, DST, 64, 1, 0x41);
    first.extend(header(3, 1, 0x1b4, &words[..5]));
    first.extend(header(3, 1, 0x1b4, &words[5..9]));
    channel.push(&first);
    channel.push(&header(3, 1, 0x1b4, &words[9..]));
    channel.bell();
    assert_eq!(channel.finish(), None);
    assert_eq!(rig.dst.read(0, 64), data);
}

#[test]
fn inline_multi_line_with_pitch() {
    let rig = Rig::new();
    let channel = rig.compute_channel();
    let mut words = inc(1, 0x190, &[100]);
    words.extend(setup(1, DST, 6, 3, 0x41));
    words.extend(header(3, 1, 0x1b4, &words_of(b"line1.__line2.__line3.__")));
    channel.ok(&words);
    for (line, text) in [b"line1.", b"line2.", b"line3."].iter().enumerate() {
        assert_eq!(rig.dst.read(line * 100, 8), [&text[..], &[0, 0]].concat());
    }
}

#[test]
fn inline_semaphore_on_completion() {
    let rig = Rig::new();
    let channel = rig.compute_channel();
    rig.src.write(0, &[0xff; 32]);
    let semaphore = inc(1, 0x1dc, &[hi(SRC), lo(SRC), 21]);
    channel.ok(&[semaphore.clone(), inline(1, DST, b"data", 0x41 | 2 << 4)].concat());
    assert_eq!(rig.src.u64(0), 21);
    assert!(rig.src.u64(8) != u64::MAX);
    channel
        .ok(&[inc(1, 0x1dc, &[hi(SRC), lo(SRC) + 16, 22]), inline(1, DST, b"data", 0x41 | 2 << 4 | 1 << 12)].concat());
    assert_eq!((rig.src.u32(16), rig.src.u32(20)), (22, u32::MAX));
}

#[test]
fn inline_semaphore_reduction() {
    let rig = Rig::new();
    rig.src.set(0, 40);
    let launch = 0x41 | 2 << 4 | 1 << 12 | 1 << 1;
    rig.compute_channel().ok(&[inc(1, 0x1dc, &[hi(SRC), lo(SRC), 2]), inline(1, DST, b"data", launch)].concat());
    assert_eq!(rig.src.u32(0), 42);
}

#[test]
fn inline_data_without_launch_kills_the_channel() {
    let rig = Rig::new();
    assert_eq!(rig.compute_channel().run(&header(3, 1, 0x1b4, &[1])), Some(13));
}

#[test]
fn too_much_inline_data_kills_the_channel() {
    let rig = Rig::new();
    let mut words = setup(1, DST, 4, 1, 0x41);
    words.extend(header(3, 1, 0x1b4, &[1, 2]));
    assert_eq!(rig.compute_channel().run(&words), Some(13));
}

#[test]
fn a_second_launch_before_the_data_kills_the_channel() {
    let rig = Rig::new();
    let words = [setup(1, DST, 8, 1, 0x41), setup(1, DST, 8, 1, 0x41)].concat();
    assert_eq!(rig.compute_channel().run(&words), Some(13));
}

#[test]
fn inline_to_nowhere_and_block_linear_kill_the_channel() {
    let rig = Rig::new();
    assert_eq!(rig.compute_channel().run(&inline(1, NOWHERE, b"data", 0x41)), Some(31));
    assert_eq!(rig.compute_channel().run(&inline(1, DST, b"data", 0x40)), Some(13));
}

/// Loads two macros, of which the second is called: the table of starts has the beginning of each.
fn load_macro(of: StandInMacro) -> Vec<u32> {
    let [magic, form] = of.words();
    let code = [inc(1, 0x114, &[0]), header(3, 1, 0x118, &[1, 2, 3, magic, form])].concat();
    [code, inc(1, 0x11c, &[0]), header(3, 1, 0x120, &[3, 0])].concat()
}

fn call_macro(arguments: [u32; 2]) -> Vec<u32> {
    header(5, 1, 0x3800, &arguments)
}

#[test]
fn a_macro_brings_the_data_of_an_inline_copy_as_its_arguments_are_set() {
    for (count, number) in [(MacroCount::Words, 3), (MacroCount::WordsLessOne, 2), (MacroCount::Bytes, 10)] {
        for value_last in [false, true] {
            let rig = Rig::new();
            let channel = rig.compute_channel();
            let fill = StandInMacro { value_last, count, ..StandInMacro::default() };
            let arguments = if value_last { [number, 0x0102_0304] } else { [0x0102_0304, number] };
            // (10 bytes: of the third word two are written.)
            let words = [load_macro(fill), setup(1, DST, 10, 1, 0x41), call_macro(arguments)].concat();
            rig.dst.write(0, &[0xee; 12]);
            channel.ok(&words);
            assert_eq!(rig.dst.read(0, 12), [4, 3, 2, 1, 4, 3, 2, 1, 4, 3, 0xee, 0xee], "{fill:?}");
        }
    }
}

#[test]
fn a_macro_of_other_instructions_brings_no_data() {
    let rig = Rig::new();
    let channel = rig.compute_channel();
    rig.dst.write(0, &[0xee; 8]);
    channel.ok(&[setup(1, DST, 8, 1, 0x41), call_macro([7, 2])].concat());
    assert_eq!(rig.dst.read(0, 8), [0xee; 8]);
    let complements = StandInMacro { complements: true, ..StandInMacro::default() };
    let channel = rig.compute_channel();
    channel.ok(&[load_macro(complements), setup(1, DST, 8, 1, 0x41), call_macro([7, 2])].concat());
    assert_eq!(rig.dst.u64(0), !0x0000_0007_0000_0007);
}

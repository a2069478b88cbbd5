//! Streams as the CUDA driver writes them, and the operations in them.

use proptest::prelude::*;
use pushbuf::decode::Decoder;
use pushbuf::encode::{Lines, Words, inline_dma, launch_dma};
use pushbuf::ops::{
    Component, Copy, Engine, Fill, How, Inline, Launch, Layout, Op, Origin, Purpose, Semaphore, Space, Transfer, What,
};
use pushbuf::qmd::{Layout as QmdLayout, Qmd};
use pushbuf::semaphore::{Execute, Operation, Reduction};

struct Channel {
    decoder: Decoder,
    engine: Engine,
}

impl Channel {
    fn new() -> Channel {
        let mut decoder = Decoder::new(0xc86f);
        decoder.bind(1, 0xcbc0);
        decoder.bind(2, 0xa140);
        decoder.bind(4, 0xc8b5);
        Channel { decoder, engine: Engine::new() }
    }

    fn ops(&mut self, words: &[u32]) -> Vec<Op> {
        let mut out = Vec::new();
        self.engine.segment(&mut self.decoder, words, |op| out.push(*op));
        out
    }
}

fn ops(write: impl FnOnce(&mut Words<'_>)) -> Vec<Op> {
    Channel::new().ops(&words(write))
}

fn words(write: impl FnOnce(&mut Words<'_>)) -> Vec<u32> {
    let mut buffer = vec![0; 20_000];
    let mut w = Words::new(&mut buffer);
    write(&mut w);
    w.as_slice().to_vec()
}

fn copies(ops: &[Op]) -> Vec<Copy> {
    ops.iter().filter_map(|op| if let What::Copy(c) = op.what { Some(c) } else { None }).collect()
}

fn inlines(ops: &[Op]) -> Vec<Inline> {
    ops.iter().filter_map(|op| if let What::Inline(c) = op.what { Some(c) } else { None }).collect()
}

fn launches(ops: &[Op]) -> Vec<Launch> {
    ops.iter().filter_map(|op| if let What::Launch(c) = op.what { Some(c) } else { None }).collect()
}

fn semaphores(ops: &[Op]) -> Vec<Semaphore> {
    ops.iter().filter_map(|op| op.semaphore().copied()).collect()
}

/// A QMD as Hopper has it, and its bytes followed by `constants`.
fn qmd(grid: u64, constants: &[u8]) -> (Qmd, Vec<u8>) {
    let mut qmd = Qmd::new(QmdLayout::of(4, 0).unwrap());
    for (name, value) in [
        ("QMD_TYPE", 2),
        ("GRID_WIDTH", grid),
        ("GRID_HEIGHT", 2),
        ("GRID_DEPTH", 1),
        ("CTA_THREAD_DIMENSION0", 128),
        ("CTA_THREAD_DIMENSION1", 1),
        ("CTA_THREAD_DIMENSION2", 1),
        ("REGISTER_COUNT", 24),
        ("PROGRAM_ADDRESS_UPPER", 0x7f),
        ("PROGRAM_ADDRESS_LOWER", 0x1234_0000),
        ("CONSTANT_BUFFER_VALID", 1),
        ("CONSTANT_BUFFER_SIZE_SHIFTED4", 0x20),
        ("CONSTANT_BUFFER_ADDR_LOWER_SHIFTED6", 0x2_0000_0000_u64 >> 6),
    ] {
        qmd.set(name, value).unwrap();
    }
    let mut bytes: Vec<u8> = qmd.words().iter().flat_map(|w| w.to_le_bytes()).collect();
    bytes.extend(constants);
    (qmd, bytes)
}

/// The 15 words of facts seen on an H100: OFFSET_IN to OFFSET_OUT, LINE_LENGTH_IN, LAUNCH_DMA 0x182, SET_SEMAPHORE, LAUNCH_DMA 0x14.
#[test]
fn the_64_mib_copy_is_one_copy_and_one_timed_release() {
    let words = [
        0x2004_8100,
        0x2,
        0x0440_0000,
        0x7fff,
        0x2000_0000,
        0x2001_8106,
        0x0400_0000,
        0x2001_80c0,
        0x182,
        0x2003_8090,
        0x2,
        0x60_0010,
        0x17,
        0x2001_80c0,
        0x14,
    ];
    let got = Channel::new().ops(&words);
    let copy = Copy {
        src: 0x2_0440_0000,
        dst: 0x7fff_2000_0000,
        line_length: 64 << 20,
        line_count: 1,
        src_pitch: 0,
        dst_pitch: 0,
        multi_line: false,
        transfer: Transfer::NonPipelined,
        src_layout: Layout::Pitch,
        dst_layout: Layout::Pitch,
        src_space: Space::Virtual,
        dst_space: Space::Virtual,
        remap: None,
        scrub: false,
        flush: false,
        semaphore: None,
        launch: 0x182,
    };
    let release = Semaphore {
        origin: Origin::CopyEngine,
        operation: Operation::Release,
        address: 0x2_0060_0010,
        payload: 0x17,
        wide: false,
        timestamp: true,
        wfi: true,
    };
    assert_eq!(got.iter().map(|op| op.what).collect::<Vec<_>>(), [What::Copy(copy), What::Semaphore(release)]);
    assert_eq!((got[0].at.word, got[1].at.word, got[0].subch, got[0].class_id), (8, 14, 4, 0xc8b5));
    assert_eq!(copy.bytes(), 64 << 20);
}

/// The registers that copies of one length share are written once; a launch is then a header and one word.
#[test]
fn copies_that_share_registers_are_copies_each() {
    let target = |n: u64| 0x7f_0000_0000 + 0x1000 * n;
    let found = ops(|w| {
        w.inc(4, 0x418, &[0x1000]).unwrap();
        w.inc(4, 0x400, &[0x2]).unwrap();
        for n in 0..3 {
            w.inc(4, 0x404, &[0x10_0000 + n as u32, (target(n) >> 32) as u32, target(n) as u32]).unwrap();
            w.imm(4, 0x300, launch_dma::PIPELINED | launch_dma::PITCH).unwrap();
        }
        w.copy_release(4, 0x3_0000_0000, 7, false).unwrap();
    });
    let places: Vec<_> = copies(&found).iter().map(|copy| (copy.src, copy.dst, copy.bytes())).collect();
    assert_eq!(places, [0, 1, 2].map(|n| (0x2_0010_0000 + n, target(n), 0x1000)));
    assert_eq!((found.len(), semaphores(&found).len()), (4, 1));
}

#[test]
fn a_release_can_be_folded_into_the_copy() {
    let got = ops(|w| {
        w.copy_semaphore(4, 0x1_0000_0020, 5).unwrap();
        w.copy(
            4,
            1 << 33,
            2 << 33,
            8,
            launch_dma::PIPELINED | launch_dma::PITCH | launch_dma::RELEASE | launch_dma::FLUSH,
        )
        .unwrap();
    });
    assert_eq!(got.len(), 1);
    let copy = copies(&got)[0];
    assert_eq!((copy.transfer, copy.flush), (Transfer::Pipelined, true));
    let semaphore = copy.semaphore.unwrap();
    assert_eq!((semaphore.address, semaphore.payload, semaphore.timestamp), (0x1_0000_0020, 5, false));
}

#[test]
fn lines_have_pitches_and_a_64_bit_reduction_its_operation() {
    let got = ops(|w| {
        w.inc(4, 0x240, &[1, 0x30, 2, 3]).unwrap();
        let lines = Lines { src: 0x1000, dst: 0x2000, src_pitch: 512, dst_pitch: 256, bytes: 100, lines: 7 };
        let reduction = launch_dma::RELEASE | 5 << 14 | 1 << 18 | 1 << 19 | 1 << 27;
        w.copy_lines(4, lines, launch_dma::NON_PIPELINED | launch_dma::PITCH | reduction | 1 << 12 | 1 << 13).unwrap();
    });
    let copy = copies(&got)[0];
    assert_eq!((copy.line_count, copy.src_pitch, copy.dst_pitch, copy.bytes()), (7, 512, 256, 700));
    assert_eq!((copy.src_space, copy.dst_space), (Space::Physical, Space::Physical));
    let semaphore = copy.semaphore.unwrap();
    assert_eq!(semaphore.operation, Operation::Reduction { op: Reduction::Add, signed: false });
    assert_eq!((semaphore.payload, semaphore.wide), (3 << 32 | 2, true));
}

#[test]
fn a_remap_without_a_source_is_a_fill() {
    let got =
        ops(|w| w.fill(4, 0x7f00_0000_1000, 0xdead_beef, 1000, launch_dma::PIPELINED | launch_dma::PITCH).unwrap());
    let What::Fill(fill) = got[0].what else { panic!("{got:?}") };
    assert_eq!(
        (fill.dst, fill.elements, fill.lines, fill.element_bytes, fill.bytes()),
        (0x7f00_0000_1000, 1000, 1, 4, 4000)
    );
    assert_eq!(fill.pattern[..4], [0xef, 0xbe, 0xad, 0xde]);
    assert_eq!(fill.written, 0xf);

    // CONST_A, NO_WRITE, CONST_B of two bytes each.
    let got = ops(|w| {
        w.inc(4, 0x700, &[0x1111_2222, 0x3333_4444, 4 | 6 << 4 | 5 << 8 | 1 << 16 | 2 << 24]).unwrap();
        w.copy(4, 0, 0x1000, 3, launch_dma::PIPELINED | launch_dma::PITCH | launch_dma::REMAP).unwrap();
    });
    let What::Fill(Fill { element_bytes, pattern, written, .. }) = got[0].what else { panic!("{got:?}") };
    assert_eq!((element_bytes, written), (6, 0b11_0011));
    assert_eq!(pattern[..6], [0x22, 0x22, 0, 0, 0x44, 0x44]);
}

#[test]
fn a_remap_that_reads_is_a_copy() {
    let got = ops(|w| {
        // SRC_Y, CONST_A; one byte each, two source and two destination components.
        w.inc(4, 0x708, &[1 | 4 << 4 | 1 << 20 | 1 << 24]).unwrap();
        w.copy(4, 0, 0x1000, 10, launch_dma::PIPELINED | launch_dma::PITCH | launch_dma::REMAP).unwrap();
    });
    let copy = copies(&got)[0];
    let remap = copy.remap.unwrap();
    assert_eq!(remap.destination().collect::<Vec<_>>(), [Component::Source(1), Component::ConstA]);
    assert_eq!((remap.src_bytes(), remap.dst_bytes(), copy.bytes()), (2, 2, 20));
}

#[test]
fn an_inline_copy_of_user_data_is_told_by_its_words() {
    let got = ops(|w| {
        w.nop().unwrap();
        w.inline(1, 0x7f00_0000_0000, &[7; 30], inline_dma::PITCH | inline_dma::NO_SYSMEMBAR).unwrap();
    });
    let inline = inlines(&got)[0];
    assert_eq!(
        (inline.dst, inline.bytes(), inline.complete, inline.purpose),
        (0x7f00_0000_0000, 30, true, Purpose::Data)
    );
    let data = inline.data.unwrap();
    assert_eq!((data.first.word, data.last.word, data.words), (10, 17, 8));
    assert_eq!(got[0].at.word, 8);
}

#[test]
fn an_inline_copy_may_span_headers_segments_and_subchannels_classes() {
    let mut channel = Channel::new();
    let stream = words(|w| {
        w.inc(2, 0x188, &[0, 0x1000]).unwrap();
        w.inc(2, 0x180, &[40_000, 1]).unwrap();
        w.inc(2, 0x1dc, &[1, 0x40, 9]).unwrap();
        w.inc(2, 0x1b0, &[inline_dma::PITCH | inline_dma::RELEASE_TIMED]).unwrap();
        w.non_inc(2, 0x1b4, &vec![1; 8191]).unwrap();
        w.non_inc(2, 0x1b4, &vec![2; 1809]).unwrap();
    });
    let (first, second) = stream.split_at(5000);
    assert_eq!(channel.ops(first), []);
    let got = channel.ops(second);
    let inline = inlines(&got)[0];
    let data = inline.data.unwrap();
    assert_eq!((data.words, inline.complete), (10_000, true));
    assert_eq!((data.first.segment, data.last.segment, data.last.word), (0, 1, second.len() as u32 - 1));
    let semaphore = inline.semaphore.unwrap();
    assert_eq!(
        (semaphore.origin, semaphore.address, semaphore.payload, semaphore.timestamp),
        (Origin::Inline, 1 << 32 | 0x40, 9, true)
    );
}

#[test]
fn an_inline_copy_without_all_its_data_is_incomplete() {
    let got = ops(|w| {
        w.inc(1, 0x180, &[64, 1, 0, 0x1000]).unwrap();
        w.inc(1, 0x1b0, &[0x41]).unwrap();
        w.non_inc(1, 0x1b4, &[1, 2, 3]).unwrap();
        w.inline(1, 0x2000, &[1, 2, 3, 4], 0x41).unwrap();
    });
    let got = inlines(&got);
    assert_eq!((got[0].dst, got[0].complete, got[0].data.unwrap().words), (0x1000, false, 3));
    assert_eq!((got[1].dst, got[1].complete), (0x2000, true));
}

#[test]
fn an_inline_copy_with_data_from_a_macro_is_marked() {
    // A memset of 4 bytes as CUDA writes it (submission 178 of the fixture h200-copies), then an inline copy.
    let got = ops(|w| {
        w.inc(1, 0x180, &[4, 1, 0x7fcd, 0x2e00_0000]).unwrap();
        w.inc(1, 0x1b0, &[0x41]).unwrap();
        w.one_inc(1, 0x3800, &[7, 1]).unwrap();
        w.inline(1, 0x2000, &[1, 2, 3, 4], 0x41).unwrap();
        // A macro call without an inline write that waits for data.
        w.one_inc(1, 0x3800, &[7, 1]).unwrap();
    });
    let got = inlines(&got);
    let said: Vec<_> = got.iter().map(|i| (i.dst, i.bytes(), i.by_macro, i.complete)).collect();
    assert_eq!(said, [(0x7fcd_2e00_0000, 4, true, false), (0x2000, 4, false, true)]);
}

#[test]
fn a_launch_finds_its_qmd_in_the_inline_copy_before_it() {
    let (qmd, bytes) = qmd(108, &[1; 0x90]);
    assert_eq!(bytes.len(), 0x210);
    let got = ops(|w| {
        w.inline(1, 0x2_0080_0000, &bytes, 0x41).unwrap();
        w.launch(1, 0x2_0080_0000).unwrap();
        w.host_release(0, 0x3_0000_0000, 1, false).unwrap();
        w.inline(1, 0x9000, &[5; 16], 0x41).unwrap();
    });
    assert_eq!(inlines(&got).iter().map(|i| i.purpose).collect::<Vec<_>>(), [Purpose::Qmd, Purpose::Data]);
    let launch = launches(&got)[0];
    assert_eq!((launch.qmd_address, launch.how), (0x2_0080_0000, How::Pcas2 { action: 3 }));
    assert_eq!(launch.qmd, Some(qmd));
    assert_eq!(launch.written_at, Some(got[0].at));
    let read = launch.qmd.unwrap();
    assert_eq!((read.grid(), read.block(), read.registers()), ([108, 2, 1], [128, 1, 1], 24));
    assert_eq!(read.program_address(), 0x7f_1234_0000);
    assert!(got.windows(2).all(|w| w[0].at < w[1].at), "operations come in the order of the stream");
}

#[test]
fn a_qmd_in_the_middle_of_a_copy_patched_later_and_launched_in_another_segment() {
    let mut channel = Channel::new();
    let (_, bytes) = qmd(10, &[]);
    let (patched, _) = qmd(77, &[]);
    let mut padded = vec![0u8; 256];
    padded.extend(&bytes);
    let write = words(|w| w.inline(1, 0x1000, &padded, 0x41).unwrap());
    assert_eq!(inlines(&channel.ops(&write))[0].purpose, Purpose::Data);
    // GRID_WIDTH is word 32 of the QMD.
    let launch = words(|w| {
        w.inline(1, 0x1100 + 128, &77u32.to_le_bytes(), 0x41).unwrap();
        w.launch(1, 0x1100).unwrap();
    });
    let got = channel.ops(&launch);
    assert_eq!(launches(&got)[0].qmd, Some(patched));
    assert_eq!(launches(&got)[0].written_at, Some(got[0].at));
    assert_eq!(inlines(&got)[0].purpose, Purpose::Qmd);
}

#[test]
fn a_kernels_parameters_are_told_from_user_data() {
    let (_, bytes) = qmd(1, &[]);
    let got = ops(|w| {
        // Constant buffer 0 of the QMD is at 0x2_0000_0000.
        w.inline(1, 0x2_0000_0010, &[3; 24], 0x41).unwrap();
        w.inline(1, 0x5_0000_0000, &[3; 24], 0x41).unwrap();
        w.inline(1, 0x1000, &bytes, 0x41).unwrap();
        w.launch(1, 0x1000).unwrap();
    });
    let purposes: Vec<_> = inlines(&got).iter().map(|i| i.purpose).collect();
    assert_eq!(purposes, [Purpose::Constants, Purpose::Data, Purpose::Qmd]);
}

/// As recorded from driver 580.159: constant buffer 0 names the kernel at 0x118, and under CUPTI the QMD's program is another.
#[test]
fn the_kernel_that_a_profilers_trampoline_calls_is_named() {
    let (_, bytes) = qmd(1, &[]);
    let kernel = |constants: &[(u64, u64)]| {
        let got = ops(|w| {
            for (offset, value) in constants {
                w.inline(1, 0x2_0000_0000 + offset, &value.to_le_bytes(), 0x41).unwrap();
            }
            w.inline(1, 0x1000, &bytes, 0x41).unwrap();
            w.launch(1, 0x1000).unwrap();
        });
        launches(&got)[0].kernel
    };
    assert_eq!(kernel(&[(0x118, 0x7f_1234_aa00)]), Some(0x7f_1234_aa00));
    // The newest counts, whichever copy wrote it.
    assert_eq!(kernel(&[(0x118, 0x7f_1234_aa00), (0x118, 0x7f_1234_bb00)]), Some(0x7f_1234_bb00));
    // Zero, an address that is not aligned like code, or one in another range.
    for constants in
        [&[][..], &[(0x100, 0x7f_1234_aa00)], &[(0x118, 0)], &[(0x118, 0x7f_1234_aa04)], &[(0x118, 0x80_1234_aa00)]]
    {
        assert_eq!(kernel(constants), None, "{constants:x?}");
    }
}

#[test]
fn a_qmd_that_was_never_seen_is_not_made_up() {
    let got = ops(|w| w.launch(1, 0x1000).unwrap());
    assert_eq!((launches(&got)[0].qmd, launches(&got)[0].written_at), (None, None));
    // Enough data after it that the QMD is forgotten.
    let (_, bytes) = qmd(1, &[]);
    let mut channel = Channel::new();
    channel.ops(&words(|w| w.inline(1, 0x1000, &bytes, 0x41).unwrap()));
    for i in 0..8 {
        channel.ops(&words(|w| w.inline(1, (1 + i) << 24, &[0; 32_000], 0x41).unwrap()));
    }
    assert_eq!(launches(&channel.ops(&words(|w| w.launch(1, 0x1000).unwrap())))[0].qmd, None);
}

#[test]
fn a_qmd_in_methods_launches_with_its_last_word() {
    let (qmd, _) = qmd(9, &[]);
    let got = ops(|w| {
        w.inc(1, 0x318, &[1 << 30 | 1, 0x10]).unwrap();
        w.inc(1, 0x320, qmd.words()).unwrap();
    });
    let launch = launches(&got)[0];
    assert_eq!((launch.how, launch.qmd_address, launch.qmd), (How::InlineQmd, (1 << 32 | 0x10) << 8, Some(qmd)));

    // 256 bytes, version 3, on an Ampere.
    let mut channel = Channel::new();
    channel.decoder.bind(1, 0xc6c0);
    let mut old = Qmd::new(QmdLayout::of(3, 0).unwrap());
    old.set("CTA_RASTER_WIDTH", 5).unwrap();
    let got = channel.ops(&words(|w| w.inc(1, 0x320, old.words()).unwrap()));
    assert_eq!(launches(&got)[0].qmd.unwrap().grid(), [5, 0, 0]);
}

#[test]
fn pcas_actions_that_schedule_nothing_are_no_launches() {
    for (action, count) in [(0, 0), (1, 0), (2, 1), (3, 1), (6, 0), (7, 0), (8, 0), (9, 1), (10, 1), (12, 0)] {
        let got = ops(|w| {
            w.inc(1, 0x2b4, &[0x10]).unwrap();
            w.imm(1, 0x2c0, action).unwrap();
        });
        assert_eq!(launches(&got).len(), count, "action {action}");
    }
    let got = ops(|w| w.inc(1, 0x2b4, &[0x10, 0, 2]).unwrap());
    assert_eq!(launches(&got)[0].how, How::Pcas { invalidate: false });
}

#[test]
fn semaphores_of_the_host() {
    let got = ops(|w| {
        w.host_release(0, 0x7f00_0000_0010, 3, true).unwrap();
        let acquire =
            Execute { operation: Operation::AcquireCircGeq, wide: true, switch_tsg: true, ..Execute::RELEASE };
        w.host_semaphore(1, 0x1000, 1 << 40, acquire).unwrap();
        w.inc(0, 0x10, &[0x12, 0x3000, 6, 4]).unwrap();
        w.inc(0, 0x1c, &[2]).unwrap();
    });
    let s = semaphores(&got);
    assert_eq!((s[0].origin, s[0].operation, s[0].address), (Origin::Host, Operation::Release, 0x7f00_0000_0010));
    assert_eq!((s[0].payload, s[0].timestamp, s[0].wfi), (3, true, true));
    assert_eq!((s[1].operation, s[1].payload, s[1].timestamp), (Operation::AcquireCircGeq, 1 << 40, false));
    assert_eq!(
        (s[2].origin, s[2].operation, s[2].address, s[2].payload),
        (Origin::HostOld, Operation::AcquireCircGeq, 0x12_0000_3000, 6)
    );
    assert_eq!((s[3].operation, s[3].timestamp, s[3].wfi), (Operation::Release, true, true));
}

#[test]
fn semaphores_of_compute() {
    let got = ops(|w| {
        w.inc(1, 0x158, &[1, 2, 0x3000, 4, 1 << 12]).unwrap();
        w.inc(1, 0x168, &[1 | 1 << 3]).unwrap();
        w.inc(1, 0x168, &[3]).unwrap();
        w.inc(1, 0x1b00, &[5, 0x4000, 6, 1 << 28]).unwrap();
        w.inc(1, 0x1b0c, &[1 << 3 | 2 << 9]).unwrap();
    });
    let s = semaphores(&got);
    assert_eq!(s.len(), 4);
    assert_eq!(
        (s[0].operation, s[0].address, s[0].payload, s[0].timestamp),
        (Operation::Release, 4 << 32 | 0x3000, 2 << 32 | 1, true)
    );
    assert_eq!((s[1].operation, s[1].payload, s[1].timestamp), (Operation::Acquire, 1, false));
    assert_eq!(
        (s[2].origin, s[2].address, s[2].payload, s[2].timestamp),
        (Origin::ReportOld, 5 << 32 | 0x4000, 6, false)
    );
    assert_eq!(s[3].operation, Operation::Reduction { op: Reduction::Max, signed: false });
}

#[test]
fn many_operations_after_an_unresolved_copy_are_kept() {
    let got = ops(|w| {
        w.inline(1, 0x1000, &[0; 4], 0x41).unwrap();
        for i in 0..300 {
            w.copy(4, 0, i << 12, 64, 0x182).unwrap();
        }
    });
    assert_eq!(got.len(), 301);
    assert_eq!(copies(&got).iter().map(|c| c.dst >> 12).collect::<Vec<_>>(), (0..300).collect::<Vec<_>>());
}

#[test]
fn unbound_subchannels_are_taken_by_their_fixed_use_and_unknown_classes_of_a_family_by_it() {
    let stream = words(|w| {
        w.copy(4, 1, 2, 3, 0x182).unwrap();
        w.inline(1, 0x1000, &[1], 0x41).unwrap();
        w.copy(3, 1, 2, 3, 0x182).unwrap();
    });
    let mut bare = Channel { decoder: Decoder::new(0xc86f), engine: Engine::new() };
    assert_eq!(bare.ops(&stream).len(), 2);
    let mut next = Channel { decoder: Decoder::new(0xc86f), engine: Engine::new() };
    next.decoder.bind_all(0xd0b5);
    assert_eq!(copies(&next.ops(&stream)).len(), 2);
}

/// An operation without the parts that depend on earlier words: the QMD that an inline copy wrote, and the purpose of an inline copy.
fn told(op: &Op) -> String {
    match op.what {
        What::Inline(i) => format!("{:?}", Inline { purpose: Purpose::Data, ..i }),
        What::Launch(l) => format!("{:?} {:#x}", l.how, l.qmd_address),
        other => format!("{other:?}"),
    }
}

#[test]
fn after_a_hole_what_uses_an_unseen_register_is_guessed() {
    let copy =
        |w: &mut Words<'_>| w.copy(4, 0x1_0000, 0x2_0000, 64, launch_dma::NON_PIPELINED | launch_dma::PITCH).unwrap();
    // Only the destination and the launch come after the gap.
    let rest = words(|w| {
        w.inc(4, 0x408, &[0, 0x3_0000]).unwrap();
        w.inc(4, 0x300, &[launch_dma::NON_PIPELINED | launch_dma::PITCH]).unwrap();
    });
    let mut c = Channel::new();
    c.ops(&words(copy));
    assert!(c.ops(&rest).iter().all(|op| !op.guessed));
    c.engine.forget(&mut |_| ());
    let op = c.ops(&rest)[0];
    assert!(op.guessed, "its source and length were set before the hole");
    assert_eq!(copies(&[op])[0].src, 0, "nothing stale is shown");
    assert!(!c.ops(&words(copy))[0].guessed, "all of it is set again");
    // Inline data that begins before the gap is reported unfinished, and later words are not added to it.
    let begun = words(|w| {
        w.inc(1, 0x180, &[16, 1, 0, 0x4000]).unwrap();
        w.inc(1, 0x1b0, &[inline_dma::PITCH]).unwrap();
    });
    c.ops(&begun);
    let mut out = Vec::new();
    c.engine.forget(&mut |op| out.push(*op));
    assert_eq!((inlines(&out)[0].complete, out[0].guessed), (false, false));
    assert!(c.ops(&words(|w| w.non_inc(1, 0x1b4, &[1, 2, 3, 4]).unwrap())).is_empty());
}

/// A write that matters to an operation: subchannel, register, value.
fn method() -> impl Strategy<Value = (u8, u16, u32)> {
    let of = |subch: u8, from: u16, to: u16| (from / 4..=to / 4).prop_map(move |i| (subch, 4 * i));
    let register = prop_oneof![
        of(4, 0x240, 0x24c),
        of(4, 0x300, 0x300),
        of(4, 0x400, 0x41c),
        of(4, 0x700, 0x708),
        of(0, 0x10, 0x1c),
        of(0, 0x5c, 0x6c),
        of(1, 0x158, 0x168),
        of(1, 0x180, 0x190),
        of(1, 0x1b0, 0x1b4),
        of(1, 0x1dc, 0x1e4),
        of(1, 0x2b4, 0x2c0),
        of(1, 0x318, 0x320),
        of(1, 0x1b00, 0x1b0c),
        of(2, 0x180, 0x190),
        of(2, 0x1b0, 0x1b4),
    ];
    // Small numbers set flags off in most combinations.
    (register, prop_oneof![0u32..16, any::<u32>()]).prop_map(|((subch, at), value)| (subch, at, value))
}

proptest! {
    /// Copies: decoding gives the encoded values.
    #[test]
    fn copies_come_back(src in 0u64..1 << 57, dst in 0u64..1 << 57, bytes: u32, pipelined: bool, flush: bool, lines in prop::option::of(0u32..99), pitches: (u32, u32)) {
        let kind = if pipelined { launch_dma::PIPELINED } else { launch_dma::NON_PIPELINED };
        let launch = kind | launch_dma::PITCH | if flush { launch_dma::FLUSH } else { 0 };
        let (src_pitch, dst_pitch) = pitches;
        let got = ops(|w| match lines {
            None => w.copy(4, src, dst, bytes, launch).unwrap(),
            Some(lines) => w.copy_lines(4, Lines { src, dst, src_pitch, dst_pitch, bytes, lines }, launch).unwrap(),
        });
        let [copy] = copies(&got)[..] else { panic!("{got:?}") };
        prop_assert_eq!((copy.src, copy.dst, copy.line_length, copy.flush), (src, dst, bytes, flush));
        prop_assert_eq!(copy.transfer == Transfer::Pipelined, pipelined);
        prop_assert_eq!((copy.line_count, copy.multi_line), (lines.unwrap_or(1), lines.is_some()));
        if lines.is_some() {
            prop_assert_eq!((copy.src_pitch, copy.dst_pitch), pitches);
        }
    }

    /// Inline copies: decoding gives the encoded values, and the span gives the position of the data.
    #[test]
    fn inline_copies_come_back(dst in 0u64..1 << 57, data in prop::collection::vec(any::<u8>(), 1..300), nops in 0usize..5) {
        let stream = words(|w| {
            (0..nops).for_each(|_| w.nop().unwrap());
            w.inline(1, dst, &data, inline_dma::PITCH).unwrap();
        });
        let got = Channel::new().ops(&stream);
        let [inline] = inlines(&got)[..] else { panic!("{got:?}") };
        prop_assert_eq!((inline.dst, inline.bytes(), inline.complete), (dst, data.len() as u64, true));
        let span = inline.data.unwrap();
        let bytes: Vec<u8> = stream[span.first.word as usize..=span.last.word as usize].iter().flat_map(|w| w.to_le_bytes()).collect();
        prop_assert_eq!(&bytes[..data.len()], &data[..]);
    }

    /// Host semaphores of every operation.
    #[test]
    fn host_semaphores_come_back(address in 0u64..1 << 55, payload: u64, word: u32) {
        let execute = Execute::parse(word);
        let got = ops(|w| w.host_semaphore(0, address * 4, payload, execute).unwrap());
        let [semaphore] = semaphores(&got)[..] else { panic!("{got:?}") };
        prop_assert_eq!((semaphore.address, semaphore.operation, semaphore.wide), (address * 4, execute.operation, execute.wide));
        prop_assert_eq!(semaphore.payload, if execute.wide { payload } else { payload & 0xffff_ffff });
    }

    /// Launches with a QMD at any place in an inline copy.
    #[test]
    fn launches_come_back(fields in prop::array::uniform32(any::<u32>()), before in 0usize..4, after in 0usize..200) {
        let mut qmd = Qmd::new(QmdLayout::of(4, 0).unwrap());
        qmd.set("GRID_WIDTH", fields[0].into()).unwrap();
        qmd.set("PROGRAM_ADDRESS_LOWER", fields[1].into()).unwrap();
        qmd.set("CORRELATION_ID", fields[2].into()).unwrap();
        let mut bytes = vec![0xee; 256 * before];
        bytes.extend(qmd.words().iter().flat_map(|w| w.to_le_bytes()));
        bytes.extend(vec![0xdd; after]);
        let got = ops(|w| {
            w.inline(1, 0x4000, &bytes, 0x41).unwrap();
            w.launch(1, 0x4000 + 256 * before as u64).unwrap();
        });
        prop_assert_eq!(launches(&got)[0].qmd, Some(qmd));
        prop_assert_eq!(inlines(&got)[0].purpose, Purpose::Qmd);
    }

    /// For any words before a gap: an operation after the gap that is not marked as guessed is the same as with all words.
    #[test]
    fn operations_not_marked_as_guessed_are_right_after_a_gap(
        before in prop::collection::vec(method(), 0..40),
        after in prop::collection::vec(method(), 0..40),
    ) {
        let stream = |all: &[(u8, u16, u32)]| words(|w| all.iter().for_each(|&(subch, at, value)| w.inc(subch, at, &[value]).unwrap()));
        let (before, after) = (stream(&before), stream(&after));
        let (mut whole, mut cut) = (Channel::new(), Channel::new());
        whole.ops(&before);
        cut.ops(&before);
        cut.engine.forget(&mut |_| ());
        let (mut expected, mut got) = (whole.ops(&after), cut.ops(&after));
        for (c, out) in [(&mut whole, &mut expected), (&mut cut, &mut got)] {
            c.engine.forget(&mut |op| out.push(*op));
        }
        for op in got.iter().filter(|op| !op.guessed) {
            let same = expected.iter().find(|o| o.at == op.at && o.subch == op.subch);
            prop_assert_eq!(Some(told(op)), same.map(told), "{:?}", op);
        }
    }
}

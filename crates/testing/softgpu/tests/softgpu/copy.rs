//! The copy engine.

use crate::rig::*;
use rm::abi::uvm;
use rm::class::engine;
use std::sync::atomic::Ordering;

#[test]
fn copy_non_pipelined_of_many_sizes() {
    let rig = Rig::new();
    let channel = rig.copy_channel();
    for len in [1, 3, 8, 4096, 4097, 65536, 200_001] {
        let data = noise(len, len as u64);
        rig.src.write(5, &data);
        channel.ok(&copy(SRC + 5, DST + 9, len as u32, 0x182));
        assert_eq!(rig.dst.read(9, len), data);
        assert_eq!(rig.dst.read(9 + len, 4), [0; 4], "not a byte more");
        rig.dst.write(0, &vec![0; len + 16]);
    }
    assert_eq!(rig.counters().copies.load(Ordering::Relaxed), 7);
}

#[test]
fn copy_pipelined() {
    let rig = Rig::new();
    let channel = rig.copy_channel();
    let data = noise(1000, 1);
    rig.src.write(0, &data);
    channel.ok(&copy(SRC, DST, 1000, 0x181));
    assert_eq!(rig.dst.read(0, 1000), data);
}

#[test]
fn copy_on_every_copy_engine_and_its_token() {
    let rig = Rig::new();
    for n in 0..10 {
        let channel = rig.channel(engine::COPY0 + n, 0xc86f, 64);
        assert_eq!(channel.token >> 16, n + 1);
        channel.ok(&inc(4, 0, &[0xc8b5]));
        channel.alive();
    }
}

#[test]
fn the_copy_seen_on_real_hardware_runs_as_it_is() {
    let rig = Rig::new();
    let channel = rig.copy_channel();
    let data = noise(4096, 3);
    rig.src.write(0, &data);
    let sem = SRC + 0x8000;
    channel.ok(&[
        0x2004_8100,
        hi(SRC),
        lo(SRC),
        hi(DST),
        lo(DST),
        0x2001_8106,
        4096,
        0x2001_80c0,
        0x182,
        0x2003_8090,
        hi(sem),
        lo(sem),
        99,
        0x2001_80c0,
        0x14,
    ]);
    assert_eq!(rig.dst.read(0, 4096), data);
    assert_eq!(rig.src.u32(0x8000), 99);
    assert!(rig.src.u64(0x8008) > 0);
}

#[test]
fn transfer_none_moves_no_bytes() {
    let rig = Rig::new();
    rig.src.write(0, &[1; 16]);
    rig.copy_channel().ok(&copy(SRC, DST, 16, 0x180));
    assert_eq!(rig.dst.read(0, 16), [0; 16]);
}

#[test]
fn copy_multi_line_with_pitches() {
    let rig = Rig::new();
    let channel = rig.copy_channel();
    let data = noise(4000, 4);
    rig.src.write(0, &data);
    let mut words = inc(4, 0x400, &[hi(SRC), lo(SRC), hi(DST), lo(DST), 100, 300, 64, 7]);
    words.extend(inc(4, 0x300, &[0x182 | 1 << 9]));
    channel.ok(&words);
    for line in 0..7 {
        assert_eq!(rig.dst.read(line * 300, 64), data[line * 100..line * 100 + 64]);
        assert_eq!(rig.dst.read(line * 300 + 64, 236), [0; 236]);
    }
    assert_eq!(rig.dst.read(2100, 64), [0; 64], "seven lines, not eight");
}

#[test]
fn line_count_counts_only_with_multi_line() {
    let rig = Rig::new();
    rig.src.write(0, &[7; 64]);
    let mut words = inc(4, 0x400, &[hi(SRC), lo(SRC), hi(DST), lo(DST), 8, 8, 8, 4]);
    words.extend(inc(4, 0x300, &[0x182]));
    rig.copy_channel().ok(&words);
    assert_eq!(rig.dst.read(0, 16), [[7u8; 8], [0; 8]].concat());
}

fn fill(components: u32, a: u32, b: u32, elements: u32) -> Vec<u32> {
    let mut words = inc(4, 0x700, &[a, b, components]);
    words.extend(copy(SRC, DST, elements, 0x182 | 1 << 10));
    words
}

#[test]
fn fill_with_constant_a_of_four_bytes() {
    let rig = Rig::new();
    rig.copy_channel().ok(&fill(4 | 3 << 16, 0x1234_5678, 0, 10));
    assert_eq!(rig.dst.read(0, 40), 0x1234_5678u32.to_le_bytes().repeat(10));
    assert_eq!(rig.dst.u32(40), 0);
    assert_eq!(rig.counters().fills.load(Ordering::Relaxed), 1);
    assert_eq!(rig.counters().copies.load(Ordering::Relaxed), 0);
}

#[test]
fn fill_with_constant_b_in_the_second_component() {
    let rig = Rig::new();
    rig.copy_channel().ok(&fill(4 | 5 << 4 | 3 << 16 | 1 << 24, 1, 2, 3));
    assert_eq!(rig.dst.read(0, 24), [1, 0, 0, 0, 2, 0, 0, 0].repeat(3));
}

#[test]
fn fill_with_components_of_one_two_and_three_bytes() {
    let rig = Rig::new();
    let channel = rig.copy_channel();
    for (size, bytes) in [(0, 1), (1, 2), (2, 3)] {
        rig.dst.write(0, &[0; 32]);
        channel.ok(&fill(4 | size << 16, 0x0403_0201, 0, 4));
        assert_eq!(rig.dst.read(0, 4 * bytes), [1u8, 2, 3, 4][..bytes].repeat(4));
        assert_eq!(rig.dst.read(4 * bytes, 1), [0]);
    }
}

#[test]
fn fill_does_not_touch_the_source() {
    let rig = Rig::new();
    let mut words = inc(4, 0x700, &[9, 0, 4 | 3 << 16]);
    words.extend(copy(NOWHERE, DST, 2, 0x182 | 1 << 10));
    rig.copy_channel().ok(&words);
    assert_eq!(rig.dst.u64(0), 9 | 9 << 32);
}

#[test]
fn remap_swaps_source_components_and_leaves_no_write_alone() {
    let rig = Rig::new();
    rig.src.write(0, &[1, 2, 3, 4, 5, 6]);
    rig.dst.write(0, &[9; 6]);
    // Two source components of one byte, three targets: Y, keep, X.
    rig.copy_channel().ok(&fill(1 | 6 << 4 | 1 << 20 | 2 << 24, 0, 0, 2));
    assert_eq!(rig.dst.read(0, 6), [2, 9, 1, 4, 9, 3]);
    assert_eq!(rig.counters().copies.load(Ordering::Relaxed), 1);
}

#[test]
fn semaphore_one_word_and_four_words() {
    let rig = Rig::new();
    let channel = rig.copy_channel();
    rig.src.write(0, &[0xff; 64]);
    channel.ok(&[inc(4, 0x240, &[hi(SRC), lo(SRC), 5]), inc(4, 0x300, &[0xc])].concat());
    assert_eq!((rig.src.u32(0), rig.src.u32(4)), (5, u32::MAX));
    channel.ok(&[inc(4, 0x240, &[hi(SRC), lo(SRC), 6]), inc(4, 0x300, &[0x14])].concat());
    assert_eq!(rig.src.u64(0), 6);
    assert!(rig.src.u64(8) != u64::MAX && rig.src.u64(8) > 0);
}

#[test]
fn semaphore_with_64_bit_payload() {
    let rig = Rig::new();
    let channel = rig.copy_channel();
    channel.ok(&[inc(4, 0x240, &[hi(SRC), lo(SRC), 5, 6]), inc(4, 0x300, &[0xc | 1 << 27])].concat());
    assert_eq!(rig.src.u64(0), 5 | 6 << 32);
    channel.ok(&[inc(4, 0x240, &[hi(SRC), lo(SRC), 7, 8]), inc(4, 0x300, &[0x14 | 1 << 27])].concat());
    assert_eq!(rig.src.u64(0), 7 | 8 << 32);
}

#[test]
fn semaphore_reduction_adds() {
    let rig = Rig::new();
    rig.src.set(0, 40);
    let launch = 0xc | 5 << 14 | 1 << 18 | 1 << 19;
    rig.copy_channel().ok(&[inc(4, 0x240, &[hi(SRC), lo(SRC), 2]), inc(4, 0x300, &[launch])].concat());
    assert_eq!(rig.src.u32(0), 42);
}

#[test]
fn copy_and_semaphore_in_one_launch() {
    let rig = Rig::new();
    rig.src.write(0, &[3; 8]);
    let mut words = inc(4, 0x240, &[hi(SRC), lo(SRC) + 0x1000, 8]);
    words.extend(copy(SRC, DST, 8, 0x182 | 0x14));
    rig.copy_channel().ok(&words);
    assert_eq!((rig.dst.read(0, 8), rig.src.u32(0x1000)), (vec![3; 8], 8));
}

#[test]
fn physical_addresses_are_refused() {
    let rig = Rig::new();
    for bit in [12, 13] {
        assert_eq!(rig.copy_channel().run(&copy(SRC, DST, 8, 0x182 | 1 << bit)), Some(13));
    }
}

#[test]
fn block_linear_and_reserved_types_are_refused() {
    let rig = Rig::new();
    for launch in [0x102, 0x082, 0x183, 0x198] {
        assert_eq!(rig.copy_channel().run(&copy(SRC, DST, 8, launch)), Some(13), "{launch:#x}");
    }
}

#[test]
fn copies_from_and_to_nowhere_are_mmu_faults() {
    let rig = Rig::new();
    let other = rig.copy_channel();
    assert_eq!(rig.copy_channel().run(&copy(NOWHERE, DST, 8, 0x182)), Some(31));
    assert_eq!(rig.copy_channel().run(&copy(SRC, NOWHERE, 8, 0x182)), Some(31));
    assert_eq!(rig.copy_channel().run(&copy(SRC, DST + DATA - 4, 8, 0x182)), Some(31), "over the end");
    other.alive();
}

#[test]
fn a_read_only_mapping_is_not_written() {
    let rig = Rig::new();
    let memory = rig.alloc_memory(0x1000, VIDEO).unwrap();
    rig.range(NOWHERE, 0x1000).unwrap();
    rig.map_gpu(NOWHERE, 0x1000, memory, 0, uvm::GpuMapping::READ_ONLY).unwrap();
    rig.copy_channel().ok(&copy(NOWHERE, DST, 8, 0x182));
    assert_eq!(rig.copy_channel().run(&copy(SRC, NOWHERE, 8, 0x182)), Some(31));
}

#[test]
fn copies_cross_from_one_memory_into_the_next() {
    let rig = Rig::new();
    let (a, b) = (rig.memory(NOWHERE, 0x1000, HOST), rig.memory(NOWHERE + 0x1000, 0x1000, VIDEO));
    let data = noise(100, 8);
    rig.src.write(0, &data);
    rig.copy_channel().ok(&copy(SRC, NOWHERE + 0x1000 - 50, 100, 0x182));
    assert_eq!([a.read(0x1000 - 50, 50), b.read(0, 50)].concat(), data);
}

#[test]
fn pages_of_the_program_are_copied_and_gone_ones_fault() {
    let rig = Rig::new();
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let page = unsafe { libc::mmap(std::ptr::null_mut(), 0x2000, prot, flags, -1, 0) };
    let handle = unsafe {
        rm::driver::alloc_user_pages(&rig.driver, rig.gpu, rig.client, rig.device, 0, page as u64, 0x2000, 0).unwrap()
    };
    rig.range(NOWHERE, 0x2000).unwrap();
    rig.map_gpu(NOWHERE, 0x2000, handle, 0, 1).unwrap();
    let data = noise(0x2000, 9);
    unsafe { page.cast::<u8>().copy_from_nonoverlapping(data.as_ptr(), 0x2000) };
    let channel = rig.copy_channel();
    channel.ok(&copy(NOWHERE, DST, 0x2000, 0x182));
    assert_eq!(rig.dst.read(0, 0x2000), data);
    rig.src.write(0, b"to the program");
    channel.ok(&copy(SRC, NOWHERE, 14, 0x182));
    assert_eq!(unsafe { std::slice::from_raw_parts(page.cast::<u8>(), 14) }, b"to the program");
    // Unreadable rather than unmapped: other tests' mappings could be placed here.
    unsafe { libc::mprotect(page, 0x2000, libc::PROT_NONE) };
    assert_eq!(channel.run(&copy(NOWHERE, DST, 8, 0x182)), Some(31));
}

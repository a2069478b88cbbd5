//! GPFIFO entries, method headers, and what kills a channel before any engine is reached.

use crate::rig::*;
use rm::class::{self, engine};

const NOP: u32 = 0;

fn release(n: u32) -> Vec<u32> {
    host_sem(SRC, n.into(), 1)
}

#[test]
fn gpfifo_wraps_many_times() {
    let rig = Rig::new();
    let channel = rig.channel(engine::COPY0, class::HOPPER_CHANNEL_GPFIFO_A, 8);
    for n in 1..100 {
        channel.ok(&release(n));
        assert_eq!(rig.src.u32(0), n);
        assert_eq!(channel.get(), n % 8);
    }
    let progress = rig.counters().channel(0).unwrap().progress();
    assert_eq!((progress.entries, progress.dwords), (99, 99 * 6));
}

#[test]
fn the_hash_of_the_counters_is_that_of_the_words() {
    use doorbell_softgpu::counters::{HASH_SEED, hash};
    let rig = Rig::new();
    let channel = rig.channel(engine::COPY0, class::HOPPER_CHANNEL_GPFIFO_A, 1024);
    let mut state = HASH_SEED;
    for n in 1..20 {
        channel.ok(&release(n));
        state = hash(state, &release(n));
        assert_eq!(rig.counters().channel(0).unwrap().progress().hash, state);
    }
}

#[test]
fn control_entry_nop_is_consumed() {
    let rig = Rig::new();
    let channel = rig.copy_channel();
    channel.entry(0);
    channel.bell();
    assert_eq!(channel.finish(), None);
    channel.alive();
}

#[test]
fn control_entry_illegal_kills_the_channel() {
    let rig = Rig::new();
    let (channel, other) = (rig.copy_channel(), rig.copy_channel());
    channel.entry(1 << 32);
    channel.bell();
    assert_eq!(channel.finish(), Some(32));
    other.alive();
}

#[test]
fn control_entry_extended_base_reaches_high_pushbuffers() {
    let rig = Rig::new();
    let channel = rig.copy_channel();
    let high = 0x1ab_4000_0000;
    let memory = rig.memory(high, 0x1000, HOST);
    let words = release(77);
    memory.write(0, &words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>());
    channel.entry(4 << 32 | 1 << 8);
    channel.entry(high & 0xff_ffff_ffff | 6 << 42);
    channel.bell();
    assert_eq!(channel.finish(), None);
    assert_eq!(rig.src.u32(0), 77);
}

#[test]
fn extended_base_is_illegal_before_hopper() {
    let rig = Rig::new();
    let channel = rig.channel(engine::COPY0, class::AMPERE_CHANNEL_GPFIFO_A, 1024);
    channel.entry(4 << 32 | 1 << 8);
    channel.bell();
    assert_eq!(channel.finish(), Some(32));
}

#[test]
fn sync_wait_and_level_are_taken() {
    let rig = Rig::new();
    let channel = rig.copy_channel();
    channel.entry(channel.place(&release(5)) | 6 << 42 | 1 << 63 | 1 << 41);
    channel.bell();
    assert_eq!(channel.finish(), None);
    assert_eq!(rig.src.u32(0), 5);
}

#[test]
fn older_channel_classes_run() {
    let rig = Rig::new();
    for class in [class::VOLTA_CHANNEL_GPFIFO_A, class::TURING_CHANNEL_GPFIFO_A, class::AMPERE_CHANNEL_GPFIFO_A] {
        let channel = rig.channel(engine::COPY0, class, 1024);
        channel.ok(&release(class));
        assert_eq!(rig.src.u32(0), class);
    }
}

#[test]
fn a_pushbuffer_that_is_not_mapped_kills_the_channel() {
    let rig = Rig::new();
    let (channel, other) = (rig.copy_channel(), rig.copy_channel());
    channel.entry(NOWHERE | 4 << 42);
    channel.bell();
    assert_eq!(channel.finish(), Some(31));
    assert_eq!(rig.counters().faults.load(std::sync::atomic::Ordering::Relaxed), 1);
    // Nothing more is consumed.
    let get = channel.get();
    channel.push(&release(9));
    channel.bell();
    settle();
    assert_eq!((channel.get(), rig.src.u32(0)), (get, 0));
    other.alive();
}

#[test]
fn a_gp_put_outside_the_ring_kills_the_channel() {
    let rig = Rig::new();
    let channel = rig.copy_channel();
    channel.ring.set(0x208c, 1024);
    channel.bell();
    until(|| channel.error() == Some(32));
}

#[test]
fn header_inc_writes_each_word_to_the_next_method() {
    let rig = Rig::new();
    let channel = rig.copy_channel();
    channel.ok(&inc(0, 0x5c, &[lo(SRC), hi(SRC), 3, 0, 1]));
    assert_eq!(rig.src.u32(0), 3);
}

#[test]
fn header_non_inc_writes_all_words_to_one_method() {
    let rig = Rig::new();
    let channel = rig.compute_channel();
    let mut words = inc(1, 0x188, &[hi(DST), lo(DST)]);
    words.extend(inc(1, 0x180, &[8, 1]));
    words.extend(inc(1, 0x1b0, &[0x41]));
    words.extend(header(3, 1, 0x1b4, &[0x1111_1111, 0x2222_2222]));
    channel.ok(&words);
    assert_eq!(rig.dst.u64(0), 0x2222_2222_1111_1111);
}

#[test]
fn header_one_inc_writes_the_rest_to_the_second_method() {
    let rig = Rig::new();
    let channel = rig.compute_channel();
    let mut words = inc(1, 0x188, &[hi(DST), lo(DST)]);
    words.extend(inc(1, 0x180, &[8, 1]));
    words.extend(header(5, 1, 0x1b0, &[0x41, 0x3333_3333, 0x4444_4444]));
    channel.ok(&words);
    assert_eq!(rig.dst.u64(0), 0x4444_4444_3333_3333);
}

#[test]
fn header_immediate_carries_its_value() {
    let rig = Rig::new();
    let channel = rig.copy_channel();
    let mut words = inc(0, 0x5c, &[lo(SRC), hi(SRC)]);
    words.push(4 << 29 | 0x155 << 16 | 0x64 >> 2);
    words.push(4 << 29 | 1 << 16 | 0x6c >> 2);
    channel.ok(&words);
    assert_eq!(rig.src.u32(0), 0x155);
}

#[test]
fn header_old_inc_and_non_inc_are_understood() {
    let rig = Rig::new();
    let channel = rig.copy_channel();
    // Old form: count 28:18, address in bytes 12:2.
    let mut words = vec![4 << 18 | 0x5c, lo(SRC), hi(SRC), 0x66, 0];
    words.extend([2 << 29 | 2 << 18 | 0x6c, 1, 1]);
    channel.ok(&words);
    assert_eq!(rig.src.u32(0), 0x66);
    assert_eq!(rig.counters().releases.load(std::sync::atomic::Ordering::Relaxed), 2);
}

#[test]
fn header_nop_words_are_skipped() {
    let rig = Rig::new();
    let channel = rig.copy_channel();
    channel.ok(&[&[NOP, NOP][..], &release(4), &[NOP]].concat());
    assert_eq!(rig.src.u32(0), 4);
}

#[test]
fn header_end_segment_skips_the_rest() {
    let rig = Rig::new();
    let channel = rig.copy_channel();
    channel.ok(&[release(1), vec![7 << 29], release(2)].concat());
    assert_eq!(rig.src.u32(0), 1);
}

#[test]
fn header_subdevice_mask_switches_methods_off_and_on() {
    let rig = Rig::new();
    let channel = rig.copy_channel();
    let set = |mask: u32| vec![1 << 16 | mask << 4];
    channel.ok(&[set(2), release(1), set(1)].concat());
    assert_eq!(rig.src.u32(0), 0);
    channel.ok(&release(2));
    assert_eq!(rig.src.u32(0), 2);
    // Stored for later use: it has no effect until USE.
    channel.ok(&[vec![2 << 16 | 2 << 4], release(3), vec![3 << 16], release(4)].concat());
    assert_eq!(rig.src.u32(0), 3);
}

#[test]
fn reserved_header_kills_the_channel() {
    let rig = Rig::new();
    let channel = rig.copy_channel();
    assert_eq!(channel.run(&[6 << 29]), Some(32));
}

#[test]
fn a_sequence_spans_entries() {
    let rig = Rig::new();
    let channel = rig.copy_channel();
    let words = release(0xabcd);
    channel.push(&words[..3]);
    channel.push(&words[3..]);
    channel.bell();
    assert_eq!(channel.finish(), None);
    assert_eq!(rig.src.u32(0), 0xabcd);
}

#[test]
fn set_object_of_a_class_without_an_object_kills_the_channel() {
    let rig = Rig::new();
    let channel = rig.copy_channel();
    assert_eq!(channel.run(&inc(4, 0, &[class::HOPPER_COMPUTE_A])), Some(13));
}

#[test]
fn set_object_on_a_foreign_subchannel_of_graphics_kills_the_channel() {
    let rig = Rig::new();
    let channel = rig.channel(engine::GRAPHICS, class::HOPPER_CHANNEL_GPFIFO_A, 1024);
    assert_eq!(channel.run(&inc(3, 0, &[class::HOPPER_COMPUTE_A])), Some(13));
}

#[test]
fn a_method_on_an_unbound_subchannel_kills_the_channel() {
    let rig = Rig::new();
    let channel = rig.copy_channel();
    assert_eq!(channel.run(&inc(3, 0x300, &[0])), Some(32));
}

#[test]
fn a_method_unknown_to_the_class_kills_the_channel() {
    let rig = Rig::new();
    let (copy, compute) = (rig.copy_channel(), rig.compute_channel());
    assert_eq!(copy.run(&inc(4, 0x800, &[0])), Some(13));
    assert_eq!(compute.run(&inc(1, 0x3000, &[0])), Some(13));
}

#[test]
fn a_killed_channel_leaves_its_reason_in_the_counters() {
    use doorbell_softgpu::counters::state;
    let rig = Rig::new();
    let channel = rig.copy_channel();
    assert_eq!(channel.run(&[6 << 29]), Some(32));
    let counters = rig.counters().channel(0).unwrap();
    assert_eq!(counters.state.load(std::sync::atomic::Ordering::Acquire), state::FAULTED);
    assert_eq!(counters.fault.load(std::sync::atomic::Ordering::Relaxed), 32);
}

/// Random streams, most of them of existing methods: whatever they do to their own channel, the GPU continues.
#[test]
fn no_stream_stops_the_gpu() {
    let rig = Rig::new();
    let mut random = noise(4_000_000, 99).into_iter().cycle();
    let mut next = move || u32::from_le_bytes([(); 4].map(|()| random.next().unwrap()));
    let methods = [
        0x0u32, 0x4, 0x8, 0x10, 0x14, 0x18, 0x1c, 0x34, 0x50, 0x5c, 0x60, 0x64, 0x68, 0x6c, 0x158, 0x160, 0x164, 0x168,
        0x180, 0x184, 0x188, 0x18c, 0x190, 0x1b0, 0x1b4, 0x1b4, 0x1dc, 0x1e0, 0x240, 0x244, 0x2b4, 0x2c0, 0x300, 0x300,
        0x318, 0x320, 0x400, 0x404, 0x408, 0x40c, 0x410, 0x414, 0x418, 0x41c, 0x700, 0x708, 0x1b0c,
    ];
    for round in 0..600 {
        let channel = if round % 2 == 0 { rig.copy_channel() } else { rig.compute_channel() };
        let subch = if round % 2 == 0 { 4 } else { 1 };
        let mut words = Vec::new();
        for _ in 0..60 {
            let value = match next() % 8 {
                0 => next(),
                1 => lo(SRC) + (next() & 0xfff0),
                2 => lo(DST) + (next() & 0xfff0),
                3 => hi(SRC),
                4 => hi(DST),
                5 => 0x182 | next() & 0x0fff_ffff & next() & next(),
                _ => next() % 64,
            };
            match next() % 40 {
                0 => words.push(next()),
                1 => words.extend([7 << 29]),
                _ => words.extend(header(
                    [1, 3, 5][next() as usize % 3],
                    subch,
                    methods[next() as usize % methods.len()],
                    &vec![value; 1 + next() as usize % 3],
                )),
            }
        }
        channel.push(&words);
        channel.bell();
        if round % 8 < 2 {
            channel.run_for_a_while();
        }
        // Blocked, killed or done: it can be freed.
        rm::driver::free(&rig.driver, rig.ctl, rig.client, rig.device, channel.group).unwrap();
    }
    rig.copy_channel().alive();
}

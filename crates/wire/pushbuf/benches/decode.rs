//! How fast a realistic stream is decoded: kernel launches of 386 words, copies of 15 words, inline copies of 8,191 words.
//!
//! `stream` is `Decoder` alone with a sink that looks at every write; `ops` is the state machine on top; `words` reads single-word methods only,
//! which is the worst case.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use pushbuf::decode::{Decoder, Item};
use pushbuf::encode::{Words, inline_dma, launch_dma};
use pushbuf::ops::Engine;
use pushbuf::qmd::{Layout, Qmd};

fn decoder() -> Decoder {
    let mut decoder = Decoder::new(0xc86f);
    decoder.bind(1, 0xcbc0);
    decoder.bind(4, 0xc8b5);
    decoder
}

/// 386 words: QMD and constants (0x210 bytes) by an inline copy, methods as they stand between, the launch.
fn launch(w: &mut Words<'_>) {
    let start = w.len();
    let mut qmd = Qmd::new(Layout::of(4, 0).expect("version 4.0 has a table"));
    for (name, value) in [("GRID_WIDTH", 108), ("GRID_HEIGHT", 1), ("GRID_DEPTH", 1), ("CTA_THREAD_DIMENSION0", 256)] {
        qmd.set(name, value).expect("the values fit");
    }
    let mut bytes: Vec<u8> = qmd.words().iter().flat_map(|w| w.to_le_bytes()).collect();
    bytes.resize(0x210, 7);
    w.inline(1, 0x2_0080_0000, &bytes, inline_dma::PITCH | inline_dma::NO_SYSMEMBAR).expect("there is room");
    // SET_SHADER_LOCAL_MEMORY and their like: increments of a few words.
    while w.len() - start < 386 - 3 - 5 {
        w.inc(1, 0x790, &[1, 2, 3, 4]).expect("there is room");
    }
    while w.len() - start < 386 - 3 {
        w.imm(1, 0x1698, 0x1000).expect("there is room");
    }
    w.launch(1, 0x2_0080_0000).expect("there is room");
    assert_eq!(w.len() - start, 386);
}

fn copy(w: &mut Words<'_>) {
    w.copy(4, 0x2_0440_0000, 0x7fff_2000_0000, 64 << 20, launch_dma::NON_PIPELINED | launch_dma::PITCH)
        .expect("there is room");
    w.copy_release(4, 0x2_0060_0010, 1, true).expect("there is room");
}

/// Segments as a program with launches, copies and inline copies submits them.
fn segments() -> Vec<Vec<u32>> {
    let mut out = Vec::new();
    let mut buffer = vec![0; 1 << 14];
    let mut segment = |write: &dyn Fn(&mut Words<'_>)| {
        let mut w = Words::new(&mut buffer);
        write(&mut w);
        out.push(w.as_slice().to_vec());
    };
    for i in 0..400 {
        segment(&launch);
        if i % 4 == 0 {
            segment(&copy);
        }
        if i % 40 == 0 {
            segment(&|w| w.inline(1, 0x7f00_0000_0000, &[3; 8191 * 4], inline_dma::PITCH).expect("there is room"));
        }
    }
    out
}

fn look(item: &Item<'_>, sum: &mut u64) {
    match item {
        Item::Write(w) => *sum = sum.wrapping_add(u64::from(w.value) ^ u64::from(w.address)),
        Item::Run(r) => *sum = sum.wrapping_add(r.words.len() as u64),
        other => drop(black_box(other)),
    }
}

fn decode(c: &mut Criterion) {
    let segments = segments();
    let bytes: usize = segments.iter().map(|s| 4 * s.len()).sum();
    let mut group = c.benchmark_group("decode");
    group.throughput(Throughput::Bytes(bytes as u64));
    group.bench_function("stream", |b| {
        let mut decoder = decoder();
        b.iter(|| {
            let mut sum = 0;
            for segment in black_box(&segments) {
                decoder.segment(segment, |item| look(&item, &mut sum));
            }
            sum
        });
    });
    group.bench_function("ops", |b| {
        let (mut decoder, mut engine) = (decoder(), Engine::new());
        b.iter(|| {
            let mut ops = 0u64;
            for segment in black_box(&segments) {
                engine.segment(&mut decoder, segment, |op| ops += black_box(u64::from(op.at.word)));
            }
            ops
        });
    });
    let copies: Vec<u32> = {
        let mut buffer = vec![0; 15 * 4096];
        let mut w = Words::new(&mut buffer);
        (0..4096).for_each(|_| copy(&mut w));
        buffer
    };
    group.throughput(Throughput::Bytes(4 * copies.len() as u64));
    group.bench_function("words", |b| {
        let mut decoder = decoder();
        b.iter(|| {
            let mut sum = 0;
            decoder.segment(black_box(&copies), |item| look(&item, &mut sum));
            sum
        });
    });
    group.finish();
}

criterion_group!(benches, decode);
criterion_main!(benches);

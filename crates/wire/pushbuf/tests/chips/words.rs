//! Kernel launches of each chip as words, by hand: words and shifts are typed from NVIDIA's class references (open-gpu-doc, `classes/compute`), not taken
//! from the tables that the decoder reads. Tests of `pushbuf`, `cuda-graph` and `decode` share them.
//!
//! Which version CUDA writes is known for Hopper only (4.0, seen). So each chip has the versions that its reference publishes. The references do
//! not say how a driver launches either: all have SEND_PCAS_A with SEND_SIGNALING_PCAS_B or _PCAS2_B, and LOAD_INLINE_QMD_DATA. `clc4c0qmd.h` and
//! `clc5c0qmd.h` (Volta, Turing) publish one version each, and are not here.
#![allow(dead_code)] // each test binary uses a part

/// A kernel. `shared` is in bytes, a multiple of 128, `program` of 16, and `constants`, the address of bank 0, of 64. The bank has 0x210 bytes.
#[derive(Clone, Copy)]
pub struct Kernel {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub registers: u32,
    pub shared: u32,
    pub program: u64,
    pub constants: u64,
    /// The QMD that it schedules when it is done, a multiple of 256.
    pub next: Option<u64>,
    /// A semaphore of one word that it releases, and the payload.
    pub release: Option<(u64, u32)>,
}

pub const KERNEL: Kernel = Kernel {
    grid: [70_000, 3, 2],
    block: [64, 4, 2],
    registers: 40,
    shared: 0x2400,
    // Below 2^40, because 2.2 to 3.0 have releases there only.
    program: 0x7f_1234_5680,
    constants: 0x7e_0000_4040,
    next: None,
    release: None,
};

pub type Layout = fn(&Kernel) -> Vec<u32>;

pub struct Chip {
    pub name: &'static str,
    /// Classes of channels, compute and copy engine.
    pub classes: [u32; 3],
    /// Major and minor version, and the words.
    pub qmds: &'static [(u8, u8, Layout)],
}

pub const CHIPS: [Chip; 6] = [
    Chip { name: "GA100", classes: [0xc56f, 0xc6c0, 0xc6b5], qmds: &[(2, 3, v2_3), (2, 4, v2_4), (3, 0, v3_0)] },
    Chip { name: "GA10x", classes: [0xc76f, 0xc7c0, 0xc7b5], qmds: &[(2, 3, v2_3), (2, 4, v2_4), (3, 0, v3_0)] },
    Chip { name: "AD10x", classes: [0xc76f, 0xc9c0, 0xc7b5], qmds: &[(2, 4, v2_4), (3, 0, v3_0)] },
    Chip { name: "GH100", classes: [0xc86f, 0xcbc0, 0xc8b5], qmds: &[(3, 0, v3_0), (4, 0, v4_0)] },
    Chip { name: "GB10x", classes: [0xc96f, 0xcdc0, 0xc9b5], qmds: &[(4, 1, v4_1), (5, 0, v5_0), (5, 1, v5_1)] },
    Chip { name: "GB20x", classes: [0xca6f, 0xcec0, 0xcab5], qmds: &[(4, 1, v4_1), (5, 0, v5_0), (5, 1, v5_1)] },
];

const SCHEDULE: u32 = 1;
const ONE_WORD: u32 = 1;

fn lower(address: u64) -> u32 {
    address as u32
}

fn upper(address: u64) -> u32 {
    (address >> 32) as u32
}

/// What 2.3, 2.4 and 3.0 share (`clc6c0qmd.h`, `clc7c0qmd.h`, `clc9c0qmd.h`, `clcbc0qmd.h`).
fn old(k: &Kernel) -> Vec<u32> {
    let mut w = vec![0; 64];
    w[12] = k.grid[0]; // CTA_RASTER_WIDTH 415:384
    w[13] = k.grid[1]; // CTA_RASTER_HEIGHT 431:416
    w[14] = k.grid[2]; // CTA_RASTER_DEPTH 463:448
    w[15] = (k.next.unwrap_or(0) >> 8) as u32; // DEPENDENT_QMD_POINTER (2.3), DEPENDENT_QMD0_POINTER 511:480
    w[17] = k.shared; // SHARED_MEMORY_SIZE 561:544
    w[18] = k.block[0] << 16; // CTA_THREAD_DIMENSION0 607:592
    w[19] = k.block[1] | k.block[2] << 16; // CTA_THREAD_DIMENSION1 623:608, 2 639:624
    w[20] = 1 | k.registers << 8; // CONSTANT_BUFFER_VALID(0) 640:640, REGISTER_COUNT_V 656:648
    w[32] = lower(k.constants); // CONSTANT_BUFFER_ADDR_LOWER(0) 1055:1024
    w[33] = upper(k.constants) | 0x21 << 19; // .._ADDR_UPPER(0) 1072:1056, .._SIZE_SHIFTED4(0) 1087:1075
    w[48] = lower(k.program); // PROGRAM_ADDRESS_LOWER 1567:1536
    w[49] = upper(k.program); // PROGRAM_ADDRESS_UPPER 1584:1568
    w
}

/// Releases of 2.3 and 2.4.
fn old_release(w: &mut [u32], k: &Kernel) {
    let Some((address, payload)) = k.release else { return };
    w[4] |= 1 << 10; // SEMAPHORE_RELEASE_ENABLE0 138:138
    w[23] = lower(address); // RELEASE0_ADDRESS_LOWER 767:736
    w[24] = upper(address) | ONE_WORD << 31; // RELEASE0_ADDRESS_UPPER 775:768, RELEASE0_STRUCTURE_SIZE 799:799
    w[25] = payload; // RELEASE0_PAYLOAD 831:800
}

pub fn v2_3(k: &Kernel) -> Vec<u32> {
    let mut w = old(k);
    w[18] |= 2 << 4 | 3; // QMD_MAJOR_VERSION 583:580, QMD_VERSION 579:576
    if k.next.is_some() {
        w[4] |= 1 << 13 | 1 << 14; // DEPENDENT_QMD_SCHEDULE_ENABLE 141:141, DEPENDENT_QMD_TYPE 142:142 GRID
    }
    old_release(&mut w, k);
    w
}

pub fn v2_4(k: &Kernel) -> Vec<u32> {
    let mut w = old(k);
    w[18] |= 2 << 4 | 4; // QMD_MAJOR_VERSION 583:580, QMD_VERSION 579:576
    if k.next.is_some() {
        w[4] |= 1 << 13 | SCHEDULE << 14; // DEPENDENT_QMD0_ENABLE 141:141, DEPENDENT_QMD0_ACTION 144:142
    }
    old_release(&mut w, k);
    w
}

pub fn v3_0(k: &Kernel) -> Vec<u32> {
    let mut w = old(k);
    w[18] |= 3 << 4; // QMD_MAJOR_VERSION 583:580
    if k.next.is_some() {
        w[16] = 1 | SCHEDULE << 1; // DEPENDENT_QMD0_ENABLE 512:512, DEPENDENT_QMD0_ACTION 515:513
    }
    if let Some((address, payload)) = k.release {
        w[24] = lower(address); // RELEASE0_ADDRESS_LOWER 799:768
        // RELEASE0_ADDRESS_UPPER 807:800, RELEASE0_ENABLE 823:823, RELEASE0_STRUCTURE_SIZE 831:830
        w[25] = upper(address) | 1 << 23 | ONE_WORD << 30;
        w[26] = payload; // RELEASE0_PAYLOAD_LOWER 863:832
    }
    w
}

/// `clcbc0qmd.h`; 4.1 has the same places (`clcdc0qmd.h`, `clcec0qmd.h`).
pub fn v4_0(k: &Kernel) -> Vec<u32> {
    let mut w = vec![0; 96];
    w[0] = 2 << 23; // QMD_TYPE 25:23 GRID_CTA
    if k.next.is_some() {
        w[11] = 1 << 16 | SCHEDULE << 17; // DEPENDENT_QMD_ENABLE(0) 368:368, DEPENDENT_QMD_ACTION(0) 371:369
    }
    w[13] = 1; // CONSTANT_BUFFER_VALID(0) 416:416
    w[14] = (k.next.unwrap_or(0) >> 8) as u32; // DEPENDENT_QMD0_POINTER 479:448
    w[18] = 4 << 4 | k.shared << 8; // QMD_MAJOR_VERSION 583:580, SHARED_MEMORY_SIZE 601:584
    if let Some((address, payload)) = k.release {
        w[10] = 1 | ONE_WORD << 1; // RELEASE_ENABLE(0) 320:320, RELEASE_STRUCTURE_SIZE(0) 322:321
        w[20] = lower(address); // RELEASE_SEMAPHORE0_ADDR_LOWER 671:640
        w[21] = upper(address); // RELEASE_SEMAPHORE0_ADDR_UPPER 696:672
        w[22] = payload; // RELEASE_SEMAPHORE0_PAYLOAD_LOWER 735:704
    }
    w[32] = k.grid[0]; // GRID_WIDTH 1055:1024
    w[33] = k.grid[1]; // GRID_HEIGHT 1071:1056
    w[34] = k.grid[2]; // GRID_DEPTH 1103:1088
    w[36] = k.block[0] | k.block[1] << 16; // CTA_THREAD_DIMENSION0 1167:1152, 1 1183:1168
    w[37] = k.block[2] | k.registers << 16; // CTA_THREAD_DIMENSION2 1199:1184 (4.1: 1191:1184), REGISTER_COUNT 1208:1200
    w[38] = lower(k.program); // PROGRAM_ADDRESS_LOWER 1247:1216
    w[39] = upper(k.program); // PROGRAM_ADDRESS_UPPER 1272:1248
    w[48] = lower(k.constants >> 6); // CONSTANT_BUFFER_ADDR_LOWER_SHIFTED6(0) 1567:1536
    w[49] = upper(k.constants >> 6) | 0x21 << 19; // .._ADDR_UPPER_SHIFTED6(0) 1586:1568, .._SIZE_SHIFTED4(0) 1599:1587
    w
}

pub fn v4_1(k: &Kernel) -> Vec<u32> {
    let mut w = v4_0(k);
    w[18] |= 1; // QMD_MINOR_VERSION 579:576
    w
}

/// What 5.0 and 5.1 share (`clcdc0qmd.h`, `clcec0qmd.h`).
fn blackwell(k: &Kernel) -> Vec<u32> {
    let mut w = vec![0; 96];
    w[4] = 2 << 23; // QMD_TYPE 153:151 GRID_CTA
    if k.next.is_some() {
        w[10] = 1 << 16 | SCHEDULE << 17; // DEPENDENT_QMD0_ENABLE 336:336, DEPENDENT_QMD0_ACTION 339:337
    }
    w[12] = (k.next.unwrap_or(0) >> 8) as u32; // DEPENDENT_QMD0_POINTER 415:384
    w[14] = 5 << 20; // QMD_MAJOR_VERSION 471:468
    if let Some((address, payload)) = k.release {
        w[9] = 1 | ONE_WORD << 1; // RELEASE_ENABLE(0) 288:288, RELEASE_STRUCTURE_SIZE(0) 290:289
        w[15] = lower(address); // RELEASE_SEMAPHORE0_ADDR_LOWER 511:480
        w[16] = upper(address); // RELEASE_SEMAPHORE0_ADDR_UPPER 536:512
        w[17] = payload; // RELEASE_SEMAPHORE0_PAYLOAD_LOWER 575:544
    }
    w
}

pub fn v5_0(k: &Kernel) -> Vec<u32> {
    let mut w = blackwell(k);
    w[32] = lower(k.program >> 4); // PROGRAM_ADDRESS_LOWER_SHIFTED4 1055:1024
    w[33] = upper(k.program >> 4); // PROGRAM_ADDRESS_UPPER_SHIFTED4 1076:1056
    w[34] = k.block[0] | k.block[1] << 16; // CTA_THREAD_DIMENSION0 1103:1088, 1 1119:1104
    w[35] = k.block[2] | k.registers << 8; // CTA_THREAD_DIMENSION2 1127:1120, REGISTER_COUNT 1136:1128
    w[36] = k.shared >> 7; // SHARED_MEMORY_SIZE_SHIFTED7 1162:1152
    w[39] = k.grid[0]; // GRID_WIDTH 1279:1248
    w[40] = k.grid[1]; // GRID_HEIGHT 1295:1280
    w[41] = k.grid[2]; // GRID_DEPTH 1327:1312
    w[42] = lower(k.constants >> 6); // CONSTANT_BUFFER_ADDR_LOWER_SHIFTED6(0) 1375:1344
    w[43] = upper(k.constants >> 6) | 0x21 << 19; // .._ADDR_UPPER_SHIFTED6(0) 1394:1376, .._SIZE_SHIFTED4(0) 1407:1395
    w[58] = 1; // CONSTANT_BUFFER_VALID(0) 1856:1856
    w
}

/// With one sub-task: SUB_TASK_..(0).
pub fn v5_1(k: &Kernel) -> Vec<u32> {
    let mut w = blackwell(k);
    w[14] |= 1 << 16; // QMD_MINOR_VERSION 467:464
    w[24] = lower(k.program >> 4); // .._PROGRAM_ADDRESS_LOWER_SHIFTED4 799:768
    w[25] = upper(k.program >> 4); // .._PROGRAM_ADDRESS_UPPER_SHIFTED4 820:800
    w[26] = k.block[0] | k.block[1] << 16; // .._CTA_THREAD_DIMENSION0 847:832, 1 863:848
    // .._CTA_THREAD_DIMENSION2 871:864, .._REGISTER_COUNT 880:872, .._CONSTANT_BANK0_VALID 886:886
    w[27] = k.block[2] | k.registers << 8 | 1 << 22;
    w[28] = k.shared >> 7; // .._SHARED_MEMORY_SIZE_SHIFTED7 906:896
    w[30] = lower(k.constants >> 6); // .._CONSTANT_BANK0_ADDR_LOWER_SHIFTED6 991:960
    w[31] = upper(k.constants >> 6) | 0x21 << 19; // .._BANK0_ADDR_UPPER_SHIFTED6 1010:992, .._SIZE_SHIFTED4 1023:1011
    w[35] = k.grid[0]; // .._GRID_WIDTH 1151:1120
    w[36] = k.grid[1] | k.grid[2] << 16; // .._GRID_HEIGHT 1167:1152, .._GRID_DEPTH 1183:1168
    w
}

/// Methods from an address on, of the compute class on subchannel 1 (SEC_OP INC_METHOD).
pub fn methods(address: u32, values: &[u32]) -> Vec<u32> {
    let header = 1 << 29 | (values.len() as u32) << 16 | 1 << 13 | (address / 4);
    [&[header], values].concat()
}

/// An inline write. The methods have these addresses in all six references (`clc6c0.h` to `clcec0.h`).
pub fn write(address: u64, values: &[u32]) -> Vec<u32> {
    let bytes = 4 * values.len() as u32;
    // LINE_LENGTH_IN, LINE_COUNT, OFFSET_OUT_UPPER, OFFSET_OUT
    let mut words = methods(0x180, &[bytes, 1, upper(address), lower(address)]);
    words.extend(methods(0x1b0, &[0x41])); // LAUNCH_DMA: DST_MEMORY_LAYOUT PITCH, SYSMEMBAR_DISABLE
    words.push(3 << 29 | (values.len() as u32) << 16 | 1 << 13 | (0x1b4 / 4)); // LOAD_INLINE_DATA (NON_INC_METHOD)
    words.extend(values);
    words
}

/// SEND_PCAS_A, and SEND_SIGNALING_PCAS2_B with INVALIDATE_COPY_SCHEDULE.
pub fn pcas2(qmd: u64) -> Vec<u32> {
    [methods(0x2b4, &[(qmd >> 8) as u32]), methods(0x2c0, &[3])].concat()
}

/// SEND_PCAS_A, and SEND_SIGNALING_PCAS_B with INVALIDATE and SCHEDULE.
pub fn pcas(qmd: u64) -> Vec<u32> {
    [methods(0x2b4, &[(qmd >> 8) as u32]), methods(0x2bc, &[3])].concat()
}

/// SET_INLINE_QMD_ADDRESS_A and _B, and LOAD_INLINE_QMD_DATA(i). INLINE_SIZE (bit 30 of _A, from `clcbc0.h` on) is INLINE_384 for 96 words.
pub fn in_methods(qmd: u64, words: &[u32]) -> Vec<u32> {
    let size = if words.len() == 96 { 1 << 30 } else { 0 };
    [methods(0x318, &[upper(qmd >> 8) | size, lower(qmd >> 8)]), methods(0x320, words)].concat()
}

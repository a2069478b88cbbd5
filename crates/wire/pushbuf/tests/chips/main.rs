//! Launches of each chip, whose words are typed by hand from the class references, are read as what they are; and nothing is written into the QMDs
//! of a chip other than Hopper.

mod words;

use pushbuf::decode::Decoder;
use pushbuf::ops::{Engine, How, Launch, What};
use pushbuf::qmd::end_time::{self, Found};
use pushbuf::qmd::{ConstantBuffer, Dependent, DependentAction, Qmd, Release};
use words::{CHIPS, Chip, KERNEL, Kernel, Layout, in_methods, pcas, pcas2, write};

const QMD: u64 = 0x02_0480_0400;
const NEXT: u64 = 0x02_0480_0800;
const SEMAPHORE: (u64, u32) = (0x12_3450_0040, 77);

const LINKED: Kernel = Kernel { next: Some(NEXT), release: Some(SEMAPHORE), ..KERNEL };

fn launches(chip: &Chip, words: &[u32]) -> Vec<Launch> {
    let mut decoder = Decoder::new(chip.classes[0]);
    decoder.bind(1, chip.classes[1]);
    let mut all = Vec::new();
    let mut add = |what: &What| {
        if let What::Launch(launch) = what {
            all.push(*launch)
        }
    };
    Engine::new().segment(&mut decoder, words, |op| add(&op.what));
    all
}

/// Each chip with each version, its name, and the words of a kernel's QMD.
fn each(kernel: &Kernel, mut test: impl FnMut(&Chip, (u8, u8), &str, &[u32])) {
    for chip in &CHIPS {
        for (major, minor, layout) in chip.qmds {
            test(chip, (*major, *minor), &format!("{} {major}.{minor}", chip.name), &layout(kernel));
        }
    }
}

fn sent(qmd: &[u32]) -> [(Vec<u32>, How); 3] {
    [
        ([write(QMD, qmd), pcas2(QMD)].concat(), How::Pcas2 { action: 3 }),
        ([write(QMD, qmd), pcas(QMD)].concat(), How::Pcas { invalidate: true }),
        (in_methods(QMD, qmd), How::InlineQmd),
    ]
}

#[test]
fn a_launch_of_each_chip_is_read_from_its_words() {
    each(&LINKED, |chip, version, name, words| {
        for (stream, how) in sent(words) {
            let [launch] = launches(chip, &stream)[..] else { panic!("{name} {how:?}") };
            assert_eq!((launch.how, launch.qmd_address), (how, QMD), "{name}");
            let qmd = launch.qmd.unwrap_or_else(|| panic!("{name} {how:?}"));
            assert_eq!((qmd.layout().major, qmd.layout().minor), version, "{name}");
            assert_eq!(Qmd::version_of(chip.classes[1], words), version, "{name}");
            assert_eq!((qmd.grid(), qmd.block(), qmd.cluster()), (KERNEL.grid, KERNEL.block, None), "{name}");
            assert_eq!((qmd.registers(), qmd.shared_memory()), (KERNEL.registers, KERNEL.shared), "{name}");
            assert_eq!(qmd.program_address(), KERNEL.program, "{name}");
            let bank = ConstantBuffer { address: KERNEL.constants, bytes: 0x210 };
            assert_eq!((qmd.constant_buffer(0), qmd.constant_buffer(1)), (Some(bank), None), "{name}");
            let (address, payload) = (SEMAPHORE.0, SEMAPHORE.1.into());
            let release = Release { address, payload, wide: false, timestamp: false };
            assert_eq!(qmd.releases().collect::<Vec<_>>(), [(0, release)], "{name}");
            let next = Dependent { address: NEXT, action: DependentAction::Schedule, prefetch: false };
            assert_eq!(qmd.dependents().collect::<Vec<_>>(), [(0, next)], "{name}");
            assert_eq!(qmd.unnamed(), None, "{name}");
        }
    });
}

#[test]
fn a_qmd_that_is_cut_or_alone_by_its_address_is_not_made_up() {
    each(&KERNEL, |chip, _, name, words| {
        let cut = [write(QMD, &words[..words.len() - 1]), pcas2(QMD)].concat();
        for stream in [cut, pcas2(QMD)] {
            let [launch] = launches(chip, &stream)[..] else { panic!("{name}") };
            assert_eq!((launch.qmd_address, launch.qmd), (QMD, None), "{name}");
        }
        let mut cut = in_methods(QMD, words);
        cut.pop();
        cut[3] -= 1 << 16; // The header of LOAD_INLINE_QMD_DATA counts one less.
        assert!(launches(chip, &cut).is_empty(), "{name}");
    });
}

/// A dependent at 0x..50000000 or 0x..51000000 has, in version 4, the bits by which versions 5.0 and 5.1 are known.
#[test]
fn a_dependents_address_is_no_version() {
    let next = Some(0x02_5012_3400);
    each(&Kernel { next, ..KERNEL }, |chip, version, name, words| {
        if version.0 != 4 || chip.classes[1] < 0xcdc0 {
            let qmd = Qmd::parse_for(chip.classes[1], words).unwrap();
            assert_eq!((qmd.layout().major, qmd.layout().minor), version, "{name}");
        }
    });
    // Without its version, a QMD of Hopper is none of Blackwell.
    let mut words = words::v4_0(&Kernel { next, ..KERNEL });
    words[18] = 0;
    assert_eq!(Qmd::parse_for(0xcbc0, &words), None);
}

#[test]
fn clusters_are_counted_by_the_grid() {
    // 5.1 publishes no sizes of clusters (`clcdc0qmd.h`, `clcec0qmd.h`).
    let clusters: [(u32, Layout, usize, usize); 4] = [
        (0xcbc0, words::v4_0, 0, 67), // QMD_TYPE 25:23; GPC_CGA_WIDTH 2149:2144, _HEIGHT 2157:2152, _DEPTH 2165:2160
        (0xcdc0, words::v4_1, 0, 67),
        (0xcdc0, words::v5_0, 4, 64), // QMD_TYPE 153:151; GPC_CGA_WIDTH 2053:2048, _HEIGHT 2061:2056, _DEPTH 2069:2064
        (0xcec0, words::v5_0, 4, 64),
    ];
    for (class, layout, kind, sizes) in clusters {
        let mut words = layout(&Kernel { grid: [5, 3, 1], ..KERNEL });
        words[kind] = 3 << 23; // GRID_GPC_CGA
        words[sizes] = 4 | 2 << 8 | 1 << 16;
        let qmd = Qmd::parse_for(class, &words).unwrap();
        assert_eq!((qmd.cluster(), qmd.grid()), (Some([4, 2, 1]), [20, 6, 1]), "{class:#x}");
        assert_eq!(qmd.unnamed(), None);
    }
    let mut words = words::v5_1(&KERNEL);
    words[4] = 3 << 23;
    let qmd = Qmd::parse_for(0xcdc0, &words).unwrap();
    assert_eq!((qmd.cluster(), qmd.grid()), (None, KERNEL.grid));
}

fn found(words: &[u32]) -> Vec<Found> {
    let mut all = Vec::new();
    end_time::find(words.len(), |i| words[i], |f| all.push(f));
    all
}

/// `record --gpu-times` writes only into what is found as a kernel; another version is counted and printed as such.
#[test]
fn only_hoppers_kernels_may_store_their_ends() {
    each(&LINKED, |_, version, name, words| {
        for (stream, how) in sent(words) {
            let all = found(&stream);
            match all[..] {
                [Found::Kernel(qmd)] => {
                    assert!(version == (4, 0) && how != How::InlineQmd, "{name} {how:?}");
                    assert_eq!(qmd.address, QMD);
                }
                [Found::OtherVersion(qmd)] => {
                    assert!(version != (4, 0) || how == How::InlineQmd, "{name} {how:?}");
                    assert_eq!((qmd.address, &stream[qmd.at..][..words.len()]), (QMD, words), "{name} {how:?}");
                }
                _ => panic!("{name} {how:?}: {all:?}"),
            }
        }
    });
}

/// In version 5, word 18 is the upper half of a release's payload, which may look like version 4.0. QMD_TYPE is then the hardware's own word.
#[test]
fn a_payload_that_looks_like_a_version_makes_no_kernel_of_hopper() {
    for layout in [words::v5_0, words::v5_1] {
        let mut words = layout(&LINKED);
        words[9] |= 1 << 12; // RELEASE_PAYLOAD64B(0) 300:300
        words[18] = 0x40; // RELEASE_SEMAPHORE0_PAYLOAD_UPPER 607:576
        let stream = [write(QMD, &words), pcas2(QMD)].concat();
        assert!(!found(&stream).iter().any(|f| matches!(f, Found::Kernel(_))));
        assert_eq!(Qmd::parse_for(0xcdc0, &words).unwrap().layout().major, 5);
    }
}

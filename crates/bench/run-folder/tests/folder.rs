//! The folder: the cases that it refuses, the files that it keeps, and the errors of damaged files.

mod made;

use made::{experiment, part, samples};
use proptest::prelude::*;
use run_folder::{Error, Folder, Sample, Status};
use std::fs;
use std::path::Path;

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn parts_and_samples_come_back_as_they_were_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    let folder = Folder::create(&path, &experiment(), false).unwrap();
    let cells = [samples(1, 5_000), samples(2, 12_345), Vec::new()];
    let first = part(0, 0, &cells);
    assert!(!folder.has_part(0, 0));
    folder.write_part(&first, &cells).unwrap();
    assert!(folder.has_part(0, 0));
    let mut odd = cells.clone();
    odd[0][7] = Sample { round: u32::MAX >> 1, done_ns: u64::MAX >> 1, capped: true, ..Sample::default() };
    let second = part(11, 3, &odd);
    Folder::join(&path).unwrap().write_part(&second, &odd).unwrap();
    drop(folder);

    let folder = Folder::open(&path).unwrap();
    assert_eq!(*folder.experiment(), experiment());
    assert_eq!(folder.parts().unwrap(), [first, second]);
    assert!(folder.samples(0, 0).unwrap() == cells);
    assert!(folder.samples(11, 3).unwrap() == odd);
    assert!(folder.open_samples(11, 3).unwrap().cell(1).unwrap() == odd[1]);
    assert!(folder.samples(1, 0).is_err());
    assert_eq!(names(&path), [".lock", "experiment.toml", "parts", "samples"]);
    assert_eq!(names(&path.join("parts")), ["0000-00.json", "0011-03.json"]);
    assert_eq!(names(&path.join("samples")), ["0000-00.parquet", "0011-03.parquet"]);
}

#[test]
fn a_cell_may_have_more_samples_than_a_row_group() {
    let dir = tempfile::tempdir().unwrap();
    let folder = Folder::create(&dir.path().join("run"), &experiment(), false).unwrap();
    let cells = [samples(1, 3), samples(2, (1 << 20) + 5)];
    folder.write_part(&part(0, 0, &cells), &cells).unwrap();
    assert!(folder.samples(0, 0).unwrap() == cells);
    let bytes = fs::metadata(folder.samples_path(0, 0)).unwrap().len();
    let each = bytes as f64 / cells[1].len() as f64;
    assert!(each < 16.0, "a sample takes {each} bytes");
}

#[test]
fn a_folder_that_exists_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    let folder = Folder::create(&path, &experiment(), false).unwrap();
    let cells = [samples(1, 10)];
    folder.write_part(&part(0, 0, &cells), &cells).unwrap();
    assert!(matches!(Folder::create(&path, &experiment(), true), Err(Error::Busy { .. })), "even by force");
    assert!(matches!(Folder::resume(&path), Err(Error::Busy { .. })));
    drop(folder);
    let e = Folder::create(&path, &experiment(), false).unwrap_err();
    assert!(matches!(e, Error::Exists(_)) && e.hint().contains("--resume"), "{e}");
    assert!(Folder::resume(&path).unwrap().has_part(0, 0));
    fs::write(path.join("mine.txt"), "kept").unwrap();
    assert!(!Folder::create(&path, &experiment(), true).unwrap().has_part(0, 0));
    assert_eq!(names(&path), [".lock", "experiment.toml", "mine.txt", "parts", "samples"]);

    let other = dir.path().join("other");
    fs::create_dir(&other).unwrap();
    Folder::create(&other, &experiment(), false).expect("an empty folder will do");
    let foreign = dir.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("thesis.tex"), "mine").unwrap();
    for force in [false, true] {
        let e = Folder::create(&foreign, &experiment(), force).unwrap_err();
        assert!(matches!(e, Error::NotOurs(_)) && e.to_string().contains("foreign"), "{e}");
    }
    assert_eq!(names(&foreign), ["thesis.tex"]);
    assert!(matches!(Folder::resume(&foreign), Err(Error::NoRun(..))));
    assert!(matches!(Folder::open(&dir.path().join("nowhere")), Err(Error::NoRun(..))));
    Folder::create(&dir.path().join("results/deep/run"), &experiment(), false).expect("folders above it are made");
    fs::write(dir.path().join("file"), "").unwrap();
    for path in ["file", "file/run"] {
        let e = Folder::create(&dir.path().join(path), &experiment(), true).unwrap_err();
        assert!(matches!(e, Error::Write { .. }) && e.to_string().contains(path), "{e}");
    }
}

#[test]
fn a_run_continues_only_with_its_own_experiment() {
    let dir = tempfile::tempdir().unwrap();
    let folder = Folder::create(&dir.path().join("run"), &experiment(), false).unwrap();
    folder.is_of(&experiment()).unwrap();
    let mut other = experiment();
    other.subjects[1].sizes[0] = 9;
    let e = folder.is_of(&other).unwrap_err().to_string();
    assert!(e.contains("subjects.1.sizes.0 is 4096 there and 9 now"), "{e}");
}

#[test]
fn a_run_in_vain_is_in_nobodys_way() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    Folder::create(&path, &experiment(), false).unwrap().give_up().unwrap();
    assert!(!path.exists(), "nothing was measured, nothing is left");
    let cells = [samples(1, 10)];
    let mut failed = part(0, 0, &cells);
    failed.cells.iter_mut().for_each(|cell| cell.status = run_folder::Status::Unavailable("no GPU".into()));
    let folder = Folder::create(&path, &experiment(), false).unwrap();
    folder.write_part(&failed, &[vec![]]).unwrap();
    folder.give_up().unwrap();
    assert!(Folder::open(&path).is_ok(), "the reasons stay");
    let folder = Folder::create(&path, &experiment(), false).expect("a retry takes its place");
    assert!(!folder.has_part(0, 0));
    drop(folder);
    // A folder that the user made stays, with its contents.
    fs::write(path.join("mine.txt"), "kept").unwrap();
    Folder::create(&path, &experiment(), false).unwrap().give_up().unwrap();
    assert_eq!(names(&path), ["mine.txt"]);
}

#[test]
fn partial_files_of_a_killed_run_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    drop(Folder::create(&path, &experiment(), false).unwrap());
    for name in [".doorbell-a1.part", "parts/.doorbell-b.part", "samples/.doorbell-c.part"] {
        fs::write(path.join(name), "half").unwrap();
    }
    let folder = Folder::resume(&path).unwrap();
    assert_eq!(names(&path), [".lock", "experiment.toml", "parts", "samples"]);
    assert!(names(&path.join("parts")).is_empty() && names(&path.join("samples")).is_empty());
    // A folder whose run was killed before it had written its experiment is no run, and does not block others.
    drop(folder);
    fs::remove_file(path.join("experiment.toml")).unwrap();
    fs::remove_dir(path.join("parts")).unwrap();
    fs::remove_dir(path.join("samples")).unwrap();
    Folder::create(&path, &experiment(), false).unwrap();
}

#[test]
fn damage_is_an_error_with_the_name_of_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    let folder = Folder::create(&path, &experiment(), false).unwrap();
    let cells = [samples(1, 1000), samples(2, 1000)];
    folder.write_part(&part(0, 0, &cells), &cells).unwrap();
    let file = folder.samples_path(0, 0);
    let good = fs::read(&file).unwrap();
    let error = |bytes: &[u8]| {
        fs::write(&file, bytes).unwrap();
        let e = folder.samples(0, 0).unwrap_err().to_string();
        assert!(e.contains("samples/0000-00.parquet"), "{e}");
        e
    };
    for length in [0, 1, good.len() / 2, good.len() - 1] {
        assert!(error(&good[..length]).contains("bytes"));
    }
    for at in [0, 5, good.len() / 3, good.len() - 6] {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        assert!(error(&bad).contains("checksum"), "byte {at}");
    }
    fs::remove_file(&file).unwrap();
    assert!(folder.samples(0, 0).unwrap_err().to_string().contains("0000-00.parquet"));

    let file = path.join("parts/0000-00.json");
    let good = fs::read_to_string(&file).unwrap();
    let error = |text: &str| {
        fs::write(&file, text).unwrap();
        let e = folder.parts().unwrap_err();
        assert!(e.to_string().contains("parts/0000-00.json"), "{e}");
        e
    };
    error("");
    error("{}");
    error(&good[..good.len() / 2]);
    error("\u{0}\u{0}\u{0}");
    let e = error(&good.replace("doorbell.part/1", "doorbell.part/7").replace(run_folder::folder::VERSION, "9.9.9"));
    assert!(matches!(e, Error::Version { .. }) && e.hint().contains("doorbell 9.9.9"), "{e}: {}", e.hint());
    fs::write(&file, &good).unwrap();
    fs::rename(&file, path.join("parts/0001-00.json")).unwrap();
    let e = folder.parts().unwrap_err().to_string();
    assert!(e.contains("parts/0001-00.json") && e.contains("stage 0"), "{e}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn any_sample_is_read_back(
        cells in prop::collection::vec(
            prop::collection::vec((0u32..1 << 31, prop::array::uniform6(0u64..1 << 63), any::<bool>()), 0..40),
            1..4,
        ),
    ) {
        let sample = |&(round, [release_ns, call_ns, submitted_ns, started_ns, ended_ns, done_ns], capped): &(u32, [u64; 6], bool)| {
            Sample { round, release_ns, call_ns, submitted_ns, started_ns, ended_ns, done_ns, capped }
        };
        let cells: Vec<Vec<Sample>> = cells.iter().map(|c| c.iter().map(sample).collect()).collect();
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::create(dir.path(), &experiment(), false).unwrap();
        folder.write_part(&part(0, 0, &cells), &cells).unwrap();
        prop_assert!(folder.samples(0, 0).unwrap() == cells);
    }
}

#[test]
fn files_of_others_are_told_from_ours() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    fs::create_dir(&path).unwrap();
    fs::write(path.join("experiment.toml"), "name = 1").unwrap();
    let e = Folder::open(&path).unwrap_err().to_string();
    assert!(e.contains("experiment.toml"), "{e}");
}

#[test]
fn a_part_that_json_cannot_hold_is_an_error_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let folder = Folder::create(&dir.path().join("run"), &experiment(), false).unwrap();
    let cells = [samples(1, 10)];
    let mut bad = part(0, 0, &cells);
    bad.seconds = f64::NAN;
    assert!(matches!(folder.write_part(&bad, &cells), Err(Error::Write { .. })));
    assert!(!folder.has_part(0, 0));
    bad.seconds = 1.0;
    bad.cells[0].status = Status::Failed("lost \"it\"".into());
    folder.write_part(&bad, &cells).unwrap();
    assert_eq!(folder.parts().unwrap(), [bad]);
}

//! Whole runs on the software GPU: which parts are kept, which are continued, and that no rate is reported.

use doorbell_softgpu::{Mode, SoftDriver};
use gpu::{AddressSpace, Device};
use measure::clock::Clock;
use saturate::account::{Saturated, Status};
use saturate::folder::{Asked, Folder, read_account};
use saturate::plan::{self, Plan, Role};
use saturate::run::{End, Leader};
use saturate::sources::engine::Engines;
use saturate::way::Mode as Told;
use saturate::wire::Uncounted;
use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;

fn asked(sets: &[&str]) -> Asked {
    let sets: Vec<String> = sets.iter().map(|set| (*set).into()).collect();
    let small = plan::SHIPPED.iter().find(|shipped| shipped.name == "small").unwrap();
    let plan: Plan = plan::read(small.text, "small", &sets).unwrap();
    Asked {
        doorbell: "0".into(),
        commit: None,
        command: Vec::new(),
        plan,
        find_knee: false,
        started: String::new(),
        environment: serde_json::json!({ "facts": { "pci.link": "generation 5 x16" } }),
        warnings: Vec::new(),
    }
}

/// Measures the missing cells, at most this many.
fn measured(folder: &Folder, most: usize) -> (End, usize, Saturated) {
    let space = AddressSpace::new(&Device::open(Arc::new(SoftDriver::new(Mode::Poll)), 0).unwrap()).unwrap();
    let mut engines = Engines::new(&space, &[], Told::default()).unwrap();
    let told = Cell::new(0);
    let is_stopped = || told.get() == most;
    let (mut wire, clock) = (Uncounted, Clock::new());
    let mut leader = Leader { folder, source: &mut engines, wire: &mut wire, clock: &clock, is_stopped: &is_stopped };
    let end = leader.run(&mut |_| told.set(told.get() + 1)).unwrap();
    let account = leader.account().unwrap();
    folder.write_account(&account).unwrap();
    (end, told.get(), account)
}

const QUICK: [&str; 7] = [
    "run.gpu=soft",
    "run.duration=2ms",
    "matrix.bytes=512B",
    "run.buffer=128KiB",
    "peak.bytes=16KiB",
    "matrix.batch=[1, 4]",
    "matrix.devices=2",
];

#[test]
fn a_stopped_run_continues_after_its_last_part() {
    let dir = tempfile::tempdir().unwrap();
    let folder = Folder::create(dir.path(), asked(&QUICK), false).unwrap();
    let (end, told, account) = measured(&folder, 3);
    assert_eq!((end, told, account.complete, folder.parts().unwrap().len()), (End::Stopped, 3, false, 3));
    drop(folder);
    // As if the run was killed while it wrote.
    std::fs::write(dir.path().join("parts/.tmp"), "").unwrap();
    let folder = Folder::resume(dir.path()).unwrap();
    let cells = folder.asked().plan.cells().len();
    let (end, told, account) = measured(&folder, usize::MAX);
    assert_eq!((end, told, account.complete), (End::Complete, 2 * cells - 3, true));
    assert_eq!((account.cells.len(), read_account(dir.path()).unwrap()), (cells, account.clone()));
    for total in &account.cells {
        assert_eq!((&total.status, total.repeats, total.checked.wrong), (&Status::Done, 2, 0), "{total:?}");
        assert!(total.submitted > 0 && total.checked.blocks > 0);
    }
    // Emulated figures are neither rates nor times.
    assert!(account.functional && account.link.is_none() && account.knees.is_empty());
    assert!(account.cells.iter().all(|total| total.figures.is_none()));
    let text = std::fs::read_to_string(dir.path().join("saturate.json")).unwrap();
    let part = std::fs::read_to_string(dir.path().join("parts/000-0002.json")).unwrap();
    for word in ["iops", "seconds\":", "_ns\":"] {
        assert!(!text.contains(word) && !part.contains(word), "{word}");
    }
}

#[test]
fn cells_too_large_for_the_buffer_are_unavailable_and_the_rest_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let sets =
        [&QUICK[..5], &["run.buffer=64KiB", "matrix.depth=[4, 256]", "matrix.batch=1", "run.repeats=1"]].concat();
    let folder = Folder::create(dir.path(), asked(&sets), false).unwrap();
    let (end, _, account) = measured(&folder, usize::MAX);
    assert_eq!(end, End::Complete);
    for total in account.cells.iter().filter(|total| total.cell.role == Role::Io) {
        let fits = total.cell.depth == 4;
        assert_eq!(matches!(total.status, Status::Done), fits, "{total:?}");
        assert!(fits || matches!(&total.status, Status::Unavailable(why) if why.contains("run.buffer")), "{total:?}");
    }
}

#[test]
fn a_folder_is_never_taken_by_accident() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    let create = |path: &Path, force| Folder::create(path, asked(&QUICK), force).map(drop).map_err(|e| e.to_string());
    create(&path, false).unwrap();
    // A run without a finished part has no data to lose.
    create(&path, false).unwrap();
    std::fs::write(path.join("parts/0000-00.json"), "{}").unwrap();
    assert!(create(&path, false).unwrap_err().contains("there is a run already"));
    create(&path, true).unwrap();
    std::fs::write(dir.path().join("mine"), "").unwrap();
    assert!(create(dir.path(), true).unwrap_err().contains("not empty"));
    let first = Folder::resume(&path).unwrap();
    assert!(Folder::resume(&path).is_err(), "one writer");
    drop(first);
    assert!(Folder::open(&dir.path().join("none")).unwrap_err().to_string().contains("asked.json"));
}

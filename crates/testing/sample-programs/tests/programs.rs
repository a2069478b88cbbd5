//! Every sample against a stand-in for libcuda: results, checksums, and no leaks; also mistakes of the GPU, which must be noticed. This does not
//! show what a real GPU does with the PTX.

mod fake;

use cuda::Cuda;
use sample_programs::{Error, Options, SAMPLES, run_on};
use std::ffi::CStr;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard};

/// The stand-in is global to the process, and so are its mistakes.
static ONE: Mutex<()> = Mutex::new(());

fn start() -> (MutexGuard<'static, ()>, Cuda) {
    let guard = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    fake::LOSE_LAUNCH.store(0, Ordering::SeqCst);
    fake::SPOIL_COPY.store(0, Ordering::SeqCst);
    // SAFETY: the stand-in's functions have the signatures of the real ones.
    (guard, unsafe { Cuda::from_symbols(fake::find) }.unwrap())
}

/// Few of everything: debug builds copy slowly.
fn few(name: &str) -> Options {
    let count = match name {
        "copies" => 1,
        "storm" => 500,
        _ => 3,
    };
    // `starve` runs for a time, whatever its count.
    let seconds = (name == "starve").then_some(0.3);
    Options { count: Some(count), seconds, seed: 42, ..Options::default() }
}

#[test]
#[ignore = "4 s; run by .ci/run"]
fn every_sample_passes_repeats_its_checksum_and_leaks_nothing() {
    let (_one, cuda) = start();
    let mut sums = Vec::new();
    for sample in SAMPLES {
        let first = match run_on(&cuda, sample.name, &few(sample.name)) {
            Err(Error::Unavailable { reason }) if reason.contains("software GPU only") => continue,
            first => first.unwrap(),
        };
        assert_eq!(fake::alive(), [""; 0], "{} left objects behind", sample.name);
        let line = first.to_string().lines().last().unwrap().to_owned();
        assert_eq!(line, format!("checksum {} seed 42: {:016x}", sample.name, first.checksum()));
        if sample.name != "copies" {
            let second = run_on(&cuda, sample.name, &few(sample.name)).unwrap();
            assert_eq!(first.checksum(), second.checksum(), "{}", sample.name);
            let other = run_on(&cuda, sample.name, &Options { seed: 43, ..few(sample.name) }).unwrap();
            assert_ne!(first.checksum(), other.checksum(), "{}: the seed changes nothing", sample.name);
        }
        sums.push(first.checksum());
    }
    sums.sort_unstable();
    sums.dedup();
    assert_eq!(sums.len(), SAMPLES.len() - 3, "two samples with one checksum, or another one without libcuda");
}

#[test]
fn a_lost_launch_is_noticed() {
    let (_one, cuda) = start();
    for (name, lost) in [("launches", 5), ("graphs", 7)] {
        fake::LOSE_LAUNCH.store(lost, Ordering::SeqCst);
        let error = run_on(&cuda, name, &Options { count: Some(20), ..few(name) }).unwrap_err();
        assert!(matches!(error, Error::Wrong { .. }), "{name}: {error}");
        assert_eq!(fake::LOSE_LAUNCH.load(Ordering::SeqCst), 0);
        assert_eq!(fake::alive(), [""; 0], "{name} left objects behind");
    }
}

#[test]
fn a_wrong_bit_is_noticed_with_its_place() {
    let (_one, cuda) = start();
    // The sixth copy: device to host, pageable, of the first size.
    fake::SPOIL_COPY.store(6, Ordering::SeqCst);
    let Error::Wrong { what, difference } = run_on(&cuda, "copies", &few("copies")).unwrap_err() else { panic!() };
    assert_eq!(what, "4 B from pageable memory and back");
    assert_eq!((difference.first, difference.count, difference.len), (3, 1, 4));
    assert_eq!(difference.got ^ difference.expected, 0x10);
}

#[test]
fn launches_are_as_many_as_reported() {
    let (_one, cuda) = start();
    for (name, fact) in [("launches", "launches"), ("storm", "launches"), ("graphs", "kernels")] {
        fake::LAUNCHES.store(0, Ordering::SeqCst);
        let report = run_on(&cuda, name, &few(name)).unwrap();
        let said = report.facts.iter().find(|(what, _)| *what == fact).unwrap().1;
        assert_eq!(said, fake::LAUNCHES.load(Ordering::SeqCst), "{name}");
    }
}

/// Shapes that the stand-in lacks, or is set to lack, are skipped by name; all others run.
#[test]
fn shapes_that_a_driver_lacks_are_skipped_by_name() {
    let (_one, cuda) = start();
    let skipped = |cuda: &Cuda| {
        let report = run_on(cuda, "graphs", &few("graphs")).unwrap();
        assert_eq!(report.parts.len(), sample_programs::shapes().len());
        assert!(report.parts.iter().all(|part| part.skipped.is_some() == (part.launches == 0)), "{report}");
        let left = report.parts.into_iter().filter_map(|part| Some((part.name, part.skipped?)));
        left.collect::<Vec<(String, String)>>()
    };
    let names = |left: &[(String, String)]| left.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    let left = skipped(&cuda);
    assert_eq!(names(&left), ["if", "if-not", "while-not", "by-kernels"]);
    assert!(
        left[0].1.contains("no cuGraphConditionalHandleCreate") && left[3].1.contains("device runtime"),
        "{left:?}"
    );

    // A driver without any of the later functions.
    const LATER: [&str; 6] = [
        "cuLaunchKernelEx",
        "cuMemcpy2DAsync_v2",
        "cuGraphUpload",
        "cuStreamWaitEvent",
        "cuMemsetD16Async",
        "cuLaunchHostFunc",
    ];
    let find =
        |name: &CStr| (!LATER.iter().any(|n| n.as_bytes() == name.to_bytes())).then(|| fake::find(name)).flatten();
    // SAFETY: as in `start`.
    let older = unsafe { Cuda::from_symbols(find) }.unwrap();
    let left = skipped(&older);
    for name in ["fork", "fan-out-40", "cooperative", "cluster-8", "memset-2-4B", "memcpy-h2d-2d", "uploaded", "host"] {
        assert!(names(&left).iter().any(|n| n == name), "{name}: {left:?}");
    }
    for name in ["one", "chain-2000", "memset-4-64KiB-zero", "memcpy-d2h-pageable-1MiB", "updated", "child"] {
        assert!(names(&left).iter().all(|n| n != name), "{name}: {left:?}");
    }
    assert_eq!(fake::alive(), [""; 0]);
}

#[test]
fn one_shape_is_the_same_alone() {
    let (_one, cuda) = start();
    let only = |names: &[&str]| {
        let only = names.iter().map(|name| (*name).to_owned()).collect();
        run_on(&cuda, "graphs", &Options { only, ..few("graphs") })
    };
    let (one, two) = (only(&["diamond"]).unwrap(), only(&["diamond", "two-graphs"]).unwrap());
    assert_eq!(one.parts, two.parts[..1]);
    assert_eq!(
        (two.parts[1].launches, sample_programs::shapes()[two.parts[1].number as usize - 1].as_str()),
        (6, "two-graphs")
    );
    assert_ne!(one.checksum(), two.checksum());
    let unknown = only(&["diamond", "square"]).unwrap_err().to_string();
    assert!(unknown.contains("called square") && unknown.contains("diamond, fork"), "{unknown}");
    let other = Options { only: vec!["diamond".into()], ..few("launches") };
    assert!(matches!(run_on(&cuda, "launches", &other), Err(Error::Option { .. })));
}

/// A shape that fails is named, and the later ones still run.
#[test]
fn a_wrong_shape_is_named_and_the_others_run() {
    let (_one, cuda) = start();
    fn said(line: &str) {
        SAID.lock().unwrap().push(line.to_owned());
    }
    static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());
    fake::LOSE_LAUNCH.store(3, Ordering::SeqCst);
    let options = Options { only: vec!["one".into(), "chain-2".into()], progress: said, ..few("graphs") };
    let error = run_on(&cuda, "graphs", &options).unwrap_err().to_string();
    assert!(error.contains("shape one, launch 2, memory of the GPU"), "{error}");
    let said = SAID.lock().unwrap().clone();
    assert!(said.len() == 2 && said[0].contains("shape 1, one: ") && said[1] == "2 chain-2: 3 launches", "{said:?}");
}

#[test]
fn storm_ends_when_its_time_is_over() {
    let (_one, cuda) = start();
    let options = Options { count: None, seconds: Some(0.05), ..few("storm") };
    let timed = run_on(&cuda, "storm", &options).unwrap();
    let counted = run_on(&cuda, "storm", &few("storm")).unwrap();
    assert_eq!(timed.checksum(), counted.checksum(), "the result depends on how many launches there were");
}

#[test]
fn seconds_repeat_a_sample() {
    let (_one, cuda) = start();
    let repetitions = |seconds| {
        let report = run_on(&cuda, "launches", &Options { seconds: Some(seconds), ..few("launches") }).unwrap();
        report.facts.iter().find(|(what, _)| *what == "repetitions").unwrap().1
    };
    // How often in a time is the machine's affair, if it is busy.
    assert!([0.05, 1.0, 10.0].into_iter().any(|seconds| repetitions(seconds) > 1));
}

#[test]
fn errors_name_call_and_status() {
    let (_one, cuda) = start();
    let context = cuda.device(0).unwrap().primary_context().unwrap();
    let error = cuda::Module::from_ptx(&context, "nothing").unwrap_err().to_string();
    assert_eq!(error, "cuModuleLoadData: CUDA_ERROR_INVALID_VALUE (1): of the stand-in");
    let error = cuda.device(7).unwrap_err().to_string();
    assert!(error.starts_with("cuDeviceGet: unknown error (101)"), "{error}");
    let buffer = cuda::DeviceBuffer::new(&context, 16).unwrap();
    assert!(buffer.slice(8, 9).is_err() && buffer.write(&[0; 17]).is_err());
}

#[test]
fn without_libcuda_the_reason_is_given() {
    if let Err(error) = sample_programs::run("launches", &Options { count: Some(1), ..Options::default() }) {
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
        assert!(error.to_string().contains("CUDA"), "{error}");
    }
}

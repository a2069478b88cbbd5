//! An invented soak: 24 periods with a simulated clock, and a sample above its bound.

use run_folder::commands::Counter;
use run_folder::delay::{CudaCall, Delay, Holder, OffCpu, Waited};
use run_folder::soak::Folder;
use run_folder::soak::account::{Above, Held, Soak};
use run_folder::soak::clock::Clock;
use run_folder::soak::folder::{Asked, RECORDING};
use run_folder::soak::measuring::{Ending, Lap, Measuring, Over, Stop, Then};
use run_folder::{Compared, Loaded, Part, PartCell, Sample, Status};

const TEXT: &str = r#"
name = "night"
about = "Two ways beside a crowd <of & threads>"
[run]
samples = 40
record = "commands"
[[subject]]
route = "host->cuda->gpu0"
name = "cuda"
sizes = "4KiB"
[[subject]]
route = "host->ce3->gpu0"
name = "ours"
sizes = "4KiB"
[[load]]
route = "gpu0->cuda->host"
bytes = "4KiB"
name = "crowd"
rate = 100
[compare]
baseline = "cuda"
"#;

const LAPS: u64 = 48;
const LAP_S: f64 = 300.0;

fn lap(number: u64) -> Lap {
    let samples = |fixed: u64| -> Vec<Sample> {
        let one = |n: u64| {
            let call_ns = n * 100_000;
            let done_ns = call_ns + fixed + (n * 37 + number * 11) % 500;
            let (submitted_ns, ended_ns) = (call_ns + fixed / 3, done_ns - 300);
            Sample {
                release_ns: call_ns,
                call_ns,
                submitted_ns,
                started_ns: ended_ns - 900,
                ended_ns,
                done_ns,
                ..Sample::default()
            }
        };
        (0..40).map(one).collect()
    };
    let mut samples = vec![samples(8_000), samples(4_700)];
    let mut ended = vec![None, None];
    if number == LAPS {
        let last = samples[0].last_mut().expect("40 samples");
        (last.submitted_ns, last.done_ns) = (last.call_ns + 634_000_000, last.call_ns + 634_006_000);
        (last.started_ns, last.ended_ns, ended[0]) = (0, 0, Some(Ending::Above));
    }
    let cell = || PartCell {
        about: String::new(),
        status: Status::Measured,
        samples: 40,
        compared: Compared { whole: 40, guards: true },
        worst: Vec::new(),
        counted: None,
        metered: None,
        stuck_between: None,
        turns: Vec::new(),
        commands: None,
    };
    let crowd = Loaded { name: "crowd".into(), threads: 1, transfers: 1_000, seconds: 10.0, ..Loaded::default() };
    let counted =
        [("power_w", 90.0 + (number % 5) as f64), ("energy_mj", 900_000.0), ("temperature_c", 40.0), ("steal_ms", 2.0)];
    let part = Part {
        stage: 0,
        repeat: 0,
        began: String::new(),
        seconds: 10.0,
        cpu: Some(1),
        class: "other".into(),
        throttled: 0,
        cells: vec![cell(), cell()],
        loads: vec![crowd],
        noise: Vec::new(),
        clock_error_ns: None,
        counted: counted.map(|(name, value)| (name.to_owned(), value)).into(),
        notes: Vec::new(),
        counter: None::<Counter>,
        recorded: None,
    };
    Lap { part, samples, ended, ago_s: 10.0 }
}

fn delay() -> Delay {
    let holder = Holder {
        tid: 4711,
        thread: "loader <jit>".into(),
        of_wait_ns: 633_000_000,
        inside: Some("cuModuleLoadData".into()),
        site: "libcuda+0x32499f".into(),
        off_cpu_ns: Some(0),
    };
    let waited = Waited {
        lock: "libcuda+0x32499f/rwlock".into(),
        ns: 633_500_000,
        free_ns: 0,
        inside: Some("cuMemcpyAsync".into()),
        holders: vec![holder],
    };
    let call = |tid, call: &str, ns| CudaCall { tid, call: call.into(), ns, size: 4096 };
    Delay {
        waits: vec![waited],
        off_cpu: Some(OffCpu { ns: 633_400_000, preempted_ns: 0, by: String::new() }),
        calls: vec![call(4700, "cuMemcpyAsync", Some(633_900_000))],
        beside: vec![call(4711, "cuModuleLoadData", None)],
        incomplete_because: Vec::new(),
    }
}

pub fn soak() -> Soak {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder");
    let experiment = experiment::read_stored(TEXT, "made-up.toml").unwrap_or_else(|e| panic!("{e}"));
    let asked = Asked {
        doorbell: "0.1.0".into(),
        command: vec!["doorbell".into(), "soak".into()],
        started: "2026-11-23T00:00:00Z".into(),
        asked_s: 12.0 * 3600.0,
        every_s: 600.0,
        stop_above_ns: Some(1_000_000),
        environment: serde_json::json!({ "facts": { "gpu.name": "NVIDIA H200" }, "unknown": {}, "notes": [] }),
        warnings: vec!["CPU 15 is not isolated <b>".into()],
        ..Asked::default()
    };
    let folder = Folder::create(dir.path(), &experiment, asked, false).expect("a soak");
    let clock = Clock::simulated(1_795_000_000.0, LAP_S);
    let held = || Held { rss_bytes: Some(50 << 20), descriptors: Some(40), threads: Some(4), ..Held::default() };
    let mut measuring = Measuring::new(&folder, &clock, 0, &held).expect("an empty soak");
    for number in 1..=LAPS {
        let then = measuring.lap(&folder.stages()[0], lap(number), Stop::No).expect("a period");
        assert_eq!(matches!(then, Then::Over(Over::Above(_))), number == LAPS, "{then:?}");
    }
    let above = folder.above().expect("readable").expect("the sample above the bound");
    folder.write_above(&Above { recording: Some(RECORDING.into()), delay: Some(delay()), ..above }).expect("written");
    folder.soak().expect("an account")
}

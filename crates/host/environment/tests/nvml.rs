//! Facts and counters of a GPU, with a fake NVML library: the answers of a real one are not known in advance.

use environment::link::LinkCounters;
use environment::{Counted, Counters, Environment, Gpu};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The PCI address of the fake NVML's GPU.
const GPU: Gpu<'static> = Gpu::Real { pci: Some("0000:41:00.0") };

/// Started by the tests, with the fake NVML first in the library path.
#[test]
#[ignore = "a program that the tests start"]
fn plays_a_measurement() {
    let environment = Environment::gather(GPU, None, Vec::new());
    let counters = Counters::begin(GPU, None);
    std::thread::sleep(Duration::from_millis(300));
    let Counted { values, missing, link } = counters.end();
    // A busy machine may need several tries to be quick.
    let mut quick = (0..100).map(|_| Counters::begin(GPU, None).end());
    let short = quick.find(|c| c.get("wall_ms").is_some_and(|ms| ms < 50.0) && c.get("pcie_to_gpu_bytes").is_none());
    let other = Environment::gather(Gpu::Real { pci: Some("0000:42:00.0") }, None, Vec::new());
    let all = serde_json::json!({
        "environment": environment,
        "warnings": environment.warnings(),
        "counted": values.into_iter().collect::<std::collections::BTreeMap<_, _>>(),
        "missing": missing,
        "by": link.as_ref().map(|link| format!("{:?}", link.by)),
        "why": link.and_then(|link| link.why),
        "short": short.map(|c| c.missing),
        "other": other.unknown["gpu.name"],
    });
    println!("\nsaid: {all}");
}

/// The same.
#[test]
#[ignore = "a program that the tests start"]
fn plays_readings_of_the_link() {
    let mut link = LinkCounters::open(GPU).expect("the test's NVML");
    // Time between two counted spans may be long.
    link.look(true);
    std::thread::sleep(Duration::from_millis(70));
    link.begin();
    let began = std::time::Instant::now();
    let mut looks = vec![link.look(true)];
    while began.elapsed() < Duration::from_millis(250) {
        std::thread::sleep(Duration::from_millis(5));
        looks.push(link.look(looks.len() % 10 == 0));
    }
    let seconds = began.elapsed().as_secs_f64();
    let last = looks.last().and_then(|look| look.counted.clone().ok());
    let rates: Vec<_> = looks.iter().filter_map(|look| look.rate.clone()?.ok()).collect();
    let rate = |of: fn(&environment::link::Both<f64>) -> f64| rates.iter().map(of).sum::<f64>() / rates.len() as f64;
    let all = serde_json::json!({
        "seconds": seconds,
        "counted": last.map(|both| [both.to_gpu, both.from_gpu]),
        "why": looks.last().and_then(|look| look.counted.clone().err()),
        "samples": rates.len(),
        "rates": [rate(|both| both.to_gpu), rate(|both| both.from_gpu)],
    });
    println!("\nsaid: {all}");
}

/// The same, with a reading thread.
#[test]
#[ignore = "a program that the tests start"]
fn plays_a_metered_cell() {
    let cpus = environment::placement::affinity().expect("the CPUs of this thread");
    let counters = Counters::follow(GPU, None, &cpus);
    std::thread::sleep(Duration::from_millis(300));
    let counted = counters.end();
    let link = counted.link.as_ref().expect("somebody asked");
    let all = serde_json::json!({
        "seconds": counted.get("wall_ms").map(|ms| ms / 1e3),
        "counted": link.bytes.as_ref().ok().map(|both| [both.to_gpu, both.from_gpu]),
        "values": [counted.get("pcie_to_gpu_bytes"), counted.get("pcie_from_gpu_bytes")],
        "missing": counted.missing,
        "by": format!("{:?}", link.by),
        "looks": link.looks,
        "why": link.why,
    });
    println!("\nsaid: {all}");
}

/// The program's output with the fake NVML; `None` without a compiler.
fn said(with: &[(&str, &str)]) -> Option<serde_json::Value> {
    run("plays_a_measurement", with)
}

fn run(program: &str, with: &[(&str, &str)]) -> Option<serde_json::Value> {
    let name = program;
    let with_names: String = with.iter().map(|(variable, _)| format!("-{variable}")).collect();
    let folder = std::env::temp_dir().join(format!("environment-nvml-{}-{name}{with_names}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/libnvidia-ml.c");
    let source = test_support::Source { file: &file, compiler: "cc", flags: &["-shared", "-fPIC"] };
    let library = match source.compile(&folder) {
        Ok(library) => library,
        Err(why) => test_support::skip!("{why}"),
    };
    std::fs::rename(library, folder.join("libnvidia-ml.so.1")).expect("a name");
    let mut program = Command::new(std::env::current_exe().expect("this program"));
    program.args(["--exact", "--ignored", "--nocapture", name]).env("LD_LIBRARY_PATH", &folder);
    let out = test_support::finished(program.envs(with.iter().copied()), "a measurement");
    std::fs::remove_dir_all(&folder).expect("the folder is ours");
    let text = String::from_utf8_lossy(&out.stdout);
    let line = text.lines().find_map(|l| l.strip_prefix("said: "));
    Some(serde_json::from_str(line.unwrap_or_else(|| panic!("{out:?}"))).expect("JSON"))
}

#[test]
fn counters_of_the_gpu_are_counted_and_missing_ones_have_reasons() {
    let Some(said) = said(&[]) else { return };
    let facts = &said["environment"]["facts"];
    assert_eq!((facts["gpu.name"].as_str(), facts["gpu.driver"].as_str()), (Some("GPU of a test"), Some("580.0")));
    let unknown = &said["environment"]["unknown"];
    // Not supported by the GPU; a symbol that the library lacks; and a GPU that is not there.
    assert!(unknown["gpu.persistence"].as_str().is_some_and(|r| r.starts_with("NVML: ")), "{unknown}");
    assert!(unknown["gpu.uuid"].as_str().is_some_and(|r| r.starts_with("NVML: ")), "{unknown}");
    assert!(said["other"].as_str().is_some_and(|r| r.starts_with("no GPU at 0000:42:00.0")), "{said}");
    let warned = said["warnings"].as_array().expect("warnings").iter().any(|w| w["fact"] == "gpu.link_width");
    assert!(warned, "8 of 16 lanes: {said}");

    let counted = |name: &str| said["counted"][name].as_f64().unwrap_or_else(|| panic!("{name}: {said}"));
    // The samples are a little farther apart than the readings of the kernel, and much farther on a busy machine.
    let mib_per_second = counted("pcie_to_gpu_bytes") / f64::from(1 << 20) / (counted("wall_ms") / 1e3);
    assert!((999.0..10_000.0).contains(&mib_per_second), "{said}");
    let ratio = counted("pcie_to_gpu_bytes") / counted("pcie_from_gpu_bytes");
    assert!((ratio - 20.0).abs() < 1e-6, "each direction is its own metric: {said}");
    assert!((20.0..2000.0).contains(&counted("power_w")), "{said}");
    assert_eq!(counted("temperature_c"), 41.0);
    let reasons = said["missing"].to_string();
    assert!(reasons.contains("sm_mhz") && !reasons.contains("pcie_to_gpu_bytes"), "{reasons}");
    assert!(said["short"].to_string().contains("too short for the bytes of the link"), "{said}");
    // Two readings of a 32-bit counter: the difference is not used, and the reason is reported.
    assert_eq!(said["by"], "Some(Rates)");
    assert!(said["why"].as_str().is_some_and(|why| why.contains("has 32 bits")), "{said}");
}

/// Whether readings were too far apart for a 32-bit counter to be certain, as on a busy machine; then the reason mentions it.
fn was_late(said: &serde_json::Value) -> bool {
    said["why"].as_str().is_some_and(|why| why.contains("32 bits"))
}

#[test]
fn a_metered_cell_has_the_bytes_of_counters_that_come_round_every_71_ms() {
    let Some(said) = run("plays_a_metered_cell", &[("NVML_LINE_RATE", "1")]) else { return };
    assert_eq!(said["counted"], said["values"], "{said}");
    if was_late(&said) {
        assert_eq!(said["by"], "Some(Rates)", "{said}");
        return;
    }
    assert_eq!(said["by"], "Some(Counters)", "{said}");
    assert!(said["looks"].as_u64().is_some_and(|looks| looks >= 5), "{said}");
    let [to, from] = [0, 1].map(|n| said["counted"][n].as_f64().expect("a number"));
    // If one wrap were lost, or the rates used, it would be less.
    assert!(to >= 0.3 * 60_000.0 * f64::from(1 << 20) && (to / from - 20.0).abs() < 0.1, "{said}");
}

#[test]
fn a_metered_cell_falls_back_to_rates_with_a_reason() {
    let without_fields = ("NVML_WITHOUT_FIELDS", "1");
    let Some(said) = run("plays_a_metered_cell", &[without_fields]) else { return };
    assert_eq!((&said["by"], &said["looks"]), (&"Some(Rates)".into(), &2.into()));
    assert!(said["why"].as_str().is_some_and(|why| why.starts_with("NVML: ")), "{said}");
    let [to, from] = [0, 1].map(|n| said["counted"][n].as_f64().expect("a number"));
    assert!((to / from - 20.0).abs() < 1e-6 && to >= 0.3 * 1000.0 * f64::from(1 << 20), "{said}");
    let Some(said) = run("plays_a_metered_cell", &[without_fields, ("NVML_WITHOUT_GPM", "1")]) else { return };
    assert_eq!((&said["by"], &said["values"]), (&"None".into(), &serde_json::json!([null, null])));
    assert!(said["why"].as_str().is_some_and(|why| why.contains("; GPM: this GPU has no GPM")), "{said}");
    assert!(said["missing"].to_string().contains("no GPM"), "{said}");
}

#[test]
fn a_gpu_without_gpm_has_rates_under_another_name() {
    let Some(said) = said(&[("NVML_WITHOUT_GPM", "1")]) else { return };
    let counted = &said["counted"];
    assert!(counted["pcie_to_gpu_bytes"].is_null(), "{counted}");
    assert_eq!(counted["pcie_to_gpu_at_end_bytes_per_s"].as_f64(), Some(2000.0 * 1024.0));
    assert_eq!(counted["pcie_from_gpu_at_end_bytes_per_s"].as_f64(), Some(100.0 * 1024.0));
    assert!(said["missing"].to_string().contains("no GPM"), "{said}");
}

#[test]
fn counters_that_come_round_are_followed_and_samples_are_rates() {
    let Some(said) = run("plays_readings_of_the_link", &[]) else { return };
    let mib = f64::from(1 << 20);
    // On a busy machine readings may be too far apart for a 32-bit counter to be certain; then the reason mentions it.
    if let Some(why) = said["why"].as_str() {
        assert!(why.contains("32 bits"), "{said}");
    } else {
        let [to, from] = [0, 1].map(|n| said["counted"][n].as_f64().expect("a number"));
        let seconds = said["seconds"].as_f64().expect("a number");
        assert!(to > 0.2 * 1000.0 * mib && to <= seconds * 1000.0 * mib, "{said}");
        assert!((to / from - 20.0).abs() < 0.1, "{said}");
    }
    assert!(said["samples"].as_u64().is_some_and(|n| n >= 1), "{said}");
    assert_eq!(said["rates"], serde_json::json!([1000.0 * mib, 50.0 * mib]));
    let Some(without) = run("plays_readings_of_the_link", &[("NVML_WITHOUT_FIELDS", "1")]) else { return };
    assert!(
        without["counted"].is_null() && without["why"].as_str().is_some_and(|why| why.starts_with("NVML: ")),
        "{without}"
    );
}

//! Prints the known facts of this machine, their warnings, and the counts of one second, as JSON. The first argument is the PCI address of the GPU;
//! the default is the driver's first.

use environment::{Counters, Environment, Gpu};
use std::time::{Duration, Instant};

/// A function's configuration space in hexadecimal digits, trailing zeros left out.
fn configuration(address: &str) -> String {
    let low = address.to_ascii_lowercase();
    let short = &low[low.len().saturating_sub("0000:00:00.0".len())..];
    let bytes = std::fs::read(format!("/sys/bus/pci/devices/{short}/config")).unwrap_or_default();
    let used = bytes.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
    format!("{} bytes: {}", bytes.len(), bytes[..used].iter().map(|b| format!("{b:02x}")).collect::<String>())
}

fn main() -> Result<(), serde_json::Error> {
    let pci = std::env::args().nth(1);
    let gpu = Gpu::Real { pci: pci.as_deref() };
    let milliseconds = |since: Instant| since.elapsed().as_secs_f64() * 1e3;
    let begun = Instant::now();
    let environment = Environment::gather(gpu, None, Vec::new());
    let gathered_ms = milliseconds(begun);
    let again = Instant::now();
    let second = Environment::gather(gpu, None, Vec::new());
    let gathered_again_ms = milliseconds(again);
    let cpu = environment.integer("thread.cpu").map(|n| n as usize);
    let begin = Instant::now();
    let counters = Counters::begin(gpu, cpu);
    let begin_ms = milliseconds(begin);
    std::thread::sleep(Duration::from_secs(1));
    let end = Instant::now();
    let counted = counters.end();
    let addresses = environment
        .text("gpu.address")
        .into_iter()
        .chain(environment.list("pci.bridges").iter().filter_map(environment::Value::text));
    let spaces: Vec<(String, String)> = addresses.map(|a| (a.to_string(), configuration(a))).collect();
    let differences: Vec<String> =
        Environment::compare(&environment, &second).iter().map(ToString::to_string).collect();
    let all = serde_json::json!({
        "warnings": environment.warnings().iter().map(ToString::to_string).collect::<Vec<_>>(),
        "environment": environment,
        "differs_when_gathered_again": differences,
        "configuration": spaces,
        "counted": counted.values,
        "not_counted": counted.missing,
        "took_ms": {
            "gather": gathered_ms, "gather_again": gathered_again_ms, "begin": begin_ms, "end": milliseconds(end),
        },
    });
    println!("{}", serde_json::to_string_pretty(&all)?);
    Ok(())
}

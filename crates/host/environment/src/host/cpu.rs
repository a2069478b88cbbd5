//! The CPUs: their speeds, their siblings, and settings that keep other work off them.

use crate::files::Files;
use crate::gather::Gathered;
use crate::lists;
use crate::value::Known;

const CPUS: &str = "/sys/devices/system/cpu";
const PRESSURE: &str = "/proc/pressure/cpu";

/// `measuring` is the CPU whose frequencies, siblings and idle states are reported.
pub fn facts(files: &Files, measuring: Known<u64>, into: &mut Gathered) {
    let cpuinfo = files.text("/proc/cpuinfo");
    let of_cpuinfo = |key: &str| cpuinfo.clone().and_then(|text| line_of(&text, key));
    into.put("cpu.model", of_cpuinfo("model name"));
    let flags = of_cpuinfo("flags");
    into.put("host.virtual_machine", flags.map(|f| f.split(' ').any(|flag| flag == "hypervisor")));
    into.put("cpu.online", files.text(&format!("{CPUS}/online")).and_then(|t| lists::parse(&t)).map(|all| all.len()));
    into.put("cpu.isolated", files.text(&format!("{CPUS}/isolated")));
    into.put("cpu.nohz_full", files.text(&format!("{CPUS}/nohz_full")).map(nobody));
    into.put("cpu.smt", files.number(&format!("{CPUS}/smt/active")).map(|n| n == 1));
    into.put("cpu.boost", boost(files));

    let of_measuring = |file: &str| match &measuring {
        Ok(cpu) => Ok(format!("{CPUS}/cpu{cpu}/{file}")),
        Err(why) => Err(why.clone()),
    };
    let text = |file: &str| of_measuring(file).and_then(|path| files.text(&path));
    let number = |file: &str| of_measuring(file).and_then(|path| files.number(&path));
    into.put("cpu.governor", text("cpufreq/scaling_governor"));
    into.put("cpu.frequency_driver", text("cpufreq/scaling_driver"));
    into.put("cpu.energy_preference", text("cpufreq/energy_performance_preference"));
    into.put("cpu.khz", number("cpufreq/scaling_cur_freq"));
    into.put("cpu.least_khz", number("cpufreq/scaling_min_freq"));
    into.put("cpu.most_khz", number("cpufreq/scaling_max_freq"));
    into.put("cpu.hardware_khz", number("cpufreq/cpuinfo_max_freq"));
    let own = measuring.clone().map(|cpu| cpu as usize);
    let siblings = text("topology/thread_siblings_list").and_then(|t| lists::parse(&t));
    let others = |own: usize| siblings.map(|all| all.into_iter().filter(|cpu| *cpu != own).collect::<Vec<_>>());
    into.put("cpu.smt_siblings", own.clone().and_then(others));
    into.put("cpu.numa_node", own.and_then(|cpu| numa_node(files, cpu)));
    into.put("cpu.quota", quota(files));
    into.put("cpu.steal_since_boot", files.text("/proc/stat").and_then(|t| steal_since_boot(&t)));
    into.put("cpu.pressure", files.text(PRESSURE).and_then(|t| pressure(&t)));
}

/// The kernel writes `(null)` into an empty list in some versions.
fn nobody(text: String) -> String {
    if text == "(null)" { String::new() } else { text }
}

/// `key : value` of the first CPU.
pub fn line_of(cpuinfo: &str, key: &str) -> Known<String> {
    let value = |line: &str| line.split_once(':').filter(|(k, _)| k.trim() == key).map(|(_, v)| v.trim().to_string());
    cpuinfo.lines().find_map(value).ok_or_else(|| format!("/proc/cpuinfo has no line {key:?}"))
}

/// Whether a CPU may run faster than its nominal speed.
fn boost(files: &Files) -> Known<bool> {
    let turbo_off = files.number(&format!("{CPUS}/intel_pstate/no_turbo")).map(|n| n == 0);
    turbo_off.or_else(|_| files.number(&format!("{CPUS}/cpufreq/boost")).map(|n| n == 1))
}

/// The node that a CPU belongs to: its folder holds a link with the node's name.
pub fn numa_node(files: &Files, cpu: usize) -> Known<u64> {
    let folder = format!("{CPUS}/cpu{cpu}");
    let node = files.names(&folder)?.iter().find_map(|n| n.strip_prefix("node")?.parse().ok());
    node.ok_or_else(|| format!("{folder} names no node"))
}

/// CPUs that this process's control group may use at a time, by its quota: beyond it all its threads stop for the rest of the
/// period. `none` where there is no limit.
fn quota(files: &Files) -> Known<String> {
    // Version 2; inside a container the group's own folder is the root that is seen.
    let own = files.text("/proc/self/cgroup").unwrap_or_default();
    let group = own.lines().find_map(|l| l.strip_prefix("0::")).unwrap_or("/").trim_end_matches('/');
    let mut missing = String::new();
    let mut least: Option<f64> = None;
    let mut folder = Some(group);
    while let Some(at) = folder {
        match files.text(&format!("/sys/fs/cgroup{at}/cpu.max")) {
            Ok(text) => match cpu_max(&text)? {
                Some(cpus) => least = Some(least.map_or(cpus, |l| l.min(cpus))),
                None => least = least.or(Some(f64::INFINITY)),
            },
            Err(e) if missing.is_empty() => missing = e,
            Err(_) => {}
        }
        folder = at.rsplit_once('/').map(|(above, _)| above);
    }
    if least.is_none() {
        let of = |file: &str| files.number(&format!("/sys/fs/cgroup/cpu/{file}"));
        if let (Ok(quota), Ok(period)) = (of("cpu.cfs_quota_us"), of("cpu.cfs_period_us")) {
            least = Some(if quota < 0 || period <= 0 { f64::INFINITY } else { quota as f64 / period as f64 });
        }
    }
    match least {
        Some(cpus) if cpus.is_finite() => Ok(format!("{cpus} CPUs")),
        Some(_) => Ok("none".into()),
        None => Err(missing),
    }
}

/// `max 100000`, `200000 100000`: quota and period in microseconds, as CPUs; `None` without a limit.
fn cpu_max(text: &str) -> Known<Option<f64>> {
    let wrong = || format!("cpu.max reads {text:?}");
    match text.split_whitespace().collect::<Vec<_>>()[..] {
        ["max", _] => Ok(None),
        [quota, period] => {
            let (quota, period): (f64, f64) =
                (quota.parse().map_err(|_| wrong())?, period.parse().map_err(|_| wrong())?);
            if quota.is_finite() && period > 0.0 && quota > 0.0 { Ok(Some(quota / period)) } else { Err(wrong()) }
        }
        _ => Err(wrong()),
    }
}

/// The part of all CPUs' time since boot that the host took, in millionths.
fn steal_since_boot(stat: &str) -> Known<u64> {
    let line = stat.lines().find_map(|l| l.strip_prefix("cpu ")).ok_or("/proc/stat has no line of all CPUs")?;
    let ticks: Vec<u64> = line.split_whitespace().take(8).map_while(|f| f.parse().ok()).collect();
    match (ticks.get(7), ticks.iter().fold(0u64, |a, t| a.saturating_add(*t))) {
        (Some(steal), all @ 1..) => Ok((u128::from(*steal) * 1_000_000 / u128::from(all)) as u64),
        _ => Err(format!("the kernel counts no steal: {line:?}")),
    }
}

/// The part of the last ten seconds in which a runnable thread of this machine had no CPU, in per cent.
pub fn pressure(text: &str) -> Known<f64> {
    let value = some(text, "avg10=").and_then(|value| value.parse::<f64>().ok());
    value.filter(|v| v.is_finite()).ok_or_else(|| format!("no avg10 of some in {text:?}"))
}

/// Time since boot in which a runnable thread of this machine had no CPU, in microseconds.
pub fn pressure_total() -> Known<u64> {
    let text = Files::of_this_machine().text(PRESSURE)?;
    some(&text, "total=").and_then(|v| v.parse().ok()).ok_or_else(|| format!("no total of some in {text:?}"))
}

/// A value of the line `some avg10=8.31 avg60=36.36 avg300=26.57 total=14709891736`.
fn some<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    let line = text.lines().find_map(|l| l.strip_prefix("some "))?;
    line.split_whitespace().find_map(|field| field.strip_prefix(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_so_many_cpus() {
        assert_eq!(cpu_max("max 100000"), Ok(None));
        assert_eq!(cpu_max("250000 100000\n"), Ok(Some(2.5)));
        for wrong in ["", "max", "1 0", "a b", "1 2 3", "inf 1", "-1 100"] {
            assert!(cpu_max(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn text_of_the_kernel_is_parsed() {
        let stat = "cpu  2583962 148755 939961 903124 10336 0 4285 3158 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n";
        assert_eq!(steal_since_boot(stat), Ok(687));
        assert!(steal_since_boot("cpu  1 2 3\n").is_err() && steal_since_boot("").is_err());
        let psi = "some avg10=8.31 avg60=36.36 avg300=26.57 total=14709891736\nfull avg10=0.00 avg60=0.00\n";
        assert_eq!((pressure(psi), some(psi, "total=")), (Ok(8.31), Some("14709891736")));
        let cpuinfo = "processor\t: 0\nmodel name\t: AMD EPYC\nflags\t\t: fpu hypervisor\n\nprocessor\t: 1\n";
        assert_eq!(line_of(cpuinfo, "model name").as_deref(), Ok("AMD EPYC"));
        assert!(line_of(cpuinfo, "model").is_err(), "a key is whole");
        assert_eq!(nobody("(null)".into()), "");
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "([ 0-9a-z=.:-]{0,40}\n){0,5}") {
            let _ = (cpu_max(&text), steal_since_boot(&text), pressure(&text), line_of(&text, "flags"));
        }

        #[test]
        fn steal_is_a_part_of_the_whole(ticks in proptest::collection::vec(proptest::prelude::any::<u64>(), 10)) {
            let row: Vec<String> = ticks.iter().map(u64::to_string).collect();
            if let Ok(ppm) = steal_since_boot(&format!("cpu  {}\n", row.join(" "))) {
                proptest::prop_assert!(ppm <= 1_000_000);
            }
        }
    }
}

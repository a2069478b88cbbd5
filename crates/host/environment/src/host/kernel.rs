//! The kernel: its preemption model, its command line, and its background work.

use crate::files::Files;
use crate::gather::Gathered;
use crate::value::Known;

pub fn facts(files: &Files, into: &mut Gathered) {
    into.put("host.name", files.text("/proc/sys/kernel/hostname"));
    into.put("host.product", product(files));
    into.put("kernel.release", files.text("/proc/sys/kernel/osrelease"));
    into.put("kernel.preemption", files.text("/proc/version").and_then(|v| preemption(&v)));
    into.put("kernel.realtime", realtime(files));
    let arguments = files.text("/proc/cmdline").map(|line| arguments(&line));
    let stated =
        arguments.clone().map(|all| all.iter().filter(|a| matters(&a.name)).map(Argument::text).collect::<Vec<_>>());
    into.put("kernel.arguments", stated);
    let callbacks = arguments.map(|all| all.into_iter().rev().find(|a| a.name == "rcu_nocbs"));
    into.put("cpu.rcu_nocbs", callbacks.map(|found| found.and_then(|a| a.value).unwrap_or_default()));
    into.put("kernel.rt_runtime_us", files.number("/proc/sys/kernel/sched_rt_runtime_us"));
    into.put("kernel.rt_period_us", files.number("/proc/sys/kernel/sched_rt_period_us"));
    into.put("kernel.numa_balancing", files.number("/proc/sys/kernel/numa_balancing").map(|n| n != 0));
    into.put("kernel.watchdog", files.number("/proc/sys/kernel/watchdog").map(|n| n != 0));
    into.put("kernel.clock_source", files.text(CLOCK_SOURCE));
    into.put("kernel.load", files.text("/proc/loadavg").and_then(|t| load(&t)));
}

const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// Vendor and product by the firmware.
fn product(files: &Files) -> Known<String> {
    let of = |name: &str| files.text(&format!("/sys/class/dmi/id/{name}"));
    Ok(format!("{} {}", of("sys_vendor")?, of("product_name")?))
}

/// How the kernel was built to be preempted, from its version line.
fn preemption(version: &str) -> Known<String> {
    let word = version.split_whitespace().find(|w| w.starts_with("PREEMPT"));
    word.map(str::to_string).ok_or_else(|| "/proc/version does not say".into())
}

/// PREEMPT_RT: by the file that only such kernels have, or by the version line.
fn realtime(files: &Files) -> Known<bool> {
    match files.number("/sys/kernel/realtime") {
        Ok(n) => Ok(n == 1),
        Err(_) => files.text("/proc/version").map(|v| v.split_whitespace().any(|w| w == "PREEMPT_RT")),
    }
}

/// 1, 5 and 15 minutes.
fn load(text: &str) -> Known<Vec<f64>> {
    let all: Vec<f64> = text.split(' ').take(3).map_while(|w| w.parse().ok()).filter(|n: &f64| n.is_finite()).collect();
    if all.len() == 3 { Ok(all) } else { Err(format!("/proc/loadavg reads {text:?}")) }
}

/// One word of the kernel's command line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Argument {
    name: String,
    value: Option<String>,
}

impl Argument {
    fn text(&self) -> String {
        match &self.value {
            Some(v) => format!("{}={v}", self.name),
            None => self.name.clone(),
        }
    }
}

/// As the kernel parses it: words end at spaces outside of double quotes, quotes are removed, `-` in a name becomes `_`. Words after `--` are for
/// the first process.
fn arguments(line: &str) -> Vec<Argument> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in line.trim().chars() {
        match c {
            '"' => quoted = !quoted,
            c if c.is_whitespace() && !quoted => words.push(String::new()),
            c => words.last_mut().unwrap_or_else(|| unreachable!("there is a first word")).push(c),
        }
    }
    let argument = |word: String| match word.split_once('=') {
        Some((name, value)) => Argument { name: name.replace('-', "_"), value: Some(value.to_string()) },
        None => Argument { name: word.replace('-', "_"), value: None },
    };
    words.into_iter().filter(|w| !w.is_empty()).take_while(|w| w != "--").map(argument).collect()
}

/// Arguments that affect how steady or how fast transfers are. Others stay out of result files.
fn matters(name: &str) -> bool {
    const WHOLE: [&str; 35] = [
        "amd_iommu",
        "clocksource",
        "cpuidle.off",
        "default_hugepagesz",
        "hugepages",
        "hugepagesz",
        "idle",
        "intel_iommu",
        "intel_pstate",
        "amd_pstate",
        "iommu",
        "irqaffinity",
        "isolcpus",
        "kthread_cpus",
        "mitigations",
        "nmi_watchdog",
        "nohz",
        "nohz_full",
        "nosmt",
        "nosoftlockup",
        "nowatchdog",
        "numa_balancing",
        "pci",
        "pcie_acs_override",
        "pcie_aspm",
        "preempt",
        "rcu_nocb_poll",
        "rcu_nocbs",
        "skew_tick",
        "swiotlb",
        "threadirqs",
        "transparent_hugepage",
        "tsc",
        "tsc_freq_khz",
        "deferred_init",
    ];
    const BEGINNING: [&str; 9] = [
        "intel_idle.",
        "processor.",
        "iommu.",
        "cpuidle_haltpoll.",
        "haltpoll.",
        "nvidia.",
        "rcutree.",
        "rcupdate.",
        "page_reporting.",
    ];
    WHOLE.contains(&name) || BEGINNING.iter().any(|b| name.starts_with(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_taken_apart_as_the_kernel_does() {
        let line = "BOOT_IMAGE=/vmlinuz root=UUID=1 isolcpus=managed_irq,domain,2-5 rcu-nocbs=2-5 nosmt quiet=\"a b\" -- idle=poll";
        let all = arguments(line);
        let texts: Vec<String> = all.iter().map(Argument::text).collect();
        let want = [
            "BOOT_IMAGE=/vmlinuz",
            "root=UUID=1",
            "isolcpus=managed_irq,domain,2-5",
            "rcu_nocbs=2-5",
            "nosmt",
            "quiet=a b",
        ];
        assert_eq!(texts, want);
        let stated: Vec<&str> = all.iter().map(|a| a.name.as_str()).filter(|n| matters(n)).collect();
        assert_eq!(stated, ["isolcpus", "rcu_nocbs", "nosmt"], "neither disks nor names of images");
        assert!(matters("intel_idle.max_cstate") && matters("processor.max_cstate") && !matters("intel_idle"));
    }

    #[test]
    fn text_of_the_kernel_is_parsed() {
        let version = "Linux version 6.18.44 (builder@x) (gcc (GCC) 15.3.0) #1 SMP PREEMPT_DYNAMIC @0";
        assert_eq!(preemption(version).as_deref(), Ok("PREEMPT_DYNAMIC"));
        assert!(preemption("Linux version 4").is_err());
        assert_eq!(load("2.47 1.22 1.66 1/88 9727"), Ok(vec![2.47, 1.22, 1.66]));
        assert!(load("1 2").is_err() && load("inf 1 1").is_err());
    }

    proptest::proptest! {
        #[test]
        fn any_line_is_taken_apart(line in ".{0,80}") {
            for a in arguments(&line) {
                proptest::prop_assert!(!a.name.contains('=') && !a.name.contains('"'));
            }
        }

        #[test]
        fn words_come_back(words in proptest::collection::vec("[a-z_.]{1,8}(=[a-z0-9,.]{0,6})?", 0..6)) {
            let texts: Vec<String> = arguments(&words.join(" ")).iter().map(Argument::text).collect();
            proptest::prop_assert_eq!(texts, words);
        }
    }
}

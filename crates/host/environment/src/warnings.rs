//! Facts that may distort figures, and what to change. A pure function of the facts: stored facts of a run give the same warnings again.

use crate::host::idle::NO_LIMIT_US;
use crate::{Environment, Value, lists};
use serde::{Deserialize, Serialize};

/// How much it may distort figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Useful to know when figures are compared.
    Notice,
    /// The worst samples are probably caused by this machine, and not by the transfer.
    Warning,
    /// Figures may measure something else than intended.
    Serious,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// Name of the fact.
    pub fact: String,
    pub severity: Severity,
    /// It can change a median by more than a few per cent; otherwise only the worst samples.
    pub medians: bool,
    /// The problem.
    pub text: String,
    /// What to change; empty if the user cannot change it.
    pub change: String,
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)?;
        if !self.change.is_empty() {
            write!(f, "; {}", self.change)?;
        }
        Ok(())
    }
}

use Severity::{Notice, Serious, Warning as Warn};

/// Collects.
struct Rules<'e> {
    e: &'e Environment,
    found: Vec<Warning>,
}

impl Environment {
    /// The most severe first.
    pub fn warnings(&self) -> Vec<Warning> {
        let mut rules = Rules { e: self, found: Vec::new() };
        rules.cpu();
        rules.others();
        rules.thread();
        rules.memory();
        rules.gpu();
        rules.link();
        rules.translation();
        rules.found.sort_by_key(|w| std::cmp::Reverse(w.severity));
        rules.found
    }
}

impl Rules<'_> {
    fn say(&mut self, fact: &str, severity: Severity, medians: bool, text: String, change: impl Into<String>) {
        self.found.push(Warning { fact: fact.into(), severity, medians, text, change: change.into() });
    }

    /// The measuring CPU, by its number where it is known.
    fn measuring(&self) -> (String, String) {
        match self.e.integer("thread.cpu") {
            Some(cpu) => (format!("CPU {cpu}"), cpu.to_string()),
            None => ("the measuring CPU".into(), "N".into()),
        }
    }

    /// The speed of the CPU, and how deep it sleeps.
    fn cpu(&mut self) {
        let (cpu, number) = self.measuring();
        if let Some(governor) = self.e.text("cpu.governor").filter(|g| *g != "performance") {
            let text = format!("the frequency governor of {cpu} is {governor}");
            self.say("cpu.governor", Warn, true, text, format!("`cpupower -c {number} frequency-set -g performance`"));
        }
        if let (Some(most), Some(hardware)) = (self.e.integer("cpu.most_khz"), self.e.integer("cpu.hardware_khz"))
            && most < hardware
        {
            let text = format!("{cpu} may run at {} of {} MHz", most / 1000, hardware / 1000);
            self.say("cpu.most_khz", Warn, true, text, format!("`cpupower -c {number} frequency-set -u {hardware}`"));
        }
        let asked = self.e.integer("cpu.dma_latency_us").unwrap_or(NO_LIMIT_US);
        let exit = self.e.integer("cpu.idle_exit_us").unwrap_or(0).min(asked.max(0));
        if exit > SLEEPS_DEEP_US {
            let text = format!("{cpu} may sleep so deeply that it needs {exit} us to wake up");
            let change = "hold /dev/cpu_dma_latency open with 0 in it, or boot with `intel_idle.max_cstate=1`; a thread \
                          that polls never sleeps";
            self.say("cpu.idle_exit_us", Warn, true, text, change);
        }
        if self
            .e
            .text("kernel.clock_source")
            .is_some_and(|c| !matches!(c, "tsc" | "kvm-clock" | "hyperv_clocksource_tsc_page"))
        {
            let clock = self.e.text("kernel.clock_source").unwrap_or_default();
            let text = format!("the kernel's clock is {clock}: each reading is a system call");
            self.say("kernel.clock_source", Warn, true, text, "boot with `tsc=reliable` if the counter is");
        }
        if self.e.text("clock.source") == Some("monotonic_raw") {
            let text = "the time stamp counter is not invariant: samples are taken with clock_gettime".to_string();
            self.say("clock.source", Notice, true, text, "");
        }
    }

    /// Other work that may run on the measuring CPU.
    fn others(&mut self) {
        let (cpu, number) = self.measuring();
        let own = self.e.integer("thread.cpu").map(|n| n as usize);
        let has = |fact: &str| {
            let listed = self.e.text(fact).and_then(|t| lists::parse(t).ok());
            listed.zip(own).map(|(all, own)| all.contains(&own))
        };
        let (isolated, tickless) = (has("cpu.isolated"), has("cpu.nohz_full"));
        let siblings: Vec<String> = self.e.list("cpu.smt_siblings").iter().map(Value::to_string).collect();
        if isolated == Some(false) {
            let text = format!("{cpu} is not isolated: the kernel may put other threads on it");
            self.say("cpu.isolated", Notice, false, text, format!("boot with `isolcpus=managed_irq,domain,{number}`"));
        } else if isolated == Some(true) && tickless == Some(false) {
            let text = format!("{cpu} has a timer tick while it measures");
            self.say(
                "cpu.nohz_full",
                Notice,
                false,
                text,
                format!("boot with `nohz_full={number} rcu_nocbs={number}`"),
            );
        }
        if !siblings.is_empty() {
            let text = format!("{cpu} shares its core with CPU {}", siblings.join(", "));
            let change =
                format!("leave that one idle, or `echo 0 > /sys/devices/system/cpu/cpu{}/online`", siblings[0]);
            self.say("cpu.smt_siblings", Notice, true, text, change);
        }
        if let Some(quota) = self.e.text("cpu.quota").filter(|q| *q != "none") {
            let text =
                format!("this process may use {quota} at a time: beyond it all its threads stop until the next period");
            self.say(
                "cpu.quota",
                Warn,
                false,
                text,
                "lift the quota (`docker run` without --cpus; no CPU limit of the pod)",
            );
        }
        if let Some(ppm) = self.e.integer("cpu.steal_since_boot").filter(|ppm| *ppm > STEAL_PPM) {
            let percent = ppm as f64 / 1e4;
            let text = format!("the host took {percent:.1} % of the CPUs' time since boot");
            self.say("cpu.steal_since_boot", Serious, true, text, "measure on a machine with dedicated CPUs");
        }
        if let Some(waiting) = self.e.number("cpu.pressure").filter(|p| *p > PRESSURE) {
            let text = format!("in {waiting:.0} % of the 10 s before it began a thread had to wait for a CPU");
            self.say("cpu.pressure", Warn, true, text, "end what else runs here");
        } else if let (Some(load), Some(cpus)) =
            (self.e.list("kernel.load").first().and_then(Value::number), self.e.integer("cpu.online"))
            && load > cpus as f64 / 2.0
            && load >= 1.0
        {
            let text = format!("load of {load:.1} on {cpus} CPUs before it began");
            self.say("kernel.load", Notice, false, text, "end what else runs here");
        }
        if self.e.truth("kernel.realtime") == Some(false)
            && self.e.truth("kernel.watchdog") == Some(true)
            && isolated == Some(true)
        {
            let text = "the kernel's watchdog interrupts each CPU".to_string();
            self.say("kernel.watchdog", Notice, false, text, "`sysctl kernel.watchdog=0`");
        }
    }

    fn thread(&mut self) {
        let real_time = self.e.text("thread.scheduler").is_some_and(|s| matches!(s, "SCHED_FIFO" | "SCHED_RR"));
        let runtime = self.e.integer("kernel.rt_runtime_us");
        if let (true, Some(runtime @ 0..), Some(period)) = (real_time, runtime, self.e.integer("kernel.rt_period_us"))
            && runtime < period
        {
            let text = format!(
                "the kernel may take a real-time thread off its CPU for {} us in every {period} us if other threads wait",
                period - runtime
            );
            self.say("kernel.rt_runtime_us", Warn, false, text, "`sysctl kernel.sched_rt_runtime_us=-1`");
        }
        if self.e.truth("kernel.numa_balancing") == Some(true) {
            let text = "the kernel unmaps memory now and then to see which node uses it".to_string();
            self.say("kernel.numa_balancing", Warn, false, text, "`sysctl kernel.numa_balancing=0`");
        }
        if self.e.integer("gpu.numa_distance").is_some_and(|d| d > 10) {
            let node = |fact: &str| self.e.integer(fact).map_or("?".to_string(), |n| n.to_string());
            let (cpu, gpu) = (node("cpu.numa_node"), node("gpu.numa_node"));
            let text = format!("the measuring thread is on node {cpu}, the GPU on node {gpu}");
            self.say(
                "gpu.numa_distance",
                Serious,
                true,
                text,
                format!("`numactl --cpunodebind={gpu} --membind={gpu}`"),
            );
        }
    }

    fn memory(&mut self) {
        if self.e.integer("memory.swap_used_kb").is_some_and(|kb| kb > 0)
            && self.e.integer("memory.locked_kb") == Some(0)
        {
            let text = "swap is in use, and this process's memory is not locked".to_string();
            self.say("memory.swap_used_kb", Warn, false, text, "`swapoff -a`");
        }
        let growing = self.e.list("memory.grows");
        if !growing.is_empty() {
            let names: Vec<String> = growing.iter().map(Value::to_string).collect();
            let text = format!("the host may give this machine memory only when it is touched ({})", names.join(", "));
            self.say("memory.grows", Notice, false, text, "touch memory before measuring");
        }
        if let Some(pages) = self.e.integer("memory.balloon_pages").filter(|p| *p > 0) {
            let text = format!("the host holds {} MiB of this machine's memory in a balloon", pages / 256);
            self.say("memory.balloon_pages", Notice, false, text, "let the balloon out before measuring");
        }
        if self.e.text("memory.transparent_huge_pages") == Some("always")
            && self.e.text("memory.transparent_huge_pages_defrag") == Some("always")
        {
            let text = "a first touch of memory may wait until a huge page has been put together".to_string();
            let change = "`echo defer+madvise > /sys/kernel/mm/transparent_hugepage/defrag`";
            self.say("memory.transparent_huge_pages_defrag", Notice, false, text, change);
        }
        if let Some(waiting) = self.e.number("memory.pressure").filter(|p| *p > PRESSURE) {
            let text = format!("in {waiting:.0} % of the 10 s before it began a thread had to wait for memory");
            self.say("memory.pressure", Warn, true, text, "end what else runs here");
        }
    }

    fn gpu(&mut self) {
        if self.e.text("gpu.name") == Some("software GPU") {
            let text = "this is the software GPU: it shows what works, never how fast".to_string();
            return self.say("gpu.name", Serious, true, text, "");
        }
        let others: Vec<String> = self.e.list("gpu.processes").iter().map(Value::to_string).collect();
        if !others.is_empty() {
            let text = format!("other processes use the GPU: {}", others.join(", "));
            self.say("gpu.processes", Serious, true, text, "end them");
        }
        if self.e.truth("gpu.mps") == Some(true) {
            let text = "CUDA's Multi-Process Service runs: calls go through its server".to_string();
            self.say("gpu.mps", Warn, true, text, "`echo quit | nvidia-cuda-mps-control`");
        }
        if self.e.truth("gpu.mig") == Some(true) {
            let text = "the GPU is divided (MIG): only a part of it is measured".to_string();
            self.say("gpu.mig", Serious, true, text, "");
        }
        if let Some(kind @ ("vGPU" | "host of vGPUs")) = self.e.text("gpu.virtualization") {
            let text = format!("the GPU is shared ({kind}): other users' work may run between doorbell's");
            self.say("gpu.virtualization", Serious, true, text, "");
        }
        if self.e.truth("gpu.persistence") == Some(false) {
            let text = "persistence is off: the driver initializes the GPU again for each first user".to_string();
            self.say("gpu.persistence", Notice, false, text, "`nvidia-smi -pm 1`, or run nvidia-persistenced");
        }
        if self.e.truth("gpu.confidential") == Some(true) {
            let text = "confidential computing is on: transfers are encrypted".to_string();
            self.say("gpu.confidential", Serious, true, text, "");
        }
        let lowered: Vec<String> =
            self.e.list("gpu.throttle").iter().map(Value::to_string).filter(|r| r != "idle").collect();
        if !lowered.is_empty() {
            let by_hand = lowered.iter().all(|r| r == "clocks set" || r == "display clocks set");
            let text = format!("the GPU's clocks are lowered: {}", lowered.join(", "));
            let change = if by_hand { "`nvidia-smi -rgc; nvidia-smi -rac`" } else { "cooling, or power" };
            self.say("gpu.throttle", if by_hand { Warn } else { Serious }, true, text, change);
        }
        for (set, most) in [("gpu.sm_set_mhz", "gpu.sm_most_mhz"), ("gpu.memory_set_mhz", "gpu.memory_most_mhz")] {
            if let (Some(set_to), Some(highest)) = (self.e.integer(set), self.e.integer(most))
                && set_to > 0
                && set_to < highest
            {
                let what = if set.contains("sm") { "processors" } else { "memory" };
                let text = format!("the application clock of the GPU's {what} is {set_to} of {highest} MHz");
                self.say(set, Notice, true, text, "`nvidia-smi -rac`, if it was set by hand");
            }
        }
        if let Some(errors) = self.e.integer("gpu.ecc_uncorrected").filter(|n| *n > 0) {
            let text =
                format!("{errors} errors of the GPU's memory could not be corrected since the driver was loaded");
            self.say("gpu.ecc_uncorrected", Serious, false, text, "reset or replace the GPU");
        }
    }

    /// From the slot to the GPU.
    fn link(&mut self) {
        let both =
            |now: &str, most: &str| self.e.integer(now).zip(self.e.integer(most)).filter(|(now, most)| now < most);
        if let Some((width, most)) = both("gpu.link_width", "gpu.link_most_width") {
            let text = format!("the GPU's link has {width} of {most} lanes");
            self.say("gpu.link_width", Serious, true, text, "use another slot, or reseat the card");
        }
        if let Some((generation, most)) = both("gpu.link_generation", "gpu.link_most_generation") {
            let idle = self.e.list("gpu.throttle").iter().any(|r| r.text() == Some("idle"));
            let text = format!("the GPU's link runs at generation {generation} of {most}");
            let (severity, change) = match idle {
                true => (Notice, "many GPUs lower it while they idle: look again under load"),
                false => (Serious, "the slot's setting in the firmware, or a riser"),
            };
            self.say("gpu.link_generation", severity, true, text, change);
        }
        let slow: Vec<String> = self
            .e
            .list("pci.bridge_links")
            .iter()
            .filter_map(Value::text)
            .filter(|l| is_slow(l))
            .map(str::to_string)
            .collect();
        if !slow.is_empty() {
            let text = format!("a bridge above the GPU has a link below its best: {}", slow.join("; "));
            self.say("pci.bridge_links", Notice, true, text, "");
        }
        if let Some(states) = self.e.text("pci.link_sleeps").filter(|s| *s != "off") {
            let text = format!("the GPU's link may sleep ({states}), and must wake up for the next transfer");
            self.say("pci.link_sleeps", Warn, true, text, "boot with `pcie_aspm=off`");
        }
        let payload = |fact: &str| self.e.integer(fact);
        if let (Some(now @ ..256), Some(possible)) = (payload("pci.max_payload"), payload("pci.max_payload_possible"))
            && now < possible
        {
            let text = format!("packets carry {now} bytes, where the GPU could {possible}");
            self.say("pci.max_payload", Warn, true, text, "boot with `pci=pcie_bus_perf`");
        }
        if let Some(bytes @ ..512) = payload("pci.max_read_request") {
            let text = format!("the GPU requests at most {bytes} bytes in one read");
            self.say("pci.max_read_request", Warn, true, text, "`setpci` of the device control register, or firmware");
        }
        if let Some(replays) = self.e.integer("gpu.link_replays").filter(|n| *n > 1000) {
            let text = format!("the GPU's link had to send {replays} packets again since the driver was loaded");
            self.say("gpu.link_replays", Warn, false, text, "reseat the card, or replace its riser");
        }
    }

    /// Translation of bus addresses.
    fn translation(&mut self) {
        if let Some(domain) = self.e.text("iommu.domain").filter(|d| d.starts_with("DMA")) {
            let text = format!("an IOMMU translates each address that the GPU uses ({domain})");
            self.say("iommu.domain", Notice, true, text, "boot with `iommu=pt`");
        }
        let redirecting =
            self.e.list("pci.access_control").iter().filter_map(Value::text).any(|b| b.contains("ReqRedir"));
        if redirecting {
            let text =
                "access control (ACS) is on above the GPU: traffic between two devices is sent up to the root first";
            let change = "only for copies between devices: turn ACS off in the firmware";
            self.say("pci.access_control", Notice, true, text.into(), change);
        }
    }
}

/// Longer wake-ups are visible among transfers of a few microseconds.
const SLEEPS_DEEP_US: i64 = 10;
/// A larger share of the CPUs' time is more than the host's own housekeeping.
const STEAL_PPM: i64 = 10_000;
/// Per cent of the last ten seconds.
const PRESSURE: f64 = 10.0;

/// `A: X of Y` with X and Y known and different.
fn is_slow(link: &str) -> bool {
    let sides = link.split_once(": ").and_then(|(_, sides)| sides.split_once(" of "));
    sides.is_some_and(|(now, most)| now != most && !link.contains('?') && !link.contains("Unknown"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(all: &[(&str, Value)]) -> Environment {
        let mut e = Environment::default();
        all.iter().for_each(|(name, value)| e.set(name, value.clone()));
        e
    }

    /// Facts of a machine without warnings.
    fn good() -> Vec<(&'static str, Value)> {
        let nothing = || Value::List(Vec::new());
        vec![
            ("thread.cpu", 4u64.into()),
            ("cpu.governor", "performance".into()),
            ("cpu.most_khz", 3_800_000u64.into()),
            ("cpu.hardware_khz", 3_800_000u64.into()),
            ("cpu.idle_exit_us", 2u64.into()),
            ("cpu.dma_latency_us", NO_LIMIT_US.into()),
            ("cpu.isolated", "2-7".into()),
            ("cpu.nohz_full", "2-7".into()),
            ("cpu.smt_siblings", nothing()),
            ("cpu.quota", "none".into()),
            ("cpu.steal_since_boot", 0u64.into()),
            ("cpu.pressure", 0.1.into()),
            ("cpu.online", 16u64.into()),
            ("cpu.numa_node", 0u64.into()),
            ("kernel.load", Value::List(vec![0.2.into(), 0.1.into(), 0.1.into()])),
            ("kernel.clock_source", "tsc".into()),
            ("kernel.numa_balancing", false.into()),
            ("kernel.rt_runtime_us", (-1i64).into()),
            ("kernel.rt_period_us", 1_000_000u64.into()),
            ("clock.source", "tsc".into()),
            ("thread.scheduler", "SCHED_FIFO".into()),
            ("memory.swap_used_kb", 0u64.into()),
            ("memory.locked_kb", 0u64.into()),
            ("memory.grows", nothing()),
            ("memory.balloon_pages", 0u64.into()),
            ("memory.transparent_huge_pages", "madvise".into()),
            ("memory.transparent_huge_pages_defrag", "madvise".into()),
            ("memory.pressure", 0.0.into()),
            ("gpu.name", "NVIDIA H200".into()),
            ("gpu.processes", nothing()),
            ("gpu.mps", false.into()),
            ("gpu.mig", false.into()),
            ("gpu.virtualization", "passed through".into()),
            ("gpu.persistence", true.into()),
            ("gpu.confidential", false.into()),
            ("gpu.throttle", Value::List(vec!["idle".into()])),
            ("gpu.sm_set_mhz", 1980u64.into()),
            ("gpu.sm_most_mhz", 1980u64.into()),
            ("gpu.memory_set_mhz", 3201u64.into()),
            ("gpu.memory_most_mhz", 3201u64.into()),
            ("gpu.ecc_uncorrected", 0u64.into()),
            ("gpu.link_width", 16u64.into()),
            ("gpu.link_most_width", 16u64.into()),
            ("gpu.link_generation", 5u64.into()),
            ("gpu.link_most_generation", 5u64.into()),
            ("gpu.link_replays", 0u64.into()),
            ("gpu.numa_node", 0u64.into()),
            ("gpu.numa_distance", 10u64.into()),
            ("pci.bridge_links", Value::List(vec!["0000:40:01.0: 32.0 GT/s x16 of 32.0 GT/s x16".into()])),
            ("pci.link_sleeps", "off".into()),
            ("pci.max_payload", 256u64.into()),
            ("pci.max_payload_possible", 256u64.into()),
            ("pci.max_read_request", 4096u64.into()),
            ("pci.access_control", nothing()),
            ("iommu.domain", "identity".into()),
        ]
    }

    fn list(all: &[&str]) -> Value {
        Value::List(all.iter().map(|t| Value::from(*t)).collect())
    }

    #[test]
    fn good_and_unknown_machines_have_no_warnings() {
        assert_eq!(environment(&good()).warnings(), []);
        assert_eq!(Environment::default().warnings(), []);
    }

    #[test]
    fn each_spoiled_fact_is_one_warning_about_it() {
        let spoiled: Vec<(&str, Value, Severity, &str)> = vec![
            (
                "cpu.governor",
                "powersave".into(),
                Warn,
                "governor of CPU 4 is powersave; `cpupower -c 4 frequency-set -g performance`",
            ),
            ("cpu.most_khz", 2_000_000u64.into(), Warn, "2000 of 3800 MHz"),
            ("cpu.idle_exit_us", 133u64.into(), Warn, "133 us to wake up"),
            ("cpu.isolated", "".into(), Notice, "CPU 4 is not isolated"),
            ("cpu.nohz_full", "2-3".into(), Notice, "timer tick"),
            ("cpu.smt_siblings", Value::List(vec![20u64.into()]), Notice, "shares its core with CPU 20"),
            ("cpu.quota", "2.5 CPUs".into(), Warn, "2.5 CPUs at a time"),
            ("cpu.steal_since_boot", 25_000u64.into(), Serious, "2.5 %"),
            ("cpu.pressure", 40.0.into(), Warn, "40 %"),
            ("kernel.load", Value::List(vec![9.0.into(), 9.0.into(), 9.0.into()]), Notice, "load of 9.0 on 16 CPUs"),
            ("kernel.clock_source", "hpet".into(), Warn, "hpet"),
            ("kernel.numa_balancing", true.into(), Warn, "kernel.numa_balancing=0"),
            ("kernel.rt_runtime_us", 950_000u64.into(), Warn, "50000 us in every 1000000 us"),
            ("clock.source", "monotonic_raw".into(), Notice, "clock_gettime"),
            ("memory.swap_used_kb", 5u64.into(), Warn, "swapoff"),
            ("memory.grows", list(&["virtio_balloon"]), Notice, "virtio_balloon"),
            ("memory.balloon_pages", 512u64.into(), Notice, "2 MiB"),
            ("memory.pressure", 50.0.into(), Warn, "memory"),
            ("gpu.name", "software GPU".into(), Serious, "never how fast"),
            ("gpu.processes", list(&["4711 python3"]), Serious, "4711 python3"),
            ("gpu.mps", true.into(), Warn, "Multi-Process"),
            ("gpu.mig", true.into(), Serious, "MIG"),
            ("gpu.virtualization", "vGPU".into(), Serious, "shared"),
            ("gpu.persistence", false.into(), Notice, "nvidia-smi -pm 1"),
            ("gpu.confidential", true.into(), Serious, "encrypted"),
            ("gpu.throttle", list(&["idle", "heat"]), Serious, "lowered: heat"),
            ("gpu.throttle", list(&["clocks set"]), Warn, "nvidia-smi -rgc"),
            ("gpu.sm_set_mhz", 1500u64.into(), Notice, "1500 of 1980 MHz"),
            ("gpu.memory_set_mhz", 1500u64.into(), Notice, "1500 of 3201 MHz"),
            ("gpu.ecc_uncorrected", 1u64.into(), Serious, "1 errors"),
            ("gpu.link_width", 8u64.into(), Serious, "8 of 16 lanes"),
            ("gpu.link_generation", 1u64.into(), Notice, "generation 1 of 5"),
            ("gpu.link_replays", 5000u64.into(), Warn, "5000 packets"),
            ("gpu.numa_distance", 21u64.into(), Serious, "numactl --cpunodebind=0"),
            ("pci.bridge_links", list(&["0000:40:01.0: 16.0 GT/s x16 of 32.0 GT/s x16"]), Notice, "0000:40:01.0"),
            ("pci.link_sleeps", "L1".into(), Warn, "pcie_aspm=off"),
            ("pci.max_payload", 128u64.into(), Warn, "128 bytes, where the GPU could 256"),
            ("pci.max_read_request", 256u64.into(), Warn, "256 bytes in one read"),
            ("pci.access_control", list(&["0000:42:04.0: ReqRedir"]), Notice, "ACS"),
            ("iommu.domain", "DMA-FQ".into(), Notice, "iommu=pt"),
        ];
        for (fact, value, severity, part) in spoiled {
            let mut e = environment(&good());
            e.set(fact, value);
            let found = e.warnings();
            let [one] = &found[..] else { panic!("{fact}: {found:?}") };
            assert_eq!((one.fact.as_str(), one.severity), (fact, severity), "{one}");
            assert!(one.to_string().contains(part), "{fact}: {one}");
            assert!(crate::names::of(fact).is_some());
        }
    }

    #[test]
    fn a_slow_link_of_a_busy_gpu_is_serious() {
        let mut e = environment(&good());
        e.set("gpu.link_generation", 3u64);
        e.set("gpu.throttle", Value::List(Vec::new()));
        assert_eq!(e.warnings()[0].severity, Serious);
    }

    #[test]
    fn deep_sleep_is_no_warning_if_a_process_forbids_it() {
        let mut e = environment(&good());
        e.set("cpu.idle_exit_us", 133u64);
        e.set("cpu.dma_latency_us", 0u64);
        assert_eq!(e.warnings(), []);
    }

    #[test]
    fn the_most_severe_comes_first_and_all_survive_json() {
        let mut e = environment(&good());
        e.set("iommu.domain", "DMA");
        e.set("cpu.governor", "powersave");
        e.set("gpu.link_width", 8u64);
        let found = e.warnings();
        let facts: Vec<&str> = found.iter().map(|w| w.fact.as_str()).collect();
        assert_eq!(facts, ["gpu.link_width", "cpu.governor", "iommu.domain"]);
        let text = serde_json::to_string(&found).unwrap();
        assert_eq!(serde_json::from_str::<Vec<Warning>>(&text).unwrap(), found);
    }
}

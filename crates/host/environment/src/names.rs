//! Every fact's name, its meaning, and whether two compared runs should agree in it. `docs/reference/environment.md` has the same rows; a test
//! compares them.

/// What a difference in it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A property or a setting: where it differs, the runs were not taken under the same conditions.
    Setting,
    /// The state at that moment.
    Moment,
    /// Other activity at that time, this program's included.
    Activity,
    /// It identifies the run.
    Record,
}

#[derive(Clone, Copy, Debug)]
pub struct Fact {
    pub name: &'static str,
    pub kind: Kind,
    pub about: &'static str,
}

const fn setting(name: &'static str, about: &'static str) -> Fact {
    Fact { name, kind: Kind::Setting, about }
}

const fn moment(name: &'static str, about: &'static str) -> Fact {
    Fact { name, kind: Kind::Moment, about }
}

const fn activity(name: &'static str, about: &'static str) -> Fact {
    Fact { name, kind: Kind::Activity, about }
}

const fn record(name: &'static str, about: &'static str) -> Fact {
    Fact { name, kind: Kind::Record, about }
}

pub fn of(name: &str) -> Option<&'static Fact> {
    ALL.iter().find(|f| f.name == name)
}

pub const ALL: &[Fact] = &[
    record("run.time", "When it was gathered, UTC, RFC 3339"),
    record("run.command", "The command line of doorbell, a list"),
    record("run.seed", "Seed of all random choices; only if the run has one"),
    setting("run.doorbell", "Version of doorbell"),
    setting("run.commit", "Commit that doorbell was built from, with `-changed` where files differed from it"),
    setting("clock.source", "`tsc`, or `monotonic_raw` where the time stamp counter is missing or changes its speed"),
    moment("clock.tsc_hz", "Ticks of the time stamp counter a second, as calibrated"),
    moment("clock.error_ppm", "How far that calibration can be off, parts per million"),
    moment("clock.reading_ns", "Cost of one reading of the clock; it is part of every sample"),
    setting("host.name", "Name of the machine"),
    setting("host.product", "Vendor and product of the machine, by its firmware"),
    setting("host.virtual_machine", "The CPU reports a hypervisor"),
    setting("cpu.model", "Model of the CPU"),
    setting("cpu.online", "CPUs that the kernel runs on"),
    setting("cpu.isolated", "CPUs that the scheduler leaves alone (`isolcpus`, or an isolated cpuset partition)"),
    setting("cpu.nohz_full", "CPUs without a timer tick while one thread runs there"),
    setting("cpu.rcu_nocbs", "CPUs whose RCU callbacks run elsewhere, from the kernel's command line"),
    setting("cpu.smt", "Whether two threads share a core anywhere"),
    setting("cpu.smt_siblings", "Other CPUs on the measuring CPU's core"),
    setting("cpu.boost", "Whether CPUs may run faster than their nominal speed"),
    setting("cpu.governor", "Frequency governor of the measuring CPU"),
    setting("cpu.frequency_driver", "Its frequency driver"),
    setting("cpu.energy_preference", "Its preference between energy and speed, if the driver has one"),
    moment("cpu.khz", "Its frequency now"),
    setting("cpu.least_khz", "The lowest that it may have"),
    setting("cpu.most_khz", "The highest that it may have"),
    setting("cpu.hardware_khz", "The highest that the hardware has"),
    setting("cpu.idle_driver", "What puts CPUs to sleep"),
    setting("cpu.idle_governor", "What chooses how deep"),
    setting("cpu.idle_states", "States of sleep of the measuring CPU, each with its time to wake up, and `off`"),
    setting("cpu.idle_exit_us", "Longest time to wake up of those that are on"),
    moment(
        "cpu.dma_latency_us",
        "Shortest wake-up time that any process requests (`/dev/cpu_dma_latency`); 2000000000: no request",
    ),
    setting("cpu.numa_node", "Node of the measuring CPU"),
    setting("cpu.quota", "CPUs that this process's control group may use at a time; `none` without a limit"),
    moment("cpu.steal_since_boot", "Part of all CPUs' time since boot that the host took, parts per million"),
    activity(
        "cpu.pressure",
        "Part of the 10 s before the run in which a runnable thread had no CPU, per cent. Of the run itself: the counter `cpu_pressure_ms`",
    ),
    setting("kernel.release", "Release of the kernel"),
    setting("kernel.preemption", "How it was built to be preempted"),
    setting("kernel.realtime", "Whether it is a PREEMPT_RT kernel"),
    setting("kernel.arguments", "Those words of its command line that change how steady or fast a transfer is"),
    setting("kernel.rt_runtime_us", "How long real-time threads may run in each period; -1: always"),
    setting("kernel.rt_period_us", "That period"),
    setting(
        "kernel.numa_balancing",
        "Whether the kernel moves memory between nodes by itself, which unmaps it now and then",
    ),
    setting("kernel.watchdog", "Whether each CPU is interrupted to see that it is alive"),
    setting("kernel.clock_source", "Clock behind `clock_gettime`"),
    activity("kernel.load", "Runnable threads on average over 1, 5 and 15 minutes"),
    setting("memory.total_kb", "Memory"),
    moment("memory.available_kb", "The part of it that a program could use now"),
    setting("memory.swap_kb", "Swap"),
    moment("memory.swap_used_kb", "The part of it that is in use"),
    moment("memory.huge_pages", "Huge pages set aside"),
    moment("memory.locked_kb", "Memory of this process that is locked (`mlockall`, `mlock`)"),
    setting("memory.lock_limit", "Memory that this process may lock (RLIMIT_MEMLOCK)"),
    setting("memory.transparent_huge_pages", "`always`, `madvise` or `never`"),
    setting(
        "memory.transparent_huge_pages_defrag",
        "When a fault waits until memory has been moved together for a huge page",
    ),
    setting("memory.grows", "What lets the host give memory only when it is touched, or take it back"),
    moment("memory.balloon_pages", "Pages that the host holds through a balloon"),
    activity("memory.pressure", "Part of the last 10 s in which a thread waited for memory, per cent"),
    activity("io.pressure", "Part of the last 10 s in which a thread waited for a disk, per cent"),
    setting("thread.scheduler", "Class of the measuring thread"),
    setting("thread.priority", "Its real-time priority"),
    setting("thread.affinity", "CPUs that it may run on"),
    setting("thread.cpu", "The measuring CPU of this page: the only one that it may run on, or the last of them"),
    setting("thread.timer_slack_ns", "By so much the kernel may let it sleep too long"),
    setting("thread.priority_limit", "Highest real-time priority without rights (RLIMIT_RTPRIO)"),
    setting("gpu.name", "Name of the GPU"),
    setting("gpu.uuid", "Its UUID"),
    setting("gpu.address", "Its PCI address"),
    setting("gpu.driver", "Version of the NVIDIA driver"),
    setting("gpu.cuda", "Highest version of CUDA that the driver supports"),
    setting("gpu.vbios", "Version of its firmware"),
    setting("gpu.memory_mib", "Its memory"),
    setting("gpu.bar1_mib", "Size of the window through which the CPU sees that memory"),
    setting("gpu.virtualization", "`none`, `passed through`, `vGPU`, `host of vGPUs`"),
    setting("gpu.mig", "Whether it is divided (MIG)"),
    setting("gpu.compute_mode", "Who may have a context: `default`, `exclusive process`, `prohibited`"),
    setting("gpu.persistence", "Whether the driver keeps it ready while no program uses it"),
    setting("gpu.confidential", "Confidential computing"),
    setting("gpu.ecc", "Whether its memory is checked for errors"),
    moment("gpu.ecc_corrected", "Errors corrected since the driver was loaded"),
    moment("gpu.ecc_uncorrected", "Errors that could not be corrected since the driver was loaded"),
    moment("gpu.ecc_uncorrected_ever", "The same over its life"),
    moment("gpu.sm_mhz", "Clock of its processors now"),
    setting("gpu.sm_most_mhz", "The highest"),
    setting("gpu.sm_set_mhz", "The application clock that it is set to"),
    moment("gpu.memory_mhz", "Clock of its memory now"),
    setting("gpu.memory_most_mhz", "The highest"),
    setting("gpu.memory_set_mhz", "The application clock that it is set to"),
    moment("gpu.throttle", "Why clocks are lower than they could be"),
    moment("gpu.power_w", "Power now, watts"),
    setting("gpu.power_limit_w", "Limit of its power, watts"),
    moment("gpu.temperature_c", "Temperature, degrees Celsius"),
    activity("gpu.busy_percent", "Part of the last second or less in which a kernel ran"),
    moment("gpu.link_generation", "Generation of its PCIe link now; many GPUs lower it while they idle"),
    setting("gpu.link_width", "Lanes of that link"),
    setting("gpu.link_most_generation", "Highest generation of GPU and slot together"),
    setting("gpu.link_most_width", "Most lanes of GPU and slot together"),
    moment("gpu.link_replays", "Packets that the link sent again since the driver was loaded"),
    moment("gpu.processes", "Other processes with a context on it"),
    setting("gpu.mps", "Whether CUDA's Multi-Process Service runs"),
    setting("gpu.numa_node", "Node that it hangs on"),
    setting("gpu.numa_distance", "Distance from the measuring CPU's node; 10 is the same node"),
    setting("pci.max_payload", "Bytes of data in one packet (MaxPayloadSize)"),
    setting("pci.max_payload_possible", "The most that the GPU can"),
    setting("pci.max_read_request", "Bytes that the GPU requests in one read (MaxReadRequestSize)"),
    setting("pci.relaxed_ordering", "Whether the GPU may mark packets that others may pass"),
    setting("pci.extended_tags", "Whether it may have up to 256 reads in flight"),
    setting("pci.no_snoop", "Whether it may leave out caches"),
    setting("pci.link_sleeps", "States in which the link saves power (ASPM): `off`, `L0s`, `L1`"),
    moment("pci.link", "Link according to the GPU's own configuration space"),
    setting("pci.link_possible", "The best that the GPU can"),
    setting("pci.bridges", "Bridges between root and GPU"),
    moment("pci.bridge_links", "Their links, now and at most"),
    setting("pci.access_control", "What of Access Control Services (ACS) is on in them"),
    setting("iommu.units", "IOMMUs that the kernel uses"),
    setting("iommu.group", "Group of the GPU"),
    setting("iommu.group_devices", "Devices in that group"),
    setting("iommu.domain", "How the GPU's addresses are translated: `identity`, or `DMA` in some form"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_documented_with_the_same_words() {
        let page = include_str!("../../../../docs/reference/environment.md");
        let missing: Vec<String> = ALL
            .iter()
            .map(|f| {
                let kind = format!("{:?}", f.kind).to_lowercase();
                format!("| `{}` | {kind} | {} |", f.name, f.about)
            })
            .filter(|row| !page.contains(row.as_str()))
            .collect();
        assert!(missing.is_empty(), "docs/reference/environment.md lacks:\n{}", missing.join("\n"));
        let rows = page.lines().filter(|l| l.starts_with("| `") && l.matches('|').count() == 4).count();
        assert!(rows >= ALL.len());
        for (i, f) in ALL.iter().enumerate() {
            assert!(ALL[..i].iter().all(|other| other.name != f.name), "{} twice", f.name);
        }
    }
}

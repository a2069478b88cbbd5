//! The machine without its GPU.

pub mod cpu;
pub mod idle;
pub mod kernel;
pub mod memory;
pub mod thread;

use crate::files::Files;
use crate::gather::Gathered;
use crate::value::Known;

/// `cpu` is the measuring CPU; the calling thread is the measuring thread.
pub fn facts(files: &Files, cpu: Known<u64>, into: &mut Gathered) {
    into.put("thread.cpu", cpu.clone());
    thread::facts(into);
    cpu::facts(files, cpu.clone(), into);
    idle::facts(files, cpu, into);
    kernel::facts(files, into);
    memory::facts(files, into);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Environment;
    use crate::files::tree::Tree;

    /// A server with two threads a core, an isolated CPU 2 and idle states, in a container with a quota.
    fn server() -> Tree {
        let tree = Tree::new("host");
        let cpu = |file: &str| format!("/sys/devices/system/cpu/cpu2/{file}");
        for (file, text) in [
            ("cpufreq/scaling_governor", "powersave"),
            ("cpufreq/scaling_driver", "intel_pstate"),
            ("cpufreq/energy_performance_preference", "balance_performance"),
            ("cpufreq/scaling_cur_freq", "1900000"),
            ("cpufreq/scaling_min_freq", "800000"),
            ("cpufreq/scaling_max_freq", "2000000"),
            ("cpufreq/cpuinfo_max_freq", "3800000"),
            ("topology/thread_siblings_list", "2,34"),
            ("node1/cpulist", "2-3"),
            ("cpuidle/state0/name", "POLL"),
            ("cpuidle/state0/latency", "0"),
            ("cpuidle/state0/disable", "0"),
            ("cpuidle/state1/name", "C1E"),
            ("cpuidle/state1/latency", "4"),
            ("cpuidle/state1/disable", "0"),
            ("cpuidle/state10/name", "C6"),
            ("cpuidle/state10/latency", "170"),
            ("cpuidle/state10/disable", "0"),
        ] {
            tree.write(&cpu(file), format!("{text}\n"));
        }
        for (path, text) in [
            ("/sys/devices/system/cpu/online", "0-63"),
            ("/sys/devices/system/cpu/isolated", "2"),
            ("/sys/devices/system/cpu/nohz_full", "(null)"),
            ("/sys/devices/system/cpu/smt/active", "1"),
            ("/sys/devices/system/cpu/intel_pstate/no_turbo", "1"),
            ("/sys/devices/system/cpu/cpuidle/current_driver", "intel_idle"),
            ("/sys/devices/system/cpu/cpuidle/current_governor_ro", "menu"),
            ("/sys/fs/cgroup/pod/box/cpu.max", "800000 100000"),
            ("/sys/fs/cgroup/pod/cpu.max", "400000 100000"),
            ("/proc/self/cgroup", "0::/pod/box"),
            ("/proc/self/status", "VmLck:\t  128 kB"),
            ("/proc/cmdline", "root=/dev/sda1 isolcpus=2 rcu_nocbs=2 iommu=pt"),
            ("/proc/version", "Linux version 6.8.0-rt8 #1 SMP PREEMPT_RT x"),
            ("/proc/sys/kernel/osrelease", "6.8.0-rt8"),
            ("/sys/kernel/realtime", "1"),
            ("/proc/meminfo", "MemTotal: 2000 kB\nMemAvailable: 1000 kB\nSwapTotal: 100 kB\nSwapFree: 40 kB"),
            ("/sys/bus/virtio/drivers/virtio_balloon/bind", ""),
        ] {
            tree.write(path, format!("{text}\n"));
        }
        tree.write("/dev/cpu_dma_latency", 20i32.to_ne_bytes());
        tree
    }

    #[test]
    fn a_server_is_read_as_it_is() {
        let (tree, mut into) = (server(), Gathered::default());
        let files = tree.files();
        cpu::facts(&files, Ok(2), &mut into);
        idle::facts(&files, Ok(2), &mut into);
        kernel::facts(&files, &mut into);
        memory::facts(&files, &mut into);
        let Gathered { facts, unknown } = into;
        let mut e = Environment { facts, unknown, notes: Vec::new() };
        for (fact, want) in [
            ("cpu.governor", "powersave"),
            ("cpu.most_khz", "2000000"),
            ("cpu.smt_siblings", "34"),
            ("cpu.numa_node", "1"),
            ("cpu.online", "64"),
            ("cpu.isolated", "2"),
            ("cpu.nohz_full", ""),
            ("cpu.rcu_nocbs", "2"),
            ("cpu.boost", "no"),
            ("cpu.quota", "4 CPUs"),
            ("cpu.idle_governor", "menu"),
            ("cpu.idle_states", "POLL 0 us, C1E 4 us, C6 170 us"),
            ("cpu.idle_exit_us", "170"),
            ("cpu.dma_latency_us", "20"),
            ("kernel.realtime", "yes"),
            ("kernel.arguments", "isolcpus=2, rcu_nocbs=2, iommu=pt"),
            ("memory.swap_used_kb", "60"),
            ("memory.locked_kb", "128"),
            ("memory.grows", "none"),
        ] {
            let found = e.get(fact).map(ToString::to_string);
            assert_eq!(found.as_deref(), Some(want), "{fact}: {:?}", e.unknown.get(fact));
        }
        assert_eq!(e.unknown["host.product"], "/sys/class/dmi/id/sys_vendor is not there");
        e.set("thread.cpu", 2u64);
        let mut warned: Vec<String> = e.warnings().into_iter().map(|w| w.fact).collect();
        warned.sort_unstable();
        // A process requests wake-ups within 20 us: deeper states are not used, and 20 us is still long.
        let want =
            ["cpu.governor", "cpu.idle_exit_us", "cpu.most_khz", "cpu.nohz_full", "cpu.quota", "cpu.smt_siblings"];
        assert_eq!(warned, want);
        let asleep = e.warnings().into_iter().find(|w| w.fact == "cpu.idle_exit_us");
        assert!(asleep.is_some_and(|w| w.text.contains("needs 20 us")));
    }
}

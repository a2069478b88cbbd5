//! Counters of the machine and its GPU over a measurement. They are read once before and once after it, and not in between, except for the bytes of
//! the GPU's link if the caller allows a thread for them.

mod gpu;
mod process;

use crate::host::cpu::pressure_total;
use crate::link::{LinkCounters, Passed, Span};
use crate::{Gpu, Taken};
use gpu::{Device, Looked};
pub(crate) use process::Used;
use std::time::Instant;

/// Counts from a moment on.
pub struct Counters {
    began: Instant,
    cpu: Option<usize>,
    device: Result<Device, String>,
    first: Result<Looked, String>,
    link: Result<Span, String>,
    used: Result<Used, String>,
    pressure: Result<u64, String>,
    taken: Option<Taken>,
}

/// Counts of a time span.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counted {
    /// By the names of `docs/reference/environment.md`.
    pub values: Vec<(String, f64)>,
    /// The missing names, several in one entry if they have the same reason, and the reason.
    pub missing: Vec<(String, String)>,
    /// How the bytes of the link were counted; `None` if they were not requested.
    pub link: Option<Passed>,
}

impl Counters {
    /// `cpu` is the measuring one. The GPU is read first and the kernel last, so counting for this process begins right before this returns. No
    /// code runs until the end.
    pub fn begin(gpu: Gpu<'_>, cpu: Option<usize>) -> Counters {
        Counters::of(gpu, cpu, None)
    }

    /// The same, with a thread that reads the link's counters during the measurement. Only for measurements without timing: each reading is a call
    /// of the kernel driver. The thread runs on `others`, and its CPU time is left out.
    pub fn follow(gpu: Gpu<'_>, cpu: Option<usize>, others: &[usize]) -> Counters {
        Counters::of(gpu, cpu, Some(others))
    }

    fn of(gpu: Gpu<'_>, cpu: Option<usize>, follow: Option<&[usize]>) -> Counters {
        let device = Device::open(gpu);
        let first = device.as_ref().map(Device::look).map_err(Clone::clone);
        // The link last of the GPU's counters, and first at the end: reading the others also crosses the link.
        let link = LinkCounters::open(gpu).map(|counters| Span::begin(counters, follow));
        let taken = cpu.and_then(Taken::now);
        let pressure = pressure_total();
        Counters { began: Instant::now(), cpu, device, first, link, used: Used::now(), pressure, taken }
    }

    /// In the opposite order.
    pub fn end(self) -> Counted {
        let mut counted = Counted::default();
        let used = Used::now();
        let seconds = self.began.elapsed().as_secs_f64();
        let pressure = pressure_total();
        let taken = self.cpu.and_then(Taken::now);
        let (passed, by_thread) = match self.link {
            Ok(span) => span.end(),
            Err(why) => (Passed::nothing(why, 0), None),
        };
        counted.put("wall_ms", Ok(seconds * 1e3));
        match (&used, &self.used) {
            (Ok(now), Ok(then)) => {
                let all = now.less(then);
                by_thread.map_or(all, |thread| all.less(&thread)).put(&mut counted);
            }
            (Err(why), _) | (_, Err(why)) => counted.missing("cpu_*_ms, switches_*, faults_*", why.clone()),
        }
        let waited = pressure.and_then(|now| self.pressure.map(|then| now.saturating_sub(then) as f64 / 1e3));
        counted.put(PRESSURE, waited.map(|ms| ms.min(seconds * 1e3)));
        match (taken.zip(self.taken), self.cpu) {
            (Some((now, then)), _) => of_cpu(&now.since(&then), &mut counted),
            (None, None) => counted.missing(OF_CPU, "the measuring thread is not pinned to a CPU".into()),
            (None, Some(cpu)) => counted.missing(OF_CPU, format!("/proc/stat has no line for CPU {cpu}")),
        }
        match (&self.device, &self.first) {
            (Ok(device), Ok(first)) => {
                gpu::bytes(&passed, device, &mut counted);
                device.look().since(first, &mut counted);
            }
            (Err(why), _) | (_, Err(why)) => counted.missing(gpu::ALL, why.clone()),
        }
        counted.link = Some(passed);
        counted
    }
}

/// Time in which a runnable thread of this machine had no CPU.
const PRESSURE: &str = "cpu_pressure_ms";
const OF_CPU: &str = "steal_ms, irq_ms, softirq_ms, interrupts";

fn of_cpu(taken: &Taken, counted: &mut Counted) {
    let ms = |d: std::time::Duration| d.as_secs_f64() * 1e3;
    counted.put("steal_ms", Ok(ms(taken.steal)));
    counted.put("irq_ms", Ok(ms(taken.interrupts_time)));
    counted.put("softirq_ms", Ok(ms(taken.softirq_time)));
    let none = || "/proc/interrupts has no column of the measuring CPU".to_string();
    counted.put("interrupts", taken.interrupts.map(|n| n as f64).ok_or_else(none));
}

impl Counted {
    pub fn get(&self, name: &str) -> Option<f64> {
        self.values.iter().find(|(n, _)| n == name).map(|(_, v)| *v)
    }

    fn put(&mut self, name: &str, known: Result<f64, String>) {
        match known {
            Ok(value) => self.values.push((name.into(), value)),
            Err(why) => self.missing(name, why),
        }
    }

    /// Names with one reason are one entry.
    fn missing(&mut self, name: &str, why: String) {
        match self.missing.iter_mut().find(|(_, known)| *known == why) {
            Some((names, _)) => *names = format!("{names}, {name}"),
            None => self.missing.push((name.into(), why)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    #[test]
    fn without_a_gpu_the_rest_is_counted_and_the_reason_given_once() {
        let cpu = crate::placement::affinity().unwrap()[0];
        for gpu in [Gpu::Soft, Gpu::Real { pci: Some("ffff:ff:1f.7") }] {
            let counters = Counters::begin(gpu, Some(cpu));
            let begun = Instant::now();
            let mut n = 0u64;
            while begun.elapsed().as_millis() < 30 {
                n = std::hint::black_box(n + 1);
            }
            let counted = counters.end();
            assert!(counted.get("wall_ms").unwrap() >= 30.0, "{counted:?}");
            // The kernel charges a thread's time at its ticks, if not at its switches.
            let charged = counted.get("cpu_user_ms").unwrap() + counted.get("cpu_system_ms").unwrap();
            assert!(charged > 0.0, "{counted:?}");
            assert!(counted.get("steal_ms").unwrap() >= 0.0 && counted.get("energy_mj").is_none());
            let of_gpu: Vec<_> = counted.missing.iter().filter(|(names, _)| names.contains("energy_mj")).collect();
            assert_eq!(of_gpu.len(), 1, "{counted:?}");
            assert!(!of_gpu[0].1.is_empty());
        }
    }

    #[test]
    fn pressure_is_that_of_the_time_in_between() {
        let cpu = [crate::placement::affinity().unwrap()[0]];
        // Two threads that want one CPU: one of them always waits.
        let pressed = |threads: usize| {
            let over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| {
                        crate::placement::cpus::confine(0, &cpu).unwrap();
                        while !over.load(Ordering::Relaxed) {
                            std::hint::spin_loop();
                        }
                    });
                }
                std::thread::sleep(Duration::from_millis(20));
                let counters = Counters::begin(Gpu::Soft, None);
                std::thread::sleep(Duration::from_millis(100));
                let counted = counters.end();
                over.store(true, Ordering::Relaxed);
                counted
            })
        };
        let counted = pressed(2);
        let Some(ms) = counted.get(PRESSURE) else {
            assert!(
                counted.missing.iter().any(|(names, why)| names.contains(PRESSURE) && why.contains("/proc/pressure"))
            );
            return;
        };
        let wall = counted.get("wall_ms").unwrap();
        // The kernel averages over the CPUs that are not idle (kernel/sched/psi.c, collect_percpu_times): the others may be busy without a wait.
        // SAFETY: no pointers.
        let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) } as f64;
        assert!(ms > 0.8 * wall / cpus && ms <= wall, "{ms} of {wall} ms on {cpus} CPUs");
    }

    #[test]
    fn without_a_cpu_the_reason_is_given() {
        let counted = Counters::begin(Gpu::Soft, None).end();
        assert!(counted.missing.iter().any(|(names, why)| names == OF_CPU && why.contains("not pinned to a CPU")));
    }

    #[test]
    fn switches_and_faults_are_counted() {
        let counters = Counters::begin(Gpu::Soft, None);
        let pages = vec![1u8; 8 << 20];
        std::thread::sleep(std::time::Duration::from_millis(2));
        let counted = counters.end();
        drop(std::hint::black_box(pages));
        assert!(counted.get("switches_voluntary").unwrap() >= 1.0, "it slept: {counted:?}");
        assert!(counted.get("faults_minor").unwrap() >= 2.0, "it touched new pages: {counted:?}");
    }

    #[test]
    fn one_reason_is_one_entry() {
        let mut counted = Counted::default();
        counted.put("a", Err("why".into()));
        counted.put("b", Err("why".into()));
        counted.put("c", Err("else".into()));
        let texts: Vec<(&str, &str)> = counted.missing.iter().map(|(n, w)| (n.as_str(), w.as_str())).collect();
        assert_eq!(texts, [("a, b", "why"), ("c", "else")]);
    }
}

//! Counters of the GPU, through NVML: the difference between two readings.

use super::Counted;
use crate::Gpu;
use crate::link::Passed;
use crate::nvml::{self, why};
use crate::value::Known;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{
    Clock, EccCounter, MemoryError, PcieUtilCounter, PerformancePolicy, TemperatureSensor,
};
use std::time::Instant;

/// Every name that this module may set, for machines without a GPU.
pub const ALL: &str = "pcie_to_gpu_bytes, pcie_from_gpu_bytes, energy_mj, power_w, temperature_begin_c, temperature_c, \
                       sm_begin_mhz, sm_mhz, memory_mhz, throttle_reasons, throttled_power_ms, throttled_heat_ms, \
                       pcie_replays, ecc_corrected, ecc_uncorrected";

pub struct Device {
    nvml: nvml_wrapper::Device<'static>,
}

/// One reading. Each value is read separately, and each may be refused separately.
pub struct Looked {
    at: Instant,
    energy_mj: Known<u64>,
    power_mw: Known<u32>,
    temperature_c: Known<u32>,
    sm_mhz: Known<u32>,
    memory_mhz: Known<u32>,
    throttle: Known<ThrottleReasons>,
    /// Nanoseconds with lowered clocks, since the driver was loaded.
    by_power_ns: Known<u64>,
    by_heat_ns: Known<u64>,
    replays: Known<u32>,
    corrected: Known<u64>,
    uncorrected: Known<u64>,
}

impl Device {
    pub fn open(gpu: Gpu<'_>) -> Known<Device> {
        let pci = match gpu {
            Gpu::Real { pci } => pci,
            Gpu::Soft => return Err("the software GPU has no counters".into()),
            Gpu::None => return Err("no GPU is used".into()),
        };
        let nvml = nvml::device(pci)?;
        Ok(Device { nvml })
    }

    pub fn look(&self) -> Looked {
        let d = &self.nvml;
        let violation = |policy| d.violation_status(policy).map(|v| v.violation_time).map_err(why);
        let errors = |kind| d.total_ecc_errors(kind, EccCounter::Volatile).map_err(why);
        Looked {
            at: Instant::now(),
            power_mw: d.power_usage().map_err(why),
            temperature_c: d.temperature(TemperatureSensor::Gpu).map_err(why),
            sm_mhz: d.clock_info(Clock::SM).map_err(why),
            memory_mhz: d.clock_info(Clock::Memory).map_err(why),
            throttle: d.current_throttle_reasons().map_err(why),
            by_power_ns: violation(PerformancePolicy::Power),
            by_heat_ns: violation(PerformancePolicy::Thermal),
            replays: d.pcie_replay_counter().map_err(why),
            corrected: errors(MemoryError::Corrected),
            uncorrected: errors(MemoryError::Uncorrected),
            energy_mj: d.total_energy_consumption().map_err(why),
        }
    }
}

/// Difference of a counter that only grows; if it fell, it was reset in between.
fn more(now: &Known<u64>, then: &Known<u64>) -> Known<u64> {
    match (now, then) {
        (Ok(now), Ok(then)) => {
            now.checked_sub(*then).ok_or_else(|| "the counter was reset in the meantime".to_string())
        }
        (Err(why), _) | (_, Err(why)) => Err(why.clone()),
    }
}

impl Looked {
    /// All but the bytes of the link.
    pub fn since(&self, first: &Looked, counted: &mut Counted) {
        self.differences(first, self.at.duration_since(first.at).as_secs_f64(), counted);
    }

    fn differences(&self, first: &Looked, seconds: f64, counted: &mut Counted) {
        let energy = more(&self.energy_mj, &first.energy_mj).map(|mj| mj as f64);
        counted.put("energy_mj", energy.clone());
        match energy {
            Ok(mj) if seconds > 0.0 => counted.put("power_w", Ok(mj / 1e3 / seconds)),
            _ => counted.put("power_at_end_w", self.power_mw.clone().map(|mw| f64::from(mw) / 1e3)),
        }
        let number = |n: &Known<u32>| n.clone().map(f64::from);
        counted.put("temperature_begin_c", number(&first.temperature_c));
        counted.put("temperature_c", number(&self.temperature_c));
        counted.put("sm_begin_mhz", number(&first.sm_mhz));
        counted.put("sm_mhz", number(&self.sm_mhz));
        counted.put("memory_mhz", number(&self.memory_mhz));
        let both = |a: ThrottleReasons, b: ThrottleReasons| (a | b).difference(ThrottleReasons::GPU_IDLE).bits() as f64;
        let throttle = self.throttle.clone().and_then(|now| first.throttle.clone().map(|then| both(now, then)));
        counted.put("throttle_reasons", throttle);
        let ms = |now, then| more(now, then).map(|ns| ns as f64 / 1e6);
        counted.put("throttled_power_ms", ms(&self.by_power_ns, &first.by_power_ns));
        counted.put("throttled_heat_ms", ms(&self.by_heat_ns, &first.by_heat_ns));
        let wide = |n: &Known<u32>| n.clone().map(u64::from);
        let count = |now: Known<u64>, then: Known<u64>| more(&now, &then).map(|n| n as f64);
        counted.put("pcie_replays", count(wide(&self.replays), wide(&first.replays)));
        counted.put("ecc_corrected", count(self.corrected.clone(), first.corrected.clone()));
        counted.put("ecc_uncorrected", count(self.uncorrected.clone(), first.uncorrected.clone()));
    }
}

/// The bytes of the link, with how they were counted.
pub fn bytes(passed: &Passed, device: &Device, counted: &mut Counted) {
    match &passed.bytes {
        Ok(bytes) => {
            counted.put("pcie_to_gpu_bytes", Ok(bytes.to_gpu));
            counted.put("pcie_from_gpu_bytes", Ok(bytes.from_gpu));
        }
        Err(why) => {
            counted.missing("pcie_to_gpu_bytes, pcie_from_gpu_bytes", why.clone());
            if !passed.has_rates {
                device.look_at_rates(counted);
            }
        }
    }
}

impl Device {
    /// For GPUs without GPM: the link's rate over 20 ms at this moment, which is no count of the measured time.
    fn look_at_rates(&self, counted: &mut Counted) {
        let rate = |which| self.nvml.pcie_throughput(which).map(|kb| f64::from(kb) * 1024.0).map_err(why);
        counted.put("pcie_to_gpu_at_end_bytes_per_s", rate(PcieUtilCounter::Receive));
        counted.put("pcie_from_gpu_at_end_bytes_per_s", rate(PcieUtilCounter::Send));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn looked() -> Looked {
        let no = || Err("not counted".to_string());
        Looked {
            at: Instant::now(),
            energy_mj: Ok(1_000_000),
            power_mw: Ok(90_000),
            temperature_c: Ok(40),
            sm_mhz: Ok(345),
            memory_mhz: Ok(3201),
            throttle: Ok(ThrottleReasons::GPU_IDLE),
            by_power_ns: Ok(5_000_000),
            by_heat_ns: no(),
            replays: Ok(3),
            corrected: Ok(0),
            uncorrected: Ok(7),
        }
    }

    #[test]
    fn the_difference_of_two_readings_is_counted() {
        let first = looked();
        let second = Looked {
            at: first.at + Duration::from_secs(2),
            energy_mj: Ok(1_300_000),
            temperature_c: Ok(45),
            sm_mhz: Ok(1980),
            throttle: Ok(ThrottleReasons::SW_POWER_CAP),
            by_power_ns: Ok(8_500_000),
            replays: Ok(5),
            uncorrected: Ok(6),
            ..looked()
        };
        let mut counted = Counted::default();
        second.differences(&first, 2.0, &mut counted);
        let want = [
            ("energy_mj", 300_000.0),
            ("power_w", 150.0),
            ("temperature_begin_c", 40.0),
            ("temperature_c", 45.0),
            ("sm_begin_mhz", 345.0),
            ("sm_mhz", 1980.0),
            ("memory_mhz", 3201.0),
            ("throttle_reasons", ThrottleReasons::SW_POWER_CAP.bits() as f64),
            ("throttled_power_ms", 3.5),
            ("pcie_replays", 2.0),
            ("ecc_corrected", 0.0),
        ];
        let values: Vec<(&str, f64)> = counted.values.iter().map(|(n, v)| (n.as_str(), *v)).collect();
        assert_eq!(values, want);
        let missing: Vec<(&str, &str)> = counted.missing.iter().map(|(n, w)| (n.as_str(), w.as_str())).collect();
        let set_back = ("ecc_uncorrected", "the counter was reset in the meantime");
        assert_eq!(missing, [("throttled_heat_ms", "not counted"), set_back]);
        for (name, _) in values.iter().copied().chain([("throttled_heat_ms", 0.0), ("ecc_uncorrected", 0.0)]) {
            assert!(ALL.split(", ").any(|n| n.trim() == name), "{name}");
        }
    }

    #[test]
    fn a_gpu_that_counts_no_energy_has_the_power_of_the_moment() {
        let first = Looked { energy_mj: Err("not supported".into()), ..looked() };
        let second = Looked { energy_mj: Err("not supported".into()), ..looked() };
        let mut counted = Counted::default();
        second.differences(&first, 1.0, &mut counted);
        assert_eq!((counted.get("power_w"), counted.get("power_at_end_w")), (None, Some(90.0)));
    }
}

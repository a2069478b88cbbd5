//! The bytes that a GPU counts on its PCIe link, read repeatedly: accumulating counters, and rates of samples.
//!
//! Two ways, both through NVML. The fields NVML_FI_DEV_PCIE_COUNT_TX_BYTES and _RX_BYTES (197, 198) accumulate; their width is not documented, and
//! "value can be wrapped". The GPM metrics 20 and 21 are rates between two samples. Each reading costs system calls, so a thread that makes no
//! other measurement does it.

mod counting;
mod span;

pub use span::{By, Passed, Span};

use crate::Gpu;
use crate::nvml::{self, why};
use crate::value::Known;
use counting::{Counting, Value};
use nvml_wrapper::GpmSample;
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::gpm::gpm_metrics_get;
use nvml_wrapper::structs::device::FieldId;
use std::time::{Duration, Instant};

/// Received by the GPU, and sent by it.
const FIELDS: [u32; 2] = [198, 197];
const METRICS: [GpmMetricId; 2] = [GpmMetricId::PcieRxPerSec, GpmMetricId::PcieTxPerSec];
/// Interval between readings: a third of the time after which a 32-bit counter may have wrapped unseen.
const OFTEN: Duration = Duration::from_millis(20);

/// To the GPU, and from the GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Both<T> {
    pub to_gpu: T,
    pub from_gpu: T,
}

/// One reading.
#[derive(Clone, Debug)]
pub struct Look {
    /// Bytes since the first reading.
    pub counted: Known<Both<u64>>,
    /// Bytes a second since the last sample, if one was requested.
    pub rate: Option<Known<Both<f64>>>,
}

/// The counters of one link.
pub struct LinkCounters {
    nvml: nvml_wrapper::Device<'static>,
    counting: [Counting; 2],
    /// Why they do not count until they are restarted.
    lost: Option<String>,
    samples: Known<Option<GpmSample<'static>>>,
}

impl LinkCounters {
    /// The GPU whose counters are used; each of the two mechanisms may be refused separately.
    ///
    /// # Errors
    /// There is no such GPU, or no NVML.
    pub fn open(gpu: Gpu<'_>) -> Known<LinkCounters> {
        let pci = match gpu {
            Gpu::Real { pci } => pci,
            Gpu::Soft => return Err("the software GPU has no counters".into()),
            Gpu::None => return Err("no GPU is used".into()),
        };
        let nvml = nvml::device(pci)?;
        let samples = match nvml.gpm_support() {
            Ok(true) => Ok(None),
            Ok(false) => Err("this GPU has no GPM".into()),
            Err(e) => Err(why(e)),
        };
        Ok(LinkCounters { nvml, counting: Default::default(), lost: None, samples })
    }

    /// Counts from the next reading on: bytes since the last one are dropped.
    pub fn begin(&mut self) {
        self.counting = self.counting.map(Counting::again);
        self.lost = None;
    }

    /// Reads the counters; with `sample` it also takes a sample.
    pub fn look(&mut self, sample: bool) -> Look {
        let counted = self.count();
        Look { counted, rate: sample.then(|| self.rate()) }
    }

    /// Whether both counters are wider than 32 bits: then readings between the first and the last are unnecessary.
    pub fn is_wide(&self) -> bool {
        self.counting.iter().all(Counting::is_wide)
    }

    /// Whether it can take samples.
    pub fn has_rates(&self) -> bool {
        self.samples.is_ok()
    }

    fn count(&mut self) -> Known<Both<u64>> {
        if let Some(why) = &self.lost {
            return Err(why.clone());
        }
        let asked = Instant::now();
        let values = fields(&self.nvml);
        let answered = Instant::now();
        let [to_gpu, from_gpu] = &mut self.counting;
        let counted = values.and_then(|[to, from]| {
            Ok(Both { to_gpu: to_gpu.add(asked, answered, to)?, from_gpu: from_gpu.add(asked, answered, from)? })
        });
        // If a difference is ambiguous once, the sum is unknown from then on, until it is restarted.
        self.lost = counted.as_ref().err().cloned();
        counted
    }

    fn rate(&mut self) -> Known<Both<f64>> {
        let last = self.samples.as_mut().map_err(|why| why.clone())?;
        let now = self.nvml.gpm_sample().map_err(why)?;
        let before = last.replace(now);
        let (Some(before), Some(now)) = (before, last.as_ref()) else { return Err("the first sample".into()) };
        let found = gpm_metrics_get(nvml::library()?, &before, now, &METRICS).map_err(why)?;
        let mut of = found.into_iter().map(|metric| metric.map_err(why).and_then(|metric| of_mib(metric.value)));
        let mut next = || of.next().unwrap_or_else(|| Err("NVML: a metric is missing".into()));
        Ok(Both { to_gpu: next()?, from_gpu: next()? })
    }
}

/// The accumulating counters now: bytes received by the GPU, and sent by it.
fn fields(nvml: &nvml_wrapper::Device<'_>) -> Known<[Value; 2]> {
    let found = nvml.field_values_for(&FIELDS.map(FieldId)).map_err(why)?;
    let mut of = FIELDS.iter().zip(found).map(|(id, field)| {
        let refused = |e| format!("NVML: field {id}, bytes of the link: {e}");
        number(field.and_then(|field| field.value).map_err(refused)?)
    });
    let mut next = || of.next().unwrap_or_else(|| Err("NVML: a field is missing".into()));
    Ok([next()?, next()?])
}

/// NVML's rates are in MiB a second.
fn of_mib(rate: f64) -> Known<f64> {
    match rate.is_finite() && rate >= 0.0 {
        true => Ok(rate * f64::from(1 << 20)),
        false => Err(format!("NVML: a rate of {rate} MiB/s")),
    }
}

fn number(value: SampleValue) -> Known<Value> {
    let wide = |bytes| Value { bytes, has_32_bits: false };
    match value {
        SampleValue::U32(bytes) => Ok(Value { bytes: bytes.into(), has_32_bits: true }),
        SampleValue::U64(bytes) => Ok(wide(bytes)),
        SampleValue::I64(n) => u64::try_from(n).map(wide).map_err(|_| format!("NVML: a counter of {n} bytes")),
        SampleValue::F64(n) => Err(format!("NVML: a counter of {n} bytes")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_software_gpu_has_no_counters() {
        assert_eq!(LinkCounters::open(Gpu::Soft).err().as_deref(), Some("the software GPU has no counters"));
    }
}

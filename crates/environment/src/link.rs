//! The bytes that a GPU counts of its PCIe link, looked at again and again: accumulating counters, and rates of samples.
//!
//! Two ways, both through NVML. The fields NVML_FI_DEV_PCIE_COUNT_TX_BYTES and _RX_BYTES (197, 198) count on; their width is not
//! documented, and "value can be wrapped". The GPM metrics 20 and 21 are rates between two samples. Each look costs system calls, so
//! it is made from a thread that measures nothing.

use crate::Gpu;
use crate::nvml::{self, why};
use crate::value::Known;
use nvml_wrapper::GpmSample;
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::gpm::gpm_metrics_get;
use nvml_wrapper::structs::device::FieldId;
use std::time::{Duration, Instant};

/// Received by the GPU, and sent by it.
const FIELDS: [u32; 2] = [198, 197];
const METRICS: [GpmMetricId; 2] = [GpmMetricId::PcieRxPerSec, GpmMetricId::PcieTxPerSec];
/// A counter of 32 bits comes round in 68 ms at the line rate of Gen5 x16.
pub const OFTEN: Duration = Duration::from_millis(20);
const TOO_LATE: Duration = Duration::from_millis(60);

/// To the GPU, and from it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Both<T> {
    pub to_gpu: T,
    pub from_gpu: T,
}

/// One look.
#[derive(Clone, Debug)]
pub struct Look {
    /// Bytes since the first look.
    pub counted: Known<Both<u64>>,
    /// Bytes a second since the last sample, where one was asked for.
    pub rate: Option<Known<Both<f64>>>,
}

/// The counters of one link.
pub struct LinkCounters {
    nvml: nvml_wrapper::Device<'static>,
    counters: Known<[Counting; 2]>,
    samples: Known<Option<GpmSample<'static>>>,
}

impl LinkCounters {
    /// Whose counters; each of the two ways may be refused by itself.
    ///
    /// # Errors
    /// There is no such GPU, or no NVML.
    pub fn open(gpu: Gpu<'_>) -> Known<LinkCounters> {
        let pci = match gpu {
            Gpu::Real { pci } => pci,
            Gpu::Soft => return Err("the software GPU counts nothing".into()),
            Gpu::None => return Err("no GPU is used".into()),
        };
        LinkCounters::of(nvml::device(pci)?)
    }

    /// Of the GPU of this UUID: whose number is 1 for one library may be 0 for another.
    ///
    /// # Errors
    /// As [`LinkCounters::open`].
    pub fn of_uuid(uuid: [u8; 16]) -> Known<LinkCounters> {
        LinkCounters::of(nvml::of_uuid(uuid)?)
    }

    fn of(nvml: nvml_wrapper::Device<'static>) -> Known<LinkCounters> {
        let samples = match nvml.gpm_support() {
            Ok(true) => Ok(None),
            Ok(false) => Err("this GPU has no GPM".into()),
            Err(e) => Err(why(e)),
        };
        Ok(LinkCounters { nvml, counters: Ok(Default::default()), samples })
    }

    /// Counts from the next look on: whatever happened since the last one is forgotten.
    pub fn begin(&mut self) {
        let again = |counting: Counting| Counting { wraps: counting.wraps, ..Counting::default() };
        self.counters = Ok(self.counters.as_ref().map_or(Default::default(), |counters| counters.map(again)));
    }

    /// Looks at the counters, and with `sample` takes a sample, too.
    pub fn look(&mut self, sample: bool) -> Look {
        let counted = self.count();
        Look { counted, rate: sample.then(|| self.rate()) }
    }

    fn count(&mut self) -> Known<Both<u64>> {
        let now = Instant::now();
        let fields = fields(&self.nvml);
        let [to_gpu, from_gpu] = self.counters.as_mut().map_err(|why| why.clone())?;
        let counted =
            fields.and_then(|[to, from]| Ok(Both { to_gpu: to_gpu.add(now, to)?, from_gpu: from_gpu.add(now, from)? }));
        // What cannot be told apart once is not known from then on, until it begins again.
        if let Err(why) = &counted {
            self.counters = Err(why.clone());
        }
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
pub(crate) fn fields(nvml: &nvml_wrapper::Device<'_>) -> Known<[u64; 2]> {
    let found = nvml.field_values_for(&FIELDS.map(FieldId)).map_err(why)?;
    let mut of = found.into_iter().map(|field| number(field.and_then(|field| field.value).map_err(why)?));
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

fn number(value: SampleValue) -> Known<u64> {
    match value {
        SampleValue::U32(n) => Ok(n.into()),
        SampleValue::U64(n) => Ok(n),
        SampleValue::I64(n) => u64::try_from(n).map_err(|_| format!("NVML: a counter of {n} bytes")),
        SampleValue::F64(n) => Err(format!("NVML: a counter of {n} bytes")),
    }
}

/// A counter whose width nobody says.
#[derive(Clone, Copy, Debug, Default)]
struct Counting {
    last: Option<(Instant, u64)>,
    sum: u64,
    /// It has come round within 32 bits.
    wraps: bool,
}

impl Counting {
    /// The sum since the first value. A value that fell within 32 bits came round once; that is sure only as long as looks are so close
    /// that it cannot have come round twice.
    fn add(&mut self, at: Instant, value: u64) -> Known<u64> {
        let Some((then, last)) = self.last.replace((at, value)) else { return Ok(0) };
        let more = match value.checked_sub(last) {
            Some(more) => more,
            None if last < 1 << 32 => {
                self.wraps = true;
                value + (1 << 32) - last
            }
            None => return Err(format!("the counter of the link fell from {last} to {value}")),
        };
        let apart = at.duration_since(then);
        if self.wraps && apart > TOO_LATE {
            return Err(format!(
                "the counter of the link has 32 bits, and {} ms lay between two looks",
                apart.as_millis()
            ));
        }
        self.sum += more;
        Ok(self.sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adds(values: &[(u64, u64)]) -> Vec<Known<u64>> {
        let (mut counting, begun) = (Counting::default(), Instant::now());
        values.iter().map(|(ms, value)| counting.add(begun + Duration::from_millis(*ms), *value)).collect()
    }

    #[test]
    fn a_wide_counter_is_what_it_has_grown_by() {
        let far = 1u64 << 40;
        assert_eq!(adds(&[(0, far), (20, far + 7), (500, far + 6_000_000_007)])[1..], [Ok(7), Ok(6_000_000_007)]);
        // It was set back.
        assert!(adds(&[(0, far), (20, 5)])[1].as_ref().is_err_and(|why| why.contains("fell from")));
    }

    #[test]
    fn a_counter_of_32_bits_is_followed_as_long_as_looks_are_close() {
        let top = u64::from(u32::MAX);
        assert_eq!(adds(&[(0, top - 9), (20, 10), (40, 30), (60, 29 + 10)])[1..], [Ok(20), Ok(40), Ok(49)]);
        let late = adds(&[(0, top), (20, 10), (120, 20)]);
        assert_eq!(late[1], Ok(11));
        assert!(late[2].as_ref().is_err_and(|why| why.contains("32 bits") && why.contains("100 ms")), "{late:?}");
    }

    #[test]
    fn a_counter_that_begins_again_forgets_the_time_between() {
        let (mut counting, begun) = (Counting { wraps: true, ..Counting::default() }, Instant::now());
        assert_eq!(counting.add(begun, 7), Ok(0));
        assert!(counting.add(begun + Duration::from_secs(1), 9).is_err());
        let mut again = Counting { wraps: counting.wraps, ..Counting::default() };
        assert_eq!(again.add(begun + Duration::from_secs(2), 50), Ok(0));
        assert_eq!(again.add(begun + Duration::from_millis(2020), 60), Ok(10));
    }

    #[test]
    fn the_software_gpu_counts_nothing() {
        assert_eq!(LinkCounters::open(Gpu::Soft).err().as_deref(), Some("the software GPU counts nothing"));
    }
}

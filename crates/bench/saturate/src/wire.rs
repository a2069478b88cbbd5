//! The GPU's counters of its link, read together with the number of completed I/Os, and the resulting figures.
//!
//! Means are compared with means: bytes that crossed the link over payload bytes of completed I/Os, both within the same moments. Percentiles of
//! samples are shown next to them and never divided by a mean.

use environment::link::{Both, Look};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Counters of a link. They are read by a thread that submits nothing.
pub trait Wire {
    /// Something else is measured from now on.
    fn begin(&mut self) {}

    /// Reads them. `sample` also asks for the rate since the last sample. `None` without counters.
    fn look(&mut self, sample: bool) -> Option<Look>;
}

/// No counters: the software GPU, an emulated device.
#[derive(Clone, Copy, Debug, Default)]
pub struct Uncounted;

impl Wire for Uncounted {
    fn look(&mut self, _: bool) -> Option<Look> {
        None
    }
}

impl Wire for environment::link::LinkCounters {
    fn begin(&mut self) {
        environment::link::LinkCounters::begin(self);
    }

    fn look(&mut self, sample: bool) -> Option<Look> {
        Some(environment::link::LinkCounters::look(self, sample))
    }
}

/// One look.
#[derive(Clone, Debug)]
pub struct Moment {
    /// Since the first.
    pub at: Duration,
    /// I/Os that were done by then.
    pub ios: u64,
    pub look: Option<Look>,
}

/// Bytes of one direction on the link: the mean, and samples of 100 ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Way {
    pub bytes: f64,
    /// Bytes a second over the whole time.
    pub mean: f64,
    pub p50: f64,
    pub p95: f64,
}

/// What crossed the link.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Crossed {
    pub seconds: f64,
    pub samples: u32,
    /// Payload of the I/Os that completed in that time.
    pub payload: u64,
    pub to_gpu: Way,
    pub from_gpu: Way,
}

/// By both ways to count. A missing one has its reason.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OnWire {
    /// By accumulating counters (NVML's fields 197 and 198).
    pub counters: Option<Crossed>,
    /// By samples of rates (GPM metrics 20 and 21).
    pub samples: Option<Crossed>,
    pub missing: Vec<String>,
}

impl OnWire {
    /// The counters if available: their bytes are exact.
    pub fn best(&self) -> Option<&Crossed> {
        self.counters.as_ref().or(self.samples.as_ref())
    }
}

/// From readings during I/Os of `bytes` each; samples last at least `every`.
pub fn crossed(moments: &[Moment], bytes: u64, every: Duration) -> OnWire {
    let mut wire = OnWire::default();
    if moments.iter().all(|moment| moment.look.is_none()) {
        wire.missing.push("there are no counters of the bytes on this link".into());
        return wire;
    }
    for (found, of) in [(by_counters(moments, bytes, every), true), (by_samples(moments, bytes), false)] {
        match found {
            Ok(crossed) if of => wire.counters = Some(crossed),
            Ok(crossed) => wire.samples = Some(crossed),
            Err(why) => wire.missing.push(format!("{}: {why}", if of { "counters" } else { "samples" })),
        }
    }
    wire
}

const TOO_FEW: &str = "fewer than two looks";

fn by_counters(moments: &[Moment], bytes: u64, every: Duration) -> Result<Crossed, String> {
    let counted = |moment: &Moment| moment.look.as_ref().map_or(Err(TOO_FEW.into()), |look| look.counted.clone());
    let (Some(first), Some(last)) = (moments.first(), moments.last()) else { return Err(TOO_FEW.into()) };
    let (begun, ended) = (counted(first)?, counted(last)?);
    let (mut rates, mut from) = (Vec::new(), (first.at, begun));
    for moment in moments {
        let (at, now) = (moment.at, counted(moment)?);
        let seconds = at.saturating_sub(from.0).as_secs_f64();
        if at >= from.0 + every {
            rates.push((seconds, difference(now, from.1)));
            from = (at, now);
        }
    }
    sum(rates, (first, last), difference(ended, begun), bytes)
}

fn difference(now: Both<u64>, then: Both<u64>) -> Both<f64> {
    Both {
        to_gpu: now.to_gpu.saturating_sub(then.to_gpu) as f64,
        from_gpu: now.from_gpu.saturating_sub(then.from_gpu) as f64,
    }
}

fn by_samples(moments: &[Moment], bytes: u64) -> Result<Crossed, String> {
    let taken: Vec<&Moment> =
        moments.iter().filter(|moment| moment.look.as_ref().is_some_and(|look| look.rate.is_some())).collect();
    let [first, .., last] = taken[..] else { return Err("fewer than two samples".into()) };
    let (mut rates, mut all) = (Vec::new(), Both::default());
    for pair in taken.windows(2) {
        let seconds = pair[1].at.saturating_sub(pair[0].at).as_secs_f64();
        // The first rate is of the time before.
        let rate = pair[1].look.as_ref().and_then(|look| look.rate.clone()).unwrap_or_else(|| Err(TOO_FEW.into()))?;
        let of = Both { to_gpu: rate.to_gpu * seconds, from_gpu: rate.from_gpu * seconds };
        all = Both { to_gpu: all.to_gpu + of.to_gpu, from_gpu: all.from_gpu + of.from_gpu };
        rates.push((seconds, of));
    }
    sum(rates, (first, last), all, bytes)
}

/// Seconds and bytes of each sample, and all bytes.
fn sum(
    samples: Vec<(f64, Both<f64>)>,
    (first, last): (&Moment, &Moment),
    all: Both<f64>,
    bytes: u64,
) -> Result<Crossed, String> {
    let seconds = last.at.saturating_sub(first.at).as_secs_f64();
    if seconds <= 0.0 {
        return Err(TOO_FEW.into());
    }
    let way = |of: fn(&Both<f64>) -> f64| {
        let mut rates: Vec<f64> = samples.iter().filter(|(s, _)| *s > 0.0).map(|(s, both)| of(both) / s).collect();
        rates.sort_unstable_by(f64::total_cmp);
        let mean = of(&all) / seconds;
        // The nearest rank.
        let rank = |part: f64| rates.get((part * rates.len() as f64).ceil() as usize - 1).copied().unwrap_or(mean);
        let [p50, p95] = if rates.is_empty() { [mean; 2] } else { [0.5, 0.95].map(rank) };
        Way { bytes: of(&all), mean, p50, p95 }
    };
    Ok(Crossed {
        seconds,
        samples: samples.len() as u32,
        payload: last.ios.saturating_sub(first.ios) * bytes,
        to_gpu: way(|both| both.to_gpu),
        from_gpu: way(|both| both.from_gpu),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_millis(100);

    /// A reading every 50 ms: 1,000 I/Os of 4 KiB, and the given bytes of the counter; samples every other time.
    fn moments(bytes: &[u64]) -> Vec<Moment> {
        let mut sum = 0;
        let one = |(n, more): (usize, &u64)| {
            sum += more;
            let counted = Ok(Both { to_gpu: sum, from_gpu: sum / 10 });
            let rate = (n % 2 == 0).then_some(Ok(Both { to_gpu: *more as f64 * 20.0, from_gpu: 7.0 }));
            let look = Some(Look { counted, rate });
            Moment { at: Duration::from_millis(50 * n as u64), ios: 1000 * n as u64, look }
        };
        bytes.iter().enumerate().map(one).collect()
    }

    #[test]
    fn means_are_over_the_whole_time_and_percentiles_over_samples() {
        let found = crossed(&moments(&[9, 100, 200, 300, 400]), 4096, EVERY);
        let Crossed { seconds, samples, payload, to_gpu, from_gpu } = found.counters.unwrap();
        assert_eq!((seconds, samples, payload), (0.2, 2, 4000 * 4096));
        assert_eq!((to_gpu.bytes, to_gpu.mean, from_gpu.bytes), (1000.0, 5000.0, 100.0));
        assert_eq!((to_gpu.p50, to_gpu.p95), (3000.0, 7000.0));
        // The first sample's rate is of the time before. 200 and 400 bytes in 50 ms follow, as rates over 100 ms.
        let by_samples = found.samples.unwrap();
        assert_eq!((by_samples.samples, by_samples.payload), (2, 4000 * 4096));
        assert!((by_samples.to_gpu.mean - 6000.0).abs() < 1e-6, "{by_samples:?}");
        assert!((by_samples.from_gpu.mean - 7.0).abs() < 1e-9 && found.missing.is_empty());
    }

    #[test]
    fn uncounted_bytes_have_a_reason() {
        let mut some = moments(&[1, 2, 3]);
        some[1].look.as_mut().unwrap().counted = Err("it fell".into());
        let found = crossed(&some, 1, EVERY);
        assert_eq!((found.counters, &found.missing[..]), (None, &["counters: it fell".to_owned()][..]));
        assert!(found.samples.is_some());
        let none: Vec<Moment> = some.into_iter().map(|moment| Moment { look: None, ..moment }).collect();
        for moments in [&none[..], &[]] {
            let found = crossed(moments, 1, EVERY);
            assert!(found.best().is_none() && found.missing == ["there are no counters of the bytes on this link"]);
        }
        // One look is no time.
        let found = crossed(&moments(&[1]), 1, EVERY);
        assert!(found.best().is_none() && found.missing.len() == 2, "{found:?}");
    }
}

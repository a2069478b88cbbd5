//! Axes: the positions of values, lines and labels, and how values are written.

use numbers::tick::{bytes, count, digits, nanoseconds};

/// From values to a part of the axis, 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    kind: Kind,
    low: f64,
    high: f64,
    pub ticks: Vec<Tick>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Linear,
    Log,
    /// By the fraction above: each nine of a percentile takes as much room as the one before.
    Nines,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Tick {
    pub at: f64,
    /// Empty: a line only.
    pub label: String,
}

impl Axis {
    /// Nanoseconds. Whole decades, or parts of one if that is enough.
    pub fn times(low: f64, high: f64) -> Axis {
        Axis::decades(low, high, nanoseconds)
    }

    pub fn counts(high: f64) -> Axis {
        Axis::decades(0.8, high, |v| if v >= 1.0 { count(v) } else { String::new() })
    }

    /// Gigabytes a second, by their logarithm.
    pub fn rates(low: f64, high: f64) -> Axis {
        Axis::decades(low, high, digits)
    }

    /// From 0 to `high` with some room.
    pub fn from_zero(high: f64, label: impl Fn(f64) -> String) -> Axis {
        let axis = Axis::values(0.0, high, |_, _| String::new());
        Axis { ticks: axis.ticks.into_iter().map(|t| Tick { label: label(t.at), ..t }).collect(), ..axis }
    }

    fn decades(low: f64, high: f64, label: impl Fn(f64) -> String) -> Axis {
        let low = low.max(1e-9);
        let high = high.max(low * 1.2);
        let (low, high) = (low / 1.1, high * 1.1);
        let steps: &[f64] = match (high / low).log10() {
            d if d <= 1.3 => &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0],
            d if d <= 3.0 => &[1.0, 2.0, 5.0],
            _ => &[1.0],
        };
        let mut ticks = Vec::new();
        for decade in (low.log10().floor() as i32)..=(high.log10().ceil() as i32) {
            for step in 1..10 {
                // Lines without labels between the labelled ones.
                let at = f64::from(step) * 10f64.powi(decade);
                if steps.len() < 4 && !steps.contains(&f64::from(step)) && at >= low && at <= high {
                    ticks.push(Tick { at, label: String::new() });
                }
            }
            for step in steps {
                let at = step * 10f64.powi(decade);
                if at >= low && at <= high {
                    ticks.push(Tick { at, label: label(at) });
                }
            }
        }
        Axis { kind: Kind::Log, low, high, ticks }
    }

    /// Powers of two, labelled so that about twelve are.
    pub fn sizes(low: u64, high: u64) -> Axis {
        let (first, last) = (low.max(1).ilog2(), high.max(1).ilog2());
        let every = (last - first).div_ceil(12).max(1);
        let tick = |power: u32| {
            let label = if (power - first).is_multiple_of(every) { bytes(1 << power) } else { String::new() };
            Tick { at: (1u64 << power) as f64, label }
        };
        let ticks = (first..=last).map(tick).collect();
        Axis { kind: Kind::Log, low: low.max(1) as f64 / 1.25, high: high.max(1) as f64 * 1.25, ticks }
    }

    /// The part of the samples below a value, up to the last of `samples`.
    pub fn nines(samples: u64) -> Axis {
        let high = (samples.max(10) as f64).log10();
        let mut ticks = vec![Tick { at: 0.0, label: "0 %".into() }, Tick { at: 0.5, label: "50 %".into() }];
        for nines in 1..=high.floor() as i32 {
            let decimals = (nines - 2).max(0) as usize;
            let part = 1.0 - 10f64.powi(-nines);
            ticks.push(Tick { at: part, label: format!("{:.decimals$} %", part * 100.0) });
        }
        Axis { kind: Kind::Nines, low: 0.0, high: high * 1.03, ticks }
    }

    /// Whole numbers from 0.
    pub fn whole(high: usize) -> Axis {
        let mut axis = Axis::seconds(high.max(1) as f64);
        axis.ticks.retain(|t| t.at.fract() == 0.0);
        axis.ticks.iter_mut().for_each(|t| t.label = format!("{:.0}", t.at));
        axis
    }

    /// Values that are nearly equal: from the smallest to the largest, but at least 4 % to each side of the middle, so that steady values look
    /// steady. Values far apart get a logarithmic axis.
    pub fn nearly(low: f64, high: f64, unit: impl Fn(f64) -> String, log: impl Fn(f64, f64) -> Axis) -> Axis {
        if low > 0.0 && high / low > 3.0 {
            return log(low, high);
        }
        let middle = f64::midpoint(low, high);
        let axis = Axis::values(low.min(middle * 0.96), high.max(middle * 1.04), |_, _| String::new());
        Axis { ticks: axis.ticks.into_iter().map(|t| Tick { label: unit(t.at), ..t }).collect(), ..axis }
    }

    /// Seconds.
    pub fn seconds(high: f64) -> Axis {
        let high = if high > 0.0 { high } else { 1.0 };
        let rough = high / 8.0;
        let decade = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|s| s * decade).find(|s| *s >= rough).unwrap_or(rough);
        let label = |at: f64| {
            let decimals = (-step.log10().floor()).clamp(0.0, 9.0) as usize;
            format!("{at:.decimals$} s")
        };
        let ticks = (0..).map(|i| f64::from(i) * step).take_while(|at| *at <= high * 1.0001);
        let ticks = ticks.map(|at| Tick { at, label: label(at) }).collect();
        Axis { kind: Kind::Linear, low: 0.0, high, ticks }
    }

    /// Plain numbers from `low` to `high` with some room, each step a round one. `label` takes a value and its decimals.
    pub fn values(low: f64, high: f64, label: impl Fn(f64, usize) -> String) -> Axis {
        let room = if high > low { (high - low) * 0.05 } else { high.abs().max(1.0) * 0.1 };
        let least = if low >= 0.0 { (low - room).max(0.0) } else { low - room };
        let (low, high) = (least, high + room);
        let rough = (high - low) / 6.0;
        let decade = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|s| s * decade).find(|s| *s >= rough).unwrap_or(rough);
        let decimals = (-step.log10().floor()).clamp(0.0, 9.0) as usize;
        let first = (low / step).ceil() as i64;
        let ticks = (first..).map(|i| i as f64 * step).take_while(|at| *at <= high).take(32);
        let ticks = ticks.map(|at| Tick { at, label: label(at, decimals) }).collect();
        Axis { kind: Kind::Linear, low, high, ticks }
    }

    /// A place for each name, from n to n + 1, with the name in the middle.
    pub fn names(names: &[&str]) -> Axis {
        let tick = |(n, name): (usize, &&str)| Tick { at: n as f64 + 0.5, label: (*name).to_owned() };
        let ticks = names.iter().enumerate().map(tick).collect();
        Axis { kind: Kind::Linear, low: 0.0, high: names.len().max(1) as f64, ticks }
    }

    /// 0 at the low end, 1 at the high one; below 0 or above 1 for values outside.
    pub fn part(&self, v: f64) -> f64 {
        let (v, low, high) = match self.kind {
            Kind::Linear => (v, self.low, self.high),
            Kind::Log => (v.max(1e-9).log10(), self.low.log10(), self.high.log10()),
            Kind::Nines => (-(1.0 - v).max(1e-12).log10(), self.low, self.high),
        };
        (v - low) / (high - low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_axis_has_labels_within_it_at_the_right_places() {
        let axes = [
            Axis::times(900.0, 1_000.0),
            Axis::times(1_000.0, 1_000.0),
            Axis::times(50.0, 3e9),
            Axis::times(2_000.0, 150_000.0),
            Axis::counts(1.0),
            Axis::counts(1e7),
            Axis::sizes(8, 8),
            Axis::sizes(4, 64 << 20),
            Axis::nines(10),
            Axis::nines(10_000_000),
            Axis::seconds(0.0),
            Axis::seconds(0.37),
            Axis::seconds(1800.0),
            Axis::values(0.0, 0.0, |v, decimals| format!("{v:.decimals$}")),
            Axis::values(211.5, 212.25, |v, decimals| format!("{v:.decimals$} W")),
            Axis::from_zero(55.3, count),
            Axis::rates(0.001, 55.3),
            Axis::whole(0),
            Axis::whole(1),
            Axis::whole(180),
            Axis::nearly(1000.0, 1001.0, nanoseconds, Axis::times),
            Axis::nearly(1000.0, 9000.0, nanoseconds, Axis::times),
            Axis::values(-3.0, 1e9, |v, decimals| format!("{v:.decimals$}")),
        ];
        for axis in axes {
            let labelled = axis.ticks.iter().filter(|t| !t.label.is_empty()).count();
            assert!((1..=14).contains(&labelled), "{labelled}: {axis:?}");
            for t in &axis.ticks {
                assert!((-1e-9..=1.0).contains(&axis.part(t.at)), "{t:?} of {axis:?}");
            }
        }
        let nines = Axis::nines(1_000_000);
        let step = |a, b| nines.part(b) - nines.part(a);
        assert!((step(0.9, 0.99) - step(0.999, 0.9999)).abs() < 1e-9);
        assert_eq!(nines.ticks.last().unwrap().label, "99.9999 %");
        assert!((Axis::times(100.0, 10_000.0).part(1000.0) - 0.5).abs() < 1e-9);
    }
}

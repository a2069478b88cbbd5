//! Whether the loads of a stage reached their minimum. If a load did not, the cells were not measured as the experiment requires: they have no
//! figures.

use crate::part::{Loaded, Part, Status};
use experiment::{Gpu, LoadSpec, MustReach, Stage};

/// Why a stage has no figures; `None` if all its loads existed and reached their minimum, in every repeat.
pub(super) fn spoilt(stage: &Stage, parts: &[&Part]) -> Option<Status> {
    let loads = stage.loads.iter().enumerate().filter(|(_, load)| load.must_reach.is_some());
    let each = loads.flat_map(|(n, load)| parts.iter().map(move |part| (load, part.loads.get(n))));
    let mut missed = None;
    for (load, done) in each {
        match done {
            Some(done) if done.unavailable.is_some() => {
                let why = done.unavailable.as_deref().unwrap_or_default();
                return Some(Status::Unavailable(format!("the load {} is not available: {why}", load.name)));
            }
            Some(done) => {
                let failed = done.failed.first().map(|(why, _)| format!("load {} failed: {why}", load.name));
                let reached = || self::missed(load, done, stage.run.gpu).map(|(_, why)| why);
                missed = missed.or(failed).or_else(reached);
            }
            // A part that could not begin.
            None => {}
        }
    }
    missed.map(Status::Invalid)
}

/// The minimum that a load missed: `3.1 of 5 GB/s`, and the same as a sentence.
pub(super) fn missed(load: &LoadSpec, done: &Loaded, gpu: Gpu) -> Option<(String, String)> {
    let must_reach = load.must_reach?;
    let worked = done.seconds - done.rested;
    let a_second = |count: u64| if worked > 0.0 { count as f64 / worked } else { 0.0 };
    let (reached, of, unit, scale, note) = match must_reach {
        // The speed of an emulation has no meaning.
        _ if gpu == Gpu::Soft => (a_second(done.transfers), f64::MIN_POSITIVE, "", 1.0, "nothing was done"),
        MustReach::Times(n) => (a_second(done.transfers), n, " a second", 1.0, ""),
        MustReach::Bytes(n) => (a_second(done.bytes), n, " GB/s", 1e9, ""),
        MustReach::Percent(percent) => {
            let (whole, note) = match load.rate {
                Some(rate) => (rate * f64::from(load.count), "of its own rate"),
                None => (done.alone.unwrap_or(0.0), "of what it reached alone"),
            };
            // A load that did no work alone could reach any part of that.
            let of = (whole * percent / 100.0).max(f64::MIN_POSITIVE);
            (a_second(done.transfers), of, " a second", 1.0, note)
        }
    };
    if reached >= of {
        return None;
    }
    let (percent, figures) = match must_reach {
        MustReach::Percent(percent) => (format!(", {percent} % {note}"), short(of)),
        _ => (String::new(), short(of / scale)),
    };
    let what = match gpu {
        Gpu::Soft => note.to_owned(),
        _ => format!("{} of {figures}{unit}{percent}", short(reached / scale)),
    };
    let why = format!("load {} missed its rate: {what}", load.name);
    Some((what, why))
}

/// At least two digits, three below ten, without trailing zeros.
fn short(value: f64) -> String {
    if value > 0.0 && value < 0.01 {
        return format!("{value:.1e}");
    }
    let digits = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    let text = format!("{value:.digits$}");
    if digits == 0 { text } else { text.trim_end_matches('0').trim_end_matches('.').to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use experiment::{Class, Cpus, What};

    fn load(must_reach: MustReach, rate: Option<f64>) -> LoadSpec {
        LoadSpec {
            name: "crowd".into(),
            what: What::Call("hog".into()),
            bytes: 0,
            count: 4,
            rate,
            cpus: Cpus::Any,
            class: Class::Other,
            check_every: 0,
            must_reach: Some(must_reach),
            process: experiment::Process::Shared,
        }
    }

    fn done(transfers: u64, bytes: u64, alone: Option<f64>) -> Loaded {
        Loaded { transfers, bytes, alone, seconds: 2.0, ..Loaded::default() }
    }

    #[test]
    fn a_load_is_held_to_what_it_must_reach() {
        let why = |must_reach, rate, done: &Loaded| missed(&load(must_reach, rate), done, Gpu::Real).map(|m| m.0);
        let gigabytes = MustReach::Bytes(5e9);
        assert_eq!(why(gigabytes, None, &done(10, 6_200_000_000, None)).as_deref(), Some("3.1 of 5 GB/s"));
        assert_eq!(why(gigabytes, None, &done(10, 10_000_000_000, None)), None);
        assert_eq!(why(MustReach::Times(1000.0), None, &done(1998, 0, None)).as_deref(), Some("999 of 1000 a second"));
        // Relative to its own rate: 4 threads of 100 a second.
        let own = |transfers| why(MustReach::Percent(90.0), Some(100.0), &done(transfers, 0, None));
        assert_eq!(own(720), None);
        assert_eq!(own(718).as_deref(), Some("359 of 360 a second, 90 % of its own rate"));
        // Relative to its rate alone; a load without work there is not a proven load.
        let alone = |transfers, alone| why(MustReach::Percent(50.0), None, &done(transfers, 0, alone));
        assert_eq!(alone(100, Some(100.0)), None);
        assert_eq!(alone(98, Some(100.0)).as_deref(), Some("49 of 50 a second, 50 % of what it reached alone"));
        assert!(alone(0, Some(0.0)).is_some_and(|why| why.starts_with("0 of ")));
        // The time of rests is not counted against the loads.
        let rested = Loaded { rested: 1.0, ..done(1000, 0, None) };
        assert_eq!(why(MustReach::Times(1000.0), None, &rested), None);
        // On an emulation it only matters that some work was done.
        assert!(missed(&load(gigabytes, None), &done(1, 0, None), Gpu::Soft).is_none());
        assert_eq!(missed(&load(gigabytes, None), &done(0, 0, None), Gpu::Soft).unwrap().0, "nothing was done");
    }
}

//! From parts to the account: pure.

use crate::account::{
    CONFIDENCE, Figures, KneeOfRun, Latency, LinkOfRun, Measured, Over, Part, Reachable, Status, Total, Wired, ways,
};
use crate::knee::{self, Known, Next};
use crate::link::{Access, Link, Packets};
use crate::plan::{Assumed, CellName, Plan, Role};
use crate::source::{Checked, Flow, Traffic};
use crate::wire::Crossed;
use statistics::{Histogram, median_over_processes};

/// The median and its interval; `None` without values.
pub fn over(values: impl IntoIterator<Item = f64>) -> Option<Over> {
    let values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
    let (median, interval) = median_over_processes(&values, CONFIDENCE)?;
    Some(Over { median, interval, repeats: values.len() as u32 })
}

/// How the payload of I/Os crosses the GPU's link.
pub type Crossing<'a> = &'a dyn Fn(Flow) -> Option<Traffic>;

/// Every cell of the plan, with the figures of all its parts together.
pub fn totals(plan: &Plan, parts: &[Part], link: Option<&LinkOfRun>, crossing: Crossing<'_>) -> Vec<Total> {
    let all = plan.cells().into_iter().enumerate();
    let of = |number: u32| parts.iter().filter(move |part| part.number == number);
    all.filter(|(number, _)| of(*number as u32).next().is_some())
        .map(|(number, cell)| total(number as u32, cell, &of(number as u32).collect::<Vec<_>>(), link, crossing))
        .collect()
}

fn total(number: u32, cell: CellName, parts: &[&Part], link: Option<&LinkOfRun>, crossing: Crossing<'_>) -> Total {
    let bad = |status: &Status| matches!(status, Status::Failed(_));
    let first =
        |wanted: fn(&Status) -> bool| parts.iter().map(|part| &part.status).find(|status| wanted(status)).cloned();
    // A cell that failed in any repeat has no figures.
    let status =
        first(|s| matches!(s, Status::Failed(_))).or_else(|| first(|s| *s != Status::Done)).unwrap_or(Status::Done);
    let mut checked = Checked::default();
    let mut notes: Vec<String> = Vec::new();
    for part in parts {
        checked.blocks += part.checked.blocks;
        checked.wrong += part.checked.wrong;
        checked.first = checked.first.or_else(|| part.checked.first.clone());
        part.notes.iter().for_each(|note| {
            if !notes.contains(note) {
                notes.push(note.clone())
            }
        });
    }
    let sum = |of: fn(&Part) -> u64| parts.iter().map(|part| of(part)).sum();
    let measured: Vec<&Measured> = parts.iter().filter_map(|part| part.measured.as_ref()).collect();
    let is_right = !bad(&status) && checked.wrong == 0 && parts.iter().all(|part| part.refused == 0);
    Total {
        number,
        cell,
        status,
        repeats: parts.iter().filter(|part| part.status == Status::Done).count() as u32,
        ios: sum(|part| part.ios),
        submitted: sum(|part| part.submitted),
        refused: sum(|part| part.refused),
        figures: if is_right { figures(&cell, &measured, link, crossing) } else { None },
        checked,
        notes,
    }
}

fn figures(cell: &CellName, parts: &[&Measured], link: Option<&LinkOfRun>, crossing: Crossing<'_>) -> Option<Figures> {
    let each = |of: fn(&Measured) -> f64| over(parts.iter().map(|part| of(part)));
    let traffic = crossing(cell.flow());
    let wire = traffic.as_ref().and_then(|_| wired(cell.flow(), parts));
    Some(Figures {
        iops: each(|part| part.iops)?,
        payload: each(|part| part.payload)?,
        latency: latency(parts),
        cpu_ns_per_io: each(|part| part.cpu_ns_per_io)?,
        cycles_per_io: over(parts.iter().filter_map(|part| part.cycles_per_io)),
        wire,
        reachable: link.zip(traffic).and_then(|(link, traffic)| reachable(cell, link, &traffic)),
    })
}

/// Percentiles over all samples: the median of percentiles would hide the tail of one repeat.
fn latency(parts: &[&Measured]) -> Latency {
    let mut all = Histogram::new();
    parts.iter().for_each(|part| all.merge(&part.latency));
    let summary = all.summary();
    Latency {
        count: all.count(),
        p50_ns: summary.as_ref().map(|summary| summary.p50),
        p99_ns: summary.as_ref().and_then(|summary| summary.p99),
        p999_ns: summary.as_ref().and_then(|summary| summary.p999),
        max_ns: summary.map(|summary| summary.max),
    }
}

/// Counted in the same way in all repeats: by counters, if all have them.
fn wired(flow: Flow, parts: &[&Measured]) -> Option<Wired> {
    let by =
        |of: fn(&Measured) -> Option<&Crossed>| parts.iter().map(|part| of(part)).collect::<Option<Vec<&Crossed>>>();
    let counters = by(|part| part.wire.counters.as_ref());
    let (name, all) = match counters {
        Some(all) => ("counters", all),
        None => ("samples", by(|part| part.wire.samples.as_ref())?),
    };
    let ways: Vec<_> = all.iter().map(|crossed| (ways(crossed, flow), crossed.payload as f64)).collect();
    Some(Wired {
        by: name.into(),
        along: over(ways.iter().map(|((along, _), _)| along.mean))?,
        against: over(ways.iter().map(|((_, against), _)| against.mean))?,
        along_p50: over(ways.iter().map(|((along, _), _)| along.p50))?.median,
        along_p95: over(ways.iter().map(|((along, _), _)| along.p95))?.median,
        // Mean against mean, of the same moments.
        factor: over(
            ways.iter().filter(|(_, payload)| *payload > 0.0).map(|((along, _), payload)| along.bytes / payload),
        )?,
    })
}

fn reachable(cell: &CellName, link: &LinkOfRun, Traffic { access, beside }: &Traffic) -> Option<Reachable> {
    let (packets, bytes) = (link.packets, cell.bytes);
    let short = (*access == Access::Read).then(|| packets.with_short_completions());
    Some(Reachable {
        access: *access,
        payload: packets.reachable(link.link, *access, bytes, beside)?,
        with_short_completions: short.and_then(|short| short.reachable(link.link, *access, bytes, beside)),
        factor: packets.factor(*access, bytes, beside),
        factor_with_short_completions: short.map(|short| short.factor(*access, bytes, beside)),
    })
}

/// The link as the facts about the machine have it; values of the plan take precedence.
pub fn link(facts: &serde_json::Value, assumed: &Assumed) -> Option<LinkOfRun> {
    let number = |name: &str| facts.get(name).and_then(serde_json::Value::as_u64).and_then(|n| u32::try_from(n).ok());
    let mut said = Vec::new();
    let mut take = |name: &str, own: Option<u32>, fact: Option<u32>, default: Option<u32>| match (own, fact, default) {
        (Some(own), fact, _) => {
            let machine = fact.map_or("does not say".into(), |fact| format!("says {fact}"));
            said.push(format!("{name} {own} by the plan; the machine {machine}"));
            Some(own)
        }
        (None, Some(fact), _) => Some(fact),
        (None, None, Some(default)) => {
            said.push(format!("{name} {default}: the machine does not say"));
            Some(default)
        }
        (None, None, None) => None,
    };
    // An idle link has a lower generation; under load it has the highest that both GPU and slot support.
    let told = facts.get("pci.link").and_then(serde_json::Value::as_str).and_then(Link::of_fact);
    let generation = number("gpu.link_most_generation").or(told.map(|link| link.generation));
    let width = number("gpu.link_width").or(told.map(|link| link.width));
    let usual = Packets::default();
    let generation = take("generation", assumed.generation, generation, None)?;
    let width = take("width", assumed.width, width, None)?;
    let max_payload = take("MPS", assumed.max_payload, number("pci.max_payload"), Some(usual.max_payload))?;
    let max_read_request =
        take("MRRS", assumed.max_read_request, number("pci.max_read_request"), Some(usual.max_read_request))?;
    let boundary = Some(usual.read_completion_boundary);
    let read_completion_boundary = take("RCB", assumed.read_completion_boundary, None, boundary)?;
    let packets = Packets { max_payload, max_read_request, read_completion_boundary, completion: max_payload, ..usual };
    said.push(format!(
        "completions of at most {max_payload} and at least {read_completion_boundary} bytes; one acknowledgement for {} TLPs and one update of credits for {}",
        packets.tlps_per_ack, packets.tlps_per_credit
    ));
    packets.check().ok()?;
    let link = Link { generation, width };
    Some(LinkOfRun { link, line_rate: link.line_rate()?, packets, assumed: said })
}

/// Grids of threads and devices that belong together: with the same target, size, depth, number of queues and kind of submission.
fn grids(plan: &Plan) -> Vec<CellName> {
    let mut grids: Vec<CellName> = Vec::new();
    for cell in plan.cells().into_iter().filter(|cell| cell.role == Role::Io) {
        let grid = CellName { threads: 0, devices: 0, ..cell };
        if !grids.contains(&grid) {
            grids.push(grid);
        }
    }
    grids
}

/// The cell that the search for the knees needs next, and the knees found so far.
pub fn knees(plan: &Plan, totals: &[Total]) -> (Option<CellName>, Vec<KneeOfRun>) {
    let ascending = |values: &[u32]| {
        let mut values = values.to_vec();
        values.sort_unstable();
        values.dedup();
        values
    };
    let (threads, devices) = (ascending(&plan.matrix.threads), ascending(&plan.matrix.devices));
    if threads.len() * devices.len() < 2 {
        return (None, Vec::new());
    }
    let (mut asked, mut found) = (None, Vec::new());
    for grid in grids(plan) {
        let is_cell = |t, d| d * grid.queues >= t;
        let known = |t: u32, d: u32| {
            if !is_cell(t, d) {
                return Some(Known::Never);
            }
            let cell = CellName { threads: t, devices: d, ..grid };
            let total = totals.iter().find(|total| total.cell == cell)?;
            Some(total.figures.as_ref().map_or(Known::Never, |figures| Known::Rate(figures.payload.median)))
        };
        let none = |why: &str| KneeOfRun { cell: grid, knee: None, why: Some(why.into()) };
        match knee::next(&threads, &devices, plan.knee.within, known) {
            Next::Measure { threads, devices } => {
                asked = asked.or(Some(CellName { threads, devices, ..grid }));
                found.push(none("it is not decided: cells are missing"));
            }
            Next::Found(knee) => {
                let cell = CellName { threads: knee.threads, devices: knee.devices, ..grid };
                found.push(KneeOfRun { cell, knee: Some(knee), why: None });
            }
            Next::Nothing => found.push(none("no cell has a rate")),
        }
    }
    (asked, found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Saturated;
    use crate::link::Beside;
    use crate::plan;
    use crate::source::Target;
    use crate::wire::{OnWire, Way};

    fn part(repeat: u32, number: u32, cell: CellName, payload: f64, wire: f64) -> Part {
        let way = |mean: f64| Way { bytes: mean, mean, p50: mean, p95: 2.0 * mean };
        let crossed = Crossed {
            seconds: 1.0,
            samples: 10,
            payload: payload as u64,
            to_gpu: way(wire),
            from_gpu: way(wire / 10.0),
        };
        Part {
            repeat,
            number,
            cell,
            started: String::new(),
            status: Status::Done,
            ios: 1000,
            submitted: 1100,
            refused: 0,
            checked: Checked { blocks: 5, wrong: 0, first: None },
            measured: Some(Measured {
                seconds: 1.0,
                iops: payload / cell.bytes as f64,
                payload,
                latency: (0..2000).collect(),
                cpu_ns_per_io: 70.0,
                cycles_per_io: None,
                cycles_with_kernel: false,
                wire: OnWire { counters: Some(crossed), samples: None, missing: Vec::new() },
            }),
            notes: Vec::new(),
        }
    }

    fn plan() -> Plan {
        plan::read("name = 'a'\n[matrix]\nbytes = '4KiB'\nthreads = [1, 2]\ndevices = [1, 2]", "a", &[]).unwrap()
    }

    fn crossing(flow: Flow) -> Option<Traffic> {
        let access = if flow.target == Target::Gpu { Access::Read } else { Access::Write };
        Some(Traffic { access, beside: Beside::default() })
    }

    fn gen5() -> Option<LinkOfRun> {
        let facts =
            serde_json::json!({ "pci.link": "generation 5 x16", "pci.max_payload": 256, "pci.max_read_request": 512 });
        link(&facts, &Assumed::default())
    }

    #[test]
    fn the_factor_is_mean_over_mean_and_its_interval_that_of_the_repeats() {
        let (plan, link) = (plan(), gen5().unwrap());
        let cell = plan.cells()[1];
        let parts: Vec<Part> = (0..5).map(|n| part(n, 1, cell, 40e9, 44e9 + f64::from(n) * 1e9)).collect();
        let all = totals(&plan, &parts, Some(&link), &crossing);
        let [total] = &all[..] else { panic!("{all:?}") };
        let figures = total.figures.as_ref().unwrap();
        let wire = figures.wire.as_ref().unwrap();
        // Five values 0.025 apart: Student's t with four degrees of freedom is 2.776.
        let reach = 2.776_445 * (0.000_625_f64 * 2.5 / 5.0).sqrt();
        let interval = wire.factor.interval.unwrap();
        assert!((wire.factor.median, (interval.high - 1.15 - reach).abs() < 1e-6) == (1.15, true), "{interval:?}");
        // Never the p95 over a mean.
        assert_eq!((wire.along.median, wire.along_p95, wire.against.median), (46e9, 92e9, 4.6e9));
        assert_eq!((figures.payload.median, figures.iops.median), (40e9, 40e9 / 4096.0));
        // Over 10,000 samples: these have a p99.9, while the 2,000 of one repeat have none.
        let latency = figures.latency;
        assert_eq!((latency.count, latency.max_ns), (10_000, Some(1999)));
        assert!((Some(1979)..=Some(1981)).contains(&latency.p99_ns), "{latency:?}");
        assert!((Some(1997)..=Some(1999)).contains(&latency.p999_ns), "{latency:?}");
        let reachable = figures.reachable.unwrap();
        assert!((reachable.factor - 4416.0 / 4096.0).abs() < 1e-12 && reachable.payload > 57e9);
        assert!(reachable.with_short_completions.unwrap() < 48e9);
        // Fewer repeats have no interval.
        let few = &totals(&plan, &parts[..2], Some(&link), &crossing)[0];
        assert_eq!(few.figures.as_ref().unwrap().payload.interval, None);
    }

    /// One slow repeat of five: the median of the repeats' percentiles would not show it.
    #[test]
    fn a_percentile_is_that_of_all_samples() {
        let (plan, cell) = (plan(), plan().cells()[1]);
        let mut parts: Vec<Part> = (0..5).map(|n| part(n, 1, cell, 40e9, 44e9)).collect();
        let slow = parts[3].measured.as_mut().unwrap();
        slow.latency = (0..2000).map(|n| if n < 1800 { n } else { 50_000 + n }).collect();
        let latency = totals(&plan, &parts, None, &crossing)[0].figures.as_ref().unwrap().latency;
        // 200 of 10,000 are above 50 us: 2 %.
        assert!(latency.p99_ns > Some(51_000) && latency.max_ns == Some(51_999), "{latency:?}");
        assert!((Some(950)..=Some(1050)).contains(&latency.p50_ns), "{latency:?}");
    }

    #[test]
    fn failed_or_wrong_cells_have_no_figures() {
        let (plan, cell) = (plan(), plan().cells()[1]);
        let good = part(0, 1, cell, 40e9, 44e9);
        let failed = Part { repeat: 1, status: Status::Failed("it died".into()), measured: None, ..good.clone() };
        let wrong = Part { checked: Checked { blocks: 5, wrong: 1, first: Some("byte 3".into()) }, ..good.clone() };
        let refused = Part { refused: 1, ..good.clone() };
        for bad in [failed, wrong, refused] {
            let all = totals(&plan, &[good.clone(), bad.clone()], None, &crossing);
            assert!(all[0].figures.is_none(), "{bad:?}");
            assert_eq!(all[0].checked.first, bad.checked.first);
        }
    }

    #[test]
    fn the_link_is_taken_from_the_machine_or_the_plan() {
        let found = gen5().unwrap();
        assert_eq!((found.link, found.packets), (Link { generation: 5, width: 16 }, Packets::default()));
        // Machines never report the RCB and the size of completions.
        assert_eq!(found.assumed.len(), 2, "{:?}", found.assumed);
        let own = Assumed { max_payload: Some(128), generation: Some(4), ..Assumed::default() };
        let facts = serde_json::json!({ "gpu.link_most_generation": 5, "gpu.link_width": 16 });
        let found = link(&facts, &own).unwrap();
        assert_eq!((found.link.generation, found.packets.max_payload, found.packets.completion), (4, 128, 128));
        assert!(found.assumed[0].contains("the machine says 5"), "{:?}", found.assumed);
        assert_eq!(link(&serde_json::json!({}), &Assumed::default()), None);
    }

    #[test]
    fn knees_are_found_in_known_cells_and_request_unknown_ones() {
        let plan = plan();
        let (asked, found) = knees(&plan, &[]);
        assert_eq!(asked.map(|cell| (cell.threads, cell.devices)), Some((2, 2)));
        assert!(found[0].knee.is_none());
        let rate = |cell: &CellName| if cell.devices == 2 { 50e9 } else { 30e9 };
        let parts: Vec<Part> =
            plan.cells().iter().enumerate().map(|(n, cell)| part(0, n as u32, *cell, rate(cell), 1.0)).collect();
        let (asked, found) = knees(&plan, &totals(&plan, &parts, None, &crossing));
        let knee = found[0].knee.unwrap();
        assert_eq!((asked, found.len(), knee.threads, knee.devices), (None, 1, 1, 2));
    }

    /// `DOORBELL_WRITE_SCHEMA=1` writes the file.
    #[test]
    fn the_schema_is_that_of_the_types() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/reference/saturate.schema.json");
        let mut schema = serde_json::to_value(schemars::schema_for!(Saturated)).unwrap();
        schema["title"] = "A run of `doorbell bench saturate` (saturate.json)".into();
        schema["properties"]["schema"] = serde_json::json!({ "const": crate::account::SCHEMA });
        let text = format!("{schema:#}\n");
        if std::env::var_os("DOORBELL_WRITE_SCHEMA").is_some() {
            std::fs::write(path, &text).unwrap();
        }
        assert_eq!(
            std::fs::read_to_string(path).unwrap(),
            text,
            "DOORBELL_WRITE_SCHEMA=1 cargo test -p saturate writes it"
        );
    }
}

//! The question, the answer in one or two sentences, and the results of the asserts.

use super::Of;
use crate::document::{Block, Kind, Notice, Section};
use crate::{Error, view};
use experiment::Metric;
use run_folder::run::{BestOfRun, Judged, Verdict as Came};
use run_folder::{Run, Status};
use statistics::Interval;
use terminal::number::{bytes, count, nanoseconds, of};
use terminal::run::three_digits;

/// Sentences of each kind.
const MOST: usize = 4;

pub fn section(of_run: &Of<'_>) -> Result<Section, Error> {
    let run = of_run.run;
    // Broken asserts come before findings.
    let mut section =
        view::section(&of_run.id("answer"), "Answer", |out, style| terminal::run::asserts(out, &style, run))?;
    let sentences = if run.functional { works(run) } else { times(run) };
    if !run.asserts.is_empty() {
        section.push(Block::Heading("What was found".into()));
    }
    sentences.into_iter().for_each(|s| section.push(Block::Answer(s)));
    if !run.functional {
        section.blocks.extend(slowest(run).map(Block::Text));
    }
    Ok(section)
}

/// The sentences for a functional run.
fn works(run: &Run) -> Vec<String> {
    let n = |is: fn(&Status) -> bool| run.cells.iter().filter(|c| is(&c.status)).count() as u64;
    let worked = n(|s| matches!(s, Status::Measured));
    let mut all = vec![format!(
        "{} of {} worked; {} were compared with the expected bytes, and all were right.",
        count(worked),
        of(run.cells.len() as u64, "cell"),
        of(run.cells.iter().map(|c| c.checked.whole).sum(), "transfer"),
    )];
    let failed = n(|s| matches!(s, Status::Failed(_)));
    if failed > 0 {
        all[0] = format!(
            "{} of {} worked, and {} failed.",
            count(worked),
            of(run.cells.len() as u64, "cell"),
            count(failed)
        );
    }
    all
}

fn times(run: &Run) -> Vec<String> {
    let mut all = beside(run);
    all.extend(best(run));
    if all.is_empty() {
        all.extend(against(run));
    }
    if all.is_empty() {
        all.push(match run.cells.iter().any(|c| c.status == Status::Measured) {
            true => "The experiment compares nothing. The tables have its figures.".into(),
            false => "Nothing was measured.".into(),
        });
    }
    all
}

/// Which way is the best for which sizes.
fn best(run: &Run) -> Vec<String> {
    let p50 = run.best.iter().filter(|b| b.metric == Metric::P50);
    let mut all: Vec<String> = p50.clone().take(MOST).map(|b| one_best(run, b)).collect();
    let more = p50.count().saturating_sub(MOST);
    if more > 0 {
        all.push(format!("{} more are below.", of(more as u64, "direction")));
    }
    all
}

fn one_best(run: &Run, best: &BestOfRun) -> String {
    let ranges: Vec<String> = best
        .ranges
        .iter()
        .map(|range| {
            let at = best.sizes.iter().find(|at| at.bytes == range.from);
            let time = at.map_or(String::new(), |at| {
                let times = at.cuda.as_ref().and_then(|c| c.ratio);
                let times = times.map_or(String::new(), |r| match r.interval.filter(|_| r.differs() == Some(true)) {
                    Some(i) => format!(", {} times CUDA's best, {}", ratio(r.ratio), interval(i)),
                    None => ", no certain difference from CUDA's best".to_owned(),
                });
                let size = if range.from == range.to { String::new() } else { format!(" at {}", bytes(at.bytes)) };
                format!(" ({}{size}{times})", nanoseconds(at.value_ns as u64))
            });
            let stage = at.map_or(0, |at| at.stage);
            let name = run.label(stage, &range.subject);
            match range.from == range.to {
                true => format!("{name} at {}{time}", bytes(range.from)),
                false => format!("{name} from {} to {}{time}", bytes(range.from), bytes(range.to)),
            }
        })
        .collect();
    let place: Vec<String> = best.point.iter().map(|c| format!(", {c}")).collect();
    format!(
        "{} to {}{}: the lowest p50, to within 2 %, is that of {}.",
        best.source,
        best.destination,
        place.concat(),
        ranges.join(", then ")
    )
}

/// Three digits, and enough decimals to distinguish it from 1.
fn ratio(v: f64) -> String {
    if (v - 1.0).abs() < 0.1 { format!("{v:.3}") } else { three_digits(v) }
}

/// `0.62 to 0.64`
fn interval(i: Interval<f64>) -> String {
    format!("{} to {}", ratio(i.low), ratio(i.high))
}

/// How loads affect subjects: the smallest and the largest certain effect.
fn beside(run: &Run) -> Vec<String> {
    let mut found: Vec<(f64, String)> = Vec::new();
    let mut all = 0;
    for block in run.beside() {
        let place: Vec<String> = block.point.iter().map(|c| format!(" with {c}")).collect();
        for victim in &block.victims {
            for (name, times) in block.aggressors.iter().zip(&victim.beside) {
                let Some(times) = times else { continue };
                all += 1;
                let Some(sure) = times.delayed() else { continue };
                let text = format!(
                    "with {name} running{}, the p50 of {} is {} times what it is alone ({}: {} against {})",
                    place.concat(),
                    sized(&victim.subject, victim.bytes),
                    ratio(times.p50),
                    interval(sure),
                    nanoseconds(times.figures.p50_ns),
                    nanoseconds(victim.alone.p50_ns),
                );
                found.push((times.p50, text));
            }
        }
    }
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    let certain = found.len();
    let mut said = match (found.first(), found.last()) {
        (Some(most), Some(least)) if certain > 1 => {
            vec![format!("Most delayed: {}.", most.1), format!("Least delayed: {}.", least.1)]
        }
        (Some(one), _) => vec![format!("Delayed: {}.", one.1)],
        _ => Vec::new(),
    };
    match all - certain {
        0 => {}
        n if n == all => said.push("No load certainly delays anything: each difference is within its interval.".into()),
        n => said.push(format!("In {n} of {all} cases no delay is certain: the difference is within its interval.")),
    }
    said
}

/// Certain ratios to the baseline: the smallest and the largest.
fn against(run: &Run) -> Vec<String> {
    let mut found: Vec<(f64, String)> = Vec::new();
    let mut baselines: Vec<&str> = Vec::new();
    for cell in run.cells.iter().filter(|c| c.status == Status::Measured) {
        let Some(ratio) = &cell.ratio else { continue };
        if !baselines.contains(&ratio.baseline.as_str()) {
            baselines.push(&ratio.baseline);
        }
        let Some(i) = ratio.ratio.interval.filter(|_| ratio.ratio.differs() == Some(true)) else { continue };
        let text = format!(
            "{}{} has {} times the {} of {} ({})",
            sized(&cell.subject, cell.bytes),
            super::place(run, cell.stage),
            self::ratio(ratio.ratio.ratio),
            ratio.metric,
            ratio.baseline,
            interval(i)
        );
        found.push((ratio.ratio.ratio, text));
    }
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    match (found.first(), found.last()) {
        (Some(least), Some(most)) if found.len() > 1 => vec![format!("The least: {}. The most: {}.", least.1, most.1)],
        (Some(one), _) => vec![format!("{}.", one.1)],
        _ if baselines.is_empty() => Vec::new(),
        _ => vec![format!("No difference from {} is certain: each is within its interval.", baselines.join(" and "))],
    }
}

/// The slowest sample of all: a fact to know, and no finding.
fn slowest(run: &Run) -> Option<String> {
    let measured = || run.cells.iter().filter(|c| c.status == Status::Measured);
    let worst = measured().flat_map(|c| c.worst.iter().map(move |w| (c, w))).max_by_key(|(_, w)| w.value_ns);
    let (cell, worst) = worst?;
    let mostly = match worst.mostly {
        run_folder::run::Cause::Unknown => String::new(),
        cause => format!("; most of that: {}", terminal::run::name(cause)),
    };
    let least = if worst.capped { "at least " } else { "" };
    Some(format!(
        "The slowest of {}: {least}{}, {}{}{mostly}. It is one sample, and no difference follows from it.",
        of(measured().map(|c| c.samples).sum(), "sample"),
        nanoseconds(worst.value_ns),
        sized(&cell.subject, cell.bytes),
        super::place(run, cell.stage),
    ))
}

pub fn sized(subject: &str, size: u64) -> String {
    if size == 0 { subject.to_owned() } else { format!("{subject} with {}", bytes(size)) }
}

/// Asserts that were broken or could not be judged: they are shown above all findings.
pub fn broken(run: &Run) -> Vec<Notice> {
    let one = |judged: &Judged| {
        let (kind, word) = match judged.verdict {
            _ if run.functional => return None,
            Came::Held => return None,
            Came::NotJudged => (Kind::Warning, "Not judged"),
            Came::Broken => (Kind::Bad, "Broken assert"),
        };
        let of: Vec<_> = judged.cells.iter().filter(|c| c.verdict == judged.verdict).collect();
        let first = of.first().map_or(String::new(), |c| format!(" {}", terminal::run::of_cell(run, judged, c)));
        let more = if of.len() > 1 { format!("; and {} more", of.len() - 1) } else { String::new() };
        Some(Notice { kind, text: format!("{word}: {}.{first}{more}.", terminal::run::asked(judged)) })
    };
    let mut all: Vec<Notice> = run.asserts.iter().filter_map(one).collect();
    all.sort_by_key(|n| std::cmp::Reverse(n.kind == Kind::Bad));
    all
}

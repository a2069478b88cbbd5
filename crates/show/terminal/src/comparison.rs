//! Two runs compared, and many machines: as text, JSON, Markdown and JUnit XML.

mod commands;

use crate::number::{self, nanoseconds};
use crate::table::{Out, Style};
use comparison::{Comparison, ERROR, Heading, Key, Machines, Overall, Row, Verdict};
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};
use serde_json::{Value, json};
use statistics::Interval;
use std::io::{self, Write};

pub const SCHEMA: &str = "doorbell.comparison/3";
pub const MACHINES_SCHEMA: &str = "doorbell.machines/1";

/// A cell for people: sizes have a unit.
pub fn cell(key: &Key) -> String {
    let bytes = if key.bytes > 0 { format!(" {}", number::bytes(key.bytes)) } else { String::new() };
    let point = if key.point.is_empty() { String::new() } else { format!(" [{}]", key.point) };
    format!("{}{bytes}{point}", key.subject)
}

fn value(v: Option<f64>) -> String {
    v.map_or("-".into(), |v| nanoseconds(v.round() as u64))
}

/// Ratios beyond this say no more than that.
const MOST: f64 = 1000.0;

/// A ratio in digits that a person reads.
pub fn times(ratio: f64) -> String {
    match ratio {
        r if r >= MOST => format!(">{MOST}"),
        r if r < 1.0 / MOST => format!("<{}", 1.0 / MOST),
        r => format!("{r:.3}"),
    }
}

fn ratio(row: &Row) -> String {
    row.difference.as_ref().map_or("-".into(), |d| times(d.ratio))
}

/// An end that is not known is `-`.
pub fn interval(i: Option<Interval<f64>>) -> String {
    let end = |v: f64| if v > 0.0 && v.is_finite() { times(v) } else { "-".into() };
    i.map_or("-".into(), |i| format!("{} to {}", end(i.low), end(i.high)))
}

/// The verdict in one word, and an addition.
fn verdict(row: &Row) -> (&'static str, String) {
    match &row.verdict {
        Verdict::Slower => ("regression", String::new()),
        Verdict::Faster => ("faster", String::new()),
        Verdict::Equal => ("equal", String::new()),
        Verdict::Unclear => ("unclear", String::new()),
        Verdict::TooFew(missing) => ("too few", missing.to_string()),
        Verdict::OnlyInA(why) => ("only in A", why.clone()),
        Verdict::OnlyInB(why) => ("only in B", why.clone()),
        Verdict::InNeither(why) => ("in neither", why.clone()),
        Verdict::Lost(why) => ("lost", why.clone()),
        Verdict::Worked => ("worked", String::new()),
    }
}

/// The verdict, and why.
pub fn in_words(row: &Row) -> String {
    match verdict(row) {
        (word, more) if more.is_empty() => word.into(),
        (word, more) => format!("{word}: {more}"),
    }
}

fn percent(part: f64) -> String {
    if part >= MOST / 100.0 {
        return format!(">{MOST} %");
    }
    let text = format!("{:.2}", part * 100.0);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

/// How many figures are decided, and which verdicts there are.
pub fn outcome(c: &Comparison) -> String {
    let count = |is: fn(&Row) -> bool| c.rows.iter().filter(|r| is(r)).count() as u64;
    let all = [
        (count(|r| r.verdict == Verdict::Slower), "regression"),
        (count(|r| matches!(r.verdict, Verdict::Lost(_))), "lost cell"),
        (count(|r| r.verdict == Verdict::Faster), "faster"),
        (count(|r| r.verdict == Verdict::Equal), "equal"),
        (count(|r| r.verdict == Verdict::Unclear), "unclear"),
        (count(|r| matches!(r.verdict, Verdict::TooFew(_))), "with too few processes or samples"),
        (count(|r| matches!(r.verdict, Verdict::OnlyInA(_))), "only in A"),
        (count(|r| matches!(r.verdict, Verdict::OnlyInB(_))), "only in B"),
        (count(|r| r.verdict == Verdict::Worked), "worked in both"),
    ];
    let said = |(n, what): &(u64, &str)| match *what {
        "regression" | "lost cell" => number::of(*n, what),
        _ => format!("{} {what}", number::count(*n)),
    };
    let some: Vec<String> = all.iter().filter(|(n, _)| *n > 0).map(said).collect();
    let (decided, due) = c.decided();
    match due {
        0 => some.join(", "),
        _ => format!("{} of {} decided: {}", number::count(decided), number::of(due, "figure"), some.join(", ")),
    }
}

/// The verdict of the whole comparison: the last line of the table.
pub fn overall(c: &Comparison) -> String {
    let outcome = outcome(c);
    if outcome.is_empty() { c.overall().to_string() } else { format!("{}: {outcome}", c.overall()) }
}

/// What the verdicts mean.
pub fn meaning(c: &Comparison) -> Vec<String> {
    if matches!(c.overall(), Overall::Worked | Overall::Nothing) {
        return Vec::new();
    }
    let (middle, tail) = (percent(c.limits.middle), percent(c.limits.tail));
    let mut lines = vec![format!(
        "equal: the interval lies within the limit, {middle} (percentiles above p90: {tail}); regression: slower for certain, and not within it"
    )];
    lines.push(format!(
        "where nothing differs, the chance of any false regression or faster is about {}, if processes are independent",
        percent(ERROR)
    ));
    if c.decided().0 < c.decided().1 {
        lines.push(
            "not decided: more processes would help (--set run.repeats=10); --fail-undecided makes it a failure".into(),
        );
    }
    lines
}

/// The table.
///
/// # Errors
/// Errors of the output.
pub fn write(out: &mut dyn Out, style: &Style, heading: &Heading, c: &Comparison) -> io::Result<()> {
    writeln!(out, "{}", style.bold(&format!("{} (B) against {} (A)", heading.b, heading.a)))?;
    for change in &heading.changes {
        writeln!(out, "  {}: {} in A, {} in B", change.what, change.a, change.b)?;
    }
    for warning in &heading.warnings {
        writeln!(out, "  {} {warning}", style.bad("warning:"))?;
    }
    let mut t = style.table(&["cell", "figure", ">A", ">B", ">B/A", ">99 % interval", "!verdict"]);
    for row in &c.rows {
        let (a, b, words) = (value(row.a), value(row.b), in_words(row));
        t.add_row([cell(&row.cell), row.metric.clone(), a, b, ratio(row), interval(row.interval()), words]);
    }
    out.table(&t, 2)?;
    for line in meaning(c) {
        writeln!(out, "  {line}")?;
    }
    commands::write(out, style, &heading.commands)?;
    let last = overall(c);
    writeln!(out, "  {}", if c.fails() { style.bad(&last) } else { last })
}

fn key_json(key: &Key) -> Value {
    json!({ "subject": key.subject, "bytes": key.bytes, "point": key.point })
}

/// Everything as JSON.
pub fn json(heading: &Heading, c: &Comparison) -> Value {
    let row = |row: &Row| {
        let (verdict, why) = verdict(row);
        let d = row.difference.as_ref();
        json!({
            "cell": key_json(&row.cell),
            "metric": row.metric,
            "a": row.a,
            "b": row.b,
            "ratio": d.map(|d| d.ratio),
            "interval": d.map(|d| d.interval),
            "probability": row.probability,
            "verdict": verdict.to_lowercase().replace(' ', "_"),
            "why": if why.is_empty() { Value::Null } else { Value::from(why) },
            "fails": row.fails(),
            "limit": row.limit,
        })
    };
    json!({
        "schema": SCHEMA,
        "a": heading.a,
        "b": heading.b,
        "changes": heading.changes,
        "warnings": heading.warnings,
        "limits": c.limits,
        "confidence": 1.0 - ERROR,
        "decided": c.decided().0,
        "due": c.decided().1,
        "fails": c.fails(),
        "verdict": c.overall(),
        "rows": c.rows.iter().map(row).collect::<Vec<_>>(),
        "commands": commands::json(&heading.commands),
    })
}

/// A table for a comment on a merge request.
///
/// # Errors
/// Errors of the output.
pub fn write_markdown(out: &mut dyn Write, heading: &Heading, c: &Comparison) -> io::Result<()> {
    let escaped = |text: &str| text.replace('|', "\\|").replace('<', "&lt;").replace('\n', " ");
    writeln!(out, "### {}\n", escaped(&format!("{} against {}", heading.b, heading.a)))?;
    writeln!(out, "**{}**\n", overall(c))?;
    writeln!(out, "| cell | figure | A | B | B/A | 99 % interval | verdict |")?;
    writeln!(out, "|---|---|--:|--:|--:|--:|---|")?;
    for row in &c.rows {
        let words = escaped(&in_words(row));
        let words = if row.fails() { format!("**{words}**") } else { words };
        let (a, b) = (value(row.a), value(row.b));
        let (cell, interval) = (escaped(&cell(&row.cell)), interval(row.interval()));
        writeln!(out, "| {cell} | {} | {a} | {b} | {} | {interval} | {words} |", row.metric, ratio(row))?;
    }
    commands::write_markdown(out, &heading.commands)?;
    writeln!(out)?;
    for change in &heading.changes {
        writeln!(out, "- {}", escaped(&format!("{}: {} in A, {} in B", change.what, change.a, change.b)))?;
    }
    for line in heading.warnings.iter().chain(&meaning(c)) {
        writeln!(out, "- {}", escaped(line))?;
    }
    Ok(())
}

fn skipped(why: String) -> TestCaseStatus {
    let mut status = TestCaseStatus::skipped();
    status.set_message(why);
    status
}

/// One test case for each figure of each cell. Undecided ones are skipped, not passed.
pub fn junit(heading: &Heading, c: &Comparison) -> Result<String, quick_junit::SerializeError> {
    let mut suite = TestSuite::new("doorbell compare");
    for row in &c.rows {
        let name = format!("{} {}", cell(&row.cell), row.metric);
        let status = match &row.verdict {
            Verdict::Lost(why) => {
                let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
                status.set_type("lost").set_message(why.clone());
                status
            }
            _ if row.fails() => {
                let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
                status.set_type("regression").set_message(detail(row));
                status
            }
            Verdict::TooFew(_) | Verdict::OnlyInA(_) | Verdict::OnlyInB(_) | Verdict::InNeither(_) => {
                skipped(in_words(row))
            }
            Verdict::Unclear => skipped(format!("unclear: {}", detail(row))),
            _ => TestCaseStatus::success(),
        };
        let mut case = TestCase::new(name.trim_end().to_owned(), status);
        case.set_classname(row.cell.subject.clone());
        case.set_system_out(detail(row));
        suite.add_test_case(case);
    }
    let changes = heading.changes.iter().map(|c| format!("{}: {} in A, {} in B", c.what, c.a, c.b));
    let lines: Vec<String> = changes.chain(heading.warnings.iter().cloned()).chain(meaning(c)).collect();
    suite.set_system_out(lines.join("\n"));
    let mut report = Report::new(format!("{} against {}", heading.b, heading.a));
    report.add_test_suite(suite);
    report.to_string()
}

/// `p50 is 1.052 times as long (1.041 to 1.063): 4.00 us, then 4.21 us`
pub fn detail(row: &Row) -> String {
    if row.difference.is_none() {
        return in_words(row);
    }
    let (a, b) = (value(row.a), value(row.b));
    format!("{} is {} times as long ({}): {a}, then {b}", row.metric, ratio(row), interval(row.interval()))
}

/// Machines, cell by cell: outliers, and the median they are held against.
///
/// # Errors
/// Errors of the output.
pub fn write_machines(out: &mut dyn Out, style: &Style, all: &[Machines], warnings: &[String]) -> io::Result<()> {
    for warning in warnings {
        writeln!(out, "{} {warning}", style.bad("warning:"))?;
    }
    for m in all {
        let heading = format!("{} {}", cell(&m.cell), m.metric);
        let spread = percent((m.spread - 1.0).max(0.0));
        writeln!(out, "{}  median {}, spread {spread}", style.bold(&heading), value(Some(m.median)))?;
        let mut t = style.table(&["machine", ">value", ">95 % interval", ">to the median", "!"]);
        for s in &m.standings {
            let interval = s.interval.map(|i| format!("{} to {}", value(Some(i.low)), value(Some(i.high))));
            let outlier = if s.outlier { "outlier" } else { "" };
            t.add_row([
                s.machine.clone(),
                value(Some(s.value)),
                interval.unwrap_or("-".into()),
                format!("{:.3}", s.ratio),
                outlier.into(),
            ]);
        }
        out.table(&t, 2)?;
        if !m.without.is_empty() {
            writeln!(out, "  without the figure: {}", m.without.join(", "))?;
        }
    }
    let outliers = all.iter().flat_map(|m| &m.standings).filter(|s| s.outlier).count() as u64;
    writeln!(out, "{} in {}", number::of(outliers, "outlier"), number::of(all.len() as u64, "figure"))
}

pub fn machines_json(all: &[Machines], warnings: &[String]) -> Value {
    json!({ "schema": MACHINES_SCHEMA, "warnings": warnings, "figures": all })
}

#[cfg(test)]
mod tests {
    use super::*;
    use comparison::{Change, Difference, Limits, Missing, Standing};

    fn row(subject: &str, ratio: f64, verdict: Verdict) -> Row {
        let difference = (!matches!(verdict, Verdict::TooFew(_) | Verdict::Lost(_))).then_some(Difference {
            ratio,
            interval: Interval { low: ratio * 0.99, high: ratio * 1.01 },
            probability: 1e-6,
        });
        Row {
            cell: Key { subject: subject.into(), bytes: 4096, point: "policy=a|b".into() },
            metric: "p50".into(),
            a: Some(4000.0),
            b: Some(4000.0 * ratio),
            limit: 0.05,
            probability: difference.as_ref().map(|d| d.probability),
            difference,
            verdict,
        }
    }

    fn comparison() -> (Heading, Comparison) {
        let rows = vec![
            row("ce0", 1.08, Verdict::Slower),
            row("bar1", 1.0, Verdict::Equal),
            row("<graph>", 0.9, Verdict::Faster),
            row("wide", 1.02, Verdict::Unclear),
            row("few", 1.0, Verdict::TooFew(Missing::Processes { a: 1, b: 6 })),
            row("gone", 1.0, Verdict::Lost("the engine \"died\"".into())),
        ];
        let heading = Heading {
            a: "baseline".into(),
            b: "run".into(),
            changes: vec![Change { what: "gpu.driver".into(), a: "580".into(), b: "590".into() }],
            warnings: vec![],
            commands: vec![],
        };
        (heading, Comparison { limits: Limits::new(0.05, None), rows })
    }

    fn text(f: impl FnOnce(&mut dyn Out) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        f(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_table_shows_failures_and_intervals() {
        let (heading, c) = comparison();
        insta::assert_snapshot!(text(|out| write(out, &Style::default(), &heading, &c)), @r#"
        run (B) against baseline (A)
          gpu.driver: 580 in A, 590 in B
          cell                        figure        A        B    B/A   99 % interval  verdict
          ce0 4 KiB [policy=a|b]      p50     4.00 us  4.32 us  1.080  1.069 to 1.091  regression
          bar1 4 KiB [policy=a|b]     p50     4.00 us  4.00 us  1.000  0.990 to 1.010  equal
          <graph> 4 KiB [policy=a|b]  p50     4.00 us  3.60 us  0.900  0.891 to 0.909  faster
          wide 4 KiB [policy=a|b]     p50     4.00 us  4.08 us  1.020  1.010 to 1.030  unclear
          few 4 KiB [policy=a|b]      p50     4.00 us  4.00 us      -               -  too few: 1 and 6 processes: 3 are needed, or an earlier run of 5 on this machine
          gone 4 KiB [policy=a|b]     p50     4.00 us  4.00 us      -               -  lost: the engine "died"
          equal: the interval lies within the limit, 5 % (percentiles above p90: 25 %); regression: slower for certain, and not within it
          where nothing differs, the chance of any false regression or faster is about 1 %, if processes are independent
          not decided: more processes would help (--set run.repeats=10); --fail-undecided makes it a failure
          lost: 4 of 6 figures decided: 1 regression, 1 lost cell, 1 faster, 1 equal, 1 unclear, 1 with too few processes or samples
        "#);
    }

    #[test]
    fn markdown_has_one_row_a_figure_and_escapes_what_would_end_a_column() {
        let (heading, c) = comparison();
        insta::assert_snapshot!(text(|out| write_markdown(out, &heading, &c)), @r#"
        ### run against baseline

        **lost: 4 of 6 figures decided: 1 regression, 1 lost cell, 1 faster, 1 equal, 1 unclear, 1 with too few processes or samples**

        | cell | figure | A | B | B/A | 99 % interval | verdict |
        |---|---|--:|--:|--:|--:|---|
        | ce0 4 KiB [policy=a\|b] | p50 | 4.00 us | 4.32 us | 1.080 | 1.069 to 1.091 | **regression** |
        | bar1 4 KiB [policy=a\|b] | p50 | 4.00 us | 4.00 us | 1.000 | 0.990 to 1.010 | equal |
        | &lt;graph> 4 KiB [policy=a\|b] | p50 | 4.00 us | 3.60 us | 0.900 | 0.891 to 0.909 | faster |
        | wide 4 KiB [policy=a\|b] | p50 | 4.00 us | 4.08 us | 1.020 | 1.010 to 1.030 | unclear |
        | few 4 KiB [policy=a\|b] | p50 | 4.00 us | 4.00 us | - | - | too few: 1 and 6 processes: 3 are needed, or an earlier run of 5 on this machine |
        | gone 4 KiB [policy=a\|b] | p50 | 4.00 us | 4.00 us | - | - | **lost: the engine "died"** |

        - gpu.driver: 580 in A, 590 in B
        - equal: the interval lies within the limit, 5 % (percentiles above p90: 25 %); regression: slower for certain, and not within it
        - where nothing differs, the chance of any false regression or faster is about 1 %, if processes are independent
        - not decided: more processes would help (--set run.repeats=10); --fail-undecided makes it a failure
        "#);
    }

    #[test]
    fn junit_counts_failures_errors_and_skipped_tests() {
        let (heading, c) = comparison();
        let xml = junit(&heading, &c).unwrap();
        assert!(xml.contains(r#"tests="6" skipped="2" errors="1" failures="1""#), "{xml}");
        assert!(xml.contains("&lt;graph&gt; 4 KiB") && xml.contains("&quot;died&quot;"), "{xml}");
        assert!(xml.contains("p50 is 1.080 times as long (1.069 to 1.091): 4.00 us, then 4.32 us"), "{xml}");
        assert_eq!(xml.matches("<skipped").count(), 2);
    }

    #[test]
    fn json_has_a_verdict_and_a_reason() {
        let (heading, c) = comparison();
        let v = json(&heading, &c);
        assert_eq!((&v["rows"][0]["verdict"], &v["rows"][0]["fails"]), (&json!("regression"), &json!(true)));
        assert_eq!(v["rows"][4]["verdict"], "too_few");
        assert_eq!(v["rows"][5]["why"], "the engine \"died\"");
        assert_eq!(v["changes"][0]["b"], "590");
    }

    #[test]
    fn machines_are_listed_with_the_outlier() {
        let standing = |machine: &str, value: f64, outlier| Standing {
            machine: machine.into(),
            value,
            interval: Some(Interval { low: value * 0.99, high: value * 1.01 }),
            ratio: value / 4000.0,
            outlier,
        };
        let m = Machines {
            cell: Key { subject: "ce0".into(), bytes: 8, point: String::new() },
            metric: "p50".into(),
            median: 4000.0,
            spread: 1.004,
            standings: vec![standing("node3", 4400.0, true), standing("node1", 4000.0, false)],
            without: vec!["node7".into()],
        };
        insta::assert_snapshot!(text(|out| write_machines(out, &Style::default(), &[m], &[])), @r"
        ce0 8 B p50  median 4.00 us, spread 0.4 %
          machine    value       95 % interval  to the median
          node3    4.40 us  4.36 us to 4.44 us          1.100  outlier
          node1    4.00 us  3.96 us to 4.04 us          1.000
          without the figure: node7
        1 outlier in 1 figure
        ");
    }
}

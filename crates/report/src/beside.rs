//! What `bench beside` found: a line for each worker, and JSON.

use crate::ReportError;
use crate::bench;
use crate::number::{bytes, count, seconds};
use crate::table::{self, Style};
use environment::Environment;
use lab::beside::kernel_log::Reports;
use lab::beside::{Account, End, Outcome, Trouble};
use serde_json::{Value, json};
use std::io::Write;

/// A run and what it ran on.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    pub environment: &'a Environment,
    pub functional: bool,
    pub outcome: &'a Outcome,
    /// Reports of the GPU's driver in the kernel's log that came during the run, or why they are not known.
    pub reports: &'a Reports,
    /// How long everything took to be given back; `None` where it was not.
    pub given_back: Option<f64>,
}

pub fn write(out: &mut dyn Write, style: &Style, run: &Run<'_>) -> Result<(), ReportError> {
    bench::head_of(out, style, run.environment, run.functional)?;
    let Outcome { accounts, elapsed } = run.outcome;
    writeln!(out)?;
    let here = accounts.iter().filter(|a| !is_unavailable(a)).count();
    writeln!(
        out,
        "{}",
        style.bold(&format!("{here} workers beside one another for {}", seconds(elapsed.as_secs_f64())))
    )?;
    let mut t = style.table(&["worker", ">rounds", ">compared", ">refused", "end"]);
    for a in accounts {
        let end = end(a).0;
        t.add_row([a.name.clone(), count(a.rounds), bytes(a.bytes), count(a.stale), end.into()]);
    }
    table::write(out, &t, 0)?;
    for a in accounts {
        if let Some(why) = end(a).1 {
            writeln!(out, "{}: {}: {why}", end(a).0, a.name)?;
        }
        a.notes.iter().try_for_each(|note| writeln!(out, "note: {}: {note}", a.name))?;
    }
    writeln!(out)?;
    match run.reports {
        Ok(reports) if reports.is_empty() => writeln!(out, "the kernel's log has no new Xid")?,
        Ok(reports) => reports.iter().try_for_each(|line| writeln!(out, "Xid: {line}"))?,
        Err(reason) => writeln!(out, "Xid: not known: {reason}")?,
    }
    match run.given_back {
        Some(s) => writeln!(out, "everything was given back in {}", seconds(s))?,
        None => writeln!(out, "what hangs was left as it is: not everything was given back")?,
    }
    Ok(())
}

fn is_unavailable(a: &Account) -> bool {
    matches!(a.end, End::Trouble(Trouble::Unavailable(_)))
}

/// One word, and why.
fn end(a: &Account) -> (&'static str, Option<&str>) {
    match &a.end {
        End::Done => ("right", None),
        End::Hangs => ("HANGS", Some("it said nothing for the watchdog's patience, and did not come back")),
        End::Trouble(Trouble::Data(what)) => ("WRONG", Some(what)),
        End::Trouble(Trouble::Error(what)) => ("FAILED", Some(what)),
        End::Trouble(Trouble::Unavailable(why)) => ("unavailable", Some(why)),
    }
}

pub fn write_json(out: &mut dyn Write, run: &Run<'_>) -> Result<(), ReportError> {
    let mut environment = serde_json::to_value(run.environment).map_err(std::io::Error::from)?;
    if let Some(fields) = environment.as_object_mut() {
        fields.retain(|_, v| !v.is_null());
    }
    let workers: Vec<Value> = run.outcome.accounts.iter().map(account).collect();
    let all = json!({
        "functional": run.functional,
        "environment": environment,
        "seconds": run.outcome.elapsed.as_secs_f64(),
        "hangs": run.outcome.hangs(),
        "wrong": run.outcome.wrong(),
        "workers": workers,
        "xid": run.reports.as_ref().ok(),
        "xid_unknown": run.reports.as_ref().err(),
        "given_back_s": run.given_back,
    });
    Ok(writeln!(out, "{all:#}")?)
}

fn account(a: &Account) -> Value {
    let (word, why) = end(a);
    json!({
        "worker": a.name,
        "rounds": a.rounds,
        "bytes": a.bytes,
        "refused": a.stale,
        "end": word.to_lowercase(),
        "why": why,
        "notes": a.notes,
    })
}

//! Bounds: `[[assert]]` and `[[largest]]`.

use super::{Keys, subjects};
use crate::keys;
use crate::model::{Assert, Bound, Experiment, Largest, Metric, SubjectSpec};
use crate::tree::{Node, Table, Value};
use crate::values;
use settings::{Error, Wrong};

pub(super) fn assert(table: &Table, read: &Experiment) -> Result<Assert, Error> {
    let keys = Keys::of(&keys::SECTIONS[8], "[[assert]]".into(), table)?;
    let names = subjects(read);
    let there = |text: &str| values::known("subject", text, &[&names[..], &["*"]].concat());
    let subject = keys.text("subject", there)?.unwrap_or_else(|| "*".into());
    let metric = keys.text("metric", values::metric)?.unwrap_or_default();
    let [at_most, at_least, times] = amounts(&keys, metric, &names)?;
    let above_noise = keys.text("above-noise", |text| Ok(Bound::AboveNoise(values::time(text)? as f64)))?;
    let bounds = [at_most, at_least, times, above_noise, within_best(&keys, &names, &subject)?];
    const BOUNDS: &str = "one of `at-most`, `at-least`, `at-most-times`, `above-noise` and `within-best`";
    let bound = only(&keys, bounds, BOUNDS, "; more bounds are more [[assert]]")?;
    if let (Bound::AboveNoise(_), Metric::Misses | Metric::Rate) = (&bound, metric) {
        return Err(keys.wrong(
            "compares a metric that is not a time with the machine's noise",
            "a metric that is a time, as `max`",
        ));
    }
    if let (Bound::WithinBest(_), Metric::Misses | Metric::Rate) = (&bound, metric) {
        return Err(keys.wrong("needs a metric that is a time", "a metric that is a time, as `p50`"));
    }
    has_deadline(&keys, read, &subject, metric)?;
    Ok(Assert { subject, metric, bound })
}

/// Missed deadlines can only be counted if there are deadlines.
fn has_deadline(keys: &Keys<'_>, read: &Experiment, subject: &str, metric: Metric) -> Result<(), Error> {
    let without = |s: &&SubjectSpec| (subject == "*" || s.name == subject) && s.deadline_ns.is_none();
    match read.subjects.iter().find(without) {
        Some(s) if metric == Metric::Misses => {
            let what = format!("counts missed deadlines, and `{}` has no deadline", s.name);
            Err(keys.wrong(&what, "`deadline = \"50us\"` in its [[subject]]"))
        }
        _ => Ok(()),
    }
}

fn amount(keys: &Keys<'_>, key: &str, metric: Metric) -> Result<Option<f64>, Error> {
    keys.value(key, |value| match (value, metric) {
        (Value::Text(text), _) => values::amount(text, metric),
        (Value::Whole(n), Metric::Misses) => values::amount(&n.to_string(), metric),
        (Value::Number(n), Metric::Misses) => values::amount(&n.to_string(), metric),
        (other, _) => Err(Wrong::unfit(&other.kind(), "a text with a unit: `50us`, `10GB/s`, `0.1%`")),
    })
}

/// The bounds that asserts and largest values share.
fn amounts(keys: &Keys<'_>, metric: Metric, names: &[&str]) -> Result<[Option<Bound>; 3], Error> {
    let times = |text: &str| {
        let bound = values::times(text)?;
        if let Bound::AtMostTimes(_, of) = &bound {
            values::known("subject", of, names)?;
        }
        Ok(bound)
    };
    Ok([
        amount(keys, "at-most", metric)?.map(Bound::AtMost),
        amount(keys, "at-least", metric)?.map(Bound::AtLeast),
        keys.text("at-most-times", times)?,
    ])
}

/// The one bound that is given. `more` says how to have several.
fn only<const N: usize>(
    keys: &Keys<'_>,
    bounds: [Option<Bound>; N],
    allowed: &str,
    more: &str,
) -> Result<Bound, Error> {
    let mut given = bounds.into_iter().flatten();
    match (given.next(), given.next()) {
        (Some(bound), None) => Ok(bound),
        (None, _) => Err(keys.wrong("has no bound", allowed)),
        _ => Err(keys.wrong("has more than one bound", &format!("{allowed}{more}"))),
    }
}

pub(super) fn largest(table: &Table, read: &Experiment) -> Result<Largest, Error> {
    let keys = Keys::of(&keys::SECTIONS[9], "[[largest]]".into(), table)?;
    let names = subjects(read);
    let there = |text: &str| values::known("subject", text, &names);
    let axes: Vec<&str> = read.matrix.iter().map(|axis| axis.name.as_str()).chain(["bytes"]).collect();
    let axis = |text: &str| match axes.contains(&text) {
        true => Ok(text.to_owned()),
        false => Err(Wrong::word(format!("[matrix] has no axis {text:?}"), text, axes.iter().copied())),
    };
    let axis =
        keys.text("axis", axis)?.ok_or_else(|| keys.wrong("has no `axis`", "an axis of the matrix, or `bytes`"))?;
    let subject = keys.text("subject", there)?.ok_or_else(|| keys.wrong("has no `subject`", "the name of one"))?;
    let metric = keys.text("metric", values::metric)?.unwrap_or_default();
    has_deadline(&keys, read, &subject, metric)?;
    let bounds = amounts(&keys, metric, &names)?;
    let bound = only(&keys, bounds, "one of `at-most`, `at-least` and `at-most-times`", "")?;
    Ok(Largest { axis, subject, metric, bound })
}

/// The subjects to compare with, and the required closeness.
fn within_best(keys: &Keys<'_>, names: &[&str], subject: &str) -> Result<Option<Bound>, Error> {
    let within = keys.text("within-best", values::within)?;
    let Some(node) = keys.node("among") else { return Ok(within.map(Bound::WithinBest)) };
    let wrong = |wrong: Wrong, node: &Node| keys.within("among", wrong).at(&node.place);
    let Some(mut within) = within else {
        return Err(wrong(Wrong::new("there is no `within-best` next to it", "give both or neither"), node));
    };
    const LIST: &str = "a list of names of subjects: [\"cuda\", \"cuda, sync\"]";
    let list = match &node.value {
        Value::List(list) if !list.is_empty() => list,
        Value::List(_) => return Err(wrong(Wrong::new("the list is empty", "give at least one name"), node)),
        other => return Err(wrong(Wrong::unfit(&other.kind(), LIST), node)),
    };
    for one in list {
        let Value::Text(name) = &one.value else {
            return Err(wrong(Wrong::unfit(&one.value.kind(), LIST), one));
        };
        values::known("subject", name, names).map_err(|unknown| wrong(unknown, one))?;
        if name == subject || within.among.contains(name) {
            let why = if name == subject { "is the judged subject itself" } else { "is there twice" };
            return Err(wrong(Wrong::new(format!("{name:?} {why}"), "each other subject once"), one));
        }
        within.among.push(name.clone());
    }
    Ok(Some(Bound::WithinBest(within)))
}

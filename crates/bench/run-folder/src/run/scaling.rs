//! How a call grows with its number: `graph(1)`, `graph(10)`, `graph(100)` are one family, whose times and commands are compared with the number
//! and with each other.

use super::groups::grouped;
use super::{CellOfRun, Coordinate};
use experiment::What;
use serde::{Deserialize, Serialize};
use statistics::{CONFIDENCE, Line, Step, steps};

/// Minimum number of members of a family.
const LEAST: usize = 3;
/// The matrix's axis for recorded stages: times come from one stage and commands from the other.
const RECORD: &str = "run.record";

/// A call at several numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scaling {
    /// The call with `N` in the number's place.
    pub family: String,
    /// Without `run.record`.
    pub point: Vec<Coordinate>,
    pub bytes: u64,
    pub members: Vec<Member>,
    /// The call's median time, ns, by number.
    pub call_by_number: Option<Line>,
    /// Time until its end is seen, ns, by number: the engine's time for each additional one, including gaps.
    pub done_by_number: Option<Line>,
    /// Bytes of the pushbuffer by number.
    pub pushbuffer_by_number: Option<Line>,
    /// The call's median time, ns, by bytes of the pushbuffer: one divided by the slope is the rate at which commands are written.
    pub call_by_pushbuffer: Option<Line>,
    /// The numbers between which the bytes of the pushbuffer change.
    pub pushbuffer_steps: Vec<Step>,
    pub doorbell_steps: Vec<Step>,
}

/// A member. Times are medians of a stage without recording if there is one; commands are medians.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Member {
    pub number: u64,
    pub call_ns: Option<u64>,
    pub done_ns: Option<u64>,
    pub pushbuffer_bytes: Option<u64>,
    pub doorbells: Option<u64>,
    pub locks: Option<u64>,
}

/// All families with enough members, in the order of their first.
pub(super) fn all(cells: &[CellOfRun]) -> Vec<Scaling> {
    let of_family = cells.iter().filter_map(|cell| family(&cell.what).map(|(name, number)| (name, number, cell)));
    let families = grouped(of_family, |(name, _, cell)| {
        let point: Vec<Coordinate> = cell.point.iter().filter(|c| c.name != RECORD).cloned().collect();
        (name.clone(), point, cell.bytes)
    });
    let of_number = |(of, cells): (_, Vec<_>)| {
        let mut members = grouped(cells, |(_, number, _)| *number);
        members.sort_by_key(|(number, _)| *number);
        let member = |(number, cells): &(u64, Vec<(String, u64, &CellOfRun)>)| {
            member(*number, cells.iter().map(|(.., cell)| *cell))
        };
        scaling(of, members.iter().map(member).collect())
    };
    families.into_iter().filter_map(of_number).collect()
}

/// The text with `N` for its number, and the number.
fn family(what: &What) -> Option<(String, u64)> {
    let What::Call(text) = what else { return None };
    let (name, inner) = text.split_once('(')?;
    let digits = inner.bytes().take_while(u8::is_ascii_digit).count();
    let number = inner[..digits].parse().ok()?;
    Some((format!("{name}(N{}", &inner[digits..]), number))
}

fn scaling((family, point, bytes): (String, Vec<Coordinate>, u64), members: Vec<Member>) -> Option<Scaling> {
    if members.len() < LEAST {
        return None;
    }
    let line = |x: fn(&Member) -> Option<u64>, y: fn(&Member) -> Option<u64>| {
        let points: Vec<(f64, f64)> = members.iter().filter_map(|m| Some((x(m)? as f64, y(m)? as f64))).collect();
        if points.len() < LEAST { None } else { Line::through(&points, CONFIDENCE) }
    };
    let changes = |y: fn(&Member) -> Option<u64>| {
        steps(&members.iter().filter_map(|m| Some((m.number, y(m)?))).collect::<Vec<_>>())
    };
    let scaling = Scaling {
        call_by_number: line(|m| Some(m.number), |m| m.call_ns),
        done_by_number: line(|m| Some(m.number), |m| m.done_ns),
        pushbuffer_by_number: line(|m| Some(m.number), |m| m.pushbuffer_bytes),
        call_by_pushbuffer: line(|m| m.pushbuffer_bytes, |m| m.call_ns),
        pushbuffer_steps: changes(|m| m.pushbuffer_bytes),
        doorbell_steps: changes(|m| m.doorbells),
        family,
        point,
        bytes,
        members,
    };
    let is_known = |m: &Member| m.call_ns.is_some() || m.pushbuffer_bytes.is_some();
    scaling.members.iter().any(is_known).then_some(scaling)
}

fn member<'c>(number: u64, cells: impl Iterator<Item = &'c CellOfRun> + Clone) -> Member {
    let timed = cells.clone().find(|c| c.commands.is_none()).or(cells.clone().next());
    let commands = cells.clone().find_map(|c| c.commands.as_ref());
    Member {
        number,
        call_ns: timed.and_then(|c| Some(c.figures.submit.as_ref()?.summary.p50)),
        done_ns: timed.and_then(|c| Some(c.figures.done.as_ref()?.summary.p50)),
        pushbuffer_bytes: commands.map(|c| c.pushbuffer_bytes.median),
        doorbells: commands.map(|c| c.doorbells.median),
        locks: commands.map(|c| c.locks.median),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_a_call_with_another_number() {
        let of = |text: &str| family(&What::Call(text.into()));
        assert_eq!(of("graph(100,ours)"), Some(("graph(N,ours)".into(), 100)));
        assert_eq!(of("launch(7)"), Some(("launch(N)".into(), 7)));
        assert_eq!((of("launch"), of("lock(mutex)")), (None, None));
        assert_eq!(family(&What::Route("host->ce0->gpu0".into())), None);
    }
}

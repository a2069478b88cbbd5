//! After how many transfers a cost that is paid once is repaid.

use crate::number::{bytes, nanoseconds, of};
use crate::table::{Out, Style};
use run_folder::Run;
use run_folder::run::{After, Coordinate, Repaid};
use std::io;

/// A table for each question of the experiment's.
pub(super) fn write(out: &mut dyn Out, style: &Style, run: &Run) -> io::Result<()> {
    for (number, repay) in run.experiment.repays.iter().enumerate() {
        let found: Vec<&Repaid> = run.repaid.iter().filter(|r| r.repay as usize == number).collect();
        if found.is_empty() {
            continue;
        }
        writeln!(out)?;
        let sum = |names: &[String]| names.join(" + ");
        let (once, each, against) = (sum(&repay.once), sum(&repay.each), sum(&repay.against));
        writeln!(out, "{}", style.bold(&format!("{once} once, then {each} for each transfer; otherwise {against}")))?;
        let point = |r: &Repaid| point(run, r.stage);
        let has_points = found.iter().any(|r| !point(r).is_empty());
        let mut heads = vec![">size", ">once", ">then each", ">otherwise", "!"];
        if has_points {
            heads.insert(1, "where");
        }
        let mut t = style.table(&heads);
        for r in found {
            let time = |ns: Option<u64>| ns.map_or("-".into(), nanoseconds);
            let mut row = vec![if r.bytes > 0 { bytes(r.bytes) } else { "-".into() }];
            if has_points {
                row.push(point(r));
            }
            row.extend([time(r.once_ns), time(r.each_ns), time(r.against_ns), after(r.after)]);
            t.add_row(row);
        }
        out.table(&t, 0)?;
    }
    Ok(())
}

fn after(after: After) -> String {
    match after {
        After::Transfers(n) => format!("repaid after {}", of(n, "transfer")),
        After::Never => "never repaid".into(),
        After::Unknown => "not known: something of it was not measured".into(),
    }
}

/// Where among the matrix's values, sizes aside.
fn point(run: &Run, stage: u32) -> String {
    let stage = run.stages.iter().find(|s| s.number == stage);
    let others = |c: &&Coordinate| c.name != "bytes";
    run_folder::run::place(stage.into_iter().flat_map(|s| &s.point).filter(others))
}

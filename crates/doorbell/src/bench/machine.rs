//! The machine that is measured, and the routes that it has.

use crate::failure::Failure;
use crate::record::Gpu;
use copy::{Machine, Where};
pub use lab::routes::{compare, split};
use report::table::{self, Style, to_stdout};

const LISTED: &str = "`doorbell bench --routes` lists the routes of this machine";

pub fn open(gpu: Gpu) -> anyhow::Result<Machine> {
    let place = match gpu {
        Gpu::Real => Where::Real,
        Gpu::Soft => Where::Soft,
    };
    Machine::open(place).map_err(|e| {
        let hint = match gpu {
            Gpu::Real => "`doorbell doctor` says what is missing; `--gpu soft` shows on any machine what works",
            Gpu::Soft => "`doorbell doctor` says what works here",
        };
        Failure::impossible(format!("no GPU to measure: {e}"), hint).into()
    })
}

/// The routes of a list as they are written shortest. `all` is every one that is worth knowing here, `plain` one of each
/// executor and direction.
pub fn resolve(machine: &Machine, list: &str) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for name in split(list) {
        match name {
            "all" => names.extend(copy::names(machine).into_iter().map(|l| l.name)),
            "plain" => names.extend(lab::routes::plain(copy::names(machine))),
            name => names.push(one(name)?),
        }
    }
    Ok(names)
}

pub fn one(name: &str) -> anyhow::Result<String> {
    match copy::parse(name) {
        Ok(spec) => Ok(spec.to_string()),
        Err(e) => Err(Failure::new(e.to_string(), LISTED).into()),
    }
}

pub fn list(machine: &Machine) -> anyhow::Result<()> {
    let style = Style::of_stdout();
    let mut t = style.table(&["route", "what moves the bytes", "here"]);
    for l in copy::names(machine) {
        t.add_row([l.name, l.about, l.unavailable.map_or("yes".into(), |u| format!("no: {}", u.reason))]);
    }
    Ok(to_stdout(|out| Ok(table::write(out, &t, 0)?))?)
}

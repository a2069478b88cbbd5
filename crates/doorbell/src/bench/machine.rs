//! The machine that is measured, and the routes that it has.

use crate::failure::Failure;
use crate::record::Gpu;
use copy::{Machine, Where};
use report::table::{self, Style, to_stdout};

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

pub fn list(machine: &Machine) -> anyhow::Result<()> {
    let style = Style::of_stdout();
    let mut t = style.table(&["route", "what moves the bytes", "here"]);
    for l in copy::names(machine) {
        t.add_row([l.name, l.about, l.unavailable.map_or("yes".into(), |u| format!("no: {}", u.reason))]);
    }
    Ok(to_stdout(|out| Ok(table::write(out, &t, 0)?))?)
}

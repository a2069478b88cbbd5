//! The measured machine, and its routes and calls.

use crate::failure::Failure;
use crate::record::Gpu;
use std::os::fd::AsRawFd;
use terminal::number;
use terminal::table::{self, Style, to_stdout};
use workload::{Machine, Where};

pub fn open(gpu: Gpu) -> anyhow::Result<Machine> {
    let place = match gpu {
        Gpu::Real => Where::Real,
        Gpu::Soft => {
            crate::sample::with_softgpu()?;
            Where::Soft
        }
    };
    let soft = gpu == Gpu::Soft;
    let machine =
        Machine::open(place).map(|machine| machine.with_profile(move || measure::calibration::own::profile(soft)));
    machine.map_err(|e| {
        let hint = match gpu {
            Gpu::Real => HINT,
            Gpu::Soft => "`doorbell doctor` says what works here",
        };
        Failure::impossible(format!("no GPU to measure: {e}"), hint).into()
    })
}

/// The hint if there is no GPU to measure.
pub const HINT: &str =
    "`doorbell doctor` says what is missing; `--gpu soft` shows on any machine what works, never how fast";

/// This machine, or one without a GPU and the reason for that.
pub fn or_none(opened: anyhow::Result<Machine>) -> (Machine, Option<String>) {
    match opened {
        Ok(machine) => (machine, None),
        Err(e) => (Machine::without_a_gpu("no GPU"), Some(format!("{e:#}"))),
    }
}

/// The machine that an experiment needs.
pub fn of(gpu: experiment::Gpu, device: &experiment::Device) -> anyhow::Result<Machine> {
    let gpu = match gpu {
        experiment::Gpu::None => {
            return Ok(Machine::without_a_gpu("the experiment uses no GPU: it says gpu = \"none\""));
        }
        experiment::Gpu::Soft => Gpu::Soft,
        experiment::Gpu::Real => Gpu::Real,
    };
    with_device(gpu, device)
}

/// Opens the machine; routes refer to the given device as `device`.
pub fn with_device(gpu: Gpu, device: &experiment::Device) -> anyhow::Result<Machine> {
    match device {
        experiment::Device::Engine => open(gpu),
        experiment::Device::Edu if gpu == Gpu::Real => Err(Failure::impossible(
            "the card edu is emulated and reaches the memory of the software GPU alone",
            "add --gpu soft",
        )
        .into()),
        experiment::Device::Edu => {
            // The emulator that is started below would not survive a second start of this program.
            crate::sample::with_softgpu()?;
            let refused =
                |e| Failure::impossible(format!("no emulated card: {e}"), "`which qemu-system-x86_64` finds QEMU");
            let workload::device_copy::Emulated { card, video, bus } =
                workload::device_copy::Emulated::start(workload::device_copy::emulated::Sizes::default())
                    .map_err(refused)?;
            let place = format!("/proc/self/fd/{}@{bus:x}", video.as_raw_fd());
            // SAFETY: the software GPU reads it when its files are first opened, which happens below, in this thread. Threads that
            // run by now wait for QEMU and read no environment variable.
            unsafe { std::env::set_var(VIDEO, place) };
            let machine = open(gpu);
            // SAFETY: as above. Programs that are started later do not have this file.
            unsafe { std::env::remove_var(VIDEO) };
            Ok(machine?.with_card(card))
        }
        experiment::Device::Xdma(address) => {
            let refused = |e| Failure::impossible(format!("no card: {e}"), "`lspci -d 10ee:` lists Xilinx's");
            Ok(open(gpu)?.with_card(workload::device_copy::xdma::open(address).map_err(refused)?))
        }
    }
}

/// Passes the software GPU the file of its GPU memory, and where devices find that on the bus.
const VIDEO: &str = "DOORBELL_SOFTGPU_VIDEO";

/// The names for experiments: the routes, with what this machine lacks for them, and the calls. `lacks`: why it has no GPU.
pub fn list(machine: &Machine, lacks: Option<String>, json: bool) -> anyhow::Result<()> {
    let (routes, calls) = (workload::routes::names(machine), workload::calls());
    if json {
        let route = |l: &workload::routes::Listed| {
            let unavailable = l.unavailable.as_ref().map(|u| &u.reason);
            serde_json::json!({ "name": l.name, "about": l.about, "unavailable": unavailable })
        };
        let call = |l: &workload::Entry| {
            let bytes = (l.bytes > 0).then_some(l.bytes);
            serde_json::json!({ "name": l.name, "form": l.form, "about": l.about, "bytes": bytes })
        };
        let all = serde_json::json!({
            "routes": routes.iter().map(route).collect::<Vec<_>>(),
            "calls": calls.iter().map(call).collect::<Vec<_>>(),
        });
        return Ok(terminal::json::print(&all)?);
    }
    let style = Style::of_stdout();
    let mut t = style.table(&["route", "what moves the bytes", "here"]);
    for l in routes {
        t.add_row([l.name, l.about, l.unavailable.map_or("yes".into(), |u| format!("no: {}", u.reason))]);
    }
    let mut c = style.table(&["call", "what it does", "bytes"]);
    for l in calls {
        let bytes = if l.bytes > 0 { number::bytes(l.bytes) } else { String::new() };
        c.add_row([l.form.to_owned(), l.about.to_owned(), bytes]);
    }
    to_stdout(|out| {
        if let Some(why) = lacks {
            writeln!(out, "{why}\n")?;
        }
        table::write(out, &t, 0)?;
        writeln!(out)?;
        Ok(table::write(out, &c, 0)?)
    })
}

//! `doorbell nvme identify`.

use super::device::Device;
use super::{EMULATED, failed};
use crate::help::Page;
use drivers::nvme::{self, Controller, NamespacePage};
use serde_json::{Value, json};
use std::process::ExitCode;
use terminal::number;
use terminal::table::{self, Style, to_stdout};

/// Show what a controller and its namespaces are
#[derive(Debug, clap::Args)]
#[command(
    after_help = Page::examples(&[
        ("doorbell nvme identify 0000:04:00.0", ""),
        ("doorbell nvme identify qemu --format 4096 --json", "an emulated one"),
    ])
    .statuses(&[(0, "done"), (2, "an error"), (77, "not possible on this machine")])
)]
pub struct Args {
    #[command(flatten)]
    device: Device,
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
}

/// A namespace, or why it cannot be used.
struct Row {
    number: u32,
    format: Result<NamespacePage, String>,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let opened = self.device.open(false)?;
        let controller = &opened.controller;
        let row = |number| {
            let format = match controller.format(number) {
                Ok(page) => Ok(page),
                Err(nvme::Error::Namespace { why, .. }) => Err(why.to_string()),
                Err(error) => return Err(failed(error)),
            };
            Ok(Row { number, format })
        };
        let numbers = controller.active().map_err(failed)?;
        let rows = numbers.into_iter().map(row).collect::<anyhow::Result<Vec<_>>>()?;
        if self.json {
            terminal::json::print(&as_json(controller, &rows))?;
        } else {
            print(controller, &rows)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn usable(row: &Row) -> Result<&NamespacePage, String> {
    let page = row.format.as_ref().map_err(Clone::clone)?;
    page.usable().map_err(|why| why.to_string())?;
    Ok(page)
}

fn as_json(controller: &Controller, rows: &[Row]) -> Value {
    let (page, identity) = (controller.page(), controller.identity());
    let namespace = |row: &Row| {
        let page = row.format.as_ref().ok();
        json!({
            "number": row.number,
            "blocks": page.map(|page| page.blocks),
            "block_bytes": page.map(|page| page.block_bytes),
            "metadata_bytes": page.map(|page| page.metadata_bytes),
            "unusable_because": usable(row).err(),
        })
    };
    json!({
        "address": identity.address.to_string(),
        "functional": controller.is_functional(),
        "vendor": identity.vendor,
        "device": identity.device,
        "model": page.model,
        "serial": page.serial,
        "firmware": page.firmware,
        "version": controller.version().to_string(),
        "queue_pairs": controller.queues(),
        "queue_entries": controller.capabilities().queue_entries(),
        "largest_transfer": page.largest_transfer,
        "write_cache": page.has_write_cache,
        "namespaces": rows.iter().map(namespace).collect::<Vec<_>>(),
    })
}

fn print(controller: &Controller, rows: &[Row]) -> anyhow::Result<()> {
    let (page, identity) = (controller.page(), controller.identity());
    let yes = |yes: bool| if yes { "yes" } else { "no" }.to_string();
    let facts = [
        ("address", identity.address.to_string()),
        ("model", page.model.clone()),
        ("serial", page.serial.clone()),
        ("firmware", page.firmware.clone()),
        ("NVMe", controller.version().to_string()),
        (
            "queue pairs",
            format!("{} of up to {} entries", controller.queues(), controller.capabilities().queue_entries()),
        ),
        (
            "one command",
            page.largest_transfer.map_or("any size".into(), |most| format!("up to {}", number::bytes(most))),
        ),
        ("write cache", yes(page.has_write_cache)),
    ];
    let style = Style::of_stdout();
    let mut table = style.table(&["namespace", "blocks", "of", "size", ""]);
    for row in rows {
        let page = row.format.as_ref().ok();
        let of = |get: &dyn Fn(&NamespacePage) -> String| page.map(get).unwrap_or_default();
        table.add_row([
            row.number.to_string(),
            of(&|page| page.blocks.to_string()),
            of(&|page| format!("{} B", page.block_bytes)),
            of(&|page| number::bytes(page.bytes())),
            usable(row).err().map(|why| format!("refused: {why}")).unwrap_or_default(),
        ]);
    }
    to_stdout(|out| {
        for (name, value) in facts {
            writeln!(out, "{name:20} {value}")?;
        }
        writeln!(out)?;
        table::write(out, &table, 0)?;
        if controller.is_functional() {
            writeln!(out, "\n{EMULATED}")?;
        }
        Ok(())
    })
}

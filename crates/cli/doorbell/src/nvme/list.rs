//! `doorbell nvme list`.

use super::of_bus;
use crate::help::Page;
use drivers::nvme;
use pcie::{Address, Tree, bind, qemu};
use std::io;
use std::process::ExitCode;
use terminal::table::{self, Style, to_stdout};

/// List the NVMe controllers of this machine, and what keeps each from being driven
#[derive(Debug, clap::Args)]
#[command(
    after_help = Page::examples(&[
        ("doorbell nvme list", ""),
        ("doorbell nvme list --json", "for programs"),
    ])
    .statuses(&[(0, "done; there may be none")])
)]
pub struct Args {
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// A controller, as far as the kernel describes it.
struct Row {
    address: Address,
    id: String,
    driver: Option<String>,
    /// What a write would destroy.
    uses: Vec<String>,
}

impl Row {
    /// The operations that the user may do on it.
    fn verdict(&self) -> String {
        match self.driver.as_deref() {
            _ if !self.uses.is_empty() => format!("in use: {}", self.uses.join(", ")),
            None | Some("vfio-pci") => "can be driven".into(),
            Some(driver) => format!("{driver} of the kernel has it and does not use it: --bind takes it"),
        }
    }
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let rows = rows(&Tree::default())?;
        let emulated = qemu::is_installed();
        if self.json {
            let row = |row: &Row| {
                serde_json::json!({
                    "address": row.address.to_string(), "id": row.id, "driver": row.driver, "uses": row.uses,
                    "drivable": row.uses.is_empty() && matches!(row.driver.as_deref(), None | Some("vfio-pci")),
                })
            };
            let all =
                serde_json::json!({ "controllers": rows.iter().map(row).collect::<Vec<_>>(), "emulated": emulated });
            terminal::json::print(&all)?;
            return Ok(ExitCode::SUCCESS);
        }
        let style = Style::of_stdout();
        let mut table = style.table(&["device", "id", "driver", ""]);
        for row in &rows {
            let driver = row.driver.clone().unwrap_or_else(|| "none".into());
            table.add_row([row.address.to_string(), row.id.clone(), driver, row.verdict()]);
        }
        let missing = format!("{} is not installed", qemu::PROGRAM);
        let here = if emulated { "emulated, for trying" } else { missing.as_str() };
        table.add_row(["qemu", "1b36:0010", "-", here]);
        to_stdout(|out| -> io::Result<()> {
            table::write(out, &table, 0)?;
            if rows.is_empty() {
                writeln!(out, "\nThis machine shows no NVMe controller.")?;
            }
            Ok(())
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

fn rows(tree: &Tree) -> anyhow::Result<Vec<Row>> {
    let found = match pcie::list::functions(tree) {
        Ok(found) => found,
        // A machine without a PCI bus has no controller.
        Err(pcie::Error::System { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(of_bus(error)),
    };
    let controllers = found.into_iter().filter(|function| function.identity.class == nvme::CLASS);
    let row = |function: pcie::list::Listed| {
        let identity = function.identity;
        let uses = bind::uses(tree, identity.address).iter().map(ToString::to_string).collect();
        let id = format!("{:04x}:{:04x}", identity.vendor, identity.device);
        Row { address: identity.address, id, driver: function.driver, uses }
    };
    Ok(controllers.map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// A function as the kernel shows it: the head of its configuration space, and its driver.
    fn function(root: &Path, address: &str, class: u32, driver: Option<&str>) {
        let folder = root.join("sys/devices/pci0000:00").join(address);
        std::fs::create_dir_all(&folder).unwrap();
        let mut config = vec![0; 64];
        config[..4].copy_from_slice(&0x0010_1b36_u32.to_le_bytes());
        config[9..12].copy_from_slice(&class.to_le_bytes()[..3]);
        std::fs::write(folder.join("config"), config).unwrap();
        std::fs::write(folder.join("class"), format!("{class:#08x}\n")).unwrap();
        let bus = root.join("sys/bus/pci/devices");
        std::fs::create_dir_all(&bus).unwrap();
        std::os::unix::fs::symlink(&folder, bus.join(address)).unwrap();
        if let Some(driver) = driver {
            let of = root.join("sys/bus/pci/drivers").join(driver);
            std::fs::create_dir_all(&of).unwrap();
            std::os::unix::fs::symlink(of, folder.join("driver")).unwrap();
        }
    }

    #[test]
    fn controllers_are_told_with_what_keeps_them() {
        let root = tempfile::tempdir().unwrap();
        assert!(rows(&Tree::at(root.path())).unwrap().is_empty(), "no PCI bus");
        function(root.path(), "0000:00:04.0", 0x01_0802, None);
        function(root.path(), "0000:00:05.0", 0x01_0802, Some("nvme"));
        function(root.path(), "0000:00:06.0", 0x01_0802, Some("vfio-pci"));
        function(root.path(), "0000:00:07.0", 0x02_0000, None);
        let rows = rows(&Tree::at(root.path())).unwrap();
        let verdicts: Vec<String> = rows.iter().map(Row::verdict).collect();
        assert_eq!(verdicts.len(), 3, "a network card is none");
        assert_eq!((verdicts[0].as_str(), verdicts[2].as_str()), ("can be driven", "can be driven"));
        assert!(verdicts[1].contains("--bind takes it"), "{}", verdicts[1]);
        let used = Row { uses: vec!["nvme0n1 is mounted at /".into()], ..rows.into_iter().nth(1).unwrap() };
        assert_eq!(used.verdict(), "in use: nvme0n1 is mounted at /");
    }
}

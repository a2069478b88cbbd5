//! Hints for the driver's errors, which a user can follow at the command line.

use drivers::nvme::{Error, Unfit};
use pcie::Error as Bus;

/// The error, and a hint.
pub fn of(error: &Error) -> (String, String) {
    let text = error.to_string();
    let (what, own) = text.split_once("; ").unwrap_or((&text, ""));
    let parts = |what: &str, hint: &str| (what.to_owned(), hint.to_owned());
    match error {
        Error::Bus(error) => of_bus(error),
        Error::Refused { what, why, hint } => (format!("{what}: {why}"), hint.clone()),
        Error::Range { .. } => parts(
            what,
            "`doorbell nvme identify DEVICE` shows how many there are: --start-block and --bytes name others",
        ),
        Error::Bytes { block_bytes, .. } => {
            (what.into(), format!("--bytes takes whole blocks: a multiple of {block_bytes} B"))
        }
        Error::NoNamespace { .. } => parts(&text.replace("; ", ": "), "--namespace takes one of those"),
        Error::Data(Unfit::TooLong { .. }) => parts(what, "--largest takes less"),
        Error::Data(_) => parts(what, "--into host goes by way of host memory, which fits"),
        Error::Fatal { .. }
        | Error::TimedOut { .. }
        | Error::Lied { .. }
        | Error::AdminClosed
        | Error::Stopped { .. } => parts(
            what,
            "the next command resets it first; if that fails, too: `echo 1 > /sys/bus/pci/devices/DEVICE/reset` as root, or its manufacturer's tool",
        ),
        // A bug in doorbell: no argument can cause this.
        Error::Slot { .. } | Error::Count(_) => {
            parts(what, "this is doorbell's own mistake: please report it with the command line")
        }
        Error::Failed { .. }
        | Error::FailedAt { .. }
        | Error::Page(_)
        | Error::Namespace { .. }
        | Error::Wedged { .. } => parts(what, own),
    }
}

fn of_bus(error: &Bus) -> (String, String) {
    let hint = match error {
        Bus::Refused { address, why, hint } => {
            return (format!("{address} cannot be driven from here: {why}"), hint.clone());
        }
        Bus::Unreachable { address, what, why, hint } => {
            return (format!("{address} cannot reach {what}: {why}"), hint.clone());
        }
        Bus::Gone { .. } => "`lspci -D` shows whether it is back, and `dmesg` why it went",
        Bus::Ended { .. } | Bus::Qemu(_) => {
            "run it again: each command starts a machine of its own; what QEMU said is above"
        }
        Bus::OutOfBounds { .. } => "fewer --threads, a smaller --depth or a smaller --largest need less memory",
        Bus::Address(_) | Bus::NoBar { .. } => "`doorbell nvme list` shows what is there",
        Bus::System { source, .. } => match source.kind() {
            std::io::ErrorKind::OutOfMemory => {
                "fewer --threads, a smaller --depth or a smaller --largest need less memory"
            }
            std::io::ErrorKind::PermissionDenied => "root may do it",
            _ => "`doorbell nvme list` shows what is there",
        },
    };
    // With the system's error text.
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
    (format!("{error}{cause}"), hint.into())
}

//! How a command ended, by name (Base 1.4, section 4.6.1.1 and figures 126 to 131).

use std::fmt;

/// The status field of a completion entry, without the phase bit.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(u16);

/// The specification that defines the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Generic,
    CommandSpecific,
    Media,
    Path,
    Vendor,
    /// 4h to 6h.
    Reserved(u8),
}

impl Status {
    pub const SUCCESS: Status = Status(0);

    /// From bits 31:17 of dword 3.
    pub fn from_bits(bits: u16) -> Status {
        Status(bits & 0x7fff)
    }

    pub fn bits(self) -> u16 {
        self.0
    }

    pub fn is_success(self) -> bool {
        self.0 & 0x7ff == 0
    }

    pub fn kind(self) -> Kind {
        match self.0 >> 8 & 7 {
            0 => Kind::Generic,
            1 => Kind::CommandSpecific,
            2 => Kind::Media,
            3 => Kind::Path,
            7 => Kind::Vendor,
            other => Kind::Reserved(other as u8),
        }
    }

    pub fn code(self) -> u8 {
        self.0 as u8
    }

    /// The error log has more about it.
    pub fn more(self) -> bool {
        self.0 & 1 << 13 != 0
    }

    /// The same command would fail again.
    pub fn do_not_retry(self) -> bool {
        self.0 & 1 << 14 != 0
    }

    pub fn name(self) -> &'static str {
        self.row().map_or("a status without a name", |row| row.1)
    }

    /// What to do about it.
    pub fn hint(self) -> &'static str {
        let of_kind = match self.kind() {
            Kind::Media => {
                "the medium could not keep or give back these blocks: look at the SMART log (nvme smart-log)"
            }
            Kind::Path => "the path to the namespace is not usable now",
            Kind::Vendor => "the code is the manufacturer's own",
            _ if self.do_not_retry() => "the same command would fail again",
            _ => "the same command may succeed later",
        };
        self.row().map(|row| row.2).filter(|hint| !hint.is_empty()).unwrap_or(of_kind)
    }

    fn row(self) -> Option<&'static (u8, &'static str, &'static str)> {
        let rows: &[_] = match self.kind() {
            Kind::Generic => GENERIC,
            Kind::CommandSpecific => COMMAND_SPECIFIC,
            Kind::Media => MEDIA,
            Kind::Path => PATH,
            Kind::Vendor | Kind::Reserved(_) => &[],
        };
        rows.iter().find(|row| row.0 == self.code())
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Generic => f.write_str("generic"),
            Kind::CommandSpecific => f.write_str("command specific"),
            Kind::Media => f.write_str("media"),
            Kind::Path => f.write_str("path"),
            Kind::Vendor => f.write_str("vendor specific"),
            Kind::Reserved(kind) => write!(f, "status code type {kind}"),
        }
    }
}

/// `LBA Out of Range (generic 80h, do not retry)`.
impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} {:02x}h", self.name(), self.kind(), self.code())?;
        f.write_str(if self.do_not_retry() { ", do not retry" } else { "" })?;
        f.write_str(if self.more() { ", more in the error log)" } else { ")" })
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

type Row = (u8, &'static str, &'static str);

const OURS: &str = "the driver sent what the controller does not take: report it with the device's identify page";
const NAMESPACE: &str =
    "the namespace is not there or not attached: `doorbell nvme identify DEVICE` lists those that are";
const BUSY: &str = "the device is busy: try again";
const PROTECTED: &str = "the device protects these blocks: nothing was written";

// Only codes of commands that this driver sends.
const GENERIC: &[Row] = &[
    (0x00, "Successful Completion", ""),
    (0x01, "Invalid Command Opcode", "the controller does not have this command"),
    (0x02, "Invalid Field in Command", OURS),
    (0x03, "Command ID Conflict", OURS),
    (
        0x04,
        "Data Transfer Error",
        "the device could not read or write the memory: check its path to it (`doorbell doctor`)",
    ),
    (0x05, "Commands Aborted due to Power Loss Notification", ""),
    (0x06, "Internal Error", "the device failed within itself: look at its error log (nvme error-log)"),
    (0x07, "Command Abort Requested", "it took longer than its deadline and was aborted"),
    (0x08, "Command Aborted due to SQ Deletion", "its queue was closed while it ran"),
    (0x0b, "Invalid Namespace or Format", NAMESPACE),
    (0x0c, "Command Sequence Error", ""),
    (0x13, "PRP Offset Invalid", OURS),
    (0x14, "Atomic Write Unit Exceeded", ""),
    (0x15, "Operation Denied", ""),
    (0x1c, "Sanitize Failed", ""),
    (0x1d, "Sanitize In Progress", "wait until the device was sanitized"),
    (0x20, "Namespace is Write Protected", PROTECTED),
    (0x21, "Command Interrupted", BUSY),
    (0x22, "Transient Transport Error", BUSY),
    (0x23, "Command Prohibited by Command and Feature Lockdown", ""),
    (0x24, "Admin Command Media Not Ready", BUSY),
    (0x80, "LBA Out of Range", "the namespace has fewer blocks"),
    (0x81, "Capacity Exceeded", ""),
    (0x82, "Namespace Not Ready", BUSY),
    (0x83, "Reservation Conflict", "another host has reserved the namespace"),
    (0x84, "Format In Progress", "wait until the format is done"),
    (0x88, "Unrecovered Error", ""),
];

const COMMAND_SPECIFIC: &[Row] = &[
    (0x00, "Completion Queue Invalid", OURS),
    (0x01, "Invalid Queue Identifier", "the controller has fewer queues"),
    (0x02, "Invalid Queue Size", "ask for a smaller depth"),
    (0x03, "Abort Command Limit Exceeded", BUSY),
    (0x08, "Invalid Interrupt Vector", OURS),
    (0x0c, "Invalid Queue Deletion", OURS),
    (0x0d, "Feature Identifier Not Saveable", ""),
    (0x0e, "Feature Not Changeable", ""),
    (0x0f, "Feature Not Namespace Specific", ""),
    (0x1a, "Namespace Not Attached", NAMESPACE),
    (0x80, "Conflicting Attributes", ""),
    (0x81, "Invalid Protection Information", ""),
    (0x82, "Attempted Write to Read Only Range", PROTECTED),
    (0x83, "Command Size Limit Exceeded", "split the command"),
];

const MEDIA: &[Row] = &[
    (0x80, "Write Fault", ""),
    (0x81, "Unrecovered Read Error", ""),
    (0x82, "End-to-end Guard Check Error", ""),
    (0x83, "End-to-end Application Tag Check Error", ""),
    (0x84, "End-to-end Reference Tag Check Error", ""),
    (0x85, "Compare Failure", "the medium has different bytes"),
    (0x86, "Access Denied", "the range is locked (Opal)"),
    (0x87, "Deallocated or Unwritten Logical Block", "these blocks were never written"),
    (0x88, "End-to-end Storage Tag Check Error", ""),
];

const PATH: &[Row] = &[
    (0x00, "Internal Path Error", ""),
    (0x01, "Asymmetric Access Persistent Loss", ""),
    (0x02, "Asymmetric Access Inaccessible", ""),
    (0x03, "Asymmetric Access Transition", ""),
    (0x60, "Controller Pathing Error", ""),
    (0x70, "Host Pathing Error", ""),
    (0x71, "Command Aborted By Host", ""),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_told_by_its_name() {
        let out_of_range = Status::from_bits(0x4080);
        assert_eq!(out_of_range.to_string(), "LBA Out of Range (generic 80h, do not retry)");
        assert!(!out_of_range.is_success() && out_of_range.do_not_retry() && !out_of_range.more());
        let media = Status::from_bits(0x2281);
        assert_eq!(media.to_string(), "Unrecovered Read Error (media 81h, more in the error log)");
        assert!(media.hint().contains("SMART"));
        assert_eq!(Status::from_bits(0x102).name(), "Invalid Queue Size");
        assert_eq!(Status::SUCCESS.to_string(), "Successful Completion (generic 00h)");
    }

    #[test]
    fn every_status_has_a_text_and_a_hint() {
        for bits in 0..=u16::MAX {
            let status = Status::from_bits(bits);
            assert!(!status.to_string().is_empty() && !status.hint().is_empty());
        }
    }

    #[test]
    fn no_code_is_told_twice() {
        for rows in [GENERIC, COMMAND_SPECIFIC, MEDIA, PATH] {
            assert!(rows.windows(2).all(|two| two[0].0 < two[1].0));
        }
    }
}

//! Capabilities of the first 256 bytes: PCI Express.

use super::{Config, Missing};

pub(super) const EXPRESS: u8 = 0x10;

impl Config<'_> {
    /// # Errors
    /// [`Missing`].
    pub fn express(&self) -> Result<Express, Missing> {
        let at = self.capability(EXPRESS)?;
        let double = |offset: usize| self.double(at + offset).ok_or(Missing::CutOff("PCI Express"));
        let (able, control) = (double(0x04)?, double(0x08)?);
        let kind = Kind::of((self.word(at + 2).ok_or(Missing::CutOff("PCI Express"))? >> 4 & 0xf) as u8);
        let (link_able, link) = (double(0x0c)?, double(0x10)?);
        let (link_control, link_status) = (link as u16, (link >> 16) as u16);
        Ok(Express {
            kind,
            resets: able & 1 << 28 != 0,
            max_payload_possible: payload(able & 7),
            max_payload: payload(control >> 5 & 7),
            max_read_request: payload(control >> 12 & 7),
            relaxed_ordering: control & 1 << 4 != 0,
            extended_tags: control & 1 << 8 != 0,
            no_snoop: control & 1 << 11 != 0,
            sleeps: match link_control & 3 {
                0 => "off",
                1 => "L0s",
                2 => "L1",
                _ => "L0s L1",
            },
            link: Link { generation: (link_status & 0xf) as u8, width: (link_status >> 4 & 0x3f) as u8 },
            link_possible: Link { generation: (link_able & 0xf) as u8, width: (link_able >> 4 & 0x3f) as u8 },
        })
    }
}

/// Device/port type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Endpoint,
    LegacyEndpoint,
    RootPort,
    /// A switch's port towards the root.
    UpstreamPort,
    /// A switch's port away from the root.
    DownstreamPort,
    ToPci,
    FromPci,
    /// Root complex integrated endpoint.
    Integrated,
    EventCollector,
    Reserved(u8),
}

impl Kind {
    fn of(code: u8) -> Kind {
        match code {
            0 => Kind::Endpoint,
            1 => Kind::LegacyEndpoint,
            4 => Kind::RootPort,
            5 => Kind::UpstreamPort,
            6 => Kind::DownstreamPort,
            7 => Kind::ToPci,
            8 => Kind::FromPci,
            9 => Kind::Integrated,
            10 => Kind::EventCollector,
            other => Kind::Reserved(other),
        }
    }
}

/// 128 bytes, and twice as many for each step; the two highest codes are reserved.
fn payload(code: u32) -> Option<u64> {
    (code < 6).then(|| 128 << code)
}

/// One link: the current speed and width, or the maximum of one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    pub generation: u8,
    pub width: u8,
}

/// The PCI Express capability: device and link, capabilities, control and status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Express {
    pub kind: Kind,
    /// Supports function-level reset (FLR).
    pub resets: bool,
    /// Bytes of data in one packet, at most. `None`: a reserved code.
    pub max_payload_possible: Option<u64>,
    pub max_payload: Option<u64>,
    /// Bytes that one read request may ask for.
    pub max_read_request: Option<u64>,
    pub relaxed_ordering: bool,
    pub extended_tags: bool,
    pub no_snoop: bool,
    /// States in which the link saves power (ASPM control).
    pub sleeps: &'static str,
    pub link: Link,
    pub link_possible: Link,
}

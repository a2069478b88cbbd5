//! A PCI function's configuration space, decoded: header and capabilities.
//!
//! Offsets and fields are those of the PCI Express Base Specification, chapters 7.5 to 7.9. The invariant: any bytes are decoded without a panic
//! and in bounded time. A missing or truncated field is an error.

pub mod build;
mod extended;
mod standard;

pub use extended::AccessControl;
pub use standard::{Express, Kind, Link};

/// Why a field could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    #[error("only {0} bytes of configuration space: the rest needs root")]
    NeedsRoot(usize),
    #[error("only {0} bytes of configuration space: the machine gives no extended one")]
    NotExtended(usize),
    #[error("no capability {0:#04x}")]
    Capability(u8),
    #[error("no extended capability {0:#06x}")]
    Extended(u16),
    #[error("the {0} capability is cut off")]
    CutOff(&'static str),
}

/// The part that the kernel returned: 64 bytes to ordinary users, 256 or 4096 to root.
#[derive(Clone, Copy, Debug)]
pub struct Config<'b>(&'b [u8]);

/// Offset of the first capability, and the status register's bit for the presence of capabilities.
const STATUS: usize = 0x06;
const HAS_CAPABILITIES: u16 = 1 << 4;
const FIRST: usize = 0x34;
/// Capabilities begin after the header, and those of PCI Express after the first 256 bytes.
const HEADER: usize = 0x40;
const EXTENDED: usize = 0x100;
const WHOLE: usize = 4096;

impl<'b> Config<'b> {
    pub fn of(bytes: &'b [u8]) -> Config<'b> {
        Config(bytes)
    }

    /// The header, which any user may read.
    ///
    /// # Errors
    /// [`Missing::CutOff`].
    pub fn header(&self) -> Result<Header, Missing> {
        let double = |at: usize| self.double(at).ok_or(Missing::CutOff("header"));
        let (id, class, kind) = (double(0x00)?, double(0x08)?, double(0x0c)? >> 16);
        Ok(Header {
            vendor: id as u16,
            device: (id >> 16) as u16,
            class: class >> 8,
            revision: class as u8,
            is_bridge: kind & 0x7f == 1,
        })
    }

    /// Id and offset of each capability, in the list's order.
    ///
    /// # Errors
    /// [`Missing::NeedsRoot`].
    pub fn capabilities(&self) -> Result<Vec<(u8, usize)>, Missing> {
        if self.0.len() < 256 {
            return Err(Missing::NeedsRoot(self.0.len()));
        }
        let mut found = Vec::new();
        if self.word(STATUS).is_none_or(|s| s & HAS_CAPABILITIES == 0) {
            return Ok(found);
        }
        let mut at = usize::from(self.0[FIRST]) & !3;
        // A list that runs in a circle, or leaves the space, ends.
        while at >= HEADER && found.len() < (256 - HEADER) / 4 {
            found.push((self.0[at], at));
            at = usize::from(self.0[at + 1]) & !3;
        }
        Ok(found)
    }

    /// Id and offset of each extended capability (beyond 256 bytes).
    ///
    /// # Errors
    /// [`Missing::NeedsRoot`], [`Missing::NotExtended`].
    pub fn extended_capabilities(&self) -> Result<Vec<(u16, usize)>, Missing> {
        match self.0.len() {
            bytes @ ..256 => return Err(Missing::NeedsRoot(bytes)),
            bytes if bytes < WHOLE => return Err(Missing::NotExtended(bytes)),
            _ => {}
        }
        let mut found = Vec::new();
        let mut at = EXTENDED;
        while at >= EXTENDED && found.len() < (WHOLE - EXTENDED) / 4 {
            // All zeros: there is no extended capability. All ones: no device answers.
            let Some(head) = self.double(at).filter(|head| *head != 0 && *head != u32::MAX) else { break };
            found.push((head as u16, at));
            at = (head >> 20) as usize & !3;
        }
        Ok(found)
    }

    /// Offset of a capability.
    ///
    /// # Errors
    /// [`Missing`].
    pub fn capability(&self, wanted: u8) -> Result<usize, Missing> {
        let all = self.capabilities()?;
        all.iter().find(|(id, _)| *id == wanted).map(|(_, at)| *at).ok_or(Missing::Capability(wanted))
    }

    /// Offset of an extended capability.
    ///
    /// # Errors
    /// [`Missing`].
    pub fn extended(&self, wanted: u16) -> Result<usize, Missing> {
        let all = self.extended_capabilities()?;
        all.iter().find(|(id, _)| *id == wanted).map(|(_, at)| *at).ok_or(Missing::Extended(wanted))
    }

    fn word(&self, at: usize) -> Option<u16> {
        let b = self.0.get(at..at + 2)?;
        Some(u16::from_le_bytes([b[0], b[1]]))
    }

    fn double(&self, at: usize) -> Option<u32> {
        let b = self.0.get(at..at + 4)?;
        Some(u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }
}

/// The header's fields, readable by any user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub vendor: u16,
    pub device: u16,
    /// Base class, subclass and programming interface.
    pub class: u32,
    pub revision: u8,
    pub is_bridge: bool,
}

#[cfg(test)]
mod tests {
    use super::build::{express, space};
    use super::extended::ACCESS_CONTROL;
    use super::standard::EXPRESS;
    use super::*;
    use proptest::prelude::*;

    /// The first 256 bytes of a virtio block device's, as root reads them in a virtual machine.
    const VIRTIO: &str = include_str!("../tests/fixtures/virtio-block.config.hex");

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        let pair = |p: &[u8]| u8::from_str_radix(std::str::from_utf8(p).unwrap(), 16).unwrap();
        digits.chunks(2).map(pair).collect()
    }

    #[test]
    fn a_real_space_without_pci_express_is_an_error() {
        let bytes = bytes(VIRTIO);
        assert_eq!(bytes.len(), 256);
        let config = Config::of(&bytes);
        // Five vendor capabilities, as `lspci` lists them, and MSI-X after them.
        assert_eq!((config.capability(0x09), config.capability(0x11)), (Ok(0x40), Ok(0x98)));
        assert_eq!(config.express(), Err(Missing::Capability(EXPRESS)));
        assert_eq!(config.access_control(), Err(Missing::NotExtended(256)));
        assert_eq!(Config::of(&bytes[..64]).express(), Err(Missing::NeedsRoot(64)));
    }

    /// The rows that are not all zeros of a QEMU machine's root port with access control enabled.
    const ROOT_PORT: &str = include_str!("../tests/fixtures/qemu-root-port.config.hex");

    #[test]
    fn a_root_port_decodes_as_in_lspci() {
        let mut all = vec![0; WHOLE];
        for row in ROOT_PORT.lines() {
            let (at, rest) = row.split_once(": ").unwrap();
            let (at, row) = (usize::from_str_radix(at, 16).unwrap(), bytes(rest));
            all[at..at + row.len()].copy_from_slice(&row);
        }
        let config = Config::of(&all);
        // LnkCap: Speed 16GT/s, Width x16; LnkSta: Speed 2.5GT/s, Width x1; MaxPayload 128 bytes, MaxReadReq 128 bytes
        let express = config.express().unwrap();
        assert_eq!(express.link_possible, Link { generation: 4, width: 16 });
        assert_eq!((express.link, express.sleeps), (Link { generation: 1, width: 1 }, "off"));
        assert_eq!((express.max_payload, express.max_payload_possible), (Some(128), Some(128)));
        assert_eq!((express.max_read_request, express.relaxed_ordering), (Some(128), false));
        // ACSCtl: SrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-
        assert_eq!(config.access_control().unwrap().names(), ["SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd"]);
    }

    #[test]
    fn registers_are_taken_apart() {
        // 256 of 512 bytes, reads of 4096, relaxed ordering, extended tags; L1; generation 5, x8 of x16.
        let control = 1 << 5 | 5 << 12 | 1 << 4 | 1 << 8;
        let body = express(2 | 1 << 28, control, 5 | 16 << 4, 2, 5 | 8 << 4);
        let bytes =
            space(&[(0x05, &[0; 12]), (EXPRESS, &body)], &[(1, &[0; 16]), (ACCESS_CONTROL, &[0x1f, 0, 0x0d, 0])]);
        let config = Config::of(&bytes);
        let want = Express {
            kind: Kind::Endpoint,
            resets: true,
            max_payload_possible: Some(512),
            max_payload: Some(256),
            max_read_request: Some(4096),
            relaxed_ordering: true,
            extended_tags: true,
            no_snoop: false,
            sleeps: "L1",
            link: Link { generation: 5, width: 8 },
            link_possible: Link { generation: 5, width: 16 },
        };
        assert_eq!(config.express(), Ok(want));
        let acs = config.access_control().unwrap();
        assert_eq!(acs.names(), ["SrcValid", "ReqRedir", "CmpltRedir"]);
    }

    #[test]
    fn a_cut_off_capability_and_header_are_errors() {
        let mut short = space(&[], &[]);
        (short[FIRST], short[0xfc]) = (0xfc, EXPRESS);
        assert_eq!(Config::of(&short[..256]).express(), Err(Missing::CutOff("PCI Express")));
        assert_eq!(Config::of(&short[..10]).header(), Err(Missing::CutOff("header")));
    }

    #[test]
    fn circles_end() {
        let mut bytes = space(&[(0x05, &[0; 12])], &[(1, &[0; 4])]);
        (bytes[0x41], bytes[0x102], bytes[0x103]) = (0x40, 0x01, 0x10);
        let config = Config::of(&bytes);
        assert!(config.express().is_err() && config.access_control().is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2048))]

        /// Random capability lists and random lengths.
        #[test]
        fn no_list_runs_for_ever(
            links in prop::collection::vec((0usize..WHOLE, any::<u32>()), 0..200),
            first in any::<u8>(),
            length in prop::sample::select(vec![0, 1, 63, 64, 255, 256, 257, 4092, WHOLE, WHOLE + 1]),
        ) {
            let mut bytes = vec![0; WHOLE + 1];
            for (at, link) in links {
                let at = at & !3;
                bytes[at..at + 4].copy_from_slice(&link.to_le_bytes());
            }
            (bytes[STATUS], bytes[FIRST]) = (HAS_CAPABILITIES as u8, first);
            let config = Config::of(&bytes[..length]);
            let _ = (config.express(), config.access_control(), config.header());
            if let Ok(all) = config.capabilities() {
                prop_assert!(all.len() <= 48 && all.iter().all(|(_, at)| (0x40..=0xfc).contains(at)));
            }
            if let Ok(all) = config.extended_capabilities() {
                prop_assert!(all.len() <= 960 && all.iter().all(|(_, at)| (0x100..WHOLE).contains(at)));
            }
        }

        #[test]
        fn no_bytes_panic(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..300),
            long in any::<bool>(),
        ) {
            if long {
                let part = bytes.clone();
                while !part.is_empty() && bytes.len() < WHOLE {
                    bytes.extend(&part);
                }
                bytes.truncate(WHOLE);
            }
            if let Some(status) = bytes.get_mut(STATUS) {
                *status |= HAS_CAPABILITIES as u8;
            }
            let config = Config::of(&bytes);
            let _ = (config.express(), config.access_control().map(|a| (a.names(), a.redirects(), a.blocks())));
            let _ = config.header();
            prop_assert!(config.capabilities().is_ok_and(|all| all.len() <= 48) || bytes.len() < 256);
        }

        #[test]
        fn built_spaces_read_back(
            before in proptest::collection::vec((0x11u8..0x20, 0usize..20), 0..4),
            (payload, read) in (0u16..6, 0u16..6),
            (generation, width) in (1u16..7, 1u16..33),
            on in 0u16..0x80,
        ) {
            let bodies: Vec<(u8, Vec<u8>)> = before.iter().map(|(id, n)| (*id, vec![0x10; *n])).collect();
            let body = express(5, payload << 5 | read << 12, u32::from(generation | width << 4), 0, generation | width << 4);
            let mut all: Vec<(u8, &[u8])> = bodies.iter().map(|(id, b)| (*id, b.as_slice())).collect();
            all.push((EXPRESS, &body));
            let [low, high] = on.to_le_bytes();
            let bytes = space(&all, &[(3, &[0; 8]), (ACCESS_CONTROL, &[0x7f, 0, low, high])]);
            let found = Config::of(&bytes).express().unwrap();
            prop_assert_eq!(found.max_payload, Some(128 << payload));
            prop_assert_eq!(found.max_read_request, Some(128 << read));
            prop_assert_eq!(found.link, Link { generation: generation as u8, width: width as u8 });
            prop_assert_eq!(Config::of(&bytes).access_control().unwrap().on, on);
        }
    }
}

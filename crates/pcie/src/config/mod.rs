//! A PCI function's configuration space: the walk through its capabilities, and what those of PCI Express and of access
//! control say. Offsets and fields are those of the PCI Express Base Specification, chapters 7.5 and 7.7.

pub mod build;

/// Why a space does not tell something.
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

/// What the kernel gave of it: 64 bytes to ordinary users, 256 or 4096 to root.
#[derive(Clone, Copy, Debug)]
pub struct Config<'b>(&'b [u8]);

/// Capability numbers.
const EXPRESS: u8 = 0x10;
/// Numbers of capabilities beyond the first 256 bytes.
const ACCESS_CONTROL: u16 = 0x000d;

/// Offset of the first capability, and the status register's bit that says that there are any.
const STATUS: usize = 0x06;
const HAS_CAPABILITIES: u16 = 1 << 4;
const FIRST: usize = 0x34;
/// Capabilities begin behind the header, and those of PCI Express behind everything else.
const HEADER: usize = 0x40;
const EXTENDED: usize = 0x100;
const WHOLE: usize = 4096;

impl<'b> Config<'b> {
    pub fn of(bytes: &'b [u8]) -> Config<'b> {
        Config(bytes)
    }

    fn word(&self, at: usize) -> Option<u16> {
        let b = self.0.get(at..at + 2)?;
        Some(u16::from_le_bytes([b[0], b[1]]))
    }

    fn double(&self, at: usize) -> Option<u32> {
        let b = self.0.get(at..at + 4)?;
        Some(u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }

    /// A list that runs in a circle, or leaves the space, ends.
    fn capability(&self, wanted: u8) -> Result<usize, Missing> {
        if self.0.len() < 256 {
            return Err(Missing::NeedsRoot(self.0.len()));
        }
        let none = Missing::Capability(wanted);
        if self.word(STATUS).is_none_or(|s| s & HAS_CAPABILITIES == 0) {
            return Err(none);
        }
        let mut at = usize::from(self.0[FIRST]) & !3;
        for _ in 0..(256 - HEADER) / 4 {
            if at < HEADER {
                break;
            }
            if self.0[at] == wanted {
                return Ok(at);
            }
            at = usize::from(self.0[at + 1]) & !3;
        }
        Err(none)
    }

    fn extended(&self, wanted: u16) -> Result<usize, Missing> {
        if self.0.len() < WHOLE {
            return Err(match self.0.len() {
                n @ ..256 => Missing::NeedsRoot(n),
                n => Missing::NotExtended(n),
            });
        }
        let mut at = EXTENDED;
        for _ in 0..(WHOLE - EXTENDED) / 4 {
            let Some(head) = self.double(at) else { break };
            // All zeros: there is none at all. All ones: nothing answers.
            if head == 0 || head == u32::MAX {
                break;
            }
            if head as u16 == wanted {
                return Ok(at);
            }
            at = (head >> 20) as usize & !3;
            if at < EXTENDED {
                break;
            }
        }
        Err(Missing::Extended(wanted))
    }

    pub fn express(&self) -> Result<Express, Missing> {
        let at = self.capability(EXPRESS)?;
        let double = |offset: usize| self.double(at + offset).ok_or(Missing::CutOff("PCI Express"));
        let (able, control) = (double(0x04)?, double(0x08)?);
        let (link_able, link) = (double(0x0c)?, double(0x10)?);
        let (link_control, link_status) = (link as u16, (link >> 16) as u16);
        Ok(Express {
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

    pub fn access_control(&self) -> Result<AccessControl, Missing> {
        let at = self.extended(ACCESS_CONTROL)?;
        let word = |offset: usize| self.word(at + offset).ok_or(Missing::CutOff("access control"));
        Ok(AccessControl { able: word(4)?, on: word(6)? })
    }
}

/// 128 bytes, and twice as many for each step; the two highest codes are reserved.
fn payload(code: u32) -> Option<u64> {
    (code < 6).then(|| 128 << code)
}

/// One link as its two ends agreed, or as one end could at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    pub generation: u8,
    pub width: u8,
}

/// The PCI Express capability: device and link, capabilities, control and status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Express {
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

/// Access Control Services of a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessControl {
    pub able: u16,
    pub on: u16,
}

impl AccessControl {
    /// What is on, by the names that lspci uses.
    pub fn names(&self) -> Vec<&'static str> {
        const NAMES: [&str; 7] =
            ["SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans"];
        NAMES.iter().enumerate().filter(|(bit, _)| self.on & self.able & 1 << bit != 0).map(|(_, n)| *n).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::build::{express, space};
    use super::*;
    use proptest::prelude::*;

    /// The first 256 bytes of a virtio block device's, as root reads them in a virtual machine.
    const VIRTIO: &str = include_str!("../../tests/fixtures/virtio-block.config.hex");

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        let pair = |p: &[u8]| u8::from_str_radix(std::str::from_utf8(p).unwrap(), 16).unwrap();
        digits.chunks(2).map(pair).collect()
    }

    #[test]
    fn a_real_space_without_pci_express_says_so() {
        let bytes = bytes(VIRTIO);
        assert_eq!(bytes.len(), 256);
        let config = Config::of(&bytes);
        // Five of the vendor's, as `lspci` lists them, and MSI-X behind them.
        assert_eq!((config.capability(0x09), config.capability(0x11)), (Ok(0x40), Ok(0x98)));
        assert_eq!(config.express(), Err(Missing::Capability(EXPRESS)));
        assert_eq!(config.access_control(), Err(Missing::NotExtended(256)));
        assert_eq!(Config::of(&bytes[..64]).express(), Err(Missing::NeedsRoot(64)));
    }

    /// Rows that are not all zeros, of the root port of a machine of QEMU's with access control switched on.
    const ROOT_PORT: &str = include_str!("../../tests/fixtures/qemu-root-port.config.hex");

    #[test]
    fn a_root_port_says_what_lspci_reads_from_it() {
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
        let body = express(2, control, 5 | 16 << 4, 2, 5 | 8 << 4);
        let bytes =
            space(&[(0x05, &[0; 12]), (EXPRESS, &body)], &[(1, &[0; 16]), (ACCESS_CONTROL, &[0x1f, 0, 0x0d, 0])]);
        let config = Config::of(&bytes);
        let want = Express {
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
    fn circles_end() {
        let mut bytes = space(&[(0x05, &[0; 12])], &[(1, &[0; 4])]);
        (bytes[0x41], bytes[0x102], bytes[0x103]) = (0x40, 0x01, 0x10);
        let config = Config::of(&bytes);
        assert!(config.express().is_err() && config.access_control().is_err());
    }

    proptest! {
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
            let _ = (config.express(), config.access_control().map(|a| a.names()));
        }

        #[test]
        fn what_was_built_comes_back(
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

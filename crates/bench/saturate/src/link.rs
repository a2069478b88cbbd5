//! What a PCIe link can carry, by counting bytes of packets: the line rate, and the part left for payload under stated assumptions ([`Packets`]).
//! Only computed, not measured.
//!
//! On the link, a transaction layer packet (TLP) of generations 3 to 5 consists of 4 bytes of framing with the sequence number (the STP token), a
//! header of 12 or 16 bytes, the data, and 4 bytes of LCRC. A write carries its data in the request (a header of 16 bytes for a 64-bit address). A
//! read is a request without data in one direction, and completions (12 bytes) with the data in the other. Packets of the data link layer (DLLPs:
//! acknowledgements, credits) are 8 bytes with their framing, and are sent in the opposite direction of their TLPs. One block in 371 of each lane
//! is a SKP ordered set. So, for payload in one direction:
//!
//! ```text
//! line rate  = transfers/s * lanes * 128/130 / 8
//! write      = (TLPs * 24 + payload) one way                   TLPs = blocks of MPS that the I/O touches
//! read       = (completions * 20 + payload) one way            completions = blocks of `completion` that it touches
//!              + requests * 24 the other way                   requests = blocks of MRRS that it touches
//! reachable  = payload / (bytes of the fuller way / (line rate * 370/371))
//! ```

use serde::{Deserialize, Serialize};

/// STP token and LCRC.
const FRAME: u32 = 4 + 4;
/// Header of a request with a 64-bit address, and of a completion.
const REQUEST: u32 = 16;
const COMPLETION: u32 = 12;
const ECRC: u32 = 4;
/// With its framing.
const DLLP: f64 = 8.0;
/// One of 371 blocks is a SKP ordered set: they are sent at least every 375 and at most every 370 blocks.
const NOT_SKIPPED: f64 = 370.0 / 371.0;

/// A link: 16 lanes of generation 5, for example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Link {
    pub generation: u32,
    pub width: u32,
}

impl std::fmt::Display for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Gen{} x{}", self.generation, self.width)
    }
}

impl Link {
    /// `generation 5 x16`, as the environment's facts have it.
    pub fn of_fact(text: &str) -> Option<Link> {
        let (generation, width) = text.strip_prefix("generation ")?.split_once(" x")?;
        let link = Link { generation: generation.parse().ok()?, width: width.parse().ok()? };
        link.line_rate().map(|_| link)
    }

    /// Bytes a second that the lanes carry in each direction, after subtracting the encoding. `None` for a generation without 8b/10b or 128b/130b,
    /// or an invalid width. (Generation 6 uses flits.)
    pub fn line_rate(self) -> Option<f64> {
        let (transfers, encoding) = match self.generation {
            1 => (2.5e9, 0.8),
            2 => (5e9, 0.8),
            3 => (8e9, 128.0 / 130.0),
            4 => (16e9, 128.0 / 130.0),
            5 => (32e9, 128.0 / 130.0),
            _ => return None,
        };
        matches!(self.width, 1 | 2 | 4 | 8 | 12 | 16 | 32).then(|| transfers * f64::from(self.width) * encoding / 8.0)
    }
}

/// Assumptions about the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Packets {
    /// MPS: maximum data of one packet.
    pub max_payload: u32,
    /// MRRS: maximum bytes of one read request.
    pub max_read_request: u32,
    /// RCB: completions of one read are cut at multiples of it, 64 or 128 bytes.
    pub read_completion_boundary: u32,
    /// Data of one completion: a multiple of the boundary up to MPS. A root complex is free to choose; many send cache lines.
    pub completion: u32,
    /// An end-to-end checksum of 4 bytes in each packet.
    pub ecrc: bool,
    /// One acknowledgement, and one update of credits, for this many TLPs.
    pub tlps_per_ack: u32,
    pub tlps_per_credit: u32,
}

impl Default for Packets {
    fn default() -> Packets {
        Packets {
            max_payload: 256,
            max_read_request: 512,
            read_completion_boundary: 64,
            completion: 256,
            ecrc: false,
            tlps_per_ack: 4,
            tlps_per_credit: 4,
        }
    }
}

/// Who moves the bytes of an I/O over the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// The side that has the bytes writes them: posted writes.
    Write,
    /// The side that wants the bytes reads them: it sends read requests and gets completions with data.
    Read,
}

/// What crosses the link for each I/O besides the payload: the sizes of posted writes. `along`: in the payload's direction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Beside {
    pub along: Vec<u32>,
    pub against: Vec<u32>,
}

/// Bytes on the link for one I/O: along its payload, and against it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bytes {
    pub along: f64,
    pub against: f64,
}

/// The number of aligned blocks of `block` bytes that `bytes` at `at` touch.
fn touched(at: u64, bytes: u64, block: u32) -> u64 {
    let block = u64::from(block.max(1));
    if bytes == 0 { 0 } else { (at + bytes - 1) / block - at / block + 1 }
}

impl Packets {
    /// The same, with completions of one boundary each: the highest number of packets with which a root complex may answer a read.
    pub fn with_short_completions(self) -> Packets {
        Packets { completion: self.read_completion_boundary, ..self }
    }

    /// Checks that the specification allows these values; the error names the wrong one.
    ///
    /// # Errors
    /// A value that the specification does not have.
    pub fn check(&self) -> Result<(), String> {
        let is_size = |value: u32| value.is_power_of_two() && (128..=4096).contains(&value);
        if !is_size(self.max_payload) || !is_size(self.max_read_request) {
            return Err("MPS and MRRS are 128, 256, 512, 1024, 2048 or 4096 bytes".into());
        }
        if !matches!(self.read_completion_boundary, 64 | 128) {
            return Err("the read completion boundary is 64 or 128 bytes".into());
        }
        let is_multiple = self.completion > 0 && self.completion.is_multiple_of(self.read_completion_boundary);
        if !is_multiple || self.completion > self.max_payload || !self.completion.is_power_of_two() {
            return Err("data of a completion is the boundary, or it doubled, up to MPS".into());
        }
        if self.tlps_per_ack == 0 || self.tlps_per_credit == 0 {
            return Err("an acknowledgement is for at least one TLP".into());
        }
        Ok(())
    }

    fn packet(&self, header: u32) -> u32 {
        FRAME + header + if self.ecrc { ECRC } else { 0 }
    }

    /// TLP bytes of an I/O of `bytes` at the address `at`, with the writes in `beside`, and the number of TLPs in each direction.
    fn packets(&self, access: Access, at: u64, bytes: u64, beside: &Beside) -> (Bytes, [f64; 2]) {
        let (request, completion) = (u64::from(self.packet(REQUEST)), u64::from(self.packet(COMPLETION)));
        let (mut tlps, mut along, mut against) = ([0, 0], bytes, 0);
        match access {
            Access::Write => {
                tlps[0] = touched(at, bytes, self.max_payload);
                along += tlps[0] * request;
            }
            Access::Read => {
                tlps = [touched(at, bytes, self.completion), touched(at, bytes, self.max_read_request)];
                along += tlps[0] * completion;
                against += tlps[1] * request;
            }
        }
        for (way, sum, count) in [(&beside.along, &mut along, 0), (&beside.against, &mut against, 1)] {
            *sum += way.iter().map(|bytes| u64::from(*bytes) + request).sum::<u64>();
            tlps[count] += way.len() as u64;
        }
        (Bytes { along: along as f64, against: against as f64 }, tlps.map(|n| n as f64))
    }

    /// TLP bytes for an I/O of `bytes` at the address `at`.
    pub fn tlp_bytes(&self, access: Access, at: u64, bytes: u64, beside: &Beside) -> Bytes {
        self.packets(access, at, bytes, beside).0
    }

    /// The same with DLLPs, which go in the opposite direction to the TLPs that they acknowledge or give credit for.
    pub fn link_bytes(&self, access: Access, at: u64, bytes: u64, beside: &Beside) -> Bytes {
        let (of_tlps, [along, against]) = self.packets(access, at, bytes, beside);
        let of_dllps =
            |tlps: f64| DLLP * tlps * (1.0 / f64::from(self.tlps_per_ack) + 1.0 / f64::from(self.tlps_per_credit));
        Bytes { along: of_tlps.along + of_dllps(against), against: of_tlps.against + of_dllps(along) }
    }

    /// Payload bytes per second in one direction if only I/Os of this size cross the link. The direction with more bytes limits it.
    pub fn reachable(&self, link: Link, access: Access, bytes: u64, beside: &Beside) -> Option<f64> {
        let on_link = self.link_bytes(access, 0, bytes, beside);
        Some(link.line_rate()? * NOT_SKIPPED * bytes as f64 / on_link.along.max(on_link.against))
    }

    /// TLP bytes in the payload's direction per byte of payload.
    pub fn factor(&self, access: Access, bytes: u64, beside: &Beside) -> f64 {
        self.tlp_bytes(access, 0, bytes, beside).along / bytes as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GEN5: Link = Link { generation: 5, width: 16 };

    fn near(found: f64, wanted: f64) {
        assert!((found - wanted).abs() <= wanted.abs() * 1e-9, "{found} instead of {wanted}");
    }

    #[test]
    fn line_rates_are_those_of_the_specification() {
        near(GEN5.line_rate().unwrap(), 63.015_384_615_384_62e9);
        near(Link { generation: 4, width: 16 }.line_rate().unwrap(), 31.507_692_307_692_307e9);
        near(Link { generation: 3, width: 4 }.line_rate().unwrap(), 3.938_461_538_461_538e9);
        near(Link { generation: 1, width: 1 }.line_rate().unwrap(), 250e6);
        near(Link { generation: 2, width: 8 }.line_rate().unwrap(), 4e9);
        for (generation, width) in [(0, 16), (6, 16), (5, 0), (5, 3)] {
            assert_eq!(Link { generation, width }.line_rate(), None);
        }
        assert_eq!(Link::of_fact("generation 5 x16"), Some(GEN5));
        assert_eq!((Link::of_fact("generation 9 x16"), Link::of_fact("5 x16")), (None, None));
    }

    /// 4096 bytes: 16 writes of 256 are 16 * 24 + 4096 = 4480 bytes, 32 of 128 are 4864. 16 completions are 16 * 20 + 4096 = 4416, 64 of one cache
    /// line are 5376, and 8 requests of 512 are 192.
    #[test]
    fn packets_are_counted_as_by_hand() {
        let (none, p) = (Beside::default(), Packets::default());
        let of = |p: Packets, access| p.tlp_bytes(access, 0, 4096, &none);
        assert_eq!(of(p, Access::Write), Bytes { along: 4480.0, against: 0.0 });
        let short = Packets { max_payload: 128, completion: 128, ..p };
        assert_eq!(of(short, Access::Write), Bytes { along: 4864.0, against: 0.0 });
        assert_eq!(of(p, Access::Read), Bytes { along: 4416.0, against: 192.0 });
        assert_eq!(of(p.with_short_completions(), Access::Read), Bytes { along: 5376.0, against: 192.0 });
        let checked = Packets { ecrc: true, ..p };
        assert_eq!(of(checked, Access::Write).along, 4544.0);
        near(p.factor(Access::Write, 4096, &none), 1.09375);
        near(short.factor(Access::Write, 4096, &none), 1.1875);
        near(p.factor(Access::Read, 512, &none), (512.0 + 40.0) / 512.0);
        // 16 TLPs cause 4 acknowledgements and 4 credits of 8 bytes in the other direction.
        assert_eq!(p.link_bytes(Access::Write, 0, 4096, &none), Bytes { along: 4480.0, against: 64.0 });
        // 8 requests cause 4 DLLPs along the completions; 16 completions cause 8 along the requests.
        assert_eq!(p.link_bytes(Access::Read, 0, 4096, &none), Bytes { along: 4448.0, against: 256.0 });
    }

    #[test]
    fn writes_besides_an_io_count_in_their_direction() {
        // A doorbell of 4 bytes along, a completion entry of 16 against.
        let beside = Beside { along: vec![4], against: vec![16] };
        let p = Packets::default();
        assert_eq!(p.tlp_bytes(Access::Write, 0, 512, &beside), Bytes { along: 512.0 + 48.0 + 28.0, against: 40.0 });
    }

    #[test]
    fn an_io_that_begins_within_a_block_touches_one_more() {
        let (none, p) = (Beside::default(), Packets::default());
        let of = |at, bytes| p.tlp_bytes(Access::Write, at, bytes, &none).along - bytes as f64;
        assert_eq!((of(0, 256), of(255, 1), of(255, 2), of(1, 256), of(0, 0)), (24.0, 24.0, 48.0, 48.0, 0.0));
    }

    #[test]
    fn the_reachable_rate_is_that_of_the_fuller_way() {
        let (none, p) = (Beside::default(), Packets::default());
        let reachable = |p: Packets, access| p.reachable(GEN5, access, 4096, &none).unwrap();
        // 63.015 * 370/371 * 4096/4480 and 4096/4448.
        near(reachable(p, Access::Write), 63.015_384_615_384_62e9 * 370.0 / 371.0 * 4096.0 / 4480.0);
        near(reachable(p, Access::Read), 63.015_384_615_384_62e9 * 370.0 / 371.0 * 4096.0 / 4448.0);
        // The other direction may carry more: here a byte of payload, and 4 KiB against it.
        let back = Beside { along: Vec::new(), against: vec![4096] };
        let full = p.reachable(GEN5, Access::Write, 1, &back).unwrap();
        near(full, 63.015_384_615_384_62e9 * 370.0 / 371.0 / (4096.0 + 24.0 + 4.0));
        assert_eq!(p.reachable(Link { generation: 6, width: 16 }, Access::Write, 4096, &none), None);
    }

    #[test]
    fn packets_that_cannot_be_are_refused() {
        assert_eq!(Packets::default().check(), Ok(()));
        assert_eq!(Packets::default().with_short_completions().check(), Ok(()));
        for wrong in [
            Packets { max_payload: 100, ..Packets::default() },
            Packets { max_read_request: 8192, ..Packets::default() },
            Packets { read_completion_boundary: 32, ..Packets::default() },
            Packets { completion: 512, ..Packets::default() },
            Packets { completion: 0, ..Packets::default() },
            Packets { completion: 192, ..Packets::default() },
            Packets { tlps_per_ack: 0, ..Packets::default() },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }
}

//! An FPGA with Xilinx's XDMA as a card.

use crate::device::Card;
use crate::device_copy::engine::{Direction, Engine};
use crate::device_copy::on_bus::OnBus;
use crate::{Error, Unavailable};
use drivers::xdma::{self, Xdma};
use pcie::{Function, Memory};
use std::sync::Arc;
use std::time::Duration;

/// Default size of the card's memory: only memory that a route requests is used.
const MEMORY: u64 = 1 << 30;
/// Size of the buffer through which comparisons read and write the card's memory.
const BOUNCE: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(2);

/// Opens the card at an address on the bus: `0000:04:00.0`. For more or less memory than 1 GiB: `0000:04:00.0,memory=2GiB`. Without an IOMMU,
/// which would protect other programs' memory from it, only as `0000:04:00.0,without-iommu`.
///
/// # Errors
/// [`Unavailable`] if the function cannot be driven from here, with advice; errors of the card.
pub fn open(text: &str) -> Result<Arc<dyn Card>, Error> {
    let (address, memory, without_iommu) = parse(text).map_err(Unavailable::new)?;
    let card = XdmaCard::new(pcie::open(address, without_iommu)?, (0, memory))?;
    Ok(Arc::new(OnBus::new(card, ())))
}

/// The address, bytes of memory, and whether the card may be driven without an IOMMU.
fn parse(text: &str) -> Result<(&str, u64, bool), String> {
    let mut parts = text.split(',');
    let (address, mut memory, mut without_iommu) = (parts.next().unwrap_or_default(), MEMORY, false);
    for option in parts {
        match option {
            "without-iommu" => without_iommu = true,
            _ => memory = size(option)?,
        }
    }
    Ok((address, memory, without_iommu))
}

fn size(option: &str) -> Result<u64, String> {
    let wrong = || {
        format!("{option:?} says nothing of a card: memory=2GiB is how much it has, without-iommu that it needs none")
    };
    let size = option.strip_prefix("memory=").ok_or_else(wrong)?;
    let digits = size.len() - size.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = size.split_at(digits);
    let shift = match unit {
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return Err(wrong()),
    };
    let bytes = number.parse::<u64>().ok().and_then(|n| n.checked_mul(1 << shift)).filter(|bytes| *bytes > 0);
    bytes.ok_or_else(wrong)
}

/// The card, and host memory through which its own memory is read and written.
pub struct XdmaCard {
    xdma: Xdma,
    bounce: Memory,
}

impl XdmaCard {
    /// `own`: first address and length in bytes of the card's memory.
    ///
    /// # Errors
    /// Errors of the card and the bus.
    pub fn new(function: Box<dyn Function>, own: (u64, u64)) -> Result<XdmaCard, Error> {
        let xdma = Xdma::new(function, own).map_err(of)?;
        let bounce = xdma.function().allocate(BOUNCE)?;
        Ok(XdmaCard { xdma, bounce })
    }
}

/// The driver's error, as one of `workload`.
fn of(error: xdma::Error) -> Error {
    match error {
        xdma::Error::Pcie(error) => error.into(),
        xdma::Error::Idle => Error::Idle,
        xdma::Error::NotXdma { .. } | xdma::Error::NoChannel { .. } => Unavailable::new(error.to_string()).into(),
        other => Error::card(other),
    }
}

impl Engine for XdmaCard {
    fn about(&self) -> String {
        let function = self.xdma.function();
        let emulated = if function.is_functional() { ", emulated: nothing of its speed is shown" } else { "" };
        format!("the XDMA card at {} is the device{emulated}", function.identity().address)
    }

    fn function(&self) -> &dyn Function {
        self.xdma.function()
    }

    fn own(&self) -> (u64, u64) {
        self.xdma.own()
    }

    fn start(&mut self, direction: Direction, own: u64, memory: &Memory, at: u64, bytes: u64) -> Result<(), Error> {
        let direction = match direction {
            Direction::ToCard => xdma::Direction::H2c,
            Direction::FromCard => xdma::Direction::C2h,
        };
        self.xdma.start(direction, own, memory, at, bytes).map_err(of)
    }

    fn poll(&mut self) -> Result<bool, Error> {
        self.xdma.poll().map_err(of)
    }

    fn read_own(&mut self, own: u64, into: &mut [u8]) -> Result<(), Error> {
        let mut at = own;
        for part in into.chunks_mut(BOUNCE as usize) {
            let bytes = part.len() as u64;
            self.xdma.copy(xdma::Direction::C2h, at, &self.bounce, 0, bytes, PATIENCE).map_err(of)?;
            self.bounce.load(0, part)?;
            at += bytes;
        }
        Ok(())
    }

    fn write_own(&mut self, own: u64, from: &[u8]) -> Result<(), Error> {
        let mut at = own;
        for part in from.chunks(BOUNCE as usize) {
            let bytes = part.len() as u64;
            self.bounce.store(0, part)?;
            self.xdma.copy(xdma::Direction::H2c, at, &self.bounce, 0, bytes, PATIENCE).map_err(of)?;
            at += bytes;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_much_memory_it_has_may_be_said() {
        assert_eq!(parse("0000:04:00.0"), Ok(("0000:04:00.0", 1 << 30, false)));
        assert_eq!(parse("04:00.0,memory=2GiB"), Ok(("04:00.0", 2 << 30, false)));
        assert_eq!(parse("04:00.0,memory=2GiB,without-iommu"), Ok(("04:00.0", 2 << 30, true)));
        assert_eq!(parse("04:00.0,without-iommu"), Ok(("04:00.0", 1 << 30, true)));
        assert_eq!(parse("04:00.0,memory=64KiB").unwrap().1, 64 << 10);
        for wrong in ["a,2GiB", "a,memory=2", "a,memory=GiB", "a,memory=0MiB", "a,memory=99999999999999999999GiB", "a,"]
        {
            assert!(parse(wrong).unwrap_err().contains("memory=2GiB"), "{wrong}");
        }
    }
}

//! The address of a function: `0000:04:00.0`.

use std::fmt;
use std::str::FromStr;

/// Domain, bus, device and function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    pub domain: u32,
    pub bus: u8,
    /// 0 to 31.
    pub device: u8,
    /// 0 to 7.
    pub function: u8,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{}", self.domain, self.bus, self.device, self.function)
    }
}

/// Not the address of a PCI function.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no address of a PCI function: write it as lspci does, 0000:04:00.0 or 04:00.0")]
pub struct NoAddress(pub String);

impl FromStr for Address {
    type Err = NoAddress;

    /// With or without the domain.
    fn from_str(text: &str) -> Result<Address, NoAddress> {
        parse(text).ok_or_else(|| NoAddress(text.into()))
    }
}

fn parse(text: &str) -> Option<Address> {
    let (front, function) = text.rsplit_once('.')?;
    let (front, device) = front.rsplit_once(':')?;
    let (domain, bus) = front.split_once(':').unwrap_or(("0", front));
    let hex = |digits: &str, most: u32| {
        let plain = !digits.is_empty() && digits.len() <= 8 && digits.bytes().all(|b| b.is_ascii_hexdigit());
        plain.then(|| u32::from_str_radix(digits, 16).ok()).flatten().filter(|value| *value <= most)
    };
    Some(Address {
        domain: hex(domain, u32::MAX)?,
        bus: hex(bus, 0xff)? as u8,
        device: hex(device, 31)? as u8,
        function: hex(function, 7)? as u8,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_lspci_writes_it() {
        let found: Address = "0000:c4:1f.7".parse().unwrap();
        assert_eq!(found, Address { domain: 0, bus: 0xc4, device: 0x1f, function: 7 });
        assert_eq!(found.to_string(), "0000:c4:1f.7");
        assert_eq!("c4:1f.7".parse(), Ok(found));
        for wrong in ["", "04:00", "04:20.0", "04:00.8", "+4:00.0", "100:00.0", "1:2:3:4.0", "0000:04:00.0 "] {
            assert_eq!(wrong.parse::<Address>(), Err(NoAddress(wrong.into())), "{wrong}");
        }
    }
}

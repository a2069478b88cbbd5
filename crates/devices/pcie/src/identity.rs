//! The head of configuration space (PCI Local Bus Specification 3.0, section 6.1).

use crate::address::Address;
use crate::function::Identity;

/// The command register, and its bits "memory space" and "bus master".
pub(crate) const COMMAND: u16 = 4;
pub(crate) const MEMORY: u16 = 1 << 1;
pub(crate) const MASTER: u16 = 1 << 2;

/// Vendors whose devices are emulated: Red Hat (QEMU's NVMe), Red Hat (virtio, ivshmem), Bochs (edu).
const EMULATED: [u16; 3] = [0x1b36, 0x1af4, 0x1234];

fn word(head: &[u8; 64], at: usize) -> u16 {
    u16::from_le_bytes([head[at], head[at + 1]])
}

/// None where there is no function: ones everywhere.
pub(crate) fn parse(address: Address, head: &[u8; 64]) -> Option<Identity> {
    let vendor = word(head, 0);
    let class = u32::from(head[11]) << 16 | u32::from(head[10]) << 8 | u32::from(head[9]);
    (vendor != 0xffff).then_some(Identity { address, vendor, device: word(head, 2), class, revision: head[8] })
}

/// By its vendor, or by the subsystem's vendor: QEMU marks models of other vendors' devices like this.
pub(crate) fn is_emulated(head: &[u8; 64]) -> bool {
    let ordinary = head[14] & 0x7f == 0;
    EMULATED.contains(&word(head, 0)) || ordinary && EMULATED.contains(&word(head, 0x2c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read() {
        let mut head = [0; 64];
        head[..12].copy_from_slice(&[0x36, 0x1b, 0x10, 0, 7, 4, 0x10, 0, 2, 2, 8, 1]);
        let address = "04:00.0".parse().unwrap();
        let found = parse(address, &head).unwrap();
        assert_eq!(found, Identity { address, vendor: 0x1b36, device: 0x10, class: 0x01_08_02, revision: 2 });
        assert!(is_emulated(&head));
        head[..4].copy_from_slice(&[0x86, 0x80, 0x45, 0x58]);
        assert!(!is_emulated(&head));
        head[0x2c..0x2e].copy_from_slice(&[0xf4, 0x1a]);
        assert!(is_emulated(&head));
        // A bridge has no subsystem there.
        head[14] = 0x81;
        assert!(!is_emulated(&head));
        assert_eq!(parse(address, &[0xff; 64]), None);
    }
}

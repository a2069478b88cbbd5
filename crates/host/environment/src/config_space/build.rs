//! Synthetic configuration spaces: for models, and for tests of their readers.

use super::{EXTENDED, FIRST, HAS_CAPABILITIES, HEADER, STATUS, WHOLE};

/// A function with these capabilities, in sequence, and these beyond 256 bytes.
pub fn space(capabilities: &[(u8, &[u8])], extended: &[(u16, &[u8])]) -> Vec<u8> {
    let mut all = vec![0; WHOLE];
    all[STATUS] = HAS_CAPABILITIES as u8;
    let (mut link, mut at) = (FIRST, HEADER);
    for (id, body) in capabilities {
        all[link] = at as u8;
        all[at] = *id;
        all[at + 2..at + 2 + body.len()].copy_from_slice(body);
        link = at + 1;
        at = (at + 2 + body.len()).next_multiple_of(4);
    }
    let mut at = EXTENDED;
    for (i, (id, body)) in extended.iter().enumerate() {
        let next = (at + 4 + body.len()).next_multiple_of(4);
        let head = u32::from(*id) | 1 << 16 | if i + 1 < extended.len() { (next as u32) << 20 } else { 0 };
        all[at..at + 4].copy_from_slice(&head.to_le_bytes());
        all[at + 4..at + 4 + body.len()].copy_from_slice(body);
        at = next;
    }
    all
}

/// The body of a PCI Express capability of these registers.
pub fn express(able: u32, control: u16, link_able: u32, link_control: u16, link_status: u16) -> Vec<u8> {
    let mut body = vec![0x02, 0x00];
    body.extend(able.to_le_bytes());
    body.extend(control.to_le_bytes());
    body.extend([0, 0]);
    body.extend(link_able.to_le_bytes());
    body.extend(link_control.to_le_bytes());
    body.extend(link_status.to_le_bytes());
    body.extend([0; 32]);
    body
}

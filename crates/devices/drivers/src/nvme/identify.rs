//! Identify pages (Base 1.4, section 5.15.2): how a controller and a namespace describe themselves. Any bytes are read without a panic.

use crate::nvme::registers::PAGE;

/// One identify page.
pub type Page = [u8; PAGE as usize];

fn u16_at(page: &Page, at: usize) -> u16 {
    u16::from_le_bytes([page[at], page[at + 1]])
}

fn u32_at(page: &Page, at: usize) -> u32 {
    u32::from(u16_at(page, at)) | u32::from(u16_at(page, at + 2)) << 16
}

fn u64_at(page: &Page, at: usize) -> u64 {
    u64::from(u32_at(page, at)) | u64::from(u32_at(page, at + 4)) << 32
}

/// Padded ASCII. Characters that are not printable are shown as `?`.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let printable = |byte: &u8| if (0x20..0x7f).contains(byte) { char::from(*byte) } else { '?' };
    bytes[..end].iter().map(printable).collect::<String>().trim().to_string()
}

/// Identify Controller (figure 247).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerPage {
    pub serial: String,
    pub model: String,
    pub firmware: String,
    /// Maximum data of one command in bytes; none if there is no limit.
    pub largest_transfer: Option<u64>,
    pub namespaces: u32,
    /// It has a write cache that a flush empties (VWC).
    pub has_write_cache: bool,
}

impl ControllerPage {
    pub fn read(page: &Page) -> ControllerPage {
        let largest = page[77];
        ControllerPage {
            serial: text(&page[4..24]),
            model: text(&page[24..64]),
            firmware: text(&page[64..72]),
            largest_transfer: (largest > 0).then(|| PAGE.checked_shl(largest.into()).unwrap_or(0)).filter(|l| *l > 0),
            namespaces: u32_at(page, 516),
            has_write_cache: page[525] & 1 != 0,
        }
    }
}

/// Identify Namespace (figure 245): how a namespace is formatted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespacePage {
    pub blocks: u64,
    /// Bytes of a block's data.
    pub block_bytes: u64,
    /// Bytes of a block's metadata.
    pub metadata_bytes: u16,
    /// Metadata follows each block's data instead of being separate.
    pub metadata_inline: bool,
    pub is_write_protected: bool,
}

/// The command set of a namespace, by its list of descriptors (Base 2.0, section 5.17.2.3: type 4, one byte). 0 is NVM's, and also the default
/// without such a descriptor.
pub fn command_set(page: &Page) -> u8 {
    let mut at = 0;
    while at + 4 < page.len() && page[at] != 0 {
        let (kind, length) = (page[at], usize::from(page[at + 1]));
        if kind == 4 && length == 1 {
            return page[at + 4];
        }
        at += 4 + length;
    }
    0
}

/// A namespace that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    #[error("it has no blocks")]
    Empty,
    #[error("its command set is {}, and doorbell supports only plain blocks: a write would be lost or destroy a zone", command_set_name(*.0))]
    CommandSet(u8),
    #[error("its block size is 2^{0} B, which no format has")]
    BlockSize(u8),
    #[error("it counts {0} blocks, more bytes than an address has")]
    TooLarge(u64),
    #[error("each block has {bytes} B of metadata ({}), which doorbell neither writes nor checks", if *.inline { "behind the data" } else { "apart" })]
    Metadata { bytes: u16, inline: bool },
}

fn command_set_name(number: u8) -> String {
    match number {
        1 => "key value".into(),
        2 => "zoned".into(),
        other => format!("number {other}"),
    }
}

impl NamespacePage {
    /// # Errors
    /// [`Unusable`] for values that no format has.
    pub fn read(page: &Page) -> Result<NamespacePage, Unusable> {
        let blocks = u64_at(page, 0);
        let flbas = page[26];
        // Bits 6:5 count where there are more than 16 formats (Base 2.0, figure 280).
        let high = if page[25] > 15 { flbas >> 5 & 3 } else { 0 };
        let format = u32_at(page, 128 + 4 * usize::from(flbas & 0xf | high << 4));
        let exponent = (format >> 16) as u8;
        if blocks == 0 {
            return Err(Unusable::Empty);
        }
        if !(9..=16).contains(&exponent) {
            return Err(Unusable::BlockSize(exponent));
        }
        let block_bytes = 1u64 << exponent;
        blocks.checked_mul(block_bytes).ok_or(Unusable::TooLarge(blocks))?;
        Ok(NamespacePage {
            blocks,
            block_bytes,
            metadata_bytes: format as u16,
            metadata_inline: flbas & 0x10 != 0,
            is_write_protected: page[99] & 1 != 0,
        })
    }

    /// # Errors
    /// [`Unusable::Metadata`]: the driver moves data alone.
    pub fn usable(&self) -> Result<(), Unusable> {
        match self.metadata_bytes {
            0 => Ok(()),
            bytes => Err(Unusable::Metadata { bytes, inline: self.metadata_inline }),
        }
    }

    pub fn bytes(&self) -> u64 {
        self.blocks * self.block_bytes
    }
}

/// The numbers of an Active Namespace ID list (section 5.15.2.3): ascending, up to the first zero. None if they are not ascending.
pub fn active(page: &Page, above: u32) -> Option<Vec<u32>> {
    let numbers = (0..PAGE as usize / 4).map(|at| u32_at(page, 4 * at)).take_while(|number| *number != 0);
    let numbers: Vec<u32> = numbers.collect();
    let ascend = numbers.windows(2).all(|two| two[0] < two[1]) && numbers.first().is_none_or(|first| *first > above);
    (ascend && numbers.last().is_none_or(|last| *last < 0xffff_fffe)).then_some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn page() -> Page {
        [0; PAGE as usize]
    }

    #[test]
    fn a_controller_identifies_itself() {
        let mut page = page();
        page[4..8].copy_from_slice(b"x   ");
        page[24..40].copy_from_slice(b"QEMU NVMe Ctrl  ");
        page[77] = 7;
        page[516] = 2;
        let found = ControllerPage::read(&page);
        assert_eq!((found.serial.as_str(), found.model.as_str()), ("x", "QEMU NVMe Ctrl"));
        assert_eq!((found.largest_transfer, found.namespaces), (Some(512 << 10), 2));
        page[77] = 0;
        assert_eq!(ControllerPage::read(&page).largest_transfer, None);
    }

    #[test]
    fn metadata_and_strange_formats_are_refused() {
        let mut page = page();
        assert_eq!(NamespacePage::read(&page), Err(Unusable::Empty));
        page[0] = 100;
        assert_eq!(NamespacePage::read(&page), Err(Unusable::BlockSize(0)));
        page[128 + 2] = 12;
        let plain = NamespacePage::read(&page).unwrap();
        assert_eq!((plain.block_bytes, plain.bytes(), plain.usable()), (4096, 409_600, Ok(())));
        page[128] = 8;
        page[26] = 0x10;
        let with = NamespacePage::read(&page).unwrap();
        assert_eq!(with.usable(), Err(Unusable::Metadata { bytes: 8, inline: true }));
        page[7] = 0xff;
        assert!(matches!(NamespacePage::read(&page), Err(Unusable::TooLarge(_))));
    }

    #[test]
    fn a_list_ascends_or_is_none() {
        let mut page = page();
        assert_eq!(active(&page, 0), Some(vec![]));
        page[0] = 1;
        page[4] = 5;
        assert_eq!(active(&page, 0), Some(vec![1, 5]));
        assert_eq!(active(&page, 1), None);
        page[8] = 5;
        assert_eq!(active(&page, 0), None);
        assert_eq!(active(&[0xff; PAGE as usize], 0), None);
    }

    proptest! {
        #[test]
        fn any_page_is_read_without_panic(seed in proptest::collection::vec(any::<u8>(), 4096), above: u32) {
            let page: Page = seed.try_into().unwrap();
            let _ = format!("{:?}", ControllerPage::read(&page));
            if let Ok(found) = NamespacePage::read(&page) {
                prop_assert!(found.bytes() >= found.block_bytes && found.block_bytes >= 512);
            }
            let _ = active(&page, above);
            let _ = command_set(&page);
        }
    }
}

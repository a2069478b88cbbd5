//! The classes that channels use on each architecture, and the architectures on which they were seen to work.
//!
//! One table: a new architecture is a row, and `seen` becomes true only when `doorbell selftest` has passed on such a GPU. No other module of this crate
//! names a class of channels, copies or compute.

use crate::error::Error;
use rm::class;

/// The classes of one architecture.
///
/// Source: the newest of each kind that the driver lists for these chips (`g_gpu_class_list.c`, open-gpu-kernel-modules 595.45.04). Older classes that a
/// chip also lists are not used: a GB100 also lists HOPPER_CHANNEL_GPFIFO_A and HOPPER_USERMODE_A.
#[derive(Debug, PartialEq, Eq)]
pub struct Architecture {
    pub name: &'static str,
    /// Chips that have these classes.
    pub chips: &'static str,
    /// The compute class. A GPU lists exactly one, and it differs in every row: it identifies the architecture.
    pub compute: u32,
    pub usermode: u32,
    pub channel: u32,
    pub copy: u32,
    /// The version of QMDs in launches, `(major, minor)`: as observed from CUDA, or the newest in the class reference.
    pub qmd: (u8, u8),
    /// Whether channels were seen to work on hardware.
    pub seen: bool,
}

/// From the oldest to the newest.
pub static ARCHITECTURES: [Architecture; 8] = [
    row("Volta", "GV100: V100", [0xc3c0, 0xc361, 0xc36f, 0xc3b5], (2, 2)),
    row("Turing", "TU102 to TU117", [0xc5c0, 0xc461, 0xc46f, 0xc5b5], (2, 3)),
    row("Ampere", "GA100: A100, A30", [0xc6c0, 0xc561, 0xc56f, 0xc6b5], (3, 0)),
    row("Ampere", "GA102 to GA107: A40, A10, RTX 30", [0xc7c0, 0xc561, 0xc56f, 0xc7b5], (3, 0)),
    row("Ada", "AD102 to AD107: L40, L4, RTX 40", [0xc9c0, 0xc561, 0xc56f, 0xc7b5], (3, 0)),
    HOPPER,
    row("Blackwell", "GB100 to GB112: B200, B300", [0xcdc0, 0xc661, 0xc96f, 0xc9b5], (5, 1)),
    row("Blackwell", "GB202 to GB20C: RTX PRO 6000, RTX 50", [0xcec0, 0xc761, 0xca6f, 0xcab5], (5, 1)),
];

/// The architecture on which channels, copies and launches were seen, with drivers 570 and 580.
pub const HOPPER: Architecture = Architecture {
    name: "Hopper",
    chips: "GH100: H100, H200",
    compute: class::HOPPER_COMPUTE_A,
    usermode: class::HOPPER_USERMODE_A,
    channel: class::HOPPER_CHANNEL_GPFIFO_A,
    copy: class::HOPPER_DMA_COPY_A,
    qmd: (4, 0),
    seen: true,
};

const fn row(
    name: &'static str,
    chips: &'static str,
    [compute, usermode, channel, copy]: [u32; 4],
    qmd: (u8, u8),
) -> Architecture {
    Architecture { name, chips, compute, usermode, channel, copy, qmd, seen: false }
}

impl Architecture {
    /// The architecture of a GPU, from the classes that its driver lists.
    pub fn of(classes: &[u32]) -> Option<&'static Architecture> {
        ARCHITECTURES.iter().find(|architecture| classes.contains(&architecture.compute))
    }

    /// The architecture of a GPU on which channels were seen to work.
    ///
    /// # Errors
    /// [`Error::Architecture`] for every other GPU; [`Error::NoClass`] if the driver does not list a class of this architecture.
    pub fn seen(classes: &[u32]) -> Result<&'static Architecture, Error> {
        let Some(found) = Architecture::of(classes) else {
            let compute = classes.iter().copied().filter(|class| class::is_compute(*class)).max();
            let what = match compute {
                Some(class) => match class::name(class) {
                    Some(name) => format!("a GPU with {name} ({class:#x}), which is in no table of this version"),
                    None => format!("a GPU with the compute class {class:#x}, which is in no table of this version"),
                },
                None => "a GPU without a compute class that is known".into(),
            };
            return Err(Error::Architecture(what));
        };
        if !found.seen {
            let compute = class::name(found.compute).unwrap_or("a class without a name");
            return Err(Error::Architecture(format!("{} ({}), {compute}", found.name, found.chips)));
        }
        if classes.contains(&found.usermode) { Ok(found) } else { Err(Error::NoClass(found.usermode)) }
    }

    /// Bytes of a QMD: 256 up to version 3, 384 after. (Does not use the class tables: launches call this.)
    pub const fn qmd_bytes(&self) -> u64 {
        if self.qmd.0 < 4 { 256 } else { 384 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pushbuf::qmd::Layout;

    #[test]
    fn every_class_has_a_name_and_methods_and_every_qmd_its_fields() {
        for architecture in &ARCHITECTURES {
            for id in [architecture.compute, architecture.channel, architecture.copy] {
                let table = pushbuf::class::by_id(id).unwrap_or_else(|| panic!("{id:#x} of {architecture:?}"));
                assert_eq!(class::name(id), Some(table.name));
            }
            assert!(rm::abi::is_channel_class(architecture.channel), "{architecture:?}");
            assert!(rm::abi::is_usermode_class(architecture.usermode), "{architecture:?}");
            assert!(class::is_copy(architecture.copy) && class::is_compute(architecture.compute), "{architecture:?}");
            let (major, minor) = architecture.qmd;
            let layout = Layout::of(major, minor).unwrap_or_else(|| panic!("{architecture:?}"));
            assert_eq!(architecture.qmd_bytes(), 4 * layout.words() as u64);
        }
        let mut compute: Vec<u32> = ARCHITECTURES.iter().map(|architecture| architecture.compute).collect();
        compute.sort_unstable();
        compute.dedup();
        assert_eq!(compute.len(), ARCHITECTURES.len());
        let seen: Vec<_> = ARCHITECTURES.iter().filter(|architecture| architecture.seen).collect();
        assert_eq!(seen, [&HOPPER]);
    }

    /// A GB100 also lists Hopper's channel and usermode classes: by those alone it would be mistaken for Hopper.
    #[test]
    fn what_was_not_seen_is_refused_by_name() {
        let refused = |classes: &[u32]| Architecture::seen(classes).unwrap_err().to_string();
        let text = refused(&[0xc46f, 0xc661, 0xc86f, 0xc96f, 0xc9b5, 0xcdc0, 0xcd40]);
        assert!(text.contains("Blackwell (GB100 to GB112: B200, B300), BLACKWELL_COMPUTE_A"), "{text}");
        assert!(text.contains("`doorbell record`"), "{text}");
        for architecture in ARCHITECTURES.iter().filter(|architecture| !architecture.seen) {
            let text = refused(&[architecture.usermode, architecture.channel, architecture.copy, architecture.compute]);
            assert!(text.contains(architecture.name) && text.contains(architecture.chips), "{text}");
        }
        assert!(refused(&[0xc661, 0xd1c0]).contains("the compute class 0xd1c0, which is in no table"));
        assert!(refused(&[0xc661, 0xc4c0]).contains("VOLTA_COMPUTE_B (0xc4c0)"));
        assert!(refused(&[0xc661]).contains("without a compute class"));
        let hopper = [HOPPER.usermode, HOPPER.channel, HOPPER.copy, HOPPER.compute];
        assert_eq!(Architecture::seen(&hopper).unwrap(), &HOPPER);
        assert!(matches!(Architecture::seen(&hopper[1..]), Err(Error::NoClass(0xc661))));
    }
}

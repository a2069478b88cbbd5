//! The driver branches: for each, its versions, where its layouts are from, and what differs.
//!
//! Structs and numbers that are the same everywhere are in the rest of this module.
//!
//! # To add one
//!
//! - Add a row to [`BRANCHES`]: `headers` if NVIDIA's published headers were compiled, else `unverified`.
//! - Add its facts. With a clone of the headers: a line `# tags` in `tests/abi.tsv` (branch, first and last tag), then the command at the head of
//!   that file. Only that command gives all facts, which a `headers` branch needs.
//! - Without a clone: `tests/gvisor.tsv`. Add a line `# versions`, add the branch's number to each line that holds for it (`sed` can append it
//!   to those of the branch before), and add a line for each new fact.
//! - Run `cargo test -p rm`. It names each struct that differs, and each row that no check compares.
//! - A new member in a struct that became longer: declare it in `abi/mod.rs`, `control.rs` or `uvm.rs`. Cut it out of all older branches, in a
//!   constant with what differs from the branch before. A branch without a cut uses the older constant: 620 has `V610`.
//! - A new member in former padding needs no cut. Name it in place of `pad`. Assert its row as `bStaticBar1WriteCombined`'s is, in
//!   `structs_lie_as_in_the_headers` or `structs_lie_as_in_gvisor`, whichever table has the row.
//! - Run `cargo test -p gpu -p doctor` and `cargo test -p doorbell --test driver_branches --test house`. `house` names the pages that list the
//!   branches. Add a line to CHANGELOG.md.

use super::control::{BuildVersion, CeAllCaps, ClassListV2, ProbedIds, Schedule, StaticBar1Info};
use super::shape::Cuts;
use super::{ChannelAllocFull, MemoryAlloc, Nvos46, Nvos47, Shape, VaspaceAlloc, uvm};

/// A driver branch: releases whose version begins with the same number.
#[derive(Debug)]
pub struct Branch {
    pub number: u32,
    /// First version whose layouts are known to be these.
    pub first: &'static str,
    /// Last such version. To raise it to a newer patch, either compile that patch's headers (its tag becomes the last of the branch's line `# tags` in
    /// `tests/abi.tsv`, and `tests/headers.rs` passes), or name the patch in `tests/gvisor.tsv`, the second source, which gives it the layouts of a compiled one.
    pub last: &'static str,
    pub source: Source,
    /// Versions with which recordings and own channels were seen working on a GPU.
    pub seen: &'static [&'static str],
    pub layouts: Layouts,
}

/// Where a branch's layouts are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Compiled from the headers that NVIDIA publishes.
    Headers,
    /// Second hand. Recording works; own channels are for users who accept it.
    Unverified,
}

/// What differs between branches.
#[derive(Debug)]
pub struct Layouts {
    /// RM_MAP_MEMORY_DMA
    pub map_dma: Shape<Nvos46>,
    /// RM_UNMAP_MEMORY_DMA
    pub unmap_dma: Shape<Nvos47>,
    pub memory_alloc: Shape<MemoryAlloc>,
    pub channel_alloc: Shape<ChannelAllocFull>,
    pub vaspace_alloc: Shape<VaspaceAlloc>,
    pub schedule: Shape<Schedule>,
    pub class_list_v2: Shape<ClassListV2>,
    pub probed_ids: Shape<ProbedIds>,
    pub build_version: Shape<BuildVersion>,
    pub ce_all_caps: Shape<CeAllCaps>,
    pub static_bar1: Shape<StaticBar1Info>,
    pub uvm_unregister_channel: Shape<uvm::UnregisterChannel>,
    pub uvm_free: Shape<uvm::Range>,
    pub uvm_map_external: Shape<uvm::MapExternal>,
    pub uvm_semaphore_pool: Shape<uvm::SemaphorePool>,
}

const V535: Layouts = Layouts {
    // No flags2, no kind_override.
    map_dma: Shape::without(&[(36, 44)]),
    // No size.
    unmap_dma: Shape::without(&[(32, 40)]),
    // No numa_node.
    memory_alloc: Shape::without(&[(120, 128)]),
    // No handle_va_space, no tpc_config_id.
    channel_alloc: Shape::without(&[(32, 36), (68, 72), (368, 376)]),
    // No pasid.
    vaspace_alloc: Shape::without(&[(48, 56)]),
    // No skip_enable.
    schedule: Shape::without(&[(2, 3)]),
    // 160 classes.
    class_list_v2: Shape::without(&[(644, 804)]),
    // No flags.
    probed_ids: Shape::without(&[(256, 384)]),
    // No branch.
    build_version: Shape::without(&[(512, 768)]),
    // 32 engines.
    ce_all_caps: Shape::without(&[(64, 128), (132, 136)]),
    static_bar1: Shape::without(&[(0, 24)]),
    uvm_unregister_channel: Shape::whole(),
    uvm_free: Shape::whole(),
    // 32 GPUs.
    uvm_map_external: Shape::without(&[(1176, 9240)]),
    uvm_semaphore_pool: Shape::without(&[(1168, 9232)]),
};

const V545: Layouts = Layouts { memory_alloc: Shape::whole(), ce_all_caps: Shape::whole(), ..V535 };

const V550: Layouts = Layouts {
    unmap_dma: Shape::whole(),
    // 174 classes.
    class_list_v2: Shape::without(&[(700, 804)]),
    uvm_map_external: Shape::whole(),
    uvm_semaphore_pool: Shape::whole(),
    ..V545
};

// 100 classes.
const V555: Layouts = Layouts { class_list_v2: Shape::without(&[(404, 804)]), ..V550 };

const V560: Layouts = Layouts { build_version: Shape::whole(), ..V555 };

// No start.
const V565: Layouts = Layouts { static_bar1: Shape::without(&[(8, 16)]), ..V560 };

const V570: Layouts = Layouts {
    // No handle_va_space.
    channel_alloc: Shape::without(&[(32, 36), (68, 72)]),
    static_bar1: Shape::whole(),
    ..V565
};

const V575: Layouts = Layouts { schedule: Shape::whole(), ..V570 };

const V580: Layouts = Layouts {
    map_dma: Shape::whole(),
    vaspace_alloc: Shape::whole(),
    class_list_v2: Shape::whole(),
    probed_ids: Shape::whole(),
    ..V575
};

const V590: Layouts = Layouts {
    // No uuid.
    uvm_unregister_channel: Shape::without(&[(0, 16)]),
    // No length.
    uvm_free: Shape::without(&[(8, 16)]),
    ..V580
};

const V610: Layouts = Layouts { channel_alloc: Shape::whole(), ..V590 };

const fn headers(number: u32, first: &'static str, last: &'static str, layouts: Layouts) -> Branch {
    Branch { number, first, last, source: Source::Headers, seen: &[], layouts }
}

const fn unverified(number: u32, first: &'static str, last: &'static str, layouts: Layouts) -> Branch {
    Branch { number, first, last, source: Source::Unverified, seen: &[], layouts }
}

/// Every branch, the oldest first. The second source of the last versions, and of 615 and 620, is the sandbox gVisor: its facts are
/// `tests/gvisor.tsv`.
pub static BRANCHES: [Branch; 14] = [
    headers(535, "535.86.05", "535.309.01", V535),
    headers(545, "545.23.06", "545.29.06", V545),
    headers(550, "550.54.14", "550.163.01", V550),
    headers(555, "555.42.02", "555.58.02", V555),
    headers(560, "560.28.03", "560.35.03", V560),
    headers(565, "565.57.01", "565.77", V565),
    headers(570, "570.86.15", "570.211.01", V570),
    headers(575, "575.51.02", "575.64.05", V575),
    Branch { seen: &["580.159.04"], ..headers(580, "580.65.06", "580.173.02", V580) },
    headers(590, "590.44.01", "590.48.01", V590),
    headers(595, "595.44.02", "595.71.05", V590),
    // Python bindings generated from the headers of 610.43.03 (tinygrad, `nv_610.py`).
    unverified(610, "610.43.02", "610.57.04", V610),
    unverified(615, "615.15.00", "615.62.00", V610),
    unverified(620, "620.06.00", "620.06.00", V610),
];

/// The branch that is assumed where no version is known: the one seen on hardware.
pub const USUAL: u32 = 580;

impl Branch {
    /// Its place in [`BRANCHES`].
    pub fn index(&self) -> usize {
        BRANCHES.iter().position(|b| b.number == self.number).unwrap_or(0)
    }

    /// The branch whose layouts a driver with this number most likely has: its own, else the one before it, else the first.
    pub fn nearest(number: u32) -> &'static Branch {
        let [first, ..] = &BRANCHES;
        BRANCHES.iter().rfind(|b| b.number <= number).unwrap_or(first)
    }

    /// The branch of [`USUAL`].
    pub fn usual() -> &'static Branch {
        Branch::nearest(USUAL)
    }

    /// The parts of a UVM request's declared struct that the branch does not have.
    pub const fn uvm_cuts(&self, request: u64) -> Cuts {
        match request {
            uvm::UNREGISTER_CHANNEL => self.layouts.uvm_unregister_channel.cuts(),
            uvm::FREE => self.layouts.uvm_free.cuts(),
            uvm::MAP_EXTERNAL_ALLOCATION => self.layouts.uvm_map_external.cuts(),
            uvm::ALLOC_SEMAPHORE_POOL => self.layouts.uvm_semaphore_pool.cuts(),
            _ => &[],
        }
    }
}

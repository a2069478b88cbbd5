//! One kernel of a graph, and its QMD.

use crate::words::places::Places;
use pushbuf::qmd::{Layout, Qmd};

/// DEPENDENT_QMD_ACTION: what a kernel does to the next when it is done.
pub const SCHEDULE: u64 = 1;
pub const DECREMENT: u64 = 4;

/// Bank 0 begins with data that the driver passes to each kernel; its parameters follow.
pub(crate) const BANK_HEADER: u64 = 0x210;
/// Offsets at which that header holds the address of the QMD, the bank, the first parameter and the end of the parameters (driver 580.159.04,
/// H200).
pub(crate) const BANK_NAMES: [usize; 4] = [0x38, 0xc0, 0x198, 0x1a0];
/// Bytes of a bank 0 with few parameters.
const BANK_BYTES: u64 = 0x300;

/// Bank 5 of a kernel is bank 0 of the next, which is fetched when the kernel has run (CONSTANT_BUFFER_PREFETCH: PREFETCH_POST).
const NEXT_BANK: u32 = 5;
const PREFETCH_POST: u64 = 2;

/// What all QMDs of a recording had.
const ALWAYS: [(&str, u64); 15] = [
    ("QMD_TYPE", 2),
    ("QMD_GROUP_ID", 0x3f),
    ("SASS_VERSION", 0x90),
    ("API_VISIBLE_CALL_LIMIT", 1),
    ("SAMPLER_INDEX", 1),
    ("SHADER_LOCAL_MEMORY_HIGH_SIZE", 0x640),
    ("INVALIDATE_TEXTURE_HEADER_CACHE", 1),
    ("INVALIDATE_TEXTURE_SAMPLER_CACHE", 1),
    ("INVALIDATE_TEXTURE_DATA_CACHE", 1),
    ("INVALIDATE_SHADER_DATA_CACHE", 1),
    ("MIN_SM_CONFIG_SHARED_MEM_SIZE", 5),
    ("MAX_SM_CONFIG_SHARED_MEM_SIZE", 0x3a),
    ("TARGET_SM_CONFIG_SHARED_MEM_SIZE", 9),
    ("REGISTER_COUNT", 16),
    ("BARRIER_COUNT", 1),
];

/// One kernel: its grid and code, the kernels that it starts, and how.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Blocks. If one is 0, the QMD runs no kernel and has no bank: it only starts others.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Address of the code; `None`: [`Places::code`].
    pub code: Option<u64>,
    /// Bytes of bank 0 from 0x210 on: at most 0x4f0, because banks are [`Places::BANK_BYTES`] apart.
    pub parameters: Vec<u8>,
    /// The kernels that it acts on when it is done, up to two, each with [`SCHEDULE`] or [`DECREMENT`].
    pub then: Vec<(usize, u64)>,
    /// DEPENDENCE_COUNTER: how often it must be decremented before it runs.
    pub waits_for: u64,
    /// The counter that it adds 1 to.
    pub releases: Option<usize>,
    /// Other fields of its QMD, set last.
    pub fields: Vec<(&'static str, u64)>,
}

/// A kernel of 8 blocks of 128 threads without followers.
impl Default for Kernel {
    fn default() -> Kernel {
        Kernel {
            grid: [8, 1, 1],
            block: [128, 1, 1],
            code: None,
            parameters: vec![0; 16],
            then: Vec::new(),
            waits_for: 0,
            releases: None,
            fields: Vec::new(),
        }
    }
}

impl Kernel {
    /// A QMD without blocks that acts on others.
    pub fn order(then: &[(usize, u64)]) -> Kernel {
        Kernel { grid: [0; 3], parameters: Vec::new(), then: then.to_vec(), ..Kernel::default() }
    }

    /// Whether it has no blocks.
    pub fn is_empty(&self) -> bool {
        self.grid.contains(&0)
    }

    /// Bytes of its bank 0.
    pub fn bank_bytes(&self) -> u64 {
        (BANK_HEADER + self.parameters.len() as u64).next_multiple_of(64).max(BANK_BYTES)
    }

    /// The QMD of kernel number `i` in its graph. `armed`: by the upload, which must not run it. `next`: the kernel that its first dependent is, with
    /// its number.
    pub fn qmd(&self, i: usize, armed: bool, next: Option<(usize, &Kernel)>, at: &Places) -> Qmd {
        let mut qmd = Qmd::new(Layout::of(4, 0).expect("version 4.0 is known"));
        let mut set = |name: &str, value: u64| qmd.set(name, value).expect("a field of version 4.0");
        ALWAYS.iter().for_each(|(name, value)| set(name, *value));
        set("DEPENDENCE_COUNTER", self.waits_for);
        if armed {
            set("REQUIRE_SCHEDULING_PCAS", 1);
            set("SELF_COPY_ON_COMPLETION", 1);
        }
        for (name, threads) in
            ["CTA_THREAD_DIMENSION0", "CTA_THREAD_DIMENSION1", "CTA_THREAD_DIMENSION2"].iter().zip(self.block)
        {
            set(name, threads.into());
        }
        if !self.is_empty() {
            // (1 KiB of each block is the system's.)
            set("SHARED_MEMORY_SIZE", 0x400);
            for (name, blocks) in ["GRID_WIDTH", "GRID_HEIGHT", "GRID_DEPTH"].iter().zip(self.grid) {
                set(name, blocks.into());
            }
            let code = self.code.unwrap_or(at.code);
            set("PROGRAM_ADDRESS_LOWER", code & 0xffff_ffff);
            set("PROGRAM_ADDRESS_UPPER", code >> 32);
        }
        self.banks(&mut qmd, i, next, at);
        self.dependents(&mut qmd, at);
        self.release(&mut qmd, at);
        self.fields.iter().for_each(|(name, value)| qmd.set(name, *value).expect("a field of version 4.0"));
        qmd
    }

    fn banks(&self, qmd: &mut Qmd, i: usize, next: Option<(usize, &Kernel)>, at: &Places) {
        let mut banks = Vec::new();
        if !self.is_empty() {
            banks.push((0, at.bank(i), self.bank_bytes()));
            let shared = at.shared_banks.map(|all| [(1, all + Places::BANK_1, 0x900), (7, all, 0x10000)]);
            banks.extend(shared.into_iter().flatten());
        }
        if let Some((n, next)) = next.filter(|(_, next)| !next.is_empty()) {
            banks.push((NEXT_BANK, at.bank(n), next.bank_bytes()));
            qmd.set_element("CONSTANT_BUFFER_PREFETCH", NEXT_BANK, PREFETCH_POST).expect("one of 8 banks");
        }
        for (number, address, bytes) in banks {
            let mut set = |name, value| qmd.set_element(name, number, value).expect("one of 8 banks");
            set("CONSTANT_BUFFER_VALID", 1);
            set("CONSTANT_BUFFER_SIZE_SHIFTED4", bytes >> 4);
            qmd.set_constant_buffer(number, address).expect("a bank at a multiple of 64");
        }
    }

    fn dependents(&self, qmd: &mut Qmd, at: &Places) {
        for (slot, (to, action)) in (0..).zip(&self.then) {
            let mut set = |name, value| qmd.set_element(name, slot, value).expect("one of two dependents");
            set("DEPENDENT_QMD_ENABLE", 1);
            set("DEPENDENT_QMD_ACTION", *action);
            qmd.set_dependent(slot, at.qmd(*to)).expect("a QMD at a multiple of 256 below 2^40");
        }
    }

    fn release(&self, qmd: &mut Qmd, at: &Places) {
        let Some(counter) = self.releases else { return };
        for name in ["RELEASE_ENABLE", "RELEASE_STRUCTURE_SIZE", "RELEASE_REDUCTION_ENABLE"] {
            qmd.set_element(name, 0, 1).expect("one of three releases");
        }
        qmd.set("RELEASE_SEMAPHORE0_PAYLOAD_LOWER", 1).expect("a field of version 4.0");
        qmd.set_release(0, at.counter(counter)).expect("a counter's address");
    }
}

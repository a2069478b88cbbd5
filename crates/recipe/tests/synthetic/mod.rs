//! Graphs as CUDA 13.0 writes them on an H200, made by hand: the upload and the launches after it.
#![allow(dead_code)] // each test binary uses a part

use pushbuf::encode::{Words, inline_dma, launch_dma, offset};
use pushbuf::qmd::{Layout, PcasAction, Qmd};
use pushbuf::semaphore::{Execute, Operation};
use recipe::{Channel, Recipe, Refused, Segment, learn};

pub const QMD_AT: u64 = 0x2_04c0_0000;
pub const BANK_AT: u64 = 0x7f63_da01_0000;
pub const COUNTER_AT: u64 = 0x2_0462_7000;
pub const TRACKER: u64 = 0x2_0460_ffe0;
pub const CODE: u64 = 0x7f63_db7a_0000;
pub const USER: u64 = 0x7f00_2000_0000;
const COMPUTE: u8 = 1;
const COPY: u8 = 4;
const INLINE: u32 = inline_dma::PITCH | inline_dma::NO_SYSMEMBAR;
pub const SCHEDULE: u64 = 1;
pub const DECREMENT: u64 = 4;

pub fn channel() -> Channel {
    Channel { class: 0xc86f, engines: vec![0xcbc0, 0xc8b5], group: Some(0x5c00_0010) }
}

pub fn qmd_at(i: usize) -> u64 {
    QMD_AT + 0x200 * i as u64
}

pub fn bank_at(i: usize) -> u64 {
    BANK_AT + 0x700 * i as u64
}

pub fn counter_at(group: usize) -> u64 {
    COUNTER_AT + 8 * group as u64
}

/// One kernel: whom it starts, and how.
#[derive(Clone, Debug, Default)]
pub struct Kernel {
    pub then: Vec<(usize, u64)>,
    pub waits_for: u64,
    /// The counter that it releases.
    pub releases: Option<usize>,
    /// Runs nothing.
    pub empty: bool,
    /// Other fields of its QMD.
    pub fields: Vec<(&'static str, u64)>,
}

impl Kernel {
    pub fn qmd(&self, i: usize) -> Qmd {
        let mut qmd = Qmd::new(Layout::of(4, 0).unwrap());
        let mut set = |name: &str, value| qmd.set(name, value).unwrap();
        set("QMD_TYPE", 2);
        set("QMD_GROUP_ID", 0x3f);
        set("DEPENDENCE_COUNTER", self.waits_for);
        set("CTA_THREAD_DIMENSION0", 128);
        set("CTA_THREAD_DIMENSION1", 1);
        set("CTA_THREAD_DIMENSION2", 1);
        set("REGISTER_COUNT", 16);
        set("API_VISIBLE_CALL_LIMIT", 1);
        set("SHADER_LOCAL_MEMORY_HIGH_SIZE", 0x640);
        if !self.empty {
            set("GRID_WIDTH", 8);
            set("GRID_HEIGHT", 1);
            set("GRID_DEPTH", 1);
            set("PROGRAM_ADDRESS_LOWER", CODE & 0xffff_ffff);
            set("PROGRAM_ADDRESS_UPPER", CODE >> 32);
        }
        self.fields.iter().for_each(|(name, value)| qmd.set(name, *value).unwrap());
        let banks: &[(u32, u64, u64)] = if self.empty {
            &[]
        } else {
            &[(0, bank_at(i), 0x300), (1, BANK_AT - 0x10000, 0x900), (7, BANK_AT - 0x20000, 0x10000)]
        };
        for (number, address, bytes) in banks {
            qmd.set_element("CONSTANT_BUFFER_VALID", *number, 1).unwrap();
            qmd.set_element("CONSTANT_BUFFER_SIZE_SHIFTED4", *number, *bytes >> 4).unwrap();
            qmd.set_constant_buffer(*number, *address).unwrap();
        }
        for (slot, (to, action)) in (0..).zip(&self.then) {
            qmd.set_element("DEPENDENT_QMD_ENABLE", slot, 1).unwrap();
            qmd.set_element("DEPENDENT_QMD_ACTION", slot, *action).unwrap();
            qmd.set_dependent(slot, qmd_at(*to)).unwrap();
        }
        if let Some(counter) = self.releases {
            for (name, value) in [("RELEASE_ENABLE", 1), ("RELEASE_STRUCTURE_SIZE", 1), ("RELEASE_REDUCTION_ENABLE", 1)]
            {
                qmd.set_element(name, 0, value).unwrap();
            }
            qmd.set("RELEASE_SEMAPHORE0_PAYLOAD_LOWER", 1).unwrap();
            qmd.set_release(0, counter_at(counter)).unwrap();
        }
        qmd
    }
}

/// What a launch does, in order.
#[derive(Clone, Debug)]
pub enum Do {
    /// Waits for a counter to be `4 * launch` and this.
    Wait(usize, i64),
    Set(usize),
    Start(usize, PcasAction),
    Memset {
        at: u64,
        bytes: u32,
    },
    Memcpy {
        from: u64,
        to: u64,
        bytes: u32,
    },
    Raw(Vec<u32>),
}

#[derive(Clone, Debug, Default)]
pub struct Graph {
    pub kernels: Vec<Kernel>,
    pub launch: Vec<Do>,
}

pub fn words(write: impl FnOnce(&mut Words<'_>)) -> Vec<u32> {
    let mut buffer = vec![0; 1 << 20];
    let mut words = Words::new(&mut buffer);
    write(&mut words);
    words.as_slice().to_vec()
}

impl Graph {
    /// As the driver makes a chain: from two kernels on, a QMD without blocks decrements the first of them.
    pub fn chain(n: usize) -> Graph {
        if n == 1 {
            let kernels = vec![Kernel { releases: Some(0), ..Kernel::default() }];
            let start = Do::Start(0, PcasAction::InvalidatePrefetchCopySchedule);
            return Graph { kernels, launch: vec![Do::Wait(0, -2), Do::Set(0), start] };
        }
        let order = Kernel { empty: true, then: vec![(1, DECREMENT)], ..Kernel::default() };
        let mut kernels = vec![order];
        for i in 1..=n {
            let then = if i < n { vec![(i + 1, SCHEDULE)] } else { Vec::new() };
            let (waits_for, releases) = (if i == 1 { 2 } else { 0 }, (i == n).then_some(0));
            kernels.push(Kernel { then, waits_for, releases, ..Kernel::default() });
        }
        let launch = vec![
            Do::Wait(0, -2),
            Do::Start(0, PcasAction::InvalidatePrefetchCopySchedule),
            Do::Set(0),
            Do::Start(1, PcasAction::DecrementDependence),
        ];
        Graph { kernels, launch }
    }

    /// One kernel before two, and these before a fourth.
    pub fn diamond() -> Graph {
        let kernel = |then: &[(usize, u64)]| Kernel { then: then.to_vec(), ..Kernel::default() };
        let kernels = vec![
            kernel(&[(1, SCHEDULE), (2, SCHEDULE)]),
            kernel(&[(3, DECREMENT)]),
            kernel(&[(3, DECREMENT)]),
            Kernel { waits_for: 2, releases: Some(0), ..Kernel::default() },
        ];
        let start = Do::Start(0, PcasAction::InvalidatePrefetchCopySchedule);
        Graph { kernels, launch: vec![Do::Wait(0, -2), Do::Set(0), start] }
    }

    /// Two kernels, a memset, and a third kernel: the memset waits for the counter of the first group.
    pub fn memset() -> Graph {
        let kernels = vec![
            Kernel { then: vec![(1, SCHEDULE)], ..Kernel::default() },
            Kernel { releases: Some(0), ..Kernel::default() },
            Kernel { releases: Some(1), ..Kernel::default() },
        ];
        let launch = vec![
            Do::Wait(1, -2),
            Do::Set(0),
            Do::Start(0, PcasAction::InvalidatePrefetchCopySchedule),
            Do::Wait(0, 2),
            Do::Memset { at: USER, bytes: 64 },
            Do::Set(1),
            Do::Start(2, PcasAction::InvalidatePrefetchCopySchedule),
        ];
        Graph { kernels, launch }
    }

    fn do_all(&self, w: &mut Words<'_>, k: i64, first: bool) {
        for step in &self.launch {
            match step {
                Do::Wait(_, before) if first && *before < 0 => {}
                Do::Wait(counter, more) => {
                    let execute = Execute { operation: Operation::AcquireCircGeq, ..Execute::RELEASE };
                    let payload = (4 * k + more) as u32;
                    w.host_semaphore(0, counter_at(*counter), payload.into(), execute).unwrap();
                }
                Do::Set(counter) => {
                    w.inline(COMPUTE, counter_at(*counter), &((4 * k + 1) as u32).to_le_bytes(), INLINE).unwrap();
                }
                // The upload has armed what has no counter already.
                Do::Start(i, action) => {
                    let armed = self.kernels.get(*i).is_some_and(|k| k.empty);
                    if !(first && armed) {
                        w.pcas(COMPUTE, qmd_at(*i), *action).unwrap();
                    }
                }
                Do::Memset { at, bytes } => {
                    w.fill(COPY, *at, 0, bytes / 4, launch_dma::NON_PIPELINED | launch_dma::PITCH).unwrap();
                }
                Do::Memcpy { from, to, bytes } => {
                    w.copy(COPY, *from, *to, *bytes, launch_dma::NON_PIPELINED | launch_dma::PITCH).unwrap();
                }
                Do::Raw(raw) => w.raw(raw).unwrap(),
            }
        }
        let payload = (100 + k) as u32;
        let report = [(TRACKER >> 32) as u32, TRACKER as u32, payload, 0x1000_0004];
        w.inc(COMPUTE, offset::REPORT_SEMAPHORE_A, &report).unwrap();
    }

    pub fn upload(&self) -> Vec<u32> {
        words(|w| {
            for (i, kernel) in self.kernels.iter().enumerate() {
                if !kernel.empty {
                    let header: Vec<u8> = (0..0x210u32).map(|b| (b + i as u32) as u8).collect();
                    w.inline(COMPUTE, bank_at(i), &header, INLINE).unwrap();
                    w.inline(COMPUTE, bank_at(i) + 0x210, &[i as u8; 16], INLINE).unwrap();
                }
                let bytes: Vec<u8> = kernel.qmd(i).words().iter().flat_map(|w| w.to_le_bytes()).collect();
                w.inline(COMPUTE, qmd_at(i), &bytes, INLINE).unwrap();
                w.inc(COMPUTE, offset::INVALIDATE_SHADER_CACHES_NO_WFI, &[0x1000]).unwrap();
                w.pcas(COMPUTE, qmd_at(i), PcasAction::InvalidatePrefetchCopySchedule).unwrap();
            }
            self.do_all(w, 0, true);
        })
    }

    /// Launch `k`, from 1.
    pub fn again(&self, k: i64) -> Vec<u32> {
        words(|w| self.do_all(w, k, false))
    }

    pub fn learn(&self) -> Result<Recipe, Refused> {
        learn_words(&self.upload(), &[&self.again(1), &self.again(2)])
    }
}

pub fn learn_words(upload: &[u32], again: &[&[u32]]) -> Result<Recipe, Refused> {
    let again: Vec<[Segment<'_>; 1]> = again.iter().map(|words| [Segment { channel: 0, words }]).collect();
    let again: Vec<&[Segment<'_>]> = again.iter().map(|launch| &launch[..]).collect();
    learn(&[channel()], &[Segment { channel: 0, words: upload }], &again)
}

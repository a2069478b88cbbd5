//! What the methods mean: copies, fills, inline copies, kernel launches and semaphore operations.
//!
//! An [`Engine`] takes a channel's [`crate::decode::Item`]s and keeps the registers that the methods fill, as the hardware does. A method that
//! triggers something becomes an [`Op`]. Waits for idle, barriers and cache invalidations are no operations here. The invariant: an operation
//! contains only what the words give. A value that cannot be known (a QMD that was never seen) is `None`, never a guess.

use crate::qmd::Qmd;
use crate::semaphore::Operation;

mod copy;
mod engine;
mod inline;

pub use engine::Engine;

/// A word of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct At {
    /// Segments that the engine has been given before this one.
    pub segment: u64,
    /// Position in the segment.
    pub word: u32,
}

/// One operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Op {
    /// The word that sets it off.
    pub at: At,
    pub subch: u8,
    /// 0 where the stream does not say; the family is then taken from the subchannel's fixed use.
    pub class_id: u32,
    /// Some of the registers that it uses were last set in words that are missing ([`Engine::forget`]): then its addresses, lengths and payloads may
    /// be wrong.
    pub guessed: bool,
    pub what: What,
}

impl Op {
    /// Its own semaphore operation, or the one of the copy, fill or inline write.
    pub fn semaphore(&self) -> Option<&Semaphore> {
        match &self.what {
            What::Copy(copy) => copy.semaphore.as_ref(),
            What::Fill(fill) => fill.semaphore.as_ref(),
            What::Inline(inline) => inline.semaphore.as_ref(),
            What::Semaphore(semaphore) => Some(semaphore),
            What::Launch(_) => None,
        }
    }
}

// (A launch contains its QMD, so that operations need no allocation. The sink borrows operations, so their size is no cost.)
#[allow(clippy::large_enum_variant)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    Copy(Copy),
    Fill(Fill),
    Inline(Inline),
    Launch(Launch),
    Semaphore(Semaphore),
}

/// DATA_TRANSFER_TYPE of the copy engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transfer {
    /// May overlap the copies before it.
    Pipelined,
    /// Starts when the copies before it are done.
    NonPipelined,
    /// Value 3: PREFETCH in class 0xCAB5, reserved before.
    Prefetch,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Layout {
    BlockLinear,
    Pitch,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Space {
    Virtual,
    Physical,
}

/// A copy by the copy engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copy {
    pub src: u64,
    pub dst: u64,
    /// LINE_LENGTH_IN: bytes of a line, or elements where `remap` is set.
    pub line_length: u32,
    /// 1 without MULTI_LINE_ENABLE.
    pub line_count: u32,
    /// Only used with several lines.
    pub src_pitch: u32,
    pub dst_pitch: u32,
    pub multi_line: bool,
    pub transfer: Transfer,
    pub src_layout: Layout,
    pub dst_layout: Layout,
    pub src_space: Space,
    pub dst_space: Space,
    /// Components are moved, or constants written between them.
    pub remap: Option<Remap>,
    /// MEMORY_SCRUB_ENABLE (class 0xC8B5 and later).
    pub scrub: bool,
    pub flush: bool,
    /// Released when the copy is done.
    pub semaphore: Option<Semaphore>,
    /// The LAUNCH_DMA word.
    pub launch: u32,
}

impl Copy {
    /// Bytes that are written.
    pub fn bytes(&self) -> u64 {
        let element = self.remap.map_or(1, |r| u64::from(r.dst_bytes()));
        u64::from(self.line_length).saturating_mul(u64::from(self.line_count)).saturating_mul(element)
    }
}

/// SET_REMAP_COMPONENTS and the constants, as set at the launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remap {
    pub components: u32,
    pub const_a: u32,
    pub const_b: u32,
}

/// The source of a component of a destination element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Component {
    /// Component 0 to 3 of the source element.
    Source(u8),
    ConstA,
    ConstB,
    /// The memory is left as it is. (Also the reserved value 7.)
    NoWrite,
}

impl Remap {
    /// Sources of the destination's components; as many as it has.
    pub fn destination(&self) -> impl Iterator<Item = Component> + use<> {
        let components = self.components;
        (0..self.dst_components()).map(move |i| match components >> (4 * i) & 7 {
            source @ 0..4 => Component::Source(source as u8),
            4 => Component::ConstA,
            5 => Component::ConstB,
            _ => Component::NoWrite,
        })
    }

    /// COMPONENT_SIZE, 1 to 4 bytes.
    pub fn component_bytes(&self) -> u32 {
        (self.components >> 16 & 3) + 1
    }

    pub fn src_components(&self) -> u32 {
        (self.components >> 20 & 3) + 1
    }

    pub fn dst_components(&self) -> u32 {
        (self.components >> 24 & 3) + 1
    }

    /// Bytes of a source element.
    pub fn src_bytes(&self) -> u32 {
        self.src_components() * self.component_bytes()
    }

    /// Bytes of a destination element.
    pub fn dst_bytes(&self) -> u32 {
        self.dst_components() * self.component_bytes()
    }
}

/// A fill by the copy engine: a remapped copy without a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fill {
    pub dst: u64,
    pub dst_pitch: u32,
    /// Elements per line.
    pub elements: u32,
    pub lines: u32,
    /// Bytes per element: 1 to 16.
    pub element_bytes: u32,
    /// One element; its first `element_bytes` count.
    pub pattern: [u8; 16],
    /// Bit `i`: byte `i` of the element is written; the other bytes keep their value.
    pub written: u16,
    pub transfer: Transfer,
    pub dst_layout: Layout,
    pub dst_space: Space,
    pub flush: bool,
    pub semaphore: Option<Semaphore>,
    /// The LAUNCH_DMA word.
    pub launch: u32,
}

impl Fill {
    /// Bytes of all elements.
    pub fn bytes(&self) -> u64 {
        u64::from(self.elements).saturating_mul(u64::from(self.lines)).saturating_mul(u64::from(self.element_bytes))
    }
}

/// Data of an inline copy in the stream. There may be headers between the words if the data came in several sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub first: At,
    pub last: At,
    /// Words of data, without headers.
    pub words: u32,
}

/// What an inline copy was for. Decided when the launch that uses it is seen in the same segment, else `Data`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// No known purpose: the user's data, or data of a launch in another segment (then [`Launch::written_at`] names it).
    Data,
    /// It wrote (a part of) the QMD of a launch, perhaps with its constants.
    Qmd,
    /// It wrote into constant buffer 0 of a launch: a kernel's parameters.
    Constants,
}

/// Bytes from the command stream, written to memory by the compute or inline-to-memory class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inline {
    pub dst: u64,
    /// Bytes of a line.
    pub line_length: u32,
    pub line_count: u32,
    /// Only used with several lines.
    pub dst_pitch: u32,
    pub dst_layout: Layout,
    /// `None` if no data followed in the stream.
    pub data: Option<Span>,
    /// All its data was seen.
    pub complete: bool,
    /// A macro of the engine supplies the data: CALL_MME_MACRO came in place of the data.
    pub by_macro: bool,
    pub semaphore: Option<Semaphore>,
    pub purpose: Purpose,
    /// The LAUNCH_DMA word.
    pub launch: u32,
}

impl Inline {
    pub fn bytes(&self) -> u64 {
        u64::from(self.line_length) * u64::from(self.line_count)
    }
}

/// The methods by which a launch reached the compute engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum How {
    /// SEND_PCAS_A with a QMD in memory, and SEND_SIGNALING_PCAS_B (Volta, Turing).
    Pcas { invalidate: bool },
    /// SEND_PCAS_A with a QMD in memory, and SEND_SIGNALING_PCAS2_B with this PCAS_ACTION.
    Pcas2 { action: u8 },
    /// SET_INLINE_QMD_ADDRESS and LOAD_INLINE_QMD_DATA: the QMD in methods.
    InlineQmd,
}

/// A kernel launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch {
    pub how: How,
    pub qmd_address: u64,
    /// `None` if the QMD was not among the recent inline copies of this channel: it is already in memory (graphs upload it once).
    pub qmd: Option<Qmd>,
    /// Address of the kernel's code as its constants name it. The QMD's program address is another where something runs before
    /// each kernel: CUPTI's tracing puts one trampoline before all of them.
    pub kernel: Option<u64>,
    /// The newest inline copy that wrote (a part of) the QMD: the `at` of its [`Op`].
    pub written_at: Option<At>,
}

/// The methods that made a semaphore operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// SEM_ADDR_LO to SEM_EXECUTE of the host.
    Host,
    /// SEMAPHOREA to SEMAPHORED of the host.
    HostOld,
    /// LAUNCH_DMA of the copy engine.
    CopyEngine,
    /// SET_REPORT_SEMAPHORE_ADDRESS and REPORT_SEMAPHORE_EXECUTE of compute.
    Report,
    /// SET_REPORT_SEMAPHORE_A to D of compute.
    ReportOld,
    /// SET_I2M_SEMAPHORE, with an inline copy.
    Inline,
}

/// A semaphore operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Semaphore {
    pub origin: Origin,
    pub operation: Operation,
    pub address: u64,
    pub payload: u64,
    /// 64-bit payload.
    pub wide: bool,
    /// 16 bytes are written: payload and time.
    pub timestamp: bool,
    /// The host waits for the engine to be idle first. Always true for releases by an engine: an engine releases when its work is done.
    pub wfi: bool,
}

/// A 57-bit address from its upper 25 and lower 32 bits.
fn address(upper: u32, lower: u32) -> u64 {
    u64::from(upper & 0x01ff_ffff) << 32 | u64::from(lower)
}

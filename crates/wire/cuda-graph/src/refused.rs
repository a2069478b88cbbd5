//! Reasons why a launch is refused.

use crate::step::Step;
use pushbuf::qmd::PcasAction;

/// Something in the launch that a recipe cannot express. (Addresses are GPU virtual addresses.)
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    #[error("method {name} ({address:#x} of class {class:#x}) with {value:#x} is not understood")]
    Method { class: u32, address: u16, name: String, value: u32 },
    #[error("MME macro {index} with the arguments {arguments:x?} is not understood")]
    MmeMacro { index: u32, arguments: Vec<u32> },
    #[error(
        "unknown macro arguments: MME macro 0 fills {bytes} bytes at {address:#x} with {arguments:x?}, and it is unknown which of them is the value"
    )]
    MacroArguments { address: u64, bytes: u32, arguments: [u32; 2] },
    #[error(
        "MME macro 0 fills {bytes} bytes at {address:#x} with {arguments:x?}, none of which is the count of these bytes"
    )]
    MacroCount { address: u64, bytes: u32, arguments: [u32; 2] },
    #[error(
        "unknown macro arguments: MME macro 1 copies {bytes} bytes to {address:#x} with {arguments:x?}, and their source is unknown"
    )]
    CopyArguments { address: u64, bytes: u32, arguments: [u32; 3] },
    #[error(
        "MME macro 1 copies {bytes} bytes to {address:#x} with {arguments:x?}, none of which is the count of these bytes"
    )]
    CopyCount { address: u64, bytes: u32, arguments: [u32; 3] },
    #[error("word {word:#010x} is not a method header, where one is required")]
    Header { word: u32 },
    #[error("words are missing, or the launch begins in the middle of a sequence")]
    Cut,
    #[error("{step} uses a register that the launch itself does not set")]
    Unset { step: &'static str },
    #[error("{what} is not understood")]
    Form { what: &'static str },
    #[error("a host node: {why}")]
    HostNode { why: &'static str },
    #[error("a conditional node: {method} of class {class:#x}")]
    Conditional { class: u32, method: String },
    #[error("a device-side launch: {field} of the QMD at {qmd:#x} is {value:#x}")]
    DeviceLaunch { qmd: u64, field: &'static str, value: u64 },
    #[error("a cooperative launch: QMD_TYPE of the QMD at {qmd:#x} is GRID_GPU_CGA")]
    Cooperative { qmd: u64 },
    #[error(
        "{what}: the kernel of the QMD at {qmd:#x} is the driver's, and starts or counts others by a table of {bytes} bytes at {table:#x}"
    )]
    ByDriver { what: &'static str, qmd: u64, table: u64, bytes: u32 },
    #[error("the QMD at {qmd:#x} has version {major}.{minor}; only version 4.0 is understood")]
    QmdVersion { qmd: u64, major: u8, minor: u8 },
    #[error("the QMD at {qmd:#x} holds only zeros: its words were left out of the recording")]
    QmdLeftOut { qmd: u64 },
    #[error("{field} of the QMD at {qmd:#x} is {value:#x}, which is not understood")]
    QmdField { qmd: u64, field: &'static str, value: u64 },
    #[error("bits {bits:#x} of word {word} of the QMD at {qmd:#x} have no name in its class reference")]
    QmdBits { qmd: u64, word: usize, bits: u32 },
    #[error("the QMD at {qmd:#x} is used, but the upload does not write it")]
    QmdNotWritten { qmd: u64 },
    #[error("the QMD at {qmd:#x} is written, but no QMD or launch starts it")]
    QmdNotStarted { qmd: u64 },
    #[error("{action} ({code}) of the QMD at {qmd:#x} is not understood", action = action.name(), code = action.code())]
    Pcas { qmd: u64, action: PcasAction },
    #[error(
        "a programmatic launch: the kernel of the QMD at {qmd:#x} waits for latch {latch:#x}, and it may start before every kernel that arrives there has ended"
    )]
    Latch { qmd: u64, latch: u64 },
    #[error(
        "a programmatic launch: the kernel of the QMD at {qmd:#x} arrives at latch {latch:#x}, for which no kernel of the graph waits"
    )]
    LatchUnheard { qmd: u64, latch: u64 },
    #[error("the QMD at {qmd:#x} waits for {counter} decrements and gets {given} in a launch")]
    Dependence { qmd: u64, counter: u32, given: u32 },
    #[error("the QMDs at {qmd:#x} and after it start each other in a circle")]
    Circle { qmd: u64 },
    #[error(
        "{bytes} bytes of the constant bank at {bank:#x} are written from {from:#x} on; expected its header of {header:#x} bytes first"
    )]
    Bank { bank: u64, from: u64, bytes: u32, header: u32 },
    #[error("the constant bank at {bank:#x} of the QMD at {qmd:#x} is not written by the upload")]
    BankNotWritten { qmd: u64, bank: u64 },
    #[error(
        "only the upload writes {bytes} bytes to {address:#x}, which is no QMD, constant bank or counter of the graph"
    )]
    UnknownWrite { address: u64, bytes: u32 },
    #[error("a launch after the upload writes to {address:#x}: the graph was updated between the launches")]
    Updated { address: u64 },
    #[error(
        "an acquire of {address:#x}, which the launch does not release: a host node, or a wait for work outside the graph"
    )]
    ForeignAcquire { address: u64 },
    #[error(
        "the place of a copy engine's work at {address:#x} in the order is unknown: CUDA left out a wait because the work was done when it wrote the words, or the CPU waits for the copy (a memcpy of pageable memory)"
    )]
    NoPlace { address: u64 },
    #[error(
        "a memcpy node uses CUDA's staging memory at {address:#x}, as for pageable memory: the CPU copies from or to it at each launch. \
         Pass the graph (cudaGraph_t) to doorbell_graph_instantiate() instead"
    )]
    Staged { address: u64 },
    #[error(
        "{bytes} bytes for {address:#x} are inside the commands, which CUDA writes at each launch: a memcpy node from host memory without predecessors, or of pageable memory. \
         Pass the graph (cudaGraph_t) to doorbell_graph_instantiate(), or copy the bytes by a step of a chain before the graph"
    )]
    Sent { address: u64, bytes: u64 },
    #[error("channels of different groups: {first:#x} and {second:#x}")]
    ChannelGroups { first: u32, second: u32 },
    #[error("channel {0} is not in the list of channels")]
    NoChannel(usize),
    #[error("two launches differ at step {step}: {first} and {second}")]
    LaunchesDiffer { step: usize, first: &'static str, second: &'static str },
    #[error("two launches differ in length: {first} and {second} steps")]
    LengthsDiffer { first: usize, second: usize },
    #[error("only the upload was given: a launch after it is needed")]
    NoRelaunch,
    #[error("the launch starts no kernel")]
    NoKernel,
    #[error("two blocks of the graph overlap at {address:#x}")]
    Overlap { address: u64 },
    #[error("the contents of the constant bank at {bank:#x} were left out of the recording")]
    BankLeftOut { bank: u64 },
    #[error("a {what} cannot be at {address:#x}: the address is not aligned")]
    Alignment { what: &'static str, address: u64 },
    #[error(
        "the end of the kernel of the QMD at {qmd:#x} cannot be detected: neither it nor any QMD that it starts releases a counter"
    )]
    Unheard { qmd: u64 },
    #[error(
        "the upload starts the QMD at {qmd:#x}, which later launches do not start by themselves: it cannot be uploaded without running"
    )]
    Armed { qmd: u64 },
    #[error("a group waits for a counter that only a later group of the same launch sets: {address:#x}")]
    Order { address: u64 },
    #[error(transparent)]
    Qmd(#[from] pushbuf::qmd::Error),
    #[error(transparent)]
    Encode(#[from] pushbuf::encode::Error),
}

impl Refused {
    pub(crate) fn differ(step: usize, first: &Step, second: &Step) -> Refused {
        Refused::LaunchesDiffer { step, first: first.name(), second: second.name() }
    }
}

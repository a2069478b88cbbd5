//! What C sees.

use std::ffi::{c_char, c_void};

/// Memory that copies may name. 0 is never one.
pub type doorbell_buffer_t = u64;
/// A copy that is ready to go. 0 is never one.
pub type doorbell_transfer_t = u64;
/// A submission: what is waited for. It needs no release. 0 is never one.
pub type doorbell_ticket_t = u64;
/// A mailbox of a running kernel. 0 is never one.
pub type doorbell_message_t = u64;
/// Rotating frames. 0 is never one.
pub type doorbell_ring_t = u64;
/// A CUDA graph that is ready to be launched. 0 is never one.
pub type doorbell_graph_t = u64;

/// doorbell_options_t.kind: beside CUDA; without CUDA on the software GPU, if it is preloaded.
pub const DOORBELL_ANY: u32 = 0;
/// doorbell_options_t.kind: beside CUDA.
pub const DOORBELL_BESIDE_CUDA: u32 = 1;
/// doorbell_options_t.kind: on the software GPU, which has to be preloaded.
pub const DOORBELL_SOFTWARE: u32 = 2;

/// doorbell_options_t.flags: each submission asks CUDA whether the memory is still the allocation that was pinned. It finds
/// frees that nothing else shows, and costs 1 us or more and CUDA's locks each time.
pub const DOORBELL_CHECK: u32 = 1;
/// doorbell_options_t.flags: follow the machine's own profile, if `doorbell calibrate` has written one: what $DOORBELL_PROFILE names,
/// else where the command writes it. One that was taken elsewhere is an error.
pub const DOORBELL_OWN_PROFILE: u32 = 2;

/// doorbell_explain: by a copy engine.
pub const DOORBELL_BY_ENGINE: u32 = 0;
/// doorbell_explain: the bytes travel in the command stream.
pub const DOORBELL_BY_INLINE: u32 = 1;
/// doorbell_explain: by stores of the CPU, which are there when the submission returns.
pub const DOORBELL_BY_STORES: u32 = 2;
/// doorbell_explain: by loads of the CPU, which are there when the submission returns.
pub const DOORBELL_BY_LOADS: u32 = 3;

/// doorbell_allocate: host memory.
pub const DOORBELL_HOST: u32 = 0;
/// doorbell_allocate: the GPU's memory. The CPU may write it at some 20 GB/s; each read of it is a round trip over PCIe.
pub const DOORBELL_VIDEO: u32 = 1;

/// Most bytes of a message, and of its answer.
pub const DOORBELL_MESSAGE_BYTES: usize = 56;

/// No limit to a wait.
pub const DOORBELL_FOREVER: u64 = u64::MAX;

/// Told what a session does when it is opened and closed. It must not call doorbell.
pub type doorbell_log_t = Option<unsafe extern "C" fn(user: *mut c_void, text: *const c_char)>;

/// How a session is opened. Set all of it to 0, then size, then what is wanted.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct doorbell_options_t {
    /// sizeof(doorbell_options_t): by it later versions know what the program knows.
    pub size: usize,
    /// DOORBELL_ANY, DOORBELL_BESIDE_CUDA or DOORBELL_SOFTWARE.
    pub kind: u32,
    /// CUDA's number of the GPU.
    pub gpu: u32,
    /// How many threads have a lane of their own, up to 64; 0: 8. A lane is DOORBELL_BUSY while another thread submits there, or prepares, releases
    /// or waits for a message of that lane.
    pub lanes: u32,
    /// 0, or DOORBELL_CHECK, DOORBELL_OWN_PROFILE or both.
    pub flags: u32,
    /// Null, or told what happens.
    pub log: doorbell_log_t,
    /// Passed to log.
    pub log_user: *mut c_void,
    /// Null, or the file of the profile (`doorbell calibrate -o FILE`) that says which way copies go. Null without DOORBELL_OWN_PROFILE: the
    /// file that $DOORBELL_PROFILE names, if it is set. An empty text: none.
    pub profile: *const c_char,
}

/// One piece of a batch.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct doorbell_piece_t {
    pub to: doorbell_buffer_t,
    pub to_offset: u64,
    pub from: doorbell_buffer_t,
    pub from_offset: u64,
    pub bytes: u64,
}

/// doorbell_step_t.kind: bytes from one buffer to another.
pub const DOORBELL_STEP_COPY: u32 = 0;
/// doorbell_step_t.kind: a launch of a graph.
pub const DOORBELL_STEP_LAUNCH: u32 = 1;
/// doorbell_step_t.flags, of a copy: the bytes travel in the command stream, 64 KiB at most; the CPU reads them from host memory at each launch.
pub const DOORBELL_STEP_INLINE: u32 = 1;
/// doorbell_step_t.flags, of a copy: by the copy engine, whatever its size.
pub const DOORBELL_STEP_ENGINE: u32 = 2;
/// doorbell_step_t.flags, of a copy that is among the first steps of its chain: doorbell_launch() reads the bytes from host memory and stores them into the
/// GPU's memory itself, in front of the doorbell, 64 KiB at most. The stores wait for nobody: see doorbell_chain_prepare().
pub const DOORBELL_STEP_STORES: u32 = 4;

/// doorbell_chain_prepare: launches behind copies of the copy engine wait for no counter, either. The GPU waits when a channel changes its engine, as
/// GA100's manual says; not seen on other GPUs yet.
pub const DOORBELL_CHAIN_ENGINES: u32 = 1;
/// doorbell_chain_prepare: the steps wait for a counter in host memory, not in the GPU's.
pub const DOORBELL_CHAIN_HOST_COUNTER: u32 = 2;
/// doorbell_chain_prepare: launches behind inline data wait for a counter, too. Without it they follow as CUDA's kernels follow their parameters.
pub const DOORBELL_CHAIN_COUNTER: u32 = 4;
/// doorbell_chain_prepare: the copies have a copy engine's channel of their own. Two doorbells, and no wait until CUDA's kernels are over.
pub const DOORBELL_CHAIN_BESIDE: u32 = 8;

/// One step of a chain: set all of it to 0, then what its kind needs.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct doorbell_step_t {
    /// DOORBELL_STEP_COPY or DOORBELL_STEP_LAUNCH.
    pub kind: u32,
    /// 0, or of a copy DOORBELL_STEP_INLINE, DOORBELL_STEP_ENGINE or DOORBELL_STEP_STORES. 0 is inline up to 16 KiB from host memory to the GPU's, else the copy engine.
    pub flags: u32,
    /// Of a launch.
    pub graph: doorbell_graph_t,
    /// The others are of a copy.
    pub to: doorbell_buffer_t,
    pub to_offset: u64,
    pub from: doorbell_buffer_t,
    pub from_offset: u64,
    pub bytes: u64,
}

/// A word of 32 bits in a buffer, and a value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct doorbell_word_t {
    pub buffer: doorbell_buffer_t,
    /// A multiple of 4.
    pub offset: u64,
    pub value: u32,
}

/// A frame of a ring, for the producer to fill.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct doorbell_frame_t {
    /// Which of the ring's.
    pub index: u32,
    /// Where it is in the source buffer.
    pub offset: u64,
    /// Its address; null in CUDA's memory on the GPU, which the CPU does not see: kernels fill it.
    pub pointer: *mut c_void,
}

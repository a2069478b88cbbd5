//! The preloaded libraries, which the binary contains (see build.rs).

/// The agent: preloaded into the program that is recorded.
pub static AGENT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libdoorbell_agent.so"));
/// A software GPU, for machines without a GPU.
pub static SOFTGPU: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libdoorbell_softgpu.so"));
/// A libcuda over it.
pub static SOFTCUDA: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libsoftcuda.so"));

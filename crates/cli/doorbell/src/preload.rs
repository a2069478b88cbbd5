//! The preloaded libraries, carried in the binary (see build.rs).

/// What sees: preloaded into the program that is recorded.
pub static AGENT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libdoorbell_agent.so"));
/// A GPU in software, for machines without one.
pub static SOFTGPU: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libdoorbell_softgpu.so"));

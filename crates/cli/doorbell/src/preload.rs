//! The preloaded libraries, which the binary contains (see build.rs).

use flate2::read::ZlibDecoder;
use std::io::Read;
use std::sync::LazyLock;

/// The agent: preloaded into the program that is recorded.
pub static AGENT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libdoorbell_agent.so"));
/// A software GPU, for machines without a GPU.
pub static SOFTGPU: LazyLock<Vec<u8>> =
    LazyLock::new(|| decompressed(include_bytes!(concat!(env!("OUT_DIR"), "/libdoorbell_softgpu.so.zlib"))));
/// A libcuda over it.
pub static SOFTCUDA: LazyLock<Vec<u8>> =
    LazyLock::new(|| decompressed(include_bytes!(concat!(env!("OUT_DIR"), "/libsoftcuda.so.zlib"))));

fn decompressed(library: &[u8]) -> Vec<u8> {
    let mut to = Vec::new();
    match ZlibDecoder::new(library).read_to_end(&mut to) {
        Ok(_) => to,
        // An empty library would leave the program with the real GPU.
        Err(e) => panic!("this copy of doorbell is damaged: a library in it cannot be read: {e}"),
    }
}

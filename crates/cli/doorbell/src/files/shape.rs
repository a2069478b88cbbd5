//! The options of all ways to read and write.

use crate::units;
use files::{Options, Way};

// (As a doc comment it would become the text of the command it is part of.)
#[derive(Debug, clap::Args)]
pub struct Shape {
    /// Bytes of one read or write
    #[arg(long, value_name = units::SIZE, default_value = "1MiB", value_parser = units::size_in(512..=64 << 20))]
    block: u64,
    /// Blocks under way on each thread
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=128))]
    depth: u32,
    /// Threads, each with a ring and a channel of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=32))]
    threads: u32,
    /// What moves the bytes
    #[arg(long, value_enum, value_name = "WAY", default_value_t = Via::Auto)]
    pub via: Via,
    /// Through the page cache, without O_DIRECT
    #[arg(long)]
    buffered: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Via {
    /// io_uring; threads where the kernel refuses it
    Auto,
    /// io_uring alone
    Uring,
    /// pread and pwrite on threads
    Threads,
    /// NVIDIA's libcufile: GPUDirect Storage, or compatibility mode
    Cufile,
}

impl Shape {
    pub fn options(&self, verify: bool) -> Options {
        let way = match self.via {
            Via::Auto | Via::Cufile => Way::Auto,
            Via::Uring => Way::Uring,
            Via::Threads => Way::Threads,
        };
        let (block, depth, threads) = (self.block as usize, self.depth as usize, self.threads as usize);
        Options { block, depth, threads, buffered: self.buffered, way, verify }
    }
}

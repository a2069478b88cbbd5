//! How a channel is made, and where its parts are.

use crate::device::Bar;
use crate::doorbell::Site;
use crate::place::Place;

/// The owner of the channel group that a graphics channel joins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Group {
    /// Its own group: it shares the engine with CUDA by time slices.
    #[default]
    Own,
    /// CUDA's group: runs next to CUDA's kernels without a context switch. Needs [`crate::Entry::CudasClient`]. A fault
    /// also ends CUDA's channels.
    Cudas,
}

/// How a channel is made, and where its parts are. The default is CUDA's, except for the pushbuffers: in GPU memory
/// they save the engine a read over PCIe (H100: 8 bytes from GPU to host in 3.7 us instead of 4.5).
#[derive(Clone, Copy, Debug)]
pub struct ChannelOptions {
    /// GPFIFO entries: a power of two from 8 to 1024.
    pub entries: u32,
    pub gpfifo: Place,
    pub userd: Place,
    /// The words of prepared transfers.
    pub pushbuffer: Place,
    /// The semaphore that prepared transfers release: polled by the CPU.
    pub tracker: Place,
    pub group: Group,
    /// A graphics channel gets a copy engine, too, for launches of graphs that copy and fill.
    pub copies: bool,
    pub bar: Bar,
    pub site: Site,
}

impl Default for ChannelOptions {
    fn default() -> Self {
        ChannelOptions {
            entries: 1024,
            gpfifo: Place::Video,
            userd: Place::Video,
            pushbuffer: Place::Video,
            tracker: Place::Host,
            group: Group::default(),
            copies: false,
            bar: Bar::default(),
            site: Site::default(),
        }
    }
}

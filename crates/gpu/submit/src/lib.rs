//! Copies, and launches of CUDA graphs, that any thread may submit.
//!
//! Which route is the best for a size on this machine is the part of [`route_choice`].
//!
//! A [`Session`] has separate channels, in CUDA's address space or, without CUDA, on the software GPU. Memory becomes a [`Buffer`] once.
//! Then [`Session::copy_async`] copies between any two buffers, and [`Session::submit`] submits a copy that [`Session::prepare`] has
//! prepared. On a bare channel of an H100 such a submission took 0.069 to 0.095 us (the 95 % interval of p50, `docs/results/see.md`).
//! Each thread has its own lane (a channel for each direction) as long as there are enough. If two threads want a lane at the same
//! instant, the second gets [`Error::Busy`]: no thread ever spins for another.
//!
//! [`Session::prepare_graph`] clones a CUDA graph, and [`Session::launch`] starts it without CUDA. Launches use separate channels, in
//! CUDA's channel group ([`Options::launch_lanes`]), one after the other on each. [`Session::instantiate_graph`] is for graphs that name
//! pageable memory. [`Session::prepare_chain`] joins copies and launches. [`Session::launch_in`], [`Session::submit_in`] and
//! [`Session::copy_in`] order submissions after others, streams and events ([`InOrder`]).
//!
//! [`Session::wait`] polls until a submission is done, or sleeps between polls ([`Wait`]). [`Session::wait_any`] and [`Session::wait_all`]
//! are for several, and a [`Queue`] for many, with a descriptor for epoll. A submission cannot be cancelled: see the head of `waiting`.
//!
//! Handles are numbers that encode the session, the place and how often the place was used. A handle of an ended object gives an error,
//! and never names another object.
//!
//! The invariant: [`Session::submit`], [`Session::copy_async`], [`Session::launch`], [`Session::set_parameter`] and [`Session::poll`] take
//! no lock, allocate no memory and make no system call. There are two exceptions: the first launch after memory was unmapped checks
//! everything again, and a poll that finds a dead lane takes the work that waits for it off the GPU.
//!
//! # When memory goes
//! [`Session::unpin`] and CUDA's frees first end a buffer, then wait for work that names it, up to a second, and then stop the lanes that
//! still use CUDA's memory. The head of file `lease.rs` in crate `gpu` has the rules. A session adds these. An entry is removed when each
//! lane has been released once (`lane`). Words that streams wait for are written for dead lanes (`promises`). [`Session::close`] waits for
//! all lanes together, up to ten seconds. doorbell does not see some frees (a caching allocator that gives a block to another tensor, a
//! graph's own allocations): keep such memory until it is unpinned. It also cannot see which memory a graph's kernels touch: see
//! [`Session::prepare_graph`]. With [`Options::check_each_submission`] each submission gets the allocation's number from CUDA, which
//! detects most such frees.

mod buffers;
mod by_cpu;
mod chains;
mod choose;
mod copied;
mod copying;
mod distinct;
mod error;
mod explain;
mod follow;
mod graphs;
mod handle;
mod hold;
mod in_order;
mod lane;
mod launching;
mod mailbox;
mod message;
mod numbering;
mod open;
mod openings;
mod order;
mod prepared;
mod promises;
mod queue;
mod ring;
pub mod route_choice;
mod scattered;
mod session;
mod sleepers;
mod staged;
mod start;
mod thread;
mod transfers;
mod wait;
mod waiting;
mod watch;
mod wide;
mod words;

pub use chains::{ChainHow, ChainStep};
pub use choose::{Choice, Chooser, Direction, Executor};
pub use copying::Piece;
pub use error::Error;
pub use follow::Follow;
pub use handle::{Buffer, Copy, Graph, Message, Ring, Transfer};
pub use hold::Hold;
pub use in_order::{Event, InOrder, Stream, Word};
pub use launch::{Order, Way};
pub use open::{Kind, Options};
pub use queue::{Done, Queue};
pub use ring::Frame;
pub use scattered::{Index, Pages, Part};
pub use session::Session;
pub use wait::Wait;

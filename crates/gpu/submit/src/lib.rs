//! Copies, and launches of CUDA graphs, that any thread may submit.
//!
//! A [`Session`] has channels of its own, beside CUDA in CUDA's address space or alone on the software GPU. Memory becomes a
//! [`Buffer`] once; then [`Session::copy_async`] copies between any two, and what [`Session::prepare`] made ready is submitted
//! in some 60 ns. Each thread has a lane (a channel for each direction) of its own as long as there are lanes enough; a lane
//! that two threads want at the same instant is [`Error::Busy`] for the second: no thread ever spins for another.
//!
//! [`Session::prepare_graph`] clones a CUDA graph, and [`Session::launch`] starts it past CUDA. Launches go by a channel of
//! their own, in CUDA's channel group, one after the other. [`Session::instantiate_graph`] is for graphs that name pageable memory. [`Session::prepare_chain`] makes copies and launches one; [`Session::launch_in`],
//! [`Session::submit_in`] and [`Session::copy_in`] put submissions in order behind others, streams and events ([`InOrder`]).
//!
//! [`Session::wait`] looks until a submission is done, or sleeps between looks ([`Wait`]). [`Session::wait_any`] and [`Session::wait_all`] are for several, and a
//! [`Queue`] for many, with a descriptor for epoll. Nothing takes a submission back: see the head of `waiting`.
//!
//! Handles are numbers that carry the session, the place and how often the place was used. A handle of something that is gone
//! is an error, never another's.
//!
//! The invariant: [`Session::submit`], [`Session::copy_async`], [`Session::launch`], [`Session::set_parameter`] and
//! [`Session::poll`] take no lock, allocate nothing and make no system call. There are two exceptions: the first launch after memory was
//! unmapped checks all again, and a poll that finds a dead lane takes what waits for it off the GPU.
//!
//! # When memory goes
//! [`Session::unpin`] and CUDA's frees end a buffer first, then wait for what names it, up to a second, and then stop the lanes that still
//! use memory of CUDA's. The rules are those of the crate `gpu`, at the head of its file `lease.rs`. Here is what a session adds: an
//! entry is taken out when each lane has been let go once (`lane`), words that streams wait for are written for dead lanes
//! (`promises`), and [`Session::close`] waits for all lanes together, up to ten seconds. Some frees are seen by
//! nobody (a caching allocator that gives a block to another tensor, a graph's own allocations): keep such memory until it is
//! unpinned. What a graph's kernels touch nobody knows: see [`Session::prepare_graph`]. [`Options::check_each_submission`]
//! asks CUDA for the allocation's number each time and finds most of them.

mod buffers;
mod by_cpu;
mod chains;
mod choose;
mod copying;
mod error;
mod explain;
mod follow;
mod graphs;
mod handle;
mod hold;
mod in_order;
mod lane;
mod launching;
mod learner;
mod mailbox;
mod message;
mod open;
mod openings;
mod order;
mod prepared;
mod promises;
mod queue;
mod ring;
mod session;
mod sleepers;
mod staged;
mod start;
mod thread;
mod transfers;
mod wait;
mod waiting;
mod watch;
mod words;

pub use chains::{ChainHow, ChainStep};
pub use choose::{Choice, Chooser, Direction, Executor};
pub use copying::Piece;
pub use error::Error;
pub use follow::Follow;
pub use handle::{Buffer, Copy, Graph, Learner, Message, Ring, Transfer};
pub use hold::Hold;
pub use in_order::{Event, InOrder, Stream, Word};
pub use launch::{Order, Way};
pub use learner::Taught;
pub use open::{Kind, Options};
pub use queue::{Done, Queue};
pub use ring::Frame;
pub use session::Session;
pub use wait::Wait;

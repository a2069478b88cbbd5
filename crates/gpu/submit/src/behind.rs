//! Order among submissions of the session's own lanes, without CUDA: the GPU waits for a ticket of another lane.

use crate::by_cpu::DONE;
use crate::copying::Piece;
use crate::error::Error;
use crate::graphs::found;
use crate::handle::{COPY, Copy, Graph, Transfer};
use crate::session::{LAUNCHES, Now, Session};
use gpu::Channel;

impl Session {
    /// As [`Session::launch`], behind a copy of any lane: the GPU waits for it, and so does all that is launched later. One doorbell, and nothing of CUDA's.
    /// A copy that is done is not waited for. What the CPU stores for a chain is stored at once.
    ///
    /// # Errors
    /// As [`Session::launch`]; [`Error::Handle`] for what is no submission, [`Error::Killed`] and [`Error::Stopped`] also where the copy's lane is.
    #[inline]
    pub fn launch_behind(&self, graph: Graph, copy: Copy) -> Result<Copy, Error> {
        let now = self.now()?;
        let mut claim = self.claim(LAUNCHES, now)?;
        let (launching, channel) = found(&mut claim, now, graph)?;
        self.start_behind(now, &mut launching.form, channel, |channel| self.wait_behind(channel, now, copy))
    }

    /// As [`Session::submit`], behind a launch, or a copy of another lane. What is submitted on this transfer's lane later waits, too, also where this is
    /// [`Error::Full`]. A transfer that the CPU stores, loads or reads goes by a copy engine here, and on whichever lane is free: nothing on the GPU can hold the CPU back.
    ///
    /// If the lane that is waited for dies, this one dies with it: what waits is [`Error::Stopped`], and never runs without what it was to wait for.
    ///
    /// # Errors
    /// As [`Session::submit`] and [`Session::launch_behind`].
    #[inline]
    pub fn submit_behind(&self, transfer: Transfer, copy: Copy) -> Result<Copy, Error> {
        self.go(transfer, None, Some(copy))
    }

    /// As [`Session::copy_batch`], behind a launch, or a copy of another lane, by a copy engine. What goes by that lane later waits, too, also where this is
    /// [`Error::Full`].
    ///
    /// # Errors
    /// As [`Session::copy_batch`] and [`Session::launch_behind`].
    pub fn copy_behind(&self, pieces: &[Piece], copy: Copy) -> Result<Copy, Error> {
        self.in_order(pieces, None, None, Some(copy))
    }

    /// What the channel is given from now on waits for a submission. No lock, no allocation, no system call, no doorbell.
    #[inline]
    pub(crate) fn wait_behind(&self, channel: &mut Channel, now: Now, copy: Copy) -> Result<(), Error> {
        let (lane, number) = self.lane_of(now, copy)?;
        if lane == DONE {
            return Ok(());
        }
        let lane = self.lanes.get(usize::from(lane)).ok_or_else(|| COPY.wrong())?;
        lane.observe(|observer| {
            let ticket = observer.ticket(number).ok_or_else(|| COPY.wrong())?;
            Ok(channel.wait_for_other(observer, ticket)?)
        })
    }
}

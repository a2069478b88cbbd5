//! Which executor makes a copy, and why.

use crate::choose::{Choice, Direction, Executor};
use crate::error::Error;
use crate::handle::{BUFFER, Buffer};
use crate::numbering::LOOKS;
use crate::session::Session;
use crate::transfers::MAX_INLINE;

impl Session {
    pub(crate) fn direction(&self, to: u32, from: u32) -> Direction {
        match (self.buffers.is_video(to), self.buffers.is_video(from)) {
            (true, false) => Direction::ToGpu,
            (false, true) => Direction::FromGpu,
            (true, true) => Direction::WithinGpu,
            (false, false) => Direction::WithinHost,
        }
    }

    /// The executor of such a copy, prepared ([`Session::prepare`]) or not ([`Session::copy_async`], [`Session::copy`]), and the reason. Batches,
    /// rings and ordered copies always use copy engines. This call allocates memory.
    ///
    /// # Errors
    /// [`Error::Handle`], [`Error::Argument`] for a length of 0, [`Error::Closed`], [`Error::Forked`].
    pub fn explain(&self, to: Buffer, from: Buffer, bytes: u64, prepared: bool) -> Result<Choice, Error> {
        let (setup, now) = (self.setup()?, self.now()?);
        if bytes == 0 {
            return Err(Error::Argument("no bytes: pass how many are to be copied"));
        }
        let [to, from] = [BUFFER.decode(now.opening(), to.0)?, BUFFER.decode(now.opening(), from.0)?];
        let _claim = self.lanes[LOOKS].claim_in_time();
        // SAFETY: the claim outlives these entries.
        let (to_entry, from_entry) = unsafe { (self.buffers.find(to)?, self.buffers.find(from)?) };
        let direction = self.direction(to.0, from.0);
        let profile = match &setup.profile {
            Ok(profile) => profile,
            Err(why) => {
                return Ok(Choice { executor: Executor::CopyEngine, why: format!("{}: {why}", Executor::CopyEngine) });
            }
        };
        let why = profile.why(direction, bytes);
        let wanted = setup.ways.choose(direction, bytes);
        let against = match wanted {
            Executor::CopyEngine => None,
            Executor::Stores | Executor::Loads => Session::mapped(wanted, to_entry, from_entry).err(),
            Executor::Inline if !prepared => Some("only prepared copies travel in the command stream"),
            Executor::Inline if bytes > MAX_INLINE => Some("at most 64 KiB travel in the command stream"),
            Executor::Inline => None,
        };
        Ok(match against {
            None => Choice { executor: wanted, why: format!("{wanted}: {why}") },
            Some(against) => {
                let executor = Executor::CopyEngine;
                Choice { executor, why: format!("{executor}, instead of {wanted}: {against}; the profile: {why}") }
            }
        })
    }
}

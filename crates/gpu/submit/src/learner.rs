//! Graphs that are learnt while the program launches them: CUDA makes each launch, which does the program's work once, until doorbell can launch the graph
//! itself.

use crate::error::Error;
use crate::graphs::because;
use crate::handle::{Graph, LEARNER, Learner};
use crate::in_order::Stream;
use crate::lane::Place;
use crate::launching::Form;
use crate::session::Session;
use launch::{Learning, OnStream};
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum number of graphs of a session that are being learnt at a time.
const MOST: usize = 4096;

/// An executable graph, and the state of learning it.
pub(crate) struct Lesson {
    learning: Learning,
    exec: usize,
    /// Its launch lane.
    lane: usize,
}

pub(crate) type Lessons = Mutex<Vec<Place<Lesson>>>;

/// The outcome of a launch.
#[derive(Debug)]
pub struct Taught {
    /// CUDA has launched it: its work was done.
    pub launched: bool,
    /// The graph, if it is learnt by now. After an error, more launches do not help: keep launching it by CUDA.
    pub graph: Result<Option<Graph>, Error>,
}

impl Session {
    /// A learner for a graph, which learns from launches that the program needs anyway ([`Session::learner_launch`]). This call launches no graph. The graph
    /// will belong to this thread's launch lane.
    ///
    /// # Errors
    /// [`Error::Limit`], [`Error::Closed`], [`Error::Forked`].
    ///
    /// # Safety
    /// As [`Session::prepare_graph`], for an executable graph that lives until [`Session::learner_release`] and that only the learner launches until then.
    pub unsafe fn learner(&self, exec: *mut c_void) -> Result<Learner, Error> {
        let (_setup, now) = (self.setup()?, self.now()?);
        let lesson = Lesson { learning: Learning::new(), exec: exec as usize, lane: now.own_launches() };
        let (place, used) = Place::put(&mut self.lessons(), MOST, lesson)?;
        Ok(Learner(LEARNER.encode(now.opening(), place, used)))
    }

    /// Has CUDA launch the graph once in the stream, after all work that is queued there, and waits for it. After three launches, or a few more, the result
    /// contains the graph. No other thread may have CUDA submit anything during the call; otherwise the launch does not count, and one more is needed.
    ///
    /// # Safety
    /// As [`Session::prepare_graph`].
    pub unsafe fn learner_launch(&self, learner: Learner, stream: Stream) -> Taught {
        let mut launched = false;
        // SAFETY: the caller's contract.
        let graph = unsafe { self.lesson(learner, stream, &mut launched) };
        Taught { launched, graph }
    }

    /// # Safety
    /// As [`Session::learner_launch`].
    unsafe fn lesson(
        &self,
        learner: Learner,
        Stream(stream): Stream,
        launched: &mut bool,
    ) -> Result<Option<Graph>, Error> {
        let (setup, now) = (self.setup()?, self.now()?);
        let (place, used) = LEARNER.decode(now.opening(), learner.0)?;
        let mut lessons = self.lessons();
        let Lesson { learning, exec, lane } = Place::find(&mut lessons, place, used).ok_or_else(|| LEARNER.wrong())?;
        let graph = self.learn(&setup, (now, *lane), |context, watched, channel| {
            // SAFETY: the contract of `learner`.
            let mut by_cuda = unsafe { OnStream::new(context, *exec as *mut c_void, stream) };
            by_cuda.wait()?;
            // SAFETY: the contract of `learner`.
            let step = unsafe { launch::Graph::learn_on(learning, watched, channel, &mut by_cuda) };
            *launched = by_cuda.was_taken();
            step.map(|graph| graph.map(Form::One)).map_err(|error| because(error, by_cuda))
        })?;
        if graph.is_some() {
            *learning = Learning::new();
        }
        Ok(graph)
    }

    /// Ends a learner. The graph that it has learnt stays.
    ///
    /// # Errors
    /// [`Error::Handle`], [`Error::Closed`], [`Error::Forked`].
    pub fn learner_release(&self, learner: Learner) -> Result<(), Error> {
        let (_setup, now) = (self.setup()?, self.now()?);
        let (place, used) = LEARNER.decode(now.opening(), learner.0)?;
        Place::take(&mut self.lessons(), place, used).map(drop).ok_or_else(|| LEARNER.wrong())
    }

    fn lessons(&self) -> MutexGuard<'_, Vec<Place<Lesson>>> {
        self.lessons.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

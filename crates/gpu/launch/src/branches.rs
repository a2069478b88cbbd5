//! A graph on several doorbell channels: branches that CUDA ran on several channels may run in parallel. Each part costs a doorbell.
//!
//! When this is quicker than one channel has not been measured; [`Graph`] uses one. Parameters cannot be changed.

use crate::error::Error;
use crate::graph::{Graph, fit};
use crate::memory::{move_in, pin, regions, watch};
use cuda_graph::{Branches as Words, Refused};
use gpu::{Channel, Launch, LaunchWords, Observer, Ticket};
use std::time::{Duration, Instant};

/// How long a part waits for room in its channel after other parts of the same launch were submitted.
const ROOM: Duration = Duration::from_secs(1);

/// A graph on several channels.
#[derive(Debug)]
pub struct Branches {
    parts: Vec<Part>,
    /// The observers of the channels, in the channels' order, each with the ticket of its last launch.
    channels: Vec<(Observer, Option<Ticket>)>,
}

#[derive(Debug)]
struct Part {
    launch: Launch,
    channel: usize,
    /// Parts on other channels that must end first.
    after: Vec<usize>,
    begins: bool,
    last: Option<Ticket>,
}

impl Branches {
    /// Prepares a learnt graph on these channels ([`crate::channel`], all of one address space), in separate memory. `graph` itself may still be launched on
    /// its channel, or dropped. If CUDA had more channels, several share one; if it had fewer, some stay idle.
    ///
    /// # Errors
    /// [`Error::Refused`] for a graph in which groups of several channels act on one QMD, and for a chain, which has no groups. An error also if memory cannot
    /// be pinned, or if the driver refuses a call.
    ///
    /// # Safety
    /// As [`Graph::learn`].
    pub unsafe fn of(graph: &Graph, channels: &mut [Channel]) -> Result<Branches, Error> {
        let recipe = graph.recipe().ok_or(Refused::Form { what: "a chain on several channels" })?;
        channels.iter_mut().try_for_each(fit)?;
        let trackers: Vec<u64> = channels.iter().map(Channel::tracker).collect();
        let first = channels.first().ok_or(Refused::NoChannel(0))?;
        let space = first.space().clone();
        let (recipe, memory) = move_in(recipe, &space)?;
        let words = Words::of(&recipe, &trackers)?;
        let mut parts: Vec<Part> = Vec::with_capacity(words.parts.len());
        for (n, part) in words.parts.iter().enumerate() {
            let channel = channels.get_mut(part.channel).ok_or(Refused::NoChannel(part.channel))?;
            // Memory that a part touches may be freed when that part is done, so each part has its own pins.
            let (pins, watches) = (pin(&words.touched, &recipe, channel.space())?, watch(&recipe, channel.space()));
            let counts: Vec<(usize, u32)> = part.counts.iter().map(|count| (count.word, count.more)).collect();
            let words = LaunchWords {
                // The first part uploads everything, before the other parts are prepared.
                upload: if n == 0 { &words.upload } else { &[] },
                launch: &part.launch,
                counts: &counts,
                adds: part.adds,
                qmds: &words.qmds,
                memory: std::slice::from_ref(&memory),
                touched: &regions(&pins),
                needed: &regions(&watches),
                parameters: (0, 0),
            };
            // SAFETY: the caller's contract. The upload only arms QMDs, and all releases by QMDs were moved to the trackers of the channels that start them.
            let mut launch = unsafe { Launch::prepare(channel, words)? };
            launch.keep(pins.into_iter().chain(watches));
            parts.push(Part {
                launch,
                channel: part.channel,
                after: part.after.clone(),
                begins: part.begins,
                last: None,
            });
        }
        let channels = channels.iter().map(|channel| (channel.observer(), None)).collect();
        Ok(Branches { parts, channels })
    }

    /// How many doorbells a launch rings.
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Launches the graph, after its previous launch and, on each channel, after all earlier launches there. Other launches on the other channels are not
    /// ordered against it.
    ///
    /// # Errors
    /// As [`Graph::launch`]; the graph is not launched then. [`Error::Partly`]: only some parts were launched. These run to their end.
    pub fn launch(&mut self, channels: &mut [Channel]) -> Result<(), Error> {
        if channels.len() != self.channels.len() {
            return Err(gpu::Error::OtherChannel.into());
        }
        self.parts.iter().try_for_each(|part| part.launch.ready(&mut channels[part.channel]))?;
        let start = Instant::now();
        for n in 0..self.parts.len() {
            loop {
                match self.part(n, channels) {
                    Ok(()) => break,
                    Err(gpu::Error::RingFull(_)) if n > 0 && start.elapsed() < ROOM => std::hint::spin_loop(),
                    Err(cause) if n == 0 => return Err(cause.into()),
                    Err(cause) => return Err(Error::Partly { parts: n, of: self.parts.len(), cause }),
                }
            }
        }
        Ok(())
    }

    fn part(&mut self, n: usize, channels: &mut [Channel]) -> Result<(), gpu::Error> {
        let part = &self.parts[n];
        let channel = &mut channels[part.channel];
        part.launch.ready(channel)?;
        if part.begins {
            for (other, (observer, last)) in self.channels.iter().enumerate() {
                if let (true, Some(last)) = (other != part.channel, last) {
                    channel.wait_for_other(observer, *last)?;
                }
            }
        }
        for other in &part.after {
            let Part { channel: on, last, .. } = &self.parts[*other];
            if let Some(last) = last {
                channel.wait_for_other(&self.channels[*on].0, *last)?;
            }
        }
        let part = &mut self.parts[n];
        let ticket = part.launch.submit(channel)?;
        part.last = Some(ticket);
        self.channels[part.channel].1 = Some(ticket);
        Ok(())
    }

    /// Whether all launches are done.
    pub fn done(&self) -> bool {
        self.channels.iter().all(|(observer, last)| last.is_none_or(|ticket| observer.done(ticket)))
    }

    /// Waits until all launches are done.
    ///
    /// # Errors
    /// As [`Channel::wait`].
    pub fn wait(&self, channels: &[Channel], limit: Duration) -> Result<(), Error> {
        for (channel, (_, last)) in channels.iter().zip(&self.channels) {
            if let Some(ticket) = last {
                channel.wait(*ticket, limit)?;
            }
        }
        Ok(())
    }
}

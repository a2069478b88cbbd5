//! A graph on several channels of ours: branches that CUDA had on several channels may run side by side, and each part costs a doorbell.
//!
//! When that is quicker than one channel has not been measured; [`Graph`] uses one. Parameters stay what they are.

use crate::error::Error;
use crate::graph::{Graph, fit};
use crate::memory::{move_in, pin, regions, watch};
use cuda_graph::{Branches as Words, Refused};
use gpu::{Channel, Launch, LaunchWords, Observer, Ticket};
use std::time::{Duration, Instant};

/// How long a part waits for room in its channel when others of the same launch are under way already.
const ROOM: Duration = Duration::from_secs(1);

/// A graph on several channels.
#[derive(Debug)]
pub struct Branches {
    parts: Vec<Part>,
    /// Of the channels, in their order; what was launched last on each.
    channels: Vec<(Observer, Option<Ticket>)>,
}

#[derive(Debug)]
struct Part {
    launch: Launch,
    channel: usize,
    /// Parts of other channels that have to be done first.
    after: Vec<usize>,
    begins: bool,
    last: Option<Ticket>,
}

impl Branches {
    /// Makes a graph that was learnt ready on these channels ([`crate::channel`], of one address space), in memory of its own: `graph` itself may be launched on its channel
    /// meanwhile, or dropped. Where CUDA had more channels, several share one; where it had fewer, some stay idle.
    ///
    /// # Errors
    /// [`Error::Refused`] for a graph whose QMDs groups of several channels act on, and for a chain, which has no groups; what cannot be pinned, and what
    /// the driver refuses.
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
            // What a part touches may go when that part is done, so each has pins of its own.
            let (pins, watches) = (pin(&words.touched, &recipe, channel.space())?, watch(&recipe, channel.space()));
            let counts: Vec<(usize, u32)> = part.counts.iter().map(|count| (count.word, count.more)).collect();
            let words = LaunchWords {
                // The first brings everything; it is there before the others are made ready.
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
            // SAFETY: the caller's. The upload only arms, and what QMDs release was moved to the trackers of the channels that start them.
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

    /// Launches it once more, behind the launch before it of this graph, and on each channel behind all that was launched there. Nothing orders it against what
    /// else is launched on the other channels.
    ///
    /// # Errors
    /// As [`Graph::launch`], and nothing was launched then. [`Error::Partly`]: some parts were launched and others were not; what was launched comes to its
    /// end.
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

    /// Whether all that was launched is done.
    pub fn done(&self) -> bool {
        self.channels.iter().all(|(observer, last)| last.is_none_or(|ticket| observer.done(ticket)))
    }

    /// Waits until all that was launched is done.
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

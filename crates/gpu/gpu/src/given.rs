//! The work that CUDA's channels on one GPU received since a mark: the words of its submissions, read where CUDA wrote them.
//!
//! CUDA maps its rings, its pushbuffers and USERD for the CPU, and the object graph has their addresses. A mark keeps each channel's GP_PUT and some
//! entries of its ring. Later the entries between the two GP_PUTs are the submissions. The other kept entries must be unchanged: otherwise the ring has
//! wrapped. (CUDA writes all of a ring that wraps, so a few entries suffice. Rings are in GPU memory, where an H200 needs about 1 us for each entry that
//! the CPU loads: all entries of all channels took 20 ms.) The GPU gets no command.

use crate::error::Error;
use crate::space::AddressSpace;
use crate::watched::Watched;
use pushbuf::gpfifo::{Entry, Opcode};
use pushbuf::header::{Header, Kind};
use pushbuf::semaphore::{Execute, Operation, method};
use pushbuf::userd;
use rm::graph::{Channel, ObjectGraph};
use std::sync::Arc;

const LATE: &str = "CUDA was initialised before doorbell was opened, so nobody saw where they lie; open doorbell before the first call of CUDA";
/// A client's object for a GPU instance.
const AMPERE_SMC_PARTITION_REF: u32 = 0xc637;
/// Entries that a mark keeps of each ring: the last written ones, and others at equal distances.
const LAST: u32 = 8;
const SPREAD: u32 = 24;
/// The maximum words of one submission: 256 MiB of them would be no launch.
const MOST: usize = 64 << 20;

/// The state of all CUDA channels on one GPU at some moment.
#[derive(Debug)]
pub struct Mark {
    rings: Vec<Marked>,
    uuid: [u8; 16],
    client: u32,
    device: u32,
}

#[derive(Debug)]
struct Marked {
    handle: u32,
    put: u32,
    /// Some entries, by number.
    entries: Vec<(u32, u64)>,
}

/// A CUDA channel, as a recipe needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenChannel {
    /// RM handle, the same in each reading.
    pub handle: u32,
    /// Its host class.
    pub class: u32,
    /// Classes of the engine objects on it.
    pub engines: Vec<u32>,
    /// Handle of its channel group.
    pub group: Option<u32>,
    /// The words of each GPFIFO entry, in order. The order between channels is unknown.
    pub segments: Vec<Vec<u32>>,
}

/// The work received since a mark.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// Channels that received work.
    pub channels: Vec<GivenChannel>,
}

impl Watched {
    /// Where CUDA's channels on the GPU of `space` are now. The caller must make sure that CUDA submits no work during the call.
    ///
    /// # Errors
    /// [`Error::NotSeen`] if a ring or USERD is not mapped for the CPU, and for a CUDA that was initialised before it was watched.
    pub fn mark(&self, space: &Arc<AddressSpace>) -> Result<Mark, Error> {
        if self.is_late() {
            return Err(Error::NotSeen { channel: "its channels".into(), why: LATE });
        }
        let uuid = space.device().uuid();
        let theirs = self.theirs(uuid)?;
        // A GPU instance has its own runlists and parts of the context.
        if self.graph().of_class(AMPERE_SMC_PARTITION_REF).any(|object| object.client == theirs.client) {
            let why = "the GPU is divided (MIG), where launches were not seen yet; use a whole GPU";
            return Err(Error::NotSeen { channel: "its channels".into(), why });
        }
        let mut mark = Mark { rings: Vec::new(), uuid, client: theirs.client, device: theirs.device };
        let graph = self.graph();
        let marked = mark.channels(&graph).map(|channel| {
            let ring = Ring::of(channel)?;
            let put = ring.put()?;
            Ok(Marked { handle: channel.handle, put, entries: ring.some(put) })
        });
        mark.rings = marked.collect::<Result<_, Error>>()?;
        if mark.rings.is_empty() {
            return Err(Error::NotSeen { channel: "its channels".into(), why: "it has none on this GPU" });
        }
        Ok(mark)
    }

    /// The work on CUDA channels since the mark. CUDA must submit no work during the call.
    ///
    /// # Errors
    /// [`Error::NotSeen`] if a ring has wrapped, a channel was freed, a new channel was used, or words are not mapped for the CPU.
    pub fn given(&self, since: &Mark) -> Result<Given, Error> {
        let graph = self.graph();
        let mut given = Given::default();
        let now: Vec<&Channel> = since.channels(&graph).collect();
        if let Some(gone) = since.rings.iter().find(|m| now.iter().all(|channel| channel.handle != m.handle)) {
            return Err(not_seen(gone.handle, "the channel is gone"));
        }
        for channel in now {
            let ring = Ring::of(channel)?;
            let Some(marked) = since.rings.iter().find(|m| m.handle == channel.handle) else {
                if ring.put()? != 0 {
                    return Err(not_seen(channel.handle, "it was made in the meantime; do once more what was done"));
                }
                continue;
            };
            let mut segments = ring.since(&graph, since.uuid, marked)?;
            segments.iter_mut().for_each(|words| take_stamps(words));
            if !segments.is_empty() {
                given.channels.push(GivenChannel {
                    handle: channel.handle,
                    class: channel.class,
                    engines: channel.engines.iter().map(|(_, class)| *class).collect(),
                    group: channel.group,
                    segments,
                });
            }
        }
        Ok(given)
    }
}

/// Under `doorbell record --gpu-times` kernels store their ends, by words that the recorder's agent has written into CUDA's: takes them out again.
fn take_stamps(words: &mut [u32]) {
    type Takes = unsafe extern "C" fn(*mut u32, usize);
    // SAFETY: a name.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"doorbell_agent_take_stamps".as_ptr()) };
    if !found.is_null() {
        // SAFETY: the agent's function has this type, and writes only these words.
        unsafe { std::mem::transmute::<*mut libc::c_void, Takes>(found)(words.as_mut_ptr(), words.len()) };
    }
}

impl Mark {
    /// CUDA's channels on the GPU that are alive now.
    fn channels<'a>(&'a self, graph: &'a ObjectGraph) -> impl Iterator<Item = &'a Channel> {
        graph.channels().iter().filter(|c| {
            let group = c.group.and_then(|group| graph.object(c.client, group));
            let parent = group.map_or(c.parent, |group| group.parent_handle);
            c.alive() && c.client == self.client && parent == self.device
        })
    }
}

fn not_seen(handle: u32, why: &'static str) -> Error {
    Error::NotSeen { channel: format!("channel {handle:#x}"), why }
}

/// A channel's GPFIFO and GP_PUT, where CUDA has mapped them.
struct Ring {
    handle: u32,
    put: *const u32,
    gpfifo: *const u64,
    entries: u32,
}

impl Ring {
    fn of(channel: &Channel) -> Result<Ring, Error> {
        let handle = channel.handle;
        let userd = channel.userd.as_ref().and_then(|userd| userd.cpu);
        let put = userd.ok_or(not_seen(handle, "its USERD is not mapped for the CPU"))? + userd::GP_PUT as u64;
        let gpfifo = channel.gpfifo_at.as_ref().and_then(|at| at.cpu);
        let gpfifo = gpfifo.ok_or(not_seen(handle, "its GPFIFO is not mapped for the CPU"))?;
        Ok(Ring { handle, put: put as *const u32, gpfifo: gpfifo as *const u64, entries: channel.entries })
    }

    fn put(&self) -> Result<u32, Error> {
        // SAFETY: the graph saw USERD mapped there and not unmapped since, and it is held.
        let put = unsafe { self.put.read_volatile() };
        if put < self.entries { Ok(put) } else { Err(not_seen(self.handle, "its GP_PUT lies outside its ring")) }
    }

    fn entry(&self, i: u32) -> u64 {
        // SAFETY: as above, of the GPFIFO; `i` is below the number of its entries.
        unsafe { self.gpfifo.add(i as usize).read_volatile() }
    }

    /// Entries before `put`, and some from all of the ring.
    fn some(&self, put: u32) -> Vec<(u32, u64)> {
        let last = (1..=LAST.min(self.entries)).map(|back| (put + self.entries - back) % self.entries);
        let step = (self.entries / SPREAD).max(1) as usize;
        let mut some: Vec<u32> = last.chain((0..self.entries).step_by(step)).collect();
        some.sort_unstable();
        some.dedup();
        some.into_iter().map(|i| (i, self.entry(i))).collect()
    }

    /// The words of the entries since the mark.
    fn since(&self, graph: &ObjectGraph, gpu: [u8; 16], marked: &Marked) -> Result<Vec<Vec<u32>>, Error> {
        let put = self.put()?;
        let count = (put + self.entries - marked.put) % self.entries;
        // Entries that were not written again must be unchanged. (A ring that wraps is written completely.)
        let is_new = |i: u32| (i + self.entries - marked.put) % self.entries < count;
        if marked.entries.iter().any(|(i, was)| !is_new(*i) && self.entry(*i) != *was) {
            return Err(not_seen(self.handle, "so much was submitted that its ring has gone round"));
        }
        let (mut segments, mut base, mut words) = (Vec::new(), 0, 0);
        for i in (0..count).map(|i| (marked.put + i) % self.entries) {
            match Entry::parse(self.entry(i)) {
                Entry::Segment(segment) => {
                    words += segment.dwords as usize;
                    if words > MOST {
                        return Err(not_seen(self.handle, "more words than a launch may have"));
                    }
                    let words = self.words(graph, gpu, base | segment.va, segment.dwords)?;
                    if !(self.ends_quarter(i) && is_release(&words)) {
                        segments.push(words);
                    }
                }
                Entry::Control(control) => match control.opcode {
                    Opcode::Nop => {}
                    Opcode::SetPbSegmentExtendedBase => base = u64::from(control.operand >> 8 & 0x1_ffff) << 40,
                    _ => {
                        return Err(not_seen(self.handle, "an entry of its ring is a control entry that is not known"));
                    }
                },
            }
        }
        Ok(segments)
    }

    /// Whether it is the last entry of a quarter, where CUDA has the host release a semaphore. That release shows how much of the ring is consumed, and is
    /// not part of the submission.
    fn ends_quarter(&self, entry: u32) -> bool {
        (entry + 1).is_multiple_of((self.entries / 4).max(1))
    }

    /// A segment's words, wherever its pages are mapped.
    fn words(&self, graph: &ObjectGraph, gpu: [u8; 16], va: u64, dwords: u32) -> Result<Vec<u32>, Error> {
        let (mut words, mut at) = (Vec::with_capacity(dwords as usize), va);
        let end = va.saturating_add(4 * u64::from(dwords));
        while at < end {
            let found = graph.place_on(gpu, at).and_then(|found| Some((found.cpu?, found.rest & !3)));
            let (cpu, rest) = found
                .filter(|(_, rest)| *rest > 0)
                .ok_or(not_seen(self.handle, "its pushbuffer is not mapped for the CPU"))?;
            let here = rest.min(end - at);
            let mapped = graph.cpu_at(cpu).is_some_and(|(start, length, _)| cpu + here <= start + length);
            if !mapped {
                return Err(not_seen(self.handle, "its pushbuffer is mapped for the CPU in parts"));
            }
            // SAFETY: the graph saw all of it mapped there and not unmapped since, and it is held.
            words.extend((0..here / 4).map(|i| unsafe { (cpu as *const u32).add(i as usize).read_volatile() }));
            at += here;
        }
        Ok(words)
    }
}

/// Whether the words are exactly one release by the host.
fn is_release(words: &[u32]) -> bool {
    let [header, _, _, _, _, execute] = words else { return false };
    let semaphore = matches!(
        Header::parse(*header),
        Header::Methods { kind: Kind::Inc, address: method::SEM_ADDR_LO, count: 5, .. }
    );
    semaphore && Execute::parse(*execute).operation == Operation::Release
}

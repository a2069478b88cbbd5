//! `host->resident[sm]->gpu0`: kernels that run before any transfer is submitted, wait at a mailbox, and copy on command.
//!
//! They have the role of the GPU's microcontrollers in 'Data Transfer Matters of Real-Time GPU Computing' (2013). There, HUB and GPC copied on a command, and
//! GPC4 was four of them with a part of the data each. Today their firmware must be signed, so programs can only run kernels next to the GPU's engines.
//!
//! - `sm`: one block, so one multiprocessor;
//! - `gpc`: one cluster of blocks. CUDA promises that a cluster's blocks run on the multiprocessors of one GPC. Each block takes so much shared memory that no
//!   second one fits on its multiprocessor, and reports its multiprocessor ([`Transfer::places`]);
//! - `gpc=4`: four such clusters (any number). They are on four GPCs if two do not fit into one, which is the case where a cluster has more than half of the
//!   multiprocessors that a GPC can have. Otherwise this is refused;
//! - `clusters=4`, `cluster=8`: that many clusters, of that many blocks, without a promise about GPCs.
//!
//! All of them take part in every transfer, even a short one. That is the paper's question: whether four are less effective than one on small data. A
//! submission is one store of a line ([`mailbox`]) and no call. The kernels are launched when a transfer is prepared. They end when it rests or is dropped, and
//! by themselves 20 s after the last command. The next submission launches them again, and takes longer for that. While they run they occupy their
//! multiprocessors, and a wait for CUDA's whole context waits for them too.

mod mailbox;
mod ptx;

use super::launched::{self, Reach};
use super::polling::until;
use crate::buffer::Buffer;
use crate::ends::{Ends, both_ways};
use crate::entry::{Entry, Found, number};
use crate::error::Error;
use crate::inspect::Inspect;
use crate::machine::Machine;
use crate::route::{self, Transfer};
use crate::spec::{Executor, Spec, Word};
use cuda::{Argument, Attribute, Device, Function, Module, Shape, Stream};
use machine::Unavailable;
use mailbox::{Command, MAILBOX_BYTES, MOST_BLOCKS, MOST_CLUSTERS, Mailbox};
use std::time::Duration;

const SM: &str = "sm";
const GPC: &str = "gpc";
const GPCS: &str = "gpc=";
const CLUSTERS: &str = "clusters=";
const SIZE: &str = "cluster=";

/// Threads of a block.
const THREADS: u32 = 512;
/// Blocks that a cluster may have on every GPU with clusters.
const PORTABLE: u32 = 8;
/// Maximum on any GPU.
const MOST: u32 = 16;
/// Maximum multiprocessors of a GPC (H100 and H200: nine pairs), for GPUs of compute capability 9.
const OF_A_GPC: u32 = 18;
/// The kernels end this long after the last command.
const LIMIT: Duration = Duration::from_secs(20);
/// Limit of the launch in `try_out`. Kernels that can all run at the same time answer within `AT_ONCE`. Other work may use the GPU for a while.
const TRY_OUT: Duration = Duration::from_secs(2);
const AT_ONCE: Duration = Duration::from_secs(1);

pub(crate) const ENTRY: Entry = Entry {
    word: Word { name: "resident", numbered: false, options: &[SM, GPC, GPCS, CLUSTERS, SIZE] },
    about: |_, spec| {
        let who = match Plan::of(&spec.executor) {
            Ok(Plan::One) => "a kernel on one multiprocessor waits",
            Ok(Plan::Clusters { clusters: 1, .. }) => "a cluster of blocks on the multiprocessors of one GPC waits",
            Ok(Plan::Clusters { gpcs: true, .. }) => "clusters of blocks, each on a GPC of its own, wait",
            _ => "clusters of blocks wait",
        };
        format!(
            "{who} at a mailbox and copies when told by one store; today's equivalent of the GPU's microcontrollers, whose firmware must be signed"
        )
    },
    list: |machine| ["sm", "gpc", "gpc=4"].map(|who| both_ways(machine, "host", &format!("resident[{who}]"))).concat(),
    check,
    open,
};

/// Which kernels wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    One,
    Clusters {
        clusters: u32,
        /// Blocks of each; the maximum if it is not given.
        size: Option<u32>,
        /// Whether each must have its own GPC.
        gpcs: bool,
    },
}

impl Plan {
    fn of(executor: &Executor) -> Result<Plan, Unavailable> {
        let [sm, gpc] = [SM, GPC].map(|option| executor.has(option));
        let [gpcs, clusters, size] = [GPCS, CLUSTERS, SIZE].map(|option| executor.numbers(option).is_some());
        let kinds = [sm, gpc, gpcs, clusters || size];
        if kinds.iter().filter(|kind| **kind).count() > 1 {
            let why = "who waits is said once: sm, gpc, gpc=N, or clusters=N and cluster=BLOCKS";
            return Err(Unavailable::new(why));
        }
        if kinds == [sm, false, false, false] {
            return Ok(Plan::One);
        }
        let why = format!("gpc=, clusters= and cluster= take one number, 1 to {MOST_CLUSTERS}");
        let one = |option| number(executor, option, 1..=MOST_CLUSTERS, &why);
        let (gpcs, clusters, size) = (one(GPCS)?, one(CLUSTERS)?, one(SIZE)?);
        let is_claimed = gpc || gpcs.is_some();
        Ok(Plan::Clusters { clusters: gpcs.or(clusters).unwrap_or(1), size, gpcs: is_claimed })
    }
}

fn check(machine: &Machine, spec: &Spec) -> Result<(), Unavailable> {
    launched::check(machine, spec)?;
    let plan = Plan::of(&spec.executor)?;
    // The mailbox is reached through BAR1.
    machine.space()?;
    let Plan::Clusters { .. } = plan else { return Ok(()) };
    let refuse =
        |why: String| Unavailable::new(format!("clusters of blocks, which run on one GPC, are not possible: {why}"));
    match machine.context()?.device().attribute(Attribute::ClusterLaunch) {
        Ok(0) => Err(refuse("this GPU has none (compute capability 9.0 does)".into())),
        Ok(_) => Ok(()),
        Err(error) => Err(refuse(error.to_string())),
    }
}

/// The launch (clusters of blocks, each block alone on its multiprocessor), and how many such launches can run at the same time.
fn shape(device: &Device, function: &Function<'_>, plan: Plan) -> Result<(Shape, u32), Error> {
    let one = Shape { clusters: 1, size: 1, threads: THREADS, shared_bytes: 0 };
    let Plan::Clusters { clusters, size, gpcs } = plan else { return Ok((one, u32::MAX)) };
    let number = |attribute| device.attribute(attribute).map(|value| u32::try_from(value).unwrap_or(0));
    // More than half of a multiprocessor's shared memory, with the kilobyte that the system takes for each block.
    let half = number(Attribute::MaxSharedMemoryPerMultiprocessor)? / 2;
    let shared_bytes = half.min(number(Attribute::MaxSharedMemoryPerBlockOptin)?);
    function.allow_shared(shared_bytes)?;
    // Where this is refused, clusters of eight still work.
    let _ = function.allow_large_clusters();
    let largest = function.largest_cluster(&Shape { clusters, size: MOST, shared_bytes, ..one })?.max(1);
    let size = match size {
        Some(size) if size > largest => {
            let why = format!("the largest cluster of this GPU has {largest} blocks, not {size}");
            return Err(Unavailable::new(why).into());
        }
        Some(size) => size,
        // CUDA documents only sizes that are powers of two.
        None => 1 << largest.ilog2(),
    };
    let shape = Shape { clusters, size, threads: THREADS, shared_bytes };
    if gpcs && clusters > 1 && (2 * size <= OF_A_GPC || number(Attribute::ComputeMajor)? != 9) {
        let why = format!(
            "two clusters of {size} blocks may share a GPC of this GPU, so that each has one of its own cannot be shown: \
             resident[clusters={clusters}] says nothing about GPCs"
        );
        return Err(Unavailable::new(why).into());
    }
    let room = function.clusters_at_once(&shape)?;
    if room < clusters || clusters * size > MOST_BLOCKS {
        let why = format!(
            "{clusters} clusters of {size} blocks do not run at once here, {room} do: choose cluster={PORTABLE}"
        );
        return Err(Unavailable::new(why).into());
    }
    Ok((shape, room / clusters))
}

fn open<'m>(machine: &'m Machine, spec: &Spec) -> Found<'m> {
    let (context, plan) = (machine.context()?, Plan::of(&spec.executor)?);
    let (text, name) = if plan == Plan::One { (ptx::one(), ptx::ONE) } else { (ptx::clusters(), ptx::CLUSTERS) };
    let module = Module::from_ptx(context, &text)?;
    let (shape, at_once) = shape(&context.device(), &module.function(name)?, plan)?;
    let resident = Resident {
        stream: Stream::new(context)?,
        mailbox: Mailbox::new(machine, shape.clusters, shape.clusters * shape.size)?,
        module,
        name,
        shape,
        at_once,
        plan,
        reach: Reach::of(machine, spec)?,
    };
    resident.try_out()?;
    Ok(Box::new(resident))
}

struct Resident<'m> {
    // Before the memory that its work may name.
    stream: Stream<'m>,
    module: Module<'m>,
    mailbox: Mailbox<'m>,
    name: &'static str,
    shape: Shape,
    at_once: u32,
    plan: Plan,
    reach: Reach,
}

/// Bytes that `try_out` copies, and their offsets in the mailbox's memory.
const TRIED: usize = 1024;
const TRIED_FROM: usize = TRIED;
const TRIED_TO: usize = 2 * TRIED;
const _: () = assert!(TRIED_TO + TRIED <= MAILBOX_BYTES);

impl Resident<'_> {
    /// Launches kernels that wait for the number after `seen`; the line and the answers hold `seen`.
    fn launch(&self, seen: u32, limit: Duration) -> Result<(), Error> {
        let arguments = [
            Argument::U64(self.mailbox.address()),
            Argument::U64(self.mailbox.host_address()?),
            Argument::U32(seen),
            Argument::U64(limit.as_nanos() as u64),
        ];
        let function = self.module.function(self.name)?;
        // SAFETY: the arguments are the kernel's. The mailbox outlives the stream's work: the code that launches also waits for the stream before it is
        // dropped, and commands name memory of transfers that do the same.
        unsafe {
            if self.plan == Plan::One {
                function.launch([1, 1, 1], [THREADS, 1, 1], 0, &self.stream, &arguments)
            } else {
                function.launch_clusters(&self.shape, &self.stream, &arguments)
            }
        }?;
        Ok(())
    }

    /// One copy within the mailbox's memory, from launch to end. At a first launch CUDA loads code, and may wait for the whole context. That must not happen
    /// while a kernel waits. Kernels that fail end by their own limit.
    fn try_out(&self) -> Result<(), Error> {
        let data: [u8; TRIED] = std::array::from_fn(|n| ((n * 31) >> 3) as u8 ^ 0x5a);
        self.mailbox.reset(0)?;
        self.mailbox.map().write(TRIED_FROM as u64, &data)?;
        self.mailbox.map().write(TRIED_TO as u64, &[0; TRIED])?;
        self.launch(0, TRY_OUT)?;
        let at = self.mailbox.address();
        let command = Command { from: at + TRIED_FROM as u64, to: at + TRIED_TO as u64, bytes: TRIED as u64 };
        self.mailbox.send(&command, 1)?;
        let in_time = until(AT_ONCE, || self.mailbox.is_answered(1));
        let (answers, places) = (self.mailbox.answers(1), self.mailbox.places());
        self.mailbox.stop()?;
        self.stream.synchronize()?;
        let refuse = |why: String| Err(Unavailable::new(why).into());
        let clusters = self.shape.clusters;
        if in_time.is_err() {
            return refuse(format!(
                "{answers} of {clusters} resident kernels did a copy that they were told through BAR1, within {AT_ONCE:?}"
            ));
        }
        let stopped = (0..clusters as usize).filter(|cluster| self.mailbox.ended(*cluster) == ptx::STOPPED).count();
        if stopped < clusters as usize {
            return refuse(format!("{stopped} of {clusters} resident kernels saw that they were to end"));
        }
        let mut found = [0; TRIED];
        self.mailbox.map().read(TRIED_TO as u64, &mut found)?;
        if found != data {
            return refuse("a resident kernel answered and had not copied what it was told".into());
        }
        let Some(places) = places else { return refuse("a resident kernel did not say where it runs".into()) };
        self.check_places(&places)
    }

    /// Checks that blocks that should be alone are alone.
    fn check_places(&self, places: &[Vec<u32>]) -> Result<(), Error> {
        let mut all: Vec<u32> = places.concat();
        let blocks = all.len();
        all.sort_unstable();
        all.dedup();
        let is_claimed = matches!(self.plan, Plan::Clusters { gpcs: true, .. });
        if is_claimed && all.len() < blocks {
            let why = format!(
                "{blocks} blocks ran on {} multiprocessors, so where they are is not shown: {places:?}",
                all.len()
            );
            return Err(Unavailable::new(why).into());
        }
        Ok(())
    }
}

impl route::Executor for Resident<'_> {
    fn at_once(&self) -> u32 {
        self.at_once
    }

    fn reach(&mut self, from: &Buffer<'_>, to: &Buffer<'_>) -> Result<(), Error> {
        self.reach.check(from, to)
    }

    fn prepare<'r>(&'r mut self, ends: Ends<'r>, bytes: u64) -> Result<Box<dyn Transfer + 'r>, Error> {
        self.reach(ends.source, ends.destination)?;
        ends.check(bytes)?;
        let command = Command { from: ends.source.va(), to: ends.destination.va(), bytes };
        let mut told = Told { resident: self, command, ends, number: 0, running: false, submitted: false };
        told.wake()?;
        Ok(Box::new(told))
    }
}

struct Told<'r> {
    resident: &'r Resident<'r>,
    command: Command,
    ends: Ends<'r>,
    /// Number of the last command.
    number: u32,
    running: bool,
    submitted: bool,
}

impl Told<'_> {
    /// Launches kernels that wait for the number after this one.
    #[cold]
    fn wake(&mut self) -> Result<(), Error> {
        self.rest()?;
        self.resident.mailbox.reset(self.number)?;
        self.resident.launch(self.number, LIMIT)?;
        self.running = true;
        Ok(())
    }

    /// Some kernel ended by its limit just when the command arrived, so the command is sent again to all of them.
    #[cold]
    fn tell_again(&mut self) -> Result<(), Error> {
        let number = self.number;
        // Those that have copied already copy again; 0 is no command's number.
        self.number = 0;
        self.wake()?;
        self.number = number;
        self.resident.mailbox.send(&self.command, number)
    }

    #[inline]
    fn is_answered(&self) -> bool {
        self.resident.mailbox.is_answered(self.number)
    }
}

impl Transfer for Told<'_> {
    #[inline]
    fn submit(&mut self) -> Result<(), Error> {
        if !self.running || self.resident.mailbox.has_ended() {
            self.wake()?;
        }
        self.number = if self.number >= ptx::STOP - 1 { 1 } else { self.number + 1 };
        self.resident.mailbox.send(&self.command, self.number)?;
        self.submitted = true;
        Ok(())
    }

    #[inline]
    fn poll(&mut self) -> Result<bool, Error> {
        Ok(self.submitted && self.is_answered())
    }

    #[inline]
    fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        if !self.submitted {
            return Err(Error::Idle);
        }
        let mailbox = &self.resident.mailbox;
        let mut looks = 0u32;
        let mut ended = false;
        let is_over = || {
            looks = looks.wrapping_add(1);
            mailbox.is_answered(self.number)
                || (looks.is_multiple_of(1024) && {
                    ended = mailbox.has_ended();
                    ended
                })
        };
        let bytes = self.command.bytes;
        let late = |after| Error::Late { bytes, after };
        until(timeout, is_over).map_err(late)?;
        if ended && !self.is_answered() {
            self.tell_again()?;
            until(timeout, || self.resident.mailbox.is_answered(self.number)).map_err(late)?;
        }
        Ok(())
    }

    fn rest(&mut self) -> Result<(), Error> {
        if self.running {
            self.resident.mailbox.stop()?;
            self.resident.stream.synchronize()?;
            self.running = false;
        }
        Ok(())
    }

    fn move_to(&mut self, source: u64, destination: u64) -> Result<(), Error> {
        self.ends.hold([source, destination], self.command.bytes)?;
        self.command.from = self.ends.source.va() + source;
        self.command.to = self.ends.destination.va() + destination;
        Ok(())
    }

    fn places(&self) -> Option<Vec<Vec<u32>>> {
        self.resident.mailbox.places()
    }

    fn ends(&self) -> Option<&dyn Inspect> {
        Some(&self.ends)
    }
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        // Where the mailbox can no longer be stored to, the kernels' own limit ends them before their stream is dropped.
        if self.rest().is_err() {
            let _ = self.resident.stream.synchronize();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_is_said_once() {
        let plan = |text: &str| {
            let spec = Spec::parse(&format!("host->resident{text}->gpu0"), &[ENTRY.word]).unwrap();
            Plan::of(&spec.executor)
        };
        assert_eq!((plan(""), plan("[sm]")), (Ok(Plan::One), Ok(Plan::One)));
        let clusters = |clusters, size, gpcs| Ok(Plan::Clusters { clusters, size, gpcs });
        assert_eq!((plan("[gpc]"), plan("[gpc=4]")), (clusters(1, None, true), clusters(4, None, true)));
        assert_eq!(plan("[clusters=4]"), clusters(4, None, false));
        assert_eq!(plan("[cluster=8,clusters=4]"), clusters(4, Some(8), false));
        assert_eq!(plan("[cluster=16]"), clusters(1, Some(16), false));
        for wrong in ["[sm,gpc]", "[gpc,gpc=4]", "[gpc=4,cluster=16]", "[sm,clusters=4]"] {
            assert!(plan(wrong).is_err_and(|why| why.reason.contains("once")), "{wrong}");
        }
        for wrong in ["[gpc=0]", "[clusters=17]", "[cluster=1+2]"] {
            assert!(plan(wrong).is_err_and(|why| why.reason.contains("one number")), "{wrong}");
        }
    }

    #[test]
    fn nothing_is_left_to_replace_in_the_text() {
        for (text, name) in [(ptx::one(), ptx::ONE), (ptx::clusters(), ptx::CLUSTERS)] {
            assert!(text.contains(&format!(".entry {name}(")), "{name}");
            for word in ["NAME", "WHERE", "READY", "PASS\n", "MEET", "COPY\n", "PLACES]", "ENDED]"] {
                assert!(!text.contains(word), "{name}: {word}");
            }
        }
    }
}

//! The compute scheduler (SKED): what PCAS actions and finished kernels do to QMDs of version 4.
//!
//! A QMD has two fields that the hardware keeps for itself: HW_ONLY_DEPENDENCE_COUNTER and HW_ONLY_REQUIRE_SCHEDULING_PCAS. COPY sets them from
//! DEPENDENCE_COUNTER and REQUIRE_SCHEDULING_PCAS. The QMD starts when the counter is 0 and no scheduling PCAS is required any more. It is active
//! from then until its kernel has run; the channel's other entries continue in that time.
//!
//! Known, of graphs that CUDA 13.0 uploads and launches on an H200:
//! - INVALIDATE_PREFETCH_COPY_SCHEDULE (0xa) immediately runs a QMD without REQUIRE_SCHEDULING_PCAS, and does not run one that has it.
//! - Such a QMD runs by a dependent's SCHEDULE, or when DECREMENT_DEPENDENCE has brought its counter to 0, without any other PCAS.
//! - With SELF_COPY_ON_COMPLETION it can be started the same way again, without another COPY, as soon as its release is seen.
//!
//! Assumed, in each case so that more mistakes are found:
//! - The two fields are in the QMD's memory, so a QMD that is written again has to be copied again.
//! - Invalidating, copying or scheduling an active QMD is an error, and so is decrementing a counter that is 0.
//! - Only WAIT_FOR_IDLE, the host's WFI and SET_REFERENCE, and releases with WFI wait for kernels. Inline writes, plain releases and reports do
//!   not. Copies on a graphics channel do not either. GA100's manual (`dev_ram`, subchannels) states that Host waits until the engine is idle when
//!   a channel changes between compute and its copy engine. But that wait also covers other channels' kernels, and no program should rely on it.
//! - A kernel reads its parameters when it runs, at the end of its time.
//! - A bank that a QMD fetches ahead (CONSTANT_BUFFER_PREFETCH, PREFETCH_POST) is in the cache from then on.
//!
//! A QMD that runs no stand-in is complete as soon as it starts, unless kernels are slowed by [`crate::Planted::SlowKernel`].

use super::channel::Channel;
use super::constants::Constants;
use super::{Fault, Runlists, limits, release, sm};
use crate::counters::add;
use crate::space::AddressSpace;
use crate::standin::{FIRST_PARAMETER, PARAMETERS, StandIn};
use pushbuf::qmd::{DependentAction, Layout, PcasAction, Qmd};
use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard};

/// Words of a QMD of version 4.
const WORDS: usize = 96;
/// The word of HW_ONLY_DEPENDENCE_COUNTER (15:0) and HW_ONLY_REQUIRE_SCHEDULING_PCAS (16).
const STATE: u64 = 4 * 9;
const REQUIRE: u32 = 1 << 16;
const COUNTER: u32 = 0xffff;
/// CONSTANT_BUFFER_PREFETCH.
const PREFETCH_POST: u64 = 2;
/// Successive QMDs that may complete in one turn; the rest waits for the next turn.
const AT_ONCE: usize = 1 << 10;

/// State that all channels share.
#[derive(Debug, Default)]
pub struct Sked {
    shared: Mutex<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Active QMDs, by address space and address.
    active: HashSet<(u64, u64)>,
    constants: Constants,
}

impl Sked {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        poison::ignore(self.shared.lock())
    }

    /// INVALIDATE_SHADER_CACHES with CONSTANT.
    pub(super) fn invalidate_constants(&self) {
        self.lock().constants.invalidate();
    }

    fn is_active(&self, space: &AddressSpace, address: u64) -> bool {
        self.lock().active.contains(&(space.id(), address))
    }
}

/// The kernels that a channel has started and that are still active.
#[derive(Debug, Default)]
pub struct Kernels {
    active: Vec<Kernel>,
}

#[derive(Debug)]
struct Kernel {
    address: u64,
    qmd: Qmd,
    code: Option<StandIn>,
    /// Turns until it runs.
    left: u64,
    /// It runs in this turn.
    due: bool,
    /// Done as soon as it starts.
    at_once: bool,
}

/// An action on a QMD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Invalidate,
    /// COPY_SCHEDULE, and whether a scheduling PCAS is required regardless of the QMD.
    Copy {
        require: bool,
    },
    Schedule,
    Decrement,
    Increment,
}

impl Kernels {
    pub(super) fn idle(&self) -> bool {
        self.active.is_empty()
    }

    /// The host's or the stream's action on the QMD at an address.
    pub(super) fn pcas(
        &mut self,
        address: u64,
        action: PcasAction,
        channel: &Channel,
        gpu: &Runlists,
    ) -> Result<(), Fault> {
        let act = match action {
            PcasAction::Nop | PcasAction::Prefetch => return Ok(()),
            PcasAction::Invalidate => Act::Invalidate,
            PcasAction::Schedule | PcasAction::PrefetchSchedule => Act::Schedule,
            PcasAction::InvalidateCopySchedule | PcasAction::InvalidatePrefetchCopySchedule => {
                Act::Copy { require: false }
            }
            PcasAction::InvalidatePrefetchCopyForceRequireScheduling => Act::Copy { require: true },
            PcasAction::DecrementDependence => Act::Decrement,
            PcasAction::IncrementDependence => Act::Increment,
            // Queues of QMDs and reference counters are not modelled.
            PcasAction::IncrementPut | PcasAction::IncrementCwdRefCounter | PcasAction::Reserved(_) => {
                return Err(Fault::engine("PCAS_ACTION not modelled", action.code().into()));
            }
        };
        self.act(address, act, channel, gpu)?;
        self.at_once(channel, gpu)
    }

    /// One turn of the GPU's thread: kernels that are due run.
    pub(super) fn turn(&mut self, channel: &Channel, gpu: &Runlists) -> Result<(), Fault> {
        if self.active.is_empty() {
            return Ok(());
        }
        // Kernels that start during this call have their first turn with the next one.
        for kernel in &mut self.active {
            kernel.due = kernel.left == 0;
            kernel.left = kernel.left.saturating_sub(1);
        }
        while let Some(i) = self.active.iter().position(|kernel| kernel.due) {
            let kernel = self.active.remove(i);
            self.complete(kernel.address, &kernel.qmd, kernel.code, channel, gpu)?;
        }
        self.at_once(channel, gpu)
    }

    /// Removes the channel's kernels, whose QMDs are free then: the channel has ended.
    pub(super) fn clear(&mut self, channel: &Channel, gpu: &Runlists) {
        let mut shared = gpu.sked.lock();
        for kernel in self.active.drain(..) {
            shared.active.remove(&(channel.space.id(), kernel.address));
        }
    }

    /// (A loop and not a recursion: QMDs may start each other forever.)
    fn at_once(&mut self, channel: &Channel, gpu: &Runlists) -> Result<(), Fault> {
        for _ in 0..AT_ONCE {
            let Some(i) = self.active.iter().position(|kernel| kernel.at_once) else { break };
            let kernel = self.active.remove(i);
            self.complete(kernel.address, &kernel.qmd, kernel.code, channel, gpu)?;
        }
        Ok(())
    }

    fn act(&mut self, address: u64, act: Act, channel: &Channel, gpu: &Runlists) -> Result<(), Fault> {
        let space = &*channel.space;
        let qmd = read(space, address)?;
        let active = gpu.sked.is_active(space, address);
        let mut state = space.read_u32(address + STATE)?;
        match act {
            Act::Invalidate | Act::Copy { .. } if active => {
                return Err(Fault::engine("SKEDCHECK22_INVALIDATE_ACTIVE_QMD", address));
            }
            Act::Schedule if active => return Err(Fault::engine("SKED, active QMD scheduled", address)),
            Act::Invalidate => return Ok(()),
            Act::Copy { require } => state = fresh(&qmd, state, require),
            Act::Schedule => state &= !REQUIRE,
            Act::Increment if state & COUNTER == COUNTER => {
                return Err(Fault::engine("SKED, dependence counter overflow", address));
            }
            Act::Increment => state += 1,
            Act::Decrement if gpu.plot.loses_decrement() => return Ok(()),
            Act::Decrement if state & COUNTER == 0 => {
                return Err(Fault::engine("SKEDCHECK36_DEPENDENCE_COUNTER_UNDERFLOW", address));
            }
            // The last decrement also counts as a scheduling PCAS, as CUDA's chains show.
            Act::Decrement => state = (state - 1) & !REQUIRE,
        }
        space.write_u32(address + STATE, state)?;
        if act != Act::Increment && state & (COUNTER | REQUIRE) == 0 {
            self.start(address, qmd, channel, gpu)?;
        }
        Ok(())
    }

    fn start(&mut self, address: u64, qmd: Qmd, channel: &Channel, gpu: &Runlists) -> Result<(), Fault> {
        limits::check(&qmd, address)?;
        let code = if qmd.grid().contains(&0) { None } else { sm::fetch(&channel.space, qmd.program_address())? };
        let slow = gpu.plot.turns();
        {
            let mut shared = gpu.sked.lock();
            shared.active.insert((channel.space.id(), address));
            let all = qmd.field("INVALIDATE_SHADER_CONSTANT_CACHE") == Some(1);
            for i in (0..8).filter(|i| all || qmd.element("CONSTANT_BUFFER_INVALIDATE", *i) == Some(1)) {
                if let Some(bank) = qmd.constant_buffer(i) {
                    shared.constants.invalidate_bank(&channel.space, bank.address);
                }
            }
        }
        add(&gpu.counters.launches, 1);
        let left = slow.saturating_add(code.map_or(0, |code| code.turns.into()));
        let at_once = code.is_none() && slow == 0;
        self.active.push(Kernel { address, qmd, code, left, due: false, at_once });
        Ok(())
    }

    /// Runs the kernel, and performs the actions that follow its end.
    fn complete(
        &mut self,
        address: u64,
        qmd: &Qmd,
        code: Option<StandIn>,
        channel: &Channel,
        gpu: &Runlists,
    ) -> Result<(), Fault> {
        let space = &*channel.space;
        let done = run(qmd, code, space, gpu);
        gpu.sked.lock().active.remove(&(space.id(), address));
        done?;
        if qmd.field("SELF_COPY_ON_COMPLETION") == Some(1) {
            let state = space.read_u32(address + STATE)?;
            space.write_u32(address + STATE, fresh(qmd, state, false))?;
        }
        release::run(qmd.words(), &release::V04, channel, gpu)?;
        for (_, dependent) in qmd.dependents() {
            let act = match dependent.action {
                DependentAction::Schedule => Act::Schedule,
                DependentAction::InvalidateCopySchedule => Act::Copy { require: false },
                DependentAction::DecrementDependence => Act::Decrement,
                DependentAction::IncrementPut | DependentAction::Reserved(_) => {
                    return Err(Fault::engine("DEPENDENT_QMD_ACTION not modelled", address));
                }
            };
            self.act(dependent.address, act, channel, gpu)?;
        }
        Ok(())
    }
}

/// The state after COPY.
fn fresh(qmd: &Qmd, state: u32, require: bool) -> u32 {
    let require = require || qmd.field("REQUIRE_SCHEDULING_PCAS") == Some(1);
    state & !(COUNTER | REQUIRE) | qmd.dependence_counter() & COUNTER | if require { REQUIRE } else { 0 }
}

/// The kernel itself, then the banks that the QMD fetches for the next one.
fn run(qmd: &Qmd, code: Option<StandIn>, space: &AddressSpace, gpu: &Runlists) -> Result<(), Fault> {
    if let Some(code) = code {
        let bytes = code.operation.parameter_bytes();
        let parameters = match qmd.constant_buffer(0).filter(|_| bytes > 0) {
            Some(bank) => {
                let mut shared = gpu.sked.lock();
                let all = shared.constants.read(space, bank.address, bank.bytes)?;
                let first = all.get(FIRST_PARAMETER as usize..).and_then(|bytes| bytes.first_chunk::<8>());
                // A copy of a bank that was not adjusted to its address: a kernel would read the other bank's parameters.
                if first.is_some_and(|at| ![0, bank.address + PARAMETERS].contains(&u64::from_le_bytes(*at))) {
                    return Err(Fault::engine("a bank that names another's parameters", bank.address));
                }
                all.get(PARAMETERS as usize..).unwrap_or_default().iter().take(bytes).copied().collect()
            }
            None => Vec::new(),
        };
        let threads = qmd.grid().iter().chain(&qmd.block()).fold(1u32, |all, n| all.wrapping_mul(*n));
        sm::run(space, code.operation, &parameters, threads)?;
        add(&gpu.counters.kernels, 1);
    }
    for i in (0..8).filter(|i| qmd.element("CONSTANT_BUFFER_PREFETCH", *i) == Some(PREFETCH_POST)) {
        if let Some(bank) = qmd.constant_buffer(i) {
            // (A bank that cannot be fetched ahead is fetched when it is needed.)
            let _ = gpu.sked.lock().constants.read(space, bank.address, bank.bytes);
        }
    }
    Ok(())
}

/// The QMD of version 4 at an address.
fn read(space: &AddressSpace, address: u64) -> Result<Qmd, Fault> {
    let mut words = [0u32; WORDS];
    let mut bytes = [0; 4 * WORDS];
    space.read(address, &mut bytes)?;
    words
        .iter_mut()
        .zip(bytes.chunks_exact(4))
        .for_each(|(word, b)| *word = u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    let version = words[18] & 0xff;
    Layout::of((version >> 4) as u8, (version & 15) as u8)
        .filter(|layout| layout.major == 4)
        .and_then(|layout| Qmd::with_layout(layout, &words))
        .ok_or(Fault::engine("QMD version", version.into()))
}

//! A channel as the GPU sees it: its ring, its rights, and its progress.

use super::{Fault, Runlists, Turn};
use crate::counters::{ChannelCounters, state};
use crate::doorbell::{self, Slot};
use crate::memory::Memory;
use crate::space::AddressSpace;
use crate::sys;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// The engine of a channel's runlist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    Graphics,
    Copy(u32),
}

impl Engine {
    /// From NV2080_ENGINE_TYPE. H100 has ten copy engines.
    pub fn of_type(engine_type: u32) -> Option<Engine> {
        use rm::class::engine;
        match engine_type {
            engine::GRAPHICS => Some(Engine::Graphics),
            other => engine::copy_index(other).filter(|&n| n < 10).map(Engine::Copy),
        }
    }

    /// One runlist each; graphics first.
    pub fn runlist(self) -> u32 {
        match self {
            Engine::Graphics => 0,
            Engine::Copy(n) => n + 1,
        }
    }
}

#[derive(Debug)]
pub struct Channel {
    pub class: u32,
    pub engine: Engine,
    /// runlist << 16 | channel number (GA100 and later).
    pub token: u32,
    pub gpfifo: u64,
    pub entries: u32,
    /// NVOS04 bit 7: no physical addresses in copy-engine methods.
    pub deny_physical: bool,
    pub space: Arc<AddressSpace>,
    pub(super) userd: Arc<Memory>,
    pub(super) userd_offset: u64,
    notifier: Option<Arc<Memory>>,
    pub slot: usize,
    pub counters: Option<&'static ChannelCounters>,
    bell: &'static doorbell::Bell,
    /// UVM_REGISTER_CHANNEL has been called.
    pub bound: AtomicBool,
    stopped: AtomicBool,
    /// Classes of the engine objects allocated on it.
    objects: Mutex<Vec<u32>>,
    work: Mutex<Box<dyn Work>>,
}

/// Executes a channel's entries, and keeps its position in them.
pub trait Work: std::fmt::Debug + Send {
    /// One slice.
    fn turn(&mut self, channel: &Channel, gpu: &Runlists) -> Result<Turn, Fault>;

    /// The channel has ended: no part of it continues.
    fn end(&mut self, channel: &Channel, gpu: &Runlists);
}

/// The parameters of a channel.
#[derive(Debug)]
pub struct Setup {
    pub class: u32,
    pub engine: Engine,
    pub gpfifo: u64,
    pub entries: u32,
    pub deny_physical: bool,
    pub space: Arc<AddressSpace>,
    pub userd: Arc<Memory>,
    pub userd_offset: u64,
    pub notifier: Option<Arc<Memory>>,
}

impl Channel {
    /// `None`: all channel numbers are taken, or USERD is not in memory of the GPU.
    pub fn new(
        setup: Setup,
        bell: &'static doorbell::Bell,
        counters: Option<&'static ChannelCounters>,
        work: Box<dyn Work>,
    ) -> Option<Self> {
        let slot = bell.free_slot()?;
        let token = setup.engine.runlist() << 16 | slot as u32;
        let put = setup.userd.word(setup.userd_offset + doorbell::USERD_GP_PUT)?;
        if let Some(counters) = counters {
            counters.token.store(token, Ordering::Relaxed);
            counters.state.store(state::LIVE, Ordering::Release);
        }
        bell.claim(slot, token, put, counters);
        Some(Channel {
            class: setup.class,
            engine: setup.engine,
            token,
            gpfifo: setup.gpfifo,
            entries: setup.entries,
            deny_physical: setup.deny_physical,
            space: setup.space,
            userd: setup.userd,
            userd_offset: setup.userd_offset,
            notifier: setup.notifier,
            slot,
            counters,
            bell,
            bound: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            objects: Mutex::default(),
            work: Mutex::new(work),
        })
    }

    pub fn add_object(&self, class: u32) {
        poison::ignore(self.objects.lock()).push(class);
    }

    pub fn remove_object(&self, class: u32) {
        let mut objects = poison::ignore(self.objects.lock());
        if let Some(at) = objects.iter().position(|&c| c == class) {
            objects.swap_remove(at);
        }
    }

    pub(super) fn has_object(&self, class: u32) -> bool {
        poison::ignore(self.objects.lock()).contains(&class)
    }

    /// How far the channel may run now.
    pub(super) fn limit(&self, poll: bool) -> u32 {
        if poll { self.userd_word(doorbell::USERD_GP_PUT) } else { self.slot().rung() }
    }

    fn slot(&self) -> &Slot {
        self.bell.slot(self.slot)
    }

    fn userd_word(&self, offset: u64) -> u32 {
        self.userd.read_u32(self.userd_offset + offset).unwrap_or(0)
    }

    pub(super) fn set_userd_word(&self, offset: u64, value: u32) {
        // When the channel was made, the USERD area was checked to be within the memory.
        let _ = self.userd.write_u32(self.userd_offset + offset, value);
    }

    /// One slice of the channel's work.
    pub fn turn(&self, gpu: &Runlists) -> Turn {
        let mut work = poison::ignore(self.work.lock());
        if self.stopped.load(Ordering::Acquire) {
            return Turn::Idle;
        }
        match work.turn(self, gpu) {
            Ok(turn) => turn,
            Err(fault) => {
                work.end(self, gpu);
                self.kill(&fault, gpu);
                Turn::Idle
            }
        }
    }

    /// Robust-channel recovery: the notifier gets the reason, and the channel never runs again.
    fn kill(&self, fault: &Fault, gpu: &Runlists) {
        self.stopped.store(true, Ordering::Release);
        crate::counters::add(&gpu.counters.faults, 1);
        if let Some(counters) = self.counters {
            counters.fault.store(fault.code, Ordering::Relaxed);
            counters.state.store(state::FAULTED, Ordering::Release);
        }
        if gpu.log {
            eprintln!("softgpu: channel {:#x} killed: {fault}", self.token);
        }
        self.notify(fault.code);
    }

    fn notify(&self, code: u32) {
        let Some(notifier) = &self.notifier else { return };
        // NvNotification: time stamp @0, info32 @8, info16 @12, status @14. The status is written last, because it is polled.
        let _ = notifier.write(0, &sys::gpu_clock().to_le_bytes());
        let _ = notifier.write_u32(8, code);
        let _ = notifier.write_u32(12, 0xffff << 16);
    }

    /// Returns when the channel has made its last step. Its number is free again.
    pub fn stop(&self, gpu: &Runlists) {
        let was = self.stopped.swap(true, Ordering::AcqRel);
        poison::ignore(self.work.lock()).end(self, gpu);
        if !was && self.userd_word(doorbell::USERD_GP_GET) != self.userd_word(doorbell::USERD_GP_PUT) {
            // Seen on an H200 with driver 580, once in hundreds of channels that were freed with pending work.
            self.notify(crate::fault::code::PREEMPTIVE_REMOVAL);
        }
        self.bell.release(self.slot);
        if let Some(counters) = self.counters
            && !was
        {
            counters.state.store(state::FREED, Ordering::Release);
        }
    }
}

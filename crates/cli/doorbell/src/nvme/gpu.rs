//! A GPU's memory as a target: the device writes into it directly (C), or into host memory from which one of doorbell's
//! channels copies (B).

use super::failed;
use super::way::{Way, of_gpu};
use drivers::nvme::{Controller, Error, Target};
use gpu::{Channel, ChannelOptions, Copies, Engine, Region};
use pcie::Memory;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use workload::spec::{self, End};
use workload::{Buffer, Machine};

/// Time limit of a copy, which takes microseconds.
const LATE: Duration = Duration::from_secs(20);

/// Memory of a GPU, and host memory of the same size through which this process sees it.
pub struct GpuMemory<'m> {
    // Dropped before the memory.
    direct: Option<Memory>,
    copier: Mutex<Copier>,
    host: Memory,
    way: Way,
    _memory: Buffer<'m>,
}

impl<'m> GpuMemory<'m> {
    pub fn new(
        machine: &'m Machine,
        number: u32,
        controller: &Controller,
        bytes: u64,
    ) -> anyhow::Result<GpuMemory<'m>> {
        machine.enter()?;
        let bytes = bytes.next_multiple_of(4096);
        let end = End { memory: spec::Memory::Gpu(machine.index()), offset: 0 };
        let memory = Buffer::new(machine, end, bytes)?;
        let (direct, instead_of_c) = match reached(&memory, controller) {
            Ok(direct) => (Some(direct), None),
            Err(why) => (None, Some(why)),
        };
        let host = controller.allocate(bytes).map_err(failed)?;
        let copier = Mutex::new(Copier::new(machine, &memory, &host)?);
        let path = if direct.is_some() { 'C' } else { 'B' };
        let way = Way { memory: format!("gpu{number}"), path, instead_of_c };
        Ok(GpuMemory { direct, copier, host, way, _memory: memory })
    }

    pub fn way(&self) -> &Way {
        &self.way
    }

    fn copy(&self, to_gpu: bool, offset: u64, bytes: u64) -> Result<(), Error> {
        let mut copier = poison::ignore(self.copier.lock());
        copier.copy(to_gpu, offset, bytes).map_err(of_gpu)
    }

    fn forget(&self, offset: u64, bytes: u64) -> Result<(), Error> {
        Ok(self.host.store(offset, &vec![0; bytes as usize])?)
    }
}

/// The GPU's memory under the controller's address, or why it does not reach it.
fn reached(buffer: &Buffer<'_>, controller: &Controller) -> Result<Memory, String> {
    let target = buffer.gpu_target().map_err(|error| error.to_string())?;
    let memory = controller.reach(&target.peer()).map_err(|error| error.to_string())?;
    target.check().map_err(|error| error.to_string())?;
    Ok(memory)
}

impl Target for GpuMemory<'_> {
    fn memory(&self) -> &Memory {
        self.direct.as_ref().unwrap_or(&self.host)
    }

    fn load(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        let bytes = into.len() as u64;
        if self.direct.is_none() {
            self.copy(true, offset, bytes)?;
            // The bytes that are checked below are read from the GPU.
            self.forget(offset, bytes)?;
        }
        self.copy(false, offset, bytes)?;
        Ok(self.host.load(offset, into)?)
    }

    fn store(&self, offset: u64, from: &[u8]) -> Result<(), Error> {
        let bytes = from.len() as u64;
        self.host.store(offset, from)?;
        self.copy(true, offset, bytes)?;
        if self.direct.is_none() {
            self.forget(offset, bytes)?;
            self.copy(false, offset, bytes)?;
        }
        Ok(())
    }
}

/// Copies between the host memory and the GPU's.
struct Copier {
    // Dropped before its channel.
    copies: Copies,
    channel: Channel,
    gpu: Region,
    host: Region,
    /// The GPU reaches the host memory as long as this exists.
    _adopted: Arc<gpu::Memory>,
}

impl Copier {
    fn new(machine: &Machine, buffer: &Buffer<'_>, host: &Memory) -> anyhow::Result<Copier> {
        let space = machine.space()?;
        let at = host.as_ptr().ok_or_else(|| anyhow::anyhow!("the CPU does not reach the controller's host memory"))?;
        // SAFETY: the memory is mapped as long as this clone of it lives, and only this command uses it.
        let adopted = unsafe { space.adopt_host(at, host.length(), Arc::new(host.clone())) }?;
        let engine = machine.asynchronous_engines().first().map_or(0, |engine| engine.number);
        let mut channel = Channel::new(space, Engine::Copy(engine), ChannelOptions::default())?;
        let copies = Copies::new(&mut channel)?;
        Ok(Copier { copies, channel, gpu: buffer.region(space)?, host: adopted.region(), _adopted: adopted })
    }

    fn copy(&mut self, to_gpu: bool, offset: u64, bytes: u64) -> Result<(), gpu::Error> {
        self.gpu.ask_where_wanted()?;
        let (to, from) = if to_gpu { (&self.gpu, &self.host) } else { (&self.host, &self.gpu) };
        let mut written = self.copies.begin(&mut self.channel)?;
        written.copy((to, offset), (from, offset), bytes)?;
        let ticket = written.submit()?;
        self.channel.wait(ticket, LATE)
    }
}

//! Compatibility mode for programs that were written for host buffers, as for the character devices of a vendor's driver. Two lines of settings make their
//! bytes move directly to the GPU.
//!
//! Such a program reads from its device into a host buffer and copies that to the GPU. Here its buffers are [`Frame`]s, which have memory on both sides, and
//! its calls are [`Transfers::read`] and [`Transfers::upload`]. Under [`Mode::Host`] these do exactly that. Under [`Mode::GpuPinned`] the device's DMA writes
//! the GPU's memory, which was pinned once, and the upload finds the bytes there. The program stays the same, and so do the bytes that it finds.

use super::{Device, Handle, Job};
use crate::buffer::Buffer;
use crate::ends::Ends;
use crate::error::Error;
use crate::executor::Executor;
use crate::machine::Machine;
use crate::routes;
use crate::spec::{End, Host, Memory};
use machine::Unavailable;
use std::path::Path;
use std::time::Duration;

/// The environment variable with the path of the settings file.
pub const VARIABLE: &str = "DOORBELL_TRANSFERS";
const PATIENCE: Duration = Duration::from_secs(2);
/// An emulated device may take this long.
const LONG_PATIENCE: Duration = Duration::from_secs(120);

/// Where a device's bytes are sent first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// To host memory, and from there to the GPU.
    #[default]
    Host,
    /// Directly to the GPU's memory.
    GpuPinned,
}

/// The two lines of settings.
///
/// ```toml
/// mode = "gpu-pinned"
/// gpu = 0
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    pub mode: Mode,
    pub gpu: u32,
}

impl Settings {
    /// Reads the settings from a file's text.
    ///
    /// # Errors
    /// [`Unavailable`] with the mistake and the valid settings.
    pub fn parse(text: &str) -> Result<Settings, Unavailable> {
        let wrong = |what: String| Unavailable::new(format!("{what}: mode = \"host\" or \"gpu-pinned\", and gpu = 0"));
        let table: toml::Table = text.parse().map_err(|e: toml::de::Error| wrong(e.message().to_owned()))?;
        let mut settings = Settings::default();
        for (key, value) in &table {
            match (key.as_str(), value.as_str(), value.as_integer()) {
                ("mode", Some("host"), _) => settings.mode = Mode::Host,
                ("mode", Some("gpu-pinned"), _) => settings.mode = Mode::GpuPinned,
                ("gpu", _, Some(n)) if (0..16).contains(&n) => settings.gpu = n as u32,
                _ => return Err(wrong(format!("{key} is no such line"))),
            }
        }
        Ok(settings)
    }

    /// Reads the file that the environment names in `DOORBELL_TRANSFERS`; host mode where it names none.
    ///
    /// # Errors
    /// As [`Settings::parse`], or an error if the file cannot be read.
    pub fn find() -> Result<Settings, Unavailable> {
        let Some(path) = std::env::var_os(VARIABLE) else { return Ok(Settings::default()) };
        let path = Path::new(&path);
        let told = |what: &dyn std::fmt::Display| Unavailable::new(format!("{VARIABLE}={}: {what}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|e| told(&e))?;
        Settings::parse(&text).map_err(|e| told(&e))
    }
}

/// One of the program's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame(usize);

struct Sides<'m> {
    host: Buffer<'m>,
    gpu: Buffer<'m>,
    on_host: Handle,
    /// Pinned under [`Mode::GpuPinned`].
    on_gpu: Option<Handle>,
}

/// A device's transfers, with the calls of a program for host buffers.
pub struct Transfers<'m> {
    // Before the memories that their work may name.
    device: Box<dyn Device + 'm>,
    /// To the GPU and back.
    copies: [Box<dyn Executor + 'm>; 2],
    frames: Vec<Sides<'m>>,
    own: (Buffer<'m>, Handle),
    machine: &'m Machine,
    settings: Settings,
    /// Why the requested mode is not used.
    instead: Option<Unavailable>,
    patience: Duration,
}

impl<'m> Transfers<'m> {
    /// Transfers of the machine's device over its own memory ([`Buffer::of_card`], or a part of it). Addresses count from the start of that.
    ///
    /// # Errors
    /// An error of the device or of the copies between host and GPU.
    pub fn new(machine: &'m Machine, settings: Settings, own: Buffer<'m>) -> Result<Transfers<'m>, Error> {
        let mut device = crate::device::open(machine)?;
        let handle = device.pin(&own)?;
        let gpu = settings.gpu;
        let copier = match machine.context() {
            Ok(_) => "cuda[sync]".to_owned(),
            Err(_) => format!("ce{}", machine.copy_engine()),
        };
        let copies = [
            routes::executor(machine, &format!("host->{copier}->gpu{gpu}"))?,
            routes::executor(machine, &format!("gpu{gpu}->{copier}->host"))?,
        ];
        let slow = machine.card().is_some_and(|card| card.is_functional());
        let patience = if slow { LONG_PATIENCE } else { PATIENCE };
        Ok(Transfers {
            device,
            copies,
            frames: Vec::new(),
            own: (own, handle),
            machine,
            settings,
            instead: None,
            patience,
        })
    }

    /// The path of the bytes, and why it is not the requested one.
    pub fn about(&self) -> String {
        let device = self.device.about();
        match (self.settings.mode, &self.instead) {
            (Mode::GpuPinned, None) => format!("straight to GPU {}: {device}", self.settings.gpu),
            (Mode::Host, None) => format!("by way of host memory: {device}"),
            (_, Some(why)) => format!("by way of host memory, for no direct path was possible ({why}): {device}"),
        }
    }

    /// The mode in use: [`Mode::Host`] also where the direct path was refused.
    pub fn mode(&self) -> Mode {
        self.settings.mode
    }

    /// Memory for up to `bytes` on both sides, pinned once. If the device does not reach the GPU, all later transfers use host memory.
    ///
    /// # Errors
    /// An error of the memory or the device.
    pub fn frame(&mut self, bytes: u64) -> Result<Frame, Error> {
        let host = Buffer::for_device(self.machine, End { memory: Memory::Host(Host::Pinned), offset: 0 }, bytes)?;
        let gpu = Buffer::new(self.machine, End { memory: Memory::Gpu(self.settings.gpu), offset: 0 }, bytes)?;
        let on_host = self.device.pin(&host)?;
        let mut on_gpu = None;
        if self.settings.mode == Mode::GpuPinned {
            match self.device.pin(&gpu) {
                Ok(handle) => on_gpu = Some(handle),
                Err(Error::Unavailable(why)) => {
                    self.settings.mode = Mode::Host;
                    self.instead = Some(why);
                }
                Err(error) => return Err(error),
            }
        }
        self.frames.push(Sides { host, gpu, on_host, on_gpu });
        Ok(Frame(self.frames.len() - 1))
    }

    fn sides(&self, frame: Frame) -> Result<&Sides<'m>, Error> {
        self.frames.get(frame.0).ok_or(Error::Unpinned)
    }

    fn direct(&self, frame: Frame) -> Result<Option<Handle>, Error> {
        let pinned = self.sides(frame)?.on_gpu;
        Ok(pinned.filter(|_| self.settings.mode == Mode::GpuPinned))
    }

    /// Reads the device's bytes from `at` on into the frame, as read(2) from a character device into a host buffer.
    ///
    /// # Errors
    /// The device's error.
    pub fn read(&mut self, frame: Frame, at: u64, bytes: u64) -> Result<(), Error> {
        let (direct, host, own) = (self.direct(frame)?, self.sides(frame)?.on_host, self.own.1);
        let job = self.device.job(own, direct.unwrap_or(host), bytes)?;
        run(job, at, 0, self.patience)
    }

    /// Writes the frame's bytes to the device, as write(2).
    ///
    /// # Errors
    /// As [`Transfers::read`].
    pub fn write(&mut self, frame: Frame, at: u64, bytes: u64) -> Result<(), Error> {
        let (direct, host, own) = (self.direct(frame)?, self.sides(frame)?.on_host, self.own.1);
        let job = self.device.job(direct.unwrap_or(host), own, bytes)?;
        run(job, 0, at, self.patience)
    }

    /// Ensures that the bytes that were read are in the GPU's memory: copies them as cudaMemcpy would, unless they are there already.
    ///
    /// # Errors
    /// The copy's error.
    pub fn upload(&mut self, frame: Frame, bytes: u64) -> Result<(), Error> {
        self.copy(frame, bytes, 0)
    }

    /// Ensures that the GPU's bytes are the ones to be written: copies them to the host, unless the device reads from the GPU.
    ///
    /// # Errors
    /// As [`Transfers::upload`].
    pub fn download(&mut self, frame: Frame, bytes: u64) -> Result<(), Error> {
        self.copy(frame, bytes, 1)
    }

    fn copy(&mut self, frame: Frame, bytes: u64, back: usize) -> Result<(), Error> {
        if self.direct(frame)?.is_some() {
            return Ok(());
        }
        let Transfers { copies, frames, patience, .. } = self;
        let sides = frames.get(frame.0).ok_or(Error::Unpinned)?;
        let ends = [&sides.host, &sides.gpu];
        let mut copy = copies[back].prepare(Ends::new(ends[back], ends[1 - back]), bytes)?;
        copy.submit()?;
        copy.wait(*patience)
    }

    /// The GPU memory of a frame, for kernels.
    ///
    /// # Errors
    /// [`Error::Unpinned`] if the frame is unknown.
    pub fn gpu(&self, frame: Frame) -> Result<&Buffer<'m>, Error> {
        Ok(&self.sides(frame)?.gpu)
    }

    /// The device's own memory.
    pub fn own(&self) -> &Buffer<'m> {
        &self.own.0
    }
}

fn run(mut job: Box<dyn Job + '_>, from: u64, to: u64, patience: Duration) -> Result<(), Error> {
    job.start(from, to)?;
    job.wait(patience)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_lines_say_which_way() {
        let pinned = Settings { mode: Mode::GpuPinned, gpu: 1 };
        assert_eq!(Settings::parse("mode = \"gpu-pinned\"\ngpu = 1\n"), Ok(pinned));
        assert_eq!(Settings::parse(""), Ok(Settings { mode: Mode::Host, gpu: 0 }));
        assert_eq!(Settings::parse("mode = \"host\"").unwrap().mode, Mode::Host);
        for wrong in ["mode = \"fast\"", "gpu = -1", "gpu = \"0\"", "path = 1", "mode", "gpu = 16"] {
            let said = Settings::parse(wrong).unwrap_err().reason;
            assert!(said.contains("\"gpu-pinned\""), "{wrong}: {said}");
        }
    }
}

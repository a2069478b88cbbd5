//! `doorbell bench saturate`: how close the link gets to saturation.

use super::surroundings;
use crate::failure::Failure;
use crate::help::Page;
use crate::progress::Progress;
use crate::record::Gpu;
use crate::signals;
use anyhow::Context;
use environment::Severity;
use environment::link::LinkCounters;
use gpu::{AddressSpace, Device, DeviceOptions};
use measure::clock::Clock;
use saturate::account::{Saturated, Status};
use saturate::folder::{Asked, Folder, read_account};
use saturate::plan::{self, Plan};
use saturate::run::{End, Leader, News};
use saturate::source::{Source, Target};
use saturate::sources::engine::Engines;
use saturate::sources::files::Files;
use saturate::sources::nvme::{Behind, Drive, Drives};
use saturate::wire::{Uncounted, Wire};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use terminal::table::Style;
use workload::Buffer;
use workload::spec::{self, Memory};

/// How full the PCIe link gets: many I/Os under way, each submitted and reaped by itself, and what crosses the wire meanwhile
#[derive(Debug, clap::Args)]
#[command(
    after_help = Page::examples(&[
        ("doorbell bench saturate", "two minutes; as `paper`, without a folder"),
        ("doorbell bench saturate paper -o paper", "one CPU thread, 512 to 8192 bytes: copy engines in the place of drives"),
        ("doorbell bench saturate knee --find-knee -o knee", "how few CPU threads and devices fill the link"),
        ("doorbell bench saturate sizes --set matrix.depth=64 --set run.repeats=3", ""),
        ("doorbell bench saturate paper --set source.kind=nvme --set 'source.drives=[\"0000:04:00.0\"]'", "NVMe drives"),
        ("doorbell bench saturate files --set source.file=data.bin", "a file by io_uring, to the GPU and to the host"),
        ("doorbell bench saturate --list", "the plans that come with doorbell"),
        ("doorbell bench saturate -o paper --resume", "go on with a run that was stopped"),
        ("doorbell bench saturate --show paper", "print a finished run again"),
        ("doorbell bench saturate small --gpu soft", "whether it works, never how fast"),
    ])
    .text("Every byte that is moved is compared. The GPU's own counters say what crossed the link in the same time; they are held against the \
           payload, mean against mean, and against what packets leave of the line rate by count. `doorbell report` makes a page of it. Drives are \
           written to (matrix.operation) only with --i-mean-to-overwrite, by the rules of `doorbell nvme write`.")
    .statuses(&[
        (0, "done, and every byte was right"),
        (1, "a byte was wrong, or an I/O ended with a status"),
        (2, "an error, or a cell that failed"),
        (77, "nothing can be measured on this machine"),
        (130, "stopped by Ctrl-C"),
    ])
)]
pub struct Args {
    /// A file, for example my.toml, or the name of a plan that comes along [default: paper]
    #[arg(value_name = "PLAN")]
    plan: Option<String>,
    /// Keep the run in this folder, for example results/paper
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Change a value of the plan, for example matrix.depth=32 or run.repeats=3
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Which GPU: --gpu soft is --set run.gpu=soft
    #[arg(long, value_enum, value_name = "GPU")]
    gpu: Option<Gpu>,
    /// Measure only what decides how few threads and devices fill the link
    #[arg(long)]
    find_knee: bool,
    /// Go on with the run in the folder of --out
    #[arg(long, requires = "out")]
    resume: bool,
    /// Replace the run in the folder of --out
    #[arg(long, requires = "out", conflicts_with = "resume")]
    force: bool,
    /// Say that what a drive holds may be lost: its exact address, for example 0000:04:00.0 (once for each drive of a plan that writes)
    #[arg(long, value_name = "DEVICE")]
    i_mean_to_overwrite: Vec<String>,
    /// What may be lost as well: a file system, for example ext, or unknown for bytes of no known format (once for each; partitions, LVM, RAID and swap never are)
    #[arg(long, value_name = "NAME", requires = "i_mean_to_overwrite")]
    destroy: Vec<String>,
    /// Drive NVMe drives although no IOMMU keeps them from other programs' memory
    #[arg(long)]
    without_iommu: bool,
    /// Print the result as JSON, without tables
    #[arg(long)]
    json: bool,
    /// Measure nothing: list the plans that come along
    #[arg(long, conflicts_with_all = ["plan", "out", "show"])]
    list: bool,
    /// Measure nothing: print the result of a run, for example results/paper
    #[arg(long, value_name = "RUN", conflicts_with_all = ["plan", "out", "sets", "gpu"])]
    show: Option<PathBuf>,
}

/// The default plan.
const DEFAULT: &str = "paper";
const PLANS: &str = "`doorbell bench saturate --list` lists those that come along; a file has a path or ends in .toml";

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        if self.list {
            return self.plans();
        }
        if let Some(path) = &self.show {
            let account = read_account(path)?;
            self.print(&account)?;
            return Ok(verdict(&account, End::Complete));
        }
        if !self.resume
            && !self.i_mean_to_overwrite.is_empty()
            && !self.read(self.plan.as_deref().unwrap_or(DEFAULT))?.writes()
        {
            let hint = "--set matrix.operation=write, or leave --i-mean-to-overwrite away";
            return Err(Failure::new("the plan writes to no drive", hint).into());
        }
        // From before the first result until it is stored.
        let stop = signals::count_interrupts();
        let temporary = tempfile::tempdir()?;
        let (asked_gpu, asked) = self.asked()?;
        if asked_gpu == plan::Gpu::Soft {
            crate::sample::with_softgpu()?;
        }
        let is_new = asked.is_some();
        let folder = match asked {
            Some(asked) => {
                // Before the folder is made.
                if asked.plan.source.kind == plan::Kind::Files {
                    Files::open(Path::new(&asked.plan.source.file), None)?;
                }
                let path = self.out.clone().unwrap_or_else(|| temporary.path().join("run"));
                Folder::create(&path, asked, self.force)?
            }
            None => Folder::resume(self.folder()?)?,
        };
        let done = match folder.asked().plan.source.kind {
            plan::Kind::Engines => self.engines(&folder, stop),
            plan::Kind::Nvme => self.drives(&folder, stop),
            plan::Kind::Files => self.files(&folder, stop),
        };
        if is_new && done.is_err() {
            folder.give_up()?;
        }
        done
    }

    /// Copy engines instead of devices.
    fn engines(&self, folder: &Folder, stop: &AtomicU32) -> anyhow::Result<ExitCode> {
        let plan = &folder.asked().plan;
        let device = device(plan.run.gpu, plan.run.number)?;
        let space = AddressSpace::new(&device).context("an address space without CUDA")?;
        let mut source = Engines::new(&space, &plan.source.engines, plan.source.mode)?;
        self.measure(folder, &mut source, counters(Some(&device)), stop)
    }

    fn measure(
        &self,
        folder: &Folder,
        source: &mut dyn Source,
        mut wire: Box<dyn Wire>,
        stop: &AtomicU32,
    ) -> anyhow::Result<ExitCode> {
        let progress = Progress::new();
        let clock = Clock::new();
        let is_stopped = || stop.load(Ordering::Relaxed) > 0;
        let mut leader = Leader { folder, source, wire: &mut *wire, clock: &clock, is_stopped: &is_stopped };
        let ended = leader.run(&mut |news| progress.show(&line(&news)));
        progress.clear();
        // Finished points are reported, whatever ended the run.
        let account = leader.account()?;
        folder.write_account(&account)?;
        let end = ended?;
        self.print(&account)?;
        Ok(verdict(&account, end))
    }

    /// A file, and a GPU if that is a target.
    fn files(&self, folder: &Folder, stop: &AtomicU32) -> anyhow::Result<ExitCode> {
        let plan = &folder.asked().plan;
        let path = Path::new(&plan.source.file);
        if plan.run.gpu == plan::Gpu::Real && !plan.matrix.target.contains(&Target::Gpu) {
            return self.measure(folder, &mut Files::open(path, None)?, counters(None), stop);
        }
        let first = super::machine::open(if plan.run.gpu == plan::Gpu::Soft { Gpu::Soft } else { Gpu::Real })?;
        let machine = first.gpu(plan.run.number).map_err(|why| no_gpu(plan.run.gpu, &why))?;
        let wire = counters(Some(machine.space()?.device()));
        self.measure(folder, &mut Files::open(path, Some(machine))?, wire, stop)
    }

    /// Drives, and a GPU's memory if that is a target: a part of it that they reach through BAR1.
    fn drives(&self, folder: &Folder, stop: &AtomicU32) -> anyhow::Result<ExitCode> {
        let plan = &folder.asked().plan;
        let amounts = plan.amounts().map_err(|(what, hint)| Failure::new(what, hint))?;
        let one = |text: &String| -> anyhow::Result<Drive> {
            let failed = crate::nvme::failed;
            let function = pcie::open(text, self.without_iommu).map_err(|error| failed(error.into()))?;
            let controller = nvme::Controller::open(function, nvme::Options::default()).map_err(failed)?;
            let number = match plan.source.namespace {
                0 => *controller.active().map_err(failed)?.first().ok_or_else(|| {
                    Failure::impossible(format!("{text} has no active namespace"), "`doorbell nvme list` lists them")
                })?,
                number => number,
            };
            let mut drive = Drive { namespace: controller.namespace(number).map_err(failed)?, controller, leave: None };
            if plan.writes() {
                drive.ask(&self.word(text)).map_err(failed)?;
            }
            Ok(drive)
        };
        let drives: Vec<Drive> = plan.source.drives.iter().map(one).collect::<anyhow::Result<_>>()?;
        if !plan.matrix.target.contains(&Target::Gpu) {
            let mut source = Drives::new(drives, None, amounts.timeout);
            return self.measure(folder, &mut source, counters(None), stop);
        }
        let first = super::machine::open(if plan.run.gpu == plan::Gpu::Soft { Gpu::Soft } else { Gpu::Real })?;
        let machine = first.gpu(plan.run.number).map_err(|why| no_gpu(plan.run.gpu, &why))?;
        let end = spec::End { memory: Memory::Gpu(machine.index()), offset: 0 };
        // Each cell's parts have at most this size; the peak's, with long I/Os, may be larger.
        let buffer = Buffer::new(machine, end, amounts.buffer.max(256 << 20))?;
        let target = buffer.gpu_target()?;
        let gpu = saturate::sources::nvme::Gpu { peer: target.peer(), memory: Box::new(Seen(&buffer)) };
        let wire = counters(Some(machine.space()?.device()));
        self.measure(folder, &mut Drives::new(drives, Some(gpu), amounts.timeout), wire, stop)
    }

    /// The permission to write, separate for each drive.
    fn word(&self, drive: &str) -> nvme::Word {
        let said = &self.i_mean_to_overwrite;
        let device = said.iter().find(|said| *said == drive).or(said.first()).cloned();
        nvme::Word { given: drive.into(), device, destroy: self.destroy.clone() }
    }

    fn plans(&self) -> anyhow::Result<ExitCode> {
        let about = |shipped: &plan::Shipped| plan::read(shipped.text, shipped.name, &[]).map(|plan| plan.about);
        if self.json {
            let one =
                |shipped: &plan::Shipped| Ok(serde_json::json!({ "name": shipped.name, "about": about(shipped)? }));
            let all: Vec<_> = plan::SHIPPED.iter().map(one).collect::<Result<_, saturate::Error>>()?;
            terminal::table::to_stdout(|out| Ok(writeln!(out, "{:#}", serde_json::json!({ "plans": all }))?))?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut t = Style::of_stdout().table(&["plan", "what it measures"]);
        for shipped in plan::SHIPPED {
            t.add_row([shipped.name.to_owned(), about(shipped)?]);
        }
        terminal::table::to_stdout(|out| Ok(terminal::table::write(out, &t, 0)?))?;
        Ok(ExitCode::SUCCESS)
    }

    fn folder(&self) -> Result<&Path, Failure> {
        self.out.as_deref().ok_or_else(|| Failure::new("no plan is given", PLANS))
    }

    /// The plan from the arguments, and its GPU; `None` to take the plan from the folder.
    fn asked(&self) -> anyhow::Result<(plan::Gpu, Option<Asked>)> {
        if self.plan.is_none() && self.resume {
            return Ok((Folder::open(self.folder()?)?.asked().plan.run.gpu, None));
        }
        let plan = self.read(self.plan.as_deref().unwrap_or(DEFAULT))?;
        if plan.source.kind == plan::Kind::Files && plan.source.file.is_empty() {
            let what = "the plan reads a file, and names none: source.file is empty";
            return Err(Failure::new(
                what,
                "--set source.file=data.bin, a file of twice run.buffer for each queue at least",
            )
            .into());
        }
        if self.resume {
            let folder = self.folder()?;
            let there = Folder::open(folder)?;
            if there.asked().plan != plan || there.asked().find_knee != self.find_knee {
                return Err(saturate::Error::Other(folder.into()).into());
            }
            return Ok((plan.run.gpu, None));
        }
        let before = of_machine(&plan);
        let warnings = before.warnings().into_iter().filter(|w| w.severity > Severity::Notice);
        let warnings: Vec<String> = match plan.run.gpu {
            plan::Gpu::Soft => Vec::new(),
            plan::Gpu::Real => warnings.map(|w| w.to_string()).collect(),
        };
        let asked = Asked {
            doorbell: run_folder::folder::VERSION.into(),
            commit: before.text("run.commit").map(str::to_owned),
            command: std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect(),
            find_knee: self.find_knee,
            started: environment::utc_now().unwrap_or_default(),
            warnings,
            environment: serde_json::to_value(&before)?,
            plan,
        };
        Ok((asked.plan.run.gpu, Some(asked)))
    }

    fn read(&self, name: &str) -> anyhow::Result<Plan> {
        let mut sets = self.sets.clone();
        sets.extend(self.gpu.map(|gpu| if gpu == Gpu::Soft { "run.gpu=soft".into() } else { "run.gpu=real".into() }));
        let is_file = name.contains('/') || name.ends_with(".toml");
        if let Some(shipped) = plan::SHIPPED.iter().find(|shipped| shipped.name == name && !is_file) {
            return Ok(plan::read(shipped.text, shipped.name, &sets)?);
        }
        if !is_file {
            return Err(Failure::new(format!("there is no plan {name:?}"), PLANS).into());
        }
        let text = std::fs::read_to_string(name)
            .map_err(|e| Failure::new(format!("{name}: {e}"), "the file must exist and be text"))?;
        Ok(plan::read(&text, name, &sets)?)
    }

    fn print(&self, account: &Saturated) -> anyhow::Result<()> {
        if self.json {
            let text = run_folder::json::to_vec(account)?;
            return Ok(terminal::table::to_stdout(|out| Ok(out.write_all(&text)?))?);
        }
        Ok(terminal::table::to_stdout(|out| terminal::saturate::write(out, &Style::of_stdout(), account))?)
    }
}

/// A GPU's memory, read through the GPU.
struct Seen<'b>(&'b Buffer<'b>);

impl Behind for Seen<'_> {
    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), saturate::Error> {
        self.0.write(at as i64, bytes).map_err(|e| saturate::Error::Device(e.to_string()))
    }

    fn read(&mut self, at: u64, into: &mut [u8]) -> Result<(), saturate::Error> {
        self.0.read(at as i64, into).map_err(|e| saturate::Error::Device(e.to_string()))
    }
}

fn no_gpu(gpu: plan::Gpu, why: &dyn std::fmt::Display) -> Failure {
    let hint = match gpu {
        plan::Gpu::Real => "`doorbell doctor` says what is missing; `--gpu soft` shows on any machine what works",
        plan::Gpu::Soft => "`doorbell doctor` says what works here; the software GPU has number 0 alone",
    };
    Failure::impossible(format!("no GPU to measure: {why}"), hint)
}

/// Opens the GPU without CUDA.
fn device(gpu: plan::Gpu, number: u32) -> anyhow::Result<Arc<Device>> {
    let real = gpu == plan::Gpu::Real;
    let opened = DeviceOptions::default().allow_real(real).open(Arc::new(rm::driver::Libc), number as usize);
    Ok(opened.map_err(|e| no_gpu(gpu, &e))?)
}

/// The recorded facts of the machine and of the measured GPU.
fn of_machine(plan: &Plan) -> environment::Environment {
    let (gpu, number) = (plan.run.gpu, plan.run.number);
    if gpu == plan::Gpu::Soft || number == 0 {
        return surroundings(if gpu == plan::Gpu::Soft { experiment::Gpu::Soft } else { experiment::Gpu::Real });
    }
    // If the device cannot be opened, the run reports that.
    let pci = device(gpu, number).ok().map(|device| {
        let card = device.card();
        format!("{:04x}:{:02x}:{:02x}.{}", card.domain, card.bus, card.slot, card.function)
    });
    let gpu = pci.as_deref().map_or(environment::Gpu::None, |pci| environment::Gpu::Real { pci: Some(pci) });
    environment::Environment::gather(gpu, Some(Clock::new().calibrated()), Vec::new())
}

/// Link counters of the measured GPU. Each part names those that are missing.
fn counters(device: Option<&Arc<Device>>) -> Box<dyn Wire> {
    match device.filter(|device| !device.is_soft()).map(|device| LinkCounters::of_uuid(device.uuid())) {
        Some(Ok(counters)) => Box::new(counters),
        Some(Err(_)) | None => Box::new(Uncounted),
    }
}

fn line(news: &News) -> String {
    let News { cell, repeat, done, of } = news;
    let of = of.map_or_else(String::new, |of| format!(" of {of}"));
    let size = terminal::number::bytes(cell.bytes);
    let (threads, devices) = (cell.threads, cell.devices);
    format!("{done}{of}: {size} to {}, {threads} threads, {devices} devices, repeat {}", cell.target, repeat + 1)
}

/// Exit status of a run that Ctrl-C ended.
const STOPPED: u8 = 130;

fn verdict(account: &Saturated, end: End) -> ExitCode {
    let any = |of: fn(&Status) -> bool| account.cells.iter().any(|total| of(&total.status));
    let is_wrong = account.cells.iter().any(|total| total.checked.wrong > 0 || total.refused > 0);
    ExitCode::from(match () {
        () if end == End::Stopped => STOPPED,
        () if is_wrong => 1,
        () if any(|status| matches!(status, Status::Failed(_))) => crate::ERROR,
        () if !any(|status| *status == Status::Done) => crate::IMPOSSIBLE,
        () => 0,
    })
}

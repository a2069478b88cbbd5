//! Small GPU programs to be recorded.
//!
//! Each program does one thing that a recording must get right, on random data from a seed, and checks the results. Its last line is a checksum of
//! all results, so that runs with and without a recorder can be compared bitwise; the checksum does not include times. [`checks`] are those of
//! `doorbell selftest`.

pub mod checks;
mod data;
mod kernels;
mod programs;
mod report;
mod soft;
mod starving;

pub use programs::graphs::{LAUNCH_CHECKS, LaunchCheck, MARK, check_launches};
pub use report::{Part, Report};

use data::Difference;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Which GPU answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gpu {
    /// A real one, through libcuda.
    #[default]
    Cuda,
    /// The kernel driver's own interface, without libcuda.
    Soft,
}

/// Who launches the shapes of `graphs`, and the frames of `stall`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Launcher {
    #[default]
    Cuda,
    /// After three launches by CUDA, a channel of doorbell.
    Doorbell,
}

#[derive(Clone, Debug)]
pub struct Options {
    pub gpu: Gpu,
    pub launcher: Launcher,
    /// Repeat for this long; a repetition in progress is finished.
    pub seconds: Option<f64>,
    /// Rounds, launches or iterations, as each sample defines ([`Sample::count`]).
    pub count: Option<u64>,
    pub seed: u64,
    /// Threads that launch, in `starve`.
    pub threads: u32,
    /// Shapes of `graphs` by name ([`shapes`]); all if empty.
    pub only: Vec<String>,
    /// Lines for people while a sample runs.
    pub progress: fn(&str),
}

impl Default for Options {
    fn default() -> Options {
        Options {
            gpu: Gpu::Cuda,
            launcher: Launcher::Cuda,
            seconds: None,
            count: None,
            seed: 1,
            threads: 16,
            only: Vec::new(),
            progress: |_| {},
        }
    }
}

/// More would only be a slip of the pen, and the results to compare with would not fit into memory.
const COUNT_MAX: u64 = 100_000_000;

impl Options {
    fn check(&self, sample: &Sample) -> Result<()> {
        self.deadline(Instant::now())?;
        if let Some(name) = self.only.first().filter(|_| sample.name != "graphs") {
            return Err(Error::Option { what: "a part of this sample", value: name.clone() });
        }
        let may_be_past_cuda = matches!(sample.name, "graphs" | "stall") && self.gpu == Gpu::Cuda;
        if self.launcher == Launcher::Doorbell && !may_be_past_cuda {
            return Err(Error::Option { what: "a launcher of something but CUDA's graphs", value: sample.name.into() });
        }
        if let Some(name) = self.only.iter().find(|name| !shapes().contains(name)) {
            return Err(Error::UnknownShape { name: name.clone() });
        }
        match self.count {
            Some(count) if count > COUNT_MAX && sample.name != "storm" => {
                Err(Error::Option { what: "count", value: count.to_string() })
            }
            _ => Ok(()),
        }
    }

    fn count_or(&self, default: u64) -> u64 {
        self.count.unwrap_or(default)
    }

    /// `None` if no time was requested.
    fn deadline(&self, start: Instant) -> Result<Option<Instant>> {
        let Some(seconds) = self.seconds else { return Ok(None) };
        Duration::try_from_secs_f64(seconds)
            .ok()
            .and_then(|duration| start.checked_add(duration))
            .map(Some)
            .ok_or(Error::Option { what: "seconds", value: seconds.to_string() })
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("no sample is called {name}; there are {}", names().join(", "))]
    Unknown { name: String },
    #[error("no shape of graphs is called {name}; there are {}", shapes().join(", "))]
    UnknownShape { name: String },
    /// Not possible on this machine, which is a separate result, not a failure.
    #[error("{reason}")]
    Unavailable { reason: String },
    #[error("{what}: {value} makes no sense")]
    Option { what: &'static str, value: String },
    #[error(transparent)]
    Cuda(#[from] cuda::Error),
    #[error(transparent)]
    Gpu(#[from] gpu::Error),
    #[error(transparent)]
    Launch(#[from] launch::Error),
    #[error("{what}: {difference}")]
    Wrong { what: String, difference: Difference },
    /// One of the shapes of `graphs`.
    #[error("shape {name}: {error}")]
    Shape { name: String, error: Box<Error> },
    #[error("{what}: repetition {repetition} gave checksum {got:016x}, the first {expected:016x}")]
    Unsteady { what: &'static str, repetition: u64, expected: u64, got: u64 },
    #[error("a thread of the sample panicked")]
    Panicked,
    #[error("a thread of the sample could not be started: {0}")]
    Thread(std::io::Error),
}

impl From<cuda::Unavailable> for Error {
    fn from(unavailable: cuda::Unavailable) -> Error {
        Error::Unavailable { reason: unavailable.to_string() }
    }
}

type Result<T> = std::result::Result<T, Error>;

/// A program on a GPU.
type Run<G> = fn(&G, &Options, &mut Report) -> Result<()>;

/// One program.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub name: &'static str,
    pub about: &'static str,
    /// What [`Options::count`] counts, and its default.
    pub count: &'static str,
    /// With libcuda; none for those that only the software GPU's tests need.
    run: Option<Run<cuda::Context>>,
    soft: Soft,
}

/// The variant of a sample without libcuda.
#[derive(Clone, Copy, Debug)]
enum Soft {
    None,
    Gpu(Run<soft::Machine>),
    /// It needs no GPU at all; what stands in for it.
    NoGpu(&'static str, fn(&Options, &mut Report) -> Result<()>),
}

/// All samples.
pub const SAMPLES: &[Sample] = &[
    Sample {
        name: "copies",
        about: "copies and fills of 4 B to 64 MiB, every direction, pinned and pageable",
        count: "rounds over all sizes (1)",
        run: Some(programs::copies::run),
        soft: Soft::Gpu(soft::programs::copies),
    },
    Sample {
        name: "launches",
        about: "kernels of several grids, blocks and amounts of dynamic shared memory",
        count: "launches of each shape (10)",
        run: Some(programs::launches::run),
        soft: Soft::Gpu(soft::programs::launches),
    },
    Sample {
        name: "graphs",
        about: "graphs of every shape, each launched again and again; `--list graphs` names them, --only runs some",
        count: "launches of each graph (6)",
        run: Some(programs::graphs::run),
        soft: Soft::None,
    },
    Sample {
        name: "threads",
        about: "eight threads on eight channels, then two threads on one channel; with --gpu soft",
        count: "rounds of each thread (200)",
        run: None,
        soft: Soft::Gpu(soft::programs::threads),
    },
    Sample {
        name: "spin",
        about: "a channel that waits for the host while submissions queue up after it; with --gpu soft",
        count: "submissions behind it (5,000)",
        run: None,
        soft: Soft::Gpu(soft::programs::spin),
    },
    Sample {
        name: "channels",
        about: "channels that come and go while another one works; with --gpu soft",
        count: "channels (24)",
        run: None,
        soft: Soft::Gpu(soft::programs::channels),
    },
    Sample {
        name: "storm",
        about: "launches without end, to be killed",
        count: "launches (endless)",
        run: Some(programs::storm::run),
        soft: Soft::Gpu(soft::programs::storm),
    },
    Sample {
        name: "starve",
        about: "a thread that creates streams while --threads others launch: CUDA's lock starves it (5 s, or --duration); \
                with --gpu soft a rwlock stands in for CUDA's, and no GPU is needed",
        count: "nothing",
        run: Some(programs::starve::run),
        soft: Soft::NoGpu("a rwlock that stands in for CUDA's", soft::starve::run),
    },
    Sample {
        name: "stall",
        about: "a thread that launches a frame each millisecond while another one pins host memory: CUDA's lock holds the frames up, \
                with --launcher doorbell it does not",
        count: "frames (500)",
        run: Some(programs::stall::run),
        soft: Soft::None,
    },
];

/// The names of all samples.
pub fn names() -> Vec<&'static str> {
    SAMPLES.iter().map(|sample| sample.name).collect()
}

/// The names of the shapes of `graphs`, in the order of their numbers, from 1: the grid of the kernel in front of each is (number, [`MARK`], 1).
pub fn shapes() -> Vec<String> {
    programs::graphs::names()
}

fn find(name: &str) -> Result<&'static Sample> {
    SAMPLES.iter().find(|sample| sample.name == name).ok_or_else(|| Error::Unknown { name: name.into() })
}

/// Whether the sample of this name uses a GPU under [`Gpu::Soft`].
pub fn needs_software_gpu(name: &str) -> bool {
    !find(name).is_ok_and(|sample| matches!(sample.soft, Soft::NoGpu(..)))
}

/// Runs the sample called `name` and returns its report. Prints nothing itself.
pub fn run(name: &str, options: &Options) -> Result<Report> {
    match options.gpu {
        Gpu::Cuda => {
            let sample = find(name)?;
            options.check(sample)?;
            if options.launcher == Launcher::Doorbell {
                // Before CUDA is initialised.
                gpu::Libcuda::open()?;
            }
            run_with(&cuda::Cuda::load()?, sample, options)
        }
        Gpu::Soft => run_soft(Arc::new(rm::driver::Libc), name, options),
    }
}

/// As [`run`], with a driver that the caller has loaded.
pub fn run_on(cuda: &cuda::Cuda, name: &str, options: &Options) -> Result<Report> {
    let sample = find(name)?;
    options.check(sample)?;
    run_with(cuda, sample, options)
}

/// The variant without libcuda, over a kernel driver that the caller has.
pub fn run_soft(driver: Arc<dyn rm::driver::Driver>, name: &str, options: &Options) -> Result<Report> {
    let sample = find(name)?;
    options.check(sample)?;
    match sample.soft {
        Soft::None => Err(Error::Unavailable { reason: format!("{name} needs libcuda") }),
        Soft::NoGpu(instead, run) => repeat(sample, options, instead.into(), |report| run(options, report)),
        Soft::Gpu(run) => {
            let machine = soft::Machine::open(driver)?;
            repeat(sample, options, machine.name(), |report| run(&machine, options, report))
        }
    }
}

fn run_with(cuda: &cuda::Cuda, sample: &Sample, options: &Options) -> Result<Report> {
    let Some(run) = sample.run else {
        return Err(Error::Unavailable { reason: format!("{} runs on the software GPU only", sample.name) });
    };
    if cuda.device_count()? == 0 {
        return Err(Error::Unavailable { reason: "CUDA sees no GPU".into() });
    }
    let device = cuda.device(0)?;
    let context = device.primary_context()?;
    repeat(sample, options, device.name()?, |report| run(&context, options, report))
}

/// Once, or until the time is over; every repetition must give the checksum of the first. The last one is reported. `storm` and `starve` keep time
/// themselves.
fn repeat(
    sample: &Sample,
    options: &Options,
    gpu: String,
    mut once: impl FnMut(&mut Report) -> Result<()>,
) -> Result<Report> {
    let name = sample.name;
    let mut once = || {
        let mut report = Report::new(name, gpu.clone(), options.seed);
        once(&mut report).map(|()| report)
    };
    let deadline = if matches!(name, "storm" | "starve") { None } else { options.deadline(Instant::now())? };
    let mut report = once()?;
    let expected = report.checksum();
    let mut repetition = 1;
    while deadline.is_some_and(|deadline| Instant::now() < deadline) {
        repetition += 1;
        report = once()?;
        let got = report.checksum();
        if got != expected {
            return Err(Error::Unsteady { what: name, repetition, expected, got });
        }
    }
    if deadline.is_some() {
        report.fact("repetitions", repetition);
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        let mut names = names();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), SAMPLES.len());
        for name in names {
            assert_eq!(find(name).unwrap().name, name);
        }
    }

    #[test]
    fn an_unknown_name_lists_the_known() {
        let error = run("nothing", &Options::default()).unwrap_err().to_string();
        assert!(error.contains("nothing") && error.contains("copies") && error.contains("storm"), "{error}");
    }

    #[test]
    fn seconds_that_are_no_time_are_refused() {
        for seconds in [-1.0, f64::NAN, f64::INFINITY, 1e300] {
            let options = Options { seconds: Some(seconds), ..Options::default() };
            assert!(matches!(run("copies", &options), Err(Error::Option { what: "seconds", .. })), "{seconds}");
        }
    }

    #[test]
    fn a_count_that_fits_no_memory_is_refused() {
        let options = Options { count: Some(u64::MAX), ..Options::default() };
        assert!(matches!(run("spin", &options), Err(Error::Option { what: "count", .. })));
    }

    #[test]
    fn repetitions_must_agree() {
        let options = Options { seconds: Some(60.0), ..Options::default() };
        let mut n = 0;
        let error = repeat(find("copies").unwrap(), &options, "none".into(), |report| {
            n += 1;
            report.add(&[u8::from(n == 3)]);
            Ok(())
        });
        assert!(matches!(error, Err(Error::Unsteady { repetition: 3, .. })));
    }

    #[test]
    fn without_seconds_there_is_one_repetition() {
        let mut n = 0;
        let once = |_: &mut Report| {
            n += 1;
            Ok(())
        };
        repeat(find("copies").unwrap(), &Options::default(), "none".into(), once).unwrap();
        assert_eq!(n, 1);
    }
}

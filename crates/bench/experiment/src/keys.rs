//! Every key of the format: its section, its values, its default, its purpose. The reader, the JSON Schema and the check of the documentation all
//! use this table.

use crate::model::{Data, Gpu, Metric, Observe, Process, Record};
use crate::values::Word;
use Kind::*;

/// The values of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Text,
    Whole {
        least: u64,
        most: u64,
    },
    Flag,
    /// `60s`, `1.5ms`
    Time,
    /// `4KiB`, or a number of bytes
    Size,
    /// `4B..64MiB`, or a list of sizes
    Sizes,
    /// `1000/s`, or a number
    Rate,
    /// `1000/s`, `5GB/s`, `90%`
    Reach,
    /// `other`, `nice(-5)`, `fifo(80)`, `deadline`, `real-time`
    Class,
    /// `any`, `last`, `others`, `0,2-5`
    Cpus,
    /// `stock`, `pi+phase-fair`
    Policy,
    /// `closed(4)`, `paced(100us)`
    Arrival,
    /// `fixed`, `random`, `sweep(64MiB,4GiB)`
    Addresses,
    /// `pin + unpin`
    Sum,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// `50us`; for misses `0.1%`, for rates `10GB/s`
    Amount,
    /// `1.2 cuda`
    Times,
    /// `5%, 100ns`
    Within,
    /// A list of names of subjects.
    Names,
    /// A list of values of the key that the axis names.
    Values,
}

#[derive(Clone, Copy, Debug)]
pub struct Key {
    pub name: &'static str,
    pub kind: Kind,
    /// As written in a file (empty: no default).
    pub default: &'static str,
    pub about: &'static str,
}

#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// Empty: the top of the file.
    pub name: &'static str,
    /// Written `[[name]]`, any number of times.
    pub many: bool,
    pub about: &'static str,
    pub keys: &'static [Key],
}

/// The table, as a file is laid out: the description of a key, its name, its values, its default.
macro_rules! sections {
    ($($(#[doc = $about:literal])+ $name:literal, many: $many:literal {
        $($(#[doc = $words:literal])+ $key:literal: $kind:expr $(=> $default:literal)?;)*
    })*) => {
        &[$(Section {
            name: $name,
            many: $many,
            about: concat!($($about),+).trim_ascii_start(),
            keys: &[$(Key {
                name: $key,
                kind: $kind,
                default: concat!($($default)?),
                about: concat!($($words),+).trim_ascii_start(),
            }),*],
        }),*]
    };
}

/// Bounds of numbers, larger than anyone needs, so that sums of them always fit.
const MILLION: u64 = 1_000_000;
const MANY: u64 = 1_000_000_000_000;

pub const SECTIONS: &[Section] = sections! {
    /// The experiment.
    "", many: false {
        /// Letters, digits, `-` and `_`. Default: the file's name.
        "name": Text;
        /// Set in files that doorbell writes: the variant of the experiment's file. A file with variants has `[variant.NAME]` instead.
        "variant": Text;
        /// A description in one line.
        "about": Text;
    }

    /// How the experiment runs.
    "run", many: false {
        /// The seed of random data and random orders.
        "seed": Whole { least: 0, most: i64::MAX as u64 } => "1";
        /// How often the cells of a stage take turns, in a new random order each time.
        "rounds": Whole { least: 1, most: MILLION } => "10";
        /// How often the experiment is repeated, each time in a new process with all of `rounds`, `samples`, `duration`, `noise` and `meter`.
        /// Default: five processes share them.
        "repeats": Whole { least: 1, most: 10_000 };
        /// Samples of each cell of a stage, over all its rounds. With `repeats`, in each repeat.
        "samples": Whole { least: 1, most: MANY };
        /// The time of a stage. With `repeats`, in each repeat. The stage ends when it reaches either its samples or this time.
        "duration": Time;
        /// A transfer that takes longer is lost, and ends its cell.
        "timeout": Time => "1s";
        /// How long the machine's own noise is measured before and after a stage.
        "noise": Time => "200ms";
        /// In each n-th round the kernel's counters are read around each call, and its samples are used for nothing else. 0: never.
        "counters-every": Whole { least: 0, most: MILLION } => "0";
        /// After all rounds, each cell runs for this time between two readings of what the GPU and the machine count: bytes on the link, energy (of
        /// 1s and more), CPU time. These transfers are not samples. At least 100ms; 0s: never.
        "meter": Time => "0s";
        /// When a call has run this long while a load runs (at least 1s), the loads rest until the call returns, and its sample says that it would
        /// have taken longer. Default: `duration`.
        "patience": Time;
        /// The scheduling class of the measuring thread.
        "class": Class => "other";
        /// Where the measuring thread runs.
        "cpus": Cpus => "any";
        /// The lock policy under which the processes run.
        "policy": Policy => "stock";
        /// The GPU, the software GPU, or none.
        "gpu": Choice(Gpu::WORDS) => "real";
        /// What `device` means in routes: `engine`, a copy engine; `edu`, a card that QEMU emulates, with `gpu = "soft"`; `xdma@0000:04:00.0`, an
        /// FPGA.
        "device": Text => "engine";
        /// `commands`: each stage has a separate process, which is recorded with its locks; the recording shows what each call of a subject sends to
        /// the GPU. The times are then those of a recorded process.
        "record": Choice(Record::WORDS) => "no";
    }

    /// What is measured.
    "subject", many: true {
        /// A way of copying, such as `host->cuda->gpu0`. Give either `route` or `call`.
        "route": Text;
        /// A call, such as `launch` or `graph(20)`. Give either `route` or `call`.
        "call": Text;
        /// The name in tables, `--set`, the matrix and asserts. Default: the route or call.
        "name": Text;
        /// The sizes, one cell for each. Default: those of the matrix.
        "sizes": Sizes;
        /// In experiments of before: copies of which several were one sample. More than 1 is not available.
        "back-to-back": Whole { least: 1, most: MILLION } => "1";
        /// `random`: each transfer goes to another place within its buffers. `sweep(64MiB,4GiB)`: in each round the place moves to the next multiple
        /// of 64 MiB below 4 GiB, in memory other than the host's.
        "addresses": Addresses => "fixed";
        /// Whether the bytes change before each transfer.
        "data": Choice(Data::WORDS) => "fresh";
        /// When the next transfer or call starts.
        "arrival": Arrival => "closed(1)";
        /// Which part of a sample is used in tables, ratios and asserts. All parts are kept.
        "observe": Choice(Observe::WORDS) => "done";
        /// The scheduling class while it is measured. Default: that of `[run]`.
        "class": Class;
        /// The CPUs where it is measured. Default: those of `[run]`.
        "cpus": Cpus;
        /// A sample that takes longer, counted from its intended release, has missed the deadline.
        "deadline": Time;
        /// After each turn, armed submissions and spinning kernels on the GPU are released.
        "rests": Flag => "false";
        /// The name of the subject that it is compared with. Default: that of `[compare]`. Its own name: it is compared with none.
        "baseline": Text;
        /// Names of loads, with ` + ` between them: it has cells only in stages in which one of these runs. `none`: only in those without a load.
        /// Default: in all.
        "beside": Sum;
    }

    /// Loads that run during the measurement.
    "load", many: true {
        /// A way of copying. Give either `route` or `call`.
        "route": Text;
        /// A call. Give either `route` or `call`.
        "call": Text;
        /// The name in tables, `--set` and the matrix. Default: the route or call.
        "name": Text;
        /// The size of each transfer. A route needs it; a call has its own default.
        "bytes": Size;
        /// The number of threads. 0: none.
        "count": Whole { least: 0, most: 1024 } => "1";
        /// The rate of each thread. Default: without pauses.
        "rate": Rate;
        /// Where its threads run.
        "cpus": Cpus => "any";
        /// Their scheduling class.
        "class": Class => "other";
        /// Compare the bytes of each n-th transfer. 0: only those of the last.
        "check-every": Whole { least: 0, most: MANY } => "0";
        /// The rate that all its threads together must reach; else the stage has no figures. `1000/s`, `5GB/s`, or `90%` of its own `rate` (of what
        /// it reached alone, if it has none).
        "must-reach": Reach;
        /// `own`: each of its threads runs in a separate process, with its own CUDA context.
        "process": Choice(Process::WORDS) => "shared";
    }

    /// Every combination of these values is a stage. Besides these keys: `NAME.key`, with the name of a subject or load.
    "matrix", many: false {
        /// The size of every subject that has no sizes of its own.
        "bytes": Values;
        /// Lock policies.
        "policy": Values;
        /// The scheduling class of the measuring thread.
        "run.class": Values;
        /// Where the measuring thread runs.
        "run.cpus": Values;
        /// Whether the process is recorded: `["no", "commands"]` times and counts.
        "run.record": Values;
        /// Which loads run: names with ` + ` between them, `all`, or `none`.
        "loads": Values;
        /// `addresses` of every subject.
        "addresses": Values;
        /// `arrival` of every subject.
        "arrival": Values;
    }

    /// Which transfers are compared byte by byte.
    "verify", many: false {
        /// Each n-th transfer is compared completely, and the first and the last of a turn. 1: all; 0: none.
        "every": Whole { least: 0, most: MANY } => "16";
    }

    /// What is compared within the run.
    "compare", many: false {
        /// The name of a subject, or a policy of the matrix.
        "baseline": Text;
        /// The metric that is compared.
        "metric": Choice(Metric::WORDS) => "p50";
    }

    /// A cost that is paid once, and the number of transfers that repay it.
    "repay", many: true {
        /// The names of the subjects that are paid once, with ` + ` between them.
        "once": Sum;
        /// The subjects that each transfer needs afterwards.
        "each": Sum;
        /// The subjects that each transfer needs without that.
        "against": Sum;
    }

    /// A bound that sets the exit status.
    "assert", many: true {
        /// The name of a subject; `*`: every subject.
        "subject": Text => "*";
        /// The metric that is bounded.
        "metric": Choice(Metric::WORDS) => "p50";
        /// The highest allowed value: a time; for misses a fraction (`0.1%`), for rates bytes per second (`10GB/s`).
        "at-most": Amount;
        /// The lowest allowed value, written in the same way.
        "at-least": Amount;
        /// At most this many times the same metric of another subject: `1.2 cuda`.
        "at-most-times": Times;
        /// At most this much above the longest gap of the machine's own noise.
        "above-noise": Time;
        /// At most this much above the best other route between the same memories, at the same size in the same stage: `5%, 100ns` is 5 % or 100 ns,
        /// whichever allows more.
        "within-best": Within;
        /// With `within-best`: only these subjects. Default: all.
        "among": Names;
    }

    /// The largest value of an axis at which a bound holds.
    "largest", many: true {
        /// An axis of the matrix, or `bytes` for sizes.
        "axis": Text;
        /// The name of a subject.
        "subject": Text;
        /// The metric that is bounded.
        "metric": Choice(Metric::WORDS) => "p50";
        /// As in [[assert]].
        "at-most": Amount;
        /// As in [[assert]].
        "at-least": Amount;
        /// As in [[assert]].
        "at-most-times": Times;
    }
};

/// Keys of a subject that an axis may change (`NAME.key`).
pub const OF_SUBJECTS: &[&str] = &["bytes", "arrival", "route", "call", "what", "class", "cpus"];
/// Keys of a load that an axis may change.
pub const OF_LOADS: &[&str] = &["count", "bytes", "rate", "route", "call", "what", "class", "cpus"];

pub fn section(name: &str) -> Option<&'static Section> {
    SECTIONS.iter().find(|section| section.name == name)
}

/// The values of a key; another section name is the name of a subject or load.
pub(crate) fn kind(section: &str, key: &str) -> Option<Kind> {
    if section == "matrix" {
        return Some(Kind::Values);
    }
    let of = |name: &str| self::section(name)?.keys.iter().find(|k| k.name == key).map(|k| k.kind);
    match self::section(section) {
        Some(_) => of(section),
        None => of("subject").or_else(|| of("load")),
    }
}

//! Every key of the format: its section, its values, its default, its purpose. The reader, the JSON Schema and the check of the documentation all
//! use this table.

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

const fn key(name: &'static str, kind: Kind, default: &'static str, about: &'static str) -> Key {
    Key { name, kind, default, about }
}

/// Bounds of numbers, larger than anyone needs, so that sums of them always fit.
const MILLION: u64 = 1_000_000;
const MANY: u64 = 1_000_000_000_000;

pub const METRICS: &[&str] = &["min", "mean", "p50", "p99", "p99.9", "p99.99", "max", "misses", "rate"];

pub const SECTIONS: &[Section] = &[
    Section {
        name: "",
        many: false,
        about: "The experiment.",
        keys: &[
            key("name", Kind::Text, "", "Letters, digits, `-` and `_`. Default: the file's name."),
            key(
                "variant",
                Kind::Text,
                "",
                "Set in files that doorbell writes: the variant of the experiment's file. A file with variants has `[variant.NAME]` instead.",
            ),
            key("about", Kind::Text, "", "A description in one line."),
        ],
    },
    Section {
        name: "run",
        many: false,
        about: "How the experiment runs.",
        keys: &[
            key(
                "seed",
                Kind::Whole { least: 0, most: i64::MAX as u64 },
                "1",
                "The seed of random data and random orders.",
            ),
            key(
                "rounds",
                Kind::Whole { least: 1, most: MILLION },
                "10",
                "How often the cells of a stage take turns, in a new random order each time.",
            ),
            key(
                "repeats",
                Kind::Whole { least: 1, most: 10_000 },
                "",
                "How often the experiment is repeated, each time in a new process with all of `rounds`, `samples`, `duration`, `noise` and `meter`. \
                 Default: five processes share them.",
            ),
            key(
                "samples",
                Kind::Whole { least: 1, most: MANY },
                "",
                "Samples of each cell of a stage, over all its rounds. With `repeats`, in each repeat.",
            ),
            key(
                "duration",
                Kind::Time,
                "",
                "The time of a stage. With `repeats`, in each repeat. The stage ends when it reaches either its samples or this time.",
            ),
            key("timeout", Kind::Time, "1s", "A transfer that takes longer is lost, and ends its cell."),
            key("noise", Kind::Time, "200ms", "How long the machine's own noise is measured before and after a stage."),
            key(
                "counters-every",
                Kind::Whole { least: 0, most: MILLION },
                "0",
                "In each n-th round the kernel's counters are read around each call, and its samples are used for nothing \
                 else. 0: never.",
            ),
            key(
                "meter",
                Kind::Time,
                "0s",
                "After all rounds, each cell runs for this time between two readings of what the GPU and the machine \
                 count: bytes on the link, energy (of 1s and more), CPU time. These transfers are not samples. At least 100ms; 0s: never.",
            ),
            key(
                "patience",
                Kind::Time,
                "",
                "When a call has run this long while a load runs (at least 1s), the loads rest until the call returns, and its sample \
                 says that it would have taken longer. Default: `duration`.",
            ),
            key("class", Kind::Class, "other", "The scheduling class of the measuring thread."),
            key("cpus", Kind::Cpus, "any", "Where the measuring thread runs."),
            key("policy", Kind::Policy, "stock", "The lock policy under which the processes run."),
            key("gpu", Kind::Choice(&["real", "soft", "none"]), "real", "The GPU, the software GPU, or none."),
            key(
                "device",
                Kind::Text,
                "engine",
                "What `device` means in routes: `engine`, a copy engine; `edu`, a card that QEMU emulates, with `gpu = \"soft\"`; \
                 `xdma@0000:04:00.0`, an FPGA.",
            ),
            key(
                "record",
                Kind::Choice(&["no", "commands"]),
                "no",
                "`commands`: each stage has a separate process, which is recorded with its locks; the recording shows what each call of a \
                 subject sends to the GPU. The times are then those of a recorded process.",
            ),
        ],
    },
    Section {
        name: "subject",
        many: true,
        about: "What is measured.",
        keys: &[
            key(
                "route",
                Kind::Text,
                "",
                "A way of copying, such as `host->cuda->gpu0`. Give either `route` or `call`.",
            ),
            key("call", Kind::Text, "", "A call, such as `launch` or `graph(20)`. Give either `route` or `call`."),
            key(
                "name",
                Kind::Text,
                "",
                "The name in tables, `--set`, the matrix and asserts. Default: the route or call.",
            ),
            key("sizes", Kind::Sizes, "", "The sizes, one cell for each. Default: those of the matrix."),
            key(
                "back-to-back",
                Kind::Whole { least: 1, most: MILLION },
                "1",
                "In experiments of before: copies of which several were one sample. More than 1 is not available.",
            ),
            key(
                "addresses",
                Kind::Addresses,
                "fixed",
                "`random`: each transfer goes to another place within its buffers. `sweep(64MiB,4GiB)`: in each round the place moves to the \
                 next multiple of 64 MiB below 4 GiB, in memory other than the host's.",
            ),
            key("data", Kind::Choice(&["fresh", "fixed"]), "fresh", "Whether the bytes change before each transfer."),
            key("arrival", Kind::Arrival, "closed(1)", "When the next transfer or call starts."),
            key(
                "observe",
                Kind::Choice(&["submit", "done", "engine"]),
                "done",
                "Which part of a sample is used in tables, ratios and asserts. All parts are kept.",
            ),
            key("class", Kind::Class, "", "The scheduling class while it is measured. Default: that of `[run]`."),
            key("cpus", Kind::Cpus, "", "The CPUs where it is measured. Default: those of `[run]`."),
            key(
                "deadline",
                Kind::Time,
                "",
                "A sample that takes longer, counted from its intended release, has missed the deadline.",
            ),
            key(
                "rests",
                Kind::Flag,
                "false",
                "After each turn, armed submissions and spinning kernels on the GPU are released.",
            ),
            key(
                "baseline",
                Kind::Text,
                "",
                "The name of the subject that it is compared with. Default: that of `[compare]`. Its own name: it is compared \
                 with none.",
            ),
            key(
                "beside",
                Kind::Sum,
                "",
                "Names of loads, with ` + ` between them: it has cells only in stages in which one of these runs. `none`: only in \
                 those without a load. Default: in all.",
            ),
        ],
    },
    Section {
        name: "load",
        many: true,
        about: "Loads that run during the measurement.",
        keys: &[
            key("route", Kind::Text, "", "A way of copying. Give either `route` or `call`."),
            key("call", Kind::Text, "", "A call. Give either `route` or `call`."),
            key("name", Kind::Text, "", "The name in tables, `--set` and the matrix. Default: the route or call."),
            key("bytes", Kind::Size, "", "The size of each transfer. A route needs it; a call has its own default."),
            key("count", Kind::Whole { least: 0, most: 1024 }, "1", "The number of threads. 0: none."),
            key("rate", Kind::Rate, "", "The rate of each thread. Default: without pauses."),
            key("cpus", Kind::Cpus, "any", "Where its threads run."),
            key("class", Kind::Class, "other", "Their scheduling class."),
            key(
                "check-every",
                Kind::Whole { least: 0, most: MANY },
                "0",
                "Compare the bytes of each n-th transfer. 0: only those of the last.",
            ),
            key(
                "must-reach",
                Kind::Reach,
                "",
                "The rate that all its threads together must reach; else the stage has no figures. `1000/s`, `5GB/s`, or `90%` of its \
                 own `rate` (of what it reached alone, if it has none).",
            ),
            key(
                "process",
                Kind::Choice(&["shared", "own"]),
                "shared",
                "`own`: each of its threads runs in a separate process, with its own CUDA context.",
            ),
        ],
    },
    Section {
        name: "matrix",
        many: false,
        about: "Every combination of these values is a stage. Besides these keys: `NAME.key`, with the name of a subject or load.",
        keys: &[
            key("bytes", Kind::Values, "", "The size of every subject that has no sizes of its own."),
            key("policy", Kind::Values, "", "Lock policies."),
            key("run.class", Kind::Values, "", "The scheduling class of the measuring thread."),
            key("run.cpus", Kind::Values, "", "Where the measuring thread runs."),
            key(
                "run.record",
                Kind::Values,
                "",
                "Whether the process is recorded: `[\"no\", \"commands\"]` times and counts.",
            ),
            key("loads", Kind::Values, "", "Which loads run: names with ` + ` between them, `all`, or `none`."),
            key("addresses", Kind::Values, "", "`addresses` of every subject."),
            key("arrival", Kind::Values, "", "`arrival` of every subject."),
        ],
    },
    Section {
        name: "verify",
        many: false,
        about: "Which transfers are compared byte by byte.",
        keys: &[key(
            "every",
            Kind::Whole { least: 0, most: MANY },
            "16",
            "Each n-th transfer is compared completely, and the first and the last of a turn. 1: all; 0: none.",
        )],
    },
    Section {
        name: "compare",
        many: false,
        about: "What is compared within the run.",
        keys: &[
            key("baseline", Kind::Text, "", "The name of a subject, or a policy of the matrix."),
            key("metric", Kind::Choice(METRICS), "p50", "The metric that is compared."),
        ],
    },
    Section {
        name: "repay",
        many: true,
        about: "A cost that is paid once, and the number of transfers that repay it.",
        keys: &[
            key("once", Kind::Sum, "", "The names of the subjects that are paid once, with ` + ` between them."),
            key("each", Kind::Sum, "", "The subjects that each transfer needs afterwards."),
            key("against", Kind::Sum, "", "The subjects that each transfer needs without that."),
        ],
    },
    Section {
        name: "assert",
        many: true,
        about: "A bound that sets the exit status.",
        keys: &[
            key("subject", Kind::Text, "*", "The name of a subject; `*`: every subject."),
            key("metric", Kind::Choice(METRICS), "p50", "The metric that is bounded."),
            key(
                "at-most",
                Kind::Amount,
                "",
                "The highest allowed value: a time; for misses a fraction (`0.1%`), for rates bytes per second (`10GB/s`).",
            ),
            key("at-least", Kind::Amount, "", "The lowest allowed value, written in the same way."),
            key(
                "at-most-times",
                Kind::Times,
                "",
                "At most this many times the same metric of another subject: `1.2 cuda`.",
            ),
            key("above-noise", Kind::Time, "", "At most this much above the longest gap of the machine's own noise."),
            key(
                "within-best",
                Kind::Within,
                "",
                "At most this much above the best other route between the same memories, at the same size in the same stage: \
                 `5%, 100ns` is 5 % or 100 ns, whichever allows more.",
            ),
            key("among", Kind::Names, "", "With `within-best`: only these subjects. Default: all."),
        ],
    },
    Section {
        name: "largest",
        many: true,
        about: "The largest value of an axis at which a bound holds.",
        keys: &[
            key("axis", Kind::Text, "", "An axis of the matrix, or `bytes` for sizes."),
            key("subject", Kind::Text, "", "The name of a subject."),
            key("metric", Kind::Choice(METRICS), "p50", "The metric that is bounded."),
            key("at-most", Kind::Amount, "", "As in [[assert]]."),
            key("at-least", Kind::Amount, "", "As in [[assert]]."),
            key("at-most-times", Kind::Times, "", "As in [[assert]]."),
        ],
    },
];

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

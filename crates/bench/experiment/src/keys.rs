//! Every key of the format: its section, what it takes, its default, what it is for. The reader, the JSON Schema and the check of
//! the documentation all go by this table.

/// What a key takes.
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
    /// `50us`; of misses `0.1%`, of rates `10GB/s`
    Amount,
    /// `1.2 cuda`
    Times,
    /// `5%, 100ns`
    Within,
    /// A list of names of subjects.
    Names,
    /// A list of what the key that the axis names takes.
    Values,
}

#[derive(Clone, Copy, Debug)]
pub struct Key {
    pub name: &'static str,
    pub kind: Kind,
    /// As it would be written; empty: there is none.
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

/// Bounds of numbers that are more than anybody needs, so that sums of them fit everywhere.
const MILLION: u64 = 1_000_000;
const MANY: u64 = 1_000_000_000_000;

pub const METRICS: &[&str] = &["min", "mean", "p50", "p99", "p99.9", "p99.99", "max", "misses", "rate"];

pub const SECTIONS: &[Section] = &[
    Section {
        name: "",
        many: false,
        about: "The experiment.",
        keys: &[
            key("name", Kind::Text, "", "Letters, digits, `-` and `_`. The file's name unless it is given."),
            key(
                "variant",
                Kind::Text,
                "",
                "In what doorbell writes: which variant of its file this is. A file that has variants has `[variant.NAME]` instead.",
            ),
            key("about", Kind::Text, "", "One line for people."),
        ],
    },
    Section {
        name: "run",
        many: false,
        about: "How everything is run.",
        keys: &[
            key("seed", Kind::Whole { least: 0, most: i64::MAX as u64 }, "1", "Of random data and random orders."),
            key(
                "rounds",
                Kind::Whole { least: 1, most: MILLION },
                "10",
                "How often the cells of a stage take turns, in an order drawn anew each time.",
            ),
            key(
                "repeats",
                Kind::Whole { least: 1, most: 10_000 },
                "1",
                "How often the whole is done, each time by new processes.",
            ),
            key(
                "samples",
                Kind::Whole { least: 1, most: MANY },
                "",
                "Samples of each cell of a stage in one repeat, over all its rounds.",
            ),
            key(
                "duration",
                Kind::Time,
                "",
                "Of a stage in one repeat. What is reached first, samples or time, ends it.",
            ),
            key("timeout", Kind::Time, "1s", "A transfer that takes longer is lost, and ends its cell."),
            key(
                "noise",
                Kind::Time,
                "200ms",
                "The machine's own noise is measured for so long before and after a stage.",
            ),
            key(
                "counters-every",
                Kind::Whole { least: 0, most: MILLION },
                "0",
                "In each n-th round the kernel's counters are read round each call, and its samples count for nothing \
                 else. 0: never.",
            ),
            key(
                "meter",
                Kind::Time,
                "0s",
                "When all rounds are over each cell goes on for so long between two looks at what the GPU and the machine \
                 count: bytes on the link, energy (of 1s and more), CPU time. These transfers are no samples. 100ms at least; 0s: never.",
            ),
            key(
                "patience",
                Kind::Time,
                "",
                "A call that is under way for so long beside a load, 1s at least: the loads rest until it is over, and its sample \
                 says that it would have taken longer. The stage's time unless it is given.",
            ),
            key("class", Kind::Class, "other", "The scheduling class of the measuring thread."),
            key("cpus", Kind::Cpus, "any", "Where the measuring thread runs."),
            key("policy", Kind::Policy, "stock", "The lock policy under which the processes run."),
            key("gpu", Kind::Choice(&["real", "soft", "none"]), "real", "The GPU, the software GPU, or none."),
            key(
                "device",
                Kind::Text,
                "engine",
                "What routes call `device`: `engine`, a copy engine; `edu`, a card that QEMU emulates, with `gpu = \"soft\"`; \
                 `xdma@0000:04:00.0`, an FPGA.",
            ),
            key(
                "record",
                Kind::Choice(&["no", "commands"]),
                "no",
                "`commands`: each stage has a process of its own, which is recorded with its locks, and what each call of a \
                 subject sends to the GPU is read from the tape. Times are those of a recorded process then.",
            ),
        ],
    },
    Section {
        name: "subject",
        many: true,
        about: "What is measured.",
        keys: &[
            key("route", Kind::Text, "", "A way of copying, as `host->cuda->gpu0`. Either `route` or `call`."),
            key("call", Kind::Text, "", "A call, as `launch` or `graph(20)`. Either `route` or `call`."),
            key(
                "name",
                Kind::Text,
                "",
                "For tables, `--set`, the matrix and asserts. The route or call unless it is given.",
            ),
            key("sizes", Kind::Sizes, "", "One cell for each. What the matrix says unless it is given."),
            key(
                "back-to-back",
                Kind::Whole { least: 1, most: MILLION },
                "1",
                "So many copies back to back are one sample, timed by the GPU's clock.",
            ),
            key(
                "addresses",
                Kind::Addresses,
                "fixed",
                "`random`: each transfer goes to another place within its buffers. `sweep(64MiB,4GiB)`: in each round to the \
                 next multiple of 64 MiB below 4 GiB of memory that is not the host's.",
            ),
            key("data", Kind::Choice(&["fresh", "fixed"]), "fresh", "Whether the bytes change before each transfer."),
            key("arrival", Kind::Arrival, "closed(1)", "When the next one starts."),
            key(
                "observe",
                Kind::Choice(&["submit", "done", "engine"]),
                "done",
                "Which part of a sample stands for it in tables, ratios and asserts. All parts are kept.",
            ),
            key("class", Kind::Class, "", "The scheduling class while it is measured. That of `[run]` unless given."),
            key("cpus", Kind::Cpus, "", "Where it is measured. As in `[run]` unless it is given."),
            key("deadline", Kind::Time, "", "A sample that takes longer, from its intended release, has missed it."),
            key("rests", Kind::Flag, "false", "What is armed or spins on the GPU is let go of behind each turn."),
            key(
                "baseline",
                Kind::Text,
                "",
                "The name of the subject that it is compared with. What `[compare]` says unless it is given; its own name: \
                 with none.",
            ),
            key(
                "beside",
                Kind::Sum,
                "",
                "Names of loads, with ` + ` between them: it has cells only in stages in which one of these runs. `none`: in \
                 those without a load. In all unless it is given.",
            ),
        ],
    },
    Section {
        name: "load",
        many: true,
        about: "What runs beside the measurement.",
        keys: &[
            key("route", Kind::Text, "", "A way of copying. Either `route` or `call`."),
            key("call", Kind::Text, "", "A call. Either `route` or `call`."),
            key("name", Kind::Text, "", "For tables, `--set` and the matrix. The route or call unless it is given."),
            key(
                "bytes",
                Kind::Size,
                "",
                "Of each transfer. A route needs it; a call has a size of its own unless it is given.",
            ),
            key("count", Kind::Whole { least: 0, most: 1024 }, "1", "Threads. 0: none."),
            key("rate", Kind::Rate, "", "Of each thread. Without a pause unless it is given."),
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
                "What all its threads together have to reach, or the stage has no figures: `1000/s`, `5GB/s`, or `90%` of its \
                 own `rate` (of what it reached alone, if it has none).",
            ),
            key(
                "process",
                Kind::Choice(&["shared", "own"]),
                "shared",
                "`own`: each of its threads in a process of its own, with a CUDA context of its own.",
            ),
        ],
    },
    Section {
        name: "matrix",
        many: false,
        about: "Every combination of these values is a stage. Besides these keys: `NAME.key`, with the name of a subject or load.",
        keys: &[
            key("bytes", Kind::Values, "", "The size of every subject without sizes of its own."),
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
            "Besides the first and the last of a turn each n-th transfer is compared whole. 1: all are; 0: none.",
        )],
    },
    Section {
        name: "compare",
        many: false,
        about: "What is compared within the run.",
        keys: &[
            key("baseline", Kind::Text, "", "The name of a subject, or a policy of the matrix."),
            key("metric", Kind::Choice(METRICS), "p50", "What of it."),
        ],
    },
    Section {
        name: "repay",
        many: true,
        about: "What is paid once, and after how many transfers it has paid.",
        keys: &[
            key("once", Kind::Sum, "", "The names of the subjects that are paid once, with ` + ` between them."),
            key("each", Kind::Sum, "", "The subjects that each transfer takes then."),
            key("against", Kind::Sum, "", "The subjects that it takes otherwise."),
        ],
    },
    Section {
        name: "assert",
        many: true,
        about: "A bound that sets the exit status.",
        keys: &[
            key("subject", Kind::Text, "*", "The name of a subject; `*` for every one."),
            key("metric", Kind::Choice(METRICS), "p50", "What of it is bounded."),
            key("at-most", Kind::Amount, "", "A time; of misses a part (`0.1%`), of rates bytes a second (`10GB/s`)."),
            key("at-least", Kind::Amount, "", "The same, from below."),
            key("at-most-times", Kind::Times, "", "So many times the same metric of another subject: `1.2 cuda`."),
            key("above-noise", Kind::Time, "", "At most so much above the longest gap of the machine's own noise."),
            key(
                "within-best",
                Kind::Within,
                "",
                "At most so much above the best other route between the same memories, at the same size in the same stage: \
                 `5%, 100ns` is 5 % or 100 ns, whichever allows more.",
            ),
            key("among", Kind::Names, "", "With `within-best`: only these subjects. All of them unless it is given."),
        ],
    },
    Section {
        name: "largest",
        many: true,
        about: "Up to which value of an axis a bound holds.",
        keys: &[
            key("axis", Kind::Text, "", "An axis of the matrix, or `bytes` for sizes."),
            key("subject", Kind::Text, "", "The name of a subject."),
            key("metric", Kind::Choice(METRICS), "p50", "What of it is bounded."),
            key("at-most", Kind::Amount, "", "As in [[assert]]."),
            key("at-least", Kind::Amount, "", "As in [[assert]]."),
            key("at-most-times", Kind::Times, "", "As in [[assert]]."),
        ],
    },
];

/// What an axis may change of a subject (`NAME.key`).
pub const OF_SUBJECTS: &[&str] = &["bytes", "arrival", "route", "call", "what", "class", "cpus"];
/// What an axis may change of a load.
pub const OF_LOADS: &[&str] = &["count", "bytes", "rate", "route", "call", "what", "class", "cpus"];

pub fn section(name: &str) -> Option<&'static Section> {
    SECTIONS.iter().find(|section| section.name == name)
}

/// What a key takes; a section that is none is the name of a subject or load.
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

//! On machines that are not x86-64: the commands that record, measure or drive devices. Each takes any arguments and fails.
//!
//! The agent rewrites instructions, stores to doorbells rely on the memory order of x86-64, and times come from its counter.
//! Recordings and results can be read on any machine.

use crate::failure::Failure;
use std::env::consts::ARCH;

fn refusal(what: &str) -> anyhow::Error {
    let what = format!("{what} needs x86-64; this is {ARCH}");
    Failure::impossible(
        what,
        "run it on x86-64; `show`, `export`, `report`, `diff`, `redact`, `plan` and `compare` read here what it wrote",
    )
    .into()
}

macro_rules! refused {
    ($($command:ident: $what:literal, $about:literal;)*) => {$(
        pub mod $command {
            #[derive(Debug, clap::Args)]
            #[command(about = concat!($about, " (on x86-64 only)"))]
            pub struct Args {
                #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
                _any: Vec<std::ffi::OsString>,
            }

            impl Args {
                pub fn run(self) -> anyhow::Result<std::process::ExitCode> {
                    Err(super::refusal($what))
                }
            }
        }
    )*};
}

refused! {
    record: "recording", "Run a program and record every command that it sends to the GPU";
    attach: "recording", "Switch the recording of a running program on, and off again at the end";
    save: "recording", "Have a flight recorder (`record --last`) write a file now";
    top: "recording", "Show each second what a program that is being recorded does";
    run: "running a program with other lock protocols", "Run a program with other lock protocols under it, without rebuilding it";
    bench: "measuring", "Run an experiment: every transfer a sample, what is compared takes turns";
    soak: "measuring", "Run an experiment for hours: every transfer compared, leaks and drift found, a report whatever ends it";
    calibrate: "measuring", "Measure which route is the best for which size on this machine, for route `auto`";
    selfbench: "measuring", "Measure what doorbell itself costs";
    demo: "recording", "Record a few small programs and show the result: on the real GPU if there is one, else on the software GPU";
    sample: "a program with GPU work", "Run small GPU programs to be recorded; the last line of each is a checksum of all its results";
    doctor: "what `doctor` tries", "Try what works on this machine and, for each thing that does not, say why";
    selftest: "a separate GPU channel", "Check doorbell's own channels, copies and semaphores on this machine's GPU, or on the software GPU";
    files: "a separate GPU channel", "Read files into GPU memory and write them from there";
    nvme: "driving a controller", "Drive an NVMe controller from user space: its data go to host memory, or to a GPU's without the CPU";
}

/// `why --now`.
pub mod now {
    pub fn run(_: Option<i32>, _: bool, _: bool, _: bool) -> anyhow::Result<std::process::ExitCode> {
        Err(super::refusal("looking at a program that is being recorded"))
    }
}

/// What [`crate::failure`] needs from the recorder's errors.
pub mod recording {
    type Cause<'a> = &'a (dyn std::error::Error + 'static);

    pub fn status(_: Cause<'_>) -> Option<u8> {
        None
    }

    pub fn hint(_: Cause<'_>) -> Option<&'static str> {
        None
    }
}

//! `host->message->gpu0`: sends up to 56 bytes from the CPU into a running kernel, and gets them back as its answer. A message is not a copy.
//!
//! The CPU stores bytes and a number as one line of 64 bytes into a mailbox in GPU memory. A kernel that spins there reads both and answers with them
//! (`answered`). Up to 8 bytes arrive with their number in one load by the kernel. More need four loads, and a sum in the line shows that they belong together
//! (`long`). No bytes are copied to memory that other code uses, and the line is written as a whole. So compare a message with another message or a launch, not
//! with a copy of 8 bytes; `bar1`, `ce` and `inline` are such copies.

use super::answered::{
    self, BLOCKS_4, BLOCKS_16, Form, LINE_BYTES, STORE_AVX512, STORE_FENCED, WARPS_4, WARPS_16, WHOLE,
};
use crate::ends::Direction;
use crate::entry::Entry;
use crate::machine::Machine;
use crate::spec::{Spec, Word};
use machine::Unavailable;

pub(crate) const ENTRY: Entry = Entry {
    word: Word {
        name: "message",
        numbered: false,
        options: &[WARPS_4, WARPS_16, BLOCKS_4, BLOCKS_16, STORE_AVX512, STORE_FENCED, WHOLE],
    },
    about: |_, _| {
        "a message of up to 56 bytes to a kernel that spins, and its answer in host memory; not a copy".into()
    },
    list: |machine| vec![format!("host->message->gpu{}", machine.index())],
    check,
    open: |machine, spec| answered::open(machine, &spec.executor, Form::Message),
};

fn check(machine: &Machine, spec: &Spec) -> Result<(), Unavailable> {
    if Direction::of(machine, spec)? == Direction::FromGpu {
        return Err(Unavailable::new("a message goes to a kernel; its answer is what comes from the GPU"));
    }
    if !spec.destination.offset.is_multiple_of(LINE_BYTES as u64) {
        return Err(Unavailable::new("a message is a line of 64 bytes: its mailbox begins at a multiple of 64"));
    }
    answered::check(machine, &spec.executor)?;
    machine.space().map(drop)
}

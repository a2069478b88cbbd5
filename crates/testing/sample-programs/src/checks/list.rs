//! The list. The order matters on real hardware: from checks that only open files to those that move most.

use super::{Check, armed, bad, bar1, fork, leaks, moves, prepared, ring, time};

/// All checks, in the order in which they are run.
pub const CHECKS: &[Check] = &[
    Check { name: "open", about: "a device and an address space open and close", run: ring::open },
    Check { name: "tiny", about: "one copy of 8 bytes on each copy engine", run: moves::tiny },
    Check { name: "inline", about: "8 bytes in the command stream itself", run: moves::inline },
    Check { name: "timestamps", about: "semaphores' times never go backwards", run: time::timestamps },
    Check { name: "clock", about: "the GPU's clock keeps step with the CPU's", run: time::clock },
    Check {
        name: "guards",
        about: "no byte next to a destination is written, by copy engine or inline",
        run: moves::guards,
    },
    Check { name: "sizes", about: "sizes and alignments, to, from and within GPU memory", run: moves::sizes },
    Check {
        name: "bar1",
        about: "the CPU's stores and loads through BAR1 against the copy engine's view",
        run: bar1::views,
    },
    Check { name: "pipelined", about: "a release comes after all pipelined copies before it", run: moves::pipelined },
    Check { name: "channels", about: "several channels at once, each with its own data", run: ring::channels },
    Check { name: "wrap", about: "more submissions than the ring has entries", run: ring::wrap },
    Check { name: "full", about: "a full ring is an error, and it empties again", run: ring::full },
    Check {
        name: "prepared",
        about: "copies validated once, 10,000 submissions to moving addresses",
        run: prepared::copies,
    },
    Check {
        name: "prepared-inline",
        about: "inline copies validated once, each submission with new data",
        run: prepared::inline,
    },
    Check {
        name: "prepared-refusals",
        about: "a prepared copy is refused outside its regions, on another channel, and for freed memory",
        run: prepared::refusals,
    },
    Check {
        name: "releases",
        about: "8 bytes before every kind of release, read when the release is seen",
        run: armed::releases,
    },
    Check {
        name: "flag-order",
        about: "a number that travels inline after its data is not seen before them",
        run: armed::flag_order,
    },
    Check {
        name: "armed",
        about: "8 bytes that wait before a gate: carried out when it opens, and not otherwise",
        run: armed::armed,
    },
    Check { name: "long-inline", about: "more inline data than fits under one header", run: prepared::long_inline },
    Check { name: "payload-wrap", about: "payloads go from 2^32 - 1 to 0", run: ring::payload_wrap },
    Check { name: "acquire", about: "a channel waits for another's release", run: ring::acquire },
    Check {
        name: "bounded-wait",
        about: "a wait that times out is an error, and the channel continues",
        run: ring::bounded,
    },
    Check { name: "stale", about: "freed memory is refused before submission", run: bad::stale },
    Check {
        name: "wrong-channel",
        about: "another space's or engine's pushbuffer is refused",
        run: bad::wrong_channel,
    },
    Check { name: "bad-input", about: "bad addresses, lengths and sizes are refused in words", run: bad::input },
    Check { name: "absent", about: "a GPU or driver that is not there is an error in words", run: bad::absent },
    Check { name: "fork", about: "a child's use of its parent's channel is an error value", run: fork::fork },
    Check { name: "leaks", about: "channels are created and destroyed without a leak", run: leaks::leaks },
];

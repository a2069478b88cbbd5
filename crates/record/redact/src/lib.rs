//! What a recording must not hold: the program's data, taken out while it is recorded ([`Scrubber`]).

mod scrub;

pub use scrub::Scrubber;

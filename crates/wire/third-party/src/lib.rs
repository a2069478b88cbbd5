//! No code. Cargo gives a third-party crate the features that the crates it builds ask for, so one built alone would build `serde` or `syn` again,
//! with fewer features than for the command. Who depends on this crate gets them as the command does.
//!
//! A test in `crates/cli/doorbell/tests/house.rs` checks that no crate builds one again.

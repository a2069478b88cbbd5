//! No code. Cargo gives a third-party crate only the features that the crates in a build ask for. So a crate built alone would build `serde` or
//! `syn` again, with fewer features than the command uses. Crates that depend on this crate get them with the command's features.
//!
//! A test in `crates/cli/doorbell/tests/house.rs` checks that no crate builds one again, but for the libraries that the command carries: its build script
//! builds them apart, with no more than they need.

//! Helpers for these tests: the software GPU, and files of random bytes.

#![allow(dead_code)]

use doorbell_softgpu::{Mode, SoftDriver};
use files::Target;
use machine::Machine;
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;

pub fn machine() -> Machine {
    Machine::of_driver(Arc::new(SoftDriver::new(Mode::Strict)), false).unwrap()
}

pub fn bytes(count: usize) -> Vec<u8> {
    let mut data = vec![0; count];
    fastrand::Rng::with_seed(count as u64 + 1).fill(&mut data);
    data
}

/// A file of random bytes.
pub fn random(dir: &TempDir, name: &str, count: usize) -> (PathBuf, Vec<u8>) {
    let (path, data) = (dir.path().join(name), bytes(count));
    std::fs::write(&path, &data).unwrap();
    (path, data)
}

/// GPU memory with random bytes.
pub fn filled(machine: &Machine, count: usize) -> (Target<'_>, Vec<u8>) {
    let (target, data) = (Target::new(machine, count as u64).unwrap(), bytes(count));
    target.write(0, &data).unwrap();
    (target, data)
}

//! How bytes are moved between a device and memory.

use super::EMULATED;
use drivers::nvme::Error;
use serde_json::{Value, json};
use std::io::Write;
use terminal::ReportError;

/// How the bytes are moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    pub memory: String,
    /// A: the device and host memory. B: the device, host memory, the GPU. C: the device and the GPU.
    pub path: char,
    /// Why not C.
    pub instead_of_c: Option<String>,
}

impl Way {
    pub fn as_json(&self) -> Value {
        json!({ "memory": self.memory, "path": self.path.to_string(), "instead_of_c": self.instead_of_c })
    }

    /// `gpu0 by path B`.
    pub fn text(&self) -> String {
        format!("{} by path {}", self.memory, self.path)
    }

    /// Printed below the result line: why the path was not C, and whether the device is emulated.
    pub fn write_notes(&self, out: &mut dyn Write, functional: bool) -> Result<(), ReportError> {
        if let Some(why) = &self.instead_of_c {
            writeln!(out, "  through host memory, because {why}")?;
        }
        if functional {
            writeln!(out, "  {EMULATED}")?;
        }
        Ok(())
    }
}

/// The GPU's error as the driver's, for a [`drivers::nvme::Target`] in a GPU.
pub fn of_gpu(error: impl std::fmt::Display) -> Error {
    Error::Refused {
        what: "the GPU's memory".into(),
        why: error.to_string(),
        hint: "`doorbell doctor` says what works here".into(),
    }
}

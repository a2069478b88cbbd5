//! How bytes are moved between a device and memory.

use super::EMULATED;
use drivers::nvme::Error;
use serde_json::{Value, json};
use std::io;
use terminal::table::to_stdout;

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
    /// `gpu0 by path B`.
    pub fn text(&self) -> String {
        format!("{} by path {}", self.memory, self.path)
    }

    /// Prints what was done: these fields and the way as one JSON object, or the line, and below it why the path was not C and whether the device
    /// is emulated.
    pub fn report(&self, fields: Option<Value>, line: &str, functional: bool) -> io::Result<()> {
        if let Some(mut all) = fields {
            let Way { memory, path, instead_of_c } = self;
            all["target"] = json!({ "memory": memory, "path": path.to_string(), "instead_of_c": instead_of_c });
            return terminal::json::print(&all);
        }
        to_stdout(|out| {
            writeln!(out, "{line}")?;
            if let Some(why) = &self.instead_of_c {
                writeln!(out, "  through host memory, because {why}")?;
            }
            if functional {
                writeln!(out, "  {EMULATED}")?;
            }
            Ok(())
        })
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

//! NVML, opened once for the life of the process. It is only used for queries.

use crate::value::Known;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use std::sync::OnceLock;

/// Symbols are looked up when needed: if a version lacks one, only that query fails.
pub fn library() -> Known<&'static Nvml> {
    static OPENED: OnceLock<Known<Nvml>> = OnceLock::new();
    // The library has a version in its name wherever no development files are installed.
    let open = || {
        let versioned = Nvml::builder().lib_path("libnvidia-ml.so.1".as_ref()).init();
        versioned.or_else(|e| Nvml::init().map_err(|_| e)).map_err(|e| match e {
            NvmlError::LibloadingError(e) => format!("no NVML here: {e}"),
            e => why(e),
        })
    };
    OPENED.get_or_init(open).as_ref().map_err(Clone::clone)
}

pub fn why(e: impl std::fmt::Display) -> String {
    format!("NVML: {e}")
}

/// The GPU at this address, or the first.
pub fn device(pci: Option<&str>) -> Known<Device<'static>> {
    let nvml = library()?;
    match pci {
        Some(a) => nvml.device_by_pci_bus_id(a).map_err(|e| format!("no GPU at {a}: {e}")),
        None => nvml.device_by_index(0).map_err(why),
    }
}

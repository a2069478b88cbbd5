//! The driver's objects and its mappings.

use crate::place::Place;
use serde::Serialize;

#[derive(Debug, Serialize)]
pub struct Objects {
    pub objects: Vec<ObjectRow>,
    pub gpu_mappings: Vec<MappingRow>,
}

#[derive(Debug, Serialize)]
pub struct ObjectRow {
    /// Index of the process image.
    pub process: u32,
    pub client: u32,
    pub handle: u32,
    pub parent: u32,
    pub class: u32,
    pub class_name: String,
    pub detail: String,
    pub depth: usize,
    pub freed: bool,
}

#[derive(Debug, Serialize)]
pub struct MappingRow {
    /// Index of the process image.
    pub process: u32,
    pub base: u64,
    pub length: u64,
    pub client: Option<u32>,
    pub handle: Option<u32>,
    pub offset: u64,
    pub place: Place,
}

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
    /// Handle of the parent.
    pub parent: u32,
    pub class: u32,
    pub class_name: String,
    /// What else is known.
    pub detail: String,
    /// How deep it stands.
    pub depth: usize,
    /// It was freed.
    pub freed: bool,
    /// Its line in the tree. (Not written.)
    #[serde(skip)]
    pub text: String,
}

#[derive(Debug, Serialize)]
pub struct MappingRow {
    /// Index of the process image.
    pub process: u32,
    /// GPU virtual address.
    pub base: u64,
    pub length: u64,
    pub client: Option<u32>,
    pub handle: Option<u32>,
    pub offset: u64,
    pub place: Place,
}

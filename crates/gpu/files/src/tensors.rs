//! Models in safetensors files: the list of tensors, their places, and loading.
//!
//! The format's own crate checks the header (offsets without holes, sizes that match the shapes). Here the header is compared
//! with the file's length, and each tensor gets an aligned place.

use crate::error::Error;
use crate::extents::{Extent, Extents};
use crate::memory::Target;
use crate::options::Options;
use crate::source::Source;
use crate::whole::{self, Report};
use machine::Machine;
use safetensors::tensor::Metadata;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Tensors begin at multiples of this in GPU memory, like CUDA's allocations.
pub const ALIGNMENT: u64 = 256;
/// The format's own limit for headers.
const MOST: u64 = 100_000_000;
/// Blocks are multiples of this.
const PAGE: usize = 4096;
/// Maximum dimensions of a tensor; programs use only a few.
const DIMENSIONS: usize = 64;
/// Bytes before a header: its length.
const LENGTH: u64 = 8;

/// One tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    pub name: String,
    /// As the format writes it: `BF16`, `F32`.
    pub dtype: String,
    pub shape: Vec<usize>,
    pub bytes: u64,
    /// Index of its file.
    pub file: usize,
    /// Offset in the file.
    pub offset: u64,
    /// Offset in the memory of that file.
    pub at: u64,
}

/// One file of a model.
#[derive(Clone, Debug)]
pub struct Shard {
    pub path: PathBuf,
    /// The places of its tensors.
    pub places: Arc<Extents>,
    /// Bytes of memory that they need.
    pub memory: u64,
}

/// A model's files and tensors.
#[derive(Clone, Debug)]
pub struct Model {
    pub shards: Vec<Shard>,
    /// In the order of the files.
    pub tensors: Vec<Tensor>,
}

impl Model {
    /// Bytes of all tensors.
    pub fn bytes(&self) -> u64 {
        self.tensors.iter().map(|tensor| tensor.bytes).sum()
    }
}

/// A model in a GPU's memory, which it owns.
#[derive(Debug)]
pub struct Loaded<'m> {
    pub model: Model,
    /// The memory of each file's tensors.
    pub memory: Vec<Target<'m>>,
    pub reports: Vec<Report>,
}

impl Loaded<'_> {
    /// A tensor and its GPU address.
    pub fn tensor(&self, name: &str) -> Option<(&Tensor, u64)> {
        let tensor = self.model.tensors.iter().find(|tensor| tensor.name == name)?;
        Some((tensor, self.va(tensor)))
    }

    /// The GPU address of one of its tensors.
    pub fn va(&self, tensor: &Tensor) -> u64 {
        self.memory[tensor.file].va() + tensor.at
    }
}

/// Loads a model into a GPU's memory: a `.safetensors` file, the `.index.json` of a model in several files, or the folder with
/// either. `progress` counts bytes of the files.
///
/// ```no_run
/// # fn main() -> Result<(), files::Error> {
/// let machine = machine::Machine::open(machine::Where::Real)?;
/// let options = files::Options { verify: true, ..Default::default() };
/// let model = files::load_safetensors(&machine, "model.safetensors".as_ref(), &options, &Default::default())?;
/// let (tensor, address) = model.tensor("lm_head.weight").expect("a language model");
/// println!("{} {:?} at {address:#x}", tensor.dtype, tensor.shape);
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`Error::Tensors`] if it is not a model, and all of [`crate::read`]'s errors.
pub fn load_safetensors<'m>(
    machine: &'m Machine,
    path: &Path,
    options: &Options,
    progress: &AtomicU64,
) -> Result<Loaded<'m>, Error> {
    load(machine, plan_safetensors(path)?, options, progress)
}

/// Loads a model from its plan ([`plan_safetensors`]).
///
/// # Errors
/// As [`load_safetensors`].
pub fn load<'m>(
    machine: &'m Machine,
    model: Model,
    options: &Options,
    progress: &AtomicU64,
) -> Result<Loaded<'m>, Error> {
    let (mut memory, mut reports) = (Vec::new(), Vec::new());
    for shard in &model.shards {
        let options = &smaller(options, &shard.places);
        let source = Source::open(&shard.path, options.buffered)?;
        let target = Target::new(machine, shard.memory)?;
        reports.push(whole::read(machine, &source, (&target, &shard.places), options, progress)?);
        memory.push(target);
    }
    Ok(Loaded { model, memory, reports })
}

/// Reduces the block size until no block has more tensors than one submission has room for.
fn smaller(options: &Options, places: &Extents) -> Options {
    let mut options = *options;
    while places.fit(options.block as u64).is_err() && options.block > PAGE && (options.block / 2).is_multiple_of(PAGE)
    {
        options.block /= 2;
    }
    options
}

/// The files and tensors of a model, without loading them.
///
/// # Errors
/// [`Error::Tensors`], [`Error::Open`].
pub fn plan_safetensors(path: &Path) -> Result<Model, Error> {
    let found;
    let path = if path.is_dir() {
        found = in_folder(path)?;
        &found
    } else {
        path
    };
    let (files, wanted) = match path.extension().is_some_and(|extension| extension == "json") {
        true => index(path)?,
        false => (vec![path.to_owned()], None),
    };
    let (mut shards, mut tensors) = (Vec::new(), Vec::<Tensor>::new());
    for (file, path) in files.into_iter().enumerate() {
        let (shard, of_file) = shard(file, &path)?;
        shards.push(shard);
        tensors.extend(of_file);
    }
    let mut names = BTreeSet::new();
    if let Some(twice) = tensors.iter().find(|tensor| !names.insert(tensor.name.as_str())) {
        return Err(wrong(path, format!("tensor {} is there twice", twice.name.escape_debug())));
    }
    if let Some(missing) = wanted.iter().flatten().find(|name| !names.contains(name.as_str())) {
        return Err(wrong(path, format!("tensor {} is in none of its files", missing.escape_debug())));
    }
    Ok(Model { shards, tensors })
}

fn wrong(path: &Path, what: impl Into<String>) -> Error {
    // The message may be printed on a terminal, and the parser's messages repeat text of the file unchanged.
    let escaped = |c: char| if c.is_control() { c.escape_debug().to_string() } else { c.to_string() };
    Error::Tensors { path: path.into(), what: what.into().chars().map(escaped).collect() }
}

/// The model in a folder, by the usual file names.
fn in_folder(folder: &Path) -> Result<PathBuf, Error> {
    let all = ["model.safetensors.index.json", "model.safetensors"].map(|name| folder.join(name));
    let found = all.into_iter().find(|path| path.is_file());
    found.ok_or_else(|| wrong(folder, "the folder has no model.safetensors and no model.safetensors.index.json"))
}

/// The files in an index, and the names of its tensors.
fn index(path: &Path) -> Result<(Vec<PathBuf>, Option<Vec<String>>), Error> {
    let text = std::fs::read(path).map_err(|cause| Error::Open { path: path.to_owned(), cause })?;
    let json: serde_json::Value = serde_json::from_slice(&text).map_err(|e| wrong(path, e.to_string()))?;
    let map = json.get("weight_map").and_then(serde_json::Value::as_object);
    let map = map.ok_or_else(|| wrong(path, "the index has no weight_map"))?;
    let mut files = BTreeMap::new();
    for (tensor, file) in map {
        let file = file
            .as_str()
            .ok_or_else(|| wrong(path, format!("the file of tensor {} is no text", tensor.escape_debug())))?;
        let mut parts = Path::new(file).components();
        // An index from elsewhere must not name files outside of its folder.
        let is_one_name = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
        if !is_one_name || file.chars().any(char::is_control) {
            return Err(wrong(path, format!("{file:?} is no name of a file beside the index")));
        }
        files.insert(file, path.with_file_name(file));
    }
    Ok((files.into_values().collect(), Some(map.keys().cloned().collect())))
}

/// The tensors of one file, and their places.
fn shard(file: usize, path: &Path) -> Result<(Shard, Vec<Tensor>), Error> {
    let source = Source::open(path, true)?;
    let (start, header) = header(&source)?;
    let mut by_name: HashMap<String, _> = header.tensors();
    let (mut tensors, mut at) = (Vec::new(), 0u64);
    for name in header.offset_keys() {
        let Some(info) = by_name.remove(&name) else { continue };
        if info.shape.len() > DIMENSIONS {
            let (name, many) = (name.escape_debug(), info.shape.len());
            return Err(wrong(path, format!("tensor {name} has {many} dimensions, more than {DIMENSIONS}")));
        }
        let (from, to) = (info.data_offsets.0 as u64, info.data_offsets.1 as u64);
        let (dtype, shape) = (format!("{:?}", info.dtype), info.shape.clone());
        tensors.push(Tensor { name, dtype, shape, bytes: to - from, file, offset: start + from, at });
        at = (at + (to - from)).next_multiple_of(ALIGNMENT);
    }
    let places = tensors.iter().map(|t| Extent { offset: t.offset, at: t.at, bytes: t.bytes });
    let places = Arc::new(Extents::new(places)?);
    Ok((Shard { path: path.to_owned(), places, memory: at }, tensors))
}

/// Where the data begins, and the parsed header.
fn header(source: &Source) -> Result<(u64, Metadata), Error> {
    let path = source.path();
    let read = |into: &mut [u8], at| {
        source.file.read_exact_at(into, at).map_err(|cause| match cause.kind() {
            std::io::ErrorKind::UnexpectedEof => wrong(path, "it ends within its header"),
            _ => Error::Open { path: path.to_owned(), cause },
        })
    };
    let mut length = [0; LENGTH as usize];
    read(&mut length, 0)?;
    let length = u64::from_le_bytes(length);
    let start = LENGTH + length.min(source.length());
    if length > MOST || start > source.length() {
        let has = source.length();
        return Err(wrong(path, format!("its header should have {length} bytes, and the file has {has}")));
    }
    let mut text = vec![0; length as usize];
    read(&mut text, LENGTH)?;
    let header: Metadata = serde_json::from_slice(&text).map_err(|e| wrong(path, format!("its header: {e}")))?;
    let (needed, has) = (header.data_len() as u64, source.length() - start);
    if needed != has {
        return Err(wrong(path, format!("its header tells of {needed} bytes of tensors, and the file has {has}")));
    }
    Ok((start, header))
}

//! `doorbell files load`.

use super::outcome::{self, Side};
use super::shape::{Shape, Via};
use crate::failure::Failure;
use crate::help::Page;
use crate::record::Gpu;
use files::{Model, Report};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;
use terminal::number;
use terminal::table::{self, Style, to_stdout};

/// Load a model's safetensors into GPU memory, each tensor at an aligned address
#[derive(Debug, clap::Args)]
#[command(
    after_help = Page::examples(&[
        ("doorbell files load model.safetensors --verify", ""),
        ("doorbell files load model.safetensors.index.json --threads 4", "a model in several files"),
        ("doorbell files load Qwen3-8B --gpu soft --verify --json", "the folder of a model, on any machine"),
    ])
    .text("The memory goes when the command ends: it shows what loading takes. Programs keep it with files::load_safetensors.")
    .statuses(&[(0, "all tensors arrived"), (2, "an error"), (77, "not possible on this machine")])
)]
pub struct Args {
    /// A .safetensors file, the .index.json of a model in several files, or the folder of either, for example
    /// model.safetensors
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Whose memory it goes to
    #[arg(long, value_name = "GPU", default_value = "gpu0", value_parser = super::gpu_number)]
    to: u32,
    /// Which GPU answers
    #[arg(long, value_enum, value_name = "GPU", default_value_t = Gpu::Real)]
    gpu: Gpu,
    #[command(flatten)]
    shape: Shape,
    /// Compare what has arrived with the files, read a second time
    #[arg(long)]
    verify: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        if self.shape.via == Via::Cufile {
            let hint = "`files read --via cufile` reads a whole file";
            return Err(Failure::new("cuFile does not place tensors here", hint).into());
        }
        let options = self.shape.options(self.verify);
        let model = files::plan_safetensors(&self.file).map_err(super::failed)?;
        let (listed, side) = super::with_gpu(self.gpu, self.to, |machine| {
            let bytes = model.bytes();
            let loaded = super::shown("loaded", bytes, |progress| files::load(machine, model, &options, progress))?;
            let addresses = loaded.model.tensors.iter().map(|tensor| loaded.va(tensor)).collect();
            Ok(Listed { addresses, model: loaded.model, reports: loaded.reports })
        })?;
        listed.print(side, self.json)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// A list of the loaded tensors, which outlives their memory.
struct Listed {
    model: Model,
    addresses: Vec<u64>,
    reports: Vec<Report>,
}

impl Listed {
    fn print(&self, side: Side, json: bool) -> anyhow::Result<()> {
        let tensors = || self.model.tensors.iter().zip(&self.addresses);
        let files = || self.model.shards.iter().zip(&self.reports);
        if json {
            let tensors: Vec<_> = tensors()
                .map(|(tensor, address)| {
                    json!({
                        "name": tensor.name,
                        "dtype": tensor.dtype,
                        "shape": tensor.shape,
                        "bytes": tensor.bytes,
                        "address": format!("{address:#x}"),
                        "file": self.model.shards[tensor.file].path.display().to_string(),
                        "offset": tensor.offset,
                    })
                })
                .collect();
            let files: Vec<_> =
                files().map(|(shard, report)| outcome::as_json("load", &shard.path, side, report)).collect();
            let all = json!({
                "operation": "load",
                "memory": side.name(),
                "functional": side.is_functional(),
                "bytes": self.model.bytes(),
                "files": files,
                "tensors": tensors,
            });
            return Ok(terminal::json::print(&all)?);
        }
        let mut rows = Style::of_stdout().table(&["tensor", "type", "shape", "bytes", "address"]);
        for (tensor, address) in tensors() {
            let shape: Vec<String> = tensor.shape.iter().map(ToString::to_string).collect();
            let (bytes, address) = (number::bytes(tensor.bytes), format!("{address:#x}"));
            rows.add_row([
                tensor.name.escape_debug().to_string(),
                tensor.dtype.clone(),
                shape.join(" x "),
                bytes,
                address,
            ]);
        }
        to_stdout(|out| table::write(out, &rows, 0))?;
        for (shard, report) in files() {
            outcome::print("load", &shard.path, side, report, false)?;
        }
        Ok(())
    }
}

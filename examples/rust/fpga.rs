//! A program for host buffers: frames of a device are read and uploaded, one after the other, and the GPU's bytes are compared. By which way
//! they go, two lines of settings say: see `docs/guides/fpga-to-gpu.md`.
//!
//! `cargo run -p workload --example fpga -- edu` runs it with a card that QEMU emulates and the software GPU, `-- xdma@0000:04:00.0` with an FPGA.

use workload::device::transfers::{Settings, Transfers};
use workload::{Buffer, Error, Machine};

/// Bytes of a frame, and how many come.
const FRAME: u64 = 16 << 10;
const FRAMES: u64 = 4;

/// The program. It does not know which way its bytes go.
pub fn program(machine: &Machine, settings: Settings) -> Result<String, Error> {
    let mut device = Transfers::new(machine, settings, Buffer::of_card(machine)?)?;
    let buffers = [device.frame(FRAME)?, device.frame(FRAME)?];
    for n in 0..FRAMES {
        // What the FPGA's logic does: a frame of its own at each place.
        let sent: Vec<u8> = (0..FRAME).map(|at| (at * (2 * n + 3) + (at >> 8)) as u8).collect();
        device.own().write((n * FRAME) as i64, &sent)?;

        let buffer = buffers[n as usize % 2];
        device.read(buffer, n * FRAME, FRAME)?;
        device.upload(buffer, FRAME)?;

        let mut found = vec![0; FRAME as usize];
        device.gpu(buffer)?.read(0, &mut found)?;
        if found != sent {
            return Err(Error::Frame { frame: n, wrong: 1, pages: FRAME / 4096 });
        }
    }
    Ok(format!("{FRAMES} frames of {FRAME} bytes are right, {}", device.about()))
}

/// With an emulated card and the software GPU, or with an FPGA and the machine's GPU.
pub fn machine(card: &str) -> Result<Machine, Box<dyn std::error::Error>> {
    use doorbell_softgpu::{Mode, SoftDriver};
    use std::os::fd::AsFd;
    match card.split_once('@') {
        None if card == "edu" => {
            let emulated = workload::device_copy::Emulated::start(workload::device_copy::emulated::Sizes::default())?;
            let gpu = SoftDriver::with_video(Mode::Strict, emulated.video.as_fd(), emulated.bus)?;
            Ok(Machine::of_driver(std::sync::Arc::new(gpu), false)?.with_card(emulated.card))
        }
        Some(("xdma", address)) => {
            Ok(Machine::open(workload::Where::Real)?.with_card(workload::device_copy::xdma::open(address)?))
        }
        _ => Err("which card? edu, or xdma@0000:04:00.0".into()),
    }
}

#[allow(dead_code, reason = "tests take the parts")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let card = std::env::args().nth(1).unwrap_or_else(|| "edu".into());
    let machine = machine(&card)?;
    println!("{}", program(&machine, Settings::find()?)?);
    Ok(())
}

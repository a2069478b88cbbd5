//! Copies a tape without data that identifies the machine: `anonymous IN OUT`. For fixtures.
//!
//! Events, clocks' distances and the end stay; program, time of day, kernel build, processor and the GPU's UUID are removed.

use tape::event::{Body, Events};
use tape::file::{Header, Item, Reader, Writer};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, from, to] = args.as_slice() else { return Err("usage: anonymous IN OUT".into()) };
    let mut r = Reader::open(from.as_ref())?;
    let h = r.header().clone();
    let kernel = h.kernel.split('-').next().unwrap_or_default().to_owned();
    let clean = Header {
        args: None,
        exe: String::new(),
        started: String::new(),
        kernel,
        cpu: String::new(),
        host: String::new(),
        ..h
    };
    let uuid = uuid_of(from)?;
    let mut w = Writer::create(to.as_ref(), &clean)?;
    while let Some(item) = r.item()? {
        match item {
            Item::Events { process, tid, mut bytes } => {
                if let Some(u) = uuid {
                    blank(&mut bytes, &u);
                }
                w.events(process, tid, &bytes)?;
            }
            Item::Clock(c) => w.clock(&tape::file::Clock { realtime_ns: 0, ..c })?,
            Item::Note(n) => w.note(&n)?,
            Item::Process(p) => w.process(&tape::file::Process { args: None, exe: String::new(), ..*p })?,
            Item::ProcessEnd(e) => w.process_end(&e)?,
            Item::Unwatched(u) => w.unwatched(&tape::file::Unwatched { path: String::new(), ..*u })?,
            Item::End(e) => w.end(&e)?,
            Item::Summary(_) | Item::Checkpoint | Item::Looks(_) => {}
            Item::Unknown(k) => return Err(format!("chunk of unknown kind {k}").into()),
        }
    }
    println!("{} bytes", w.bytes());
    Ok(())
}

/// The GPU's UUID, from the answer to NV2080_CTRL_CMD_GPU_GET_GID_INFO (0x2080014a: index, flags, length, data).
fn uuid_of(path: &str) -> Result<Option<[u8; 16]>, Box<dyn std::error::Error>> {
    let mut r = Reader::open(path.as_ref())?;
    while let Some(item) = r.item()? {
        let Item::Events { bytes, .. } = item else { continue };
        for e in Events::new(&bytes) {
            if let Body::Ioctl(_, arg, nested) = e.body
                && arg.get(8..12) == Some(&0x2080_014au32.to_le_bytes())
                && nested.get(8..12) == Some(&16u32.to_le_bytes())
            {
                return Ok(nested.get(12..28).and_then(|b| b.try_into().ok()));
            }
        }
    }
    Ok(None)
}

/// Replaces each occurrence of the UUID by `doorbell-fixture`.
fn blank(bytes: &mut [u8], uuid: &[u8; 16]) {
    let mut at = 0;
    while let Some(i) = bytes.get(at..).and_then(|b| b.windows(16).position(|w| w == uuid)) {
        if let Some(b) = bytes.get_mut(at + i..at + i + 16) {
            b.copy_from_slice(b"doorbell-fixture");
        }
        at += i + 16;
    }
}

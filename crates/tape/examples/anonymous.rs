//! Copies a tape without what tells one machine from another: `anonymous IN OUT`. For fixtures.
//!
//! Events, clocks' distances and the end stay; program, time of day, kernel build and processor go.

use tape::file::{Header, Item, Reader, Writer};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, from, to] = args.as_slice() else { return Err("usage: anonymous IN OUT".into()) };
    let mut r = Reader::open(from.as_ref())?;
    let h = r.header().clone();
    let kernel = h.kernel.split('-').next().unwrap_or_default().to_owned();
    let clean = Header { args: None, exe: String::new(), started: String::new(), kernel, cpu: String::new(), ..h };
    let mut w = Writer::create(to.as_ref(), &clean)?;
    while let Some(item) = r.item()? {
        match item {
            Item::Events { tid, bytes } => {
                let tsc = bytes.get(8..16).and_then(|b| b.try_into().ok()).map_or(0, u64::from_ne_bytes);
                w.events(tid, tsc, &bytes)?;
            }
            Item::Clock(c) => w.clock(&tape::file::Clock { realtime_ns: 0, ..c })?,
            Item::Note(n) => w.note(&n)?,
            Item::End(e) => w.end(&e)?,
            Item::Unknown(k) => return Err(format!("chunk of unknown kind {k}").into()),
        }
    }
    println!("{} bytes", w.bytes());
    Ok(())
}

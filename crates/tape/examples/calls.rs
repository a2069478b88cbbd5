//! What CUDA's calls on a tape were: `calls TAPE` prints, for each function, how often, how long and with what result.

use std::collections::BTreeMap;
use tape::call::function;
use tape::event::{Body, Events};
use tape::file::{Item, Reader};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, from] = args.as_slice() else { return Err("usage: calls TAPE".into()) };
    let mut r = Reader::open(from.as_ref())?;
    let us = 1e6 / r.header().tsc_hz;
    // Function: microseconds of each call, calls inside, results that are not 0, calls that did not return.
    let mut rows: BTreeMap<u16, (Vec<f64>, u64, u64, u64)> = BTreeMap::new();
    while let Some(item) = r.item()? {
        let Item::Events { bytes, .. } = item else { continue };
        for e in Events::new(&bytes) {
            let row = rows.entry(e.head.flags);
            match e.body {
                Body::Call(b) => {
                    let row = row.or_default();
                    row.0.push(e.head.tsc.saturating_sub(b.began) as f64 * us);
                    row.1 += u64::from(b.inner);
                    row.2 += u64::from(b.result != 0);
                }
                Body::InCall(_) => row.or_default().3 += 1,
                _ => {}
            }
        }
    }
    println!("function                        calls   median us      max us  inside  failed  not returned");
    for (f, (mut times, inside, failed, left)) in rows {
        times.sort_by(f64::total_cmp);
        let median = times.get(times.len() / 2).copied().unwrap_or(0.0);
        let max = times.last().copied().unwrap_or(0.0);
        let name = function(f).map_or_else(|| format!("call {f}"), |f| f.name.to_owned());
        let n = times.len();
        println!("{name:28} {n:8} {median:11.2} {max:11.2} {inside:7} {failed:7} {left:13}");
    }
    Ok(())
}

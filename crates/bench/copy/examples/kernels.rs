//! The routes whose bytes kernels carry, on a real GPU. Each is opened and moves sizes from 4 bytes to 1 MiB, also odd ones, from
//! and to odd offsets. Every transfer has new bytes that are compared. Prints p50 and p99 from submission to end, and the
//! multiprocessors that run the resident kernels. Every wait is bounded, and the whole run takes at most 20 s.
//!
//! `cargo run --release -p copy --example kernels [PART OF A NAME ...]`

use copy::{Checked, Error, Machine, Route, Transfer, Where, open};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_millis(500);
/// Routes that have not begun by then are skipped.
const BUDGET: Duration = Duration::from_secs(17);
/// The budget, and some time to finish the last transfers.
const DEADLINE: Duration = Duration::from_secs(19);
const TRANSFERS: usize = 200;
const SIZES: [u64; 9] = [4, 13, 56, 1001, 4096, 65_536, 65_537, 262_144, 1 << 20];

/// A kernel that fails ends CUDA's context and all later routes, so the newest routes are last.
const ROUTES: [&str; 28] = [
    "host->sm[polled]->gpu0",
    "gpu0->sm[polled]->host",
    "gpu0->sm[polled]->gpu0[offset=4096]",
    "host[offset=3]->sm[polled]->gpu0[offset=8]",
    "gpu0[offset=5]->sm[polled]->host[offset=2]",
    "host->sm->gpu0",
    "host->sm[blocks=1,polled]->gpu0",
    "host->sm[blocks=16,polled]->gpu0",
    "host[registered]->sm[polled]->gpu0",
    "host->zerocopy[polled]->gpu0",
    "gpu0->zerocopy[polled]->host",
    "host[offset=1]->zerocopy[polled]->gpu0[offset=3]",
    "host->zerocopy->gpu0",
    "host->message->gpu0",
    "host->message[answer=line]->gpu0",
    "host->bar1->gpu0[offset=3]",
    "host->bar1[answered]->gpu0[offset=3]",
    "host->resident[sm]->gpu0",
    "gpu0->resident[sm]->host",
    "host[offset=7]->resident[sm]->gpu0[offset=1]",
    "gpu0->resident[sm]->gpu0",
    "host->resident[gpc]->gpu0",
    "gpu0->resident[gpc]->host",
    "gpu0[offset=11]->resident[gpc]->host[offset=6]",
    "host->resident[gpc=4]->gpu0",
    "gpu0->resident[gpc=4]->host",
    "host[offset=9]->resident[gpc=4]->gpu0",
    "host->resident[clusters=4,cluster=8]->gpu0",
];

/// Ends the process if a call hangs, because CUDA's calls have no time limit.
fn watch() {
    std::thread::spawn(|| {
        std::thread::sleep(DEADLINE);
        eprintln!("not done within {DEADLINE:?}: a call does not come back");
        std::process::exit(2);
    });
}

fn micros(sorted: &[Duration], part: f64) -> f64 {
    let at = ((sorted.len() as f64 * part) as usize).min(sorted.len().saturating_sub(1));
    sorted.get(at).map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
}

/// The resident kernels' placement, as they reported it, in one line.
fn places(transfer: &dyn Transfer) -> Option<String> {
    let places = transfer.places()?;
    let mut all = places.concat();
    let blocks = all.len();
    all.sort_unstable();
    all.dedup();
    Some(format!("{} clusters, {blocks} blocks on {} multiprocessors: {places:?}", places.len(), all.len()))
}

/// One size of a route: the times of all transfers, or the error.
fn size(route: &mut Route<'_>, bytes: u64, is_first: bool) -> Result<Vec<Duration>, String> {
    let say = |error: Error| error.to_string();
    let mut transfer = route.prepare(bytes).map_err(say)?;
    let ends = "the two memories cannot be looked at";
    let mut checked = Checked::new(transfer.ends().ok_or(ends)?, bytes, bytes ^ 0x5eed).map_err(say)?;
    let mut times = Vec::with_capacity(TRANSFERS);
    for n in 0..TRANSFERS {
        if n > 0 {
            checked.renew(transfer.ends().ok_or(ends)?).map_err(say)?;
        }
        let begun = Instant::now();
        transfer.submit().map_err(say)?;
        transfer.wait(PATIENCE).map_err(|error| format!("transfer {n}: {error}"))?;
        times.push(begun.elapsed());
        // Long transfers are compared only every 20th time: reading them back takes longer than everything else.
        if (bytes <= 4096 || n % 20 == 0 || n + 1 == TRANSFERS)
            && let Some(wrong) = checked.check(transfer.ends().ok_or(ends)?).map_err(say)?
        {
            return Err(format!("transfer {n}: {wrong}"));
        }
    }
    if is_first && let Some(places) = places(&*transfer) {
        println!("  {places}");
    }
    times.sort_unstable();
    Ok(times)
}

fn main() -> ExitCode {
    watch();
    let begun = Instant::now();
    let machine = match Machine::open(Where::Real) {
        Ok(machine) => machine,
        Err(error) => {
            println!("skipped: {error}");
            return ExitCode::from(77);
        }
    };
    println!("opened after {:?}", begun.elapsed());
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let mut wrong = 0;
    for name in ROUTES.iter().filter(|name| wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str())))
    {
        println!("{name}");
        // A message is one line, so there are no longer ones.
        let most = if name.contains("message") { 56 } else { 1 << 20 };
        let mut route = match open(&machine, name, most) {
            Ok(route) => route,
            Err(error) => {
                println!("  {error}");
                wrong += 1;
                continue;
            }
        };
        for bytes in SIZES.into_iter().filter(|bytes| *bytes <= most) {
            if begun.elapsed() > BUDGET {
                println!("  {bytes:>8} B  left out: no time");
                wrong += 1;
                continue;
            }
            match size(&mut route, bytes, bytes == SIZES[0]) {
                Ok(times) => {
                    let [p50, p99, max] = [0.5, 0.99, 1.0].map(|part| micros(&times, part));
                    let rate = bytes as f64 / p50 / 1e3;
                    println!("  {bytes:>8} B  p50 {p50:8.2} us  p99 {p99:8.2} us  max {max:9.2} us  {rate:7.2} GB/s");
                }
                Err(why) => {
                    println!("  {bytes:>8} B  {why}");
                    wrong += 1;
                }
            }
        }
    }
    println!("{wrong} wrong, {:?} in all", begun.elapsed());
    ExitCode::from(u8::from(wrong > 0))
}

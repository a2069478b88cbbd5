//! Faults that a test injects into the measuring process, to show that each is found. None by default.

use crate::soak::measuring::Lap;
use std::fs::File;
use std::time::Duration;

/// What goes wrong. Laps are counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// Each lap keeps memory, or an open file.
    LeakMemory,
    LeakDescriptor,
    /// Each lap reports its transfers as a little longer.
    Drift,
    /// The process stalls in its n-th lap.
    Stall {
        lap: u64,
    },
    /// It ends in its n-th lap.
    Die {
        lap: u64,
    },
    /// From the n-th lap on, no load does anything.
    DeadLoad {
        lap: u64,
    },
}

/// What a lap leaks, bytes.
const LEAK: usize = 256 << 10;
/// The fraction by which a transfer becomes longer with each lap.
const SLOWER: f64 = 0.005;
/// Nobody waits for its end.
const STANDS_STILL: Duration = Duration::from_secs(3600);

impl Planted {
    /// `leak-memory`, `leak-descriptor`, `drift`, `stall:LAP`, `die:LAP`, `dead-load:LAP`.
    ///
    /// # Errors
    /// Which there are.
    pub fn parse(text: &str) -> Result<Planted, String> {
        let (name, lap) = text.split_once(':').map_or((text, None), |(name, lap)| (name, lap.parse::<u64>().ok()));
        match (name, lap) {
            ("leak-memory", None) => Ok(Planted::LeakMemory),
            ("leak-descriptor", None) => Ok(Planted::LeakDescriptor),
            ("drift", None) => Ok(Planted::Drift),
            ("stall", Some(lap)) => Ok(Planted::Stall { lap }),
            ("die", Some(lap)) => Ok(Planted::Die { lap }),
            ("dead-load", Some(lap)) => Ok(Planted::DeadLoad { lap }),
            _ => Err("one of leak-memory, leak-descriptor, drift, stall:LAP, die:LAP, dead-load:LAP".into()),
        }
    }

    /// Injects the fault after this lap of the process.
    pub fn strike(self, number: u64, lap: &mut Lap) {
        match self {
            Planted::LeakMemory => drop(Box::leak(vec![1u8; LEAK].into_boxed_slice())),
            Planted::LeakDescriptor => File::open("/dev/null").into_iter().for_each(std::mem::forget),
            Planted::Drift => {
                for s in lap.samples.iter_mut().flatten() {
                    s.done_ns += (s.done() as f64 * SLOWER * number as f64) as u64;
                }
            }
            Planted::Stall { lap } if number == lap => std::thread::sleep(STANDS_STILL),
            Planted::Die { lap } if number == lap => std::process::abort(),
            Planted::DeadLoad { lap: from } if number >= from => {
                lap.part.loads.iter_mut().for_each(|load| (load.transfers, load.bytes) = (0, 0));
            }
            Planted::Stall { .. } | Planted::Die { .. } | Planted::DeadLoad { .. } => {}
        }
    }
}

//! Stores and loads of the CPU through BAR1: all the work is in the submission.
//!
//! Stores are posted: when the submission returns they are on their way, in front of whatever the CPU sends to the GPU next.
//! `bar1[flush]` also waits for them: a load of the last byte comes back only after all stores before it have arrived.
//! `bar1[answered]` waits until a kernel has seen them (`answered`).

use super::answered::{BLOCKS_4, BLOCKS_16, MAIL, PLAIN, STORE_AVX512, STORE_FENCED, WARPS_4, WARPS_16, WHOLE};
use super::{Direction, Ends, answered};
use crate::entry::{Entry, Opened};
use crate::error::{Error, Unavailable};
use crate::machine::Machine;
use crate::route::{Route, Transfer};
use crate::spec::{Spec, Word};
use gpu::Bar1Map;
use std::time::Duration;

const FLUSH: &str = "flush";
const ANSWERED: &str = "answered";

/// What says more about how a kernel answers.
const OF_ANSWERED: [&str; 9] = [PLAIN, MAIL, WARPS_4, WARPS_16, BLOCKS_4, BLOCKS_16, STORE_AVX512, STORE_FENCED, WHOLE];

pub(crate) const ENTRY: Entry = Entry {
    word: Word {
        name: "bar1",
        numbered: false,
        options: &[
            FLUSH,
            ANSWERED,
            PLAIN,
            MAIL,
            WARPS_4,
            WARPS_16,
            BLOCKS_4,
            BLOCKS_16,
            STORE_AVX512,
            STORE_FENCED,
            WHOLE,
        ],
    },
    about,
    list,
    check,
    open,
};

fn about(_: &Machine, spec: &Spec) -> String {
    let way = if spec.executor.has(ANSWERED) {
        "stores of the CPU through BAR1, seen by a kernel that spins and answers in host memory"
    } else {
        "stores and loads of the CPU through BAR1; flush: a load waits until the stores have arrived"
    };
    way.into()
}

fn list(machine: &Machine) -> Vec<String> {
    let gpu = machine.index();
    vec![
        format!("host->bar1->gpu{gpu}"),
        format!("host->bar1[flush]->gpu{gpu}"),
        format!("host->bar1[answered]->gpu{gpu}"),
        format!("host[pageable]->bar1->gpu{gpu}"),
        format!("gpu{gpu}->bar1->host"),
    ]
}

fn check(machine: &Machine, spec: &Spec) -> Result<(), Unavailable> {
    let direction = Direction::of(machine, spec)?;
    if direction == Direction::FromGpu && spec.executor.has(FLUSH) {
        return Err(Unavailable::new("loads are there when they come back: there is nothing to flush from the GPU"));
    }
    if spec.executor.has(ANSWERED) {
        if direction == Direction::FromGpu {
            return Err(Unavailable::new(
                "loads are there when they come back: there is nothing to answer from the GPU",
            ));
        }
        if spec.executor.has(FLUSH) {
            return Err(Unavailable::new(
                "flush and answered are two ways to know that stores have arrived: choose one",
            ));
        }
        answered::check(machine, &spec.executor)?;
    } else if let Some(option) = OF_ANSWERED.iter().find(|option| spec.executor.has(option)) {
        return Err(Unavailable::new(format!("{option} says how a kernel answers: write it beside answered")));
    }
    machine.space().map(drop)
}

fn open<'m>(machine: &'m Machine, spec: &Spec, capacity: u64) -> Opened<'m> {
    let direction = Direction::of(machine, spec)?;
    let answered = spec.executor.has(ANSWERED);
    let room = if answered { answered::room(&spec.executor, capacity) } else { capacity };
    let mut ends = Ends::new(machine, spec, room)?;
    let gpu = ends.gpu_end(direction);
    gpu.pin(machine)?;
    let map = gpu.bar1()?;
    if answered {
        return answered::open(machine, map, ends, &spec.executor, capacity);
    }
    Ok(Box::new(Bar1Route { map, ends, direction, flush: spec.executor.has(FLUSH) }))
}

struct Bar1Route<'m> {
    map: Bar1Map,
    ends: Ends<'m>,
    direction: Direction,
    flush: bool,
}

impl Route for Bar1Route<'_> {
    fn name(&self) -> &str {
        &self.ends.name
    }

    fn capacity(&self) -> u64 {
        self.ends.capacity()
    }

    fn prepare(&mut self, bytes: u64) -> Result<Box<dyn Transfer + '_>, Error> {
        self.ends.check(bytes)?;
        let (map, host) = (&self.map, self.ends.host_bytes(self.direction, bytes)?);
        Ok(match self.direction {
            Direction::ToGpu => Box::new(Stores { map, from: host, flush: self.flush, stored: false }),
            Direction::FromGpu => Box::new(Loads { map, to: host, loaded: false }),
        })
    }

    fn fill(&mut self, data: &[u8]) -> Result<(), Error> {
        self.ends.fill(data)
    }

    fn read_back(&mut self, into: &mut [u8]) -> Result<(), Error> {
        self.ends.read_back(into)
    }
}

struct Stores<'r> {
    map: &'r Bar1Map,
    from: &'r [u8],
    flush: bool,
    stored: bool,
}

impl Stores<'_> {
    #[inline]
    fn arrived(&self) -> Result<(), Error> {
        if self.flush {
            self.map.read(self.from.len() as u64 - 1, &mut [0])?;
        }
        Ok(())
    }
}

impl Transfer for Stores<'_> {
    #[inline]
    fn submit(&mut self) -> Result<(), Error> {
        self.map.write(0, self.from)?;
        self.stored = true;
        Ok(())
    }

    #[inline]
    fn poll(&mut self) -> Result<bool, Error> {
        if self.stored {
            self.arrived()?;
        }
        Ok(self.stored)
    }

    #[inline]
    fn wait(&mut self, _timeout: Duration) -> Result<(), Error> {
        if self.stored { self.arrived() } else { Err(Error::Idle) }
    }
}

struct Loads<'r> {
    map: &'r Bar1Map,
    to: &'r mut [u8],
    loaded: bool,
}

impl Transfer for Loads<'_> {
    #[inline]
    fn submit(&mut self) -> Result<(), Error> {
        self.map.read(0, self.to)?;
        self.loaded = true;
        Ok(())
    }

    fn poll(&mut self) -> Result<bool, Error> {
        Ok(self.loaded)
    }

    #[inline]
    fn wait(&mut self, _timeout: Duration) -> Result<(), Error> {
        if self.loaded { Ok(()) } else { Err(Error::Idle) }
    }
}

//! Many I/Os in progress at once ([`crate::saturate`]): how full one CPU thread, or several, get the GPU's link. One sample is a burst: the cell's bytes
//! in I/Os of one size, each submitted and reaped separately, from the first submission until all are complete.

use crate::entry::{Call, Entry, Result as Open, Value};
use crate::saturate::Burst;
use crate::saturate::source::{Shape, Source, Target};
use crate::saturate::sources::engine::Engines;
use crate::saturate::sources::nvme::{Drive, Drives, Gpu};
use crate::saturate::way::Way;
use crate::spec::{End, Memory};
use crate::{Buffer, Difference};
use crate::{Checks, Did, Error, Machine, Opened, Subject, Unavailable, Wanted, Wrong};
use gpu::{CopyFlush, CopyMode, Place};
use std::time::Duration;

const TO_HOST: &str = "to-host";
const ARMED: &str = "armed";
const PLAIN: &str = "plain";
const FOLDED: &str = "folded";
const NO_FLUSH: &str = "no-flush";
const LOCAL_FLUSH: &str = "local-flush";
const COMMANDS_HOST: &str = "commands-host";
const COMPLETIONS_VIDEO: &str = "completions-video";
const WITHOUT_IOMMU: &str = "without-iommu";
const SIZE: &str = "size";
const DEPTH: &str = "depth";
const BATCH: &str = "batch";
const DEVICES: &str = "devices";
const QUEUES: &str = "queues";
const THREADS: &str = "threads";
const EVERY: &str = "completions-every";
const BUFFER: &str = "buffer";
const ENGINES: &str = "engines";
const DRIVES: &str = "drives";

pub(crate) const IOS: Entry = Entry {
    name: "ios",
    form: "ios(to-host,armed,plain,folded,no-flush,local-flush,commands-host,completions-video,without-iommu,size=BYTES,depth=N,batch=N,devices=N,\
           queues=N,threads=N,completions-every=N,buffer=BYTES,engines=3+4,drives=ADDRESS+ADDRESS)",
    about: "its bytes as many I/Os of copy engines, or of NVMe drives, into GPU memory or to the host: so many devices, queues of each, I/Os in \
            progress in each queue, I/Os for each doorbell, and threads that submit; every byte is compared",
    bytes: 12 << 20,
    number: None,
    words: &[TO_HOST, ARMED, PLAIN, FOLDED, NO_FLUSH, LOCAL_FLUSH, COMMANDS_HOST, COMPLETIONS_VIDEO, WITHOUT_IOMMU],
    one_word: false,
    values: &[
        Value::Size(SIZE),
        Value::Count(DEPTH),
        Value::Count(BATCH),
        Value::Count(DEVICES),
        Value::Count(QUEUES),
        Value::Count(THREADS),
        Value::Count(EVERY),
        Value::Size(BUFFER),
        Value::List(ENGINES),
        Value::List(DRIVES),
    ],
    open,
};

/// The usual size of an I/O, and of all targets of a cell together.
const USUAL_SIZE: u64 = 4 << 10;
const USUAL_BUFFER: u64 = 64 << 20;
/// A burst fails if no I/O of a thread completes for this long.
const PATIENCE: Duration = Duration::from_secs(10);

fn open<'m>(machine: &'m Machine, call: &Call, wanted: &Wanted) -> Open<'m> {
    let unavailable = |why: String| Err(Unavailable::new(why).into());
    let count = |key: &str, usual: u32| call.given(key).and_then(|text| text.parse().ok()).unwrap_or(usual);
    let size =
        |key: &str, usual: u64| call.given(key).and_then(|text| settings::sizes::one(text).ok()).unwrap_or(usual);
    let (bytes, buffer) = (size(SIZE, USUAL_SIZE), size(BUFFER, USUAL_BUFFER));
    let (devices, queues, threads) = (count(DEVICES, 1), count(QUEUES, 1), count(THREADS, 1));
    let all = u64::from(devices) * u64::from(queues);
    let way = Way {
        mode: match () {
            () if call.has(PLAIN) => CopyMode::Plain,
            () if call.has(FOLDED) => CopyMode::Folded,
            () => CopyMode::Pipelined,
        },
        flush: match () {
            () if call.has(NO_FLUSH) => CopyFlush::None,
            () if call.has(LOCAL_FLUSH) => CopyFlush::Local,
            () => CopyFlush::All,
        },
        completions_every: call.given(EVERY).and_then(|text| text.parse().ok()),
        commands: if call.has(COMMANDS_HOST) { Place::Host } else { Place::Video },
        completions: if call.has(COMPLETIONS_VIDEO) { Place::Video } else { Place::Host },
    };
    let shape = Shape {
        target: if call.has(TO_HOST) { Target::Host } else { Target::Gpu },
        armed: call.has(ARMED),
        devices,
        queues,
        depth: count(DEPTH, 128),
        bytes,
        // A power of two of blocks.
        part: (buffer / all / bytes).checked_ilog2().map_or(0, |blocks| bytes << blocks),
        batch: count(BATCH, 1),
        way,
        seed: 0,
    };
    let burst = wanted.bytes;
    let ios = burst / bytes / all;
    if u64::from(threads) > all || shape.batch > shape.depth || !way.fits(shape.batch, shape.depth) {
        return unavailable(
            "each thread needs a queue, the depth must cover the batch, and the way must fit the batch".into(),
        );
    }
    if ios * bytes * all != burst || !ios.is_multiple_of(shape.batch.into()) {
        return unavailable(format!(
            "{burst} bytes are not the same number of whole doorbells of I/Os for each of {all} queues"
        ));
    }
    let source: Box<dyn Source + 'm> = match call.given(DRIVES) {
        None => Box::new(Engines::new(machine.space()?, &engines(call)?)?),
        Some(_) if shape.armed || way != Way::default() => {
            return unavailable("only copy engines have ways and gates".into());
        }
        Some(list) => Box::new(drives(machine, list, call.has(WITHOUT_IOMMU), &shape)?),
    };
    Ok(Box::new(Ios { source, shape, threads, ios, burst }))
}

/// Their numbers; none: all that run while kernels do.
fn engines(call: &Call) -> Result<Vec<u32>, Error> {
    let number =
        |text: &str| text.parse().map_err(|_| Unavailable::new(format!("{text:?} is no number of a copy engine")));
    Ok(call.given(ENGINES).map_or(Ok(Vec::new()), |list| list.split('+').map(number).collect())?)
}

/// Drives by their addresses, and a part of the GPU's memory that they reach through BAR1, if it is the target. A drive has one user, so a stage has
/// one cell for each.
fn drives<'m>(machine: &'m Machine, list: &str, without_iommu: bool, shape: &Shape) -> Result<Drives<'m>, Error> {
    let one = |address: &str| {
        let function = pcie::open(address, without_iommu)?;
        let controller = drivers::nvme::Controller::open(function).map_err(Error::card)?;
        let none = || Unavailable::new(format!("{address} has no active namespace"));
        let first = *controller.active().map_err(Error::card)?.first().ok_or_else(none)?;
        Ok(Drive { namespace: controller.namespace(first).map_err(Error::card)?, controller })
    };
    let all = list.split('+').map(one).collect::<Result<Vec<Drive>, Error>>()?;
    let gpu = match shape.target {
        Target::Host => None,
        Target::Gpu => {
            let end = End { memory: Memory::Gpu(machine.index()), offset: 0 };
            let parts = shape.part * u64::from(shape.devices) * u64::from(shape.queues);
            let buffer = Buffer::new(machine, end, parts)?;
            Some(Gpu { peer: buffer.gpu_target()?.peer(), memory: Box::new(buffer) })
        }
    };
    Ok(Drives::new(all, gpu, PATIENCE))
}

struct Ios<'m> {
    source: Box<dyn Source + 'm>,
    shape: Shape,
    threads: u32,
    /// Of each queue in a burst, and the bytes of all.
    ios: u64,
    burst: u64,
}

impl Opened for Ios<'_> {
    fn about(&self) -> String {
        let Shape { devices, queues, depth, bytes, batch, .. } = self.shape;
        format!(
            "I/Os of {bytes} bytes, {batch} for each doorbell, {depth} in progress in each of {} queues, by {} threads: {}",
            devices * queues,
            self.threads,
            self.source.about()
        )
    }

    /// Both images of every block of small targets.
    fn verify(&mut self, seed: u64, timeout: Duration) -> Result<Option<Wrong>, Error> {
        let blocks = (2 * u64::from(self.shape.depth)).next_power_of_two();
        let shape = Shape { seed, part: blocks * self.shape.bytes, ..self.shape };
        let mut burst = Burst::open(&mut *self.source, &shape, self.threads)?;
        burst.run((2 * blocks).next_multiple_of(self.shape.batch.into()), timeout)?;
        wrong(&mut burst)
    }

    fn prepare(&mut self, seed: u64) -> Result<Box<dyn Subject + '_>, Error> {
        let shape = Shape { seed, ..self.shape };
        let burst = Burst::open(&mut *self.source, &shape, self.threads)?;
        Ok(Box::new(Running { burst, ios: self.ios, bytes: self.burst }))
    }
}

struct Running<'s> {
    burst: Burst<'s>,
    ios: u64,
    bytes: u64,
}

impl Subject for Running<'_> {
    fn fire(&mut self) -> Result<(), Error> {
        self.burst.run(self.ios, PATIENCE)
    }

    fn did(&mut self) -> Did {
        Did { bytes: self.bytes, ..Did::ONCE }
    }

    fn checks(&self) -> Checks {
        Checks::Bytes
    }

    fn check(&mut self) -> Result<Option<Wrong>, Error> {
        wrong(&mut self.burst)
    }
}

fn wrong(burst: &mut Burst<'_>) -> Result<Option<Wrong>, Error> {
    let first = burst.check()?.first;
    Ok(first.and_then(|(wanted, found)| Difference::between(&wanted, &found, None)).map(Wrong::Data))
}

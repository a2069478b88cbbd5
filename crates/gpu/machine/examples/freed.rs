//! CUDA's small blocks, freed and allocated again while a copy that was prepared before still names them. Needs a GPU and
//! libcudart.
//!
//! Exit status 0: each submission was refused. 1: one was not refused, or the next owner's memory was overwritten. 77: CUDA never
//! gave an address out again, so the example shows no result.

use cuda::DeviceBuffer;
use cuda::runtime::{Runtime, Stream};
use gpu::{Channel, ChannelOptions, CopyMode, Engine, Memory, Prepared};
use machine::{Machine, Where, pin};
use std::error::Error;
use std::ffi::c_int;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

const SIZES: [usize; 4] = [8, 512, 4096, 64 << 10];
const OURS: u8 = 0xaa;
const THEIRS: u8 = 0x11;
/// Allocations made to get the same address again.
const TRIES: usize = 2000;
const PATIENCE: Duration = Duration::from_secs(5);

type Result<T> = std::result::Result<T, Box<dyn Error>>;
/// cuMemFree_v2
type Free = unsafe extern "C" fn(u64) -> c_int;

/// How memory is allocated and freed.
#[derive(Clone, Copy)]
enum Way<'a> {
    /// cudaMalloc, cudaFree.
    Runtime,
    /// cudaMallocAsync, cudaFreeAsync.
    Pool(&'a Stream),
    /// cuMemAlloc, cuMemFree.
    Driver,
    /// cuMemAlloc, and cuMemFree by a pointer that was looked up before doorbell replaced it: doorbell does not see this free.
    Unseen(Free),
}

#[derive(Default)]
struct Outcome {
    refused: usize,
    let_through: usize,
    overwritten: usize,
    /// The address was not given out again.
    nothing: usize,
}

struct Rig<'m> {
    machine: &'m Machine,
    runtime: Runtime,
    channel: Channel,
    source: Arc<Memory>,
}

impl Rig<'_> {
    fn allocate(&self, way: Way<'_>, bytes: usize) -> Result<u64> {
        Ok(match way {
            Way::Runtime => self.runtime.malloc(bytes)?,
            Way::Pool(stream) => {
                let at = stream.malloc(bytes)?;
                stream.synchronize()?;
                at
            }
            Way::Driver | Way::Unseen(_) => {
                let buffer = DeviceBuffer::new(self.machine.context()?, bytes)?;
                let at = buffer.address();
                std::mem::forget(buffer);
                at
            }
        })
    }

    fn free(&self, way: Way<'_>, at: u64) -> Result<()> {
        // SAFETY: allocated above in the same way, and freed once. A prepared copy still names it on purpose.
        unsafe {
            match way {
                Way::Runtime => self.runtime.free(at)?,
                Way::Pool(stream) => {
                    stream.free(at)?;
                    stream.synchronize()?;
                }
                Way::Driver => drop(DeviceBuffer::from_address(self.machine.context()?, at, 1)),
                Way::Unseen(free) => {
                    if free(at) != 0 {
                        return Err("cuMemFree by the pointer of before failed".into());
                    }
                }
            }
        }
        Ok(())
    }

    fn one(&mut self, way: Way<'_>, bytes: usize, outcome: &mut Outcome) -> Result<()> {
        let context = self.machine.context()?;
        let at = self.allocate(way, bytes)?;
        let pinned = pin(self.machine, at, bytes as u64)?;
        let from = self.source.region();
        let mut prepared = Prepared::copy(&mut self.channel, pinned.region(), &from, bytes as u32, CopyMode::Plain)?;
        let ticket = prepared.submit(&mut self.channel)?;
        self.channel.wait(ticket, PATIENCE)?;
        self.free(way, at)?;
        let mut owners = Vec::new();
        while owners.len() < TRIES && owners.last() != Some(&at) {
            owners.push(self.allocate(way, bytes)?);
        }
        if owners.last() == Some(&at) {
            // SAFETY: the next owner's block, which only the code below frees.
            let next = std::mem::ManuallyDrop::new(unsafe { DeviceBuffer::from_address(context, at, bytes) });
            next.write(&vec![THEIRS; bytes])?;
            context.synchronize()?;
            match prepared.submit(&mut self.channel) {
                Ok(ticket) => {
                    outcome.let_through += 1;
                    self.channel.wait(ticket, PATIENCE)?;
                }
                Err(gpu::Error::Stale | gpu::Error::Reused) => outcome.refused += 1,
                Err(other) => return Err(other.into()),
            }
            let mut found = vec![0; bytes];
            next.read(&mut found)?;
            outcome.overwritten += usize::from(found != vec![THEIRS; bytes]);
        } else {
            outcome.nothing += 1;
        }
        drop(pinned);
        owners.into_iter().try_for_each(|owner| self.free(way, owner))
    }

    fn all(&mut self, what: &str, way: Way<'_>) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        for bytes in SIZES {
            self.one(way, bytes, &mut outcome)?;
        }
        let Outcome { refused, let_through, overwritten, nothing } = outcome;
        println!(
            "{what}: {refused} refused, {let_through} let through, {overwritten} overwritten, {nothing} not given out again"
        );
        Ok(outcome)
    }
}

fn main() -> Result<ExitCode> {
    // Before doorbell replaces any function.
    // SAFETY: loads libcuda, which Machine::open would load.
    let unseen = unsafe {
        let library = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW);
        if library.is_null() {
            eprintln!("no libcuda.so.1");
            return Ok(ExitCode::from(77));
        }
        let free = libc::dlsym(library, c"cuMemFree_v2".as_ptr());
        std::mem::transmute::<*mut libc::c_void, Free>(free)
    };
    let machine = Machine::open(Where::Real)?;
    machine.enter()?;
    let (space, runtime) = (machine.space()?, Runtime::load()?);
    runtime.set_device(0)?;
    let engine = space.device().engines()?.iter().find(|e| e.is_asynchronous()).map_or(2, |e| e.number);
    let channel = Channel::new(space, Engine::Copy(engine), ChannelOptions::default())?;
    let source = space.alloc_host(SIZES[SIZES.len() - 1] as u64)?;
    source.write(0, &vec![OURS; source.length() as usize]);
    let stream = Stream::new(runtime)?;
    let mut rig = Rig { machine: &machine, runtime, channel, source };
    let mut seen = vec![
        rig.all("cudaMalloc, cudaFree", Way::Runtime)?,
        rig.all("cudaMallocAsync, cudaFreeAsync", Way::Pool(&stream))?,
        rig.all("cuMemAlloc, cuMemFree", Way::Driver)?,
    ];
    let control = rig.all("control, a free that nothing shows: let through", Way::Unseen(unseen))?;
    space.check_each_submission();
    seen.push(rig.all("the same, each submission checked", Way::Unseen(unseen))?);
    if control.let_through > 0 && control.overwritten == 0 {
        println!("the control overwrote nothing: this program cannot see what it looks for");
    }
    let wrong: usize = seen.iter().map(|outcome| outcome.let_through + outcome.overwritten).sum();
    if wrong > 0 {
        println!("WRONG: memory of the next owner was reached {wrong} times");
        return Ok(ExitCode::from(1));
    }
    let shown = seen.iter().all(|outcome| outcome.refused > 0);
    println!("{}", if shown { "right: nothing of the next owners' was reached" } else { "not shown for each way" });
    Ok(ExitCode::from(if shown { 0 } else { 77 }))
}

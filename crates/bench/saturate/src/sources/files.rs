//! A file. An I/O is one direct read by io_uring into a pinned slot, and for the GPU a copy from there; it completes when the copy does. An I/O to
//! the host ends in the slot (`doorbell files bare`).
//!
//! Unlike with other devices, each I/O and each poll calls the kernel, because the kernel drives the disk.

use crate::Error;
use crate::link::{Access, Beside};
use crate::queue::{Done, Place, Queue};
use crate::source::{Checked, Flow, Opened, Operation, Placed, Shape, Source, Submission, Target, Traffic};
use crate::walk::{IMAGES, Walk};
use files::{Direction, Extent, Extents, Options, Way};
use run_folder::versioned::Broken;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use workload::Machine;

/// One file, and the GPU to which its bytes may go.
pub struct Files<'m> {
    source: files::Source,
    /// The same file, read through the page cache, for comparisons.
    reference: File,
    machine: Option<&'m Machine>,
}

impl<'m> Files<'m> {
    /// # Errors
    /// [`Error::File`] with what to do: the file is missing, or its file system has no direct I/O.
    pub fn open(path: &Path, machine: Option<&'m Machine>) -> Result<Files<'m>, Error> {
        let source = files::Source::open(path, false).map_err(of_file)?;
        if let Some(why) = source.buffered() {
            return Err(Error::File {
                what: format!("{}: no direct I/O: {why}", path.display()),
                hint: "the page cache would be measured instead: give a file on ext4 or xfs, or a block device".into(),
            });
        }
        let reference = File::open(path).map_err(Broken::read(path))?;
        Ok(Files { source, reference, machine })
    }
}

fn of_file(error: files::Error) -> Error {
    Error::File { what: error.to_string(), hint: error.hint() }
}

impl Source for Files<'_> {
    fn about(&self) -> String {
        format!("file {}, {} bytes, io_uring, O_DIRECT", self.source.path().display(), self.source.length())
    }

    fn devices(&self) -> u32 {
        1
    }

    /// A copy engine of the GPU reads the bytes from host memory.
    fn traffic(&self, flow: Flow) -> Option<Traffic> {
        let beside = Beside { along: vec![16, 4, 8, 4, 4], against: vec![4] };
        (flow.target == Target::Gpu).then_some(Traffic { access: Access::Read, beside })
    }

    fn is_functional(&self) -> bool {
        self.machine.is_some_and(|machine| machine.space().is_ok_and(|space| space.device().is_soft()))
    }

    fn open<'s>(&'s mut self, shape: &Shape) -> Result<Box<dyn Opened<'s> + 's>, Error> {
        let unavailable = |what: String| Err(Error::Unavailable(what));
        if shape.devices != 1 {
            return unavailable(format!("{} devices are requested, and there is one file", shape.devices));
        }
        if shape.flow.submission != Submission::Doorbell {
            return unavailable("only copy engines have gates".into());
        }
        if shape.flow.operation == Operation::Write {
            return unavailable("the file is read, never written".into());
        }
        let (alignment, length) = (self.source.alignment() as u64, self.source.length());
        if !shape.bytes.is_multiple_of(alignment) {
            return unavailable(format!(
                "I/Os of {} bytes: direct I/O on this file needs multiples of {alignment}",
                shape.bytes
            ));
        }
        let each = shape.part * IMAGES;
        let needs = each * u64::from(shape.queues);
        if needs > length {
            let what =
                format!("{needs} bytes are read, and the file has {length}: a larger file, or a smaller run.buffer");
            return unavailable(what);
        }
        let options =
            Options { block: shape.bytes as usize, depth: shape.depth as usize, way: Way::Uring, ..Options::default() };
        options.check().map_err(|e| Error::Unavailable(e.to_string()))?;
        let mut open = Open { files: self, queues: Vec::new(), ends: Vec::new(), each };
        for queue in 0..u64::from(shape.queues) {
            let base = queue * each;
            let (end, queue) = match (shape.flow.target, open.files.machine) {
                (Target::Host, _) => {
                    let bare = files::Queue::bare(&open.files.source, Direction::Read, &options).map_err(of_file)?;
                    (End::Slots(Kept::default()), bare)
                }
                (Target::Gpu, Some(machine)) => {
                    let memory = files::Target::new(machine, each).map_err(of_file)?;
                    let places = Extents::new([Extent { offset: base, at: 0, bytes: each }]).map_err(of_file)?;
                    let places = Arc::new(places);
                    let to = (&memory, &places);
                    let queue = files::Queue::new(machine, &open.files.source, Direction::Read, to, &options);
                    (End::Memory(Box::new(memory)), queue.map_err(of_file)?)
                }
                (Target::Gpu, None) => return unavailable("no GPU was given whose memory can be a target".into()),
            };
            let kept = match &end {
                End::Slots(kept) => Some(kept.clone()),
                End::Memory(_) => None,
            };
            open.queues.push(Box::new(Reads {
                queue,
                base,
                bytes: shape.bytes as usize,
                gathered: 0,
                batch: shape.batch.max(1),
                done: [files::Done::NONE; LOOK],
                last: vec![None; shape.depth as usize],
                kept,
            }));
            open.ends.push(end);
        }
        Ok(Box::new(open))
    }
}

/// The contents of a queue's slots when it was dropped: the place of the block on the device, and its bytes.
type Kept = Arc<Mutex<Vec<(u64, Vec<u8>)>>>;

/// Where the bytes of a queue end.
enum End<'s> {
    Memory(Box<files::Target<'s>>),
    Slots(Kept),
}

struct Open<'s, 'm> {
    files: &'s Files<'m>,
    queues: Vec<Box<dyn Queue + 's>>,
    ends: Vec<End<'s>>,
    /// Bytes of the file that each queue reads.
    each: u64,
}

impl<'s> Opened<'s> for Open<'s, '_> {
    fn queues(&mut self) -> Vec<Box<dyn Queue + 's>> {
        std::mem::take(&mut self.queues)
    }

    fn placed(&self) -> Placed {
        Placed::Apart
    }

    /// In a file that holds the same bytes everywhere a comparison finds little.
    fn device_bytes(&mut self, queue: usize, at: u64, into: &mut [u8]) -> Result<(), Error> {
        let path = self.files.source.path();
        Ok(self.files.reference.read_exact_at(into, queue as u64 * self.each + at).map_err(Broken::read(path))?)
    }

    fn write_target(&mut self, queue: usize, at: u64, bytes: &[u8]) -> Result<(), Error> {
        match &self.ends[queue] {
            End::Memory(memory) => memory.write(at, bytes).map_err(|e| Error::Device(e.to_string())),
            End::Slots(_) => Ok(()),
        }
    }

    fn read_target(&mut self, queue: usize, at: u64, into: &mut [u8]) -> Result<(), Error> {
        match &self.ends[queue] {
            End::Memory(memory) => memory.read(at, into).map_err(|e| Error::Device(e.to_string())),
            End::Slots(_) => Err(Error::Unavailable("slots hold their last block alone".into())),
        }
    }

    /// Slots are reused: the last block of each is compared.
    fn check(&mut self, _: &[Walk]) -> Option<Result<Checked, Error>> {
        if self.ends.iter().any(|end| matches!(end, End::Memory(_))) {
            return None;
        }
        let mut checked = Checked::default();
        let mut wanted = Vec::new();
        for queue in 0..self.ends.len() {
            let kept = match &self.ends[queue] {
                End::Slots(kept) => std::mem::take(&mut *poison::ignore(kept.lock())),
                End::Memory(_) => continue,
            };
            for (at, found) in kept {
                wanted.resize(found.len(), 0);
                if let Err(error) = self.device_bytes(queue, at, &mut wanted) {
                    return Some(Err(error));
                }
                checked.add(queue, at, &found, &wanted, true);
            }
        }
        Some(Ok(checked))
    }
}

/// Completions that one look takes.
const LOOK: usize = 64;

struct Reads<'m> {
    queue: files::Queue<'m>,
    /// Where its bytes begin in the file.
    base: u64,
    bytes: usize,
    gathered: u32,
    batch: u32,
    done: [files::Done; LOOK],
    /// The block that each slot read last, if the slots are compared.
    last: Vec<Option<u64>>,
    kept: Option<Kept>,
}

impl Queue for Reads<'_> {
    #[inline]
    fn submit(&mut self, slot: u32, place: Place) -> Result<(), Error> {
        self.queue.submit(slot as usize, self.base + place.device, self.bytes).map_err(of_file)?;
        self.last[slot as usize] = Some(place.device);
        self.gathered += 1;
        if self.gathered < self.batch { Ok(()) } else { self.ring() }
    }

    /// One system call submits all batched I/Os.
    fn ring(&mut self) -> Result<(), Error> {
        self.gathered = 0;
        self.queue.reap(&mut []).map_err(of_file)?;
        Ok(())
    }

    #[inline]
    fn reap(&mut self, into: &mut [Done]) -> Result<usize, Error> {
        let room = into.len().min(LOOK);
        let count = self.queue.reap(&mut self.done[..room]).map_err(of_file)?;
        for (into, done) in into.iter_mut().zip(&self.done[..count]) {
            let status = match done.result {
                Ok(bytes) if bytes == self.bytes => 0,
                Ok(bytes) => {
                    let what = format!("the file ends at {}, and was longer", done.offset + bytes as u64);
                    return Err(Error::Device(what));
                }
                Err(errno) => errno.0 as u32,
            };
            *into = Done { slot: done.slot as u32, status };
        }
        Ok(count)
    }
}

impl Drop for Reads<'_> {
    fn drop(&mut self) {
        let Some(kept) = &self.kept else { return };
        // A queue that failed: its slots may still be written, so they are not compared.
        if self.queue.in_flight() > 0 {
            return;
        }
        let mut kept = poison::ignore(kept.lock());
        for (slot, at) in self.last.iter().enumerate() {
            kept.extend(at.map(|at| (at, self.queue.slot(slot, self.bytes).to_vec())));
        }
    }
}

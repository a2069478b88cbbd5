//! The kernel driver: files, clients and the objects in them, and what each ioctl does.
//!
//! A [`Machine`] is one computer with one GPU. The preloaded library has one; every in-process test can have its own.
//! Status codes for misuse are those of the real driver where they are known (open-gpu-kernel-modules 580.105.08).

mod alloc;
mod bar1;
mod card;
mod control;
mod map;
mod objects;
mod uvm;

use crate::DRIVER_VERSION;
use crate::counters::Counters;
use crate::doorbell::Bell;
use crate::engine::Runlists;
use crate::memory::Memory;
use crate::planted::Planted;
use crate::pool::Pool;
use crate::status;
use crate::sys;
use objects::Objects;
use rm::abi::{Abi, Branch, Plain, Shape, nr, request_size, rm_nr};
use std::collections::HashMap;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// How doorbells work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Every doorbell store is trapped; work runs only for the token rung and only up to the GP_PUT of that moment.
    #[default]
    Strict,
    /// Doorbell pages are plain memory; the GPU polls GP_PUT of all channels.
    Poll,
}

/// The three nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    Control,
    Gpu,
    Uvm,
}

impl Node {
    /// The node at a path, if it is one of the software GPU's.
    pub fn of_path(path: &[u8]) -> Option<Node> {
        match path {
            b"/dev/nvidiactl" => Some(Node::Control),
            b"/dev/nvidia0" => Some(Node::Gpu),
            b"/dev/nvidia-uvm" => Some(Node::Uvm),
            _ => None,
        }
    }
}

/// An open file: what `dup` shares.
#[derive(Debug)]
struct File {
    id: u64,
    node: Node,
    state: Mutex<FileState>,
}

#[derive(Debug, Default)]
struct FileState {
    /// REGISTER_FD: the control file that this one belongs to.
    control: Option<u64>,
    /// RM_MAP_MEMORY: what the next `mmap` of this file maps.
    mapping: Option<Window>,
    uvm: uvm::Uvm,
}

/// What `mmap` of a file maps.
#[derive(Clone, Debug)]
enum Window {
    Memory { memory: Arc<Memory>, offset: u64, length: u64 },
    Usermode,
}

#[derive(Debug)]
pub struct Machine {
    pub mode: Mode,
    pub counters: &'static Counters,
    /// The reported version of the driver; its structs are this branch's.
    version: String,
    branch: &'static Branch,
    bell: &'static Bell,
    runlists: Arc<Runlists>,
    files: Mutex<HashMap<RawFd, Arc<File>>>,
    next_file: AtomicU64,
    objects: Mutex<Objects>,
    bar1: Mutex<bar1::Bar1>,
    /// The pool of all GPU memory, if it is one file that other devices can access.
    video: Option<Arc<Pool>>,
    /// The memory of usermode pages that are not trapped.
    usermode: Mutex<Option<Arc<Memory>>>,
}

impl Machine {
    /// The same with a driver that reports `version` and has the structs of branch `structs`.
    pub fn with_driver(mode: Mode, counters: &'static Counters, version: &str, structs: u32) -> &'static Machine {
        Machine::build(mode, counters, None, (version.to_owned(), Branch::nearest(structs)))
    }

    /// A machine for the rest of the process: doorbell pages may be rung at any time. `DOORBELL_SOFTGPU_DRIVER` is its driver's
    /// version.
    pub fn new(mode: Mode, counters: &'static Counters) -> &'static Machine {
        Machine::with_video(mode, counters, None)
    }

    /// The same, with the pool that GPU memory is taken from.
    pub fn with_video(mode: Mode, counters: &'static Counters, video: Option<Arc<Pool>>) -> &'static Machine {
        Machine::build(mode, counters, video, driver_of_environment())
    }

    fn build(
        mode: Mode,
        counters: &'static Counters,
        video: Option<Arc<Pool>>,
        (version, branch): (String, &'static Branch),
    ) -> &'static Machine {
        let bell: &'static Bell = Box::leak(Box::new(Bell::new(counters)));
        Box::leak(Box::new(Machine {
            mode,
            counters,
            branch,
            version,
            bell,
            runlists: Runlists::new(bell, counters, mode == Mode::Poll),
            files: Mutex::default(),
            next_file: AtomicU64::new(1),
            objects: Mutex::default(),
            bar1: Mutex::default(),
            video,
            usermode: Mutex::default(),
        }))
    }

    /// As set by the environment: `DOORBELL_SOFTGPU` (`strict` or `poll`), `DOORBELL_SOFTGPU_COUNTERS`, `DOORBELL_SOFTGPU_VIDEO` and
    /// `DOORBELL_SOFTGPU_FAULT`.
    pub fn from_environment() -> &'static Machine {
        let mode = match std::env::var("DOORBELL_SOFTGPU").as_deref() {
            Ok("poll") => Mode::Poll,
            _ => Mode::Strict,
        };
        let counters = std::env::var_os("DOORBELL_SOFTGPU_COUNTERS").map(PathBuf::from).and_then(|path| {
            Counters::shared(&path).map_err(|error| eprintln!("softgpu: counters {}: {error}", path.display())).ok()
        });
        let video = std::env::var("DOORBELL_SOFTGPU_VIDEO").ok().and_then(|text| {
            Pool::parse(&text).map_err(|error| eprintln!("softgpu: DOORBELL_SOFTGPU_VIDEO: {error}")).ok()
        });
        let machine = Machine::with_video(mode, counters.unwrap_or_else(Counters::private), video);
        if let Ok(name) = std::env::var("DOORBELL_SOFTGPU_FAULT") {
            match Planted::parse(&name) {
                Ok(fault) => machine.plant(Some(fault)),
                Err(error) => eprintln!("softgpu: DOORBELL_SOFTGPU_FAULT: {error}"),
            }
        }
        machine
    }

    /// Plants one fault in the GPU, or removes it.
    pub fn plant(&self, fault: Option<Planted>) {
        self.bell.lose(match fault {
            Some(Planted::LostDoorbell { nth }) => nth,
            _ => 0,
        });
        self.runlists.plot.set(fault);
    }

    /// Rings a doorbell without a store: for tests that have no doorbell page.
    pub fn ring(&self, token: u32) {
        self.bell.ring(token);
    }

    /// Stops the GPU: it executes no further work.
    pub fn stop(&self) {
        self.runlists.stop();
    }

    fn file(&self, fd: RawFd) -> Option<Arc<File>> {
        poison::ignore(self.files.lock()).get(&fd).cloned()
    }

    /// Whether a descriptor is an open node of the software GPU.
    pub fn owns(&self, fd: RawFd) -> bool {
        poison::ignore(self.files.lock()).contains_key(&fd)
    }

    /// Opens a node: a memory file represents it, so that `dup`, `close` and `fstat` work without help. Errno on failure.
    pub fn open(&self, node: Node, cloexec: bool) -> Result<RawFd, i32> {
        let name = match node {
            Node::Control => c"softgpu-nvidiactl",
            Node::Gpu => c"softgpu-nvidia0",
            Node::Uvm => c"softgpu-nvidia-uvm",
        };
        let fd = sys::memfd(name, 0)?;
        if !cloexec {
            // SAFETY: a flag of a descriptor that was just made here.
            unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_SETFD, 0) };
        }
        let id = self.next_file.fetch_add(1, Ordering::Relaxed);
        poison::ignore(self.files.lock()).insert(fd, Arc::new(File { id, node, state: Mutex::default() }));
        Ok(fd)
    }

    /// `new` is another descriptor of the same file as `old`.
    pub fn duplicated(&self, old: RawFd, new: RawFd) {
        if let Some(file) = self.file(old) {
            poison::ignore(self.files.lock()).insert(new, file);
        }
    }

    /// A descriptor was closed; the last one of a control file also closes its clients.
    pub fn closed(&self, fd: RawFd) {
        let last = {
            let mut files = poison::ignore(self.files.lock());
            let Some(file) = files.remove(&fd) else { return };
            (!files.values().any(|other| other.id == file.id)).then_some(file)
        };
        let Some(file) = last else { return };
        match file.node {
            Node::Control => self.free_clients_of(file.id),
            Node::Uvm => poison::ignore(file.state.lock()).uvm.close(),
            Node::Gpu => {}
        }
    }

    /// One ioctl. 0, or an errno.
    ///
    /// # Safety
    /// `arg` points to the request's argument, and the pointers inside are valid as well.
    pub unsafe fn ioctl(&self, fd: RawFd, request: u64, arg: *mut u8) -> i32 {
        let Some(file) = self.file(fd) else { return libc::EBADF };
        if arg.is_null() {
            return libc::EFAULT;
        }
        if file.node == Node::Uvm {
            // SAFETY: the caller's contract.
            return unsafe { self.uvm_ioctl(&file, request, arg) };
        }
        let Some(nr) = rm_nr(request) else { return libc::ENOTTY };
        let size = request_size(request);
        // SAFETY: every call checks the size that the request declares, and the caller promises that arg is that long.
        unsafe {
            match nr {
                nr::CARD_INFO => self.card_info(arg, size),
                nr::CHECK_VERSION_STR => with(arg, size, |call| card::check_version(&self.version, call)),
                nr::REGISTER_FD => with(arg, size, |call| self.register_fd(&file, call)),
                nr::ALLOC if size == size_of::<rm::abi::Nvos21>() => with(arg, size, |call| self.alloc21(&file, call)),
                nr::ALLOC => with(arg, size, |call| self.alloc64(&file, call)),
                nr::ALLOC_MEMORY => with(arg, size, |call| self.alloc_memory(&file, call)),
                nr::FREE => with(arg, size, |call| self.free(&file, call)),
                nr::CONTROL => with(arg, size, |call| self.control(&file, call)),
                nr::DUP_OBJECT => with(arg, size, |call| self.dup_object(&file, call)),
                nr::MAP_MEMORY => with(arg, size, |call| self.map_memory(&file, call)),
                // RM makes no mapping here: UVM does that.
                nr::MAP_MEMORY_DMA if size == self.branch.layouts.map_dma.size() => {
                    with_shape(arg, &self.branch.layouts.map_dma, |call| call.status = status::INVALID_CLIENT);
                    0
                }
                nr::UNMAP_MEMORY_DMA if size == self.branch.layouts.unmap_dma.size() => {
                    with_shape(arg, &self.branch.layouts.unmap_dma, |call| call.status = status::INVALID_CLIENT);
                    0
                }
                nr::UNMAP_MEMORY => with(arg, size, |call| self.unmap_memory(&file, call)),
                _ => libc::EINVAL,
            }
        }
    }

    /// REGISTER_FD: this nvidia0 file belongs to that control file.
    fn register_fd(&self, file: &File, call: &mut rm::abi::RegisterFd) -> i32 {
        let Some(control) = self.file(call.ctl_fd).filter(|control| control.node == Node::Control) else {
            return libc::EINVAL;
        };
        let mut state = poison::ignore(file.state.lock());
        if state.control.is_some() || file.node == Node::Control {
            return libc::EINVAL;
        }
        state.control = Some(control.id);
        0
    }

    /// The control file whose clients this file may name.
    fn control_of(file: &File) -> u64 {
        poison::ignore(file.state.lock()).control.unwrap_or(file.id)
    }
}

/// `DOORBELL_SOFTGPU_DRIVER`, and the branch of that version unless `DOORBELL_SOFTGPU_STRUCTS` names another.
fn driver_of_environment() -> (String, &'static Branch) {
    let of = |name| std::env::var(name).ok().filter(|v| !v.is_empty());
    let version = of("DOORBELL_SOFTGPU_DRIVER").filter(|v| v.len() < 64).unwrap_or_else(|| DRIVER_VERSION.to_owned());
    let structs = of("DOORBELL_SOFTGPU_STRUCTS").and_then(|number| number.parse().ok());
    let branch = structs.map_or_else(|| Abi::of(&version).branch(), Branch::nearest);
    (version, branch)
}

/// Runs `f` on a copy of a struct that a program has as the driver's branch has it, and puts the copy back.
///
/// # Safety
/// `at` points to as many bytes as the branch's struct has.
unsafe fn with_shape<T: Plain, R>(at: *mut u8, shape: &Shape<T>, f: impl FnOnce(&mut T) -> R) -> R {
    // SAFETY: the caller's contract.
    let bytes = unsafe { std::slice::from_raw_parts_mut(at, shape.size()) };
    let mut value = shape.read_short(bytes);
    let result = f(&mut value);
    shape.write(&value, bytes);
    result
}

/// Runs a call on a copy of its struct and puts the copy back.
///
/// # Safety
/// `arg` points to at least `size` bytes.
unsafe fn with<T: Plain>(arg: *mut u8, size: usize, call: impl FnOnce(&mut T) -> i32) -> i32 {
    // RM compares the size in the request with its own.
    if size != size_of::<T>() {
        return libc::EINVAL;
    }
    // SAFETY: as long as the struct (just compared), any bytes are a value, the pointer may be unaligned.
    unsafe {
        let mut value = arg.cast::<T>().read_unaligned();
        let errno = call(&mut value);
        arg.cast::<T>().write_unaligned(value);
        errno
    }
}

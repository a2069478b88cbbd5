//! Loads code before a program does, so that CUDA's cache has it (`run --fix=code`).
//!
//! [`Compiler`] listens on the socket of [`tape::compile`]. At the first request it starts this program again (`doorbell compiler`), with the socket as standard
//! input. That process answers, has a context on the GPU, and ends [`IDLE`] after the last request.

use crate::sample::with_softgpu;
use anyhow::Context;
use poison::ignore;
use recorder::control::who;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};
use tape::compile::{self, Answer, MOST, OPTIONS, Request, Setting, state};
use tape::event::{Plain, bytes_of};

/// How long the compiler waits for a request before it ends.
const IDLE: Duration = Duration::from_secs(10);
/// Between two looks whether it has ended.
const LOOK: Duration = Duration::from_millis(20);
/// A load that takes less says nothing about the cache.
const SHORT: Duration = Duration::from_millis(20);
/// The most files that say what CUDA's cache has. Beyond that, all are removed.
const REMEMBERED: usize = 1 << 12;
/// How long such a file counts.
const STAYS: Duration = Duration::from_secs(3 * 24 * 3600);
/// Numbers of sockets that are tried.
const TRIES: u32 = 16;

/// A compiler that is started when it is needed; killed when dropped.
pub struct Compiler {
    pub number: u32,
    child: Arc<Mutex<Option<Child>>>,
    ends: Arc<AtomicBool>,
}

impl Compiler {
    /// One if these fixes need it. `soft`: its CUDA uses the software GPU.
    pub fn for_fixes(fixes: u32, soft: bool) -> anyhow::Result<Option<Compiler>> {
        (fixes & tape::fix::CODE != 0).then(|| Compiler::new(soft)).transpose()
    }

    fn new(soft: bool) -> anyhow::Result<Compiler> {
        let (number, listener) = listen().context("--fix=code: a socket for the compiler")?;
        let (child, ends) = (Arc::new(Mutex::new(None)), Arc::new(AtomicBool::new(false)));
        let (its, over) = (Arc::clone(&child), Arc::clone(&ends));
        let start = move || {
            while wait(&listener, None) && !over.load(Ordering::SeqCst) {
                let Ok(input) = listener.try_clone() else { return };
                let mut command = Command::new("/proc/self/exe");
                command
                    .arg0("doorbell")
                    .arg("compiler")
                    .args(soft.then_some("--soft"))
                    .stdin(OwnedFd::from(input))
                    .stdout(Stdio::null())
                    .process_group(0);
                // Kernels are compiled when their module is loaded, not when they are first used.
                command.env("CUDA_MODULE_LOADING", "EAGER").stderr(Stdio::null());
                // SAFETY: one system call between fork and exec.
                unsafe {
                    command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                        0 => Ok(()),
                        _ => Err(io::Error::last_os_error()),
                    });
                }
                let Ok(started) = command.spawn() else { return };
                *ignore(its.lock()) = Some(started);
                // (Its place must not be held while it is waited for: it may be killed.)
                while ignore(its.lock()).as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None))) {
                    std::thread::sleep(LOOK);
                }
                *ignore(its.lock()) = None;
            }
        };
        std::thread::Builder::new().name("compiler".into()).spawn(start).context("--fix=code: a thread")?;
        Ok(Compiler { number, child, ends })
    }
}

impl Drop for Compiler {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        if let Some(child) = ignore(self.child.lock()).as_mut() {
            let _ = child.kill();
            // (In a call of the driver it may not end: the program's end does not wait for it.)
            for _ in 0..5 {
                if !matches!(child.try_wait(), Ok(None)) {
                    break;
                }
                std::thread::sleep(LOOK);
            }
        }
    }
}

fn listen() -> io::Result<(u32, UnixListener)> {
    let mut tries = 0;
    loop {
        let number = fastrand::u32(1..1 << 31);
        match UnixListener::bind_addr(&SocketAddr::from_abstract_name(compile::name(number))?) {
            Ok(listener) => return Ok((number, listener)),
            Err(e) if tries == TRIES => return Err(e),
            Err(_) => tries += 1,
        }
    }
}

/// Waits for a request; false after that time without one.
fn wait(listener: &UnixListener, at_most: Option<Duration>) -> bool {
    let mut poll = libc::pollfd { fd: listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let ms = at_most.map_or(-1, |time| time.as_millis() as c_int);
    loop {
        // SAFETY: one entry.
        match unsafe { libc::poll(&raw mut poll, 1, ms) } {
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            n => return n > 0,
        }
    }
}

/// The process that compiles. Its standard input is the socket.
pub fn run(soft: bool) -> anyhow::Result<ExitCode> {
    if soft {
        with_softgpu()?;
    }
    // SAFETY: the caller's socket, which nothing else here uses.
    let listener = unsafe { UnixListener::from_raw_fd(0) };
    // (What was compiled before needs no CUDA, whose start takes half a second.)
    let driver = Arc::new(LazyLock::new(Driver::load as fn() -> Option<Driver>));
    let busy = Arc::new(AtomicUsize::new(0));
    loop {
        if !wait(&listener, Some(IDLE)) {
            if busy.load(Ordering::SeqCst) == 0 {
                return Ok(ExitCode::SUCCESS);
            }
            continue;
        }
        let Ok((stream, _)) = listener.accept() else {
            std::thread::sleep(LOOK);
            continue;
        };
        if !is_own(&stream) {
            continue;
        }
        let (driver, its) = (Arc::clone(&driver), Busy::begin(&busy));
        std::thread::spawn(move || {
            let _its = its;
            let _ = serve(stream, || (**driver).as_ref());
        });
    }
}

/// A request in progress.
struct Busy(Arc<AtomicUsize>);

impl Busy {
    fn begin(of: &Arc<AtomicUsize>) -> Busy {
        of.fetch_add(1, Ordering::SeqCst);
        Busy(Arc::clone(of))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Whether this user, or root, is at the other end.
fn is_own(stream: &UnixStream) -> bool {
    // SAFETY: needs nothing.
    let own = unsafe { libc::geteuid() };
    who(stream).is_ok_and(|(uid, _)| uid == 0 || uid == own)
}

fn read<T: Plain + Default>(stream: &mut UnixStream) -> io::Result<T> {
    let mut value = T::default();
    // SAFETY: Plain: any bytes are a value, and it has no padding.
    let bytes = unsafe { std::slice::from_raw_parts_mut((&raw mut value).cast::<u8>(), size_of::<T>()) };
    stream.read_exact(bytes)?;
    Ok(value)
}

fn serve<'d>(mut stream: UnixStream, driver: impl FnOnce() -> Option<&'d Driver>) -> io::Result<()> {
    let request: Request = read(&mut stream)?;
    if request.options > OPTIONS as u64 || request.bytes > MOST as u64 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let settings = (0..request.options).map(|_| read(&mut stream)).collect::<io::Result<Vec<Setting>>>()?;
    let mut code = Vec::new();
    Read::by_ref(&mut stream).take(request.bytes).read_to_end(&mut code)?;
    if code.len() as u64 != request.bytes {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    code.push(0);
    let none = Answer { state: state::NO_CUDA, ..Answer::default() };
    let known = known(&request.uuid, &settings, &code);
    if known.as_ref().is_some_and(|file| is_recent(file)) {
        return stream.write_all(bytes_of(&Answer::default()));
    }
    let answer = driver().and_then(|driver| driver.load_twice(&request.uuid, &settings, &code)).unwrap_or(none);
    if let Some(file) = known.filter(|_| (answer.result, answer.state) == (0, state::CACHED)) {
        // (If it cannot be written, the code is loaded once more next time.)
        let _ = remember(&file);
    }
    stream.write_all(bytes_of(&answer))
}

/// The file that says that CUDA's cache has this code: in `doorbell/code` among the user's caches. `None`: there is no such place, or no cache of CUDA's.
fn known(uuid: &[u8; 16], settings: &[Setting], code: &[u8]) -> Option<PathBuf> {
    let folder = |name: &str, otherwise: &str| {
        let named = std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
        named.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(otherwise)))
    };
    let cache = folder("CUDA_CACHE_PATH", ".nv/ComputeCache")?;
    if std::env::var_os("CUDA_CACHE_DISABLE").is_some_and(|off| off == "1") {
        return None;
    }
    let about = (
        uuid,
        settings.iter().map(|s| (s.option, s.value)).collect::<Vec<_>>(),
        std::fs::metadata(cache).ok().filter(|cache| cache.is_dir())?.ino(),
        std::fs::read("/proc/driver/nvidia/version").unwrap_or_default(),
    );
    let mut hash = DefaultHasher::new();
    (about, code).hash(&mut hash);
    Some(folder("XDG_CACHE_HOME", ".cache")?.join("doorbell/code").join(format!("{:016x}", hash.finish())))
}

/// (CUDA drops old code from a full cache.)
fn is_recent(file: &Path) -> bool {
    let age = file.metadata().and_then(|file| file.modified()).ok().and_then(|made| made.elapsed().ok());
    age.is_some_and(|age| age < STAYS)
}

fn remember(file: &Path) -> io::Result<()> {
    let Some(folder) = file.parent() else { return Ok(()) };
    std::fs::create_dir_all(folder)?;
    if std::fs::read_dir(folder)?.count() >= REMEMBERED {
        std::fs::remove_dir_all(folder)?;
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(file, [])
}

type Module = *mut c_void;
type Retain = unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int;
type SetCurrent = unsafe extern "C" fn(*mut c_void) -> c_int;
type Load = unsafe extern "C" fn(*mut Module, *const c_void, u32, *const c_int, *const *mut c_void) -> c_int;
type Count = unsafe extern "C" fn(*mut c_int) -> c_int;
type Uuid = unsafe extern "C" fn(*mut [u8; 16], c_int) -> c_int;
type Unload = unsafe extern "C" fn(Module) -> c_int;

/// What is needed of libcuda.
struct Driver {
    retain: Retain,
    set_current: SetCurrent,
    load: Load,
    unload: Unload,
    count: Count,
    uuid: Uuid,
    contexts: Mutex<HashMap<[u8; 16], usize>>,
}

impl Driver {
    fn load() -> Option<Driver> {
        // SAFETY: each function has the type in the reference of CUDA's driver API. The library is never closed.
        unsafe {
            let library = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL);
            if library.is_null() {
                return None;
            }
            let find =
                |name: &CStr| Some(libc::dlsym(library, name.as_ptr().cast::<c_char>())).filter(|at| !at.is_null());
            let init = std::mem::transmute::<*mut c_void, unsafe extern "C" fn(u32) -> c_int>(find(c"cuInit")?);
            let driver = Driver {
                retain: std::mem::transmute::<*mut c_void, Retain>(find(c"cuDevicePrimaryCtxRetain")?),
                set_current: std::mem::transmute::<*mut c_void, SetCurrent>(find(c"cuCtxSetCurrent")?),
                load: std::mem::transmute::<*mut c_void, Load>(find(c"cuModuleLoadDataEx")?),
                unload: std::mem::transmute::<*mut c_void, Unload>(find(c"cuModuleUnload")?),
                count: std::mem::transmute::<*mut c_void, Count>(find(c"cuDeviceGetCount")?),
                uuid: std::mem::transmute::<*mut c_void, Uuid>(find(c"cuDeviceGetUuid_v2")?),
                contexts: Mutex::new(HashMap::new()),
            };
            (init(0) == 0).then_some(driver)
        }
    }

    /// This process's number of a GPU. (The program may have chosen others.)
    fn device(&self, uuid: &[u8; 16]) -> Option<c_int> {
        let mut count = 0;
        // SAFETY: a place for the number.
        if unsafe { (self.count)(&raw mut count) } != 0 {
            return None;
        }
        (0..count).find(|device| {
            let mut of = [0; 16];
            // SAFETY: a place for the UUID.
            unsafe { (self.uuid)(&raw mut of, *device) == 0 && of == *uuid }
        })
    }

    /// Loads code on a device, and once more. `None`: there is no context.
    fn load_twice(&self, uuid: &[u8; 16], settings: &[Setting], code: &[u8]) -> Option<Answer> {
        let mut contexts = ignore(self.contexts.lock());
        let mut context = contexts.get(uuid).map_or(std::ptr::null_mut(), |at| *at as *mut c_void);
        // SAFETY: a place for the context, which stays.
        if context.is_null() && unsafe { (self.retain)(&raw mut context, self.device(uuid)?) } != 0 {
            return None;
        }
        contexts.insert(*uuid, context as usize);
        drop(contexts);
        // SAFETY: a context.
        if unsafe { (self.set_current)(context) } != 0 {
            return None;
        }
        let names: Vec<c_int> = settings.iter().map(|s| s.option as c_int).collect();
        let values: Vec<*mut c_void> = settings.iter().map(|s| s.value as *mut c_void).collect();
        let load = || {
            let (mut module, began) = (std::ptr::null_mut(), Instant::now());
            // SAFETY: code with a NUL after it, and options of kinds whose values are no pointers, as many as are said.
            let result = unsafe {
                (self.load)(&raw mut module, code.as_ptr().cast(), names.len() as u32, names.as_ptr(), values.as_ptr())
            };
            let took = began.elapsed();
            if result == 0 {
                // SAFETY: the module, which nobody else has.
                unsafe { (self.unload)(module) };
            }
            (result, took)
        };
        let (result, first) = load();
        let again = if result == 0 { load().1 } else { Duration::ZERO };
        let state = if first > SHORT && again > first / 2 { state::NO_CACHE } else { state::CACHED };
        Some(Answer { result, state, first_ns: first.as_nanos() as u64, again_ns: again.as_nanos() as u64 })
    }
}

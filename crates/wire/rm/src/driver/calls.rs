//! RM and UVM calls, one function each, checked twice: the ioctl's return and the status inside the struct.

use super::{Driver, RmError, Subject};
use crate::abi::{self, Abi, Branch, Plain, Shape, nr, uvm};
use crate::check;
use crate::class;
use std::ffi::c_void;
use std::io;
use std::mem::size_of;
use std::os::fd::RawFd;

/// How often a call that returns EAGAIN (the driver is busy) is repeated before it becomes an error.
const BUSY_TRIES: u32 = 10_000;

/// Issues an RM ioctl with `arg` as its struct; repeats it when a signal interrupts or the driver is busy.
///
/// # Safety
/// The pointers inside `arg` are what call `nr` takes, and live until it returns.
unsafe fn rm<T: Plain>(
    driver: &dyn Driver,
    fd: RawFd,
    nr: u32,
    arg: &mut T,
    operation: &'static str,
    subject: Subject,
) -> Result<(), RmError> {
    let request = abi::rm_request(nr, size_of::<T>());
    let mut busy = 0;
    loop {
        // SAFETY: `arg` has the size that the request declares; the caller guarantees its inner pointers.
        match unsafe { driver.ioctl(fd, request, (arg as *mut T).cast::<c_void>()) } {
            Ok(()) => return Ok(()),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock && busy < BUSY_TRIES => busy += 1,
            Err(cause) => return Err(RmError::Io { operation, subject, cause }),
        }
    }
}

fn check(status: u32, operation: &'static str, subject: Subject) -> Result<(), RmError> {
    if status == 0 { Ok(()) } else { Err(RmError::Status { operation, subject, status }) }
}

/// RM_ALLOC with parameters as bytes (none: empty). `new` 0 lets the driver choose the handle. Returns the handle.
/// Class 0x71 is refused: its parameters name pages of the program, so it is [`alloc_user_pages`]'s, which is unsafe.
pub fn alloc_bytes(
    driver: &dyn Driver,
    fd: RawFd,
    client: u32,
    parent: u32,
    new: u32,
    class: u32,
    params: &mut [u8],
) -> Result<u32, RmError> {
    let (operation, subject) = ("RM_ALLOC", Subject::Class(class));
    if class == class::NV01_MEMORY_SYSTEM_OS_DESCRIPTOR {
        return Err(RmError::Io { operation, subject, cause: io::ErrorKind::InvalidInput.into() });
    }
    let address = if params.is_empty() { 0 } else { params.as_mut_ptr() as u64 };
    let mut a = abi::Nvos64 {
        root: client,
        parent,
        new,
        class,
        params: address,
        params_size: params.len() as u32,
        ..Default::default()
    };
    // SAFETY: `params` points to params_size bytes that are borrowed mutably for the call.
    unsafe { rm(driver, fd, nr::ALLOC, &mut a, operation, subject)? };
    check(a.status, operation, subject)?;
    Ok(a.new)
}

/// RM_ALLOC with the class's parameter struct, which the driver may write to.
pub fn alloc<T: Plain>(
    driver: &dyn Driver,
    fd: RawFd,
    client: u32,
    parent: u32,
    new: u32,
    class: u32,
    params: &mut T,
) -> Result<u32, RmError> {
    alloc_bytes(driver, fd, client, parent, new, class, params.as_bytes_mut())
}

/// RM_ALLOC of a new client; `fd` is `/dev/nvidiactl` and owns it. Returns its handle.
pub fn alloc_client(driver: &dyn Driver, fd: RawFd) -> Result<u32, RmError> {
    alloc_bytes(driver, fd, 0, 0, 0, class::NV01_ROOT_CLIENT, &mut [])
}

/// RM_FREE: the object and everything below it.
pub fn free(driver: &dyn Driver, fd: RawFd, client: u32, parent: u32, object: u32) -> Result<(), RmError> {
    let (operation, subject) = ("RM_FREE", Subject::Handle(object));
    let mut a = abi::Nvos00 { root: client, parent, old: object, status: 0 };
    // SAFETY: NVOS00 holds no pointers.
    unsafe { rm(driver, fd, nr::FREE, &mut a, operation, subject)? };
    check(a.status, operation, subject)
}

/// RM_CONTROL with parameters as bytes.
///
/// # Safety
/// Pointers inside `params`, if the command has any, are valid for the call.
pub unsafe fn control_bytes(
    driver: &dyn Driver,
    fd: RawFd,
    client: u32,
    object: u32,
    cmd: u32,
    params: &mut [u8],
) -> Result<(), RmError> {
    let (operation, subject) = ("RM_CONTROL", Subject::Command(cmd));
    let mut a = abi::Nvos54 {
        client,
        object,
        cmd,
        flags: 0,
        params: if params.is_empty() { 0 } else { params.as_mut_ptr() as u64 },
        params_size: params.len() as u32,
        status: 0,
    };
    // SAFETY: `params` points to params_size bytes that are borrowed mutably for the call; the caller guarantees the pointers in them.
    unsafe { rm(driver, fd, nr::CONTROL, &mut a, operation, subject)? };
    check(a.status, operation, subject)
}

/// RM_CONTROL with the command's parameter struct.
///
/// # Safety
/// Pointers inside `params`, if the command has any, are valid for the call.
pub unsafe fn control<T: Plain>(
    driver: &dyn Driver,
    fd: RawFd,
    client: u32,
    object: u32,
    cmd: u32,
    params: &mut T,
) -> Result<(), RmError> {
    // SAFETY: the caller's promise about inner pointers.
    unsafe { control_bytes(driver, fd, client, object, cmd, params.as_bytes_mut()) }
}

/// RM_CONTROL with the command's parameter struct as a branch has it.
///
/// # Safety
/// Pointers inside `params`, if the command has any, are valid for the call.
pub unsafe fn control_shaped<T: Plain>(
    driver: &dyn Driver,
    fd: RawFd,
    client: u32,
    object: u32,
    cmd: u32,
    shape: &Shape<T>,
    params: &mut T,
) -> Result<(), RmError> {
    // SAFETY: the caller's promise about inner pointers.
    shaped(shape, params, |bytes| unsafe { control_bytes(driver, fd, client, object, cmd, bytes) })
}

/// RM_ALLOC with the class's parameter struct as a branch has it.
#[allow(clippy::too_many_arguments)]
pub fn alloc_shaped<T: Plain>(
    driver: &dyn Driver,
    fd: RawFd,
    client: u32,
    parent: u32,
    new: u32,
    class: u32,
    shape: &Shape<T>,
    params: &mut T,
) -> Result<u32, RmError> {
    shaped(shape, params, |bytes| alloc_bytes(driver, fd, client, parent, new, class, bytes))
}

/// Passes a struct in the branch's layout, and copies the result back.
fn shaped<T: Plain, R>(shape: &Shape<T>, params: &mut T, f: impl FnOnce(&mut [u8]) -> R) -> R {
    let mut bytes = shape.bytes(params);
    let result = f(&mut bytes);
    abi::expand(shape.cuts(), &bytes, params.as_bytes_mut());
    result
}

/// The doorbell value of a channel.
pub fn work_submit_token(driver: &dyn Driver, fd: RawFd, client: u32, channel: u32) -> Result<u32, RmError> {
    let mut p = abi::control::WorkSubmitToken::default();
    // SAFETY: the parameters hold no pointers.
    unsafe { control(driver, fd, client, channel, abi::CTRL_WORK_SUBMIT_TOKEN, &mut p)? };
    Ok(p.token)
}

/// Lets a channel group's channels run.
pub fn schedule_group(driver: &dyn Driver, abi: &Abi, fd: RawFd, client: u32, group: u32) -> Result<(), RmError> {
    let mut p = abi::control::Schedule { enable: 1, ..Default::default() };
    // SAFETY: the parameters hold no pointers.
    unsafe {
        let schedule = &abi.branch().layouts.schedule;
        control_shaped(driver, fd, client, group, abi::control::GROUP_SCHEDULE, schedule, &mut p)
    }
}

/// The class of a client's object. Only the file that made the client may ask.
pub fn class_of(driver: &dyn Driver, fd: RawFd, client: u32, object: u32) -> Result<u32, RmError> {
    handle_info(driver, fd, client, object, abi::control::HandleInfo::CLASS).map(|class| class as u32)
}

/// The handle of an object's parent.
pub fn parent_of(driver: &dyn Driver, fd: RawFd, client: u32, object: u32) -> Result<u32, RmError> {
    handle_info(driver, fd, client, object, abi::control::HandleInfo::PARENT).map(|parent| parent as u32)
}

fn handle_info(driver: &dyn Driver, fd: RawFd, client: u32, object: u32, index: u32) -> Result<u64, RmError> {
    let mut p = abi::control::HandleInfo { object, index, result: 0 };
    // SAFETY: the parameters hold no pointers.
    unsafe { control(driver, fd, client, client, abi::control::HANDLE_INFO, &mut p)? };
    Ok(p.result)
}

/// The number of the GPU that a subdevice is of.
pub fn gpu_id(driver: &dyn Driver, fd: RawFd, client: u32, subdevice: u32) -> Result<u32, RmError> {
    let mut id = 0u32;
    // SAFETY: the parameter is a number.
    unsafe { control(driver, fd, client, subdevice, abi::control::GPU_ID, &mut id)? };
    Ok(id)
}

/// RM's device instance of a GPU.
pub fn device_instance(driver: &dyn Driver, fd: RawFd, client: u32, gpu_id: u32) -> Result<u32, RmError> {
    let mut id = abi::control::GpuIdInfo { gpu_id, ..Default::default() };
    // SAFETY: the parameters hold no pointers.
    unsafe { control(driver, fd, client, client, abi::control::GPU_ID_INFO_V2, &mut id)? };
    Ok(id.device_instance)
}

/// The GPU's 16-byte UUID, from its subdevice.
pub fn gpu_uuid(driver: &dyn Driver, fd: RawFd, client: u32, subdevice: u32) -> Result<[u8; 16], RmError> {
    let mut p = abi::control::GidInfo { flags: abi::control::GidInfo::BINARY, length: 16, ..Default::default() };
    // SAFETY: the parameters hold no pointers.
    unsafe { control(driver, fd, client, subdevice, abi::control::GID_INFO, &mut p)? };
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&p.data[..16]);
    Ok(uuid)
}

/// The confidential-computing feature that is on (0: none), or `None` where the driver does not know of any. The query uses a new client.
pub fn confidential_feature(driver: &dyn Driver, fd: RawFd) -> Result<Option<u8>, RmError> {
    let client = alloc_client(driver, fd)?;
    let asked = (|| {
        let mut params = client;
        let object = alloc(driver, fd, client, client, 0, class::NV_CONFIDENTIAL_COMPUTE, &mut params)?;
        let mut p = abi::control::ConfidentialCapabilities::default();
        // SAFETY: the parameters hold no pointers.
        unsafe { control(driver, fd, client, object, abi::control::CONFIDENTIAL_CAPABILITIES, &mut p)? };
        Ok(Some(p.feature))
    })();
    let freed = free(driver, fd, client, client, client);
    match asked {
        Err(RmError::Status {
            status: crate::status::ERR_INVALID_CLASS | crate::status::ERR_NOT_SUPPORTED, ..
        }) => Ok(None),
        Ok(feature) => freed.map(|()| feature),
        Err(error) => Err(error),
    }
}

/// The classes that a device has.
pub fn class_list(driver: &dyn Driver, fd: RawFd, client: u32, device: u32) -> Result<Vec<u32>, RmError> {
    let cmd = abi::control::CLASS_LIST;
    let mut p = abi::control::ClassList::default();
    // SAFETY: with no list the command only counts.
    unsafe { control(driver, fd, client, device, cmd, &mut p)? };
    if p.count > 4096 {
        return Err(RmError::Answer { operation: "class list", what: "the driver counts more than 4096 classes" });
    }
    let mut list = vec![0u32; p.count as usize];
    p.list = list.as_mut_ptr() as u64;
    // SAFETY: `list` holds the `count` words that the command writes, and lives until it returns.
    unsafe { control(driver, fd, client, device, cmd, &mut p)? };
    list.truncate(p.count as usize);
    Ok(list)
}

/// RM_ALLOC_MEMORY of class 0x71: makes pinned user pages a memory object. `fd` is the GPU's own file.
///
/// # Safety
/// The pages stay mapped until the object is freed: the GPU writes to them without the program's involvement.
#[allow(clippy::too_many_arguments)]
pub unsafe fn alloc_user_pages(
    driver: &dyn Driver,
    fd: RawFd,
    client: u32,
    device: u32,
    new: u32,
    address: u64,
    length: u64,
    flags: u32,
) -> Result<u32, RmError> {
    let (operation, subject) = ("RM_ALLOC_MEMORY", Subject::Class(class::NV01_MEMORY_SYSTEM_OS_DESCRIPTOR));
    let mut a = abi::Nvos02Fd {
        root: client,
        parent: device,
        new,
        class: class::NV01_MEMORY_SYSTEM_OS_DESCRIPTOR,
        flags,
        memory: address,
        limit: length.saturating_sub(1),
        fd: -1,
        ..Default::default()
    };
    // SAFETY: the caller guarantees the address; the kernel pins the pages or refuses.
    unsafe { rm(driver, fd, nr::ALLOC_MEMORY, &mut a, operation, subject)? };
    check(a.status, operation, subject)?;
    Ok(a.new)
}

/// RM_MAP_MEMORY: prepares `map_fd` for one mmap of exactly `length` bytes. `map_fd` is a new descriptor: the GPU's file for GPU memory and
/// doorbells, `/dev/nvidiactl` for host memory. Returns the linear address: for GPU memory, the bus address in BAR1.
#[allow(clippy::too_many_arguments)]
pub fn map_memory(
    driver: &dyn Driver,
    fd: RawFd,
    client: u32,
    device: u32,
    memory: u32,
    offset: u64,
    length: u64,
    flags: u32,
    map_fd: RawFd,
) -> Result<u64, RmError> {
    let (operation, subject) = ("RM_MAP_MEMORY", Subject::Handle(memory));
    let mut a = abi::Nvos33Fd { client, device, memory, offset, length, flags, fd: map_fd, ..Default::default() };
    // SAFETY: NVOS33 holds no pointers that the driver follows.
    unsafe { rm(driver, fd, nr::MAP_MEMORY, &mut a, operation, subject)? };
    check(a.status, operation, subject)?;
    Ok(a.linear)
}

/// RM_UNMAP_MEMORY of what [`map_memory`] returned as `linear`.
pub fn unmap_memory(
    driver: &dyn Driver,
    fd: RawFd,
    client: u32,
    device: u32,
    memory: u32,
    linear: u64,
) -> Result<(), RmError> {
    let (operation, subject) = ("RM_UNMAP_MEMORY", Subject::Handle(memory));
    let mut a = abi::Nvos34 { client, device, memory, linear, ..Default::default() };
    // SAFETY: NVOS34 holds no pointers that the driver follows.
    unsafe { rm(driver, fd, nr::UNMAP_MEMORY, &mut a, operation, subject)? };
    check(a.status, operation, subject)
}

/// RM_DUP_OBJECT: another handle, in `client` under `parent`, for an object of `client_src`. Returns it.
pub fn dup_object(
    driver: &dyn Driver,
    fd: RawFd,
    client: u32,
    parent: u32,
    client_src: u32,
    object_src: u32,
) -> Result<u32, RmError> {
    let (operation, subject) = ("RM_DUP_OBJECT", Subject::Handle(object_src));
    let mut a = abi::Nvos55 { client, parent, client_src, object_src, ..Default::default() };
    // SAFETY: NVOS55 holds no pointers.
    unsafe { rm(driver, fd, nr::DUP_OBJECT, &mut a, operation, subject)? };
    check(a.status, operation, subject)?;
    Ok(a.object)
}

/// REGISTER_FD: ties a GPU's descriptor to the client's `/dev/nvidiactl`.
pub fn register_fd(driver: &dyn Driver, fd: RawFd, ctl_fd: RawFd) -> Result<(), RmError> {
    let mut a = abi::RegisterFd { ctl_fd };
    // SAFETY: the struct holds no pointers.
    unsafe { rm(driver, fd, nr::REGISTER_FD, &mut a, "REGISTER_FD", Subject::Fd(fd)) }
}

/// CARD_INFO: the GPUs that the driver has, at most 32.
pub fn card_info(driver: &dyn Driver, ctl_fd: RawFd) -> Result<Vec<abi::CardInfo>, RmError> {
    let mut cards = [abi::CardInfo::default(); 32];
    // SAFETY: the array has the size that the request declares and holds no pointers.
    unsafe { rm(driver, ctl_fd, nr::CARD_INFO, &mut cards, "CARD_INFO", Subject::None)? };
    Ok(cards.into_iter().filter(|c| c.valid != 0).collect())
}

/// CHECK_VERSION_STR as a query: the kernel driver's version, as `580.159.04`.
pub fn driver_version(driver: &dyn Driver, ctl_fd: RawFd) -> Result<String, RmError> {
    let operation = "CHECK_VERSION_STR";
    let mut a = abi::CheckVersion { cmd: abi::CheckVersion::QUERY, ..Default::default() };
    // SAFETY: the struct holds no pointers.
    unsafe { rm(driver, ctl_fd, nr::CHECK_VERSION_STR, &mut a, operation, Subject::None)? };
    match a.text() {
        Some(v) if !v.is_empty() => Ok(v.to_owned()),
        _ => Err(RmError::Answer { operation, what: "the driver gave no version" }),
    }
}

/// Whether the kernel has the structs of this branch: see [`crate::check`]. It opens files and changes nothing.
pub fn self_check(driver: &dyn Driver, branch: &Branch) -> io::Result<check::Report> {
    // SAFETY: fresh memory, at an address of the kernel's choice.
    let begin = unsafe {
        let (prot, flags) = (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        libc::mmap(std::ptr::null_mut(), 2 * check::GROUND, prot, flags, -1, 0)
    };
    if begin == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the first half of the mapping just made; the second half keeps no access rights.
    let open = unsafe { libc::mprotect(begin, check::GROUND, libc::PROT_READ | libc::PROT_WRITE) };
    let checked = if open == 0 {
        // SAFETY: as just mapped; no other code has the address.
        let ground = unsafe { check::Ground::at(begin as usize) };
        checked(driver, branch, ground)
    } else {
        Err(io::Error::last_os_error())
    };
    // SAFETY: doorbell's own mapping, without remaining references.
    unsafe { libc::munmap(begin, 2 * check::GROUND) };
    checked
}

fn checked(driver: &dyn Driver, branch: &Branch, ground: check::Ground) -> io::Result<check::Report> {
    let on = |path: &std::ffi::CStr, ask: fn(&Branch, check::Ground, check::Ioctl<'_>) -> check::Report| {
        let fd = driver.open(path)?;
        let report = ask(branch, ground, &mut |request, arg| {
            // SAFETY: `check` passes the request's argument, or one that ends where readable memory ends.
            let made = unsafe { driver.ioctl(fd, request, arg as *mut c_void) };
            made.err().map_or(0, |e| e.raw_os_error().unwrap_or(libc::EIO))
        });
        driver.close(fd)?;
        Ok::<_, io::Error>(report)
    };
    let (rm, uvm) = (on(c"/dev/nvidiactl", check::rm)?, on(c"/dev/nvidia-uvm", check::uvm)?);
    Ok(check::Report { failed: rm.failed | uvm.failed, seen: rm.seen | uvm.seen })
}

/// Parameters of a UVM call, with the status at their end.
pub trait UvmParams: Plain {
    fn status(&self) -> u32;
}

macro_rules! uvm_params {
    ($($t:ident),*) => {$(
        impl UvmParams for uvm::$t {
            fn status(&self) -> u32 {
                self.status
            }
        }
    )*};
}
uvm_params!(
    Initialize,
    MmInitialize,
    RegisterGpu,
    UnregisterGpu,
    RegisterGpuVaspace,
    RegisterChannel,
    UnregisterChannel,
    Range,
    GpuRange,
    MapExternal
);

/// Room that a UVM call has beyond its struct. The number carries no size, so a kernel with a longer struct than the table has
/// reads zeros there, and writes where nothing else is.
const UVM_SLACK: usize = 4096;

/// A UVM call. Refused unless structs may be handed to the driver that `abi` is of.
///
/// # Safety
/// `T` is the struct of `request`: the number carries no size, so there is no other check.
pub unsafe fn uvm_call<T: UvmParams>(
    driver: &dyn Driver,
    abi: &Abi,
    fd: RawFd,
    request: u64,
    params: &mut T,
) -> Result<(), RmError> {
    let operation = uvm::full_name(request);
    if !abi.accepted() {
        return Err(RmError::UvmRefused { operation });
    }
    let cuts = abi.branch().uvm_cuts(request);
    // Words, because the kernel's struct is aligned to words.
    let mut room = vec![0u64; (size_of::<T>() + UVM_SLACK).div_ceil(8)];
    let bytes = room.as_mut_slice();
    // SAFETY: the bytes of the words, which are borrowed for as long.
    let bytes = unsafe { core::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast::<u8>(), size_of_val(bytes)) };
    abi::compact(cuts, params.as_bytes(), bytes);
    loop {
        // SAFETY: the struct is the request's (the caller's promise) in this driver's branch, with room after it.
        let made = unsafe { driver.ioctl(fd, request, bytes.as_mut_ptr().cast::<c_void>()) };
        abi::expand(cuts, bytes, params.as_bytes_mut());
        match made {
            Ok(()) => return check(params.status(), operation, Subject::None),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(cause) => return Err(RmError::Io { operation, subject: Subject::None, cause }),
        }
    }
}

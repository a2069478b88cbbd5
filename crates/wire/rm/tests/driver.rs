//! The calls of `rm::driver` over a scripted driver.

use rm::abi::{self, Abi, Plain, control, nr, rm_request, uvm};
use rm::class;
use rm::driver::{self, Driver, RmError};
use std::ffi::{CStr, c_void};
use std::io;
use std::os::fd::RawFd;
use std::sync::Mutex;

/// What the next ioctls do: an errno, or bytes to write at an offset of the struct.
enum Answer {
    Errno(i32),
    Write(Vec<(usize, Vec<u8>)>),
}

#[derive(Default)]
struct Scripted {
    answers: Mutex<Vec<Answer>>,
    seen: Mutex<Vec<(RawFd, u64, Vec<u8>)>>,
}

impl Scripted {
    fn new(answers: Vec<Answer>) -> Scripted {
        let mut answers = answers;
        answers.reverse();
        Scripted { answers: Mutex::new(answers), ..Default::default() }
    }

    fn calls(&self) -> Vec<(RawFd, u64, Vec<u8>)> {
        self.seen.lock().unwrap().clone()
    }
}

impl Driver for Scripted {
    fn open(&self, _: &CStr) -> io::Result<RawFd> {
        Ok(7)
    }

    unsafe fn ioctl(&self, fd: RawFd, request: u64, arg: *mut c_void) -> io::Result<()> {
        let size = if request == uvm::INITIALIZE { 16 } else { abi::request_size(request) };
        // SAFETY: the struct has the size that its request declares.
        let bytes = unsafe { std::slice::from_raw_parts_mut(arg.cast::<u8>(), size) };
        self.seen.lock().unwrap().push((fd, request, bytes.to_vec()));
        match self.answers.lock().unwrap().pop() {
            None => Ok(()),
            Some(Answer::Errno(e)) => Err(io::Error::from_raw_os_error(e)),
            Some(Answer::Write(writes)) => {
                for (at, b) in writes {
                    bytes[at..at + b.len()].copy_from_slice(&b);
                }
                Ok(())
            }
        }
    }

    unsafe fn mmap(&self, _: *mut c_void, _: usize, _: i32, _: i32, _: RawFd, _: i64) -> io::Result<*mut c_void> {
        Err(io::Error::from(io::ErrorKind::Unsupported))
    }

    unsafe fn munmap(&self, _: *mut c_void, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn close(&self, _: RawFd) -> io::Result<()> {
        Ok(())
    }
}

fn status(at: usize, status: u32) -> Answer {
    Answer::Write(vec![(at, status.to_le_bytes().to_vec())])
}

#[test]
fn alloc_passes_the_parameters_and_returns_the_handle() {
    let d = Scripted::new(vec![Answer::Write(vec![(8, 0xcaf0_0001u32.to_le_bytes().to_vec())])]);
    let mut p = abi::CopyAlloc { version: 1, engine_type: 11 };
    let h = driver::alloc(&d, 3, 1, 2, 0, class::HOPPER_DMA_COPY_A, &mut p).unwrap();
    assert_eq!(h, 0xcaf0_0001);
    let (fd, request, bytes) = d.calls().remove(0);
    assert_eq!((fd, request), (3, 0xc030_462b));
    let a = abi::Nvos64::read(&bytes).unwrap();
    assert_eq!((a.root, a.parent, a.class, a.params_size), (1, 2, class::HOPPER_DMA_COPY_A, 8));
    assert_eq!(a.params, &raw const p as u64);
    // Without parameters the pointer is null: some classes take that as their default.
    driver::alloc_client(&d, 3).unwrap();
    let a = abi::Nvos64::read(&d.calls()[1].2).unwrap();
    assert_eq!((a.params, a.params_size, a.class), (0, 0, class::NV01_ROOT_CLIENT));
}

#[test]
fn errors_name_operation_object_and_status() {
    let d = Scripted::new(vec![status(40, 0x1b), Answer::Errno(libc::EIO), status(28, 0x56), status(28, 0x7777_0000)]);
    let e = driver::alloc_bytes(&d, 3, 1, 2, 0, class::HOPPER_CHANNEL_GPFIFO_A, &mut []).unwrap_err();
    let text = e.to_string();
    assert!(text.starts_with("RM_ALLOC HOPPER_CHANNEL_GPFIFO_A: NV_ERR_INSUFFICIENT_PERMISSIONS (0x1b); "), "{text}");
    assert_eq!(e.status(), Some(0x1b));
    let e = driver::alloc_bytes(&d, 3, 1, 2, 0, 0x1234, &mut []).unwrap_err();
    assert!(e.to_string().starts_with("RM_ALLOC class 0x1234: "), "{e}");
    assert_eq!(e.status(), None);
    let e = driver::work_submit_token(&d, 3, 1, 2).unwrap_err();
    assert_eq!(e.to_string(), "RM_CONTROL NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN: NV_ERR_NOT_SUPPORTED (0x56)");
    let mut none = [];
    // SAFETY: no parameters.
    let e = unsafe { driver::control_bytes(&d, 3, 1, 2, 0x9999_9999, &mut none) }.unwrap_err();
    assert_eq!(e.to_string(), "RM_CONTROL command 0x99999999: unknown status (0x77770000)");
}

#[test]
fn interrupted_calls_are_repeated() {
    let d = Scripted::new(vec![Answer::Errno(libc::EINTR), Answer::Errno(libc::EAGAIN)]);
    driver::free(&d, 3, 1, 2, 9).unwrap();
    assert_eq!(d.calls().len(), 3);
    assert_eq!(d.calls()[2].1, rm_request(nr::FREE, 16));
    // A driver that stays busy is an error, not a hang.
    let d = Scripted::new((0..20_000).map(|_| Answer::Errno(libc::EAGAIN)).collect());
    assert!(matches!(driver::free(&d, 3, 1, 2, 9), Err(RmError::Io { .. })));
}

#[test]
fn user_pages_have_a_call_of_their_own() {
    let d = Scripted::default();
    let class = class::NV01_MEMORY_SYSTEM_OS_DESCRIPTOR;
    assert!(driver::alloc_bytes(&d, 3, 1, 2, 0, class, &mut [0; 8]).is_err());
    assert!(d.calls().is_empty());
    let pages = [0u8; 4096];
    // SAFETY: the driver is scripted, so the pages are never pinned.
    unsafe { driver::alloc_user_pages(&d, 5, 1, 2, 0, pages.as_ptr() as u64, 4096, 0) }.unwrap();
    let a = abi::Nvos02Fd::read(&d.calls()[0].2).unwrap();
    assert_eq!((a.class, a.memory, a.limit, a.fd), (class, pages.as_ptr() as u64, 4095, -1));
}

#[test]
fn uvm_is_refused_to_unknown_drivers() {
    let d = Scripted::default();
    let call = |abi: &Abi| {
        // SAFETY: the struct is that of INITIALIZE.
        unsafe { driver::uvm_call(&d, abi, 4, uvm::INITIALIZE, &mut uvm::Initialize::default()) }
    };
    let e = call(&Abi::of("580.178.04")).unwrap_err();
    assert!(matches!(e, RmError::UvmRefused { .. }) && e.to_string().starts_with("UVM_INITIALIZE: "), "{e}");
    assert!(d.calls().is_empty());
    call(&Abi::of("580.105.08")).unwrap();
    call(&Abi::for_own_channels("580.178.04", true).unwrap()).unwrap();
    assert_eq!(d.calls().len(), 2);

    let d = Scripted::new(vec![status(8, 0x40)]);
    let abi = Abi::of("570.133.20");
    // SAFETY: the struct is that of INITIALIZE.
    let e = unsafe { driver::uvm_call(&d, &abi, 4, uvm::INITIALIZE, &mut uvm::Initialize::default()) }.unwrap_err();
    assert_eq!(e.to_string(), "UVM_INITIALIZE: NV_ERR_INVALID_STATE (0x40)");
}

#[test]
fn schedule_has_the_size_of_the_branch() {
    for (branch, size) in [("570.133.20", 2), ("575.64", 3), ("580.142", 3)] {
        let d = Scripted::default();
        driver::schedule_group(&d, &Abi::of(branch), 3, 1, 2).unwrap();
        let c = abi::Nvos54::read(&d.calls()[0].2).unwrap();
        assert_eq!((c.cmd, c.params_size), (control::GROUP_SCHEDULE, size));
    }
}

#[test]
fn the_version_and_the_cards_come_back() {
    let d = Scripted::new(vec![
        Answer::Write(vec![(4, vec![1, 0, 0, 0]), (8, b"580.159.04\0".to_vec())]),
        Answer::Write(vec![(72, vec![1]), (72 + 16, 0x1000u32.to_le_bytes().to_vec())]),
    ]);
    assert_eq!(driver::driver_version(&d, 3).unwrap(), "580.159.04");
    let cards = driver::card_info(&d, 3).unwrap();
    assert_eq!((cards.len(), cards[0].gpu_id), (1, 0x1000));
    assert!(driver::driver_version(&d, 3).is_err(), "an empty answer is no version");
}

#[test]
fn mapping_names_the_descriptor_and_returns_the_bus_address() {
    let d = Scripted::new(vec![Answer::Write(vec![(32, 0x1000_4100_0000u64.to_le_bytes().to_vec())])]);
    let linear = driver::map_memory(&d, 3, 1, 2, 5, 0x1000, 0x2000, 0, 9).unwrap();
    assert_eq!(linear, 0x1000_4100_0000);
    let m = abi::Nvos33Fd::read(&d.calls()[0].2).unwrap();
    assert_eq!((m.client, m.device, m.memory, m.offset, m.length, m.fd), (1, 2, 5, 0x1000, 0x2000, 9));
}

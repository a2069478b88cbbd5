//! The file that an interrupt makes readable: the requests to the driver, and that all its objects are freed.

use doorbell_softgpu::{Mode, SoftDriver};
use gpu::{Device, Error, OsEvent};
use rm::abi::{self, EventAlloc, Nvos00, Nvos64, Plain, nr};
use rm::driver::Driver;
use std::ffi::{CStr, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard};

const EVENT: u32 = 0x0bad_e7e7;

/// The recorded requests.
#[derive(Debug, Default)]
struct Account {
    open: Vec<RawFd>,
    registered: Vec<RawFd>,
    event: Option<EventAlloc>,
}

/// The software GPU's driver, with events.
struct WithEvents {
    driver: SoftDriver,
    account: Mutex<Account>,
    /// The event object is refused.
    refuses: bool,
}

impl WithEvents {
    fn new(refuses: bool) -> Arc<WithEvents> {
        Arc::new(WithEvents { driver: SoftDriver::new(Mode::Strict), account: Mutex::default(), refuses })
    }

    fn account(&self) -> MutexGuard<'_, Account> {
        self.account.lock().unwrap()
    }
}

impl Driver for WithEvents {
    fn open(&self, path: &CStr) -> io::Result<RawFd> {
        self.driver.open(path).inspect(|fd| self.account().open.push(*fd))
    }

    unsafe fn ioctl(&self, fd: RawFd, request: u64, arg: *mut c_void) -> io::Result<()> {
        let is = |number: u32, size: usize| request == abi::rm_request(number, size);
        // SAFETY: the struct that the request declares; its parameters are those of its class.
        unsafe {
            if is(nr::ALLOC_OS_EVENT, 16) || is(nr::FREE_OS_EVENT, 16) {
                let call = &mut *arg.cast::<abi::OsEvent>();
                assert_eq!(call.fd, fd as u32, "on the file itself");
                let registered = &mut self.account().registered;
                let was = registered.iter().position(|other| *other == fd);
                match (is(nr::ALLOC_OS_EVENT, 16), was) {
                    (true, None) => registered.push(fd),
                    (false, Some(at)) => drop(registered.remove(at)),
                    other => panic!("{other:?}"),
                }
                call.status = 0;
                return Ok(());
            }
            if is(nr::ALLOC, size_of::<Nvos64>()) {
                let call = &mut *arg.cast::<Nvos64>();
                if call.class == rm::class::NV01_EVENT_OS_EVENT {
                    let bytes = std::slice::from_raw_parts(call.params as *const u8, call.params_size as usize);
                    self.account().event = EventAlloc::read(bytes);
                    (call.new, call.status) = (EVENT, if self.refuses { 0x56 } else { 0 });
                    return Ok(());
                }
            }
            if is(nr::FREE, size_of::<Nvos00>()) && (*arg.cast::<Nvos00>()).old == EVENT {
                assert!(self.account().event.take().is_some());
                (*arg.cast::<Nvos00>()).status = 0;
                return Ok(());
            }
            self.driver.ioctl(fd, request, arg)
        }
    }

    unsafe fn mmap(
        &self,
        addr: *mut c_void,
        len: usize,
        prot: i32,
        flags: i32,
        fd: RawFd,
        offset: i64,
    ) -> io::Result<*mut c_void> {
        // SAFETY: the caller's promise.
        unsafe { self.driver.mmap(addr, len, prot, flags, fd, offset) }
    }

    unsafe fn munmap(&self, addr: *mut c_void, len: usize) -> io::Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.driver.munmap(addr, len) }
    }

    fn close(&self, fd: RawFd) -> io::Result<()> {
        self.account().open.retain(|other| *other != fd);
        self.driver.close(fd)
    }
}

#[test]
fn an_event_is_asked_for_on_its_own_file_and_nothing_is_left_of_it() {
    let driver = WithEvents::new(false);
    let device = Device::open(driver.clone(), 0).unwrap();
    let before = driver.account().open.len();
    let event = OsEvent::new(&device).unwrap();
    let file = event.as_fd().as_raw_fd();
    {
        let account = driver.account();
        let asked = account.event.unwrap();
        // Flags and number as in `nvos.h` and `cl2080_notification.h`.
        assert_eq!((asked.class, asked.notify_index, asked.data), (0x79, 0x1800_0023, file as u64));
        assert!(account.registered == [file] && account.open.contains(&file) && account.open.len() == before + 1);
    }
    drop(event);
    let account = driver.account();
    assert!(account.event.is_none() && account.registered.is_empty() && account.open.len() == before, "{account:?}");
}

#[test]
fn where_the_driver_has_no_events_it_is_an_error_and_no_file_stays_open() {
    let driver = WithEvents::new(true);
    let device = Device::open(driver.clone(), 0).unwrap();
    let before = driver.account().open.len();
    let refused = OsEvent::new(&device).unwrap_err();
    assert!(matches!(&refused, Error::Driver(_)) && refused.to_string().contains("NV01_EVENT_OS_EVENT"), "{refused}");
    assert!(driver.account().registered.is_empty() && driver.account().open.len() == before);
    // The unchanged software GPU.
    let soft = Device::open(Arc::new(SoftDriver::new(Mode::Strict)), 0).unwrap();
    let refused = OsEvent::new(&soft).unwrap_err();
    assert!(refused.to_string().contains("ALLOC_OS_EVENT"), "{refused}");
}

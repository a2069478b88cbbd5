//! Sessions that are opened and closed repeatedly leave no file open. In a separate process, because other tests open files, too.

use doorbell_softgpu::{Mode, SoftDriver};
use gpu::{AddressSpace, Device};
use std::sync::Arc;
use std::time::Duration;
use submit::{Options, Session};

const LIMIT: Duration = Duration::from_secs(30);
/// The process's own files, and those of the sessions that both tests have open at a time: a session that left one file each time
/// would leave more.
const FILES: usize = 50;

fn cycles(count: usize) {
    let driver = SoftDriver::new(Mode::Strict);
    let session = Session::new();
    for n in 0..count {
        let device = Device::open(Arc::new(driver), 0).unwrap();
        let options = Options { lanes: 1, ..Options::default() };
        session.open_in(AddressSpace::new(&device).unwrap(), None, &options).unwrap();
        if n % 50 == 0 {
            let host = session.allocate(4096, false).unwrap();
            session.copy((host, 0), (host, 64), 8, LIMIT).unwrap();
        }
        session.close().unwrap();
    }
    let files = std::fs::read_dir("/proc/self/fd").map(Iterator::count).unwrap_or(usize::MAX);
    assert!(files < FILES, "{files} files");
}

#[test]
fn a_session_may_be_opened_and_closed_again_and_again() {
    cycles(60);
}

#[test]
#[ignore = "10,000 cycles take six seconds; run by .ci/run"]
fn a_session_may_be_opened_and_closed_ten_thousand_times() {
    cycles(10_000);
}

//! The examples in Rust, on the software GPU.

#[path = "../../../../examples/rust/frames.rs"]
mod frames;
#[path = "../../../../examples/rust/pages.rs"]
mod pages;
#[path = "../../../../examples/rust/parameters.rs"]
mod parameters;

use doorbell_softgpu::{Mode, SoftDriver};
use gpu::{AddressSpace, Device};
use std::sync::Arc;
use submit::{Options, Session};

#[test]
fn frames_pages_and_parameters_arrive() {
    let device = Device::open(Arc::new(SoftDriver::new(Mode::Strict)), 0).unwrap();
    let session = Session::new();
    session.open_in(AddressSpace::new(&device).unwrap(), None, &Options { lanes: 1, ..Options::default() }).unwrap();
    frames::frames(&session, 60).unwrap();
    pages::pages(&session, 256).unwrap();
    parameters::parameters(&session, 100).unwrap();
    session.close().unwrap();
}

//! Transfers to random places.

use std::time::Duration;
use workload::{Places, Transfer};

/// Moves a transfer to so many places within its buffers, and checks the bytes there and around them.
pub fn in_random_places(
    transfer: &mut dyn Transfer,
    capacity: u64,
    bytes: u64,
    times: u64,
    name: &str,
    limit: Duration,
) {
    let mut places = Places::new(transfer.ends().unwrap(), capacity, bytes, 5).unwrap();
    for n in 0..times {
        let (from, to) = places.renew(transfer.ends().unwrap(), n % 4 != 0).unwrap();
        transfer.move_to(from, to).unwrap();
        transfer.submit().unwrap();
        places.made();
        transfer.wait(limit).unwrap();
        assert_eq!(places.check(transfer.ends().unwrap()).unwrap(), None, "{name}, the {n}th, from {from} to {to}");
    }
}

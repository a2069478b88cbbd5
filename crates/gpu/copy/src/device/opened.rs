//! What routes call `device`: the card that a machine was given, else a copy engine.

use super::{Device, EngineDevice};
use crate::error::Error;
use crate::machine::Machine;

/// Opens it.
///
/// # Errors
/// What the card says, or where there is no channel of our own.
pub fn open(machine: &Machine) -> Result<Box<dyn Device>, Error> {
    match machine.card() {
        Some(card) => card.open(),
        None => Ok(Box::new(EngineDevice::new(machine)?)),
    }
}

/// Which one that is, in a few words.
pub(crate) fn about(machine: &Machine) -> String {
    match machine.card() {
        Some(card) => card.about(),
        None => format!("a copy engine of GPU {} is the device", machine.device_seat().index()),
    }
}

//! The `device` of routes: the card that a machine was given, else a copy engine.

use super::{Device, EngineDevice};
use crate::error::Error;
use crate::machine::Machine;

/// Opens the device.
///
/// # Errors
/// The card's error, or an error if no separate channel can be opened.
pub fn open(machine: &Machine) -> Result<Box<dyn Device>, Error> {
    match machine.card() {
        Some(card) => card.open(),
        None => Ok(Box::new(EngineDevice::new(machine)?)),
    }
}

/// The device in a few words.
pub(crate) fn about(machine: &Machine) -> String {
    match machine.card() {
        Some(card) => card.about(),
        None => format!("a copy engine of GPU {} is the device", machine.device_seat().index()),
    }
}

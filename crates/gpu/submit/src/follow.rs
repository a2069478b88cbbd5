//! Which profile a session uses.

use crate::choose::Chooser;
use crate::error::Error;
use machine::Machine;
use std::path::PathBuf;
use std::sync::Arc;

/// Which profile a session uses.
#[derive(Clone, Default)]
pub enum Follow {
    /// The file that `$DOORBELL_PROFILE` names; no profile if the variable is not set.
    #[default]
    Variable,
    /// The machine's own: as [`Follow::Variable`]; without the variable, the file that `doorbell calibrate` writes, if it exists.
    Own,
    File(PathBuf),
    Given(Arc<dyn Chooser>),
    Nothing,
}

/// The profile, or the reason why there is none, in words.
pub(crate) type Followed = Result<Arc<dyn Chooser>, String>;

impl Follow {
    /// # Errors
    /// [`Error::Unavailable`] for a profile of another machine, with the differences, and for a file that is not a profile.
    pub(crate) fn found(&self, soft: bool, machine: Option<&Machine>) -> Result<Followed, Error> {
        // A calibration measures the first GPU, which it finds without an address. A session's first GPU is the same.
        let other = machine.filter(|_| !soft).and_then(|machine| Some(machine.context().ok()?.device()));
        let pci = other.filter(|device| device.ordinal() != 0).and_then(|device| device.pci_address().ok());
        let pci = pci.as_deref();
        let variable =
            || std::env::var_os(crate::route_choice::VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
        let profile = match self {
            Follow::Nothing => return Ok(Err("no profile is wanted".into())),
            Follow::Given(chooser) => return Ok(Ok(chooser.clone())),
            Follow::File(path) => crate::route_choice::at(path, soft, pci),
            Follow::Variable => match variable() {
                Some(path) => crate::route_choice::at(&path, soft, pci),
                None => return Ok(Err("no profile is named".into())),
            },
            Follow::Own => match crate::route_choice::own(soft, pci) {
                Err(crate::route_choice::Without::Missing(why)) if variable().is_none() => return Ok(Err(why)),
                found => found,
            },
        };
        match profile {
            Ok(profile) => Ok(Ok(Arc::new(profile))),
            Err(why) => Err(Error::Unavailable(why.to_string())),
        }
    }
}

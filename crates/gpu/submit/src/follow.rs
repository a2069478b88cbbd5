//! Which profile a session follows.

use crate::choose::Chooser;
use crate::error::Error;
use copy::Machine;
use std::path::PathBuf;
use std::sync::Arc;

/// Which profile a session follows.
#[derive(Clone, Default)]
pub enum Follow {
    /// The file that `$DOORBELL_PROFILE` names; none where the variable is not set.
    #[default]
    Variable,
    /// The machine's own: as [`Follow::Variable`], and without the variable where `doorbell calibrate` writes it, if it is there.
    Own,
    File(PathBuf),
    Given(Arc<dyn Chooser>),
    Nothing,
}

/// What is followed, or in words why nothing is.
pub(crate) type Followed = Result<Arc<dyn Chooser>, String>;

impl Follow {
    /// # Errors
    /// [`Error::Unavailable`] for a profile that was taken elsewhere, with what is different, and for a file that is none.
    pub(crate) fn found(&self, soft: bool, machine: Option<&Machine>) -> Result<Followed, Error> {
        // A calibration is of the first GPU, which it finds without an address: so is a session's first.
        let other = machine.filter(|_| !soft).and_then(|machine| Some(machine.context().ok()?.device()));
        let pci = other.filter(|device| device.ordinal() != 0).and_then(|device| device.pci_address().ok());
        let pci = pci.as_deref();
        let variable = || std::env::var_os(route_choice::VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
        let profile = match self {
            Follow::Nothing => return Ok(Err("no profile is wanted".into())),
            Follow::Given(chooser) => return Ok(Ok(chooser.clone())),
            Follow::File(path) => route_choice::at(path, soft, pci),
            Follow::Variable => match variable() {
                Some(path) => route_choice::at(&path, soft, pci),
                None => return Ok(Err("no profile is named".into())),
            },
            Follow::Own => match route_choice::own(soft, pci) {
                Err(route_choice::Without::Missing(why)) if variable().is_none() => return Ok(Err(why)),
                found => found,
            },
        };
        match profile {
            Ok(profile) => Ok(Ok(Arc::new(profile))),
            Err(why) => Err(Error::Unavailable(why.to_string())),
        }
    }
}

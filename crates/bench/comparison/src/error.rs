//! Why runs cannot be compared.

use std::io;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{what}")]
    Refused { what: String, hint: String },
    #[error(transparent)]
    Run(#[from] run_folder::Error),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Error {
    pub(crate) fn refused(what: impl Into<String>, hint: impl Into<String>) -> Error {
        Error::Refused { what: what.into(), hint: hint.into() }
    }

    /// What to do, if that is known here.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Refused { hint, .. } => Some(hint.clone()),
            Error::Run(e) => Some(e.hint()),
            Error::Io(_) => None,
        }
    }
}

//! What a recording says.
use crate::Error;
use crate::document::Document;
pub fn document(_: &insight::Recording) -> Result<Document, Error> {
    Ok(Document::default())
}

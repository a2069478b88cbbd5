//! Tables of Markdown pages, computed from data files.
//!
//! A page marks a table with a comment that names the data file, its checksum, and the columns
//! (`docs/reference/data-files.md`). The rows come from the data; the head is the page's.
//!
//! The invariant: a page that [`Page::check`] accepts shows what its data files give, digit by digit.

mod column;
mod data;
mod marker;
mod page;
mod rows;
mod words;

pub use data::Data;
pub use page::{Checked, Page, Refused};

/// What is wrong, and in which line of the page.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{page}:{line}: {what}")]
pub struct Error {
    pub page: String,
    /// From 1.
    pub line: usize,
    pub what: String,
}

//! A kernel's name.

/// The name of its symbol, and that as it is written in its source.
#[derive(Debug, PartialEq, Eq)]
pub struct Kernel {
    pub symbol: String,
    /// The symbol, where that is no name of C++.
    pub name: String,
}

impl Kernel {
    pub fn new(symbol: &[u8]) -> Kernel {
        let symbol = String::from_utf8_lossy(symbol).into_owned();
        let parsed = cpp_demangle::Symbol::new(&symbol).ok();
        let name = parsed.and_then(|parsed| parsed.demangle().ok());
        Kernel { name: name.unwrap_or_else(|| symbol.clone()), symbol }
    }
}

//! A library that is opened at run time and stays loaded for the life of the process, because its threads run that
//! long.

use crate::error::Unavailable;
use libloading::Library;
use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

pub(crate) struct Loaded<'p> {
    library: Library,
    place: &'p str,
}

impl<'p> Loaded<'p> {
    /// The first of these that opens. `name` is the library's name in errors.
    ///
    /// # Errors
    /// dlopen's message for each, which names the missing file.
    pub(crate) fn first(places: &[&'p str], name: &str) -> Result<Loaded<'p>, String> {
        let mut reasons = Vec::new();
        for &place in places {
            // SAFETY: CUDA's libraries have initialisers that any program may run.
            match unsafe { Library::new(place) } {
                Ok(library) => return Ok(Loaded { library, place }),
                Err(error) => reasons.push(error.to_string()),
            }
        }
        Err(if reasons.is_empty() { format!("no place to look for {name}") } else { reasons.join("; ") })
    }

    /// The result of `take`, which gets the functions by name.
    pub(crate) fn functions<T>(
        self,
        take: impl FnOnce(&dyn Fn(&CStr) -> Result<NonNull<c_void>, String>) -> Result<T, String>,
    ) -> Result<T, Unavailable> {
        let found = take(&|name| {
            // SAFETY: only the address is taken.
            let symbol = unsafe { self.library.get::<*mut c_void>(name.to_bytes_with_nul()) };
            let address = *symbol.map_err(|error| error.to_string())?;
            NonNull::new(address).ok_or_else(|| format!("{} is null", name.to_string_lossy()))
        });
        let place = self.place;
        std::mem::forget(self.library);
        found.map_err(|error| Unavailable { reason: format!("{place} lacks a function that is needed: {error}") })
    }
}

//! Handles of queues and loops, which are not in a session's own tables.

use crate::session::{Pointer, numbered};
use crate::types::doorbell_t;
use std::sync::{Arc, RwLock};
use submit::{Error, Session};

struct Place<T> {
    /// Part of the handle: a new number each time the place is used.
    used: u32,
    item: Option<(Pointer, Arc<T>)>,
}

/// Objects of one kind, each of a session. A handle has, from the top: 4 bits of the kind, which no handle of a session has, 28 bits of
/// the place, and 32 bits of how often the place was used.
pub(crate) struct Table<T> {
    kind: u64,
    name: &'static str,
    places: RwLock<Vec<Place<T>>>,
}

/// Maximum number of objects of one kind in a process.
const MOST: usize = 4096;

impl<T> Table<T> {
    pub const fn new(kind: u64, name: &'static str) -> Table<T> {
        Table { kind: kind << 60, name, places: RwLock::new(Vec::new()) }
    }

    /// Returns its handle.
    pub fn put(&self, session: Pointer, item: T) -> Result<u64, Error> {
        Session::same_process()?;
        let mut places = poison::ignore(self.places.write());
        let free = places.iter().position(|place| place.item.is_none());
        let at = match free {
            Some(at) => at,
            None if places.len() == MOST => return Err(Error::Limit(MOST)),
            None => {
                places.push(Place { used: 0, item: None });
                places.len() - 1
            }
        };
        let place = &mut places[at];
        (place.used, place.item) = (place.used.wrapping_add(1), Some((session, Arc::new(item))));
        Ok(self.kind | (at as u64) << 32 | u64::from(place.used))
    }

    pub fn find(&self, doorbell: *const doorbell_t, handle: u64) -> Result<Arc<T>, Error> {
        let (session, _) = numbered(doorbell)?;
        // (In a fork's child, the lock may still be held by a thread of the parent.)
        Session::same_process()?;
        let places = poison::ignore(self.places.read());
        let place = places.get((handle >> 32 & 0xfff_ffff) as usize);
        let place =
            place.filter(|place| handle & 15 << 60 == self.kind && u64::from(place.used) == handle & 0xffff_ffff);
        let found = place.and_then(|place| place.item.as_ref()).filter(|(its, _)| *its == session);
        found.map(|(_, item)| item.clone()).ok_or(Error::Handle(self.name))
    }

    pub fn take(&self, doorbell: *const doorbell_t, handle: u64) -> Result<Arc<T>, Error> {
        let found = self.find(doorbell, handle)?;
        let mut places = poison::ignore(self.places.write());
        let place = places.get_mut((handle >> 32 & 0xfff_ffff) as usize);
        // (Another thread may have taken it by now, and the place may have another item.)
        let place = place.filter(|place| place.item.as_ref().is_some_and(|(_, item)| Arc::ptr_eq(item, &found)));
        place.ok_or(Error::Handle(self.name))?.item = None;
        Ok(found)
    }

    /// Takes all of a session's objects.
    pub fn end(&self, session: Pointer) -> Vec<Arc<T>> {
        let mut places = poison::ignore(self.places.write());
        let its = |place: &mut Place<T>| place.item.take_if(|(of, _)| *of == session).map(|(_, item)| item);
        places.iter_mut().filter_map(its).collect()
    }
}

//! State as bytes, so that a reader can go on later from where it was.
//!
//! Bytes mean something to the doorbell that wrote them only: fields follow each other without names, all little endian. Invariant: loading returns either
//! the state that was saved or `None`. No bytes make it panic, or allocate more than they hold.

extern crate std;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
#[doc(hidden)] // for the macro: pushbuf has no std
pub use alloc::vec::Vec;
use core::hash::Hash;
use core::ops::Range;
use std::collections::{HashMap, HashSet};

/// What can be written as bytes and read back.
pub trait Snapshot: Sized {
    fn save(&self, to: &mut Vec<u8>);

    /// Takes it from the front of the bytes; `None` if they are none.
    fn load(from: &mut &[u8]) -> Option<Self>;
}

/// Implements [`Snapshot`] for a struct by a list of all its fields, or for one with a single field without a name: `snapshot!(Name(_))`.
#[macro_export]
macro_rules! snapshot {
    ($type:ident(_)) => {
        impl $crate::snapshot::Snapshot for $type {
            fn save(&self, to: &mut $crate::snapshot::Vec<u8>) {
                $crate::snapshot::Snapshot::save(&self.0, to);
            }

            fn load(from: &mut &[u8]) -> Option<Self> {
                $crate::snapshot::Snapshot::load(from).map(Self)
            }
        }
    };
    ($type:ty { $($field:ident),* $(,)? }) => {
        impl $crate::snapshot::Snapshot for $type {
            fn save(&self, to: &mut $crate::snapshot::Vec<u8>) {
                $($crate::snapshot::Snapshot::save(&self.$field, to);)*
            }

            fn load(from: &mut &[u8]) -> Option<Self> {
                $(let $field = $crate::snapshot::Snapshot::load(from)?;)*
                Some(Self { $($field),* })
            }
        }
    };
}

macro_rules! number {
    ($($type:ty),*) => {$(
        impl Snapshot for $type {
            fn save(&self, to: &mut Vec<u8>) {
                to.extend_from_slice(&self.to_le_bytes());
            }

            fn load(from: &mut &[u8]) -> Option<$type> {
                let (bytes, rest) = from.split_first_chunk()?;
                *from = rest;
                Some(<$type>::from_le_bytes(*bytes))
            }
        }
    )*};
}

number!(u8, u16, u32, u64, u128, i32);

impl Snapshot for usize {
    fn save(&self, to: &mut Vec<u8>) {
        (*self as u64).save(to);
    }

    fn load(from: &mut &[u8]) -> Option<usize> {
        u64::load(from)?.try_into().ok()
    }
}

impl Snapshot for bool {
    fn save(&self, to: &mut Vec<u8>) {
        u8::from(*self).save(to);
    }

    fn load(from: &mut &[u8]) -> Option<bool> {
        match u8::load(from)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl<T: Snapshot> Snapshot for Option<T> {
    fn save(&self, to: &mut Vec<u8>) {
        self.is_some().save(to);
        self.iter().for_each(|it| it.save(to));
    }

    fn load(from: &mut &[u8]) -> Option<Option<T>> {
        if bool::load(from)? { T::load(from).map(Some) } else { Some(None) }
    }
}

impl<T: Snapshot> Snapshot for Box<T> {
    fn save(&self, to: &mut Vec<u8>) {
        (**self).save(to);
    }

    fn load(from: &mut &[u8]) -> Option<Box<T>> {
        T::load(from).map(Box::new)
    }
}

impl<T: Snapshot + Copy + Default, const N: usize> Snapshot for [T; N] {
    fn save(&self, to: &mut Vec<u8>) {
        self.iter().for_each(|it| it.save(to));
    }

    fn load(from: &mut &[u8]) -> Option<[T; N]> {
        let mut all = [T::default(); N];
        for it in &mut all {
            *it = T::load(from)?;
        }
        Some(all)
    }
}

/// So many, and each.
fn many<'a, T: Snapshot + 'a>(all: impl ExactSizeIterator<Item = &'a T>, to: &mut Vec<u8>) {
    all.len().save(to);
    all.for_each(|it| it.save(to));
}

/// (Nothing is reserved: the number may be any.)
fn each<T: Snapshot>(from: &mut &[u8], mut f: impl FnMut(T)) -> Option<()> {
    for _ in 0..usize::load(from)? {
        f(T::load(from)?);
    }
    Some(())
}

impl<T: Snapshot> Snapshot for Vec<T> {
    fn save(&self, to: &mut Vec<u8>) {
        many(self.iter(), to);
    }

    fn load(from: &mut &[u8]) -> Option<Vec<T>> {
        let mut all = Vec::new();
        each(from, |it| all.push(it)).map(|()| all)
    }
}

impl Snapshot for String {
    fn save(&self, to: &mut Vec<u8>) {
        self.len().save(to);
        to.extend_from_slice(self.as_bytes());
    }

    fn load(from: &mut &[u8]) -> Option<String> {
        let len = usize::load(from)?;
        let (text, rest) = from.split_at_checked(len)?;
        *from = rest;
        core::str::from_utf8(text).ok().map(Into::into)
    }
}

impl<T: Snapshot> Snapshot for Range<T> {
    fn save(&self, to: &mut Vec<u8>) {
        self.start.save(to);
        self.end.save(to);
    }

    fn load(from: &mut &[u8]) -> Option<Range<T>> {
        Some(T::load(from)?..T::load(from)?)
    }
}

impl<K: Snapshot + Ord, V: Snapshot> Snapshot for BTreeMap<K, V> {
    fn save(&self, to: &mut Vec<u8>) {
        self.len().save(to);
        for (key, value) in self {
            key.save(to);
            value.save(to);
        }
    }

    fn load(from: &mut &[u8]) -> Option<BTreeMap<K, V>> {
        let mut all = BTreeMap::new();
        each(from, |(key, value)| drop(all.insert(key, value))).map(|()| all)
    }
}

impl<K: Snapshot + Eq + Hash, V: Snapshot> Snapshot for HashMap<K, V> {
    fn save(&self, to: &mut Vec<u8>) {
        self.len().save(to);
        for (key, value) in self {
            key.save(to);
            value.save(to);
        }
    }

    fn load(from: &mut &[u8]) -> Option<HashMap<K, V>> {
        let mut all = HashMap::new();
        each(from, |(key, value)| drop(all.insert(key, value))).map(|()| all)
    }
}

impl<T: Snapshot + Eq + Hash> Snapshot for HashSet<T> {
    fn save(&self, to: &mut Vec<u8>) {
        many(self.iter(), to);
    }

    fn load(from: &mut &[u8]) -> Option<HashSet<T>> {
        let mut all = HashSet::new();
        each(from, |it| _ = all.insert(it)).map(|()| all)
    }
}

macro_rules! tuple {
    ($($name:ident)*) => {
        impl<$($name: Snapshot),*> Snapshot for ($($name,)*) {
            #[allow(non_snake_case)]
            fn save(&self, to: &mut Vec<u8>) {
                let ($($name,)*) = self;
                $($name.save(to);)*
            }

            fn load(from: &mut &[u8]) -> Option<($($name,)*)> {
                Some(($($name::load(from)?,)*))
            }
        }
    };
}

impl Snapshot for () {
    fn save(&self, _: &mut Vec<u8>) {}

    fn load(_: &mut &[u8]) -> Option<()> {
        Some(())
    }
}

tuple!(A B);
tuple!(A B C);
tuple!(A B C D);
tuple!(A B C D E);
tuple!(A B C D E F);
tuple!(A B C D E F G);

//! Handles: numbers that encode their kind, the opening of the session, the place, and how often the place was used.

use crate::error::Error;

/// A submission, for waits. It needs no release, and stays valid until the session is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Copy(pub(crate) u64);

impl Copy {
    /// For other languages. Any number is safe: one that is not a copy gives [`Error::Handle`].
    pub const fn from_raw(raw: u64) -> Copy {
        Copy(raw)
    }

    pub const fn raw(self) -> u64 {
        self.0
    }
}

/// Memory that copies may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Buffer(pub(crate) u64);

/// A prepared copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Transfer(pub(crate) u64);

/// A mailbox of a running kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Message(pub(crate) u64);

/// Rotating frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ring(pub(crate) u64);

/// A prepared CUDA graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Graph(pub(crate) u64);

/// From the top: 4 bits of kind, 8 of the opening, 20 of the place, 32 of how often it was used.
const KIND: u32 = 60;
const OPENING: u32 = 52;
const PLACE: u32 = 32;

pub(crate) const BUFFER: Name = Name(1, "buffer");
pub(crate) const TRANSFER: Name = Name(2, "transfer");
pub(crate) const RING: Name = Name(3, "ring");
pub(crate) const COPY: Name = Name(4, "ticket");
pub(crate) const MESSAGE: Name = Name(5, "message");
pub(crate) const GRAPH: Name = Name(6, "graph");

#[derive(Clone, Copy)]
pub(crate) struct Name(u64, pub &'static str);

impl Name {
    pub fn wrong(self) -> Error {
        Error::Handle(self.1)
    }

    /// # Panics
    /// Never: places are fewer than 2^20.
    pub fn encode(self, opening: u8, place: u32, used: u32) -> u64 {
        self.0 << KIND | u64::from(opening) << OPENING | u64::from(place & 0xf_ffff) << PLACE | u64::from(used)
    }

    /// Place, and how often it was used.
    #[inline]
    pub fn decode(self, opening: u8, handle: u64) -> Result<(u32, u32), Error> {
        if handle >> OPENING != self.0 << (KIND - OPENING) | u64::from(opening) {
            return Err(self.wrong());
        }
        Ok(((handle >> PLACE) as u32 & 0xf_ffff, handle as u32))
    }

    /// The same for a number of more than 32 bits: 8 bits of place, 44 of number.
    pub fn encode_number(self, opening: u8, place: u8, number: u64) -> u64 {
        self.0 << KIND | u64::from(opening) << OPENING | u64::from(place) << 44 | number & ((1 << 44) - 1)
    }

    /// The place alone, for any opening.
    #[inline]
    pub fn lane(self, handle: u64) -> Option<usize> {
        (handle >> KIND == self.0).then_some((handle >> 44 & 0xff) as usize)
    }

    #[inline]
    pub fn decode_number(self, opening: u8, handle: u64) -> Result<(u8, u64), Error> {
        if handle >> OPENING != self.0 << (KIND - OPENING) | u64::from(opening) {
            return Err(self.wrong());
        }
        Ok(((handle >> 44) as u8, handle & ((1 << 44) - 1)))
    }
}

macro_rules! as_number {
    ($($name:ident)*) => {$(
        impl $name {
            /// For other languages. Any number is safe: one that is not a handle gives [`Error::Handle`].
            pub const fn from_raw(raw: u64) -> $name {
                $name(raw)
            }

            pub const fn raw(self) -> u64 {
                self.0
            }
        }
    )*};
}
as_number!(Buffer Transfer Ring Message Graph);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_of_another_kind_opening_or_place_is_refused_or_differs() {
        let handle = BUFFER.encode(7, 0x0f_1234, u32::MAX);
        assert_eq!(BUFFER.decode(7, handle).unwrap(), (0x0f_1234, u32::MAX));
        for wrong in [BUFFER.decode(8, handle), TRANSFER.decode(7, handle), BUFFER.decode(7, 0)] {
            assert!(matches!(wrong, Err(Error::Handle(_))));
        }
        let handle = COPY.encode_number(255, 255, 1 << 43);
        assert_eq!(COPY.decode_number(255, handle).unwrap(), (255, 1 << 43));
        assert!(COPY.decode_number(254, handle).is_err() && RING.decode_number(255, handle).is_err());
    }
}

//! Structs that cross into the kernel byte for byte.
//!
//! The invariant: a [`Plain`] type has no implicit padding and every bit pattern is a valid value. So it can be viewed as bytes, read from bytes of
//! any length, and start as zeros. [`plain_struct!`] proves it at compile time.

use core::mem::size_of;

/// A struct of the driver's ABI: may be viewed as bytes and made from bytes.
///
/// # Safety
/// The type is `repr(C)` (or an integer or an array of such), has no padding, and every bit pattern is a value.
pub unsafe trait Plain: Copy {
    /// All bytes zero: what every parameter that is not set must be.
    fn zeroed() -> Self {
        // SAFETY: every bit pattern is a value, so all zeros is one.
        unsafe { core::mem::zeroed() }
    }

    /// The bytes as the kernel sees them.
    fn as_bytes(&self) -> &[u8] {
        // SAFETY: no padding, so all size_of bytes are initialised; the borrow keeps them alive.
        unsafe { core::slice::from_raw_parts((self as *const Self).cast(), size_of::<Self>()) }
    }

    /// The bytes, to be written to.
    fn as_bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: no padding, and every bit pattern is a value, so any write leaves a value.
        unsafe { core::slice::from_raw_parts_mut((self as *mut Self).cast(), size_of::<Self>()) }
    }

    /// The struct at the start of `bytes`; `None` if there are too few.
    fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < size_of::<Self>() { None } else { Some(Self::read_short(bytes)) }
    }

    /// The struct whose first bytes are `bytes`, the rest zero: for records that were cut.
    fn read_short(bytes: &[u8]) -> Self {
        let mut v = Self::zeroed();
        let n = bytes.len().min(size_of::<Self>());
        v.as_bytes_mut()[..n].copy_from_slice(&bytes[..n]);
        v
    }
}

macro_rules! plain_integer {
    ($($t:ty),*) => {$(
        // SAFETY: an integer has no padding and every bit pattern is a value.
        unsafe impl Plain for $t {}
    )*};
}
plain_integer!(u8, u16, u32, u64, i8, i16, i32, i64);

// SAFETY: an array has no padding between elements that have none.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// Declares a struct of the ABI with its size in bytes; refuses to compile when there is padding or the size is wrong.
macro_rules! plain_struct {
    ($($(#[$m:meta])* pub struct $name:ident = $size:literal { $($(#[$fm:meta])* pub $f:ident: $t:ty,)* })*) => {$(
        $(#[$m])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name { $($(#[$fm])* pub $f: $t,)* }

        const _: () = assert!(core::mem::size_of::<$name>() == $size, "size");
        const _: () = assert!(0 $(+ core::mem::size_of::<$t>())* == $size, "padding");
        const _: fn() = || {
            fn plain<T: $crate::abi::Plain>() {}
            $(plain::<$t>();)*
        };
        // SAFETY: repr(C), every field is Plain, and the sizes of the fields add up to the size (asserted above).
        unsafe impl $crate::abi::Plain for $name {}

        impl Default for $name {
            fn default() -> Self {
                $crate::abi::Plain::zeroed()
            }
        }
    )*};
}
pub(crate) use plain_struct;

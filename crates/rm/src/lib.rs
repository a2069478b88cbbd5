//! The kernel driver's ABI.
#![cfg_attr(not(feature = "std"), no_std)]

pub mod abi;

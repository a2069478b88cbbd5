//! Encodes and decodes the words of NVIDIA's command stream.
//!
//! Every other crate that writes or reads commands does it through here, so that encoder and decoder come from one set of class tables. The
//! invariant: no input panics, no word is dropped silently (unknown words are returned raw), and neither `encode` nor `decode` allocates.
//!
//! ```
//! use pushbuf::{decode::Decoder, encode::Words, ops::{Engine, What}};
//!
//! let mut buffer = [0; 16];
//! let mut words = Words::new(&mut buffer);
//! words.copy(4, 0x2_0440_0000, 0x7fff_2000_0000, 4096, 0x182)?;
//!
//! let mut decoder = Decoder::new(0xc86f); // HOPPER_CHANNEL_GPFIFO_A
//! decoder.bind(4, 0xc8b5); // HOPPER_DMA_COPY_A
//! let mut text = String::new();
//! decoder.segment(words.as_slice(), |item| text += &format!("{item}\n"));
//! assert!(text.starts_with("OFFSET_IN_UPPER UPPER=0x2\nOFFSET_IN_LOWER VALUE=0x4400000\n"));
//!
//! let mut engine = Engine::new();
//! engine.segment(&mut decoder, words.as_slice(), |op| {
//!     let What::Copy(copy) = op.what else { panic!("a copy was written") };
//!     assert_eq!((copy.src, copy.dst, copy.bytes()), (0x2_0440_0000, 0x7fff_2000_0000, 4096));
//! });
//! # Ok::<(), pushbuf::encode::Error>(())
//! ```
#![cfg_attr(not(test), no_std)]

#[cfg(feature = "alloc")]
extern crate alloc;

pub mod class;
pub mod copy_times;
pub mod decode;
pub mod encode;
pub mod gpfifo;
pub mod header;
#[cfg(feature = "alloc")]
pub mod ops;
pub mod qmd;
pub mod semaphore;
#[cfg(feature = "alloc")]
pub mod snapshot;
pub mod text;
pub mod userd;

//! The cold zone: what the program asks of the driver.
//!
//! [`calls`] and [`mappings`] write each call down and learn from it; [`model`] keeps what is learnt, [`channels`] runs the
//! lives of channels, [`files`] knows which descriptors are the driver's.

pub mod calls;
mod channels;
pub mod files;
pub mod mappings;
mod model;

use crate::process::region;
use crate::process::renewal::Child;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use rm::abi::{Abi, BRANCHES, Branch, Standing};
use tape::region::trouble;

static UNKNOWN: AtomicBool = AtomicBool::new(false);
static UVM_UNKNOWN: AtomicBool = AtomicBool::new(false);

/// The driver is none that we know: where its channels lie is not trusted, and no doorbell is tapped.
fn distrust() {
    UNKNOWN.store(true, Ordering::Relaxed);
    region::trouble(trouble::UNKNOWN_DRIVER);
}

/// True if the driver's layouts are known, as far as it has said its version.
fn is_trusted() -> bool {
    !UNKNOWN.load(Ordering::Relaxed)
}

/// One more than the index of the driver's branch; 0 as long as it has not said its version.
static BRANCH: AtomicUsize = AtomicUsize::new(0);

/// Whose layouts the program's calls are read with.
fn branch() -> &'static Branch {
    let said = BRANCH.load(Ordering::Relaxed).checked_sub(1);
    said.and_then(|i| BRANCHES.get(i)).unwrap_or_else(Branch::usual)
}

/// The driver says its version.
fn version(text: &str) {
    let abi = Abi::of(text);
    BRANCH.store(abi.branch().index() + 1, Ordering::Relaxed);
    // A call of UVM's carries no size: one that is wrong would be read past the program's struct.
    if abi.standing() != Standing::Known {
        UVM_UNKNOWN.store(true, Ordering::Relaxed);
    }
    // Of a branch that is not known no layout is trusted.
    if abi.standing() == Standing::UnknownBranch {
        distrust();
    }
}

/// True if the sizes of UVM's structs are known, as far as the driver has said its version.
fn is_uvm_known() -> bool {
    !UVM_UNKNOWN.load(Ordering::Relaxed)
}

/// The program ends.
pub fn finish() {
    if !region::active_here() {
        return;
    }
    channels::finish();
    if let Some(c) = region::control() {
        c.state.store(2, Ordering::Release);
    }
}

/// In a forked child: the driver's objects are the parent's. (Descriptors are inherited, so what is known of them stays.)
pub fn renew(_: &Child) {
    model::renew();
}

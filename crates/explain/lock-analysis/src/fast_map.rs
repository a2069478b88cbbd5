//! Maps by small keys (thread numbers, addresses, indices) that are looked up for each event of a tape.
//!
//! The standard hash took a sixth of the time of a walk. This one also begins with a number that differs from run to run.

use std::collections::HashMap;

pub type FastMap<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

//! Streams that were created with a priority, or in a green context.

use serde::{Deserialize, Serialize};

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamKind {
    /// Index of the process image.
    pub process: u32,
    /// Its handle. (After a stream is destroyed, another may get it: this is the last one.)
    #[serde(serialize_with = "crate::wide::hex", deserialize_with = "crate::wide::read_hex")]
    pub stream: u64,
    /// 0 is the default. Work of a stream with a lower number starts first.
    pub priority: i32,
    /// It belongs to a green context.
    pub green: bool,
    /// SMs of the green context; null without one, or if the driver did not give the number.
    pub sms: Option<u32>,
}

impl StreamKind {
    /// `priority -5, green context with 16 SMs`
    pub fn words(&self) -> String {
        let priority = (self.priority != 0).then(|| format!("priority {}", self.priority));
        let sms = self.sms.map_or(String::new(), |n| format!(" with {n} SMs"));
        let green = self.green.then(|| format!("green context{sms}"));
        [priority, green].into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

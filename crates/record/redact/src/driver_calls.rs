//! Driver calls. What a reader of recordings looks at stays, except the numbers that name a GPU of this machine.

use rm::abi::{Abi, Branch};
use rm::call::{Call, FileKind};
use rm::fact::{Fact, What};
use tape::event::IoctlBody;

type Uuid = [u8; 16];

/// The calls of one driver.
#[derive(Debug)]
pub struct DriverCalls {
    /// The driver branch whose layouts the calls have.
    branch: &'static Branch,
    /// The GPUs named so far, if their UUIDs are to be replaced by numbers.
    gpus: Option<Vec<Uuid>>,
}

/// Maximum number of bytes of RM_ALLOC's parameters that readers look at: `rm::abi::ChannelAlloc`.
const ALLOC: usize = size_of::<rm::abi::ChannelAlloc>();

impl DriverCalls {
    /// For the driver with this version.
    pub fn of(driver: &str, replace_uuids: bool) -> DriverCalls {
        DriverCalls { branch: Abi::of(driver).branch(), gpus: replace_uuids.then(Vec::new) }
    }

    /// Zeroes what no reader looks at, and replaces the UUIDs of GPUs.
    pub fn redact(&mut self, body: &IoctlBody, arg: &mut [u8], nested: &mut [u8]) {
        let (argument, parameters) = {
            let call = Call::parse(self.branch, FileKind::from_raw(body.file), body.request, arg, nested);
            let fact = Fact::of(self.branch, &call, body.ret);
            let parameters = match (&call, &fact) {
                (Call::Alloc(_), Some(Fact::Created(c))) => match c.what {
                    What::Client | What::VaSpace | What::Other { engine_type: None } => 0,
                    _ => ALLOC,
                },
                (_, Some(Fact::Token { .. } | Fact::EngineOf { .. })) => 4,
                _ => 0,
            };
            (fact.is_some() || call.status().is_some(), parameters)
        };
        if let Some(unread) = nested.get_mut(parameters..) {
            unread.fill(0);
        }
        if !argument {
            return arg.fill(0);
        }
        let Some(known) = &mut self.gpus else { return };
        let call = Call::parse(self.branch, FileKind::from_raw(body.file), body.request, arg, &[]);
        for uuid in named(self.branch, &call, body.ret) {
            if uuid != Uuid::default() && !known.contains(&uuid) {
                known.push(uuid);
            }
        }
        // A UUID is an array of bytes that follows fields of four or eight bytes.
        for at in (0..arg.len()).step_by(4) {
            if let Some(here) = arg.get_mut(at..at + 16)
                && let Some(n) = known.iter().position(|uuid| here == uuid)
            {
                here.fill(0);
                here[12..].copy_from_slice(&(n as u32 + 1).to_be_bytes());
            }
        }
    }
}

/// The GPUs that a call names.
fn named(branch: &Branch, call: &Call<'_>, ret: i32) -> Vec<Uuid> {
    match (Fact::of(branch, call, ret), call) {
        (Some(Fact::MappedExternal(m)), _) => m.gpus.iter().map(Iterator::collect).unwrap_or_default(),
        (_, Call::UvmRegisterGpu(g)) => vec![g.uuid],
        (_, Call::UvmUnregisterGpu(g) | Call::UvmUnregisterGpuVaspace(g)) => vec![g.uuid],
        (_, Call::UvmRegisterGpuVaspace(g)) => vec![g.uuid],
        (_, Call::UvmRegisterChannel(c)) => vec![c.uuid],
        (_, Call::UvmUnregisterChannel(c)) => vec![c.uuid],
        (_, Call::UvmUnmapExternal(g)) => vec![g.uuid],
        _ => Vec::new(),
    }
}

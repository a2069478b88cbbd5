//! NV_STATUS codes that this driver answers with (`nvstatuscodes.h`).

pub const OK: u32 = 0x00;
pub const GPU_UUID_NOT_FOUND: u32 = 0x12;
pub const INSERT_DUPLICATE_NAME: u32 = 0x19;
pub const INSUFFICIENT_RESOURCES: u32 = 0x1a;
pub const INVALID_ADDRESS: u32 = 0x1e;
pub const INVALID_ARGUMENT: u32 = 0x1f;
pub const INVALID_CHANNEL: u32 = 0x21;
pub const INVALID_CLASS: u32 = 0x22;
pub const INVALID_CLIENT: u32 = 0x23;
pub const INVALID_DEVICE: u32 = 0x26;
pub const INVALID_LIMIT: u32 = 0x2e;
pub const INVALID_OBJECT_HANDLE: u32 = 0x33;
pub const INVALID_OBJECT_PARENT: u32 = 0x36;
pub const INVALID_OFFSET: u32 = 0x37;
pub const INVALID_PARAM_STRUCT: u32 = 0x3a;
pub const INVALID_STATE: u32 = 0x40;
pub const NO_MEMORY: u32 = 0x51;
pub const NOT_SUPPORTED: u32 = 0x56;
pub const OBJECT_NOT_FOUND: u32 = 0x57;
pub const OUT_OF_RANGE: u32 = 0x5b;
pub const STATE_IN_USE: u32 = 0x63;
pub const UVM_ADDRESS_IN_USE: u32 = 0x68;

/// An error status on its way to the caller.
pub type Outcome<T = ()> = Result<T, u32>;

/// The word for the call's status field.
pub fn of(outcome: Outcome) -> u32 {
    match outcome {
        Ok(()) => OK,
        Err(status) => status,
    }
}

//! Protocol buffers, as far as a trace needs them: the encoding, and Perfetto's field numbers by message.
//!
//! Source: `protos/perfetto/trace/trace_packet.proto` and the files that it imports, and the encoding guide of protobuf.

/// A message in the making.
#[derive(Debug, Default)]
pub struct Message(Vec<u8>);

const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const LENGTH: u32 = 2;

impl Message {
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub fn varint(&mut self, field: u32, value: u64) {
        self.tag(field, VARINT);
        push_varint(&mut self.0, value);
    }

    /// `int32` and `int64`: negative numbers have ten bytes.
    pub fn int(&mut self, field: u32, value: i64) {
        self.varint(field, value as u64);
    }

    pub fn fixed64(&mut self, field: u32, value: u64) {
        self.tag(field, FIXED64);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub fn text(&mut self, field: u32, value: &str) {
        self.data(field, value.as_bytes());
    }

    /// A message that is already encoded, or bytes.
    pub fn data(&mut self, field: u32, value: &[u8]) {
        self.tag(field, LENGTH);
        push_varint(&mut self.0, value.len() as u64);
        self.0.extend_from_slice(value);
    }

    /// A message within this one.
    pub fn message(&mut self, field: u32, fill: impl FnOnce(&mut Message)) {
        self.tag(field, LENGTH);
        let from = self.0.len();
        fill(self);
        let mut length = Vec::with_capacity(5);
        push_varint(&mut length, (self.0.len() - from) as u64);
        self.0.splice(from..from, length);
    }

    fn tag(&mut self, field: u32, wire: u32) {
        push_varint(&mut self.0, u64::from(field << 3 | wire));
    }
}

fn push_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub mod trace {
    pub const PACKET: u32 = 1;
}

pub mod trace_packet {
    pub const CLOCK_SNAPSHOT: u32 = 6;
    pub const TIMESTAMP: u32 = 8;
    pub const TRUSTED_PACKET_SEQUENCE_ID: u32 = 10;
    pub const TRACK_EVENT: u32 = 11;
    pub const INTERNED_DATA: u32 = 12;
    pub const SEQUENCE_FLAGS: u32 = 13;
    pub const TRACE_PACKET_DEFAULTS: u32 = 59;
    pub const TRACK_DESCRIPTOR: u32 = 60;
    /// Bits of `sequence_flags`.
    pub const INCREMENTAL_STATE_CLEARED: u64 = 1;
    pub const NEEDS_INCREMENTAL_STATE: u64 = 2;
}

pub mod trace_packet_defaults {
    pub const TIMESTAMP_CLOCK_ID: u32 = 58;
}

pub mod clock_snapshot {
    pub const CLOCKS: u32 = 1;
    pub const PRIMARY_TRACE_CLOCK: u32 = 2;
    pub mod clock {
        pub const CLOCK_ID: u32 = 1;
        pub const TIMESTAMP: u32 = 2;
    }
    /// `BuiltinClock`
    pub const REALTIME: u64 = 1;
    pub const MONOTONIC: u64 = 3;
}

pub mod track_descriptor {
    pub const UUID: u32 = 1;
    pub const NAME: u32 = 2;
    pub const PROCESS: u32 = 3;
    pub const THREAD: u32 = 4;
    pub const PARENT_UUID: u32 = 5;
    pub const CHILD_ORDERING: u32 = 11;
    pub const SIBLING_ORDER_RANK: u32 = 12;
    /// `ChildTracksOrdering`
    pub const EXPLICIT: u64 = 3;
}

pub mod process_descriptor {
    pub const PID: u32 = 1;
    pub const CMDLINE: u32 = 2;
    pub const PROCESS_NAME: u32 = 6;
}

pub mod thread_descriptor {
    pub const PID: u32 = 1;
    pub const TID: u32 = 2;
    pub const THREAD_NAME: u32 = 5;
}

pub mod track_event {
    pub const CATEGORY_IIDS: u32 = 3;
    pub const DEBUG_ANNOTATIONS: u32 = 4;
    pub const TYPE: u32 = 9;
    pub const NAME_IID: u32 = 10;
    pub const TRACK_UUID: u32 = 11;
    /// `fixed64`
    pub const FLOW_IDS: u32 = 47;
    /// `Type`
    pub const SLICE_BEGIN: u64 = 1;
    pub const SLICE_END: u64 = 2;
    pub const INSTANT: u64 = 3;
}

pub mod debug_annotation {
    pub const NAME_IID: u32 = 1;
    pub const BOOL_VALUE: u32 = 2;
    pub const UINT_VALUE: u32 = 3;
    pub const INT_VALUE: u32 = 4;
    pub const DOUBLE_VALUE: u32 = 5;
    pub const POINTER_VALUE: u32 = 7;
    pub const STRING_VALUE: u32 = 6;
    pub const STRING_VALUE_IID: u32 = 17;
}

pub mod interned_data {
    pub const EVENT_CATEGORIES: u32 = 1;
    pub const EVENT_NAMES: u32 = 2;
    pub const DEBUG_ANNOTATION_NAMES: u32 = 3;
    pub const DEBUG_ANNOTATION_STRING_VALUES: u32 = 29;
    /// Fields of `EventCategory`, `EventName`, `DebugAnnotationName` and `InternedString`.
    pub const IID: u32 = 1;
    pub const NAME: u32 = 2;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_texts_and_messages_are_encoded_as_protobuf_does() {
        let mut m = Message::default();
        m.varint(1, 150);
        m.text(2, "testing");
        m.message(3, |m| m.varint(1, 150));
        m.int(4, -1);
        m.fixed64(5, 1);
        let mut expected = vec![0x08, 0x96, 0x01, 0x12, 7];
        expected.extend(b"testing");
        expected.extend([0x1a, 3, 0x08, 0x96, 0x01, 0x20]);
        expected.extend([[0xff; 9].as_slice(), &[1, 0x29, 1, 0, 0, 0, 0, 0, 0, 0]].concat());
        assert_eq!(m.bytes(), expected);
    }

    #[test]
    fn a_long_message_has_a_long_length() {
        let mut m = Message::default();
        m.message(1, |m| m.data(1, &[7; 300]));
        assert_eq!(&m.bytes()[..6], [0x0a, 0xaf, 0x02, 0x0a, 0xac, 0x02]);
        assert_eq!(m.bytes().len(), 3 + 3 + 300);
    }
}

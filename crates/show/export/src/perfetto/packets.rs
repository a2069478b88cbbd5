//! Packets of one sequence: repeated strings are written once and then referred to by number.

use super::proto::{
    Message, clock_snapshot, debug_annotation, interned_data, trace, trace_packet, trace_packet_defaults, track_event,
};
use std::collections::HashMap;
use std::io::{self, Write};

/// The sequence of all packets.
const SEQUENCE: u64 = 1;
/// Bytes of the strings that have numbers at a time; beyond that the numbers restart.
const KNOWN: usize = 4 << 20;

/// Writes packets.
pub struct Packets<'a> {
    out: &'a mut dyn Write,
    packet: Message,
    /// Strings that the packet at hand is the first to name.
    fresh: Message,
    event: Message,
    /// By kind.
    known: [HashMap<Box<str>, u64>; 4],
    /// Bytes of all of these.
    bytes: usize,
    numbers: u64,
    begun: bool,
}

/// Each kind of string has separate numbers.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Category,
    Name,
    Argument,
    Text,
}

impl Kind {
    fn field(self) -> u32 {
        match self {
            Kind::Category => interned_data::EVENT_CATEGORIES,
            Kind::Name => interned_data::EVENT_NAMES,
            Kind::Argument => interned_data::DEBUG_ANNOTATION_NAMES,
            Kind::Text => interned_data::DEBUG_ANNOTATION_STRING_VALUES,
        }
    }
}

/// What happens on a track.
#[derive(Clone, Copy, Debug)]
pub enum What<'a> {
    /// A slice that [`What::End`] ends; without an end it is not finished.
    Begin(&'a str),
    End,
    Instant(&'a str),
}

impl<'a> Packets<'a> {
    pub fn new(out: &'a mut dyn Write) -> Packets<'a> {
        let (packet, fresh, event) = Default::default();
        Packets { out, packet, fresh, event, known: Default::default(), bytes: 0, numbers: 0, begun: false }
    }

    /// Clocks that were read together. Times of events are of CLOCK_MONOTONIC.
    pub fn clocks(&mut self, monotonic_ns: u64, realtime_ns: Option<u64>) -> io::Result<()> {
        let readings = [(clock_snapshot::MONOTONIC, Some(monotonic_ns)), (clock_snapshot::REALTIME, realtime_ns)];
        self.packet.message(trace_packet::CLOCK_SNAPSHOT, |m| {
            for (clock, ns) in readings.into_iter().filter_map(|(clock, ns)| Some((clock, ns?))) {
                m.message(clock_snapshot::CLOCKS, |m| {
                    m.varint(clock_snapshot::clock::CLOCK_ID, clock);
                    m.varint(clock_snapshot::clock::TIMESTAMP, ns);
                });
            }
            m.varint(clock_snapshot::PRIMARY_TRACE_CLOCK, clock_snapshot::MONOTONIC);
        });
        self.write()
    }

    /// A track.
    pub fn track(&mut self, fill: impl FnOnce(&mut Message)) -> io::Result<()> {
        self.packet.message(trace_packet::TRACK_DESCRIPTOR, fill);
        self.write()
    }

    /// An event at a time in ns. `fill` adds flows and arguments.
    pub fn event(
        &mut self,
        ns: u64,
        track: u64,
        category: &str,
        what: What<'_>,
        fill: impl FnOnce(&mut Event<'_, 'a>),
    ) -> io::Result<()> {
        if !self.begun || self.bytes >= KNOWN {
            self.begin()?;
        }
        self.event.clear();
        let (kind, name) = match what {
            What::Begin(name) => (track_event::SLICE_BEGIN, Some(name)),
            What::End => (track_event::SLICE_END, None),
            What::Instant(name) => (track_event::INSTANT, Some(name)),
        };
        self.event.varint(track_event::TYPE, kind);
        self.event.varint(track_event::TRACK_UUID, track);
        if let Some(name) = name {
            let (category, name) = (self.number(Kind::Category, category), self.number(Kind::Name, name));
            self.event.varint(track_event::CATEGORY_IIDS, category);
            self.event.varint(track_event::NAME_IID, name);
        }
        fill(&mut Event { packets: self });
        self.packet.varint(trace_packet::TIMESTAMP, ns);
        self.packet.varint(trace_packet::SEQUENCE_FLAGS, trace_packet::NEEDS_INCREMENTAL_STATE);
        if !self.fresh.is_empty() {
            self.packet.data(trace_packet::INTERNED_DATA, self.fresh.bytes());
            self.fresh.clear();
        }
        self.packet.data(trace_packet::TRACK_EVENT, self.event.bytes());
        self.write()
    }

    /// The numbers of strings restart.
    fn begin(&mut self) -> io::Result<()> {
        self.begun = true;
        self.known.iter_mut().for_each(HashMap::clear);
        (self.bytes, self.numbers) = (0, 0);
        self.packet.varint(trace_packet::SEQUENCE_FLAGS, trace_packet::INCREMENTAL_STATE_CLEARED);
        self.packet.message(trace_packet::TRACE_PACKET_DEFAULTS, |m| {
            m.varint(trace_packet_defaults::TIMESTAMP_CLOCK_ID, clock_snapshot::MONOTONIC);
        });
        self.write()
    }

    fn number(&mut self, kind: Kind, text: &str) -> u64 {
        let known = &mut self.known[kind as usize];
        if let Some(number) = known.get(text) {
            return *number;
        }
        self.numbers += 1;
        // (Including the size of an entry of a map.)
        self.bytes += text.len() + 48;
        let next = self.numbers;
        known.insert(text.into(), next);
        self.fresh.message(kind.field(), |m| {
            m.varint(interned_data::IID, next);
            m.text(interned_data::NAME, text);
        });
        next
    }

    fn write(&mut self) -> io::Result<()> {
        self.packet.varint(trace_packet::TRUSTED_PACKET_SEQUENCE_ID, SEQUENCE);
        let mut head = Message::default();
        head.data(trace::PACKET, self.packet.bytes());
        self.packet.clear();
        self.out.write_all(head.bytes())
    }
}

/// An event to which flows and arguments can be added.
pub struct Event<'p, 'a> {
    packets: &'p mut Packets<'a>,
}

impl Event<'_, '_> {
    /// Joins it with the events of the same flow, in the order of time.
    pub fn flow(&mut self, id: u64) -> &mut Self {
        self.packets.event.fixed64(track_event::FLOW_IDS, id);
        self
    }

    pub fn text(&mut self, name: &'static str, value: &str) -> &mut Self {
        let number = self.packets.number(Kind::Text, value);
        self.argument(name, |m| m.varint(debug_annotation::STRING_VALUE_IID, number))
    }

    /// A text that will not be repeated.
    pub fn text_once(&mut self, name: &'static str, value: &str) -> &mut Self {
        self.argument(name, |m| m.text(debug_annotation::STRING_VALUE, value))
    }

    pub fn uint(&mut self, name: &'static str, value: u64) -> &mut Self {
        self.argument(name, |m| m.varint(debug_annotation::UINT_VALUE, value))
    }

    pub fn int(&mut self, name: &'static str, value: i64) -> &mut Self {
        self.argument(name, |m| m.int(debug_annotation::INT_VALUE, value))
    }

    pub fn double(&mut self, name: &'static str, value: f64) -> &mut Self {
        self.argument(name, |m| m.fixed64(debug_annotation::DOUBLE_VALUE, value.to_bits()))
    }

    pub fn flag(&mut self, name: &'static str, value: bool) -> &mut Self {
        self.argument(name, |m| m.varint(debug_annotation::BOOL_VALUE, value.into()))
    }

    /// An address or a handle: shown in hexadecimal.
    pub fn pointer(&mut self, name: &'static str, value: u64) -> &mut Self {
        self.argument(name, |m| m.varint(debug_annotation::POINTER_VALUE, value))
    }

    fn argument(&mut self, name: &'static str, value: impl FnOnce(&mut Message)) -> &mut Self {
        let number = self.packets.number(Kind::Argument, name);
        self.packets.event.message(track_event::DEBUG_ANNOTATIONS, |m| {
            m.varint(debug_annotation::NAME_IID, number);
            value(m);
        });
        self
    }
}

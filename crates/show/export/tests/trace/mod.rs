//! Reads traces for Perfetto by its published schema (`perfetto.tsv`): packets, tracks, events, and the texts to which they refer by number.

use std::collections::HashMap;
use std::sync::LazyLock;

/// A field of a message, or a value of an enum.
struct Declared {
    message: &'static str,
    name: &'static str,
    number: u64,
    single: bool,
    kind: &'static str,
}

static SCHEMA: LazyLock<Vec<Declared>> = LazyLock::new(|| {
    let lines = include_str!("perfetto.tsv").lines().filter(|l| !l.starts_with('#'));
    let declared = lines.map(|line| {
        let [message, name, number, count, kind] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
        Declared { message, name, number: number.parse().unwrap(), single: count == "single", kind }
    });
    declared.collect()
});

fn declared(message: &str, number: u64) -> &'static Declared {
    let found = SCHEMA.iter().find(|d| d.message == message && d.number == number);
    found.unwrap_or_else(|| panic!("{message} {number} is not in the schema"))
}

fn is_enum(kind: &str) -> bool {
    SCHEMA.iter().any(|d| d.message == kind && d.kind == "-")
}

/// The fields of a message: name and value. They have the schema's types, and a single one comes once.
pub fn fields<'a>(message: &str, mut bytes: &'a [u8]) -> Vec<(&'static str, Field<'a>)> {
    let mut all: Vec<(&'static str, Field<'a>)> = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let is = declared(message, tag >> 3);
        let wire = match is.kind {
            "uint64" | "int64" | "uint32" | "int32" | "bool" => 0,
            "fixed64" | "double" => 1,
            kind if is_enum(kind) => 0,
            _ => 2,
        };
        assert_eq!(tag & 7, wire, "{message}.{} is {}", is.name, is.kind);
        let value = match wire {
            0 if is_enum(is.kind) => Field::Name(declared(is.kind, varint(&mut bytes)).name),
            0 => Field::Number(varint(&mut bytes)),
            1 => Field::Number(u64::from_le_bytes(take(&mut bytes, 8).try_into().unwrap())),
            _ => {
                let n = varint(&mut bytes) as usize;
                Field::Bytes(take(&mut bytes, n))
            }
        };
        assert!(!is.single || all.iter().all(|(name, _)| *name != is.name), "{message} has two {}", is.name);
        all.push((is.name, value));
    }
    all
}

#[derive(Clone, Copy, Debug)]
pub enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// Of an enum.
    Name(&'static str),
}

impl<'a> Field<'a> {
    pub fn number(self) -> u64 {
        match self {
            Field::Number(n) => n,
            other => panic!("no number: {other:?}"),
        }
    }

    pub fn bytes(self) -> &'a [u8] {
        match self {
            Field::Bytes(b) => b,
            other => panic!("no bytes: {other:?}"),
        }
    }

    pub fn text(self) -> String {
        String::from_utf8(self.bytes().to_vec()).unwrap()
    }
}

fn take<'a>(bytes: &mut &'a [u8], n: usize) -> &'a [u8] {
    let (head, rest) = bytes.split_at(n);
    *bytes = rest;
    head
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let byte = take(bytes, 1)[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    value
}

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Number(u64),
    Double(f64),
    Text(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Begin,
    End,
    Instant,
}

#[derive(Clone, Debug)]
pub struct Event {
    pub ns: u64,
    pub track: u64,
    pub kind: Kind,
    pub category: String,
    pub name: String,
    pub flows: Vec<u64>,
    pub arguments: Vec<(String, Value)>,
}

impl Event {
    pub fn number(&self, name: &str) -> u64 {
        match self.argument(name) {
            Value::Number(n) => *n,
            v => panic!("{name}: {v:?}"),
        }
    }

    pub fn double(&self, name: &str) -> f64 {
        match self.argument(name) {
            Value::Double(v) => *v,
            v => panic!("{name}: {v:?}"),
        }
    }

    pub fn text(&self, name: &str) -> &str {
        match self.argument(name) {
            Value::Text(t) => t,
            v => panic!("{name}: {v:?}"),
        }
    }

    fn argument(&self, name: &str) -> &Value {
        let found = self.arguments.iter().find(|(n, _)| n == name);
        &found.unwrap_or_else(|| panic!("no {name}: {self:?}")).1
    }
}

#[derive(Debug, Default)]
pub struct Trace {
    pub events: Vec<Event>,
    /// By number: parent and name; those of processes and threads have pid and tid.
    pub tracks: HashMap<u64, (Option<u64>, String)>,
    /// Clock readings: clock and ns.
    pub clocks: Vec<Vec<(&'static str, u64)>>,
    /// Names of arguments, with the field of `DebugAnnotation` that has their value.
    pub argument_types: HashMap<String, &'static str>,
}

/// Names of strings by field of `InternedData` and number.
type Known = HashMap<(&'static str, u64), String>;

impl Trace {
    pub fn read(bytes: &[u8]) -> Trace {
        let (mut trace, mut known) = (Trace::default(), Known::new());
        for (_, packet) in fields("Trace", bytes) {
            trace.packet(packet.bytes(), &mut known);
        }
        trace
    }

    fn packet(&mut self, bytes: &[u8], known: &mut Known) {
        let packet = fields("TracePacket", bytes);
        let find = |name: &str| packet.iter().find(|f| f.0 == name).map(|f| f.1);
        assert_eq!(find("trusted_packet_sequence_id").map(Field::number), Some(1), "of the only sequence");
        if let Some(flags) = find("sequence_flags") {
            match declared("TracePacket.SequenceFlags", flags.number()).name {
                "SEQ_INCREMENTAL_STATE_CLEARED" => known.clear(),
                name => assert_eq!(name, "SEQ_NEEDS_INCREMENTAL_STATE"),
            }
        }
        if let Some(defaults) = find("trace_packet_defaults") {
            let [("timestamp_clock_id", clock)] = fields("TracePacketDefaults", defaults.bytes())[..] else {
                panic!("other defaults")
            };
            assert_eq!(declared("BuiltinClock", clock.number()).name, "BUILTIN_CLOCK_MONOTONIC");
        }
        for (kind, entry) in find("interned_data").into_iter().flat_map(|data| fields("InternedData", data.bytes())) {
            let message = SCHEMA.iter().find(|d| d.message == "InternedData" && d.name == kind).unwrap().kind;
            let [("iid", number), ("name" | "str", text)] = fields(message, entry.bytes())[..] else {
                panic!("{kind}")
            };
            known.insert((kind, number.number()), text.text());
        }
        if let Some(track) = find("track_descriptor") {
            self.track(track.bytes());
        }
        if let Some(snapshot) = find("clock_snapshot") {
            let snapshot = fields("ClockSnapshot", snapshot.bytes());
            let (clocks, rest): (Vec<_>, Vec<_>) = snapshot.into_iter().partition(|f| f.0 == "clocks");
            assert!(matches!(rest[..], [("primary_trace_clock", Field::Name("BUILTIN_CLOCK_MONOTONIC"))]), "{rest:?}");
            let read = clocks.iter().map(|(_, clock)| {
                let [("clock_id", id), ("timestamp", ns)] = fields("ClockSnapshot.Clock", clock.bytes())[..] else {
                    panic!("{clock:?}")
                };
                (declared("BuiltinClock", id.number()).name, ns.number())
            });
            self.clocks.push(read.collect());
        }
        if let Some(event) = find("track_event") {
            self.event(find("timestamp").unwrap().number(), event.bytes(), known);
        }
    }

    fn track(&mut self, bytes: &[u8]) {
        let track = fields("TrackDescriptor", bytes);
        let find = |name: &str| track.iter().find(|f| f.0 == name).map(|f| f.1);
        let named = |what: &str, message: &str, number: &str| {
            let inner = fields(message, find(what)?.bytes());
            let of = inner.iter().find(|f| f.0 == number).map(|f| f.1.number() as i64);
            Some(format!("{what} {}", of?))
        };
        let name = find("name").map(Field::text).or_else(|| named("process", "ProcessDescriptor", "pid"));
        let name = name.or_else(|| named("thread", "ThreadDescriptor", "tid")).unwrap();
        let old = self.tracks.insert(find("uuid").unwrap().number(), (find("parent_uuid").map(Field::number), name));
        assert!(old.is_none(), "a track is described once");
    }

    fn event(&mut self, ns: u64, bytes: &[u8], known: &Known) {
        let name = |kind: &'static str, number: Field<'_>| known[&(kind, number.number())].clone();
        let mut e = Event {
            ns,
            track: 0,
            kind: Kind::End,
            category: String::new(),
            name: String::new(),
            flows: Vec::new(),
            arguments: Vec::new(),
        };
        for (field, value) in fields("TrackEvent", bytes) {
            match (field, value) {
                ("category_iids", number) => e.category = name("event_categories", number),
                ("debug_annotations", argument) => {
                    let [("name_iid", number), value] = fields("DebugAnnotation", argument.bytes())[..] else {
                        panic!("{argument:?}")
                    };
                    let is = match value {
                        ("string_value_iid", number) => Value::Text(name("debug_annotation_string_values", number)),
                        ("string_value", text) => Value::Text(text.text()),
                        ("double_value", bits) => Value::Double(f64::from_bits(bits.number())),
                        (_, number) => Value::Number(number.number()),
                    };
                    let argument = name("debug_annotation_names", number);
                    self.argument_types.insert(argument.clone(), value.0);
                    e.arguments.push((argument, is));
                }
                ("type", Field::Name("TYPE_SLICE_BEGIN")) => e.kind = Kind::Begin,
                ("type", Field::Name("TYPE_SLICE_END")) => e.kind = Kind::End,
                ("type", Field::Name("TYPE_INSTANT")) => e.kind = Kind::Instant,
                ("name_iid", number) => e.name = name("event_names", number),
                ("track_uuid", number) => e.track = number.number(),
                ("flow_ids", number) => e.flows.push(number.number()),
                other => panic!("{other:?} in an event"),
            }
        }
        assert!(self.tracks.contains_key(&e.track), "{e:?} is on a track that was described before");
        self.events.push(e);
    }

    pub fn of<'a>(&'a self, category: &'a str) -> impl Iterator<Item = &'a Event> {
        self.events.iter().filter(move |e| e.category == category && e.kind != Kind::End)
    }

    /// The name of its track, such as `lock waits`.
    pub fn place(&self, e: &Event) -> &str {
        &self.tracks[&e.track].1
    }

    /// Every slice ends at its stated end, if a reader sorts by time and ends the innermost slice.
    pub fn assert_nested(&self) {
        for track in self.tracks.keys() {
            let events: Vec<&Event> = self.events.iter().filter(|e| e.track == *track).collect();
            let mut mates = HashMap::new();
            for (i, e) in events.iter().enumerate().filter(|(_, e)| e.kind == Kind::Begin) {
                // (The end is the next event in the file.)
                if let Some(n) = events[i..].iter().position(|e| e.kind == Kind::End) {
                    mates.insert(i, i + n);
                }
                assert!(
                    events[i + 1..].iter().take_while(|e| e.kind != Kind::End).all(|e| e.kind == Kind::Instant),
                    "{e:?}"
                );
            }
            let mut order: Vec<usize> = (0..events.len()).collect();
            order.sort_by_key(|&i| events[i].ns);
            let mut open = Vec::new();
            for i in order {
                match events[i].kind {
                    Kind::Begin => open.push(i),
                    Kind::Instant => {}
                    Kind::End => assert_eq!(mates[&open.pop().unwrap()], i, "{:?} {:?}", events[i], self.tracks[track]),
                }
            }
        }
    }
}

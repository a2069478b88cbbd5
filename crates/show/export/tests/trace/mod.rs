//! Reads traces for Perfetto, as far as these tests need it: packets, tracks, events, and the texts to which they refer by number.

use std::collections::HashMap;

/// The fields of a message: number and value.
pub fn fields(mut bytes: &[u8]) -> Vec<(u32, Field<'_>)> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let value = match tag & 7 {
            0 => Field::Number(varint(&mut bytes)),
            1 => Field::Number(u64::from_le_bytes(take(&mut bytes, 8).try_into().unwrap())),
            2 => {
                let n = varint(&mut bytes) as usize;
                Field::Bytes(take(&mut bytes, n))
            }
            wire => panic!("wire type {wire}"),
        };
        all.push(((tag >> 3) as u32, value));
    }
    all
}

#[derive(Clone, Copy, Debug)]
pub enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Field<'a> {
    pub fn number(self) -> u64 {
        match self {
            Field::Number(n) => n,
            Field::Bytes(_) => panic!("bytes"),
        }
    }

    pub fn bytes(self) -> &'a [u8] {
        match self {
            Field::Bytes(b) => b,
            Field::Number(_) => panic!("a number"),
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
    Text(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Begin = 1,
    End = 2,
    Instant = 3,
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
    pub clocks: Vec<Vec<(u64, u64)>>,
}

/// Names of strings by field of `InternedData` and number.
type Known = HashMap<(u32, u64), String>;

impl Trace {
    pub fn read(bytes: &[u8]) -> Trace {
        let (mut trace, mut known) = (Trace::default(), Known::new());
        for (number, packet) in fields(bytes) {
            assert_eq!(number, 1, "a trace has packets");
            trace.packet(packet.bytes(), &mut known);
        }
        trace
    }

    fn packet(&mut self, bytes: &[u8], known: &mut Known) {
        let packet = fields(bytes);
        let find = |number: u32| packet.iter().find(|f| f.0 == number).map(|f| f.1);
        assert_eq!(find(10).map(Field::number), Some(1), "of the only sequence");
        if find(13).is_some_and(|flags| flags.number() & 1 != 0) {
            known.clear();
        }
        for (kind, entry) in find(12).into_iter().flat_map(|interned| fields(interned.bytes())) {
            let entry = fields(entry.bytes());
            known.insert((kind, entry[0].1.number()), entry[1].1.text());
        }
        if let Some(track) = find(60) {
            self.track(track.bytes());
        }
        if let Some(snapshot) = find(6) {
            let clocks = fields(snapshot.bytes()).into_iter().filter(|f| f.0 == 1);
            let read = clocks.map(|(_, clock)| fields(clock.bytes()));
            self.clocks.push(read.map(|clock| (clock[0].1.number(), clock[1].1.number())).collect());
        }
        if let Some(event) = find(11) {
            self.event(find(8).unwrap().number(), event.bytes(), known);
        }
    }

    fn track(&mut self, bytes: &[u8]) {
        let track = fields(bytes);
        let find = |number: u32| track.iter().find(|f| f.0 == number).map(|f| f.1);
        let named = |field: Option<Field<'_>>, what: &str, number: u32| {
            let inner = fields(field?.bytes());
            let of = inner.iter().find(|f| f.0 == number).map(|f| f.1.number() as i64);
            Some(format!("{what} {}", of?))
        };
        let name =
            find(2).map(Field::text).or_else(|| named(find(3), "process", 1)).or_else(|| named(find(4), "thread", 2));
        let old = self.tracks.insert(find(1).unwrap().number(), (find(5).map(Field::number), name.unwrap()));
        assert!(old.is_none(), "a track is described once");
    }

    fn event(&mut self, ns: u64, bytes: &[u8], known: &Known) {
        let name = |kind: u32, number: u64| known[&(kind, number)].clone();
        let mut e = Event {
            ns,
            track: 0,
            kind: Kind::End,
            category: String::new(),
            name: String::new(),
            flows: Vec::new(),
            arguments: Vec::new(),
        };
        for (number, value) in fields(bytes) {
            match number {
                3 => e.category = name(1, value.number()),
                4 => {
                    let argument = fields(value.bytes());
                    let is = match argument[1] {
                        (17, number) => Value::Text(name(29, number.number())),
                        (6, text) => Value::Text(text.text()),
                        (_, number) => Value::Number(number.number()),
                    };
                    e.arguments.push((name(3, argument[0].1.number()), is));
                }
                9 => e.kind = [Kind::Begin, Kind::End, Kind::Instant][value.number() as usize - 1],
                10 => e.name = name(2, value.number()),
                11 => e.track = value.number(),
                47 => e.flows.push(value.number()),
                other => panic!("field {other} of an event"),
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

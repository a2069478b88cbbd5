//! Every reader of the crate on the same bytes, with what must hold for any bytes. The fuzz target and an ordinary test share it.
//!
//! An input is one byte that selects classes, one byte that determines where the stream is cut into segments, and the words of the stream.

use std::fmt::{self, Write as _};

use pushbuf::decode::{Decoder, Item, words_of};
use pushbuf::gpfifo::Entry;
use pushbuf::header::Header;
use pushbuf::ops::{Engine, What};
use pushbuf::qmd::{LAYOUTS, Qmd};
use pushbuf::semaphore::Execute;

/// Takes text and keeps only its length.
struct Length(usize);

impl fmt::Write for Length {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        self.0 += s.len();
        Ok(())
    }
}

fn text(value: &impl fmt::Display) -> usize {
    let mut length = Length(0);
    write!(length, "{value}").expect("Length takes any text");
    length.0
}

const HOSTS: [u32; 8] = [0xc36f, 0xc46f, 0xc56f, 0xc76f, 0xc86f, 0xc96f, 0xca6f, 0];
const COMPUTE: [u32; 8] = [0xc3c0, 0xc5c0, 0xc6c0, 0xc7c0, 0xc9c0, 0xcbc0, 0xcdc0, 0xcec0];
const COPY: [u32; 8] = [0xc3b5, 0xc5b5, 0xc6b5, 0xc7b5, 0xc8b5, 0xc9b5, 0xcab5, 0xc8c0];

pub fn check(data: &[u8]) {
    let [classes, cut, stream @ ..] = data else { return };
    let pick = usize::from(*classes);
    let words: Vec<u32> = words_of(stream).collect();

    for &word in &words {
        assert_eq!(Header::parse(word).encode(), word);
        assert_eq!(Execute::parse(word).encode(), word);
    }
    let mut decoder = Decoder::new(HOSTS[pick % 8]);
    decoder.bind(1, COMPUTE[pick / 8 % 8]);
    decoder.bind(2, 0xa140);
    decoder.bind(4, COPY[pick / 16 % 8]);
    for pair in stream.chunks_exact(8) {
        let raw = u64::from_le_bytes(pair.try_into().expect("chunks of 8"));
        let entry = Entry::parse(raw);
        assert_eq!(entry.encode(), raw);
        assert!(text(&entry) > 0);
        let place = decoder.entry(&entry);
        assert_eq!(place.is_some(), matches!(entry, Entry::Segment(_)));
    }

    let mut engine = Engine::new();
    let cut = usize::from(*cut).min(words.len());
    for segment in [&words[..cut], &words[cut..]] {
        let mut next = 0;
        let mut ops = Vec::new();
        decoder.segment(segment, |item| {
            next = position(&item, next, segment.len());
            assert!(text(&item) > 0);
            engine.item(&item, &mut |op| ops.push(*op));
        });
        engine.end_segment(&mut |op| ops.push(*op));
        for op in ops {
            assert!(op.at.segment < engine.segments());
            if let What::Launch(launch) = op.what {
                launch.qmd.inspect(look);
            }
        }
    }

    if let Some(qmd) = Qmd::parse(&words) {
        look(&qmd);
    }
    // One version an input: there are several hundred fields in all.
    if let Some(layout) = LAYOUTS.get(pick % 64) {
        Qmd::with_layout(layout, &words).inspect(|qmd| {
            look(qmd);
            put_back(qmd);
        });
    }
}

/// Items are in the order of their words and within the segment.
fn position(item: &Item<'_>, next: usize, len: usize) -> usize {
    let (at, words) = match item {
        Item::Write(w) => (w.word_index, 1),
        Item::Run(r) => (r.word_index, r.words.len()),
        Item::Skipped { word_index, words } => (*word_index, words.len()),
        Item::Nop { word_index, .. }
        | Item::SubdeviceMask { word_index, .. }
        | Item::EndSegment { word_index, .. }
        | Item::Unknown { word_index, .. } => (*word_index, 1),
    };
    // At most one word between two items belongs to neither: the header of the second.
    assert!((next..=next + 1).contains(&(at as usize)), "{item:?} after word {next}");
    assert!(at as usize + words <= len);
    at as usize + words
}

fn look(qmd: &Qmd) {
    assert!(text(qmd) > 0);
    let _ = (qmd.grid(), qmd.block(), qmd.cluster(), qmd.registers(), qmd.shared_memory(), qmd.program_address());
    let _ = (qmd.releases().count(), (0..9).filter_map(|i| qmd.constant_buffer(i)).count());
}

fn put_back(qmd: &Qmd) {
    for value in qmd.fields() {
        let mut copy = *qmd;
        copy.set_element(value.field.name, value.index.unwrap_or(0), value.value).expect("what was read fits");
        assert!(copy == *qmd, "{value}");
    }
}

//! Random pushbuffers against the validator.
//!
//! Each pushbuffer is made of operations with good, nearly good and wild addresses, and is then corrupted: bits flip, words are swapped, lost,
//! doubled or replaced. The decoder that reads recordings is a second reader. It predicts the effect of a pushbuffer that passed validation: it
//! may name only memory that was given to it, and only methods of the list below. On the software GPU it is also executed, and the channel must
//! survive.

use doorbell_softgpu::{Mode, Planted, SoftDriver};
use fastrand::Rng;
use gpu::{Channel, Engine, Memory, Pushbuffer, Rules, Semaphore, Validated, check};
use pushbuf::decode::{Decoder, Item};
use pushbuf::encode::{Lines, Words, inline_dma, launch_dma};
use pushbuf::ops::{self, Layout, Op, Space, What};
use pushbuf::semaphore::{Execute, Operation};
use rm::class;
use sample_programs::checks::{Ground, Rig, Stop};
use std::collections::VecDeque;
use std::sync::Arc;

const COUNT: usize = 100_000;
/// Words of the longest pushbuffer.
const ROOM: usize = 512;
const MEMORY: u64 = 0x1_0000;
/// An executed pushbuffer moves no more bytes than this.
const MOST_BYTES: u64 = 1 << 20;
/// Pushbuffers that are executed between two waits.
const BATCH: usize = 16;

/// Methods by byte offset, first and last: the host's, on any subchannel.
const HOST: &[(u16, u16)] = &[(0x08, 0x08), (0x5c, 0x6c), (0x78, 0x78)];
/// The copy engine's, on subchannel 4.
const COPY: &[(u16, u16)] = &[(0, 0), (0x100, 0x100), (0x240, 0x24c), (0x300, 0x300), (0x400, 0x41c), (0x700, 0x708)];
/// Methods of compute, on subchannel 1, without launches.
const COMPUTE: &[(u16, u16)] =
    &[(0, 0), (0x100, 0x100), (0x110, 0x110), (0x158, 0x168), (0x180, 0x190), (0x1b0, 0x1b4), (0x1b00, 0x1b0c)];

/// None passes that names forbidden memory or methods.
#[test]
fn random_pushbuffers_that_pass_do_nothing_forbidden() {
    random(&Ground::soft(Arc::new(SoftDriver::new(Mode::Strict)))).unwrap();
}

#[test]
fn a_channel_that_dies_is_noticed() {
    let driver = SoftDriver::broken(Mode::Strict, Planted::DeadChannel { entry: 40, xid: 31 });
    let stopped = random(&Ground::soft(Arc::new(driver))).unwrap_err();
    assert!(matches!(&stopped, Stop::Failed(why) if why.contains("killed by error 31")), "{stopped:?}");
}

fn random(ground: &Ground) -> Result<(), Stop> {
    let rig = ground.open()?;
    let memories = [rig.memory(true, MEMORY)?, rig.memory(false, MEMORY)?];
    let mut random = Rng::with_seed(ground.seed);
    for engine in [rig.copy_engine()?, Engine::Graphics] {
        let channel = rig.small_channel(engine, 64)?;
        let mut field = Field {
            graphics: engine == Engine::Graphics,
            named: memories.iter().map(|memory| (memory.va(), memory.length())).collect(),
            forbidden: channel.gpfifo_va(),
        };
        let mut executor = Executor::new(&rig, channel)?;
        field.named.push((executor.done.va() & !0xfff, 0x1000));
        let mut passed = 0;
        for n in 0..COUNT / 2 {
            let words = field.pushbuffer(&mut random, &memories[0], &memories[1]);
            let architecture = rig.space.device().architecture();
            let rules =
                Rules { architecture, graphics: field.graphics, copies: false, launches: &[], space: &*rig.space };
            if check(&words, &rules).is_err() {
                continue;
            }
            passed += 1;
            let seen = field.read(&words).map_err(|why| {
                Stop::Failed(format!("pushbuffer {n} for {engine:?} was let through: {why}: {}", hex(&words)))
            })?;
            if seen.harmless() {
                executor.execute(&rig, &words)?;
            }
        }
        executor.settle(&rig)?;
        // If every generated pushbuffer or none is refused, the generator is useless.
        assert!(passed > COUNT / 50 && passed < COUNT / 2, "{passed} of {} passed", COUNT / 2);
    }
    Ok(())
}

fn random_bytes(random: &mut Rng, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    random.fill(&mut bytes);
    bytes
}

fn hex(words: &[u32]) -> String {
    words.iter().map(|word| format!("{word:08x}")).collect::<Vec<_>>().join(" ")
}

/// What a validated pushbuffer would do.
#[derive(Default)]
struct Seen {
    bytes: u64,
    /// It may wait forever.
    acquires: bool,
}

impl Seen {
    fn harmless(&self) -> bool {
        !self.acquires && self.bytes <= MOST_BYTES
    }
}

/// What is allowed, stated without the validator.
struct Field {
    graphics: bool,
    /// First address and length.
    named: Vec<(u64, u64)>,
    /// An address that is mapped but must not be named.
    forbidden: u64,
}

impl Field {
    fn inside(&self, va: u64, length: u64) -> Result<(), String> {
        let holds = |&(start, size): &(u64, u64)| {
            va >= start && u128::from(va) + u128::from(length) <= u128::from(start) + u128::from(size)
        };
        if length == 0 || self.named.iter().any(holds) {
            return Ok(());
        }
        Err(format!("{length} bytes at {va:#x}"))
    }

    fn lines(&self, va: u64, pitch: u32, length: u64, lines: u32) -> Result<(), String> {
        // The engine's behaviour is undefined then, so this must not be requested.
        if lines == 0 {
            return Err("no lines".into());
        }
        // A pitch is signed.
        (0..i128::from(lines)).try_for_each(|line| {
            let at = i128::from(va) + line * i128::from(pitch as i32);
            self.inside(u64::try_from(at).map_err(|_| format!("line {line} of {va:#x}"))?, length)
        })
    }

    fn method(&self, subch: u8, address: u16, host: bool) -> Result<(), String> {
        let list = match (host, self.graphics, subch) {
            (true, ..) => HOST,
            (false, true, 1) => COMPUTE,
            (false, false, 4) => COPY,
            _ => return Err(format!("a method on subchannel {subch}")),
        };
        let known = list.iter().any(|(first, last)| (*first..=*last).contains(&address));
        if known { Ok(()) } else { Err(format!("method {address:#x} on subchannel {subch}")) }
    }

    /// The effect of the words according to the decoder of recordings, or the mistake in them.
    fn read(&self, words: &[u32]) -> Result<Seen, String> {
        let mut decoder = Decoder::new(class::HOPPER_CHANNEL_GPFIFO_A);
        let (subch, engine_class) =
            if self.graphics { (1, class::HOPPER_COMPUTE_A) } else { (4, class::HOPPER_DMA_COPY_A) };
        decoder.bind(subch, engine_class);
        let mut engine = ops::Engine::new();
        let (mut seen, mut wrong) = (Seen::default(), None);
        let mut note = |result: Result<(), String>| {
            if let Err(why) = result {
                wrong.get_or_insert(why);
            }
        };
        decoder.segment(words, |item| {
            match item {
                // SET_OBJECT belongs to the engine, whatever its address.
                Item::Write(w) => note(self.method(w.target.subch, w.address, w.host && w.address != 0)),
                Item::Run(r) => note(self.method(r.target.subch, r.address, r.host && r.address != 0)),
                Item::Nop { .. } => {}
                other => note(Err(format!("{other:?}"))),
            }
            engine.item(&item, &mut |op| note(self.operation(op, &mut seen)));
        });
        engine.end_segment(&mut |op| note(self.operation(op, &mut seen)));
        if decoder.pending().is_some() {
            note(Err("a method sequence continues past the end".into()));
        }
        wrong.map_or(Ok(seen), Err)
    }

    fn operation(&self, op: &Op, seen: &mut Seen) -> Result<(), String> {
        if let Some(semaphore) = op.semaphore() {
            let length = match (semaphore.timestamp, semaphore.wide) {
                (true, _) => 16,
                (false, true) => 8,
                (false, false) => 4,
            };
            seen.acquires |= semaphore.operation != Operation::Release;
            self.inside(semaphore.address, length)?;
        }
        match &op.what {
            What::Copy(copy) => {
                if (copy.src_space, copy.dst_space) != (Space::Virtual, Space::Virtual) {
                    return Err("a physical address".into());
                }
                if (copy.src_layout, copy.dst_layout) != (Layout::Pitch, Layout::Pitch) {
                    return Err("a layout that is not pitch".into());
                }
                let element = copy.remap.map_or(1, |remap| u64::from(remap.src_bytes()));
                let lines = if copy.multi_line { copy.line_count } else { 1 };
                let written = copy.bytes() / u64::from(lines.max(1));
                self.lines(copy.src, copy.src_pitch, u64::from(copy.line_length) * element, lines)?;
                self.lines(copy.dst, copy.dst_pitch, written, lines)?;
                seen.bytes += copy.bytes();
            }
            What::Fill(fill) => {
                if (fill.dst_space, fill.dst_layout) != (Space::Virtual, Layout::Pitch) {
                    return Err("a fill of a physical address or another layout".into());
                }
                let written = u64::from(fill.elements) * u64::from(fill.element_bytes);
                self.lines(fill.dst, fill.dst_pitch, written, fill.lines)?;
                seen.bytes += fill.bytes();
            }
            What::Inline(inline) => {
                if inline.dst_layout != Layout::Pitch || !inline.complete {
                    return Err("an inline copy of another layout, or without all its data".into());
                }
                self.lines(inline.dst, inline.dst_pitch, u64::from(inline.line_length), inline.line_count)?;
                seen.bytes += inline.bytes();
            }
            What::Launch(launch) => return Err(format!("a launch of {:#x}", launch.qmd_address)),
            What::Semaphore(_) => {}
        }
        Ok(())
    }

    /// An address for `length` bytes: mostly good, sometimes at an edge, sometimes wild.
    fn address(&self, random: &mut Rng, memory: &Memory, length: u64) -> u64 {
        let (start, size) = (memory.va(), memory.length());
        match random.u64(..20) {
            0 => start.wrapping_add(size).wrapping_sub(length.min(random.u64(..64))),
            1 => start.wrapping_sub(random.u64(..64)),
            2 => self.forbidden,
            3 => [0, 8, 1 << 40, u64::MAX - 7, start | 1 << 57, start << 1][random.usize(..6)],
            4 => random.u64(..),
            _ => start + random.u64(..size.saturating_sub(length).max(1)) / 16 * 16,
        }
    }

    /// Appends one operation; `false` if there is no room for it.
    fn append(&self, random: &mut Rng, video: &Memory, host: &Memory, words: &mut Words<'_>) -> bool {
        let (from, to) = if random.bool() { (video, host) } else { (host, video) };
        let length = 1 + random.u64(..256);
        let (src, dst) = (self.address(random, from, length), self.address(random, to, length));
        let semaphore = self.address(random, to, 16);
        let written = match (random.u64(..8), self.graphics) {
            (0, _) => words.nop(),
            (1, true) => words.set_object(1, class::HOPPER_COMPUTE_A),
            (1, false) => words.set_object(4, class::HOPPER_DMA_COPY_A),
            (2, _) => {
                let operation = if random.u32(..100) < 90 { Operation::Release } else { Operation::Acquire };
                let (wide, timestamp) = (random.bool(), random.bool());
                let execute = Execute { operation, wide, timestamp, ..Execute::RELEASE };
                words.host_semaphore(0, semaphore, random.u64(..), execute)
            }
            (3 | 4, true) => words.inline(
                1,
                dst,
                &random_bytes(random, length as usize),
                inline_dma::PITCH | inline_dma::NO_SYSMEMBAR,
            ),
            // SET_REPORT_SEMAPHORE_A to D, of four words or one, or something else.
            (5, true) if random.bool() => {
                let operation = [0, 4, 1 << 28, 1 << 28 | 4, 2, 1 << 27][random.usize(..6)];
                words.inc(1, 0x1b00, &[(semaphore >> 32) as u32, semaphore as u32, random.u32(..), operation])
            }
            // REPORT_SEMAPHORE_EXECUTE with one of the three sizes.
            (5, true) => {
                let size = [0, 1 << 3, 2 << 3][random.usize(..3)];
                words.inc(1, 0x158, &[random.u32(..), 0, semaphore as u32, (semaphore >> 32) as u32, size])
            }
            // An inline copy of several lines.
            (_, true) => {
                let (line, lines) = (4 * (1 + random.u64(..4)), 1 + random.u64(..4));
                let sign = if random.u32(..100) < 10 { 1 << 31 } else { 0 };
                let data: Vec<u32> = (0..line / 4 * lines).map(|_| random.u32(..)).collect();
                words
                    .inc(
                        1,
                        0x180,
                        &[line as u32, lines as u32, (dst >> 32) as u32, dst as u32, random.u64(..64) as u32 ^ sign],
                    )
                    .and_then(|()| words.inc(1, 0x1b0, &[inline_dma::PITCH]))
                    .and_then(|()| words.non_inc(1, 0x1b4, &data))
            }
            (3, false) => words.copy(4, src, dst, length as u32, launch_dma::NON_PIPELINED | launch_dma::PITCH),
            (4, false) => words.copy(4, src, dst, length as u32, launch_dma::PIPELINED | launch_dma::PITCH),
            (5, false) => words.copy_release(4, semaphore, random.u32(..), random.bool()),
            (6, false) => {
                words.fill(4, dst, random.u32(..), (length / 4) as u32, launch_dma::NON_PIPELINED | launch_dma::PITCH)
            }
            (_, false) => {
                let pitch = |random: &mut Rng| match random.u64(..8) {
                    0 => (random.u64(..512) as u32).wrapping_neg(),
                    _ => random.u64(..512) as u32,
                };
                let (src_pitch, dst_pitch) = (pitch(random), pitch(random));
                let lines =
                    Lines { src, dst, src_pitch, dst_pitch, bytes: length as u32, lines: random.u64(..8) as u32 };
                words.copy_lines(4, lines, launch_dma::NON_PIPELINED | launch_dma::PITCH)
            }
        };
        written.is_ok()
    }

    /// A whole pushbuffer.
    fn pushbuffer(&self, random: &mut Rng, video: &Memory, host: &Memory) -> Vec<u32> {
        if random.u32(..100) < 5 {
            return (0..1 + random.u64(..32)).map(|_| random.u32(..)).collect();
        }
        let mut buffer = [0; ROOM];
        let mut words = Words::new(&mut buffer);
        for _ in 0..1 + random.u64(..4) {
            if !self.append(random, video, host, &mut words) {
                break;
            }
        }
        let mut words = words.as_slice().to_vec();
        if random.u32(..100) < 60 {
            for _ in 0..1 + random.u64(..3) {
                spoil(random, &mut words);
            }
        }
        words
    }
}

/// Makes one small change.
fn spoil(random: &mut Rng, words: &mut Vec<u32>) {
    if words.is_empty() {
        return words.push(random.u32(..));
    }
    let at = random.u64(..words.len() as u64) as usize;
    match random.u64(..8) {
        0..=2 => words[at] ^= 1 << random.u64(..32),
        3 => words[at] = random.u32(..),
        4 => words.truncate(at),
        5 => words.insert(at, words[at]),
        6 => {
            words.remove(at);
        }
        _ => {
            let other = random.u64(..words.len() as u64) as usize;
            words.swap(at, other);
        }
    }
}

/// A channel that executes validated pushbuffers, in batches.
struct Executor {
    channel: Channel,
    done: Semaphore,
    sent: u32,
    batch: Vec<Vec<u32>>,
    used: VecDeque<Validated>,
}

impl Executor {
    fn new(rig: &Rig, channel: Channel) -> Result<Executor, Stop> {
        Ok(Executor { channel, done: rig.semaphore()?, sent: 0, batch: Vec::new(), used: VecDeque::new() })
    }

    /// A pushbuffer that the channel no longer uses, or a new one.
    fn pushbuffer(&mut self, rig: &Rig) -> Result<Pushbuffer, Stop> {
        if let Some(oldest) = self.used.pop_front() {
            match oldest.reuse() {
                Ok(mut pushbuffer) => {
                    pushbuffer.clear();
                    return Ok(pushbuffer);
                }
                Err(in_flight) => self.used.push_front(in_flight),
            }
        }
        Ok(Pushbuffer::new(&rig.space, ROOM)?)
    }

    fn submit(&mut self, rig: &Rig, words: &[u32]) -> Result<(), Stop> {
        let mut pushbuffer = self.pushbuffer(rig)?;
        pushbuffer.raw(words)?;
        let validated = pushbuffer.validate(&self.channel)?;
        rig.patiently(&mut self.channel, |channel| channel.submit(&validated))?;
        self.used.push_back(validated);
        Ok(())
    }

    fn execute(&mut self, rig: &Rig, words: &[u32]) -> Result<(), Stop> {
        self.batch.push(words.to_vec());
        let sent = self.submit(rig, words);
        sent.map_err(|stop| self.blame(rig, stop))?;
        if self.batch.len() < BATCH { Ok(()) } else { self.settle(rig) }
    }

    /// Waits for all that was sent.
    fn settle(&mut self, rig: &Rig) -> Result<(), Stop> {
        self.sent += 1;
        let mut words = [0; 8];
        let mut writer = Words::new(&mut words);
        let written = writer.host_release(0, self.done.va(), self.sent, true);
        written.map_err(|error| Stop::Failed(error.to_string()))?;
        let release = writer.as_slice().to_vec();
        let done = self.submit(rig, &release).and_then(|()| rig.wait(&self.channel, &self.done, self.sent));
        done.map_err(|stop| self.blame(rig, stop))?;
        self.batch.clear();
        Ok(())
    }

    /// Names the pushbuffer of the batch that killed the channel: each runs again, alone, on a separate channel.
    fn blame(&self, rig: &Rig, stop: Stop) -> Stop {
        let Stop::Failed(why) = stop else { return stop };
        let alone = |words: &&Vec<u32>| {
            let mut other = Executor::new(rig, rig.small_channel(self.channel.engine(), 64)?)?;
            other.submit(rig, words)?;
            other.settle(rig)
        };
        match self.batch.iter().find(|words| alone(words).is_err()) {
            Some(words) => Stop::Failed(format!("{why}; it passed: {}", hex(words))),
            None => {
                let batch: Vec<String> = self.batch.iter().map(|words| hex(words)).collect();
                Stop::Failed(format!("{why}, and none does it alone of: {}", batch.join(" | ")))
            }
        }
    }
}

const BASE: u64 = 0x2_0080_0000;
const END: u64 = BASE + MEMORY;

fn field(graphics: bool) -> Field {
    Field { graphics, named: vec![(BASE, MEMORY)], forbidden: 0 }
}

fn read(graphics: bool, write: impl FnOnce(&mut Words<'_>)) -> Result<Seen, String> {
    let mut buffer = [0; ROOM];
    let mut words = Words::new(&mut buffer);
    write(&mut words);
    field(graphics).read(words.as_slice())
}

type Write = fn(&mut Words<'_>);

/// The second reader is no rubber stamp.
#[test]
fn forbidden_pushbuffers_are_detected() {
    const LAUNCH: u32 = launch_dma::NON_PIPELINED | launch_dma::PITCH;
    let bad: [(bool, &str, Write); 11] = [
        (false, "9 bytes at", |w| w.copy(4, BASE, END - 8, 9, LAUNCH).unwrap()),
        (false, "8 bytes at", |w| w.copy(4, BASE - 1, BASE, 8, LAUNCH).unwrap()),
        (false, "physical", |w| w.copy(4, BASE, BASE, 8, LAUNCH | 1 << 13).unwrap()),
        (false, "pitch", |w| w.copy(4, BASE, BASE, 8, 0x102).unwrap()),
        (false, "8 bytes at", |w| w.fill(4, END - 4, 1, 2, LAUNCH).unwrap()),
        (false, "16 bytes at", |w| w.host_release(0, END - 8, 1, true).unwrap()),
        (false, "method 0x260", |w| w.inc(4, 0x260, &[0]).unwrap()),
        (false, "method 0x10 ", |w| w.inc(0, 0x10, &[0]).unwrap()),
        (false, "subchannel 1", |w| w.inc(1, 0x300, &[0]).unwrap()),
        (true, "a launch of", |w| w.inc(1, 0x158, &[0]).and_then(|()| w.launch(1, BASE)).unwrap()),
        (true, "EndSegment", |w| w.end_segment().unwrap()),
    ];
    for (graphics, part, write) in bad {
        match read(graphics, write) {
            Ok(_) => panic!("it sees nothing wrong: {part}"),
            Err(why) => assert!(why.contains(part) || why.contains("method 0x2b4"), "{part}: {why}"),
        }
    }
    let lines = Lines { src: BASE, dst: BASE, src_pitch: 0, dst_pitch: 256, bytes: 1, lines: 258 };
    assert!(read(false, |w| w.copy_lines(4, lines, LAUNCH).unwrap()).is_err());
    let none = Lines { lines: 0, ..lines };
    assert!(read(false, |w| w.copy_lines(4, none, LAUNCH).unwrap()).is_err());
    let backwards = Lines { src_pitch: 8u32.wrapping_neg(), lines: 2, ..lines };
    assert!(read(false, |w| w.copy_lines(4, backwards, LAUNCH).unwrap()).is_err());
}

#[test]
fn allowed_pushbuffers_are_described() {
    let seen = read(false, |w| w.copy(4, BASE, BASE + 8, 8, 0x182).unwrap()).unwrap();
    assert!(seen.bytes == 8 && seen.harmless());
    let acquire = Execute { operation: Operation::Acquire, ..Execute::RELEASE };
    let seen = read(true, |w| w.host_semaphore(0, BASE, 1, acquire).unwrap()).unwrap();
    assert!(!seen.harmless());
    let seen = read(true, |w| w.inline(1, BASE, b"hello", 0x41).unwrap()).unwrap();
    assert_eq!(seen.bytes, 5);
}

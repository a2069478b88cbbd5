//! Turns the words of one launch into its steps.
//!
//! Every method that a launch may use is on a list, by the name that its class table has for it. All others are refused.

use crate::copy_macro::{self, CopyCall, CopyMacro};
use crate::fill_macro::{self, FillCall, FillMacro};
use crate::refused::Refused;
use crate::step::{By, Memset, Placed, Step};
use pushbuf::class::Family;
use pushbuf::decode::{Decoder, Item, Run, Target, Write};
use pushbuf::encode::subchannel;
use pushbuf::encode::{launch_dma, offset};
use pushbuf::ops::{Engine, How, Inline, Layout, Op, Origin, Semaphore, What};
use pushbuf::qmd::PcasAction;
use pushbuf::semaphore::{Execute, Operation, method};

/// A channel that a launch used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Channel {
    /// Its host class, such as 0xC86F.
    pub class: u32,
    /// Classes of the engine objects on it.
    pub engines: Vec<u32>,
    /// The handle of its channel group, if it is known.
    pub group: Option<u32>,
}

/// The words of one GPFIFO entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment<'a> {
    /// Index of its channel.
    pub channel: usize,
    pub words: &'a [u32],
}

/// Names of the understood methods: those that only fill registers for the operations of `pushbuf`, and those that trigger an operation.
const HOST: &[&str] = &["SEM_ADDR_LO", "SEM_ADDR_HI", "SEM_PAYLOAD_LO", "SEM_PAYLOAD_HI", "SEM_EXECUTE"];
const COMPUTE: &[&str] = &[
    "LOAD_INLINE_DATA",
    "OFFSET_OUT_UPPER",
    "OFFSET_OUT",
    "LINE_LENGTH_IN",
    "LINE_COUNT",
    "LAUNCH_DMA",
    "SEND_PCAS_A",
    "SEND_SIGNALING_PCAS2_B",
    "INVALIDATE_SHADER_CACHES_NO_WFI",
    "SET_REPORT_SEMAPHORE_A",
    "SET_REPORT_SEMAPHORE_B",
    "SET_REPORT_SEMAPHORE_C",
    "SET_REPORT_SEMAPHORE_D",
];
const COPY: &[&str] = &[
    // CUDA begins some segments with it.
    "NOP",
    "OFFSET_IN_UPPER",
    "OFFSET_IN_LOWER",
    "OFFSET_OUT_UPPER",
    "OFFSET_OUT_LOWER",
    "PITCH_IN",
    "PITCH_OUT",
    "LINE_LENGTH_IN",
    "LINE_COUNT",
    "SET_REMAP_CONST_A",
    "SET_REMAP_CONST_B",
    "SET_REMAP_COMPONENTS",
    "SET_SEMAPHORE_A",
    "SET_SEMAPHORE_B",
    "SET_SEMAPHORE_PAYLOAD",
    "LAUNCH_DMA",
];
/// Bits that a LAUNCH_DMA of the copy engine may set if it only releases: FLUSH_ENABLE and SEMAPHORE_TYPE.
const RELEASES: u32 = launch_dma::FLUSH | launch_dma::RELEASE | launch_dma::RELEASE_TIMED;

/// The subchannel of the copy engine on graphics channels.
const COPY_ENGINE: u8 = 4;
/// OPERATION of SET_REPORT_SEMAPHORE_D.
const TRAP: u32 = 3;

/// How to read the arguments of CUDA macros, as far as known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Macros {
    pub fills: Option<FillMacro>,
    pub copies: Option<CopyMacro>,
}

impl From<Option<FillMacro>> for Macros {
    fn from(fills: Option<FillMacro>) -> Macros {
        Macros { fills, copies: None }
    }
}

/// A call of a macro that brings the data of an inline write.
#[derive(Debug, Clone, Copy)]
enum Brought {
    Fill(FillCall),
    Copy(CopyCall),
}

/// The calls of the fill macro in these words; everything else is ignored.
pub fn fill_calls(channels: &[Channel], segments: &[Segment<'_>]) -> Vec<FillCall> {
    let calls = calls(channels, segments).into_iter();
    calls.filter_map(|call| if let Brought::Fill(call) = call { Some(call) } else { None }).collect()
}

/// The calls of the macro that copies a few words; everything else is ignored.
pub fn copy_calls(channels: &[Channel], segments: &[Segment<'_>]) -> Vec<CopyCall> {
    let calls = calls(channels, segments).into_iter();
    calls.filter_map(|call| if let Brought::Copy(call) = call { Some(call) } else { None }).collect()
}

fn calls(channels: &[Channel], segments: &[Segment<'_>]) -> Vec<Brought> {
    let mut streams: Vec<Option<Stream>> = channels.iter().map(|_| None).collect();
    let mut calls = Vec::new();
    for segment in segments {
        let (Some(channel), Some(slot)) = (channels.get(segment.channel), streams.get_mut(segment.channel)) else {
            continue;
        };
        let stream = slot.get_or_insert_with(|| Stream::new(channel, Macros::default()));
        let (mut found, ops) = stream.decode(segment.words);
        calls.extend(ops.iter().filter(|op| !op.guessed).filter_map(|op| match &op.what {
            What::Inline(inline) if inline.by_macro => found.call(op, inline),
            _ => None,
        }));
    }
    calls
}

/// Semaphores that these words release; everything else is ignored.
pub fn released(channels: &[Channel], segments: &[Segment<'_>]) -> Vec<u64> {
    let mut all = Vec::new();
    let mut op = |op: &Op| {
        if let What::Semaphore(semaphore) = &op.what
            && !op.guessed
            && !semaphore.operation.is_acquire()
        {
            all.push(semaphore.address);
        }
    };
    let mut streams: Vec<Stream> = channels.iter().map(|channel| Stream::new(channel, Macros::default())).collect();
    for segment in segments {
        let Some(Stream { decoder, engine, .. }) = streams.get_mut(segment.channel) else { continue };
        decoder.segment(segment.words, |item| engine.item(&item, &mut op));
        engine.end_segment(&mut op);
    }
    all
}

/// The steps of a launch. Registers set before it are ignored.
pub(crate) fn launch(macros: Macros, channels: &[Channel], segments: &[Segment<'_>]) -> Result<Vec<Placed>, Refused> {
    let mut streams: Vec<Option<Stream>> = channels.iter().map(|_| None).collect();
    let mut steps = Vec::new();
    let mut group: Option<u32> = None;
    for segment in segments {
        let i = segment.channel;
        let (Some(channel), Some(slot)) = (channels.get(i), streams.get_mut(i)) else {
            return Err(Refused::NoChannel(i));
        };
        // Copy engines have separate channel groups. doorbell's launch uses the copy engine of its own channel.
        if has_compute(channel) {
            if let (Some(first), Some(second)) = (group, channel.group)
                && first != second
            {
                return Err(Refused::ChannelGroups { first, second });
            }
            group = group.or(channel.group);
        }
        let stream = slot.get_or_insert_with(|| Stream::new(channel, macros));
        let of_segment = stream.segment(segment.words)?;
        steps.extend(of_segment.into_iter().map(|step| Placed { channel: i, step }));
    }
    Ok(steps)
}

struct Stream {
    decoder: Decoder,
    engine: Engine,
    macros: Macros,
}

/// A call of a macro, and whether arguments may still come.
struct Call {
    word: u32,
    index: u32,
    arguments: Vec<u32>,
    open: bool,
    /// It is the data of an inline write.
    taken: bool,
}

/// The parts of one segment, each with its word index.
#[derive(Default)]
struct Found<'a> {
    steps: Vec<(u32, Step)>,
    /// Runs of inline data.
    data: Vec<(u32, &'a [u32])>,
    /// Words of inline data that stand in their header.
    immediate: Vec<(u32, u32)>,
    pcas: Option<u32>,
    /// The words of SEM_EXECUTE, of SET_REPORT_SEMAPHORE_D and of the copy engine's LAUNCH_DMA, and where.
    execute: Vec<(u32, u32)>,
    report: Vec<(u32, u32)>,
    transfers: Vec<(u32, u32)>,
    macros: Vec<Call>,
    refused: Option<Refused>,
}

impl Stream {
    fn new(channel: &Channel, macros: Macros) -> Stream {
        let mut decoder = Decoder::new(channel.class);
        for class in &channel.engines {
            match Family::of(*class) {
                Some(Family::Compute) => decoder.bind(subchannel::COMPUTE, *class),
                Some(Family::InlineToMemory) => decoder.bind(2, *class),
                Some(Family::Copy) if channel.engines.len() == 1 => decoder.bind_all(*class),
                Some(Family::Copy) => decoder.bind(subchannel::COPY, *class),
                _ => {}
            }
        }
        let mut engine = Engine::new();
        // Values from before are invalid: a step that uses one returns an error.
        engine.forget(&mut |_| {});
        Stream { decoder, engine, macros }
    }

    /// Decodes a segment, and returns the operations that are not understood.
    fn decode<'a>(&mut self, words: &'a [u32]) -> (Found<'a>, Vec<Op>) {
        let mut found = Found::default();
        let mut ops = Vec::new();
        let engine = &mut self.engine;
        self.decoder.segment(words, |item| {
            if found.refused.is_none() {
                found.item(&item);
                engine.item(&item, &mut |op| ops.push(*op));
            }
        });
        engine.end_segment(&mut |op| ops.push(*op));
        (found, ops)
    }

    fn segment(&mut self, words: &[u32]) -> Result<Vec<Step>, Refused> {
        let segment = self.engine.segments();
        let (mut found, ops) = self.decode(words);
        let mut brought = Vec::new();
        for op in &ops {
            if let What::Inline(inline) = &op.what
                && inline.by_macro
                && let Some(call) = found.call(op, inline)
            {
                brought.push((op.at.word, call));
            }
        }
        if let Some(Call { index, arguments, .. }) = found.macros.iter().find(|call| !call.taken) {
            return Err(Refused::MmeMacro { index: *index, arguments: arguments.clone() });
        }
        if let Some(refused) = found.refused.take() {
            return Err(refused);
        }
        if self.decoder.pending().is_some() {
            return Err(Refused::Cut);
        }
        for op in &ops {
            if op.at.segment != segment {
                return Err(Refused::Cut);
            }
            let call = brought.iter().find(|(word, _)| *word == op.at.word);
            let step = match call {
                Some(_) if op.guessed => return Err(Refused::Unset { step: "a fill or copy by a macro" }),
                Some((_, Brought::Fill(call))) => Some(Step::Memset(self.memset(call)?)),
                Some((_, Brought::Copy(call))) => Some(self.memcpy(call)?),
                None => found.step(op)?,
            };
            if let Some(step) = step {
                found.steps.push((op.at.word, step));
            }
        }
        found.steps.sort_by_key(|(word, _)| *word);
        Ok(found.steps.into_iter().map(|(_, step)| step).collect())
    }

    fn memset(&self, call: &FillCall) -> Result<Memset, Refused> {
        let FillCall { address, bytes, arguments, .. } = *call;
        let fills = self.macros.fills.ok_or(Refused::MacroArguments { address, bytes, arguments })?;
        fills.memset(call).ok_or(Refused::MacroCount { address, bytes, arguments })
    }

    /// As the copy engine of the channel does it.
    fn memcpy(&self, call: &CopyCall) -> Result<Step, Refused> {
        let CopyCall { address, bytes, arguments } = *call;
        let copies = self.macros.copies.ok_or(Refused::CopyArguments { address, bytes, arguments })?;
        let copy = copies.copy(call).ok_or(Refused::CopyCount { address, bytes, arguments })?;
        Ok(Step::Copy { subch: COPY_ENGINE, copy })
    }
}

impl<'a> Found<'a> {
    fn item(&mut self, item: &Item<'a>) {
        match item {
            Item::Write(write) => self.write(write),
            Item::Run(run) => self.run(run),
            Item::Nop { .. } => {}
            Item::Unknown { word, .. } => self.refuse(Refused::Header { word: *word }),
            Item::SubdeviceMask { .. } => self.refuse(Refused::Form { what: "a sub-device mask" }),
            Item::EndSegment { .. } | Item::Skipped { .. } => self.refuse(Refused::Form { what: "END_PB_SEGMENT" }),
        }
    }

    fn refuse(&mut self, refused: Refused) {
        self.refused.get_or_insert(refused);
    }

    fn run(&mut self, run: &Run<'a>) {
        let is_data = !run.host && run.address == offset::INLINE_LOAD_DATA && is_compute(&run.target);
        if is_data {
            self.macros.iter_mut().for_each(|call| call.open = false);
            self.data.push((run.word_index, run.words));
        } else {
            run.writes().for_each(|write| self.write(&write));
        }
    }

    fn write(&mut self, write: &Write) {
        let Write { target, address, value, word_index, host, .. } = *write;
        let name = target.method(address).map_or("", |m| m.method.name);
        if self.mme(name, &target, write) {
            return;
        }
        let known = match Family::of(target.class_id) {
            _ if host => HOST,
            Some(Family::Compute) => COMPUTE,
            Some(Family::Copy) => COPY,
            _ => &[],
        };
        if !known.contains(&name) {
            return self.refuse(unknown(name, write));
        }
        if host {
            if address == method::SEM_EXECUTE {
                self.execute.push((word_index, value));
            }
            return;
        }
        match address {
            offset::COPY_LAUNCH_DMA if !is_compute(&target) => self.transfers.push((word_index, value)),
            _ if !is_compute(&target) => {}
            offset::INLINE_LOAD_DATA => self.immediate.push((word_index, value)),
            offset::SEND_PCAS_A => self.pcas = Some(value),
            offset::SEND_SIGNALING_PCAS2_B => match self.pcas.take() {
                Some(shifted) => {
                    let (qmd, action) = (u64::from(shifted) << 8, PcasAction::of_word(value));
                    self.steps.push((word_index, Step::Pcas { qmd, action }));
                }
                None => self.refuse(Refused::Unset { step: "a PCAS" }),
            },
            offset::INVALIDATE_SHADER_CACHES_NO_WFI => {
                self.steps.push((word_index, Step::Invalidate { caches: value }));
            }
            _ if name == "SET_REPORT_SEMAPHORE_D" => {
                let fields = target.method(address).map_or(&[][..], |m| m.method.fields);
                if fields.iter().any(|f| f.name == "OPERATION" && f.extract(value) == TRAP) {
                    self.refuse(Refused::HostNode { why: "a report that interrupts the host (TRAP)" });
                }
                if fields.iter().any(|f| f.name == "AWAKEN_ENABLE" && f.extract(value) != 0) {
                    self.refuse(Refused::HostNode { why: "a release wakes the host (AWAKEN_ENABLE)" });
                }
                self.report.push((word_index, value));
            }
            _ => {}
        }
    }

    /// Collects the call of a macro: its arguments follow it. True if this is a part of one.
    fn mme(&mut self, name: &str, target: &Target, write: &Write) -> bool {
        let index = || target.method(write.address).and_then(|m| m.index).unwrap_or(0);
        let last = self.macros.last_mut().filter(|call| call.open);
        if name.starts_with("CALL_MME_MACRO") {
            last.into_iter().for_each(|call| call.open = false);
            let (word, arguments) = (write.word_index, vec![write.value]);
            self.macros.push(Call { word, index: index(), arguments, open: true, taken: false });
        } else if name.starts_with("CALL_MME_DATA") {
            match last.filter(|call| call.index == index()) {
                Some(call) => call.arguments.push(write.value),
                None => self.refuse(Refused::Cut),
            }
        } else {
            last.into_iter().for_each(|call| call.open = false);
            return false;
        }
        true
    }

    /// The call of a macro that brings an inline write's data, if it is one that is known.
    fn call(&mut self, op: &Op, inline: &Inline) -> Option<Brought> {
        let one_line = inline.line_count == 1 && inline.dst_layout == Layout::Pitch && inline.semaphore.is_none();
        let call = self.macros.iter_mut().find(|call| call.word > op.at.word)?;
        if !one_line || call.taken {
            return None;
        }
        let (address, bytes, launch) = (inline.dst, inline.line_length, inline.launch);
        let brought = match (call.index, &call.arguments[..]) {
            (fill_macro::INDEX, [one, two]) => {
                Brought::Fill(FillCall { address, bytes, launch, arguments: [*one, *two] })
            }
            (copy_macro::INDEX, [one, two, three]) => {
                Brought::Copy(CopyCall { address, bytes, arguments: [*one, *two, *three] })
            }
            _ => return None,
        };
        call.taken = true;
        Some(brought)
    }

    /// The step that an operation is; `None` for launches, which are steps already.
    fn step(&self, op: &Op) -> Result<Option<Step>, Refused> {
        let step = match &op.what {
            What::Inline(inline) => self.inline(op, inline)?,
            What::Fill(fill) if fill.semaphore.is_none() => Step::Fill { subch: op.subch, fill: *fill },
            What::Copy(copy) if copy.semaphore.is_none() => Step::Copy { subch: op.subch, copy: *copy },
            What::Fill(_) | What::Copy(_) => return Err(Refused::Form { what: "a semaphore of the copy engine" }),
            What::Semaphore(semaphore) => self.semaphore(op, semaphore)?,
            What::Launch(launch) => match launch.how {
                How::Pcas2 { .. } => return Ok(None),
                How::Pcas { .. } => return Err(Refused::Form { what: "SEND_SIGNALING_PCAS_B" }),
                How::InlineQmd => return Err(Refused::Form { what: "a QMD in methods (LOAD_INLINE_QMD_DATA)" }),
            },
        };
        if op.guessed { Err(Refused::Unset { step: step.name() }) } else { Ok(Some(step)) }
    }

    fn inline(&self, op: &Op, inline: &Inline) -> Result<Step, Refused> {
        if inline.line_count > 1 || inline.dst_layout != Layout::Pitch || inline.semaphore.is_some() {
            return Err(Refused::Form { what: "an inline write of several lines, in blocks or with a semaphore" });
        }
        let span = inline.data.filter(|span| inline.complete && span.last.segment == op.at.segment);
        let span = span.ok_or(Refused::Cut)?;
        let (first, last) = (span.first.word, span.last.word);
        let mut data = Vec::with_capacity(span.words as usize);
        let from = self.data.partition_point(|(start, words)| start.saturating_add(words.len() as u32) <= first);
        for (start, words) in self.data.iter().skip(from).take_while(|(start, _)| *start <= last) {
            let (skip, end) = (first.saturating_sub(*start), last.saturating_sub(*start).saturating_add(1));
            data.extend(words.iter().skip(skip as usize).take((end - skip.min(end)) as usize));
        }
        if data.is_empty() {
            data.extend(self.immediate.iter().filter(|(at, _)| (first..=last).contains(at)).map(|(_, value)| value));
        }
        if data.len() != span.words as usize {
            return Err(Refused::Form { what: "inline data in headers of several kinds" });
        }
        let bytes = inline.line_length;
        Ok(Step::Write { address: inline.dst, bytes, data, launch: inline.launch })
    }

    fn semaphore(&self, op: &Op, semaphore: &Semaphore) -> Result<Step, Refused> {
        let word = |of: &[(u32, u32)]| of.iter().find(|(at, _)| *at == op.at.word).map(|(_, value)| *value);
        match semaphore.origin {
            Origin::Host if semaphore.operation.is_acquire() => {
                let execute = Execute::parse(word(&self.execute).unwrap_or(0));
                Ok(Step::Acquire { address: semaphore.address, payload: semaphore.payload, execute })
            }
            Origin::Host => Err(Refused::HostNode { why: "the host releases a semaphore" }),
            Origin::ReportOld => {
                let control = word(&self.report).unwrap_or(0);
                let (address, payload) = (semaphore.address, semaphore.payload as u32);
                Ok(Step::Report { address, payload, by: By::Compute { control } })
            }
            Origin::CopyEngine if semaphore.operation == Operation::Release && !semaphore.wide => {
                let launch = word(&self.transfers).filter(|launch| launch & !RELEASES == 0);
                let launch =
                    launch.ok_or(Refused::Form { what: "a release by the copy engine with more than a flush" })?;
                let (address, payload) = (semaphore.address, semaphore.payload as u32);
                Ok(Step::Report { address, payload, by: By::Copy { subch: op.subch, launch } })
            }
            _ => Err(Refused::Form { what: "a semaphore of another form" }),
        }
    }
}

pub(crate) fn has_compute(channel: &Channel) -> bool {
    channel.engines.iter().any(|class| Family::of(*class) == Some(Family::Compute))
}

fn is_compute(target: &Target) -> bool {
    Family::of(target.class_id) == Some(Family::Compute)
}

/// The error for a method that is not on the list, chosen by the method's purpose if that is known.
fn unknown(name: &str, write: &Write) -> Refused {
    let class = write.target.class_id;
    if name.contains("RENDER_ENABLE") {
        return Refused::Conditional { class, method: name.to_owned() };
    }
    // (CUDA has NO_OPERATION in front of the report that interrupts the host, and was not seen to have it elsewhere in a graph.)
    if name.contains("NON_STALL_INTERRUPT") || name == "NOTIFY" || name == "NO_OPERATION" {
        return Refused::HostNode { why: "an interrupt of the host" };
    }
    let name = if name.is_empty() { "without a name" } else { name };
    Refused::Method { class, address: write.address, name: name.to_owned(), value: write.value }
}

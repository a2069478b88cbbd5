//! Encodes steps as words again.

use crate::recipe::{Form, Recipe};
use crate::refused::Refused;
use crate::step::{By, Memset, Placed, Step};
use pushbuf::encode::subchannel::{COMPUTE, HOST};
use pushbuf::encode::{Error, Words, offset};
use pushbuf::ops::{Layout, Space};

/// Maximum number of words of any step but a write.
const MOST: usize = 32;

impl Recipe {
    /// The words of the launch that uploads the graph, one segment for each stretch of one channel, with the channel's index. Fails where a recording
    /// left the constant banks' contents out.
    pub fn upload_words(&self) -> Result<Vec<(usize, Vec<u32>)>, Refused> {
        if let Some(bank) = self.banks.iter().find(|b| b.contents.is_none()) {
            return Err(Refused::BankLeftOut { bank: bank.address });
        }
        self.words(Form::Upload)
    }

    /// The words of a launch after the upload, in the same form.
    pub fn relaunch_words(&self) -> Result<Vec<(usize, Vec<u32>)>, Refused> {
        self.words(Form::Relaunch)
    }

    /// The words of one of the launches as they are, even if a recording left something out.
    pub fn words(&self, form: Form) -> Result<Vec<(usize, Vec<u32>)>, Refused> {
        let mut segments: Vec<(usize, Vec<u32>)> = Vec::new();
        for placed in self.steps(form) {
            if segments.last().is_none_or(|(channel, _)| *channel != placed.channel) {
                segments.push((placed.channel, Vec::new()));
            }
            if let Some((_, words)) = segments.last_mut() {
                append(words, placed)?;
            }
        }
        Ok(segments)
    }
}

pub(crate) fn append(words: &mut Vec<u32>, placed: &Placed) -> Result<(), Refused> {
    let begin = words.len();
    let data = match &placed.step {
        Step::Write { data, .. } => data.len() + data.len() / 0x1fff,
        _ => 0,
    };
    words.resize(begin + MOST + data, 0);
    let mut to = Words::new(words.get_mut(begin..).unwrap_or_default());
    write(&mut to, &placed.step)?;
    let len = to.len();
    words.truncate(begin + len);
    Ok(())
}

pub(crate) fn write(to: &mut Words<'_>, step: &Step) -> Result<(), Refused> {
    match step {
        Step::Acquire { address, payload, execute } => to.host_semaphore(HOST, *address, *payload, *execute)?,
        Step::Write { address, bytes, data, launch } => {
            let data: Vec<u8> = data.iter().flat_map(|w| w.to_le_bytes()).take(*bytes as usize).collect();
            to.inline_long(COMPUTE, *address, &data, *launch)?;
        }
        Step::Invalidate { caches } => to.inc(COMPUTE, offset::INVALIDATE_SHADER_CACHES_NO_WFI, &[*caches])?,
        Step::Pcas { qmd, action } => to.pcas(COMPUTE, *qmd, *action)?,
        Step::Report { address, payload, by: By::Compute { control } } => {
            let semaphore = [(*address >> 32) as u32, *address as u32, *payload, *control];
            to.inc(COMPUTE, offset::REPORT_SEMAPHORE_A, &semaphore)?;
        }
        Step::Report { address, payload, by: By::Copy { subch, launch } } => {
            to.copy_semaphore(*subch, *address, *payload)?;
            to.inc(*subch, offset::COPY_LAUNCH_DMA, &[*launch])?;
        }
        Step::Copy { subch, copy } => {
            let plain = copy.src_layout == Layout::Pitch
                && copy.dst_layout == Layout::Pitch
                && copy.src_space == Space::Virtual
                && copy.dst_space == Space::Virtual
                && copy.remap.is_none();
            if !plain {
                return Err(Refused::Form { what: "a copy in blocks, of physical memory or with moved components" });
            }
            copy_words(to, *subch, copy)?;
        }
        Step::Fill { subch, fill } => fill_words(to, *subch, fill)?,
        Step::Memset(Memset { address, bytes, launch, arguments, .. }) => {
            let registers = [*bytes, 1, (*address >> 32) as u32, *address as u32];
            to.inc(COMPUTE, offset::INLINE_LINE_LENGTH_IN, &registers)?;
            to.inc(COMPUTE, offset::INLINE_LAUNCH_DMA, &[*launch])?;
            to.one_inc(COMPUTE, offset::CALL_MME_MACRO, arguments)?;
        }
    }
    Ok(())
}

fn copy_words(to: &mut Words<'_>, subch: u8, copy: &pushbuf::ops::Copy) -> Result<(), Error> {
    use pushbuf::encode::Lines;
    if !copy.multi_line {
        return to.copy(subch, copy.src, copy.dst, copy.line_length, copy.launch);
    }
    let pushbuf::ops::Copy { src, dst, src_pitch, dst_pitch, line_length: bytes, line_count: lines, .. } = *copy;
    to.copy_lines(subch, Lines { src, dst, src_pitch, dst_pitch, bytes, lines }, copy.launch)
}

/// A fill whose element is one word, or a repetition of one: other elements are refused.
fn fill_words(to: &mut Words<'_>, subch: u8, fill: &pushbuf::ops::Fill) -> Result<(), Refused> {
    let plain = fill.lines == 1
        && fill.element_bytes == 4
        && fill.written & 0xf == 0xf
        && fill.dst_layout == Layout::Pitch
        && fill.dst_space == Space::Virtual;
    let Some(word) = fill.pattern.first_chunk::<4>().filter(|_| plain) else {
        return Err(Refused::Form { what: "a fill of several lines, or whose element is not one word" });
    };
    Ok(to.fill(subch, fill.dst, u32::from_le_bytes(*word), fill.elements, fill.launch)?)
}

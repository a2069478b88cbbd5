//! The words of one prepared transfer and of the release at its end, and the positions in them that a submission changes.

use crate::engine::Engine;
use crate::error::Error;
use crate::region::Region;
use crate::semaphore::Semaphore;
use crate::space::AddressSpace;
use pushbuf::encode::layout as written;
use pushbuf::encode::subchannel::{COMPUTE, COPY, HOST};
use pushbuf::encode::{MAX_INLINE, Words, inline_dma, launch_dma, offset};
use std::sync::Arc;

/// The ends of a prepared transfer: its words may name only these and the channel's tracker.
#[derive(Clone, Debug)]
pub(crate) struct Between {
    pub to: Region,
    /// None for inline data.
    pub from: Option<Region>,
    /// Further regions that contain pieces of a batch.
    pub more: Vec<Region>,
    /// Address of the semaphore that is released, with the time, before the transfer begins; doorbell's own memory.
    pub begun: Option<u64>,
    /// Address of the word that is released at the end instead of the tracker; doorbell's own memory.
    pub told: Option<u64>,
}

impl Between {
    pub(crate) fn of(to: &Region, from: Option<&Region>) -> Between {
        Between { to: to.clone(), from: from.cloned(), more: Vec::new(), begun: None, told: None }
    }

    pub fn all(&self) -> impl Iterator<Item = &Region> {
        std::iter::once(&self.to).chain(&self.from).chain(&self.more)
    }

    pub fn holds(&self, va: u64, length: u64) -> bool {
        self.all().any(|region| region.holds(va, length))
            || self.begun == Some(va) && length <= 16
            || self.told == Some(va) && length <= 4
    }

    /// Checks that `length` bytes at each address are within its own region.
    #[inline]
    pub fn check_places(&self, to: u64, from: u64, length: u64) -> Result<(), Error> {
        let outside = |va| Error::OutsideRegion { va, length };
        let Some(source) = &self.from else { return Err(outside(from)) };
        if !self.to.holds(to, length) {
            return Err(outside(to));
        }
        if !source.holds(from, length) {
            return Err(outside(from));
        }
        Ok(())
    }

    /// Checks that a channel in `space`, on the GPU with that UUID, may name them.
    pub fn check(&self, space: &Arc<AddressSpace>, gpu: [u8; 16]) -> Result<(), Error> {
        self.all().try_for_each(|region| region.check(space, gpu))
    }

    /// Calls the witnesses of all regions.
    #[cold]
    pub fn ask(&self) -> Result<(), Error> {
        self.all().try_for_each(Region::ask)
    }
}

/// How a prepared transfer is made. A mode alone has the default release.
#[derive(Clone, Copy, Debug, Default)]
pub struct Form<M, R> {
    pub mode: M,
    pub release: R,
    /// A separate release with the time, in front, also shows when the engine begins ([`Prepared::started`](crate::Prepared::started)).
    pub begins: bool,
}

impl<M, R> From<(M, R)> for Form<M, R> {
    fn from((mode, release): (M, R)) -> Form<M, R> {
        Form { mode, release, begins: false }
    }
}

impl From<CopyMode> for Form<CopyMode, CopyRelease> {
    fn from(mode: CopyMode) -> Self {
        (mode, CopyRelease::default()).into()
    }
}

impl From<InlineMode> for Form<InlineMode, InlineRelease> {
    fn from(mode: InlineMode) -> Self {
        (mode, InlineRelease::default()).into()
    }
}

/// How the copy engine signals that a copy is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyMode {
    /// A copy after earlier ones (NON_PIPELINED), then a separate release, as CUDA writes them.
    #[default]
    Plain,
    /// A copy that may overlap earlier ones (PIPELINED), then a separate release.
    Pipelined,
    /// The release in the same LAUNCH_DMA as the copy.
    Folded,
}

/// How inline data is written that is longer than one header allows (13 bits, 32,764 bytes).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InlineMode {
    /// One LAUNCH_DMA, then several data headers.
    #[default]
    Headers,
    /// A LAUNCH_DMA for each header.
    Launches,
}

/// The engine that signals the end of an inline copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InlineRelease {
    /// The host, when the engine is idle (SEM_EXECUTE with RELEASE_WFI): 8 bytes in 3.80 us, on an H100.
    Host,
    /// The compute class (SET_REPORT_SEMAPHORE_A to D), as CUDA does it: 3.46 us.
    Engine,
    /// The same, one word without the time: 3.30 us.
    EngineWord,
    /// The compute class by REPORT_SEMAPHORE_EXECUTE, one word without the time: 3.33 us.
    Execute,
    /// A second inline copy, of the number to the tracker, after the first one's system memory barrier: 2.73 us. No time.
    #[default]
    Flag,
}

impl InlineRelease {
    /// Whether the release also writes the GPU's time.
    pub(crate) fn is_timed(self) -> bool {
        matches!(self, InlineRelease::Host | InlineRelease::Engine)
    }
}

/// The words that a copy engine's release writes, and the flush before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyRelease {
    /// Number and time, after a flush that makes the data visible to all (FLUSH_TYPE=SYS).
    #[default]
    Timed,
    /// Only the number.
    Word,
    /// Only the number, after a flush for readers on the GPU (FLUSH_TYPE=GL): for data in GPU memory.
    LocalWord,
}

impl CopyRelease {
    pub(crate) fn is_timed(self) -> bool {
        self == CopyRelease::Timed
    }

    pub(crate) fn launch(self) -> u32 {
        match self {
            CopyRelease::Timed => launch_dma::FLUSH | launch_dma::RELEASE_TIMED,
            CopyRelease::Word => launch_dma::FLUSH | launch_dma::RELEASE,
            CopyRelease::LocalWord => launch_dma::FLUSH | launch_dma::FLUSH_LOCAL | launch_dma::RELEASE,
        }
    }
}

/// The flush of a copy engine before it writes a word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyFlush {
    /// No flush: the word shows that the engine has passed the copy. The CPU may see it before the bytes.
    None,
    /// For readers on the GPU (FLUSH_TYPE=GL).
    Local,
    /// For all readers (FLUSH_TYPE=SYS).
    #[default]
    All,
}

impl CopyFlush {
    fn launch(self) -> u32 {
        match self {
            CopyFlush::None => 0,
            CopyFlush::Local => launch_dma::FLUSH | launch_dma::FLUSH_LOCAL,
            CopyFlush::All => launch_dma::FLUSH,
        }
    }
}

/// The caller's word for a copy's end: the engine writes 32 bits of the ticket's number to it.
#[derive(Clone, Debug)]
pub struct Told {
    pub word: Arc<Semaphore>,
    pub flush: CopyFlush,
}

/// The address of a copy's release, and the bits of its LAUNCH_DMA; 0 for no release.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub va: u64,
    pub launch: u32,
}

impl End {
    /// Without `told` only the release's launch is left out: the words keep a place for the number.
    pub fn untracked(tracker: u64, told: Option<&Told>) -> End {
        told.map_or(End { va: tracker, launch: 0 }, |Told { word, flush }| End {
            va: word.va(),
            launch: flush.launch() | launch_dma::RELEASE,
        })
    }
}

/// A copy from the start of one region to the start of another by a copy engine, and its release. If `begun` is set,
/// its release precedes the copy.
pub(crate) fn copy(
    engine: Engine,
    between: &Between,
    bytes: u32,
    mode: CopyMode,
    end: End,
) -> Result<(Vec<u32>, Layout), Error> {
    if !matches!(engine, Engine::Copy(_)) {
        return Err(Error::OtherChannel);
    }
    let Between { to, from: Some(from), begun, .. } = between else { return Err(Error::Length(0)) };
    let mut words = [0u32; 32];
    let mut w = Words::new(&mut words);
    if let Some(begun) = *begun {
        // The engine has not written any data yet, so no flush is needed.
        w.copy_semaphore(COPY, begun, BEGUN)?;
        w.inc(COPY, offset::COPY_LAUNCH_DMA, &[launch_dma::RELEASE_TIMED])?;
    }
    let mut release = w.len();
    let launch = match mode {
        CopyMode::Plain => launch_dma::NON_PIPELINED,
        CopyMode::Pipelined => launch_dma::PIPELINED,
        CopyMode::Folded => {
            w.copy_semaphore(COPY, end.va, PAYLOAD)?;
            launch_dma::NON_PIPELINED | end.launch
        }
    };
    let at = w.len();
    w.copy(COPY, from.va(), to.va(), bytes, launch | launch_dma::PITCH)?;
    if mode != CopyMode::Folded {
        release = w.len();
        w.copy_semaphore(COPY, end.va, PAYLOAD)?;
        if end.launch != 0 {
            w.inc(COPY, offset::COPY_LAUNCH_DMA, &[end.launch])?;
        }
    }
    let layout = Layout {
        payload: release + written::PAYLOAD,
        source: at + written::COPY_SOURCE,
        destination: at + written::COPY_DESTINATION,
        data: Vec::new(),
    };
    Ok((w.as_slice().to_vec(), layout))
}

/// An inline copy of `bytes` to the start of a region, by the graphics engine.
pub(crate) fn inline(
    (engine, tracker): (Engine, u64),
    between: &Between,
    bytes: u32,
    mode: InlineMode,
    release: InlineRelease,
) -> Result<(Vec<u32>, Layout), Error> {
    let Between { to, begun, .. } = between;
    if engine != Engine::Graphics {
        return Err(Error::OtherChannel);
    }
    if bytes == 0 {
        return Err(Error::Length(0));
    }
    let data = vec![0u8; bytes as usize];
    let mut words = vec![0u32; data.len().div_ceil(4) + 64 + 9 * (data.len() / MAX_INLINE)];
    let mut w = Words::new(&mut words);
    if let Some(begun) = *begun {
        w.report_release(COMPUTE, begun, BEGUN)?;
    }
    let (upper, lower) = ((tracker >> 32) as u32, tracker as u32);
    // The second copy, of the flag, is ordered after the barrier of the first.
    let barrier = if release == InlineRelease::Flag { 0 } else { inline_dma::NO_SYSMEMBAR };
    let launch = inline_dma::PITCH | barrier;
    let at = w.len();
    // Words between two blocks of data.
    let apart = match mode {
        InlineMode::Headers => {
            w.inline_long(COMPUTE, to.va(), &data, launch)?;
            1
        }
        InlineMode::Launches => {
            for (i, block) in data.chunks(MAX_INLINE).enumerate() {
                w.inline(COMPUTE, to.va() + (i * MAX_INLINE) as u64, block, launch)?;
            }
            written::INLINE
        }
    };
    let block =
        |(i, block): (usize, &[u8])| (at + written::INLINE + i * (MAX_INLINE / 4 + apart), block.len().div_ceil(4));
    let blocks = data.chunks(MAX_INLINE).enumerate().map(block).collect();
    let end = w.len();
    let mut payload = written::PAYLOAD;
    match release {
        InlineRelease::Host => w.host_release(HOST, tracker, PAYLOAD, true)?,
        InlineRelease::Engine => w.report_release(COMPUTE, tracker, PAYLOAD)?,
        // SET_REPORT_SEMAPHORE_D: RELEASE, STRUCTURE_SIZE (28) ONE_WORD.
        InlineRelease::EngineWord => {
            w.inc(COMPUTE, offset::REPORT_SEMAPHORE_A, &[upper, lower, PAYLOAD, 1 << 28])?;
        }
        // SET_REPORT_SEMAPHORE_PAYLOAD_LOWER, _UPPER, ADDRESS_LOWER, _UPPER, REPORT_SEMAPHORE_EXECUTE: RELEASE,
        // STRUCTURE_SIZE (4:3) ONE_WORD.
        InlineRelease::Execute => {
            payload = 1;
            w.inc(COMPUTE, offset::REPORT_SEMAPHORE_PAYLOAD_LOWER, &[PAYLOAD, 0, lower, upper, 1 << 3])?;
        }
        InlineRelease::Flag => {
            payload = written::INLINE;
            w.inline(COMPUTE, tracker, &PAYLOAD.to_le_bytes(), inline_dma::PITCH | inline_dma::NO_SYSMEMBAR)?;
        }
    }
    // There is no source address: the same word is patched twice.
    let destination = at + written::INLINE_DESTINATION;
    let layout = Layout { payload: end + payload, source: destination, destination, data: blocks };
    Ok((w.as_slice().to_vec(), layout))
}

/// The positions of the words to be patched.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    pub payload: usize,
    /// Upper word of the source address; the lower one follows.
    pub source: usize,
    pub destination: usize,
    /// Blocks of inline data: first word, words.
    pub data: Vec<(usize, usize)>,
}

/// The value of the semaphore before a transfer: the engine has reached it.
pub(crate) const BEGUN: u32 = 1;

/// Placeholder for the ticket's number: no address or length looks like it.
pub(crate) const PAYLOAD: u32 = 0xd00b_e11a;

impl Layout {
    /// Writes inline data into the words; the rest of the last word does not change.
    #[inline]
    pub fn put_data(&self, words: &mut [u32], data: &[u8]) {
        let mut rest = data;
        for at in self.data.iter().flat_map(|&(at, count)| at..at + count) {
            let (word, after) = rest.split_at(rest.len().min(4));
            rest = after;
            let mut bytes = words[at].to_le_bytes();
            bytes[..word.len()].copy_from_slice(word);
            words[at] = u32::from_le_bytes(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;
    use doorbell_softgpu::{Mode, SoftDriver};
    use pushbuf::header::Header;

    /// FLUSH_ENABLE 2, SEMAPHORE_TYPE 4:3, FLUSH_TYPE 25.
    #[test]
    fn a_word_is_written_behind_the_flush_that_it_asks_for() {
        let launches = [CopyFlush::None, CopyFlush::Local, CopyFlush::All].map(|flush| flush.launch());
        assert_eq!(launches, [0, 1 << 2 | 1 << 25, 1 << 2]);
        assert_eq!(End::untracked(0x1000, None).launch, 0);
    }

    #[test]
    fn what_is_patched_is_where_the_layout_says() {
        const TRACKER: u64 = 0x7aaa_1111_2000;
        let device = Device::open(Arc::new(SoftDriver::new(Mode::Strict)), 0).unwrap();
        let space = AddressSpace::new(&device).unwrap();
        let memory = space.alloc_host(0x3_0000).unwrap();
        let [to, from] = [0, 0x2_0000].map(|at| memory.region().part(at, 0x1_0000).unwrap());
        let address = |words: &[u32], at: usize| u64::from(words[at]) << 32 | u64::from(words[at + 1]);
        for begun in [None, Some(0x7bbb_3333_4000)] {
            let between = Between { begun, ..Between::of(&to, Some(&from)) };
            for (mode, launch) in
                [CopyMode::Plain, CopyMode::Pipelined, CopyMode::Folded].map(|m| [(m, 0), (m, 0x14)]).concat()
            {
                let (words, layout) = copy(Engine::Copy(0), &between, 64, mode, End { va: TRACKER, launch }).unwrap();
                assert_eq!(words[layout.payload], PAYLOAD, "{mode:?}");
                assert_eq!(address(&words, layout.payload - 2), TRACKER, "{mode:?}");
                assert_eq!(
                    [layout.source, layout.destination].map(|at| address(&words, at)),
                    [from.va(), to.va()],
                    "{mode:?}"
                );
            }
            let between = Between { begun, ..Between::of(&to, None) };
            let modes = [InlineMode::Headers, InlineMode::Launches];
            let releases = [
                InlineRelease::Host,
                InlineRelease::Engine,
                InlineRelease::EngineWord,
                InlineRelease::Execute,
                InlineRelease::Flag,
            ];
            let most = MAX_INLINE as u32;
            for bytes in [1, 4, 5, most - 1, most, most + 1, 2 * most, 2 * most + 1] {
                for (mode, release) in modes.map(|mode| releases.map(|release| (mode, release))).concat() {
                    let (words, layout) = inline((Engine::Graphics, TRACKER), &between, bytes, mode, release).unwrap();
                    assert_eq!(words.iter().filter(|word| **word == PAYLOAD).count(), 1);
                    assert_eq!(words[layout.payload], PAYLOAD, "{bytes} {mode:?} {release:?}");
                    assert_eq!((layout.source, address(&words, layout.destination)), (layout.destination, to.va()));
                    for &(first, words_of_it) in &layout.data {
                        let Header::Methods { address, count, .. } = Header::parse(words[first - 1]) else {
                            panic!("{first}")
                        };
                        assert_eq!((address, usize::from(count)), (offset::INLINE_LOAD_DATA, words_of_it));
                    }
                    let all: usize = layout.data.iter().map(|(_, words)| words).sum();
                    assert_eq!(all, bytes.div_ceil(4) as usize);
                }
            }
        }
    }
}

//! Reads the words that CUDA wrote when it launched a graph.

use crate::error::Error;
use crate::given::{channels_of, segments_of};
use crate::launches::Launches;
use crate::small_copies;
use cuda_graph::{FillMacro, Macros, Recipe, Refused, Segment, Work};
use gpu::{AddressSpace, Given, GivenChannel, Watched};
use std::sync::Arc;

/// How many launches after the upload are compared, and how often two are made on a busy stream and then on an idle one: another thread may have had CUDA
/// submit something in between.
const AGAIN: usize = 2;
const HELD: usize = 4;
const TRIES: usize = 3;

/// Launches of a graph that is already uploaded.
struct Again {
    given: Vec<Given>,
    /// If the stream was busy during all of them: the semaphores that the work keeping it busy released.
    held: Option<Vec<u64>>,
    /// Whether the stream can be kept busy. (It may still have been released too early: CUDA may wait for it when it needs something for the first time.)
    can_hold: bool,
}

/// A graph that is being learnt, one CUDA launch at a time.
struct Learning {
    upload: Option<Given>,
    again: Again,
    known: Macros,
    /// Each kind of macro is measured once.
    fills: bool,
    copies: bool,
    held: usize,
    tries: usize,
    why: Option<Error>,
}

impl Learning {
    /// For an executable graph that was not launched yet.
    fn new() -> Learning {
        Learning {
            upload: None,
            again: Again::new(true),
            known: Macros::default(),
            fills: true,
            copies: true,
            held: 0,
            tries: 0,
            why: None,
        }
    }

    /// Has the graph launched again. Returns the recipe after enough launches: three, or a few more. `fills` measures how CUDA's fill macro is read, and
    /// is called if the graph has such a memset.
    fn step(
        &mut self,
        watched: &Watched,
        space: &Arc<AddressSpace>,
        launches: &mut impl Launches,
        fills: impl FnOnce() -> Result<FillMacro, String>,
    ) -> Result<Option<Recipe>, Error> {
        if self.upload.is_none() {
            // (CUDA loads and opens the objects that it needs, and may wait for the stream while it does.)
            self.upload = Some(once(watched, space, launches)?.0);
            return Ok(None);
        }
        self.again.launch(watched, space, launches)?;
        if self.again.given.len() < AGAIN {
            return Ok(None);
        }
        let again = std::mem::replace(&mut self.again, Again::new(false));
        let learnt = self.recipe(watched, space, &again, fills);
        let more = learnt.or_else(|error| self.goes_on(&again, error).map(|()| None));
        self.again = Again::new(self.held < HELD);
        more
    }

    fn recipe(
        &mut self,
        watched: &Watched,
        space: &Arc<AddressSpace>,
        again: &Again,
        fills: impl FnOnce() -> Result<FillMacro, String>,
    ) -> Result<Option<Recipe>, Error> {
        let Some(upload) = &self.upload else { return Ok(None) };
        let mut learnt = recipe_of(upload, again, self.known);
        let mut fills = Some(fills);
        // (One graph may have both kinds of macro.)
        for _ in 0..2 {
            let Err(Error::Refused(refused)) = &learnt else { break };
            let unknown = |why| Error::Macro { refused: refused.clone(), why };
            match refused {
                Refused::MacroArguments { .. } if self.fills => {
                    let Some(fills) = fills.take() else { break };
                    self.fills = false;
                    self.known.fills = Some(fills().map_err(unknown)?);
                }
                Refused::CopyArguments { .. } if self.copies => {
                    self.copies = false;
                    self.known.copies = Some(small_copies::by_libcuda(watched, space).map_err(unknown)?);
                }
                _ => break,
            }
            learnt = recipe_of(upload, again, self.known);
        }
        programs(learnt?).map(Some)
    }

    /// Decides after an error whether another launch may help.
    fn goes_on(&mut self, again: &Again, error: Error) -> Result<(), Error> {
        if matches!(error, Error::Macro { .. } | Error::Refused(Refused::Staged { .. })) {
            return Err(error);
        }
        // (CUDA omits a wait that is over, but it may not omit it another time.)
        let may_differ = matches!(error, Error::Disturbed(_) | Error::Refused(Refused::NoPlace { .. }));
        if again.can_hold {
            // If all waits are there, any other reason is the graph's own.
            let its_own = again.held.is_some() && !may_differ;
            self.held = if its_own { HELD } else { self.held + 1 };
            let why = Some(error).filter(|_| again.held.is_some());
            self.why = why.or(self.why.take());
            return Ok(());
        }
        (self.held, self.tries) = (HELD, self.tries + 1);
        if !may_differ || self.tries == TRIES {
            return Err(self.why.take().unwrap_or(error));
        }
        Ok(())
    }
}

/// Has the graph launched until it is learnt.
pub(crate) fn learn(
    watched: &Watched,
    space: &Arc<AddressSpace>,
    launches: &mut impl Launches,
    mut fills: impl FnMut() -> Result<FillMacro, String>,
) -> Result<Recipe, Error> {
    let mut learning = Learning::new();
    loop {
        if let Some(recipe) = learning.step(watched, space, launches, &mut fills)? {
            return Ok(recipe);
        }
    }
}

impl Again {
    fn new(hold: bool) -> Again {
        Again { given: Vec::new(), held: hold.then(Vec::new), can_hold: false }
    }

    /// One more launch; on a busy stream if all earlier ones were and if that is possible.
    fn launch(
        &mut self,
        watched: &Watched,
        space: &Arc<AddressSpace>,
        launches: &mut impl Launches,
    ) -> Result<(), Error> {
        let before = if self.held.is_some() { held(watched, space, launches)? } else { None };
        self.can_hold |= before.is_some();
        let (given, kept) = once(watched, space, launches)?;
        self.given.push(given);
        self.held = self.held.take().zip(before.filter(|_| kept)).map(|(all, more)| [all, more].concat());
        Ok(())
    }
}

/// One launch, and whether the stream was busy until CUDA had written the launch.
fn once(watched: &Watched, space: &Arc<AddressSpace>, launches: &mut impl Launches) -> Result<(Given, bool), Error> {
    let launched = watched.mark(space).map_err(Error::from).and_then(|mark| match launches.launch() {
        Ok(()) => Ok(mark),
        Err(error) => Err(Error::Launching(error.to_string())),
    });
    // After an error, too: a held stream would stay held.
    let finished = launches.finish().map_err(|error| Error::Launching(error.to_string()));
    let (mark, kept) = (launched?, finished?);
    Ok((watched.given(&mark)?, kept))
}

/// Keeps the stream busy, and returns the semaphores that the work keeping it busy releases. `None` if that is not possible.
fn held(watched: &Watched, space: &Arc<AddressSpace>, launches: &mut impl Launches) -> Result<Option<Vec<u64>>, Error> {
    let mark = watched.mark(space)?;
    if !launches.hold() {
        return Ok(None);
    }
    match watched.given(&mark) {
        Ok(given) => {
            let (channels, segments) = segments_of(&given);
            Ok(Some(cuda_graph::released(&channels, &segments)))
        }
        Err(error) => {
            launches.finish().map_err(|error| Error::Launching(error.to_string()))?;
            Err(error.into())
        }
    }
}

/// Refuses memcpy nodes that use CUDA's own memory: CUDA does not answer queries for its addresses.
fn programs(recipe: Recipe) -> Result<Recipe, Error> {
    let ends = recipe.nodes.iter().flat_map(|node| match &node.work {
        Work::Copy(copy) => vec![copy.src, copy.dst],
        _ => Vec::new(),
    });
    match ends.into_iter().find(|address| gpu::Libcuda::knows(*address) == Some(false)) {
        Some(address) => Err(Refused::Staged { address }.into()),
        None => Ok(recipe),
    }
}

/// Makes a recipe from the words of the upload and of the launches after it.
fn recipe_of(upload: &Given, again: &Again, macros: Macros) -> Result<Recipe, Error> {
    let (handles, channels) = channels_of(std::iter::once(upload).chain(&again.given));
    let launches: Vec<Vec<Segment<'_>>> = again.given.iter().map(|given| segments(given, &handles)).collect();
    let upload = segments(upload, &handles);
    if upload.is_empty() || launches.iter().any(Vec::is_empty) {
        return Err(Error::NothingSubmitted);
    }
    let launches: Vec<&[Segment<'_>]> = launches.iter().map(Vec::as_slice).collect();
    let learnt = match &again.held {
        Some(before) => cuda_graph::learn_held(macros, before, &channels, &upload, &launches),
        None => cuda_graph::learn_with(macros, &channels, &upload, &launches),
    };
    learnt.map_err(|refused| match refused {
        // The first launch was like those after it.
        Refused::QmdNotWritten { .. } if same_length(&upload, &launches) => {
            Error::LaunchedBefore { segments: upload.len() }
        }
        Refused::LaunchesDiffer { .. } | Refused::LengthsDiffer { .. } => Error::Disturbed(refused),
        refused => Error::Refused(refused),
    })
}

/// The segments of a launch, channel by channel.
fn segments<'a>(given: &'a Given, handles: &[u32]) -> Vec<Segment<'a>> {
    let of = |channel: &'a GivenChannel| {
        let number = handles.iter().position(|handle| *handle == channel.handle).unwrap_or(usize::MAX);
        channel.segments.iter().map(move |words| Segment { channel: number, words })
    };
    given.channels.iter().flat_map(of).collect()
}

fn same_length(upload: &[Segment<'_>], again: &[&[Segment<'_>]]) -> bool {
    let words = |launch: &[Segment<'_>]| launch.iter().map(|segment| segment.words.len()).sum::<usize>();
    again.iter().any(|launch| words(launch) == words(upload))
}

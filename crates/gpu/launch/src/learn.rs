//! What CUDA says when it launches a graph, read where it wrote it.

use crate::error::Error;
use crate::given::{channels_of, segments_of};
use crate::launches::Launches;
use crate::small_copies;
use cuda_graph::{FillMacro, Macros, Recipe, Refused, Segment, Work};
use gpu::{AddressSpace, Given, GivenChannel, Watched};
use std::sync::Arc;

/// Launches after the upload that are compared with each other, and how often two are made behind a busy stream, and then without: another thread may have
/// had CUDA submit something meanwhile.
const AGAIN: usize = 2;
const HELD: usize = 4;
const TRIES: usize = 3;

/// Launches of a graph that has been uploaded.
struct Again {
    given: Vec<Given>,
    /// Where the stream was busy during all of them: the semaphores that were released by what it was busy with.
    held: Option<Vec<u64>>,
    /// It can be kept busy. (It may have been let go too early all the same: CUDA may wait for it when it needs something for the first time.)
    can_hold: bool,
}

/// Has the graph launched three times, or a few times more, and makes a recipe of what was said. `fills` says how CUDA's macro that fills memory is read,
/// and is asked if the graph has such a memset.
pub(crate) fn learn(
    watched: &Watched,
    space: &Arc<AddressSpace>,
    launches: &mut impl Launches,
    fills: impl FnOnce() -> Result<FillMacro, String>,
) -> Result<Recipe, Error> {
    // (It loads and opens what it needs, and may wait for the stream meanwhile.)
    let upload = once(watched, space, launches)?.0;
    let (mut fills, mut copies, mut known) = (Some(fills), true, Macros::default());
    let (mut held, mut tries, mut why) = (0, 0, None);
    loop {
        let again = again(watched, space, launches, held < HELD)?;
        let mut learnt = recipe_of(&upload, &again, known);
        // (One graph may have both kinds of macro; each is measured once.)
        for _ in 0..2 {
            let Err(Error::Refused(refused)) = &learnt else { break };
            let unknown = |why| Error::Macro { refused: refused.clone(), why };
            match refused {
                Refused::MacroArguments { .. } => {
                    let Some(fills) = fills.take() else { break };
                    known.fills = Some(fills().map_err(unknown)?);
                }
                Refused::CopyArguments { .. } if copies => {
                    copies = false;
                    known.copies = Some(small_copies::by_libcuda(watched, space).map_err(unknown)?);
                }
                _ => break,
            }
            learnt = recipe_of(&upload, &again, known);
        }
        let error = match learnt {
            Ok(recipe) => return programs(recipe),
            Err(error) => error,
        };
        // (What CUDA leaves out because it is over, it may not leave out another time.)
        let may_differ = matches!(error, Error::Disturbed(_) | Error::Refused(Refused::NoPlace { .. }));
        if again.can_hold {
            // With all waits there, any other reason is the graph's own.
            let its_own = again.held.is_some() && !may_differ;
            held = if its_own { HELD } else { held + 1 };
            why = Some(error).filter(|_| again.held.is_some()).or(why);
            continue;
        }
        (held, tries) = (HELD, tries + 1);
        if !may_differ || tries == TRIES {
            return Err(why.unwrap_or(error));
        }
    }
}

/// Some launches after the upload. `hold`: each behind a busy stream, if that can be done.
fn again(
    watched: &Watched,
    space: &Arc<AddressSpace>,
    launches: &mut impl Launches,
    hold: bool,
) -> Result<Again, Error> {
    let mut again = Again { given: Vec::new(), held: hold.then(Vec::new), can_hold: false };
    for _ in 0..AGAIN {
        let before = if again.held.is_some() { held(watched, space, launches)? } else { None };
        again.can_hold |= before.is_some();
        let (given, kept) = once(watched, space, launches)?;
        again.given.push(given);
        again.held = again.held.zip(before.filter(|_| kept)).map(|(all, more)| [all, more].concat());
    }
    Ok(again)
}

/// One launch, and whether the stream was busy until CUDA had written it.
fn once(watched: &Watched, space: &Arc<AddressSpace>, launches: &mut impl Launches) -> Result<(Given, bool), Error> {
    let launched = watched.mark(space).map_err(Error::from).and_then(|mark| match launches.launch() {
        Ok(()) => Ok(mark),
        Err(error) => Err(Error::Launching(error.to_string())),
    });
    // Whatever happened: a stream that is held would stay so.
    let finished = launches.finish().map_err(|error| Error::Launching(error.to_string()));
    let (mark, kept) = (launched?, finished?);
    Ok((watched.given(&mark)?, kept))
}

/// Keeps the stream busy, and says which semaphores are released by what it is busy with. `None` where that cannot be done.
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

/// Refuses memcpy nodes that go through memory of CUDA's own: CUDA does not answer for that when it is asked for an address.
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

/// A recipe from what was given for the upload and for the launches after it.
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
        // The first launch was one as those after it.
        Refused::QmdNotWritten { .. } if same_length(&upload, &launches) => {
            Error::LaunchedBefore { segments: upload.len() }
        }
        Refused::LaunchesDiffer { .. } | Refused::LengthsDiffer { .. } => Error::Disturbed(refused),
        refused => Error::Refused(refused),
    })
}

/// The segments of a launch, one channel's after another's.
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

//! What CUDA says when it launches a graph, read where it wrote it.

use crate::error::Error;
use crate::given::channels_of;
use crate::small_copies;
use gpu::{AddressSpace, Given, GivenChannel, Watched};
use recipe::{FillMacro, Macros, Recipe, Refused, Segment, Work};
use std::fmt::Display;
use std::sync::Arc;

/// Launches after the upload that are compared with each other, and how often two more are made where they differ: another thread may have had CUDA
/// submit something meanwhile.
const AGAIN: usize = 2;
const TRIES: usize = 3;

/// Has the graph launched three times, or a few times more, and makes a recipe of what was said. `fills` says how CUDA's macro that fills memory is read,
/// and is asked if the graph has such a memset.
pub(crate) fn learn<E: Display>(
    watched: &Watched,
    space: &Arc<AddressSpace>,
    mut launch: impl FnMut() -> Result<(), E>,
    fills: impl FnOnce() -> Result<FillMacro, String>,
) -> Result<Recipe, Error> {
    let mut given = || -> Result<Given, Error> {
        let mark = watched.mark(space)?;
        launch().map_err(|error| Error::Launching(error.to_string()))?;
        Ok(watched.given(&mark)?)
    };
    let upload = given()?;
    let (mut tries, mut fills, mut copies, mut known) = (1, Some(fills), true, Macros::default());
    loop {
        let again = (0..AGAIN).map(|_| given()).collect::<Result<Vec<_>, _>>()?;
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
        match learnt {
            // (What CUDA leaves out because it is over, it may not leave out another time.)
            Err(Error::Disturbed(_) | Error::Refused(Refused::NoPlace { .. })) if tries < TRIES => tries += 1,
            Ok(recipe) => return programs(recipe),
            refused => return refused,
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
fn recipe_of(upload: &Given, again: &[Given], macros: Macros) -> Result<Recipe, Error> {
    let (handles, channels) = channels_of(std::iter::once(upload).chain(again));
    let again: Vec<Vec<Segment<'_>>> = again.iter().map(|given| segments(given, &handles)).collect();
    let upload = segments(upload, &handles);
    if upload.is_empty() || again.iter().any(Vec::is_empty) {
        return Err(Error::NothingSubmitted);
    }
    let again: Vec<&[Segment<'_>]> = again.iter().map(Vec::as_slice).collect();
    recipe::learn_with(macros, &channels, &upload, &again).map_err(|refused| match refused {
        // The first launch was one as those after it.
        Refused::QmdNotWritten { .. } if same_length(&upload, &again) => {
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

//! The parts of a run that were recorded but not yet evaluated.

use crate::attribution::{Error, Joined, join};
use decode::Recording;
use run_folder::commands::Recorded;
use run_folder::{Folder, Part};

/// Joins every recorded part of a run with its recording, and writes it again with the commands of its calls. If that is impossible, the part gets
/// the reason. `tell` is called for each part.
///
/// # Errors
/// A part or its samples cannot be read, or it cannot be written.
pub fn read_tapes(folder: &Folder, tell: &mut dyn FnMut(&str)) -> Result<(), run_folder::Error> {
    let stages = folder.stages();
    let is_recorded = |part: &Part| stages.get(part.stage as usize).is_some_and(|s| !s.run.record.is_no());
    for mut part in folder.parts()?.into_iter().filter(|part| part.recorded.is_none() && is_recorded(part)) {
        let tape = Folder::tape_name(part.stage, part.repeat);
        tell(&format!("reading {tape}"));
        let samples = folder.samples(part.stage, part.repeat)?;
        let cells: Vec<&[_]> = samples.iter().map(Vec::as_slice).collect();
        let joined = Recording::open(&folder.path().join(&tape)).map_err(Error::from).and_then(|recording| {
            let counter = part.counter.as_ref().ok_or(Error::NoCounter)?;
            join(&recording, counter, &cells)
        });
        let recorded = Recorded { tape, ..Recorded::default() };
        part.recorded = Some(match joined {
            Err(why) => Recorded { not_joined: Some(why.to_string()), ..recorded },
            Ok(Joined { commands, doorbells, clock_error_ns, incomplete_because }) => {
                part.cells.iter_mut().zip(commands).for_each(|(cell, commands)| cell.commands = commands);
                Recorded { doorbells, clock_error_ns, incomplete_because, ..recorded }
            }
        });
        folder.replace_part(&part)?;
    }
    Ok(())
}

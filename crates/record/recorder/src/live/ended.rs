//! Recorded processes that have ended, for answers to `now`.

use super::details::end;
use crate::end::Ending;
use crate::image::Image;
use std::collections::VecDeque;
use tape::live::{LiveEnd, LiveProcess, state};

/// The latest so many are kept.
const KEPT: usize = 64;

#[derive(Default)]
pub struct Ended(VecDeque<LiveProcess>);

impl Ended {
    /// A process has ended. (Not one that executed another program.)
    pub fn add(&mut self, image: &Image, ending: &Ending) {
        let status = match ending {
            Ending::Status(status) => Some(*status),
            Ending::Unknown => None,
            Ending::Exec | Ending::StillRunning | Ending::GoesOn => return,
        };
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(LiveProcess {
            pid: image.pid,
            name: String::from_utf8_lossy(image.name()).into_owned(),
            parent: image.parent,
            began: image.start_tsc,
            rank: image.rank.clone(),
            collectives: image.work.collectives(false),
            state: state::ENDED.into(),
            ended: Some(LiveEnd { at: crate::clock::tsc(), ..end(false, status) }),
            ..LiveProcess::default()
        });
    }

    /// Those whose number no other recorded process has now.
    pub fn all<'a>(&'a self, images: &'a [Image]) -> impl Iterator<Item = LiveProcess> + 'a {
        self.0.iter().filter(|p| images.iter().all(|i| i.pid != p.pid)).cloned()
    }
}

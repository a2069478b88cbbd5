//! Which of a session's lanes is which.

use crate::open::LANES;

/// The one of inline copies, after those to the GPU and those from it.
pub(crate) const INLINE: usize = 2 * LANES;
/// Lanes of launches that a session may have.
pub(crate) const LAUNCH_LANES: usize = 16;
/// The first one of launches.
pub(crate) const LAUNCHES: usize = INLINE + 1;
/// The first one of chains' copies beside launches: each lane of launches has its own. Claimed behind that, never before it.
pub(crate) const BESIDE: usize = LAUNCHES + LAUNCH_LANES;
/// Has no channel: who claims it looks at buffers, and nobody who submits finds a lane taken.
pub(crate) const LOOKS: usize = BESIDE + LAUNCH_LANES;
pub(crate) const ALL: usize = LOOKS + 1;

/// Whether it is one of launches.
#[inline]
pub(crate) fn has_launches(lane: usize) -> bool {
    (LAUNCHES..BESIDE).contains(&lane)
}

/// The one of copies beside a lane of launches.
#[inline]
pub(crate) fn beside(launches: usize) -> usize {
    launches + LAUNCH_LANES
}

/// The lane of launches that it is beside.
#[inline]
pub(crate) fn launches_of(beside: usize) -> Option<usize> {
    (BESIDE..LOOKS).contains(&beside).then(|| beside - LAUNCH_LANES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::by_cpu::DONE;

    #[test]
    fn each_lane_of_launches_has_one_beside_it_and_tickets_have_room_for_all() {
        for lane in 0..ALL {
            assert_eq!(launches_of(lane).is_some(), (BESIDE..LOOKS).contains(&lane));
            assert_eq!(has_launches(lane), launches_of(beside(lane)) == Some(lane));
        }
        assert!(ALL <= DONE.into());
    }
}

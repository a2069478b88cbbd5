//! The numbers of a session's lanes.

use crate::open::LANES;

/// The lane of inline copies, after those to the GPU and those from it.
pub(crate) const INLINE: usize = 2 * LANES;
/// Maximum number of launch lanes of a session.
pub(crate) const LAUNCH_LANES: usize = 16;
/// The first launch lane.
pub(crate) const LAUNCHES: usize = INLINE + 1;
/// The first copy lane for chains: each launch lane has its own. It is claimed after the launch lane, never before.
pub(crate) const BESIDE: usize = LAUNCHES + LAUNCH_LANES;
/// The lane of long lists to the GPU.
pub(crate) const WIDE: usize = BESIDE + LAUNCH_LANES;
/// Has no channel. A thread that looks at buffers claims it, so submissions do not find their lanes taken.
pub(crate) const LOOKS: usize = WIDE + 1;
pub(crate) const ALL: usize = LOOKS + 1;

/// Whether it is a launch lane.
#[inline]
pub(crate) fn has_launches(lane: usize) -> bool {
    (LAUNCHES..BESIDE).contains(&lane)
}

/// The copy lane next to a launch lane.
#[inline]
pub(crate) fn beside(launches: usize) -> usize {
    launches + LAUNCH_LANES
}

/// The launch lane next to this copy lane.
#[inline]
pub(crate) fn launches_of(beside: usize) -> Option<usize> {
    (BESIDE..WIDE).contains(&beside).then(|| beside - LAUNCH_LANES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::by_cpu::DONE;

    #[test]
    fn each_lane_of_launches_has_one_beside_it_and_tickets_have_room_for_all() {
        for lane in 0..ALL {
            assert_eq!(launches_of(lane).is_some(), (BESIDE..WIDE).contains(&lane));
            assert_eq!(has_launches(lane), launches_of(beside(lane)) == Some(lane));
        }
        assert!(ALL <= DONE.into());
    }
}

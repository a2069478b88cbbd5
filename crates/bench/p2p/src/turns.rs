//! Rounds in which every cell takes one turn, in a new random order: compared cells were measured at the same time.

/// Takes turns until the rounds are over, or it is stopped: a round that has begun is finished. A cell whose turn returns false takes no more.
/// Returns the number of rounds.
pub(crate) fn take(
    turns: usize,
    rounds: u32,
    seed: u64,
    is_stopped: &dyn Fn() -> bool,
    mut turn: impl FnMut(usize, u32) -> bool,
) -> u32 {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut order: Vec<usize> = (0..turns).collect();
    for round in 0..rounds {
        if order.is_empty() || is_stopped() {
            return round;
        }
        random.shuffle(&mut order);
        order.retain(|n| turn(*n, round));
    }
    rounds
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn every_cell_has_one_turn_a_round_in_an_order_of_the_rounds_own() {
        let mut rounds = vec![Vec::new(); 8];
        let taken = take(5, 8, 3, &|| false, |n, round| {
            rounds[round as usize].push(n);
            true
        });
        assert_eq!(taken, 8);
        let mut orders = rounds.clone();
        orders.sort_unstable();
        orders.dedup();
        assert!(orders.len() > 4, "{rounds:?}");
        for mut round in rounds {
            round.sort_unstable();
            assert_eq!(round, [0, 1, 2, 3, 4]);
        }
    }

    #[test]
    fn one_that_failed_takes_no_more_turns_and_a_stop_ends_the_round_first() {
        let (mut of_one, told) = (Vec::new(), Cell::new(0));
        let taken = take(3, 9, 1, &|| told.get() >= 7, |n, round| {
            told.set(told.get() + 1);
            if n == 1 {
                of_one.push(round);
            }
            n != 1 || round < 1
        });
        // 3 turns, 3, and 2 of the two remaining ones.
        assert_eq!((taken, told.get(), of_one), (3, 8, vec![0, 1]));
        assert_eq!(take(1, 5, 1, &|| false, |_, _| false), 1);
    }
}

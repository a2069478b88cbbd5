//! Realistic numbers of samples.

use statistics::{CONFIDENCE, Due, Figure, Misses, Ratio, Rounds, Summary, WORST, Worst};
use std::time::Instant;

/// Lognormal round 20 us.
fn sample(random: &mut fastrand::Rng) -> u64 {
    let normal: f64 = (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
    (20_000.0 * (0.1 * normal).exp()) as u64
}

#[test]
fn a_planted_outlier_among_ten_million_is_the_maximum_with_its_index() {
    let mut random = fastrand::Rng::with_seed(11);
    // Cheap noise below 60 us; the planted sample is 100 us.
    let mut samples: Vec<u64> = (0..10_000_000).map(|_| 20_000 + random.u64(0..40_000)).collect();
    samples[6_700_067] = 100_000;
    let worst = Worst::of(samples.iter().copied(), WORST);
    assert_eq!((worst[0].value, worst[0].index, worst.len()), (100_000, 6_700_067, WORST));
    assert!(worst[1..].iter().all(|w| w.value < 60_000));
    let misses = Misses::of([Due { made: &samples, unmade: 0 }], 99_999);
    assert_eq!((misses.missed, misses.of, misses.longest_run, misses.first), (1, 10_000_000, 1, Some(6_700_067)));
    let summary = Summary::of(&mut samples).unwrap();
    assert_eq!(summary.max, 100_000);
    assert!(summary.p9999.unwrap() < 60_000);
}

#[test]
fn intervals_of_a_million_samples_take_well_under_a_second() {
    let mut random = fastrand::Rng::with_seed(12);
    let mut rounds =
        || -> Vec<Vec<u64>> { (0..20).map(|_| (0..50_000).map(|_| sample(&mut random)).collect()).collect() };
    let (these, those) = (rounds(), rounds());
    let began = Instant::now();
    let (these, those) = (Rounds::new(&these).in_repeats_of(4), Rounds::new(&those).in_repeats_of(4));
    let sorted = began.elapsed();
    let began = Instant::now();
    for figure in [Figure::P50, Figure::P99, Figure::P999, Figure::P9999, Figure::Mean] {
        let interval = these.interval(figure, CONFIDENCE).unwrap();
        assert!(interval.holds(these.figure(figure).unwrap()), "{figure}");
    }
    let intervals = began.elapsed();
    let began = Instant::now();
    let ratio = Ratio::of(&these, &those, Figure::P999, CONFIDENCE).unwrap();
    assert!(ratio.interval.unwrap().holds(1.0), "{ratio:?}");
    println!("sorted 2 x 1 million in {sorted:?}, five intervals in {intervals:?}, a ratio in {:?}", began.elapsed());
    // Alone it is some 50 ms; a loaded machine shares its CPUs.
    assert!(intervals.as_secs_f64() < 5.0, "{intervals:?}");
}

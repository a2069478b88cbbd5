//! Work that runs during a measurement and verifies itself: CUDA's kernels, fills, copies and graphs against the same arithmetic on the CPU, every
//! kind of doorbell channel, and creation and destruction while transfers are in flight. One `fire` is one unit of it.
//!
//! These are loads. What CUDA's part submits is prepared before `fire`; the others open, allocate and compare within it, and should not be timed.

mod churn;
mod cuda;
mod own;

pub(crate) use self::cuda::{COPIES, GRAPHS, KERNELS, MEMSET};
pub(crate) use churn::CHURN;
pub(crate) use own::{APERTURE, BAR1, CE, INLINE};

use crate::{Checks, Error, Opened, Subject, Wanted, Wrong};
use std::time::Duration;

/// The largest transfer if no size is given.
const BYTES: u64 = 1 << 20;

fn size(wanted: &Wanted) -> u64 {
    if wanted.bytes == 0 { BYTES } else { wanted.bytes }
}

/// A size between 1 and `most`, with small ones as frequent as large ones.
fn any_size(random: &mut fastrand::Rng, most: u64) -> u64 {
    let most = most.max(1);
    let bits = u64::BITS - most.leading_zeros();
    (random.u64(1..=most) >> random.u32(0..bits)).max(1)
}

/// Work that is done and compared within one call.
trait Unit {
    fn about(&self) -> String;

    /// Does one unit, and returns a description of any error.
    fn work(&mut self, random: &mut fastrand::Rng) -> Result<Option<Wrong>, Error>;
}

struct Units<U>(U);

impl<U: Unit> Opened for Units<U> {
    fn about(&self) -> String {
        self.0.about()
    }

    fn verify(&mut self, seed: u64, _timeout: Duration) -> Result<Option<Wrong>, Error> {
        self.0.work(&mut fastrand::Rng::with_seed(seed))
    }

    fn prepare(&mut self, seed: u64) -> Result<Box<dyn Subject + '_>, Error> {
        Ok(Box::new(Turn { unit: &mut self.0, random: fastrand::Rng::with_seed(seed), wrong: None }))
    }
}

struct Turn<'s, U> {
    unit: &'s mut U,
    random: fastrand::Rng,
    /// The first error found; it is kept.
    wrong: Option<Wrong>,
}

impl<U: Unit> Subject for Turn<'_, U> {
    fn fire(&mut self) -> Result<(), Error> {
        let wrong = self.unit.work(&mut self.random)?;
        self.wrong = self.wrong.take().or(wrong);
        Ok(())
    }

    fn checks(&self) -> Checks {
        Checks::BytesAndGuards
    }

    /// Every unit has been compared: this is the result of all of them.
    fn check(&mut self) -> Result<Option<Wrong>, Error> {
        Ok(self.wrong.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_reach_from_one_byte_to_the_most() {
        let mut random = fastrand::Rng::with_seed(1);
        let sizes: Vec<u64> = (0..20_000).map(|_| any_size(&mut random, 1 << 20)).collect();
        assert!(sizes.iter().all(|s| (1..=1 << 20).contains(s)));
        assert!(sizes.contains(&1) && sizes.iter().any(|s| *s > 1 << 19));
        assert!((0..100).all(|_| any_size(&mut random, 1) == 1));
    }

    struct Fails(u32);

    impl Unit for Fails {
        fn about(&self) -> String {
            "fails at the third".into()
        }

        fn work(&mut self, _: &mut fastrand::Rng) -> Result<Option<Wrong>, Error> {
            self.0 += 1;
            Ok((self.0 == 3).then_some(Wrong::PastTheEnd { touched: 1, first: 0 }))
        }
    }

    #[test]
    fn a_unit_that_went_wrong_stays_wrong() {
        let mut units = Units(Fails(0));
        let mut subject = units.prepare(1).unwrap();
        for n in 1..=5 {
            subject.fire().unwrap();
            assert_eq!(subject.check().unwrap().is_some(), n >= 3);
        }
    }
}

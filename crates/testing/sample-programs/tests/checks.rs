//! The whole list passes on the software GPU. One test, because the checks count resources of the process.

use doorbell_softgpu::{Mode, SoftDriver};
use sample_programs::checks::{self, CHECKS, Ground, Verdict};
use std::sync::Arc;

#[test]
#[ignore = "4 s; run by .ci/run"]
fn every_check_passes_on_the_software_gpu() {
    let mut failed = Vec::new();
    for check in CHECKS {
        let ground = Ground::soft(Arc::new(SoftDriver::new(Mode::Strict)));
        let record = checks::run(check, &ground);
        println!("{:20} {:?} {:?}", record.name, record.took, record.verdict);
        if !matches!(record.verdict, Verdict::Passed(_)) {
            failed.push((record.name, record.verdict));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn names_are_one_word_each_and_found() {
    for check in CHECKS {
        assert!(
            check.name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'),
            "{}",
            check.name
        );
        assert_eq!(checks::find(check.name).unwrap().about, check.about);
        assert_eq!(CHECKS.iter().filter(|other| other.name == check.name).count(), 1);
    }
    assert!(checks::find("no-such-check").is_none());
}

//! Bursts of I/Os as a subject, on the software GPU: every byte is compared, and what cannot be is refused with the reason.

use doorbell_softgpu::{Mode, SoftDriver};
use std::sync::Arc;
use std::time::Duration;
use workload::{Checks, Machine, Wanted, What, open};

const BYTES: u64 = 256 << 10;

fn machine() -> Machine {
    Machine::of_driver(Arc::new(SoftDriver::new(Mode::Poll)), false).unwrap()
}

#[test]
fn bursts_arrive_in_gpu_memory_and_in_the_hosts() {
    let machine = machine();
    for text in [
        "ios(size=512B,depth=8,devices=2,buffer=256KiB)",
        "ios(to-host,size=4KiB,depth=16,batch=4,devices=2,queues=2,threads=2,buffer=1MiB)",
        "ios(size=512B,depth=64,batch=32,completions-every=1,buffer=128KiB)",
        "ios(armed,size=512B,depth=4,engines=3,buffer=64KiB)",
    ] {
        let mut opened = open(&machine, &What::Call(text.into()), &Wanted::of(BYTES)).unwrap();
        assert_eq!(opened.verify(1, Duration::from_secs(20)).unwrap(), None, "{text}");
        assert!(opened.about().contains("I/Os of") && opened.about().contains("copy engines"), "{}", opened.about());
        let mut subject = opened.prepare(7).unwrap();
        for _ in 0..3 {
            subject.renew().unwrap();
            subject.fire().unwrap();
            assert!(subject.poll().unwrap());
            assert_eq!(subject.check().unwrap(), None, "{text}");
        }
        assert_eq!((subject.did().bytes, subject.checks()), (BYTES, Checks::Bytes));
    }
}

#[test]
fn what_cannot_be_is_refused_with_the_reason() {
    let machine = machine();
    for (text, why) in [
        ("ios(threads=2)", "each thread needs a queue"),
        ("ios(depth=8,batch=16)", "the depth must cover the batch"),
        ("ios(plain,batch=8)", "the way must fit the batch"),
        ("ios(devices=3)", "not the same number of whole doorbells"),
        ("ios(devices=64)", "64 copy engines are asked for"),
        ("ios(engines=2+x)", "\"x\" is no number of a copy engine"),
        ("ios(engines=77)", "no copy engine 77"),
        ("ios(armed,drives=0000:04:00.0)", "only copy engines have ways and gates"),
    ] {
        let opened = open(&machine, &What::Call(text.into()), &Wanted::of(BYTES));
        let refused = opened.and_then(|mut opened| opened.prepare(1).map(drop)).unwrap_err();
        assert!(
            matches!(&refused, workload::Error::Unavailable(_)) && refused.to_string().contains(why),
            "{text}: {refused}"
        );
    }
    // Two laps of a queue's I/Os must fit into its part.
    let mut small = open(&machine, &What::Call("ios(buffer=64KiB)".into()), &Wanted::of(BYTES)).unwrap();
    let refused = small.prepare(1).map(drop).unwrap_err().to_string();
    assert!(refused.contains("128 I/Os of 4096 bytes"), "{refused}");
}

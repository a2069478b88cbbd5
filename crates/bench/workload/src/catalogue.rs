//! The list of calls, and the one function that opens what an experiment names.

use crate::entry::{Call, Entry, Result};
use crate::route;
use crate::text;
use crate::{Machine, SyntaxError, Unavailable, Wanted, What};

#[rustfmt::skip]
const ENTRIES: &[Entry] = &[
    crate::launch::LAUNCH,
    crate::launch::GRAPH,
    crate::nodes::NODES,
    crate::chain::CHAIN,
    crate::library::COPY,
    crate::setup::STREAM,
    crate::setup::MALLOC,
    crate::setup::HOST_ALLOC,
    crate::setup::HOST_REGISTER,
    crate::setup::HOST_UNREGISTER,
    crate::setup::PIN,
    crate::setup::UNPIN,
    crate::setup::MODULE,
    crate::setup::LAZY,
    crate::setup::INSTANTIATE,
    crate::frames::FRAMES,
    crate::transfers::TRANSFERS,
    crate::outside::HOG,
    crate::outside::TRIAD,
    crate::outside::HACKBENCH,
    crate::outside::FILE,
    crate::hbm::HBM,
    crate::lock::LOCK,
    crate::ios::IOS,
    crate::nothing::NOTHING,
];

/// Every call that can be measured, or run as a load.
pub fn calls() -> &'static [Entry] {
    ENTRIES
}

/// Calls of before.
const GONE: [&str; 14] = [
    "kernels",
    "memset",
    "copies",
    "graphs",
    "ce",
    "inline",
    "bar1",
    "aperture",
    "churn",
    "counter",
    "engines",
    "host-counter",
    "apart",
    "loads",
];

fn parse(text: &str) -> std::result::Result<(Call, &'static Entry), SyntaxError> {
    text::parse(text, ENTRIES).map_err(|error| error.gone(&GONE))
}

/// Whether this is the text of a route or of a call. Nothing is opened.
///
/// # Errors
/// What is wrong, where, and what is allowed there.
pub fn check(what: &What) -> std::result::Result<(), SyntaxError> {
    match what {
        What::Route(name) => crate::routes::parse(name).map(drop),
        What::Call(text) => parse(text).map(drop),
    }
}

/// Opens a route or a call for the calling thread, whose CUDA context becomes the machine's. Any number of threads may open the same on one
/// machine; each uses its own.
///
/// # Errors
/// [`Error::Syntax`] for a text that is neither, [`Error::Unavailable`] for what this machine lacks, and errors of CUDA and the driver.
pub fn open<'m>(machine: &'m Machine, what: &What, wanted: &Wanted) -> Result<'m> {
    if wanted.back_to_back > 1 {
        let why = "doorbell 0.1.0 no longer measures copies back to back: leave back-to-back out, and compare the rate of large copies";
        return Err(Unavailable::new(why).into());
    }
    machine.enter()?;
    match what {
        What::Route(name) => route::open(machine, name, wanted),
        What::Call(text) => {
            let (call, entry) = parse(text)?;
            let bytes = if wanted.bytes == 0 { entry.bytes } else { wanted.bytes };
            (entry.open)(machine, &call, &Wanted { bytes, ..wanted.clone() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> SyntaxError {
        check(&What::Call(text.into())).unwrap_err()
    }

    #[test]
    fn every_form_is_its_own_text() {
        let mut names: Vec<_> = calls().iter().map(|call| call.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), calls().len(), "two calls have the same name");
        for call in calls() {
            assert!(
                call.form.starts_with(call.name) && !call.about.is_empty() && !call.about.contains('\n'),
                "{call:?}"
            );
            check(&What::Call(call.name.into())).unwrap();
        }
    }

    #[test]
    fn calls_are_read_and_printed() {
        for (text, printed) in [
            ("launch", "launch"),
            ("launch(10)", "launch(10)"),
            ("graph(ours, 10, polled)", "graph(10,polled,ours)"),
            (" launch ( polled ) ", "launch(polled)"),
            ("graph(7)", "graph(7)"),
            ("graph", "graph"),
            ("graph(polled, 20)", "graph(20,polled)"),
            ("nodes(2, wide)", "nodes(2,wide)"),
            ("graph(priority = high,7)", "graph(7,priority=high)"),
            ("lock", "lock"),
            ("ios(batch=8, size=512B,to-host)", "ios(to-host,size=512B,batch=8)"),
            ("ios(drives=0000:04:00.0+0000:05:00.0)", "ios(drives=0000:04:00.0+0000:05:00.0)"),
            ("lock( name = queue, hold=1.5ms , rwlock-read )", "lock(rwlock-read,hold=1.5ms,name=queue)"),
        ] {
            assert_eq!(text::parse(text, ENTRIES).unwrap().0.to_string(), printed);
        }
        assert_eq!(text::parse("graph", ENTRIES).unwrap().0.number, 20);
        check(&What::Route("host->ce0->gpu0".into())).unwrap();
    }

    #[test]
    fn everything_in_the_shipped_experiments_is_known() {
        for read in experiment::shipped().iter().flat_map(|shipped| shipped.read_all().unwrap()) {
            let whats = read.subjects.iter().map(|s| &s.what).chain(read.loads.iter().map(|l| &l.what));
            for what in whats {
                check(what).unwrap_or_else(|error| panic!("{}: {error}", read.title()));
            }
        }
    }

    #[test]
    fn errors_report_the_fault_the_place_and_the_allowed_values() {
        for (text, at, what, allowed) in [
            ("", 0, "nothing", "launch(KERNELS,polled,priority=high|low), graph("),
            ("lunch", 0, "`lunch`", "calls are launch"),
            ("launch(", 7, "no closing bracket", "byte 6"),
            ("launch()", 7, "nothing", "polled"),
            ("launch(ours)", 7, "`ours`", "launch takes the number of kernels from 1 to"),
            ("stream(3)", 7, "`3`", "stream takes"),
            ("graph(0)", 6, "`0`", "the number of kernels from 1 to"),
            ("graph(20000000000)", 6, "`20000000000`", "from 1 to"),
            ("graph(3,4)", 8, "`4`", "from 1 to"),
            ("graph(3, fast)", 9, "`fast`", "polled"),
            ("graph(polled,polled)", 13, "second time", "polled"),
            ("lock(mutex,rwlock-read)", 11, "`rwlock-read` besides `mutex`", "mutex or rwlock-read or rwlock-write"),
            ("lock(hold=50)", 5, "`hold=50`", "hold= and a time"),
            ("lock(hold=1us,hold=2us)", 14, "`hold` for the second time", "hold="),
            ("ios(depth=0)", 4, "`depth=0`", "depth= and a number from 1 on"),
            ("ios(size=4KB)", 4, "`size=4KB`", "a size, as `4KiB`"),
            ("launch(priority=highest)", 7, "`priority=highest`", "priority= and high or low"),
            ("lock(name=a b)", 5, "`name=a b`", "letters"),
            ("launch(hold=1us)", 7, "`hold=1us`", "polled"),
        ] {
            let error = error(text);
            assert_eq!((error.at, error.kind), (at, "call"), "{error}");
            assert!(error.what.contains(what) && error.allowed.contains(allowed), "{error}");
        }
        let error = check(&What::Call("churn(pins)".into())).unwrap_err().to_string();
        assert!(error.ends_with("doorbell 0.1.0 no longer has `churn`"), "{error}");
        let error = check(&What::Route("host->ce0".into())).unwrap_err();
        assert!(error.to_string().starts_with("route `host->ce0`"), "{error}");
    }
}

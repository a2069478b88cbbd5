//! A picture of who waited for whom when the recording was saved, or ended.

use crate::document::{Figure, Table, head, number, text};
use crate::numbers::ns;
use crate::plot::waits::{Chain, Waits, draw};
use schema::now::{NowPath, NowThread};
use schema::slow_calls::Moment;
use terminal::number::nanoseconds;

/// Maximum number of chains, and of threads of each.
const CHAINS: usize = 6;
const THREADS: usize = 12;

/// `None` if no thread waited for another one.
pub fn picture(m: &Moment) -> Option<Figure> {
    let of = |tid: i32| m.now.threads.iter().find(|t| t.tid == tid);
    let chain = |is_cycle: bool, path: &NowPath| {
        let mut links: Vec<_> = path.tids.iter().map(|tid| of(*tid).map_or_else(|| unseen(*tid), link)).collect();
        if links.len() > THREADS {
            let more = format!("{} more", links.len() - THREADS + 1);
            links.splice(THREADS / 2..=links.len() - THREADS / 2, [(more, String::new())]);
        }
        Chain { is_cycle, links }
    };
    let cycles = m.now.cycles.iter().map(|path| chain(true, path));
    let chains: Vec<Chain> = cycles.chain(m.now.chains.iter().map(|path| chain(false, path))).take(CHAINS).collect();
    if chains.is_empty() {
        return None;
    }
    let title = format!("Who waited for whom {}", m.when);
    let about = "Each thread waits for the next one; in a cycle, drawn thick, the last one waits for the first.";
    let [page, file] = draw(&Waits { title: title.clone(), about: about.into(), chains });
    let (name, about, file) = ("who-waits".into(), about.into(), file.svg);
    Some(Figure { name, title, about, page, file, says: Vec::new(), table: table(&m.now.threads) })
}

fn unseen(tid: i32) -> (String, String) {
    (format!("thread {tid}"), String::new())
}

/// A thread, and why it waits.
fn link(t: &NowThread) -> (String, String) {
    let name = if t.thread.is_empty() { String::new() } else { format!(" ({})", t.thread) };
    let call = t.call.as_ref().map_or_else(String::new, |c| format!(", in {} for {}", c.name, nanoseconds(c.ns)));
    let why = match (&t.waits, t.joins) {
        (Some(w), _) => format!("waits {} for {}", nanoseconds(w.ns), w.lock),
        (None, Some(tid)) => format!("waits for the end of thread {tid}"),
        (None, None) => String::new(),
    };
    (format!("thread {}{name}{call}", t.tid), why)
}

fn table(threads: &[NowThread]) -> Table {
    let columns =
        vec![head("thread"), text("waits for"), number("for", "ns"), text("at"), text("call"), number("for", "ns")];
    let mut table = Table::new("waiting", "Threads that waited, were in a call, or kept others waiting", columns);
    for t in threads {
        let (waits, call) = (t.waits.as_ref(), t.call.as_ref());
        table.row(vec![
            schema::names::thread(t.tid, &t.thread).into(),
            waits.map_or("", |w| w.lock.as_str()).into(),
            waits.map_or_else(|| "".into(), |w| ns(w.ns)),
            waits.map_or("", |w| w.site.as_str()).into(),
            call.map_or("", |c| c.name.as_str()).into(),
            call.map_or_else(|| "".into(), |c| ns(c.ns)),
        ]);
    }
    table.without_empty()
}

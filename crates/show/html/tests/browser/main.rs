//! Pages in a headless Chromium: loaded, walked through by keyboard, on a phone, in print, dark and light, and looked at by axe.

mod devtools;
#[path = "../made/mod.rs"]
mod made;
mod site;
#[path = "../../../../explain/decode/tests/synthetic/mod.rs"]
mod synthetic;

use devtools::{Browser, Tab};
use made::{THOUSAND, named, recorded, run, soak, two};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Pages of every kind, in a folder.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../explain/decode/fixtures/h200-launches.doorbell");
    let recording = decode::Recording::open(&fixture).unwrap();
    let tape = folder.join("kernels.doorbell");
    synthetic::kernel_times().write(&tape);
    let kernels = decode::Recording::open(&tape).unwrap();
    let tape = folder.join("copies.doorbell");
    synthetic::copy_times().write(&tape);
    let copies = decode::Recording::open(&tape).unwrap();
    let tape = folder.join("slow.doorbell");
    synthetic::slow_launches().write(&tape);
    let slow = decode::Recording::open(&tape).unwrap();
    let small = THOUSAND.replace("4B..64MiB", "8B,4KiB,1MiB");
    let soft = small.replace("samples = 2000", "samples = 2000\ngpu = \"soft\"");
    let documents = [
        ("thousand", html::of_runs(&[named(run(THOUSAND))]).unwrap()),
        ("two", two(run(&small), run(&small.replace("\"thousand\"", "\"other\"")))),
        (
            "rates",
            html::of_runs(&[named(run(&small.replace("\"cuda\"\n[[assert", "\"cuda\"\nmetric = \"rate\"\n[[assert")))])
                .unwrap(),
        ),
        ("soft", html::of_runs(&[named(run(&soft))]).unwrap()),
        ("recording", html::of_recording(&recording).unwrap()),
        ("kernels", html::of_recording(&kernels).unwrap()),
        ("copies", html::of_recording(&copies).unwrap()),
        ("slow", html::of_recording(&slow).unwrap()),
        ("commands", html::of_runs(&[named(recorded(run(&small)))]).unwrap()),
        ("soak", html::of_soak(&soak())),
    ];
    let write = |(name, document): (&str, html::Document)| {
        let path = folder.join(format!("{name}.html"));
        std::fs::write(&path, html::html(&document)).unwrap();
        path
    };
    documents.into_iter().map(write).collect()
}

fn opened(tab: &mut Tab<'_>, page: &Path, width: u32, scheme: &str) -> f64 {
    tab.screen(width, 900, scheme);
    tab.open(page)
}

#[test]
#[ignore = "starts a browser; run by .ci/run"]
fn pages_work_in_a_browser() {
    if !test_support::installed("chromium") {
        test_support::skip!("chromium is not installed");
    }
    let dir = tempfile::tempdir().unwrap();
    let pages = pages(dir.path());
    let mut browser = Browser::start(dir.path()).unwrap();
    let axe = axe(dir.path());
    for page in &pages {
        let name = page.file_stem().unwrap().to_string_lossy().into_owned();
        let mut tab = browser.tab();
        for (width, scheme) in [(1280, "light"), (1280, "dark"), (360, "light")] {
            opened(&mut tab, page, width, scheme);
            let wide = tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth");
            assert_eq!(wide, 0, "{name} at {width}: it scrolls sideways");
            labels(&mut tab, &name, width);
            // The first statement of a page is on the first screen, however many links there are.
            let title = tab.evaluate("document.querySelector('h1').getBoundingClientRect().top");
            assert!(title.as_f64().is_some_and(|top| top < 200.0), "{name} at {width}: its title is at {title}");
        }
        print(&mut tab, &name);
        keyboard(&mut tab, page, &name);
        if name == "recording" {
            timeline(&mut tab, page);
        }
        if name == "kernels" {
            kernels(&mut tab, page);
        }
        if name == "copies" {
            copies(&mut tab, page);
        }
        if name == "slow" {
            [(1400, 900), (390, 844)].into_iter().for_each(|size| slow(&mut tab, page, size));
        }
        assert_eq!(tab.complaints(page), Vec::<String>::new(), "{name}");
        // The other pages have the same elements as these.
        if let Some(axe) = axe.as_ref().ok().filter(|_| !["thousand", "rates"].contains(&name.as_str())) {
            for scheme in ["light", "dark"] {
                accessible(&mut tab, page, scheme, axe, &name);
            }
        }
    }
    opens_at_once(&mut browser, &pages[0]);
    if let Err(why) = axe {
        test_support::skip_part!("axe: {why}");
    }
}

/// Under a second, a thousand cells; measured again where the machine was busy.
fn opens_at_once(browser: &mut Browser, page: &Path) {
    let mut tab = browser.tab();
    let best = (0..4).map(|_| opened(&mut tab, page, 1280, "light")).fold(f64::INFINITY, f64::min);
    assert!(best < 1_000.0, "it took {best} ms");
}

/// One version of each picture is shown. No text in it is cut off or overlaps another, and all are large enough to be read.
fn labels(tab: &mut Tab<'_>, name: &str, width: u32) {
    let wrong = tab.evaluate(
        "(() => { const wrong = [];
           for (const picture of document.querySelectorAll('.picture')) {
             const shown = [...picture.querySelectorAll('svg')].filter((s) => s.checkVisibility());
             if (shown.length !== 1) { wrong.push('shown: ' + shown.length); continue; }
             const edge = shown[0].getBoundingClientRect();
             const texts = [...shown[0].querySelectorAll('text')].map((t) => [t.textContent, t.getBoundingClientRect()]);
             for (const [text, r] of texts) {
               if (r.left < edge.left - 1 || r.right > edge.right + 1 || r.top < edge.top - 1 || r.bottom > edge.bottom + 1)
                 wrong.push('cut off: ' + text);
               if (Math.min(r.height, r.width * 9) < 8) wrong.push('too small: ' + text);
             }
             texts.forEach(([text, a], n) => texts.slice(n + 1).forEach(([other, b]) => {
               const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
               if (across > 3 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 5) wrong.push(text + ' lies on ' + other);
             }));
           }
           for (const th of document.querySelectorAll('tbody th')) {
             const range = document.createRange();
             range.selectNodeContents(th);
             const lines = new Set([...range.getClientRects()].map((r) => Math.round(r.top))).size;
             const words = th.textContent.split(/[\\s-]+|(?<=[>,])/).filter(Boolean).length;
             if (lines > words && th.clientWidth < 120) wrong.push('broken word: ' + th.textContent);
           }
           return wrong.slice(0, 9); })()",
    );
    assert_eq!(wrong, json!([]), "{name} at {width}");
}

/// No tool is printed, no part scrolls, and ink is dark.
fn print(tab: &mut Tab<'_>, name: &str) {
    tab.media("print", "dark");
    let seen = tab.evaluate(
        "(() => { const shown = (q) => [...document.querySelectorAll(q)].some((e) => e.checkVisibility());
           return [shown('nav'), shown('.tools'), shown('h1'), getComputedStyle(document.body).color,
             [...document.querySelectorAll('.scroll')].some((e) => e.checkVisibility() && getComputedStyle(e).overflow !== 'visible')]; })()",
    );
    assert_eq!(seen, json!([false, false, true, "rgb(22, 24, 27)", false]), "{name} in print");
    let pdf = tab.call("Page.printToPDF", json!({ "printBackground": false }));
    assert!(pdf["data"].as_str().is_some_and(|data| data.len() > 10_000), "{name}: no print");
    tab.media("screen", "light");
}

/// Tab reaches every control once, and a folded table opens, offers its data and can be ordered without a mouse.
fn keyboard(tab: &mut Tab<'_>, page: &Path, name: &str) {
    opened(tab, page, 1280, "light");
    let controls = tab.evaluate(
        "window.controls = [...document.querySelectorAll('a[href], button, input, summary, [tabindex=\"0\"]')]
           .filter((e) => e.checkVisibility()); window.reached = new Set();
         document.addEventListener('focusin', (e) => window.reached.add(e.target)); window.controls.length",
    );
    let controls = controls.as_u64().unwrap();
    assert!(controls > 8, "{name}: {controls}");
    for _ in 0..=controls {
        tab.key("Tab", 9, "");
    }
    let missed = tab.evaluate("controls.filter((e) => !reached.has(e)).map((e) => e.outerHTML.slice(0, 120))");
    assert_eq!(missed, json!([]), "{name}: not reached by Tab");
    let folded = tab.evaluate(
        "(() => { const s = document.querySelector('details.data:not([open]) > summary'); s?.focus(); return !!s; })()",
    );
    if folded == Value::Bool(false) {
        return;
    }
    tab.evaluate(
        "window.saved = []; URL.createObjectURL = (blob) => { saved.push(blob.text()); return 'blob:null/none'; }; 0",
    );
    tab.evaluate("HTMLAnchorElement.prototype.click = function () { window.name_of = this.download; }; 0");
    tab.key("Enter", 13, "\r");
    // The event with which a fold reports itself comes later.
    for _ in 0..200 {
        if tab.evaluate("!!document.querySelector('details[open] button')") == true {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    tab.evaluate("document.querySelector('details[open] .tools button').focus()");
    tab.key("Enter", 13, "\r");
    let file = tab.evaluate("Promise.all(saved).then((all) => [window.name_of, all[0]])");
    let (file_name, csv) = (file[0].as_str().unwrap(), file[1].as_str().unwrap());
    let rows = tab.evaluate("document.querySelector('details[open] tbody').rows.length").as_u64().unwrap();
    assert!(file_name.ends_with(".csv"), "{file_name}");
    assert_eq!(csv.lines().count() as u64, rows + 1, "{name}: {csv}");
}

/// It is drawn, a key moves from event to event, and events are found by their names.
fn timeline(tab: &mut Tab<'_>, page: &Path) {
    opened(tab, page, 1280, "light");
    let picture = "document.querySelector('#timeline-view canvas').toDataURL()";
    let frame = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))";
    tab.evaluate(frame);
    let whole = tab.evaluate(picture);
    assert!(whole.as_str().unwrap().len() > 2000, "nothing is drawn: {whole}");
    tab.evaluate("document.querySelector('#timeline-view canvas').focus()");
    let said = "document.getElementById('timeline-said').textContent";
    tab.key("n", 78, "n");
    let first = tab.evaluate(said);
    assert!(first.as_str().unwrap().contains(" at "), "{first}");
    tab.key("n", 78, "n");
    assert_ne!(tab.evaluate(said), first);
    tab.evaluate(frame);
    assert_ne!(tab.evaluate(picture), whole, "it moves to the event");
    tab.evaluate(
        "(() => { const s = document.querySelector('#timeline-tools input'); s.focus(); s.value = 'doorbell';
                    s.dispatchEvent(new Event('input')); })()",
    );
    let found = tab.evaluate(said);
    assert!(found.as_str().unwrap().contains(" events found"), "{found}");
    tab.key("Enter", 13, "\r");
    assert!(tab.evaluate(said).as_str().unwrap().starts_with("doorbell "));
}

/// The answer is on the first screen. The timeline is open at the longest loss, and goes on to the next; where it is, what is chosen is, too.
fn slow(tab: &mut Tab<'_>, page: &Path, (width, height): (u32, u32)) {
    tab.screen(width, height, "light");
    tab.open(page);
    let edges = |tab: &mut Tab<'_>, what: &str| {
        let edges = "(({ left, top, right, bottom }) => [left, top, right, bottom])";
        let found = tab.evaluate(&format!("{edges}(document.querySelector('{what}').getBoundingClientRect())"));
        [0, 1, 2, 3].map(|n| found[n].as_f64().unwrap())
    };
    let is_seen = |[left, top, right, bottom]: [f64; 4]| {
        left >= 0.0
            && top >= 0.0
            && right <= f64::from(width)
            && bottom <= f64::from(height)
            && right > left
            && bottom > top
    };
    let answer = edges(tab, "p.answer");
    assert!(is_seen(answer), "{width}: {answer:?}");
    let tops = ["p.answer", "table[data-name=slow-calls]", "table[data-name=causes]", "#timeline-view"];
    let tops = tops.map(|what| edges(tab, what)[1]);
    assert!(tops.is_sorted(), "{width}: {tops:?}");
    let said = "document.getElementById('timeline-said').textContent";
    let first = tab.evaluate(said).as_str().unwrap().to_owned();
    assert!(
        first.starts_with("cuLaunchKernel (calls of thread 100") && first.ends_with("; lost 9 ms; number 1 of 2"),
        "{first}"
    );
    // All that a reader needs is on one screen, however it was scrolled to.
    tab.evaluate("location.hash = '#timeline'; 0");
    let frame = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))";
    tab.evaluate(frame);
    for what in ["#timeline-tools", "#timeline-view", ".details", "#timeline-said", "#timeline-lines li.d2"] {
        let at = edges(tab, what);
        assert!(is_seen(at), "{width}: {what} is at {at:?}");
    }
    let (view, details) = (edges(tab, "#timeline-view"), edges(tab, ".details"));
    let is_beside = details[0] >= view[2];
    assert_eq!(is_beside, width > 900, "{view:?} {details:?}");
    assert!(is_beside || details[1] >= view[3], "{width}: the details cover the timeline: {view:?} {details:?}");
    let picture = "document.querySelector('#timeline-view canvas').toDataURL()";
    let opened = tab.evaluate(picture);
    tab.evaluate("document.querySelector('#timeline-view canvas').focus()");
    tab.key("Home", 36, "");
    tab.evaluate(frame);
    assert_ne!(tab.evaluate(picture), opened, "{width}: it opened at all of the recording");
    tab.evaluate(
        "[...document.querySelectorAll('#timeline-tools button')].find((b) => b.textContent === 'Next').click()",
    );
    let second = tab.evaluate(said).as_str().unwrap().to_owned();
    assert!(second.ends_with("; lost 4 ms; number 2 of 2"), "{second}");
    tab.key("p", 80, "p");
    tab.evaluate(frame);
    assert_eq!((tab.evaluate(said), tab.evaluate(picture)), (first.into(), opened), "{width}");
    let lines = tab.evaluate("document.getElementById('timeline-lines').textContent");
    assert!(lines.as_str().unwrap().contains("thread 101 held it for 9.00 ms"), "{lines}");
}

/// Kernels are found by key and by name, lead to their calls and back, and each choice draws something else.
fn kernels(tab: &mut Tab<'_>, page: &Path) {
    opened(tab, page, 1280, "light");
    let picture = "document.querySelector('#timeline-view canvas').toDataURL()";
    let frame = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))";
    let said = "document.getElementById('timeline-said').textContent";
    tab.evaluate("document.querySelector('#timeline-view canvas').focus()");
    tab.key("k", 75, "k");
    let first = tab.evaluate(said).as_str().unwrap().to_owned();
    for part in [
        "add(int*) (kernel) at 0.000203 s, took at most 20.",
        "its start is bounded: from ",
        "1 x 1 x 1 blocks",
        "launched by cuLaunchKernel",
    ] {
        assert!(first.contains(part), "{part}: {first}");
    }
    tab.evaluate(frame);
    let of_kernel = tab.evaluate(picture);
    tab.key("Enter", 13, "\r");
    let call = tab.evaluate(said).as_str().unwrap().to_owned();
    assert!(call.starts_with("cuLaunchKernel (calls of") && call.contains("launched is drawn"), "{call}");
    tab.evaluate(frame);
    assert_ne!(tab.evaluate(picture), of_kernel);
    tab.key("Enter", 13, "\r");
    assert_eq!(tab.evaluate(said), first);
    // It is in the middle of the view now, in the third row of the second track. Above it is how busy the stream was.
    tab.key("Escape", 27, "");
    let mut click = |row: u32| {
        let at = "(() => { const r = document.querySelector('#timeline-view canvas').getBoundingClientRect();
                    return [r.left + 104 + (r.width - 104) / 2, r.top]; })()";
        let at = tab.evaluate(at);
        let (x, y) = (at[0].as_f64().unwrap(), at[1].as_f64().unwrap() + f64::from(24 + 18 * row + 9));
        for kind in ["mousePressed", "mouseReleased"] {
            let params = json!({ "type": kind, "x": x, "y": y, "button": "left", "clickCount": 1 });
            tab.call("Input.dispatchMouseEvent", params);
        }
        tab.evaluate(said).as_str().unwrap().to_owned()
    };
    assert!(click(4).starts_with("A kernel ran for "), "{}", click(4));
    assert_eq!(click(5), first);
    tab.evaluate(
        "(() => { const s = document.querySelector('#timeline-tools input'); s.focus(); s.value = 'Add(int';
                    s.dispatchEvent(new Event('input')); })()",
    );
    assert!(tab.evaluate(said).as_str().unwrap().starts_with("6 events found"));
    tab.key("Enter", 13, "\r");
    assert_eq!(tab.evaluate(said), first);
    // The sixth has a bounded start, and its graph's launch leads to three.
    for _ in 0..5 {
        tab.key("Enter", 13, "\r");
    }
    let bounded = tab.evaluate(said).as_str().unwrap().to_owned();
    assert!(bounded.contains("(kernel of a graph)"), "{bounded}");
    tab.evaluate("document.querySelector('#timeline-view canvas').focus()");
    tab.key("Enter", 13, "\r");
    let call = tab.evaluate(said).as_str().unwrap().to_owned();
    assert!(call.contains("3 of the kernels that it launched are drawn"), "{call}");
}

/// Copies are found by key and by name, and lead to their calls and back.
fn copies(tab: &mut Tab<'_>, page: &Path) {
    opened(tab, page, 1280, "light");
    let said = "document.getElementById('timeline-said').textContent";
    tab.evaluate("document.querySelector('#timeline-view canvas').focus()");
    tab.key("c", 67, "c");
    let first = tab.evaluate(said).as_str().unwrap().to_owned();
    for part in [
        "copy 4 MiB device to host (copy) at 0.000459 s, took 220 us; the GPU stored its start; queued 256",
        "; stream 0x51; made by cuMemcpyDtoHAsync of thread 100",
    ] {
        assert!(first.contains(part), "{part}: {first}");
    }
    tab.key("c", 67, "c");
    assert!(tab.evaluate(said).as_str().unwrap().starts_with("copy 4 MiB host to device"));
    tab.key("Enter", 13, "\r");
    let call = tab.evaluate(said).as_str().unwrap().to_owned();
    assert!(
        call.starts_with("cuMemcpyHtoDAsync (calls of") && call.ends_with("; a copy that it made is drawn"),
        "{call}"
    );
    tab.evaluate(
        "(() => { const s = document.querySelector('#timeline-tools input'); s.focus(); s.value = 'Device to host';
                    s.dispatchEvent(new Event('input')); })()",
    );
    assert!(tab.evaluate(said).as_str().unwrap().starts_with("1 events found"));
    tab.key("Enter", 13, "\r");
    assert_eq!(tab.evaluate(said), first);
}

/// What axe reports as wrong, contrast included.
fn accessible(tab: &mut Tab<'_>, page: &Path, scheme: &str, axe: &str, name: &str) {
    opened(tab, page, 1280, scheme);
    // Folded parts are checked, too; in long tables the first rows represent the others.
    tab.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; }); \
                  document.querySelectorAll('tbody').forEach((b) => { while (b.rows.length > 12) b.deleteRow(12); }); 0");
    tab.evaluate(axe);
    let found = tab.evaluate(
        "axe.run(document, { resultTypes: ['violations'] }).then((r) => r.violations.map((v) =>
           v.id + ': ' + v.nodes.length + ', such as ' + v.nodes[0].html.slice(0, 160) + ' ' + v.nodes[0].failureSummary))",
    );
    assert_eq!(found, json!([]), "{name}, {scheme}");
}

/// The script of axe-core, from npm.
fn axe(folder: &Path) -> Result<String, String> {
    if !test_support::installed("npm") {
        return Err("npm is not installed".into());
    }
    std::fs::write(folder.join("package.json"), "{\"private\":true}").map_err(|e| e.to_string())?;
    let mut npm = Command::new("npm");
    npm.args(["install", "--no-audit", "--no-fund", "--ignore-scripts", "axe-core@4"]).current_dir(folder);
    match test_support::finished_within(&mut npm, Duration::from_secs(30), "npm") {
        Some(done) if done.status.success() => {}
        _ => return Err("npm could not fetch axe-core".into()),
    }
    std::fs::read_to_string(folder.join("node_modules/axe-core/axe.min.js")).map_err(|e| e.to_string())
}

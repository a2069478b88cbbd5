//! The website of the pages, built by `.ci/site`: the search, the first page, and the width of each page.

use crate::devtools::{Browser, Tab};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

/// All pages of the site, or why it cannot be built.
fn built() -> Result<(PathBuf, Vec<PathBuf>), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").canonicalize().unwrap();
    let out = Command::new(root.join(".ci/site")).output().unwrap();
    if out.status.code() == Some(77) {
        return Err("MkDocs is not installed".into());
    }
    assert!(out.status.success(), "{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    let site = root.join(target).join("site");
    let (mut pages, mut folders) = (Vec::new(), vec![site.clone()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "html")
                // (Programs that pages link to may be HTML, too.)
                && std::fs::read_to_string(&path).unwrap().contains("id=\"search\"")
            {
                pages.push(path);
            }
        }
    }
    pages.sort();
    Ok((site, pages))
}

/// What of a page is wider than its column. Tables and code scroll inside.
const TOO_WIDE: &str = "(() => {
    const root = document.documentElement, main = document.querySelector('main');
    const right = main.getBoundingClientRect().right;
    const wide = root.scrollWidth > root.clientWidth ? ['the page: ' + root.scrollWidth] : [];
    const scrolls = (e) => { for (; e !== main; e = e.parentElement) if (getComputedStyle(e).overflowX === 'auto') return true; return false; };
    for (const e of main.querySelectorAll('*'))
      if (e.getBoundingClientRect().right > right + 1 && !scrolls(e.parentElement)) wide.push(e.tagName + ': ' + e.textContent.slice(0, 60));
    return wide.slice(0, 5); })()";

/// The addresses and the texts of the results.
fn searched(tab: &mut Tab<'_>, words: &str) -> (Vec<String>, String) {
    let found = tab.evaluate(&format!(
        "(() => {{ const box = document.getElementById('search'), list = document.getElementById('found');
            box.value = {}; box.dispatchEvent(new Event('input'));
            const edge = list.getBoundingClientRect(), below = box.getBoundingClientRect().bottom;
            return {{ links: [...list.querySelectorAll('a')].map((a) => a.getAttribute('href')), text: list.textContent,
                      seen: edge.top >= below && edge.left >= 0 && edge.right <= innerWidth && edge.height > 20 }}; }})()",
        json!(words)
    ));
    assert_eq!(found["seen"], json!(true), "{words}: the results are on the screen, below the box");
    let links = found["links"].as_array().unwrap().iter().map(|link| link.as_str().unwrap().to_owned()).collect();
    (links, found["text"].as_str().unwrap().to_owned())
}

fn search(tab: &mut Tab<'_>) {
    for (words, page, within) in [
        ("why is my kernel launch slow", "guides/why-slow.html", 1),
        ("how do I record a pytorch program", "tutorials/pytorch.html", 2),
        ("install", "guides/install.html", 1),
        ("GPFIFO", "reference/glossary.html", 5),
        ("lock nosuchwordanywhere", "guides/is-it-a-lock.html", 5),
    ] {
        let (links, text) = searched(tab, words);
        assert!(links.iter().take(within).any(|link| link.contains(page)), "{words}: {links:?}");
        for markup in ["->", "`", "<!--", "|---"] {
            assert!(!text.contains(markup), "{words}: {markup} in {text}");
        }
    }
    let (links, text) = searched(tab, "nosuchwordanywhere");
    assert!(links.is_empty() && text.contains("No section"), "{text}");
}

#[test]
#[ignore = "builds the website and starts a browser; run by .ci/run"]
fn the_website_answers_and_fits_its_screens() {
    if !test_support::installed("chromium") {
        test_support::skip!("chromium is not installed");
    }
    let (site, pages) = match built() {
        Ok(built) => built,
        Err(why) => test_support::skip!("{why}"),
    };
    assert!(pages.len() > 50, "{}", pages.len());
    let dir = tempfile::tempdir().unwrap();
    let mut browser = Browser::start(dir.path()).unwrap();
    let mut tab = browser.tab();
    let mut wrong = Vec::new();
    for width in [1400, 390] {
        tab.screen(width, 900, "light");
        tab.open(&site.join("index.html"));
        search(&mut tab);
        let demo = tab.evaluate("[...document.querySelectorAll('main pre')].map((pre) => pre.textContent).join('')");
        let demo = demo.as_str().unwrap();
        assert!(demo.contains("$ doorbell why doorbell-demo.doorbell") && demo.contains("late frames"), "{demo}");
        for page in &pages {
            tab.open(page);
            let wide = tab.evaluate(TOO_WIDE);
            if wide != json!([]) {
                wrong.push(format!("{} at {width}: {wide}", page.strip_prefix(&site).unwrap().display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let failed = |e: &&Value| e["method"] == "Runtime.exceptionThrown";
    let outside = |e: &&Value| {
        let url = e["params"]["request"]["url"].as_str().unwrap_or("file:");
        !url.starts_with("file:") && !url.starts_with("data:")
    };
    assert!(
        tab.events.iter().all(|e| !failed(&e) && !outside(&e)),
        "a script failed, or something is asked of a network"
    );
}

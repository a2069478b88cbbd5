//! A document as one HTML file. It contains its style and its script, and its policy names them by their hashes: nothing else runs, and nothing is
//! requested from any network.

use crate::document::{Article, Block, Cell, Column, ColumnKind, Document, Figure, Kind, Mark, Section, Table};
use crate::plot::Entry;
use crate::recording::{Next, Timeline};
use base64::Engine;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest, Sha256};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = concat!(include_str!("script.js"), include_str!("timeline.js"));
/// With tracks of the GPU.
const SCRIPT_OF_GPU: &str =
    concat!(include_str!("script.js"), include_str!("gpu_tracks.js"), include_str!("timeline.js"));

fn hash(text: &str) -> String {
    format!("'sha256-{}'", base64::engine::general_purpose::STANDARD.encode(Sha256::digest(text)))
}

/// The text of the file.
pub fn write(document: &Document) -> String {
    let mut blocks = document.articles.iter().flat_map(|a| &a.sections).flat_map(|s| &s.blocks);
    let has_gpu_tracks = blocks.any(|b| matches!(b, Block::Timeline(t) if t.has_gpu_tracks));
    let script = if has_gpu_tracks { SCRIPT_OF_GPU } else { SCRIPT };
    let policy = format!(
        "default-src 'none'; style-src {}; script-src {}; base-uri 'none'; form-action 'none'",
        hash(STYLE),
        hash(script)
    );
    let several = document.articles.len() > 1;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="generator" content=(document.by);
                title { (document.title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                a.skip href="#content" { "Skip to the content" }
                header.top {
                    span.mark aria-hidden="true" {}
                    strong { "doorbell" }
                    span.what { (document.title) }
                    button #look type="button" hidden { "Dark" }
                }
                nav aria-label="On this page" {
                    @for article in &document.articles {
                        @if several { a.article href={ "#" (article.id) } { (article.title) } }
                        ul {
                            @for section in &article.sections {
                                li { a href={ "#" (section.id) } { (section.title) } }
                            }
                        }
                    }
                }
                main #content {
                    @for article in &document.articles { (self::article(article)) }
                }
                footer { p { (document.by) } }
                script { (PreEscaped(script)) }
            }
        }
    };
    page.into_string()
}

fn article(article: &Article) -> Markup {
    html! {
        article aria-labelledby=(article.id) {
            h1 id=(article.id) { (article.title) }
            @for n in article.by_weight() { (notice(n.kind, &n.text)) }
            @if !article.about.is_empty() { p.asked { (article.about) } }
            @if !article.taken.is_empty() {
                ul.taken { @for line in &article.taken { li { (line) } } }
            }
            @for s in &article.sections { (section(s)) }
        }
    }
}

/// Text between two backticks is a command or a name.
fn inline(text: &str) -> Markup {
    let parts: Vec<&str> = text.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return html! { (text) };
    }
    html! {
        @for (n, part) in parts.iter().enumerate() { @if !n.is_multiple_of(2) { code { (part) } } @else { (part) } }
    }
}

fn class_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Good => "good",
        Kind::Note => "note",
        Kind::Warning => "warning",
        Kind::Bad => "bad",
    }
}

fn notice(kind: Kind, text: &str) -> Markup {
    html! { p class={ "notice " (class_of(kind)) } { strong { (kind.word()) ": " } (inline(text)) } }
}

fn section(section: &Section) -> Markup {
    html! {
        section {
            h2 id=(section.id) { (section.title) }
            @for b in &section.blocks { (block(b)) }
        }
    }
}

fn block(block: &Block) -> Markup {
    match block {
        Block::Text(text) => html! { p { (inline(text)) } },
        Block::Answer(text) => html! { p.answer { (inline(text)) } },
        Block::Heading(text) => html! { h3 { (text) } },
        Block::Notice(n) => notice(n.kind, &n.text),
        Block::List(lines) => html! { ul { @for line in lines { li { (inline(line)) } } } },
        Block::Lines(lines) => html! {
            div.view { @for line in lines { (inline(line)) "\n" } }
        },
        Block::Facts(facts) => html! {
            dl { @for (name, value) in facts { div { dt { (name) } dd { (value) } } } }
        },
        Block::Table(t) => table(t, true),
        Block::Figure(f) => figure(f),
        Block::Timeline(t) => timeline(t),
    }
}

fn figure(f: &Figure) -> Markup {
    html! {
        figure {
            figcaption { strong { (f.title) } @if !f.about.is_empty() { span { (f.about) } } }
            div.picture { (PreEscaped(&f.page.svg)) }
            @if !f.page.legend.is_empty() {
                ul.legend { @for e in &f.page.legend { (entry(e)) } }
            }
            @if !f.says.is_empty() { ul.says { @for line in &f.says { li { (line) } } } }
            (table(&f.table, false))
        }
    }
}

/// Its script fills in the tools and draws; without it the table below has the longest events.
fn timeline(t: &Timeline) -> Markup {
    // In an element for data, only its own end tag is recognised as a tag.
    let data = t.data.replace('<', "\\u003c");
    let (more, hint) = match (t.has_gpu_tracks, t.has_copies) {
        (true, true) => (
            ", k moves to the next longest kernel, c to the next longest copy, Enter from either to its call and back",
            ", k for the next longest kernel, c for the next longest copy",
        ),
        (true, false) => (
            ", k moves to the next longest kernel, Enter from a kernel to its call and back",
            ", k for the next longest kernel",
        ),
        _ => ("", ""),
    };
    let next = match t.next {
        Next::Lost => "the call that lost the next most time",
        Next::Waits => "the next longest wait for a lock",
        Next::Longest => "the next longest event",
    };
    let keys = format!("Timeline. Arrow keys move, plus and minus zoom, n moves to {next}, slash searches{more}.");
    html! {
        div #timeline-tools .tools role="group" aria-label="Timeline" data-next=(next) hidden {}
        div #timeline-panes .panes hidden {
            div #timeline-view .timeline {
                canvas tabindex="0" role="application" aria-label=(keys) {}
            }
            div .details role="group" tabindex="0" aria-label="What is chosen" {
                p #timeline-said .said aria-live="polite" { "Click an event, drag to move, zoom with + and -, or press n for " (next) (hint) "." }
                ul #timeline-lines .lines {}
            }
        }
        @if t.has_gpu_tracks { (legend(t.has_copies)) }
        p { (inline(&t.says)) }
        script #timeline-data type="application/json" { (PreEscaped(data)) }
    }
}

/// The kinds of bars on tracks of the GPU.
fn legend(has_copies: bool) -> Markup {
    let swatch =
        |inside: Markup| html! { svg width="34" height="14" viewBox="0 0 34 14" aria-hidden="true" { (inside) } };
    let columns = html! {
        rect.a.full.c6 x="3" y="8" width="7" height="5" {}
        rect.a.full.c6 x="10" y="2" width="7" height="11" {}
        rect.a.full.c6 x="17" y="5" width="7" height="8" {}
    };
    let bar = html! { rect.a.full.c6 x="2" y="2" width="30" height="10" {} };
    let bounded = html! {
        path.l.c6 d="M0 7H10" {}
        path.l.thin.c6 d="M10 2.5H33V11.5H10ZM10 8L15 3M12 11L20 3M17 11L25 3M22 11L30 3M27 11L33 5" {}
    };
    let arrow = html! { path.l.thin.ink d="M3 12C16 12 24 11 26 2M22 6L26.2 1.5L29 7" {} };
    let copy = html! { rect.a.full.c3 x="2" y="2" width="30" height="10" {} };
    let mut entries = vec![
        (columns, "busy: the share of time in which a kernel of the stream ran"),
        (bar, "a kernel, from its start to its end"),
        (bounded, "a kernel whose start is bounded: it started within the hatched bar, or the line before it"),
        (arrow, "from a call to a kernel that it launched, once one of them is chosen"),
    ];
    if has_copies {
        entries.insert(2, (copy, "a copy or a fill, on the track of its channel"));
    }
    html! { ul.legend { @for (inside, what) in entries { li { span { (swatch(inside)) " " (what) } } } } }
}

fn entry(e: &Entry) -> Markup {
    html! {
        li {
            (PreEscaped(crate::plot::swatch(e.number)))
            span { (e.name) }
            @if !e.note.is_empty() { small { (e.note) } }
        }
    }
}

/// Tables with more rows have a search field.
const MANY: usize = 40;

/// Characters that a cell has room for.
const SHORT: usize = 28;

/// `stands`: a table by itself; else it is the data of a picture.
fn table(t: &Table, stands: bool) -> Markup {
    let rows = match t.rows.len() {
        1 => "1 row".to_owned(),
        n => format!("{} rows", terminal::number::count(n as u64)),
    };
    let body = html! {
        div.scroll role="group" tabindex="0" aria-label=(t.caption) {
            table data-name=(t.name) data-many[t.rows.len() > MANY] {
                caption { (t.caption) }
                thead { tr { @for c in &t.columns { (head(c)) } } }
                tbody {
                    @for row in &t.rows {
                        tr.apart[row.apart] {
                            @for (c, cell) in t.columns.iter().zip(&row.cells) { (td(c, cell)) }
                        }
                    }
                }
            }
        }
    };
    html! {
        @if t.folded || !stands {
            details.data {
                summary { (if stands { t.caption.as_str() } else { "Data" }) " " small { (rows) } }
                (body)
            }
        } @else {
            div.data { (body) }
        }
    }
}

fn head(c: &Column) -> Markup {
    let unit = (!c.unit.is_empty()).then_some(c.unit);
    match c.kind {
        ColumnKind::Number => html! { th.n scope="col" data-unit=[unit] { (c.head) } },
        _ => html! { th scope="col" { (c.head) } },
    }
}

fn td(c: &Column, cell: &Cell) -> Markup {
    let class = match cell.mark {
        Mark::None => None,
        Mark::Best => Some("best".to_owned()),
        Mark::Bad => Some("bad".to_owned()),
        Mark::Heat(n) => Some(format!("h{n}")),
    };
    // A number that is written in full needs no separate value.
    let value = cell.value.map(|v| v.to_string()).filter(|v| *v != cell.text);
    match c.kind {
        ColumnKind::Head if cell.is_nothing() && cell.text.is_empty() => html! { td {} },
        ColumnKind::Head => html! { th scope="row" class=[class] data-v=[value] { (cell.text) } },
        ColumnKind::Text => {
            // A short text stays on one line.
            let class = class.or((cell.text.chars().count() < SHORT).then(|| "k".to_owned()));
            html! { td class=[class] { (inline(&cell.text)) } }
        }
        ColumnKind::Number => {
            let class = class.map_or_else(|| "n".to_owned(), |more| format!("n {more}"));
            html! { td class=(class) data-v=[value] { (cell.text) } }
        }
    }
}

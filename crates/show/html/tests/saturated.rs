//! The contents of a page about an invented saturated link.

mod made;

use html::document::Block;
use made::saturated as made;
use saturate::source::Checked;

#[test]
fn the_bars_stand_with_their_table_and_every_line() {
    let run = made(false);
    let document = html::of_saturated(&run);
    let figures: Vec<_> = document.figures().collect();
    assert_eq!(figures.len(), 2, "one a target");
    for figure in &figures {
        let svg = roxmltree::Document::parse(&figure.file).unwrap_or_else(|e| panic!("{}: {e}", figure.name));
        let class = |class: &str| svg.descendants().filter(|n| n.attribute("class") == Some(class)).count();
        // Two sizes of three, one and two devices; line rate and peak across; two parts each.
        assert_eq!((class("bar"), class("level"), class("point")), (6, 2, 12), "{}", figure.name);
        for said in ["63.02 GB/s", "55.00 GB/s", "wire bytes beyond it", "reachable", "GPU of a test"] {
            assert!(figure.file.contains(said), "{said}");
        }
        assert_eq!(figure.table.rows.len(), 6);
        let of = |row: usize, head: &str| {
            let column = figure.table.columns.iter().position(|c| c.head == head).unwrap();
            figure.table.rows[row].cells[column].value.unwrap()
        };
        assert!((of(0, "wire over payload") - 1.1).abs() < 1e-9);
        assert!(of(0, "low") <= 1.1 + 1e-9 && of(5, "payload, GB/s") < of(5, "reachable, GB/s"));
    }
    let html = html::html(&document);
    for said in [
        "How full the link is",
        "The fullest",
        "fill the link",
        "Most data of a packet (MPS)",
        "Every byte that was compared was right",
    ] {
        assert!(html.contains(said), "{said}");
    }
    assert!(html::markdown(&document).contains("wire over payload"));
    let rows = document.tables().all(|t| t.rows.iter().all(|r| r.cells.len() == t.columns.len()));
    assert!(rows);
}

#[test]
fn a_functional_run_shows_no_rate_and_no_time() {
    let document = html::of_saturated(&made(true));
    assert_eq!(document.figures().count(), 0);
    let text = html::markdown(&document);
    assert!(text.contains("never how fast") && text.contains("blocks compared"), "{text}");
    let mut table = Vec::new();
    let run = made(true);
    terminal::saturate::write(&mut table, &terminal::table::Style::of_stdout(), &run).unwrap();
    for text in [text, String::from_utf8(table).unwrap()] {
        for unit in ["GB/s", " ns", " us", " ms", "IOPS"] {
            assert!(!text.contains(unit), "{unit}: {text}");
        }
    }
}

#[test]
fn a_wrong_block_is_said_and_has_no_figure() {
    let mut run = made(false);
    let total = run.cells.iter_mut().find(|total| !total.is_peak()).unwrap();
    total.checked = Checked { blocks: 64, wrong: 1, first: Some("3 of 512 bytes".into()) };
    total.figures = None;
    let document = html::of_saturated(&run);
    let text = html::markdown(&document);
    assert!(text.contains("wrong: 3 of 512 bytes") && text.contains("1 cell failed or had a wrong byte"), "{text}");
    let blocks = document.articles[0].sections.iter().flat_map(|s| &s.blocks);
    let bars = blocks.filter_map(|b| if let Block::Figure(figure) = b { Some(figure.table.rows.len()) } else { None });
    assert_eq!(bars.sum::<usize>(), 11);
}
